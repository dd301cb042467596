"""Inits: the factors W (F, K) and H (K, N) from which a solver starts.

An init is a function ``(V, K, rng) -> (W, H)``; if H is None, the best H for W is used. `INITS`
gives each a name. `initialize` looks an init up or checks the user's own, and prepares the factors
for a solver. `race` compares several of them for "auto".

- From cones: the factors of Algorithm 2 of the paper, to the accuracy that an init needs. If
  samples lie in cones, these are close to the best possible factors. If samples are mixtures of
  several components, they are not.
- From the leading singular vectors: NNDSVD and its variants use their positive or negative parts,
  or those of rotated vectors.
  For two components there are exact factors (`cones.geometry`).
- From samples drawn at random (Langville, Meyer, Albright, Cox and Duling, 2006): components are
  means of a few samples each, or samples drawn in proportion to their squared norms, as in a CUR
  decomposition (Drineas, Kannan and Mahoney, 2006).
- From clusters: spherical k-means and k-means; k-means with the Kullback-Leibler divergence instead
  of the squared distance (Xue, Tong, Chen and Chen, 2008); and fuzzy c-means, where every sample
  belongs to all clusters to some degree (Zheng, Yang and Zhu, 2007). scikit-learn's k-means is not
  used because it needs all samples in memory.
- From samples at the corners of separable data (`separable`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.linalg import norm, qr
from numpy.random import default_rng
from numpy.typing import ArrayLike

from ..arguments import choice, factor, function, generator, optional
from ..cones.clustering import Cones, require_samples
from ..cones.geometry import rank_two_factors
from ..cones.rank_one import cr1_nmf, cr1_plus_plus
from ..data.blocks import Block, dense, exact, over, unit_columns
from ..data.matrix import Aligned, DataMatrix, Factors, PerSample
from ..data.resample import (
    draw_longest,
    draw_samples,
    draw_weighted,
    new_seed,
    uniform_rows,
)
from ..data.validate import (
    aligned_coefficients,
    check_components,
    check_factors,
    require_data_matrix,
)
from ..data.views import dense_samples
from ..errors import ComponentsError, DataError
from ..io.open import is_elsewhere
from ..linalg.svd import KnownSpectrum, Spectrum, tie_share
from ..names import in_order
from ..text import function_name, shown
from ..types import Array, DType, Pair, Shape
from .coefficients import coefficients
from .scenes import ENDMEMBERS
from .separable import snpa, spa
from .solvers import ChosenSolver

Generator: TypeAlias = np.random.Generator | None
# ``(V, K, rng) -> (W, H)``; H may be None, which means "the best H for this W".
InitFunction: TypeAlias = Callable[[DataMatrix, int, Generator], Factors]

# An init that returns W alone.
Components: TypeAlias = Callable[[DataMatrix, int, np.random.Generator], Array]

_TWINS = {"custom": "a pair of arrays, init=(W, H),"}  # scikit-learn's name
_NEGLIGIBLE_SHARE = 1e-12  # of the largest value: smaller values are rounding


class Start(NamedTuple):
    """The factors from which a solver starts.

    Attributes
    ----------
    W : array (F, K)
    H : array (K, N) or None
    name : str
        The name of the init.
    reason : str
        Why the init chose these endmembers, if it chose among models of a scene.
    is_shaded : bool
        Whether the brightness of pixels varies, so that coefficients are not to sum to one.
    """

    W: Array
    H: Aligned | None
    name: str
    reason: str = ""
    is_shaded: bool = False


def check_factor(value: ArrayLike, shape: Shape, name: str, dtype: npt.DTypeLike) -> Array:
    """Return a factor that a user gave as a new array; raise `DataError` if it is invalid."""
    with np.errstate(over="ignore"):
        array = factor(name, factor(name, value, shape).astype(dtype), shape)
    if not array.any():
        raise DataError(f"{name} is all zero, and no solver can leave that point")
    return array


def lift_zeros(V: DataMatrix, H: Aligned) -> Aligned:
    """Add the mean of the positive entries to every entry of H (K, N).

    The factors of Algorithm 2 are a fixed point of `mult` (Lemma 15 of the paper). After lifting,
    as in the published experiments, they are not.

    >>> from conenmf import from_columns
    >>> lift_zeros(from_columns(np.eye(2)), np.array([[0.0, 1.0], [3.0, 0.0]]))
    array([[2., 3.],
           [5., 2.]])
    """
    Ht = aligned_coefficients(V, H)
    (largest,) = V.map(lambda _, H: (float(H.max()),), Ht, reduce=max)
    (total, count) = V.map(_sum_of_positive, Ht, above=_NEGLIGIBLE_SHARE * largest)[0]
    by = total / count if count else 1.0
    return V.by_rows(lambda index, H: (H + by).astype(H.dtype, copy=False), Ht).T


def _sum_of_positive(index: range, H: Array, *, above: float) -> tuple[tuple[float, int]]:
    positive = H[H > above]  # positive or negative rounding counts as zero
    return ((float(positive.sum(dtype=float)), positive.size),)


def random_coefficients(V: DataMatrix, K: int, rng: np.random.Generator) -> Aligned:
    """Return an H (K, N) with uniform entries on [0, 1)."""
    seed = new_seed(rng)
    dtype = V.dtype
    return V.by_rows(lambda index: uniform_rows(index, K, seed).astype(dtype)).T


_AXIS_TOL = 5e-2  # of the axes of cones, for an init

CONE_INITS: dict[str, Callable[..., tuple[Array, Array, Cones]]] = {
    "cr1": cr1_nmf,
    "cr1-robust": partial(cr1_nmf, method="robust"),
    "cr1++": cr1_plus_plus,
}


def from_cones(
    V: DataMatrix,
    K: int,
    rng: Generator,
    name: str = "cr1",
    spectrum: KnownSpectrum = None,
) -> Start:
    """Return the factors of cr1-nmf, or of another of `CONE_INITS`.

    If clusters are evident, "cr1-robust" equals "cr1" and gets this name.
    """
    known = {"spectrum": spectrum} if name == "cr1-robust" else {}
    W, H, cones = CONE_INITS[name](V, K, rng=rng, tol=_AXIS_TOL, **known)
    if name == "cr1-robust" and not cones.moved:
        name = "cr1"
    return Start(W, H, name)


def nndsvd(
    V: DataMatrix, K: int, rng: Generator = None, *, spectrum: KnownSpectrum = None
) -> Factors:
    """Compute nonnegative double SVD with zeros (Boutsidis and Gallopoulos, 2008).

    From each singular pair after the first, the positive parts or the negative parts are used,
    whichever have the larger norm; the positive parts if both norms are equal up to rounding, as
    for data that are their own mirror image.
    """
    U, sigma, R = Spectrum.of(V, spectrum).truncated_svd(K, rough=True)
    (squares_R,) = V.map(lambda _, rows: (_squares_of_parts(rows),), R.T)
    norms = np.sqrt([_squares_of_parts(U), squares_R])
    positive, negative = norms.prod(axis=0)
    best = (negative > positive * (1.0 + tie_share(V))).astype(int)
    order = np.arange(K)
    norms_U, norms_R = norms[:, best, order]
    signs = 1.0 - 2.0 * best
    signs[0] = 0.0  # the first pair has one sign and is used as a whole
    norms_U[0] = 1.0
    norms_R[0] = 1.0
    used = np.where(sigma > _NEGLIGIBLE_SHARE * sigma[0], sigma, 0.0)
    sizes = np.sqrt(used * norms_U * norms_R)
    W = _parts(U, order, signs) * over(sizes, norms_U)
    Ht, largest = V.map(
        _sized_parts, R.T, reduce=max, pairs=order, signs=signs, sizes=over(sizes, norms_R)
    )
    W[_NEGLIGIBLE_SHARE * W.max() > W] = 0
    floor = _NEGLIGIBLE_SHARE * largest
    dtype = V.dtype
    Ht = V.by_rows(lambda index, H: np.where(floor > H, 0, H).astype(dtype), Ht)
    return W.astype(dtype), Ht.T


def _squares_of_parts(R: Array) -> Array:
    """Return squared norms of the positive and the negative part of each column."""
    return np.stack([(np.maximum(sign * R, 0) ** 2).sum(axis=0) for sign in (1.0, -1.0)])


def _parts(vectors: Array, pairs: Array, signs: Array) -> Array:
    """Return the positive or negative part of a column by its sign; absolute values for 0."""
    columns = np.where(np.abs(vectors) > _NEGLIGIBLE_SHARE, vectors, 0)[:, pairs]
    return np.where(signs == 0, np.abs(columns), np.maximum(signs * columns, 0))


def _sized_parts(
    index: range, R: Array, *, pairs: Array, signs: Array, sizes: Array
) -> tuple[Array, float]:
    parts = _parts(R, pairs, signs) * sizes
    return parts, float(parts.max())


def nndsvda(
    V: DataMatrix, K: int, rng: Generator = None, *, spectrum: KnownSpectrum = None
) -> Factors:
    """Return `nndsvd` with zeros replaced by the mean of V."""
    W, H = nndsvd(V, K, spectrum=spectrum)
    mean = V.mean()
    Ht = V.by_rows(lambda index, H: np.where(H == 0, mean, H).astype(H.dtype), H.T)
    return np.where(W == 0, mean, W).astype(V.dtype), Ht.T


def nndsvdar(
    V: DataMatrix, K: int, rng: Generator = None, *, spectrum: KnownSpectrum = None
) -> Factors:
    """Return `nndsvd` with zeros replaced by random numbers up to a hundredth of the mean of V."""
    rng = default_rng(rng)
    W, H = nndsvd(V, K, spectrum=spectrum)
    largest = V.mean() / 100
    filled_W = np.where(W == 0, rng.random(W.shape) * largest, W)
    seed = new_seed(rng)

    def filled(index: range, H: Array) -> Array:
        return np.where(H == 0, uniform_rows(index, K, seed) * largest, H).astype(H.dtype)

    return filled_W.astype(V.dtype), V.by_rows(filled, H.T).T


def nndsvd_rotated(
    V: DataMatrix, K: int, rng: Generator = None, *, spectrum: KnownSpectrum = None
) -> Factors:
    """Return the positive or the negative parts of randomly rotated left singular vectors.

    With U diag(sigma) Q for a random orthogonal Q, other rotations give other starts. For a seed
    they depend on V alone, not on the order of its samples or features. K may exceed the rank.
    """
    rank = min(K, *V.shape)
    U, sigma, _ = Spectrum.of(V, spectrum).truncated_svd(rank, rough=True)
    Q = qr(default_rng(rng).standard_normal((K, K)))[0]
    B = (U * sigma) @ Q[:rank]
    best = _squares_of_parts(B).argmax(axis=0)
    return _parts(B, np.arange(K), 1.0 - 2.0 * best).astype(V.dtype), None


def rank_two(
    V: DataMatrix, K: int, rng: Generator = None, *, spectrum: KnownSpectrum = None
) -> Factors:
    """Return the best two components in the plane of the two leading singular vectors.

    If the best approximation of rank two is nonnegative, these are its exact factors, and no other
    factors with two components have a smaller error.
    """
    if K != 2:
        raise ComponentsError(
            f"rank-two makes 2 components, not the {K} asked for; choose another init"
        )
    return rank_two_factors(V, spectrum=spectrum)


SVD_INITS = {
    "nndsvd": nndsvd,
    "nndsvda": nndsvda,
    "nndsvdar": nndsvdar,
    "nndsvd-rotated": nndsvd_rotated,
    "rank-two": rank_two,
}


_SAMPLES_PER_MEAN = 20  # as in the published experiments
_LONGEST_SHARE = 0.2  # of the samples, from which random C draws


def _acol(V: DataMatrix, K: int, rng: np.random.Generator) -> Array:
    """Random Acol: use the mean of 20 random samples as each component."""
    count = min(_SAMPLES_PER_MEAN, V.nonzero)
    return _means(V, [draw_samples(V, count, rng) for _ in range(K)])


def _random_c(V: DataMatrix, K: int, rng: np.random.Generator) -> Array:
    """Random C: use means of random samples from the fifth with the largest norms."""
    longest = draw_longest(V, max(K, math.ceil(_LONGEST_SHARE * V.nonzero)))
    count = min(_SAMPLES_PER_MEAN, longest.size)
    return _means(V, [rng.choice(longest, count, replace=False) for _ in range(K)])


def _cur(V: DataMatrix, K: int, rng: np.random.Generator) -> Array:
    """CUR: draw K different samples in proportion to their squared norms."""
    return _samples(V, draw_weighted(V, K, rng))


def _means(V: DataMatrix, groups: list[Array]) -> Array:
    return np.column_stack([dense(V.columns(indices)).mean(axis=1) for indices in groups])


_KMEANS_MAX_ITER = 10  # as in the published experiments with spherical k-means
_TIE_SHARE = 1e-12  # of the largest squared norm: differences of distances up to this are rounding
_FUZZY_MAX_ITER = 30
_FUZZY_TOL = 1e-3  # of the largest centroid: stop when all centroids move by less
_CENTROID_FLOOR = 1e-3  # smallest entry of a centroid, as a share of the mean entry


def _spkm(V: DataMatrix, K: int, rng: np.random.Generator) -> Array:
    """Run spherical k-means; return unit centroids."""
    return _lloyd(V, K, rng, "angle")[0]


def kmeans(V: DataMatrix, K: int, rng: Generator = None, *, kind: str = "distance") -> Factors:
    """Run k-means: centroids; H is the cluster indicator plus 0.2.

    With the kind "divergence", distances are sum_f v log(v / c) - v + c; the mean of a cluster also
    minimises these. Entries of a centroid are raised to at least a thousandth of the mean entry of
    V. Otherwise samples with a feature that is zero in the whole cluster would have an infinite
    divergence from it.
    """
    W, labels = _lloyd(V, K, default_rng(rng), kind)
    dtype = V.dtype
    Ht = V.by_rows(lambda index, own: (0.2 + np.eye(K)[own]).astype(dtype), labels)
    return W.astype(dtype), Ht.T


def fuzzy(V: DataMatrix, K: int, rng: Generator = None) -> Factors:
    """Run fuzzy c-means with exponent 2: centroids; H contains the memberships u_kn.

    u_kn is proportional to 1 / ||v_n - c_k||^2 and sums to 1 over k; c_k is the mean of all
    samples with weights u_kn^2.
    """
    rng = default_rng(rng)
    require_samples(V, K)
    with V.own_threads():
        centroids = _weighted_columns(V, draw_samples(V, K, rng), "distance")
        for _ in range(_FUZZY_MAX_ITER):
            sums, totals = V.sweep(_fuzzy_sums, V.norms_squared, centroids=centroids)[0]
            moved = np.maximum(sums / np.maximum(totals, 1e-300), 0.0)
            shift = np.abs(moved - centroids).max()
            centroids = moved
            if shift <= _FUZZY_TOL * centroids.max():
                break
        Ht, _ = V.sweep(_memberships, V.norms_squared, centroids=centroids, dtype=V.dtype)
    return centroids.astype(V.dtype), Ht.T


def _lloyd(V: DataMatrix, K: int, rng: np.random.Generator, kind: str) -> Factors:
    """Run a few Lloyd iterations from K random samples; return centroids and labels.

    An empty cluster gets another random sample. `kind` selects the distance of a sample from a
    centroid: see `_distances`.
    """
    require_samples(V, K)
    floor = _CENTROID_FLOOR * V.mean() if kind == "divergence" else 0.0
    with V.own_threads():
        centroids = _weighted_columns(V, draw_samples(V, K, rng), kind)
        for _ in range(_KMEANS_MAX_ITER):
            floored = np.maximum(centroids, floor)
            before = centroids
            labels, (sums, counts) = V.sweep(
                _nearest, V.norms_squared, centroids=floored, kind=kind
            )
            means = sums / np.maximum(counts, 1)
            empty = np.flatnonzero(counts == 0)
            if empty.size:
                means[:, empty] = _weighted_columns(V, draw_samples(V, empty.size, rng), kind)
            centroids = np.maximum(means, 0.0)
            if kind == "angle":
                centroids = centroids / np.maximum(norm(centroids, axis=0), 1e-300)
            if np.array_equal(centroids, before):
                break
    return centroids, labels


def _weighted_columns(V: DataMatrix, indices: Array, kind: str) -> Array:
    columns = np.ascontiguousarray(dense(V.columns(indices)))
    return unit_columns(columns) if kind == "angle" else columns


def _nearest(block: Block, squared: Array, *, centroids: Array, kind: str) -> tuple[Array, Pair]:
    """Label samples by their nearest centroid; return sums and counts per label."""
    exact_block = exact(block)
    weights = np.ones_like(squared)
    if kind == "angle":
        weights = np.sqrt(over(1.0, squared))
    distances, sizes = _distances(exact_block, weights, centroids, kind)
    tie = _TIE_SHARE * sizes.max()
    labels = (distances <= distances.min(axis=1, keepdims=True) + tie).argmax(axis=1)
    member = np.eye(centroids.shape[1])[labels]
    return labels, (exact_block @ (member * weights[:, None]), member.sum(axis=0))


def _distances(block: Block, weights: Array, centroids: Array, kind: str) -> Pair:
    """Return distances of samples from centroids (n, K), up to a constant per sample, and sizes.

    These are squared distances of samples times their weights, or Kullback-Leibler divergences.
    """
    if kind == "divergence":
        sizes = centroids.sum(axis=0)
        return sizes - block.T @ np.log(centroids), sizes
    sizes = (centroids**2).sum(axis=0)
    return sizes - 2.0 * (block.T @ centroids) * weights[:, None], sizes


def _fuzzy_sums(block: Block, squared: Array, *, centroids: Array) -> tuple[Pair]:
    """Return the sums of samples with weights u^2 for each cluster, and the sums of the weights."""
    samples = exact(block)
    weights = _membership(samples, squared, centroids) ** 2
    return ((samples @ weights, weights.sum(axis=0)),)


def _memberships(block: Block, squared: Array, *, centroids: Array, dtype: DType) -> PerSample:
    return _membership(exact(block), squared, centroids).astype(dtype), None


def _membership(samples: Block, squared: Array, centroids: Array) -> Array:
    """Return u_nk, proportional to the inverse squared distance; 1 at distance zero."""
    distances, sizes = _distances(samples, np.ones_like(squared), centroids, "distance")
    distances = distances + squared[:, None]
    rounding = _TIE_SHARE * (squared[:, None] + sizes)
    nearest = distances.min(axis=1, keepdims=True)
    at = distances <= rounding  # the sample equals that centroid up to rounding
    ratio = np.where(at.any(axis=1, keepdims=True), at, nearest / np.maximum(distances, rounding))
    return ratio / ratio.sum(axis=1, keepdims=True)


Init: TypeAlias = str | InitFunction | ArrayLike | tuple[Any, Any]


def initialize(
    V: DataMatrix,
    K: int,
    init: Init,
    solver: ChosenSolver,
    rng: Generator = None,
    *,
    spectrum: KnownSpectrum = None,
) -> Start:
    """Return the factors from which a solver starts.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    init : str, callable, array (F, K) or pair of arrays (F, K), (K, N)
        A name in `INITS`; a function ``(V, K, rng) -> (W, H or None)``; W alone, or W and H. The
        function always gets a generator: `rng`, or one with the seed 0.
    solver : Solver or None
        The solver that will start here. With None, or a solver that first computes the best H, only
        W is returned. If the solver needs it, zeros of H are replaced by small numbers.
    rng : numpy.random.Generator, optional
        For random inits. Without it "cr1" starts from the sample with the largest norm, and other
        inits differ from call to call.
    spectrum : Spectrum, optional
        The spectrum of V, for inits that need singular vectors.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> start = initialize(from_columns([[3.0, 0.0, 1.0], [0.0, 2.0, 0.0]]), 2, "cr1", None)
    >>> start.W.shape, start.name
    ((2, 2), 'cr1')
    """
    require_data_matrix(V, holes=not isinstance(init, str))
    K = check_components(K, V)
    rng = optional(generator, "rng", rng)
    initial = (
        _named(V, K, init, rng, spectrum) if isinstance(init, str) else users_own(V, K, init, rng)
    )
    W, H, name, *_ = initial = initial._replace(W=initial.W.astype(V.dtype, copy=False))
    if solver is None or (solver.first == "H" and not solver.lift_zeros):
        return initial._replace(H=H if solver is not None and solver.sweeps else None)
    exact = H is None or name in CONE_INITS  # zeros of such an H are exact, not guesses
    if H is None:
        H = coefficients(V, W)[0]
    return initial._replace(H=lift_zeros(V, H) if exact and solver.lift_zeros else H)


def _named(V: DataMatrix, K: int, init: str, rng: Generator, spectrum: KnownSpectrum) -> Start:
    choice("init", init, ("auto", *INITS), _TWINS)
    if init in CONE_INITS:
        return from_cones(V, K, rng, init, spectrum)
    if init in SVD_INITS:
        return Start(*SVD_INITS[init](V, K, rng, spectrum=spectrum), init)
    return Start(*INITS[init](V, K, rng), init)


def of_counted_samples(V: DataMatrix, init: Init) -> Init:
    """Return an init for a view of weighted samples from one for the original samples.

    Only a pair of factors changes: its coefficients, like those of a result, belong to the original
    samples.
    """
    own = V.unweighed
    if own is None or not isinstance(init, tuple) or len(init) != 2:
        return init
    W, H = init
    H = in_order(own.V.names.turned(), "H", H, "", "feature")
    if not is_elsewhere(H):
        H = factor("H", H, ("K", own.V.n_samples))
    return W, own.weighed(H)


def users_own(V: DataMatrix, K: int, init: object, rng: Generator) -> Start:
    """Validate factors supplied by the user or by the user's init function.

    The function always gets a generator; it is seeded with 0 if the caller gave none.
    """
    name = function_name(init)
    if callable(init):
        rng = default_rng(0) if rng is None else rng
        init = function("init", init, takes=3)(V, K, rng)
        if not isinstance(init, tuple):
            raise DataError(f"the init returned {shown(init)}, expected the pair (W, H)")
    if isinstance(init, tuple) and len(init) != 2:
        raise DataError(f"init is a tuple of {len(init)}, expected the pair (W, H)")
    W, H = init if isinstance(init, tuple) else (init, None)
    F, N = V.shape
    names = V.names.turned()  # features are rows of W, samples are columns of H
    W = check_factor(in_order(names, "W", W, "sample", ""), (F, K), "W", V.dtype)
    if H is not None:
        H = in_order(names, "H", H, "", "feature")
        if not is_elsewhere(H):
            return Start(W, check_factor(H, (K, N), "H", V.dtype), name)
        Ht = check_factors(V, W, H)[1]
        dtype = V.dtype
        H = V.by_rows(lambda index, rows: np.ascontiguousarray(rows, dtype), Ht).T
    return Start(W, H, name)


def _cones(V: DataMatrix, K: int, rng: Generator, *, name: str) -> Factors:
    """Run clustering and rank-one NMF, to the accuracy that an init needs."""
    return from_cones(V, K, rng, name)[:2]


def _random(V: DataMatrix, K: int, rng: Generator) -> Factors:
    """Return factors with uniform entries on [0, 1)."""
    rng = default_rng(rng)
    W = rng.random((V.n_features, K)).astype(V.dtype)
    return W, random_coefficients(V, K, rng)


def _of_samples(V: DataMatrix, K: int, rng: Generator, *, make: Components) -> Factors:
    """Components made from samples, and H uniform on [0, 1)."""
    rng = default_rng(rng)
    require_samples(V, K)
    return make(V, K, rng).astype(V.dtype), random_coefficients(V, K, rng)


def identity(V: DataMatrix, K: int, rng: Generator = None) -> Factors:
    """Return exact factors with as many components as features, W = I, or as samples, W = V."""
    F, N = V.shape
    W = np.eye(F, dtype=V.dtype) if F <= N else dense_samples(V)
    W = unit_columns(W).astype(V.dtype)  # norms or weights are in H
    return W, coefficients(V, W)[0]


def _endmembers(V: DataMatrix, K: int, rng: Generator, *, name: str) -> Factors:
    """Return the spectra of the materials in a scene."""
    return ENDMEMBERS[name](V, K).W, None


def _samples(V: DataMatrix, indices: Array) -> Array:
    return np.ascontiguousarray(dense(V.columns(indices)), V.dtype)


INITS: dict[str, InitFunction] = {
    **{name: partial(_cones, name=name) for name in CONE_INITS},
    "random": _random,
    **SVD_INITS,
    "spkm": partial(_of_samples, make=_spkm),
    "kmeans": kmeans,
    "kl-kmeans": partial(kmeans, kind="divergence"),
    "fuzzy": fuzzy,
    "acol": partial(_of_samples, make=_acol),
    "random-c": partial(_of_samples, make=_random_c),
    "cur": partial(_of_samples, make=_cur),
    "spa": lambda V, K, rng: (_samples(V, spa(V, K)), None),
    "snpa": lambda V, K, rng: (_samples(V, snpa(V, K)), None),
    **{name: partial(_endmembers, name=name) for name in ENDMEMBERS},
}
