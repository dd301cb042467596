"""Cones: Algorithm 1 (which samples go together) and Algorithm 2 (one rank-one factor each).

Algorithm 1 is run exactly but lazily (see `greedy`). Cosines are computed in float64 whatever the
type of the data, and cosines closer than their rounding error count as equal; ties go to the
lowest index.

Algorithm 2 needs the leading singular pair of every cluster. All K are found together, one pass
over V per step, by the locally optimal conjugate gradient method for V_k V_k'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..data.blocks import Array, Block, cone_products
from ..data.doors import check_labels, require_data_matrix, sample_indices
from ..data.matrix import Aligned, DataMatrix, equal_borders
from ..data.sampling import draw_samples
from ..errors import ComponentsError, OptionError, ShapeError, check_components
from .greedy import LazyScores

__all__ = [
    "Cones",
    "cluster_cones",
    "cosine_rounding",
    "cr1_error",
    "cr1_nmf",
    "factors_from_centres",
    "farthest_first",
    "rank_one_factors",
    "require_new_direction",
    "require_samples",
]

_Triple: TypeAlias = tuple[Array, Array, Array]

_CACHED_BYTES = 1 << 18  # of vectors that are worked on together
_KEPT = 8  # products V_k'q that are kept: as many more numbers per sample


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
        smallest = self.cosines[self.labels >= 0].min()
        return float(np.arccos(np.clip(float(smallest), -1.0, 1.0)))


def cluster_cones(
    V: DataMatrix,
    K: int,
    *,
    rng: np.random.Generator | None = None,
    first: int | None = None,
    method: str = "exact",
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
    method : {"exact", "one-pass"}
        "exact" is Algorithm 1, with one small round over the blocks for each centre. "one-pass"
        reads V once instead: every block chooses K centres of its own by Algorithm 1, and the
        final K are chosen among them in the same way; see the notes.

    Notes
    -----
    *One pass finds every cone.* Let samples of different cones be farther apart than samples of
    one cone, which the geometric assumption implies. Then any run of Algorithm 1 on any set of
    samples that come from J cones chooses, if it chooses at least J, one of each cone first: as
    long as some cone has no centre, its samples are farther from every centre (all of other
    cones) than samples of cones with a centre are from theirs, so the next centre belongs to a
    new cone. A block chooses K >= J centres, or all its directions if they are fewer, so its
    choice has a sample of each cone that the block has samples of. The union of two such choices
    has one of each cone in either block, so K centres chosen from the union do too, and so on
    over all blocks: the last choice holds one sample of each of the K cones. Every sample is
    closer to the centre of its own cone than to the others, so all labels are right, up to the
    order of the cones. (Without the assumption the choice is no longer that of Algorithm 1, and
    what `Cones.radius` says about half of the radius holds for "exact" only.)

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = from_columns([[9.0, 1.0, 0.0, 4.0, 0.0], [1.0, 8.0, 0.0, 0.0, 2.0]])
    >>> cluster_cones(V, 2, first=0).labels
    array([ 0,  1, -1,  0,  1])
    """
    require_data_matrix(V, nonzero=True)
    with V.own_threads():
        centres, Z = _choose_centres(V, K, rng, first, method)
        labels, cosines, _ = V.sweep(_assign, V.norms_squared, Z=Z, tie=cosine_rounding(V))
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
    labels = check_labels(V, cones.labels, cones.directions.shape[1], complete=True)
    with V.own_threads():
        first = V.sweep(_multiply, labels, Q=cones.directions.T)
        return _rank_one(V, labels, cones.directions.T, first, tol, max_passes)


