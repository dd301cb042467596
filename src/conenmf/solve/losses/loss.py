"""The interface of losses: a `Loss` describes its features, an `Objective` is what a run minimises.

A `Loss` has a name, solvers, supported constraints, the names of its lower bounds and of its
evidence for the number of components, and its words. All code outside this folder uses these
attributes and does not test for a certain loss. ``loss.on(V)`` is an `Objective`. It provides the
step on a block of samples with its sums, the update of W from the sums, the value of the objective,
and the exact H for a given W. A run passes the sums from one method to the next, and a checkpoint
saves them by name.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.linalg import norm

from ...arguments import choice
from ...data.blocks import Array, Block
from ...data.matrix import Aligned, DataMatrix, Results
from ...data.validate import require_data_matrix, require_nonnegative
from ...data.views import measure_together
from ...errors import NotAvailableError, Option, OptionError
from ...linalg.svd import KnownSpectrum, Spectrum
from ...text import Facts, Texts
from ..coefficients import Finish, nearby_power, what_is_left
from ..constraints import NO_PENALTIES, Penalties, Term
from ..inits import Generator, Init, Start, initialize
from ..solvers import ChosenSolver, Solver, Update, extrapolated

# Sums of a pass over the samples, by name: arrays and numbers that a loss understands.
Sums: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Words:
    """The words of a loss in results, reports and the command line.

    Attributes
    ----------
    share : str
        The relative error, as an axis label.
    of_runs : str
        The relative error of replicates.
    summary : str
        A template for the first sentence about a fit, with the fields `error` (relative),
        `objective`, `explained` (1 - the relative error) and `known` (the entries that count).
    """

    share: str = "relative error"
    of_runs: str = "relative error"
    summary: str = "relative error {error:.4g}{known}"


class Loss(ABC):
    """A loss that a fit can minimise, and its features.

    Attributes
    ----------
    name, aliases : str, tuple of str
    help : str
        A short description for the command line.
    solvers : mapping
        Solvers by name; "auto" uses the first.
    constraints : frozenset of str
        Options that the loss supports: "l1", "l2", "orthogonality", "min_volume", "sum_to_one",
        "one factor" (a penalty on one factor alone), "fixed", "missing" (or weighted entries),
        "negative" entries, "sample weights", "stream" and "sparse" data.
    degree : int
        Degree of homogeneity: D(cV | cX) = c^degree D(V | X). A sample of weight p is equivalent to
        the sample times p^(1/degree), and the relative error is a share of the objective to the
        same power.
    lower_bounds : tuple of str
        Lower bounds that `judge` can compute; if empty, no lower bound is known for this loss.
    k_evidence : tuple of str
        Evidence for the number of components, which `judge` looks up.
    is_convex : bool
        Whether the best H for W is unique up to its value, because the loss is convex in H. If
        not, `Objective.near` passes the H of a run to `finish`, which keeps it where it is better.
    words : Words
    doubled : int
        The factor from the objective to twice the divergence of scikit-learn.
    """

    name: str
    aliases: Texts = ()
    help: str
    solvers: Mapping[str, Solver]
    constraints: frozenset[str] = frozenset()
    degree: int = 1
    lower_bounds: Texts = ()
    k_evidence: Texts = ()
    is_convex: bool = True
    words: Words = Words()
    doubled: int = 2

    @abstractmethod
    def on(
        self,
        V: DataMatrix,
        penalties: Penalties = NO_PENALTIES,
        n_fixed: int = 0,
        *,
        rescale: bool = True,
    ) -> Objective:
        """Return the objective for factors of V, with penalties and known components."""

    def coefficients(
        self,
        V: DataMatrix,
        W: Array,
        penalties: Penalties = NO_PENALTIES,
        unseen: str = "warn",
    ) -> tuple[Aligned, Aligned, float]:
        """Return the best H (K, N) for W, labels (N,) and the loss without penalties; one pass.

        Features may have entries although all components are zero there. If the loss does not allow
        this, `unseen` says whether they are left out with a warning or raise an error.
        """
        return self.on(V, penalties, rescale=False).finish(W, sort=False)[:3]

    @abstractmethod
    def scale(self, V: DataMatrix) -> float:
        """Return the value of the loss that corresponds to a relative error of 1."""

    def solver(self, solver: str | Solver | Update) -> Solver:
        """Return the solver for a name or function that the user passes."""
        if isinstance(solver, Solver) and solver in self.solvers.values():
            return solver
        if not isinstance(solver, str):
            problem = " has its own solvers: solver is 'auto' or one of "
            names = ", ".join(map(repr, self.solvers))
            raise OptionError(Option("loss", self.name), problem + names)
        if solver == "auto":
            solver = next(iter(self.solvers))
        return self.solvers[choice("solver", solver, self.solvers)]

    def check(
        self, V: DataMatrix, solver: ChosenSolver, penalties: Penalties, fixed: object = None
    ) -> None:
        """Raise an error for data and options that the loss does not support."""
        if "negative" not in self.constraints:
            require_nonnegative(V, f"loss={self.name!r}")
        asked = dict.fromkeys(penalties.kinds, "penalties")
        asked |= {"missing": "missing or weighted entries"} if V.observed is not None else {}
        asked |= {"sample weights": "sample weights"} if V.unweighed is not None else {}
        asked |= {"fixed": "known components"} if fixed is not None else {}
        for name, what in asked.items():
            if name not in self.constraints:
                loss = Option("loss", self.name)
                other = Option("loss", "frobenius")
                raise OptionError(loss, f" takes no {what} ({name}): use ", other)

    def data(self, V: DataMatrix) -> DataMatrix:
        """Return V in the form that runs read."""
        return V

    def initialize(
        self,
        V: DataMatrix,
        K: int,
        init: Init,
        solver: ChosenSolver = None,
        rng: Generator = None,
        **known: Any,
    ) -> Start:
        """Return the initial factors, by the name of an init or from the user's own."""
        return initialize(V, K, init, solver, rng, **known)

    def inits(self, V: DataMatrix, K: int, solver: ChosenSolver) -> tuple[Init, ...]:
        """Return the inits of "auto": the first starts, the others may compete with it.

        With a single init there is no race; see `race`.
        """
        return ("random",)

    def approximation(self, V: DataMatrix, K: int, spectrum: KnownSpectrum) -> Objective | None:
        """Return a similar objective that costs less, for the first iterations of a run."""
        return None

    def lower_bound(self, V: DataMatrix, K: int, spectrum: Spectrum) -> float:
        """Estimate a lower bound of the relative error of K components; 0 if unknown.

        A race uses it to decide whether a better init may help.
        """
        return 0.0

    def begin(
        self,
        V: DataMatrix,
        K: int,
        W: Array,
        H: Aligned | None,
        solver: ChosenSolver,
        penalties: Penalties,
        n_fixed: int,
        *,
        warm: bool,
    ) -> Start:
        """Return the start from W, whose first columns are known, with penalties.

        W gets the scale that the penalties require, and its best H. If the coefficients of a sample
        sum to one, the init's coefficients are not used. With `warm`, W comes from a named init,
        which a loss may improve first.
        """
        start = initialize(V, K, W, None if K == n_fixed else solver)
        if penalties.sum_to_one:
            return start._replace(H=None)
        if not penalties.fixes_columns:
            return start
        size = norm(start.W, axis=0)
        size = np.where(size > 0, size, 1.0).astype(W.dtype)
        size[:n_fixed] = 1.0
        return start._replace(W=start.W / size, H=None if start.H is None else (start.H.T * size).T)

    def rest(self, V: DataMatrix, W: Array) -> DataMatrix:
        """Return the residual max(V - W H, 0) of known components W with the best H."""
        return what_is_left(V, W)

    def warm_up(
        self, V: DataMatrix, views: Sequence[DataMatrix], starts: Sequence[Start]
    ) -> list[Start]:
        """Improve starts on views of V before their runs, in shared passes."""
        return list(starts)

    def measure(self, V: DataMatrix, views: Sequence[DataMatrix]) -> None:
        """Measure views of V in one joint pass."""
        measure_together(V, views)

    def restored(self, W: Array, penalties: Penalties) -> Array:
        """Return W of a run in the scale of a result."""
        return W

    def admissible(self, V: DataMatrix, W: Array) -> Array:
        """Return W in the type of V, after the smallest change that makes its loss finite."""
        return np.ascontiguousarray(W, V.dtype)

    def held_out(self, V: DataMatrix, W: Array, weights: Array | None = None) -> float:
        """Return the share of V that other features predict, at most 1."""
        raise NotAvailableError(
            "no score on held-out features is known for ", Option("loss", self.name)
        )

    def sample_errors(self, entries: Array, fitted: Array, weights: Array) -> Array:
        """Return the loss (n,) of samples (F, n), up to a constant for each sample."""
        return np.asarray((weights * (entries - fitted) ** 2).sum(axis=0))

    def relative_error(self, value: float, scale: float) -> float:
        """Return the relative error for a value of the loss and `scale`."""
        share = value / scale if scale else 0.0
        return math.sqrt(share) if self.degree == 2 else float(share)


