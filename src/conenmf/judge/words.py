"""What a certificate and the cones of a result mean, in sentences.

A result, its report and the command line use the same ones. Data that do not fall into cones are
the usual case, and no fault of the fit: the sentences say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..text import counted
from .certifying import AnyCertificate
from .count_certificate import CountCertificate
from .diagnosis import ConeDiagnosis

__all__ = [
    "NO_GUARANTEE",
    "cones_in_words",
    "error_in_words",
    "shown_bound",
]

_MAX_AMBIGUOUS_SHARE = 0.05  # of samples between cones, if cones are nearly there
NO_GUARANTEE = "the fit is not affected, only the paper's guarantee for cones does not apply"


def error_in_words(
    loss: str, relative_error: float, objective: float, observed: Mapping[str, Any] | None = None
) -> str:
    """Say how large the error is: for counts, how much of the deviance is explained.

    `observed` is what the settings of a result say about missing and weighted entries.
    """
    of = _known_in_words(observed)
    if loss == "frobenius":
        return f"relative error {relative_error:.4g}{of}"
    explained = max(1 - relative_error, 0.0)
    return f"divergence {objective:.6g}{of}, {explained:.1%} of the deviance explained"


def _known_in_words(observed: Mapping[str, Any] | None) -> str:
    if not observed:
        return ""
    missing = float(observed.get("missing", 0.0))
    if not missing:
        return " of the weighted entries"
    weighted = "weighted " * bool(observed.get("weighted"))
    return f" of the {weighted}entries that are known ({missing:.3g} of all are missing)"


def shown_bound(certificate: AnyCertificate | None) -> float | None:
    """Return the lower bound if there is one, and it is high enough to be shown."""
    if certificate is None:
        return None
    if isinstance(certificate, CountCertificate):
        is_low = not certificate.is_bound_telling
    else:
        is_low = certificate.lower_bound == 0 and not certificate.is_attained
    return None if is_low else certificate.lower_bound


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
        between = f"{counted(n_ambiguous, 'sample')} {lie} between cones"
        if n_ambiguous == 0:
            between = "though cones are wider than the paper assumes"
        return f"nearly, {between}; {NO_GUARANTEE}"
    return f"no, as is usual; {NO_GUARANTEE}"
