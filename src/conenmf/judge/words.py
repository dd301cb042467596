"""What a certificate and the cones of a result mean, in sentences.

A result, its report and the command line use the same ones. Data that do not fall into cones are
the usual case, and no fault of the fit: the sentences say so.
"""

from __future__ import annotations

from ..cones.certificate import Certificate
from ..text import counted
from .diagnosis import ConeDiagnosis

__all__ = ["NO_GUARANTEE", "bound_in_words", "cones_in_words"]

_MAX_AMBIGUOUS_SHARE = 0.05  # of samples between cones, if cones are nearly there
NO_GUARANTEE = "the fit is not affected, only the paper's guarantee for cones does not apply"


def bound_in_words(certificate: Certificate, K: int) -> str:
    """Say what the lower bound means for factorisations with K components."""
    below = f"{certificate.lower_bound:.4g}"
    bound = f"no factorisation with {counted(K, 'component')} can have an error below {below}"
    if certificate.gap < 0:
        return f"{bound}, yet this one has: one of the two numbers is wrong"
    chance = certificate.failure_probability
    certainty = f" (with probability 1 - {chance:.0e})" if chance else ""
    return f"{bound}{certainty}{', and one attains it' * certificate.is_attained}"


def cones_in_words(cones: ConeDiagnosis | None) -> str:
    """Say whether samples fall into cones: "yes", "nearly" or "no", and what follows from it."""
    if cones is None:
        return "no, the samples have fewer directions than there are components"
    geometry = cones.geometry
    if geometry.angles.size == 1:
        return f"one cone holds them all, within {geometry.angles[0]:.3g} rad of its axis"
    if geometry.holds:
        return f"yes, margin {geometry.margin:.3g} rad"
    apart = geometry.pairwise
    if apart.value > 0:
        return (
            f"yes, samples of different cones are {apart.value:.3g} rad farther apart than samples "
            "of one; the paper's stricter assumption is not shown to hold"
        )
    n_ambiguous = geometry.ambiguous.size
    is_near = -geometry.margin < geometry.required_angle / 2
    if is_near and n_ambiguous <= _MAX_AMBIGUOUS_SHARE * cones.sizes.sum():
        lie = "lies" if n_ambiguous == 1 else "lie"
        return f"nearly, {counted(n_ambiguous, 'sample')} {lie} between cones; {NO_GUARANTEE}"
    return f"no, as is usual; {NO_GUARANTEE}"
