"""Several runs share one pass over the data and end where each ends alone."""

import numpy as np
import pytest
import scipy.sparse as sp

from conenmf import from_rows, kernels
from conenmf.data import views
from conenmf.data.blocks import products
from conenmf.data.views import Part, products_together, sweep_together, unit_samples
from conenmf.solve.losses import FROBENIUS
from conenmf.solve.run import Run, Stopping, run_together
from conenmf.solve.solvers import SOLVERS


def multiply(block, *, X, C=None):
    given = np.full((block.shape[1], 1), C is not None)
    return products(block, X) if C is None else C, given, None


def make_data(dtype=np.float64):
    rng = np.random.default_rng(0)
    X = sp.random_array((300, 40), density=0.2, rng=rng, dtype=dtype, format="csr")
    return X, [rng.random((40, width)).astype(dtype) for width in (3, 7, 5)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_of_sparse_samples_are_computed_side_by_side(dtype):
    X, matrices = make_data(dtype)
    V = from_rows(X, block_samples=70)
    view = unit_samples(V)
    parts = [Part(V, multiply, (), {"X": W}, n_rows=2, X=W) for W in matrices]
    parts.append(Part(view, multiply, (), {"X": matrices[0]}, n_rows=2, X=matrices[0]))
    passes = V.passes
    results = sweep_together(V, parts)
    assert V.passes - passes == 1
    for (C, given, _), W in zip(results, matrices, strict=False):
        assert given.all() == kernels.AVAILABLE
        np.testing.assert_allclose(C, X @ W, rtol=1e-5)
    assert not results[-1][1].any()  # it has blocks of its own
    alone = products_together(V, matrices)
    for C, W in zip(alone or [], matrices, strict=False):
        np.testing.assert_allclose(C, X @ W, rtol=1e-5)
    assert products_together(V, matrices[:1]) is None


def test_dense_samples_are_multiplied_one_by_one():
    X, matrices = make_data()
    V = from_rows(X.toarray())
    results = sweep_together(V, [Part(V, multiply, (), {"X": W}, n_rows=2, X=W) for W in matrices])
    for (C, given, _), W in zip(results, matrices, strict=True):
        assert not given.any()
        np.testing.assert_allclose(C, X @ W, rtol=1e-12)


@pytest.mark.parametrize("solver", ["hals", "nnlsb", "mult", "plain-hals"])
def test_runs_side_by_side_end_where_each_ends_alone(solver, monkeypatch, all_close):
    X, _ = make_data()
    V, rng = from_rows(X), np.random.default_rng(1)
    inits = [(rng.random((40, 4)), rng.random((4, 300))) for _ in range(3)]

    def runs():
        limits = Stopping(0.0, max_iter=12)
        return [Run(FROBENIUS.on(V), W, H, SOLVERS[solver], limits) for W, H in inits]

    calls = []
    monkeypatch.setattr(views, "products", lambda *two: calls.append(1) or products(*two))
    found = {number: run.solution() for number, run in run_together(V, runs())}
    assert bool(calls) == kernels.AVAILABLE
    calls.clear()
    for number, run in enumerate(runs()):
        run.run()
        one, alone = found[number], run.solution()
        all_close((one.W, one.H), (alone.W, alone.H), rtol=1e-9, atol=1e-12)
    assert not calls
