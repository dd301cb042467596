"""Names of types that many modules use."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

Array: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = dict[str, Array]
Pair: TypeAlias = tuple[Array, Array]
DType: TypeAlias = np.dtype[Any]
Shape: TypeAlias = tuple[int, int]
Lengths: TypeAlias = tuple[int, ...]  # of the axes of an array
Sides: TypeAlias = tuple[int | str, ...]  # letters stand for any length
Interval: TypeAlias = tuple[float, float]
Range: TypeAlias = tuple[int, int]  # of numbers, both ends included

Function: TypeAlias = Callable[..., Any]
Rng: TypeAlias = Generator | None  # for random draws

PathLike: TypeAlias = str | os.PathLike[str]
Texts: TypeAlias = tuple[str, ...]
Facts: TypeAlias = dict[str, Any]  # plain values by name
Titles: TypeAlias = Sequence[str] | None  # names for display, if there are any
