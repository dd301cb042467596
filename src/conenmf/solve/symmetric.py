"""Symmetric factors of a graph: V ~ W S W' with W >= 0 (N, K), and S >= 0 (K, K) symmetric.

V holds the weights of the edges between N nodes. W says how much each node belongs to each group,
and S how strongly the groups are linked: with S diagonal, nodes of one group are linked (V ~ W W'
up to the lengths of columns); off the diagonal, nodes of two groups are (Wang, Li, Wang, Zhu and
Ding, "Community discovery using nonnegative matrix factorization", Data Min. Knowl. Discov. 22,
2011). With H = S W' it is a factorization W H of rank K, so all bounds for W H hold.

*The affinities* S for a given W are a convex problem, min ||V - W S W'||^2 over S >= 0, with the
gradient G S G - W'VW and G = W'W. Its rows are computed in turn, each exactly, until none moves.

*A round.* With B = W S held, ||V - W B'||^2 is convex in W, and a few sweeps of coordinate descent
give a better Y. Along D = Y - W the error f(W) = ||V - W S W'||^2 has twice the slope of this
function at W, so it falls too. f(W + t D) is a polynomial of degree four in t, whose coefficients
follow from products of K columns. Its lowest point with 0 <= t <= 1 is computed exactly, and
W + t D, a mean of W and Y, is nonnegative. So no round raises the error, and entries may become or
leave zero. A round takes one product of V with K columns.

*Starts.* Rounds begin with W of a fit with a free H, and find its error if W and H' span the same
groups. Then each column of H' is like a column of W, or H' is W in another order. In noise, the
columns may form a cycle such as a b' + b c' + c a', whose mean with its transpose needs other
columns. So if the error ends more than 0.05 % above that of the free factors, other starts have one
column of W replaced by that of H', the least alike first, and the lowest end is kept.

Not here: uncertain entries, missing edges, penalties, other losses, directed graphs.
"""

from __future__ import annotations

import math
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
from numpy.linalg import norm
from numpy.polynomial import Polynomial
from numpy.random import default_rng

from ..data.blocks import Block, exact, first_largest, over, products, unit_columns, weighted_sums
from ..data.matrix import DataMatrix, multiplied
from ..errors import DataError, Option, OptionError
from ..kernels import clock
from ..linalg.nnls import nnls
from ..types import Array
from .coefficients import Finish, coordinate_steps, finished
from .run import Stopping
from .solvers import hals

if TYPE_CHECKING:
    from .problem import Problem

_ASKED = Option("symmetric", True)
_ROUNDING = 1e-6  # of ||V||: a smaller difference of V and V' is rounding
_N_PROBES = 16
_CLOSE = 5e-4  # beyond the error of two free factors: end with W if it is closer
_ALIKE = 0.9  # cosine of W and H' of a component from which they count as the same group
_N_OTHERS = 8  # starts beside W
_STILL = 1e-12  # of ||S||: rows that move by less have converged
_DIAGONAL = 1e-4  # of ||S||^2: S with a smaller share off the diagonal counts as diagonal
_TIE_SHARE = 1e-6  # relative difference up to which entries count as equal


def check_graph(V: DataMatrix, problem: Problem) -> None:
    """Raise an error unless V has the edges of a graph, and the problem is plain.

    Parameters
    ----------
    V : DataMatrix (N, N)
    problem : Problem
    """
    refused = {
        "other losses than least squares": "symmetric" not in problem.loss.constraints,
        "penalties or known components": not problem.is_free,
        "groups of samples": problem.groups is not None,
        "missing or weighted entries: an edge that is not there is a zero": V.observed,
        "sample weights: multiply edges by them instead": V.unweighed,
        "Dask arrays: pass a sparse matrix": V.is_remote,
    }
    for what, is_asked in refused.items():
        if is_asked:
            raise OptionError(_ASKED, f" takes no {what}")
    if V.n_features != V.n_samples:
        raise DataError(
            _ASKED,
            f" needs a square matrix, not {V.n_samples} rows and {V.n_features} columns: pass the "
            "edges between nodes, or X @ X.T for links between samples",
        )
    pairs = zip(V.names.sample_names or (), V.names.feature_names or (), strict=False)
    for row, column in pairs:
        if row != column:
            raise DataError(
                _ASKED,
                f" needs the same nodes in rows and columns, and row {row!r} is at the place of "
                f"column {column!r}: order them alike, for example by X.loc[X.columns]",
            )
    _check_direction(V)


