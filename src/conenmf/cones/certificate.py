"""How good a factorisation is: a lower bound for the error of any, and certificates.

No factorisation with K components has a smaller error than the truncated singular value
decomposition (Eckart and Young). For any pair of factors: how far it is from that lower bound and
from being a stationary point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..data.blocks import Array, Block, exact, products, residual_squared, weighted_sums
from ..data.matrix import DataMatrix
from ..data.validate import require_data_matrix
from ..errors import FactorError, check_components
from ..linalg.spectrum import Spectrum

__all__ = ["Certificate", "certify", "lower_bound"]


def lower_bound(V: DataMatrix, K: int, *, spectrum: Spectrum | None = None) -> float:
    """Return sqrt(sum_{j > K} sigma_j^2) / ||V||: no K components have a smaller relative error.

    >>> from conenmf import from_columns
    >>> round(lower_bound(from_columns([[2.0, 0.0], [0.0, 1.0]]), 1), 6)
    0.447214
    """
    require_data_matrix(V, nonzero=True)
    K = check_components(K)
    if min(V.shape) <= K:
        return 0.0
    return float(np.sqrt(max(1.0 - Spectrum.of(V, spectrum).largest_share(K), 0.0)))


@dataclass(frozen=True)
class Certificate:
    """How good a factorisation is: its error, a lower bound, and the distance from stationarity.

    Attributes
    ----------
    relative_error : float
        ||V - W H|| / ||V||.
    lower_bound : float
        No factorisation with as many components has a smaller relative error.
    gap : float
        Their difference: the error is at most this far from the best possible.
    kkt_residual : float
        How far W and H are from a stationary point: the norm of the change of W H if each entry
        alone were minimised over, relative to ||V||. It is zero exactly at stationary points, and
        does not depend on the scale of V or on how scale is divided between W and H.
    """

    relative_error: float
    lower_bound: float
    gap: float
    kkt_residual: float


def certify(
    V: DataMatrix, W: npt.ArrayLike, H: Any, *, spectrum: Spectrum | None = None
) -> Certificate:
    """Judge a factorisation V ~ W H; a few passes over V.

    The residual of the optimality conditions is
    sqrt(sum_k g_k ||min(h_k, d_k / g_k)||^2 + the same for W) / ||V||, where d is the gradient
    W'(WH - V) and g_k = ||w_k||^2.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)
    spectrum : Spectrum, optional
        That of V, if it is used elsewhere too.

    Examples
    --------
    >>> from conenmf import factorize, from_columns
    >>> V = from_columns([[3.0, 3.0, 0.0], [0.0, 4.0, 5.0]])
    >>> result = factorize(V, 1, tol=1e-9)
    >>> certificate = certify(V, result.W, result.H)
    >>> certificate.gap < 1e-6, certificate.kkt_residual < 1e-6  # one component: optimal
    (True, True)
    """
    require_data_matrix(V, nonzero=True)
    W = np.asarray(W, dtype=np.float64)
    Ht = (H if hasattr(H, "shape") else np.asarray(H)).T
    F, N = V.shape
    K = W.shape[1] if W.ndim == 2 else 0
    if W.shape != (F, K) or Ht.shape != (N, K) or K == 0:
        raise FactorError(
            f"W has shape {W.shape} and H {Ht.T.shape}: for data of {F} features and {N} samples "
            f"expected ({F}, K) and (K, {N})"
        )
    Ht = V.align(Ht)
    (valid,) = V.map(_is_factor, Ht, reduce=min)
    if not (valid and np.isfinite(W).all() and W.min() >= 0):
        raise FactorError("W and H must be finite and nonnegative")
    with V.own_threads():
        G = W.T @ W
        (VH, HH, squared, steps) = V.sweep(_judge, V.norms_squared, Ht, W=W, G=G)[0]
        steps += _coordinate_steps(HH, VH, W)
        below = lower_bound(V, K, spectrum=spectrum)
    error = float(np.sqrt(squared / V.total))
    return Certificate(error, below, max(error - below, 0.0), float(np.sqrt(steps / V.total)))


# --- parts ------------------------------------------------------------------------------------


def _is_factor(index: range, H: Array) -> tuple[bool]:
    return (bool(np.isfinite(H).all() and H.min() >= 0),)


def _judge(
    block: Block, squared: Array, H: Array, *, W: Array, G: Array
) -> tuple[tuple[Array, Array, float, float]]:
    block, H = exact(block), exact(H)
    C = products(block, W)
    residual = float(residual_squared(block, squared, C, G, W, H).sum())
    return ((weighted_sums(block, H), H.T @ H, residual, _coordinate_steps(G, C, H)),)


def _coordinate_steps(G: Array, C: Array, Y: Array) -> float:
    """Sum over entries of the squared step that minimises over that entry alone."""
    curvature = np.diagonal(G)
    gradient = Y @ G - C
    step = np.divide(gradient, curvature, out=np.zeros_like(gradient), where=curvature > 0)
    return float((curvature * np.minimum(Y, step) ** 2).sum())