def cr1_nmf(
    V: DataMatrix,
    K: int,
    *,
    rng: np.random.Generator | None = None,
    first: int | None = None,
    method: str = "exact",
    tol: float = 1e-10,
) -> tuple[Array, Array, Cones]:
    """Factor V by clustering and rank-one NMF (Algorithm 2, "cr1-nmf").

    The relative error is sqrt(sum_n ||v_n||^2 sin^2(angle of v_n to its w) / ||V||^2), which is
    at most the largest sine of a size angle (Theorem 4).

    Parameters
    ----------
    V : DataMatrix (F, N)
    K, rng, first, method
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
    require_data_matrix(V, nonzero=True)
    with V.own_threads():
        centres, Z = _choose_centres(V, K, rng, first, method)
        return factors_from_centres(V, centres, Z, tol)


def factors_from_centres(
    V: DataMatrix, centres: Array, Z: Array, tol: float
) -> tuple[Array, Array, Cones]:
    """Return what `cr1_nmf` does, from centres that are chosen and their directions Z (F, K)."""
    with V.own_threads():
        labels, cosines, *products = V.sweep(
            _assign_and_multiply, V.norms_squared, Z=Z, tie=cosine_rounding(V)
        )
        W, H = _rank_one(V, labels, Z.T, tuple(products), tol)
    return W, H, Cones(labels, centres, Z, cosines)


def cr1_error(V: DataMatrix, H: Aligned) -> float:
    """Return the relative error of cr1-nmf, of which H are the coefficients."""
    (explained,) = V.map(_sum_of_squares, H.T)
    return float(np.sqrt(max(1.0 - explained / V.total, 0.0)))


def _sum_of_squares(samples: range, H: Array) -> tuple[float]:
    return (float(np.einsum("nk,nk->", H, H, dtype=np.float64)),)


# --- Algorithm 1 ------------------------------------------------------------------------------


def _choose_centres(
    V: DataMatrix, K: int, rng: np.random.Generator | None, first: int | None, method: str
) -> tuple[Array, Array]:
    """Which samples are centres, and their directions (F, K)."""
    K = check_components(K)
    if method not in _METHODS:
        raise OptionError.unknown("method", method, _METHODS)
    require_samples(V, K)
    first = _first_centre(V, rng, first)
    if V.is_one_block:  # whose own choice is that of Algorithm 1, without any rounds
        method = "one-pass"
    return _METHODS[method](V, K, first, cosine_rounding(V))


def cosine_rounding(V: DataMatrix) -> float:
    """Return how close two cosines to samples of V must be to count as equal."""
    return float(8.0 * np.finfo(np.float64).eps * np.sqrt(V.shape[0]))


def require_samples(V: DataMatrix, K: int) -> None:
    """Raise an error if V has fewer than K samples that are not zero."""
    if V.nonzero < K:
        raise ComponentsError(
            f"there are {V.nonzero} nonzero samples, fewer than the {K} components asked for"
        )


def _first_centre(V: DataMatrix, rng: np.random.Generator | None, first: int | None) -> int:
    if first is not None:
        squared = V.norms_squared[first] if 0 <= first < V.shape[1] else 0.0
        if not float(squared) > 0:
            raise OptionError(
                f"first={first} is not the index of a nonzero sample: "
                f"there are {V.shape[1]} samples, {V.nonzero} of them nonzero"
            )
        return int(first)
    if rng is not None:
        return int(draw_samples(V, 1, rng)[0])
    ((_, longest),) = V.map(_longest, V.norms_squared, reduce=_longer)
    return int(longest)


def _longest(samples: range, squared: Array) -> tuple[tuple[float, int]]:
    n = int(np.argmax(squared))
    return ((float(squared[n]), samples[n]),)


def _longer(a: tuple[float, int], b: tuple[float, int]) -> tuple[float, int]:
    return b if b[0] > a[0] else a


def _exact_centres(V: DataMatrix, K: int, first: int, tie: float) -> tuple[Array, Array]:
    """The loop of Algorithm 1: which samples are centres, and their directions (F, K)."""
    centres = np.empty(K, dtype=np.intp)
    Z = np.empty((V.shape[0], K), order="F")
    centres[0] = first
    Z[:, 0] = _unit(V.columns([first]).astype(np.float64, copy=False) @ np.ones(1))
    scores, _ = V.sweep(_first_scores, V.norms_squared, z=Z[:, 0])
    lazy = LazyScores(V, scores, _score, chosen=1, tie=tie)
    for k in range(1, K):
        centres[k], farthest, column = lazy.worst(k, Z=Z[:, :k])
        require_new_direction(-farthest, k, K, tie)
        Z[:, k] = _unit(column)
    return centres, Z


def _first_scores(block: Block, squared: Array, *, z: Array) -> tuple[Array, None]:
    """Minus the cosine to the first centre; zero samples are never chosen."""
    products = block.astype(np.float64, copy=False).T @ z
    nonzero = squared > 0
    return np.where(nonzero, -products / np.sqrt(np.where(nonzero, squared, 1.0)), -np.inf), None


def _score(block: Block, squared: Array, *, seen: int, Z: Array) -> Array:
    """Minus the largest cosine to the centres that are new."""
    products = Z[:, seen:].T @ block.astype(np.float64, copy=False)
    nearest: Array = products.max(axis=0) / np.sqrt(squared)
    return -nearest


def _one_pass_centres(V: DataMatrix, K: int, first: int, tie: float) -> tuple[Array, Array]:
    """Choose K centres in every block, and K among those."""
    index, _ = V.map(sample_indices)
    options = {"K": K, "first": first, "tie": tie}
    (chosen,) = V.sweep(
        _centres_of_block, index, V.norms_squared, reduce=_centres_of_two, **options
    )
    if chosen.samples.size < K:
        require_new_direction(1.0, chosen.samples.size, K, tie)
    return chosen.samples, chosen.Z


class _Choice(NamedTuple):
    """Centres chosen from some of the samples: their indices and directions (F, K)."""

    samples: Array
    Z: Array
    options: dict[str, Any]


def _centres_of_block(block: Block, index: Array, squared: Array, **options: Any) -> tuple[_Choice]:
    """Algorithm 1 on a few samples; fewer than K centres if there are no more directions."""
    K, first, tie = options["K"], options["first"], options["tie"]
    exact = block.astype(np.float64, copy=False)
    norms = np.sqrt(np.where(squared > 0, squared, 1.0))
    scores = np.where(squared > 0, np.inf, -np.inf)  # minus the largest cosine to a centre
    scores = np.where(index == first, np.inf, np.minimum(scores, 2.0))
    chosen, Z = farthest_first(exact, norms, scores, K, -1.0, tie)
    return (_Choice(index[chosen], Z, options),)


def farthest_first(
    block: Block, norms: Array, scores: Array, most: int, enough: float, tie: float
) -> tuple[list[int], Array]:
    """Choose samples of a block, each the farthest from all centres before it.

    Parameters
    ----------
    block : float64 block (F, n)
    norms : array (n,)
        Lengths of the samples; anything positive for a zero sample.
    scores : array (n,)
        Minus the largest cosine to the centres there are already; -inf for a sample that must
        not be chosen.
    most : int
        Choose no more than so many.
    enough : float
        Choose only samples with scores above this; -1 asks for a new direction only.
    tie : float
        Scores closer than this count as equal, and the first sample wins.

    Returns
    -------
    chosen : list of int
    Z : array (F, m)
        Their directions, unit vectors.
    """
    chosen: list[int] = []
    Z = np.empty((block.shape[0], most), order="F")
    while len(chosen) < most and scores.max() > enough + tie:
        chosen.append(int(np.argmax(scores >= scores.max() - tie)))
        member = np.zeros(scores.size)
        member[chosen[-1]] = 1.0
        z = Z[:, len(chosen) - 1] = _unit(block @ member)
        scores = np.minimum(scores, -(block.T @ z) / norms)
    return chosen, Z[:, : len(chosen)]


def _centres_of_two(a: _Choice, b: _Choice) -> _Choice:
    samples, Z = np.concatenate([a.samples, b.samples]), np.hstack([a.Z, b.Z])
    return _centres_of_block(Z, samples, np.ones(samples.size), **a.options)[0]


_METHODS = {"exact": _exact_centres, "one-pass": _one_pass_centres}


def _unit(column: Array) -> Array:
    unit: Array = column / np.linalg.norm(column)
    return unit


def require_new_direction(cosine: float, k: int, K: int, tie: float) -> None:
    """Raise an error if the sample farthest from k centres has the direction of one of them."""
    if cosine >= 1.0 - tie:
        raise ComponentsError(
            f"the samples have only {k} distinct direction{'s' * (k > 1)}, fewer than "
            f"the {K} components asked for: use at most {k}"
        )


def _assign(block: Block, squared: Array, *, Z: Array, tie: float) -> tuple[Array, Array, None]:
    nonzero = squared > 0
    norms = np.sqrt(np.where(nonzero, squared, 1.0))
    C = (Z.T @ block.astype(np.float64, copy=False)) / norms
    best = C.max(axis=0)
    nearest = (C >= best - tie).argmax(axis=0)
    return np.where(nonzero, nearest, -1), best, None


def _assign_and_multiply(
    block: Block, squared: Array, *, Z: Array, tie: float
) -> tuple[Array, Array, Array, Array]:
    """Assign samples, and take the first step of Algorithm 2 while they are at hand."""
    labels, cosines, _ = _assign(block, squared, Z=Z, tie=tie)
    return labels, cosines, *_multiply(block, labels, Q=Z.T)


# --- Algorithm 2 ------------------------------------------------------------------------------


def _multiply(block: Block, labels: Array, *, Q: Array) -> tuple[Array, Array]:
    """V_k'q_k and V_k V_k'q_k; row k of Q is q_k."""
    return cone_products(block, labels, Q)


def _rank_one(
    V: DataMatrix,
    labels: Aligned,
    start: Array,
    products: tuple[Any, ...],
    tol: float,
    max_passes: int = 200,
) -> tuple[Array, Array]:
    """Factors W and H, from starting vectors and what `_multiply` makes of them.

    The coefficients V_k'w follow from those of the vectors that w was put together from, unless
    these are too many to be kept, or w had negative entries.
    """
    w, shares, heights = _leading_vectors(V, labels, start, products, tol, max_passes)
    signs = np.where(w.sum(axis=1, keepdims=True) < 0, -1.0, 1.0)
    sizes = signs * np.sqrt(_dots(w, w))
    w /= sizes
    leading: Array = np.abs(w)
    turned = leading - w
    if heights and (_dots(turned, turned) <= np.finfo(np.float64).eps ** 2).all():
        Ht, _ = V.map(_put_together, labels, *heights, shares=shares / sizes, dtype=V.dtype)
    else:
        Ht, _ = V.sweep(_one_coefficient_each, labels, Q=leading)
    return leading.T.astype(V.dtype, copy=False), Ht.T


def _put_together(
    samples: range, labels: Array, *heights: Array, shares: Array, dtype: np.dtype[Any]
) -> tuple[Array, None]:
    h = np.zeros(labels.size)
    for share, height in zip(shares.T, heights, strict=False):
        h += share[labels] * height
    return _in_own_cone(labels, np.maximum(h, 0.0), shares.shape[0], dtype), None


def _one_coefficient_each(block: Block, labels: Array, *, Q: Array) -> tuple[Array, None]:
    h, _ = cone_products(block, labels, Q, sums=False)
    return _in_own_cone(labels, h, Q.shape[0], block.dtype), None


def _in_own_cone(labels: Array, h: Array, K: int, dtype: np.dtype[Any]) -> Array:
    """Rows of H, zero but for the coefficient of the sample's own cone."""
    H = np.zeros((labels.size, K), dtype=dtype)
    mine = np.flatnonzero(labels >= 0)
    H[mine, labels[mine]] = h[mine]
    return H


