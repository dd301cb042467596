"""Known components stay, in every storage and with every solver, and the bound uses them."""

import numpy as np
import pandas as pd
import pytest

from conenmf import ConeNMF, certify, factorize, from_columns
from conenmf.linalg.nnls import nnls
from conenmf.solve.coefficients import what_is_left
from conenmf.solve.losses.squared_bounds import bound_given
from conenmf.solve.solvers import SOLVERS


@pytest.fixture(scope="module")
def parts():
    """A (12, 4) and B (4, 40): exact factors of V = A B, of which some are known."""
    rng = np.random.default_rng(1)
    A = rng.random((12, 4)) * (rng.random((12, 4)) < 0.5) + np.eye(12, 4)
    B = rng.random((4, 40)) * (rng.random((4, 40)) < 0.6)
    return A, B


@pytest.mark.thinned(2)
@pytest.mark.parametrize("init", ["auto", "nndsvd", "random"])
def test_known_components_stay_on_every_storage(init, main_backend, small_blocks, parts, rng):
    A, B = parts
    known = A[:, [2, 0]] * [3.0, 1e-9]
    V = main_backend(A @ B)
    result = factorize(V, 4, fixed=known, init=init, max_iter=150, tol=1e-9, rng=rng)
    np.testing.assert_array_equal(result.W[:, :2], known.astype(result.W.dtype))
    assert result.relative_error < 0.02
    assert result.shares.sum() == pytest.approx(1)
    assert result.shares[2] >= result.shares[3]
    assert (np.diff(result.history.relative_error) <= 1e-9).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_leaves_known_components_alone(solver, parts):
    A, B = parts
    V = from_columns(A @ B)
    result = factorize(V, 4, fixed=A[:, :3], solver=solver, max_iter=100)
    np.testing.assert_array_equal(result.W[:, :3], A[:, :3])
    assert result.relative_error < factorize(V, 3, fixed=A[:, :3]).relative_error / 2


def test_all_components_known_is_transform(parts):
    A, B = parts
    X = (A @ B).T
    model = ConeNMF(4, fixed=A.T)
    coefficients = model.fit_transform(X)
    np.testing.assert_array_equal(coefficients, model.transform(X))
    np.testing.assert_allclose(coefficients, nnls(A.T @ A, X @ A), atol=1e-12)
    assert (model.result_.n_iter, model.stop_reason_) == (0, "init")
    np.testing.assert_array_equal(model.components_, A.T)


def test_the_residual_of_known_components_is_sparse_where_the_data_are(
    backend, small_blocks, parts
):
    A, B = parts
    V, known = A @ B, A[:, :1]
    H = nnls(known.T @ known, V.T @ known).T
    left = what_is_left(backend(V), known)
    block = left.columns(np.arange(40))
    block = block.toarray() if hasattr(block, "toarray") else block
    np.testing.assert_allclose(block, np.maximum(V - known @ H, 0), atol=1e-6)


def test_names_come_along_and_features_are_matched_by_name(parts):
    A, B = parts
    letters = list("abcdefghijkl")
    X = pd.DataFrame((A @ B).T, columns=letters)
    library = pd.DataFrame(A[:, :2].T, columns=letters, index=["quartz", "calcite"])
    model = ConeNMF(4, fixed=library[letters[::-1]]).fit(X)
    np.testing.assert_array_equal(model.components_[:2], A[:, :2].T)
    names = ("quartz", "calcite", "component 2", "component 3")
    assert model.result_.component_names == names
    assert tuple(model.components_frame().index) == names


def test_the_bound_knows_what_is_given(parts, rng):
    A, B = parts
    V = from_columns(A @ B)
    wrong = rng.random((12, 2))
    result = factorize(V, 3, fixed=wrong, max_iter=2000, tol=1e-9)
    Q = np.linalg.qr(wrong)[0]
    tail = np.linalg.svd(A @ B - Q @ (Q.T @ A @ B), compute_uv=False)[1:]
    expected = np.linalg.norm(tail) / V.norm
    assert bound_given(V, wrong, 3)[0] == pytest.approx(expected, rel=1e-6)
    certificate = result.certify()
    plain = certify(V, result.W, result.H)
    assert certificate.lower_bound > plain.lower_bound
    assert certificate.gap >= 0
    assert certificate.kkt_residual < plain.kkt_residual
    alone = factorize(V, 2, fixed=wrong)
    assert alone.certify().lower_bound <= alone.relative_error


def test_components_that_explain_everything_leave_a_random_start(parts):
    A, B = parts
    assert factorize(from_columns(A[:, :1] @ B[:1]), 2, fixed=A[:, :1]).relative_error < 1e-7


def test_there_are_at_least_as_many_components_as_are_given(parts):
    A, B = parts
    assert factorize(from_columns(A[:, :1] @ B[:1]), "auto", fixed=A[:, :3]).K == 3


@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_a_known_component_that_is_zero_has_coefficients_of_zero(loss, parts):
    A, B = parts
    V = from_columns(np.ceil(9 * A @ B))
    known = A[:, :3] + 0.01
    known[:, 1] = 0
    result = factorize(V, 3, fixed=known, loss=loss)
    others = factorize(V, 2, fixed=known[:, [0, 2]], loss=loss)
    assert not result.H[1].any()
    np.testing.assert_allclose(result.H[[0, 2]], others.H, atol=1e-8 * others.H.max())
    assert result.objective == pytest.approx(others.objective, rel=1e-9)
    more = factorize(V, 4, fixed=known, loss=loss)
    np.testing.assert_array_equal(more.W[:, 1], 0)
    assert more.objective < result.objective
