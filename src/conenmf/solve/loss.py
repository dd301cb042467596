"""The interface of losses: a `Loss` describes its features, an `Objective` is what a run minimises.

A `Loss` has a name, solvers, supported constraints, the names of its lower bounds and of its
evidence for the number of components, and its words. All code outside this folder uses these
attributes and does not test for a certain loss. ``loss.on(V)`` is an `Objective`. It provides the
step on a block of samples with its sums, the update of W from the sums, the value of the objective,
and the exact H for a given W. A run passes the sums from one method to the next, and a checkpoint
saves them by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.linalg import norm

from .. import kernels
from ..arguments import choice
from ..data.blocks import Block, exact
from ..data.entries import EntryWeights
from ..data.groups import Groups, sums_by
from ..data.known import as_repeated, observed_only
from ..data.matrix import Aligned, DataMatrix, Results
from ..data.validate import require_data_matrix, require_nonnegative
from ..data.views import measure_together
from ..errors import NotAvailableError, Option, OptionError
from ..linalg.svd import KnownSpectrum
from ..types import Array, DType, Texts
from .certificate import AnyCertificate
from .coefficients import Finish, nearby_power
from .constraints import NO_PENALTIES, Penalties, Term
from .dual_bound import LowerBound
from .inits import Generator, Init, Start, initialize
from .solvers import ChosenSolver, Solver, Update

_RIDGE = 1e-9  # of the mean of the diagonal: curvatures may be singular

# The sums of a pass over the samples, and what all its blocks share: both are NamedTuples.
SumsT = TypeVar("SumsT", bound=NamedTuple)
SharedT = TypeVar("SharedT", bound=NamedTuple)


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
    help : str
        A short description for the command line.
    aliases : tuple of str
        Other names of the loss.
    advised : str
        The loss to use for what this one does not support.
    """

    share: str = "relative error"
    of_runs: str = "relative error"
    summary: str = "relative error {error:.4g}{known}"
    help: str = ""
    aliases: Texts = ()
    advised: str = "frobenius"


class Noise(NamedTuple):
    """How counts vary around their means.

    Attributes
    ----------
    dispersion : float
        phi in the variance x + phi x^2 of a count with the mean x.
    weights : array (N, F) or None
        1 / (1 + phi x); None if phi is 0, and for large data.
    """

    dispersion: float = 0.0
    weights: Array | None = None

    def weighed(self, V: DataMatrix) -> DataMatrix:
        """Return V, or a matrix of its shape, with the weights of its entries."""
        if self.weights is None:
            return V
        return observed_only(as_repeated(V), weights=self.weights)


@dataclass(frozen=True, eq=False)
class Bounds(ABC):
    """What is proved about the factors of V by a loss.

    Attributes
    ----------
    loss : Loss
    V : DataMatrix (F, N)
    spectrum : Spectrum or None
        The spectrum of V, if it is known.
    """

    loss: Loss
    V: DataMatrix
    spectrum: KnownSpectrum = None

    @property
    @abstractmethod
    def effort(self) -> int:
        """The default number of steps that raise a bound."""

    @abstractmethod
    def below(self, K: int, effort: int, known: Array | None = None) -> LowerBound:
        """Bound the relative error of K components; the columns of `known` may be among them."""

    @abstractmethod
    def certify(
        self,
        W: Array,
        H: Aligned,
        effort: int,
        *,
        n_fixed: int = 0,
        penalties: Penalties = NO_PENALTIES,
    ) -> AnyCertificate:
        """Return the certificate of factors W (F, K) and H (K, N), the first columns known."""

    @abstractmethod
    def first(self, relative_error: float, kkt_residual: float, K: int) -> AnyCertificate | None:
        """Return the certificate that a fit has without more work; None if it has none."""

    @abstractmethod
    def objective(self, W: Array, H: Aligned, penalties: Penalties) -> float:
        """Return a lower bound of the objective for factors as large as W and H."""

    @abstractmethod
    def estimate(self, K: int) -> float:
        """Estimate a lower bound of the relative error of K components; 0 if unknown.

        A race uses it to decide whether a better init may help.
        """