def _check_direction(V: DataMatrix) -> None:
    """Raise an error if V differs from its transpose by more than rounding; one pass.

    For vectors x of standard normal numbers, the mean of ||(V - V')x||^2 is ||V - V'||^2.
    """
    X = default_rng(0).normal(0.0, _N_PROBES**-0.5, (V.n_samples, _N_PROBES))
    along, across = V.sweep(_both_products, X, X=X)
    left = norm(across - np.asarray(along), axis=1)
    difference = norm(left) / V.norm
    if difference > _ROUNDING:
        raise DataError(
            _ASKED,
            f" needs a symmetric matrix: ||X - X.T|| is about {difference:.1g} of ||X||, most of "
            f"it at {V.names.sample(int(left.argmax()))}; pass X + X.T if directions do not "
            "matter, or else fit without symmetric",
        )


def _both_products(block: Block, rows: Array, *, X: Array) -> tuple[Array, Array]:
    """Step: the rows of V'X of a block, and its part of V X."""
    return products(exact(block), X), weighted_sums(block, rows)


def affinities(G: Array, M: Array, S: Array | None = None, turns: int = 500) -> Array:
    """Return the symmetric S >= 0 (K, K) that minimises ||V - W S W'||, given W'W and W'VW.

    Rows take turns, from the given S or zeros.

    >>> affinities(np.eye(2), np.array([[2.0, 1.0], [1.0, -3.0]]))
    array([[2., 1.],
           [1., 0.]])
    """
    S = np.zeros_like(G) if S is None else S.copy()
    for _ in range(turns):
        before = S.copy()
        for k, square in enumerate(G.diagonal()):
            others = G[k] @ S - square * S[k]
            S[k] = nnls(G, over(M[k] - others @ G, square)[None])[0]
        if norm(S - before) <= _STILL * norm(S):
            break
    return np.asarray((S + S.T) / 2)


def improved(V: DataMatrix, W: Array, stopping: Stopping, began: float) -> Array:
    """Return unit columns W (N, K) after rounds that lower ||V - W S W'||.

    Parameters
    ----------
    V : DataMatrix (N, N)
    W : array (N, K)
        Of a fit with free H.
    stopping : Stopping
        When rounds end, by the same rules as a run.
    began : float
        When the fit began, by `clock`.
    """
    W = unit_columns(W.astype(float))
    VW = _product(V, W)
    if not stopping.max_iter:
        return W.astype(V.dtype)
    H = nnls(W.T @ W, VW)  # H'
    enough = (1 + _CLOSE) * math.sqrt(max(1 - (VW * H).sum() / V.total, 0.0))
    best = _rounds(V, W, VW, stopping, began)
    sides = unit_columns(H)
    likeness = (W * sides).sum(axis=0)
    for k in likeness.argsort()[:_N_OTHERS]:
        if best[0] <= enough or likeness[k] > _ALIKE:
            break
        other = W.copy()
        other[:, k] = sides[:, k]
        found = _rounds(V, other, _product(V, other), stopping, began)
        best = min(best, found, key=itemgetter(0))
    return unit_columns(best[1]).astype(V.dtype)


