import pytest

from conenmf import from_columns, from_rows
from conenmf.names import Names


def test_a_matrix_can_be_turned(backend, small_blocks, sample_matrix, holds):
    V = backend(sample_matrix)
    T = V.turned()
    assert (T.dtype, T.is_remote, T.nonzero) == (V.dtype, V.is_remote, 11)
    assert T.total == pytest.approx(V.total)
    holds(T, sample_matrix.T)
    holds(T.turned(), sample_matrix)


def test_turning_dense_data_copies_nothing(sample_matrix):
    V = from_columns(sample_matrix, n_threads=3)
    T = V.turned()
    assert T.n_threads == 3
    sample_matrix[2, 5] = 7.0
    assert T.columns([2])[5, 0] == V.columns([5])[2, 0] == 7.0


def test_names_and_clipping_are_turned_too():
    names = Names(("a", "b", "c"), ("x", "y"))
    V = from_rows([[1e9, 2.0], [3.0, -1.0], [0.0, 1.0]], names=names, negative="clip")
    T = V.turned()
    assert T.names == Names(("x", "y"), ("a", "b", "c"))
    assert T.columns([1])[1, 0] == 0.0
