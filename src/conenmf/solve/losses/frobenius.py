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
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...arguments import DType
from ...data.blocks import Array, Block, exact, products, slices, weighted_sums
from ...data.known import observed_residual, packed, row_grams, weighed, weighted_grams
from ...data.matrix import Aligned, DataMatrix, Results
from ...data.resources import run_in_order
from ...data.validate import require_nonnegative
from ...data.views import coordinates, in_single, products_together
from ...errors import DataError, Option, OptionError
from ...linalg.svd import VECTOR_TOL, KnownSpectrum, Spectrum
from ...text import Facts
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
    penalised_update,
    sum_to_one,
    update_others,
    update_unit_columns,
)
from ..inits import Init, identity
from ..solvers import (
    SOLVERS,
    ChosenSolver,
    Solver,
    Update,
    extrapolated,
    get_solver,
    packed_update,
    solver_name,
)
from .loss import Loss, Objective, Sums

_NEARLY_EXACT_SHARE = 5e-5  # of ||v||^2: a smaller residual is lost in single precision
_SINGLE_NOISE = 3e-8  # of ||V||^2: rounding error of the squared error in single precision
_MIN_SINGLE_ERROR = 1e-2  # below this error, single precision is not accurate enough
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
    help = "least squares"
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
            "missing",
            "negative",
            "sample weights",
            "stream",
            "sparse",
        )
    )
    degree = 2
    lower_bounds = ("singular values", "dual")
    k_evidence = ("rank", "edge", "ratio", "cones", "shuffled", "hysime")
    doubled = 1

    def on(self, V: DataMatrix, *given: Any, rescale: bool = True, **more: Any) -> Objective:
        """Return the objective over all entries, or over the known ones with their weights."""
        if V.observed is None:
            return LeastSquares(self, V, *given, rescale=rescale, **more)
        return KnownSquares(self, V, *given, rescale=False, **more)  # weights have own units

    def coefficients(
        self, V: DataMatrix, W: Array, penalties: Penalties = NO_PENALTIES, *unseen: str
    ) -> tuple[Aligned, Aligned, float]:
        """Return the best H for W, by nonnegative least squares."""
        return coefficients(V, W, penalties)

    def scale(self, V: DataMatrix) -> float:
        """Return ||V||^2 over the known entries."""
        return float((V.observed or V).total)

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

    def approximation(self, V: DataMatrix, K: int, spectrum: KnownSpectrum) -> Objective | None:
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
                objective = LeastSquares(self, V)
                objective.basis = basis[:, : 2 * K]
                objective.V = coordinates(V, objective.basis)
                objective.dtype = np.dtype(np.float32)
                return objective
        single = in_single(V)
        return None if single is None else self.on(single)

    def lower_bound(self, V: DataMatrix, K: int, spectrum: Spectrum) -> float:
        """Return the residual of K singular vectors (Eckart and Young), which inits use too."""
        squares = spectrum.leading_subspace(K, tol=VECTOR_TOL)[1][:K]
        return math.sqrt(max(1 - float(squares.sum()) / V.total, 0.0))

    def held_out(self, V: DataMatrix, W: Array, weights: Array | None = None) -> float:
        """Return the share of ||V||^2 that other features predict."""
        return held_out_share(V, W, weights=weights)


