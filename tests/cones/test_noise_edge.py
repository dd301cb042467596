"""Counting components above the edge of noise: the bound on the norm of noise, and counts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conenmf import from_columns, from_rows, make_cones, select_k
from conenmf.cones.counting import (
    count_above_edge,
    count_in_clusters,
    highest_noise,
    noise_edge,
)

DRAWS = 40


def mean_norm(variances, F, rng):
    """The mean spectral norm of noise with these variances, over some draws."""
    draws = rng.standard_normal((DRAWS, F, variances.size)) * np.sqrt(variances)
    return np.linalg.norm(draws, 2, axis=(1, 2)).mean()


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6))
def test_noise_has_a_mean_norm_below_its_edge(seed):
    """Below five standard deviations of a mean; the norm has a variance of at most max a_n."""
    rng = np.random.default_rng(seed)
    F, N = rng.integers(1, 30, 2)
    variances = rng.gamma(rng.uniform(0.1, 3), size=N)
    if seed % 2:
        variances[0] *= 50
    spread = 5 * np.sqrt(variances.max() / DRAWS)
    assert mean_norm(variances, F, rng) <= noise_edge(variances, F) + spread


@pytest.mark.parametrize("shape", [(100, 400), (300, 300), (400, 60)])
def test_the_edge_is_reached_by_large_matrices(shape):
    """So no smaller constant does: with half of it the theorem would be false."""
    (F, N), rng = shape, np.random.default_rng(0)
    variances = rng.uniform(0.2, 2.0, N)
    edge = noise_edge(variances, F)
    noise = rng.standard_normal((F, N)) * np.sqrt(variances)
    assert 0.95 * edge < np.linalg.norm(noise, 2) < 1.03 * edge
    equal = noise_edge(np.full(N, 4.0), F)
    assert equal == pytest.approx(2 * (np.sqrt(F) + np.sqrt(N)), rel=1e-9)


def test_equal_variances_may_be_counted():
    assert noise_edge([1.0, 2.0, 2.0, 0.0], 5) == pytest.approx(noise_edge([1, 2], 5, [1, 2]))
    assert noise_edge([0.0, 0.0], 5) == 0.0


def unequal_cones(seed):
    """Cones with unequal probabilities, rates and size angles."""
    rng = np.random.default_rng(seed)
    K = int(rng.integers(2, 7))
    model = make_cones(
        60,
        K,
        rng.uniform(0.05, 0.25, K),
        n_samples=500,
        rates=10 ** rng.uniform(-1, 1, K),
        weights=rng.dirichlet(np.full(K, 5.0)),
        rng=rng,
    )
    return model.V, K


def test_unequal_cones_are_counted():
    """All but a few of those that the ratio of singular values misses too.

    Where too many are counted, the extra singular values are just above the edge.
    """
    missed = missed_by_ratio = 0
    for seed in range(40):
        V, K = unequal_cones(seed)
        count = count_above_edge(from_columns(V))
        assert count.values[K] < 1.15, seed
        assert count.K >= K or count.misfit > 0.05, seed
        sigma = np.linalg.svd(V, compute_uv=False)
        missed += count.K != K
        missed_by_ratio += int(np.argmax(sigma[1:12] / sigma[2:13])) + 2 != K
    assert missed <= 3
    assert missed_by_ratio >= 8


def test_a_tiny_gap_after_a_huge_drop_does_not_decide():
    """Two singular values are 5 % above the edge, after a drop by a factor of 41."""
    V, K = unequal_cones(28)
    count = count_above_edge(from_columns(V))
    assert (K, count.K) == (5, 7)
    assert count.values[K - 1] > 40 * count.values[K]
    chosen = select_k(from_columns(V))
    assert (chosen.K, chosen.grade) == (5, "supported")
    for seed in range(40):
        V, K = unequal_cones(seed)
        assert select_k(from_columns(V)).K == K, seed


@pytest.mark.parametrize("noise", [0.1, 0.5])
def test_cones_are_counted_in_noise(noise):
    for seed in range(5):
        model = make_cones(
            200, 8, 0.3, n_samples=1000, noise=noise, rng=np.random.default_rng(seed)
        )
        assert count_above_edge(from_columns(model.V)).K == 8


def close_axes(rng):
    """Six directions; the last two differ by a tenth of each entry."""
    axes = 0.5 + rng.random((60, 6))
    axes[:, 5] = axes[:, 4] * (1 + 0.1 * rng.choice([-1, 1], 60))
    return axes


def test_clusters_show_cones_that_are_close():
    hidden = right = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = close_axes(rng)[:, rng.integers(6, size=900)] + 0.32 * rng.standard_normal((60, 900))
        V = from_columns(np.maximum(X, 0))
        above, chosen = count_above_edge(V), select_k(V)
        right += chosen.K == 6
        if above.K == 5:
            hidden += 1
            assert count_in_clusters(V, above) == 6
            assert (chosen.K, chosen.decided_by) == (6, "clusters")
    assert hidden >= 2
    assert right >= 5


def test_mixtures_are_not_clusters(rng):
    X = close_axes(rng) @ rng.dirichlet(np.ones(6), 900).T + 0.01 * rng.standard_normal((60, 900))
    V = from_columns(np.maximum(X, 0))
    above = count_above_edge(V)
    assert above.K == 6
    assert count_in_clusters(V, above) == 0


def test_clusters_of_pure_noise_hold_one_component(rng):
    axes = np.repeat(np.eye(4), 15, axis=0)
    for level in (0.1, 0.5):
        X = axes[:, rng.integers(4, size=400)] + level * rng.standard_normal((60, 400))
        V = from_columns(np.maximum(X, 0))
        assert count_in_clusters(V, count_above_edge(V)) == 4


def test_noise_alone_is_one_component():
    """Its mean. More are counted with a probability of less than 10 %, here in none of 40."""
    for seed in range(40):
        X = np.abs(1.0 + 0.2 * np.random.default_rng(seed).standard_normal((30, 80)))
        assert count_above_edge(from_columns(X)).K == 1


def test_the_limit_is_the_quantile_of_tracy_and_widom(rng):
    """In 10 % of draws the norm of noise is larger; in fewer if the matrix is small."""
    norms = np.linalg.norm(rng.standard_normal((400, 40, 90)), 2, axis=(1, 2))
    assert 20 <= (norms > highest_noise(40, 90)).sum() <= 40


def test_residuals_follow_the_law_of_noise(rng):
    X = rng.gamma(1.0, size=(300, 4)) @ rng.gamma(1.0, size=(4, 80))
    assert count_above_edge(from_rows(X + 10 + rng.standard_normal(X.shape))).misfit < 0.03
    uneven = rng.standard_normal(X.shape) * rng.lognormal(0, 1, 80)
    assert count_above_edge(from_rows(np.maximum(X + 10 + uneven, 0))).misfit > 0.1


def test_a_cone_of_few_samples_is_counted(rng):
    """Alone it would raise the variance of its own samples, and hide."""
    weights = np.array([0.33, 0.33, 0.33, 0.01])
    V = make_cones(80, 4, 0.1, n_samples=400, noise=0.02, weights=weights, rng=rng).V
    assert count_above_edge(from_columns(V)).K == 4


def test_data_of_rank_two_have_two(rng):
    assert count_above_edge(from_columns(rng.random((20, 2)) @ rng.random((2, 50)))).K == 2


def test_every_storage_counts_the_same(main_backend, small_blocks, sample_matrix):
    here = count_above_edge(from_columns(sample_matrix))
    there = count_above_edge(main_backend(sample_matrix))
    assert here.K == there.K
    np.testing.assert_allclose(there.values, here.values, rtol=1e-9)
    assert there.misfit == pytest.approx(here.misfit, rel=1e-6)
