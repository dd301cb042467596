"""Leading singular values and vectors of V, through the data layer.

They come from the eigenvalues of VV' or V'V, summed over the samples: formed as a whole if one
side of V is small, otherwise applied to a growing subspace (block Davidson), one pass per step.
V is never densified.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.blocks import Array, Block, cross_products, feature_gram, products, weighted_sums
from ..data.doors import require_data_matrix
from ..data.matrix import Aligned, DataMatrix
from ..errors import ComponentsError

__all__ = ["largest_share", "singular_values", "truncated_svd"]

_SMALL_GRAM = 500  # side of V up to which a Gram matrix is formed whatever k is
_GRAM_PER_VECTOR = 16  # ... and side per wanted vector up to which it is cheaper
_MAX_STEPS = 100
_ROUGH_STEPS = 15
_CHUNK = 256  # samples whose products with all others are formed at a time


def singular_values(
    V: DataMatrix, k: int, *, normalize: bool = False, rough: bool = False, tol: float = 1e-5
) -> Array:
    """Return the k largest singular values of V, or of V with samples of unit length.

    With `rough`, stop when their squares change by less than 1e-4 of themselves from step to
    step, or after 15 steps: enough to compare them, and much sooner than `tol`, a limit for the
    vectors, if they hardly differ.
    """
    with V.own_threads():
        rng = np.random.default_rng(0)
        _, eigenvalues, _ = _leading_eigenvectors(V, k, tol, rng, rough=rough, normalize=normalize)
    return np.sqrt(np.maximum(eigenvalues, 0.0))


def largest_share(V: DataMatrix, k: int) -> float:
    """Return an upper bound on sum_{j <= k} sigma_j^2 / ||V||^2, the share k components explain.

    An eigenvalue of VV' is at most as far from its approximation as the residual of the
    approximate eigenvector is long; these lengths are added. (That no leading vector was missed
    altogether is as certain as the random first subspace makes it.)
    """
    with V.own_threads():
        rng = np.random.default_rng(0)
        _, values, residuals = _leading_eigenvectors(V, k, 1e-8, rng)
    return float((np.maximum(values, 0.0) + residuals).sum()) / V.total


def truncated_svd(
    V: DataMatrix,
    k: int,
    *,
    tol: float = 1e-5,
    rng: np.random.Generator | None = None,
) -> tuple[Array, Array, Aligned]:
    """Return U (F, k), sigma (k,) and R (k, N), the leading part of V = U diag(sigma) R.

    Parameters
    ----------
    V : DataMatrix (F, N)
        Of a `Sketch`, the singular vectors are those of the sketch.
    k : int
        At most min(F, N), or the rank of the sketch.
    tol : float
        ||VV'u - sigma^2 u|| <= tol * sigma^2 for each vector u found on a subspace.
    rng : numpy.random.Generator, optional
        Draws the first subspace; by default always the same.
    """
    require_data_matrix(V)
    most = min(V.depth, V.shape[1])
    if not 1 <= k <= most:
        raise ComponentsError(
            f"a {V.shape[1]} x {V.depth} matrix has {most} singular values, not the {k} asked for"
        )
    with V.own_threads():
        rng = np.random.default_rng(0) if rng is None else rng
        # V'X is tall and thin; its singular values do not suffer from the square in VV'.
        if V.subspace is not None:
            Q, B = V.subspace
            X = Q.astype(np.float64)
            (triangle,) = V.map(_only_triangle, B, reduce=_stack)
        else:
            X, _, _ = _leading_eigenvectors(V, k, tol, rng)
            B, triangle = V.sweep(_project, X=X, reduce=_stack)
        _, sigma, turn = (part[:k] for part in np.linalg.svd(triangle))
        turn *= _signs(X @ turn.T)[:, None]
        scale = np.divide(1.0, sigma, out=np.zeros_like(sigma), where=sigma > 0)
        right, _ = V.map(_product, B, right=turn.T * scale)
    return X @ turn.T, sigma, right.T


def _signs(U: Array) -> Array:
    """Signs that make the largest entry of each column positive, the first one if several are."""
    size = np.abs(U)
    leading = (size >= size.max(axis=0) * (1 - 1e-9)).argmax(axis=0)
    signs: Array = np.where(np.take_along_axis(U, leading[None], axis=0)[0] < 0, -1.0, 1.0)
    return signs


def _project(block: Block, *, X: Array) -> tuple[Array, Array]:
    """V'X, and the triangle of its QR decomposition, which has the same singular values."""
    B = products(block.astype(np.float64, copy=False), X)
    return B, _triangle(B)


def _only_triangle(samples: range, B: Array) -> tuple[Array]:
    return (_triangle(B.astype(np.float64)),)


def _stack(a: Array, b: Array) -> Array:
    return _triangle(np.vstack([a, b]))


def _triangle(B: Array) -> Array:
    missing = max(B.shape[1] - B.shape[0], 0)  # zero rows make it square
    triangle: Any = np.linalg.qr(np.pad(B, ((0, missing), (0, 0))), mode="r")
    return np.asarray(triangle)


