"""Least squares: ||V - W H||^2.

With W given, a block of samples yields C = V'W, its new H = update(G, C, H) with G = W'W, and the
sums VH', HH' and <V, WH>. From these, W follows by an update with G = HH' and C = VH', and the
value for any W is

    ||V - W H||^2 = ||V||^2 - 2 <V, WH> + <W'W, HH'>.

**Missing and weighted entries.** The objective is the sum of p (v - w h)^2. Every sample has its
own Gram matrix, G_n = sum_f p_nf w_f w_f', and so has every feature, sum_n p_nf h_n h_n'. They cost
K times as much as a plain iteration. If less than half of the entries is missing and all others
have equal weights, most iterations instead replace missing entries by the current W H (Srebro and
Jaakkola, "Weighted low-rank approximations", ICML 2003): with R = p (V - WH) the update uses C =
R'W + H G and the plain G = W'W. No filled matrix is stored.

Filling alone is not enough. Suppose that a component is nearly a single feature, and a sample lacks
this feature. The sample then keeps its coefficient, because the missing entry is filled from this
coefficient, and the exact H at the end is far from it. So every sixth or twelfth iteration uses
Gram matrices. All iterations lower the same objective. With Gram matrices of the features a pass
knows the value at any W; otherwise only at its own W.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ...data.blocks import Block, exact, products, slices, weighted_sums
from ...data.entries import (
    EntryWeights,
    observed_residual,
    pack,
    row_grams,
    upper_half,
    weigh,
    weighted_grams,
)
from ...data.groups import Groups, of_residuals, scaled_residuals
from ...data.matrix import Aligned, DataMatrix
from ...data.resources import run_in_order
from ...data.validate import require_nonnegative
from ...data.views import coordinates, in_single
from ...errors import DataError, Option, OptionError
from ...linalg.svd import KnownSpectrum
from ...types import Array, DType, Facts
from ..coefficients import (
    Finish,
    coefficients,
    finished,
    held_out_share,
)
from ..constraints import (
    NO_PENALTIES,
    Penalties,
    Term,
    barred,
    penalised_update,
    sum_to_one,
    update_others,
    update_unit_columns,
)
from ..inits import Init, identity
from ..loss import AnyObjective, Loss, Move, Objective, Rows, Stepped, Updated, Updates, Words
from ..solvers import (
    SOLVERS,
    ChosenSolver,
    Solver,
    Update,
    get_solver,
    packed_update,
    solver_name,
)
from .squared_bounds import SquaredBounds

_NEARLY_EXACT_SHARE = 5e-5  # of ||v||^2: a smaller residual is lost in single precision
_SINGLE_NOISE = 3e-8  # of ||V||^2: rounding error of the squared error in single precision
_MIN_SINGLE_ERROR = 1e-2  # below this error, single precision is not accurate enough
_FEW_FEATURES = (
    16  # rounding of so few sums in single precision does not cancel: they are in double
)
_CONVERGED_SHARE = 0.5  # of the tolerance: a run on a basis ends when the error falls by less
_MAX_ITERATIONS_ON_BASIS = 150
_MIN_ENTRIES = 1 << 17
_MAX_SHORT_SIDE = 500
_MAX_LEFT_OF_SINGLE = 3e-3  # of ||V||^2: above it, single precision suffices
_MAX_LEFT_SHARE = 0.45  # largest residual of 2 K vectors, as a share of the residual of K vectors
_BATCHES = 8  # of features, for threads
_BATCH_ROWS = 512
_MAX_BATCH_ROWS = 4096
_UNIT_SWEEPS = 5  # over columns of unit length
_MAX_FILLED = 0.5  # largest share of missing entries that the loop fills
_GRAMS_EVERY = 6  # iterations, others fill missing entries; chosen on indian_pines, digits and yale
_GRAMS_EVERY_OF_MANY = 12  # for more components than this, whose Gram matrices are slow
_MANY = 22
_GRAM_NUMBERS = 1 << 19  # in the Gram matrices of rows that are computed at a time
_BATCH_FEATURES = 256  # that a thread updates at a time


class Frobenius(Loss):
    """Least squares over all entries, or over the known ones."""

    name = "frobenius"
    words = Words(help="least squares")
    solvers = SOLVERS
    constraints = frozenset(
        (
            "l1",
            "l2",
            "orthogonality",
            "min_volume",
            "sum_to_one",
            "one factor",
            "fixed",
            "groups",
            "missing",
            "negative",
            "sample weights",
            "resampling",
            "sigma",
            "symmetric",
            "stream",
            "sparse",
            "robust",
        )
    )
    degree = 2

    def on(
        self,
        V: DataMatrix,
        *given: Any,
        rescale: bool = True,
        groups: Groups | None = None,
        **more: Any,
    ) -> AnyObjective:
        """Return the objective over all entries, or over the known ones with their weights.

        With groups it is that of V divided by their scales.
        """
        if groups is not None:
            more["groups"] = groups
            V = groups.divided(V)
        if V.observed is None:
            return LeastSquares(self, V, *given, rescale=rescale, **more)
        return KnownSquares(self, V, *given, rescale=False, **more)  # weights have own units

    def coefficients(
        self,
        V: DataMatrix,
        W: Array,
        penalties: Penalties = NO_PENALTIES,
        unseen: str = "warn",
        groups: Groups | None = None,
    ) -> tuple[Aligned, Aligned, float]:
        """Return the best H for W, by nonnegative least squares."""
        V = V if groups is None else groups.divided(V)
        return coefficients(V, W, penalties, groups)

    def solver(self, solver: str | Solver | Update) -> Solver:
        """Return the solver; a function becomes a solver."""
        return get_solver("hals" if solver == "auto" else solver)

    def check(
        self, V: DataMatrix, solver: ChosenSolver, penalties: Penalties, fixed: object = None
    ) -> None:
        """Reject solvers that floor negative data, and factors whose scale nothing fixes."""
        penalties.check_solver(solver_name(solver) or "none", solver)
        if V.observed is not None and penalties.fixes_columns:
            raise OptionError(
                "with missing or weighted entries, a penalty needs an L1 or L2 penalty on the "
                "other factor too, or ",
                Option("sum_to_one"),
                ": components of unit length need complete data",
            )
        if solver is not None and solver.floored:
            require_nonnegative(V, f"the solver {solver_name(solver)!r}")
        is_weighed = V.unweighed is not None and V.unweighed.repeated is None
        if is_weighed and (penalties.l1_h or penalties.sum_to_one):
            problem = " works with L2 penalties on coefficients, but not with L1 or sums of one: "
            weight = Option("sample_weight")
            raise OptionError(weight, problem, "leave one of the two out")

    def inits(self, V: DataMatrix, K: int, solver: ChosenSolver) -> tuple[Init, ...]:
        """Start with NNDSVD, or with cones for the factors of an init and for solvers that floor.

        Solvers that floor hardly change the zeros of NNDSVD. With as many components as features or
        samples, there are exact factors. The best single component is that of a single cone (Lemma
        3). The best two components are those of the leading plane if it is nonnegative.
        """
        if solver is None or min(V.shape) < K or K == 1:
            return ("cr1",)
        if min(V.shape) == K:
            return (identity,)
        if solver.floored:
            return ("cr1-robust", "random", "random")
        return ("rank-two" if K == 2 else "nndsvd", "cr1-robust", "random", "random")

    def approximation(self, V: DataMatrix, K: int, spectrum: KnownSpectrum) -> AnyObjective | None:
        """Return the objective of large data on leading singular vectors, or in single precision.

        If a side of V is short, the singular vectors are known. If 2 K vectors leave much less than
        K vectors, all good components lie near their subspace. This helps if errors are small; if
        they are larger, a run in single precision converges.
        """
        F, N = V.shape
        is_large = V.dtype == np.float64 and 2 * V.n_entries > max(_MIN_ENTRIES, F * N)
        if K > 1 and spectrum is not None and is_large and 4 * K <= min(F, N) <= _MAX_SHORT_SIDE:
            basis, squares = spectrum.leading_subspace(2 * K)
            left = V.total - np.cumsum(squares)
            is_close = left[K - 1] < _MAX_LEFT_OF_SINGLE * V.total
            if is_close and left[2 * K - 1] < _MAX_LEFT_SHARE * left[K - 1]:
                return LeastSquares(self, V, basis=basis[:, : 2 * K])
        single = in_single(V)
        return None if single is None else self.on(single)

    def bounds(self, V: DataMatrix, spectrum: KnownSpectrum = None) -> SquaredBounds:
        """Return the bounds of the squared error."""
        return SquaredBounds(self, V, spectrum)

    def held_out(self, V: DataMatrix, W: Array, weights: Array | None = None) -> float:
        """Return the share of ||V||^2 that other features predict."""
        return held_out_share(V, W, weights=weights)


SquaresT = TypeVar("SquaresT", "SquareSums", "KnownSums")
SquareSharedT = TypeVar("SquareSharedT", "SquareShared", "KnownShared")


class _Squares(Objective[SquaresT, SquareSharedT]):
    """Squared errors, with updates ``(G, C, Y) -> Y`` for penalties and known components."""

    def __init__(self, loss: Loss, V: DataMatrix, *given: Any, **more: Any) -> None:
        super().__init__(loss, V, *given, **more)
        penalties = self.penalties
        self.aligned = (V.norms_squared,) if V.observed is None else V.observed.aligned
        self._bars = getattr(self.groups, "bars", None)
        if self.groups is not None and self._bars is not None:
            self.codes = (V.align(self.groups.codes_of(V)),)
        self._terms = penalties.on_H, penalties.on_W(V.total, V.n_samples)
        self._whole = penalties.fixes_columns  # the update of W needs all features at once

    def updates(self, solver: Solver, affordable_H: float, affordable_W: float) -> Updates:
        """Return the updates of rows of H and of W, with the penalties and known components.

        Coefficients that sum to one are computed exactly.
        """
        update_H = solver.sweeping(affordable_H)
        update_W = solver.sweeping(affordable_W)
        if self.penalties.sum_to_one:
            update_H = sum_to_one
        of_H, of_W = self._terms
        if solver.takes_l1:
            of_H, update_H = _with_l1(of_H, update_H)
            of_W, update_W = _with_l1(of_W, update_W)
        if of_H is not None:
            update_H = partial(penalised_update, update=update_H, term=of_H, n_kept=0)
        n_kept: int | None = self.n_fixed
        if self._whole:
            of_W = self._terms[1]
            update_W = partial(update_unit_columns, sweeps=_UNIT_SWEEPS, n_fixed=self.n_fixed)
            n_kept = None
        elif self.n_fixed:
            update_W = partial(update_others, update=update_W, n_fixed=self.n_fixed)
        if self.penalties.sum_to_one:
            solver = Solver(sum_to_one, first="H", extrapolate=solver.extrapolate)
        scale = self._scale_W if solver.rescale else None
        return Updates(solver, update_H, partial(_near, update_W, of_W, n_kept), scale)

    @abstractmethod
    def _scale_W(self, sums: SquaresT, W: Array) -> Array:
        """Return W times the factor that makes it best for the H of the sums."""

    def relative_error(self, value: float) -> float:
        """Return ||V - W H|| / ||V||."""
        return math.sqrt(super().relative_error(value))

    def deviance(self, relative_error: float) -> float:
        """Return ||V - W H||^2."""
        return relative_error**2 * self.total

    def _largest_value(self) -> float:
        """Return ||V||^2 over the known entries."""
        return float((self.V.observed or self.V).total)

    def _updated_rows(self, update_rows: Callable[[slice], Array], W: Array, size: int) -> Array:
        """Return W with `size` features updated at a time, on threads."""
        updated = np.empty_like(W)
        parts = slices(len(W), size)

        def run(number: int) -> None:
            updated[parts[number]] = update_rows(parts[number])

        run_in_order(run, lambda *_: None, len(parts), self.V.n_threads)
        return updated

    def finish(self, W: Array, *, sort: bool = True, near: Aligned | None = None) -> Finish:
        """Return the best H for W, with its squared error; see `coefficients`.

        With groups this is ||V - diag(b) W H||^2, the error of V before its division; one more
        pass.
        """
        n_first = self.n_fixed if sort else W.shape[1]
        how: Facts = {"n_first": n_first, "n_fixed": self.n_fixed, "groups": self.groups}
        end = finished(self.V, W, self.penalties, **how)
        if self.groups is None:
            return end
        rows, how = of_residuals(self.V, W[:, end.order], end.H, self.groups)
        return end._replace(squared_error=float(self.V.sweep(_sum_squares, *rows, **how)[0]))


def _sum_squares(
    block: Block, H: Array, codes: Array, weights: EntryWeights = None, **how: Any
) -> tuple[float]:
    """Step: sum the squares of the residuals, some samples at a time."""
    squared = 0.0
    for part in slices(len(H), _BATCH_ROWS):
        own = None if weights is None else weights[part]
        rows, _ = scaled_residuals(block[:, part], H[part], codes[part], own, **how)
        squared += float(np.nansum(rows**2))
    return (squared,)


class SquareSums(NamedTuple):
    """HH' (K, K), <V, WH>, and VH' (F, K) unless W is updated on the transposed data."""

    HH: Array
    inner: float
    VH: Array | None = None


def _uses(table: Array | None, rows: Rows) -> Array | None:
    """Return which components each sample may use; None if it may use all."""
    return None if table is None else table[rows.codes]


class SquareShared(NamedTuple):
    """W in the type of the products with blocks, and its Gram matrix, rounded alike."""

    W: Array
    G: Array
    unit: float
    in_both_orders: bool = False
    table: Array | None = None


class LeastSquares(_Squares[SquareSums, SquareShared]):
    """||V - W H||^2, with the sums VH' (F, K), HH' (K, K) and <V, WH>.

    The value is a difference of large numbers, accurate to about 2e-8 of ||V|| in float64. With a
    `basis` (F, r), runs read the coordinates of V in it instead of the features.
    """

    Sums = SquareSums
    takes_products = True

    def __init__(
        self, loss: Loss, V: DataMatrix, *given: Any, basis: Array | None = None, **more: Any
    ) -> None:
        super().__init__(loss, V, *given, **more)
        self.basis = basis
        if basis is not None:
            self.V = coordinates(V, basis)
            self.dtype = np.dtype(np.float32)
        elif not self._whole:
            self.turned = V.other_order

    def is_blurred(self, error: float, fall: float, tol: float, n_iter: int) -> bool:
        """Return whether rounding or a basis hides how the error falls.

        Single precision is not accurate enough for nearly exact factors.
        """
        if error < _MIN_SINGLE_ERROR:
            return True
        if self.basis is None:
            return fall < _SINGLE_NOISE / error**2
        return fall < _CONVERGED_SHARE * tol or n_iter > _MAX_ITERATIONS_ON_BASIS

    @staticmethod
    def step(
        block: Block, rows: Rows, shared: SquareShared, move: Move, C: Array | None = None
    ) -> Stepped[SquareSums]:
        """Update a block's rows of H and return them with VH', HH' and <V, WH>; see `Objective`.

        VH' is left out if V is stored in both orders: the same step then updates W on the
        transposed data. In single precision the sums are not accurate for errors below a
        thousandth; if errors are nearly that small, the step is repeated in double precision.
        """
        unit = shared.unit
        (squared,) = rows.own
        C = products(block, shared.W) if C is None else C
        C = C if unit == 1 else C / C.dtype.type(unit)
        uses = _uses(shared.table, rows)
        updated = _checked_update(move.update, shared.G, barred(C, uses), rows.H)
        updated = updated.astype(rows.H.dtype, copy=False)
        if uses is not None:
            updated = updated * uses
        moved = move.extrapolate(updated, rows.before)
        H = exact(moved)
        HH = H.T @ H
        inner = float(np.vdot(exact(C), H))
        if block.dtype != np.float64:
            total = squared.sum() / unit**2
            left = total - 2.0 * inner + np.vdot(shared.G, HH)
            if left < _NEARLY_EXACT_SHARE * total:
                shared = shared._replace(W=exact(shared.W))
                return LeastSquares.step(exact(block), rows, shared, move)
        VH = None
        if not shared.in_both_orders:
            F, n = block.shape
            VH = (
                weighted_sums(exact(block), H) if F < _FEW_FEATURES else weighted_sums(block, moved)
            )
            if F <= n:  # otherwise sums in float64 take longer than the products
                VH = exact(VH)
            VH = VH if unit == 1 else VH / VH.dtype.type(unit)
        return Stepped(moved, updated, SquareSums(HH, inner, VH))

    def shared(self, W: Array, number: int = 0, gram: Array | None = None) -> SquareShared:
        """Return W in the type of the products with blocks, and its Gram matrix."""
        rounded = W.astype(self.dtype, copy=False)
        G = _gram(rounded) if gram is None else gram
        if self.basis is not None:
            rounded = self.basis.T @ exact(W)
        return SquareShared(rounded, G, self.unit, self.turned is not None, self._bars)

    def update_W(
        self,
        sums: SquareSums,
        shared: SquareShared | None,
        W: Array,
        Ht: Aligned,
        update: Update,
        C: Array | None = None,
    ) -> Updated:
        """Update W from G = HH' and C = VH', on threads.

        If V is stored in both orders, the step for samples is applied to the transposed data,
        because NMF is symmetric. Otherwise the sums of the pass are used, for many rows at a time.
        """
        if sums.VH is None:
            return self._updated_by_step(sums, W, Ht, update, C)
        VH = sums.VH if self.basis is None else self.basis @ sums.VH
        dtype = self.V.dtype
        if dtype != np.float64:
            if shared is None:  # W may have been scaled after the pass
                value, _ = self._value_at(W, VH, sums.HH)
            else:
                value = self._value(sums.inner, shared.G, sums.HH)
            dtype = self._sufficient_dtype(value)
        updated = self._updated_from(sums.HH, VH, W, update, dtype)
        value, G = self._value_at(updated, VH, sums.HH)
        if dtype != np.float64 and self._sufficient_dtype(value) == np.float64:
            # An extrapolated W was far from exact, but the new W is not: VH was rounded too much.
            VH = self.V.sweep(_exact_sums, Ht)[0] / self.unit
            updated = self._updated_from(sums.HH, VH, W, update, np.dtype(float))
            value, G = self._value_at(updated, VH, sums.HH)
        return Updated(updated, self._penalised(value, updated, Ht), G)

    def _updated_by_step(
        self, sums: SquareSums, W: Array, Ht: Aligned, update: Update, C: Array | None
    ) -> Updated:
        """Return W updated by the step for samples on the transposed data."""
        assert self.turned is not None
        shared = SquareShared(np.asarray(Ht), sums.HH, self.unit, in_both_orders=True)
        rows = (self.turned.norms_squared, W) if C is None else (self.turned.norms_squared, W, C)
        new, of_W = self.turned.sweep(_step_of_features, *rows, shared=shared, update=update)
        updated = np.asarray(new)
        value = self._value(of_W.inner, of_W.HH, sums.HH)
        return Updated(updated, self._penalised(value, updated, Ht), of_W.HH)

    def _updated_from(self, HH: Array, VH: Array, W: Array, update: Update, dtype: DType) -> Array:
        """Return W updated from the sums of a pass, computed in this type."""
        F = len(W)
        size = F if self._whole else min(max(_BATCH_ROWS, -(-F // _BATCHES)), _MAX_BATCH_ROWS)

        def update_rows(rows: slice) -> Array:
            C = VH[rows].astype(dtype, copy=False)
            Y = W[rows].astype(dtype, copy=False)
            return _checked_update(update, HH, C, Y)

        return self._updated_rows(update_rows, W, size)

    def _sufficient_dtype(self, value: float) -> DType:
        """Return the type of V, or float64 if the value is too small for single precision."""
        return np.dtype(float) if value <= _NEARLY_EXACT_SHARE * self.total else self.V.dtype

    def _value_at(self, W: Array, VH: Array, HH: Array) -> tuple[float, Array]:
        """Return the squared error at another W than that of the pass, and W'W."""
        W = exact(W)
        G = W.T @ W
        return self._value(float(np.vdot(exact(VH), W)), G, HH), G

    def _scale_W(self, sums: SquareSums, W: Array) -> Array:
        """Return W times <V, WH> / ||WH||^2."""
        squared = np.vdot(_gram(W), sums.HH)
        return W * (sums.inner / squared) if squared > 0 else W

    def value(self, sums: SquareSums, W: Array, Ht: Aligned) -> float:
        """Return ||V / unit - W H||^2 and the penalties."""
        return self._penalised(self._value(sums.inner, _gram(W), sums.HH), W, Ht)

    def _value(self, inner: float, G: Array, HH: Array) -> float:
        """Return the squared error, at least 0 in spite of rounding."""
        return _finite(self.total - 2.0 * inner + np.vdot(G, HH))


