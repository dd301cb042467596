import numpy as np
import pytest
import scipy.sparse as sp

from conenmf import factorize, from_rows
from conenmf.data.selected import held, take_features
from conenmf.errors import NotAvailableError, OptionError, ShapeError
from conenmf.names import Names


def test_a_view_of_features_is_the_matrix_of_these(main_backend):
    X = np.random.default_rng(0).poisson(1.0, (40, 9)).astype(float)
    V = main_backend(X.T)
    factors = np.array([1.0, 0.5, 2.0])
    view = take_features(V, [1, 4, 8], factors=factors)
    expected = X[:, [1, 4, 8]] * factors
    assert view.shape == (3, 40)
    assert view.n_entries == np.count_nonzero(expected)
    np.testing.assert_allclose(np.asarray(view.norms_squared), (expected**2).sum(axis=1))
    np.testing.assert_allclose(_dense(view.columns([3, 30])), expected[[3, 30]].T)
    direct = factorize(from_rows(expected), 2, init="nndsvd", max_iter=20, tol=0)
    result = factorize(view, 2, init="nndsvd", max_iter=20, tol=0)
    assert result.relative_error == pytest.approx(direct.relative_error, rel=1e-6)


def _dense(block):
    return block.toarray() if sp.issparse(block) else np.asarray(block)


def test_all_features_in_another_precision():
    X = np.random.default_rng(0).poisson(1.0, (30, 5)).astype(float)
    view = take_features(from_rows(sp.csr_array(X)), np.arange(5), dtype="float32")
    assert view.dtype == view.columns([0]).dtype == np.float32
    np.testing.assert_array_equal(view.columns(np.arange(30)).toarray(), X.T)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_a_view_can_be_held(make):
    X = np.random.default_rng(0).poisson(1.0, (50, 6)).astype(float)
    names = Names.of(range(50), list("abcdef"))
    view = take_features(from_rows(make(X), block_samples=7, names=names), [0, 3])
    passes = view.passes
    kept = held(view)
    assert view.passes - passes == 1
    assert kept.names.feature_names == view.names.feature_names == ("a", "d")
    np.testing.assert_array_equal(_dense(kept.columns(np.arange(50))), X[:, [0, 3]].T)


def test_what_cannot_be_taken_is_refused():
    V = from_rows(np.ones((4, 3)))
    for wrong in ([2, 1], [1, 1], []):
        with pytest.raises(OptionError, match="increasing order"):
            take_features(V, wrong)
    with pytest.raises(OptionError, match="from 0 to 2"):
        take_features(V, [3])
    with pytest.raises((OptionError, ShapeError), match="factors"):
        take_features(V, [0, 1], factors=[1.0])
    with pytest.raises(NotAvailableError):
        take_features(V, [0, 1]).turned()
