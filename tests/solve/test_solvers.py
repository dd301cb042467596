"""Solvers: each lowers the objective, both kernels agree, rows are independent, Lemma 15."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conenmf import cr1_nmf, from_columns, kernels
from conenmf.solve.solvers import (
    FLOOR,
    SOLVERS,
    Solver,
    get_solver,
    hals,
    mult,
    nnlsb,
    packed_update,
    solver_name,
)

UPDATES = {
    "mult": mult,
    "mult, 9 sweeps": partial(mult, sweeps=9),
    "hals": hals,
    "hals, 9 sweeps": partial(hals, sweeps=9, floor=0.0),
    "nnlsb": nnlsb,
}


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_an_update_never_increases_the_objective(update, both_twins, rng):
    W, v = rng.random((10, 4)), rng.random((10, 20))
    G, C, Y = W.T @ W, v.T @ W, rng.random((20, 4))
    before = Y.copy()
    after = update(G, C, Y)
    np.testing.assert_array_equal(Y, before)  # pure

    def objective(Y):
        return 0.5 * np.einsum("nk,nk->n", Y @ G, Y) - np.einsum("nk,nk->n", C, Y)

    assert (objective(after) <= objective(Y) + 1e-12).all()
    assert after.min() >= 0


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_update_keeps_the_type_and_survives_a_zero_component(update, both_twins, dtype):
    Y = update(np.diag([1.0, 0.0]), np.array([[2, 0]], dtype), np.array([[1, 1]], dtype))
    assert Y.dtype == dtype
    assert np.isfinite(Y).all()
    assert Y[0, 0] == 2


@pytest.mark.parametrize("sweeps", [1, 9])
@pytest.mark.parametrize("is_packed", [False, True], ids=["one-matrix", "a-matrix-per-row"])
def test_hals_does_not_move_a_component_that_is_zero(is_packed, sweeps, both_twins, rng):
    """Nothing depends on its coefficients, so not even a zero is lifted to the floor."""
    W, V, Y = rng.random((9, 3)), rng.random((9, 40)), rng.random((40, 3))
    W[:, 1] = 0
    Y[::2, 1] = 0
    G = np.tile(W.T @ W, (40, 1, 1)) if is_packed else W.T @ W
    after = hals(G, V.T @ W, Y, sweeps=sweeps)
    np.testing.assert_array_equal(after[:, 1], Y[:, 1])
    assert (after[:, [0, 2]] != Y[:, [0, 2]]).any(axis=1).all()


@pytest.mark.parametrize("sweeps", [1, 2, 20])
@pytest.mark.parametrize("rows", [1, 127, 128, 300])
@pytest.mark.parametrize("K", [1, 4, 7])
def test_twins_of_hals_agree(sweeps, rows, K, rng, monkeypatch):
    W, V = rng.random((30, K)), rng.random((30, rows)) * rng.random(rows) ** 4
    arguments = (W.T @ W, V.T @ W, rng.random((rows, K)))
    compiled = hals(*arguments, sweeps=sweeps)
    monkeypatch.setattr(kernels, "AVAILABLE", False)
    np.testing.assert_allclose(compiled, hals(*arguments, sweeps=sweeps), atol=1e-12)


@pytest.mark.seed(5)
@pytest.mark.parametrize(("rows", "sweeps"), [(1, 20), (16, 1), (45, 20), (45, 200)])
@pytest.mark.parametrize("K", [1, 4, 7])
def test_the_compiled_form_for_packed_gram_matrices_agrees(rows, sweeps, K, rng, monkeypatch):
    W, V, known = rng.random((9, K)), rng.random((9, rows)), rng.random((9, rows)) < 0.4
    G = np.einsum("fk,fn,fj->nkj", W * (np.arange(9) < 3)[:, None], known, W)
    G = np.ascontiguousarray((G + G.transpose(0, 2, 1)) / 2) + 0.1 * np.eye(K)
    G[0, 0], G[0, :, 0] = 0, 0  # of a component that the sample lacks
    C, Y = (V * known).T @ W, rng.random((rows, K)).astype(np.float32)
    update = SOLVERS["hals"].sweeping(sweeps - 1)
    packed = G[:, *np.triu_indices(K)]
    np.testing.assert_array_equal(packed_update(nnlsb, packed, C, Y), nnlsb(G, C, Y))
    if kernels.AVAILABLE:
        found = packed_update(update, packed, C, Y), update(G, C, Y)
        assert found[0].dtype == np.float64  # the compiled form has no other
        monkeypatch.setattr(kernels, "AVAILABLE", False)
        expected = update(G, C, Y.astype(np.float64))
        np.testing.assert_allclose(found[0], expected, atol=1e-10)
        np.testing.assert_allclose(found[1], expected, atol=1e-6)


@pytest.mark.seed(1)
@pytest.mark.parametrize("update", [mult, hals])
def test_sweeps_lead_towards_the_minimiser_and_end_there(update, both_twins, rng):
    W, V = rng.random((30, 6)), rng.random((30, 200))
    G, C, Y = W.T @ W, V.T @ W, rng.random((200, 6))
    best = nnlsb(G, C, Y)
    distances = [np.linalg.norm(update(G, C, Y, sweeps=n) - best) for n in (1, 4, 1000)]
    assert distances[0] > distances[1] > distances[2]
    # a sweep that moves a tenth of what the first did is the last one: 1000 are never made
    many = Y
    for _ in range(1000):
        many = update(G, C, many)
    assert np.linalg.norm(many - best) < 0.2 * distances[2]


@pytest.mark.seed(2)
@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
def test_each_row_is_updated_independently_of_the_others(update, both_twins, rng):
    """However many sweeps its neighbours need: blocks may be cut anywhere."""
    W, V = rng.random((30, 6)), rng.random((30, 300)) * rng.random(300) ** 4
    G, C, Y = W.T @ W, V.T @ W, rng.random((300, 6))
    whole = update(G, C, Y)
    pieces = [update(G, C[a : a + 7], Y[a : a + 7]) for a in range(0, 300, 7)]
    np.testing.assert_allclose(np.vstack(pieces), whole, rtol=1e-12, atol=1e-14)


@pytest.mark.seed(3)
@pytest.mark.thinned(2)
@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_gram_matrix_for_each_row(update, both_twins, dtype, rng):
    """As solving each row on its own; where few entries are observed, a component may be zero."""
    W, V, observed = rng.random((9, 4)), rng.random((9, 50)), rng.random((9, 50)) < 0.4
    W[:3, 0] = W[4:, 0] = 0.0
    G = np.einsum("fk,fn,fj->nkj", W, observed, W).astype(dtype)
    C, Y = ((V * observed).T @ W).astype(dtype), rng.random((50, 4)).astype(dtype)
    assert (G[:, 0, 0] == 0).any()
    together = update(G, C, Y)
    alone = np.vstack([update(g, c[None], y[None]) for g, c, y in zip(G, C, Y, strict=True)])
    assert together.dtype == dtype
    tolerance = 1e-12 if dtype == np.float64 else 2e-4
    products = [np.einsum("nk,nkj->nj", rows, G) for rows in (together, alone)]
    np.testing.assert_allclose(*products, rtol=tolerance, atol=tolerance)
    if update is not UPDATES["nnlsb"]:  # of several exact solutions it may take any
        np.testing.assert_allclose(together, alone, rtol=tolerance, atol=tolerance)
    same = update(np.broadcast_to(G[1], G.shape), C, Y)
    products = (same @ G[1], update(G[1], C, Y) @ G[1])
    np.testing.assert_allclose(*products, rtol=tolerance, atol=tolerance)


@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_lemma_15_cr1_is_a_fixed_point_of_mult(rng):
    V = rng.random((6, 20)) + 0.01
    W, H, _ = cr1_nmf(from_columns(V), 3, rng=rng)
    W, H = W.astype(float), H.astype(float)
    np.testing.assert_allclose(mult(W.T @ W, V.T @ W, H.T).T, np.maximum(H, FLOOR), rtol=1e-8)
    np.testing.assert_allclose(mult(H @ H.T, V @ H.T, W), np.maximum(W, FLOOR), rtol=1e-7)


def test_solvers_by_name_object_and_function():
    assert get_solver("hals") is SOLVERS["hals"]
    assert get_solver(SOLVERS["mult"]) is SOLVERS["mult"]
    assert get_solver(hals) == Solver(hals)
    of_hals = ("hals", hals, Solver(SOLVERS["hals"].update))
    others = (SOLVERS["plain-mult"], partial(nnlsb), None)
    names = [solver_name(solver) for solver in (*of_hals, *others)]
    assert names == ["hals", "hals", "hals", "plain-mult", "nnlsb", None]


def test_as_many_sweeps_as_are_paid_for():
    solver = Solver(hals, sweeps=12)
    paid = [solver.sweeping(cost).keywords["sweeps"] for cost in (0.4, 5.2, 1e9)]
    assert paid == [1, 6, 12]
    assert Solver(nnlsb).sweeping(5.0) is nnlsb


def test_squares_beyond_single_precision(both_twins):
    """A component at the floor in one factor is so large in the other that its square overflows."""
    G, C = np.diag([1e40, 1.0, 1e-42]), np.array([[1e20, 2.0, 1e-21]], np.float32)
    Y = hals(G, C, np.zeros((1, 3), np.float32), floor=0.0)
    assert Y.dtype == np.float32
    np.testing.assert_allclose(Y, [[1e-20, 2.0, 1e21]], rtol=1e-6)


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
def test_squares_that_have_lost_their_digits(update, both_twins):
    Y = update(np.diag([1.0, 5e-324]), np.array([[1.0, 1.0]]), np.ones((1, 2)))
    assert np.isfinite(Y).all()


def test_mult_with_a_ratio_beyond_the_range():
    """The entry stays, as do those of a row whose squares overflow."""
    C, Y = np.array([[1.0, 1.0], [1e200, 1.0]]), np.ones((2, 2))
    updated = mult(np.diag([1.0, 5e-324]), C, Y)
    np.testing.assert_array_equal(updated, [[1.0, 1.0], [1e200, 1.0]])
