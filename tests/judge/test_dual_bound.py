"""Lower bounds of the errors of nonnegative factors: of the squared error and of the divergence."""

from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import kl_div
from sklearn.decomposition import NMF

from conenmf import factorize, from_columns
from conenmf.solve import dual_bound
from conenmf.solve.dual_bound import best_lower_bound, divergence_bound

MANY = 40  # steps


def tiny(seed):
    """A tiny matrix with zeros, and a number of components."""
    rng = np.random.default_rng(seed)
    F, N = rng.integers(3, 8, 2)
    V = rng.random((F, N)) ** 2 * (rng.random((F, N)) < 0.7) + 1e-3 * rng.random((F, N))
    return V, int(rng.integers(1, min(F, N))), rng


def relative_errors(V, K, rng, n_starts):
    """Of alternating exact least squares, coordinate by coordinate, from random factors."""
    W, H = rng.random((n_starts, V.shape[0], K)), rng.random((n_starts, K, V.shape[1]))
    for _ in range(60):
        for A, B, X in ((W, H, V), (H.swapaxes(1, 2), W.swapaxes(1, 2), V.T)):
            gram, products = B @ B.swapaxes(1, 2), X @ B.swapaxes(1, 2)
            for k in range(K):
                slope = products[..., k] - np.einsum("rik,rk->ri", A, gram[:, k])
                step = slope / np.maximum(gram[:, k, k], 1e-300)[:, None]
                A[..., k] = np.maximum(A[..., k] + step, 0.0)
    return np.linalg.norm(V - W @ H, axis=(1, 2)) / np.linalg.norm(V)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6))
def test_no_factorization_beats_the_bound(seed):
    V, K, rng = tiny(seed)
    bound = best_lower_bound(from_columns(V), K, effort=MANY)
    assert bound.eckart_young <= bound.value <= relative_errors(V, K, rng, 10).min() + 1e-12


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6))
def test_every_nonnegative_addition_gives_a_bound(seed):
    """The theorem, without this library."""
    V, K, rng = tiny(seed)
    P = rng.random(V.shape) * (rng.random(V.shape) < 0.3) * rng.choice([0.01, 0.1, 1.0])
    sigma = np.linalg.svd(V + P, compute_uv=False)
    below = (V**2).sum() - (sigma[:K] ** 2).sum()
    assert below <= (relative_errors(V, K, rng, 3).min() * np.linalg.norm(V)) ** 2 + 1e-12


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6))
def test_more_effort_never_lowers_the_bound(seed):
    V, K, _ = tiny(seed)
    values = [best_lower_bound(from_columns(V), K, effort=e).value for e in (0, 1, 2, 5, 12)]
    assert values == sorted(values)


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6))
def test_the_bound_of_one_component_is_attained(seed):
    V, _, _ = tiny(seed)
    bound = best_lower_bound(from_columns(V), 1)
    u, sigma, v = np.linalg.svd(V)
    rank_one = sigma[0] * np.outer(abs(u[:, 0]), abs(v[0]))
    assert bound.is_attained
    assert bound.value == pytest.approx(np.linalg.norm(V - rank_one) / np.linalg.norm(V), abs=1e-7)


@settings(max_examples=40)
@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_the_bound_of_two_components_is_attained_if_the_rank_two_part_is_nonnegative(rng):
    V = rng.random((6, 2)) @ rng.random((2, 9)) + rng.uniform(0, 0.5) * rng.random((6, 9))
    u, sigma, v = np.linalg.svd(V)
    part = (u[:, :2] * sigma[:2]) @ v[:2]
    bound = best_lower_bound(from_columns(V), 2, effort=0)
    assert bound.is_attained == (part.min() >= 0)
    if bound.is_attained:  # its samples lie between two of them, which are the components
        angles = np.arctan2(*(u[:, :2].T @ part))
        W = part[:, [np.argmin(angles), np.argmax(angles)]]
        H = np.linalg.lstsq(W, part, rcond=None)[0]
        assert H.min() > -1e-9
        error = np.linalg.norm(V - W @ np.maximum(H, 0)) / np.linalg.norm(V)
        assert bound.value == pytest.approx(error, abs=1e-7)


