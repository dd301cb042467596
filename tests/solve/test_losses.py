"""Losses: values, exact coefficients, the order of components, and extrapolation."""

import numpy as np
import pytest
import scipy.sparse as sp

from conenmf import from_columns, from_rows, make_cones
from conenmf.solve.alternate import alternate
from conenmf.solve.coefficients import coefficients, sorting
from conenmf.solve.loss import Move, inverse_of, step_of_run
from conenmf.solve.losses.frobenius import FROBENIUS, LeastSquares
from conenmf.solve.run import Stopping
from conenmf.solve.solvers import SOLVERS, nnlsb


def keep(G, C, Y):
    return Y


@pytest.mark.parametrize("scale", [1.0, 2.0**-90])
def test_the_value_of_least_squares_at_either_point(
    main_backend, small_blocks, sample_matrix, init, scale
):
    W, H = init
    V = main_backend(scale * sample_matrix)
    loss = FROBENIUS.on(V)
    assert FROBENIUS.on(V, rescale=False).unit == 1
    scaled = W * scale / loss.unit
    shared = loss.shared(scaled)
    how = {"objective": LeastSquares, "n_own": 1, "shared": shared, "move": Move(keep)}
    *_, sums = V.sweep(step_of_run, *loss.aligned, H.T, **how)

    assert (sums.VH is None) == (V.other_order is not None)
    doubled = loss.update_W(sums, shared, scaled, H.T, lambda G, C, Y: 2 * Y)
    for value, other in ((loss.value(sums, scaled, H.T), W), (doubled.value, 2 * W)):
        squared = ((sample_matrix - other @ H) ** 2).sum()
        assert value * loss.unit**2 == pytest.approx(squared * scale**2, rel=1e-12)
        exact = np.sqrt(squared / (sample_matrix**2).sum())
        assert loss.relative_error(value) == pytest.approx(exact, rel=1e-12)
    rescale = loss.updates(SOLVERS["plain-hals"], 0, 0).scale
    best = rescale(sums, scaled) * loss.unit / scale
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


def test_the_order_of_components_changes_no_bit(both_twins, sample_matrix, init):
    V, W = from_columns(sample_matrix), init[0]
    H, labels, squared = coefficients(V, W)
    for order in ([2, 0, 1], [1, 0, 2]):
        others = coefficients(V, W[:, order])
        np.testing.assert_array_equal(others[0], H[order])
        np.testing.assert_array_equal(
            np.where(others[1] < 0, -1, np.array(order)[others[1]]), labels
        )
        assert others[2] == squared


def test_a_fit_ends_with_sorted_components(main_backend, both_twins, small_blocks, sample_matrix):
    V = main_backend(sample_matrix)
    W = np.random.default_rng(0).random((12, 5)) * [1e-9, 3.0, 1.0, 1e9, 2.0]  # sizes do not decide
    for n_first, sort in ((0, True), (2, True), (0, False)):
        end = FROBENIUS.on(V, n_fixed=n_first, rescale=False).finish(W, sort=sort)
        sorted_W, H = W[:, end.order], np.asarray(end.H)
        WH = sorted_W @ H
        expected = [np.vdot(np.outer(w, h), WH) for w, h in zip(sorted_W.T, H, strict=True)]
        np.testing.assert_allclose(end.shares, expected / (WH**2).sum(), rtol=1e-9, atol=1e-15)
        assert end.shares.sum() == pytest.approx(1, abs=1e-12)
        kept = end.order.size if not sort else n_first
        assert end.order[:kept].tolist() == list(range(kept))
        assert (np.diff(end.shares[kept:]) <= 1e-12).all()
        again = coefficients(V, sorted_W)
        np.testing.assert_array_equal(np.asarray(again[0]), H)
        np.testing.assert_array_equal(np.asarray(again[1]), np.asarray(end.labels))
        assert end.objective == again[2]


def test_components_are_sorted_by_what_is_more_than_rounding():
    shares = np.array([0.2, 0.3999, 0.4001])
    assert sorting(shares, 0).tolist() == [2, 1, 0]
    assert sorting(shares, 2).tolist() == [0, 1, 2]
    assert sorting(np.array([0.2, 0.4, 0.4 + 1e-13]), 0).tolist() == [1, 2, 0]


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_contributions_that_are_rounding_have_no_label(scale):
    """Of equal ones up to rounding, the first is the label; the units do not matter."""
    V = from_columns(scale * np.array([[1.0, 1.0], [1.0, 1.0 + 1e-9], [0.0, 1e-12]]))
    assert coefficients(V, np.eye(3)[:, :2])[1].tolist() == [0, 0]
    assert coefficients(V, np.eye(3)[:, 2:])[1].tolist() == [-1, -1]
    assert coefficients(V, scale * np.eye(3)[:, 2:])[1].tolist() == [-1, -1]


def test_labels_weigh_components_by_their_length():
    W = np.array([[10.0, 0.0], [0.0, 1.0]])
    V = from_columns(W @ [[1.0, 0.1, 0.0], [2.0, 2.0, 0.0]])
    assert coefficients(V, W)[1].tolist() == [0, 1, -1]


