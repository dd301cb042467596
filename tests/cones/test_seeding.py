"""cr1++: the law of the drawn centres, its factors of 2 and 5, and the best of several runs."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from conenmf import cluster_cones, cr1_nmf, from_columns, make_cones
from conenmf.cones import rank_one
from conenmf.cones.rank_one import cr1_error, cr1_plus_plus, factors_from_centres


def rng(seed=0):
    return np.random.default_rng(seed)


def sines_squared(V, Z):
    """Of the angles between columns of V and of Z; 0 for a zero column of V."""
    norms = np.linalg.norm(V, axis=0)
    unit = V / np.where(norms > 0, norms, 1)
    cosines = unit.T @ (Z / np.linalg.norm(Z, axis=0))
    return np.clip(1 - cosines**2, 0, None) * (norms > 0)[:, None]


def residuals(V, Z):
    """What the nearest of some axes leaves of the squared norm of each sample."""
    return (V**2).sum(axis=0) * sines_squared(V, Z).min(axis=1)


def law(V, K):
    """Each sequence of K centres that can be drawn, and its probability."""
    weights = (V**2).sum(axis=0)
    drawn = {(n,): p for n, p in enumerate(weights / weights.sum()) if p > 0}
    for _ in range(K - 1):
        longer = {}
        for centres, p in drawn.items():
            residual = residuals(V, V[:, list(centres)])
            residual[residual < 1e-13 * weights] = 0
            for n in np.flatnonzero(residual):
                longer[*centres, int(n)] = p * residual[n] / residual.sum()
        drawn = longer
    return drawn


def best_on_one_axis(V):
    return (V**2).sum() - np.linalg.norm(V, 2) ** 2


def best_on_axes(V, K):
    """The smallest squared error with K axes and each sample on one, over all partitions."""
    N = V.shape[1]
    subsets = [[n for n in range(N) if code >> n & 1] for code in range(2**N)]
    one = np.array([best_on_one_axis(V[:, few]) if few else 0.0 for few in subsets])
    best = one.copy()
    for _ in range(K - 1):
        after = best.copy()
        for code in range(2**N):
            part = code
            while part:
                after[code] = min(after[code], one[part] + best[code ^ part])
                part = (part - 1) & code
        best = after
    return best[-1]


@st.composite
def tiny(draw, most=7):
    """Samples in a few directions, of very different norms."""
    generator = rng(draw(st.integers(0, 10**7)))
    F, N = int(generator.integers(2, 5)), int(generator.integers(3, most + 1))
    directions = generator.random((F, 4)) ** 3
    spread = 10.0 ** generator.uniform(-4, 0)
    V = directions[:, generator.integers(4, size=N)] + spread * generator.random((F, N))
    return V * 10.0 ** generator.uniform(-2, 2, N)


# --- theory -----------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**7), F=st.integers(1, 6))
def test_the_sine_of_the_angle_is_a_metric(seed, F):
    generator = rng(seed)
    X = generator.random((F, 3)) * (generator.random((F, 3)) < 0.8)
    X[0] += X.sum(axis=0) == 0
    D = np.sqrt(sines_squared(X, X))
    x, y, _ = (X / np.linalg.norm(X, axis=0)).T
    assert np.linalg.norm(np.outer(x, x) - np.outer(y, y)) == pytest.approx(
        np.sqrt(2) * D[0, 1], abs=1e-7
    )
    np.testing.assert_allclose(D, D.T, atol=1e-7)
    assert D[0, 2] <= D[0, 1] + D[1, 2] + 1e-7
    if np.abs(x - y).max() > 1e-3:
        assert D[0, 1] > 1e-4


@given(V=tiny())
def test_the_first_centre_of_a_cluster_costs_twice_the_best(V):
    weights = (V**2).sum(axis=0)
    costs = [residuals(V, V[:, [n]]).sum() for n in range(V.shape[1])]
    assert weights @ costs / weights.sum() <= 2 * best_on_one_axis(V) + 1e-12 * weights.sum()


def test_the_first_centre_can_cost_twice_the_best():
    """Two samples of equal norm: the best axis halves their angle, a centre is one of them."""
    angles = np.array([0.5, 0.51])
    best = best_on_one_axis(np.stack([np.cos(angles), np.sin(angles)]))
    assert 1.9 * best < np.sin(0.01) ** 2 <= 2 * best


@given(V=tiny(), data=st.data())
def test_a_later_centre_of_a_cluster_costs_five_times_the_best(V, data):
    weights = (V**2).sum(axis=0)
    generator = rng(data.draw(st.integers(0, 10**7)))
    near = V[:, :1] + 10.0 ** generator.uniform(-4, 1) * generator.random((V.shape[0], 2))
    residual = residuals(V, near)
    costs = [np.minimum(residual, residuals(V, V[:, [n]])).sum() for n in range(V.shape[1])]
    assert residual @ costs / residual.sum() <= 5 * best_on_one_axis(V) + 1e-12 * weights.sum()


def test_five_times_the_best_is_nearly_reached():
    """Most of a cluster at a point, a little at a distance, and an earlier centre beyond it."""
    far, few = 0.02, 1e-4
    at = 0.5 + np.array([0.0, far])
    V = np.array([np.cos(at), np.sin(at)]) * np.sqrt([1.0, few])
    ratios = []
    for reach in np.linspace(0.001, 0.03, 200):
        centre = np.array([[np.cos(0.5 - reach)], [np.sin(0.5 - reach)]])
        residual = residuals(V, centre)
        costs = [np.minimum(residual, residuals(V, V[:, [n]])).sum() for n in range(2)]
        ratios.append(residual @ costs / residual.sum() / best_on_one_axis(V))
    assert 4.7 < max(ratios) <= 5


def test_no_factor_bounds_the_distance_to_mixtures():
    """Three mixtures of two components: their best NMF is exact, one axis for each leaves a lot."""
    V = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    assert best_on_axes(V, 2) > 0.3
    W, H, _ = cr1_plus_plus(from_columns(V), 2, rng=rng())
    assert cr1_error(from_columns(V), W, H) > 0.2
    np.testing.assert_allclose(np.eye(2) @ V, V)


@given(V=tiny(most=6), K=st.integers(1, 3))
def test_the_mean_squared_error_is_within_the_bound(V, K):
    mean = sum(p * residuals(V, V[:, list(centres)]).sum() for centres, p in law(V, K).items())
    assert mean <= 5 * (np.log(K) + 2) * best_on_axes(V, K) + 1e-11 * (V**2).sum()


def test_the_mean_over_many_runs_is_what_the_law_says():
    V = np.array([[9.0, 8.0, 1.0, 0.0, 1.0, 2.0], [1.0, 2.0, 7.0, 5.0, 1.0, 0.5]])
    errors_of = {c: residuals(V, V[:, list(c)]).sum() for c in itertools.permutations(range(6), 2)}
    expected = sum(p * errors_of[centres] for centres, p in law(V, 2).items())
    centres, _ = many_draws(V, 2, 4000)
    costs = np.array([errors_of[tuple(drawn)] for drawn in centres.tolist()])
    assert abs(costs.mean() - expected) < 3 * costs.std() / np.sqrt(costs.size)
    errors = [cr1_error(from_columns(V), *one_run(V, 2, seed)[:2]) ** 2 for seed in range(200)]
    assert np.mean(errors) * (V**2).sum() < expected  # the axes are better than the centres
    assert expected < 5 * (np.log(2) + 2) * best_on_axes(V, 2)


def one_run(V, K, seed):
    return cr1_plus_plus(from_columns(V), K, rng=rng(seed), runs=1)


def test_short_outliers_are_left_alone():
    """Algorithm 1 spends a centre on each of them, and has no guarantee of this kind."""
    model = make_cones(30, 3, 0.02, n_samples=90, angle=0.8, rng=rng(2))
    V = np.hstack([model.V, 1e-6 * np.eye(30)])
    total = (V**2).sum()
    best = sum(best_on_one_axis(model.V[:, model.labels == k]) for k in range(3)) + 30e-12
    bound = np.sqrt(10 * (np.log(3) + 2) * best / total)
    opened = from_columns(V)
    assert cr1_error(opened, *cr1_nmf(opened, 3)[:2]) > bound
    for seed in range(10):
        assert cr1_error(opened, *cr1_plus_plus(opened, 3, rng=rng(seed))[:2]) < bound


# --- the draw ---------------------------------------------------------------------------------


def many_draws(V, K, count, **options):
    parts = [
        rank_one.draw_centres(from_columns(V, **options), K, rng(seed), 200)
        for seed in range(count // 200)
    ]
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


@pytest.mark.parametrize("K", [1, 2, 3])
def test_centres_are_drawn_in_proportion_to_what_is_left(K, small_blocks):
    """Ten samples in two blocks: zero ones, a double of another, long and short ones."""
    V = np.array(
        [
            [0.0, 3.0, 1.0, 6.0, 0.5, 0.0, 1.0, 0.0, 1.0, 1.0],
            [0.0, 1.0, 3.0, 2.0, 0.5, 0.0, 0.0, 2.0, 0.0, 2.0],
            [0.0, 0.0, 0.5, 0.0, 2.0, 0.0, 1.0, 0.0, 1.5, 1.0],
        ]
    )
    centres, Z = many_draws(V, K, 20_000, **small_blocks)
    expected = law(V, K)
    drawn = dict.fromkeys(expected, 0)
    for sequence in centres.tolist():
        drawn[tuple(sequence)] += 1  # a KeyError would be a sequence that cannot be drawn
    counts, means = np.array(list(drawn.values())), 20_000 * np.array(list(expected.values()))
    rare = means < 10
    statistic = ((counts - means)[~rare] ** 2 / means[~rare]).sum()
    statistic += (counts[rare].sum() - means[rare].sum()) ** 2 / max(means[rare].sum(), 1e-9)
    assert statistic < stats.chi2.ppf(0.999, (~rare).sum() - 1 + rare.any())
    unit = V[:, centres[:20, -1]] / np.linalg.norm(V[:, centres[:20, -1]], axis=0)
    np.testing.assert_allclose(Z[:20, :, -1], unit.T, rtol=1e-14)


def test_runs_are_independent_of_each_other():
    """Runs of one seed, and of different seeds, agree as often as chance has it."""
    V = np.array([[1.0, 0.0, 2.0], [0.0, 1.5, 1.0]])
    shares = (V**2).sum(axis=0) / (V**2).sum()
    together = sum(
        np.equal.outer(first, first)
        for first in (
            rank_one.draw_centres(from_columns(V), 1, rng(seed), 6)[0][:, 0] for seed in range(2000)
        )
    )
    p = (shares**2).sum()
    off = together[~np.eye(6, dtype=bool)]
    assert np.abs(off - 2000 * p).max() < 4 * np.sqrt(2000 * p * (1 - p))


def test_every_storage_gives_the_same_factors(main_backend, small_blocks, sample_matrix, all_close):
    (W, H, cones), (W0, H0, cones0) = (
        cr1_plus_plus(V, 5, rng=rng(7), runs=5)
        for V in (main_backend(sample_matrix), from_columns(sample_matrix, **small_blocks))
    )
    all_close((cones.labels, cones.centres), (cones0.labels, cones0.centres), rtol=0)
    all_close((W, H), (W0, H0), atol=1e-9)


@pytest.mark.parametrize("block", [1, 3, 40])
def test_blocks_and_the_type_do_not_matter(block, sample_matrix):
    coarse = sample_matrix.astype(np.float32)
    data = (from_columns(coarse, block_samples=block), from_columns(coarse.astype(np.float64)))
    found, exact = (rank_one.draw_centres(V, 6, rng(3), 7)[0] for V in data)
    np.testing.assert_array_equal(found, exact)


def test_it_reads_v_once_for_each_centre_for_any_number_of_runs(sample_matrix):
    for runs in (1, 9):
        V = from_columns(sample_matrix)
        before = V.passes
        rank_one.draw_centres(V, 5, rng(), runs)
        assert V.passes - before == pytest.approx(4 + 5 * runs / 40)


def test_the_generator_decides(sample_matrix):
    V = from_columns(sample_matrix)
    first, second = (cr1_plus_plus(V, 5, rng=rng(4))[:2] for _ in range(2))
    assert [part.tobytes() for part in first] == [part.tobytes() for part in second]
    assert len({tuple(cr1_plus_plus(V, 5, rng=rng(seed))[2].centres) for seed in range(9)}) > 1
    assert len({tuple(cr1_plus_plus(V, 5, runs=1)[2].centres) for _ in range(9)}) > 1


# --- the best run -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_the_best_run_is_taken_and_more_runs_are_never_worse(seed, sample_matrix):
    V = from_columns(sample_matrix)
    runs = zip(*rank_one.draw_centres(V, 4, rng(seed), 9), strict=True)
    errors = [cr1_error(V, *factors_from_centres(V, *run, 1e-2)[:2]) for run in runs]
    assert len(set(errors)) > 2
    for count in (1, 2, 4, 5, 9):
        best = cr1_plus_plus(V, 4, rng=rng(seed), runs=count, tol=1e-2)
        assert cr1_error(V, *best[:2]) == pytest.approx(min(errors[:count]), rel=1e-12)


def test_the_factors_are_the_best_of_their_cones(main_backend, small_blocks, sample_matrix):
    W, H, cones = cr1_plus_plus(main_backend(sample_matrix), 4, rng=rng(1))
    W, H, labels = np.asarray(W), np.asarray(H), np.asarray(cones.labels)
    np.testing.assert_allclose(np.linalg.norm(W, axis=0), 1)
    assert ((H > 0).sum(axis=0) <= 1).all()
    best = sum(best_on_one_axis(sample_matrix[:, labels == k]) for k in range(4))
    assert np.linalg.norm(sample_matrix - W @ H) ** 2 == pytest.approx(best, rel=1e-9)
    nearest = sines_squared(sample_matrix, cones.directions).argmin(axis=1)
    nonzero = labels >= 0
    assert labels[nonzero].tolist() == nearest[nonzero].tolist()
    assert labels[cones.centres].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(5))
def test_cones_that_are_narrow_and_far_apart_are_found(seed, same_clusters):
    model = make_cones(60, 4, 0.05, n_samples=150, angle=1.2, rng=rng(seed))
    labels = cr1_plus_plus(from_columns(model.V), 4, rng=rng(seed))[2].labels
    assert same_clusters(model.labels, labels)


def test_zero_columns_belong_to_no_cone(sample_matrix):
    zero = [0, 17]
    for seed in range(20):
        _, H, cones = cr1_plus_plus(from_columns(sample_matrix), 6, rng=rng(seed), runs=1)
        assert cones.labels[zero].tolist() == [-1, -1]
        assert not H[:, zero].any()
        assert len({*cones.centres.tolist()} - {*zero}) == 6


def test_all_directions_can_be_asked_for():
    """Doubles of a centre are never drawn, however long they are."""
    V = np.array([[1.0, 1e8, 3.0, 0.3, 0.0], [1.0, 1e8, 1.0, 0.1, 2.0]])
    for seed in range(20):
        W, H, _ = cr1_plus_plus(from_columns(V), 3, rng=rng(seed), runs=2)
        np.testing.assert_allclose(W @ H, V, rtol=1e-7, atol=1e-7)


def test_a_huge_range_of_lengths_raises_no_warning():
    V = np.diag([1e-160, 1e-140, 1.0, 1e5])
    cones = cr1_plus_plus(from_columns(V), 2, rng=rng())[2]
    assert sorted(cones.centres.tolist()) == [2, 3]
    assert cluster_cones(from_columns(V), 2).radius == pytest.approx(np.pi / 2)