def _product(samples: range, B: Array, *, right: Array) -> tuple[Array, None]:
    return B @ right, None


def _inverses(squared: Array) -> Array:
    """1 / ||v||^2, by which samples of unit length are weighted; 0 for zero samples."""
    return np.divide(1.0, squared, out=np.zeros_like(squared), where=squared > 0)


def _gram(block: Block, squared: Array | None = None) -> tuple[Array]:
    return (feature_gram(block, None if squared is None else _inverses(squared)),)


def _cross(block: Block, *, other: Block) -> tuple[Array, None]:
    return cross_products(block, other), None


def _combine(block: Block, coefficients: Array) -> tuple[Array]:
    return (weighted_sums(block.astype(np.float64, copy=False), coefficients),)


def _apply(block: Block, squared: Array | None = None, *, X: Array) -> tuple[Array]:
    """VV'X, or the same for samples of unit length."""
    exact = block.astype(np.float64, copy=False)
    C = products(exact, X)
    return (weighted_sums(exact, C if squared is None else C * _inverses(squared)[:, None]),)


def _leading_eigenvectors(
    V: DataMatrix,
    k: int,
    tol: float,
    rng: np.random.Generator,
    *,
    rough: bool = False,
    normalize: bool = False,
) -> tuple[Array, Array, Array]:
    """The k leading eigenvectors (F, k) and eigenvalues of A = VV', and their residuals.

    With `normalize`, those of V with samples of unit length.
    """
    F, N = V.shape
    aligned = (V.norms_squared,) if normalize else ()
    size = min(k + max(8, k // 4), F, N)  # a few more than wanted: they speed up convergence
    if min(F, N) <= max(_SMALL_GRAM, _GRAM_PER_VECTOR * size):
        whole = _from_features(V, k, aligned) if F <= N else _from_samples(V, k, aligned)
        rounding = 10 * min(F, N) * np.finfo(np.float64).eps * max(float(whole[1][0]), 0.0)
        return *whole, np.full(k, rounding)

    (start,) = V.sweep(_apply, *aligned, X=rng.standard_normal((F, size)))
    basis = np.linalg.qr(start)[0]
    (image,) = V.sweep(_apply, *aligned, X=basis)
    before = np.zeros(k)
    for step in range(_MAX_STEPS):
        values, mix = np.linalg.eigh(basis.T @ image)
        values, mix = values[: -size - 1 : -1], mix[:, : -size - 1 : -1]
        X, AX = basis @ mix, image @ mix
        R = AX - X * values
        remaining = np.linalg.norm(R[:, :k], axis=0)
        relevant = np.maximum(values[:k], 1e-9 * values[0])
        if np.all(remaining <= tol * relevant):
            break
        if rough and (step == _ROUGH_STEPS or np.all(values[:k] - before <= 1e-4 * relevant)):
            break
        before = values[:k]
        if basis.shape[1] + size > 4 * size:
            basis, image = X, AX
        new = _new_directions(basis, R)
        if new.shape[1] == 0:
            break
        basis = np.hstack([basis, new])
        image = np.hstack([image, V.sweep(_apply, *aligned, X=new)[0]])
    return X[:, :k], values[:k], remaining


def _from_features(V: DataMatrix, k: int, aligned: tuple[Aligned, ...]) -> tuple[Array, Array]:
    """Form A itself, (F, F); one pass."""
    (A,) = V.sweep(_gram, *aligned)
    values, vectors = np.linalg.eigh(A)
    return vectors[:, : -k - 1 : -1], values[: -k - 1 : -1]


def _from_samples(V: DataMatrix, k: int, aligned: tuple[Aligned, ...]) -> tuple[Array, Array]:
    """Form V'V, (N, N) with N small, which has the same eigenvalues; a pass per chunk."""
    N = V.shape[1]
    size = min(_CHUNK, V.max_gather)
    chunks = [np.arange(n, min(n + size, N)) for n in range(0, N, size)]
    A = np.hstack([np.asarray(V.sweep(_cross, other=V.columns(part))[0]) for part in chunks])
    scale = np.sqrt(_inverses(np.asarray(aligned[0]))) if aligned else np.ones(N)
    values, vectors = np.linalg.eigh(scale[:, None] * A * scale)
    (images,) = V.sweep(_combine, scale[:, None] * vectors[:, : -k - 1 : -1])
    return np.linalg.qr(images)[0], values[: -k - 1 : -1]


def _new_directions(basis: Array, R: Array) -> Array:
    """Orthonormal basis of what R adds to the span of `basis`."""
    scale = np.linalg.norm(R, axis=0)
    R = R[:, scale > 0] / scale[scale > 0]
    for _ in range(2):
        R = R - basis @ (basis.T @ R)
        orthonormal, triangle = np.linalg.qr(R)
        R = orthonormal[:, np.abs(np.diagonal(triangle)) > 1e-10]
    return R
