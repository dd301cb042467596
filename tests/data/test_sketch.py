import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from conenmf import from_columns, from_rows
from conenmf.data.sketch import orthonormal, sketch, sketch_rank
from conenmf.errors import ComponentsError, DataError, NotAvailableError
from conenmf.linalg.svd import Spectrum
from conenmf.solve.run import Stopping, alternate


@pytest.fixture
def low_rank():
    rng = np.random.default_rng(0)
    return rng.random((30, 4)) @ rng.random((4, 90))


def test_a_matrix_of_that_rank_is_its_own_sketch(low_rank, main_backend, small_blocks):
    V = main_backend(low_rank)
    before = V.passes
    S = sketch(V, 6)
    assert V.passes - before == 4
    np.testing.assert_allclose(S.Q @ np.asarray(S.B).T, low_rank, rtol=1e-10)
    np.testing.assert_allclose(S.Q.T @ S.Q, np.eye(6), atol=1e-12)
    assert (S.shape, S.depth, S.total) == (V.shape, 6, V.total)


@given(seed=st.integers(0, 10**6), rank=st.integers(1, 12))
def test_nothing_of_v_outside_the_basis_is_seen(seed, rank):
    """B = Q'V exactly, so V'W = B'Q'W for every W in the span of Q."""
    rng = np.random.default_rng(seed)
    V = rng.random((12, 40))
    S = sketch(from_columns(V), rank)
    np.testing.assert_allclose(S.B, V.T @ S.Q, atol=1e-12)
    inside = S.Q @ rng.random((rank, 3))
    np.testing.assert_allclose(S.B @ S.coordinates(inside), V.T @ inside, atol=1e-11)
    H = rng.random((40, 3))
    np.testing.assert_allclose(S.features(S.B.T @ H), S.Q @ S.Q.T @ V @ H, atol=1e-11)


def test_the_basis_holds_nearly_the_leading_singular_vectors(sample_matrix):
    S = sketch(from_columns(sample_matrix), 8)
    left = sample_matrix - S.Q @ S.Q.T @ sample_matrix
    best = np.linalg.svd(sample_matrix)[1][8:]
    assert np.linalg.norm(left) <= 1.05 * np.linalg.norm(best)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("solver", ["hals", "mult", "nnlsb", "plain-hals"])
def test_solvers_run_on_it_without_reading_v(solver, low_rank, main_backend):
    V = main_backend(low_rank)
    S = sketch(V, 6)
    rng = np.random.default_rng(1)
    start = rng.random((30, 4)), rng.random((4, 90))
    before = V.passes
    stopping = Stopping(tol=0, max_iter=10)
    run = alternate(S, *start, solver, stopping=stopping)
    assert V.passes == before
    assert S.passes >= 10
    if solver == "plain-hals":  # the others sweep more often on V itself
        whole = alternate(from_columns(low_rank), *start, solver, stopping=stopping)
        np.testing.assert_allclose(
            run.history.relative_error, whole.history.relative_error, rtol=1e-6
        )
    error = np.linalg.norm(low_rank - run.W @ np.asarray(run.H)) / np.linalg.norm(low_rank)
    assert run.history.relative_error[-1] == pytest.approx(error, rel=1e-6)


def test_singular_vectors_come_from_the_sketch(low_rank, main_backend):
    V = main_backend(low_rank)
    S = sketch(V, 8)
    assert V.subspace is None
    assert S.subspace == (S.Q, S.B)
    U, sigma, R = Spectrum(S).truncated_svd(3)
    expected = Spectrum(V).truncated_svd(3)
    np.testing.assert_allclose(sigma, expected[1], rtol=1e-8)
    np.testing.assert_allclose(U, expected[0], atol=1e-5)
    np.testing.assert_allclose(R, expected[2], atol=1e-5)