def _rounds(
    V: DataMatrix, W: Array, VW: Array, stopping: Stopping, began: float
) -> tuple[float, Array]:
    """Return the relative error and W after rounds that begin with unit columns W."""
    S = affinities(W.T @ W, W.T @ VW)
    is_idle = ~S.any(axis=0)
    if is_idle.any():  # such as one side of a bipartite graph: add the other
        W = unit_columns(W + is_idle * unit_columns(np.maximum(VW, 0)))
        VW = _product(V, W)
        S = affinities(W.T @ W, W.T @ VW)
    errors: list[float] = []
    while stopping.reason(errors, clock() - began) is None:
        D = hals(S @ W.T @ W @ S, VW @ S, W, sweeps=3, floor=0.0) - W
        VD = _product(V, W + D) - VW
        squared, t = _lowest(S, np.hstack([W, D]), np.hstack([VW, VD]))
        W = W + t * D
        VW = VW + t * VD
        errors.append(math.sqrt(max(1 + squared / V.total, 0.0)))
        S = affinities(W.T @ W, W.T @ VW, S, 1)
    return min(errors, default=1.0), W


def _product(V: DataMatrix, X: Array) -> Array:
    """Return V'X (N, K), which is V X; one pass."""
    return np.asarray(V.sweep(multiplied, X=X)[0])


def _lowest(S: Array, B: Array, VB: Array) -> tuple[float, float]:
    """Return the lowest ||V - W S W'||^2 - ||V||^2 of W + t D with t in [0, 1], and this t.

    B has the columns of W and of D.
    """
    gram = B.T @ B
    image = B.T @ VB
    identity = np.eye(len(S))

    def squared(t: float) -> float:
        T = np.vstack([identity, t * identity])
        SG = S @ T.T @ gram @ T
        return float((SG * SG.T).sum() - 2 * (S * (T.T @ image @ T)).sum())

    points = np.linspace(0, 1, 5)  # they determine the polynomial
    turning = Polynomial.fit(points, list(map(squared, points)), 4).deriv().roots().real
    steps = np.clip([0.0, 1.0, *turning], 0.0, 1.0).tolist()
    return min((squared(t), t) for t in steps)


def finish_symmetric(V: DataMatrix, W: Array, *, sort: bool) -> Finish:
    """Return the exact end of a fit with W (N, K): S, H = S W', the errors and the labels.

    The label of a node i is the group with the largest W(i, k) ||h_k||, where h_k is a row of H: as
    in other fits, the component that contributes most, here to the edges of the node. So a group
    that explains few edges gets a node only if it has a larger entry in W. With the entries of unit
    columns alone, a group of ten nodes draws nodes from a group of eighty, whose entries are small.

    Parameters
    ----------
    V : DataMatrix (N, N)
    W : array (N, K)
    sort : bool
        Whether components are sorted by their contribution.
    """
    W = W.astype(float)
    G = W.T @ W
    VW = _product(V, W)
    S = affinities(G, W.T @ VW)
    n_first = 0 if sort else len(S)
    end = finished(V, W, n_first=n_first, given=(W @ S).astype(V.dtype))
    gram = S @ G @ S  # of H'
    contributions = (W * np.sqrt(gram.diagonal()))[:, end.order].T
    labels = np.where(contributions.any(axis=0), first_largest(contributions, _TIE_SHARE), -1)
    squared = coordinate_steps(gram, VW @ S, W)  # S is exact
    return end._replace(
        labels=labels,
        kkt_residual=math.sqrt(squared / V.total),
        affinities=S[np.ix_(end.order, end.order)],
    )


def in_words(S: Array) -> str:
    """Say which groups are linked, by their affinities (K, K)."""
    total = norm(S) ** 2
    beside = total - norm(S.diagonal()) ** 2
    if beside <= _DIAGONAL * total:
        return "a graph: V ~ W S W', and S is diagonal, so V ~ W W' with other lengths of columns"
    return f"a graph: V ~ W S W', and {beside / total:.0%} of ||S||^2 lies between groups"
