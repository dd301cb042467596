"""Upper bounds on energy, eigenvalues and sums of singular values from subspaces."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from conenmf import from_columns
from conenmf.linalg.energy import energy_above, subspace_energy, tail_above
from conenmf.linalg.svd import Spectrum


def subspace(rng):
    """A Gram matrix A, vectors Q near its leading ones, their values, and a number of values."""
    V = rng.random((9, 12)) ** rng.choice([1, 4])
    A = V @ V.T
    k, m = sorted(rng.integers(1, 9, 2).tolist())
    near = np.linalg.eigh(A)[1][:, -m:] + 10.0 ** rng.integers(-6, 1) * rng.random((9, m))
    Q = np.linalg.qr(near)[0]
    values, turn = np.linalg.eigh(Q.T @ A @ Q)
    return A, (Q @ turn)[:, ::-1], values[::-1], k


@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_the_energy_on_any_subspace_is_bounded_from_above(rng):
    A, Q, values, k = subspace(rng)
    R = A @ Q - Q * values
    C = A - Q @ (Q.T @ A)
    C = C - (C @ Q) @ Q.T
    tail = max(np.linalg.eigvalsh(C)[-1], 0.0)
    energy = energy_above(values, R.T @ R, k, tail, max(np.trace(C), 0.0))
    exact = np.linalg.eigvalsh(A)[: -k - 1 : -1].sum()
    assert exact * (1 - 1e-12) <= energy <= values[:k].sum() + k * (np.linalg.norm(R, 2) + tail)


@settings(max_examples=15)
@given(rng=st.integers(0, 10**6).map(np.random.default_rng), low=st.sampled_from([0.0, 1.1]))
def test_the_largest_eigenvalue_is_bounded_from_above(rng, low):
    """The starts may be nearly orthogonal to the leading vector, as far as chance goes."""
    values = np.append(rng.random(40) ** rng.choice([1, 5]), 1.0)
    starts = rng.standard_normal((41, 8))
    starts[-1] *= 0.1
    starts[-1, 0] = 0.1
    bound = tail_above(lambda X: values[:, None] * X, starts, float(values.sum()), low, 1.0)
    assert 1.0 <= bound <= max(1.1, low)


def test_eigenvalues_that_were_missed_are_in_the_bound():
    """Five eigenvalues that hardly exceed 2995 equal ones: a subspace finds five of the others."""
    squares = np.append(np.full(5, 1 + 2e-8), np.ones(2995))
    V = from_columns(sp.csc_array(sp.diags_array(np.sqrt(squares))))
    exact = squares[:5].sum() / squares.sum()
    energy = Spectrum(V).energy_bound(5)
    assert energy.failure_probability == 1e-9
    assert exact <= energy.value / V.total <= exact + 1e-10


def test_a_bound_allows_for_rounding():
    """The largest eigenvalues may come out too small, by a multiple of the last digit."""
    energy = Spectrum(from_columns(np.diag([1.0, 3.0, 2.0]))).energy_bound(2)
    assert 13 * (1 + 1e-15) < energy.value < 13 * (1 + 1e-12)


def test_low_rank_needs_no_chance(rng):
    """The trace shows that nothing was missed."""
    V = from_columns(rng.random((600, 3)) @ rng.random((3, 700)))
    energy = Spectrum(V).energy_bound(4)
    assert energy.failure_probability == 0.0
    assert V.total <= energy.value <= V.total * (1 + 1e-8)


@settings(max_examples=50)
@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_the_sum_of_singular_values_is_bounded_from_above(rng):
    A, Q, values, k = subspace(rng)
    exact = np.sqrt(np.maximum(np.linalg.eigvalsh(A)[::-1][:k], 0)).sum()

    def bound(vectors, values):
        found, how = (vectors, values, A @ vectors), {"n_starts": 8, "roots": True}
        return subspace_energy(found, k, np.trace(A), 0.0, lambda X: A @ X, **how).value

    assert exact * (1 - 1e-9) <= bound(Q, np.maximum(values, 0))
    values, vectors = np.linalg.eigh(A)
    n = max(Q.shape[1], k)
    tight = bound(vectors[:, ::-1][:, :n], values[::-1][:n])
    assert exact * (1 - 1e-9) <= tight <= exact * 1.05


@pytest.mark.parametrize("roots", [False, True])
def test_the_bound_is_that_of_the_worst_spectrum_beyond_the_vectors(roots, rng):
    """Without residuals, eigenvalues of C are at most `tail` each, and `rest` in total."""
    size = np.sqrt if roots else np.asarray
    for _ in range(50):
        values = np.sort(rng.random(4))[::-1]
        tail, k = rng.uniform(0.1, 2), int(rng.integers(1, 5))
        rest = rng.uniform(tail, 4 * tail)
        worst = 0.0
        for n in range(1, 9):  # eigenvalues of C: as many as allowed at the limit, or equal ones
            of_C = np.full(n, min(tail, rest / n))
            worst = max(worst, np.sort(size(np.r_[values, of_C]))[::-1][:k].sum())
        found = energy_above(values, np.zeros((4, 4)), k, tail, rest, roots=roots)
        assert worst - 1e-12 <= found
        full, left = divmod(rest, tail)
        greedy = np.r_[values, np.full(int(full), tail), left]
        if not roots:
            assert np.sort(greedy)[::-1][:k].sum() - 1e-12 <= found <= values[:k].sum() + rest
            assert found <= values.sum() + min(k * tail, rest)
