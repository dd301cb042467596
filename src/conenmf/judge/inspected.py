"""Samples that are looked at one by one: the report draws them without the data.

They are evenly spread over the data, each with its error; some are kept with all their features,
and those that are typical of a component as small images. Of missing entries nothing is kept but
that they are missing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..data.blocks import Array, Block, dense, exact
from ..data.holes import known_entries
from ..data.matrix import Aligned, DataMatrix
from ..data.sampling import evenly_spaced
from .typical import gathered, thumbnails, typical_samples

__all__ = ["InspectedSamples", "inspected_samples"]

_MAX_INSPECTED_SAMPLES = 2000
_MAX_EXAMPLES = 6  # inspected samples that are kept with all their features
_MAX_TYPICAL_SAMPLES = 6  # of a component


@dataclass(frozen=True, eq=False)
class InspectedSamples:
    """Samples evenly spread over the data, each judged by itself.

    Attributes
    ----------
    indices : array (S,)
        Their places in the data.
    coefficients : array (S, K)
        ||w_k|| H(k, n): the norm of the contribution of each component.
    labels : array (S,)
        The component of each, -1 for none.
    errors : array (S,)
        Relative error of each; 0 for a zero sample.
    examples : array (E,)
        Positions within `indices` of the samples kept with all their features, from the best
        reconstructed to the worst.
    originals : array (F, E)
        Those samples; 0 where an entry is missing.
    typical : array (K, T)
        Positions within `indices` of the samples with the largest share of each component, -1
        where there is none.
    thumbnails : array (K T, rows, columns), integers from 0 to 255
        The typical samples as small images, if features are known to be pixels; else empty.
    missing : array (F, E), booleans, or None
        Which entries of `originals` are missing; None if none of the data are.
    """

    indices: Array
    coefficients: Array
    labels: Array
    errors: Array
    examples: Array
    originals: Array
    typical: Array
    thumbnails: Array
    missing: Array | None = None


def inspected_samples(
    V: DataMatrix, described: DataMatrix, W: Array, H: Aligned, labels: Aligned
) -> InspectedSamples:
    """Judge samples that are evenly spread over V (F, N), and keep some of them.

    `described` is V, or a view of it without missing or negative entries, for small images.
    """
    indices = evenly_spaced(V.shape[1], _MAX_INSPECTED_SAMPLES)
    Ht = np.asarray(H[:, indices], dtype=np.float64).T
    errors, is_zero = np.concatenate(
        [
            _errors(*_gathered(V, batch), W, Ht[first : first + batch.size])
            for first in range(0, indices.size, V.max_gather)
            if (batch := indices[first : first + V.max_gather]).size
        ],
        axis=1,
    )
    by_error = np.lexsort((errors, is_zero))  # zero samples last: there is nothing to see
    count = int((is_zero == 0).sum()) or indices.size
    examples = by_error[evenly_spaced(count, _MAX_EXAMPLES)]
    coefficients = Ht * np.linalg.norm(W, axis=0)
    typical = typical_samples(coefficients, _MAX_TYPICAL_SAMPLES)
    originals, missing = _originals(V, indices[examples])
    return InspectedSamples(
        indices=indices,
        coefficients=coefficients,
        labels=np.asarray(labels[indices]),
        errors=errors,
        examples=examples,
        originals=originals,
        typical=typical,
        thumbnails=thumbnails(described, indices, typical, V.names.image_shape),
        missing=missing,
    )


def _gathered(V: DataMatrix, batch: Array) -> tuple[Block, Array | None]:
    """Some samples, and the weights of their entries if not all count alike."""
    block = V.columns(batch)
    if V.observed is None:
        return block, None
    if V.observed.weights is None:
        return block, known_entries(block, None)
    return block, exact(np.asarray(V.observed.weights[batch]))


def _originals(V: DataMatrix, batch: Array) -> tuple[Array, Array | None]:
    """Samples with all their features, (F, n), and which of their entries are missing."""
    originals = dense(gathered(V, batch))
    if V.observed is None:
        return originals, None
    each = (_gathered(V, batch[n : n + 1])[1] for n in range(batch.size))
    return originals, np.hstack([weights.T == 0 for weights in each if weights is not None])


def _errors(block: Block, weights: Array | None, W: Array, Ht: Array) -> Array:
    """Relative errors of what is known, and whether samples are zero, (2, n)."""
    columns = dense(block)
    residual = columns - W @ Ht.T
    if weights is not None:
        columns, residual = (part * np.sqrt(weights.T) for part in (columns, residual))
    norms = np.linalg.norm(columns, axis=0)
    residual = np.linalg.norm(residual, axis=0)
    errors: Array = np.divide(residual, norms, out=np.zeros_like(residual), where=norms > 0)
    return np.stack([errors, norms == 0])
