import numpy as np
import pytest

from conenmf import from_columns, from_rows
from conenmf.names import Names


def gram(block):
    product = block @ block.T
    return (product.toarray() if hasattr(product, "toarray") else product,)


def test_a_matrix_can_be_turned(backend, small_blocks, sample_matrix):
    V = backend(sample_matrix)
    T = V.turned()
    assert (T.shape, T.dtype, T.is_remote) == ((40, 12), V.dtype, V.is_remote)
    np.testing.assert_allclose(T.norms_squared, (sample_matrix**2).sum(axis=1), atol=1e-12)
    assert T.total == pytest.approx(V.total)
    assert T.nonzero == 11
    np.testing.assert_allclose(T.sweep(gram)[0], sample_matrix.T @ sample_matrix, atol=1e-12)
    np.testing.assert_array_equal(T.columns([3, 0]) @ np.eye(2), sample_matrix[[3, 0]].T)
    back = T.turned()
    assert back.shape == V.shape
    np.testing.assert_array_equal(
        back.columns(np.arange(40)) @ np.eye(40), V.columns(np.arange(40)) @ np.eye(40)
    )
    np.testing.assert_allclose(back.norms_squared, V.norms_squared, rtol=1e-12)


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
