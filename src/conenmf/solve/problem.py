"""A problem: everything except V that the objective of a fit depends on.

It contains the loss, penalties, known components, and what is known of the entries. A fit makes it
once and saves it with the result; whatever judges the fit asks it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.random import default_rng
from numpy.typing import ArrayLike

from ..arguments import flag, instance
from ..data.groups import Groups
from ..data.imputation import fill_missing
from ..data.known import without_unit
from ..data.matrix import Aligned, DataMatrix
from ..data.views import times_features
from ..errors import ComponentsError, NotAvailableError, Option, OptionError
from ..linalg.svd import KnownSpectrum
from ..text import counted
from ..types import Array, Facts, Texts
from .coefficients import Finish, require_finite, what_is_left
from .constraints import NO_PENALTIES, Fixed, Penalties
from .inits import Generator, Init, Start
from .losses import Loss, Objective, get_loss
from .run import Callback
from .scenes import ENDMEMBERS
from .simplex import simplex, volume_weight
from .solvers import ChosenSolver
from .symmetric import check_graph, finish_symmetric


@dataclass(frozen=True)
class Entries:
    """What is known of the entries of V.

    Attributes
    ----------
    missing : float
        The share of entries that are missing.
    is_weighted : bool
        Whether known entries have other weights than 1.
    is_signed : bool
        Whether V has negative entries, which are then noise.
    """

    missing: float = 0.0
    is_weighted: bool = False
    is_signed: bool = False

    @property
    def are_whole(self) -> bool:
        """Whether all entries are known, with equal weights."""
        return not (self.missing or self.is_weighted)

    def of(self, V: DataMatrix) -> Entries:
        """Return what is known of the entries of V, which has the signs of these."""
        if V.observed is None:
            return Entries(is_signed=self.is_signed)
        return Entries(V.observed.missing, not V.observed.is_mask, self.is_signed)


ALL_KNOWN = Entries()
# What is known of graphs as well.
_OF_GRAPHS = ("certify", "objective_bound", "residuals", "a judgement on other samples")


@dataclass(frozen=True, init=False, eq=False)
class Problem:
    """What a fit minimises.

    Parameters
    ----------
    loss : str, float or Loss
        The loss, as in `factorize`.
    penalties : Penalties, optional
        What is added to the loss, or the constraint that coefficients sum to one.
    fixed : array or data frame (F, n), optional
        Known components as columns, in the units of V. They come first and do not change. The rows
        of a data frame are matched with the features of V by name.
    entries : Entries
        What is known of the entries of V; functions that get V find it out themselves.
    groups : array (N,) or Groups, optional
        The group of each sample, such as its donor. A fit estimates what is different in each.
    symmetric : bool
        Whether H = S W' with a symmetric S; see `symmetric`. Only fits and `certify` take such a
        problem.

    Attributes
    ----------
    loss : Loss
    penalties : Penalties
    fixed : Fixed or None
    entries : Entries
    groups : Groups or None
        `bind` reads labels.
    symmetric : bool

    Examples
    --------
    How stable are components whose entries are mostly zero?

    >>> from conenmf import Problem, from_rows, stability
    >>> from conenmf.solve.constraints import Penalties
    >>> rng = np.random.default_rng(0)
    >>> V = from_rows(np.kron(np.eye(3), np.ones((9, 4))) * rng.random((27, 12)))
    >>> sparse = Problem(penalties=Penalties(l1_w=0.01, l2_h=0.01))
    >>> stability(V, 3, 6, problem=sparse).verdict
    'stable'
    """

    loss: Loss
    penalties: Penalties
    fixed: Fixed | None
    entries: Entries
    groups: Any
    symmetric: bool

    def __init__(
        self,
        loss: str | float | Loss = "frobenius",
        penalties: Penalties | None = None,
        fixed: Fixed | ArrayLike | None = None,
        entries: Entries = ALL_KNOWN,
        groups: Groups | ArrayLike | None = None,
        symmetric: bool = False,
    ) -> None:
        penalties = NO_PENALTIES if penalties is None else penalties
        if fixed is not None and not isinstance(fixed, Fixed):
            fixed = Fixed(fixed)  # type: ignore[arg-type]
        vars(self).update(
            loss=get_loss(loss),
            penalties=instance("penalties", penalties, Penalties),
            fixed=fixed,
            entries=instance("entries", entries, Entries),
            groups=groups,
            symmetric=flag("symmetric", symmetric),
        )

    def __getstate__(self) -> Facts:
        """Keep the name of a loss of the library, which is one object wherever it is used."""
        with suppress(OptionError):
            if get_loss(self.loss.name) is self.loss:
                return {**vars(self), "loss": self.loss.name}
        return dict(vars(self))

    def __setstate__(self, state: Facts) -> None:
        vars(self).update(state, loss=get_loss(state["loss"]))

    def bind(self, V: DataMatrix, solver: ChosenSolver = None) -> Problem:
        """Return the problem for V, after checks against V, the solver and the loss.

        Parameters
        ----------
        V : DataMatrix (F, N)
        solver : Solver or None
        """
        if self.symmetric:
            check_graph(V, self)
        self.loss.check(V, solver, self.penalties, self.fixed)
        fixed = None if self.fixed is None else self.fixed.bind(V)
        entries = Entries(is_signed=V.measures.lowest < 0).of(V)
        groups = None if self.groups is None else Groups.of(self.groups, V)
        if groups is not None:
            self._check_groups()
        return Problem(self.loss, self.penalties, fixed, entries, groups, self.symmetric)

    def _check_groups(self) -> None:
        """Raise an error for options that make no sense with groups."""
        option = Option("groups")
        if "groups" not in self.loss.constraints:
            other = Option("loss", "frobenius")
            asked = Option("loss", self.loss.name)
            raise OptionError(asked, " takes no groups: use ", other, " or 'poisson'")
        if self.penalties.sum_to_one:
            problem = " need coefficients of any size, because groups differ in scale: leave out "
            raise OptionError(option, problem, Option("sum_to_one"))

    @property
    def n_fixed(self) -> int:
        """The number of known components."""
        return 0 if self.fixed is None else self.fixed.W.shape[1]

    @property
    def is_free(self) -> bool:
        """Whether there are no penalties, constraints or known components."""
        return self.fixed is None and self.penalties.are_none

    @property
    def is_plain(self) -> bool:
        """Whether all entries of V have equal weight, without known components or penalties."""
        return self.is_free and self.entries == ALL_KNOWN and not self.has_effects

    @property
    def has_effects(self) -> bool:
        """Whether groups differ in scales or in the components that they use."""
        return isinstance(self.groups, Groups) and not self.groups.are_neutral

    @property
    def _effects(self) -> Groups | None:
        return self.groups if self.has_effects else None

    def require_two_factors(self, what: str) -> None:
        """Raise an error if H = S W', because `what` changes one of W and H alone.

        Parameters
        ----------
        what : str
        """
        if self.symmetric:
            raise NotAvailableError(
                f"{what} not available with ",
                Option("symmetric", True),
                ", whose two factors depend on each other, and a node has edges to all others: "
                "fit without symmetric",
            )

    def require_no_effects(self, what: str) -> None:
        """Raise an error if samples differ by groups, or form a graph, which `what` does not know.

        Parameters
        ----------
        what : str
        """
        if what not in _OF_GRAPHS:
            self.require_two_factors(f"{what} is")
        are_same = isinstance(self.groups, Groups) and self.groups.scales is not None
        if self.groups is not None and (self.has_effects or not are_same):
            raise NotAvailableError(
                f"{what} is not available for a fit with groups, because the scales and the table "
                "of the groups change what is true of the components: fit without ",
                Option("groups"),
                ", or fit each group alone",
            )

    def scaled(self, share: float) -> Problem:
        """Return the problem for a share of the samples, beside which penalties weigh as much.

        Parameters
        ----------
        share : float
        """
        given = self.penalties
        penalties = replace(given, l1_w=share * given.l1_w, l2_w=share * given.l2_w)
        return replace(self, penalties=penalties)

    def iterated(self, V: DataMatrix) -> tuple[DataMatrix, Problem]:
        """Return the data and the problem of a run; equal weights matter only with penalties.

        Parameters
        ----------
        V : DataMatrix (F, N)
        """
        problem = self
        if V.observed is not None and self.penalties.are_none:
            V = without_unit(V)
            problem = replace(self, entries=self.entries.of(V))
        return self.loss.data(V), problem

    def objective(self, V: DataMatrix, *, rescale: bool = True) -> Objective:
        """Return the objective for factors of V.

        Parameters
        ----------
        V : DataMatrix (F, N)
        rescale : bool
            Whether the factors may be those of V divided by a unit.
        """
        groups = self._effects
        return self.loss.on(V, self.penalties, self.n_fixed, rescale=rescale, groups=groups)

    def finish(
        self, V: DataMatrix, W: Array, *, sort: bool, near: Aligned | None = None
    ) -> tuple[Finish, float]:
        """Return the exact end of a fit with W, and its relative error.

        `near` is the H' of the run, which matters only if the loss is not convex in H.
        If V is a view of weighted samples, the coefficients are those of the original samples,
        which do not depend on weights; one more pass.

        Parameters
        ----------
        V : DataMatrix (F, N)
        W : array (F, K)
        sort : bool
            Whether components are sorted by their contribution.
        near : array (N, K), optional
        """
        objective = self.objective(V, rescale=False)
        if self.symmetric:
            end = finish_symmetric(V, W, sort=sort)
        else:
            end = objective.finish(W, sort=sort, near=near)
        plain = self.loss.on(V, rescale=False) if self.has_effects else objective
        error = plain.relative_error(end.squared_error)
        if V.unweighed is not None:
            V = V.unweighed.V
            problem = self
            if self.groups is not None:
                problem = replace(self, groups=self.groups.sorted(end.order))
            own = problem.objective(V, rescale=False)
            again = own.finish(W[:, end.order], sort=False)
            end = end._replace(H=again.H, labels=again.labels)
        require_finite(V, W, end.H, end.objective)
        return end, error

    def of_components(self, V: DataMatrix, W: Array) -> Problem:
        """Return the problem for other data V, and the components W (F, K) of a fit.

        Parameters
        ----------
        V : DataMatrix (F, N)
        W : array (F, K)
        """
        fixed = None if self.fixed is None else Fixed(W[:, : self.n_fixed], self.fixed.names)
        return Problem(self.loss, self.penalties, fixed, symmetric=self.symmetric).bind(V)

    def restored(self, W: Array) -> Array:
        """Return W of a run with the known components exactly as given.

        Parameters
        ----------
        W : array (F, K)
        """
        W = self.loss.restored(W, self.penalties)
        return W if self.fixed is None else self.fixed.put_into(W)

    def inits(self, V: DataMatrix, K: int, solver: ChosenSolver) -> tuple[Init, ...]:
        """Return the inits of "auto" for the components that are not known.

        Coefficients that sum to one need components in the units of V, such as samples, or the
        vertices of a small simplex if there is a volume penalty.

        Parameters
        ----------
        V : DataMatrix (F, N)
        K : int
        solver : Solver or None
        """
        if self.penalties.sum_to_one:
            is_simplex = self.penalties.min_volume and self.fixed is None and V.observed is None
            return ("simplex" if is_simplex and K <= min(V.shape) else "snpa",)
        inits = self.loss.inits(V, K - self.n_fixed, solver)
        return inits if self.fixed is None or isinstance(inits[0], str) else ("random",)

    def begin(
        self,
        V: DataMatrix,
        K: int,
        init: Init,
        solver: ChosenSolver,
        rng: Generator,
        spectrum: KnownSpectrum = None,
        callback: Callback | None = None,
    ) -> Start:
        """Return the start of the solver; during a race of inits the callback is called.

        Parameters
        ----------
        V : DataMatrix (F, N)
        K : int
        init : str, callable or arrays
        solver : Solver or None
        rng : numpy.random.Generator or None
        spectrum : Spectrum, optional
            The spectrum of V, if it is complete.
        callback : callable, optional
        """
        if self.is_plain:
            return self._begin(V, K, init, solver, rng, spectrum, callback)
        loss = self.loss
        is_named = isinstance(init, str)
        source = fill_missing(V)
        count = K
        roots = np.ones(V.n_features)
        weights = None if V.observed is None else V.observed.of_features
        if weights is not None and loss.noise is None and (is_named or callable(init)):
            roots = np.sqrt(weights)  # scaling by them gives each feature its weight
            source = times_features(source, roots.astype(V.dtype))
        vertices = None  # known ones, if the init finds the others together with them
        if self.fixed is not None and is_named:
            given = self.fixed.W * roots[:, None]
            if init in ENDMEMBERS and K > self.n_fixed:
                vertices = given
            else:
                H = loss.coefficients(source, given, unseen="ignore")[0]
                source = what_is_left(source, given, H)
                count = K - self.n_fixed
        if count and source.nonzero:
            begun = self._begin(source, count, init, solver, rng, vertices=vertices)
            units = np.where(roots > 0, roots, np.inf).astype(begun.W.dtype)
            W = begun.W / units[:, None]  # back to the units of the features
        else:  # all components are known, or the known ones explain all of V
            W = default_rng(rng).random((V.n_features, count)).astype(V.dtype)
            begun = Start(W, None, "fixed")
        if self.fixed is not None:
            W = np.hstack([self.fixed.W.astype(V.dtype), W[:, count - (K - self.n_fixed) :]])
        own = begun.H if isinstance(init, tuple) else None
        is_warm = is_named and solver is not None and solver.extrapolate
        more = (solver, self.penalties, self.n_fixed)
        start = loss.begin(V, K, W, own, *more, warm=is_warm)
        if self.groups is not None and start.H is None:  # with known components alone
            start = start._replace(H=loss.coefficients(V, start.W, unseen="ignore")[0])
        return begun._replace(W=start.W, H=start.H)

    def _begin(
        self,
        V: DataMatrix,
        K: int,
        init: Init,
        solver: ChosenSolver,
        rng: Generator,
        spectrum: KnownSpectrum = None,
        callback: Callback | None = None,
        vertices: Array | None = None,
    ) -> Start:
        """Return the start of an unrestricted fit."""
        if vertices is not None or (self.penalties.sum_to_one and init == "scene"):
            found = ENDMEMBERS[str(init)](V, K, known=vertices, spectrum=spectrum)
            is_shaded = found.is_shaded and solver is None
            return Start(found.W, None, found.model, found.reason, is_shaded)
        own = solver if self.is_plain else None
        if isinstance(init, str) and init == "auto":  # the loss chooses
            return self.loss.initialize(V, K, init, own, rng, callback=callback)
        start = self.loss.initialize(V, K, init, own, rng, spectrum=spectrum)
        if isinstance(init, str) and solver is not None and solver.extrapolate:
            (start,) = self.loss.warm_up(V, [V], [start])
        return start

    def weighed(self, start: Start, spectrum: KnownSpectrum) -> Problem:
        """Return the problem with what only the start decides: the volume weight, and the sums.

        If the brightness of pixels varies, coefficients need not sum to one. Then "auto" is
        replaced by a volume weight that depends on V.

        With uniform abundances and white noise of variance s^2, ||V - WH||^2 + N s^2 log det(W'W)
        is the negative log-likelihood, up to a factor and a constant. s^2 is estimated from the
        largest singular value of the residual of K components. In real data noise is larger along
        some directions, and the volume penalty must resist these.

        Abundances may not be uniform. If they sum to one, the weight is chosen so that the simplex
        of largest likelihood has the right size.

        Parameters
        ----------
        start : Start
        spectrum : Spectrum or None
        """
        penalties = self.penalties
        if start.is_shaded:
            return replace(self, penalties=replace(penalties, sum_to_one=False))
        if not isinstance(penalties.min_volume, str):
            return self
        if spectrum is None:
            raise OptionError(
                Option("min_volume", "auto"), " is for complete data: give a number, such as 1e-5"
            )
        V = spectrum.V
        K = start.W.shape[1]
        if penalties.sum_to_one and K > 1:
            W = start.W if start.name == "simplex" else simplex(V, K, spectrum=spectrum)
            weight = volume_weight(V, W)
        else:
            weight = spectrum.noise(K) * V.n_samples / V.total
        return replace(self, penalties=replace(penalties, min_volume=weight))

    def lower_bound(self, V: DataMatrix, K: int, spectrum: KnownSpectrum) -> float:
        """Estimate a lower bound of the relative error of K components; 0 if unknown.

        Parameters
        ----------
        V : DataMatrix (F, N)
        K : int
        spectrum : Spectrum or None
        """
        bounds = self.loss.bounds(V, spectrum) if self.is_plain else None
        return 0.0 if bounds is None else bounds.estimate(K)

    def coefficients(
        self,
        V: DataMatrix,
        W: Array,
        *,
        near: Aligned | None = None,
        unseen: str = "warn",
    ) -> tuple[Aligned, Aligned, float]:
        """Return the best H (K, N) for W, labels (N,), and the loss without penalties.

        `near` is as in `finish`, `unseen` as in `Loss.coefficients`.

        Parameters
        ----------
        V : DataMatrix (F, N)
        W : array (F, K)
        near : array (N, K), optional
        unseen : str
        """
        if near is None or self.has_effects:
            return self.loss.coefficients(V, W, self.penalties, unseen, self._effects)
        objective = self.objective(V, rescale=False)
        return objective.finish(W, sort=False, near=near)[:3]

    def plain(self) -> Facts:
        """Return the problem in plain values, except for the entries of known components."""
        return {
            "loss": self.loss.name,
            "penalties": self.penalties.plain(),
            "fixed": None if self.fixed is None else self.fixed.plain(),
            "entries": asdict(self.entries),
            "symmetric": self.symmetric,
        }

    @classmethod
    def of_plain(
        cls,
        plain: Facts,
        W: Array,
        features: Texts | None = None,
        groups: Groups | None = None,
    ) -> Problem:
        """Return the problem of plain values and the components W (F, K) of its fit.

        Parameters
        ----------
        plain : dict
        W : array (F, K)
        features : tuple of str, optional
            The names of the features.
        groups : Groups, optional
            The groups of its samples.
        """
        fixed = plain["fixed"]
        if fixed is not None:
            fixed = Fixed(W[:, : fixed["count"]], fixed["names"], features)
        penalties = Penalties.of_plain(plain["penalties"])
        entries = Entries(**plain["entries"])
        return cls(plain["loss"], penalties, fixed, entries, groups, plain["symmetric"])


def problem_of(problem: Problem | None, loss: str, what: str) -> Problem:
    """Return what a caller says of a fit: its problem, or its loss alone.

    Raise an error if groups differ, which no judge knows; `what` is the name of the judge.
    """
    if problem is None:
        return Problem(loss)
    problem = instance("problem", problem, Problem)
    if get_loss(loss) not in (Problem().loss, problem.loss):
        others = f" is not the loss of the problem, {problem.loss.name!r}: leave one of them out"
        raise OptionError(Option("loss", loss), others)
    problem.require_no_effects(what)
    return problem


def check_count(n_fixed: int, K: int) -> int:
    """Return the number of known components; raise an error if it exceeds that of all."""
    if n_fixed > K:
        raise ComponentsError(
            f"{n_fixed} components are fixed, more than the {K} in all: the number counts them too"
        )
    return n_fixed


_SINGLE = 1e-6  # single precision rounds known components by less than this share


def check_known(problem: Problem, W: Array) -> int:
    """Return the number of known components; raise an error if W does not begin with them."""
    n_fixed = check_count(problem.n_fixed, W.shape[1])
    if problem.fixed is not None:
        known = problem.fixed.W
        if not np.allclose(W[:, :n_fixed], known, rtol=_SINGLE, atol=_SINGLE * known.max()):
            raise ComponentsError(
                f"W does not begin with the {counted(n_fixed, 'known component')} of "
                "the problem: give W as a fit with this problem returns it"
            )
    return n_fixed
