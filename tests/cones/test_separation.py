"""The pairwise separation of clusters against its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conenmf import cluster_cones, from_columns
from conenmf.cones import geometry as module
from conenmf.cones.geometry import Separation, cone_geometry, pairwise_separation
from conenmf.errors import DataError


def by_definition(V, labels):
    """All angles, one by one."""
    between, within = [np.inf], [0.0]
    members = [n for n in range(V.shape[1]) if labels[n] >= 0 and V[:, n].any()]
    for m in members:
        for n in members:
            if m != n:
                x, y = (V[:, i] / np.linalg.norm(V[:, i]) for i in (m, n))
                angle = 2 * np.arctan2(np.linalg.norm(x - y), np.linalg.norm(x + y))
                (within if labels[m] == labels[n] else between).append(angle)
    return min(between), max(within)


@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_the_definition(rng):
    F, N = int(rng.integers(1, 6)), int(rng.integers(1, 14))
    V = rng.random((F, N)) * (rng.random((F, N)) < 0.7)
    V[0, 0] = 1.0
    labels = np.where(V.any(axis=0), rng.integers(-1, 4, size=N), -1)
    labels[0] = max(labels[0], 0)
    labels = np.searchsorted(np.unique(labels[labels >= 0]), labels, "right") - 1
    found = pairwise_separation(from_columns(V, block_samples=3), labels)
    assert found.is_exact
    expected = by_definition(V, labels)
    assert (found.between, found.within) == pytest.approx(expected, abs=1e-7)
    assert found.value == found.between - found.within


@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_the_bound_is_one(rng):
    K = int(rng.integers(1, 5))
    centres = rng.random((5, K)) ** 2 + 0.01
    labels = rng.integers(-1, K, size=30)
    labels[:K] = np.arange(K)  # no cluster is empty
    V = centres[:, labels] + 10.0 ** rng.uniform(-9, -1) * rng.random((5, 30))
    V[:, K:][:, rng.random(30 - K) < 0.1] = 0.0
    held = from_columns(V, block_samples=7)
    exact = pairwise_separation(held, labels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MAX_EXACT_SAMPLES", 1)
        bound = pairwise_separation(held, labels)
    assert not bound.is_exact or (labels >= 0).sum() <= 1
    assert bound.between <= exact.between
    # no radius is above the largest angle
    assert exact.within <= bound.within <= 2 * exact.within + 1e-8


@pytest.mark.parametrize("angle", [1e-3, 1e-6, 1e-9, 1e-12])
def test_small_angles(angle):
    turns = np.array([0.0, angle, 3 * angle, 3.5 * angle])
    V = from_columns(np.stack([np.cos(turns), np.sin(turns)]) * [1.0, 3.0, 0.1, 7.0])
    found = pairwise_separation(V, np.array([0, 0, 1, 1]))
    # normalising turns by 1e-16
    assert (found.between, found.within) == pytest.approx((2 * angle, angle), rel=1e-3, abs=0)


def test_the_separation_of_enclosing_cones_is_smaller(cones):
    V = from_columns(cones)
    labels = cluster_cones(V, 4).labels
    assert pairwise_separation(V, labels).value > 2 * cone_geometry(V, labels).separation


def test_every_storage(main_backend, small_blocks, sample_matrix, monkeypatch):
    V = main_backend(sample_matrix)
    labels = cluster_cones(V, 3).labels
    plain = from_columns(sample_matrix)
    for limit in (2000, 10):
        monkeypatch.setattr(module, "_MAX_EXACT_SAMPLES", limit)
        found, expected = pairwise_separation(V, labels), pairwise_separation(plain, labels)
        assert found.is_exact == expected.is_exact == (limit == 2000)
        values = (expected.between, expected.within)
        assert (found.between, found.within) == pytest.approx(values, abs=1e-12)


def test_many_blocks_are_gathered(monkeypatch, sample_matrix):
    V, labels = from_columns(sample_matrix), np.arange(40) % 3
    expected = pairwise_separation(V, labels)
    monkeypatch.setattr(module, "_GATHERED_BYTES", 8 * 12 * 7)
    found = pairwise_separation(V, labels)
    assert (found.between, found.within) == pytest.approx((expected.between, expected.within))


def test_one_cluster_and_no_cluster(refuses):
    V = from_columns(np.eye(3))
    assert pairwise_separation(V, np.zeros(3, int)) == Separation(
        np.inf, pytest.approx(np.pi / 2), True
    )
    for labels in (np.array([-1, -1, -1]), np.array([-1, 2, -1])):
        refuses(DataError, "cluster 0 has no nonzero sample", pairwise_separation, V, labels)
