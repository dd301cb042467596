"""The race of inits: the choice of ``init="auto"``.

Several inits compete by the error that the solver reaches from them, not by the error they begin
with. They run where an iteration is cheap: on a sketch of V, if V is large and dense; on some of
the samples or features, if there are very many; otherwise on V itself. The choice depends on the
shape of V and on its entries, not on how it is stored. The order is:

1. cr1, or cr1-robust if clusters are not evident, runs a few iterations. If its error is as low
   as the singular values allow (`Prospect`), no other init can do better, and the race is over.
2. The others run as many. Those that lead continue until the best one is known; of dense data,
   nndsvd does so at once, if the solver is to continue from there: it leads more often than not.
3. If the best one is on a plateau all the same, all continue: which one leaves it cannot be
   seen before. Where three reach the same error, it is taken for the end and not for a plateau.

Two components have no race where the best approximation of rank two is nonnegative: its exact
factors have the smallest error of all (`cones.geometry`).

The race draws from generators of its own, and compares errors with a tolerance for rounding. The
winner's factors are where the solver continues.

*What error K components may reach* (`prospect`). No K components have an error below b, the square
root of the share of ||V||^2 that the K leading singular values leave (Eckart and Young). Here b is
estimated: of dense data from a sketch, which is cheap, of sparse ones from the singular vectors
that inits need too. It referees the race and distinguishes a plateau from an end. A certificate
states another bound (`cones.certificate`). Two questions are asked of an error e:

- *Is anything left to be gained?* Hardly, if e^2 - b^2 <= 0.001 b^2 (1 - b^2): the error is within
  0.05% of b, and the share of ||V||^2 that is explained within 0.1% of the largest. Near b = 1 the
  first would say nothing, near b = 0 the second.
- *Is it a plateau?* A large gap alone is no evidence: nonnegativity has its price. But if the K-th
  singular value stands out from the next one, the data are K components and noise, and then b is
  nearly reached from most inits. So an error that stalls well above b is considered a plateau.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ..arguments import choice
from ..cones.geometry import leading_plane, rank_two_factors
from ..data.blocks import Array, dense
from ..data.matrix import Aligned, DataMatrix
from ..data.resample import evenly_spaced
from ..data.sketch import Sketch, is_dense, sketch, sketch_rank
from ..data.views import take_samples
from ..errors import ComponentsError, OptionError
from ..linalg.svd import VECTOR_TOL, Spectrum
from .coefficients import coefficients
from .inits import SVD_INITS, Generator, Start, initialize
from .run import Callback, Iteration, Run, Stopping, StopReason, asks_to_stop, iterate
from .solvers import SOLVERS, Solver

if TYPE_CHECKING:
    from .losses import Objective

Remaining: TypeAlias = Callable[[], float | None]
"""Returns the seconds that are left, or None without a limit."""

_SMALL_SHARE = 1e-3  # of b^2 (1 - b^2), up to which a gap is not worth more work
_MIN_PLATEAU_RATIO = 1.05  # of an error to b, from which on it may be a plateau ...
_MIN_STANDOUT_RATIO = 1.3  # ... if the K-th singular value exceeds the next by this factor
_NEGLIGIBLE_ERROR = 1e-6  # up to which an error counts as none
_EXTRA_VECTORS = 8
_ROUNDINGS = 20  # by which each vector of a sketch may be off, in units of its type


class Prospect(NamedTuple):
    """What the singular values of V say about the error of K components.

    Attributes
    ----------
    lower_bound : float
        sqrt(1 - sum_{j <= K} sigma_j^2 / ||V||^2), estimated.
    standout : float
        sigma_K / sigma_{K+1}; infinite if there is no next one.
    proven : float
        A bound that is certain, and lower where V has more to it than a sketch, or than a few more
        than K vectors: for every X of rank K and every orthonormal Q, ||V - X|| >= ||Q'(V - X)||,
        which is at least what the K leading singular values of Q'V leave of it.
    """

    lower_bound: float
    standout: float
    proven: float = 0.0

    def is_reached(self, error: float) -> bool:
        """Whether no factorisation has an error that is worth more work."""
        b_squared = self.lower_bound**2
        return error**2 - b_squared <= _SMALL_SHARE * b_squared * (1 - b_squared)

    def is_plateau(self, error: float) -> bool:
        """Whether an error that hardly falls any more is probably not the end."""
        is_far = error > max(_MIN_PLATEAU_RATIO * self.lower_bound, _NEGLIGIBLE_ERROR)
        return is_far and self.standout > _MIN_STANDOUT_RATIO

    def gap(self, error: float) -> float:
        """The share of itself by which an error may fall: 1 - b / e."""
        return 1 - self.lower_bound / error if error > 0 else 0.0


def prospect(
    V: DataMatrix, K: int, S: Sketch | None = None, *, spectrum: Spectrum | None = None
) -> Prospect:
    """Return what the singular values say about K components.

    They are those of a sketch of rank above K, or of V itself if its spectrum is given. Without
    either, those of a sketch if V is dense, which takes four passes.

    >>> from conenmf import from_columns
    >>> found = prospect(from_columns(np.diag([4.0, 3.0, 0.5])), 2)
    >>> round(found.lower_bound, 4), round(found.standout, 4)
    (0.0995, 6.0)
    """
    if S is None and spectrum is None and is_dense(V):
        S = sketch(V, min(K + _EXTRA_VECTORS, *V.shape))
    if S is None:
        squares = Spectrum.of(V, spectrum).leading_subspace(K, tol=VECTOR_TOL)[1]
    else:
        squares = np.linalg.eigvalsh(S.gram())[::-1]
    squares, dtype = np.maximum(squares, 0.0), V.dtype if S is None else S.dtype
    explained, kept = float(squares[:K].sum()), float(squares[K:].sum())
    left = max(1.0 - explained / V.total, 0.0)
    proven = _certain(kept / V.total, squares.size, np.dtype(np.float64) if S is None else dtype)
    squares = np.maximum(squares, np.finfo(dtype).eps * squares[0])  # below is rounding
    standout = np.sqrt(squares[K - 1] / squares[K]) if squares.size > K else np.inf
    return Prospect(float(np.sqrt(left)), float(standout), proven)


def _certain(kept: float, rank: int, dtype: np.dtype[Any]) -> float:
    """The root of a share of ||V||^2, less what the rounding of Q, of Q'V and of sums may add."""
    of_gram, of_basis = (
        _ROUNDINGS * rank * float(np.finfo(kind).eps) for kind in (np.float64, dtype)
    )
    return max(float(np.sqrt(max(kept - of_gram, 0.0))) - of_basis, 0.0)


