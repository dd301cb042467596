"""What a loss is: a description of what it offers, and an objective that a run minimises.

A `Loss` has a name, solvers, the constraints that it supports, the names of its lower bounds and of
its evidence for the number of components, and its words. Everything outside this folder asks these,
never which loss it is. ``loss.on(V)`` is an `Objective`: the step on a block of samples, the sums
that it yields, the update of W from them, the value of the objective, and the exact H for a given
W. A run passes the sums from one method to the next, and a checkpoint saves them by name.
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

# What a pass sums over the samples, by name: arrays and numbers that a loss understands.
Sums: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Words:
    """How a result, its report and the command line name the numbers of a loss.

    Attributes
    ----------
    share : str
        The relative error as the label of an axis.
    of_runs : str
        The relative error of replicates.
    summary : str
        A template of the first sentence about a fit, with the fields `error` (relative),
        `objective`, `explained` (1 - the relative error) and `known` (which entries it is about).
    """

    share: str = "relative error"
    of_runs: str = "relative error"
    summary: str = "relative error {error:.4g}{known}"


class Loss(ABC):
    """What a fit minimises, and what it offers.

    Attributes
    ----------
    name, aliases : str, tuple of str
    help : str
        A few words for the command line.
    solvers : mapping
        By name; the first is that of "auto".
    constraints : frozenset of str
        What a fit may ask for: "l1", "l2", "orthogonality", "min_volume", "sum_to_one",
        "one factor" (a penalty on one factor alone), "fixed", "missing" (or weighted entries),
        "negative" entries, "sample weights", "stream", "zeros" and "sparse" data.
    degree : int
        Of homogeneity: D(cV | cX) = c^degree D(V | X). A sample of weight p is the sample times
        p^(1/degree), and the relative error is a share of the objective to the same power.
    lower_bounds : tuple of str
        Which `judge` can compute; none: "no lower bound is known for this loss".
    k_evidence : tuple of str
        What speaks for a number of components, which `judge` looks up.
    words : Words
    doubled : int
        Twice the divergence of scikit-learn is this many times the objective.
    """

    name: str
    aliases: Texts = ()
    help: str
    solvers: Mapping[str, Solver]
    constraints: frozenset[str] = frozenset()
    degree: int = 1
    lower_bounds: Texts = ()
    k_evidence: Texts = ()
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

        `unseen` says whether features that have entries but no component, if the loss cannot take
        them, are left out with a warning, or raise an error.
        """
        return self.on(V, penalties, rescale=False).finish(W, sort=False)[:3]

    @abstractmethod
    def scale(self, V: DataMatrix) -> float:
        """Return the loss to which the relative error is relative."""

    def solver(self, solver: str | Solver | Update) -> Solver:
        """Return the solver for the name or function that the user passes."""
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
        """Return V in the form in which runs read it."""
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
        """Return the factors from which a solver begins, by the name of an init or a user's own."""
        return initialize(V, K, init, solver, rng, **known)

    def inits(self, V: DataMatrix, K: int, solver: ChosenSolver) -> tuple[Init, ...]:
        """Return the inits of "auto": the first begins, the others compete where it may pay.

        Without others there is no race; see `race`.
        """
        return ("random",)

    def approximation(self, V: DataMatrix, K: int, spectrum: KnownSpectrum) -> Objective | None:
        """Return nearly the same objective, which costs less, for the first iterations of a run."""
        return None

    def lower_bound(self, V: DataMatrix, K: int, spectrum: Spectrum) -> float:
        """Return an estimate from below of the relative error of K components; 0 if unknown.

        It tells a race whether there is something to win.
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
        """Return the start from W, of which the first columns are given, with penalties.

        W has the scale that the penalties ask for, and its best H. Where the coefficients of a
        sample sum to one, those of the init are not used. With `warm`, W is that of a named init,
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
        """Return what known components W leave of V: max(V - W H, 0) with the best H."""
        return what_is_left(V, W)

    def warm_up(
        self, V: DataMatrix, views: Sequence[DataMatrix], starts: Sequence[Start]
    ) -> list[Start]:
        """Improve starts on views of V, before their runs begin, in passes that all share."""
        return list(starts)

    def measure(self, V: DataMatrix, views: Sequence[DataMatrix]) -> None:
        """Measure views of V in one pass, so that none has to make its own."""
        measure_together(V, views)

    def restored(self, W: Array, penalties: Penalties) -> Array:
        """Return W of the loop in the scale of a result."""
        return W

    def admissible(self, V: DataMatrix, W: Array) -> Array:
        """Return W, in the type of V, changed as little as makes its loss finite."""
        return np.ascontiguousarray(W, V.dtype)

    def held_out(self, V: DataMatrix, W: Array, weights: Array | None = None) -> float:
        """Return the share of V that is predicted from other features, at most 1."""
        raise NotAvailableError(
            "no score on held-out features is known for ", Option("loss", self.name)
        )

    def relative_error(self, value: float, scale: float) -> float:
        """Return the relative error of a value of the loss, given `scale`."""
        share = value / scale if scale else 0.0
        return math.sqrt(share) if self.degree == 2 else float(share)


