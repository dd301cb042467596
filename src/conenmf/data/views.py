"""Matrices derived from another matrix V: with changed blocks, or with some of its samples.

A view has the samples of V and reads them through V, in any storage, without a copy. `MappedMatrix`
applies a function to every block, for example to scale samples to unit norm or to select features.
A function of a block cannot tell a zero from a missing entry. So a view of data with missing
entries must declare that it handles them.

Two kinds of matrices cannot be views. A subset of the samples is scattered over V, and every pass
would gather it again; shuffling the values of a feature needs all of them at once. Both are stored
in memory, so they are for moderate sizes. `hold_copy` stores any view in memory, for repeated
passes over data that are small enough.

Several steps can share one pass over V, each with V itself or a view of it. Many fits of the same
data, or of data drawn from them, apply one step each to every block. `sweep_together` reads a block
once and passes it to all steps, changed as the view of each step requires. Each step gets the same
bits as from its own sweep: a kernel adds up the entries of a column in the same order for any
number of columns.

If several steps multiply the same sparse samples, each with its own matrix, one product with all
matrices side by side is much faster. Each entry of V is then looked up once, and processors
multiply many columns at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.random import Generator
from numpy.typing import ArrayLike

from .. import kernels
from ..names import Names
from ..types import Array, Arrays, DType, Facts
from .blocks import (
    Block,
    Rows,
    canonical_rows,
    dense,
    entrywise,
    exact,
    features_scaled,
    is_sparse,
    norms,
    products,
    scaled,
)
from .matrix import (
    Aligned,
    DataMatrix,
    Measures,
    Reduce,
    Results,
    Step,
    Work,
    add,
    join_sums,
    measure_block,
    multiplied,
)
from .memory import DenseMatrix, LocalMatrix, hold, single_copy
from .validate import require_data_matrix

# ``change(block, *aligned_rows) -> block`` works sample by sample; it is a function of a module.
Change: TypeAlias = Callable[..., Block]

_DOUBLE = np.dtype(float)
_SINGLE = np.dtype(np.float32)
_N_ORDERS = 64  # random orders of samples, for shuffling features
_MIN_SINGLE_ENTRIES = 1 << 16  # single precision does not save time for fewer
_SINGLE_RANGE = 1e-20, 1e30  # of ||V||^2: float32 can represent entries and their products


class MappedMatrix(DataMatrix):
    """A view whose blocks are the blocks of V after applying a function.

    Parameters
    ----------
    V : DataMatrix (F, N)
    change : Change
    *aligned : arrays (N, ...)
        Arrays that `change` needs, with one row per sample.
    dtype : float64 or float32
        The type of the new blocks.
    holes : bool
        Whether V may have missing entries; if False, such V are rejected. The caller sets which
        entries of the view are missing; by default none are.
    """

    def __init__(
        self,
        V: DataMatrix,
        change: Change,
        *aligned: Aligned,
        dtype: DType = _DOUBLE,
        holes: bool = False,
    ) -> None:
        require_data_matrix(V, holes=holes)
        super().__init__(V.shape, dtype, n_threads=V.n_threads, names=V.names)
        self.is_in_memory = V.is_in_memory
        self.is_remote = V.is_remote
        self.max_gather = V.max_gather
        self.remarks = V.remarks
        self.vocabulary = V.vocabulary
        self.V = V
        self.change = change
        self.arrays = tuple(V.align(array) for array in aligned)

    def own_threads(self) -> AbstractContextManager[None]:
        """Limit threads as V does."""
        return self.V.own_threads()

    @property
    def share_of_pass(self) -> float | None:
        """The part of the running pass over V that is done."""
        return self.V.share_of_pass

    def align(self, array: Aligned) -> Aligned:
        """Move an array to where the samples of V are stored."""
        return self.V.align(array)

    def room_for_aligned(self, row_bytes: int, count: int = 1) -> int:
        """Return how many times `count` aligned arrays fit in the memory of V."""
        return self.V.room_for_aligned(row_bytes, count)

    def held_rows(self, max_dense_entries: int) -> Rows:
        """Return a changed copy of the samples if the samples of V are in memory."""
        rows = self.V.held_rows(max_dense_entries)
        if rows is None:
            return None
        rows = rows.astype(self.V.dtype, copy=False)  # integers would stay integers when scaled
        return canonical_rows(self.change(rows.T, *self.arrays).T)

    def _run(self, work: Work) -> Results:
        if work.reads:
            step = partial(read_through, work.step, self.change, len(self.arrays))
            work = work._replace(step=step, aligned=(*self.arrays, *work.aligned))
            self.V._count(1.0)
        return self.V._run(work)

    def _gather(self, indices: Array) -> Block:
        rows = (np.asarray(array[indices]) for array in self.arrays)
        return self.change(self.V.columns(indices), *rows)


def read_through(
    step: Step,
    change: Change,
    n_own: int,
    block: Block,
    /,
    *aligned: Array,
    **shared: Any,
) -> Results:
    """Apply a step to a view's block, made from a block of V."""
    return step(change(block, *aligned[:n_own]), *aligned[n_own:], **shared)


