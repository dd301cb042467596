"""How good a factorisation is: a lower bound for the error of any, and certificates.

No factorisation with K components has a smaller error than the truncated singular value
decomposition (Eckart and Young), and no nonnegative one than a bound from the dual problem
(`dual_bound`). For any pair of factors: how far it is from that lower bound and from being a
stationary point. A certificate judges the error, not the truth of the components.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arguments import integer
from ..data.blocks import Array, Block, exact, products, residual_squared, weighted_sums
from ..data.matrix import DataMatrix
from ..data.validate import check_factors, require_data_matrix
from ..errors import Message, Option
from ..linalg.svd import Spectrum
from ..pictures import card, gauge, table
from .dual_bound import LowerBound, best_lower_bound, default_effort
from .restricted import bound_given

__all__ = [
    "BoundWarning",
    "Certificate",
    "certify_least_squares",
    "coordinate_steps",
    "first_certificate",
    "lower_bound",
    "proven_in_words",
]

_ROUNDING = 1e-13  # of ||V||^2, in the squared error
_SHORT_SIDE, _SHORT_SIDE_PER_COMPONENT = 200, 16  # of a V whose singular values cost little


class BoundWarning(UserWarning):
    """An error is below its lower bound, which cannot be: one of the two numbers is wrong."""


def lower_bound(
    V: DataMatrix, K: int, *, effort: int = 0, spectrum: Spectrum | None = None
) -> float:
    """Return a relative error that no nonnegative factors with K components are below.

    With effort 0 it is sqrt(sum_{j > K} sigma_j^2) / ||V||, which holds for factors of any sign.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    effort : int
        Most steps by which to raise the bound; see `best_lower_bound` of `dual_bound`, which
        returns the probability with which it holds too.
    spectrum : Spectrum, optional
        That of V, if it is used elsewhere too.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> round(lower_bound(from_columns([[2.0, 0.0], [0.0, 1.0]]), 1), 6)
    0.447214
    """
    effort = integer("effort", effort, at_least=0)
    return best_lower_bound(V, K, effort=effort, spectrum=spectrum).value


def proven_in_words(failure_probability: float) -> str:
    """Say how certain a bound is."""
    if not failure_probability:
        return "proven"
    return f"proven up to a randomized check (failure probability {failure_probability:.0e})"


@dataclass(frozen=True)
class Certificate:
    """How good a factorisation is: its error, a lower bound, and the distance from stationarity.

    Attributes
    ----------
    relative_error : float
        ||V - W H|| / ||V||.
    lower_bound : float
        No nonnegative factorisation with as many components has a smaller relative error.
    gap : float
        Their difference: the error is at most this far from the best possible. If it were
        negative, one of the two would be wrong; `conenmf.certify` warns then.
    kkt_residual : float
        How far W and H are from a stationary point: the norm of the change of W H if each entry
        alone were minimised over, relative to ||V||. It is zero exactly at stationary points, and
        does not depend on the scale of V or on how scale is divided between W and H.
    eckart_young : float
        The lower bound for factors of any sign, from the singular values of V alone.
    is_attained : bool
        Whether it is proven that some nonnegative factorisation has an error equal to the bound:
        for one component, for two if the best approximation of rank two is nonnegative, and for as
        many components as V has samples or features.
    failure_probability : float
        0.0 where the bound is certain. If both sides of V are long, random vectors check that the
        bound misses nothing, and such vectors fail with at most this probability. Their seed is
        fixed, so the same data always give the same answer.
    effort : int
        With which the bound was computed.
    """

    relative_error: float
    lower_bound: float
    gap: float
    kkt_residual: float
    eckart_young: float
    is_attained: bool
    failure_probability: float
    effort: int

    @property
    def closed(self) -> float:
        """The share of the gap to Eckart and Young's bound that the effort has closed."""
        whole = self.relative_error - self.eckart_young
        return (self.lower_bound - self.eckart_young) / whole if whole > 0 else 0.0

    @property
    def proven(self) -> str:
        """How certain the bound is, in words."""
        return proven_in_words(self.failure_probability)

    @property
    def is_bound_telling(self) -> bool:
        """Whether the bound says more than that errors are not negative."""
        return self.lower_bound > 0 or self.is_attained or self.gap <= 0

    @property
    def described_bound(self) -> str:
        """The lower bound, and how certain it is."""
        if not self.is_bound_telling:
            return "0, none above it is known"
        return f"{self.lower_bound:.6g}, {self.proven}{', attained' * self.is_attained}"

    def _repr_html_(self) -> str:
        rows = {
            "relative error": f"{self.relative_error:.4g}",
            "lower bound": self.described_bound,
            "gap": f"{self.gap:.3g}",
            "lower bound for factors of any sign": f"{self.eckart_young:.4g}",
            "KKT residual": f"{self.kkt_residual:.2g}",
        }
        caption = f"error {self.relative_error:.4g}; full: up to its lower bound, faint: the gap"
        picture = gauge(self.lower_bound, self.relative_error, caption)
        return card("Certificate", (), picture, table(rows))


