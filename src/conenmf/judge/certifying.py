"""The certificate of a factorisation, by the loss it was fitted with."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..arguments import instance, integer, optional
from ..cones import certificate as least_squares
from ..cones.certificate import Certificate
from ..cones.dual_bound import default_effort
from ..data.blocks import Array
from ..data.matrix import DataMatrix
from ..data.validate import require_data_matrix
from ..linalg.spectrum import Spectrum
from ..solve.constraints import Penalties
from ..solve.goals import checked_loss
from ..text import counted
from . import divergence_bound
from .count_certificate import CountCertificate, certify_counts
from .known_certificate import certify_known

__all__ = [
    "AnyCertificate",
    "bound_in_words",
    "certificate_of_numbers",
    "certify",
    "certify_beside",
    "numbers_of_certificate",
    "quality_in_words",
    "usual_effort",
]

AnyCertificate: TypeAlias = Certificate | CountCertificate


def certify(
    V: DataMatrix,
    W: npt.ArrayLike,
    H: Any,
    *,
    loss: str = "frobenius",
    effort: int | None = None,
    spectrum: Spectrum | None = None,
    n_fixed: int = 0,
    penalties: Penalties | None = None,
) -> AnyCertificate:
    """Judge a factorisation V ~ W H; some tens of passes over V.

    For least squares it is a `Certificate`: the relative error, a lower bound for that of any
    nonnegative factors with as many components, and the residual of the optimality conditions,
    sqrt(sum_k g_k ||min(h_k, d_k / g_k)||^2 + the same for W) / ||V||, where d is the gradient
    W'(WH - V) and g_k = ||w_k||^2. For counts it is a `CountCertificate`: the divergence, a lower
    bound, duality gaps, and the noise floor. Where entries are missing or weighted, all of it is
    about those that are known, and a lower bound of 0 says that none is known.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)
    loss : {"frobenius", "poisson"}
        What the factors were fitted with; "kullback-leibler" is another name of the second.
    effort : int, optional
        Most steps by which to raise the lower bound above that of singular values alone, which
        effort 0 gives; by default 3, of sparse data 1, of counts 6. Each takes about as long as the
        singular values; they end early where they close no more.
    spectrum : Spectrum, optional
        That of V, if it is used elsewhere too; not needed for counts.
    n_fixed : int
        So many components, the first ones, were given: the bound is that of factors which have
        them too, and that they could be better is not held against W. Of counts it is the bound of
        all factors.
    penalties : Penalties, optional
        Those of a fit of counts: the duality gaps are those of the divergence and these.

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
    require_data_matrix(V, nonzero=True, holes=True)
    loss = checked_loss(loss)
    effort = optional(integer, "effort", effort, at_least=0)
    optional(instance, "penalties", penalties, Penalties)
    spectrum = None if spectrum is None else Spectrum.of(V, spectrum)
    effort = usual_effort(V, loss) if effort is None else effort
    if loss == "frobenius" and V.observed is not None:
        return certify_known(V, W, H, effort=effort, n_fixed=n_fixed)
    if loss == "frobenius":
        return least_squares.certify(V, W, H, effort=effort, spectrum=spectrum, n_fixed=n_fixed)
    return certify_counts(V, W, H, effort=effort, n_fixed=n_fixed, penalties=penalties)


def usual_effort(V: DataMatrix, loss: str) -> int:
    """Return how many steps to take if none are asked for."""
    return default_effort(V) if loss == "frobenius" else divergence_bound.DEFAULT_EFFORT


def certify_beside(
    V: DataMatrix,
    known: AnyCertificate,
    W: npt.ArrayLike,
    H: Any,
    *,
    spectrum: Spectrum | None = None,
) -> AnyCertificate:
    """Judge other factors of V with as many components, given the certificate of some.

    The lower bound is the same and is not computed again; nor is a noise floor.
    """
    other: AnyCertificate
    if isinstance(known, CountCertificate):
        other = certify_counts(V, W, H, effort=0, floor=False)
    else:
        other = least_squares.certify(V, W, H, effort=0, spectrum=spectrum)
        other = replace(other, eckart_young=known.eckart_young, is_attained=known.is_attained)
    return replace(
        other,
        lower_bound=known.lower_bound,
        gap=other.relative_error - known.lower_bound,
        failure_probability=known.failure_probability,
        effort=known.effort,
    )


def numbers_of_certificate(certificate: AnyCertificate) -> Array:
    """Return all that a certificate says as an array, to be saved."""
    return np.array(list(vars(certificate).values()), dtype=np.float64)


def certificate_of_numbers(numbers: Array, loss: str) -> AnyCertificate:
    """Return the certificate of which these are the numbers."""
    kind = CountCertificate if loss == "poisson" else Certificate
    values: dict[str, Any] = dict(
        zip((field.name for field in fields(kind)), numbers.tolist(), strict=True)
    )
    for field in fields(kind):
        if field.type in ("bool", "int"):
            values[field.name] = {"bool": bool, "int": int}[field.type](values[field.name])
    return kind(**values)


def quality_in_words(certificate: AnyCertificate, K: int) -> list[str]:
    """Say what a certificate means for a factorisation with K components, in sentences."""
    if not isinstance(certificate, CountCertificate):
        return [bound_in_words(certificate, K)]
    floor, bound = certificate.floor_in_words(), certificate.bound_in_words(K)
    if not floor and certificate.lower_bound == 0 and certificate.relative_error > 0:
        return ["no lower bound and no noise floor are known for the divergence"]
    return [f"the fit is {floor}"] * bool(floor) + [bound] * bool(bound)


def bound_in_words(certificate: Certificate, K: int) -> str:
    """Say what the lower bound means for factorisations with K components."""
    if not certificate.is_bound_telling:
        return "no lower bound above 0 is known for the error"
    below = f"{certificate.lower_bound:.4g}"
    bound = f"no factorisation with {counted(K, 'component')} can have an error below {below}"
    if certificate.gap < 0:
        return f"{bound}, yet this one has: one of the two numbers is wrong"
    chance = certificate.failure_probability
    certainty = f" (up to a randomized check, failure probability {chance:.0e})" if chance else ""
    return f"{bound}{certainty}{', and one attains it' * certificate.is_attained}"
