"""Whether components are unique: how far each can be turned without changing W H.

A small error does not make components true: other factors may have the same product. For any t,

    w_l + sum_k t_k w_k   and   h_k - t_k h_l for every k != l

have the product W H, and are factors as long as nothing is negative: t_k is at most the least
h_k(n) / h_l(n) over the samples that use component l, and w_l + sum_k t_k w_k >= 0. This module
looks for such t that turn w_l far. What it finds is a proof that a component is not unique; where
it finds nothing, `identifiability` may have a proof that it is. V is not read: the error is that
of W H before and after.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arguments import factor, integer, several, text
from ..data.blocks import Array, exact
from ..data.matrix import Aligned, DataMatrix
from ..data.validate import check_factors, require_data_matrix
from ..errors import NotAvailableError
from .identifiability import precision_of, radii_of_factors
from .metrics import unit_columns

__all__ = [
    "VISIBLE_ANGLE",
    "Freedom",
    "between",
    "component_freedom",
    "other_components",
    "places_of_turns",
    "turn_sum",
    "whole_degrees",
]

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
    radii: Array = field(default_factory=lambda: np.zeros(0))
    limits: Array = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        K = self.angles.size
        for name, unknown in (("radii", np.full(K, np.inf)), ("limits", np.zeros((K, K)))):
            if getattr(self, name) is None or not getattr(self, name).size:  # saved before
                object.__setattr__(self, name, unknown)

    @property
    def visible(self) -> list[int]:
        """The components that can be turned by `VISIBLE_ANGLE` or more."""
        found: list[int] = np.flatnonzero(self.angles >= VISIBLE_ANGLE).tolist()
        return found

    def turn_in_words(self, k: int, names: Sequence[str] | None = None) -> str:
        """Describe the turn of a visible component: "by 14° towards component 1".

        `names` are those of all components, if they have any.
        """
        k = integer("k", k, at_least=0, at_most=self.angles.size - 1)
        if self.spare[k]:
            return "to anything, since the others make the same reconstruction without it"
        turn = self.exchange[:, k]
        partner = int(np.abs(turn).argmax())
        mainly = "mainly " if np.count_nonzero(turn) > 1 else ""
        direction = "towards" if turn[partner] > 0 else "away from"
        degrees = whole_degrees(float(self.angles[k]))
        called = f"component {partner}"
        if names is not None:
            called = text("names", several("names", names, "a list of names")[partner])
        return f"by {degrees} {mainly}{direction} {called}"

    def in_words(self) -> str | None:
        """Describe what is not unique in one sentence; None if nothing was found."""
        if not (found := self.visible):
            return None
        K, turn = self.angles.size, whole_degrees(float(self.angles.max()))
        which = f" ({', '.join(map(str, found))})" if len(found) <= _MAX_LISTED else ""
        how = f"each by itself, by up to {turn}" if len(found) > 1 else f"by {turn}"
        return (
            f"the components are not unique: {len(found)} of {K}{which} can be turned, {how}, at "
            "exactly the same error"
        )

    def turned(self, W: npt.ArrayLike, H: Any, k: int) -> tuple[Array, Array]:
        """Return the factors with component k turned: other factors with the same product.

        Raises
        ------
        NotAvailableError
            For a spare component, which has no direction to be turned to.
        """
        K = self.angles.size
        k = integer("k", k, at_least=0, at_most=K - 1)
        W, H = factor("W", W, ("F", K)), factor("H", H, (K, "N"))
        if self.spare[k]:
            raise NotAvailableError(
                f"component {k} is spare, it can be turned to anything: fit fewer components"
            )
        W, H = exact(np.array(W)), exact(np.array(H))
        norms = np.linalg.norm(W, axis=0)
        t = np.divide(
            norms[k] * self.exchange[:, k], norms, out=np.zeros_like(norms), where=norms > 0
        )
        W[:, k] = np.maximum(W[:, k] + W @ t, 0)
        return W, np.maximum(H - np.outer(t, H[k]), 0)


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
    >>> freedom.turn_in_words(0)
    'by 18° towards component 1'
    >>> W_turned, H_turned = freedom.turned(W, H, 0)
    >>> W_turned.round(3).tolist(), H_turned.round(3).tolist()
    ([[1.0, 0.0], [0.333, 1.0]], [[3.0, 2.0, 1.0], [0.0, 1.333, 2.667]])
    """
    require_data_matrix(V, holes=True)
    precision = precision_of(W, H)
    W, Ht = check_factors(V, W, H)
    with V.own_threads():
        (highest,) = V.map(_highest_of, Ht, reduce=np.maximum)
        zero = _ROUNDING_RATIO * highest
        (ratios,) = V.map(_ratios_of_samples, Ht, reduce=np.minimum, zero=zero)
        radii = radii_of_factors(V, W, Ht, precision)
    return _freedom(W, _finite(ratios), highest == 0, radii)


