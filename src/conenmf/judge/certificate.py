"""How good a factorization is, measured by the loss of its fit.

`certify` asks the loss for its bounds (`Loss.bounds`): for least squares they return a
`Certificate`, for counts a `CountCertificate`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import get_type_hints

from numpy.typing import ArrayLike

from ..arguments import components, integer, optional
from ..data.matrix import Aligned, DataMatrix
from ..data.validate import check_shapes
from ..errors import NotAvailableError, Option
from ..io.open import as_data
from ..linalg.svd import KnownSpectrum, Spectrum
from ..solve.certificate import AnyCertificate, BoundWarning, Certificate
from ..solve.dual_bound import (
    best_lower_bound,
)
from ..solve.losses import Loss, get_loss
from ..solve.losses.count_bounds import CountCertificate
from ..solve.problem import Problem, check_known, problem_of

__all__ = [
    "AnyCertificate",
    "BoundWarning",
    "Certificate",
    "CountCertificate",
    "certify",
    "kind_of_certificate",
    "lower_bound",
    "usual_effort",
]


def lower_bound(V: object, K: int, *, effort: int = 0, spectrum: KnownSpectrum = None) -> float:
    """Return a lower bound for the relative error of all nonnegative factors with K components.

    With effort 0 it is sqrt(sum_{j > K} sigma_j^2) / ||V||, a bound for factors of any sign.

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
    K : int
    effort : int
        Largest number of steps that raise the bound; see `best_lower_bound` of `dual_bound`, which
        also returns the probability that the bound is wrong.
    spectrum : Spectrum, optional
        The spectrum of V, to reuse one that was computed before.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> round(lower_bound(from_columns([[2.0, 0.0], [0.0, 1.0]]), 1), 6)
    0.447214
    """
    V = as_data(V, nonzero=True)
    K = components(K)
    effort = integer("effort", effort, at_least=0)
    return best_lower_bound(V, K, effort=effort, spectrum=spectrum).value


def certify(
    V: object,
    W: ArrayLike,
    H: Aligned,
    *,
    loss: str = "frobenius",
    effort: int | None = None,
    spectrum: KnownSpectrum = None,
    problem: Problem | None = None,
) -> AnyCertificate:
    """Compare the error of V ~ W H with a proven lower bound; some tens of passes over V.

    For least squares the result is a `Certificate`: the relative error, a lower bound for the error
    of all nonnegative factors with K components, and the residual of the optimality conditions,
    sqrt(sum_k g_k ||min(h_k, d_k / g_k)||^2 + the same for W) / ||V||, where d is the gradient
    W'(WH - V) and g_k = ||w_k||^2. For counts it is a `CountCertificate`: the divergence, a lower
    bound, duality gaps, and the noise floor. If entries are missing or weighted, all numbers are
    about the known entries, and a lower bound of 0 means that no bound is known.

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
    W : array (F, K)
    H : array (K, N)
    loss : {"frobenius", "poisson"}
        The loss of the fit; "kullback-leibler" is another name of "poisson".
    effort : int, optional
        Largest number of steps that raise the lower bound above the bound from singular values
        (effort 0). The default is 3 for dense data, 1 for sparse data, and 6 for the Poisson loss.
        A step takes about as long as computing the singular values; the steps end early if they
        gain nothing.
    spectrum : Spectrum, optional
        The spectrum of V, to reuse one that was computed before; not needed for counts.
    problem : Problem, optional
        What the fit minimised, if that is more than a loss. With known components the bound holds
        for all factors that contain them, and the residual ignores them; for the Poisson loss the
        bound holds for all factors, and the duality gaps include penalties. For symmetric factors
        the residual is that of W and its best S, see `solve.symmetric`.

    Warns
    -----
    BoundWarning
        If the error is below its lower bound.

    Examples
    --------
    >>> from conenmf import factorize, from_columns
    >>> V = from_columns([[3.0, 3.0, 0.0], [0.0, 4.0, 5.0]])
    >>> result = factorize(V, 1, tol=1e-9)
    >>> certificate = certify(V, result.W, result.H)
    >>> certificate.gap < 1e-6, certificate.kkt_residual < 1e-6  # one component: optimal
    (True, True)
    """
    V = as_data(V, nonzero=True, holes=True)
    problem = problem_of(problem, loss, "certify").bind(V)
    spectrum = None if spectrum is None else Spectrum.of(V, spectrum)
    bounds = problem.loss.bounds(V, spectrum)
    if bounds is None:
        option = Option("loss", problem.loss.name)
        raise NotAvailableError("no lower bound is known for this loss: ", option)
    W, Ht = check_shapes(V, W, H)
    n_fixed = check_known(problem, W)
    effort = optional(integer, "effort", effort, at_least=0)
    effort = bounds.effort if effort is None else effort
    certificate = bounds.certify(W, Ht.T, effort, n_fixed=n_fixed, penalties=problem.penalties)
    if problem.symmetric and isinstance(certificate, Certificate):
        end, _ = problem.finish(V, W, sort=False)
        return replace(certificate, kkt_residual=end.kkt_residual)
    return certificate


def kind_of_certificate(names: Collection[str]) -> type[AnyCertificate]:
    """Return the class of certificates that has all fields with these names."""
    kinds: tuple[type[AnyCertificate], ...] = (Certificate, CountCertificate)
    return next(kind for kind in kinds if set(names) <= set(get_type_hints(kind)))


def first_certificate(
    V: DataMatrix, loss: Loss, spectrum: KnownSpectrum, error: float, residual: float, K: int
) -> AnyCertificate | None:
    """Return the certificate that a fit has without more work, or None.

    Parameters
    ----------
    V : DataMatrix (F, N)
    loss : Loss
    spectrum : Spectrum or None
        The spectrum of V, if it is known.
    error, residual : float
        The relative error of a fit, and its distance from a stationary point.
    K : int
    """
    bounds = loss.bounds(V, spectrum)
    if bounds is None:
        return Certificate.of(error, residual)
    return bounds.first(error, residual, K)


def usual_effort(V: DataMatrix, loss: str) -> int:
    """Return the default number of steps that raise the bounds of a loss."""
    bounds = get_loss(loss).bounds(V)
    return 0 if bounds is None else bounds.effort
