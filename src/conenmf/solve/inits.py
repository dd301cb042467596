"""Starting points: W (F, K) and H (K, N) for the solvers.

A start is a function ``(V, K, rng) -> (W, H)``; H may be None, which means "the best H for this
W". `INITS` gives each a name, `start` looks one up, checks what it returned and prepares it for
a rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..cones.clustering import Cones, require_samples
from ..cones.rank_one import cr1_error, cr1_nmf
from ..cones.seeding import cr1_plus_plus
from ..data.blocks import Array, Block, cross_products
from ..data.doors import is_elsewhere
from ..data.matrix import Aligned, DataMatrix, sample_indices
from ..data.sampling import Seed, draw_samples, evenly_spaced, new_seed, uniform_rows
from ..data.sketch import Sketch, is_dense, sketch
from ..data.validate import require_data_matrix
from ..data.views import take_samples
from ..errors import ComponentsError, FactorError, OptionError, check_components
from ..linalg.spectrum import Spectrum
from ..text import function_name
from .loop import alternate
from .losses import coefficients
from .separable import snpa, spa
from .solvers import SOLVERS, Solver, hals
from .stopping import Stopping

__all__ = [
    "CONE_INITS",
    "INITS",
    "MOSTLY_CONES",
    "Init",
    "InitialFactors",
    "check_factor",
    "initialize",
    "lie_in_cones",
    "mixing",
    "raise_off_zero",
]

Factors: TypeAlias = tuple[Array, Aligned | None]
Start: TypeAlias = Callable[[DataMatrix, int, np.random.Generator | None], Factors]
Init: TypeAlias = str | Start | npt.ArrayLike | tuple[Any, Any]

MOSTLY_CONES = 0.05  # mixing up to which samples count as lying in cones ...
_UNEXPLAINED = 0.25  # ... if cr1-nmf leaves no more than this share of their squared lengths
_TRIAL_STEPS = 2  # of hals on a sketch, by which other data choose their start
_ROUGH_CONES = 5e-2  # accuracy of the axes of cones that a start needs
_ROUGH_VECTORS = 1e-3  # accuracy of singular vectors that a start needs
_CORRECTION_STEPS = 8
_CORRECTION_SWEEPS = 3
_KMEANS_STEPS = 10  # as the published experiments do for spherical k-means


CONE_INITS: dict[str, Callable[..., tuple[Array, Array, Cones]]] = {
    "cr1": cr1_nmf,
    "cr1++": cr1_plus_plus,
}


class InitialFactors(NamedTuple):
    """Factors to start from.

    Attributes
    ----------
    W : array (F, K)
    H : array (K, N) or None
    name : str
        The start that they come from.
    sketch : Sketch or None
        One of V, if one was made.
    error : float
        The relative error of W with its best H is at most this; 1 if nothing is known.
    """

    W: Array
    H: Aligned | None
    name: str
    sketch: Sketch | None = None
    error: float = 1.0


def initialize(
    V: DataMatrix, K: int, init: Init, rule: Solver | None, rng: np.random.Generator | None = None
) -> InitialFactors:
    """Make the factors a rule starts from.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    init : str, callable, array (F, K) or pair of arrays (F, K), (K, N)
        A name in `INITS`; "auto" for "cr1", "nndsvda" or "nnsvdlrc", whichever suits the data;
        a function ``(V, K, rng) -> (W, H or None)``; W alone, or W and H.
    rule : Solver or None
        None asks for W alone. A rule that finds the best H for W at once gets None for it. If the
        rule asks for it, an H that comes from cr1-nmf or from W alone is raised off zero.
    rng : numpy.random.Generator, optional
        For the starts that draw; without it "cr1" begins at the longest sample, and the
        others use fresh entropy.
    """
    require_data_matrix(V)
    K = check_components(K)
    if isinstance(init, str) and init == "auto":
        chosen = _choose(V, K, rng)
    else:
        chosen = _factors(V, K, init, rng)
    W, H, name, *_ = chosen = chosen._replace(W=chosen.W.astype(V.dtype, copy=False))
    if rule is None or (rule.first == "H" and not rule.lift_zeros):
        return chosen._replace(H=H if rule is not None and rule.sweeps else None)
    exact = H is None or name in CONE_INITS  # then H has zeros that are answers, not guesses
    if H is None:
        H = coefficients(V, W)[0]
    return chosen._replace(H=raise_off_zero(V, H) if exact and rule.lift_zeros else H)


def mixing(V: DataMatrix, K: int, axes: Array | None = None) -> float:
    """Return how much of the error of cr1-nmf goes if samples may mix cones, from 0 to 1.

    1 - ||V - W* H|| / ||V - W* H*||, with H the best nonnegative coefficients for W*, and H* the
    best that use one axis for each sample. Near 0 the samples lie in cones; far from 0 they are
    mixtures of parts. The axes W* are found if they are not given.
    """
    W = _cr1(V, K, None)[0] if axes is None else axes
    (explained,) = V.sweep(_explained_by_one_axis, W=W)
    pure = V.total - float(explained)
    if pure <= 1e-12 * V.total:
        return 0.0
    mixed = coefficients(V, W)[2]
    return 1.0 - float(np.sqrt(min(mixed / pure, 1.0)))


def _explained_by_one_axis(block: Block, *, W: Array) -> tuple[float]:
    return (float((cross_products(block, W).max(axis=1) ** 2).sum()),)


def lie_in_cones(V: DataMatrix, W: Array, error: float) -> bool:
    """Return whether cr1-nmf explains the samples, and a few hundred of them hardly mix its axes.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
        The axes, unit vectors.
    error : float
        The relative error of cr1-nmf.
    """
    if error**2 > _UNEXPLAINED:
        return False
    index = evenly_spaced(V.shape[1], V.max_gather)
    some = take_samples(V, index)
    return mixing(some, W.shape[1], W) <= MOSTLY_CONES


def _from_cones(
    V: DataMatrix, K: int, rng: np.random.Generator | None, name: str = "cr1"
) -> InitialFactors:
    W, H, _ = CONE_INITS[name](V, K, rng=rng, tol=_ROUGH_CONES)
    return InitialFactors(W, H, name, error=cr1_error(V, H))


def _choose(V: DataMatrix, K: int, rng: np.random.Generator | None) -> InitialFactors:
    """Take cr1 if samples lie in cones, else what leads after a few cheap iterations.

    They run on a sketch of V, which also lends its singular vectors to the start that competes:
    nnsvdlrc is ahead on dense data, nndsvda on sparse ones, as measured in docs/inits.md.
    """
    cones = _from_cones(V, K, rng)
    if K > min(V.shape) or lie_in_cones(V, cones.W, cones.error):
        return cones
    S = sketch(V, min(2 * K, *V.shape))
    name = "nnsvdlrc" if is_dense(V) else "nndsvda"
    other = InitialFactors(*INITS[name](S, K, rng), name, S)
    return min(cones._replace(sketch=S), other, key=_error_soon)


def _error_soon(point: InitialFactors) -> float:
    stopping = Stopping(tol=0, max_iter=_TRIAL_STEPS)
    assert point.sketch is not None
    run = alternate(point.sketch, point.W, point.H, SOLVERS["hals"], stopping=stopping)
    return float(run.history.relative_error[-1])


def _factors(V: DataMatrix, K: int, init: Init, rng: np.random.Generator | None) -> InitialFactors:
    if isinstance(init, str):
        if init not in INITS:
            raise OptionError.unknown("init", init, ("auto", *INITS))
        if init in CONE_INITS:
            return _from_cones(V, K, rng, init)
        return InitialFactors(*INITS[init](V, K, rng), init)
    name = function_name(init)
    if callable(init):
        W, H = init(V, K, rng)
    elif isinstance(init, tuple):
        if len(init) != 2:
            raise FactorError(f"bad init: a tuple of {len(init)}, expected the pair (W, H)")
        W, H = init
    else:
        W, H = np.asarray(init), None
    F, N = V.shape
    W = check_factor(W, (F, K), "W", V.dtype)
    if H is not None:
        H = (
            _checked_coefficients(V, H, K)
            if is_elsewhere(H)
            else check_factor(H, (K, N), "H", V.dtype)
        )
    return InitialFactors(W, H, name)


def _checked_coefficients(V: DataMatrix, H: Aligned, K: int) -> Aligned:
    """What `check_factor` does, for an H that is in a file or on a cluster and stays there."""
    if H.shape != (K, V.shape[1]):
        raise FactorError(f"bad H: shape {H.shape}, expected {(K, V.shape[1])}")
    Ht, (lowest, largest) = V.map(_as_coefficients, H.T, reduce=_extremes, dtype=V.dtype)
    if not (np.isfinite(largest) and lowest >= 0 and largest > 0):
        raise FactorError(
            f"bad H: entries from {lowest:g} to {largest:g}, expected finite and nonnegative "
            "numbers that are not all zero"
        )
    return Ht.T


def _as_coefficients(
    samples: range, H: Array, *, dtype: np.dtype[Any]
) -> tuple[Array, tuple[float, float]]:
    return np.ascontiguousarray(H, dtype), (float(H.min()), float(H.max()))


def _extremes(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return float(np.minimum(a[0], b[0])), float(np.maximum(a[1], b[1]))


def check_factor(
    factor: npt.ArrayLike, shape: tuple[int, int], name: str, dtype: npt.DTypeLike
) -> Array:
    """Return a factor that a user gave as a fresh array, or say what is wrong with it."""
    array = np.asarray(factor)
    if array.dtype.kind not in "fiub":
        raise FactorError(f"bad {name}: type {array.dtype}, expected real numbers")
    if array.shape != shape:
        raise FactorError(f"bad {name}: shape {array.shape}, expected {shape}")
    array = array.astype(dtype)
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise FactorError(f"bad {name}: not finite at {where}: {array[where]}")
    if array.min() < 0:
        where = tuple(int(i) for i in np.unravel_index(array.argmin(), shape))
        raise FactorError(f"bad {name}: negative at {where}: {array[where]}")
    if not array.any():
        raise FactorError(f"bad {name}: all zero, and no rule can leave that point")
    return array


def raise_off_zero(V: DataMatrix, H: Aligned) -> Aligned:
    """Add the mean of the positive entries to every entry of H (K, N).

    The pair from Algorithm 2 is a fixed point of `mult` (Lemma 15 of the paper); raised like
    this, as in the published experiments, it is a start.

    >>> from conenmf import from_columns
    >>> raise_off_zero(from_columns(np.eye(2)), np.array([[0.0, 1.0], [3.0, 0.0]]))
    array([[2., 3.],
           [5., 2.]])
    """
    (largest,) = V.map(_largest, H.T, reduce=max)
    (total, count) = V.map(_sum_of_positive, H.T, above=1e-12 * largest)[0]
    raised, _ = V.map(_raised, H.T, by=total / count if count else 1.0)
    return raised.T


def _largest(samples: range, H: Array) -> tuple[float]:
    return (float(H.max()),)


def _sum_of_positive(samples: range, H: Array, *, above: float) -> tuple[tuple[float, int]]:
    positive = H[H > above]  # rounding on either side of zero is zero
    return ((float(positive.sum(dtype=np.float64)), positive.size),)


def _raised(samples: range, H: Array, *, by: float) -> tuple[Array, None]:
    return (H + by).astype(H.dtype, copy=False), None


# --- the starts -------------------------------------------------------------------------------


def _cr1(V: DataMatrix, K: int, rng: np.random.Generator | None) -> Factors:
    """Clustering and rank-one NMF, to the accuracy a start needs."""
    W, H, *_ = _from_cones(V, K, rng)
    return W, H


def _cr1_plus_plus(V: DataMatrix, K: int, rng: np.random.Generator | None) -> Factors:
    """The same from centres drawn at random, the best of a few runs."""
    W, H, *_ = _from_cones(V, K, rng, "cr1++")
    return W, H


def _random(V: DataMatrix, K: int, rng: np.random.Generator | None) -> Factors:
    """Uniform on [0, 1)."""
    rng = np.random.default_rng(rng)
    W = rng.random((V.shape[0], K)).astype(V.dtype)
    return W, _random_coefficients(V, K, rng)


def _random_coefficients(V: DataMatrix, K: int, rng: np.random.Generator) -> Aligned:
    Ht, _ = V.map(_uniform, K=K, seed=new_seed(rng), dtype=V.dtype)
    return Ht.T


def _uniform(samples: range, *, K: int, seed: Seed, dtype: np.dtype[Any]) -> tuple[Array, None]:
    return uniform_rows(samples, K, seed).astype(dtype), None


def _nndsvd(V: DataMatrix, K: int, rng: np.random.Generator | None) -> Factors:
    """Nonnegative double SVD (Boutsidis and Gallopoulos, 2008), zeros kept.

    Of each singular pair after the first, the positive parts or the negative parts are taken,
    whichever carry more weight.
    """
    return _nndsvd_parts(V, K)


def _nndsvd_parts(V: DataMatrix, K: int) -> tuple[Array, Aligned]:
    U, sigma, R = Spectrum(V).truncated_svd(K, tol=_ROUGH_VECTORS)
    signs = np.ones(K)
    W, sizes = np.zeros_like(U), np.zeros(K)
    W[:, 0], sizes[0] = np.sqrt(sigma[0]) * np.abs(U[:, 0]), np.sqrt(sigma[0])
    (of_R,) = V.map(_squares_of_parts, R.T)
    of_U = np.stack([(np.maximum(sign * U, 0) ** 2).sum(axis=0) for sign in (1.0, -1.0)])
    lengths, other = np.sqrt(of_U), np.sqrt(of_R)
    for k in range(1, int(np.count_nonzero(sigma > 1e-12 * sigma[0]))):
        weights = lengths[:, k] * other[:, k]
        best = int(np.argmax(weights))
        if weights[best] > 0:
            signs[k] = (1.0, -1.0)[best]
            size = np.sqrt(sigma[k] * weights[best])
            W[:, k] = size * np.maximum(signs[k] * U[:, k], 0) / lengths[best, k]
            sizes[k] = size / other[best, k]
    Ht, largest = V.map(_signed_parts, R.T, reduce=max, signs=signs, sizes=sizes)
    negligible = 1e-12  # rounding on either side of zero is not structure
    W[negligible * W.max() > W] = 0
    Ht, _ = V.map(_floored, Ht, floor=negligible * largest, dtype=V.dtype)
    return W.astype(V.dtype), Ht.T


def _squares_of_parts(samples: range, R: Array) -> tuple[Array]:
    """Squared lengths of the positive and of the negative part of each column."""
    return (np.stack([(np.maximum(sign * R, 0) ** 2).sum(axis=0) for sign in (1.0, -1.0)]),)


def _signed_parts(samples: range, R: Array, *, signs: Array, sizes: Array) -> tuple[Array, float]:
    parts = np.maximum(signs * R, 0)
    parts[:, 0] = np.abs(R[:, 0])
    parts *= sizes
    return parts, float(parts.max())


def _floored(samples: range, H: Array, *, floor: float, dtype: np.dtype[Any]) -> tuple[Array, None]:
    return np.where(floor > H, 0, H).astype(dtype), None


def _nndsvda(V: DataMatrix, K: int, rng: np.random.Generator | None) -> Factors:
    """`_nndsvd` with zeros replaced by the mean of V."""
    W, H = _nndsvd_parts(V, K)
    mean = V.mean()
    Ht, _ = V.map(_filled, H.T, mean=mean)
    return np.where(W == 0, mean, W).astype(V.dtype), Ht.T


def _filled(samples: range, H: Array, *, mean: float) -> tuple[Array, None]:
    return np.where(H == 0, mean, H).astype(H.dtype), None


def _nndsvdar(V: DataMatrix, K: int, rng: np.random.Generator | None) -> Factors:
    """`_nndsvd` with zeros replaced by random numbers up to a hundredth of the mean of V."""
    rng = np.random.default_rng(rng)
    W, H = _nndsvd_parts(V, K)
    largest = V.mean() / 100
    filled_W = np.where(W == 0, rng.random(W.shape) * largest, W)
    Ht, _ = V.map(_filled_at_random, H.T, largest=largest, seed=new_seed(rng))
    return filled_W.astype(V.dtype), Ht.T


def _filled_at_random(
    samples: range, H: Array, *, largest: float, seed: Seed
) -> tuple[Array, None]:
    fill = uniform_rows(samples, H.shape[1], seed) * largest
    return np.where(H == 0, fill, H).astype(H.dtype), None


def _spkm(V: DataMatrix, K: int, rng: np.random.Generator | None) -> Factors:
    """Spherical k-means: unit centroids, H uniform on [0, 1)."""
    rng = np.random.default_rng(rng)
    W, _ = _lloyd(V, K, rng, spherical=True)
    return W.astype(V.dtype), _random_coefficients(V, K, rng)


def _kmeans(V: DataMatrix, K: int, rng: np.random.Generator | None) -> Factors:
    """k-means: centroids, H the indicator of the clusters plus 0.2."""
    rng = np.random.default_rng(rng)
    W, labels = _lloyd(V, K, rng, spherical=False)
    Ht, _ = V.map(_indicators, labels, K=K, dtype=V.dtype)
    return W.astype(V.dtype), Ht.T


def _indicators(
    samples: range, labels: Array, *, K: int, dtype: np.dtype[Any]
) -> tuple[Array, None]:
    Ht = np.full((labels.size, K), 0.2, dtype=dtype)
    Ht[np.arange(labels.size), labels] += 1
    return Ht, None


def _nnsvdlrc(V: DataMatrix, K: int, rng: np.random.Generator | None) -> Factors:
    """NNSVD with low-rank correction (Atif, Qazi and Gillis, 2019).

    Both the positive and the negative parts of about K / 2 singular pairs become components;
    a few iterations of `hals` on the truncated SVD, which is cheap, then improve them.
    """
    rank = min(K // 2 + 1, *V.shape)
    U, sigma, R = Spectrum(V).truncated_svd(rank, tol=_ROUGH_VECTORS)
    size, sigma = sigma[0], sigma / sigma[0]  # what `hals` floors must not depend on the scale
    A = U * np.sqrt(sigma)
    signs = np.array([0.0] + [sign for k in range(1, rank) for sign in (1.0, -1.0)])
    pairs = np.array([0] + [k for k in range(1, rank) for _ in range(2)])
    if signs.size < K:
        raise ComponentsError(
            f"nnsvdlrc makes at most {signs.size} components of a {V.shape[1]} x {V.shape[0]} "
            f"matrix, not the {K} asked for"
        )
    signs, pairs = signs[:K], pairs[:K]
    left = _parts(A, pairs, signs)
    B, right, (HH, BH) = V.map(_begin_correction, R.T, sigma=sigma, pairs=pairs, signs=signs)
    total, before = float((sigma**2).sum()), np.inf
    for _ in range(_CORRECTION_STEPS):
        left = hals(HH, A @ BH, left, sweeps=_CORRECTION_SWEEPS)
        G, small = left.T @ left, A.T @ left
        right, (HH, BH) = V.map(_correct, B, right, G=G, small=small)
        squared = total - 2 * float(np.vdot(small, BH)) + float(np.vdot(G, HH))
        if before - squared < 1e-4 * total:
            break
        before = squared
    Ht, _ = V.map(_resized, right, by=np.sqrt(size), dtype=V.dtype)
    return (left * np.sqrt(size)).astype(V.dtype), Ht.T


def _parts(vectors: Array, pairs: Array, signs: Array) -> Array:
    """The positive or negative part of each chosen column; of the first, the absolute value."""
    chosen = vectors[:, pairs]
    return np.where(signs == 0, np.abs(chosen), np.maximum(signs * chosen, 0))


def _begin_correction(
    samples: range, R: Array, *, sigma: Array, pairs: Array, signs: Array
) -> tuple[Array, Array, tuple[Array, Array]]:
    B = R * np.sqrt(sigma)
    right = _parts(B, pairs, signs)
    return B, right, (right.T @ right, B.T @ right)


def _correct(
    samples: range, B: Array, right: Array, *, G: Array, small: Array
) -> tuple[Array, tuple[Array, Array]]:
    right = hals(G, B @ small, right, sweeps=_CORRECTION_SWEEPS)
    return right, (right.T @ right, B.T @ right)


def _resized(
    samples: range, right: Array, *, by: float, dtype: np.dtype[Any]
) -> tuple[Array, None]:
    return (right * by).astype(dtype), None


def _spa(V: DataMatrix, K: int, rng: np.random.Generator | None) -> Factors:
    """The samples chosen by successive projection."""
    return _samples(V, spa(V, K)), None


def _snpa(V: DataMatrix, K: int, rng: np.random.Generator | None) -> Factors:
    """The samples chosen by successive nonnegative projection."""
    return _samples(V, snpa(V, K)), None


def _samples(V: DataMatrix, indices: Array) -> Array:
    chosen: Array = V.columns(indices) @ np.eye(indices.size, dtype=V.dtype)
    return chosen


INITS: dict[str, Start] = {
    "cr1": _cr1,
    "cr1++": _cr1_plus_plus,
    "random": _random,
    "nndsvd": _nndsvd,
    "nndsvda": _nndsvda,
    "nndsvdar": _nndsvdar,
    "spkm": _spkm,
    "kmeans": _kmeans,
    "nnsvdlrc": _nnsvdlrc,
    "spa": _spa,
    "snpa": _snpa,
}


def _lloyd(
    V: DataMatrix, K: int, rng: np.random.Generator, *, spherical: bool
) -> tuple[Array, Aligned]:
    """A few steps of Lloyd's algorithm from K random samples; returns centroids and labels.

    An empty cluster takes the sample that is farthest from its own centroid.
    """
    require_samples(V, K)
    with V.own_threads():
        index, _ = V.map(sample_indices)
        labels, _ = V.map(_unlabelled)
        centroids = _weighted_columns(V, draw_samples(V, K, rng), spherical)
        for _ in range(_KMEANS_STEPS):
            labels, (sums, counts, moved, far) = V.sweep(
                _nearest,
                index,
                labels,
                V.norms_squared,
                reduce=_join_clusters,
                centroids=centroids,
                spherical=spherical,
            )
            empty = np.flatnonzero(counts == 0)
            taken = far[: empty.size]
            for k, (_, n, label) in zip(empty, taken, strict=False):
                column = _weighted_columns(V, np.array([int(n)]), spherical)[:, 0]
                sums[:, int(label)] -= column
                counts[int(label)] -= 1
                sums[:, k], counts[k] = column, 1
            if len(taken):
                new = dict(zip(taken[:, 1].astype(np.intp).tolist(), empty.tolist(), strict=False))
                labels, _ = V.map(_relabelled, labels, new=new)
            centroids = np.maximum(sums / np.maximum(counts, 1), 0.0)
            if spherical:
                centroids = centroids / np.maximum(np.linalg.norm(centroids, axis=0), 1e-300)
            if not moved and not len(taken):
                break
    return centroids, labels


def _weighted_columns(V: DataMatrix, indices: Array, spherical: bool) -> Array:
    columns: Array = V.columns(indices).astype(np.float64, copy=False) @ np.eye(indices.size)
    return columns / np.linalg.norm(columns, axis=0) if spherical else columns


def _unlabelled(samples: range) -> tuple[Array, None]:
    return np.full(len(samples), -1), None


def _relabelled(samples: range, labels: Array, *, new: dict[int, int]) -> tuple[Array, None]:
    labels = labels.copy()
    for n, label in new.items():
        if n in samples:
            labels[n - samples.start] = label
    return labels, None


def _nearest(
    block: Block,
    index: Array,
    before: Array,
    squared: Array,
    *,
    centroids: Array,
    spherical: bool,
) -> tuple[Array, tuple[Array, Array, int, Array]]:
    """Label samples by their nearest centroid.

    Sums samples and counts them per label; how many changed theirs; and the K samples farthest
    from their centroid, as rows (distance, sample, label).
    """
    exact = block.astype(np.float64, copy=False)
    weights = np.ones_like(squared)
    if spherical:
        weights = np.sqrt(np.divide(1.0, squared, out=np.zeros_like(squared), where=squared > 0))
    products = (exact.T @ centroids) * weights[:, None]
    sizes = (centroids**2).sum(axis=0)
    distances = sizes - 2.0 * products
    tie = 1e-12 * float(sizes.max())  # rounding must not choose a cluster
    labels = (distances <= distances.min(axis=1, keepdims=True) + tie).argmax(axis=1)
    member = np.zeros_like(products)
    member[np.arange(labels.size), labels] = 1.0
    distance = squared * weights**2 + distances[np.arange(labels.size), labels]
    far = np.stack([distance, index, labels], axis=1)
    sums = exact @ (member * weights[:, None])
    moved = int(np.count_nonzero(labels != before))
    return labels, (sums, member.sum(axis=0), moved, _farthest(far, centroids.shape[1]))


def _farthest(rows: Array, count: int) -> Array:
    return rows[np.argsort(-rows[:, 0], kind="stable")[:count]]


def _join_clusters(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    far = _farthest(np.vstack([a[3], b[3]]), a[1].size)
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], far
