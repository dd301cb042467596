"""What every loss promises: subclass `LossContract`, name the loss, and write down its formula.

A subclass states the divergence of one entry, `divergence(v, x)`, as plain NumPy. All tests compare
the library with that formula.
"""

import numpy as np
import pytest

from conenmf import factorize, from_columns, from_rows
from conenmf.scale.checkpoint import Checkpoint
from conenmf.solve.loss import Loss, Move, step_of_run
from conenmf.solve.run import Run, Stopping

F, N, K = 9, 14, 3
STORAGES = {
    "rows": lambda X: from_rows(X),
    "columns": lambda X: from_columns(np.ascontiguousarray(X.T)),
    "blocks": lambda X: from_rows(X, block_samples=5),
    "single": lambda X: from_rows(X.astype(np.float32)),
}


class LossContract:
    """The tests of a loss."""

    loss: Loss

    @property
    def degree(self):
        """Return the degree of homogeneity of the divergence."""
        return self.loss.degree

    @staticmethod
    def divergence(v, x):
        """Return the divergence of x from v, entry by entry."""
        raise NotImplementedError

    def make(self, rng):
        """Return positive samples (N, F) near factors of K components."""
        return np.round(30 * rng.random((N, K)) @ rng.random((K, F)) ** 2 + 1)

    @pytest.fixture
    def X(self):
        return self.make(np.random.default_rng(4))

    @pytest.fixture
    def factors(self):
        rng = np.random.default_rng(5)
        return rng.random((F, K)) + 0.2, 9 * rng.random((K, N)) + 0.2

    def total(self, X, W, H):
        return float(self.divergence(X, (W @ H).T).sum())

    def gradient_of_W(self, X, W, H):
        """Return central differences of the divergence; their error is the square of the step."""
        gradient = np.empty_like(W)
        for place in np.ndindex(*W.shape):
            step = np.zeros_like(W)
            step[place] = 1e-5 * W[place]
            rise = self.total(X, W + step, H) - self.total(X, W - step, H)
            gradient[place] = rise / (2 * step[place])
        return gradient

    def run(self, V, W, H, solver="auto", max_iter=20):
        stopping = Stopping(0.0, max_iter=max_iter, exact=0.0)
        run = Run(self.loss.on(V), W, H, self.loss.solver(solver), stopping)
        run.run()
        return run

    def test_value_and_updates_are_those_of_the_formula(self, X, factors):
        """The value of a pass equals the formula; W moves downhill of its differences."""
        W, H = factors
        objective = self.loss.on(from_rows(X), rescale=False)
        updates = objective.updates(self.loss.solver("auto"), 0.0, 0.0)
        shared = objective.shared(W)
        own = objective.aligned
        how = {"objective": type(objective), "n_own": len(own), "shared": shared}
        Ht, sums = objective.V.sweep(step_of_run, *own, H.T, move=Move(updates.H), **how)
        after = np.asarray(Ht).T
        assert self.total(X, W, after) < self.total(X, W, H)
        updated = objective.update_W(sums, shared, W, Ht, updates.near(W))
        seen = [self.total(X, one, after) for one in (W, updated.W)]
        assert min(abs(updated.value / one - 1) for one in seen) < 1e-9
        assert seen[1] < seen[0]
        gradient = self.gradient_of_W(X, W, after)
        assert np.vdot(gradient, updated.W - W) < 0

    def test_errors_never_rise(self, X, factors):
        for solver in self.loss.solvers:
            errors = self.run(from_rows(X), *factors, solver).errors
            assert (np.diff(errors) <= 1e-12).all()
            assert errors[-1] < errors[0]

    def test_relative_errors_do_not_depend_on_the_scale(self, X):
        """A power of two changes no rounding; the objective follows the degree."""
        ends = [
            factorize(from_rows(scale * X), K, loss=self.loss.name, init="cr1", max_iter=9, tol=0.0)
            for scale in (1.0, 8.0)
        ]
        errors = [end.relative_error for end in ends]
        assert errors[1] == pytest.approx(errors[0], rel=1e-6)
        ratio = ends[1].objective / ends[0].objective
        assert ratio == pytest.approx(8.0**self.degree, rel=1e-6)

    def test_an_interrupted_run_resumes_with_the_same_bits(self, X, tmp_path):
        options = {"loss": self.loss.name, "init": "cr1", "tol": 0.0, "max_iter": 12}
        whole = factorize(from_rows(X), K, **options)
        place = Checkpoint(tmp_path / "run")
        factorize(from_rows(X), K, checkpoint=place, callback=_stop_at_five, **options)
        resumed = factorize(from_rows(X), K, checkpoint=place, **options)
        np.testing.assert_array_equal(resumed.W, whole.W)
        np.testing.assert_array_equal(resumed.H, whole.H)

    @pytest.mark.parametrize("storage", STORAGES)
    def test_storages_agree(self, storage, X, factors):
        """To 1e-6 after stated iterations, in single precision to its square root of rounding."""
        expected = self.run(from_rows(X), *factors, max_iter=5).errors[-1]
        found = self.run(STORAGES[storage](X), *factors, max_iter=5).errors[-1]
        rounding = 3e-4 if storage == "single" else 1e-6
        assert found == pytest.approx(expected, rel=rounding)

    def test_the_end_is_exact_and_depends_on_W_alone(self, X, factors):
        """No coefficient alone can lower the divergence, and an order of components is no other."""
        W, _ = factors
        objective = self.loss.on(from_rows(X), rescale=False)
        end = objective.finish(W, sort=False)
        H = np.asarray(end.H)
        least = self.total(X, W, H)
        assert end.squared_error == pytest.approx(least, rel=1e-9)
        for k, n in np.ndindex(*H.shape):
            for factor in (0.99, 1.01):
                other = H.copy()
                other[k, n] = factor * H[k, n] if H[k, n] else 1e-3 * H.max()
                assert self.total(X, W, other) >= least * (1 - 1e-12)
        turned = objective.finish(W[:, ::-1], sort=False)
        np.testing.assert_allclose(turned.H, H[::-1], rtol=1e-6, atol=1e-9 * H.max())


def _stop_at_five(now):
    return now.iteration == 5
