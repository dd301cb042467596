"""Frequent Directions: what a sketch may lose, for any order and any batches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conenmf import from_columns
from conenmf.cones.streams import (
    StreamCones,
    leading_direction,
    merge_sketches,
    sketch_columns,
    update_cones,
)


def draw(seed):
    rng = np.random.default_rng(seed)
    F, N = int(rng.integers(1, 12)), int(rng.integers(1, 200))
    V = rng.random((F, N)) ** rng.uniform(0.2, 5) * 10 ** rng.uniform(-1, 1, N)
    return rng, V, int(rng.integers(1, 8))


def in_batches(V, size, rng):
    """The sketch of samples in another order, cut and merged at random."""
    V = V[:, rng.permutation(V.shape[1])]
    borders = np.sort(rng.integers(0, V.shape[1] + 1, rng.integers(0, 6)))
    sketches = [sketch_columns(part, size) for part in np.split(V, borders, axis=1)]
    while len(sketches) > 1:
        i = int(rng.integers(len(sketches) - 1))
        sketches[i : i + 2] = [merge_sketches(*sketches[i : i + 2])]
    return sketches[0]


@given(st.integers(0, 10**7))
def test_no_direction_loses_more_than_its_share(seed):
    rng, V, size = draw(seed)
    S = in_batches(V, size, rng)
    assert S.shape == (V.shape[0], size)
    lost = np.linalg.eigvalsh(V @ V.T - S @ S.T)
    total = np.linalg.norm(V) ** 2
    assert lost[0] >= -1e-10 * total
    squares = np.linalg.svd(V, compute_uv=False) ** 2
    for k in range(min(size, squares.size) + 1):
        assert lost[-1] <= squares[k:].sum() / (size + 1 - k) + 1e-10 * total


@given(st.integers(0, 10**7))
def test_the_leading_direction_is_nearly_the_best_axis(seed):
    rng, V, size = draw(seed)
    w = leading_direction(in_batches(V, size, rng))
    assert w.min() >= 0
    assert np.isclose(np.linalg.norm(w), 1)
    best = (np.linalg.svd(V, compute_uv=False)[1:] ** 2).sum()
    total = np.linalg.norm(V) ** 2
    assert total - np.linalg.norm(w @ V) ** 2 <= (1 + 1 / size) * best + 1e-10 * total


@pytest.mark.parametrize("size", [1, 2, 5, 20])
def test_the_factor_is_attained(size):
    """Samples that are orthogonal and alike leave nothing in the sketch; the next one leads it."""
    V = np.eye(size + 2)
    V[-1, -1] = 1e-6
    w = leading_direction(sketch_columns(V, size))
    squared = np.linalg.norm(V) ** 2 - np.linalg.norm(w @ V) ** 2
    best = (np.linalg.svd(V, compute_uv=False)[1:] ** 2).sum()
    assert squared / best == pytest.approx(1 + 1 / size, rel=1e-6)


def test_zero_samples_have_no_direction():
    assert not leading_direction(sketch_columns(np.zeros((3, 5)), 2)).any()


def test_a_batch_enters_the_sketch_of_its_cone_whole(rng):
    """Nothing is lost of samples of few features, however many there are."""
    V = rng.random((5, 300))
    cones = update_cones(from_columns(V), StreamCones.empty(5), 1)
    (S,) = cones.sketches
    np.testing.assert_allclose(S @ S.T, V @ V.T, rtol=1e-10)
    assert cones.counts.tolist() == [300]