def test_a_nonnegative_plane_may_have_zeros():
    V = np.zeros((5, 6))
    V[:2, :3], V[2:, 3:] = 1.0, 2.0
    V[:, 5] = 0.0
    assert best_lower_bound(from_columns(V), 2).is_attained
    assert best_lower_bound(from_columns(V + 0.0), 5).is_attained  # as many as there are features


@pytest.mark.parametrize("K", [3, 5])
def test_data_of_low_rank_have_a_bound_of_zero(K, rng):
    """Whether nonnegative factors without an error exist is another question."""
    bound = best_lower_bound(from_columns(rng.random((20, 3)) @ rng.random((3, 30))), K)
    assert bound.value == bound.eckart_young == 0.0


def test_the_bound_closes_gaps_that_eckart_and_young_leave_in_every_unit():
    V = np.array([[4.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 4.0]])
    error = factorize(from_columns(V), 2, tol=1e-12, max_iter=2000).relative_error
    for unit in (1.0, 1e-9, 1e9):
        bound = best_lower_bound(from_columns(unit * V), 2, effort=MANY)
        assert error - bound.eckart_young > 0.015
        assert 0 <= error - bound.value < 1e-4


def test_the_same_bound_on_every_storage(main_backend, small_blocks, sample_matrix):
    bound = best_lower_bound(main_backend(sample_matrix), 3)
    plain = best_lower_bound(from_columns(sample_matrix), 3)
    assert bound.value == pytest.approx(plain.value, abs=1e-9)
    assert plain.value > plain.eckart_young + 1e-4


@pytest.mark.parametrize("turned", [False, True])
def test_a_support_as_large_as_the_data_closes_nearly_as_much_as_a_full_one(
    turned, monkeypatch, rng
):
    blocks = [sp.random_array((500, 50), density=0.15, rng=rng) for _ in range(4)]
    common = sp.random_array((2000, 1), density=0.3, rng=rng)
    V = sp.block_diag(blocks) + common @ sp.random_array((1, 200), density=0.5, rng=rng)
    V = from_columns(sp.csc_array(V.T if turned else V))
    F, N = V.shape
    assert V.n_entries <= dual_bound.support_width(V) * N < V.n_entries + N < F * N / 4
    kept = best_lower_bound(V, 5)
    monkeypatch.setattr(dual_bound, "_SMALL_ENTRIES", F * N)
    assert dual_bound.support_width(V) == F
    full = best_lower_bound(V, 5)
    assert kept.value - kept.eckart_young > 0.7 * (full.value - full.eckart_young) > 1e-4


@pytest.mark.seed(1)
def test_a_subspace_gives_nearly_the_bound_of_a_gram_matrix(monkeypatch, main_backend, rng):
    V = rng.random((70, 4)) ** 3 @ rng.random((4, 90)) ** 3 + rng.random((70, 90)) ** 9
    certain = best_lower_bound(main_backend(V), 4)
    monkeypatch.setattr("conenmf.linalg.svd._MAX_GRAM_SIDE", 0)
    monkeypatch.setattr("conenmf.linalg.svd._GRAM_SIDE_PER_VECTOR", 0)
    likely = best_lower_bound(main_backend(V), 4)
    assert likely.failure_probability == 1e-9
    assert certain.failure_probability == 0.0
    assert likely.eckart_young == pytest.approx(certain.eckart_young, abs=1e-6)
    assert likely.value == pytest.approx(certain.value, rel=1e-3)
    assert likely.value > likely.eckart_young


def test_a_step_that_proves_less_than_singular_values_is_not_used(monkeypatch):
    """The bound of V + P is computed with a larger tolerance, so that it may be the lower one."""
    V, K, _ = tiny(3)
    true = dual_bound.Spectrum.energy_bound

    def rough(spectrum, K, **options):
        energy, chance = true(spectrum, K, **options)
        return (1.5 * energy if options else energy), chance

    monkeypatch.setattr(dual_bound.Spectrum, "energy_bound", rough)
    bound = best_lower_bound(from_columns(V), K, effort=MANY)
    assert bound.value == bound.eckart_young > 0


# --- counts ---


