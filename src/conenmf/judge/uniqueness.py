"""Whether components are unique: other factors that are as good, or a proof that there are none.

A small error does not make components true. *Can be moved*: other nonnegative factors with K
components were found, with an error of at most 1.001 times that of W H, of which no component is
within 5 degrees of it. *Unique*: it is proved (`identifiability`) that all exact factors of W H
have a component within its radius, and the radius is at most 1 degree. *Not found to move*: a
thorough search found no factors that move it; this is no proof. *Undecided*: none of these.
*Given*: it was fixed. The band of a component is the range of each entry over all factors found.

Exact turns come first: for any t,

    w_l + sum_k t_k w_k   and   h_k - t_k h_l for every k != l

have the product W H, and are factors as long as nothing is negative: t_k is at most the least
h_k(n) / h_l(n) over the samples that use component l, and w_l + sum_k t_k w_k >= 0. They are found
without reading V.

For components that are not turned far enough, moves are tried at errors of up to 1.001 times:
beyond these limits W H changes by what is set to zero, and the square of that change, in units of
what the error may grow by, is the cost of a move. It is estimated from some of the samples; counts
are taken relative to their margins, as in the chi squared statistic. The component is put where it
costs little and held there as one that is given (`solve.fixed`), and the others follow it. The
error of all is computed on V with the exact coefficients, and a component is moved by the angle to
the nearest one of the other factors.

The short search costs about as much as a fit: about `max_iter` iterations in all, two places for
each component, which share passes over V. It may miss factors, so what it does not find stays
undecided. The thorough one tries 28 directions for each component, and the others are refitted
until they converge; from the best half of these places the component slides on, at 5 degrees or
more from where it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..arguments import flag, integer
from ..data.blocks import Array, Block, exact, weighted_sums
from ..data.matrix import Aligned, DataMatrix
from ..data.resample import evenly_spaced
from ..data.validate import check_factors, require_data_matrix
from ..errors import NotAvailableError
from ..solve.constraints import Penalties
from ..solve.losses import get_loss
from ..solve.run import Iteration, Run, Solution, Stopping, iterate
from ..text import counted
from . import plots
from .identifiability import UNIQUE_RADIUS, uniqueness_radii
from .scores import match_components, unit_columns

# --- exact turns --------------------------------------------------------------------------------

VISIBLE_ANGLE = math.radians(5)
"""A turn that can be seen: components that are closer look alike as curves or images."""

_ROUNDING_RATIO = 1e-12  # entries below this share of the largest of their component are zeros
_MAX_STEPS = 5  # of a turn: components added or subtracted one after the other
_MIN_SQUARED_NORM = 1e-8  # of what is left of a unit vector, so that its direction has 12 digits
_MAX_LISTED = 8  # components that a sentence names by number
_TIE = 1e-8  # cosines that differ by less are equal: the first of them is taken
_TINY = 1e-300  # instead of 0, to divide by


@dataclass(frozen=True, eq=False)
class Freedom:
    """How far each component can be turned, the others as they are, without changing W H.

    Each component is judged by itself: two turns at once may change W H. Entries below 1e-12 of the
    largest of their component count as zeros, so W H may change by about as much.

    Attributes
    ----------
    angles : array (K,)
        The largest turn that was found, in radians; 0 if none was, which proves nothing.
    exchange : array (K, K)
        Column l has the turn of component l: its new direction is w_l / ||w_l|| +
        sum_k exchange[k, l] w_k / ||w_k||. Zero for spare components.
    spare : array (K,), bool
        Whether the other components can make W H without it: a spare component may be any
        nonnegative vector, and its angle is that to the farthest one.
    radii : array (K,)
        All exact factors of W H have a component within this angle, in radians, of each; infinite
        where nothing is proved. See `uniqueness_radii`.
    limits : array (K, K)
        Entry (k, l) is how much of component k can be added to component l if no other is, both
        scaled to norm 1.
    """

    angles: Array
    exchange: Array
    spare: Array
    radii: Array
    limits: Array

    @property
    def visible(self) -> list[int]:
        """The components that can be turned by `VISIBLE_ANGLE` or more."""
        return np.flatnonzero(self.angles >= VISIBLE_ANGLE).tolist()

    def turn_in_words(self, k: int, names: Sequence[str]) -> str:
        """Describe the turn of a visible component: "by 14° towards component 1"."""
        if self.spare[k]:
            return "to anything, since the others make the same reconstruction without it"
        turn = self.exchange[:, k]
        partner = int(np.abs(turn).argmax())
        mainly = "mainly " if np.count_nonzero(turn) > 1 else ""
        direction = "towards" if turn[partner] > 0 else "away from"
        return f"by {_whole_degrees(self.angles[k])} {mainly}{direction} {names[partner]}"

    def in_words(self) -> str | None:
        """Describe what is not unique in one sentence; None if nothing was found."""
        if not (found := self.visible):
            return None
        K, turn = self.angles.size, _whole_degrees(self.angles.max())
        which = f" ({', '.join(map(str, found))})" if len(found) <= _MAX_LISTED else ""
        how = f"each by itself, by up to {turn}" if len(found) > 1 else f"by {turn}"
        return (
            f"the components are not unique: {len(found)} of {K}{which} can be turned, {how}, at "
            "exactly the same error"
        )

    def turned(self, W: Array, H: Array, k: int) -> tuple[Array, Array]:
        """Return the factors with component k turned, if it is not spare: W H stays the same."""
        t = self.turn(W, k)
        W = exact(np.array(W))
        W[:, k] = np.maximum(W[:, k] + W @ t, 0)
        return W, np.maximum(H - np.outer(t, H[k]), 0)

    def turn(self, W: Array, k: int) -> Array:
        """Return t (K,) for which component k is turned to w_k + W t.

        Where the coefficients of each sample sum to one, they still do if the turned component is
        divided by 1 + sum t, which must be positive.
        """
        norms = np.linalg.norm(W, axis=0)
        t = np.divide(self.exchange[:, k], norms, out=np.zeros_like(norms), where=norms > 0)
        return np.asarray(norms[k] * t)


def component_freedom(V: DataMatrix, W: npt.ArrayLike, H: Any) -> Freedom:
    """Look for ways to turn each component of V ~ W H without changing W H; V is not read.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)

    Notes
    -----
    The angle is largest at a vertex of the polytope of all t. It is approached greedily: up to
    five times, that component is added or subtracted, as far as possible, which turns w_l farthest.
    So the angle is a lower bound: it may be possible to turn the component farther.

    Examples
    --------
    Both components are in every sample, so either can be turned towards the other:

    >>> from conenmf import from_columns
    >>> W, H = np.eye(2), np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    >>> freedom = component_freedom(from_columns(W @ H), W, H)
    >>> freedom.turn_in_words(0, ["a", "b"])
    'by 18° towards b'
    >>> W_turned, H_turned = freedom.turned(W, H, 0)
    >>> W_turned.round(3).tolist(), H_turned.round(3).tolist()
    ([[1.0, 0.0], [0.333, 1.0]], [[3.0, 2.0, 1.0], [0.0, 1.333, 2.667]])
    """
    radii = uniqueness_radii(V, W, H)
    W, Ht = check_factors(V, W, H)
    with V.own_threads():
        (highest,) = V.map(_highest_of, Ht, reduce=np.maximum)
        zero = _ROUNDING_RATIO * highest
        (ratios,) = V.map(_least_ratios, Ht, reduce=np.minimum, zero=zero)
    ratios[~np.isfinite(ratios)] = 0
    U, norms = unit_columns(W), np.linalg.norm(W, axis=0)
    U = np.asfortranarray(np.where(U > _ROUNDING_RATIO * U.max(axis=0), U, 0))  # read by column
    (component_ratios,) = _least_ratios(range(len(U)), U, zero=np.zeros(norms.size))
    component_ratios[~np.isfinite(component_ratios)] = 0
    scale = np.divide(norms[:, None], norms, out=np.zeros_like(ratios), where=norms > 0)
    most = ratios * scale  # that can be added, in units of norm 1
    unused = (highest == 0) | (W.max(axis=0) == 0)
    spare = unused | _is_parallel(ratios) | _is_parallel(component_ratios)
    angles, exchange = np.arccos(np.minimum(U.min(axis=0), 1)), np.zeros_like(ratios)
    for k in map(int, np.flatnonzero(~spare)):
        angles[k] = 0.0
        if most[:, k].any() or component_ratios[k].any():
            exchange[:, k] = _farthest_turn(U, most[:, k], k)
            x = np.maximum(U[:, k] + U @ exchange[:, k], 0)
            angles[k] = between(U[:, k], x / np.linalg.norm(x))
    return Freedom(angles, exchange, spare, radii, most)


def _farthest_turn(U: Array, most: Array, k: int) -> Array:
    """Return t for which u_k + U t is far from u_k, nonnegative, and t <= most."""
    u, x, t = U[:, k], U[:, k], np.zeros(len(most))
    cosine = 1.0
    for _ in range(_MAX_STEPS):
        steps = np.stack([most - t, -_most_subtracted(x, U)])
        steps[:, k] = 0
        squared = x @ x + steps * (2 * (x @ U) + steps)
        along = u @ x + steps * (u @ U)
        kept = squared > _MIN_SQUARED_NORM
        cosines = np.where(kept, along / np.sqrt(np.where(kept, squared, 1)), 1)
        least = cosines.min()
        if least >= cosine - _TIE:
            break
        way, partner = np.argwhere(cosines <= least + _TIE)[0]
        cosine = cosines[way, partner]
        t[partner] += steps[way, partner]
        x = np.maximum(x + steps[way, partner] * U[:, partner], 0)
    return t


def _most_subtracted(x: Array, U: Array) -> Array:
    """Return the largest s (K,) with s_k u_k <= x for each k; 0 for zero columns."""
    inverse = 1 / np.maximum(x, _TINY)  # where x is 0 and u_k not, s_k is too small to matter
    largest = np.array([(u * inverse).max() for u in U.T])  # each product stays in the cache
    return np.divide(1, largest, out=np.zeros_like(largest), where=largest > 0)


def places_of_turns(freedom: Freedom, W: Array, k: int) -> Iterator[Array]:
    """Yield places (F,) of component k in factors of W H, none for a spare one.

    The farthest, and those at which another component alone is added or subtracted as far as
    possible.
    """
    if freedom.spare[k] or freedom.angles[k] == 0:
        return
    U = unit_columns(W)
    yield np.maximum(U[:, k] + U @ freedom.exchange[:, k], 0)
    less = _most_subtracted(U[:, k], U)
    for partner in range(freedom.angles.size):
        if partner != k and freedom.limits[partner, k] > 0:
            yield U[:, k] + freedom.limits[partner, k] * U[:, partner]
        if partner != k and less[partner] > 0:
            x = np.maximum(U[:, k] - less[partner] * U[:, partner], 0)
            if x @ x > _MIN_SQUARED_NORM:
                yield x


def other_components(
    freedom: Freedom, V: DataMatrix, W: Array, Ht: Aligned, k: int
) -> Iterator[Array]:
    """Yield W' (F, K) in which component k is where it is farthest; some H' makes W' H' = W H.

    For a spare component there are several to try: it may be a multiple of another, or used in
    proportion to another, which then takes its place.
    """
    W = exact(np.array(W))
    w, farthest = W[:, k].copy(), int(unit_columns(W)[:, k].argmin())
    if not freedom.spare[k]:
        W[:, k] = np.maximum(w + W @ freedom.turn(W, k), 0)
        yield W
        return
    W[:, k] = 0
    W[farthest, k] = float(w.max()) or 1.0
    yield W.copy()
    (HH,) = V.map(gram_of_rows, Ht)
    sizes = np.sqrt(HH.diagonal())
    likeness = np.divide(HH[k], sizes, out=np.zeros_like(sizes), where=sizes > 0)
    likeness[k] = -1
    partner = int(likeness.argmax())
    if sizes[partner] > 0:
        W[:, partner] += w * (sizes[k] / sizes[partner])
        yield W


# --- ratios -----------------------------------------------------------------------------------


def _highest_of(index: range, H: Array) -> tuple[Array]:
    return (exact(H.max(axis=0)),)


def gram_of_rows(index: range, H: Array) -> tuple[Array]:
    """Return the Gram matrix (K, K) of the rows of a block, as a step of `DataMatrix.map`."""
    H = exact(H)
    return (H.T @ H,)


def _least_ratios(index: range, Y: Array, *, zero: Array) -> tuple[Array]:
    """Return the least y_k / y_l, k != l, over the rows where y_l > zero: (K, K).

    It is infinite if there is no such row; the diagonal is 0.
    """
    Y = exact(Y)
    Y = np.where(Y > zero, Y, 0)
    used = (Y > 0).astype(np.float32)
    n_in_the_way = (1 - used).T @ used  # rows that have l and not k: the ratio is 0
    ratios = np.zeros(n_in_the_way.shape)
    for l, column in enumerate(Y.T):
        partners = np.flatnonzero(n_in_the_way[:, l] == 0)
        rows = np.flatnonzero(column)
        if partners.size > 1:  # one is l itself
            quotients = Y[np.ix_(rows, partners)] / column[rows, None]
            ratios[partners, l] = quotients.min(axis=0, initial=np.inf)
    np.fill_diagonal(ratios, 0)
    return (ratios,)


def _is_parallel(ratios: Array) -> Array:
    """Whether each vector is a multiple of another, given the least ratios (K, K)."""
    return np.asarray((ratios * ratios.T >= 1 - _ROUNDING_RATIO).any(axis=0))


def between(U: Array, X: Array) -> Array:
    """Return the angles between vectors of norm 1, or between columns; exact if they are small."""
    return 2 * np.arctan2(np.linalg.norm(U - X, axis=0), np.linalg.norm(U + X, axis=0))


def _whole_degrees(radians: float) -> str:
    """Return an angle in whole degrees; a lower bound is not rounded up."""
    return f"{math.floor(math.degrees(radians) + 1e-9)}°"


# --- the verdict --------------------------------------------------------------------------------

MAX_ERROR_RATIO = 1.001
"""How many times the error of the given factors other factors may have."""

VERDICTS = ("unique", "can be moved", "not found to move", "undecided", "given")


@dataclass(frozen=True, eq=False)
class Uniqueness:
    """Whether each component is the only one; see `uniqueness`.

    Attributes
    ----------
    freedom : Freedom
        What is known of exact factors of W H: turns, spare components, proofs.
    angles : array (K,)
        By how much each component is moved in the factors that move it most, in radians.
    error_ratios : array (K,)
        The error of these factors, in units of that of W H; 1 if there are none.
    lower, upper : arrays (F, K)
        The band: the least and the largest value of each entry over all factors that were found,
        scaled to the sum that the component has in W.
    given : array (K,), bool
        Which components were given, and so are not judged.
    directions : array (K,)
        In how many directions a thorough search has tried to move each component; 0 if there was
        none, or if it did not come to its end.
    was_searched : bool
        Whether factors were sought at errors up to 1.001 times that of W H; exact turns always are.
    passes : float
        How often V was read.
    others : mapping
        The components W' (F, K) of other factors, by the number of the component that they move
        most. It is empty in a result that was saved, and may be of very large ones.
    """

    freedom: Freedom
    angles: Array
    error_ratios: Array
    lower: Array
    upper: Array
    given: Array
    directions: Array
    was_searched: bool
    passes: float = 0.0
    others: Mapping[int, Array] = field(default_factory=dict, repr=False)

    @property
    def K(self) -> int:
        """The number of components."""
        return int(self.angles.size)

    @property
    def verdicts(self) -> tuple[str, ...]:
        """Of each component one of `VERDICTS`."""
        places = np.select(
            [
                self.given.astype(bool),
                self.angles >= VISIBLE_ANGLE,
                self.freedom.radii <= UNIQUE_RADIUS,
                self.directions > 0,
            ],
            [4, 1, 0, 2],
            default=3,
        )
        return tuple(VERDICTS[place] for place in places)

    def in_words(self, k: int, names: Sequence[str] | None = None) -> str:
        """Return what is known of a component, in a line; `names` are those of all components."""
        verdict, radius = self.verdicts[k], ""
        tried = f"at up to {MAX_ERROR_RATIO} times the error"
        if np.isfinite(self.freedom.radii[k]):
            degrees = math.ceil(100 * math.degrees(self.freedom.radii[k]) + 1e-6) / 100
            radius = f"exact factors of WH move it by at most {degrees:.2f}°"  # not rounded down
        if verdict == "given":
            return "given, and so not judged"
        if verdict == "unique":
            searched = f"; none {tried} were found" if self.directions[k] else ""
            return f"unique: {radius}{searched}"
        if verdict == "can be moved":
            return f"can be moved {self._move_in_words(k, self._names(names), radius)}"
        if verdict == "not found to move":
            return (
                f"not found to move by 5° at an error of up to {MAX_ERROR_RATIO} times, in "
                f"{self.directions[k]} directions; no proof"
            )
        search = "no factors with the same error were found to move it by 5°"
        if self.was_searched:
            search = f"a short search {tried.removeprefix('at ')} did not move it by 5°"
        return f"undecided: {radius or 'not proved unique'}, and {search}"

    def _move_in_words(self, k: int, names: Sequence[str], radius: str) -> str:
        angle, ratio = self.angles[k], self.error_ratios[k]
        if angle <= self.freedom.angles[k] + 1e-9 and ratio < 1.00005:
            return f"{self.freedom.turn_in_words(k, names)}, at the same error"
        exactly = f"; {radius}" if radius else ""
        return f"by {_whole_degrees(angle)}, at an error of {ratio:.4f} times this one{exactly}"

    def summary(self) -> str:
        """Return how many components have each verdict, in a sentence."""
        counts = {name: self.verdicts.count(name) for name in VERDICTS}
        parts = [f"{counts[name]} {_COUNTED[name]}" for name in VERDICTS if counts[name]]
        return f"of {counted(self.K, 'component')}, {', '.join(parts)}"

    def lines(self, names: Sequence[str] | None = None) -> list[str]:
        """Return the summary, and a line for each component."""
        called = self._names(names)
        words = (f"{called[k]}: {self.in_words(k, called)}" for k in range(self.K))
        return [self.summary(), *words]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _names(self, names: Sequence[str] | None) -> Sequence[str]:
        return names or [f"component {k}" for k in range(self.K)]

    def other(self, k: int) -> Array:
        """Return the components W' (F, K) of other factors, in which component k is moved.

        The coefficients that belong to them are the best ones: ``best_coefficients(V, W')``, with
        ``penalties=Penalties(sum_to_one=True)`` if those of the fit sum to one.

        Raises
        ------
        NotAvailableError
            If no such factors were found, or they were not kept.
        """
        if k not in self.others:
            why = "none were found" if self.angles[k] < VISIBLE_ANGLE else "they were not kept"
            raise NotAvailableError(f"no other factors that move component {k}: {why}")
        return self.others[k]

    def arrays(self) -> dict[str, Array]:
        """Return what is saved with a result, by name; `from_arrays` re-creates it."""
        arrays = {name: np.asarray(value) for name, value in vars(self).items()}
        del arrays["freedom"], arrays["others"]
        return arrays | {f"freedom_{key}": value for key, value in vars(self.freedom).items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Uniqueness:
        """Re-create what `arrays` returned."""
        values: dict[str, Any] = {}
        turns: dict[str, Array] = {}
        for name, array in arrays.items():
            if name.startswith("freedom_"):
                turns[name.removeprefix("freedom_")] = array
            else:
                values[name] = array if array.ndim else array.item()
        return cls(Freedom(**turns), **values)

    def plot(self, W: Array, axes: Any = None) -> Array:
        """Draw the components W (F, K) with their bands; return the matplotlib axes."""
        titles = [f"component {k}: {verdict}" for k, verdict in enumerate(self.verdicts)]
        return plots.bands(W, self.lower, self.upper, axes, titles=titles)


_COUNTED = {
    "unique": "unique (exact factors of WH move them by at most 1°)",
    "can be moved": "can be moved by 5° or more",
    "not found to move": "not found to move",
    "undecided": "undecided",
    "given": "given",
}


# --- moves --------------------------------------------------------------------------------------

_ANGLES = tuple(math.radians(degrees) for degrees in (5.1, 7.5, 11.0, 16.0, 24.0, 36.0))
_SLIDE_STEPS = 20  # until an angle is reached in spite of zeros
_MIN_ANGLE = math.radians(5.05)  # after what is negative was set to zero


class Move(NamedTuple):
    """A place for a component: to w_l + sum_k t_k w_k, with zeros for what would be negative.

    Attributes
    ----------
    component : int
    t : array (K,)
    angle : float
        By which it moves the component, in radians.
    cost : float
        What it adds to the loss at most, in units of what may be added; an estimate.
    shift : array (F,) or None
        Added to the component too, if it leaves the span of the components.
    """

    component: int
    t: Array
    angle: float
    cost: float
    shift: Array | None = None


def moved_component(W: Array, move: Move) -> Array:
    """Return the component (F,) where a move brings it."""
    moved: Array = W[:, move.component] + W @ move.t
    return np.maximum(moved if move.shift is None else moved + move.shift, 0)


def proposed_moves(
    W: Array, H: Array, exchange: Array, allowed: float, *, counts: bool
) -> list[list[Move]]:
    """Return moves for each component, the most promising first.

    Parameters
    ----------
    W : array (F, K)
    H : array (K, n)
        Coefficients of some samples.
    exchange : array (K, K)
        The exact turns of `Freedom`, in units of norm 1.
    allowed : float
        How much the loss of these samples may grow.
    counts : bool
        Whether the loss is that of counts.
    """
    norms = np.linalg.norm(W, axis=0)
    if counts:
        W_seen, H_seen = _relative_to_margins(W, H)
        allowed = 2 * allowed  # the divergence is half the square
    else:
        W_seen, H_seen = W, H
    judge = _Judge(W, W_seen, H_seen, max(allowed, np.finfo(float).tiny))
    return [
        judge.moves(l, exchange[:, l] * norms[l]) if norms[l] > 0 else [] for l in range(norms.size)
    ]


def all_moves(
    W: Array, proposed: list[Move], l: int, beyond: Array, n_moves: int, rng: np.random.Generator
) -> list[Move]:
    """Return `n_moves` moves of component l in different directions, each by about 5 degrees.

    First those that were proposed, towards and away from each other component; then along the
    directions `beyond` (F, r) and against them, which leave the span of the components; then along
    random ones, in the span and beyond it in turn.
    """
    U, norm, zero = unit_columns(W), float(np.linalg.norm(W[:, l])), np.zeros(W.shape[1])
    sizes = np.linalg.norm(W, axis=0)
    moves = list({(move.t.tobytes()): move for move in proposed}.values())[:n_moves]
    for direction in (sign * d for d in beyond.T for sign in (1.0, -1.0)):
        step = _step_of(U[:, l], direction)
        if step and len(moves) < n_moves:
            moves.append(Move(l, zero, _ANGLES[0], math.nan, step * norm * direction))
    for trial in range(20 * n_moves):
        if len(moves) >= n_moves:
            break
        mix = rng.standard_normal(W.shape[1]) * (sizes > 0)
        own = rng.standard_normal(len(W)) * (U[:, l] if trial % 4 == 1 else U.mean(axis=1))
        direction = own if trial % 2 else U @ mix
        step = _step_of(U[:, l], direction)
        if step and trial % 2:
            moves.append(Move(l, zero, _ANGLES[0], math.nan, step * norm * direction))
        elif step:
            t = np.divide(step * norm * mix, sizes, where=sizes > 0, out=np.zeros_like(sizes))
            moves.append(Move(l, t, _ANGLES[0], math.nan))
    return moves


def _step_of(u: Array, direction: Array) -> float:
    """How far u goes in a direction until it has turned by the least angle; 0 if it never does."""
    low, high = 0.0, 0.01 / (float(np.linalg.norm(direction)) or 1.0)
    while _angle_to(u, u + high * direction) < _ANGLES[0]:
        low, high = high, 2 * high
        if high * float(np.abs(direction).max(initial=0)) > 1e3 or not direction.any():
            return 0.0
    for _ in range(30):
        middle = (low + high) / 2
        if _angle_to(u, u + middle * direction) < _ANGLES[0]:
            low = middle
        else:
            high = middle
    return high


def slide(
    W: Array, VH: Array, HH: Array, l: int, w: Array, angle: float, step: float
) -> Move | None:
    """Return a move of component l of W to where the error is less, at least an angle from w.

    With a step of 1 that is the best place for the coefficients H of W, given as VH' (F, K) and HH'
    (K, K), or what is nearly the nearest to it at this angle; None if there is none.
    """
    if not HH[l, l] > 0:
        return None
    fall = step * (VH[:, l] - W @ HH[l]) / HH[l, l]
    u, best = w / np.linalg.norm(w), np.maximum(W[:, l] + fall, 0)
    for _ in range(_SLIDE_STEPS):
        across = best - (best @ u) * u
        if not across.any():
            return None
        if (turned := _angle_to(u, best)) >= angle - 1e-9:
            return Move(l, np.zeros(W.shape[1]), turned, math.nan, best - W[:, l])
        there = math.cos(angle) * u + math.sin(angle) * across / np.linalg.norm(across)
        best = np.maximum(np.linalg.norm(best) * there, 0)  # zeros may bring it nearer again
    return None


def _angle_to(u: Array, w: Array, size: float = 1.0) -> float:
    """The angle from a unit vector to w without what is negative; 0 if nearly nothing is left."""
    moved = np.maximum(w, 0)
    norm = float(np.linalg.norm(moved))
    return float(np.arccos(np.clip(u @ moved / norm, -1, 1))) if norm > 1e-6 * size else 0.0


class _Judge:
    """The cost of moves."""

    def __init__(self, W: Array, W_seen: Array, H_seen: Array, allowed: float) -> None:
        self.W, self.W_seen, self.H = W, W_seen, H_seen
        self.U, self.norms, self.allowed = unit_columns(W), np.linalg.norm(W, axis=0), allowed
        self.between = np.arccos(np.clip(self.U.T @ self.U, -1, 1))
        self.squares, self.H_squares = (W_seen**2).sum(axis=0), (H_seen**2).sum(axis=1)

    def moves(self, l: int, turn: Array) -> list[Move]:
        """Return the farthest move that is allowed, if one is, and others by their cost."""
        K = self.norms.size
        ways = [(k, sign) for k in range(K) if k != l and self.norms[k] > 0 for sign in (1, -1)]
        found = [self._along(l, *way) for way in ways]
        turns = self._turns(l, np.divide(turn, self.norms, where=self.norms > 0, out=0 * turn))
        nearest = [turns, *(moves[:1] for moves in found)]
        cheapest = sorted((move for moves in nearest for move in moves), key=attrgetter("cost"))
        allowed = [moves[-1] for moves in found if moves and moves[-1].cost <= 1]
        return [*sorted(allowed, key=attrgetter("angle"), reverse=True)[:1], *cheapest]

    def _along(self, l: int, k: int, sign: int) -> list[Move]:
        """The nearest move towards or away from component k, and the farthest that is allowed."""
        found: list[Move] = []
        for angle in _ANGLES:
            left = self.between[l, k] - sign * angle
            if left <= 0 or left >= math.pi:
                break
            t = np.zeros(self.norms.size)
            t[k] = sign * math.sin(angle) / math.sin(left) * self.norms[l] / self.norms[k]
            reached = angle
            if sign < 0:  # what would be negative is zero, so that it turns less
                reached = self._angle(l, t)
            move = Move(l, t, reached, self._cost_along(l, k, t[k]) / self.allowed)
            if move.angle < _MIN_ANGLE:
                continue
            if found and move.cost > 1:
                break
            found = [*found[:1], move]
        return found

    def _angle(self, l: int, t: Array) -> float:
        """By how much component l is moved to w_l + W t."""
        return _angle_to(self.U[:, l], self.W[:, l] + self.W @ t, self.norms[l])

    def _cost_along(self, l: int, k: int, t: float) -> float:
        if t > 0:
            lost = np.maximum(t * self.H[l] - self.H[k], 0)
            return float(self.squares[k] * (lost @ lost))
        below = np.maximum(-t * self.W_seen[:, k] - self.W_seen[:, l], 0)
        return float(self.H_squares[l] * (below @ below))

    def _turns(self, l: int, turn: Array) -> list[Move]:
        """An exact turn that is too small to be seen, continued."""
        angle = self._angle(l, turn) if turn.any() else 0.0
        if angle < math.radians(0.5) or angle >= _ANGLES[0]:
            return []
        t = turn * (math.tan(_ANGLES[0]) / math.tan(angle))
        lost = np.maximum(np.outer(t, self.H[l]) - self.H, 0) * (t > 0)[:, None]
        changed = self.W_seen @ lost
        below = np.maximum(-(self.W_seen[:, l] + self.W_seen @ t), 0)
        cost = float((changed**2).sum() + self.H_squares[l] * (below @ below))
        reached = self._angle(l, t)
        return [Move(l, t, reached, cost / self.allowed)] if reached >= _MIN_ANGLE else []


def _relative_to_margins(W: Array, H: Array) -> tuple[Array, Array]:
    """Scale rates so that their squares are relative to the product of the margins."""
    features, samples = W @ H.sum(axis=1), W.sum(axis=0) @ H
    total = float(samples.sum()) or 1.0
    rows = np.sqrt(np.where(features > 0, features, 1) / total)
    columns = np.sqrt(np.where(samples > 0, samples, 1))
    return W / rows[:, None], H / columns


# --- refits -------------------------------------------------------------------------------------

_MAX_HELD_NUMBERS = 1 << 26  # in the factors of runs that share passes
_COPIES = 4  # of them, that a run has
_MAX_FALLS = 100  # of the error as in the last five iterations, before it is low enough


class Refit(NamedTuple):
    """Where a trial ended: W (F, K), its relative error, and the iterations that it took."""

    W: Array
    error: float
    n_iter: int


class _Trial:
    """One move: its run has the components that are held first."""

    def __init__(self, V: DataMatrix, W: Array, move: Move, loss: str, n_given: int) -> None:
        self.V, self.move = V, move
        W = np.array(W)
        W[:, move.component] = moved_component(W, move)
        rest = [k for k in range(n_given, W.shape[1]) if k != move.component]
        self.order = np.array([*range(n_given), move.component, *rest])
        self.W = np.ascontiguousarray(W[:, self.order])
        self.loss, self.n_held = get_loss(loss), n_given + 1

    def run(self, Ht: Aligned, limit: float, stopping: Stopping) -> Run:
        """Return the run, which has not begun."""
        l, V = self.move.component, self.V
        H, _ = V.map(_moved_rows, Ht, t=self.move.t, l=l, order=self.order, dtype=V.dtype)

        errors: list[float] = []

        def is_enough(now: Iteration) -> bool:
            """Whether the error is low enough, or falls too slowly to become so."""
            errors.append(now.relative_error)
            fall = errors[-6] - errors[-1] if len(errors) > 5 else math.inf
            return errors[-1] <= limit or errors[-1] - limit > _MAX_FALLS * max(fall, 0.0)

        W = self.W.astype(V.dtype)
        solver = self.loss.solver("auto")
        assert solver is not None
        objective = self.loss.on(V, n_fixed=self.n_held)
        return Run(objective, W, H.T, solver, stopping, callback=is_enough)

    def end(self, solution: Solution) -> Array:
        """Return W in its own order."""
        W: Array = exact(solution.W)[:, np.argsort(self.order)]
        W[:, self.move.component] = self.W[:, np.argsort(self.order)][:, self.move.component]
        return W


def _moved_rows(
    index: range, H: Array, *, t: Array, l: int, order: Array, dtype: np.dtype[Any]
) -> tuple[Array, None]:
    H = exact(H)
    moved = np.maximum(H - H[:, l, None] * t, 0)
    return np.ascontiguousarray(moved[:, order], dtype), None


# --- the search ---------------------------------------------------------------------------------

_MAX_SAMPLES = 4000  # by which moves are proposed
_MAX_TRIALS = 2  # of each component
_MAX_COST = 300.0  # of a move, in units of what is allowed: a refit seldom brings down more
_TRIAL_ITERATIONS = 3, 12  # of a trial, at least and at most
_DIRECTIONS = 28  # of each component, in a thorough search
_LEADING = 4  # directions of the residual, which are among them, each with both signs
_THOROUGH: Any = {"max_iter": 500, "tol": 1e-5}  # of each trial
_SLIDING, _MAX_SLIDES = 14, 50  # the trials of each component that slide, and how often they may
_SLIDE_ANGLE = math.radians(5.01)  # from where the component was
_HOPEFUL_RATIO = 1.0005  # of errors to the limit, that the exact coefficients may bring down
_ROUNDING = 1e3  # in units of the precision of V, that errors may differ by
_MIN_TURN = math.radians(1)  # of an exact turn that is checked
_MAX_KEPT_BYTES = 1 << 27  # of other factors


def exact_uniqueness(
    W: Array, freedom: Freedom, *, n_given: int = 0, sum_to_one: bool = False
) -> Uniqueness:
    """Return what is known without reading V, from exact turns and proofs alone.

    Parameters
    ----------
    W : array (F, K)
    freedom : Freedom
        That of these factors.
    n_given : int
        The first components were given, and are not judged.
    sum_to_one : bool
        The coefficients of each sample sum to one: turns that this rules out do not count.
    """
    W = exact(W)
    found = _Found(W, freedom, n_given)
    for l in range(n_given, W.shape[1]):
        if sum_to_one and (freedom.spare[l] or 1 + freedom.turn(W, l).sum() <= 0):
            continue
        found.widen_by_turns(l)
        found.angles[l] = freedom.angles[l]
    return found.uniqueness(was_searched=False, passes=0.0)


def uniqueness(
    V: DataMatrix,
    W: npt.ArrayLike,
    H: Any,
    *,
    loss: str = "frobenius",
    n_given: int = 0,
    max_iter: int = 200,
    thorough: bool = False,
    sum_to_one: bool = False,
) -> Uniqueness:
    """Say of each component of V ~ W H whether it is unique, can be moved, or neither is known.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)
    loss : {"frobenius", "poisson"}
        That of the fit.
    n_given : int
        The first components were given (`fixed`): they stay, and are not judged.
    max_iter : int
        About how many iterations the search takes in all; each is one of a fit. With 0, exact turns
        and proofs alone are sought.
    thorough : bool
        Search until it can be said that a component was not found to move: 28 directions for each,
        the other components refitted until they converge. It takes up to tens of
        times the CPU time of the fit. Fits that are exact but for rounding are not searched.
    sum_to_one : bool
        The coefficients of each sample sum to one, here and in other factors. Then exact turns and
        proofs alone are sought.

    Examples
    --------
    No sample is pure: the components can be moved, here without changing W H.

    >>> from conenmf import from_columns
    >>> W, H = np.eye(2), np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    >>> found = uniqueness(from_columns(W @ H), W, H)
    >>> found.verdicts
    ('can be moved', 'can be moved')
    >>> found.in_words(0)
    'can be moved by 18° towards component 1, at the same error'
    """
    require_data_matrix(V, nonzero=True, holes=True)
    loss, max_iter = get_loss(loss).name, integer("max_iter", max_iter, at_least=0)
    sum_to_one, thorough = flag("sum_to_one", sum_to_one), flag("thorough", thorough)
    if sum_to_one or V.observed is not None or "fixed" not in get_loss(loss).constraints:
        max_iter = 0  # V has zeros where entries are missing
    freedom = component_freedom(V, W, H)
    W, Ht = check_factors(V, W, H)
    n_given = integer("n_given", n_given, at_least=0, at_most=W.shape[1])
    passes = V.passes_here
    with V.own_threads():
        search = _Search(V, W, Ht, freedom, loss, n_given, sum_to_one)
        search.exact_turns()
        if max_iter and W.shape[1] > 1:
            search.refits(max_iter)
            if thorough:
                search.everywhere()
    return search.found.uniqueness(was_searched=max_iter > 0, passes=V.passes_here - passes)


class _Found:
    """The factors that were found so far, and what they say about each component."""

    def __init__(self, W: Array, freedom: Freedom, n_given: int) -> None:
        self.W, self.freedom, self.sums = W, freedom, W.sum(axis=0)
        self.given = np.arange(W.shape[1]) < n_given
        self.angles, self.ratios = np.zeros(W.shape[1]), np.ones(W.shape[1])
        self.lower, self.upper = W.copy(), W.copy()
        self.directions = np.zeros(W.shape[1], dtype=np.int64)
        self.others: dict[int, Array] = {}

    def widen(self, l: int, w: Array) -> None:
        """Take another place of a component into its band."""
        total = float(w.sum())
        if total > 0:
            w = w * (self.sums[l] / total)
            np.minimum(self.lower[:, l], w, out=self.lower[:, l])
            np.maximum(self.upper[:, l], w, out=self.upper[:, l])

    def widen_by_turns(self, l: int) -> None:
        """Take all exact turns of a component into its band; a spare one may be anything."""
        if self.freedom.spare[l]:
            self.lower[:, l], self.upper[:, l] = 0, self.sums[l]
        for w in places_of_turns(self.freedom, self.W, l):
            self.widen(l, w)

    def add(self, W: Array, ratio: float) -> None:
        """Take other components that were checked; they may move more than one.

        A component that the others have too is not moved, whichever it is paired with; a spare one
        is, since another is then the same.
        """
        order, _ = match_components(self.W, W)
        U, U_other = unit_columns(self.W), unit_columns(W)
        angles = between(U, U_other[:, order])
        for l in map(int, np.flatnonzero(~self.given & ~self.freedom.spare)):
            to_each = between(U[:, l, None], U_other)
            order[l] = to_each.argmin()
            angles[l] = to_each[order[l]]
        for l in map(int, np.flatnonzero(~self.given)):
            self.widen(l, W[:, order[l]])
            if angles[l] > self.angles[l] and W[:, order[l]].any():
                self.angles[l], self.ratios[l] = angles[l], ratio
                self.others[l] = W

    def pending(self) -> list[int]:
        """The components that were not moved far enough to be seen."""
        return np.flatnonzero(~self.given & (self.angles < VISIBLE_ANGLE)).tolist()

    def uniqueness(self, *, was_searched: bool, passes: float) -> Uniqueness:
        """Return the verdicts."""
        kept, held = {}, 0
        for l, W in self.others.items():
            held += W.nbytes
            if self.angles[l] >= VISIBLE_ANGLE and held <= _MAX_KEPT_BYTES:
                kept[l] = W
        facts = (self.freedom, self.angles, self.ratios, self.lower, self.upper, self.given)
        return Uniqueness(*facts, self.directions, was_searched, passes, kept)


class _Search:
    """Looks for other factors, and has each checked on V."""

    def __init__(
        self,
        V: DataMatrix,
        W: Array,
        Ht: Aligned,
        freedom: Freedom,
        loss: str,
        n_given: int,
        sum_to_one: bool,
    ) -> None:
        self.V, self.W, self.Ht, self.loss, self.n_given = V, W, Ht, loss, n_given
        self.found, self.sum_to_one = _Found(W, freedom, n_given), sum_to_one
        self.goal = get_loss(loss).on(V, Penalties(sum_to_one=sum_to_one), rescale=False)
        self.error = self.error_of(W)
        self.rounding = _ROUNDING * float(np.finfo(V.dtype).eps)
        self.limit = MAX_ERROR_RATIO * self.error + self.rounding

    def finished(self, W: Array) -> Any:
        """The best coefficients for W, and their error; one pass."""
        W = np.ascontiguousarray(W, self.goal.V.dtype)
        return self.goal.finish(W, sort=False)

    def error_of(self, W: Array) -> float:
        """The relative error of W with its best H; one pass."""
        return self.goal.relative_error(self.finished(W).squared_error)

    def check(self, end: Refit) -> bool:
        """Check where a trial ended, unless its error is far too large."""
        return end.error <= _HOPEFUL_RATIO * self.limit and self.check_components(end.W)

    def check_components(self, W: Array) -> bool:
        """Compute the error of other components on V, and take them if it is low enough."""
        error = self.error_of(W)
        if error <= self.limit:
            ratio = error / self.error if self.error > self.rounding else 1.0
            self.found.add(W, ratio)
        return error <= self.limit

    def exact_turns(self) -> None:
        """Check the farthest turn of each component; all turns are in the band if it holds."""
        freedom = self.found.freedom
        for l in range(self.n_given, self.W.shape[1]):
            if freedom.angles[l] < _MIN_TURN:
                continue
            others = other_components(freedom, self.V, self.W, self.Ht, l)
            if self.sum_to_one and not freedom.spare[l]:  # W H has the same sums with this scale
                total = 1 + float(freedom.turn(self.W, l).sum())
                scale = np.where(np.arange(self.W.shape[1]) == l, total, 1)
                others = iter([W / scale for W in others] if total > 0 else [])
            if any(self.check_components(W) for W in others):
                self.found.widen_by_turns(l)

    def refits(self, max_iter: int) -> None:
        """Put the other components elsewhere, and let the rest follow."""
        proposed = self.proposed()
        for trial in range(_MAX_TRIALS):
            pending = set(self.found.pending())
            moves = [
                own[trial]
                for own in proposed
                if len(own) > trial and own[trial].component in pending
            ]
            if not moves or max_iter <= 0:
                return
            each = int(np.clip(max_iter // len(moves), *_TRIAL_ITERATIONS))
            for end in self.trials(self.W, self.Ht, moves, max_iter=each):
                max_iter -= end.n_iter
                self.check(end)

    def everywhere(self) -> None:
        """Try many directions for every component that was not moved, until the rest converges."""
        if self.error**2 < self.rounding:  # 0.1 % of it is less than rounding
            return
        rng, K = np.random.default_rng(0), self.W.shape[1]
        beyond = _leading_residual(self.V, self.W, self.Ht, rng)
        proposed, most = self.proposed(math.inf), _DIRECTIONS - 2 * _LEADING
        moves = [
            all_moves(self.W, proposed[l][:most], l, beyond, _DIRECTIONS, rng) for l in range(K)
        ]
        ends: list[list[Refit]] = [[] for _ in range(K)]
        for trial in range(_DIRECTIONS):
            now = [moves[l][trial] for l in self.found.pending() if len(moves[l]) > trial]
            for move, end in zip(now, self.trials(self.W, self.Ht, now, **_THOROUGH), strict=True):
                ends[move.component].append(end)
                self.check(end)
        for l in self.found.pending():
            converged = [end for end in ends[l] if end.n_iter < _THOROUGH["max_iter"]]
            self.found.directions[l] = len(converged) if len(converged) == _DIRECTIONS else 0
            for end in sorted(ends[l], key=attrgetter("error"))[:_SLIDING]:
                if self.found.angles[l] < VISIBLE_ANGLE:
                    self.slide(l, end)

    def slide(self, l: int, end: Refit) -> None:
        """Let the component go where the error is less, as long as that is 5 degrees away."""
        step = 1.0
        for _ in range(_MAX_SLIDES):
            Ht = self.finished(end.W).H.T
            (VH, HH) = self.V.sweep(_cross_and_gram, Ht)[0]
            move = slide(end.W, VH, HH, l, self.W[:, l], _SLIDE_ANGLE, step)
            if move is None:
                return
            (new,) = self.trials(end.W, Ht, [move], **_THOROUGH)
            fall = end.error - new.error
            if self.check(new) or (step == 1 and new.error - self.limit > _MAX_SLIDES * fall):
                return
            end, step = (new, 2 * step) if fall > 0 else (end, 1.0)

    def trials(
        self, W: Array, Ht: Aligned, moves: list[Move], *, max_iter: int, tol: float = 1e-4
    ) -> Iterator[Refit]:
        """Yield where each move ended: its component is where it was put, and the others followed.

        A trial ends when its relative error is low enough, after `max_iter` iterations, or when its
        error falls by less than the share `tol` in five of them.
        """
        stopping = Stopping(tol, max_iter=max_iter)
        at_once = max(1, _MAX_HELD_NUMBERS // (_COPIES * sum(self.V.shape) * W.shape[1]))
        for first in range(0, len(moves), at_once):
            some = moves[first : first + at_once]
            trials = [_Trial(self.V, W, move, self.loss, self.n_given) for move in some]
            runs = [trial.run(Ht, self.limit, stopping) for trial in trials]
            for trial, solution in zip(trials, iterate(self.V, runs), strict=True):
                errors = solution.history.relative_error
                yield Refit(trial.end(solution), float(errors[-1]), errors.size)

    def proposed(self, max_cost: float = _MAX_COST) -> list[list[Move]]:
        """Moves for each component: the one that goes farthest, and others, the cheapest first."""
        N = self.V.shape[1]
        samples = evenly_spaced(N, _MAX_SAMPLES)
        H = np.asarray(self.Ht[samples], dtype=np.float64).T
        power = self.goal.loss.degree  # of least squares the relative error is a root
        rise = self.limit**power - self.error**power
        allowed = rise / self.goal.relative_error(1.0) ** power * samples.size / N
        counts = power == 1
        proposed = proposed_moves(self.W, H, self.found.freedom.exchange, allowed, counts=counts)
        return [[move for move in own if move.cost <= max_cost] for own in proposed]


def _leading_residual(V: DataMatrix, W: Array, Ht: Aligned, rng: np.random.Generator) -> Array:
    """Return leading left singular vectors (F, r) of V - W H, roughly; 6 passes."""
    (VH, HH) = V.sweep(_cross_and_gram, Ht)[0]
    X = rng.standard_normal((len(W), min(_LEADING, len(W))))
    for _ in range(5):
        WX = W.T @ X
        X = exact(V.square_times(X)) - VH @ WX - W @ (VH.T @ X) + W @ (HH @ WX)
        X = np.linalg.qr(X)[0]
    return X


def _cross_and_gram(block: Block, H: Array) -> tuple[tuple[Array, Array]]:
    H = exact(H)
    return ((exact(weighted_sums(exact(block), H)), H.T @ H),)
