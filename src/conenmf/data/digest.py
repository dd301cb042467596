"""A digest of V: a number that changes if an entry changes, or its place.

It is the sum over all entries of their bits times a weight of the feature times a weight of the
sample, in integers modulo 2^64. So it does not depend on blocks, threads, chunks or the storage,
and zeros, stored or not, add nothing. Weights are odd, so that a single entry that changes always
changes the digest; other changes are missed with a probability of about 2^-40. It is no protection
against data that were made to have the same digest.

It takes a pass over V, and is computed only for a run that is saved: in the pass that validates the
data it would take longer than all the rest (1.3 ns for an entry in memory, beside 0.5), also where
nothing is saved.
"""

from __future__ import annotations

import numpy as np

from .blocks import Array, Block, entrywise, exact, is_sparse, owners
from .matrix import DataMatrix, sample_indices

_PART_BYTES = 1 << 18  # worked on at a time: they stay in the cache


def digest(V: DataMatrix) -> str:
    """Return the digest of V, 16 hexadecimal digits; takes one pass.

    >>> from conenmf import from_columns
    >>> one, other = from_columns([[1.0, 2.0], [0.0, 3.0]]), from_columns([[1.0, 3.0], [0.0, 2.0]])
    >>> digest(one) == digest(one), digest(one) == digest(other)
    (True, False)
    """
    index, _ = V.map(sample_indices)
    (total,) = V.sweep(_digest_block, index, reduce=_add)
    return f"{int(total):016x}"


def known_digest(V: DataMatrix) -> str | None:
    """Return a digest of what is known of V: which entries, and how much they and samples count.

    It is None for complete data whose entries and samples count alike. A missing entry and a
    zero are alike to `digest`, so data are the same if both digests are.

    >>> from conenmf import from_columns
    >>> X, masks = [[1.0, 2.0], [0.0, 3.0]], ([[1, 1], [0, 1]], [[1, 1], [1, 1]])
    >>> one, other = (from_columns(X, mask=mask) for mask in masks)
    >>> digest(one) == digest(other), known_digest(one) == known_digest(other)
    (True, False)
    >>> known_digest(from_columns(X)) is None
    True
    """
    total = 0
    if V.observed is None and V.unweighed is None:
        return None
    if V.observed is not None:
        index, _ = V.map(sample_indices)
        if V.observed.weights is None:
            (total,) = V.sweep(_digest_pattern, index, reduce=_add)
        else:
            (total,) = V.map(_digest_weights, V.observed.weights, index, reduce=_add)
    if V.unweighed is not None:  # one more feature, after the last
        weights = np.asarray(V.unweighed.weights, np.float64)
        words = _words(weights) * _weights(~np.arange(weights.size, dtype=np.uint64))
        of_samples = int((words * _weights(np.array([V.shape[0]], np.uint64))).sum())
        total = _add(total, of_samples)
    return f"{int(total):016x}"


def _digest_weights(index: range, weights: Array, numbers: Array) -> tuple[int]:
    return _digest_block(exact(weights).T, numbers)


def _digest_pattern(block: Block, numbers: Array) -> tuple[int]:
    return _digest_block(entrywise(exact(block), np.ones_like), numbers)


def _digest_block(block: Block, index: Array) -> tuple[int]:
    of_features = _weights(np.arange(block.shape[0], dtype=np.uint64))
    of_samples = _weights(~index.astype(np.uint64))
    if is_sparse(block):
        words = _words(block.data) * of_features[block.indices]
        return (int((words * of_samples[owners(block)]).sum()),)
    rows: Array = block.T
    total = np.uint64(0)
    at_a_time = 1 + _PART_BYTES // (8 * max(1, rows.shape[1]))
    with np.errstate(over="ignore"):
        for start in range(0, len(rows), at_a_time):
            words = _words(np.ascontiguousarray(rows[start : start + at_a_time]))
            words *= of_features
            total += words.sum(axis=1) @ of_samples[start : start + at_a_time]
    return (int(total),)


def _words(entries: Array) -> Array:
    """The bits of the entries, without the sign, which zeros may have.

    Different entries have different words. Those with few digits, such as counts, have only zeros
    in their lower half: the upper half is added to it, since a product modulo 2^64 would lose most
    of them otherwise.
    """
    words: Array = entries.view(f"u{entries.dtype.itemsize}").astype(np.uint64)
    words <<= np.uint64(1)
    words += words >> np.uint64(32)
    return words


def _weights(places: Array) -> Array:
    """An odd number for each place, as splitmix64 mixes it (Steele, Lea and Flood, 2014)."""
    z = (places + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) | np.uint64(1)


def _add(total: int, part: int) -> int:
    return (total + part) % (1 << 64)
