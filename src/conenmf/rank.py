"""Leading singular values of V, and the number of components they suggest.

The paper estimates K by the largest ratio of adjacent singular values (Section V, Theorem 9).
The singular values come from the eigenvalues of VV', which is summed over the samples: as a
whole if F is small, otherwise on a growing subspace (block Davidson), one pass per step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .data import Array, Block, DataMatrix, feature_gram, require_data_matrix
from .errors import ComponentsError

__all__ = ["RankEstimate", "estimate_rank", "singular_values", "truncated_svd"]

_SMALL_GRAM = 500  # features up to which VV' is formed whatever k is
_GRAM_PER_VECTOR = 16  # ... and features per wanted vector up to which it is cheaper
_LARGEST_AUTO = 100  # components up to which K is searched by default
_MAX_STEPS = 100


@dataclass(frozen=True)
class RankEstimate:
    """The number of components by the ratio of adjacent singular values.

    Attributes
    ----------
    K : int
    singular_values : array (k_max + 1,)
        sigma_1, sigma_2, ... of V (of the unit-length samples if normalized).
    ratios : array (k_max,)
        sigma_k / sigma_{k+1} for k = 1, 2, ...; where both are zero to rounding it is 1.
    margin : float
        The largest ratio in the range searched over the second largest, at least 1.
    """

    K: int
    singular_values: Array
    ratios: Array
    margin: float


def estimate_rank(
    V: DataMatrix, k_min: int = 2, k_max: int | None = None, *, normalize: bool = False
) -> RankEstimate:
    """Estimate K as the argmax of sigma_k / sigma_{k+1} over k_min <= k <= k_max.

    Parameters
    ----------
    V : DataMatrix (F, N)
    k_min : int
        The paper asks for more than one: the first ratio of nonnegative data is always large.
        The estimate is smaller only if the rank of V is.
    k_max : int, optional
        By default half of min(F, N), at most 100.
    normalize : bool
        Use samples of unit length, as the paper advises if lengths differ between cones.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> from conenmf.simulate import make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> estimate_rank(from_columns(model.V)).K
    4
    """
    require_data_matrix(V, nonzero=True)
    smaller = min(V.shape)
    if k_max is None:
        k_max = max(1, k_min if smaller > k_min else 1, min(smaller // 2, _LARGEST_AUTO))
        k_min = min(k_min, k_max)
    if not 1 <= k_min <= k_max <= smaller:
        raise ComponentsError(
            f"the search range {k_min}..{k_max} must lie within 1..{smaller}, "
            f"the smaller side of a {V.shape[1]} x {V.shape[0]} matrix"
        )
    values = np.zeros(k_max + 1)
    found = singular_values(V, min(k_max + 1, smaller), normalize=normalize)
    values[: found.size] = found
    # VV' squares the singular values: below this they are rounding.
    floor = np.sqrt(10 * smaller * np.finfo(np.float64).eps) * values[0]
    above = np.maximum(values, floor)
    ratios = above[:-1] / above[1:]
    searched = ratios[k_min - 1 : k_max]
    K = min(k_min + int(np.argmax(searched)), int(np.count_nonzero(values > floor)))
    runner_up = np.partition(searched, -2)[-2] if searched.size > 1 else 1.0
    return RankEstimate(K, values, ratios, float(searched.max() / runner_up))


def singular_values(V: DataMatrix, k: int, *, normalize: bool = False, tol: float = 1e-5) -> Array:
    """Return the k largest singular values of V, or of V with samples of unit length."""
    weights = None
    if normalize:
        squared = V.norms_squared
        weights = np.divide(1.0, squared, out=np.zeros_like(squared), where=squared > 0)
    with V.own_threads():
        _, eigenvalues = _leading_eigenvectors(V, k, weights, tol, np.random.default_rng(0))
    return np.sqrt(np.maximum(eigenvalues, 0.0))


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
        X, _ = _leading_eigenvectors(V, k, None, tol, rng)
        # V'X is tall and thin; its singular values do not suffer from the square in VV'.
        B, _ = V.sweep(_project, X=X)
    right, sigma, mix = np.linalg.svd(B, full_matrices=False)
    return X @ mix.T, sigma, right.T


def _project(block: Block, *, X: Array) -> tuple[Array, None]:
    return block.astype(np.float64, copy=False).T @ X, None


def _gram(block: Block, weights: Array | None = None) -> tuple[Array]:
    return (feature_gram(block, weights),)


def _combine(block: Block, coefficients: Array) -> tuple[Array]:
    return (block.astype(np.float64, copy=False) @ coefficients,)


def _apply(block: Block, weights: Array | None = None, *, X: Array) -> tuple[Array]:
    """VV'X, or V diag(weights) V'X."""
    exact = block.astype(np.float64, copy=False)
    C = exact.T @ X
    return (exact @ (C if weights is None else C * weights[:, None]),)


def _leading_eigenvectors(
    V: DataMatrix, k: int, weights: Array | None, tol: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    """The k leading eigenvectors (F, k) and eigenvalues of A = V diag(weights) V'."""
    F, N = V.shape
    aligned = () if weights is None else (weights,)
    size = min(k + max(8, k // 4), F, N)  # a few more than wanted: they speed up convergence
    if F <= max(_SMALL_GRAM, _GRAM_PER_VECTOR * size):
        (A,) = V.sweep(_gram, *aligned)
        values, vectors = np.linalg.eigh(A)
        return vectors[:, : -k - 1 : -1], values[: -k - 1 : -1]

    (start,) = V.sweep(_combine, rng.standard_normal((N, size)))
    basis = np.linalg.qr(start)[0]
    (image,) = V.sweep(_apply, *aligned, X=basis)
    for _ in range(_MAX_STEPS):
        values, mix = np.linalg.eigh(basis.T @ image)
        values, mix = values[: -size - 1 : -1], mix[:, : -size - 1 : -1]
        X, AX = basis @ mix, image @ mix
        R = AX - X * values
        remaining = np.linalg.norm(R[:, :k], axis=0)
        if np.all(remaining <= tol * np.maximum(values[:k], 1e-9 * values[0])):
            break
        if basis.shape[1] + size > 4 * size:
            basis, image = X, AX
        new = _new_directions(basis, R)
        if new.shape[1] == 0:
            break
        basis = np.hstack([basis, new])
        image = np.hstack([image, V.sweep(_apply, *aligned, X=new)[0]])
    return X[:, :k], values[:k]


def _new_directions(basis: Array, R: Array) -> Array:
    """Orthonormal basis of what R adds to the span of `basis`."""
    scale = np.linalg.norm(R, axis=0)
    R = R[:, scale > 0] / scale[scale > 0]
    for _ in range(2):
        R = R - basis @ (basis.T @ R)
        left, size, _ = np.linalg.svd(R, full_matrices=False)
        R = left[:, size > 1e-10]
    return R
