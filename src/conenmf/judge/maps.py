"""Abundance maps: where in a scene the components are, if samples are the pixels of an image."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arguments import factor, integer, optional, rows_and_columns
from ..data.blocks import Array
from ..errors import FactorError

__all__ = ["abundance_maps"]


def abundance_maps(
    W: npt.ArrayLike, H: Any, pixels_shape: tuple[int, int], *, max_pixels: int | None = None
) -> Array:
    """Return the share of each component in every pixel, (K, rows, columns).

    The share of component k in pixel n is ||w_k|| H(k, n) / sum_j ||w_j|| H(j, n); all are 0 in a
    pixel without any. So shares do not depend on how scale is divided between W and H.

    Parameters
    ----------
    W : array (F, K)
    H : array (K, N)
    pixels_shape : (rows, columns)
        The samples are the pixels of an image of this shape, row by row.
    max_pixels : int, optional
        Of all maps together: of larger ones every second pixel of every second row is taken, or
        every third, and so on.

    Examples
    --------
    >>> W, H = np.eye(2), np.array([[3.0, 1.0, 0.0, 0.0], [1.0, 1.0, 2.0, 0.0]])
    >>> abundance_maps(W, H, (2, 2))[0].tolist()
    [[0.75, 0.5], [0.0, 0.0]]
    """
    W = factor("W", W, ("F", "K"))
    rows, columns = rows_and_columns("pixels_shape", pixels_shape)
    max_pixels = optional(integer, "max_pixels", max_pixels, at_least=1)
    K = W.shape[1]
    if isinstance(H, np.ndarray) or not hasattr(H, "dtype"):  # else one that is read in parts
        H = factor("H", H, (K, rows * columns))
    if tuple(H.shape) != (K, rows * columns):
        raise FactorError(f"H has shape {tuple(H.shape)}, expected ({K}, {rows * columns})")
    step = 1 if max_pixels is None else math.ceil(math.sqrt(K * rows * columns / max_pixels))
    pixels = np.arange(rows * columns).reshape(rows, columns)[::step, ::step]
    amounts = np.asarray(H[:, pixels.ravel()], dtype=np.float64)
    amounts = amounts * np.linalg.norm(W, axis=0)[:, None]
    total = amounts.sum(axis=0)
    shares = np.divide(amounts, total, out=np.zeros_like(amounts), where=total > 0)
    maps: Array = shares.reshape(K, *pixels.shape)
    return maps
