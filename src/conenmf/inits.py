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

from .cones import cr1_nmf
from .data import Array, Block, DataMatrix, require_data_matrix
from .errors import ComponentsError, FactorError, OptionError, check_components
from .separable import snpa, spa
from .solvers import Rule, coefficients, hals
from .spectrum import truncated_svd

__all__ = [
    "INITS",
    "MOSTLY_CONES",
    "Init",
    "StartingPoint",
    "check_factor",
    "mixing",
    "raise_off_zero",
    "start",
]

Factors: TypeAlias = tuple[Array, Array | None]
Start: TypeAlias = Callable[[DataMatrix, int, np.random.Generator | None], Factors]
Init: TypeAlias = str | Start | npt.ArrayLike | tuple[Any, Any]

MOSTLY_CONES = 0.2  # mixing up to which samples count as lying in cones
_ROUGH_VECTORS = 1e-3  # accuracy of singular vectors that a start needs
_CORRECTION_STEPS = 20
_KMEANS_STEPS = 10  # as the published experiments do for spherical k-means


class StartingPoint(NamedTuple):
    """W (F, K), H (K, N) or None, and the name of the start they come from."""

    W: Array
    H: Array | None
    name: str


def start(
    V: DataMatrix, K: int, init: Init, rule: Rule, rng: np.random.Generator | None = None
) -> StartingPoint:
    """Make the factors a rule starts from.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    init : str, callable, array (F, K) or pair of arrays (F, K), (K, N)
        A name in `INITS`; "auto" for "cr1" or "nnsvdlrc", whichever suits the data; a function
        ``(V, K, rng) -> (W, H or None)``; W alone, or W and H.
    rule : Rule
        A rule that begins with H gets None for it. If the rule asks for it, an H that comes
        from cr1-nmf or from W alone is raised off zero.
    rng : numpy.random.Generator, optional
        For the starts that draw; without it "cr1" begins at the longest sample, and the
        others use fresh entropy.
    """
    require_data_matrix(V)
    K = check_components(K)
    if isinstance(init, str) and init == "auto":
        W, H, name = _choose(V, K, rng)
    else:
        W, H, name = _factors(V, K, init, rng)
    if rule.first == "H":
        return StartingPoint(W, None, name)
    exact = H is None or name == "cr1"  # then H has zeros that are answers, not guesses
    if H is None:
        H = coefficients(V, W)[0]
    return StartingPoint(W, raise_off_zero(H) if exact and rule.raise_start else H, name)


def mixing(V: DataMatrix, K: int) -> float:
    """Return how much of the error of cr1-nmf goes if samples may mix cones, from 0 to 1.

    1 - ||V - W* H|| / ||V - W* H*||, with H the best nonnegative coefficients for W*. Near 0
    the samples lie in cones; far from 0 they are mixtures of parts.
    """
    W, H, _ = cr1_nmf(V, K, tol=1e-4)
    return _mixing(V, W, H)


def _mixing(V: DataMatrix, W: Array, H: Array) -> float:
    total = float(V.norms_squared.sum())
    pure = total - float(np.einsum("kn,kn->", H, H, dtype=np.float64))
    if pure <= 1e-12 * total:
        return 0.0
    mixed = float(coefficients(V, W)[1].sum())
    return 1.0 - float(np.sqrt(min(mixed / pure, 1.0)))


def _choose(V: DataMatrix, K: int, rng: np.random.Generator | None) -> StartingPoint:
    """Take cr1 if samples lie in cones, an SVD start if they are mixtures of parts."""
    W, H, _ = cr1_nmf(V, K, rng=rng, tol=1e-4)
    if K // 2 + 1 > min(V.shape) or _mixing(V, W, H) <= MOSTLY_CONES:
        return StartingPoint(W, H, "cr1")
    return StartingPoint(*_nnsvdlrc(V, K, rng), "nnsvdlrc")


def _factors(V: DataMatrix, K: int, init: Init, rng: np.random.Generator | None) -> StartingPoint:
    if isinstance(init, str):
        if init not in INITS:
            raise OptionError.unknown("init", init, ("auto", *INITS))
        return StartingPoint(*INITS[init](V, K, rng), init)
    name = str(getattr(init, "__name__", "custom"))
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
    return StartingPoint(W, None if H is None else check_factor(H, (K, N), "H", V.dtype), name)


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


