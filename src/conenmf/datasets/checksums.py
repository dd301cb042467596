"""Whether numbers and classes are those of a dataset: by checksum, else by their sizes.

A checksum is that of the numbers, not of the file that holds them, so that it does not depend on
how they are stored.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..arguments import classes, optional
from ..data.blocks import Array
from ..data.validate import as_matrix
from .catalogue import Description
from .originals import Contents

__all__ = [
    "fingerprint",
    "has_exact_checksum",
    "has_expected_size",
    "is_expected",
    "is_verified",
]

_BATCH_ROWS = 1024


def fingerprint(X: Any, labels: Array | None) -> str:
    """The SHA-256 of numbers and classes, independent of how they are stored.

    Whole numbers that fit count as 16 bits, and classes are numbered in order of appearance.

    >>> X = np.array([[1, 2], [3, 4]])
    >>> fingerprint(X, np.array([7, 3])) == fingerprint(X.astype("u1"), np.array([0, 1]))
    True
    >>> fingerprint(X, np.array([7, 7])) == fingerprint(X, np.array([0, 1]))
    False
    """
    X, labels = as_matrix("X", X), optional(classes, "labels", labels)
    digest = hashlib.sha256(repr(tuple(map(int, X.shape))).encode())
    if sp.issparse(X):
        X = sp.csr_array(X, copy=True)
        X.sum_duplicates()
        X.eliminate_zeros()
        arrays = [(X.indptr, "<i8"), (X.indices, "<i8"), (X.data, _digest_dtype(X.data))]
    else:
        arrays = [(X, _digest_dtype(X))]
    for array, dtype in arrays:
        for start in range(0, array.shape[0], _BATCH_ROWS):
            digest.update(array[start : start + _BATCH_ROWS].astype(dtype).tobytes())
    if labels is not None:
        _, first, number = np.unique(labels, return_index=True, return_inverse=True)
        digest.update(np.argsort(np.argsort(first))[number].astype("<i8").tobytes())
    return digest.hexdigest()


def _digest_dtype(numbers: Array) -> str:
    """The same for whole numbers of any dtype."""
    if numbers.dtype.kind in "iub" or (numbers == np.floor(numbers)).all():
        lowest, highest = numbers.min(initial=0), numbers.max(initial=0)
        if 0 <= lowest and highest < 1 << 16:
            return "<u2"
        if -(1 << 53) <= lowest and highest <= 1 << 53:
            return "<i8"
    return f"<{numbers.dtype.kind}{numbers.dtype.itemsize}"


def is_verified(description: Description, contents: Contents) -> bool:
    """Whether the checksum is the one in the catalogue; False if it has none."""
    X, labels = contents.X, contents.labels
    if description.sha256 is None:
        return False
    if description.window is not None:
        if X.shape != description.shape or labels is None:
            return False
        assert description.image_shape is not None  # scenes have one
        top, bottom, left, right = description.window
        pixels = np.arange(len(X)).reshape(description.image_shape)
        window = pixels[top:bottom, left:right].ravel()
        X, labels = X[window], labels[window]
    return fingerprint(X, labels) == description.sha256


def has_exact_checksum(description: Description) -> bool:
    """Whether the catalogue has a checksum that the official files always give."""
    return description.sha256 is not None and description.exact


def has_expected_size(description: Description, contents: Contents) -> bool:
    """Whether there are as many samples, features and classes as the catalogue says."""
    if contents.X.shape != description.shape or contents.labels is None:
        return False
    return description.kind == "scene" or len(np.unique(contents.labels)) == description.K


def is_expected(description: Description, contents: Contents) -> bool:
    """Whether the contents are those of the dataset, as far as that can be checked."""
    if is_verified(description, contents):
        return True
    return not has_exact_checksum(description) and has_expected_size(description, contents)
