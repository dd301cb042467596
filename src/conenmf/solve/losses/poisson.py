"""The Poisson loss: the Kullback-Leibler divergence of W H from V, for counts.

    D(V | W H) = sum v log(v / x) - v + x,  x = W H,

which is the negative log-likelihood of counts v with the rates x, up to a constant. If v = 0 only x
remains, and the sum of all x is the product of the column sums of W and the row sums of H. So rates
are computed only at nonzero entries.

Each sample is a Poisson regression on W, and an iteration takes one step of it
(`poisson_regression`). NMF is symmetric: if V can be read in the other order, W takes the same step
with features in place of samples, and the value after the step is known. Otherwise the pass sums (V
/ X) H' (F, K) for a multiplicative step of W. If they are small, it also sums the curvatures (F, K,
K) for a Newton step. The value is then known only at the W before the step.

Rates must not be zero at nonzero counts. So extrapolation leaves every entry at least a share of
itself.

With missing or weighted entries, only known counts enter, times their weights. The column sums of W
are over the known entries of each sample, and the row sums of H over the known entries of each
feature.

*Coefficients.* As for least squares, the exact H depends on V and W alone. A fit ends with it, and
`transform` computes the same. A feature that is zero in all components has rates of zero for every
H: it is left out, and `report_unseen` warns about it.

*Penalties.* The objective is that of scikit-learn: D(V | W H) + l1 sum + l2 ||.||^2 / 2 for both
factors, with the numbers in `Penalties`. A step includes them in the problem of each row
(`Restraint`); it does not change matrices as for least squares.

*Held-out counts.* This is `held_out_share` with the divergence in place of squared errors. A rate
may be zero at a nonzero count, so a little of the mean of all components is added. If a sample has
no counts outside the fold, its rates are those of the mean alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from math import exp
from typing import Any, NamedTuple

import numpy as np
from numpy.random import default_rng

from ...data.blocks import (
    Block,
    exact,
    features_scaled,
    first_largest,
    over,
    products,
    slices,
    weighted_sums,
    with_data,
)
from ...data.entries import EntryWeights, pack, unpack
from ...data.groups import Groups, sums_by
from ...data.matrix import Aligned, DataMatrix
from ...data.memory import DenseMatrix, by_entries
from ...data.prepare import to_sums
from ...data.resample import new_seed, uniform_rows
from ...data.views import times_samples
from ...errors import (
    ComponentsError,
    DataError,
    InputWarning,
    Option,
    OptionError,
)
from ...linalg.bisection import bisect
from ...linalg.svd import KnownSpectrum, Spectrum
from ...text import counted, visible
from ...types import Array, Facts
from ..coefficients import (
    Finish,
    feature_folds,
    predicted_share,
    sorting,
)
from ..constraints import NO_PENALTIES, Penalties
from ..inits import Generator, Init, Start, initialize, users_own
from ..loss import (
    Loss,
    Move,
    Noise,
    Objective,
    Rows,
    Stepped,
    Updated,
    Updates,
    Words,
    inverse_of,
)
from ..run import Callback, Run, Stopping, run_together
from ..solvers import ChosenSolver, Solver, Update
from .count_bounds import CountBounds
from .counts import (
    TIE_SHARE,
    CountShared,
    GroupRates,
    known_counts,
    logs_of_scales,
    margins,
    margins_together,
    regressions,
    restraints,
    term_of,
)
from .poisson_regression import (
    Side,
    counts_of,
    curvatures,
    dual_gaps,
    log_sums,
    multiplicative,
    multiplied,
    newton,
    newton_from_sums,
    ratios_of,
    regression,
    sample_sums,
)


def balancing_factors(W: Array, masses: Array, squares: Array, penalties: Penalties) -> Array:
    """Return for each component the factor to multiply w_k and divide h_k by.

    The loss does not change, and the penalties become minimal. `masses` and `squares` are the row
    sums of H and of its squares.
    """
    of_W = penalties.l1_w * exact(W).sum(axis=0), penalties.l2_w * (exact(W) ** 2).sum(axis=0)
    of_H = penalties.l1_h * masses, penalties.l2_h * squares
    return np.array([_balanced(*parts) for parts in np.column_stack([*of_W, *of_H]).tolist()])


def _balanced(a: float, c: float, b: float, d: float) -> float:
    """Minimise a t + b / t + c t^2 / 2 + d / (2 t^2), which is convex in log t."""
    if not (a + c > 0 and b + d > 0):
        return 1.0

    def falls(x: float) -> bool:
        return a * exp(x) - b * exp(-x) + c * exp(2 * x) - d * exp(-2 * x) <= 0

    return exp(sum(bisect(falls, -200.0, 200.0)) / 2)


def report_unseen(V: DataMatrix, counts: Array, unseen: str = "warn") -> None:
    """Warn about counts (F,) of features that are zero in all components, or raise an error."""
    some = np.flatnonzero(counts)
    message = (
        f"no component has {counted(some.size, 'feature')} with counts, in all "
        f"{counts.sum():g}: {_named(V, some)}"
    )
    if unseen == "raise":
        raise DataError(f"{message}; leave them out, or fit again with such samples")
    warnings.warn(f"{message}: left out", InputWarning, stacklevel=5)


def _named(V: DataMatrix, features: Array, most: int = 5) -> str:
    names = V.names.feature_names
    shown = [str(f) if names is None else repr(visible(names[f])) for f in features[:most]]
    return ", ".join(shown) + (", ..." if features.size > most else "")


_LIFTED_SHARE = 0.01  # of the mean composition, added to each column of W
_WARMING_ITERATIONS = 10
_ROTATED = "nndsvd-rotated"
_COMPETING = ("nndsvd", "cr1-robust", _ROTATED)
_COMPARED = 4  # the iteration at which runs are compared
_DECIDED = 10  # ... and again, if another than the leader may still win
_MANY_ENTRIES = 1 << 16
_NEGLIGIBLE_SHARE = 1e-100  # of the largest entry of a column
_MAX_CURVATURE_BYTES = 1 << 25  # of the K x K matrices of all features; every thread has a copy
_GRAM_NUMBERS = 1 << 20  # in the curvatures of samples that are inverted at a time
_IMPOSSIBLE = 1e-300  # replaces a fitted value of 0
_KEPT_SHARE = 0.1  # of an entry: extrapolation leaves at least this

POISSON_SOLVERS: dict[str, Solver] = {
    "newton": Solver(newton, first="H", extrapolate=True),
    "mult": Solver(multiplicative, first="H"),
}


class Poisson(Loss):
    """The Kullback-Leibler divergence, relative to the divergence of one component."""

    name = "poisson"
    solvers = POISSON_SOLVERS
    constraints = frozenset(
        (
            "l1",
            "l2",
            "fixed",
            "groups",
            "missing",
            "sample weights",
            "resampling",
            "sparse",
        )
    )
    degree = 1
    noise = Noise()
    words = Words(
        share="share of the deviance left",
        of_runs="relative divergence",
        summary="divergence {objective:.6g}{known}, {explained:.1%} of the deviance explained",
        help="poisson for counts",
        aliases=("kullback-leibler", "kl"),
    )

    def on(self, V: DataMatrix, *given: Any, **more: Any) -> Divergence:
        """Return the divergence of W H from V."""
        return Divergence(self, V, *given, **more)

    def coefficients(
        self,
        V: DataMatrix,
        W: Array,
        penalties: Penalties = NO_PENALTIES,
        unseen: str = "warn",
        groups: Groups | None = None,
    ) -> tuple[Aligned, Aligned, float]:
        """Return the best H for W, by Poisson regression."""
        H, labels, sums = regressions(V, W, penalties, groups=groups)
        if sums.unseen.any() and unseen != "ignore":
            report_unseen(V, sums.unseen, unseen)
        return H, labels, max(sums.divergence, 0.0)

    def bounds(self, V: DataMatrix, spectrum: KnownSpectrum = None) -> CountBounds:
        """Return the bounds of the divergence."""
        return CountBounds(self, V, spectrum)

    def check(
        self, V: DataMatrix, solver: ChosenSolver, penalties: Penalties, fixed: object = None
    ) -> None:
        """Reject penalties on one factor alone, and L2 penalties if samples are weighted."""
        if penalties.fixes_columns and {"l1", "l2", "one factor"}.issuperset(penalties.kinds):
            problem = (
                " needs penalties on both factors, because a factor with a penalty could shrink "
                "while the other grows; give both alpha_W and alpha_H, or in `Penalties` one for h "
                "and one for w"
            )
            raise OptionError(Option("loss", self.name), problem)
        super().check(V, solver, penalties)
        if V.unweighed is not None and V.unweighed.repeated is None and penalties.l2_h:
            problem = " works with L1 penalties on coefficients of counts, but not with L2: set "
            weight = Option("sample_weight")
            ratio = Option("l1_ratio", 1)
            raise OptionError(weight, problem, ratio, ", or leave one of the two out")

    def data(self, V: DataMatrix) -> DataMatrix:
        """Return V with its entries compressed."""
        return by_entries(V)

    def initialize(
        self,
        V: DataMatrix,
        K: int,
        init: Init,
        solver: ChosenSolver = None,
        rng: Generator = None,
        *,
        scaled: KnownSpectrum = None,
        callback: Callback | None = None,
        **known: Any,
    ) -> Start:
        """Return the initial factors for counts; `scaled` is the spectrum of `unit_sums`.

        A user's own factors are used unchanged, except for features that have counts but are zero
        in all components. Without H, the best one for W is computed.
        """
        if isinstance(init, str) and init == "auto":
            rng = default_rng(0) if rng is None else rng
            if K > 1 and solver is not None and solver.extrapolate:
                return self._sprint(V, K, rng, callback)
            init = "nndsvd" if K < min(V.shape) else _ROTATED
        totals = margins(V)
        mean = totals.mean
        if not isinstance(init, str):
            W, H, name, *_ = users_own(V, K, init, rng)
            W = _with_counts(W, mean)
            H = regressions(V, W)[0] if H is None else H
        elif K == 1:
            W = mean[:, None]
            H = None
            name = "margins"
        elif init == "random":
            rng = default_rng(rng)
            W = rng.random((V.n_features, K)) * mean[:, None]
            name = "random"
            seed = new_seed(rng)
            H = V.by_rows(
                lambda index, counts: uniform_rows(index, K, seed) * (counts[:, None] * (2.0 / K)),
                totals.samples,
            ).T
        else:
            source = unit_sums(V) if scaled is None else scaled.V
            W, _, name, *_ = initialize(source, K, init, None, rng, spectrum=scaled)
            W = _lifted(W, mean)
            H = None
        W = np.ascontiguousarray(W, V.dtype)
        return Start(W, _equal_coefficients(V, W) if H is None else H, name)

    def inits(self, V: DataMatrix, K: int, solver: ChosenSolver) -> tuple[Init, ...]:
        """Let `initialize` choose between a sprint and NNDSVD of samples that sum to one."""
        return ("auto",)

    def _sprint(self, V: DataMatrix, K: int, rng: Generator, callback: Callback | None) -> Start:
        """Return the state of the init that leads after some iterations.

        Counts have many minima, and no bound tells whether another one is much lower. Either of the
        first two inits may lead to a bad minimum, but rarely both do. Each runs a few iterations. A
        value that still falls fast will fall further: if another run would lead after one more fall
        like its last, it and the leader continue. The rotated init rarely wins with many counts,
        and does not take part there. No init depends on the order of samples or features, up to
        ties and to the accuracy of rough singular vectors.
        """
        spectrum = Spectrum(unit_sums(V))
        starts = []
        for init in _COMPETING[: 2 + (V.n_entries <= _MANY_ENTRIES)]:
            with suppress(ComponentsError):
                of_init = rng if init == _ROTATED else None  # cones need none
                starts.append(self.initialize(V, K, init, rng=of_init, scaled=spectrum))
        stopping = Stopping(0.0, max_iter=_COMPARED)
        solver = self.solvers["newton"]
        runs = [
            Run(self.on(V), W, H, solver, stopping, callback=callback)
            for W, H, *_ in self.warm_up(V, [V] * len(starts), starts)
        ]
        for _ in run_together(V, runs):
            pass
        best = _lowest([run.errors[-1] for run in runs])
        other = _lowest([_expected(run) for run in runs])
        if other != best:
            for run in (runs[best], runs[other]):
                run.continue_with(Stopping(0.0, max_iter=_DECIDED))
                run.run()
            if runs[other].errors[-1] < (1 - TIE_SHARE) * runs[best].errors[-1]:
                best = other
        return Start(*runs[best].factors(), starts[best].name)

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
        """Return the start from W; features with counts but no component get a little of all.

        Components get the scale that minimises the penalties; known components keep theirs.
        """
        W = np.array(W, float)
        if K > n_fixed:
            W = _with_counts(W, margins(V).mean, n_fixed)
        W = np.ascontiguousarray(W, V.dtype)
        start = Start(W, _equal_coefficients(V, W) if H is None else H, "fixed")
        if warm and K > n_fixed:
            (start,) = self.warm_up(V, [V], [start], n_fixed)
        if penalties.are_none or start.H is None:
            return start
        ((masses, squares),) = V.map(
            lambda _, H: ((exact(H).sum(axis=0), (exact(H) ** 2).sum(axis=0)),), start.H.T
        )
        sizes = balancing_factors(start.W, masses, squares, penalties)
        sizes[:n_fixed] = 1.0
        W = (start.W * sizes).astype(V.dtype)
        return start._replace(W=W, H=(start.H.T / sizes.astype(V.dtype)).T)

    def warm_up(
        self,
        V: DataMatrix,
        views: Sequence[DataMatrix],
        starts: Sequence[Start],
        n_fixed: int = 0,
    ) -> list[Start]:
        """Return starts after a few multiplicative steps; the first columns of W may be known.

        Newton steps from a distant start often end in a worse minimum. On mutation catalogues the
        divergence from random inits was 3% to 7% higher without multiplicative steps.
        """
        runs = []
        stopping = Stopping(0.0, max_iter=_WARMING_ITERATIONS, exact=0.0)
        for view, (W, H, *_) in zip(views, starts, strict=True):
            objective = Divergence(self, view, n_fixed=n_fixed, rescale=False, is_judged=False)
            runs.append(Run(objective, W, H, self.solvers["mult"], stopping))
        for _ in run_together(V, runs):
            pass
        ends = [run.factors() for run in runs]
        return [start._replace(W=W, H=H) for start, (W, H) in zip(starts, ends, strict=True)]

    def measure(self, V: DataMatrix, views: Sequence[DataMatrix]) -> None:
        """Measure norms and margins."""
        super().measure(V, views)
        margins_together(V, views)

    def restored(self, W: Array, penalties: Penalties) -> Array:
        """Return W with columns that sum to one, unless penalties fix their scale.

        The columns are then compositions, and H contains counts. Steps shrink entries towards zero
        for ever. Negligible entries become zero, because a sample that is known only there would
        need enormous coefficients.
        """
        W = np.where(W < _NEGLIGIBLE_SHARE * W.max(axis=0), 0, W)
        if not penalties.are_none:
            return W
        return over(W, W.sum(axis=0, dtype=float)).astype(W.dtype, copy=False)

    def admissible(self, V: DataMatrix, W: Array) -> Array:
        """Return W with a little of every component in features with counts but no component."""
        W = np.asarray(W, V.dtype)
        return np.ascontiguousarray(_with_counts(W, margins(V).mean), V.dtype)

    def sample_errors(self, entries: Array, fitted: Array, weights: Array) -> Array:
        """Return the negative log-likelihood of samples, up to a constant for each."""
        logs = np.log(np.maximum(fitted, _IMPOSSIBLE))
        return np.asarray((weights * (fitted - entries * logs)).sum(axis=0))

    def held_out(self, V: DataMatrix, W: Array, weights: Array | None = None) -> float:
        """Return the share of the deviance that other features explain; one pass.

        1 - D / D0, where D is the divergence of the counts from the rates predicted by other
        features, and D0 is the divergence from the mean of the components, scaled to the total of
        each sample. It is at most 1, and below 0 if the components predict worse than their mean.
        Features that are zero in all components do not count. If D0 is zero, the share is 1.

        >>> from conenmf import from_columns
        >>> W = np.array([[8.0, 0.0], [8.0, 0.0], [0.0, 8.0], [0.0, 8.0]])
        >>> POISSON.held_out(from_columns([[9, 0], [7, 0], [0, 8], [0, 8]]), W) > 0.9
        True
        """
        side = Side.of(W)
        folds = feature_folds(V.n_features)
        return predicted_share(V, weights, _predict, W=over(side.W, side.sums), folds=folds)


def _lowest(values: list[float]) -> int:
    """Return the first of the lowest values, up to rounding."""
    return int(first_largest(-np.array(values), TIE_SHARE))


def _expected(run: Run) -> float:
    """Return the value of a run after another fall like its last one."""
    *_, before, value = run.errors[:1] + run.errors  # the callback may have ended it at once
    return 2 * value - before


class CountSums(NamedTuple):
    """The sums of a pass: those of H over samples, and what the update of W needs.

    Attributes
    ----------
    H : array (K,) or (F, K)
        Over the samples in which each feature is known.
    logs : float
        sum v log(v / x).
    ratios : array (F, K) or None
        (V / X) H', unless W is updated on the transposed data.
    curvatures : array (F, K (K + 1) / 2) or None
        See `newton_from_sums`.
    """

    H: Array
    logs: float = 0.0
    ratios: Array | None = None
    curvatures: Array | None = None


class Divergence(Objective[CountSums, CountShared]):
    """The divergence of W H from V; see the module. Values are computed only if it `is_judged`."""

    Sums = CountSums

    def __init__(
        self, loss: Loss, V: DataMatrix, *given: Any, is_judged: bool = True, **more: Any
    ) -> None:
        super().__init__(loss, V, *given, **more)
        self.margins = margins(V)
        self._counts = self.margins.total / self.unit
        self.turned = _turned(V)
        self.aligned = V.aligned_weights
        self._logs = self.margins.of_weights
        if self.groups is not None:
            self.codes = (V.align(self.groups.codes_of(V)),)
            self._logs += logs_of_scales(V, self.groups)
        self._is_judged = is_judged
        self._held = restraints(self.penalties, self.n_fixed)
        if not self.penalties.are_none:
            self._terms = term_of(self._held[0]), term_of(self._held[1])

    def updates(self, solver: Solver, affordable_H: float, affordable_W: float) -> Updates:
        """Return the updates of rows, with the penalties and known components."""
        of_H, of_W = self._held
        update_W = partial(solver.update, held=of_W)
        update_H = partial(solver.update, held=of_H)
        return Updates(solver, update_H, lambda W: update_W, kept=_KEPT_SHARE)

    def _largest_value(self) -> float:
        """Return the divergence of the best single component; the total if it is 0."""
        return margins(self.V).scale

    @staticmethod
    def step(
        block: Block, rows: Rows, shared: CountShared, move: Move, C: Array | None = None
    ) -> Stepped[CountSums]:
        """Update a block's rows of H and return them with the required sums; see `Objective`."""
        weights = rows.weights
        counts = known_counts(block, weights, shared.unit)
        side = shared.side_of(block, weights, rows.codes)
        updated = move.update(counts, side, rows.H)
        moved = move.extrapolate(updated, rows.before)
        H = exact(moved)
        of_H = shared.sums_of(block, weights, H, rows.codes)
        if shared.in_both_orders:
            return Stepped(moved, updated, CountSums(of_H))
        ratios = ratios_of(counts, side, moved)
        logs = float(log_sums(counts, ratios).sum())
        curved = None
        is_small = side.W.nbytes * side.W.shape[1] <= _MAX_CURVATURE_BYTES
        if _is_newton(move.update) and is_small:
            curved = curvatures(counts, ratios, H)
        sums = CountSums(of_H, logs, weighted_sums(ratios, H), curved)
        return Stepped(moved, updated, sums)

    def shared(self, W: Array, number: int = 0, gram: Array | None = None) -> CountShared:
        """Return W with its column sums, and how V is stored."""
        has_holes = self.V.observed is not None
        rates = GroupRates.of(self.groups, W)
        return CountShared(Side.of(W), self.unit, self.turned is not None, has_holes, rates)

    def update_W(
        self,
        sums: CountSums,
        shared: CountShared | None,
        W: Array,
        Ht: Aligned,
        update: Update,
        C: Array | None = None,
    ) -> Updated:
        """Update W by the step for samples on the transposed data, or from the sums of the pass."""
        held = self._held[1]
        if self.turned is not None:
            side = Side.of(np.asarray(Ht))
            how: Facts = {"update": update, "unit": self.unit, "is_judged": self._is_judged}
            own = (sums.H,) if sums.H.ndim == 2 else ()
            rows, logs = self.turned.sweep(_step_of_features, W, *own, side=side, **how)
            self.V._count(1.0)
            updated = np.asarray(rows)
            return Updated(updated, self.value(sums._replace(logs=logs), updated, Ht))
        assert sums.ratios is not None
        if sums.curvatures is None:
            updated = multiplied(W, sums.ratios, sums.H, held)
        else:
            totals = self.margins.features / self.unit
            updated = newton_from_sums(sums.ratios, sums.curvatures, sums.H, totals, W, held)
        return Updated(updated, self.value(sums, W, Ht))

    def value(self, sums: CountSums, W: Array, Ht: Aligned) -> float:
        """Return the divergence of V / unit, at least 0 in spite of rounding, and the penalties."""
        value = self.total
        if self._is_judged:
            logs = sums.logs - self._logs / self.unit
            value = logs + _mass(W, sums.H) - self._counts
        if not np.isfinite(value):
            problem = "the factors give a rate of zero where a count is not zero: begin with "
            advice = "factors that are positive there, or leave the choice to "
            raise DataError(problem + advice, Option("init", "auto"))
        return self._penalised(max(float(value), 0.0), W, Ht)

    def support(self, W: Array, Ht: Aligned, codes: Aligned, count: int) -> Array:
        """Return how strongly each group supports each component; see `Objective`; one pass."""
        how: Facts = {"W": exact(W), "count": count}
        (sums,) = self.V.sweep(_support, Ht, codes, *self.aligned, **how)
        return np.asarray(sums)

    def finish(self, W: Array, *, sort: bool = True, near: Aligned | None = None) -> Finish:
        """Return the best H for W, with the divergence and the duality gaps; see `regressions`.

        If all components are known, counts of features that are zero there are left out, with a
        warning.
        """
        held = self._held[1]
        n_first = self.n_fixed if sort else W.shape[1]
        H, labels, sums = regressions(self.V, W, self.penalties, groups=self.groups)
        if sums.unseen.any():
            report_unseen(self.V, sums.unseen)
        W = exact(W)
        gaps = dual_gaps(sums.ratios, sums.known, W, self.margins.features, held)
        gap = (sums.gap + float(gaps.sum())) / self.margins.total
        masses = W.sum(axis=0) * sums.H
        if self.groups is not None:
            masses = (W * sums.known).sum(axis=0)
        shares = masses / (masses.sum() or 1.0)
        order = sorting(shares, n_first)
        Ht, labels, _ = self.V.map(_reorder, H.T, labels, order=order, sizes=W.sum(axis=0))
        value = max(sums.divergence, 0.0)
        objective = value + sums.penalty + term_of(held).value(W)
        return Finish(Ht.T, labels, value, objective, gap, order, shares[order])


