import h5py
import numpy as np
import pytest
import scipy.sparse as sp

from conenmf.data.files.layouts import (
    ChunkedSource,
    CompressedSource,
    OpenFile,
    RawArray,
    RawSource,
)
from conenmf.data.files.sources import Compressed, NamedMatrix
from conenmf.names import Names

BUDGET = 1 << 20


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    return rng.random((7, 5)) * (rng.random((7, 5)) < 0.6)


def raw(X, folder, order):
    path = folder / "a.bin"
    path.write_bytes(b"head" + X.tobytes(order))
    return RawSource(RawArray(OpenFile(path), 4, X.shape, order == "F", X.dtype))


def chunked(X, folder, chunks):
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=chunks)
    return ChunkedSource(h5py.File(folder / "a.h5")["X"])


def compressed(X, folder, order):
    matrix = sp.csr_array(X) if order == "csr" else sp.csc_array(X)
    parts = (matrix.data, matrix.indices, matrix.indptr)
    return CompressedSource("S", folder / "a.npz", parts, X.shape, order, BUDGET)


SOURCES = {
    "C": lambda X, folder: raw(X, folder, "C"),
    "F": lambda X, folder: raw(X, folder, "F"),
    "chunks": lambda X, folder: chunked(X, folder, (3, 2)),
    "no chunks": lambda X, folder: chunked(X, folder, None),
    "csr": lambda X, folder: compressed(X, folder, "csr"),
    "csc": lambda X, folder: compressed(X, folder, "csc"),
}


def dense(rows, width):
    if isinstance(rows, Compressed):
        rows = sp.csr_array(tuple(rows), shape=(rows.indptr.size - 1, width))
    return rows.toarray() if sp.issparse(rows) else rows


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("turns", [0, 1, 2])
def test_a_source_is_read_in_either_orientation(tmp_path, X, kind, turns):
    source = SOURCES[kind](X, tmp_path)
    for _ in range(turns):
        source, X = source.turned(), X.T
    assert source.shape == X.shape
    rows = source.readable(BUDGET)
    if rows is not source:  # compressed the other way
        np.testing.assert_array_equal(dense(rows, X.shape[1]), X)
        return
    source.watch.check()
    assert source.chunk == (1 if kind != "chunks" else (2 if turns == 1 else 3))
    np.testing.assert_array_equal(dense(source.whole(), X.shape[1]), X)
    np.testing.assert_array_equal(dense(source.read(1, 4), X.shape[1]), X[1:4])
    for indices in ([0, 1, 4], [2], []):
        index = np.array(indices, dtype=np.intp)
        np.testing.assert_array_equal(dense(source.take(index), X.shape[1]), X[index])


def test_a_matrix_is_turned_with_its_names(X):
    names = Names.of(list("abcdefg"), list("vwxyz"))
    turned = NamedMatrix(X, names).turned()
    np.testing.assert_array_equal(turned.whole(BUDGET), X.T)
    assert turned.names == Names.of(list("vwxyz"), list("abcdefg"))


def test_names_whose_roles_are_stored_are_not_turned(X):
    names = Names.of(list("vwxyz"), list("abcdefg"))
    assert NamedMatrix(X, names, roles_stored=True).turned().names == names