@pytest.mark.seed(3)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_coefficients_do_not_depend_on_the_scale_of_a_component(both_twins, dtype, rng):
    V, W = from_columns(rng.random((6, 9)).astype(dtype)), rng.random((6, 4))
    H, labels, squared = coefficients(V, W)
    units = 2.0 ** np.array([100, -100, 0, 60])
    others = coefficients(V, W * units)
    np.testing.assert_array_equal(others[0] * units[:, None], H)
    np.testing.assert_array_equal(others[1], labels)
    assert others[2] == squared


def test_components_too_small_for_their_coefficients_count_as_zero(both_twins):
    V = from_columns(np.array([[1e3, 0.0], [1.0, 1.0]], np.float32))
    H, labels, squared = coefficients(V, np.array([[0.0, 1e-40], [1.0, 0.0]]))
    np.testing.assert_array_equal(H, [[1, 1], [0, 0]])
    np.testing.assert_array_equal(labels, [0, 0])
    assert squared == 1e6


NEARLY_EXACT = {
    "duplicates": lambda rng: np.repeat(rng.random((100, 2)), 4, axis=0),
    "cones": lambda rng: make_cones(2, 2, 0.05, n_samples=400, rng=rng).V.T,
    "mixtures": lambda rng: rng.random((60, 3)) @ rng.random((3, 20)),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("kind", NEARLY_EXACT)
@pytest.mark.parametrize("solver", ["nnlsb", "plain-nnlsb", "hals", "plain-hals", "mult"])
def test_errors_in_single_precision_do_not_rise_near_an_exact_fit(solver, kind, dtype):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        V = from_rows(NEARLY_EXACT[kind](rng).astype(dtype))
        K = 2 if V.shape[0] == 2 else 3
        run = alternate(
            V, rng.random((V.shape[0], K)), rng.random((K, V.shape[1])), solver,
            stopping=Stopping(0, max_iter=60),
        )  # fmt: skip
        assert np.diff(run.history.relative_error).max(initial=0) < 1e-4


@pytest.mark.parametrize("n", [315, 3000])
def test_errors_of_few_features_in_single_precision_are_exact(n, rng):
    """In single precision the sums over the samples would be off by up to 3e-6 of ||V||^2."""
    for _ in range(6):
        W, H = rng.random((3, 2)), rng.random((2, n))
        V = np.abs(W @ H * rng.normal(1, 0.05, (3, n))).astype(np.float16).astype(np.float32)
        run = alternate(from_columns(V), W, H, "nnlsb", stopping=Stopping(0, max_iter=1))
        true = np.linalg.norm(V.astype(float) - run.W.astype(float) @ run.H) / np.linalg.norm(
            V.astype(float)
        )
        assert abs(run.history.relative_error[-1] ** 2 - true**2) < 1e-12


@pytest.mark.seed(5)
@pytest.mark.parametrize("name", ["hals", "nnlsb", "mult", "plain-hals"])
@pytest.mark.parametrize("scale", [1.0, 2.0**-70])
def test_both_orders_lead_to_the_iterates_of_sums(name, scale, monkeypatch, rng):
    """W updated by the step on the turned data is W updated from sums over the samples."""
    X = scale * sp.random_array((70, 50), density=0.3, rng=rng, format="csr")
    W, H = rng.random((50, 4)), scale * rng.random((4, 70))
    stopping = Stopping(0, max_iter=15)
    turned = alternate(from_rows(X), W, H, name, stopping=stopping)
    monkeypatch.setattr("conenmf.data.memory._COPY_SHARE", 0.0)
    V = from_rows(X)
    assert V.other_order is None
    summed = alternate(V, W, H, name, stopping=stopping)
    np.testing.assert_allclose(turned.W, summed.W, rtol=1e-8, atol=1e-10 * summed.W.max())
    np.testing.assert_allclose(
        turned.history.relative_error, summed.history.relative_error, rtol=1e-10
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extrapolation_goes_beyond_and_stops_at_the_floor(both_twins, dtype):
    Y, before = np.array([[2.0, 1.0]], dtype), np.array([[1.0, 3.0]], dtype)
    moved = Move(lambda G, C, Y: Y, share=0.5, floor=0.25).extrapolate(Y, before)
    np.testing.assert_array_equal(moved, [[2.5, 0.25]])
    assert moved.dtype == dtype


def test_the_inverse_of_singular_matrices_is_finite(rng):
    """Of zeros, of one of several that is zero, and of one without full rank."""
    A = rng.random((3, 4, 2)) @ rng.random((3, 2, 4))
    A = A @ A.transpose(0, 2, 1)
    A[1] = 0
    for one in (A, A[1], A[0], np.zeros((1, 1))):
        assert np.isfinite(inverse_of(one)).all()
    full = rng.random((4, 9))
    full = full @ full.T
    np.testing.assert_allclose(inverse_of(full) @ full, np.eye(4), atol=1e-4)
