"""The Itakura-Saito divergence of W H from V: sum v / x - log(v / x) - 1, for power spectra.

The divergence weighs quiet and loud entries equally; all entries must be positive. It is not convex
in H. The multiplicative updates of Fevotte and Idier (Neural Computation 23, 2011) never raise it
and end at a stationary point, and so do `finish` and `transform`. No lower bound is known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arguments import DType
from ...data.blocks import Array, Block, dense, exact
from ...data.matrix import Aligned, DataMatrix, PerSample, Results
from ...errors import DataError, Option
from ...text import Facts
from ..coefficients import Finish, sorted_rows, sorting
from ..inits import Init, Start
from ..solvers import Solver
from .loss import Loss, Objective, Sums, Words

_STEPS = 2000  # largest number of updates of H
_SETTLED = 1e-8  # stop when the largest change is below this
_IMPOSSIBLE = 1e-300  # replaces a fitted value of 0
_LIFTED_SHARE = 0.01  # of the mean of W, added to an init because updates cannot change zeros


def multiplicative(V: Array, W: Array, Y: Array) -> Array:
    """Return Y (n, K) multiplied by the square root of (V / X^2)'W / (1 / X)'W, where X = W Y'."""
    X = W @ Y.T
    return Y * np.sqrt(((V / X**2).T @ W) / ((1 / X).T @ W))


_SOLVERS = {"mult": Solver(multiplicative, first="H")}


class ItakuraSaito(Loss):
    """A loss with one solver; errors are relative to the divergence of V from its mean sample."""

    name = "itakura-saito"
    help = "itakura-saito for positive power spectra"
    solvers = _SOLVERS
    constraints = frozenset({"sample weights"})  # whole numbers, see `weigh_samples`
    degree = 0
    words = Words(
        share="share of the divergence left",
        of_runs="relative divergence",
        summary="divergence {objective:.6g}{known}, {error:.4g} of that from the mean sample",
    )

    def on(self, V: DataMatrix, *given: Any, rescale: bool = True, **more: Any) -> Objective:
        """Return the divergence of W H from V, in its own units."""
        return SpectralDivergence(self, V, *given, rescale=False, **more)

    def scale(self, V: DataMatrix) -> float:
        """Return the divergence of V from the mean of its samples; one pass."""
        if V.n_entries < V.n_features * V.n_samples or not V.measures.lowest > 0:
            problem = " needs positive entries, and some are zero: add a small number to dense "
            advice = "data, or use another loss; sparse data have zeros"
            raise DataError(Option("loss", self.name), problem + advice)
        ((sums, logs),) = V.sweep(_sums_and_logs)
        means = np.log(sums / V.n_samples).sum() * V.n_samples - logs
        return float(means) if means > 1e-12 else float(V.n_entries)

    def sample_errors(self, entries: Array, fitted: Array, weights: Array) -> Array:
        """Return the divergence of samples, up to a constant for each."""
        fitted = np.maximum(fitted, _IMPOSSIBLE)
        return np.asarray((weights * (entries / fitted + np.log(fitted))).sum(axis=0))

    def inits(self, *given: object) -> tuple[Init, ...]:
        """Start with cones."""
        return ("cr1",)

    def initialize(self, V: DataMatrix, K: int, init: Init, *how: Any, **known: Any) -> Start:
        """Return W of an init, raised above zero, and its H, or equal shares of all components."""
        start = super().initialize(V, K, init, *how, **known)
        if isinstance(init, str):
            start = start._replace(W=start.W + V.dtype.type(_LIFTED_SHARE * start.W.mean()))
        elif isinstance(init, tuple):
            return start
        return start._replace(H=V.sweep(_equal, W=exact(start.W), dtype=V.dtype)[0].T)


class SpectralDivergence(Objective):
    """The divergence, with sums of v / x^2 and 1 / x for the update of W."""

    knows_after = False

    @staticmethod
    def step(block: Block, *given: Array, **shared: Any) -> Results:
        """Update a block's rows of H, and return sums at the new ones; see `Objective`."""
        V = exact(dense(block))
        W = shared["W"]
        H = shared["update"](V, W, exact(given[0])).astype(given[0].dtype, copy=False)
        return H, _sums(V, W, exact(H))

    def shared(self, W: Array) -> Facts:
        """Return W in float64."""
        return {"W": exact(W)}

    def update_W(self, sums: Sums, W: Array, Ht: Aligned) -> Array:
        """Return W times the square root of (V / X^2) H' / (1 / X) H'."""
        return np.asarray(W * np.sqrt(sums["above"] / sums["below"]), dtype=W.dtype)

    def value(self, sums: Sums, W: Array, *, after: bool) -> float:
        """Return the divergence, at least 0 in spite of rounding."""
        return max(float(sums["value"]), 0.0)

    def finish(self, W: Array, *, sort: bool = True) -> Finish:
        """Return H at a stationary point; the residual is its distance from one."""
        V = self.V
        W = exact(np.asarray(W))
        with V.own_threads():
            Ht, sums = V.sweep(_finish, W=W, dtype=V.dtype)
            sizes = W.sum(axis=0)
            shares = sizes * sums["H"] / float(sizes @ sums["H"])
            order = sorting(shares, 0 if sort else len(shares))
            Ht, labels, _ = V.map(sorted_rows, Ht, V.norms_squared, order=order, sizes=sizes)
        slopes = sums["slopes"] + np.abs(W * (sums["below"] - sums["above"])).sum()
        value = max(sums["value"], 0.0)
        residual = float(slopes) / V.n_entries
        return Finish(Ht.T, labels, value, value, residual, order, shares[order])


def _sums(V: Array, W: Array, H: Array) -> Sums:
    X = W @ H.T
    ratios = V / X
    value = float((ratios - np.log(ratios)).sum()) - V.size
    return {"value": value, "above": (ratios / X) @ H, "below": (1 / X) @ H, "H": H.sum(axis=0)}


def _finish(block: Block, *, W: Array, dtype: DType) -> tuple[Array, Sums]:
    """Step: update H until it hardly changes."""
    V = exact(dense(block))
    H, _ = _equal(block, W=W, dtype=W.dtype)
    for _ in range(_STEPS):
        before = H
        H = multiplicative(V, W, H)
        if np.abs(H - before).max() <= _SETTLED * H.max():
            break
    returned = H.astype(dtype)
    H = exact(returned)
    X = W @ H.T
    slopes = np.abs(H * ((1 / X - V / X**2).T @ W)).sum()
    return returned, {**_sums(V, W, H), "slopes": float(slopes)}


def _equal(block: Block, *, W: Array, dtype: DType) -> PerSample:
    """Step: return equal coefficients for all components, at the best scale for each sample."""
    sizes = (exact(dense(block)) / W.sum(axis=1)[:, None]).mean(axis=0)
    return np.repeat(sizes[:, None], W.shape[1], axis=1).astype(dtype), None


def _sums_and_logs(block: Block) -> tuple[tuple[Array, float]]:
    V = exact(dense(block))
    return ((V.sum(axis=1), float(np.log(V).sum())),)


ITAKURA_SAITO = ItakuraSaito()