_VECTORS_PER_COMPONENT = 2
_PART_SIZE, _PART_SIZE_PER_COMPONENT = 4096, 64  # samples, or features, if there are twice as many
_MIN_PART_SPEEDUP = 4  # over a sketch
_PART_ENTRIES = 1 << 23  # the most entries that are gathered
_MIN_PART_SAMPLES_PER_COMPONENT = 8  # that are not zero


class Arena(NamedTuple):
    """Where a race is run.

    Attributes
    ----------
    name : {"all", "sketch", "samples", "features"}
    V : DataMatrix
        With whose samples inits begin: all of the data, or a part.
    S : Sketch or None
        Of that matrix, if it is dense: of sparse data, singular vectors cost no more.
    data : DataMatrix
        The one of the two on which they iterate.
    """

    name: str
    V: DataMatrix
    S: Sketch | None
    data: DataMatrix


def choose_arena(V: DataMatrix, K: int, rank: int | str | None) -> Arena:
    """Choose where an iteration is cheap; the storage of V does not matter."""
    if isinstance(rank, str):
        rank = sketch_rank(V, K)
        if rank is not None and _has_cheaper_part(V, K, rank):
            rank = None
    if rank is not None:
        whole = sketch(V, rank)
        return Arena("sketch", V, whole, whole)
    name, part = part_of(V, K)
    size = min(_VECTORS_PER_COMPONENT * K, *part.shape)
    S = sketch(part, size) if is_dense(part) else None
    return Arena(name, part, S, part)


def _has_cheaper_part(V: DataMatrix, K: int, rank: int) -> bool:
    """Whether an iteration on some of the samples is much cheaper than on a sketch of them all."""
    (F, N), size = V.shape, max(_PART_SIZE, _PART_SIZE_PER_COMPONENT * K)
    return _has_part(V, size, N) and _MIN_PART_SPEEDUP * F * size <= (F + N) * rank