class Loss(ABC):
    """A loss that a fit can minimise, and its features.

    Attributes
    ----------
    name : str
    solvers : mapping
        Solvers by name; "auto" uses the first.
    constraints : frozenset of str
        Options that the loss supports: "l1", "l2", "orthogonality", "min_volume", "sum_to_one",
        "one factor" (a penalty on one factor alone), "fixed", "groups" of samples, "missing" (or
        weighted entries), "negative" entries, "sample weights", "resampling" of samples, "sigma"
        (uncertainties of entries, so that the loss is Q), "robust" fits, "symmetric" factors,
        "stream" and "sparse" data.
    degree : int
        Degree of homogeneity: D(cV | cX) = c^degree D(V | X). A sample of weight p is equivalent to
        the sample times p^(1/degree), and the relative error is a share of the objective to the
        same power. With 0, weights are whole numbers, and runs keep the units of V.
    words : Words
    noise : Noise or None
        The counting noise that the loss assumes. Entries with this noise cannot be rescaled.
    """

    name: str
    solvers: Mapping[str, Solver]
    constraints: frozenset[str] = frozenset()
    degree: int = 1
    words: Words = Words()
    noise: Noise | None = None

    @abstractmethod
    def on(
        self,
        V: DataMatrix,
        penalties: Penalties = NO_PENALTIES,
        n_fixed: int = 0,
        *,
        rescale: bool = True,
        groups: Groups | None = None,
    ) -> AnyObjective:
        """Return the objective for factors of V, with penalties, known components and groups."""

    def coefficients(
        self,
        V: DataMatrix,
        W: Array,
        penalties: Penalties = NO_PENALTIES,
        unseen: str = "warn",
        groups: Groups | None = None,
    ) -> tuple[Aligned, Aligned, float]:
        """Return the best H (K, N) for W, labels (N,) and the loss without penalties; one pass.

        Features may have entries although all components are zero there. If the loss does not allow
        this, `unseen` says whether to "warn" that they are left out, to "raise" an error, or to
        "ignore" it.
        """
        return self.on(V, penalties, rescale=False, groups=groups).finish(W, sort=False)[:3]

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
                other = Option("loss", self.words.advised)
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

    def approximation(self, V: DataMatrix, K: int, spectrum: KnownSpectrum) -> AnyObjective | None:
        """Return a similar objective that costs less, for the first iterations of a run."""
        return None

    def bounds(self, V: DataMatrix, spectrum: KnownSpectrum = None) -> Bounds | None:
        """Return what is proved about factors of V; None if no lower bound is known."""
        return None

    def near(self, H: Aligned) -> Aligned | None:
        """Return the H' (N, K) of a run for `Objective.finish`; None if W alone determines H.

        A loss that is not convex in H keeps these coefficients where they are better.
        """
        return None

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


class Move(NamedTuple):
    """How a pass moves H: by an update, and further by a share of the last change.

    Attributes
    ----------
    update : callable
    share : float
        H is extrapolated by this share of the way from the H before; 0 for none.
    floor : float
        No entry is extrapolated below this ...
    kept : float
        ... or, for a loss that allows no zeros, below this share of itself.
    """

    update: Update
    share: float = 0.0
    floor: float = 0.0
    kept: float = 0.0

    def extrapolate(self, Y: Array, before: Array | None) -> Array:
        """Return Y (n, K) extrapolated, if the rows before are known."""
        if before is None or not self.share:
            return Y
        kind = Y.dtype.type
        share = kind(self.share)
        floor = kind(self.floor)
        if self.kept or not kernels.AVAILABLE:
            lowest = kind(self.kept) * Y if self.kept else floor
            return np.maximum(Y + share * (Y - before), lowest)
        moved = np.empty_like(Y)
        kernels.extrapolate_rows(Y, before, share, floor, moved)
        return moved


class Rows(NamedTuple):
    """The rows of a block of samples that a step gets.

    Attributes
    ----------
    own : tuple of arrays (n, ...)
        The rows of `Objective.aligned`.
    H : array (n, K)
    before : array (n, K) or None
        The H before the last update, if H is extrapolated.
    codes : array (n,) or None
        The groups of the samples, if they matter.
    """

    own: tuple[Array, ...]
    H: Array
    before: Array | None = None
    codes: Array | None = None

    @property
    def weights(self) -> EntryWeights:
        """The weights of entries, for an objective whose only array they are; None without."""
        return self.own[0] if self.own else None


