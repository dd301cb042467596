"""Random numbers of samples, the same in any block, process or machine.

The numbers of a sample depend on its index and a seed alone: a counter-based generator (Philox)
draws them, which can be moved to any place in its sequence.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from ..arguments import generator, integer
from .blocks import Array
from .matrix import DataMatrix, Step
from .resources import require_memory
from .validate import require_data_matrix

__all__ = [
    "Seed",
    "draw_longest",
    "draw_samples",
    "draw_weighted",
    "evenly_spaced",
    "new_seed",
    "uniform_rows",
]

Seed: TypeAlias = tuple[int, int]
_Chosen: TypeAlias = tuple[Array, Array, int]
"""Keys and indices of samples, and how many are to be chosen."""


def evenly_spaced(n: int, count: int) -> Array:
    """Return `count` of the indices 0 to n - 1, evenly spaced, ends included; all if n is less.

    >>> evenly_spaced(10, 4).tolist(), evenly_spaced(3, 4).tolist()
    ([0, 3, 6, 9], [0, 1, 2])
    """
    n, count = integer("n", n, at_least=0, at_most=1 << 53), integer("count", count, at_least=0)
    require_memory("count", count, 16 * min(n, count))
    return np.linspace(0, n - 1, min(n, count)).astype(np.intp)


def new_seed(rng: np.random.Generator) -> Seed:
    """Draw a seed for `uniform_rows`."""
    low, high = rng.integers(2**63, size=2)
    return int(low), int(high)


def uniform_rows(index: range, width: int, seed: Seed) -> Array:
    """Return uniform numbers on [0, 1), one row of the given width for each index.

    >>> seed = (1, 2)
    >>> whole = uniform_rows(range(0, 10), 3, seed)
    >>> bool(np.array_equal(whole[4:7], uniform_rows(range(4, 7), 3, seed)))
    True
    """
    groups = -(-width // 4)  # the generator moves in steps of four numbers
    generator = np.random.Philox(key=np.array(seed, dtype=np.uint64))
    generator.advance(index.start * groups)
    numbers = np.random.Generator(generator).random((len(index), 4 * groups))
    return numbers[:, :width]


def draw_samples(V: DataMatrix, count: int, rng: np.random.Generator) -> Array:
    """Draw `count` different nonzero samples, or all if there are no more; return their indices.

    Every nonzero sample gets a random number, and those with the largest are taken, in that
    order; V is not read.
    """
    rng = generator("rng", rng)
    return _with_largest(V, _uniform_keys, count, seed=new_seed(rng))


def draw_weighted(V: DataMatrix, count: int, rng: np.random.Generator) -> Array:
    """Draw different samples one after the other, in proportion to their squared norms.

    Each gets an exponential time, divided by its squared norm, and the earliest are taken
    (Efraimidis and Spirakis, 2006).
    """
    require_data_matrix(V)
    rng = generator("rng", rng)
    return _with_largest(V, _weighted_keys, count, seed=new_seed(rng), total=V.total)


def draw_longest(V: DataMatrix, count: int) -> Array:
    """Return the indices of the nonzero samples with the largest norms, longest first."""
    return _with_largest(V, _norm_keys, count)


def _with_largest(V: DataMatrix, keys: Step, count: int, **options: Any) -> Array:
    """The nonzero samples with the largest keys, in that order."""
    require_data_matrix(V)
    count = min(integer("count", count, at_least=0), V.shape[1])
    indices: Array
    ((_, indices, _),) = V.map(
        keys, V.norms_squared, reduce=_largest_of_two, count=count, **options
    )
    return indices


def _uniform_keys(index: range, squared: Array, *, count: int, seed: Seed) -> tuple[_Chosen]:
    return _nonzero_with_largest(index, squared, uniform_rows(index, 1, seed)[:, 0], count)


def _weighted_keys(
    index: range, squared: Array, *, count: int, seed: Seed, total: float
) -> tuple[_Chosen]:
    times = -np.log1p(-uniform_rows(index, 1, seed)[:, 0])
    weights = np.where(squared > 0, squared / total, 1.0)
    return _nonzero_with_largest(index, squared, -times / np.maximum(weights, 1e-290), count)


def _norm_keys(index: range, squared: Array, *, count: int) -> tuple[_Chosen]:
    return _nonzero_with_largest(index, squared, squared, count)


def _nonzero_with_largest(index: range, squared: Array, keys: Array, count: int) -> tuple[_Chosen]:
    nonzero = np.flatnonzero(squared > 0)
    return (_largest(keys[nonzero], nonzero + index.start, count),)


def _largest_of_two(a: _Chosen, b: _Chosen) -> _Chosen:
    return _largest(np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]]), a[2])


def _largest(numbers: Array, indices: Array, count: int) -> _Chosen:
    order = np.argsort(-numbers, kind="stable")[:count]
    return numbers[order], indices[order], count
