import numpy as np
import pytest

from conenmf import from_columns
from conenmf.errors import NotADataMatrixError
from conenmf.solve.losses import Frobenius, Point, coefficients
from conenmf.solve.solvers import nnlsb


@pytest.fixture
def init(sample_matrix):
    rng = np.random.default_rng(1)
    return rng.random((12, 3)), rng.random((3, 40))


def keep(G, C, Y):
    return Y


@pytest.mark.parametrize("scale", [1.0, 2.0**-90])
def test_the_value_of_least_squares_at_either_point(
    main_backend, small_blocks, sample_matrix, init, scale
):
    W, H = init
    V = main_backend(scale * sample_matrix)
    loss = Frobenius(V)
    assert Frobenius(V, rescale=False).unit == 1
    shared = loss.shared(W * scale / loss.unit)
    *_, sums = V.sweep(
        Frobenius.step, *loss.aligned, H.T, update=keep, beta=0.0, floor=0.0, **shared
    )
    sums = loss.collect(sums)
    assert set(sums) == {"VH", "HH", "inner"}
    for point, other in ((Point.BEFORE, W), (Point.AFTER, 2 * W)):
        value = loss.value(sums, other * scale / loss.unit, point)
        squared = ((sample_matrix - other @ H) ** 2).sum()
        assert loss.objective(value) == pytest.approx(squared * scale**2, rel=1e-12)
        exact = np.sqrt(squared / (sample_matrix**2).sum())
        assert loss.relative_error(value) == pytest.approx(exact, rel=1e-12)
    best = loss.scale_W(sums, W * scale / loss.unit) * loss.unit / scale
    share = np.vdot(sample_matrix, W @ H) / ((W @ H) ** 2).sum()
    np.testing.assert_allclose(best, share * W, rtol=1e-12)


def test_coefficients_are_exact(main_backend, both_twins, small_blocks, sample_matrix, init):
    W = init[0]
    H, labels, squared = coefficients(main_backend(sample_matrix), W)
    np.testing.assert_allclose(H, nnlsb(W.T @ W, sample_matrix.T @ W, np.zeros((40, 3))).T)
    H = np.asarray(H)
    assert squared == pytest.approx(((sample_matrix - W @ H) ** 2).sum(), rel=1e-12)
    assert not H[:, [0, 17]].any()
    weights = np.linalg.norm(W, axis=0)[:, None] * H
    expected = np.where(weights.any(axis=0), weights.argmax(axis=0), -1)
    np.testing.assert_array_equal(labels, expected)


def test_labels_weigh_components_by_their_length():
    W = np.array([[10.0, 0.0], [0.0, 1.0]])
    V = from_columns(W @ [[1.0, 0.1, 0.0], [2.0, 2.0, 0.0]])
    assert coefficients(V, W)[1].tolist() == [0, 1, -1]


def test_bare_arrays_are_refused(init):
    with pytest.raises(NotADataMatrixError):
        coefficients(np.ones((12, 40)), init[0])
