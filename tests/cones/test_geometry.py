"""Smallest enclosing cones against an independent solver, and the margin of the cone assumption."""

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from conenmf import cluster_cones, from_columns, make_cones
from conenmf.cones.geometry import cone_geometry, enclosing_cones, largest_angle


def independent_solution(X):
    """The quadratic program by a general solver: minimise ||u||^2 / 2 with X'u >= 1, u >= 0."""
    result = scipy.optimize.minimize(
        lambda u: 0.5 * u @ u,
        X.mean(axis=1) * 2,
        jac=lambda u: u,
        bounds=[(0, None)] * X.shape[0],
        constraints={"type": "ineq", "fun": lambda u: X.T @ u - 1, "jac": lambda u: X.T},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    return result.x


@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_small_cases_equal_an_independent_solver(rng):
    V = rng.random((int(rng.integers(2, 6)), int(rng.integers(1, 12)))) ** 2 + 0.05
    axes, angles = enclosing_cones(from_columns(V), np.zeros(V.shape[1], int))
    u = independent_solution(V / np.linalg.norm(V, axis=0))
    np.testing.assert_allclose(axes[:, 0], u / np.linalg.norm(u), atol=1e-5)
    assert np.cos(angles[0]) == pytest.approx(1 / np.linalg.norm(u), abs=1e-7)


def kkt_residual(X, u):
    """Distance from optimality: u = X m with m >= 0, m_i > 0 only where <x_i, u> = 1 >= 1."""
    heights = X.T @ u
    tight = X[:, heights < 1 + 1e-7]
    _, distance = scipy.optimize.nnls(tight, u)
    return max(1 - heights.min(), distance / np.linalg.norm(u))


def test_two_thousand_samples_in_1600_dimensions(rng):
    for V in (rng.random((1600, 2000)), make_cones(1600, 1, 0.3, n_samples=2000, rng=rng).V):
        axes, angles = enclosing_cones(from_columns(V), np.zeros(2000, int))
        X = V / np.linalg.norm(V, axis=0)
        assert kkt_residual(X, axes[:, 0] / np.cos(angles[0])) < 1e-8
        assert np.arccos((X.T @ axes[:, 0]).min()) == pytest.approx(angles[0], abs=1e-9)


@given(rng=st.integers(0, 10**6).map(np.random.default_rng), exponent=st.integers(-12, -1))
def test_small_cones_have_all_their_digits(rng, exponent):
    """Two samples on either side of an axis, and others nearer to it, which do not matter."""
    F, M, alpha = int(rng.integers(2, 30)), int(rng.integers(2, 7)), 10.0**exponent
    u = rng.random(F) + 0.5
    u /= np.linalg.norm(u)
    y = rng.standard_normal((F, M))
    y[:, 1] = -y[:, 0]
    y -= np.outer(u, u @ y)
    at = alpha * np.append([1.0, 1.0], 0.9 * rng.random(M - 2))
    X = np.outer(u, np.cos(at)) + np.sin(at) * y / np.linalg.norm(y, axis=0)
    axes, angles = enclosing_cones(from_columns(X * rng.uniform(0.1, 9.0, M)), np.zeros(M, int))
    assert angles[0] == pytest.approx(alpha, rel=1e-9, abs=1e-15)
    assert np.linalg.norm(axes[:, 0] - u) <= 1e-4 * alpha + 1e-15


def test_every_storage(main_backend, small_blocks, sample_matrix, all_close):
    V = main_backend(sample_matrix)
    labels = cluster_cones(V, 3).labels
    axes, angles = enclosing_cones(V, labels)
    plain = from_columns(sample_matrix, **small_blocks)
    all_close((axes, angles), enclosing_cones(plain, labels), atol=1e-8)
    assert axes.min() >= 0


def test_duplicates_and_single_directions(all_close):
    V = from_columns([[1.0, 2.0, 1.0, 0.0], [0.0, 0.0, 0.0, 3.0]])
    apart, together = np.array([0, 0, 0, 1]), np.zeros(4, int)
    all_close(enclosing_cones(V, apart), (np.eye(2), np.zeros(2)), rtol=1e-12, atol=1e-15)
    all_close(enclosing_cones(V, together), (np.sqrt([[0.5], [0.5]]), [np.pi / 4]))


def test_the_assumption_and_its_margin(main_backend):
    model = make_cones(100, 4, [0.1, 0.2, 0.05, 0.15], n_samples=800, rng=np.random.default_rng(1))
    geometry = cone_geometry(main_backend(model.V), model.labels)
    assert (geometry.angles <= model.angles + 1e-9).all()
    assert geometry.holds
    largest, second = np.sort(geometry.angles)[::-1][:2]
    off = ~np.eye(4, dtype=bool)
    assert geometry.margin == pytest.approx(geometry.between[off].min() - 3 * largest - second)
    assert geometry.separation >= geometry.margin - 1e-12  # equal but for rounding, here
    assert geometry.between[geometry.closest] == geometry.between[off].min()


def test_broken_assumption_names_the_pair():
    def at(degrees):
        return [np.cos(np.radians(degrees)), np.sin(np.radians(degrees))]

    V = np.array([at(0), at(10), at(12), at(30), at(80), at(90)]).T
    geometry = cone_geometry(from_columns(V), np.array([0, 0, 1, 1, 2, 2]))
    assert not geometry.holds
    assert (geometry.verdict, geometry.closest) == ("does not hold", (0, 1))
    found = np.degrees([*geometry.angles, geometry.margin, geometry.separation])
    np.testing.assert_allclose(found, [5, 9, 5, 16 - 3 * 9 - 5, 16 - 14 - 18])


def margin_of(V, labels, axes):
    """The margin of given axes, each cone as wide as it must be."""
    unit, axes = V / np.linalg.norm(V, axis=0), axes / np.linalg.norm(axes, axis=0)
    angles = [np.arccos((unit[:, labels == k].T @ axes[:, k]).min()) for k in range(2)]
    return np.arccos(axes[:, 0] @ axes[:, 1]) - 3 * max(angles) - min(angles)


def test_the_assumption_may_hold_though_the_smallest_cones_miss_it():
    """Axes turned away from each other widen the cones by less than they take them apart."""
    V = np.array([[18.0, 18.0, 8.0, 6.0], [9.0, 5.0, 15.0, 9.0], [2.0, 8.0, 11.0, 17.0]])
    labels = np.array([0, 0, 1, 1])
    geometry = cone_geometry(from_columns(V), labels)
    assert geometry.margin == pytest.approx(margin_of(V, labels, geometry.axes))
    assert geometry.margin < -0.05
    assert margin_of(V, labels, np.array([[100, 38], [24, 90], [18, 100]])) > 0.05
    assert geometry.verdict == "may hold"
    assert geometry.pairwise.value > 0.29
    for first in range(4):
        found = cluster_cones(from_columns(V), 2, first=first).labels
        assert found[0] == found[1] != found[2] == found[3]


@settings(max_examples=15)
@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_the_assumption_implies_a_pairwise_separation(rng):
    """So where samples are not apart the assumption fails, whatever the cones."""
    model = make_cones(30, 3, rng.uniform(0.02, 0.2, 3), angle=0.9, n_samples=40, rng=rng)
    V = from_columns(model.V)
    labels = np.unique(model.labels, return_inverse=True)[1]
    exact = cone_geometry(V, labels)
    assert exact.pairwise.value >= exact.separation - 1e-9
    assert exact.separation >= exact.margin - 1e-12
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("conenmf.cones.geometry._MAX_EXACT_SAMPLES", 1)
        bounded = cone_geometry(V, labels)
    assert not bounded.pairwise.is_exact
    assert exact.separation - 1e-9 <= bounded.pairwise.value <= exact.pairwise.value + 1e-9
    assert bounded.verdict in ("holds", "may hold")
    assert cone_geometry(V, rng.permutation(labels)).verdict == "does not hold"


def test_one_cone():
    geometry = cone_geometry(from_columns(np.eye(3)), np.zeros(3, int))
    assert (geometry.verdict, geometry.margin, geometry.closest) == ("holds", np.inf, None)
    assert geometry.angles[0] == pytest.approx(np.arccos(1 / np.sqrt(3)))


def test_it_costs_a_few_passes():
    model = make_cones(200, 5, 0.2, n_samples=1000, rng=np.random.default_rng(0))
    V = from_columns(model.V)
    cone_geometry(V, model.labels)
    assert V.passes < 10


def test_labels_of_any_integer_kind():
    V = from_columns(np.eye(3))
    for labels in ([0, 1, 2], np.arange(3, dtype=np.uint8), np.arange(3, dtype=np.int16)):
        assert cone_geometry(V, labels).closest == (0, 1)


def test_samples_without_a_cone_are_not_the_farthest():
    """Neither samples of zeros nor outliers, in cones so narrow that differences are formed."""
    Z = np.eye(3)[:, :2]
    V = np.array([[1, 1e-6, 0], [3e-6, 1, 0], [0, 0, 0], [0, 0, 1.0]]).T
    labels = np.array([0, 1, -1, -1])
    found = largest_angle(from_columns(V), labels, Z, 1.0 - 1e-12)
    assert found == pytest.approx(3e-6, rel=1e-6)
