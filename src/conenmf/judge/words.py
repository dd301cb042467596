"""What a certificate and the cones of a result mean, in sentences.

A result, its report and the command line use the same ones. Data that do not fall into cones are
the usual case, so a summary mentions cones only if there are some.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .certifying import AnyCertificate
from .diagnosis import ConeDiagnosis

__all__ = [
    "NO_GUARANTEE",
    "cones_in_words",
    "error_in_words",
    "shown_bound",
]

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
    return certificate.lower_bound if certificate.is_bound_telling else None


def cones_in_words(cones: ConeDiagnosis | None) -> str:
    """Say that samples fall into cones; an empty text if they do not, as is usual."""
    geometry = None if cones is None else cones.geometry
    if geometry is None or geometry.angles.size == 1:  # any data are in one cone
        return ""
    if geometry.holds:
        return f"the data fall into cones: yes, margin {geometry.margin:.3g} rad"
    apart = geometry.pairwise.value
    if apart <= 0:
        return ""
    return (
        f"the data fall into cones: yes, samples of different cones are {apart:.3g} rad farther "
        "apart than samples of one; the paper's stricter assumption is not shown to hold"
    )
