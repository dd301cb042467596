from dataclasses import replace

import numpy as np
import pytest
from scipy.special import kl_div

from conenmf import factorize, from_columns, from_rows
from conenmf.judge.count_certificate import certify_counts
from conenmf.judge.divergence_bound import divergence_bound
from conenmf.judge.noise_floor import noise_floor
from conenmf.judge.poisson_gaps import poisson_gaps


@pytest.fixture(scope="module")
def judged():
    """Counts with known rates, and the certificate of these rates."""
    rng = np.random.default_rng(0)
    W, H = rng.dirichlet(np.full(30, 0.3), 3).T, rng.gamma(0.7, 40, (3, 60))
    counts = rng.poisson(W @ H).astype(float)
    return counts, W, H, certify_counts(from_columns(counts), W, H)


def test_it_collects_what_others_compute(judged):
    counts, W, H, certificate = judged
    V = from_columns(counts)
    margins = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    of_margins = kl_div(counts, margins).sum()
    assert certificate.divergence == pytest.approx(kl_div(counts, W @ H).sum())
    assert certificate.of_margins == pytest.approx(of_margins)
    assert certificate.deviance_explained == pytest.approx(1 - certificate.divergence / of_margins)
    assert certificate.lower_bound == pytest.approx(divergence_bound(V, 3).share)
    assert certificate.gap == pytest.approx(certificate.relative_error - certificate.lower_bound)
    assert certificate.coefficient_gap == poisson_gaps(V, W, H).coefficient_gap
    assert certificate.noise_floor == noise_floor(V, W, H).value
    plain = certify_counts(V, W, H, floor=False, effort=0)
    assert np.isnan(plain.above_floor)
    assert plain.floor_in_words() == ""
    assert plain.effort == 0


def test_words_say_where_the_divergence_is(judged):
    certificate = replace(judged[-1], noise_floor=100.0, floor_spread=1.0)
    for divergence, words in (
        (102.0, "at the noise floor"),
        (105.0, "5.0% above the noise floor"),
        (150.0, "overdispersed, or K is too small"),
        (350.0, "3.5 times the noise floor"),
        (80.0, "20.0% below the noise floor"),
    ):
        said = replace(certificate, divergence=divergence).floor_in_words()
        assert words in said
        assert "if counts are Poisson" in said
    assert "overdispersed" not in replace(certificate, divergence=105.0).floor_in_words()


def test_a_bound_that_says_little_is_not_shown(judged):
    certificate = replace(judged[-1], relative_error=0.5, divergence=500.0)
    telling = replace(certificate, lower_bound=0.2)
    assert telling.is_bound_telling
    assert "below 200, 40% of this one" in telling.bound_in_words(3)
    assert replace(certificate, lower_bound=0.09).bound_in_words(3) == ""


def test_it_has_a_picture(judged):
    assert "noise floor" in judged[-1]._repr_html_()
    silent = replace(judged[-1], lower_bound=0.0)
    assert "0, none above it is known" in silent._repr_html_()


def test_data_of_one_component_are_judged_by_their_total():
    V = from_columns(np.outer([1.0, 2.0, 3.0], [2.0, 4.0]))
    certificate = certify_counts(V, [[1.0], [2.0], [3.0]], [[2.0, 4.0]])
    assert certificate.relative_error == pytest.approx(0.0, abs=1e-12)
    assert certificate.divergence == pytest.approx(0.0, abs=1e-9)


def test_the_bound_of_the_objective_of_counts_is_that_of_their_divergence():
    """That of the squared error, which was returned for both losses, may be far above it."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(20 * rng.random((30, 4)) @ rng.random((4, 12))).astype(float)
    result = factorize(from_rows(counts), 2, loss="poisson")
    bound = result.objective_bound()
    assert bound == pytest.approx(result.certify().lower_bound * result.certify().of_margins)
    assert 0 <= bound <= result.objective
