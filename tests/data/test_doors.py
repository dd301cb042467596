"""`from_rows` and `from_columns`: number types, bad values, limits of size and number format."""

import numpy as np
import pandas as pd
import polars
import pytest
import scipy.sparse as sp

from conenmf import ConeNMF, factorize, from_columns, from_rows
from conenmf.data.validate import require_data_matrix
from conenmf.data.views import unit_samples
from conenmf.errors import (
    DataError,
    DataTypeError,
    OutOfMemoryError,
)
from conenmf.linalg.svd import Spectrum
from conenmf.names import Names


def products(block, rows, *, W):
    C = block.T @ W
    return C, rows + 1, (block @ C, float(C.sum()))


def test_sweeps_columns_norms_and_shape(backend, small_blocks, sample_matrix, holds):
    V = backend(sample_matrix)
    holds(V, sample_matrix, rtol=1e-13)
    assert (V.shape, V.dtype, V.n_entries) == (
        (12, 40),
        np.float64,
        np.count_nonzero(sample_matrix),
    )
    np.testing.assert_allclose(V.norms_squared, (sample_matrix**2).sum(axis=0), rtol=1e-14)
    expected = (np.linalg.norm(sample_matrix), sample_matrix.mean())
    assert (V.norm, V.mean()) == pytest.approx(expected)


def test_passes_count_what_is_read(backend, small_blocks, sample_matrix):
    V = backend(sample_matrix)
    assert V.passes == 1.0
    V.columns([1, 2])
    assert V.passes == pytest.approx(1 + 2 / 40)
    V.sweep(products, np.arange(40), W=np.ones((12, 1)))
    assert V.passes == pytest.approx(2 + 2 / 40)


def test_the_callers_matrix_is_not_altered(sample_matrix):
    X = sp.csr_matrix((np.ones(4), [1, 0, 0, 0], [0, 2, 4]), shape=(2, 2))  # not canonical
    assert from_rows(X).norms_squared.tolist() == [2.0, 4.0]
    assert (X.data.tolist(), X.indices.tolist()) == ([1.0] * 4, [1, 0, 0, 0])


NUMBER_TYPES = [
    (np.float32, np.float32),
    (np.float64, np.float64),
    (np.longdouble, np.float64),
    (np.uint8, np.float64),
    (np.int64, np.float64),
    (bool, np.float64),
]
DENSE_NUMBER_TYPES = [(np.float16, np.float32), (">f8", np.float64)]  # scipy.sparse has neither


@pytest.mark.parametrize(
    ("make", "dtype", "computed"),
    [(np.asarray, *types) for types in NUMBER_TYPES + DENSE_NUMBER_TYPES]
    + [(sp.csr_array, *types) for types in NUMBER_TYPES],
)
def test_number_types(make, dtype, computed):
    V = from_rows(make(np.array([[1, 0, 1], [0, 1, 1]]).astype(dtype)))
    assert V.dtype == computed
    assert (V.columns([0]).T @ np.ones(3, computed)).dtype == computed
    np.testing.assert_array_equal(V.norms_squared, [2, 2])


def test_small_integers_do_not_overflow():
    assert from_rows(np.full((2, 3), 255, np.uint8)).norms_squared.tolist() == [3 * 255.0**2] * 2


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_bits_for_any_number_of_threads(make, dtype):
    X = np.random.default_rng(0).random((3000, 60)).astype(dtype)
    X[X < 0.7] = 0
    W = np.random.default_rng(1).random((60, 9)).astype(dtype)

    def bits(n_threads):
        V = from_rows(make(X), n_threads=n_threads, block_samples=100)
        C, _, (VC, total) = V.sweep(products, np.arange(3000), W=W)
        return V.norms_squared.tobytes(), C.tobytes(), VC.tobytes(), total

    assert len({bits(n_threads) for n_threads in (1, 2, 4)}) == 1


# --- bad input --------------------------------------------------------------------------------