class _Squares(Objective):
    """Squared errors, with updates ``(G, C, Y) -> Y`` for penalties and known components."""

    def __init__(self, loss: Loss, V: DataMatrix, *given: Any, **more: Any) -> None:
        super().__init__(loss, V, *given, **more)
        penalties = self.penalties
        self.aligned = (V.norms_squared,) if V.observed is None else V.observed.aligned
        self.terms = penalties.on_H, penalties.on_W(V.total, V.n_samples)
        self._whole = penalties.fixes_columns  # the update of W needs all features at once
        self.moves_coefficients = not penalties.sum_to_one

    def runs_as(self, solver: Solver) -> Solver:
        """Return the solver; for coefficients that sum to one, an exact one."""
        if not self.penalties.sum_to_one:
            return solver
        return Solver(sum_to_one, first="H", extrapolate=solver.extrapolate)

    def updates(self, solver: Solver, affordable_H: float, affordable_W: float) -> None:
        """Make the updates of rows of H and of W, with the penalties and known components."""
        is_simplex = self.penalties.sum_to_one
        n_kept = None if self._whole else self.n_fixed
        update_H = sum_to_one if is_simplex else solver.sweeping(affordable_H)
        self._update_W = solver.sweeping(affordable_W)
        of_H, of_W = self.terms
        if solver.takes_l1:
            of_H, update_H = _with_l1(of_H, update_H)
            of_W, self._update_W = _with_l1(of_W, self._update_W)
        if self._whole:
            of_W = self.terms[1]
            self._update_W = partial(update_unit_columns, sweeps=_UNIT_SWEEPS, n_fixed=self.n_fixed)
        elif self.n_fixed:
            self._update_W = partial(update_others, update=self._update_W, n_fixed=self.n_fixed)
        self._of_W = of_W
        self._n_kept = n_kept
        self.update_rows = update_H
        if of_H is not None:
            self.update_rows = partial(penalised_update, update=update_H, term=of_H, n_kept=0)

    def _updated_rows(self, update_rows: Callable[[slice], Array], W: Array, size: int) -> Array:
        """Return W with `size` features updated at a time, on threads."""
        updated = np.empty_like(W)
        parts = slices(len(W), size)

        def run(number: int) -> None:
            updated[parts[number]] = update_rows(parts[number])

        run_in_order(run, lambda *_: None, len(parts), self.V.n_threads)
        return updated

    def _update_near(self, W: Array) -> Update:
        """Return the update of W with its penalty at W."""
        term = self._of_W
        if term is None:
            return self._update_W
        how: Facts = {"term": term.at(W), "n_kept": self._n_kept}
        return partial(penalised_update, update=self._update_W, **how)

    def finish(self, W: Array, *, sort: bool = True) -> Finish:
        """Return the best H for W, with its squared error; see `coefficients`."""
        n_first = self.n_fixed if sort else W.shape[1]
        return finished(self.V, W, self.penalties, n_first=n_first, n_fixed=self.n_fixed)


