"""Certificates: how good a factorization is, with what is proved about the best one.

No factorization with K components has a smaller error than the truncated singular value
decomposition (Eckart and Young), and no nonnegative one has a smaller error than a bound from the
dual problem (`dual_bound`). For any pair of factors a certificate states how far they are from this
lower bound and from a stationary point. It covers only the error; it does not prove that components
are the true ones.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass

from ..errors import Message, Option
from ..text import counted
from .dual_bound import (
    LowerBound,
)

_ROUNDING = 1e-13  # of ||V||^2: rounding error of the squared error
# The bound where none is known.
UNKNOWN = LowerBound(0.0, 0.0, False, 0.0)


class BoundWarning(UserWarning):
    """An error is below its lower bound, so one of the two numbers must be wrong."""


class AnyCertificate(ABC):
    """How good a factorization is, by any loss: its error, a lower bound, and their gap.

    A `Certificate` is for squared errors, a `CountCertificate` for the divergence of counts.
    """

    relative_error: float
    lower_bound: float
    gap: float
    failure_probability: float
    effort: int

    @property
    def proven(self) -> str:
        """How certain the bound is, in words."""
        chance = self.failure_probability
        known = f"proven up to a randomized check (failure probability {chance:.0e})"
        return known if chance else "proven"

    @property
    @abstractmethod
    def is_bound_telling(self) -> bool:
        """Whether the lower bound is high enough to be worth showing."""

    @abstractmethod
    def sentences(self, K: int) -> list[str]:
        """Describe the certificate of a factorization with K components."""


def chance_in_words(chance: float) -> str:
    """Say that a bound may be wrong with this probability; "" if it is certain."""
    return f" (up to a randomized check, failure probability {chance:.0e})" if chance else ""


@dataclass(frozen=True)
class Certificate(AnyCertificate):
    """How good a factorization is: its error, a lower bound, and the distance from stationarity.

    Attributes
    ----------
    relative_error : float
        ||V - W H|| / ||V||.
    lower_bound : float
        No nonnegative factorization with as many components has a smaller relative error.
    gap : float
        `relative_error` minus `lower_bound`: the error is at most this far above the smallest
        possible one. If the gap were negative, `conenmf.certify` would warn.
    kkt_residual : float
        How far W and H are from a stationary point. For each entry, compute the step that minimises
        the error over this entry alone; the residual is the norm of all these steps, relative to
        ||V||. It is zero exactly at stationary points, and does not depend on the scale of V or on
        how scale is divided between W and H.
    eckart_young : float
        The lower bound for factors of any sign, from the singular values of V alone.
    is_attained : bool
        Whether some nonnegative factorization provably reaches the bound: for one component, for
        two if the best approximation of rank two is nonnegative, and for as many components as V
        has samples or features.
    failure_probability : float
        0.0 if the bound is certain. If both sides of V are long, the bound comes from a subspace,
        and random vectors check that the subspace is large enough. This check fails with at most
        this probability. The seed is fixed, so the same data always give the same answer.
    effort : int
        The effort with which the bound was computed.

    Examples
    --------
    >>> from conenmf import factorize, from_columns
    >>> result = factorize(from_columns([[3.0, 3.0, 0.0], [0.0, 4.0, 5.0]]), 1, tol=1e-9)
    >>> certificate = result.certify()
    >>> certificate.is_attained, certificate.proven
    (True, 'proven')
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
        """The share of the gap between the error and `eckart_young` that the effort has closed."""
        whole = self.relative_error - self.eckart_young
        return (self.lower_bound - self.eckart_young) / whole if whole > 0 else 0.0

    @property
    def is_bound_telling(self) -> bool:
        """Whether the bound is clearly above zero."""
        return self.lower_bound > 0 or self.is_attained or self.gap <= 0

    @classmethod
    def of(
        cls, error: float, kkt_residual: float, below: LowerBound = UNKNOWN, effort: int = 0
    ) -> Certificate:
        """Return the certificate of an error; warn if it is below its bound.

        Parameters
        ----------
        error : float
            The relative error.
        kkt_residual : float
        below : LowerBound
        effort : int
        """
        certificate = cls(
            relative_error=error,
            lower_bound=below.value,
            gap=error - below.value,
            kkt_residual=kkt_residual,
            eckart_young=below.eckart_young,
            is_attained=bool(below.is_attained),
            failure_probability=below.failure_probability,
            effort=effort,
        )
        if error**2 < below.value**2 - _ROUNDING:
            message = Message(
                f"the relative error {error:.9g} is below its lower bound {below.value:.9g} "
                f"({certificate.proven}), which cannot be: compute both again in double ",
                "precision, ",
                Option("effort", 0),
                ", and report the data if that does not help",
            )
            warnings.warn(BoundWarning(message), stacklevel=3)
        return certificate

    def sentences(self, K: int) -> list[str]:
        """Describe the lower bound in sentences.

        Parameters
        ----------
        K : int
            The number of components.
        """
        if not self.is_bound_telling:
            return ["no lower bound above 0 is known for the error"]
        below = f"{self.lower_bound:.4g}"
        bound = f"no factorization with {counted(K, 'component')} can have an error below {below}"
        if self.gap < 0:
            return [f"{bound}, yet this one has: one of the two numbers is wrong"]
        bound += chance_in_words(self.failure_probability)
        return [f"{bound}, and one attains it" if self.is_attained else bound]
