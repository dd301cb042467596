"""Which components are proved unique: conditions on the zeros of W and H that suffice.

Let W H have rank K, and let W' H' = W H be any other nonnegative factors with K components. Then
some column of W' is a multiple of w_l if

* a sample is pure, it uses component l alone, and the features in which w_l is zero, its window,
  have rank K - 1 in the other components; or if
* every other row of H is unique: for each k != l, a feature is an anchor, it is in component k
  alone, and the samples that do not use k have rank K - 1 in the other components.

The proof is on the page of theorems, docs/theory.md. The first is known in chemometrics as a
selective region with a window of full rank; if each component has a pure sample and an anchor
feature it holds for all. Zeros are entries up to 1e-6 of the largest of their component, since fits
that stop leave such numbers; so what is proved is proved of factors whose product differs from W H
by about as much. Ranks are judged by eigenvalues far above rounding, so that they are certain;
other conditions are known, and are not tried here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..data.blocks import Array, exact
from ..data.matrix import Aligned, DataMatrix
from ..data.validate import check_factors, require_data_matrix

__all__ = ["highest_of", "proved_unique", "unique_given_highest"]

_ZERO_SHARE = 1e-6  # of the largest entry of a component
_MIN_EIGENVALUE = 1e-9  # of a Gram matrix of rows of norm 1, in units of its largest


def proved_unique(V: DataMatrix, W: npt.ArrayLike, H: Any) -> Array:
    """Return of each component of V ~ W H whether it is proved unique: (K,); V is not read.

    Unique means: all nonnegative factors with the same product and as many components have a
    multiple of w_l among their components. False means that nothing is proved.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)

    Examples
    --------
    Component 0 has a sample of its own, and component 1 a feature; not the other way round:

    >>> from conenmf import from_columns
    >>> W, H = np.array([[1.0, 0.5], [0.0, 1.0]]), np.array([[1.0, 1.0], [0.0, 1.0]])
    >>> proved_unique(from_columns(W @ H), W, H)
    array([ True, False])
    """
    require_data_matrix(V)
    W, Ht = check_factors(V, W, H)
    with V.own_threads():
        (highest,) = V.map(highest_of, Ht, reduce=np.maximum)
        return unique_given_highest(V, W, Ht, highest)


def highest_of(index: range, H: Array) -> tuple[Array]:
    """Return the largest entry of each component among some samples."""
    return (exact(H.max(axis=0)),)


def unique_given_highest(V: DataMatrix, W: Array, Ht: Aligned, highest: Array) -> Array:
    """Do what `proved_unique` does, given the largest coefficient of each component."""
    K, top = W.shape[1], W.max(axis=0)
    nothing = np.zeros(K, dtype=bool)
    if not (top.all() and highest.all()):
        return nothing
    Y = _scaled_rows(W, top)
    has_anchor, gram = _alone_and_gram(Y)
    (has_pure, H_gram), *_ = V.map(_samples_alone_and_gram, Ht, highest=highest)
    if not (_has_full_rank(gram) and _has_full_rank(H_gram)):
        return nothing
    unique = np.array([has_pure[k] > 0 and _has_full_rank(_window(Y, k)) for k in range(K)])
    if unique.all() or np.count_nonzero(has_anchor) < K - 1:
        return unique
    (windows,) = V.map(_windows_of_samples, Ht, highest=highest)
    rows = np.array([has_anchor[k] > 0 and _has_full_rank(windows[k]) for k in range(K)])
    unique |= rows.sum() - rows == K - 1  # those of all others
    return unique


def _scaled_rows(Y: Array, highest: Array) -> Array:
    """Rows that are not zero, of norm 1, after columns were scaled to 1; rounding is zero."""
    Y = exact(Y) / highest
    Y = np.where(Y > _ZERO_SHARE, Y, 0)
    Y = Y[Y.any(axis=1)]
    rows: Array = Y / np.linalg.norm(Y, axis=1, keepdims=True)
    return rows


def _alone_and_gram(Y: Array) -> tuple[Array, Array]:
    """How many rows have each component alone, (K,), and the Gram matrix."""
    has = Y > 0
    return has[has.sum(axis=1) == 1].sum(axis=0), Y.T @ Y


def _window(Y: Array, k: int) -> Array:
    """The Gram matrix (K - 1, K - 1) of the rows that do not have component k."""
    rows = np.delete(Y[Y[:, k] == 0], k, axis=1)
    gram: Array = rows.T @ rows
    return gram


def _samples_alone_and_gram(
    index: range, H: Array, *, highest: Array
) -> tuple[tuple[Array, Array]]:
    return (_alone_and_gram(_scaled_rows(H, highest)),)


def _windows_of_samples(index: range, H: Array, *, highest: Array) -> tuple[Array]:
    Y = _scaled_rows(H, highest)
    return (np.array([_window(Y, k) for k in range(len(highest))]),)


def _has_full_rank(gram: Array) -> bool:
    if not gram.size:
        return True
    values = np.linalg.eigvalsh(gram)
    return bool(values[0] > _MIN_EIGENVALUE * values[-1])
