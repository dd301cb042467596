"""What is known of each component: unique, can be moved, not found to move, or undecided.

*Can be moved*: other nonnegative factors with K components were found, with an error of at most
1.001 times that of W H, of which no component is within 5 degrees of it. *Unique*: it is proved
(`identifiability`) that all exact factors of W H have a component within its radius, and the radius
is at most 1 degree. *Not found to move*: a thorough search found no factors that move it; this is
no proof. *Undecided*: none of these. *Given*: it was fixed.

The band of a component is the range of each entry over all factors that were found; `other_factors`
looks for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arguments import factor, integer, several, text
from ..data.blocks import Array
from ..errors import NotAvailableError, ShapeError
from ..text import counted
from . import plots
from .identifiability import UNIQUE_RADIUS
from .uniqueness import VISIBLE_ANGLE, Freedom, whole_degrees

__all__ = ["MAX_ERROR_RATIO", "VERDICTS", "Uniqueness"]

MAX_ERROR_RATIO = 1.001
"""How many times the error of the given factors other factors may have."""

VERDICTS = ("unique", "can be moved", "not found to move", "undecided", "given")

_SHAPES = {  # of what is saved
    **dict.fromkeys(("angles", "error_ratios", "given", "directions"), "K"),
    **dict.fromkeys(("lower", "upper"), "FK"),
    **dict.fromkeys(("was_searched", "passes"), ""),
}
_FREEDOM_SHAPES = {
    **dict.fromkeys(("freedom_angles", "freedom_spare", "freedom_radii"), "K"),
    **dict.fromkeys(("freedom_exchange", "freedom_limits"), "KK"),
}
_NEWER = {"directions": 0, "freedom_radii": np.inf}  # what is known if it was not saved: nothing


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
    was_searched : bool
        Whether factors were sought at errors up to 1.001 times that of W H; exact turns always are.
    passes : float
        How often V was read.
    others : mapping
        The components W' (F, K) of other factors, by the number of the component that they move
        most. It is empty in a result that was saved, and may be of very large ones.
    directions : array (K,)
        In how many directions a thorough search has tried to move each component; 0 if there was
        none, or if it did not come to its end.
    """

    freedom: Freedom
    angles: Array
    error_ratios: Array
    lower: Array
    upper: Array
    given: Array
    was_searched: bool
    passes: float = 0.0
    others: Mapping[int, Array] = field(default_factory=dict, repr=False)
    directions: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __post_init__(self) -> None:
        if not self.directions.size:
            object.__setattr__(self, "directions", np.zeros(self.K, dtype=np.int64))

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
        k = integer("k", k, at_least=0, at_most=self.K - 1)
        return _LINES[self.verdicts[k]](self, k, self._names(names))

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

    def _names(self, names: Sequence[str] | None) -> tuple[str, ...]:
        if names is None:
            return tuple(f"component {k}" for k in range(self.K))
        called = tuple(text("names", name) for name in several("names", names, "a list of names"))
        if len(called) != self.K:
            raise ShapeError(f"there are {len(called)} names for {self.K} components")
        return called

    def other(self, k: int) -> Array:
        """Return the components W' (F, K) of other factors, in which component k is moved.

        The coefficients that belong to them are the best ones: ``best_coefficients(V, W')``, with
        ``penalties=Penalties(sum_to_one=True)`` if those of the fit sum to one.

        Raises
        ------
        NotAvailableError
            If no such factors were found, or they were not kept.
        """
        k = integer("k", k, at_least=0, at_most=self.K - 1)
        if k in self.others:
            return self.others[k]
        why = "none were found" if self.angles[k] < VISIBLE_ANGLE else "they were not kept"
        raise NotAvailableError(f"no other factors that move component {k}: {why}")

    def arrays(self) -> dict[str, Array]:
        """Return what is saved with a result, by name; `from_arrays` re-creates it."""
        arrays = {name: np.asarray(getattr(self, name)) for name in _SHAPES}
        return arrays | {f"freedom_{key}": value for key, value in vars(self.freedom).items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], F: int, K: int) -> Uniqueness:
        """Re-create what `arrays` returned, for factors with F features and K components.

        Raises
        ------
        ShapeError
            If an array is missing, or does not fit the factors.
        """
        sides = {"F": F, "K": K}
        arrays = {name: np.full(K, value) for name, value in _NEWER.items()} | dict(arrays)
        for name, letters in (_SHAPES | _FREEDOM_SHAPES).items():
            shape = tuple(sides[letter] for letter in letters)
            if name not in arrays or arrays[name].shape != shape:
                raise ShapeError(f"its uniqueness_{name} does not fit the factors")
        values: dict[str, Any] = {name: arrays[name] for name in _SHAPES}
        values |= {name: values[name].item() for name in ("was_searched", "passes")}
        parts = {name.removeprefix("freedom_"): arrays[name] for name in _FREEDOM_SHAPES}
        return cls(Freedom(**parts), **values)

    def plot(self, W: npt.ArrayLike, axes: Any = None) -> Array:
        """Draw the components W (F, K) with their bands; return the matplotlib axes."""
        W = factor("W", W, self.lower.shape)
        titles = [f"component {k}: {verdict}" for k, verdict in enumerate(self.verdicts)]
        return plots.bands(W, self.lower, self.upper, axes, titles=titles)


