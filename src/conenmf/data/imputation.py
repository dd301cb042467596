"""Views without missing or negative entries, for inits and for answers.

An init sees the mean of the feature at each missing entry, an answer the model's value.
"""

from __future__ import annotations

import copy
from functools import partial

import numpy as np

from ..types import Array
from .blocks import Block, dense, entrywise, exact, weighted_sums
from .entries import known_entries
from .matrix import Aligned, DataMatrix
from .views import MappedMatrix, change_entries


def fill_missing(V: DataMatrix) -> DataMatrix:
    """Return a view with the mean of the feature at each missing entry, for inits.

    Sparse data whose stored entries are the known ones stay as they are. Negative entries become
    zeros.
    """
    observed = V.observed
    own = V.unweighed
    if observed is not None and own is not None and own.repeated is None:
        return own.again(fill_missing(own.V))
    if observed is None and V.measures.lowest >= 0:
        return V
    if observed is not None and observed.weights is not None:
        (sums,) = V.sweep(_feature_sums)
        means = sums / np.maximum(observed.counts, 1)
        return complete(V, means[:, None], np.ones((V.n_samples, 1)))
    view = clip_negative(V) if V.measures.lowest < 0 else copy.copy(V)
    view.observed = None
    return view


def clip_negative(V: DataMatrix) -> DataMatrix:
    """Return a view with zeros in place of negative entries; missing entries stay missing."""
    twin = copy.copy(V)
    twin.observed = None
    view = change_entries(twin, partial(np.maximum, 0))
    view.observed = V.observed
    return view


def complete(V: DataMatrix, W: Array, Ht: Aligned) -> DataMatrix:
    """Return a view with W H at each missing entry: W (F, K), H' (N, K) aligned.

    Negative entries become zeros.
    """
    observed = V.observed
    if observed is None:
        return fill_missing(V)
    change = partial(_with_model, W=exact(W))
    return MappedMatrix(V, change, *observed.aligned, Ht, dtype=V.dtype, holes=True)


def _with_model(block: Block, *given: Array, W: Array) -> Block:
    """Replace missing entries by W H', given weights, if there are any, and H (n, K)."""
    *weights, H = given
    known = known_entries(block, *weights)
    rows: Array = np.where(known, dense(block).T, exact(H) @ W.T)
    return np.maximum(rows, 0).astype(block.dtype, copy=False).T


def _feature_sums(block: Block) -> tuple[Array]:
    block = entrywise(exact(block), partial(np.maximum, 0))
    ones = np.ones((block.shape[1], 1))
    return (weighted_sums(block, ones)[:, 0],)