def raise_off_zero(H: Array) -> Array:
    """Add the mean of the positive entries to every entry.

    The pair from Algorithm 2 is a fixed point of `mult` (Lemma 15 of the paper); raised like
    this, as in the published experiments, it is a start.

    >>> raise_off_zero(np.array([[0.0, 1.0], [3.0, 0.0]]))
    array([[2., 3.],
           [5., 2.]])
    """
    positive = H[H > 1e-12 * H.max(initial=0.0)]  # rounding on either side of zero is zero
    raised: Array = H + (positive.mean(dtype=np.float64) if positive.size else 1.0)
    return raised.astype(H.dtype, copy=False)


# --- the starts -------------------------------------------------------------------------------


def _cr1(V: DataMatrix, K: int, rng: np.random.Generator | None) -> Factors:
    """Clustering and rank-one NMF, to the accuracy a start needs."""
    W, H, _ = cr1_nmf(V, K, rng=rng, tol=1e-4)
    return W, H


def _random(V: DataMatrix, K: int, rng: np.random.Generator | None) -> Factors:
    """Uniform on [0, 1)."""
    rng = np.random.default_rng(rng)
    F, N = V.shape
    W, Ht = rng.random((F, K)), rng.random((N, K))
    return W.astype(V.dtype), Ht.astype(V.dtype).T


def _nndsvd(V: DataMatrix, K: int, rng: np.random.Generator | None) -> Factors:
    """Nonnegative double SVD (Boutsidis and Gallopoulos, 2008), zeros kept.

    Of each singular pair after the first, the positive parts or the negative parts are taken,
    whichever carry more weight.
    """
    U, sigma, R = truncated_svd(V, K, tol=_ROUGH_VECTORS)
    W, H = np.zeros_like(U), np.zeros_like(R)
    W[:, 0], H[0] = np.sqrt(sigma[0]) * np.abs(U[:, 0]), np.sqrt(sigma[0]) * np.abs(R[0])
    for k in range(1, int(np.count_nonzero(sigma > 1e-12 * sigma[0]))):
        pairs = [(np.maximum(s * U[:, k], 0), np.maximum(s * R[k], 0)) for s in (1.0, -1.0)]
        weights = [float(np.linalg.norm(u) * np.linalg.norm(r)) for u, r in pairs]
        best = int(np.argmax(weights))
        if weights[best] > 0:
            u, r = pairs[best]
            size = np.sqrt(sigma[k] * weights[best])
            W[:, k] = size * u / np.linalg.norm(u)
            H[k] = size * r / np.linalg.norm(r)
    negligible = 1e-12  # rounding on either side of zero is not structure
    W[negligible * W.max() > W] = 0
    H[negligible * H.max() > H] = 0
    return W.astype(V.dtype), H.astype(V.dtype)


def _nndsvda(V: DataMatrix, K: int, rng: np.random.Generator | None) -> Factors:
    """`_nndsvd` with zeros replaced by the mean of V."""
    W, H = _nndsvd(V, K, rng)
    assert H is not None
    mean = V.mean
    return np.where(W == 0, mean, W).astype(V.dtype), np.where(H == 0, mean, H).astype(V.dtype)


def _nndsvdar(V: DataMatrix, K: int, rng: np.random.Generator | None) -> Factors:
    """`_nndsvd` with zeros replaced by random numbers up to a hundredth of the mean of V."""
    rng = np.random.default_rng(rng)
    W, H = _nndsvd(V, K, rng)
    assert H is not None
    largest = V.mean / 100
    fill_W, fill_H = rng.random(W.shape) * largest, rng.random(H.shape) * largest
    return (
        np.where(W == 0, fill_W, W).astype(V.dtype),
        np.where(H == 0, fill_H, H).astype(V.dtype),
    )


def _spkm(V: DataMatrix, K: int, rng: np.random.Generator | None) -> Factors:
    """Spherical k-means: unit centroids, H uniform on [0, 1)."""
    rng = np.random.default_rng(rng)
    W, _ = _lloyd(V, K, rng, spherical=True)
    return W.astype(V.dtype), rng.random((V.shape[1], K)).astype(V.dtype).T


def _kmeans(V: DataMatrix, K: int, rng: np.random.Generator | None) -> Factors:
    """k-means: centroids, H the indicator of the clusters plus 0.2."""
    rng = np.random.default_rng(rng)
    W, labels = _lloyd(V, K, rng, spherical=False)
    Ht = np.full((V.shape[1], K), 0.2, dtype=V.dtype)
    Ht[np.arange(V.shape[1]), labels] += 1
    return W.astype(V.dtype), Ht.T


