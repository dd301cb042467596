"""What is known of each component: unique, can be moved, or undecided.

*Can be moved*: other nonnegative factors with K components were found, with an error of at most
1.001 times that of W H, in which the component that belongs to it is 5 degrees or more away.
*Unique*: it is proved (`identifiability`) that no other factors of W H exist that move it, and none
were found at an error of up to 1.001 times. *Undecided*: neither. *Given*: it was fixed.

The band of a component is the range of each entry over all factors that were found; `other_factors`
looks for them.
"""

from __future__ import annotations

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
from .uniqueness import VISIBLE_ANGLE, Freedom, whole_degrees

__all__ = ["MAX_ERROR_RATIO", "VERDICTS", "Uniqueness"]

MAX_ERROR_RATIO = 1.001
"""How many times the error of the given factors other factors may have."""

VERDICTS = ("unique", "can be moved", "undecided", "given")

_SHAPES = {  # of what is saved
    **dict.fromkeys(("angles", "error_ratios", "given"), "K"),
    **dict.fromkeys(("lower", "upper"), "FK"),
    **dict.fromkeys(("was_searched", "passes"), ""),
}
_FREEDOM_SHAPES = {
    **dict.fromkeys(("freedom_angles", "freedom_spare", "freedom_unique"), "K"),
    **dict.fromkeys(("freedom_exchange", "freedom_limits"), "KK"),
}


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

    @property
    def K(self) -> int:
        """The number of components."""
        return int(self.angles.size)

    @property
    def verdicts(self) -> tuple[str, ...]:
        """Of each component one of "unique", "can be moved", "undecided" and "given"."""
        moved, unique = self.angles >= VISIBLE_ANGLE, self.freedom.unique
        return tuple(
            VERDICTS[3 if self.given[k] else 1 if moved[k] else 0 if unique[k] else 2]
            for k in range(self.K)
        )

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

        The coefficients that belong to them are the best ones: ``best_coefficients(V, W')``.

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
    if not found.was_searched:
        return "unique as a factorisation of WH"
    return (
        f"unique as a factorisation of WH, and no other was found with an error of up to "
        f"{MAX_ERROR_RATIO} times"
    )


def _moved_in_words(found: Uniqueness, k: int, names: Sequence[str]) -> str:
    freedom = found.freedom
    if freedom.angles[k] >= VISIBLE_ANGLE and found.angles[k] <= freedom.angles[k] + 1e-9:
        return f"can be moved {freedom.turn_in_words(k, names)}, at the same error"
    angle, ratio = whole_degrees(float(found.angles[k])), found.error_ratios[k]
    exactly = "; as a factorisation of WH it is unique" if freedom.unique[k] else ""
    return f"can be moved by {angle}, at an error of {ratio:.4f} times this one{exactly}"


def _undecided_in_words(found: Uniqueness, k: int, names: Sequence[str]) -> str:
    error = f"an error of up to {MAX_ERROR_RATIO} times" if found.was_searched else "the same error"
    return f"undecided: not proved unique, and no way was found to move it by 5° at {error}"


def _given_in_words(found: Uniqueness, k: int, names: Sequence[str]) -> str:
    return "given, and so not judged"


_LINES = {
    "unique": _unique_in_words,
    "can be moved": _moved_in_words,
    "undecided": _undecided_in_words,
    "given": _given_in_words,
}
_COUNTED = {
    "unique": "unique as a factorisation of WH",
    "can be moved": "can be moved by 5° or more",
    "undecided": "undecided",
    "given": "given",
}
