"""Resampled data: bootstrap, Poisson redraws and balanced counts are the same in every storage."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import chi2
from tests.entries import entries

from conenmf import from_columns, from_rows
from conenmf.data import resample
from conenmf.data.resample import balance_samples, bootstrap, draw_counts, holds_counts, redraw
from conenmf.errors import DataTypeError
from conenmf.solve.losses import get_loss


@pytest.fixture
def counts(sample_matrix):
    return np.floor(20 * sample_matrix)


def test_only_counts_are_drawn_again(refuses):
    V = from_columns([[1.0, 2.5]])
    assert not holds_counts(V)
    refuses(DataTypeError, "not counts", lambda: redraw(V, np.random.default_rng(0)))


W, H = np.random.default_rng(0).random((12, 3)), np.random.default_rng(1).random((3, 40))
DRAWS = {
    "few": lambda V, rng: draw_counts(V, 0.02 * W, H, rng),
    "many": lambda V, rng: draw_counts(V, 5 * W, H, rng),
    "again": redraw,
}


@pytest.mark.parametrize("draw", DRAWS)
def test_draws_are_the_same_in_every_storage(main_backend, small_blocks, counts, draw):
    found, expected = (
        entries(DRAWS[draw](V, np.random.default_rng(2)))
        for V in (main_backend(counts), from_columns(counts))
    )
    np.testing.assert_array_equal(found, expected)
    assert found.sum() > 0


@pytest.mark.parametrize("way", ["by components", "directly"])
def test_draws_are_poisson(monkeypatch, way, rng):
    """Over many samples with the same rates: the means and variances of every feature."""
    monkeypatch.setattr(resample, "_DIRECT_RATE", 0.0 if way == "directly" else np.inf)
    W = rng.random((30, 3)) * (rng.random((30, 3)) < 0.7)
    W[[0, -1]] = 0.0
    N, h = 4000, np.array([0.5, 2.0, 0.0])
    V = from_columns(sp.csc_array((30, N)) + sp.csc_array(([1.0], ([0], [0])), shape=(30, N)))
    drawn = entries(draw_counts(V, W, np.tile(h[:, None], N), np.random.default_rng(3)))
    rates = W @ h
    possible = rates > 0
    assert not drawn[~possible].any()
    sums = drawn[possible].sum(axis=1)
    distance = ((sums - N * rates[possible]) ** 2 / (N * rates[possible])).sum()
    assert chi2.cdf(distance, possible.sum()) < 1 - 1e-6
    np.testing.assert_allclose(drawn[possible].var(axis=1) / rates[possible], 1.0, atol=0.25)
    between = np.corrcoef(drawn[possible])[np.triu_indices(possible.sum(), 1)]
    assert abs(between).max() < 0.1  # features are independent


@pytest.mark.parametrize(("mean", "options"), [(7.0, {}), (70.0, {"dispersion": 0.1})])
def test_counts_drawn_again_are_poisson_or_overdispersed(mean, options):
    V = from_columns(np.full((50, 400), mean))
    drawn = entries(redraw(V, np.random.default_rng(1), **options))
    variance = mean + options.get("dispersion", 0.0) * mean**2
    assert drawn.mean() == pytest.approx(mean, abs=4 * np.sqrt(variance / drawn.size))
    assert drawn.var() == pytest.approx(variance, rel=0.05)
    between = np.corrcoef(drawn)[np.triu_indices(50, 1)]
    assert abs(between.mean()) < 0.02  # each count varies by itself


@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_samples_count_as_often_as_they_are_drawn(main_backend, small_blocks, counts, loss):
    drawn = bootstrap(main_backend(counts), np.random.default_rng(4), degree=get_loss(loss).degree)
    times = np.random.default_rng(4).poisson(1.0, counts.shape[1])
    assert {0, 1, 2} <= set(times)
    W = 0.1 + np.random.default_rng(0).random((counts.shape[0], 3))
    repeated = from_columns(np.repeat(counts, times, axis=1))
    expected = get_loss(loss).coefficients(repeated, W)[2]
    assert get_loss(loss).coefficients(drawn, W)[2] == pytest.approx(expected, rel=1e-6)


def test_counts_are_drawn_and_then_balanced(main_backend, small_blocks, counts):
    options = {"dispersion": 0.05}
    drawn = redraw(from_columns(counts), np.random.default_rng(3), **options)
    scaled = redraw(main_backend(counts), np.random.default_rng(3), balance=True, **options)
    expected = entries(balance_samples(from_columns(entries(drawn)), 0.05))
    np.testing.assert_allclose(entries(scaled), expected, rtol=1e-12)


def test_samples_are_balanced_by_their_mean_count_beyond_the_first(main_backend, counts):
    weights = 1 / (
        1 + 0.05 * (counts * (counts - 1)).sum(axis=0) / np.maximum(counts.sum(axis=0), 1)
    )
    scaled = entries(balance_samples(main_backend(counts), 0.05))
    np.testing.assert_allclose(scaled, counts * weights, rtol=1e-12)


def test_whole_numbers_that_are_too_large_are_no_counts():
    """Floats beyond 2^53 do not represent all integers."""
    assert holds_counts(from_rows([[2.0**53, 1.0], [0.0, 3.0]]))
    assert not holds_counts(from_rows([[2.0**53 + 2, 1.0], [0.0, 3.0]]))
    assert not holds_counts(from_rows([[2.0**60, 1.0], [0.0, 3.0]]))
