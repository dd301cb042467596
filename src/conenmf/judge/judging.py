"""How good a result is, by its own data: it judges itself, once, and keeps the answer.

A fit leaves a first certificate, from what it knows. The data are needed for more; they are not
pickled or saved with a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..arguments import flag, integer
from ..cones.certificate import Certificate, objective_bound, observed_bound
from ..cones.dual_bound import DEFAULT_EFFORT
from ..data.blocks import Array
from ..data.matrix import Aligned, DataMatrix
from ..errors import DataChangedError, NotAvailableError
from ..linalg.svd import Spectrum
from ..solve.constraints import Penalties
from .certificate import AnyCertificate, certify, usual_effort
from .diagnosis import Diagnosis, diagnose
from .uniqueness import Uniqueness, uniqueness

__all__ = ["JudgesItself"]


class JudgesItself:
    """The methods of a result that judge it; its fields are described in `Factorization`."""

    W: Array
    H: Aligned
    labels: Aligned
    loss: str
    relative_error: float
    certificate: AnyCertificate | None
    first_certificate: AnyCertificate | None
    diagnosis: Diagnosis | None
    known_uniqueness: Uniqueness | None
    settings: Mapping[str, Any]
    spectrum: Spectrum | None
    data: DataMatrix | None

    def _remember(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def certify(self, *, effort: int | None = None) -> AnyCertificate:
        """Return the certificate: the error, a lower bound for it, the distance from stationarity.

        Of counts, fitted with the Poisson loss, it is a `CountCertificate`, which has the noise
        floor too.

        The first call reads the data; later calls return `certificate`, unless they ask for more
        effort. More effort raises the lower bound; see `certify` of `conenmf`. A result that was
        pickled or loaded has no data: if `certify()` was not called before, it returns
        `first_certificate`, whose effort is 0 and whose bound may be lower.
        """
        certificate = self.certificate or (self.first_certificate if self.data is None else None)
        effort = self._effort(effort, certificate)
        if certificate is None or effort > certificate.effort:
            V = self._require_data("certify(V, W, H)")
            certificate = self._judge(V, effort)
            self._remember(certificate=certificate)
            if self.diagnosis is not None:
                self._remember(diagnosis=replace(self.diagnosis, certificate=certificate))
        return certificate

    def objective_bound(self) -> float:
        """Return a number that the objective of no factors of this kind is below.

        With L2 penalties it has them in it, and with abundances that sum to one it uses that;
        other penalties count as zero, so that it may be far below. Where entries are missing or
        weighted it is above 0 only with L2 penalties on both factors. Of counts it is the bound of
        the divergence alone. It needs the data.
        """
        V = self._require_data("objective_bound()")
        if self.loss == "poisson":
            certificate: Any = self.certify()
            return float(certificate.lower_bound * certificate.of_margins)
        given = self.settings.get("penalties", {})
        ridge = {name: float(given.get(name, 0.0)) for name in ("l2_h", "l2_w")}
        if V.observed is not None:
            return observed_bound(V, self.W, self._H_of(V), **ridge)
        sums = bool(given.get("sum_to_one", False))
        return objective_bound(V, self.W.shape[1], **ridge, sum_to_one=sums, spectrum=self.spectrum)

    def diagnose(self, *, effort: int | None = None) -> Diagnosis:
        """Return the certificate, which components can be turned, the spectrum, the cones and more.

        The first call takes some tens of passes over the data; later calls return `diagnosis`,
        unless they ask for more effort, which is that of the certificate.
        """
        diagnosis, effort = self.diagnosis, self._effort(effort, self.certificate)
        if diagnosis is None:
            V = self._require_data("diagnose(V, W, H, labels)")
            certificate = self._judge(V, effort)  # again: are the data the same?
            own = V.unweighed
            V, spectrum = (V, self.spectrum) if own is None else (own.V, None)
            diagnosis = diagnose(V, self.W, self.H, self.labels, certificate, spectrum=spectrum)
            self._remember(certificate=certificate, diagnosis=diagnosis)
        elif self.certify(effort=effort) is not diagnosis.certificate:
            diagnosis = self.diagnosis  # with the new certificate
            assert diagnosis is not None
        return diagnosis

    def uniqueness(self, *, max_iter: int = 200, thorough: bool = False) -> Uniqueness:
        """Say of each component whether it is unique, can be moved, or neither is known.

        It costs about as much as the fit: `max_iter` is about how many iterations it takes in all.
        With `thorough`, it searches until it can say that a component was not found to move, which
        takes up to tens of times as long; see `conenmf.uniqueness`. The result keeps the answer,
        and computes it again only to search more than before. Of a fit with penalties, or to data
        with missing entries, exact factors of W H alone are sought: others would have other
        penalties, or other values where nothing is known.
        """
        max_iter, thorough = integer("max_iter", max_iter, at_least=0), flag("thorough", thorough)
        known, penalties = self.known_uniqueness, self.settings.get("penalties") or {}
        if penalties or self.settings.get("observed"):
            max_iter, thorough = 0, False
        is_more = known is None or (max_iter > 0 and not known.was_searched)
        if known is None or is_more or (thorough and not known.directions.any()):
            V = self._require_data("uniqueness(V, W, H)")
            H = self._H_of(V)
            n_given = (self.settings.get("fixed") or {}).get("count", 0)
            options: dict[str, Any] = {"n_given": n_given, "max_iter": max_iter}
            options["sum_to_one"] = bool(penalties.get("sum_to_one", False))
            known = uniqueness(V, self.W, H, loss=self.loss, thorough=thorough, **options)
            self._remember(known_uniqueness=known)
        return known

    def _H_of(self, V: DataMatrix) -> Aligned:
        """Return H of the data that were fitted, in which samples may have weights."""
        return self.H if V.unweighed is None else V.unweighed.weighed(self.H)

    def _effort(self, asked: int | None, certificate: AnyCertificate | None) -> int:
        """The effort asked for, or that of the certificate, or the default."""
        if asked is not None:
            known = 0 if certificate is None else certificate.effort
            return max(integer("effort", asked, at_least=0), known)
        if certificate is not None:
            return certificate.effort
        return DEFAULT_EFFORT if self.data is None else usual_effort(self.data, self.loss)

    def _judge(self, V: DataMatrix, effort: int) -> AnyCertificate:
        n_fixed = self.settings.get("fixed", {}).get("count", 0)
        H = self._H_of(V)
        certificate = certify(
            V,
            self.W,
            H,
            loss=self.loss,
            effort=effort,
            spectrum=self.spectrum,
            n_fixed=n_fixed,
            penalties=Penalties.of_plain(self.settings.get("penalties")),
        )
        first = self.first_certificate
        if (
            self.settings.get("penalties")
            and isinstance(first, Certificate)
            and isinstance(certificate, Certificate)
        ):
            # stationary for the objective with its penalties, which only the fit has
            certificate = replace(certificate, kkt_residual=first.kkt_residual)
        if not np.isclose(certificate.relative_error, self.relative_error, rtol=1e-6):
            raise DataChangedError(
                "the data were changed after the fit, so it cannot be judged: fit again, and call "
                "certify() or diagnose() before changing the data"
            )
        return certificate

    def _require_data(self, function: str) -> DataMatrix:
        if self.data is None:
            raise NotAvailableError(
                f"{function.partition('(')[0]}() needs the data, which are not kept when a result "
                f"is pickled or saved: call it before, or use conenmf.{function}"
            )
        return self.data
