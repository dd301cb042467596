"""Weights of counts before they are factored: of terms in documents, of genes in cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..arguments import array
from ..data.validate import as_matrix

__all__ = ["log_counts", "tf_idf"]


def tf_idf(counts: Any) -> Any:
    """Counts of terms times log(N / df), documents of unit norm.

    A term that is in every document gets no weight; a document of such terms stays zero.

    >>> tf_idf(np.array([[2, 1, 0], [2, 0, 3]])).toarray()
    array([[0., 1., 0.],
           [0., 0., 1.]])
    """
    weighted = _checked(counts)
    weighted.sum_duplicates()
    weighted.eliminate_zeros()
    N, F = weighted.shape
    frequency = np.bincount(weighted.indices, minlength=F).clip(1)
    weighted.data *= np.log(N / frequency)[weighted.indices]
    weighted.eliminate_zeros()
    document = np.repeat(np.arange(N), np.diff(weighted.indptr))
    norms = np.sqrt(np.bincount(document, weights=weighted.data**2, minlength=N))
    weighted.data /= norms[document]
    if weighted.nnz < 2**31:  # scikit-learn takes no larger indices
        weighted.indices = weighted.indices.astype(np.int32)
        weighted.indptr = weighted.indptr.astype(np.int32)
    return weighted


def _checked(counts: Any) -> Any:
    """A copy of counts (N, F) in compressed rows, in double precision."""
    copied = sp.csr_array(as_matrix("counts", counts), dtype=np.float64, copy=True)
    if copied.nnz:
        array("counts", copied.data, copied.data.shape, at_least=0)
    return copied


def log_counts(counts: Any) -> Any:
    """Counts of genes, each cell scaled to 10,000, as log(1 + x); a cell of no counts stays zero.

    >>> log_counts(np.array([[1, 0, 3], [0, 0, 0]])).toarray().round(3)
    array([[7.824, 0.   , 8.923],
           [0.   , 0.   , 0.   ]])
    """
    scaled = _checked(counts)
    cell = np.repeat(np.arange(scaled.shape[0]), np.diff(scaled.indptr))
    totals = np.bincount(cell, weights=scaled.data, minlength=scaled.shape[0])
    scaled.data *= 1e4 / np.where(totals > 0, totals, 1)[cell]
    return scaled.log1p()