def _has_part(V: DataMatrix, size: int, count: int) -> bool:
    """Whether `size` of `count` samples, or features, are a small part that fits in memory."""
    return 2 * size <= count and size * V.n_entries <= _PART_ENTRIES * count


def part_of(V: DataMatrix, K: int) -> tuple[str, DataMatrix]:
    """Return some samples, or features, if there are many more, otherwise all; and their name."""
    (F, N), size = V.shape, max(_PART_SIZE, _PART_SIZE_PER_COMPONENT * K)
    if _has_part(V, size, N):
        part = take_samples(V, evenly_spaced(N, size))
        if part.total > 0 and part.nonzero > _MIN_PART_SAMPLES_PER_COMPONENT * K:
            return "samples", part
    if _has_part(V, size, F) and is_dense(V):
        return "features", take_samples(V.turned(), evenly_spaced(F, size)).turned()
    return "all", V


def factors_on_all(V: DataMatrix, name: str, W: Array, H: Aligned) -> tuple[Array, Aligned]:
    """Return factors of V for those of a part: one is whole, and the other is the best for it."""
    if name == "samples":
        H = coefficients(V, W)[0]
    elif name == "features":
        whole = np.asarray(coefficients(V.turned(), np.asarray(H).T)[0]).T
        size = np.maximum(np.linalg.norm(whole, axis=0), np.finfo(np.float64).tiny)
        W, H = (whole / size).astype(V.dtype), (np.asarray(H).T * size).T
    return W, H


RACING_SOLVER = SOLVERS["hals"]
_INITS = ("cr1-robust", "nndsvd", "spa", "random", "random", "random")
_INITS_OF_TWO = ("cr1-robust", "rank-two", *_INITS[2:])
_TOLS, _WINDOWS = (3e-3, 1e-4, 1e-4), (3, 5, 5)  # in each round
_SAME_SHARE = 1e-3  # by which errors that probably lead to the same may differ
_MIN_AGREEING = 3  # inits that have reached the same error, which then is no plateau
_TIE_SHARE = 1e-5  # by which errors that count as equal may differ
_MAX_SMALL_ENTRIES = 1 << 16
_MIN_USABLE_RATIO = 1.001  # of sigma_K to the next, below which a sketch's vectors are any
_TIME_SHARE = 0.5  # of the time that is left
_ONE_ITERATION_SECONDS = 1e-9  # a limit after which every run has its first iteration


class Plan(NamedTuple):
    """How many inits compete, how many continue, and iterations at the end of each round."""

    n_inits: int
    n_leaders: int
    rounds: tuple[int, int, int]


_PLAN = Plan(4, 2, (10, 30, 60))
_INITS_OF_KNOWN = ("cr1", "nndsvd", "spa", "random", "random", "random", "random", "random")
_PLAN_OF_KNOWN = Plan(8, 2, (20, 40, 60))
NO_PROSPECT = Prospect(0.0, 1.0)
"""Nothing is known of the lowest error."""
_PLAN_ON_SMALL = Plan(6, 3, (10, 30, 60))  # iterations cost next to nothing
_PLAN_ON_SKETCH = Plan(5, 3, (20, 60, 300))


@dataclass(eq=False)
class Entered:
    """An init that takes part: its number and name, its run so far, and what seconds it took.

    Its error at the end of the first round, and whether that hardly fell any more, decide who
    continues: some may be ahead by then.
    """

    number: int
    name: str
    run: Run
    seconds: float
    first_error: float = np.inf
    has_settled: bool = False

    @property
    def error(self) -> float:
        """The relative error that it has reached."""
        return self.run.log.relative_error[-1]