def _freedom(W: Array, ratios: Array, unused: Array, radii: Array) -> Freedom:
    """Judge each component, given the least ratios between the rows of H."""
    U, norms = unit_columns(W), np.linalg.norm(W, axis=0)
    U = np.asfortranarray(np.where(U > _ROUNDING_RATIO * U.max(axis=0), U, 0))  # read by column
    component_ratios = _finite(_least_ratios(U, np.zeros(norms.size)))
    scale = np.divide(norms[:, None], norms, out=np.zeros_like(ratios), where=norms > 0)
    most = ratios * scale  # that can be added, in units of norm 1
    unused = unused | (W.max(axis=0) == 0)
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
    most: Array = np.divide(1, largest, out=np.zeros_like(largest), where=largest > 0)
    return most


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


def turn_sum(freedom: Freedom, W: Array, k: int) -> float:
    """Return 1 + the sum of t, for the farthest turn of a component.

    Where the coefficients of each sample sum to one, they still do if the turned component is
    divided by it; it must be positive.
    """
    norms = np.linalg.norm(W, axis=0)
    t = np.divide(freedom.exchange[:, k], norms, out=np.zeros_like(norms), where=norms > 0)
    return float(1 + norms[k] * t.sum())


def other_components(
    freedom: Freedom, V: DataMatrix, W: Array, Ht: Aligned, k: int
) -> Iterator[Array]:
    """Yield W' (F, K) in which component k is where it is farthest; some H' makes W' H' = W H.

    For a spare component there are several to try: it may be a multiple of another, or used in
    proportion to another, which then takes its place.
    """
    W, norms = exact(np.array(W)), np.linalg.norm(W, axis=0)
    if not freedom.spare[k]:
        t = np.divide(freedom.exchange[:, k], norms, out=np.zeros_like(norms), where=norms > 0)
        W[:, k] = np.maximum(W[:, k] + norms[k] * (W @ t), 0)
        yield W
        return
    w, farthest = W[:, k].copy(), int(unit_columns(W)[:, k].argmin())
    W[:, k] = 0
    W[farthest, k] = float(w.max()) or 1.0
    yield W.copy()
    (HH,) = V.map(_gram, Ht)
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


def _gram(index: range, H: Array) -> tuple[Array]:
    H = exact(H)
    return (H.T @ H,)


def _ratios_of_samples(index: range, H: Array, *, zero: Array) -> tuple[Array]:
    return (_least_ratios(exact(H), zero),)


def _least_ratios(Y: Array, zero: Array) -> Array:
    """Return the least y_k / y_l, k != l, over the rows where y_l > zero: (K, K).

    It is infinite if there is no such row; the diagonal is 0.
    """
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
    return ratios


def _finite(ratios: Array) -> Array:
    """Return least ratios, 0 where there was nothing to divide by."""
    finite: Array = np.where(np.isfinite(ratios), ratios, 0)
    return finite


def _is_parallel(ratios: Array) -> Array:
    """Whether each vector is a multiple of another, given the least ratios (K, K)."""
    return np.asarray((ratios * ratios.T >= 1 - _ROUNDING_RATIO).any(axis=0))


def between(U: Array, X: Array) -> Array:
    """Return the angles between vectors of norm 1, or between columns; exact if they are small."""
    angles: Array = 2 * np.arctan2(np.linalg.norm(U - X, axis=0), np.linalg.norm(U + X, axis=0))
    return angles


def whole_degrees(radians: float) -> str:
    """Return an angle in whole degrees; a lower bound is not rounded up."""
    return f"{math.floor(math.degrees(radians) + 1e-9)}°"