def certify_least_squares(
    V: DataMatrix,
    W: npt.ArrayLike,
    H: Any,
    *,
    effort: int | None = None,
    spectrum: Spectrum | None = None,
    n_fixed: int = 0,
) -> Certificate:
    """Judge a factorisation V ~ W H; some tens of passes over V.

    The residual of the optimality conditions is
    sqrt(sum_k g_k ||min(h_k, d_k / g_k)||^2 + the same for W) / ||V||, where d is the gradient
    W'(WH - V) and g_k = ||w_k||^2.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)
    effort : int, optional
        Most steps by which to raise the lower bound above that of Eckart and Young, which effort 0
        gives; by default 3, of sparse data 1. Each takes about as long as the singular values; they
        end early where they close no more. More effort never lowers the bound.
    spectrum : Spectrum, optional
        That of V, if it is used elsewhere too.
    n_fixed : int
        So many components, the first ones, were given: the bound is that of factors which have
        them too, and that they could be better is not held against W.

    Warns
    -----
    BoundWarning
        If the error is below its lower bound.

    Examples
    --------
    >>> from conenmf import factorize, from_columns
    >>> V = from_columns([[3.0, 3.0, 0.0], [0.0, 4.0, 5.0]])
    >>> result = factorize(V, 1, tol=1e-9)
    >>> certificate = certify_least_squares(V, result.W, result.H)
    >>> certificate.gap < 1e-6, certificate.kkt_residual < 1e-6  # one component: optimal
    (True, True)
    """
    require_data_matrix(V, nonzero=True, whole=True)
    effort = default_effort(V) if effort is None else integer("effort", effort, at_least=0)
    W, Ht = check_factors(V, W, H)
    n_fixed = integer("n_fixed", n_fixed, at_least=0, at_most=W.shape[1])
    with V.own_threads():
        G = W.T @ W
        (VH, HH, squared, steps) = V.sweep(_judge, V.norms_squared, Ht, W=W, G=G, verify=True)[0]
        steps += coordinate_steps(HH, VH, W, slice(n_fixed, None))
        below = best_lower_bound(V, W.shape[1], effort=effort, spectrum=spectrum)
        if n_fixed:
            bound, chance = bound_given(V, W[:, :n_fixed], W.shape[1])
            below = below._replace(is_attained=False)
            if bound > below.value:
                below = below._replace(value=bound, failure_probability=chance)
    error, kkt_residual = (float(np.sqrt(part / V.total)) for part in (squared, steps))
    return _stated(error, kkt_residual, below, effort)


def first_certificate(
    relative_error: float, kkt_residual: float, K: int, spectrum: Spectrum, below: float = 0.0
) -> Certificate:
    """Make the certificate of a fit from what the fit knows.

    Its bound is that of effort 0 where a side of V is short: singular values then take one pass, if
    the fit has not computed them, and about as long as a few iterations. Otherwise it is `below`,
    which may be much lower, and V is not read.

    Parameters
    ----------
    relative_error, kkt_residual : float
        Of the factors.
    K : int
    spectrum : Spectrum
        Of V.
    below : float
        A lower bound for the relative error of K components that is known.
    """
    bound, V = LowerBound(below, below, False, 0.0), spectrum.V
    if min(V.shape) <= max(_SHORT_SIDE, _SHORT_SIDE_PER_COMPONENT * K):
        bound = best_lower_bound(V, K, effort=0, spectrum=spectrum)
    return _stated(relative_error, kkt_residual, bound, 0)


def _stated(error: float, kkt_residual: float, below: LowerBound, effort: int) -> Certificate:
    certificate = Certificate(
        relative_error=error,
        lower_bound=below.value,
        gap=error - below.value,
        kkt_residual=kkt_residual,
        eckart_young=below.eckart_young,
        is_attained=bool(below.is_attained),
        failure_probability=below.failure_probability,
        effort=effort,
    )
    _report_contradiction(certificate)
    return certificate


# --- parts ------------------------------------------------------------------------------------


def _report_contradiction(certificate: Certificate) -> None:
    error, below = certificate.relative_error, certificate.lower_bound
    if error**2 < below**2 - _ROUNDING:
        message = Message(
            f"the relative error {error:.9g} is below its lower bound {below:.9g} "
            f"({certificate.proven}), which cannot be: compute both again in double precision, ",
            Option("effort", 0),
            ", and report the data if that does not help",
        )
        warnings.warn(BoundWarning(message), stacklevel=4)


def _judge(
    block: Block, squared: Array, H: Array, *, W: Array, G: Array
) -> tuple[tuple[Array, Array, float, float]]:
    block, H = exact(block), exact(H)
    C = products(block, W)
    residual = float(residual_squared(block, squared, C, G, W, H).sum())
    return ((weighted_sums(block, H), H.T @ H, residual, coordinate_steps(G, C, H)),)


def coordinate_steps(G: Array, C: Array, Y: Array, columns: slice = slice(None)) -> float:
    """Return the sum over entries of the squared step that minimises over that entry alone.

    Only entries in `columns` count.
    """
    curvature, gradient, Y = np.diagonal(G)[columns], (Y @ G - C)[:, columns], Y[:, columns]
    step = np.divide(gradient, curvature, out=np.zeros_like(gradient), where=curvature > 0)
    return float((curvature * np.minimum(Y, step) ** 2).sum())