class Objective(ABC):
    """The loss of V with its penalties, as a run uses it.

    A run factors V / unit, so solvers that floor do not depend on the scale of V.

    Attributes
    ----------
    loss : Loss
    V : DataMatrix (F, N)
    dtype : float64 or float32
        The type of the factors.
    penalties : Penalties
    n_fixed : int
        The first columns of W are known and do not change.
    unit : float
        A power of two; 1 with penalties, which depend on the scale of the factors.
    total : float
        The value that corresponds to a relative error of 1.
    knows_after : bool
        Whether the sums of a pass give the value at every W, so also at the W updated from them. If
        False, they give only the value at the W of the pass.
    terms : pair of Term or None
        The penalties of H and W, in units of the value.
    aligned : tuple of arrays (N, ...)
        Arrays that the step needs, such as weights; it gets their rows before the rows of H.
    number : int
        The number of the iteration, from 0.
    near : aligned (N, K) or None
        The H' of a run, for a loss that is not convex in H.
    takes_products : bool
        Whether the step accepts the products of samples with W of `shared` as ``C=``.
    moves_coefficients : bool
        Whether H is extrapolated too. Coefficients that sum to one are not, because they are the
        best ones for the W of the pass.
    """

    knows_after: bool
    terms: tuple[Term | None, Term | None] = (None, None)
    aligned: tuple[Aligned, ...] = ()
    number: int = 0
    near: Aligned | None = None
    takes_products: bool = False
    moves_coefficients: bool = True

    def __init__(
        self,
        loss: Loss,
        V: DataMatrix,
        penalties: Penalties = NO_PENALTIES,
        n_fixed: int = 0,
        *,
        rescale: bool = True,
    ) -> None:
        require_data_matrix(V, nonzero=True, holes="missing" in loss.constraints)
        self.loss = loss
        self.V = V
        self.dtype = V.dtype
        self.penalties = penalties
        self.n_fixed = n_fixed
        F, N = V.shape
        is_free = rescale and penalties.are_none
        self.unit = nearby_power(V.norm / np.sqrt(F * N)) if is_free else 1.0
        self.total = loss.scale(V) / self.unit**loss.degree

    def is_blurred(self, error: float, fall: float, tol: float) -> bool:
        """Return whether an approximation no longer shows how the error falls.

        `fall` is the last relative decrease of the error, `tol` the decrease at which a run ends.
        """
        return True

    @staticmethod
    @abstractmethod
    def step(
        block: Block,
        *given: Array,
        update: Update,
        beta: float,
        floor: float,
        **shared: Any,
    ) -> Results:
        """Update the rows of H (n, K) of a block, and return them with the sums.

        `given` contains the rows of `aligned`, then those of H. If the rows of an earlier H follow
        as `before`, the new H is extrapolated by `beta` times the change from it, but not below
        `floor`. The result is then (H extrapolated, H as updated, sums) instead of (H, sums). The
        keyword arguments come from the method `shared`.
        """

    @abstractmethod
    def shared(self, W: Array) -> Facts:
        """Return what every block needs for a pass with W (F, K)."""

    def runs_as(self, solver: Solver) -> Solver:
        """Return the solver whose attributes the loop uses."""
        return solver

    def updates(self, solver: Solver, affordable_H: float, affordable_W: float) -> None:
        """Make the updates of a solver: `update_rows` for `step`, and the update for `update_W`.

        The sweeps of an update may cost at most as much as the products of a pass.
        """
        self.update_rows: Update = solver.update

    @abstractmethod
    def update_W(self, sums: Sums, W: Array, Ht: Aligned) -> Array:
        """Return W (F, K), updated from the sums and the H of a pass with W."""

    def extrapolate_W(self, W: Array, before: Array, share: float, floor: float) -> Array:
        """Return W (F, K) extrapolated by a share of the way from `before`, not below `floor`."""
        return extrapolated(W, before, share, floor)

    @abstractmethod
    def value(self, sums: Sums, W: Array, *, after: bool) -> float:
        """Return the loss of V / unit at the H of the sums, and W before or after the update."""

    @abstractmethod
    def finish(self, W: Array, *, sort: bool = True) -> Finish:
        """Return the exact H (K, N) for W, labels (N,), and the errors; one pass.

        Components are sorted by contribution, the largest first. Known components keep their
        positions; without `sort`, all do.
        """

    def objective(self, value: float) -> float:
        """Return the loss of V for a value of V / unit."""
        return value * self.unit**self.loss.degree

    def relative_error(self, value: float) -> float:
        """Return the relative error for a value; it does not depend on the scale of V."""
        return self.loss.relative_error(value, self.total)

    def scale_W(self, sums: Sums, W: Array) -> Array:
        """Return W times the factor that makes it best for the H of the sums."""
        return W

    @staticmethod
    def multiply(V: DataMatrix, factors: list[tuple[Aligned, Sums]]) -> None:
        """Prepare updates of W for several runs in one pass, given the new H and sums of each."""
        return
