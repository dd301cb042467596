"""Simulated cones: axes, angles, norms and noise follow the model of the paper."""

import numpy as np
import pytest

from conenmf import make_cones
from conenmf.cones.simulate import equal_angle_axes, make_cone_data
from conenmf.errors import OptionError


def angles_to_axes(model):
    V = model.V / np.linalg.norm(model.V, axis=0)
    return np.arccos(np.clip(np.einsum("fn,fn->n", V, model.axes[:, model.labels]), -1, 1))


def test_axes_are_nonnegative_unit_vectors_at_equal_angles():
    U = equal_angle_axes(200, 12, 0.9, np.random.default_rng(0))
    assert U.min() >= 0
    gram = U.T @ U
    np.testing.assert_allclose(np.diagonal(gram), 1)
    np.testing.assert_allclose(gram[~np.eye(12, dtype=bool)], np.cos(0.9))


def test_samples_lie_in_their_cones():
    model = make_cones(100, 5, [0.1, 0.15, 0.2, 0.1, 0.05], n_samples=500, rng=_rng())
    assert model.V.shape == (100, 500)
    assert model.V.min() >= 0
    assert (angles_to_axes(model) <= model.angles[model.labels] + 1e-9).all()
    assert np.arccos(model.axes[:, 0] @ model.axes[:, 1]) == pytest.approx(4 * 0.2 + 0.01)


def test_angles_are_uniform_and_squared_norms_exponential():
    model = make_cones(80, 2, 0.3, n_samples=20000, project=False, rng=_rng())
    beta = angles_to_axes(model)
    assert beta.mean() == pytest.approx(0.15, rel=0.02)
    assert beta.var() == pytest.approx(0.3**2 / 12, rel=0.05)
    for k in range(2):
        squared = (model.V[:, model.labels == k] ** 2).sum(axis=0)
        assert squared.mean() == pytest.approx(1 / model.rates[k], rel=0.05)
        assert np.median(squared) == pytest.approx(np.log(2) / model.rates[k], rel=0.05)


def test_options():
    model = make_cones(
        50, 2, 0.1, n_samples=4000, angle=1.0, rates=[2.0, 8.0], weights=[0.9, 0.1], rng=_rng()
    )
    assert np.arccos(model.axes[:, 0] @ model.axes[:, 1]) == pytest.approx(1.0)
    assert (model.labels == 0).mean() == pytest.approx(0.9, abs=0.02)
    squared = (model.V**2).sum(axis=0)
    assert squared[model.labels == 1].mean() == pytest.approx(1 / 8, rel=0.15)


def test_any_law_of_the_norms():
    law = {"squared_norm": lambda rng, means: means, "n_samples": 300}
    inside, wide = (make_cones(50, 2, alpha, rng=_rng(), **law) for alpha in (0.1, 0.3))
    signed = make_cones(50, 2, 0.3, rng=_rng(), project=False, **law)
    assert (signed.V < 0).any()  # in wide cones, which lose a part that their norm gets back
    for model in (inside, wide, signed):
        np.testing.assert_allclose((model.V**2).sum(axis=0), 1 / model.rates[model.labels])


def test_scikit_learns_style():
    options = {"alpha": [0.1, 0.2, 0.1], "noise": 0.01, "random_state": 4, "angle": 1.0}
    (X, y), (again, _) = (make_cone_data(120, 40, 3, **options) for _ in range(2))
    assert (X.shape, y.shape) == ((120, 40), (120,))
    np.testing.assert_array_equal(X, again)


def test_noise_is_added_and_projected():
    clean = make_cones(50, 2, 0.1, n_samples=300, rng=_rng())
    noisy = make_cones(50, 2, 0.1, n_samples=300, noise=0.5, rng=_rng())
    assert noisy.V.min() == 0
    assert np.linalg.norm(noisy.V - clean.V) > 10


@pytest.mark.parametrize(
    ("F", "K", "axes", "message"),
    [
        (3, 4, {"angle": 0.5}, "no 4 axes in 3 dimensions"),
        (30, 3, {"angle": 1.6}, "angle=1.6, expected a number"),
        (30, 3, {"angle": 0.0}, "angle=0.0, expected a number"),
        (4, 4, {"angle": 1.55}, "use more features"),  # to fit the orthant
        (4, 4, {"axes": np.eye(3)}, "axes has shape"),
        (4, 4, {"axes": 2 * np.eye(4)}, "axes are not unit vectors"),
    ],
)
def test_impossible_axes(F, K, axes, message, refuses):
    refuses(OptionError, message, make_cones, F, K, 0.1, n_samples=5, rng=_rng(), **axes)


def test_axes_of_your_own():
    axes = np.eye(5)[:, :3]
    model = make_cones(5, 3, 0.1, n_samples=60, axes=axes, rng=_rng())
    assert (model.axes == axes).all()
    assert angles_to_axes(model).max() <= 0.1


def _rng():
    return np.random.default_rng(0)


def test_axes_that_would_lift_the_same_feature_twice():
    model = make_cones(20, 3, 0.03125, n_samples=5, rng=np.random.default_rng(45))
    cosines = (model.axes.T @ model.axes)[np.triu_indices(3, 1)]
    np.testing.assert_allclose(cosines, np.cos(4 * 0.03125 + 0.01))
