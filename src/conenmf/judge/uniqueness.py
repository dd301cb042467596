"""Whether components are unique: a proof, other factors that fit equally well, or neither.

A small error does not prove that components are the true ones. `uniqueness` gives each component a
verdict. *Unique*: it is proved that all exact factors of W H have a component within at most 1
degree of it, and a search for other factors with slightly more error found none; this is about the
factors of W H, not of V. *Can be moved*: the search found other
nonnegative factors with K components and an error of at most 1.001 times that of W H, and none of
their components is within 5 degrees of it. *No move found*: a thorough search found no such
factors, which is no proof. *Undecided*: none of these. *Given*: the component was fixed. The band
of a component is the range of each entry over all factors that were found.

There are three parts: the proof, exact turns, and the search. The first two do not read V.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import eigh, norm, pinv, qr
from numpy.random import default_rng
from numpy.typing import ArrayLike

from .. import plots
from ..arguments import flag, integer
from ..data.blocks import EPS, exact, over, unit_columns
from ..data.matrix import Aligned, DataMatrix
from ..data.resample import evenly_spaced
from ..data.validate import check_factors
from ..errors import NotAvailableError
from ..io.open import as_data
from ..names import Names
from ..solve.losses import Loss
from ..solve.problem import Problem, check_known, problem_of
from ..solve.run import Run, Stopping, run_together
from ..text import counted
from ..types import Array, DType, Texts, Titles
from .span import products_and_gram, span_angles, span_in_words

UNIQUE_RADIUS = math.radians(1)  # a component is unique if exact factors move it by at most this
VISIBLE_ANGLE = math.radians(5)  # components that are closer look alike as curves or images
MAX_ERROR_RATIO = 1.001  # largest error of other factors over that of the given ones

# The verdicts, and the words for components with each verdict in a summary.
VERDICTS = {
    "unique": "proved: no other factors of WH (exact factors move them by at most 1°)",
    "can be moved": "can be moved by 5° or more",
    "no move found": "no move found",
    "undecided": "undecided",
    "given": "given",
}


@dataclass(frozen=True, eq=False)
class Uniqueness:
    """Whether each component is unique or can be moved; see `uniqueness`.

    Attributes
    ----------
    radii : array (K,)
        All factors with the product W H have a component within this angle of the component, in
        radians; infinite if nothing is proved. See `uniqueness_radii`.
    angles : array (K,)
        The largest angle by which the search moved each component, in radians; larger moves may
        exist.
    error_ratios : array (K,)
        The error of the factors with this move, divided by the error of W H; 1 for exact turns.
    exchange : array (K, K)
        Column l describes the exact turn of component l: its new direction is w_l / ||w_l|| +
        sum_k exchange[k, l] w_k / ||w_k||. The column is zero if other factors move l farther.
    spare : array (K,), bool
        Whether the other components give W H without this one. A spare component may be any
        nonnegative vector; its angle is the largest possible one.
    lower, upper : arrays (F, K)
        The band: the smallest and the largest value of each entry over all factors that were found,
        scaled to the sum of the component in W.
    given : array (K,), bool
        Which components were fixed; they get no verdict.
    directions : array (K,)
        The number of directions in which a thorough search tried to move each component; 0 without
        such a search, or if it did not finish.
    was_searched : bool
        Whether the search allowed errors up to 1.001 times the error of W H, not only exact turns.
    span_angles : array (K,)
        Every fit of least squares with at most the error of W H contains each of the K leading
        directions of the data up to this angle, in radians; see `span_angles` of `judge.span`.
        Empty if nothing is known.
    others : mapping
        The components W' (F, K) of other factors, by the number of the component that they move
        most. A saved result does not contain them, and very large components may be missing.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> W, H = np.eye(2), np.array([[3.0, 0.0, 1.0], [0.0, 2.0, 3.0]])  # two pure samples
    >>> found = uniqueness(from_columns(W @ H), W, H)
    >>> found.verdicts
    ('unique', 'unique')
    """

    radii: Array
    angles: Array
    error_ratios: Array
    exchange: Array
    spare: Array
    lower: Array
    upper: Array
    given: Array
    directions: Array
    was_searched: bool = False
    span_angles: Array = field(default_factory=lambda: np.zeros(0))
    others: dict[int, Array] = field(default_factory=dict, repr=False)

    @property
    def verdicts(self) -> Texts:
        """The verdict on each component, one of `VERDICTS`."""
        cases = {
            "given": self.given.astype(bool),
            "can be moved": self.angles >= VISIBLE_ANGLE,
            "unique": (self.radii <= UNIQUE_RADIUS) & self.was_searched,
            "no move found": self.directions > 0,
        }
        return tuple(np.select([*cases.values()], [*cases], "undecided").tolist())

    def in_words(self, k: int, names: Titles = None) -> str:
        """Describe component k in one line.

        Parameters
        ----------
        k : int
        names : list of str, optional
            The names of all components.
        """
        radius = "not proved unique"
        if np.isfinite(self.radii[k]):
            degrees = math.ceil(100 * math.degrees(self.radii[k]) + 1e-6) / 100  # rounded up
            radius = f"exact factors of WH move it by at most {degrees:.2f}°"
        tried = f"at up to {MAX_ERROR_RATIO} times the error"
        undecided = f"undecided: {radius}, and a short search {tried} did not move it by 5°"
        if not self.was_searched:
            undecided = f"other factors: not searched; {radius}"
        words = {
            "given": "known component, not judged",
            "unique": f"proved: no other factors of WH ({radius})",
            "can be moved": f"can be moved {self._move_in_words(k, names)}; {radius}",
            "no move found": (
                f"no move of 5° found {tried}, in {self.directions[k]} directions; no proof"
            ),
            "undecided": undecided,
        }
        return words[self.verdicts[k]].removesuffix("; not proved unique")

    def _move_in_words(self, k: int, names: Titles) -> str:
        """Describe the move: "by 14° towards component 1, at the same error"."""
        if self.spare[k]:
            return "anywhere, because the others give the same reconstruction without it"
        turn = self.exchange[:, k]
        partner = int(np.abs(turn).argmax())
        by = f"by {math.floor(math.degrees(self.angles[k]) + 1e-9)}°"  # rounded down
        if turn[partner] == 0:
            return f"{by}, at an error of {self.error_ratios[k]:.4f} times this one"
        mainly = "mainly " if np.count_nonzero(turn) > 1 else ""
        direction = "towards" if turn[partner] > 0 else "away from"
        other = names[partner] if names else f"component {partner}"
        return f"{by} {mainly}{direction} {other}, at the same error"

    def summary(self) -> str:
        """Return how many components have each verdict, in a sentence."""
        counts = {name: self.verdicts.count(name) for name in VERDICTS}
        parts = [f"{count} {VERDICTS[name]}" for name, count in counts.items() if count]
        return f"of {counted(len(self.angles), 'component')}, {', '.join(parts)}"

    def lines(self, names: Titles = None) -> list[str]:
        """Return a line for each component.

        Parameters
        ----------
        names : list of str, optional
            The names of all components.
        """
        names = names or [f"component {k}" for k in range(len(self.angles))]
        return [f"{name}: {self.in_words(k, names)}" for k, name in enumerate(names)]

    def __str__(self) -> str:
        span = span_in_words(self.span_angles)
        return "\n".join(filter(None, [self.summary(), span, *self.lines()]))

    def other(self, k: int) -> Array:
        """Return the components W' (F, K) of other factors in which component k is moved.

        Compute their coefficients by ``best_coefficients(V, W')``, with
        ``penalties=Penalties(sum_to_one=True)`` if the coefficients of the fit sum to one.

        Parameters
        ----------
        k : int

        Raises
        ------
        NotAvailableError
            If no such factors were found, or they were not kept.
        """
        if k not in self.others:
            why = "none were found" if self.angles[k] < VISIBLE_ANGLE else "they were not kept"
            raise NotAvailableError(f"no other factors that move component {k}: {why}")
        return self.others[k]

    def plot(self, W: Array, axes: Any = None) -> Array:
        """Draw the components W (F, K) with their bands; return the matplotlib axes.

        Parameters
        ----------
        W : array (F, K)
        axes : array of matplotlib axes, optional
        """
        titles = [f"component {k}: {verdict}" for k, verdict in enumerate(self.verdicts)]
        return plots.components(W, Names(), axes, limits=(self.lower, self.upper), titles=titles)


def uniqueness(
    V: object,
    W: ArrayLike,
    H: Any,
    *,
    loss: str = "frobenius",
    problem: Problem | None = None,
    max_iter: int = 200,
    thorough: bool = False,
) -> Uniqueness:
    """Decide for each component of V ~ W H whether it is unique or can be moved.

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
    W : array (F, K)
    H : array (K, N)
    loss : {"frobenius", "poisson"}
        The loss of the fit.
    problem : Problem, optional
        What the fit minimised, if that is more than a loss. Known components do not move and get no
        verdict. With penalties, other factors have exactly the same product W H, and if
        coefficients sum to one, so do theirs.
    max_iter : int
        Approximate number of iterations of the whole search. With 0 there are only proofs and exact
        turns, and V is not read.
    thorough : bool
        Try up to 28 directions for each component, and refit the others until they converge. This
        may take tens of times the CPU time of the fit. There is no search if the fit is exact up to
        rounding.

    Examples
    --------
    No sample is pure: the components can be moved, here without changing W H.

    >>> from conenmf import from_columns
    >>> W, H = np.eye(2), np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    >>> found = uniqueness(from_columns(W @ H), W, H)
    >>> found.verdicts
    ('can be moved', 'can be moved')
    >>> found.in_words(0).split("; ")[0]
    'can be moved by 18° towards component 1, at the same error'
    """
    V = as_data(V, nonzero=True, holes=True)
    problem = problem_of(problem, loss, "uniqueness").bind(V)
    max_iter = integer("max_iter", max_iter, at_least=0)
    thorough = flag("thorough", thorough)
    radii = uniqueness_radii(V, W, H)
    W, Ht = check_factors(V, W, H)
    check_known(problem, W)
    is_searchable = problem.penalties.are_none and "fixed" in problem.loss.constraints
    if not is_searchable or not V.is_complete:
        max_iter = 0  # V has zeros at missing entries
    with V.own_threads():
        found = _exact_turns(V, W, Ht, radii, problem)
        if max_iter and W.shape[1] > 1:
            _Search(V, W, Ht, problem.loss, found).search(max_iter, thorough)
        angles = np.zeros(0)
        if max_iter and "sigma" in problem.loss.constraints:
            angles = span_angles(V, W, Ht)
    return replace(found, was_searched=max_iter > 0, span_angles=angles)


def _add(found: Uniqueness, W: Array, other: Array, ratio: float) -> None:
    """Add other factors, which may move several components.

    The move of a component is its angle to the nearest component of the other factors.
    """
    U = unit_columns(W)
    for l in map(int, np.flatnonzero(~found.given & ~found.spare)):
        angles = between(U[:, l, None], unit_columns(other))
        nearest = angles.argmin()
        w = other[:, nearest]
        if not w.any():
            continue
        w = w * (W[:, l].sum() / w.sum())
        found.lower[:, l] = np.minimum(found.lower[:, l], w)
        found.upper[:, l] = np.maximum(found.upper[:, l], w)
        if angles[nearest] > found.angles[l]:
            found.angles[l] = angles[nearest]
            found.error_ratios[l] = ratio
            found.exchange[:, l] = 0
            _keep(found, l, other)


def _keep(found: Uniqueness, l: int, W: Array) -> None:
    """Store other factors if they move component l far enough, and if there is room for them."""
    is_small = (len(found.others) + 1) * W.nbytes <= _MAX_KEPT_BYTES
    if found.angles[l] >= VISIBLE_ANGLE and is_small:
        found.others[l] = W


def between(U: Array, X: Array) -> Array:
    """Return the angles between unit vectors, or between columns; accurate if small."""
    return 2 * np.arctan2(norm(U - X, axis=0), norm(U + X, axis=0))


# --- the proof ----------------------------------------------------------------------------------
#
# Let X = W H have rank K, and let X = W' H' be any nonnegative factors with K components. Two
# arguments bound the angle between w_l and the nearest column of W':
#
# * from a sample n that is nearly pure and features S in which w_l is small. Pieces w'_j h'_jn add
#   up to x_n. The share of some piece in S is at most sqrt(K) times that of x_n, and S determines
#   how much of the other components is in it;
# * from the same argument for rows of H, applied to all components but l: if the rows of K - 1
#   other components are nearly fixed, then so is w_l.
#
# The bounds hold for every choice of n, S and of weights of the features and samples, so a few of
# the samples are enough; the thresholds below only choose them. Products count as equal if they
# differ by at most 1e-14 of the largest entry (more in single precision), and what that allows is
# part of the radius. The proofs are in docs/theory.md, with the letters that are used here.

_SHARES = (1e-8, 1e-5, 1e-3, 1e-2)  # a component is small in a row if its share is at most this
_MAX_SAMPLES = 4000  # in addition to the purest
_MIN_DIFFERENCE = 1e-14  # of products that count as equal, relative to the largest entry
_MAX_IMPURITY = 0.3  # of an anchor feature
_COST_OF_SMALL = 1e-9  # times the size of a sample: added to its impurity
_SLACK = 1.001  # for the rounding of the bound itself


def uniqueness_radii(V: DataMatrix, W: ArrayLike, H: Any) -> Array:
    """Return a radius (K,) for each component of V ~ W H, in radians; V is not read.

    All nonnegative factors of W H with K components have a component within this angle of w_l. The
    radius is infinite if nothing is proved.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)

    Examples
    --------
    Component 0 has a pure sample, and component 1 a pure feature, but not vice versa:

    >>> from conenmf import from_columns
    >>> W, H = np.array([[1.0, 0.5], [0.0, 1.0]]), np.array([[1.0, 1.0], [0.0, 1.0]])
    >>> uniqueness_radii(from_columns(W @ H), W, H) < 1e-6
    array([ True, False])
    """
    kinds = [np.dtype(getattr(one, "dtype", np.float64)) for one in (W, H)]
    precisions = [np.finfo(kind).eps for kind in kinds if kind.kind == "f"]  # integers are exact
    W, Ht = check_factors(V, W, H)
    K = W.shape[1]
    difference = max(_MIN_DIFFERENCE, 2 * (K + 2) * float(max(precisions, default=0.0)))
    with V.own_threads(), np.errstate(all="ignore"):  # NaN proves nothing
        (highest,) = V.map(_highest, Ht, reduce=np.maximum)
        scale = norm(W, axis=0)
        if not (scale * highest).all():
            return np.full(K, np.inf)
        scale /= norm(scale * highest)
        (purest,) = V.map(
            _purest, Ht, reduce=lambda a, b: np.where(b[:, :1] < a[:, :1], b, a), scale=scale
        )
        some = np.asarray(Ht[evenly_spaced(V.n_samples, _MAX_SAMPLES)])
        Y = np.vstack([purest[:, 1:], some]) * scale
        A = unit_columns(W)
        proof = _Proof(A / norm(A, axis=1).max(), Y, difference)
        return proof.radii() if proof.has_rank else np.full(K, np.inf)


def _highest(index: range, H: Array) -> tuple[Array]:
    return (exact(H.max(axis=0)),)


@np.errstate(all="ignore")
def _purest(index: range, Y: Array, *, scale: Array) -> tuple[Array]:
    """Return for each component its purest row: the norm of the other components, and the row.

    Entries are comparable after scaling by `scale`. The row is zero if none has the component.
    """
    Y = np.vstack([np.zeros(len(scale)), exact(Y)])
    squares = (Y * scale) ** 2
    others = np.sqrt(np.maximum(squares.sum(axis=1, keepdims=True) - squares, 0))
    impurity = (others + _COST_OF_SMALL) / np.sqrt(squares)
    impurity[squares == 0] = np.inf
    return (np.column_stack([impurity.min(axis=0), Y[impurity.argmin(axis=0)]]),)


class _Rows:
    """The rows y of a factor, with norm at most 1.

    Rows are scaled to y / sqrt(||y||^2 + floor^2), so all have about equal weight, except very
    small ones, where rounding is large. Zero rows are left out.

    Attributes
    ----------
    shares, scaled : arrays (n, K)
        The rows scaled to norm 1, and the rows scaled with the floor.
    gram, root : arrays (K, K)
        The Gram matrix of the scaled rows, and the root of its inverse; see `_inverse_root`.
    rounding : float
        Bounds the norm of X' - X in a row of the other factor, with the scale of the rows.
    """

    def __init__(self, Y: Array, difference: float) -> None:
        Y = Y[Y.any(axis=1)]
        norms = norm(Y, axis=1, keepdims=True)
        self.floor = difference**0.25
        scales = 1 / np.hypot(norms, self.floor)
        self.shares = Y / norms
        self.scaled = Y * scales
        self.gram = self.scaled.T @ self.scaled
        self.root = _inverse_root(self.scaled)
        self.rounding = difference * float(norm(scales))

    def bounds(
        self, k: int, y: Array, whole: Array, least: float, off: float, off_whole: float
    ) -> Iterator[tuple[float, float, Array]]:
        """Bound the components other than k in some piece.

        Its norms are at most those of the whole, in units of `least`: the norm of the whole over
        sqrt(K). All ratios below hold for one and the same piece, because b is linear in them.

        Returns for each window: the norm b of their part in it, in units of the norm of the piece;
        the largest norm g that they may have per unit of b, by the Gram matrix `whole`; and the
        root of the inverse Gram matrix of the window. The other letters are those of the theorems.
        """
        for share in _SHARES:
            rows = self.scaled[self.shares[:, k] <= share]
            root = _inverse_root(np.delete(rows, k, axis=1))
            if root is None or not least > 0:
                continue
            others = np.delete(np.delete(whole, k, axis=0), k, axis=1)
            g = math.sqrt(_norm_above(root.T @ others, root)) if root.size else 0.0
            small = float(norm(rows[:, k])) / math.sqrt(whole[k, k])
            inside = (float(norm(rows @ y)) + self.rounding) / least
            if g * small < 1:
                yield (inside + off + small * (1 + off_whole)) / (1 - g * small), g, root


class _Proof:
    """X = A Y', where rows of A and Y have norm at most 1, and columns of A have equal norm.

    X' differs from X by up to `difference` in each entry.

    Attributes
    ----------
    has_rank : bool
        X and X' certainly have rank K.
    of_sample : float
        Bounds the norm of X' - X in a sample.
    off, off_unscaled : float
        The largest distance of a vector of norm 1 in the column space (the row space) of scaled X'
        from that of scaled X, and before features are scaled.
    of_inverse : float
        Bounds the norm of X' - X times a column of the inverse of scaled Y.
    """

    def __init__(self, A: Array, Y: Array, difference: float) -> None:
        self.A = A
        self.Y = Y
        self.AA = A.T @ A
        self.features = _Rows(A, difference)
        self.samples = _Rows(Y, difference)
        self.of_sample = difference * math.sqrt(len(A))
        self.has_rank = False
        if self.features.root is not None and self.samples.root is not None:
            inverse = _norm_above(self.features.root.T, self.samples.root)
            of_all = self.features.rounding * self.samples.rounding / difference
            self.has_rank = of_all * inverse < 0.5  # below the smallest singular value of X
            inverse /= 1 - of_all * inverse
            self.off = of_all * inverse
            of_feature = self.samples.rounding * math.sqrt(len(A))
            self.off_unscaled = of_feature * inverse
            self.of_inverse = of_feature * float(norm(self.samples.root, axis=1).max())

    def radii(self) -> Array:
        """Return the smaller of both bounds for each component."""
        K = self.A.shape[1]
        radii = np.array([self._by_sample(l) for l in range(K)])
        (anchors,) = _purest(range(0), self.A, scale=np.sqrt(self.samples.gram.diagonal()))
        n_anchored = np.count_nonzero(anchors[:, 0] < _MAX_IMPURITY)
        if (radii <= UNIQUE_RADIUS).all() or n_anchored < K - 1:
            return radii
        rows = np.array([self._row(k, anchors[k, 1:]) for k in range(K)])
        ratios = rows[:, 0]
        for l in range(K):
            others = np.arange(K) != l
            products = (ratios * ratios.T)[np.ix_(others, others)]
            if (products < 1).all():  # rows of two components are different rows of H'
                sine = (rows[others, 1, l].sum() + self.of_inverse) / math.sqrt(self.AA[l, l])
                radii[l] = min(radii[l], _angle(sine))
        return radii

    def _by_sample(self, l: int) -> float:
        """Bound the angle by the purest sample of component l and its windows."""
        y = self.Y[l]
        least = (float(norm(self.A @ y)) - self.of_sample) / math.sqrt(y.size)
        if not least > 0:
            return math.inf
        most = float(norm(self.features.scaled @ y)) + self.features.rounding
        off = self.off_unscaled * most / least
        bounds = self.features.bounds(l, y, self.AA, least, self.off * most / least, off)
        return _angle(min((g * b for b, g, _ in bounds), default=math.inf) + off)

    def _row(self, k: int, u: Array) -> Array:
        """Bound the other components in row k of H, by the anchor u of k and its windows.

        Returns the ratios of m to k in that row, and the parts of w_l in component k.
        """
        samples = self.samples
        rest = np.arange(u.size) != k
        best = np.where(rest, np.full((2, u.size), np.inf), 0)
        least = (float(norm(samples.scaled @ u)) - samples.rounding) / math.sqrt(u.size)
        scale = 1 / math.hypot(norm(self.Y[k]), samples.floor)
        y = self.Y[k] * scale
        whole = norm(self.A @ y) + self.of_sample * scale
        for b, g, root in samples.bounds(k, u, samples.gram, least, self.off, self.off):
            own = (1 - g * b - self.off) / math.sqrt(samples.gram[k, k])
            of_others = b * norm(root, axis=1)
            in_sample = own * y[k] - b * norm(y[rest] @ root) - self.off
            parts = of_others * whole / in_sample
            if own > 0 and in_sample > 0 and parts.sum() < best[1, rest].sum():
                best[:, rest] = of_others / own, parts
        return best


def _angle(sine: float) -> float:
    return math.asin(_SLACK * sine) if _SLACK * sine < 1 else math.inf


def _inverse_root(rows: Array) -> Array | None:
    """Return R such that R R' is at least the inverse Gram matrix of rows, rounding included.

    Returns None if the matrix may be singular.
    """
    gram = rows.T @ rows
    values, vectors = eigh(gram)
    rounding = (len(rows) + 1000) * EPS * gram.trace()
    if values.size and not values[0] > 10 * rounding:
        return None
    return vectors / np.sqrt(values - rounding)


def _norm_above(A: Array, B: Array) -> float:
    """Return an upper bound of the norm of A B, rounding included."""
    rounding = 10 * EPS * len(A) * norm(A) * norm(B)
    return float(norm(A @ B, 2) + rounding)


# --- exact turns --------------------------------------------------------------------------------
#
# For any t, the factors w_l + sum_k t_k w_k and h_k - t_k h_l, k != l, have the product W H. They
# are nonnegative if t_k is at most the least h_k(n) / h_l(n) over the samples that use component l,
# and w_l + sum_k t_k w_k >= 0. The angle is largest at a vertex of the polytope of all t. It is
# approached greedily, so it is a lower bound. Each component is judged by itself: two turns at once
# may change W H. Where coefficients sum to one, w_l is divided by 1 + sum t, and they still do.

_ROUNDING_RATIO = 1e-12  # entries below this share of their component's largest entry count as zero
_MAX_STEPS = 5  # of a turn: components that are added or subtracted in sequence
_MIN_NORM = 1e-4  # of the remainder of a unit vector, so that its direction has 12 digits
_TIE = 1e-8  # cosines that differ by less are equal, and the first wins
_TINY = 1e-300  # replaces 0 as a divisor
_MAX_KEPT_BYTES = 1 << 27  # of other factors


def _exact_turns(
    V: DataMatrix, W: Array, Ht: Aligned, radii: Array, problem: Problem
) -> Uniqueness:
    """Turn each component as far as W H allows; V is not read."""
    K = W.shape[1]
    n_given = problem.n_fixed
    sum_to_one = problem.penalties.sum_to_one
    norms = np.maximum(norm(W, axis=0), _TINY)
    U = W / norms
    U[U <= _ROUNDING_RATIO * U.max(axis=0)] = 0
    (highest,) = V.map(_highest, Ht, reduce=np.maximum)
    (ratios,) = V.map(_least_ratios, Ht, reduce=np.minimum, zero=_ROUNDING_RATIO * highest)
    (of_features,) = _least_ratios(range(len(U)), U, zero=np.zeros(K))
    spare = highest == 0
    ratios[:, spare] = 0
    is_used_alike = ratios * ratios.T >= 1 - _ROUNDING_RATIO
    if not sum_to_one:
        spare = spare | ~W.any(axis=0)
        of_features[:, spare] = 0
        is_parallel = of_features * of_features.T >= 1 - _ROUNDING_RATIO
        spare = spare | (is_used_alike | is_parallel).any(axis=0)
    found = Uniqueness(
        radii=radii,
        angles=np.zeros(K),
        error_ratios=np.ones(K),
        exchange=np.zeros((K, K)),
        spare=spare,
        lower=W.copy(),
        upper=W.copy(),
        given=np.arange(K) < n_given,
        directions=np.zeros(K, dtype=np.int64),
    )
    for l in range(n_given, K):
        other = W.copy()
        if spare[l]:
            other[:, l] = 0
            other[U[:, l].argmin(), l] = W[:, l].max() or 1.0
            for partner in np.flatnonzero(is_used_alike[l])[:1]:  # it replaces component l
                other[:, partner] += W[:, l] * ratios[l, partner]
            found.angles[l] = np.arccos(min(U[:, l].min(), 1.0))
            found.lower[:, l] = 0
            found.upper[:, l] = W[:, l].sum()
            _keep(found, l, other)
            continue
        most = ratios[:, l] * norms / norms[l]  # largest multiples, in units of norm 1
        turn = _farthest_turn(U, most, l)
        scale = 1 + norms[l] * (turn / norms).sum() if sum_to_one else 1.0
        if scale > 0 and turn.any():
            other[:, l] = norms[l] / scale * np.maximum(U[:, l] + U @ turn, 0)
            _add(found, W, other, 1.0)
            found.exchange[:, l] = turn
    return found


def _least_ratios(index: range, Y: Array, *, zero: Array) -> tuple[Array]:
    """Return the smallest y_k / y_l, k != l, over the rows where y_l > zero: (K, K).

    It is infinite if there is no such row; the diagonal is 0.
    """
    rows = np.array(Y.T, np.float64, order="C")
    rows[rows <= zero[:, None]] = 0
    ratios = np.zeros((len(rows), len(rows)))
    for l, row in enumerate(rows):
        used = rows[:, row > 0]
        ratios[:, l] = (used / used[l]).min(axis=1, initial=np.inf)
    np.fill_diagonal(ratios, 0)
    return (ratios,)


def _farthest_turn(U: Array, most: Array, l: int) -> Array:
    """Return t for which x = u_l + U t is far from u_l, nonnegative, and t <= most."""
    x = U[:, l]
    t = np.zeros(len(most))
    cosine = 1.0
    for _ in range(_MAX_STEPS):
        largest = (U / np.maximum(x, _TINY)[:, None]).max(axis=0)
        steps = np.stack([most - t, -over(1, largest)])
        steps[:, l] = 0
        tried = np.maximum(x[:, None] + U * steps[:, None], 0)  # (2, F, K)
        norms = norm(tried, axis=1)
        cosines = np.where(norms > _MIN_NORM, U[:, l] @ tried / np.maximum(norms, _TINY), 1)
        if cosines.min() >= cosine - _TIE:
            break
        way, partner = np.argwhere(cosines <= cosines.min() + _TIE)[0]
        cosine = cosines[way, partner]
        t[partner] += steps[way, partner]
        x = tried[way, :, partner]
    return t


# --- the search ---------------------------------------------------------------------------------
#
# Components that cannot be turned far enough are moved with errors of up to 1.001 times. The search
# puts a component at another place, holds it there as if it were given (`fixed`), and refits the
# others. The error is computed on V with the exact coefficients. The move of a component is its
# angle to the nearest component of the other factors.
#
# Places are towards or away from another component, and in a thorough search also along the leading
# directions of the residual. Places that change W H least on a subset of the samples come first.
# The short search tries two places for each component, and costs about as much as a fit. The
# thorough search tries up to 28 and refits until the others converge. From the best 14 the
# component then slides to smaller errors, staying at least 5 degrees from its origin.

_ANGLE = math.radians(5.1)  # between a place and the component's origin
_MAX_PLACING_SAMPLES = 1000  # that are used to choose places
_SHORT_TRIALS = 2  # of each component
_SHORT_ITERATIONS = 3, 12  # of a trial, at least and at most
_DIRECTIONS = 28  # of each component, in a thorough search
_BEYOND = 8  # directions that leave the span of the components, at least
_SLIDING = 14  # trials per component that slide
_MAX_SLIDES = 50  # per trial
_SLIDE_ANGLE = math.radians(5.01)  # from the component's origin
_HOPEFUL_RATIO = 1.0005  # of errors to the limit, which exact coefficients may still reach
_ROUNDING = 1e3  # in units of the precision of V: differences of errors that are rounding


class _Refit(NamedTuple):
    """The end of a trial: W (F, K), its relative error, and whether it converged."""

    W: Array
    error: float
    is_converged: bool


class _Search:
    """Looks for other factors, checks each on V, and adds what it finds to `found`."""

    def __init__(self, V: DataMatrix, W: Array, Ht: Aligned, loss: Loss, found: Uniqueness) -> None:
        self.V = V
        self.W = W
        self.Ht = Ht
        self.found = found
        self.loss = loss
        self.goal = self.loss.on(V, rescale=False)
        self.error = self.error_of(W)
        self.rounding = _ROUNDING * float(np.finfo(V.dtype).eps)
        self.limit = MAX_ERROR_RATIO * self.error + self.rounding
        self.H = exact(np.asarray(Ht[evenly_spaced(V.n_samples, _MAX_PLACING_SAMPLES)])).T
        self.gram = W.T @ W
        self.inverse = pinv(W)
        self.thorough = Stopping(1e-4, max_iter=500, exact=self.limit)

    def finished(self, W: Array) -> Any:
        """Return the best coefficients for W, and their error; one pass."""
        return self.goal.finish(np.ascontiguousarray(W, self.goal.V.dtype), sort=False)

    def error_of(self, W: Array) -> float:
        """Return the relative error with the best coefficients for W."""
        return float(self.goal.relative_error(self.finished(W).squared_error))

    @property
    def pending(self) -> list[int]:
        """Return the components that were not moved far enough to be seen."""
        is_moved = self.found.angles >= VISIBLE_ANGLE
        return np.flatnonzero(~self.found.given & ~is_moved).tolist()

    def search(self, max_iter: int, thorough: bool) -> None:
        """Try two places for each component; if thorough, try many to convergence, then slide."""
        inside = {l: self.places(l, unit_columns(self.W)) for l in self.pending}
        if not inside:
            return
        each = max_iter // (_SHORT_TRIALS * len(inside))
        limits = Stopping(1e-4, max_iter=int(np.clip(each, *_SHORT_ITERATIONS)), exact=self.limit)
        self.visit({l: own[:_SHORT_TRIALS] for l, own in inside.items()}, limits)
        if not thorough or self.error**2 < self.rounding:  # 0.1% of it is below rounding
            return
        beyond = _leading_residual(self.V, self.W, self.Ht)
        places = {
            l: inside[l][: _DIRECTIONS - _BEYOND] + self.places(l, beyond) for l in self.pending
        }
        ends = self.visit(places, self.thorough)
        for l in self.pending:
            if all(end.is_converged for end in ends[l]):
                self.found.directions[l] = len(ends[l])
            for end in sorted(ends[l], key=lambda end: end.error)[:_SLIDING]:
                if self.found.angles[l] < VISIBLE_ANGLE:
                    self.slide(l, end)

    def visit(self, places: dict[int, list[Array]], stopping: Stopping) -> dict[int, list[_Refit]]:
        """Try places of each component one after the other until it is moved; return the ends."""
        ends: dict[int, list[_Refit]] = {l: [] for l in places}
        room = max(1, self.V.room_for_aligned(self.W.shape[1] * self.V.dtype.itemsize, 4))
        for trial in range(_DIRECTIONS):
            now = [(l, places[l][trial]) for l in self.pending if len(places[l]) > trial]
            for first in range(0, len(now), room):
                some = now[first : first + room]
                refits = self.refits(some, self.W, self.Ht, stopping)
                for (l, _), end in zip(some, refits, strict=True):
                    ends[l].append(end)
                    self.check(end)
        return ends

    def slide(self, l: int, end: _Refit) -> None:
        """Move the component to smaller errors, staying at least 5 degrees from its origin."""
        for _ in range(_MAX_SLIDES):
            Ht = self.finished(end.W).H.T
            (VH, HH) = self.V.sweep(products_and_gram, Ht)[0]
            best = end.W[:, l] + 2 * (VH[:, l] - end.W @ HH[l]) / max(HH[l, l], _TINY)
            w = _at_angle(self.W[:, l], best, _SLIDE_ANGLE)
            if w is None:
                return
            (new,) = self.refits([(l, w)], end.W, Ht, self.thorough)
            fall = end.error - new.error
            if self.check(new) or new.error - self.limit > _MAX_SLIDES * fall:
                return
            end = new

    def check(self, end: _Refit) -> bool:
        """Add the factors of a trial if their error on V is low enough."""
        if end.error > _HOPEFUL_RATIO * self.limit:
            return False
        error = self.error_of(end.W)
        ratio = error / self.error if self.error > self.rounding else 1.0
        if error <= self.limit:
            _add(self.found, self.W, end.W, ratio)
        return error <= self.limit

    def refits(
        self, places: list[tuple[int, Array]], W: Array, Ht: Aligned, stopping: Stopping
    ) -> Iterator[_Refit]:
        """Put components at their places, each in its own run, and refit the others.

        A run also ends when its error is low enough.
        """
        n_given = int(self.found.given.sum())
        solver = self.loss.solver("auto")
        inverse = pinv(W)
        runs = []
        for l, w in places:
            order = np.r_[:n_given, l, n_given:l, l + 1 : W.shape[1]]  # held components come first
            t = inverse @ (w - W[:, l])
            moved = partial(_moved_rows, t=t, l=l, order=order, dtype=self.V.dtype)
            H = self.V.by_rows(moved, Ht).T
            start = W[:, order].astype(self.V.dtype, order="C")
            start[:, n_given] = w
            runs.append(Run(self.loss.on(self.V, n_fixed=n_given + 1), start, H, solver, stopping))
        list(run_together(self.V, runs))
        for (l, w), run in zip(places, runs, strict=True):
            rest = np.delete(exact(run.factors()[0]), n_given, axis=1)
            is_converged = run.n_iter < stopping.max_iter
            yield _Refit(np.insert(rest, l, w, axis=1), run.errors[-1], is_converged)

    def places(self, l: int, ways: Array) -> list[Array]:
        """Return places for a component along directions (F, n) and against them.

        Places that change W H least come first.
        """
        w = self.W[:, l]
        nudges = 0.01 * norm(w) * np.hstack([ways, -ways])
        tried = [_at_angle(w, w + nudge, _ANGLE) for nudge in nudges.T]
        places = [place for place in tried if place is not None]
        return sorted(places, key=lambda place: self.change(l, place))

    def change(self, l: int, w: Array) -> float:
        """Estimate the squared change of W H if component l is put at w, without a refit."""
        t = self.inverse @ w
        if t[l] <= _TINY:  # nothing of the component is left
            return math.inf
        h = self.H[l] / t[l]
        lost = np.maximum(np.outer(t, h) - self.H, 0)
        beyond = w - self.W @ t
        return float((lost * (self.gram @ lost)).sum() + (beyond @ beyond) * (h @ h))


def _moved_rows(index: range, H: Array, *, t: Array, l: int, order: Array, dtype: DType) -> Array:
    moved = np.maximum(exact(H) - exact(H[:, l, None]) * t, 0)
    return np.ascontiguousarray(moved[:, order], dtype)


def _at_angle(w: Array, x: Array, angle: float) -> Array | None:
    """Return x with zeros for negative entries, or a vector near it at this angle from w, or None.

    If x is farther from w than this angle, it stays there.
    """
    u = w / norm(w)
    x = np.maximum(x, 0)
    for _ in range(20):  # zeros may reduce the angle again
        along = x @ u
        across = x - along * u
        size = norm(across)
        if math.atan2(size, along) >= angle - 1e-9:
            return x
        if size <= 1e-9 * along:
            return None
        there = math.cos(angle) * u + math.sin(angle) * across / size
        x = np.maximum(norm(x) * there, 0)
    return None


def _leading_residual(V: DataMatrix, W: Array, Ht: Aligned) -> Array:
    """Return leading left singular vectors (F, r) of V - W H, approximately; 6 passes."""
    (VH, HH) = V.sweep(products_and_gram, Ht)[0]
    X = default_rng(0).standard_normal((len(W), min(_DIRECTIONS // 2, len(W))))
    for _ in range(5):
        WX = W.T @ X
        X = exact(V.square_times(X)) - VH @ WX - W @ (VH.T @ X) + W @ (HH @ WX)
        X = qr(X)[0]
    return X
