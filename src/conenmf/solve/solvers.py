"""The solvers: each moves W, or H, closer to the best one for a given other factor.

Given W, the problem for the samples depends only on G = W'W (K, K) and C = V'W (N, K). Given H, the
problem for the features depends only on G = HH' and C = VH' (F, K). So the update of a solver is
one pure function ``(G, C, Y) -> Y`` for both factors. It moves each row of Y closer to the
minimiser of y'Gy / 2 - c'y, and does not need V. If every row has its own Gram matrix, as with
missing entries, G is (n, K, K).

C is expensive and a sweep over Y is cheap. So `mult` and `hals` may sweep several times, until a
sweep gains little compared with the first one (Gillis and Glineur, "Accelerated multiplicative
updates and hierarchical ALS algorithms for nonnegative matrix factorization", Neural Computation
24, 2012).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from .. import kernels
from ..arguments import choice, flag, function, integer, optional
from ..data.entries import unpack
from ..errors import OptionError
from ..linalg.nnls import nnls
from ..text import function_name
from ..types import Array, Pair

_TWINS = {"cd": "'hals'", "mu": "'mult'"}  # scikit-learn's names for solvers
FLOOR = 1e-16  # smallest entry that the solvers of the published experiments allow
_SINGLE_RANGE = 1e-30, 1e30  # range of squares whose products with data fit in float32
STALL_RATIO_SQ = 0.01  # of the first squared move: a row that moves by less is done

# ``(G, C, Y) -> Y`` with one row of C and Y per sample, or per feature; G is (K, K) or (n, K, K).
# It may take a keyword `sweeps`; see `Solver`.
Update: TypeAlias = Callable[..., Array]


def mult(G: Array, C: Array, Y: Array, *, sweeps: int = 1, l1: float = 0.0) -> Array:
    """Apply the multiplicative update of Lee and Seung: Y <- max(Y * C / (Y G + l1), floor).

    The penalty l1 sum(Y) is in the denominator (Hoyer, "Non-negative sparse coding", 2002).

    >>> mult(np.eye(1), np.array([[2.0]]), np.array([[0.5]]))
    array([[2.]])
    """

    def sweep(y: Array, rows: Array) -> Pair:
        denominator = y @ G if G.ndim == 2 else np.einsum("nj,njk->nk", y, G[rows])
        denominator += denominator.dtype.type(l1)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = C[rows] / denominator  # not finite for a component that nothing uses
            new = np.maximum(y * np.where(np.isfinite(ratio), ratio, 1.0), FLOOR)
            return new, ((new - y) ** 2).sum(axis=1)

    return _swept(Y, sweeps, sweep)


def hals(G: Array, C: Array, Y: Array, *, sweeps: int = 1, floor: float = FLOOR) -> Array:
    """Do hierarchical alternating least squares: for k = 1..K, minimise exactly over column k.

    y_k <- max(y_k - (Y G_k - c_k) / G_kk, floor)

    If there are several sweeps, rows that hardly move are skipped.

    >>> hals(np.eye(2), np.array([[2.0, -1.0]]), np.array([[0.5, 0.5]]))
    array([[2.e+00, 1.e-16]])
    """
    if not kernels.AVAILABLE:
        return _hals_twin(G, C, Y, sweeps, floor)
    dtype = Y.dtype
    fits = dtype == np.float32 and G.ndim == 2
    if fits:  # for every block: lists of a few numbers are faster than arrays
        # A component that is at the floor in one factor is huge in the other.
        smallest, largest = _SINGLE_RANGE
        fits = all(size == 0 or smallest < size < largest for size in G.diagonal().tolist())
    Y = np.array(Y, dtype if fits else float, order="C")
    G, C = (np.ascontiguousarray(array, Y.dtype) for array in (G, C))
    kernels.hals_sweeps(G, C, Y, Y.dtype.type(floor), sweeps, STALL_RATIO_SQ)
    return Y.astype(dtype, copy=False)


def packed_update(update: Update, G: Array, C: Array, Y: Array) -> Array:
    """Apply an update with Gram matrices G (n, K (K + 1) / 2), stored as upper halves.

    The kernel of `hals` reads these; other updates get whole matrices.
    """
    if not (kernels.AVAILABLE and isinstance(update, partial) and update.func is hals):
        return update(unpack(G, C.shape[1]), C, Y)
    Y = np.array(Y, float, order="C")
    limits = {"sweeps": 1, "floor": FLOOR} | update.keywords
    C = np.ascontiguousarray(C, float)
    kernels.hals_packed_rows(G, C, Y, limits["floor"], limits["sweeps"], STALL_RATIO_SQ)
    return Y


def _hals_twin(G: Array, C: Array, Y: Array, sweeps: int, floor: float) -> Array:
    def sweep(y: Array, rows: Array) -> Pair:
        y = np.asfortranarray(y)
        distance_sq = np.zeros(rows.size)
        for k in range(G.shape[-1]):
            if G.ndim == 2:
                size = G[k, k]
                product = y @ G[:, k]
            else:
                size = G[rows, k, k]
                product = np.einsum("nj,nj->n", y, G[rows, k])
            gradient = product - C[rows, k]
            alive = size > kernels.SMALLEST_SQUARE
            step = np.divide(gradient, size, out=np.zeros_like(gradient), where=alive)
            new = np.where(alive, np.maximum(y[:, k] - step, floor), y[:, k])
            distance_sq += size * (new - y[:, k]) ** 2
            y[:, k] = new
        return y, distance_sq

    return _swept(Y, sweeps, sweep)


def _swept(Y: Array, sweeps: int, sweep: Callable[[Array, Array], Pair]) -> Array:
    """Sweep over the rows of a copy of Y until each moves little compared with its first move.

    `sweep` gets rows and their indices, and returns the new rows and the squared move of each.
    """
    Y = np.array(Y, order="C")
    rows = np.arange(len(Y))
    first = np.empty(0)
    for done in range(sweeps):
        Y[rows], distance_sq = sweep(Y[rows], rows)
        first = first if done else distance_sq
        active = distance_sq > STALL_RATIO_SQ * first
        rows = rows[active]
        first = first[active]
        if rows.size == 0:
            break
    return Y


def nnlsb(G: Array, C: Array, Y: Array) -> Array:
    """Solve nonnegative least squares by block principal pivoting: return the exact minimiser.

    >>> nnlsb(np.eye(2), np.array([[2.0, -1.0]]), np.array([[0.5, 0.5]]))
    array([[2., 0.]])
    """
    return nnls(G, C, Y)


@dataclass(frozen=True)
class Solver:
    """An update, and how the loop runs it.

    Attributes
    ----------
    update : callable
        ``(G, C, Y) -> Y`` with one row of C and Y per sample (or per feature).
    first : {"W", "H"}
        Which factor an iteration updates first. A solver that starts with H does not need an
        initial H, except with `lift_zeros`.
    rescale : bool
        Scale W by <V, WH> / ||WH||^2 before the first iteration.
    floored : bool
        Keep entries at `FLOOR` instead of zero.
    lift_zeros : bool
        Replace the zeros of an H from cones before the first iteration, because `mult` cannot
        change them and `hals` does so slowly.
    sweeps : int, optional
        Largest number of sweeps per product, if the update takes a keyword `sweeps`. The loop makes
        only as many sweeps as cost no more than the product.
    takes_l1 : bool
        The update takes a keyword `l1`, the weight of an L1 penalty. Otherwise the penalty is
        subtracted from C, which may then be negative.
    extrapolate : bool
        Move each update further in the direction of the last change, as long as this lowers the
        error; see `alternate`. Needs ``first="H"``.
    """

    update: Update
    first: str = "W"
    rescale: bool = False
    floored: bool = False
    lift_zeros: bool = False
    sweeps: int | None = None
    takes_l1: bool = False
    extrapolate: bool = False

    def __post_init__(self) -> None:
        function("update", self.update, takes=3)
        choice("first", self.first, ("W", "H"))
        for name in ("rescale", "floored", "lift_zeros", "takes_l1", "extrapolate"):
            flag(name, getattr(self, name))
        optional(integer, "sweeps", self.sweeps, at_least=1)
        if self.extrapolate and self.first == "W":
            raise OptionError('extrapolate=True needs a solver that begins with H: first="H"')

    def sweeping(self, affordable: float) -> Update:
        """Return the update with as many sweeps as cost no more than computing C."""
        if self.sweeps is None:
            return self.update
        return partial(self.update, sweeps=int(min(self.sweeps, 1 + affordable)))


SOLVERS = {
    "hals": Solver(
        partial(hals, floor=0.0), first="H", lift_zeros=True, sweeps=30, extrapolate=True
    ),
    "mult": Solver(mult, first="H", floored=True, lift_zeros=True, sweeps=30, takes_l1=True),
    "nnlsb": Solver(nnlsb, first="H", extrapolate=True),
    # as in the published experiments
    "plain-hals": Solver(hals, rescale=True, floored=True, lift_zeros=True),
    "plain-mult": Solver(mult, floored=True, lift_zeros=True),
    "plain-nnlsb": Solver(nnlsb, first="H"),
}


# A solver in the forms that callers may pass.
AnySolver: TypeAlias = str | Solver | Update
# The solver of a fit; with None the factors of the init are the result.
ChosenSolver: TypeAlias = Solver | None


def get_solver(solver: AnySolver) -> Solver:
    """Return the solver with this name; a `Solver` is returned as it is, a function becomes one."""
    if isinstance(solver, Solver):
        return solver
    if callable(solver):
        return Solver(function("solver", solver, takes=3))
    return SOLVERS[choice("solver", solver, SOLVERS, _TWINS)]


def solver_name(solver: object) -> str | None:
    """Return the name of a solver for a result, or the name of its function."""
    if solver is None or isinstance(solver, str):
        return solver
    for name, one in SOLVERS.items():
        if solver == one:
            return name
    function = solver.update if isinstance(solver, Solver) else solver
    while isinstance(function, partial):
        function = function.func
    return function_name(function)
