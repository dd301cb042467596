"""The estimator with Poisson loss."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import kl_div

from conenmf import ConeNMF
from conenmf.errors import DataError, InputWarning, NotAvailableError


@pytest.fixture
def counts():
    rng = np.random.default_rng(0)
    W = rng.dirichlet(np.full(40, 0.3), 3)
    return rng.poisson(150 * rng.dirichlet(np.full(3, 0.3), 120) @ W)


def test_attributes_of_counts(counts):
    model = ConeNMF(3, loss="poisson")
    A = model.fit_transform(counts)
    divergence = kl_div(counts, A @ model.components_).sum()
    assert model.reconstruction_err_ == pytest.approx(np.sqrt(2 * divergence))
    one = kl_div(counts, np.outer(counts.sum(1), counts.sum(0)) / counts.sum()).sum()
    shares = (model.relative_error_, model.explained_share(counts))
    assert shares == pytest.approx((divergence / one, 1 - divergence / one))
    assert 0.3 < model.score(counts) < 1
    for X in (counts, sp.csr_array(counts)):
        np.testing.assert_array_equal(model.transform(X), A)
    np.testing.assert_allclose(model.components_.sum(axis=1), 1)


def test_unseen_words(counts, refuses):
    names = [f"w{f}" for f in range(41)]
    seen = np.hstack([counts, np.zeros((120, 1), counts.dtype)])
    model = ConeNMF(3, loss="poisson").fit(seen, feature_names=names)
    new = seen[:5].copy()
    new[0, 40] = 3
    with pytest.warns(InputWarning, match="1 feature with counts, in all 3: 40"):
        A = model.transform(new)
    np.testing.assert_array_equal(A, model.transform(seen[:5]))
    refuses(DataError, "leave them out", lambda: model.transform(new, unseen="raise"))


def test_there_are_no_batches_of_counts(counts, refuses):
    model = ConeNMF(3, loss="poisson")
    assert not hasattr(model, "partial_fit")
    refuses(NotAvailableError, "least squares", lambda: model.partial_fit(counts))


def test_the_number_of_components_may_be_estimated(counts):
    assert ConeNMF(loss="kullback-leibler").fit(counts).n_components_ >= 2