def _leading_vectors(
    V: DataMatrix,
    labels: Aligned,
    start: Array,
    products: tuple[Any, ...],
    tol: float,
    max_passes: int,
) -> tuple[Array, Array, list[Aligned]]:
    """Maximise ||V_k' w|| over unit w for all k at once; row k of every array is cone k's.

    Each step maximises over the span of the current vector w, its residual r and the last
    direction p, and needs the single new product A r with A = V_k V_k'. The products A w and
    A p follow linearly.

    Returns w; its shares (K, m) in the vectors that were multiplied, the start and every r; and
    V_k' times each of these, an empty list if there are too many.
    """
    K, F = start.shape
    h, Aw = products
    heights = [h]
    w = start.copy(), Aw, np.eye(1, _KEPT).repeat(K, axis=0)  # the vectors, A times them, shares
    p = np.zeros_like(Aw), np.zeros_like(Aw), np.zeros((K, _KEPT))
    groups = [slice(*border) for border in equal_borders(K, 1 + _CACHED_BYTES // (8 * F))]
    for _ in range(max_passes):
        r = np.empty_like(Aw)
        unfinished = [_residual(w[0][few], Aw[few], r[few], tol) for few in groups]
        if not any(unfinished):
            break
        h, Ar = V.sweep(_multiply, labels, Q=r)
        heights = [*heights, h] if 0 < len(heights) < _KEPT else []
        in_r = np.eye(1, _KEPT, max(len(heights) - 1, 0)).repeat(K, axis=0)
        for few in groups:
            _best_in_span(_rows(w, few), _rows((r, Ar, in_r), few), _rows(p, few))
    return w[0], w[2], heights


def _rows(triple: _Triple, few: slice) -> _Triple:
    return triple[0][few], triple[1][few], triple[2][few]


def _residual(w: Array, Aw: Array, r: Array, tol: float) -> bool:
    """Put A w - theta w, as unit vectors, into r; whether any was too large."""
    theta = _dots(w, Aw)
    np.subtract(Aw, theta * w, out=r)
    size = np.sqrt(_dots(r, r))
    unfinished = size > tol * theta
    r *= np.divide(1.0, size, out=np.zeros_like(size), where=unfinished)
    r -= _dots(w, r) * w  # r was a difference: rounding left some of w in it
    return bool(unfinished.any())


def _best_in_span(w: _Triple, r: _Triple, p: _Triple) -> None:
    """Replace w by the best unit vector in the span of w, r and p, and p by the step from w."""
    for q in (w, r):
        overlap = _dots(q[0], p[0])
        for of_p, of_q in zip(p, q, strict=True):
            of_p -= overlap * of_q
    size = np.sqrt(_dots(p[0], p[0]))
    scale = np.divide(1.0, size, out=np.zeros_like(size), where=size > 1e-8)
    for of_p in p:
        of_p *= scale
    projected = np.empty((len(size), 3, 3))
    for i, (left, _, _) in enumerate((w, r, p)):
        for j, (_, right, _) in enumerate((w, r, p)):
            projected[:, i, j] = _dots(left, right)[:, 0]
    symmetric = (projected + projected.swapaxes(1, 2)) / 2
    by_w, by_r, by_p = np.linalg.eigh(symmetric)[1][:, :, -1:].swapaxes(0, 1)
    for of_w, of_r, of_p in zip(w, r, p, strict=True):
        of_p *= by_p
        of_p += by_r * of_r
        of_w *= by_w
        of_w += of_p


def _dots(a: Array, b: Array) -> Array:
    """Row by row <a_k, b_k>, as a column (K, 1)."""
    products: Array = np.vecdot(a, b)[:, None]
    return products