MAKERS = [np.asarray, sp.csr_array, sp.coo_matrix]


@pytest.mark.parametrize("make", MAKERS)
def test_a_code_and_infinity_say_how_to_be_read(make, refuses):
    X = np.ones((20, 3))
    X[17, 2] = -999
    for negative in ("raise", "clip"):
        code = "is -999, the .* stands for missing values, pass missing=-999$"
        refuses(DataError, code, from_rows, make(X), negative=negative)
    assert from_rows(make(X), missing=-999).observed.counts.sum() == 59
    X[17, 2] = np.inf
    for missing in ("raise", "nan"):
        cure = "is infinity.*: replace such entries .* or by NaN with missing='nan'"
        refuses(DataError, cure, from_rows, make(X), missing=missing)


@pytest.mark.parametrize("make", MAKERS)
def test_negative_entries(make, small_blocks, refuses):
    X = np.ones((20, 3))
    X[17, 2] = -0.5
    X[18, 1] = -0.25
    remedy = r"use the data from before centring \(StandardScaler, sc.pp.scale\), let .*, or pass"
    keep = rf"row 17 \(sample\), column 2 .* is -0.5.*{remedy} negative='keep' if they are noise$"
    refuses(DataError, keep, from_rows, make(X), **small_blocks)
    turned = r"row 2 \(feature\), column 17 .* is -0.5"
    refuses(DataError, turned, from_columns, make(X.T), **small_blocks)
    clip = "clip is for 1e-06 of the largest; use"
    refuses(DataError, clip, from_rows, make(X), negative="clip", **small_blocks)


@pytest.mark.parametrize("make", MAKERS)
def test_tiny_negative_entries_can_be_clipped(make, small_blocks, refuses):
    X = np.ones((20, 3))
    X[17, 2] = -1e-9
    refuses(DataError, "negative='clip'", from_rows, make(X), **small_blocks)
    V = from_rows(make(X), negative="clip", **small_blocks)
    assert (V.columns([17]) @ np.eye(1)).min() == 0.0
    assert V.norms_squared[17] == 2.0
    assert V.sweep(lambda block: (block.min(),), reduce=min) == (0.0,)
    X[17, 2] = -1e-5  # of the largest entry
    refuses(DataError, r"[Nn]egative", lambda: from_rows(make(X), negative="clip", **small_blocks))


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("value", "name"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")]
)
def test_non_finite_entries(make, value, name, small_blocks, refuses):
    X = np.ones((20, 3))
    X[11, 1] = value
    place = rf"row 11 \(sample\), column 1 \(feature\), .* is {name}"
    refuses(DataError, place, from_rows, make(X), **small_blocks)


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (np.ones((0, 3)), DataError, "at least one sample and one feature"),
        (np.ones((3, 0)), DataError, "at least one sample and one feature"),
        (np.ones((0, 0)), DataError, "at least one sample and one feature"),
        (np.ones(()), DataError, "got 0"),
        (np.ones(3), DataError, "got 1"),
        (np.ones((2, 2, 2)), DataError, "got 3"),
        ([["a", "b"]], DataTypeError, r"astype\(float\)"),
        (np.array([[{}, 1]], dtype=object), DataTypeError, r"astype\(float\)"),
        (np.ones((2, 2), complex), DataTypeError, "Complex data not supported"),
    ],
)
def test_objects_that_are_not_matrices_of_numbers_are_refused(X, error, message, refuses):
    refuses(error, message, from_rows, X)


