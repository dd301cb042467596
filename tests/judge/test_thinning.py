import numpy as np
import pytest
import scipy.sparse as sp

from conenmf import from_rows, select_k
from conenmf.errors import DataTypeError
from conenmf.judge import thinning
from conenmf.judge.thinning import by_thinning


def topics(rng, K, n_samples=200, n_features=150, length=120):
    patterns = rng.dirichlet(np.full(n_features, 0.1), K)
    shares = rng.dirichlet(np.full(K, 0.3), n_samples) * rng.gamma(4, length / 4, (n_samples, 1))
    return rng.poisson(shares @ patterns)


def signatures(rng, K, n_samples=200, n_features=60):
    return rng.poisson(rng.gamma(0.7, 300, (n_samples, K)) @ rng.dirichlet([0.1] * n_features, K))


@pytest.mark.parametrize("make", [topics, signatures])
@pytest.mark.parametrize("K", [1, 3, 6])
def test_it_finds_the_number_of_components_of_drawn_counts(make, K):
    X = make(np.random.default_rng(K), K)
    vote = by_thinning(from_rows(sp.csr_array(X)), np.arange(1, 11), np.random.default_rng(0))
    assert vote.K == K
    assert np.nanargmin(vote.scores) == K - 1
    assert vote.scores[0] == pytest.approx(1.0, abs=1e-6)


def test_it_ends_when_more_components_predict_worse():
    X = topics(np.random.default_rng(0), 2)
    vote = by_thinning(from_rows(X), np.arange(1, 21), np.random.default_rng(0))
    assert vote.K == 2
    assert np.isfinite(vote.scores[:6]).all()
    assert np.isnan(vote.scores[7:]).all()


def test_a_limit_is_not_an_estimate():
    X = topics(np.random.default_rng(0), 5)
    vote = by_thinning(from_rows(X), np.array([2, 3]), np.random.default_rng(0))
    assert vote.K == 3
    assert vote.reason.startswith("at least 3")


def test_dense_and_sparse_counts_have_the_same_vote():
    X = topics(np.random.default_rng(1), 3, 80, 60)
    dense, sparse = (
        by_thinning(from_rows(data), np.arange(1, 6), np.random.default_rng(0))
        for data in (X, sp.csr_array(X))
    )
    np.testing.assert_allclose(dense.scores, sparse.scores, rtol=1e-6)
    assert dense.K == sparse.K


def test_it_votes_where_there_are_counts_only():
    X = topics(np.random.default_rng(2), 2, 30, 12)
    assert "thinning" in select_k(from_rows(X), [1, 2, 3]).votes
    assert "thinning" not in select_k(from_rows(X / 7), [1, 2, 3]).votes
    with pytest.raises(DataTypeError, match="not counts"):
        select_k(from_rows(X / 7), [1, 2], methods=["thinning"])


def test_few_counts_are_no_reason_to_fail():
    X = np.zeros((5, 4))
    X[2, 1] = 1
    vote = by_thinning(from_rows(X), np.arange(1, 4), np.random.default_rng(0))
    assert vote.K == 1
    assert "too few" in vote.reason


def test_a_count_that_one_part_has_not_seen_is_no_reason_to_fail(monkeypatch):
    monkeypatch.setattr(thinning, "_MAX_SAMPLES", 60)
    X = topics(np.random.default_rng(3), 2, 70, 40)
    X[5] = 0
    X[5, 3] = 1  # a sample whose only count is in one part
    X[:, 7] = 0
    X[6, 7] = 1
    vote = by_thinning(from_rows(X), np.arange(1, 4), np.random.default_rng(0))
    assert np.isfinite(vote.scores).all()