class Stepped(NamedTuple, Generic[SumsT]):
    """The result of a step: H (n, K) extrapolated, H as updated, and the sums over the block."""

    H: Array
    updated: Array
    sums: SumsT


class Updates(NamedTuple):
    """The updates of a solver, with penalties and known components.

    Attributes
    ----------
    solver : Solver
        The solver whose attributes the loop uses.
    H : callable
        The update of rows of H.
    near : callable
        ``near(W)`` is the update of rows of W near this W.
    scale : callable or None
        ``scale(sums, W)`` is W times the factor that makes it best for the H of the sums, if the
        solver asks for it before the first iteration.
    kept : float
        The share of itself that extrapolation leaves of every entry at least.
    """

    solver: Solver
    H: Update
    near: Callable[[Array], Update]
    scale: Callable[[Any, Array], Array] | None = None
    kept: float = 0.0


class Updated(NamedTuple):
    """W (F, K) after its update, and the value of the objective that a pass has shown.

    Attributes
    ----------
    W : array (F, K)
    value : float
        The value at this W if the sums show it there, otherwise at the W of the pass.
    gram : array (K, K) or None
        W'W, if the update has computed it.
    """

    W: Array
    value: float
    gram: Array | None = None


class Objective(ABC, Generic[SumsT, SharedT]):
    """The loss of V with its penalties, as a run uses it.

    A run factors V / unit, so solvers that floor do not depend on the scale of V. An objective
    declares two frozen types: its `Sums` of a pass, and what every block shares in a pass.

    Attributes
    ----------
    Sums : type
        The type of the sums of a pass; checkpoints save them by the names of its fields.
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
    aligned : tuple of arrays (N, ...)
        Arrays that the step needs, such as weights.
    turned : DataMatrix or None
        The transposed V, if W is updated by the step for samples on it.
    takes_products : bool
        Whether the step and `update_W` accept the products of V with the given factor as C.
    groups : Groups or None
        The groups of samples with their scales and table; None if they change nothing.
    codes : tuple of arrays (N,)
        The group of each sample, if the step needs it.
    """

    Sums: type[SumsT]
    loss: Loss
    V: DataMatrix
    dtype: DType
    penalties: Penalties
    n_fixed: int
    unit: float
    total: float
    _terms: tuple[Term | None, Term | None] = (None, None)  # penalties of H and W, as values
    aligned: tuple[Aligned, ...] = ()
    turned: DataMatrix | None = None
    takes_products: bool = False
    groups: Groups | None = None
    codes: tuple[Aligned, ...] = ()

    def __init__(
        self,
        loss: Loss,
        V: DataMatrix,
        penalties: Penalties = NO_PENALTIES,
        n_fixed: int = 0,
        *,
        rescale: bool = True,
        groups: Groups | None = None,
    ) -> None:
        require_data_matrix(V, nonzero=True, holes="missing" in loss.constraints)
        self.loss = loss
        self.V = V
        self.dtype = V.dtype
        self.penalties = penalties
        self.n_fixed = n_fixed
        self.groups = None if groups is None or groups.are_neutral else groups
        F, N = V.shape
        is_free = rescale and penalties.are_none
        self.unit = nearby_power(V.norm / np.sqrt(F * N)) if is_free else 1.0
        self.total = self._largest_value() / self.unit**loss.degree

    @staticmethod
    @abstractmethod
    def step(
        block: Block, rows: Rows, shared: SharedT, move: Move, C: Array | None = None
    ) -> Stepped[SumsT]:
        """Update the rows of H of a block; return them, extrapolated, with the sums at them."""

    @abstractmethod
    def shared(self, W: Array, number: int = 0, gram: Array | None = None) -> SharedT:
        """Return what every block needs for a pass with W (F, K).

        Parameters
        ----------
        W : array (F, K)
        number : int
            The number of the iteration, from 0.
        gram : array (K, K), optional
            W'W, if the update that returned W has computed it.
        """

    def updates(self, solver: Solver, affordable_H: float, affordable_W: float) -> Updates:
        """Return the updates of a solver.

        The sweeps of an update may cost at most as much as the products of a pass.
        """
        return Updates(solver, solver.update, lambda W: solver.update)

    @abstractmethod
    def update_W(
        self,
        sums: SumsT,
        shared: SharedT | None,
        W: Array,
        Ht: Aligned,
        update: Update,
        C: Array | None = None,
    ) -> Updated:
        """Return W (F, K), updated from the sums and the H of a pass, and the value.

        Parameters
        ----------
        sums : Sums
        shared : Shared or None
            That of the pass, or None if W has changed since.
        W : array (F, K)
        Ht : aligned (N, K)
        update : callable
        C : array (F, K), optional
            V H', if it was computed for several runs at once.
        """

    @abstractmethod
    def value(self, sums: SumsT, W: Array, Ht: Aligned) -> float:
        """Return the objective of V / unit at the W and the H of a pass."""

    @abstractmethod
    def finish(self, W: Array, *, sort: bool = True, near: Aligned | None = None) -> Finish:
        """Return the exact H (K, N) for W, labels (N,), and the errors; one pass.

        Components are sorted by contribution, the largest first. Known components keep their
        positions; without `sort`, all do. A loss that is not convex in H may keep the H' of a run
        that is `near` where it is better.
        """

    def support(self, W: Array, Ht: Aligned, codes: Aligned, count: int) -> Array:
        """Return how strongly each group of samples supports each component, (2, count, K).

        These are the sums, over the samples of the group, of h^2 / [A^-1]_kk / 2 and of its square.
        A is the curvature of the loss of a sample, so this is by how much the loss rises, to second
        order, if the sample does not use the component.

        Parameters
        ----------
        W : array (F, K)
        Ht : aligned (N, K)
        codes : array (N,), integers
        count : int
            The number of groups.
        """
        G = exact(W).T @ exact(W)
        strength = 1 / np.diagonal(inverse_of(G))
        (sums,) = self.V.map(_sum_fourth, Ht, codes, strength=strength, count=count)
        return np.asarray(sums)

    def is_blurred(self, error: float, fall: float, tol: float, n_iter: int) -> bool:
        """Return whether an approximation no longer shows how the error falls.

        `fall` is the last relative decrease of the error, `tol` the decrease at which a run ends.
        """
        return True

    def relative_error(self, value: float) -> float:
        """Return the relative error for a value; it does not depend on the scale of V."""
        return float(value / self.total) if self.total else 0.0

    def deviance(self, relative_error: float) -> float:
        """Return twice the divergence of scikit-learn for a relative error."""
        return 2 * relative_error * self.total

    @abstractmethod
    def _largest_value(self) -> float:
        """Return the loss of V that corresponds to a relative error of 1."""

    def _penalised(self, value: float, W: Array, Ht: Aligned) -> float:
        """Return a value of the loss with the penalties of both factors."""
        of_H, of_W = self._terms
        if of_W is not None:
            value += of_W.value(W)
        if of_H is not None:
            value += float(self.V.map(lambda _, rows: (of_H.value(rows),), Ht)[0])
        return value


