"""Counts made ready for factoring: logarithms, weights of features, samples of unit length.

The prepared matrix is a view: every block is changed when it is read, in any storage, and nothing
is written or copied. The formulas are in `preparation`; they leave zeros zero, so that sparse data
stay sparse.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ..arguments import flag, instance, number, optional
from ..errors import Message, NotAvailableError, Option, OptionError, ShapeError
from .blocks import (
    Array,
    Block,
    entrywise,
    exact,
    features_scaled,
    norms,
    products,
    scaled,
    weighted_sums,
)
from .matrix import Aligned, DataMatrix
from .preparation import Preparation
from .validate import require_data_matrix
from .views import MappedMatrix

__all__ = ["PreparedMatrix", "prepare", "prepared"]


def prepare(
    V: DataMatrix,
    *,
    normalize_total: float | None = None,
    log1p: bool = False,
    tfidf: bool = False,
    normalize: bool = False,
) -> PreparedMatrix:
    """Return a view of V after some of these steps, in this order; up to two passes.

    The view's `preparation` says what was done and has the weights; a result of `factorize` keeps
    it, and `prepared` does the same to new samples.

    Parameters
    ----------
    V : DataMatrix (F, N)
    normalize_total : float, optional
        Scale each sample to this sum, such as 10,000 for the counts of a cell.
    log1p : bool
        Take log(1 + x) of each entry.
    tfidf : bool
        Multiply each feature by log(N / df), where df of the N samples have it, and scale samples
        to unit length. A feature that all samples have gets no weight.
    normalize : bool
        Scale each sample to unit length.

    Examples
    --------
    >>> from conenmf import factorize, from_rows
    >>> V = prepare(from_rows([[2, 1, 0], [2, 0, 3]]), tfidf=True)
    >>> V.columns([0, 1])
    array([[0., 0.],
           [1., 0.],
           [0., 1.]])
    >>> result = factorize(V, 1)
    >>> prepared(from_rows([[5, 1, 0]]), result.preparation).columns([0]).ravel()
    array([0., 1., 0.])
    """
    require_data_matrix(V, holes=True)  # refused below, with advice
    total = optional(number, "normalize_total", normalize_total, above=0)
    log1p, tfidf = flag("log1p", log1p), flag("tfidf", tfidf)
    normalize = flag("normalize", normalize)
    if tfidf and V.vocabulary is not None:
        problem = " is for counts, and these texts are weighted so already: leave it out"
        raise OptionError(Message(Option("tfidf", True), problem))
    idf = _idf(V) if tfidf else None
    return prepared(V, Preparation(total, log1p, idf, normalize or tfidf))


def prepared(V: DataMatrix, preparation: Preparation) -> PreparedMatrix:
    """Return a view of V after the steps that other data have had.

    Parameters
    ----------
    V : DataMatrix (F, N)
    preparation : Preparation
        That of another view, or of a result.
    """
    require_data_matrix(V, holes=True)  # refused below, with advice
    instance("preparation", preparation, Preparation, "the preparation of a result")
    if V.observed is not None:
        raise NotAvailableError(
            "data are prepared with all their entries, and some of these are missing or weighted: "
            "prepare the data first, or leave the preparation out"
        )
    if V.preparation is not None:
        raise OptionError("the data are prepared already: ask for all steps in one call")
    if preparation.idf is not None and preparation.idf.size != V.shape[0]:
        raise ShapeError(
            f"the data have {V.shape[0]} features, and there are weights for "
            f"{preparation.idf.size}: they must agree"
        )
    return PreparedMatrix(V, preparation)


def _idf(V: DataMatrix) -> Array:
    """log(N / df) of each feature."""
    with V.own_threads():
        (count,) = V.sweep(_samples_with)
    idf: Array = np.log(V.shape[1] / np.maximum(count, 1))
    idf[count == 0] = 0.0
    if not idf.any():
        problem = " gives every feature the weight log(N / df) = 0, since all samples have it: "
        raise OptionError(Message(Option("tfidf", True), problem, "leave it out"))
    return idf


class PreparedMatrix(MappedMatrix):
    """A view of V after the steps of a `Preparation`.

    Attributes
    ----------
    preparation : Preparation
    """

    def __init__(self, V: DataMatrix, preparation: Preparation) -> None:
        before: tuple[Aligned, ...] = ()
        after: tuple[Aligned, ...] = ()
        with V.own_threads():
            if preparation.total is not None:
                sums, _ = V.sweep(_sums)
                before = V.map(_over, sums, total=preparation.total)[:1]
            change = partial(
                _change, n_before=len(before), log1p=preparation.log1p, weights=preparation.idf
            )
            if preparation.normalize:
                squared = MappedMatrix(V, change, *before, dtype=V.dtype).norms_squared
                after = V.map(_inverse_norms, squared)[:1]
        super().__init__(V, change, *before, *after, dtype=V.dtype)
        self._before, self._after = before, after
        self.preparation = self._steps = preparation
        words = preparation.in_words()
        self.remarks = (*V.remarks, *([f"prepared: {words}"] if words else []))

    def turned(self) -> DataMatrix:
        """Return the same data with the features as samples, and the samples as features."""
        weights = self._steps.idf
        before, after = ([np.asarray(one) for one in own] for own in (self._before, self._after))
        change = partial(_change_turned, log1p=self._steps.log1p, before=before, after=after)
        aligned = () if weights is None else (weights,)
        return MappedMatrix(self.V.turned(), change, *aligned, dtype=self.dtype)


# --- steps ------------------------------------------------------------------------------------


def _samples_with(block: Block) -> tuple[Array]:
    is_there = entrywise(block, _is_nonzero)
    return (weighted_sums(is_there, np.ones((block.shape[1], 1)))[:, 0],)


def _is_nonzero(entries: Array) -> Array:
    ones: Array = (entries != 0).astype(np.float64)
    return ones


def _sums(block: Block) -> tuple[Array, None]:
    return products(exact(block), np.ones((block.shape[0], 1)))[:, 0], None


def _over(index: range, sums: Array, *, total: float) -> tuple[Array, None]:
    return total / np.where(sums > 0, sums, 1.0), None


def _inverse_norms(index: range, squared: Array) -> tuple[Array, None]:
    return 1.0 / norms(squared), None


def _change(
    block: Block, *factors: Array, log1p: bool, weights: Array | None, n_before: int
) -> Block:
    """Samples times factors, log(1 + x), features times weights, samples times more factors."""
    dtype = block.dtype
    for factor in factors[:n_before]:
        block = scaled(block, factor.astype(dtype, copy=False))
    if log1p:
        block = entrywise(block, np.log1p)
    if weights is not None:
        block = features_scaled(block, weights.astype(dtype, copy=False))
    for factor in factors[n_before:]:
        block = scaled(block, factor.astype(dtype, copy=False))
    return block


def _change_turned(
    block: Block, *weights: Array, log1p: bool, before: list[Array], after: list[Array]
) -> Block:
    """The same where the samples of the block are features, and its features are samples."""
    dtype = block.dtype
    for factor in before:
        block = features_scaled(block, factor.astype(dtype, copy=False))
    if log1p:
        block = entrywise(block, np.log1p)
    for weight in weights:
        block = scaled(block, weight.astype(dtype, copy=False))
    for factor in after:
        block = features_scaled(block, factor.astype(dtype, copy=False))
    return block