def unit_samples(V: DataMatrix) -> MappedMatrix:
    """Return a view of V with samples of unit norm, in float64; zero samples stay zero.

    >>> from conenmf import from_columns
    >>> unit_samples(from_columns([[3.0, 0.0], [4.0, 0.0]])).columns([0, 1])
    array([[0.6, 0. ],
           [0.8, 0. ]])
    """
    return MappedMatrix(V, _to_unit_norm, V.norms_squared, dtype=np.dtype(float))


def _to_unit_norm(block: Block, squared: Array) -> Block:
    return scaled(exact(block), 1.0 / norms(squared))


def times_samples(V: DataMatrix, scales: Aligned, *, holes: bool = False) -> MappedMatrix:
    """Return a view of V with samples multiplied by numbers (N,), aligned.

    If V may have missing entries, the caller sets which entries of the view are known.
    """
    return MappedMatrix(V, _times_scale, scales, dtype=V.dtype, holes=holes)


def _times_scale(block: Block, scales: Array) -> Block:
    return scaled(block, scales.astype(block.dtype, copy=False))


def times_features(V: DataMatrix, factors: ArrayLike) -> MappedMatrix:
    """Return a view of V with features multiplied by numbers (F,)."""
    change = partial(features_scaled, factors=np.asarray(factors, dtype=V.dtype))
    return MappedMatrix(V, change, dtype=V.dtype)


def change_entries(V: DataMatrix, function: Callable[[Array], Array]) -> MappedMatrix:
    """Return a view of V with a function applied to each entry; the function keeps zeros."""
    return MappedMatrix(V, partial(entrywise, function=function), dtype=V.dtype)


def in_single(V: DataMatrix) -> DataMatrix | None:
    """Return V in float32 with its measures; None for few entries or values outside its range.

    The decision does not depend on the storage, so all storages give the same answer. Data in
    memory are copied if there is room; blocks of other data are converted in every pass.
    """
    is_large = V.dtype == _DOUBLE and V.n_entries >= _MIN_SINGLE_ENTRIES
    if not is_large or not _SINGLE_RANGE[0] < V.total < _SINGLE_RANGE[1]:
        return None
    copied = single_copy(V)
    if copied is not None:
        return copied
    view = MappedMatrix(V, _to_single, dtype=_SINGLE)
    view._measures = V._measures
    return view


def coordinates(V: DataMatrix, basis: Array) -> DataMatrix:
    """Return B'V (r, N) for a basis B (F, r): a dense copy if V is in memory, otherwise a view.

    Passes count for V.
    """
    if not V.is_in_memory:
        return MappedMatrix(V, partial(_coordinates, basis=basis))
    rows, _ = V.sweep(lambda block: (_coordinates(block, basis=basis).T, None))
    copied = DenseMatrix(rows, n_threads=V.n_threads)
    copied._passes_by_thread = V._passes_by_thread
    return copied


def _coordinates(block: Block, *, basis: Array) -> Block:
    return products(exact(block), basis).T


def _to_single(block: Block) -> Block:
    return block.astype(np.float32)


