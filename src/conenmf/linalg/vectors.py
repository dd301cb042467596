"""Singular vectors that depend on V alone: signs, bases of equal singular values, orthogonality.

Rounding, and so the storage of V, would choose these otherwise.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from ..data.blocks import Array
from ..data.matrix import Aligned, DataMatrix
from .passes import gram_beside, product_beside

__all__ = ["EQUAL_SHARE", "SAFE_SHARE", "canonical", "completed", "right_vectors", "signs"]

EQUAL_SHARE = 1e-7  # share by which singular values that count as equal may differ
_TIE_SHARE = 1e-9  # ... and entries of vectors
SAFE_SHARE = 1e-4  # of the largest singular value, from which on squares keep enough digits


def right_vectors(V: DataMatrix, B: Aligned, turn: Array, sigma: Array) -> Aligned:
    """B turn' / sigma. Those of small singular values are made orthogonal to those before them.

    The rounding of B, which is relative to the largest, is large beside the smallest.
    """
    right, _ = V.map(product_beside, B, right=turn.T * _inverses_of_known(sigma))
    if sigma[-1] >= SAFE_SHARE * sigma[0]:
        return right
    for _ in range(2):
        (gram,) = V.map(gram_beside, right)
        is_zero = np.diagonal(gram) == 0
        upper: Any = np.linalg.qr(_root(gram + np.diag(is_zero.astype(np.float64))), mode="r")
        upper = upper * np.where(np.diagonal(upper) < 0, -1.0, 1.0)[:, None]
        right, _ = V.map(product_beside, right, right=np.linalg.inv(upper))
    return right


def _root(gram: Array) -> Array:
    """A matrix of which this is the Gram matrix."""
    values, vectors = np.linalg.eigh(gram)
    floor = np.finfo(np.float64).eps * values[-1]
    return np.asarray(np.sqrt(np.maximum(values, floor))[:, None] * vectors.T)


def completed(image: Array, X: Array) -> Array:
    """Orthonormal vectors that span the columns of an image; where it is zero, those of X."""
    norms = np.linalg.norm(image, axis=0)
    is_known = norms > np.finfo(np.float64).eps * norms.max()
    completed: Array = np.linalg.qr(np.where(is_known, image, X * norms.max()))[0]
    return completed


def _inverses_of_known(sigma: Array) -> Array:
    """1 / sigma. Of a singular value that is rounding, the vector is too: it stays zero."""
    is_known = sigma > np.finfo(np.float64).eps * sigma[0]
    return np.divide(1.0, sigma, out=np.zeros_like(sigma), where=is_known)


def canonical(X: Array, sigma: Array, turn: Array) -> Array:
    """Turn the vectors X turn' of equal singular values into a basis that depends on V alone.

    Any rotation among them is as good, so rounding would choose one. The basis here has as its
    first vector the projection of a feature onto their span, that of the feature which lies closest
    to it; what is left of the span is treated likewise. Ties go to the first feature.
    """
    turn = turn.copy()
    first = np.flatnonzero(np.append(True, sigma[1:] < sigma[:-1] * (1.0 - EQUAL_SHARE)))
    for start, stop in pairwise([*first.tolist(), sigma.size]):
        rows = X @ turn[start:stop].T if stop - start > 1 and sigma[start] > 0 else X[:, :0]
        rotation = np.empty((rows.shape[1], rows.shape[1]))
        for i in range(len(rotation)):
            norms = np.linalg.norm(rows, axis=1)
            nearest = int(np.argmax(norms >= norms.max() * (1.0 - _TIE_SHARE)))
            rotation[i] = rows[nearest] / norms[nearest]
            rows = rows - np.outer(rows @ rotation[i], rotation[i])
        if len(rotation):
            turn[start:stop] = rotation @ turn[start:stop]
    return turn


def signs(U: Array) -> Array:
    """Signs that make the largest entry of each column positive, the first one if several are."""
    size = np.abs(U)
    leading = (size >= size.max(axis=0) * (1 - _TIE_SHARE)).argmax(axis=0)
    signs: Array = np.where(np.take_along_axis(U, leading[None], axis=0)[0] < 0, -1.0, 1.0)
    return signs
