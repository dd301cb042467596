"""Held-out entries: how well components predict the features of a sample that they do not see.

An error that uses all features of a sample falls with every further component, so it cannot choose
their number. Here the features are divided into folds. Of each sample, the coefficients are those
of least squares on the features outside a fold, and the error is that on the fold: a component that
was fitted to noise adds to it (Owen and Perry, "Bi-cross-validation of the SVD and the nonnegative
matrix factorization", Ann. Appl. Stat. 3, 2009).

A component may rest on a fold nearly alone. What the other features say of its coefficient is then
little but noise, divided by a small number. So the features of the fold are not left out, but count
as zeros with a small weight: a prediction has at most 1 / weight times the squared norm of what it
is made from. The weight was chosen on four sets (mixtures with normal and with Poisson noise, the
latter also with few counts, and handwritten digits), where 0.01 to 0.1 choose the same numbers of
components.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arguments import array, integer
from ..data.blocks import Array, Block, entrywise, exact, products
from ..data.matrix import DataMatrix
from ..data.validate import require_data_matrix
from ..linalg.nnls import nnls
from .coefficients import finishing

__all__ = ["held_out_share"]

_N_FOLDS = 5
_ZEROS_WEIGHT = 0.03  # of the features to be predicted, as if they were zeros


def feature_folds(n_features: int, n_folds: int = _N_FOLDS) -> Array:
    """Return the fold of each feature: drawn once and for all, of sizes that differ by at most one.

    >>> feature_folds(6, 2)
    array([0, 1, 1, 0, 1, 0])
    """
    n_features = integer("n_features", n_features, at_least=1)
    n_folds = integer("n_folds", n_folds, at_least=1)
    order = np.random.default_rng(0).permutation(n_features)
    folds = np.empty(n_features, np.int64)
    folds[order] = np.arange(n_features) % n_folds
    return folds


def held_out_share(V: DataMatrix, W: Any, *, weights: Any = None, n_folds: int = _N_FOLDS) -> float:
    """Return the share of ||V||^2 that is predicted from other features, at most 1; one pass.

    1 - sum ||v_f - W_f h||^2 / sum ||v_f||^2 over folds f and samples v, where v_f are the features
    in f and v_g the others, and h >= 0 minimises ||v_g - W_g h||^2 + 0.03 ||W_f h||^2. With a
    single feature there is nothing to predict it from: its prediction is zero. If V is zero, so is
    the error, and the share is 1.

    Parameters
    ----------
    V : DataMatrix (F, N)
        Preferably samples that W was not fitted to.
    W : array (F, K)
    weights : array (N,), optional
        Of samples, at least 0; by default all are equal.
    n_folds : int
        Into which the features are divided; at most one for each.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = from_columns([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
    >>> held_out_share(V, [[1.0], [2.0], [3.0]]) > 0.99
    True
    """
    require_data_matrix(V)
    shared = finishing(V, W)
    F, W = V.shape[0], shared["W"]
    folds = feature_folds(F, min(integer("n_folds", n_folds, at_least=1), F))
    members = (folds[:, None] == np.arange(folds.max() + 1)).astype(np.float64)
    grams = np.stack([W.T @ (W * member[:, None]) for member in members.T])
    aligned = () if weights is None else (array("weights", weights, V.shape[1:], at_least=0),)
    with V.own_threads():
        ((missed, total),) = V.sweep(_predict, *aligned, W=W, grams=grams, members=members)
    return 1.0 - float(missed / (total or 1.0))


def _predict(
    block: Block, weights: Array | None = None, *, W: Array, grams: Array, members: Array
) -> tuple[tuple[float, float]]:
    block = exact(block)
    squares = products(entrywise(block, np.square), members)  # of each sample on each fold
    parts = [products(block, W * member[:, None]) for member in members.T]
    missed = np.zeros(len(squares))
    for fold in range(len(grams)):
        others = [other for other in range(len(grams)) if other != fold]
        if others:  # sums of what is seen: a difference would lose digits
            G = grams[others].sum(axis=0) + _ZEROS_WEIGHT * grams[fold]
            H = nnls(G, np.sum([parts[other] for other in others], axis=0))
        else:
            H = np.zeros_like(parts[fold])
        explained = 2 * _inner(parts[fold], H) - _inner(H @ grams[fold], H)
        missed += np.maximum(squares[:, fold] - explained, 0.0)
    factors = 1.0 if weights is None else weights
    return ((float((factors * missed).sum()), float((factors * squares.T).sum())),)


def _inner(A: Array, B: Array) -> Array:
    inner: Array = np.einsum("nk,nk->n", A, B)
    return inner