def tiny_counts(seed):
    """A tiny table of counts with zeros, a zero feature perhaps, and a number of components."""
    rng = np.random.default_rng(seed)
    F, N = rng.integers(3, 9, 2)
    V = rng.poisson(rng.gamma(0.4, 6, (F, N))).astype(float)
    V[rng.integers(F)] *= rng.random() < 0.5
    V[0] += rng.random() < 0.5
    V[1, 1] += 1
    return V, int(rng.integers(1, min(F, N) + 1)), rng


def smallest_divergence(V, K, rng, n_starts=10, n_iter=200):
    """Of multiplicative updates from random factors."""
    W, H = (rng.random(shape) ** 3 for shape in ((n_starts, len(V), K), (n_starts, K, V.shape[1])))
    for _ in range(n_iter):
        W = W * ((V / (W @ H + 1e-300)) @ H.swapaxes(1, 2)) / (H.sum(axis=2)[:, None] + 1e-300)
        H = H * (W.swapaxes(1, 2) @ (V / (W @ H + 1e-300))) / (W.sum(axis=1)[..., None] + 1e-300)
    return kl_div(V, W @ H).sum(axis=(1, 2)).min()


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), effort=st.sampled_from([0, 1, 6, 30]))
def test_no_factors_beat_the_bound_of_counts(seed, effort):
    V, K, rng = tiny_counts(seed)
    bound = divergence_bound(from_columns(V), K, effort=effort)
    assert 0 <= bound.value <= bound.of_margins
    assert bound.value <= smallest_divergence(V, K, rng) + 1e-9 * V.sum()


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6))
def test_any_weights_give_a_bound(seed):
    """The theorem, without this library."""
    V, K, rng = tiny_counts(seed)
    V = V[V.any(axis=1)][:, V.any(axis=0)]
    total = V.sum()
    r, c = V.sum(axis=1) / total, V.sum(axis=0) / total
    B = np.where(V > 0, np.exp(rng.standard_normal(V.shape)), 0.0)
    A = np.sqrt(r)[:, None] * B * np.sqrt(c)
    of_r, of_c = (np.eye(len(m)) - np.outer(np.sqrt(m), np.sqrt(m)) for m in (r, c))
    sigma = np.linalg.svd(of_r @ A @ of_c, compute_uv=False)
    logs = np.log(B, out=np.zeros_like(B), where=B > 0)
    below = (V * logs).sum() - total * np.log(r @ B @ c + sigma[: K - 1].sum())
    assert below <= smallest_divergence(V, K, rng) + 1e-9 * total


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6))
def test_the_bound_of_counts_is_exact_for_one_component_and_zero_for_exact_data(seed):
    V, K, rng = tiny_counts(seed)
    margins = np.outer(V.sum(axis=1), V.sum(axis=0)) / V.sum()
    one = divergence_bound(from_columns(V), 1)
    assert one.value == pytest.approx(kl_div(V, margins).sum(), abs=1e-9 * V.sum())
    exact = rng.random((12, K)) @ rng.random((K, 15))
    assert divergence_bound(from_columns(exact), K).value <= 1e-6 * exact.sum()
    assert divergence_bound(from_columns(V), min(V.shape)).value == 0


def topics(rng, n_samples=300, n_features=120):
    """Sparse counts of four topics."""
    patterns = rng.dirichlet(np.full(n_features, 0.05), 4)
    return rng.poisson(rng.gamma(0.3, 12, (n_samples, 4)) @ patterns).T.astype(float)


def test_steps_raise_the_bound_of_counts_far_above_correspondence_analysis():
    V = topics(np.random.default_rng(0))
    at_first, raised = (divergence_bound(from_columns(V), 4, effort=e) for e in (0, 6))
    r, c = V.sum(axis=1) / V.sum(), V.sum(axis=0) / V.sum()
    keep_r, keep_c = r > 0, c > 0
    S = V[keep_r][:, keep_c] / V.sum() / np.sqrt(np.outer(r[keep_r], c[keep_c]))
    sigma = np.linalg.svd(S, compute_uv=False)
    by_hand = at_first.of_margins - V.sum() * np.log(sigma[:4].sum())
    assert at_first.value == pytest.approx(max(by_hand, 0.0), abs=1e-5 * at_first.of_margins)
    model = NMF(4, solver="mu", beta_loss="kullback-leibler", init="random", random_state=0)
    model.set_params(max_iter=300)
    found = kl_div(V.T, model.fit_transform(V.T) @ model.components_).sum()
    assert at_first.value + 0.1 * found <= raised.value <= found
    assert raised.failure_probability == 0


