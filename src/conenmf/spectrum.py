"""Leading singular values and vectors of V, through the data layer.

They come from the eigenvalues of VV' or V'V, summed over the samples: formed as a whole if one
side of V is small, otherwise applied to a growing subspace (block Davidson), one pass per step.
V is never densified.
"""

from __future__ import annotations

import numpy as np

from .blocks import cross_products, feature_gram
from .data import Array, Block, DataMatrix, require_data_matrix
from .errors import ComponentsError

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
    weights = None
    if normalize:
        squared = V.norms_squared
        weights = np.divide(1.0, squared, out=np.zeros_like(squared), where=squared > 0)
    with V.own_threads():
        rng = np.random.default_rng(0)
        _, eigenvalues, _ = _leading_eigenvectors(V, k, weights, tol, rng, rough=rough)
    return np.sqrt(np.maximum(eigenvalues, 0.0))


def largest_share(V: DataMatrix, k: int) -> float:
    """Return an upper bound on sum_{j <= k} sigma_j^2 / ||V||^2, the share k components explain.

    An eigenvalue of VV' is at most as far from its approximation as the residual of the
    approximate eigenvector is long; these lengths are added. (That no leading vector was missed
    altogether is as certain as the random first subspace makes it.)
    """
    with V.own_threads():
        rng = np.random.default_rng(0)
        _, values, residuals = _leading_eigenvectors(V, k, None, 1e-8, rng)
    total = float(V.norms_squared.sum())
    return float((np.maximum(values, 0.0) + residuals).sum()) / total


def truncated_svd(
    V: DataMatrix,
    k: int,
    *,
    tol: float = 1e-5,
    rng: np.random.Generator | None = None,
) -> tuple[Array, Array, Array]:
    """Return U (F, k), sigma (k,) and R (k, N), the leading part of V = U diag(sigma) R.

    Parameters
    ----------
    V : DataMatrix (F, N)
    k : int
        At most min(F, N).
    tol : float
        ||VV'u - sigma^2 u|| <= tol * sigma^2 for each vector u found on a subspace.
    rng : numpy.random.Generator, optional
        Draws the first subspace; by default always the same.
    """
    require_data_matrix(V)
    if not 1 <= k <= min(V.shape):
        raise ComponentsError(
            f"a {V.shape[1]} x {V.shape[0]} matrix has {min(V.shape)} singular values, "
            f"not the {k} asked for"
        )
    with V.own_threads():
        rng = np.random.default_rng(0) if rng is None else rng
        X, _, _ = _leading_eigenvectors(V, k, None, tol, rng)
        # V'X is tall and thin; its singular values do not suffer from the square in VV'.
        B, _ = V.sweep(_project, X=X)
    right, sigma, mix = np.linalg.svd(B, full_matrices=False)
    return X @ mix.T, sigma, right.T


def _project(block: Block, *, X: Array) -> tuple[Array, None]:
    return block.astype(np.float64, copy=False).T @ X, None


def _gram(block: Block, weights: Array | None = None) -> tuple[Array]:
    return (feature_gram(block, weights),)


def _cross(block: Block, *, other: Block) -> tuple[Array, None]:
    return cross_products(block, other), None


def _combine(block: Block, coefficients: Array) -> tuple[Array]:
    return (block.astype(np.float64, copy=False) @ coefficients,)


def _apply(block: Block, weights: Array | None = None, *, X: Array) -> tuple[Array]:
    """VV'X, or V diag(weights) V'X."""
    exact = block.astype(np.float64, copy=False)
    C = exact.T @ X
    return (exact @ (C if weights is None else C * weights[:, None]),)


def _leading_eigenvectors(
    V: DataMatrix,
    k: int,
    weights: Array | None,
    tol: float,
    rng: np.random.Generator,
    *,
    rough: bool = False,
) -> tuple[Array, Array, Array]:
    """The k leading eigenvectors (F, k) and eigenvalues of A = V diag(weights) V', residuals."""
    F, N = V.shape
    aligned = () if weights is None else (weights,)
    size = min(k + max(8, k // 4), F, N)  # a few more than wanted: they speed up convergence
    if min(F, N) <= max(_SMALL_GRAM, _GRAM_PER_VECTOR * size):
        whole = _from_features(V, k, aligned) if F <= N else _from_samples(V, k, weights)
        rounding = 10 * min(F, N) * np.finfo(np.float64).eps * max(float(whole[1][0]), 0.0)
        return *whole, np.full(k, rounding)

    (start,) = V.sweep(_combine, rng.standard_normal((N, size)))
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


def _from_features(V: DataMatrix, k: int, aligned: tuple[Array, ...]) -> tuple[Array, Array]:
    """Form A itself, (F, F); one pass."""
    (A,) = V.sweep(_gram, *aligned)
    values, vectors = np.linalg.eigh(A)
    return vectors[:, : -k - 1 : -1], values[: -k - 1 : -1]


def _from_samples(V: DataMatrix, k: int, weights: Array | None) -> tuple[Array, Array]:
    """Form V'V, (N, N), which has the same eigenvalues; one pass per chunk of samples."""
    N = V.shape[1]
    chunks = [np.arange(n, min(n + _CHUNK, N)) for n in range(0, N, _CHUNK)]
    A = np.hstack([V.sweep(_cross, other=V.columns(chunk))[0] for chunk in chunks])
    scale = np.ones(N) if weights is None else np.sqrt(weights)
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
