"""Samples that are typical of a component, and small images of them."""

from __future__ import annotations

import numpy as np

from ..data.blocks import Array, Block, dense
from ..data.matrix import DataMatrix
from ..errors import ShapeError
from ..pictures import shrink

__all__ = ["gathered", "thumbnails", "thumbnails_shape", "typical_samples"]

_MAX_SIDE = 48  # pixels of a thumbnail
_MAX_PIXELS = 1_000_000  # of all thumbnails together
_SHARE_DIGITS = 2  # to which shares count as equal, so that faint samples do not come first


def typical_samples(coefficients: Array, count: int) -> Array:
    """Return the samples (K, count) with the largest share of each component; -1 for none.

    Among samples whose shares are equal to a hundredth, those with more of the component come
    first.

    Parameters
    ----------
    coefficients : array (S, K)
        ||w_k|| H(k, n) of each sample.
    """
    total = coefficients.sum(axis=1, keepdims=True)
    shares = np.divide(coefficients, total, out=np.zeros_like(coefficients), where=total > 0)
    typical = np.full((coefficients.shape[1], min(count, len(shares))), -1)
    for k, row in enumerate(typical):
        rough = shares[:, k].round(_SHARE_DIGITS)
        order = np.lexsort((-coefficients[:, k], -rough))[: row.size]
        found = order[shares[order, k] > 0]
        found = found[np.argsort(-shares[found, k], kind="stable")]
        row[: found.size] = found
    return typical


def thumbnails(
    V: DataMatrix, indices: Array, typical: Array, image_shape: tuple[int, int] | None
) -> Array:
    """Return typical samples as images (K T, rows, columns) from 0 to 255; none without a shape.

    Each is as bright as it can be. A place without a sample is black.
    """
    places = typical.ravel()
    if image_shape is None or not (places >= 0).any():
        return np.zeros((0, 1, 1), dtype=np.uint8)
    pixels = max(max(image_shape) / _MAX_SIDE, np.sqrt(places.size * V.shape[0] / _MAX_PIXELS))
    factor = int(np.ceil(pixels))
    known = np.flatnonzero(places >= 0)
    images = np.zeros((places.size, *shrink(np.zeros(image_shape), factor).shape), dtype=np.uint8)
    for first in range(0, known.size, V.max_gather):
        part = known[first : first + V.max_gather]
        for place, column in zip(part, dense(gathered(V, indices[places[part]])).T, strict=True):
            image = shrink(column.reshape(image_shape), factor)
            images[place] = (image * (255.0 / (image.max() or 1.0))).round()
    return images


def thumbnails_shape(stored: Array, count: int) -> tuple[int, ...]:
    """The shape that stored thumbnails must have: one for each typical sample, or none at all."""
    if stored.ndim != 3:
        raise ShapeError("its thumbnails are not images")
    return (count if len(stored) else 0, *stored.shape[1:])


def gathered(V: DataMatrix, indices: Array) -> Block:
    """Return samples in the order of their indices, which may repeat; each is read once."""
    unique, back = np.unique(indices, return_inverse=True)
    block: Block = V.columns(unique)[:, back]
    return block
