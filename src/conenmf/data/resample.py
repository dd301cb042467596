"""Random draws of samples, and randomly redrawn data as views.

The random numbers of a sample depend only on its index and a seed, so they are the same in any
block, process or machine. They come from a counter-based generator (Philox), which can jump to any
position in its sequence. Views are drawn when a block is read, in any storage, and nothing is
stored. The numbers also depend on the nonzero entries of a sample and their order, so every pass
and every storage draws the same data. Sparse data stay sparse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.random import Generator

from ..errors import DataTypeError
from ..types import Array, Pair
from .blocks import (
    Block,
    Entries,
    block_of_counts,
    dense,
    entries_of,
    exact,
    is_sparse,
    over,
    scaled,
    sums_at,
    with_values,
)
from .matrix import DataMatrix
from .views import MappedMatrix

Seed: TypeAlias = tuple[int, int]

_LARGEST_COUNT = 2.0**53  # floats represent all integers up to this
_hold_counts: WeakKeyDictionary[DataMatrix, bool] = WeakKeyDictionary()
_DIRECT_RATE = 0.2  # for a larger mean rate, every entry is drawn directly


def evenly_spaced(n: int, count: int) -> Array:
    """Return `count` evenly spaced indices from 0 to n - 1, both included; all if n is smaller.

    >>> evenly_spaced(10, 4).tolist(), evenly_spaced(3, 4).tolist()
    ([0, 3, 6, 9], [0, 1, 2])
    """
    return np.linspace(0, n - 1, min(n, count)).astype(np.intp)


def new_seed(rng: Generator) -> Seed:
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
    groups = -(-width // 4)  # the generator yields four numbers per step
    bits = np.random.Philox(key=np.array(seed, dtype=np.uint64))
    bits.advance(index.start * groups)
    numbers = Generator(bits).random((len(index), 4 * groups))
    return numbers[:, :width]


def draw_samples(V: DataMatrix, count: int, rng: Generator) -> Array:
    """Draw `count` different nonzero samples, or all if there are fewer; return their indices.

    Every nonzero sample gets a random number; the samples with the largest numbers are returned, in
    this order. V is not read.
    """
    return _with_largest_keys(V, count, seed=new_seed(rng))


def draw_weighted(V: DataMatrix, count: int, rng: Generator) -> Array:
    """Draw different samples one after the other, with probability proportional to squared norms.

    Each sample gets an exponential time divided by its squared norm, and the earliest samples win
    (Efraimidis and Spirakis, 2006).
    """
    return _with_largest_keys(V, count, seed=new_seed(rng), total=V.total)


def draw_longest(V: DataMatrix, count: int) -> Array:
    """Return the indices of the nonzero samples with the largest norms, longest first."""
    return _with_largest_keys(V, count)


def _with_largest_keys(
    V: DataMatrix, count: int, seed: Seed | None = None, total: float | None = None
) -> Array:
    join = partial(_largest_of_two, count)
    ((_, indices),) = V.map(
        _choose, V.norms_squared, reduce=join, count=count, seed=seed, total=total
    )
    return np.asarray(indices)


def _choose(
    index: range, squared: Array, *, count: int, seed: Seed | None, total: float | None
) -> tuple[Pair]:
    """Step of a map: choose samples by largest norm, random number, or -time / norm^2."""
    keys = _round_off(squared) if seed is None else uniform_rows(index, 1, seed)[:, 0]
    if total is not None:
        keys = np.log1p(-keys) / np.maximum(squared / total, 1e-290)
    nonzero = np.flatnonzero(squared > 0)
    return (_with_largest(keys[nonzero], nonzero + index.start, count),)


def _round_off(squared: Array) -> Array:
    """Return numbers rounded to 40 bits: sums of squares have other last bits in other storages."""
    parts, powers = np.frexp(squared)
    return np.ldexp(np.round(np.ldexp(parts, 40)), powers)


def _largest_of_two(count: int, a: Pair, b: Pair) -> Pair:
    keys, indices = map(np.append, a, b)
    return _with_largest(keys, indices, count)


def _with_largest(keys: Array, indices: Array, count: int) -> Pair:
    order = np.argsort(-keys, kind="stable")[:count]
    return keys[order], indices[order]


# --- redrawn data -------------------------------------------------------------------------------


def holds_counts(V: DataMatrix) -> bool:
    """Return whether all entries are integers; one pass, the first time.

    >>> from conenmf import from_rows
    >>> holds_counts(from_rows([[2.0, 0.0, 1.0]])), holds_counts(from_rows([[0.5, 1.0, 2.0]]))
    (True, False)
    """
    if V not in _hold_counts:
        (all_counts,) = V.sweep(_are_counts, reduce=min)
        _hold_counts[V] = bool(all_counts)
    return _hold_counts[V]


def redraw(
    V: DataMatrix,
    rng: Generator,
    *,
    dispersion: float = 0.0,
    balance: bool = False,
) -> MappedMatrix:
    """Return random counts with the counts of V as means, like another measurement.

    The first call takes one pass, which checks that entries are counts.

    Parameters
    ----------
    V : DataMatrix (F, N)
    rng : numpy.random.Generator
    dispersion : float
        Counts of mean x have the variance x + dispersion x^2: Poisson counts if it is 0, otherwise
        negative binomial counts.
    balance : bool
        Scale samples as `balance_samples` does after drawing counts.

    Examples
    --------
    >>> from conenmf import from_rows
    >>> redraw(from_rows([[60.0, 0.0, 3.0]]), np.random.default_rng(0)).columns([0]).T
    array([[54.,  0.,  3.]])
    """
    seed = new_seed(rng)
    if not holds_counts(V):
        raise DataTypeError(
            "the data are not counts, since some entries are not integers: only counts can be "
            "drawn again, so give them before they are scaled or weighted"
        )
    index = V.indices()
    change = partial(_redraw, seed=seed, dispersion=dispersion, balance=balance)
    return MappedMatrix(V, change, index, dtype=V.dtype)


def balance_samples(V: DataMatrix, dispersion: float) -> DataMatrix:
    """Return V with each sample scaled by its weight in the Poisson loss, for a given dispersion.

    A sample gets the weight 1 / (1 + dispersion m), where m = sum x^2 / sum x is the mean rate of a
    single count. This is the inverse variance of its counts relative to Poisson counts. If the
    dispersion is 0, V itself is returned.

    Parameters
    ----------
    V : DataMatrix (F, N)
    dispersion : float
        See `redraw`.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> balance_samples(from_columns([[1.0, 101.0], [1.0, 0.0]]), 0.01).columns([0, 1])
    array([[ 1. , 50.5],
           [ 1. ,  0. ]])
    """
    if dispersion == 0:
        return V
    return MappedMatrix(V, partial(_balance, dispersion=dispersion), dtype=V.dtype)


def bootstrap(V: DataMatrix, rng: Generator, *, degree: int) -> MappedMatrix:
    """Return V with each sample repeated as often as it is drawn: Poisson numbers of mean 1.

    A sample that is drawn w times counts w times in the loss. For the Poisson loss this is
    equivalent to scaling the sample by w, for least squares by the root of w. Samples that are not
    drawn become zero.

    Parameters
    ----------
    V : DataMatrix (F, N)
    rng : numpy.random.Generator
    degree : int
        Degree of homogeneity of the loss: 2 for least squares, 1 for the Poisson loss.

    Examples
    --------
    >>> from conenmf import from_rows
    >>> V = from_rows([[1.0, 2.0], [3.0, 0.0], [5.0, 6.0]])
    >>> bootstrap(V, np.random.default_rng(1), degree=1).columns([0, 1, 2])
    array([[2., 3., 5.],
           [4., 0., 6.]])
    """
    weights = rng.poisson(1.0, V.n_samples).astype(float)
    return MappedMatrix(V, _weigh, weights ** (1 / degree), dtype=V.dtype)


def draw_counts(V: DataMatrix, W: Array, H: Any, rng: Generator) -> MappedMatrix:
    """Return Poisson counts with the rates W H, in the storage of V.

    If rates are small, the number of counts of each component in each sample is drawn, then a
    feature for each single count, so the time depends on the counts, not on F N.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)
    rng : numpy.random.Generator

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = from_columns([[6.0, 0.0, 3.0], [0.0, 8.0, 1.0]])
    >>> W, H = np.array([[50.0], [0.0]]), np.array([[1.0, 2.0, 0.0]])
    >>> drawn = draw_counts(V, W, H, np.random.default_rng(0))
    >>> drawn.columns([0, 1, 2])
    array([[ 44., 107.,   0.],
           [  0.,   0.,   0.]])
    """
    seed = new_seed(rng)
    W = exact(W)
    Ht = V.align(H.T)
    sums = W.sum(axis=0)
    (of_H,) = V.map(lambda _, H: (exact(H).sum(axis=0),), Ht)
    index = V.indices()
    if float(sums @ of_H) >= _DIRECT_RATE * V.size:
        change = partial(_draw_directly, seed=seed, W=W)
    else:
        change = partial(_draw_by_components, seed=seed, sums=sums, places=_places(W, sums))
    return MappedMatrix(V, change, index, Ht, dtype=np.dtype(float))


def _places(W: Array, sums: Array) -> Array:
    """Return borders of features: the k-th F numbers rise from k to k + 1 as W(:, k) adds up."""
    shares = over(np.cumsum(W, axis=0), sums)
    shares[shares >= shares[-1]] = 1.0  # after the last feature of a component
    borders = np.minimum(shares, 1.0) + np.arange(len(sums))
    return borders.T.ravel()


# --- steps ------------------------------------------------------------------------------------


def _are_counts(block: Block) -> tuple[bool]:
    values = entries_of(block).values
    is_whole = values == np.floor(values)
    return (bool(is_whole.all() and values.max(initial=0.0) <= _LARGEST_COUNT),)


def _generators(index: Array, seed: Seed) -> Iterator[Generator]:
    """Yield a generator for each sample, at its own position of one sequence; use it at once."""
    bits = np.random.Philox(key=np.array(seed, dtype=np.uint64))
    rng = np.random.Generator(bits)
    state = bits.state
    for n in index.tolist():
        state["state"]["counter"] = np.array([0, 0, 0, n], dtype=np.uint64)
        bits.state = state
        yield rng


def _redraw(block: Block, index: Array, *, seed: Seed, dispersion: float, balance: bool) -> Block:
    entries = entries_of(block)
    rates = exact(entries.values)

    def draw(rng: Generator, own: slice) -> Array:
        means = rates[own]
        if dispersion > 0:
            means = means * rng.gamma(1 / dispersion, dispersion, means.size)
        return rng.poisson(means)

    counts = _with_counts(block, entries, _draw_entries(entries, index, seed, draw))
    return _balance(counts, dispersion=dispersion) if balance else counts


def _balance(block: Block, *, dispersion: float) -> Block:
    _, samples, values = entries_of(block)
    n = block.shape[1]
    totals = sums_at(samples, values, n)
    # the mean square of a Poisson count is the square of its rate plus the rate
    squares = sums_at(samples, values * np.maximum(values - 1, 0), n)
    return _weigh(block, 1 / (1 + over(dispersion * squares, totals)))


def _draw_entries(
    entries: Entries,
    index: Array,
    seed: Seed,
    draw: Callable[[Generator, slice], Array],
) -> Array:
    """Draw a number for every entry from the generator of its sample."""
    numbers = np.empty(len(entries.values), np.int64)
    borders = np.searchsorted(entries.samples, np.arange(len(index) + 1)).tolist()
    for (start, stop), rng in zip(pairwise(borders), _generators(index, seed), strict=True):
        own = slice(start, stop)
        numbers[own] = draw(rng, own)
    return numbers


def _with_counts(block: Block, entries: Entries, counts: Array) -> Block:
    kept = counts > 0
    left = Entries(*(array[kept] for array in entries))
    return with_values(block, left, counts[kept].astype(block.dtype))


def _weigh(block: Block, weights: Array) -> Block:
    return scaled(block, weights.astype(block.dtype))


def _draw_directly(block: Block, index: Array, H: Array, *, seed: Seed, W: Array) -> Block:
    rows = exact(H) @ W.T
    for row, rng in zip(rows, _generators(index, seed), strict=True):
        row[:] = rng.poisson(row)
    return with_values(block, entries_of(rows.T), rows[rows > 0])


def _draw_by_components(
    block: Block, index: Array, H: Array, *, seed: Seed, sums: Array, places: Array
) -> Block:
    F, n = block.shape
    components = []
    uniform = []
    totals = []
    for row, rng in zip(exact(H) * sums, _generators(index, seed), strict=True):
        own = np.repeat(np.arange(sums.size), rng.poisson(row))
        components.append(own)
        uniform.append(rng.random(own.size))
        totals.append(own.size)
    owners = np.concatenate(components)
    found = np.searchsorted(places, owners + np.concatenate(uniform), side="right")
    samples = np.repeat(np.arange(n), totals)
    counts = block_of_counts(found - owners * F, samples, (F, n))
    return counts if is_sparse(block) else dense(counts)
