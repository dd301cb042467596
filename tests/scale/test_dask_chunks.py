"""Chunks that are not what a Dask array declares, or that change: named errors, never raw ones."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from conenmf import factorize, from_rows
from conenmf.errors import (
    DataChangedError,
    DataError,
    DataTypeError,
)
from conenmf.scale.dask import _evidence

WHERE = "samples 80 to 119 of the Dask array"


@pytest.fixture
def X():
    return np.random.default_rng(0).random((200, 8))


def third_chunk(X, change):
    """A Dask array whose third chunk is not as the others, and does not say so."""

    def load(block, block_info=None):
        is_third = bool(block_info) and block_info[0]["chunk-location"][0] == 2
        return change(block) if is_third else block

    chunks = da.from_array(X, chunks=(40, 8))
    return chunks.map_blocks(load, dtype=float, meta=np.empty((0, 0)))


def shape_error(shape):
    return DataError, rf"{WHERE}: .* shape \({shape}\), but the array declares \(40, 8\)"


WRONG = {
    "fewer samples": (lambda rows: rows[:13], *shape_error("13, 8")),
    "no samples": (lambda rows: rows[:0], *shape_error("0, 8")),
    "fewer features": (lambda rows: rows[:, 1:], *shape_error("40, 7")),
    "more samples": (lambda rows: np.vstack([rows, rows]), *shape_error("80, 8")),
    "fewer sparse": (lambda rows: sp.csr_array(rows[:13]), *shape_error("13, 8")),
    "one dimension": (lambda rows: rows[:, 0], *shape_error("40,")),
    "three dimensions": (lambda rows: rows[..., None], *shape_error("40, 8, 1")),
    "nothing": (lambda rows: None, *shape_error("")),
    "complex": (lambda rows: rows * 1j, DataTypeError, f"{WHERE}: Complex data not supported"),
    "objects": (lambda rows: rows.astype(object), DataTypeError, f"{WHERE}: .* type object"),
    "texts": (lambda rows: rows.astype(str), DataTypeError, f"{WHERE}: .* type <U"),
    "masked": (lambda rows: np.ma.masked_greater(rows, 0.5), DataTypeError, WHERE),
    "NaN": (lambda rows: rows * np.nan, DataError, "row 80 "),
    "negative": (lambda rows: -rows, DataError, "Negative values"),
    "an error": (lambda rows: 1 / 0, ZeroDivisionError, "division by zero"),
}


@pytest.mark.parametrize("persist", [True, False])
@pytest.mark.parametrize("kind", WRONG)
def test_a_chunk_of_another_shape_than_declared(X, kind, persist, refuses):
    change, error, message = WRONG[kind]
    refuses(error, message, lambda: from_rows(third_chunk(X, change), persist=persist))


# --- chunks that change -----------------------------------------------------------------------


def changing(X, when, change):
    """A Dask array that is computed for every pass, and changes when it is for the n-th time."""
    computed = []

    def load(block, block_info=None):
        computed.append(block_info)
        return change(block) if len(computed) > when * 5 else block

    chunks = da.from_array(X, chunks=(40, 8))
    return chunks.map_blocks(load, dtype=float, meta=np.empty((0, 0)))


def with_one_entry(value):
    def change(rows):
        rows = rows.copy()
        rows[3, 5] = value
        return rows

    return change


CHANGES = {
    "random": lambda rows: np.random.default_rng().random(rows.shape),
    "NaN": with_one_entry(np.nan),
    "an entry": with_one_entry(0.4242),
    "samples": lambda rows: rows[::-1],
    "features": lambda rows: rows[:, ::-1],
    "scale": lambda rows: rows * (1 + 1e-6),
}


@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("when", [1, 4])
def test_chunks_that_change_between_passes(X, kind, when, refuses):
    V = from_rows(changing(X, when, CHANGES[kind]), persist=False)
    message, options = r"samples \d+ to \d+ of the Dask .* first pass", {"init": "cr1", "tol": 0}
    refuses(DataChangedError, message, factorize, V, 3, max_iter=6, **options)


def test_every_chunk_is_compared_in_every_pass(X, refuses):
    """One changed chunk of many."""
    data = da.from_array(np.tile(X, (4, 1)), chunks=(8, 8))
    passes = []

    def load(block, block_info=None):
        is_last = bool(block_info) and block_info[0]["chunk-location"][0] == 99
        passes.append(is_last)
        return block + 0.1 if is_last and sum(passes) > 1 else block

    V = from_rows(data.map_blocks(load, dtype=float, meta=np.empty((0, 0))), persist=False)
    refuses(DataChangedError, "samples 792 to 799", lambda: V.mean())


@pytest.mark.parametrize(("dtype", "rounding"), [(np.float64, 1e-14), (np.float32, 1e-7)])
def test_rounding_does_not_count_as_a_change(X, dtype, rounding):
    """Another machine may compute a chunk with other last bits."""
    data = changing(X, 2, lambda rows: (rows * (1 + rounding)).astype(dtype)).astype(dtype)
    assert factorize(from_rows(data, persist=False), 3, init="cr1", max_iter=3).relative_error > 0


# --- errors on their way to the client --------------------------------------------------------


def failing(G, C, Y):
    raise KeyError("of the solver")


@pytest.mark.parametrize("make", [np.asarray, lambda X: da.from_array(X, chunks=(40, 8))])
def test_errors_of_a_step_are_raised_as_without_a_cluster(X, make, refuses):
    refuses(KeyError, "of the solver", factorize, from_rows(make(X)), 3, solver=failing, init="cr1")


def test_rows_that_change_places_change_the_evidence(monkeypatch, rng):
    """Also from one part of a chunk to another."""
    rows = rng.random((40, 6))
    turned = np.roll(rows, 10, axis=0)
    for part_bytes in (1 << 18, 8 * 6 * 9):  # parts of 10 rows
        monkeypatch.setattr("conenmf.scale.dask._PART_BYTES", part_bytes)
        assert _evidence(rows) != pytest.approx(_evidence(turned), rel=1e-6)
