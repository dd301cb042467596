"""Constraints of a fit: penalties on W and H, and known components.

An update minimises y'Gy / 2 - c'y for each row y. A penalty becomes a change of G and C:

    l1 sum(y)                 C - l1
    l2 ||y||^2 / 2            G + l2 I
    o sum_{j != k} y_j y_k    G + o (11' - I), scaled so that each pair counts once on either side
    v log det(W'W + d I)      G + v (W'W + d I)^-1 at the W before: a majorant, so the term falls

The objective is ||V - WH||^2 + 2 l1 sum + l2 ||.||^2 and so on, which is twice scikit-learn's. Some
penalties could be made arbitrarily small by shrinking one factor while the other grows. For these
the columns of W have unit length. Abundances that sum to one fix the scale too.

Known components are the first columns of W and do not change. An update of W solves for the other
columns only: with W = [A B] and A known, the rows of B use C - A G_AB instead of C. The init for B
uses the residual max(V - A H, 0) with the best H for A; it is zero where V is, so sparse data stay
sparse.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.linalg import eigvalsh, inv, norm, slogdet, solve

from .. import kernels
from ..arguments import choice, factor, flag, number
from ..data.blocks import TINY, exact, over
from ..data.matrix import DataMatrix
from ..errors import DataError, Option, OptionError
from ..linalg.nnls import nnls, pivot_rows, smallest_pivot_squared
from ..names import Names, names_of, places_of
from ..types import Array, Facts, Pair, Texts
from .solvers import ChosenSolver, Update, hals

# d, relative to the squared length of a column of W: the best of 0.1, 0.01 and 0.001 on scenes that
# benchmarks/fields.py draws with even seeds.
_VOLUME_SHIFT = 0.01
_SWEEPS = 300  # of coordinate descent, if the problem for H has several minima
_ROUNDS = 50  # of this many sweeps each
_SETTLED_SHARE = 1e-9  # of its largest entry: a row that changes by less has converged
_MIN_PIVOT_SQ = 1e-10  # of a Gram matrix: block pivoting is not reliable for smaller pivots
_RIDGE = 1e-12  # added to matrices with a largest diagonal near 1, which may be singular
_TIE_WEIGHT = 1.0  # of the term (sum y - 1)^2 that fixes the scale of an inner problem


@dataclass(frozen=True)
class Penalties:
    """The penalties that are added to ||V - WH||^2; all weights are at least 0.

    Attributes
    ----------
    l1_h : float
        2 l1 times the sum of the entries of H.
    l2_h : float
        l2 times the sum of the squared entries of H.
    l1_w, l2_w : float
        The same for W.
    orthogonality : float
        Weight of the sum, over pairs of components, of the products of their rows of H. It makes
        each sample use few components.
    min_volume : float or "auto"
        Weight of ||V||^2 (log det(W'W + d I) - K log d), which keeps components close together. It
        does not depend on the units of V. d is 0.01 if the columns of W have unit length, and 0.01
        ||V||^2 / N with `sum_to_one`. "auto" estimates the weight from the data, see
        `Problem.weighed`.
    sum_to_one : bool
        The coefficients of every sample sum to one, like the abundances of materials in a pixel.

    Examples
    --------
    >>> Penalties.as_in_sklearn((30, 100), alpha_W=0.01, l1_ratio=1.0)
    Penalties(l1_h=0.3, l2_h=0.0, l1_w=1.0, l2_w=0.0, orthogonality=0.0, min_volume=0.0,
              sum_to_one=False)
    """

    l1_h: float = 0.0
    l2_h: float = 0.0
    l1_w: float = 0.0
    l2_w: float = 0.0
    orthogonality: float = 0.0
    min_volume: float | str = 0.0
    sum_to_one: bool = False

    def __post_init__(self) -> None:
        for name in ("l1_h", "l2_h", "l1_w", "l2_w", "orthogonality", "min_volume"):
            value = getattr(self, name)
            if name == "min_volume" and isinstance(value, str):
                choice(name, value, ("auto",))
            else:
                object.__setattr__(self, name, number(name, value, at_least=0))
        flag("sum_to_one", self.sum_to_one)
        lowering = [name for name in ("l1_h", "orthogonality") if getattr(self, name)]
        if self.sum_to_one and lowering:
            raise OptionError(
                Option("sum_to_one", True),
                f" fixes the sum of the coefficients of a sample, which {lowering[0]} would lower: "
                "leave one of the two out",
            )

    @classmethod
    def as_in_sklearn(
        cls,
        shape: tuple[int, float],
        *,
        alpha_W: float = 0.0,
        alpha_H: float | str = "same",
        l1_ratio: float = 0.0,
        **others: Any,
    ) -> Penalties:
        """Return the penalties of scikit-learn's NMF for V of this shape (F, N).

        scikit-learn's W are our coefficients H', and its H are our components W'. Its objective is
        half of ours: ``alpha_W`` is multiplied by the number of features, ``alpha_H`` by the number
        of samples.

        Parameters
        ----------
        shape : (F, N)
        alpha_W : float
            Multiplied by the number of features.
        alpha_H : float or "same"
            Multiplied by the number of samples; "same" means `alpha_W`.
        l1_ratio : float
            The share of L1 in both, from 0 to 1.
        **others
            The other fields of `Penalties`.
        """
        alpha_W = number("alpha_W", alpha_W, at_least=0)
        if isinstance(alpha_H, str):
            choice("alpha_H", alpha_H, ("same",))
            alpha_H = alpha_W
        alpha_H = number("alpha_H", alpha_H, at_least=0)
        l1 = number("l1_ratio", l1_ratio, at_least=0, at_most=1)
        F, N = shape
        return cls(
            l1_h=alpha_W * l1 * F,
            l2_h=alpha_W * (1 - l1) * F,
            l1_w=alpha_H * l1 * N,
            l2_w=alpha_H * (1 - l1) * N,
            **others,
        )

    @property
    def are_none(self) -> bool:
        """Whether there are no penalties or constraints."""
        return self == NO_PENALTIES

    @property
    def kinds(self) -> list[str]:
        """The names of the penalties in use, by which a loss lists what it supports."""
        asked = {
            "l1": self.l1_h or self.l1_w,
            "l2": self.l2_h or self.l2_w,
            "orthogonality": self.orthogonality,
            "min_volume": self.min_volume,
            "sum_to_one": self.sum_to_one,
            "one factor": self.fixes_columns,
        }
        return [name for name, value in asked.items() if value]

    @property
    def on_H(self) -> Term | None:
        """The penalty term for the rows of H', one per sample; None without a penalty."""
        term = Term(self.l1_h, self.l2_h, self.orthogonality)
        return None if term == Term() else term

    def on_W(self, total: float, n_samples: int) -> Term | None:
        """Return the term for the rows of W; `total` is ||V||^2.

        Parameters
        ----------
        total : float
            ||V||^2.
        n_samples : int
        """
        if not (self.l1_w or self.l2_w or self.min_volume):
            return None
        assert not isinstance(self.min_volume, str)
        shift = _VOLUME_SHIFT * (1.0 if self.fixes_columns else total / n_samples)
        return Term(self.l1_w, self.l2_w, volume=self.min_volume * total, shift=shift)

    @property
    def fixes_columns(self) -> bool:
        """Whether columns of W have unit length, because the scale would be free otherwise."""
        both = (self.l1_h or self.l2_h) and (self.l1_w or self.l2_w)
        return not (self.are_none or both or self.sum_to_one)

    def plain(self) -> Facts:
        """Return the nonzero penalties as plain values."""
        return {name: value for name, value in vars(self).items() if value}

    @classmethod
    def of_plain(cls, plain: Facts) -> Penalties:
        """Return the penalties of plain values, which may come from a file.

        Parameters
        ----------
        plain : dict
        """
        return cls(**plain | {"sum_to_one": "sum_to_one" in plain})

    def check_solver(self, name: str, solver: ChosenSolver) -> None:
        """Raise an error for a solver that cannot minimise with these penalties.

        Parameters
        ----------
        name : str
            The name of the solver, for the error.
        solver : Solver or None
        """
        if solver is None:
            return
        allowed = {"l1", "l2", "one factor"} if solver.takes_l1 else set()
        if solver.floored and not allowed.issuperset(self.kinds):
            kinds = "penalties other than L1 and L2" if allowed else "penalties"
            raise OptionError(Option("solver", name), f" does not support {kinds}: use 'hals'")
        if self.orthogonality and solver.sweeps is None:
            problem = (
                " needs a positive definite Gram matrix, which orthogonality does not give: 'hals'"
            )
            raise OptionError(Option("solver", name), problem, " does not")


NO_PENALTIES = Penalties()


@dataclass(frozen=True)
class Term:
    """The penalty of one factor: ``(G, C, Y) -> (G, C)`` adds it to the matrices of an update.

    `value` is the penalty in units of ||V - W H||^2, which is twice y'Gy / 2 - c'y.
    """

    l1: float = 0.0
    l2: float = 0.0
    pairs: float = 0.0
    volume: float = 0.0
    shift: float = 1.0
    weights: Any = None  # of the majorant of the volume, (K, K)

    def at(self, W: Array) -> Term:
        """Return the term with the majorant of the volume at W (F, K)."""
        if not self.volume:
            return self
        gram = exact(W).T @ exact(W)
        inverse = inv(gram + self.shift * np.eye(len(gram)))
        return replace(self, weights=self.volume * (inverse + inverse.T) / 2)

    def __call__(self, G: Array, C: Array, Y: Array) -> Pair:
        """Return G and C with the penalty added."""
        K = G.shape[-1]
        if self.l2 or self.pairs:
            G = G + self.l2 * np.eye(K) + self.pairs * (1.0 - np.eye(K))
        if self.weights is not None:
            G = G + self.weights
        return G, C - C.dtype.type(self.l1) if self.l1 else C

    def value(self, Y: Array) -> float:
        """Return the value of the term; the volume needs all rows."""
        rows = exact(Y)
        squares = np.vdot(rows, rows)
        value = 2 * self.l1 * rows.sum() + self.l2 * squares
        if self.pairs:
            value += self.pairs * ((rows.sum(axis=1) ** 2).sum() - squares)
        if self.volume:
            K = rows.shape[1]
            gram = rows.T @ rows / self.shift + np.eye(K)
            value += self.volume * slogdet(gram)[1]
        return float(value)


def penalised_update(
    G: Array, C: Array, Y: Array, *, update: Update, term: Term, n_kept: int | None
) -> Array:
    """Update Y with a penalty; of columns that nothing else determines, all but one become zero."""
    G, C = term(G, C, Y)
    updated = update(G, C, Y)
    unused = np.einsum("...kk->...k", G) == 0
    unused[..., :n_kept] = False
    return np.where(unused & (C < 0), 0, updated) if unused.any() else updated


def barred(C: Array, uses: Array | None) -> Array:
    """Return the products C (n, K) so that an update keeps components that are not used at zero.

    `uses` (n, K) says which components each sample may use; None if it may use all.
    """
    # As G is nonnegative, any product below zero does. Its size must not blur those of the others.
    return C if uses is None else np.where(uses, C, -np.abs(C))


def best_rows(G: Array, C: Array, term: Term | None, simplex: bool) -> Array:
    """Return the exact H' (n, K) for given products, with a penalty or on the simplex.

    With a penalty on orthogonality there may be several minima. The better of two is returned: from
    the best single component, and from the best coefficients without the penalty.
    """
    if term is not None:
        G, C = term(G, C, C)
    if simplex:
        return sum_to_one(G, C)
    if term is None or not term.pairs or eigvalsh(G)[..., 0].min() > 0:
        return nnls(G, C)
    squares = np.diagonal(G, axis1=-2, axis2=-1)
    alone = np.maximum(C, 0.0) / np.maximum(squares, TINY)
    gains = alone**2 * squares
    best = np.where(gains == gains.max(axis=1, keepdims=True), alone, 0.0)
    starts = best, nnls(G - term.pairs * (1.0 - np.eye(G.shape[-1])), C)
    ends = [_descended(G, C, start) for start in starts]
    values = [np.vecdot(times_gram(Y, G) / 2 - C, Y) for Y in ends]
    return np.where((values[0] <= values[1])[:, None], ends[0], ends[1])


def _descended(G: Array, C: Array, Y: Array) -> Array:
    """Return the rows that coordinate descent from Y reaches; flat valleys take many sweeps."""
    Y, rows = np.array(Y), np.arange(len(Y))
    for _ in range(_ROUNDS):
        new = hals(G if G.ndim == 2 else G[rows], C[rows], Y[rows], sweeps=_SWEEPS, floor=0.0)
        moves = np.abs(new - Y[rows]).max(axis=1) > _SETTLED_SHARE * new.max(axis=1)
        Y[rows] = new
        rows = rows[moves]
        if not rows.size:
            break
    return Y


def times_gram(Y: Array, G: Array) -> Array:
    """Return Y G (n, K) for G (K, K), or y_n G_n for each row with G (n, K, K)."""
    return Y @ G if G.ndim == 2 else np.einsum("nj,njk->nk", Y, G)


def sum_to_one(G: Array, C: Array, Y: Array | None = None) -> Array:
    """Minimise y'Gy / 2 - c'y over y >= 0 with sum y = 1, exactly, for every row c of C.

    With one G for all rows, block principal pivoting with a multiplier for the sum is used;
    positive entries of Y are the first guess. G + t 11' has the same solutions for any t.

    >>> sum_to_one(np.eye(2), np.array([[0.9, 0.3], [3.0, 0.0]]))
    array([[0.8, 0.2],
           [1. , 0. ]])
    """
    K = G.shape[-1]
    dtype = C.dtype
    size = np.trace(exact(G), axis1=-2, axis2=-1)[..., None] / K  # of every row, if G differs
    size = np.where(size > 0, size, 1.0)  # the scale does not matter
    G = exact(G) / size[..., None]
    C = exact(C) / size
    rows = np.full_like(C, np.nan)
    if G.ndim == 2 and kernels.AVAILABLE and smallest_pivot_squared(G + 1.0) > _MIN_PIVOT_SQ:
        guess = np.ones_like(C) if Y is None else np.where(Y.any(axis=1, keepdims=True), Y, 1.0)
        rows = pivot_rows(G + 1.0, C, guess, sum_to_one=True)
    left = np.isnan(rows[:, 0])
    if left.any():
        rows[left] = _shortest_rows(G if G.ndim == 2 else G[left], C[left])
    return rows.astype(dtype, copy=False)


def _shortest_rows(G: Array, C: Array) -> Array:
    """Do the same for any G, by finding shortest vectors in a polytope.

    If sum y = 1, the objective is y'My / 2 up to a constant, with M = G - c1' - 1c' + t 11' for any
    t, and M is positive semidefinite for large t. The solution is z / sum z, where
    z >= 0 minimises z'Mz / 2 - 1'z. Components much larger than a sample would hide all others from
    M, so they are scaled by s to its size, and s takes the place of 1.
    """
    K = G.shape[-1]
    norms = np.sqrt(np.diagonal(G, axis1=-2, axis2=-1)) + np.zeros_like(C)
    least = norms.min(axis=1, where=norms > 0, initial=np.inf, keepdims=True)
    size = np.maximum(np.where(np.isfinite(least), least, 1.0), over(C, norms).max(axis=1)[:, None])
    s = np.minimum(1.0, size / np.where(norms > 0, norms, size))
    c = C / size**2 * s
    grams = G / size[:, :, None] ** 2 * s[:, :, None] * s[:, None, :] + _RIDGE * np.eye(K)
    shifts = np.vecdot(c, solve(grams, c[:, :, None])[:, :, 0]) + _TIE_WEIGHT
    crossed = c[:, :, None] * s[:, None, :]
    grams = grams - crossed - crossed.transpose(0, 2, 1)
    Y = nnls(grams + shifts[:, None, None] * s[:, :, None] * s[:, None, :], s) * s
    total = Y.sum(axis=1, keepdims=True)
    return np.where(total > 0, over(Y, total), 1.0 / K)


def update_unit_columns(G: Array, C: Array, W: Array, *, sweeps: int, n_fixed: int = 0) -> Array:
    """Minimise over columns of unit length in turn, given G = HH' and C = VH' with penalties.

    With ||w_k|| = 1 the best column is max(c_k - sum_{j != k} G_jk w_j, 0), scaled to unit length.
    If no entry is positive, it is the unit vector of the largest entry.
    """
    W = np.array(exact(W), order="F")
    G = exact(G)
    C = exact(C)
    for _ in range(sweeps):
        for k in range(n_fixed, W.shape[1]):
            W[:, k] = _best_column(G, C, W, k)
    return np.ascontiguousarray(W)


def _best_column(G: Array, C: Array, W: Array, k: int) -> Array:
    if not G[k, k] > 0:  # no sample uses this component; extrapolation may have moved it
        return W[:, k] / (norm(W[:, k]) or 1.0)
    rest = C[:, k] - W @ G[:, k] + W[:, k] * G[k, k]
    new: Array = np.maximum(rest, 0.0)
    length = norm(new)
    if length > 0:
        return new / length
    new[rest.argmax()] = 1.0
    return new


def unit_steps(G: Array, C: Array, W: Array, columns: Array) -> float:
    """Return the squared change of W H by minimising over each column of unit length alone."""
    moves = {k: W[:, k] - _best_column(G, C, W, k) for k in columns.tolist()}
    return float(sum(G[k, k] * (move**2).sum() for k, move in moves.items()))


FIXED_TABLE = "the table of fixed components"  # its name in errors about features


@dataclass(frozen=True, eq=False)
class Fixed:
    """Known components, which a fit does not change.

    Attributes
    ----------
    W : array or data frame (F, n)
        Known components as columns, in the units of V. One that is all zero, as a fit may return,
        gets coefficients of zero. It becomes an array.
    names : tuple of str, or None
        The names of the components, by default those of the columns of a data frame.
    features : tuple of str, or None
        The names of the features, by default those of the rows of a data frame. `bind` matches them
        with those of V, and then keeps those of V.
    """

    W: Array
    names: Texts | None = None
    features: Texts | None = None

    def __post_init__(self) -> None:
        given = names_of(self.W)
        features = given.sample_names if self.features is None else self.features
        W = np.ascontiguousarray(factor("fixed", self.W, ("F", "n")), dtype=float)
        names = given.feature_names if self.names is None else self.names
        if names is not None:
            names = Names.of(sample_names=names).checked(W.shape[1], None).sample_names
        vars(self).update(W=W, names=names, features=features)

    def bind(self, V: DataMatrix) -> Fixed:
        """Return the known components for V, after checks."""
        W = factor("fixed", self.W, (V.n_features, "n"))
        own = V.names.feature_names
        if self.features is not None and own is not None:
            order = places_of(own, self.features, Option("fixed"))
            W = W if order is None else W[order]
        sizes = W.max(axis=0)[W.any(axis=0)]
        ratio = sizes * (np.sqrt(V.n_features * V.n_samples) / (V.norm or 1.0))
        if np.abs(np.log10(ratio)).max(initial=0.0) > (100 if V.dtype == np.float64 else 15):
            size = f"from {ratio.min():g} to {ratio.max():g} times as large as the data"
            raise DataError(f"fixed components are {size}: give them in the units of the data")
        return Fixed(W, self.names, self.features if own is None else own)

    def plain(self) -> Facts:
        """Return how many there are, and their names."""
        return {"count": self.W.shape[1], "names": self.names}

    def put_into(self, W: Array) -> Array:
        """Return W (F, K) with the known components as its first columns, bit for bit."""
        W = np.array(W, order="C")
        W[:, : self.W.shape[1]] = self.W
        return W


def update_others(G: Array, C: Array, Y: Array, *, update: Update, n_fixed: int) -> Array:
    """Apply an update to all columns of Y (n, K) but the first `n_fixed`."""
    fixed = Y[:, :n_fixed]
    rest = slice(n_fixed, None)
    seen = C[:, rest] - times_gram(fixed, G[..., :n_fixed, rest].astype(Y.dtype, copy=False))
    updated = np.array(Y, order="C")
    if seen.shape[1]:
        gram = np.ascontiguousarray(G[..., rest, rest])
        updated[:, rest] = update(gram, seen, np.ascontiguousarray(Y[:, rest]))
    return updated