class KnownSums(NamedTuple):
    """VH' (F, K) with a Gram matrix of each feature, or of the residual with HH' and the value.

    The sums of a pass with Gram matrices show the value at any W, the others at their own W.
    """

    VH: Array
    grams: Array | None = None
    HH: Array | None = None
    value: float = 0.0


class KnownShared(NamedTuple):
    """W in float64; the products of pairs of its columns for Gram matrices, or else W'W."""

    W: Array
    is_mask: bool
    pairs: Array | None = None
    G: Array | None = None
    table: Array | None = None


class KnownSquares(_Squares[KnownSums, KnownShared]):
    """The weighted squared error over the known entries.

    One iteration in several uses Gram matrices, the others fill missing entries. If half of
    the entries or more are missing, or if weights differ, all iterations use Gram matrices.
    """

    Sums = KnownSums

    @staticmethod
    def step(
        block: Block, rows: Rows, shared: KnownShared, move: Move, C: Array | None = None
    ) -> Stepped[KnownSums]:
        """Update a block's rows of H and return them with the sums; see `Objective`."""
        if shared.pairs is not None:
            return _step_with_grams(block, rows, shared, shared.pairs, move)
        W = shared.W
        left, _ = observed_residual(block, rows.weights, W, exact(rows.H))
        C = products(left, W) + exact(rows.H) @ shared.G
        uses = _uses(shared.table, rows)
        updated = move.update(shared.G, barred(C, uses), exact(rows.H))
        updated = updated.astype(rows.H.dtype, copy=False)
        if uses is not None:
            updated = updated * uses
        moved = move.extrapolate(updated, rows.before)
        H = exact(moved)
        left, squares = observed_residual(block, rows.weights, W, H)
        sums = KnownSums(weighted_sums(left, H), HH=H.T @ H, value=float(squares.sum()))
        return Stepped(moved, updated, sums)

    def shared(self, W: Array, number: int = 0, gram: Array | None = None) -> KnownShared:
        """Return W in float64, and the products of pairs of its columns or W'W."""
        W = exact(W)
        is_mask = self.V.observed.is_mask
        every = 1
        if is_mask and self.V.observed.missing < _MAX_FILLED:
            every = _GRAMS_EVERY if W.shape[1] <= _MANY else _GRAMS_EVERY_OF_MANY
        if number % every == 0:
            return KnownShared(W, is_mask, pairs=pack(W), table=self._bars)
        return KnownShared(W, is_mask, G=W.T @ W, table=self._bars)

    def update_W(
        self,
        sums: KnownSums,
        shared: KnownShared | None,
        W: Array,
        Ht: Aligned,
        update: Update,
        C: Array | None = None,
    ) -> Updated:
        """Update W from a Gram matrix for each feature, or from HH' and the filled entries.

        Features without known entries become zero.
        """
        grams = sums.grams
        if grams is None:
            C = sums.VH + exact(W) @ sums.HH
            updated = update(sums.HH, C, exact(W)).astype(W.dtype, copy=False)
        else:

            def update_rows(rows: slice) -> Array:
                return packed_update(update, grams[rows], sums.VH[rows], exact(W[rows]))

            size = min(max(1, _GRAM_NUMBERS // W.shape[1] ** 2), _BATCH_FEATURES)
            updated = self._updated_rows(update_rows, W, size)
        if not np.isfinite(updated).all() or updated.min() < 0:
            raise DataError("the solver returned entries that are negative or not finite")
        empty = self.V.observed.empty_features
        if empty.any():
            updated = np.where(empty[:, None], 0, updated)
        return Updated(updated, self.value(sums, W if grams is None else updated, Ht))

    def _scale_W(self, sums: KnownSums, W: Array) -> Array:
        """Return W times the factor that makes it best for the H of the sums."""
        product = float(np.vdot(sums.VH, W))  # <pV, WH>, or this minus <pWH, WH>
        if sums.grams is not None:
            inner = product
            squared = _squares_of_fit(sums.grams, W)
        else:
            squared = self.total - 2 * product - sums.value
            inner = product + squared
        return W * (inner / squared) if squared > 0 else W

    def value(self, sums: KnownSums, W: Array, Ht: Aligned) -> float:
        """Return the weighted squared error and the penalties; with Gram matrices, at any W."""
        value = sums.value
        if sums.grams is not None:
            inner = np.vdot(sums.VH, exact(W))
            value = self.total - 2 * inner + _squares_of_fit(sums.grams, W)
        return self._penalised(_finite(value), W, Ht)


def _step_with_grams(
    block: Block, rows: Rows, shared: KnownShared, pairs: Array, move: Move
) -> Stepped[KnownSums]:
    """Do the step of `KnownSquares` with a Gram matrix for each sample."""
    weights = rows.weights
    entries = exact(block) if shared.is_mask else weigh(block, weights)
    uses = _uses(shared.table, rows)
    C = barred(products(entries, shared.W), uses)
    updated = np.empty_like(rows.H)
    for part in slices(len(rows.H), max(1, _GRAM_NUMBERS // C.shape[1] ** 2)):
        own = None if weights is None else weights[part]
        grams = row_grams(block[:, part], own, pairs)
        updated[part] = packed_update(move.update, grams, C[part], exact(rows.H[part]))
    if uses is not None:
        updated *= uses
    moved = move.extrapolate(updated, rows.before)
    H = exact(moved)
    grams = weighted_grams(block, weights, pack(H))
    return Stepped(moved, updated, KnownSums(weighted_sums(entries, H), grams))


def _step_of_features(
    block: Block,
    squared: Array,
    W: Array,
    C: Array | None = None,
    *,
    shared: SquareShared,
    update: Update,
) -> tuple[Array, SquareSums]:
    """Step on the transposed data: update rows of W."""
    moved, _, sums = LeastSquares.step(block, Rows((squared,), W), shared, Move(update), C)
    return moved, sums


def _finite(squared: float) -> float:
    """Return a squared error, at least 0 in spite of rounding; raise an error if not finite."""
    if not np.isfinite(squared):
        raise DataError("the solver returned factors that are not finite: check its update")
    return max(float(squared), 0.0)


def _gram(W: Array) -> Array:
    """Return W'W in double precision."""
    rows = exact(W)
    return rows.T @ rows


def _squares_of_fit(grams: Array, W: Array) -> float:
    """Return the weighted squares of W H, from the Gram matrix of each feature."""
    first, second = upper_half(W.shape[1])
    return float(np.vdot(pack(W) * np.where(first == second, 1.0, 2.0), grams))


def _near(update: Update, term: Term | None, n_kept: int | None, W: Array) -> Update:
    """Return an update of W with its penalty near this W."""
    if term is None:
        return update
    return partial(penalised_update, update=update, term=term.at(W), n_kept=n_kept)


def _exact_sums(block: Block, H: Array) -> tuple[Array]:
    """Step: return V H' in double precision."""
    return (weighted_sums(exact(block), exact(H)),)


def _with_l1(term: Term | None, update: Update) -> tuple[Term | None, Update]:
    """Give the L1 part of a penalty to an update that takes it; return the rest and the update."""
    if term is None:
        return None, update
    return replace(term, l1=0.0), partial(update, l1=term.l1)


def _checked_update(update: Update, G: Array, C: Array, Y: Array) -> Array:
    """Apply an update, which may be the user's, and check its result."""
    updated = update(G, C, Y)
    if not isinstance(updated, np.ndarray) or updated.shape != Y.shape:
        got = getattr(updated, "shape", type(updated).__name__)
        raise DataError(f"the solver returned {got}, expected an array of shape {Y.shape}")
    if updated.size and updated.min() < 0:
        raise DataError(f"the solver returned a negative entry: {updated.min():g}")
    return updated


FROBENIUS = Frobenius()
