"""Samples in cones up to noise: the statements of "Beyond the paper: noise" in docs/theory.md."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from conenmf import cluster_cones, cr1_nmf, from_columns, make_cones
from conenmf.cones.clustering import Cones
from conenmf.cones.geometry import cone_geometry, pairwise_separation
from conenmf.cones.rank_one import rank_one_factors
from conenmf.judge.certificate import lower_bound
from conenmf.solve.theorems import noise_bound, weighted_bound

GOLDEN = (1 + np.sqrt(5)) / 2
seeds = st.integers(0, 10**7)


def norms(A):
    return np.linalg.norm(A, axis=0)


def directions(angles):
    """Unit vectors of the plane at these angles to the first axis."""
    return np.array([np.cos(angles), np.sin(angles)])


def angle_between(a, b):
    """Accurate for small angles too."""
    a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
    return 2 * np.arctan2(np.linalg.norm(a - b), np.linalg.norm(a + b))


def draw_cones(rng, *, spare=(0.05, 0.3)):
    """Cones that satisfy the geometric assumption with some room to spare."""
    K = int(rng.integers(2, 6))
    angles = rng.uniform(0.01, 0.2, K)
    largest, second = np.sort(angles)[::-1][:2]
    apart = max(3 * largest + second + rng.uniform(*spare), 0.02)
    model = make_cones(40, K, angles, angle=apart, n_samples=60, rng=rng)
    assume(np.unique(model.labels).size == K)
    return model, from_columns(model.V), K


def draw_noise(rng, model, kind, size):
    """Noise whose samples have norms up to `size` times those of V."""
    V, most = model.V, size * norms(model.V)
    if kind == "dense":
        E = rng.standard_normal(V.shape)
    elif kind == "sparse":
        E = rng.standard_normal(V.shape) * (rng.random(V.shape) < 0.1)
    elif kind == "outward":  # along what the axes do not explain
        u = model.axes[:, model.labels]
        E = V - u * (u * V).sum(axis=0)
    else:  # turned towards, or away from, the axis of another cone: by as much as is possible
        u = model.axes[:, rng.permutation(model.axes.shape[1])[model.labels]]
        return turn(V, u if kind == "towards" else -u, np.arcsin(size)) - V
    return E * (most / np.maximum(norms(E), 1e-300))


KINDS = ("dense", "sparse", "outward", "towards", "away")


def turn(V, towards, angle):
    """Turn every sample by an angle, at the price of the least noise, ||v|| sin(angle)."""
    unit = V / norms(V)
    side = towards - unit * (unit * towards).sum(axis=0)
    side /= np.maximum(norms(side), 1e-300)
    return V * np.cos(angle) ** 2 + side * norms(V) * np.cos(angle) * np.sin(angle)


def factors_of_cones(X, model):
    """W H of Algorithm 2, given the true clusters."""
    labels = np.where(norms(X) > 0, model.labels, -1)
    cones = Cones(labels, np.arange(model.axes.shape[1]), model.axes, 0.0)
    W, H = rank_one_factors(from_columns(X), cones)
    return W @ H


# --- clusters ---------------------------------------------------------------------------------


@given(rng=seeds.map(np.random.default_rng))
def test_noise_turns_a_sample_by_no_more_than_its_arcsine(rng):
    v, e = rng.random(5), rng.standard_normal(5)
    e *= rng.random() * np.linalg.norm(v) / np.linalg.norm(e)
    most = np.arcsin(np.linalg.norm(e) / np.linalg.norm(v))
    assert angle_between(v, v + e) <= most + 1e-12
    clipped = np.maximum(v + e, 0)
    assert (np.abs(clipped - v) <= np.abs(e) + 1e-15).all()
    assert angle_between(v, clipped) <= most + 1e-12
    turned = turn(v[:, None], rng.random((5, 1)), most)[:, 0]
    assert angle_between(v, turned) == pytest.approx(most, abs=1e-9)
    assert np.linalg.norm(turned - v) == pytest.approx(np.linalg.norm(e))


@pytest.mark.parametrize("kind", KINDS)
@given(rng=seeds.map(np.random.default_rng), share=st.floats(0.9, 0.999))
def test_clusters_are_kept_within_the_tolerance(same_clusters, kind, rng, share):
    model, V, K = draw_cones(rng)
    geometry = cone_geometry(V, model.labels)
    apart = geometry.pairwise.value
    tolerance = noise_bound(geometry.angles, apart, 0.0).tolerance
    assert tolerance >= noise_bound(geometry.angles, geometry.separation, 0.0).tolerance - 1e-9
    X = np.maximum(model.V + draw_noise(rng, model, kind, share * tolerance), 0)
    noise = (norms(X - model.V) / norms(model.V)).max()
    assert noise_bound(geometry.angles, apart, noise, sample_noise=noise).clusters_kept
    assert same_clusters(model.labels, cluster_cones(from_columns(X), K, rng=rng).labels)
    cosines = X.T @ X / np.outer(norms(X), norms(X))
    together = model.labels == model.labels[:, None]
    assert cosines[together].min() > cosines[~together].max()


@pytest.mark.parametrize("beyond", [-1e-6, 1e-6])
def test_the_tolerance_cannot_be_larger(beyond, same_clusters):
    """In the plane, the noise that widens one cone and brings the other closer."""
    alpha, gap = 0.2, 0.7
    at = 0.1 + np.array([2 * alpha, 0.0, 2 * alpha + gap])
    V = directions(at)
    separation = pairwise_separation(from_columns(V), np.array([0, 0, 1])).value
    assert separation == pytest.approx(gap - 2 * alpha)
    tau = separation / 4 + beyond
    X = np.cos(tau) * directions(at + np.array([tau, -tau, -tau]))
    noise = norms(X - V)
    np.testing.assert_allclose(noise, np.sin(tau))
    bound = noise_bound([alpha, 0.0], separation, 0.0, sample_noise=noise.max())
    labels = cluster_cones(from_columns(X), 2, first=0).labels
    assert X.min() >= 0
    assert bound.clusters_kept == same_clusters([0, 0, 1], labels) == (beyond < 0)


@given(rng=seeds.map(np.random.default_rng), size=st.floats(0.0, 0.5), kind=st.sampled_from(KINDS))
def test_whatever_the_clusters_twice_the_angle_is_enough(rng, size, kind):
    model, V, K = draw_cones(rng, spare=(-0.1, 0.1))
    X = np.maximum(model.V + draw_noise(rng, model, kind, size), 0)
    W, H, _ = cr1_nmf(from_columns(X), K, rng=rng)
    noise = (norms(X - model.V) / norms(model.V)).max()
    angles = cone_geometry(V, model.labels).angles
    bound = noise_bound(angles, 0.0, noise, sample_noise=noise).unconditional
    assert np.linalg.norm(X - W @ H) / np.linalg.norm(X) <= bound + 1e-9
    turned = 2 * (angles.max() + np.arcsin(noise))
    assert bound == pytest.approx(np.sin(min(turned, np.pi / 2)))
    assert noise_bound(angles, 0.0, noise).unconditional == 1  # one sample may bear all of it


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@given(seed=seeds, size=st.floats(0.0, 0.9))
def test_the_errors_are_below_their_bounds(kind, seed, size):
    rng = np.random.default_rng(seed)
    model, V, _ = draw_cones(rng)
    spread = rng.random(60) if seed % 2 else np.ones(60)
    X = np.maximum(model.V + spread * draw_noise(rng, model, kind, size), 0)
    product = factors_of_cones(X, model)
    noise = np.linalg.norm(X - model.V) / V.norm
    geometry = cone_geometry(V, model.labels)
    energy = np.bincount(model.labels, (model.V**2).sum(axis=0))
    options = {"sample_noise": (norms(X - model.V) / norms(model.V)).max()}
    widest = noise_bound(geometry.angles, geometry.separation, noise, **options)
    weighted = noise_bound(geometry.angles, geometry.separation, noise, **options, weights=energy)
    assert noise_bound(geometry.angles, 0.0, 0.0, weights=energy).error == pytest.approx(
        weighted_bound(V, model.labels, geometry.angles)
    )
    assert weighted.error <= widest.error + 1e-12
    assert weighted.clean <= widest.clean + 1e-12
    assert widest.error <= np.sin(geometry.angles.max()) + noise + 1e-12
    # the sharpest without angles, from the error of V itself
    before = np.linalg.norm(model.V - factors_of_cones(model.V, model)) / V.norm
    for bound in (weighted, noise_bound([np.arcsin(before)], 0.0, noise)):
        assert np.linalg.norm(X - product) / np.linalg.norm(X) <= bound.error + 1e-9
        assert np.linalg.norm(model.V - product) / V.norm <= bound.clean + 1e-9


@given(alpha=st.floats(0.0, 0.6), share=st.floats(0.0, 1.0))
def test_the_bound_on_the_error_is_attained(alpha, share):
    """Two samples on either side of an axis, both turned away from it."""
    tau = share * (np.pi / 4 - alpha) * 0.99
    V = directions(np.pi / 4 + np.array([-alpha, alpha]))
    X = np.cos(tau) * directions(np.pi / 4 + np.array([-alpha - tau, alpha + tau]))
    W, H, _ = cr1_nmf(from_columns(X), 1)
    noise = np.linalg.norm(X - V) / np.linalg.norm(V)
    bound = noise_bound([alpha], np.inf, noise, sample_noise=noise)
    assert bound.clusters_kept
    error = np.linalg.norm(X - W @ H) / np.linalg.norm(X)
    assert error == pytest.approx(bound.error, abs=1e-7)


def test_the_golden_ratio_is_attained():
    """Noise takes from the one component and gives to another, which then leads."""
    V = np.diag([GOLDEN, 0.0])
    X = np.diag([1.0, 1.0 + 1e-6])
    W, H, _ = cr1_nmf(from_columns(X), 1)
    noise = np.linalg.norm(X - V) / np.linalg.norm(V)
    clean = np.linalg.norm(V - W @ H) / np.linalg.norm(V)
    bound = noise_bound([0.0], np.inf, noise).clean
    assert clean <= bound + 1e-9
    assert (clean, clean) == pytest.approx((GOLDEN * noise, bound), rel=1e-5)


@given(rng=seeds.map(np.random.default_rng), close=st.floats(0.0, 0.2))
def test_a_rank_one_factor_is_off_by_the_golden_ratio_at_most(rng, close):
    """Any matrix, any noise; hardest where noise decides which singular value leads."""
    shape = rng.integers(1, 5, 2)
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for n in shape)
    V, E = np.zeros(shape), np.zeros(shape)
    np.fill_diagonal(V, rng.random(min(shape)) * (rng.random() < 0.7))
    V[0, 0] = V.max() + rng.random()
    values = np.full(min(shape), V.max() * rng.uniform(0.5, 1.0))
    np.fill_diagonal(E, values + close * rng.standard_normal(values.size) - np.diagonal(V))
    E = left @ (E * (rng.random() < 0.8)) @ right + close * rng.standard_normal(shape)
    V = left @ V @ right
    u, sigma, v = np.linalg.svd(V + E)
    off = np.linalg.norm(V - sigma[0] * np.outer(u[:, 0], v[0]))
    second = np.linalg.norm(np.linalg.svd(V, compute_uv=False)[1:])
    assert off <= second + GOLDEN * np.linalg.norm(E) + 1e-12


@given(rng=seeds.map(np.random.default_rng), size=st.floats(0.01, 1.0), second=st.floats(0.0, 0.9))
def test_between_distant_singular_values_noise_adds_in_squares(rng, size, second):
    """The worst noise mixes the two leading pairs, or makes the first one longer."""
    V = np.diag(np.append([1.0, second], second * rng.random(2)))
    gap = 1 - second
    E = rng.standard_normal((4, 4)) * rng.random()
    E[:2, :2] += rng.standard_normal((2, 2))
    E[0, 1] += rng.choice([0.0, 3.0])
    E[1, 0] += rng.choice([0.0, 3.0])
    E *= 0.999 * size * gap / np.sqrt(2) / np.linalg.norm(E)
    u, sigma, v = np.linalg.svd(V + E)
    off = np.linalg.norm(V - sigma[0] * np.outer(u[:, 0], v[0]))
    residual, noise = np.linalg.norm(V[1:]), np.linalg.norm(E)
    assert off <= np.hypot(noise, residual + noise**2 / gap) + 1e-12
    longer = 1 + noise  # and all noise along the first pair costs the squares at least
    off = np.linalg.norm(V - np.diag([longer, 0, 0, 0]))
    assert off == pytest.approx(np.hypot(noise, residual))


@given(rng=seeds.map(np.random.default_rng))
def test_separate_cones_have_distant_singular_values(rng):
    """If noise is below a quarter of what cones are apart, the sharper bound applies."""
    model, V, _ = draw_cones(rng)
    geometry = cone_geometry(V, model.labels)
    m = 0.999 * noise_bound(geometry.angles, geometry.separation, 0.0).tolerance
    bound = noise_bound(geometry.angles, geometry.separation, m, sample_noise=m)
    widest = geometry.angles.max()
    assert np.arcsin(m) + widest < np.pi / 4
    q = m / (np.cos(widest) - np.sin(widest))
    assert bound.clean == pytest.approx(np.hypot(m, np.sin(widest) + q * m))


def test_separate_samples_may_need_wide_cones():
    """Then the sharper bound may not apply, although clusters are kept."""
    V = np.full((12, 12), 0.05) + np.eye(12)
    V[:, 11] = V[11, :] = np.eye(12)[11]
    geometry = cone_geometry(from_columns(V), np.repeat([0, 1], [11, 1]))
    bound = noise_bound(geometry.angles, geometry.pairwise.value, 0.01, sample_noise=0.01)
    assert bound.clusters_kept
    assert geometry.angles[0] > np.pi / 4
    assert bound.clean == pytest.approx(np.sin(geometry.angles[0]) + GOLDEN * 0.01)


@pytest.mark.seed(1)
def test_noise_of_mean_zero_adds_in_squares(rng):
    """Counts: the mean squared error is at most that without noise plus the mean squared noise."""
    model = make_cones(40, 3, 0.2, n_samples=60, rng=np.random.default_rng(0))
    rates = 4 * model.V
    before = np.linalg.norm(rates - factors_of_cones(rates, model)) ** 2
    draws = [rng.poisson(rates).astype(float) for _ in range(100)]
    after = np.mean([np.linalg.norm(X - factors_of_cones(X, model)) ** 2 for X in draws])
    assert rates.sum() > before  # noise is most of it
    assert 0.8 * (before + rates.sum()) < after < before + rates.sum()


@given(rng=seeds.map(np.random.default_rng), size=st.floats(0.0, 0.9), kind=st.sampled_from(KINDS))
def test_the_lower_bound_turns_no_farther_than_the_data(rng, size, kind):
    model, V, K = draw_cones(rng)
    X = np.maximum(model.V + draw_noise(rng, model, kind, size), 0)
    turned = np.arcsin(np.linalg.norm(X - model.V) / V.norm)
    before, after = (np.arcsin(lower_bound(data, K)) for data in (V, from_columns(X)))
    assert abs(before - after) <= turned + 1e-6


# --- numbers ----------------------------------------------------------------------------------


def test_without_noise_it_is_theorem_4_and_with_too_much_nothing_is_said():
    for noise, sample_noise, expected in (
        (0.0, 0.0, (np.sin(0.3), np.sin(0.3), np.sin(0.6), True)),
        (3.0, 5.0, (1, np.sqrt(10), 1, False)),
    ):
        found = noise_bound([0.1, 0.3], 0.2, noise, sample_noise=sample_noise)
        values = (found.error, found.clean, found.unconditional, found.clusters_kept)
        assert values == pytest.approx(expected)
    assert not noise_bound([0.1], 0.2, 0.0).clusters_kept  # all may be in one sample
    touching = noise_bound([0.3, 0.3], 0.0, 0.0, sample_noise=0.0)
    assert (touching.tolerance, touching.clusters_kept) == (0, False)
    assert noise_bound([0.3], np.inf, 0.0).tolerance == 1