def take_features(
    V: DataMatrix, features: Array, *, factors: Array | None = None, dtype: str = "float64"
) -> MappedMatrix:
    """Return a view of V with some of its features, in increasing order, each scaled by a factor.

    >>> from conenmf import from_rows
    >>> V = from_rows([[2, 1, 0], [2, 0, 3]])
    >>> take_features(V, np.array([0, 2]), factors=np.array([0.5, 1.0])).columns([0, 1])
    array([[1., 1.],
           [0., 3.]])
    """
    kind = np.dtype(dtype)
    n = len(features)
    rows = None if n == V.n_features else features
    weights = None if factors is None else factors.astype(kind)
    change = partial(_select, features=rows, factors=weights, dtype=kind)
    view = MappedMatrix(V, change, dtype=kind)
    view.n_features = n
    view.shape = n, V.n_samples
    view.names = V.names.taking(features)
    return view


def _select(block: Block, *, features: Array | None, factors: Array | None, dtype: DType) -> Block:
    chosen: Block = block if features is None else block[features]
    chosen = chosen.astype(dtype, copy=False)
    return chosen if factors is None else features_scaled(chosen, factors)


# --- copies in memory ---------------------------------------------------------------------------


def take_samples(V: DataMatrix, indices: Array) -> LocalMatrix:
    """Return a matrix in memory of the samples with these indices, with their weights.

    >>> from conenmf import from_columns
    >>> take_samples(from_columns([[3.0, 0.0, 1.0], [4.0, 2.0, 0.0]]), [0, 2]).norms_squared
    array([25.,  1.])
    """
    names = Names(feature_names=V.names.feature_names)
    taken = hold(canonical_rows(V.columns(indices).T), n_threads=V.n_threads, names=names)
    if not V.is_complete:
        taken.observed = V.observed.taken(taken, indices)
    return taken


def dense_samples(V: DataMatrix) -> Array:
    """Return all samples as an ndarray (F, N) in float64, for small data."""
    return dense(V.columns(np.arange(V.n_samples)))


def hold_copy(V: DataMatrix) -> LocalMatrix:
    """Return a copy of V in memory; one pass, which reads the samples in order."""
    (parts,) = V.sweep(_rows)
    rows = sp.vstack(parts, format="csr") if sp.issparse(parts[0]) else np.concatenate(parts)
    return hold(canonical_rows(rows), n_threads=V.n_threads, names=V.names)


def _rows(block: Block) -> tuple[list[Rows]]:
    return ([block.T],)


def shuffle_samples(V: DataMatrix, rng: Generator) -> LocalMatrix:
    """Return a copy of V in memory in which the values of every feature are shuffled over samples.

    Each feature uses one of several random orders of the samples, and starts at a random position.
    """
    F, N = V.shape
    index = np.arange(N)
    samples = V.columns(index).T
    orders = rng.permuted(np.tile(index, (_N_ORDERS, 1)), axis=1)
    chosen = rng.integers(_N_ORDERS, size=F)
    first = rng.integers(N, size=F)
    if sp.issparse(samples):
        entries = sp.coo_array(samples)
        column = entries.col
        turn = (entries.row + first[column]) % N
        places = orders[chosen[column], turn]
        shuffled = sp.csr_array((entries.data, (places, column)), shape=(N, F))
    else:
        turns = (index + first[:, None]) % N
        places = orders[chosen[:, None], turns]
        shuffled = np.empty_like(samples)
        np.put_along_axis(shuffled.T, places, samples.T, axis=1)
    return hold(canonical_rows(shuffled), n_threads=V.n_threads)


# --- one pass for several steps ---------------------------------------------------------------


class Part(NamedTuple):
    """A step of a joint pass; the fields are those of `DataMatrix.sweep`.

    Attributes
    ----------
    V : DataMatrix
        The matrix that is read, or a `MappedMatrix` of it.
    step : callable
    aligned : tuple of arrays (N, ...)
    shared : dict
    n_rows : int
        How many per-sample results the step returns.
    reduce : callable
    X : array (F, K), optional
        A matrix that the step multiplies with every sample. The step may get the products as
        ``C=``.
    """

    V: DataMatrix
    step: Step
    aligned: tuple[Aligned, ...]
    shared: Facts
    n_rows: int
    reduce: Reduce = add
    X: Array | None = None