def _support(
    block: Block, H: Array, codes: Array, weights: EntryWeights = None, *, W: Array, count: int
) -> tuple[Array]:
    """Step: sum h^2 / [A^-1]_kk / 2, and its squares, over the samples of each group."""
    counts = known_counts(block, weights)
    K = W.shape[1]
    gains = np.empty(H.shape)
    for part in slices(len(H), 1 + _GRAM_NUMBERS // K**2):
        Y = exact(H[part])
        some = counts[:, part]
        ratios = ratios_of(some, Side.of(W), Y)
        curved = with_data(some, ratios.data**2 / exact(some.data))
        A = unpack(products(curved, pack(W)), K)
        gains[part] = Y**2 / np.diagonal(inverse_of(A), axis1=1, axis2=2) / 2
    return (np.array([sums_by(codes, one, count) for one in (gains, gains**2)]),)


def _reorder(
    index: range, H: Array, labels: Array, *, order: Array, sizes: Array
) -> tuple[Array, Array, None]:
    first = first_largest((exact(H) * sizes)[:, order].T, TIE_SHARE)
    return np.ascontiguousarray(H[:, order]), np.where(labels < 0, labels, first), None


def _step_of_features(
    block: Block,
    W: Array,
    sums: Array | None = None,
    *,
    update: Update,
    side: Side,
    unit: float,
    is_judged: bool,
) -> tuple[Array, float]:
    """Step on the transposed data: update rows of W, and return sum v log(v / x) after it.

    With holes or groups, each feature has its own `sums` of H.
    """
    counts = known_counts(block, None, unit)
    side = side if sums is None else side._replace(sums=sums)
    if _is_newton(update) and W.dtype == np.float64:
        rates = np.empty(counts.nnz)
        updated = update(counts, side, W, rates=rates)
        values = exact(counts.data)
        with np.errstate(divide="ignore"):  # missing rates show up in the value
            return updated, float(values @ np.log(values / rates))
    updated = update(counts, side, W)
    if not is_judged:
        return updated, 0.0
    return updated, float(log_sums(counts, ratios_of(counts, side, updated)).sum())


def _is_newton(update: Update) -> bool:
    return getattr(update, "func", update) is newton


def _mass(W: Array, H: Array) -> float:
    """Return the sum of the rates of all known entries, given the sums of H."""
    return float(exact(W).sum(axis=0) @ H if H.ndim == 1 else np.vdot(exact(W), H))


def _turned(V: DataMatrix) -> DataMatrix | None:
    """Return the transposed V if it is in memory and small enough; otherwise None."""
    if V.aligned_weights:
        return None  # weights are stored by samples
    if V.other_order is not None:
        return V.other_order
    return V.turned() if isinstance(V, DenseMatrix) and V.observed is None else None


def unit_sums(V: DataMatrix) -> DataMatrix:
    """Return a view of V with samples scaled to a sum of one, times the roots of their weights."""
    own = V.unweighed
    if own is None or own.scales is None:
        return to_sums(V, 1.0)
    return times_samples(to_sums(own.V, 1.0), np.sqrt(own.weights))


def _lifted(W: Array, mean: Array) -> Array:
    """Return columns of sum one, with a share of the mean composition added."""
    sums = W.sum(axis=0, dtype=float)
    columns = np.where(sums > 0, over(W, sums), mean[:, None])
    return (1 - _LIFTED_SHARE) * columns + _LIFTED_SHARE * mean[:, None]


def _with_counts(W: Array, mean: Array, n_fixed: int = 0) -> Array:
    """Add a little of every component to features that have counts but no component."""
    lost = (W.sum(axis=1) == 0) & (mean > 0)
    if lost.any():
        W = W.astype(float)
        W[lost, n_fixed:] = _LIFTED_SHARE * mean[lost, None] * W[:, n_fixed:].sum(axis=0)
    return W


def _equal_coefficients(V: DataMatrix, W: Array) -> Aligned:
    """Return H (K, N) with equal shares of all components."""
    sums = W.sum(axis=0)
    dtype = V.dtype
    shares = over(1.0, sums) / max(np.count_nonzero(sums > 0), 1)
    counts = margins(V).samples
    return V.by_rows(lambda _, totals: (totals[:, None] * shares).astype(dtype), counts).T


_MIXED_SHARE = 0.01  # of the rates of a sample, distributed like the mean of the components


def _predict(block: Block, weights: Array, *, W: Array, folds: Array) -> tuple[tuple[float, float]]:
    has_component: Array = W.max(axis=1) > 0
    counts = counts_of(features_scaled(exact(block), exact(has_component)))
    totals = sample_sums(counts)
    mean = W.mean(axis=1, keepdims=True)
    mean /= mean.sum() or 1.0
    missed = np.zeros(counts.shape[1])
    for fold in range(folds.max() + 1):
        member: Array = (folds == fold).astype(float)
        other: Array = 1.0 - member
        inside = counts_of(features_scaled(counts, member))
        outside = counts_of(features_scaled(counts, other))
        H = regression(outside, Side.of(W * other[:, None]))
        masses = H @ W.sum(axis=0)
        share = np.where(masses > 0, _MIXED_SHARE, 1.0)
        rest = mean[member == 0].sum()
        known = sample_sums(outside)
        unknown = np.where(known > 0, known / (rest or 1.0), totals)  # as the mean predicts
        joined = np.hstack([H * (1 - share)[:, None], (share * unknown)[:, None]])
        missed += _sample_divergences(inside, np.hstack([W, mean]) * member[:, None], joined)
    base = _sample_divergences(counts, mean, totals[:, None])
    return ((float((weights * missed).sum()), float((weights * base).sum())),)


def _sample_divergences(counts: Block, W: Array, H: Array) -> Array:
    """Return D(v | W h) of every sample."""
    logs = log_sums(counts, ratios_of(counts, Side.of(W), H))
    return logs + H @ W.sum(axis=0) - sample_sums(counts)


POISSON = Poisson()
