"""k-centre with outliers: the factor of 3, and cones found although some samples are in none."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conenmf import cluster_cones, from_columns, make_cones
from conenmf.cones.outliers import centres_with_outliers
from conenmf.data.resample import evenly_spaced
from conenmf.errors import ComponentsError


def angles_of(V):
    unit = V / np.linalg.norm(V, axis=0)
    apart = np.linalg.norm(unit[:, :, None] - unit[:, None, :], axis=0)
    return 2 * np.arcsin(np.minimum(apart / 2, 1))


def best_radius(angles, K, outliers):
    """The smallest angle within which some K samples cover all but the outliers."""
    kept = len(angles) - 1 - outliers
    return min(
        np.sort(angles[list(chosen)].min(axis=0))[kept]
        for chosen in combinations(range(len(angles)), K)
    )


@settings(max_examples=60)
@given(st.integers(0, 10**7).map(np.random.default_rng))
def test_the_radius_is_at_most_three_times_the_best(rng):
    N, K = int(rng.integers(5, 12)), int(rng.integers(1, 4))
    outliers = int(rng.integers(0, N - K))
    V = rng.random((int(rng.integers(2, 6)), N)) ** 3 + 1e-3
    best = best_radius(angles_of(V), K, outliers)
    found = centres_with_outliers(from_columns(V), K, outliers)
    assert np.unique(found.centres).size == K
    assert found.radius <= 3 * best + 1e-9
    assert found.least_radius <= best + 1e-9
    assert found.radius <= 3 * found.least_radius + 1e-9


@pytest.mark.seed(4)
def test_cones_are_found_although_some_samples_are_in_none(rng):
    model = make_cones(50, 4, 0.1, n_samples=200, rng=rng)
    strange = np.abs(rng.standard_normal((50, 6))) * (rng.random((50, 6)) < 0.1) * 5 + 1e-3
    V = from_columns(np.hstack([model.V, strange]))
    assert cluster_cones(V, 4).centres.max() >= 200
    found = centres_with_outliers(V, 4, 6)
    assert found.centres.max() < 200
    assert np.unique(model.labels[found.centres]).size == 4


def test_large_data_are_represented_by_some_samples():
    model = make_cones(20, 3, 0.1, n_samples=5000, rng=np.random.default_rng(0))
    found = centres_with_outliers(from_columns(model.V), 3, 100)
    assert np.unique(model.labels[found.centres]).size == 3
    unit = model.V / np.linalg.norm(model.V, axis=0)
    angles = np.arccos(np.minimum(unit[:, evenly_spaced(5000, 2000)].T @ found.directions, 1))
    assert (angles.min(axis=1) > found.radius + 1e-7).sum() == 40  # 100 of 5000


def test_too_few_samples_are_left(refuses):
    refuses(ComponentsError, "outliers", centres_with_outliers, from_columns(np.eye(3)), 2, 2)
