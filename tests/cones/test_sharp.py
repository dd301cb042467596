"""Constants of our theorems that cannot be lowered: instances that attain them, or nearly so.

Other constants have theirs beside the tests of their theorems.
"""

import numpy as np
import pytest

from conenmf import cluster_cones, from_columns


def in_plane(angles):
    return np.stack([np.cos(angles), np.sin(angles)])


def test_the_radius_of_algorithm_1_can_be_twice_the_best():
    """Two clusters of size angle 0.2: from a sample at the edge, the radius is the whole angle."""
    V = from_columns(in_plane(np.array([0.1, 0.5, 1.0, 1.4])))
    radii = [cluster_cones(V, 2, first=first).radius for first in range(4)]
    assert max(radii) == pytest.approx(2 * 0.2)


def test_the_first_centre_can_cost_twice_the_best():
    """Two samples of equal norm: the best axis halves their angle, a centre is one of them."""
    best = np.linalg.svd(in_plane(np.array([0.5, 0.51])), compute_uv=False)[1] ** 2
    assert 1.9 * best < np.sin(0.01) ** 2 <= 2 * best
