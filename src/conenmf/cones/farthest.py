"""Algorithm 1 on samples at hand: each centre is the sample farthest from those before it.

A block is at hand, or the centres that were chosen from others. So V is read once: every block
chooses centres of its own, and the final ones are chosen among them. `cluster_cones` says what is
guaranteed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..data.blocks import Array, Block, dense, exact, norms
from ..data.matrix import DataMatrix
from ..data.steps import sample_indices
from ..errors import ComponentsError

__all__ = ["SCORE_OF_ZERO", "farthest_first", "one_pass_centres", "require_new_direction", "unit"]

# The score of a sample is minus its largest cosine to a centre: the largest score is chosen.
_SCORE_OF_FIRST = np.inf  # chosen before all others
_SCORE_WITHOUT_CENTRES = 2.0  # above minus any cosine
SCORE_OF_ZERO = -np.inf  # a zero sample has no direction and is never chosen


def one_pass_centres(V: DataMatrix, K: int, first: int, tie: float) -> tuple[Array, Array]:
    """Choose K centres in every block, and K among those of two blocks, until all are joined."""
    index, _ = V.map(sample_indices)
    options: dict[str, Any] = {"K": K, "first": first, "tie": tie}
    (choice,) = V.sweep(
        _centres_of_block, index, V.norms_squared, reduce=_centres_of_two, **options
    )
    if choice.centres.size < K:
        require_new_direction(1.0, choice.centres.size, K, tie)
    return choice.centres, choice.Z


class _Choice(NamedTuple):
    """Centres chosen from some of the samples: their indices and directions (F, K)."""

    centres: Array
    Z: Array
    options: dict[str, Any]


def _centres_of_block(block: Block, index: Array, squared: Array, **options: Any) -> tuple[_Choice]:
    """Algorithm 1 on a few samples; fewer than K centres if there are no more directions."""
    scores = np.where(squared > 0, _SCORE_WITHOUT_CENTRES, SCORE_OF_ZERO)
    scores[index == options["first"]] = _SCORE_OF_FIRST
    indices, Z = farthest_first(
        exact(block), norms(squared), scores, options["K"], -1.0, options["tie"]
    )
    return (_Choice(index[indices], Z, options),)


def _centres_of_two(a: _Choice, b: _Choice) -> _Choice:
    centres, Z = np.concatenate([a.centres, b.centres]), np.hstack([a.Z, b.Z])
    return _centres_of_block(Z, centres, np.ones(centres.size), **a.options)[0]


def farthest_first(
    block: Block, norms: Array, scores: Array, most: int, enough: float, tie: float
) -> tuple[list[int], Array]:
    """Choose samples of a block, each the farthest from all centres before it.

    Parameters
    ----------
    block : float64 block (F, n)
    norms : array (n,)
        Those of the samples; any positive number for a zero sample.
    scores : array (n,)
        Minus the largest cosine to the centres there are already; -inf for a sample that must
        not be chosen.
    most : int
        Choose no more samples than this.
    enough : float
        Choose only samples with scores above this; -1 asks for a new direction only.
    tie : float
        Scores closer than this count as equal, and the first sample wins.

    Returns
    -------
    indices : list of int
    Z : array (F, m)
        Their directions, unit vectors.
    """
    indices: list[int] = []
    Z = np.empty((block.shape[0], most), order="F")
    while len(indices) < most and scores.max() > enough + tie:
        n = int(np.argmax(scores >= scores.max() - tie))
        z = Z[:, len(indices)] = unit(dense(block[:, [n]])[:, 0])
        indices.append(n)
        scores = np.minimum(scores, -(block.T @ z) / norms)
    return indices, Z[:, : len(indices)]


def require_new_direction(cosine: float, k: int, K: int, tie: float) -> None:
    """Raise an error if the sample farthest from k centres has the direction of one of them."""
    if cosine >= 1.0 - tie:
        raise ComponentsError(
            f"the samples have only {k} distinct direction{'s' * (k > 1)}, fewer than "
            f"the {K} components asked for: use at most {k}"
        )


def unit(column: Array) -> Array:
    """Return a vector divided by its norm."""
    scaled: Array = column / np.linalg.norm(column)
    return scaled
