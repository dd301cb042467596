"""Leading eigenvectors of a symmetric matrix that is only applied to blocks of vectors.

The block method reads V once for many vectors, which is what counts where reading V is expensive:
in a file, on a cluster, in memory if it is dense and large. For other data in memory see `held`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from ..data.blocks import Array

__all__ = ["Apply", "Leading", "davidson"]

Apply: TypeAlias = Callable[[Array], Array]
"""Returns A X for X (n, m)."""

_MAX_STEPS = 100
_MAX_ROUGH_STEPS = 15
_ROUGH_TOL = 1e-4  # of an eigenvalue, relative, in a step
_SMALLEST_SHARE = 1e-9  # of the largest eigenvalue, below which one needs no accuracy of its own
_ROUNDING = 2e-14  # of the largest eigenvalue, in a residual


class Leading(NamedTuple):
    """Leading eigenvectors X (n, m) of A, their eigenvalues, and A X if it was computed.

    There may be more than were asked for; those in excess are less accurate.
    """

    vectors: Array
    values: Array
    images: Array | None


def davidson(apply: Apply, k: int, start: Array, tol: float, *, rough: bool = False) -> Leading:
    """The k leading eigenpairs of A by the block Davidson method; A is applied once per step.

    Rayleigh and Ritz's eigenvectors on a subspace, which grows by the residuals of `size` of them
    and is cut back to these vectors when it is four times as large (Davidson, "The iterative
    calculation of a few of the lowest eigenvalues", J. Comput. Phys. 17, 1975; in blocks: Liu,
    1978; without a preconditioner, as A is never formed).
    """
    basis, size = np.linalg.qr(start)[0], start.shape[1]
    image = apply(basis)
    before = np.zeros(k)
    for step in range(_MAX_STEPS):
        values, mix = np.linalg.eigh(basis.T @ image)
        values, mix = values[: -size - 1 : -1], mix[:, : -size - 1 : -1]
        X, AX = basis @ mix, image @ mix
        R = AX - X * values
        residuals = np.linalg.norm(R[:, :k], axis=0)
        relevant = np.maximum(values[:k], _SMALLEST_SHARE * values[0])
        if np.all(residuals <= np.maximum(tol * relevant, _ROUNDING * values[0])):
            break
        steady = np.all(values[:k] - before <= _ROUGH_TOL * relevant)
        if rough and (step == _MAX_ROUGH_STEPS or steady):
            break
        before = values[:k]
        if basis.shape[1] + size > 4 * size:
            basis, image = X, AX
        new = _new_directions(basis, R)
        if new.shape[1] == 0:
            break
        basis = np.hstack([basis, new])
        image = np.hstack([image, apply(new)])
    return Leading(X, values, AX)


def _new_directions(basis: Array, R: Array) -> Array:
    """Orthonormal basis of what R adds to the span of `basis`."""
    scale = np.linalg.norm(R, axis=0)
    R = R[:, scale > 0] / scale[scale > 0]
    for _ in range(2):
        R = R - basis @ (basis.T @ R)
        orthonormal, triangle = np.linalg.qr(R)
        R = orthonormal[:, np.abs(np.diagonal(triangle)) > 1e-10]
    return R