def test_precision(low_rank):
    assert sketch(from_columns(low_rank), 6).dtype == np.float64
    low_rank = low_rank.astype(np.float32)
    single = sketch(from_columns(low_rank), 6)
    assert single.dtype == single.B.dtype == single.Q.dtype == np.float32
    np.testing.assert_allclose(single.Q @ single.B.T, low_rank, rtol=1e-4)
    far = sketch(from_columns(low_rank * np.float32(1e16)), 6)  # squares leave the range
    assert far.dtype == np.float64
    np.testing.assert_allclose(far.Q @ far.B.T, low_rank * 1e16, rtol=1e-5)


def test_dependent_directions_are_left_to_householder():
    rng = np.random.default_rng(0)
    Y = rng.random((50, 3)) @ rng.random((3, 6))
    basis = orthonormal(Y)
    np.testing.assert_allclose(basis.T @ basis, np.eye(6), atol=1e-12)
    np.testing.assert_allclose(basis @ basis.T @ Y, Y, atol=1e-12)


def test_where_a_sketch_pays():
    rng = np.random.default_rng(0)
    wide = from_rows(rng.random((2000, 1000)))
    assert sketch_rank(wide, 10) == 20
    assert sketch_rank(wide, 400) is None  # too many components
    assert sketch_rank(from_rows(rng.random((2000, 100))), 10) is None  # too small to be felt
    thin = sp.random_array((20_000, 5_000), density=0.01, rng=rng, format="csr")
    assert sketch_rank(from_rows(thin), 10) is None  # V itself is as cheap


@pytest.mark.parametrize("share", [0.05, 0.15, 0.8])
def test_what_is_stored_does_not_decide(share):
    X = sp.random_array((1500, 1200), density=share, rng=np.random.default_rng(0), format="csr")
    chunks = da.from_array(X.toarray(), chunks=(500, 1200))
    ranks = {sketch_rank(from_rows(rows), 10) for rows in (X, X.toarray(), chunks)}
    assert len(ranks) == 1


def test_on_a_cluster_it_is_held_by_the_client(low_rank, traffic):
    V = from_rows(da.from_array(low_rank.T, chunks=(20, 30)))
    S = sketch(V, 6)
    rounds = V.traffic.rounds
    rng = np.random.default_rng(1)
    run = alternate(S, rng.random((30, 4)), rng.random((4, 90)), "hals")
    assert (S.is_remote, V.traffic.rounds) == (False, rounds)
    assert isinstance(run.H, np.ndarray)
    local = alternate(sketch(from_columns(low_rank), 6), run.W, run.H, "hals")
    again = alternate(S, run.W, V.align(run.H.T).T, "hals")
    np.testing.assert_allclose(again.W @ again.H, local.W @ local.H, rtol=1e-8)


def test_on_a_cluster_a_large_one_stays_with_the_workers(low_rank, monkeypatch):
    monkeypatch.setattr("conenmf.data.sketch._MAX_CLIENT_BYTES", 100)
    V = from_rows(da.from_array(low_rank.T, chunks=(20, 30)))
    S = sketch(V, 6)
    rng = np.random.default_rng(1)
    run = alternate(S, rng.random((30, 4)), rng.random((4, 90)), "hals")
    assert S.is_remote
    assert isinstance(run.H, da.Array)


def test_what_it_cannot_do(low_rank):
    V = from_columns(low_rank)
    S = sketch(V, 6)
    with pytest.raises(NotAvailableError, match="use V itself"):
        S.columns([0])
    with pytest.raises(NotAvailableError, match="use V itself"):
        S.visit(lambda reader: (None,))
    for rank in (0, 31):
        with pytest.raises(ComponentsError, match="from 1 to 30"):
            sketch(V, rank)
    with pytest.raises(ComponentsError, match="has 6 singular values, not the 7"):
        Spectrum(S).truncated_svd(7)
    with pytest.raises(DataError, match="zero"):
        sketch(from_columns(np.zeros((3, 4))), 2)