def inverse_of(A: Array) -> Array:
    """Return the inverse of symmetric matrices (..., K, K), which may be singular."""
    K = A.shape[-1]
    size = np.trace(A, axis1=-2, axis2=-1)[..., None, None] / K
    ridge = _RIDGE * np.where(size > 0, size, 1.0) * np.eye(K)
    return np.asarray(np.linalg.inv(A + ridge))


def _sum_fourth(
    index: range, H: Array, codes: Array, *, strength: Array, count: int
) -> tuple[Array]:
    gains = exact(H) ** 2 * strength
    return (np.array([sums_by(codes, one, count) for one in (gains, gains**2)]),)


# The objective of any loss.
AnyObjective: TypeAlias = Objective[Any, Any]


def step_of_run(
    block: Block,
    *arrays: Array,
    objective: type[AnyObjective],
    n_own: int,
    shared: NamedTuple,
    move: Move,
    C: Array | None = None,
    has_codes: bool = False,
) -> Results:
    """Step of a run: that of an objective, with its rows by name."""
    codes = arrays[n_own] if has_codes else None
    H, *before = arrays[n_own + has_codes :]
    rows = Rows(arrays[:n_own], H, before[0] if before else None, codes)
    H, updated, sums = objective.step(block, rows, shared, move, C)
    return (H, updated, sums) if before else (H, sums)