class Track:
    """A race: the inits that take part, in one arena, with limits for each round.

    Parameters
    ----------
    arena : Arena
    inits : tuple of str
    plan : Plan
    prospect : Prospect
        The error that may be reached.
    initial : callable
        ``(name, rng) -> Start`` makes the factors of an init.
    on : callable
        ``on(V) -> Objective``: what inits compete by.
    solver : Solver
        With which they run.
    rng : numpy.random.Generator, optional
    remaining : callable
        Returns the seconds that are left, or None; the race takes at most half of them.
    callback : callable, optional
    runs_ahead : bool
        The second init runs to the end of the second round at once.

    Attributes
    ----------
    entered : list of Entered
        The inits that have begun so far.
    is_agreed, is_stopped : bool
        Whether several have reached the lowest error; whether the callback has ended the race.
    """

    def __init__(
        self,
        arena: Arena,
        inits: tuple[str, ...],
        plan: Plan,
        prospect: Prospect,
        initial: Callable[[str, Generator], Start],
        on: Callable[[DataMatrix], Objective],
        solver: Solver,
        rng: Generator,
        remaining: Remaining,
        callback: Callback | None = None,
        *,
        runs_ahead: bool = False,
    ) -> None:
        self.arena, self.inits, self._plan, self.prospect = arena, inits, plan, prospect
        self._initial, self._on, self._solver = initial, on, solver
        self.entered: list[Entered] = []
        self.is_agreed = self.is_stopped = False
        self._runs_ahead = runs_ahead
        self._ahead: list[Entered] = []
        self._callback, self._lowest_error, self._lowest_on_sketch = callback, np.inf, np.inf
        self._is_on_all = arena.name == "all"
        self._seeds = list(range(len(inits)))
        if rng is not None:
            self._seeds[1:] = [int(seed) for seed in rng.integers(2**32, size=len(inits) - 1)]
        left = remaining()
        self._end = None if left is None else time.perf_counter() + _TIME_SHARE * left

    def initial(self, number: int) -> Start:
        """Return the factors of an init."""
        return self._initial(self.inits[number], self.rng(number))

    def rng(self, number: int) -> Generator:
        """Return the generator of an init, which is the same at every call.

        The first init has none unless it draws: so it is the same for all seeds.
        """
        if number == 0 and self.inits[0] != "random":
            return None
        return np.random.default_rng(self._seeds[number])

    def begin(self) -> Start | None:
        """Enter the first init, and return its W if that is exact: nothing is left to do then.

        So the same samples in another order, or weighted, have the same W.
        """
        began = time.perf_counter()
        try:
            initial = self.initial(0)
        except ComponentsError:
            return None
        if initial.error <= Stopping.exact:
            return initial._replace(H=None)
        seconds = time.perf_counter() - began
        self._enter([0], initial)
        self.entered[0].seconds += seconds
        return None

    def run(self) -> Entered:
        """Hold the race, and return the winner, or the one that leads when it is stopped."""
        try:
            if not self.entered:
                self._enter([0])
            if not (self.entered and self.prospect.is_reached(self.entered[0].error)):
                numbers = list(range(1, self._plan.n_inits))
                if "spa" in self.inits and not is_dense(self.arena.V):
                    numbers.remove(self.inits.index("spa"))  # single documents do not win
                if self._runs_ahead:  # to the end of the second round at once
                    n_before = len(self.entered)
                    self._enter(numbers[:1])
                    if self.entered[n_before:] and not self.is_over():
                        self._ahead = self.entered[n_before:]
                        self._continue(self._ahead, round=1)
                    del numbers[:1]
                self._enter(numbers)
            winner = self._race()
        finally:
            for one in self.entered:  # a circle would keep every H, which may be a file
                one.run.callback = None
        if self.is_stopped:
            return min(self.entered, key=lambda one: one.error)
        return winner

    def _race(self) -> Entered:
        """Let those that lead continue until the best one is known."""
        by_first = _lowest(self.entered, self._plan.n_leaders, lambda one: one.first_error)
        leaders = _distinct(by_first)
        if len(leaders) > 1:
            self._continue(leaders, round=1)
        (winner,) = _lowest([*leaders, *self._ahead], 1)
        self.is_agreed = _agree(self.entered)
        if not self.is_agreed and self.prospect.is_plateau(winner.error):
            self._continue(self.entered, round=2)
            self.is_agreed = _agree(self.entered)
            (winner,) = _lowest(self.entered, 1)
        if not self._is_on_all:  # an iteration is cheaper here than on V
            self._continue([winner], round=2)
        return winner

    def _enter(self, numbers: Iterable[int], known: Start | None = None) -> None:
        """Make inits, and run them; one that cannot make as many components does not take part."""
        entered = []
        for number in numbers:
            if self.entered and self.is_over():
                break
            began = time.perf_counter()
            try:
                initial = self.initial(number) if known is None else known
            except ComponentsError:
                continue
            run = Run(
                self._on(self.arena.data),
                initial.W,
                initial.H,
                self._solver,
                Stopping(max_iter=0),
                callback=self._report if self._callback and self._is_on_all else None,
            )
            entered.append(Entered(number, initial.name, run, time.perf_counter() - began))
        self.entered += entered
        self._continue(entered, round=0)
        for one in entered:
            one.first_error = one.error
            one.has_settled = one.run.reason is StopReason.CONVERGED

    def _continue(self, entered: list[Entered], *, round: int) -> None:
        """Run until the end of a round, or until the errors hardly fall."""
        if self.is_stopped:
            return
        began, left = time.perf_counter(), None
        for one in entered:
            if self._end is not None:
                left = one.run.log.last_elapsed + max(self._end - began, _ONE_ITERATION_SECONDS)
            tol, window = _TOLS[round], _WINDOWS[round]
            limits = Stopping(tol, window, max_iter=self._plan.rounds[round], max_time=left)
            one.run.extend(limits)
        iterate(self.arena.data, [one.run for one in entered])
        for one in entered:
            one.seconds += (time.perf_counter() - began) / len(entered)
        if self._callback is not None and self.arena.name == "sketch":
            self._report_of_all()

    def _report(self, now: Iteration) -> bool:
        """Call the callback for every error that is the lowest so far; end all runs if it asks."""
        assert self._callback is not None
        if now.relative_error < self._lowest_error and not self.is_stopped:
            self._lowest_error = now.relative_error
            if asks_to_stop(self._callback, replace(now, iteration=0)):
                self.is_stopped = True
                for one in self.entered:
                    one.run.reason = StopReason.CALLBACK
        return self.is_stopped

    def _report_of_all(self) -> None:
        """Report the error that the leader on a sketch has on V itself, which takes a pass."""
        leader = min(self.entered, key=lambda one: one.error)
        if leader.error < self._lowest_on_sketch:
            self._lowest_on_sketch, V = leader.error, self.arena.V
            squared = coefficients(V, leader.run.factors()[0])[2]
            error, log = float(np.sqrt(squared / V.total)), leader.run.log
            self._report(Iteration(0, log.last_elapsed, error, log.last_passes, squared))

    def record(self, winner: Entered) -> Race:
        """Return what the race was like, which is over."""
        entrants = tuple(
            Entrant(one.name, one.error, len(one.run.log.elapsed), one.seconds)
            for one in self.entered
        )
        won_by, bound = self.entered.index(winner), self.prospect.lower_bound
        return Race(entrants, won_by, self.is_agreed, self.arena.name, bound)

    def start(self, winner: Entered, prospect: Prospect | None = None) -> Start:
        """Return where the solver continues the winner's run, which was on V itself."""
        state, race = winner.run.state, self.record(winner)
        how = (winner.name, winner.error, race, prospect, state, self.is_stopped)
        return Start(state.W, None, *how)

    def is_over(self) -> bool:
        """Whether it was stopped, or the time for it has run out."""
        return self.is_stopped or (self._end is not None and time.perf_counter() >= self._end)


