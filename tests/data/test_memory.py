"""Sparse data in both orders, entry-wise steps, and the copies that memory allows."""

import numpy as np
import pytest
import scipy.sparse as sp

from conenmf import from_columns, from_rows, open_data
from conenmf.data import memory
from conenmf.data.matrix import measure_block
from conenmf.data.memory import SparseMatrix, by_entries


@pytest.fixture
def rows():
    return sp.random_array((90, 40), density=0.2, rng=np.random.default_rng(0), format="csr")


def test_sparse_data_are_kept_in_both_orders(rows, holds):
    V = from_rows(rows)
    assert V.other_order is V.other_order
    holds(V.other_order, rows.toarray())
    assert from_rows(rows.toarray()).other_order is None


def test_counts_are_converted_once_for_the_other_order(rows):
    counts = rows.copy()
    counts.data = np.ceil(10 * counts.data).astype(np.int32)
    assert from_rows(counts).other_order._rows.dtype == np.float64


def test_a_copy_that_would_take_too_much_memory_is_not_made(rows, monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 4 * 12 * rows.nnz - 1)
    assert from_rows(rows).other_order is None
    monkeypatch.setattr(memory, "available_memory", lambda: 4 * 12 * rows.nnz)
    assert from_rows(rows).other_order is not None


def test_clipped_data_have_another_order_of_their_own(rows):
    rows.data[3] = -1e-7
    both = from_rows(rows, negative="clip").square_times(np.eye(40))
    dense = np.maximum(rows.toarray(), 0)
    np.testing.assert_allclose(both, dense.T @ dense, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_in_both_orders_are_those_by_sums(rows, dtype, monkeypatch):
    X = np.random.default_rng(1).random((40, 7)).astype(dtype)
    V = from_rows(rows.astype(dtype))
    both, passes = V.square_times(X), V.passes
    monkeypatch.setattr(memory, "_COPY_SHARE", 0.0)
    V = from_rows(rows.astype(dtype))
    assert V.other_order is None
    summed = V.square_times(X)
    assert V.passes == passes == 2  # the first is that of the checks
    np.testing.assert_allclose(both, summed, rtol=100 * np.finfo(dtype).eps)


def test_by_entries_is_the_same_matrix_compressed(holds):
    X = np.random.default_rng(0).poisson(1.0, (90, 40)).astype(float)
    V = from_rows(X)
    twin = by_entries(V)
    assert isinstance(twin, SparseMatrix)
    holds(twin, X.T)
    holds(twin.other_order, X)
    before = V.passes
    twin.mean()
    assert V.passes == before + 1


def test_by_entries_leaves_others_as_they_are(tmp_path):
    X = np.random.default_rng(0).random((50, 30))
    X[0, 0] = 0.0
    np.save(tmp_path / "X.npy", X)
    clipped = from_rows(X - 1e-9, negative="clip")
    for V in (open_data(tmp_path / "X.npy"), clipped, from_rows(sp.csr_array(X))):
        assert by_entries(V) is V


def test_turning_dense_data_copies_nothing(sample_matrix, holds):
    V = from_columns(sample_matrix, n_threads=3)
    T = V.turned()
    assert (T.n_threads, T.nonzero) == (3, 11)
    holds(T, sample_matrix.T)
    sample_matrix[2, 5] = 7.0
    assert T.columns([2])[5, 0] == V.columns([5])[2, 0] == 7.0


@pytest.mark.parametrize("place", [0, 2, 4])
def test_the_smallest_entry_is_nan_if_any_is(place):
    rows = np.ones((5, 20_000))  # measured in three parts
    rows[place, 7] = np.nan
    assert np.isnan(measure_block(rows.T)[1][-1])
