import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conenmf import certify, factorize, from_columns, from_rows
from conenmf.cones.certificate import lower_bound
from conenmf.data.sketch import sketch
from conenmf.solve.inits import initialize
from conenmf.solve.race import Prospect, prospect
from conenmf.solve.run import Stopping, alternate
from conenmf.solve.solvers import SOLVERS


def test_the_bound_is_that_of_eckart_and_young(main_backend):
    V = np.random.default_rng(0).gamma(0.5, size=(15, 40))
    found = prospect(main_backend(V), 7)  # the sketch has 15 vectors: all there are
    sigma = np.linalg.svd(V, compute_uv=False)
    assert found.lower_bound == pytest.approx(lower_bound(from_columns(V), 7), rel=1e-7)
    assert found.standout == pytest.approx(sigma[6] / sigma[7], rel=1e-7)


def test_a_sketch_at_hand_is_used():
    V = from_rows(np.random.default_rng(1).random((200, 60)))
    S = sketch(V, 12)
    before = V.passes
    found = prospect(V, 4, S)
    assert V.passes == before
    assert 0 < found.lower_bound < 1


def test_as_many_components_as_the_sketch_has_vectors_stand_out():
    assert prospect(from_columns(np.eye(3)), 3).standout == np.inf
    assert prospect(from_columns(np.eye(3)), 3).lower_bound == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(0, 5))
@settings(max_examples=15)
def test_the_proven_bound_holds_for_any_sketch(dtype, seed, K, more):
    rng = np.random.default_rng(seed)
    V = rng.gamma(0.3, size=(20, 8)) @ rng.gamma(0.3, size=(8, 40)) + 0.01 * rng.random((20, 40))
    V = V.astype(dtype)
    squares = np.linalg.svd(V.astype(np.float64), compute_uv=False) ** 2
    exact = np.sqrt(squares[K:].sum() / squares.sum())
    V = from_columns(V)
    bound, all_of_it = (prospect(V, K, sketch(V, rank)).proven for rank in (min(K + more, 20), 20))
    assert bound <= exact
    assert exact - (1e-4 if dtype == np.float32 else 1e-7) <= all_of_it <= exact


@given(st.floats(1e-6, 1 - 1e-6), st.floats(1, 2))
def test_reached_is_near_in_the_error_and_in_what_is_explained(b, ratio):
    """Near b = 1 a share of b says nothing, near b = 0 a share of 1 - b^2 says nothing."""
    found, error = Prospect(b, 2.0), min(b * ratio, 1.0)
    if found.is_reached(error):
        assert error <= 1.0006 * b
        assert 1 - error**2 >= 0.998 * (1 - b**2)
    assert found.is_reached(b)


def test_a_gap_alone_is_no_plateau():
    assert not Prospect(0.29, 1.05).is_plateau(0.33)  # singular values fall slowly, as of digits
    assert Prospect(0.00045, 10.0).is_plateau(0.0064)
    assert not Prospect(0.00045, 10.0).is_plateau(0.00046)
    assert not Prospect(0.0, np.inf).is_plateau(1e-7)  # exact, but for rounding


def test_the_gap_is_the_share_by_which_an_error_may_fall():
    assert Prospect(0.42, 2.0).gap(0.5) == pytest.approx(0.16)
    assert Prospect(0.0, 2.0).gap(0.1) == 1
    assert Prospect(0.0, 2.0).gap(0.0) == 0


def nearly_exact_mixtures(seed, K):
    """Smooth spectra, mixed by samples whose norms differ by orders of magnitude."""
    rng = np.random.default_rng(seed)
    band = np.linspace(0.0, 1.0, 40)
    centre, width = rng.uniform(0, 1, (2, K, 1)), rng.uniform(0.1, 0.3, (2, K, 1))
    spectra = 0.2 + np.exp(-(((band - centre) / width) ** 2) / 2).sum(axis=0)
    norms = rng.lognormal(0.0, 2.0, (600, 1))
    X = norms * (rng.dirichlet(np.full(K, 0.3), 600) @ spectra)
    return X * (1 + 1e-3 * rng.standard_normal(X.shape))


@pytest.mark.parametrize("seed", range(4))
def test_nearly_exact_mixtures_have_plateaus_that_the_kkt_residual_does_not_show(seed):
    V, K, solver = from_rows(nearly_exact_mixtures(seed, 5)), 5, SOLVERS["hals"]
    init = initialize(V, K, "nnsvdlrc", solver)
    ended = alternate(V, init.W, init.H, solver, stopping=Stopping(tol=1e-4))
    certificate, found = certify(V, ended.W, ended.H, effort=0), prospect(V, K)
    assert certificate.kkt_residual < 1e-4
    assert found.is_plateau(certificate.relative_error)
    assert found.gap(certificate.relative_error) > 0.3
    assert factorize(V, K).relative_error < 0.75 * certificate.relative_error  # by another init