class LeastSquares(_Squares):
    """||V - W H||^2, with the sums VH' (F, K), HH' (K, K) and <V, WH>.

    The value is a difference of large numbers, accurate to about 2e-8 of ||V|| in float64.
    """

    knows_after = takes_products = True
    basis: Array | None = None  # (F, r): V contains coordinates in this basis instead of features
    _last: tuple[Any, Any] = (None, None)  # the last requested W, and its W'W

    def is_blurred(self, error: float, fall: float, tol: float) -> bool:
        """Return whether rounding or a basis hides how the error falls.

        Single precision is not accurate enough for nearly exact factors.
        """
        if error < _MIN_SINGLE_ERROR:
            return True
        if self.basis is None:
            return fall < _SINGLE_NOISE / error**2
        return fall < _CONVERGED_SHARE * tol or self.number >= _MAX_ITERATIONS_ON_BASIS

    @staticmethod
    def step(
        block: Block,
        *given: Array,
        update: Update,
        beta: float,
        floor: float,
        **shared: Any,
    ) -> Results:
        """Update a block's rows of H and return them with VH', HH' and <V, WH>; see `Objective`.

        VH' is left out if V is stored in both orders: the same step then updates W on the
        transposed data. In single precision the sums are not accurate for errors below a
        thousandth; if errors are nearly that small, the step is repeated in double precision.
        """
        unit = shared["unit"]
        squared, H, *before = given
        C = shared.pop("C", None)  # products that were computed for several runs at once
        C = products(block, shared["W"]) if C is None else C
        C = C if unit == 1 else C / C.dtype.type(unit)
        updated = _checked_update(update, shared["G"], C, H).astype(H.dtype, copy=False)
        moved = extrapolated(updated, before[0], beta, floor) if before and beta else updated
        rows = exact(moved)
        HH = rows.T @ rows
        inner = float(np.vdot(exact(C), rows))
        sums = {"HH": HH, "inner": inner}
        if block.dtype != np.float64:
            total = float(squared.sum()) / unit**2
            left = total - 2.0 * inner + float(np.vdot(shared["G"], HH))
            if left < _NEARLY_EXACT_SHARE * total:
                shared["W"] = exact(shared["W"])
                shared |= {"update": update, "beta": beta, "floor": floor}
                return LeastSquares.step(exact(block), *given, **shared)
        if not shared.get("in_both_orders"):
            sums["VH"] = exact(weighted_sums(block, moved)) / unit
        return (moved, updated, sums) if before else (moved, sums)

    def shared(self, W: Array) -> Facts:
        """Return W in the type of the products with blocks, and its Gram matrix, rounded alike."""
        rounded = W.astype(self.dtype, copy=False)
        shared = {"W": rounded, "G": self._gram(rounded), "unit": self.unit}
        if self.basis is not None:
            return {**shared, "W": self.basis.T @ exact(W)}
        if self._whole or self.V.other_order is None:
            return shared
        return {**shared, "in_both_orders": True}

    def update_W(self, sums: Sums, W: Array, Ht: Aligned) -> Array:
        """Update W from G = HH' and C = VH', on threads.

        If V is stored in both orders, the step for samples is applied to the transposed data,
        because NMF is symmetric. Otherwise the sums of the pass are used, for many rows at a time.
        """
        other = None if "VH" in sums else self.V.other_order
        if other is not None:
            update = self._update_near(W)
            turned = {"W": np.asarray(Ht), "G": sums["HH"], "unit": self.unit}
            known = (sums.pop("C"),) if "C" in sums else ()
            updated, moments = other.sweep(
                _multiplied_step if known else LeastSquares.step,
                *known,
                other.norms_squared,
                W,
                update=update,
                beta=0.0,
                floor=0.0,
                in_both_orders=True,
                **turned,
            )
            updated = np.asarray(updated)
            sums["inner after"] = moments["inner"]
            self._last = updated, moments["HH"]
            return updated
        updated, dtype = self._updated_from(sums, W)
        if dtype == np.float64 or self._sufficient_dtype(sums, updated) != np.float64:
            return updated
        # An extrapolated W was far from exact, but the new W is not: VH was rounded too much.
        sums["VH"] = self.V.sweep(_exact_sums, Ht)[0] / self.unit
        return self._updated_from(sums, W, np.dtype(float))[0]

    def _updated_from(
        self, sums: Sums, W: Array, dtype: DType | None = None
    ) -> tuple[Array, DType]:
        """Return W updated from the sums of a pass, and the type of the computation."""
        if self.basis is not None:
            sums["VH"] = self.basis @ sums["VH"]
        update = self._update_near(W)
        dtype = self._sufficient_dtype(sums, W) if dtype is None else dtype
        F = len(W)
        size = F if self._whole else min(max(_BATCH_ROWS, -(-F // _BATCHES)), _MAX_BATCH_ROWS)

        def update_rows(rows: slice) -> Array:
            C, Y = (one[rows].astype(dtype, copy=False) for one in (sums["VH"], W))
            return _checked_update(update, sums["HH"], C, Y)

        return self._updated_rows(update_rows, W, size), dtype

    def _gram(self, W: Array) -> Array:
        """Return W'W, which an iteration needs several times."""
        if self._last[0] is not W:
            rows = exact(W)
            self._last = W, rows.T @ rows
        return self._last[1]

    def _sufficient_dtype(self, sums: Sums, W: Array) -> DType:
        """Return the type of V, or float64 if the residual is too small for single precision."""
        if self.V.dtype == np.float64:
            return self.V.dtype
        inner = float(np.vdot(sums["VH"], W))  # W may have been scaled after the pass
        left = self.total - 2.0 * inner + float(np.vdot(self._gram(W), sums["HH"]))
        return self.V.dtype if left > _NEARLY_EXACT_SHARE * self.total else np.dtype(float)

    def scale_W(self, sums: Sums, W: Array) -> Array:
        """Return W times <V, WH> / ||WH||^2."""
        squared = float(np.vdot(self._gram(W), sums["HH"]))
        return W * (sums["inner"] / squared) if squared > 0 else W

    def value(self, sums: Sums, W: Array, *, after: bool) -> float:
        """Return ||V / unit - W H||^2, at least 0 in spite of rounding."""
        inner = sums["inner"]
        if after:
            inner = float(np.vdot(sums["VH"], W)) if "VH" in sums else sums["inner after"]
        squared = self.total - 2.0 * inner + float(np.vdot(self._gram(W), sums["HH"]))
        if not np.isfinite(squared):
            raise DataError("the solver returned factors that are not finite: check its update")
        return max(squared, 0.0)

    @staticmethod
    def multiply(V: DataMatrix, factors: list[tuple[Aligned, Sums]]) -> None:
        """Multiply V with the new H of all runs at once, if W is updated on the transposed data."""
        if V.other_order is None:
            return
        new = [(np.asarray(Ht), sums) for Ht, sums in factors if "VH" not in sums]
        products = products_together(V.other_order, [Ht for Ht, _ in new])
        for (_, sums), C in zip(new, products or [], strict=False):
            sums["C"] = C


class KnownSquares(_Squares):
    """The weighted squared error over the known entries.

    One iteration in `grams_every` uses Gram matrices, the others fill missing entries. If half of
    the entries or more are missing, or if weights differ, all iterations use Gram matrices.
    """

    grams_every: int | None = None

    @staticmethod
    def step(
        block: Block,
        *given: Array,
        update: Update,
        beta: float,
        floor: float,
        **shared: Any,
    ) -> Results:
        """Update a block's rows of H and return them with the sums; see `Objective`."""
        weights, given = (given[0], given[1:]) if shared["is_weighted"] else (None, given)
        W = shared["W"]
        H, *before = given
        if shared["has_grams"]:
            entries = exact(block) if shared["is_mask"] else weighed(block, weights)
            C = products(entries, W)
            updated = np.empty_like(H)
            for rows in slices(len(H), max(1, _GRAM_NUMBERS // W.shape[1] ** 2)):
                part = None if weights is None else weights[rows]
                grams = row_grams(block[:, rows], part, shared["pairs"])
                updated[rows] = packed_update(update, grams, C[rows], exact(H[rows]))
        else:
            left, _ = observed_residual(block, weights, W, exact(H))
            C = products(left, W) + exact(H) @ shared["G"]
            updated = update(shared["G"], C, exact(H)).astype(H.dtype, copy=False)
        moved = extrapolated(updated, before[0], beta, floor) if before and beta else updated
        rows_of = exact(moved)
        if shared["has_grams"]:
            grams = weighted_grams(block, weights, packed(rows_of))
            sums: Sums = {"VH": weighted_sums(entries, rows_of), "grams": grams}
        else:
            left, squares = observed_residual(block, weights, W, rows_of)
            VH = weighted_sums(left, rows_of)
            sums = {"value": float(squares.sum()), "HH": rows_of.T @ rows_of, "VH": VH}
        return (moved, updated, sums) if before else (moved, sums)

    def shared(self, W: Array) -> Facts:
        """Return W in float64, W'W, and if needed the products of pairs of its columns."""
        W = exact(W)
        is_mask = self.V.observed.is_mask
        missing = self.V.observed.missing
        usual = _GRAMS_EVERY if W.shape[1] <= _MANY else _GRAMS_EVERY_OF_MANY
        every = self.grams_every or usual if is_mask and missing < _MAX_FILLED else 1
        has_grams = self.knows_after = self.number % every == 0
        shared = {"W": W, "has_grams": has_grams, "is_mask": is_mask}
        shared["is_weighted"] = bool(self.aligned)
        return {**shared, "pairs": packed(W)} if has_grams else {**shared, "G": W.T @ W}

    def update_W(self, sums: Sums, W: Array, Ht: Aligned) -> Array:
        """Update W from a Gram matrix for each feature, or from HH' and the filled entries.

        Features without known entries become zero.
        """
        update = self._update_near(W)
        if "grams" in sums:

            def update_rows(rows: slice) -> Array:
                return packed_update(update, sums["grams"][rows], sums["VH"][rows], exact(W[rows]))

            size = min(max(1, _GRAM_NUMBERS // W.shape[1] ** 2), _BATCH_FEATURES)
            updated = self._updated_rows(update_rows, W, size)
        else:
            C = sums["VH"] + exact(W) @ sums["HH"]
            updated = update(sums["HH"], C, exact(W)).astype(W.dtype, copy=False)
        if not np.isfinite(updated).all() or updated.min() < 0:
            raise DataError("the solver returned entries that are negative or not finite")
        empty = self.V.observed.empty_features
        return np.where(empty[:, None], 0, updated) if empty.any() else updated

    def scale_W(self, sums: Sums, W: Array) -> Array:
        """Return W times the factor that makes it best for the H of the sums."""
        product = float(np.vdot(sums["VH"], W))  # <pV, WH>, or this minus <pWH, WH>
        if "grams" in sums:
            inner = product
            squared = self._squares(sums, W)
        else:
            squared = self.total - 2 * product - sums["value"]
            inner = product + squared
        return W * (inner / squared) if squared > 0 else W

    def value(self, sums: Sums, W: Array, *, after: bool) -> float:
        """Return the weighted squared error; with Gram matrices of features, at any W."""
        if "grams" in sums:
            inner = float(np.vdot(sums["VH"], exact(W)))
            value = max(float(self.total - 2 * inner + self._squares(sums, W)), 0.0)
        else:
            value = float(sums["value"])
        if not np.isfinite(value):
            raise DataError("the solver returned factors that are not finite: check its update")
        return value

    @staticmethod
    def _squares(sums: Sums, W: Array) -> float:
        """Return the weighted squares of W H, from the Gram matrix of each feature."""
        first, second = np.triu_indices(W.shape[1])
        return float(np.vdot(packed(W) * np.where(first == second, 1.0, 2.0), sums["grams"]))


def _exact_sums(block: Block, H: Array) -> tuple[Array]:
    """Step: return V H' in double precision."""
    return (weighted_sums(exact(block), exact(H)),)


def _multiplied_step(block: Block, C: Array, *given: Array, **shared: Any) -> Results:
    return LeastSquares.step(block, *given, C=C, **shared)


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