def sweep_together(V: DataMatrix, parts: Sequence[Part]) -> list[Results]:
    """Read V once for all parts; return what ``part.V.sweep(...)`` would return for each."""
    inputs: list[Aligned] = []
    counts = []
    steps = []
    for part in parts:
        step = part.step
        aligned = part.aligned
        if part.V is not V:
            assert isinstance(part.V, MappedMatrix)
            step = partial(read_through, step, part.V.change, len(part.V.arrays))
            aligned = (*part.V.arrays, *aligned)
            part.V._count(1.0)
        inputs += aligned
        counts.append(len(aligned))
        steps.append(step)
    beside = SideBySide.of([part.X if part.V is V else None for part in parts])
    more = {"side_by_side": None if V.is_remote else beside}  # on a cluster, W would be sent twice
    shared = [part.shared for part in parts]
    reduce = partial(_reduce_each, [part.reduce for part in parts])
    *rows, totals = V.sweep(
        _steps_together, *inputs, reduce=reduce, steps=steps, counts=counts, shared=shared, **more
    )
    results = []
    for part, total in zip(parts, totals, strict=True):
        results.append((*rows[: part.n_rows], total))
        rows = rows[part.n_rows :]
    return results


class SideBySide(NamedTuple):
    """Matrices side by side, and where each ends; empty ones stand for None."""

    X: Array
    ends: Array

    @classmethod
    def of(cls, matrices: Sequence[Array | None]) -> SideBySide | None:
        """Put matrices of one type side by side; None if that saves nothing."""
        given = [X for X in matrices if X is not None]
        types = {X.dtype for X in given}
        if len(given) < 2 or len(types) > 1 or not kernels.AVAILABLE:
            return None
        widths = [0 if X is None else X.shape[1] for X in matrices]
        return cls(np.hstack(given), np.cumsum(widths))

    def split(self, C: Array) -> list[Arrays]:
        """Return the columns of each matrix, as an argument of its step."""
        parts = np.split(C, self.ends[:-1], axis=1)
        return [{"C": np.ascontiguousarray(part)} if part.size else {} for part in parts]


def products_together(V: DataMatrix, matrices: Sequence[Array]) -> list[Array] | None:
    """Return V'X (N, K) for each matrix X (F, K), in one pass; None if that saves nothing."""
    beside = SideBySide.of(matrices)
    if beside is None:
        return None
    C, _ = V.sweep(multiplied, X=beside.X)
    return [part["C"] for part in beside.split(np.asarray(C))]


def measure_together(V: DataMatrix, views: Sequence[DataMatrix]) -> None:
    """Measure views of V in one joint pass."""
    views = [view for view in views if view is not V and view._measures is None]
    parts = [Part(view, measure_block, (), {}, n_rows=1, reduce=join_sums) for view in views]
    if parts:
        for part, (norms, sums) in zip(parts, sweep_together(V, parts), strict=True):
            part.V._measures = Measures(norms, *sums)


def _steps_together(
    block: Block,
    *aligned: Array,
    steps: list[Step],
    counts: list[int],
    shared: list[Facts],
    side_by_side: SideBySide | None,
) -> Results:
    """Apply every step to one block; each step takes `count` of the aligned arrays."""
    rows: list[Array] = []
    sums: list[Any] = []
    if side_by_side is not None and is_sparse(block):
        split = side_by_side.split(products(block, side_by_side.X))
        shared = [{**own, **C} for own, C in zip(shared, split, strict=True)]
    for step, count, own in zip(steps, counts, shared, strict=True):
        mine = aligned[:count]
        aligned = aligned[count:]
        *results, part = step(block, *mine, **own)
        rows += results
        sums.append(part)
    return *rows, tuple(sums)


def _reduce_each(reducers: list[Reduce], total: Results, part: Results) -> Results:
    triples = zip(reducers, total, part, strict=True)
    return tuple(reduce(one, other) for reduce, one, other in triples)