def _lowest(
    entered: list[Entered],
    count: int,
    error: Callable[[Entered], float] = lambda one: one.error,
) -> list[Entered]:
    """Those of the lowest errors, lowest first; of those that are equal, up to rounding, the first.

    So rounding, which depends on the storage, does not decide.
    """
    left = sorted(entered, key=lambda one: one.number)
    lowest: list[Entered] = []
    while left and len(lowest) < count:
        limit = min(error(one) for one in left) * (1 + _TIE_SHARE)
        lowest.append(next(one for one in left if error(one) <= limit))
        left.remove(lowest[-1])
    return lowest


def _agree(entered: list[Entered]) -> bool:
    """Whether several have reached the lowest error."""
    limit = min(one.error for one in entered) * (1 + _SAME_SHARE)
    return sum(one.error <= limit for one in entered) >= _MIN_AGREEING


def _distinct(entered: list[Entered]) -> list[Entered]:
    """Leave out those that have settled at nearly the same error as one before them."""
    distinct: list[Entered] = []
    for one in entered:
        if not one.has_settled or all(
            abs(one.first_error - other.first_error) > _SAME_SHARE * other.first_error
            for other in distinct
        ):
            distinct.append(one)
    return distinct


_PLACES = {
    "all": "the data",
    "sketch": "a sketch of the data",
    "samples": "some of the samples",
    "features": "some of the features",
}
_LOST_ON_SKETCH = 1e-3  # of ||V||^2 outside the orthant, up to which a plane may be nonnegative


