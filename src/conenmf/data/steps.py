"""Steps: what is done to each block of samples, and how the parts that blocks yield are added up.

`DataMatrix.sweep` says what a step gets and returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .blocks import Array

__all__ = ["Aligned", "Reduce", "Step", "Work", "add", "sample_indices"]

Aligned: TypeAlias = Any
"""An array with one row per sample, to be handed to steps: an ndarray, or a Dask array."""

Step: TypeAlias = Callable[..., tuple[Any, ...]]
Reduce: TypeAlias = Callable[[Any, Any], Any]


def sample_indices(index: range) -> tuple[Array, None]:
    """Step of a map: the index of each sample."""
    return np.arange(index.start, index.stop), None


def add(total: Any, part: Any) -> Any:
    """Add a block's part to the total, tuples and dicts item by item, arrays in place."""
    if part is None:
        return None
    if isinstance(part, dict):
        return {name: add(total[name], value) for name, value in part.items()}
    if isinstance(part, tuple):
        return tuple(add(a, b) for a, b in zip(total, part, strict=True))
    total += part
    return total


class Work(NamedTuple):
    """A step and all that it is called with; see `DataMatrix.sweep`."""

    step: Step
    aligned: tuple[Aligned, ...]
    reduce: Reduce
    shared: dict[str, Any]
    out: Sequence[Aligned | None]
    verify: bool = False
