"""Errata of the paper (docs/theory.md): what is printed fails a check, what is meant passes it."""

import numpy as np
import pytest
from scipy.special import gammaln

from conenmf import make_cones
from conenmf.cones.bounds import probabilistic_bound

ORDERS = np.arange(1.0, 60.0)


def moment_roots(scale, power):
    """(E |X|^(power p))^(1/p) for p = 1, 2, ... and X normal with this standard deviation."""
    q = power * ORDERS
    log_moment = q * np.log(scale) + q / 2 * np.log(2) + gammaln((q + 1) / 2) - np.log(np.pi) / 2
    return np.exp(log_moment / ORDERS)


def sub_exponential_norm(scale, power=1):
    """||X^power||_Psi1 = sup_p p^-1 (E |X^power|^p)^(1/p)."""
    return (moment_roots(scale, power) / ORDERS).max()


def sub_gaussian_norm(scale):
    """||X||_Psi2 = sup_p p^-1/2 (E |X|^p)^(1/p)."""
    return (moment_roots(scale, 1) / np.sqrt(ORDERS)).max()


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_lemma_12_is_about_the_square(scale):
    squared = sub_gaussian_norm(scale) ** 2
    assert squared <= sub_exponential_norm(scale, power=2) * (1 + 1e-12)
    assert sub_exponential_norm(scale, power=2) <= 2 * squared


def test_lemma_12_as_printed_depends_on_the_unit():
    def holds(scale):
        squared = sub_gaussian_norm(scale) ** 2
        return squared <= sub_exponential_norm(scale) <= 2 * squared

    assert not holds(0.01)
    assert not holds(100.0)


def test_theorem_6_general_case_divides_the_function(rng):
    """f(alpha_k) / lambda_k is the limit of the squared error; f(alpha_k / lambda_k) is not."""

    def f(angle):
        return 0.5 - np.sin(2 * angle) / (4 * angle)

    angles, rates = np.array([0.1, 0.4]), np.array([0.25, 4.0])
    cone = rng.integers(2, size=400_000)
    norms_squared = rng.exponential(1 / rates[cone])
    angle = angles[cone] * rng.random(cone.size)
    measured = (norms_squared @ np.sin(angle) ** 2) / norms_squared.sum()
    meant = (f(angles) / rates).sum() / (1 / rates).sum()
    printed = f(angles / rates).sum() / (1 / rates).sum()
    assert measured == pytest.approx(meant, rel=0.02)
    assert abs(measured - printed) > 5 * abs(measured - meant)


@pytest.mark.seed(1)
def test_theorem_6_is_less_conservative_than_theorem_5(rng):
    for _ in range(50):
        angles, rates = rng.uniform(0.01, np.pi / 2, 5), rng.uniform(0.1, 5, 5)
        assert probabilistic_bound(angles, rates) < np.sin(angles).max()


def test_lemma_14_sums_over_all_columns_of_the_householder_matrix():
    u = np.array([0.1, 0.5, 0.2, 0.7, 0.4])
    u /= np.linalg.norm(u)
    z = np.eye(5)[0] - u
    P = np.eye(5) - 2 * np.outer(z, z) / (z @ z)
    np.testing.assert_allclose(P[:, 0], u, atol=1e-14)
    rest = np.eye(5) - np.outer(u, u)
    np.testing.assert_allclose(P[:, 1:] @ P[:, 1:].T, rest, atol=1e-14)  # to F
    assert np.abs(P[:, 1:3] @ P[:, 1:3].T - rest).max() > 0.1  # to K = 3


def test_lemma_14_is_the_second_moment_and_no_covariance():
    model = make_cones(6, 2, 0.1, n_samples=100_000, project=False, rng=np.random.default_rng(0))
    moment = model.V @ model.V.T / model.V.shape[1]
    covariance = np.cov(model.V)
    f, g = (0.5 + sign * np.sin(0.2) / 0.4 for sign in (-1, 1))
    a = (f / model.rates).sum() / (2 * 5)
    expected = a * np.eye(6) + (model.axes * (g - f / 5) / model.rates) @ model.axes.T / 2
    np.testing.assert_allclose(moment, expected, atol=0.03)
    assert np.abs(covariance - expected).max() > 0.2