class Entrant(NamedTuple):
    """One init in the race: its name, the error reached from it, and what that took.

    Iterations of several entrants in one pass count evenly.
    """

    init: str
    relative_error: float
    iterations: int
    seconds: float


@dataclass(frozen=True)
class Race:
    """A race of inits.

    Attributes
    ----------
    entrants : tuple of Entrant
        In the order in which they began.
    won_by : int
        The index of the winner: the first of those with the lowest error, up to rounding.
    is_agreed : bool
        Whether three or more reached the same error, up to 0.1%.
    data : str
        What the errors are those of: "all" the data, a "sketch", some "samples" or "features".
    lower_bound : float
        That of these errors, estimated from a sketch.
    """

    entrants: tuple[Entrant, ...]
    won_by: int
    is_agreed: bool
    data: str
    lower_bound: float

    @property
    def place(self) -> str:
        """Where it was run, in words."""
        return _PLACES[self.data]

    @property
    def winner(self) -> Entrant:
        """The entrant from which the solver continued."""
        return self.entrants[self.won_by]

    def plain(self) -> dict[str, Any]:
        """Return the race in plain values, to be saved."""
        return {**vars(self), "entrants": [list(one) for one in self.entrants]}

    @classmethod
    def of_plain(cls, plain: dict[str, Any] | None) -> Race | None:
        """Return the race of plain values."""
        if plain is None:
            return None
        entrants = tuple(
            Entrant(str(init), float(error), int(iterations), float(seconds))
            for init, error, iterations, seconds in plain["entrants"]
        )
        won_by, data = int(plain["won_by"]), str(plain["data"])
        choice("data", data, _PLACES)
        if not 0 <= won_by < len(entrants):
            raise OptionError(f"entrant {won_by} of {len(entrants)} cannot have won a race")
        is_agreed = bool(plain["is_agreed"])
        return cls(entrants, won_by, is_agreed, data, float(plain["lower_bound"]))


def run_race(
    V: DataMatrix,
    K: int,
    solver: Solver | None,
    on: Callable[[DataMatrix], Objective],
    rng: Generator = None,
    *,
    rank: int | str | None = "auto",
    remaining: Remaining = lambda: None,
    spectrum: Spectrum | None = None,
    callback: Callback | None = None,
) -> Start:
    """Let inits compete by squared errors, and return where the solver continues.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    solver : Solver or None
        "hals" continues from the factors that the winner has reached. Another solver begins with
        the init that won, since it may be unable to leave zeros, or is to be seen from its start.
        Without a solver there is no race, and cr1-nmf is the result.
    on : callable
        The objective for a matrix.
    rng : numpy.random.Generator, optional
        Without it the race is always the same.
    rank : int, "auto" or None
        The rank of the sketch on which the race is run; "auto" if it pays, None never.
    remaining : callable, optional
        Returns the seconds that are left, or None. The race takes at most half of them.
    spectrum : Spectrum, optional
        That of V, if it is used elsewhere too.
    callback : callable, optional
        Called with an `Iteration` whenever an init has reached a lower error of V than all before,
        if the solver is to continue from there. On a sketch, whose errors are not those of V, V is
        read for it after every round; on some of the samples or features it is not called.
        Returning True ends the race.
    """
    spectrum = Spectrum.of(V, spectrum)
    if solver is None or min(V.shape) < K:
        return initialize(V, K, "cr1", solver, rng)
    if min(V.shape) == K:
        return _identity(V)
    arena, is_racing = choose_arena(V, K, rank), solver is RACING_SOLVER
    watch = callback if arena.name in ("all", "sketch") and is_racing else None
    data = arena.V if arena.S is None else arena.S
    known = spectrum if data is spectrum.V else Spectrum(data)
    referee = prospect(arena.V, K, arena.S, spectrum=known if arena.S is None else None)
    is_usable = referee.standout >= _MIN_USABLE_RATIO or known.V is arena.V

    def initial(name: str, rng: Generator) -> Start:
        if name in SVD_INITS:
            return Start(*SVD_INITS[name](known.V, K, spectrum=known), name)
        vectors = known if is_usable else None
        return initialize(arena.V, K, name, RACING_SOLVER, rng, spectrum=vectors)

    track = Track(
        arena,
        _INITS_OF_TWO if K == 2 else _INITS,
        _plan(arena),
        referee,
        initial,
        on,
        RACING_SOLVER,
        *(rng, remaining, watch),
        # Of dense data the second most often leads. Other solvers begin where it has begun.
        runs_ahead=is_racing and is_dense(arena.V),
    )
    best = _best_two(V, track, known, spectrum) if K == 2 else None
    if best is not None:
        return best._replace(prospect=referee if arena.V is V else None)
    if arena.V is V and (exact := track.begin()) is not None:
        return exact
    winner = track.run()
    if not is_racing:
        name, own = track.inits[winner.number], track.rng(winner.number)
        vectors = known if known.V is V else None
        start = initialize(V, K, name, solver, own, spectrum=vectors)
        return start._replace(race=track.record(winner))
    winner.run.normalize()
    start = track.start(winner, referee if arena.name in ("all", "sketch") else None)
    if arena.name == "all":
        return start
    W, H = factors_on_all(V, arena.name, *winner.run.factors())
    return start._replace(W=W, H=H, error=1.0, state=None)


