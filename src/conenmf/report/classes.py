"""Known classes of the samples, beside the components that were found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arguments import classes as checked_classes
from ..data.blocks import Array
from ..errors import DataError
from ..text import visible

__all__ = ["Classes"]

_MAX_CLASSES = 39  # with a colour and a shape of their own; smaller ones are "others"


@dataclass(frozen=True, eq=False)
class Classes:
    """The class of each sample.

    Attributes
    ----------
    names : tuple of str
        Of the classes, the largest first; if there are too many, the last one is "others".
    of_samples : array (N,)
        The number of the class of each sample.
    counts : array (K, C)
        How many samples of each class a component contributes most to.
    """

    names: tuple[str, ...]
    of_samples: Array
    counts: Array

    @classmethod
    def of(cls, values: Any, labels: Array, K: int) -> Classes:
        """Number the classes, given one value for each sample and the component of each."""
        numbers = checked_classes("classes", values)
        if numbers.size != labels.size:
            raise DataError(
                f"there are {numbers.size} classes for {labels.size} samples: give one for each"
            )
        _, first = np.unique(numbers, return_index=True)
        order = np.argsort(-np.bincount(numbers), kind="stable")
        names = [visible(np.asarray(values)[first[c]]) for c in order]
        number = np.argsort(order)[numbers]
        if len(names) > _MAX_CLASSES + 1:
            names = [*names[:_MAX_CLASSES], f"{len(names) - _MAX_CLASSES} others"]
            number = np.minimum(number, _MAX_CLASSES)
        counts = np.zeros((K, len(names)), dtype=np.int64)
        np.add.at(counts, (labels[labels >= 0], number[labels >= 0]), 1)
        return cls(tuple(names), number, counts)

    @property
    def sizes(self) -> Array:
        """How many samples each class has."""
        return np.bincount(self.of_samples, minlength=len(self.names))

    def largest_in(self, k: int) -> tuple[str, float] | None:
        """The largest class among the samples of a component, and its share; None without any."""
        counts = self.counts[k]
        if not counts.any():
            return None
        largest = int(counts.argmax())
        return self.names[largest], float(counts[largest] / counts.sum())
