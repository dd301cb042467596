"""Inits from the leading singular vectors of V: NNDSVD and its variants, NNSVD-LRC, and rank two.

They take the positive or the negative parts of singular vectors as components; `linalg.spectrum`
computes the vectors, once for a whole fit. NNSVD-LRC improves the parts by a small alternation of
its own, on the truncated SVD instead of V. For two components there are exact factors, in
`cones.plane`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..cones.plane import rank_two_factors
from ..data.blocks import Array
from ..data.matrix import Aligned, DataMatrix
from ..data.sampling import Seed, new_seed, uniform_rows
from ..errors import ComponentsError
from ..linalg.spectrum import Spectrum
from .initial import Factors, Generator
from .solvers import hals

__all__ = ["SVD_INITS", "nndsvd", "nndsvda", "nndsvdar", "nnsvdlrc", "rank_two"]

_NEGLIGIBLE_SHARE = 1e-12  # share of the largest value up to which rounding counts as zero
_FILL_SHARE = 1e-2  # norm of a component that no singular vector made, of the largest
_FILL_SEED = (0, 0)
_CORRECTION_MAX_ITER = 8
_CORRECTION_SWEEPS = 3
_CORRECTION_TOL = 1e-4  # share of ||V||^2 that an iteration must bring


def nndsvd(
    V: DataMatrix, K: int, rng: Generator = None, *, spectrum: Spectrum | None = None
) -> Factors:
    """Nonnegative double SVD (Boutsidis and Gallopoulos, 2008), zeros kept.

    Of each singular pair after the first, the positive or the negative parts are taken, those of
    the larger norm.
    """
    return _signed_pairs(V, K, spectrum)


def _signed_pairs(V: DataMatrix, K: int, spectrum: Spectrum | None) -> tuple[Array, Aligned]:
    U, sigma, R = Spectrum.of(V, spectrum).truncated_svd(K)
    signs = np.ones(K)
    W, sizes = np.zeros_like(U), np.zeros(K)
    W[:, 0], sizes[0] = np.sqrt(sigma[0]) * np.abs(U[:, 0]), np.sqrt(sigma[0])
    (squares_R,) = V.map(_squares_of_parts, R.T)
    squares_U = np.stack([(np.maximum(sign * U, 0) ** 2).sum(axis=0) for sign in (1.0, -1.0)])
    norms_U, norms_R = np.sqrt(squares_U), np.sqrt(squares_R)
    for k in range(1, int(np.count_nonzero(sigma > _NEGLIGIBLE_SHARE * sigma[0]))):
        norms = norms_U[:, k] * norms_R[:, k]
        best = int(np.argmax(norms))
        if norms[best] > 0:
            signs[k] = (1.0, -1.0)[best]
            size = np.sqrt(sigma[k] * norms[best])
            W[:, k] = size * np.maximum(signs[k] * U[:, k], 0) / norms_U[best, k]
            sizes[k] = size / norms_R[best, k]
    Ht, largest = V.map(_signed_parts, R.T, reduce=max, signs=signs, sizes=sizes)
    W[_NEGLIGIBLE_SHARE * W.max() > W] = 0
    Ht, _ = V.map(_floored, Ht, floor=_NEGLIGIBLE_SHARE * largest, dtype=V.dtype)
    return W.astype(V.dtype), Ht.T


def _squares_of_parts(index: range, R: Array) -> tuple[Array]:
    """Squared norms of the positive and of the negative part of each column."""
    return (np.stack([(np.maximum(sign * R, 0) ** 2).sum(axis=0) for sign in (1.0, -1.0)]),)


def _signed_parts(index: range, R: Array, *, signs: Array, sizes: Array) -> tuple[Array, float]:
    parts = np.maximum(signs * R, 0)
    parts[:, 0] = np.abs(R[:, 0])
    parts *= sizes
    return parts, float(parts.max())


def _floored(index: range, H: Array, *, floor: float, dtype: np.dtype[Any]) -> tuple[Array, None]:
    return np.where(floor > H, 0, H).astype(dtype), None


def nndsvda(
    V: DataMatrix, K: int, rng: Generator = None, *, spectrum: Spectrum | None = None
) -> Factors:
    """`nndsvd` with zeros replaced by the mean of V."""
    W, H = _signed_pairs(V, K, spectrum)
    mean = V.mean()
    Ht, _ = V.map(_filled, H.T, mean=mean)
    return np.where(W == 0, mean, W).astype(V.dtype), Ht.T


def _filled(index: range, H: Array, *, mean: float) -> tuple[Array, None]:
    return np.where(H == 0, mean, H).astype(H.dtype), None


def nndsvdar(
    V: DataMatrix, K: int, rng: Generator = None, *, spectrum: Spectrum | None = None
) -> Factors:
    """`nndsvd` with zeros replaced by random numbers up to a hundredth of the mean of V."""
    rng = np.random.default_rng(rng)
    W, H = _signed_pairs(V, K, spectrum)
    largest = V.mean() / 100
    filled_W = np.where(W == 0, rng.random(W.shape) * largest, W)
    Ht, _ = V.map(_filled_at_random, H.T, largest=largest, seed=new_seed(rng))
    return filled_W.astype(V.dtype), Ht.T


def _filled_at_random(index: range, H: Array, *, largest: float, seed: Seed) -> tuple[Array, None]:
    fill = uniform_rows(index, H.shape[1], seed) * largest
    return np.where(H == 0, fill, H).astype(H.dtype), None


def nnsvdlrc(
    V: DataMatrix, K: int, rng: Generator = None, *, spectrum: Spectrum | None = None
) -> Factors:
    """NNSVD with low-rank correction (Atif, Qazi and Gillis, 2019).

    Both the positive and the negative parts of about K / 2 singular pairs become components;
    a few iterations of `hals` on the truncated SVD, which is cheap, then improve them. A component
    that is empty all the same is filled with small random numbers, always the same.
    """
    rank = min(K // 2 + 1, *V.shape)
    U, sigma, R = Spectrum.of(V, spectrum).truncated_svd(rank)
    size, sigma = sigma[0], sigma / sigma[0]  # what `hals` floors must not depend on the scale
    sigma[sigma <= _NEGLIGIBLE_SHARE] = 0  # their vectors are rounding
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
    for _ in range(_CORRECTION_MAX_ITER):
        left = hals(HH, A @ BH, left, sweeps=_CORRECTION_SWEEPS)
        G, small = left.T @ left, A.T @ left
        right, (HH, BH) = V.map(_correct, B, right, G=G, small=small)
        squared = total - 2 * float(np.vdot(small, BH)) + float(np.vdot(G, HH))
        if before - squared < _CORRECTION_TOL * total:
            break
        before = squared
    norms = np.sqrt(np.diagonal(HH) * (left**2).sum(axis=0))
    unused = np.flatnonzero(norms <= _NEGLIGIBLE_SHARE * norms.max())
    left[:, unused] = np.random.default_rng(0).random((len(left), unused.size)) / np.sqrt(len(left))
    Ht, _ = V.map(_resized, right, unused=unused, by=np.sqrt(size), N=V.shape[1], dtype=V.dtype)
    return (left * np.sqrt(size)).astype(V.dtype), Ht.T


def _parts(vectors: Array, pairs: Array, signs: Array) -> Array:
    """The positive or negative part of a column for each sign; of the first, the absolute value."""
    columns = np.where(np.abs(vectors) > _NEGLIGIBLE_SHARE, vectors, 0)[:, pairs]
    return np.where(signs == 0, np.abs(columns), np.maximum(signs * columns, 0))


def _begin_correction(
    index: range, R: Array, *, sigma: Array, pairs: Array, signs: Array
) -> tuple[Array, Array, tuple[Array, Array]]:
    B = R * np.sqrt(sigma)
    right = _parts(B, pairs, signs)
    return B, right, (right.T @ right, B.T @ right)


def _correct(
    index: range, B: Array, right: Array, *, G: Array, small: Array
) -> tuple[Array, tuple[Array, Array]]:
    right = hals(G, B @ small, right, sweeps=_CORRECTION_SWEEPS)
    return right, (right.T @ right, B.T @ right)


def _resized(
    index: range, right: Array, *, unused: Array, by: float, N: int, dtype: np.dtype[Any]
) -> tuple[Array, None]:
    """Scale H; what no singular vector made is small and random, always the same."""
    right = right.copy()
    right[:, unused] = uniform_rows(index, unused.size, _FILL_SEED) * (_FILL_SHARE / np.sqrt(N))
    return (right * by).astype(dtype), None


def rank_two(
    V: DataMatrix, K: int, rng: Generator = None, *, spectrum: Spectrum | None = None
) -> Factors:
    """The best two components in the plane of the two leading singular vectors.

    If the best approximation of rank two is nonnegative, these are its exact factors, and no
    others have a smaller error. For two components only.
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
    "nnsvdlrc": nnsvdlrc,
    "rank-two": rank_two,
}
