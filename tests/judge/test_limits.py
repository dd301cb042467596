import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conenmf.judge.limits import LEVEL, entry_limits


@pytest.mark.parametrize("n", [2, 5, 20])
def test_limits_cover_what_they_are_made_to_cover(n):
    # entries of a fit differ from the truth as those of runs differ from the fit
    rng = np.random.default_rng(n)
    truth = np.full(20_000, 10.0)
    fit = rng.normal(truth)
    runs = rng.normal(fit, size=(n, truth.size))
    lower, upper = entry_limits(np.median(runs, axis=0), runs)
    covered = ((lower <= truth) & (truth <= upper)).mean()
    assert covered == pytest.approx(LEVEL, abs=0.015)
    # the quantiles of the runs themselves do not
    low, high = np.quantile(runs, (0.05, 0.95), axis=0)
    assert ((low <= truth) & (truth <= high)).mean() < 0.84


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 12), st.floats(1e-6, 1e6), st.integers(0, 2**32 - 1))
def test_limits_are_around_the_centre_and_scale_with_it(n, scale, seed):
    rng = np.random.default_rng(seed)
    runs = rng.dirichlet(np.full(6, 0.3), n)
    centre = np.median(runs, axis=0)
    lower, upper = entry_limits(centre, runs)
    assert (lower >= 0).all()
    assert (lower <= centre).all()
    assert (centre <= upper).all()
    for limit, scaled in zip(
        (lower, upper), entry_limits(scale * centre, scale * runs), strict=True
    ):
        np.testing.assert_allclose(scaled, scale * limit, rtol=1e-9, atol=1e-15 * scale)
    # runs that agree leave no doubt, and their order says nothing
    assert np.ptp(entry_limits(centre, np.tile(centre, (n, 1))), axis=0).max() <= 1e-15
    np.testing.assert_allclose(entry_limits(centre, runs[::-1]), (lower, upper), atol=1e-15)


def test_one_run_has_no_limits():
    lower, upper = entry_limits(np.ones(3), np.ones((1, 3)))
    assert np.isnan(lower).all()
    assert np.isnan(upper).all()