def _plan(arena: Arena) -> Plan:
    if arena.data is arena.S:
        return _PLAN_ON_SKETCH
    F, N = arena.V.shape
    return _PLAN_ON_SMALL if F * N <= _MAX_SMALL_ENTRIES else _PLAN


def _identity(V: DataMatrix) -> Start:
    """Exact factors with as many components as there are features, or samples: W = I, or W = V."""
    F, N = V.shape
    W = np.eye(F, dtype=V.dtype) if F <= N else dense(V.columns(np.arange(N)))
    size = np.linalg.norm(W, axis=0)
    W = (W / np.where(size > 0, size, 1.0)).astype(V.dtype)  # lengths, or weights, are in H
    return Start(W, coefficients(V, W)[0], "identity")


def _best_two(V: DataMatrix, track: Track, on_sketch: Spectrum, spectrum: Spectrum) -> Start | None:
    """The best two components of all, if the best approximation of rank two is nonnegative.

    Of dense data, singular vectors of V itself are computed only if those of a sketch give hope.
    """
    if track.is_over() or leading_plane(on_sketch.V, spectrum=on_sketch).lost > _LOST_ON_SKETCH:
        return None
    plane = leading_plane(V, spectrum=spectrum)
    if not plane.is_nonnegative:
        return None
    W, H = rank_two_factors(V, plane=plane)
    squared = max(1.0 - plane.energy / V.total, 0.0) + plane.lost
    return Start(W, H, "rank-two", error=float(np.sqrt(squared)))


def race_of_known(
    V: DataMatrix,
    source: DataMatrix,
    roots: Array | None,
    K: int,
    solver: Solver,
    on: Callable[[DataMatrix], Objective],
    rng: Generator = None,
    *,
    remaining: Remaining = lambda: None,
    callback: Callback | None = None,
) -> Start:
    """Let inits compete by the weighted error of small data with missing or weighted entries.

    Inits see the data with their holes filled, and features in units of mean uncertainties; so they
    know little of weights. After 20 iterations each, two continue, and the solver from the better
    one.

    Parameters
    ----------
    V : DataMatrix (F, N)
        With `observed`.
    source : DataMatrix (F, N)
        What inits see.
    roots : array (F,), or None
        What its features are multiplied by.
    K, solver, on, rng, remaining, callback
        As in `run_race`.
    """

    def initial(name: str, rng: Generator) -> Start:
        W = in_own_units(initialize(source, K, name, None, rng).W, roots)
        return initialize(V, K, W, solver)._replace(name=name)

    arena, plan = Arena("all", V, None, V), _PLAN_OF_KNOWN
    how = (initial, on, solver, rng, remaining, callback)
    track = Track(arena, _INITS_OF_KNOWN, plan, NO_PROSPECT, *how)
    return track.start(track.run())


def suits_race(V: DataMatrix, K: int) -> bool:
    """Return whether data with missing entries are small enough for a race."""
    return V.shape[0] * V.shape[1] <= _MAX_SMALL_ENTRIES and K < min(V.shape)


def in_own_units(W: Array, roots: Array | None) -> Array:
    """Return W (F, K) of features that were multiplied by numbers as those of the features."""
    if roots is None:
        return W
    return (W / np.where(roots > 0, roots, np.inf)[:, None]).astype(W.dtype)
