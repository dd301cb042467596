"""Angles between directions keep their digits at any size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conenmf.cones.geometry import angles_between, angles_of, sine_at, squared_distances


@given(exponent=st.floats(-14, 0), rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_angles_of_any_size(exponent, rng):
    """Between vectors in a plane, where angles are known."""
    angle = 10.0**exponent * np.pi / 2
    Q = np.linalg.qr(rng.standard_normal((7, 2)))[0]
    A, B = Q[:, :1], Q @ [[np.cos(angle), 0.0], [np.sin(angle), 1.0]]
    np.testing.assert_allclose(angles_between(A, B)[0], [angle, np.pi / 2], rtol=1e-9, atol=1e-15)
    squared = np.array([9.0, 0.25])
    block = B * np.sqrt(squared)
    distances = squared_distances(block, np.array([0, -1]), squared, A.T)
    np.testing.assert_allclose(
        angles_of(np.sqrt(distances)), [angle, np.pi / 2], rtol=1e-9, atol=1e-15
    )
    np.testing.assert_allclose(
        sine_at(distances), np.sin([angle, np.pi / 2]), rtol=1e-9, atol=1e-15
    )


def test_the_ends():
    assert angles_of(2.0) == pytest.approx(np.pi)
    assert angles_of([-1e-17, 0.0]).tolist() == [0.0, 0.0]
    assert sine_at(2.0) == pytest.approx(1.0)