def rare_counts(seed):
    """Counts most of which are zero, of features and samples with different totals."""
    rng = np.random.default_rng(seed)
    W = rng.gamma(0.3, size=(60, 5)) * rng.lognormal(0.0, 1.5, (60, 1))
    H = rng.dirichlet(np.full(5, 0.3), 70).T * rng.lognormal(3.0, 0.5, 70)
    return from_columns(rng.poisson(0.02 * W @ H).astype(float))


@pytest.mark.parametrize("side", [0, dual_bound._MAX_GRAM_SIDE], ids=["subspace", "Gram matrix"])
@pytest.mark.parametrize("seed", [1, 6, 11])
def test_more_effort_never_lowers_the_bound_of_counts(seed, side, monkeypatch):
    """The weights with the best approximate bound may have a lower certain bound than others."""
    monkeypatch.setattr(dual_bound, "_MAX_GRAM_SIDE", side)
    V = rare_counts(seed)
    values = [divergence_bound(V, 3, effort=effort).value for effort in (0, 9, 12, 24, 40)]
    assert values == sorted(values)
    assert values[0] < values[-1]


@pytest.mark.parametrize("side", [0, dual_bound._MAX_GRAM_SIDE], ids=["subspace", "Gram matrix"])
def test_rounding_lowers_a_certain_bound(side, monkeypatch):
    """By 1e-12 of the total, once for the sum of singular values and once for the logarithms."""
    monkeypatch.setattr(dual_bound, "_MAX_GRAM_SIDE", side)
    V = np.random.default_rng(3).poisson(4.0, (6, 9)) + 1.0
    total = V.sum()
    r, c = V.sum(axis=1) / total, V.sum(axis=0) / total
    ratios = V / np.outer(r, c) / total
    sigma = np.linalg.svd(np.sqrt(r)[:, None] * ratios * np.sqrt(c), compute_uv=False)
    log_sum = (V * np.log(ratios)).sum()
    exact = log_sum - total * np.log(sigma[:3].sum())
    matrix = from_columns(V)
    aligned, sums = matrix.sweep(dual_bound._margins)
    weights = dual_bound._Weights(sums / total, float(total), 1.0, ())
    bound, _ = dual_bound._Trial(matrix, aligned, (), weights).certain(3)
    assert bound < exact - 1e-12 * (log_sum + total)
    if side:  # the eigenvalues are exact
        assert bound > exact - 1e-11 * (log_sum + total)


def test_all_weights_that_may_have_the_best_bound_are_certified():
    class Weights(NamedTuple):
        approximate: float
        bound: float

        def value(self, K):
            return self.approximate

        def certain(self, K):
            certified.append(self.bound)
            return self.bound, 1e-9

        def forget_matrix(self):
            pass

    certified = []
    tried = [Weights(1.8, 1.7), Weights(2.0, 1.9), Weights(3.0, 1.5), Weights(1.9, 1.9)]
    assert dual_bound._best_certain(tried, 3) == (1.9, 2e-9)
    assert certified == [1.5, 1.9]


def test_long_sides_are_bounded_by_a_subspace(monkeypatch):
    V = topics(np.random.default_rng(1))
    whole = divergence_bound(from_columns(sp.csc_array(V)), 4)
    monkeypatch.setattr(dual_bound, "_MAX_GRAM_SIDE", 0)
    part = divergence_bound(from_columns(sp.csc_array(V)), 4)
    assert part.failure_probability == 1e-9  # one bound was computed
    assert whole.value * 0.99 <= part.value <= whole.value + 1e-9 * whole.of_margins


def test_the_same_bound_of_counts_on_every_storage(main_backend, small_blocks):
    V = topics(np.random.default_rng(2), 60, 20)
    found, expected = divergence_bound(main_backend(V), 3), divergence_bound(from_columns(V), 3)
    assert found == pytest.approx(expected, rel=1e-6)
    assert expected.value > 0
