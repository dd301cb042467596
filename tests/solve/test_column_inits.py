"""Inits from columns drawn at random."""

import numpy as np
import pytest

from conenmf import from_columns
from conenmf.data.resample import draw_longest, draw_weighted
from conenmf.solve.inits import acol, cur, random_c


def data(n=200):
    rng = np.random.default_rng(0)
    V = rng.random((5, n)) * rng.exponential(1.0, n)
    V[:, ::10] = 0.0
    return V


def test_components_of_acol_are_means_of_twenty_samples():
    V = np.eye(60)
    W, _ = acol(from_columns(V), 4, np.random.default_rng(0))
    assert set(np.unique(W)) == {0.0, 1 / 20}
    np.testing.assert_allclose(W.sum(axis=0), 1)


def test_random_c_draws_from_the_longest_samples_only():
    V = np.eye(100) * np.arange(1, 101)
    W, _ = random_c(from_columns(V), 3, np.random.default_rng(0))
    assert np.flatnonzero(W.any(axis=1)).min() >= 80


def test_components_of_cur_are_different_samples():
    V = data()
    W, _ = cur(from_columns(V), 6, np.random.default_rng(0))
    chosen = [int(np.flatnonzero((V == w[:, None]).all(axis=0))[0]) for w in W.T]
    assert len(set(chosen)) == 6


@pytest.mark.seed(1)
def test_draws_are_in_proportion_to_squared_norms(rng):
    V = from_columns(data(12))
    counts = np.bincount([int(draw_weighted(V, 1, rng)[0]) for _ in range(4000)], minlength=12)
    expected = 4000 * np.asarray(V.norms_squared) / V.total
    assert not counts[expected == 0].any()
    kept = expected > 0
    chi_squared = ((counts - expected)[kept] ** 2 / expected[kept]).sum()
    assert chi_squared < 35  # 0.999 quantile of 9 degrees of freedom is 27.9


def test_the_longest_come_first(main_backend):
    V = data()
    found = np.asarray(draw_longest(main_backend(V), 7))
    np.testing.assert_array_equal(found, np.argsort(-np.linalg.norm(V, axis=0))[:7])


def test_few_samples():
    V = from_columns(np.eye(3))
    for init in (acol, random_c, cur):
        W, H = init(V, 3, np.random.default_rng(0))
        assert W.any(axis=0).all()
        assert H.shape == (3, 3)