def test_masked_arrays_are_not_read_as_if_they_were_not(refuses):
    masked = np.ma.masked_array(np.ones((2, 3)), mask=[[0, 0, 1], [1, 0, 0]])
    for rows in (masked, list(masked), masked.T):
        for door in (from_rows, from_columns):
            refuses(DataTypeError, r"2 of 6 entries are masked.*X\.filled\(0\)", door, rows)
    refuses(DataTypeError, r"the first at \(0, 2\)", from_rows, masked)
    for empty in (np.ma.nomask, np.zeros((2, 3), bool)):
        V = from_rows(np.ma.masked_array(np.ones((2, 3)), mask=empty))
        assert V.norms_squared.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    "X",
    [
        *(np.full((3, 2), value) for value in (1e200, 1e160, 1e-80, 1e-160, 5e-324)),
        np.full((3, 2), 1e25, np.float32),
        np.full((300, 4), 1e153),  # whose squares are in range, but not their sum
    ],
)
def test_squares_that_leave_the_number_format(make, X, refuses):
    refuses(DataError, "divide the data by their largest entry", from_rows, make(X))


def test_subnormal_entries_beside_normal_ones_are_legal():
    assert from_rows([[1.0, 5e-324], [5e-324, 5e-324]]).norms_squared.tolist() == [1.0, 0.0]


def test_names_are_given_at_the_door(refuses):
    X = np.ones((2, 3))
    assert from_rows(X, names=Names(("x", "y"))).names == Names(("x", "y"))
    assert from_columns(X, names=Names(None, ("x", "y"))).names == Names(None, ("x", "y"))
    frame = pd.DataFrame(X, index=["x", "y"], columns=["a", "b", "c"])
    named = from_rows(frame, names=Names(("u", "v"), image_shape=(1, 3)))
    assert named.names == Names(("u", "v"), ("a", "b", "c"), (1, 3))
    X[1, 2] = -1
    place = r"row 1 \(sample 'y'\), column 2 \(feature\)"
    refuses(DataError, place, from_rows, X, names=Names(("x", "y")))


def test_zeros_can_be_read_but_not_factored(refuses):
    V = from_rows(np.zeros((3, 2)))
    require_data_matrix(V)
    refuses(DataError, "nothing to factor", lambda: require_data_matrix(V, nonzero=True))


@pytest.mark.parametrize("shape", [(2, 1_400_000_000), (10**9, 2), (2, 10**12), (2**40, 2**40)])
@pytest.mark.parametrize("make", [sp.coo_array, sp.csr_matrix])
def test_sparse_matrices_with_sides_that_no_memory_holds(shape, make, refuses):
    if make is sp.csr_matrix and shape[0] > 2:
        shape = shape[::-1] if shape[1] == 2 else (2, shape[1])
    matrix = make(([1.0, 2.0], ([0, 1], [0, 1])), shape=shape)
    for door in (from_rows, from_columns):
        remedy = r"rows and columns\): remove .* raise max_memory"
        refuses(OutOfMemoryError, remedy, door, matrix, max_memory="8GB")


def test_arrays_that_no_memory_holds(monkeypatch, refuses):
    def broken(*_, **__):
        raise MemoryError("Unable to allocate 9 TiB")

    V = from_rows(np.ones((3, 2)))
    monkeypatch.setattr("conenmf.data.memory.DenseMatrix._block", broken)
    refuses(OutOfMemoryError, r"3 samples .Unable to allocate 9 TiB", lambda: factorize(V, 1))
    refuses(MemoryError, None, lambda: from_rows(np.ones((3, 2))))


def test_samples_whose_squares_lose_their_digits_count_as_zero():
    """The inverse of their squared norm would be infinite."""
    V = from_rows(np.array([[1.0, 2.0], [1e-156, 0.0], [3.0, 1.0]]))
    np.testing.assert_array_equal(V.norms_squared, [5.0, 0.0, 10.0])
    assert V.nonzero == 2
    assert np.isfinite(Spectrum(unit_samples(V)).singular_values(2)).all()


def test_a_lazy_frame_is_collected_first(refuses):
    lazy = polars.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}).lazy()
    for read in (from_rows, ConeNMF(1).fit, factorize):
        refuses(DataTypeError, r"LazyFrame.*call .collect\(\) first", read, lazy)
