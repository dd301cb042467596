"""Cones: Algorithm 1 (which samples go together) and Algorithm 2 (one rank-one factor each).

Algorithm 1 is run exactly but lazily (see `greedy`). Cosines are computed in float64 whatever the
type of the data, and cosines closer than their rounding error count as equal; ties go to the
lowest index.

Algorithm 2 needs the leading singular pair of every cluster. All K are found together, one pass
over V per step, by the locally optimal conjugate gradient method for V_k V_k'.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .blocks import cone_coefficients, cone_products
from .data import Array, Block, DataMatrix, check_labels, require_data_matrix
from .errors import ComponentsError, OptionError, ShapeError, check_components
from .greedy import LazyScores

__all__ = ["Cones", "cluster_cones", "cr1_nmf", "rank_one_factors"]


@dataclass(frozen=True)
class Cones:
    """The clusters that Algorithm 1 found.

    Attributes
    ----------
    labels : array (N,), integers
        The cone of each sample, in the order the centres were chosen; -1 for zero samples.
    centres : array (K,), integers
        The samples chosen as centres.
    directions : array (F, K)
        The centres as unit vectors z_k.
    cosines : array (N,)
        Cosine of each sample to the centre of its cone; 0 for zero samples.
    """

    labels: Array
    centres: Array
    directions: Array
    cosines: Array

    @property
    def radius(self) -> float:
        """The largest angle between a sample and the centre of its cone, in radians.

        It certifies the clustering, whatever the data (Gonzalez, 1985): let rho be the radius.
        Every cluster lies within rho of its centre, so no size angle is above rho. And no K
        clusters do better than half of it: whichever way the nonzero samples are put into K
        clusters, one of them holds two samples at an angle of rho or more, so one of any K
        circular cones that hold all samples has a size angle of at least rho / 2.

        Proof. Take the K centres and a sample at angle rho from its centre. These K + 1 samples
        are pairwise at angles of at least rho: the sample from every centre, because its own
        centre is the nearest; and the k-th centre from each earlier one, because it was chosen
        as the sample farthest from them, so no sample, that one included, was farther then than
        it was. Two of the K + 1 share a cluster. The angle between two vectors of a cone of
        size angle alpha is at most 2 alpha, by the triangle inequality on the sphere.
        """
        nonzero = self.labels >= 0
        return float(np.arccos(np.clip(self.cosines[nonzero].min(), -1.0, 1.0)))


def cluster_cones(
    V: DataMatrix,
    K: int,
    *,
    rng: np.random.Generator | None = None,
    first: int | None = None,
) -> Cones:
    """Group the samples into K cones (Algorithm 1).

    z_1 is any sample, z_{k+1} = argmin_n max_{i <= k} <z_i, v_n> / ||v_n||, and sample n belongs
    to the cone k with the largest <z_k, v_n>. Under the geometric assumption these are the true
    cones (Lemma 1 of the paper).

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
        Number of cones, at most the number of distinct directions among the samples.
    rng : numpy.random.Generator, optional
        Draws the first centre among the nonzero samples. Without it the first centre is the
        longest sample, so that the result is always the same.
    first : int, optional
        The first centre itself.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = from_columns([[9.0, 1.0, 0.0, 4.0, 0.0], [1.0, 8.0, 0.0, 0.0, 2.0]])
    >>> cluster_cones(V, 2, first=0).labels
    array([ 0,  1, -1,  0,  1])
    """
    require_data_matrix(V, nonzero=True)
    F = V.shape[0]
    K = check_components(K)
    norms = np.sqrt(V.norms_squared)
    nonzero = norms > 0
    if nonzero.sum() < K:
        raise ComponentsError(
            f"there are {nonzero.sum()} nonzero samples, fewer than the {K} components asked for"
        )
    tie = 8.0 * np.finfo(np.float64).eps * np.sqrt(F)

    with V.own_threads():
        centres = np.empty(K, dtype=np.intp)
        Z = np.empty((F, K), order="F")
        centres[0] = _first_centre(nonzero, norms, rng, first)
        Z[:, 0] = _direction(V, centres[0])

        cosines, _ = V.sweep(_cosines, norms, z=Z[:, 0])
        lazy = LazyScores(np.where(nonzero, -cosines, -np.inf), chosen=1, tie=tie)
        for k in range(1, K):

            def refresh(samples: Array, seen: int, k: int = k) -> Array:
                block = V.columns(samples).astype(np.float64, copy=False)
                nearest: Array = (block.T @ Z[:, seen:k]).max(axis=1) / norms[samples]
                return -nearest

            centres[k], farthest = lazy.worst(k, refresh)
            if -farthest >= 1.0 - tie:
                raise ComponentsError(
                    f"the samples have only {k} distinct direction{'s' * (k > 1)}, fewer than "
                    f"the {K} components asked for: use at most {k}"
                )
            Z[:, k] = _direction(V, centres[k])

        labels, cosines, _ = V.sweep(_assign, norms, Z=Z, tie=tie)
    return Cones(labels, centres, Z, cosines)


def rank_one_factors(
    V: DataMatrix, cones: Cones, *, tol: float = 1e-10, max_passes: int = 200
) -> tuple[Array, Array]:
    """Find the best rank-one factor of every cone (step 2 of Algorithm 2).

    w_k is the leading left singular vector of V_k, the samples of cone k, and h_k = V_k' w_k;
    both are nonnegative, and no other rank-one factor of V_k has a smaller error (Lemma 3).

    Parameters
    ----------
    V : DataMatrix (F, N)
    cones : Cones
        Labels and, as starting vectors, directions.
    tol : float
        Stop when ||V_k V_k' w - theta w|| <= tol * theta for every cone, theta = ||V_k' w||^2.
    max_passes : int
        Stop after so many passes in any case.

    Returns
    -------
    W : array (F, K), unit columns
    H : array (K, N), at most one nonzero in each column
    """
    require_data_matrix(V)
    if cones.directions.shape[0] != V.shape[0]:
        raise ShapeError(
            f"the cones have directions of {cones.directions.shape[0]} features, "
            f"the data have {V.shape[0]}"
        )
    labels = check_labels(V, cones.labels, cones.directions.shape[1])
    if ((labels < 0) & (V.norms_squared > 0)).any():
        raise ShapeError("a sample that is not zero has label -1: every sample needs a cone")
    with V.own_threads():
        w = _leading_vectors(V, labels, cones.directions.T, tol, max_passes)
        h, _ = V.sweep(cone_coefficients, labels, Q=w)
    H = np.zeros((V.shape[1], w.shape[0]), dtype=V.dtype)
    mine = labels >= 0
    H[mine, labels[mine]] = h[mine]
    return w.T.astype(V.dtype, copy=False), H.T


def cr1_nmf(
    V: DataMatrix,
    K: int,
    *,
    rng: np.random.Generator | None = None,
    first: int | None = None,
    tol: float = 1e-10,
) -> tuple[Array, Array, Cones]:
    """Factor V by clustering and rank-one NMF (Algorithm 2, "cr1-nmf").

    The relative error is sqrt(sum_n ||v_n||^2 sin^2(angle of v_n to its w) / ||V||^2), which is
    at most the largest sine of a size angle (Theorem 4).

    Parameters
    ----------
    V : DataMatrix (F, N)
    K, rng, first
        As in `cluster_cones`.
    tol
        As in `rank_one_factors`.

    Returns
    -------
    W : array (F, K)
    H : array (K, N)
    cones : Cones

    Examples
    --------
    >>> from conenmf import from_columns
    >>> W, H, cones = cr1_nmf(from_columns([[2.0, 0.0, 4.0], [0.0, 3.0, 0.0]]), 2, first=0)
    >>> W @ H
    array([[2., 0., 4.],
           [0., 3., 0.]])
    """
    cones = cluster_cones(V, K, rng=rng, first=first)
    W, H = rank_one_factors(V, cones, tol=tol)
    return W, H, cones


# --- Algorithm 1 ------------------------------------------------------------------------------


def _first_centre(
    nonzero: Array, norms: Array, rng: np.random.Generator | None, first: int | None
) -> int:
    if first is not None:
        if not 0 <= first < norms.size or not nonzero[first]:
            raise OptionError(
                f"first={first} is not the index of a nonzero sample: "
                f"there are {norms.size} samples, {nonzero.sum()} of them nonzero"
            )
        return int(first)
    if rng is not None:
        return int(rng.choice(np.flatnonzero(nonzero)))
    return int(np.argmax(norms))


def _direction(V: DataMatrix, n: int) -> Array:
    column = (V.columns([n]).astype(np.float64, copy=False) @ np.ones((1, 1)))[:, 0]
    unit: Array = column / np.linalg.norm(column)
    return unit


def _cosines(block: Block, norms: Array, *, z: Array) -> tuple[Array, None]:
    with np.errstate(invalid="ignore", divide="ignore"):
        return (block.astype(np.float64, copy=False).T @ z) / norms, None


def _assign(block: Block, norms: Array, *, Z: Array, tie: float) -> tuple[Array, Array, None]:
    nonzero = norms > 0
    C = (block.astype(np.float64, copy=False).T @ Z) / np.where(nonzero, norms, 1.0)[:, None]
    best = C.max(axis=1)
    nearest = (C >= best[:, None] - tie).argmax(axis=1)
    return np.where(nonzero, nearest, -1), best, None


# --- Algorithm 2 ------------------------------------------------------------------------------


def _apply(block: Block, labels: Array, *, Q: Array) -> tuple[Array]:
    return (cone_products(block, labels, Q)[1],)


def _leading_vectors(
    V: DataMatrix, labels: Array, start: Array, tol: float, max_passes: int
) -> Array:
    """Maximise ||V_k' w|| over unit w for all k at once; row k of every (K, F) array is cone k's.

    Each step maximises over the span of the current vector w, its residual r and the last
    direction p, and needs the single new product A r with A = V_k V_k'. The products A w and
    A p follow linearly.
    """

    def multiply(q: Array) -> Array:
        product: Array = V.sweep(_apply, labels, Q=q)[0]
        return product

    w = np.ascontiguousarray(start)
    Aw = multiply(w)
    p, Ap = np.zeros_like(w), np.zeros_like(w)
    for _ in range(max_passes):
        theta = _dots(w, Aw)
        r = Aw - theta * w
        size = np.sqrt(_dots(r, r))
        unfinished = size > tol * theta
        if not unfinished.any():
            break
        r *= np.divide(1.0, size, out=np.zeros_like(size), where=unfinished)
        r -= _dots(w, r) * w  # r was a difference: rounding left some of w in it
        Ar = multiply(r)
        for q, Aq in ((w, Aw), (r, Ar)):
            overlap = _dots(q, p)
            p -= overlap * q
            Ap -= overlap * Aq
        size = np.sqrt(_dots(p, p))
        scale = np.divide(1.0, size, out=np.zeros_like(size), where=size > 1e-8)
        p *= scale
        Ap *= scale
        projected = np.empty((w.shape[0], 3, 3))
        for i, q in enumerate((w, r, p)):
            for j, Aq in enumerate((Aw, Ar, Ap)):
                projected[:, i, j] = _dots(q, Aq)[:, 0]
        symmetric = (projected + projected.swapaxes(1, 2)) / 2
        of_w, of_r, of_p = np.linalg.eigh(symmetric)[1][:, :, -1:].swapaxes(0, 1)
        p, Ap = of_r * r + of_p * p, of_r * Ar + of_p * Ap  # the step away from w
        w, Aw = of_w * w + p, of_w * Aw + Ap
    leading: Array = np.abs(w)
    leading /= np.sqrt(_dots(leading, leading))
    return leading


def _dots(a: Array, b: Array) -> Array:
    """Row by row <a_k, b_k>, as a column (K, 1)."""
    products: Array = np.vecdot(a, b)[:, None]
    return products
