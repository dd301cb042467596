"""Random numbers belong to samples, so that blocks and storage do not change a draw."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conenmf import from_columns
from conenmf.data.resample import draw_samples, new_seed, uniform_rows


@given(
    seed=st.integers(0, 2**31), start=st.integers(0, 50), n=st.integers(0, 20), K=st.integers(1, 9)
)
def test_numbers_belong_to_samples(seed, start, n, K):
    key = new_seed(np.random.default_rng(seed))
    whole = uniform_rows(range(80), K, key)
    np.testing.assert_array_equal(
        uniform_rows(range(start, start + n), K, key), whole[start : start + n]
    )
    assert 0 <= whole.min() < whole.max() < 1
    assert np.unique(whole).size == whole.size


def test_numbers_are_uniform():
    numbers = uniform_rows(range(10_000), 3, (5, 6))
    np.testing.assert_allclose(numbers.mean(axis=0), 0.5, atol=0.01)
    np.testing.assert_allclose(np.cov(numbers.T), np.eye(3) / 12, atol=0.005)


def test_every_storage_draws_the_same_samples(backend, small_blocks, sample_matrix):
    plain = draw_samples(from_columns(sample_matrix, **small_blocks), 7, np.random.default_rng(1))
    V = backend(sample_matrix)
    before = V.passes
    drawn = draw_samples(V, 7, np.random.default_rng(1))
    assert (drawn.tolist(), V.passes) == (plain.tolist(), before)
    assert len(set(drawn.tolist())) == 7
    everything = draw_samples(V, 100, np.random.default_rng(1))
    assert sorted(everything.tolist()) == np.flatnonzero(sample_matrix.any(axis=0)).tolist()


def test_samples_that_are_asked_for_are_a_part_of_a_pass(main_backend, sample_matrix):
    V = main_backend(sample_matrix)
    before = V.passes
    V.columns([0, 3, 3, 5])
    assert V.passes - before == pytest.approx(4 / V.n_samples)


def test_all_samples_are_equally_likely(sample_matrix):
    V = from_columns(sample_matrix[:, :10])  # sample 0 is zero
    counts = np.bincount(
        np.concatenate([draw_samples(V, 3, np.random.default_rng(s)) for s in range(1500)]),
        minlength=10,
    )
    assert counts[0] == 0
    assert (np.abs(counts[1:] - 500) < 5 * np.sqrt(500)).all()