class Objective(ABC):
    """The loss of V with its penalties, as a run sees it.

    A run factors V / unit, so that solvers which floor do so regardless of the scale of V.

    Attributes
    ----------
    loss : Loss
    V : DataMatrix (F, N)
    dtype : float64 or float32
        The type of the factors.
    penalties : Penalties
    n_fixed : int
        The first columns of W are known, and stay.
    unit : float
        A power of two; 1 with penalties, which see the factors as they are.
    total : float
        The value that counts as 1.
    terms : pair of Term or None
        The penalties of H and of W, in units of the value.
    knows_after : bool
        Whether the sums of a pass give the value at every W, so also at the one that is updated
        from them; otherwise only at the W that the pass was made with.
    aligned : tuple of arrays (N, ...)
        What the step needs of every sample, such as weights; it takes their rows before those of H.
    number : int
        Of the iteration, counted from 0.
    takes_products : bool
        Whether the step takes the products of samples with W of `shared` as ``C=``.
    moves_coefficients : bool
        Whether H is extrapolated too. Coefficients that sum to one are not: they are the best for
        the W of the pass.
    """

    knows_after: bool
    terms: tuple[Term | None, Term | None] = (None, None)
    aligned: tuple[Aligned, ...] = ()
    number: int = 0
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
        """Whether an approximation does not show any more how the error falls.

        `fall` is the share of the error by which it fell last, `tol` that with which a run ends.
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
        """Update the rows of H (n, K) that belong to a block, and return them with the sums.

        `given` are the rows of `aligned`, then those of H. If those of H `before` follow, the new H
        is moved further by `beta` times the way from there, down to `floor` at most, and the
        result is (H moved, H as updated, sums) instead of (H, sums). `shared` is what `shared`
        returns.
        """

    @abstractmethod
    def shared(self, W: Array) -> Facts:
        """Return what every block needs for a pass with W (F, K)."""

    def runs_as(self, solver: Solver) -> Solver:
        """Return the solver by whose attributes the loop runs."""
        return solver

    def updates(self, solver: Solver, affordable_H: float, affordable_W: float) -> None:
        """Make the updates by a solver: `update_rows` of H, for `step`, and that of `update_W`.

        Sweeps are affordable that cost no more than the products of a pass.
        """
        self.update_rows: Update = solver.update

    @abstractmethod
    def update_W(self, sums: Sums, W: Array, Ht: Aligned) -> Array:
        """Return W (F, K) updated from the sums of a pass that was made with it, and its H."""

    def extrapolate_W(self, W: Array, before: Array, share: float, floor: float) -> Array:
        """Return W (F, K) moved on by a share of the way from `before`, down to `floor` at most."""
        return extrapolated(W, before, share, floor)

    @abstractmethod
    def value(self, sums: Sums, W: Array, *, after: bool) -> float:
        """Return the loss of V / unit at the H of the sums and a W: of the pass, or updated."""

    @abstractmethod
    def finish(self, W: Array, *, sort: bool = True) -> Finish:
        """Return the exact H (K, N) for W, labels (N,), and how good the two are; one pass.

        Components are sorted by what they contribute, the largest first; known ones, and all
        without `sort`, stay where they are.
        """

    def objective(self, value: float) -> float:
        """Return the loss of V itself for a value of V / unit."""
        return value * self.unit**self.loss.degree

    def relative_error(self, value: float) -> float:
        """Return a function of the value that does not depend on the scale of V."""
        return self.loss.relative_error(value, self.total)

    def scale_W(self, sums: Sums, W: Array) -> Array:
        """Return W times the number that makes it best for the H of the sums."""
        return W

    @staticmethod
    def multiply(V: DataMatrix, factors: list[tuple[Aligned, Sums]]) -> None:
        """Prepare updates of W of several runs in one pass; each has its new H and its sums."""
        return