# --- in words ---------------------------------------------------------------------------------


def _unique_in_words(found: Uniqueness, k: int, names: Sequence[str]) -> str:
    tried = found.directions[k]
    searched = f"; none at up to {MAX_ERROR_RATIO} times the error were found" if tried else ""
    return f"unique: {_radius_in_words(found, k)}{searched}"


def _radius_in_words(found: Uniqueness, k: int) -> str:
    degrees = math.ceil(100 * math.degrees(found.freedom.radii[k]) + 1e-6) / 100  # not rounded down
    return f"exact factors of WH move it by at most {degrees:.2f}°"


def _moved_in_words(found: Uniqueness, k: int, names: Sequence[str]) -> str:
    freedom = found.freedom
    is_exact = found.angles[k] <= freedom.angles[k] + 1e-9 and found.error_ratios[k] < 1.00005
    if is_exact:
        return f"can be moved {freedom.turn_in_words(k, names)}, at the same error"
    angle, ratio = whole_degrees(float(found.angles[k])), found.error_ratios[k]
    is_known = np.isfinite(freedom.radii[k])
    exactly = f"; {_radius_in_words(found, k)}" if is_known else ""
    return f"can be moved by {angle}, at an error of {ratio:.4f} times this one{exactly}"


def _not_found_in_words(found: Uniqueness, k: int, names: Sequence[str]) -> str:
    return (
        f"not found to move by 5° at an error of up to {MAX_ERROR_RATIO} times, in "
        f"{found.directions[k]} directions; no proof"
    )


def _undecided_in_words(found: Uniqueness, k: int, names: Sequence[str]) -> str:
    known = "not proved unique"
    if np.isfinite(found.freedom.radii[k]):
        known = _radius_in_words(found, k)
    search = "no factors with the same error were found to move it by 5°"
    if found.was_searched:
        search = f"a short search up to {MAX_ERROR_RATIO} times the error did not move it by 5°"
    return f"undecided: {known}, and {search}"


def _given_in_words(found: Uniqueness, k: int, names: Sequence[str]) -> str:
    return "given, and so not judged"


_LINES = {
    "unique": _unique_in_words,
    "can be moved": _moved_in_words,
    "not found to move": _not_found_in_words,
    "undecided": _undecided_in_words,
    "given": _given_in_words,
}
_COUNTED = {
    "unique": "unique (exact factors of WH move them by at most 1°)",
    "can be moved": "can be moved by 5° or more",
    "not found to move": "not found to move",
    "undecided": "undecided",
    "given": "given",
}