def _nnsvdlrc(V: DataMatrix, K: int, rng: np.random.Generator | None) -> Factors:
    """NNSVD with low-rank correction (Atif, Qazi and Gillis, 2019).

    Both the positive and the negative parts of about K / 2 singular pairs become components;
    a few iterations of `hals` on the truncated SVD, which is cheap, then improve them.
    """
    rank = min(K // 2 + 1, *V.shape)
    U, sigma, R = truncated_svd(V, rank, tol=_ROUGH_VECTORS)
    size, sigma = sigma[0], sigma / sigma[0]  # what `hals` floors must not depend on the scale
    A, B = U * np.sqrt(sigma), np.sqrt(sigma)[:, None] * R
    W, H = [np.abs(A[:, 0])], [np.abs(B[0])]
    for k in range(1, rank):
        for sign in (1.0, -1.0):
            W.append(np.maximum(sign * A[:, k], 0))
            H.append(np.maximum(sign * B[k], 0))
    if len(W) < K:
        raise ComponentsError(
            f"nnsvdlrc makes at most {len(W)} components of a {V.shape[1]} x {V.shape[0]} matrix, "
            f"not the {K} asked for"
        )
    left, right = np.stack(W[:K], axis=1), np.stack(H[:K], axis=1)
    total, before = float((sigma**2).sum()), np.inf
    for _ in range(_CORRECTION_STEPS):
        left = hals(right.T @ right, A @ (B @ right), left)
        G, C = left.T @ left, B.T @ (A.T @ left)
        right = hals(G, C, right)
        squared = total - 2 * float(np.vdot(C, right)) + float(np.vdot(G, right.T @ right))
        if before - squared < 1e-5 * total:
            break
        before = squared
    return (left * np.sqrt(size)).astype(V.dtype), (right.T * np.sqrt(size)).astype(V.dtype)


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
) -> tuple[Array, Array]:
    """A few steps of Lloyd's algorithm from K random samples; returns centroids and labels.

    An empty cluster takes the sample that is farthest from its own centroid.
    """
    N = V.shape[1]
    nonzero = np.flatnonzero(V.norms_squared > 0)
    if nonzero.size < K:
        raise ComponentsError(
            f"there are {nonzero.size} nonzero samples, fewer than the {K} components asked for"
        )
    norms = np.sqrt(V.norms_squared)
    weights = np.divide(1.0, norms, out=np.zeros(N), where=norms > 0) if spherical else np.ones(N)
    with V.own_threads():
        seeds = rng.choice(nonzero, size=K, replace=False)
        centroids = V.columns(seeds).astype(np.float64, copy=False) @ np.diag(weights[seeds])
        labels = np.full(N, -1)
        for _ in range(_KMEANS_STEPS):
            before = labels
            labels, distance, (sums, counts) = V.sweep(
                _nearest, weights, norms**2 * weights**2, centroids=centroids
            )
            farthest = np.argsort(-distance, kind="stable")
            for k, n in zip(np.flatnonzero(counts == 0), farthest, strict=False):
                column = V.columns([n]).astype(np.float64, copy=False) @ np.diag(weights[[n]])
                sums[:, labels[n]] -= column[:, 0]
                counts[labels[n]] -= 1
                sums[:, k], counts[k], labels[n] = column[:, 0], 1, k
            centroids = np.maximum(sums / np.maximum(counts, 1), 0.0)
            if spherical:
                centroids = centroids / np.maximum(np.linalg.norm(centroids, axis=0), 1e-300)
            if np.array_equal(labels, before):
                break
    return centroids, labels


def _nearest(
    block: Block, weights: Array, squared: Array, *, centroids: Array
) -> tuple[Array, Array, tuple[Array, Array]]:
    """Label weighted samples by their nearest centroid; sum samples and count per label."""
    exact = block.astype(np.float64, copy=False)
    products = (exact.T @ centroids) * weights[:, None]
    distances = (centroids**2).sum(axis=0) - 2.0 * products
    tie = 1e-12 * float((centroids**2).sum(axis=0).max())  # rounding must not choose a cluster
    labels = (distances <= distances.min(axis=1, keepdims=True) + tie).argmax(axis=1)
    member = np.zeros_like(products)
    member[np.arange(labels.size), labels] = 1.0
    distance = squared + distances[np.arange(labels.size), labels]
    return labels, distance, (exact @ (member * weights[:, None]), member.sum(axis=0))
