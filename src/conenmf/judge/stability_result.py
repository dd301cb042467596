"""What many fits have in common, as `stability` returns it: said, drawn, certified and saved."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arguments import integer, optional
from ..data.blocks import Array
from ..data.matrix import Aligned, DataMatrix
from ..data.saving import SavedArrays, arrays_of_names, reading, write_arrays
from ..errors import FactorError, FileFormatError, NotAvailableError
from ..linalg.spectrum import Spectrum
from ..names import Names
from ..solve.goals import best_coefficients
from ..text import counted
from . import plots
from .certifying import (
    AnyCertificate,
    certificate_of_numbers,
    certify,
    certify_beside,
    numbers_of_certificate,
    quality_in_words,
)
from .count_certificate import CountCertificate
from .limits import LEVEL, MAX_MOVE
from .named import NamedComponents

__all__ = ["LIMITS", "Stability", "of_saved", "plain"]

LIMITS = (0.05, 0.95)
"""Quantiles: the limits of entries, and of cosines."""

FORMAT = "conenmf-stability-2"  # 1 had limits without moves
_STABLE_SHARE = 0.8  # of the runs, in which a stable component is found ...
_STABLE_SILHOUETTE = 0.5  # ... by others that are nearer to each other than to any other component
_DIFFERENCES = {
    "start": "random inits",
    "samples": "random inits, samples drawn with replacement",
    "counts": "random inits, counts drawn again",
}
_FACTORS = ("W", "H", "best_run", "spectra")
_NUMBERS = ("found_in", "cosines", "run_errors")
_WITH_NAN = ("silhouettes", "lower", "upper", "moves")  # without a consensus, or withheld
_TEXTS = ("loss", "resample", "problem", "no_moves")
_FLOATS = ("objective", "relative_error", "best_objective", "best_relative_error")
_INTEGERS = ("n_left_out", "n_minima")
_CERTIFICATES = ("certificate", "best_certificate")


@dataclass(frozen=True, eq=False)
class Stability(NamedComponents):
    """What many fits have in common.

    Components are sorted by their share of the reconstruction, the largest first.

    Attributes
    ----------
    W : array (F, K)
        The components of the consensus: medians over runs, each with a sum of one. Those of the
        best run if there is no consensus, see `problem`.
    H : array (K, N)
        The best coefficients for W.
    labels : array (N,), integers
        The component that contributes most to each sample; -1 for samples that are zero.
    found_in : array (K,)
        The share of the runs that have such a component: matched one to one, with a cosine above
        0.9.
    silhouettes : array (K,)
        The mean silhouette of those that belong to each component; NaN without a consensus.
    cosines : array (n_runs, K)
        Of each component with its partner in each run.
    lower, upper : arrays (F, K)
        Limits of the entries of W, made to cover at least nine in ten of what W estimates. Their
        distance from W combines the error over runs, see `entry_limits`, with how far noise lets
        the component be moved, see `moved_ranges`; for least squares they allow for noise that was
        clipped at zero, see `without_clipping`. NaN where they are withheld.
    moves : array (K,)
        How far each component can be moved within the noise of the data, in radians; NaN if that
        is not known, see `no_moves`. A component may be stable, and yet be moved: all runs then
        end at the same one of several answers.
    objective, relative_error : float
        Of W and H.
    best_run : array (F, K)
        Of the run with the lowest objective.
    best_objective, best_relative_error : float
        With the best coefficients for it.
    is_kept : array (n_runs,)
        Whether each run takes part in the consensus, see `max_excess`.
    n_left_out : int
        How many components of these runs are left out, since few others are near them.
    n_minima : int
        How many of the runs are different: with a component whose cosine with its partner is below
        0.99. Of runs on data drawn again, all may be.
    spectra : array (n_runs, F, K)
        W of each run.
    run_errors : array (n_runs,)
        The relative error of each, on the data that it drew.
    loss, resample : str
    names : Names
        Of samples and features.
    problem : str
        Why there is no consensus; empty if there is one.
    no_moves : str
        Why it is not known how far components can be moved; empty if it is.
    certificate, best_certificate : Certificate, CountCertificate or None
        Of W and H, and of the best run; None until `certify()` is called.
    data : DataMatrix or None
        For `certify()`; None once this was pickled or loaded.
    """

    W: Array
    H: Aligned
    labels: Aligned
    found_in: Array
    silhouettes: Array
    cosines: Array
    lower: Array
    upper: Array
    moves: Array
    objective: float
    relative_error: float
    best_run: Array
    best_objective: float
    best_relative_error: float
    is_kept: Array
    n_left_out: int
    n_minima: int
    spectra: Array
    run_errors: Array
    loss: str
    resample: str
    names: Names
    problem: str
    no_moves: str = ""
    certificate: AnyCertificate | None = None
    best_certificate: AnyCertificate | None = None
    data: DataMatrix | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        n_runs, F, K = self.spectra.shape if self.spectra.ndim == 3 else (-1, -1, -1)
        N = self.H.shape[1] if self.H.ndim == 2 else -1
        shapes = {
            (F, K): (self.W, self.lower, self.upper, self.best_run),
            (K, N): (self.H,),
            (N,): (self.labels,),
            (K,): (self.found_in, self.silhouettes, self.moves),
            (n_runs, K): (self.cosines,),
            (n_runs,): (self.is_kept, self.run_errors),
        }
        if any(one.shape != shape for shape, parts in shapes.items() for one in parts):
            raise FactorError(
                f"these parts do not belong together: W {self.W.shape}, H {self.H.shape}, runs "
                f"{self.spectra.shape}"
            )
        self.names.checked(N, F)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the data."""
        return {**vars(self), "data": None}

    @property
    def K(self) -> int:
        """The number of components."""
        return int(self.W.shape[1])

    @property
    def n_runs(self) -> int:
        """The number of runs."""
        return len(self.spectra)

    @property
    def difference(self) -> str:
        """What the runs differ by, in words."""
        return _DIFFERENCES[self.resample]

    @property
    def is_stable(self) -> Array:
        """Whether each component is: found in 80 % of the runs, with a silhouette of 0.5."""
        silhouettes = np.nan_to_num(self.silhouettes)
        stable: Array = (self.found_in >= _STABLE_SHARE) & (silhouettes >= _STABLE_SILHOUETTE)
        return stable

    @property
    def withheld(self) -> tuple[str, ...]:
        """Why each component has no limits; empty if it has."""
        if self.no_moves:
            return (self.no_moves,) * self.K
        reasons = ["" if known else "fewer than two runs have it" for known in self.upper[0] >= 0]
        for k in map(int, np.flatnonzero(self.moves > MAX_MOVE)):
            reasons[k] = f"can be moved by {self.move_in_words(k)} within the noise"
        return tuple(reasons)

    @property
    def verdict(self) -> str:
        """One of "stable", "partly stable" and "unstable": all, at least half, or fewer are."""
        share = self.is_stable.mean()
        return "stable" if share == 1 else "partly stable" if share >= 0.5 else "unstable"

    @property
    def cosine_limits(self) -> Array:
        """The quantiles 0.05 and 0.95 of the cosines of each component, (2, K)."""
        return np.quantile(self.cosines, LIMITS, axis=0)

    def certify(self, *, effort: int | None = None) -> AnyCertificate:
        """Return the certificate of the consensus; `best_certificate` then is that of the best run.

        The first call reads the data, some tens of times. Both have the same lower bound.

        Parameters
        ----------
        effort : int, optional
            As in `conenmf.certify`; a later call computes it again only if it is higher.
        """
        effort = optional(integer, "effort", effort, at_least=0)
        known = self.certificate
        if known is not None and (effort is None or effort <= known.effort):
            effort = known.effort
        else:
            known = None
        if known is None or self.best_certificate is None:
            if self.data is None:
                raise NotAvailableError(
                    "certify() needs the data, which are not kept when this is pickled or saved: "
                    "call it before"
                )
            V, best, spectrum = self.data, self.best_run, Spectrum(self.data)
            if known is None:
                known = certify(V, self.W, self.H, loss=self.loss, effort=effort, spectrum=spectrum)
            H = best_coefficients(V, best, self.loss)[0]
            beside = certify_beside(V, known, best, H, spectrum=spectrum)
            for name, value in (("certificate", known), ("best_certificate", beside)):
                object.__setattr__(self, name, value)
        return known

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything but the data to one ``.npz`` file, without pickle.

        The file appears under exactly this name, and only when it is complete.
        """
        write_arrays(path, *plain(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Stability:
        """Read what `save` wrote; anything else, or a damaged file, raises `FileFormatError`."""
        with reading(path, FORMAT, "what stability() found, as") as saved:
            return of_saved(saved)

    def __str__(self) -> str:
        low, high = self.cosine_limits
        rows = [f"{counted(self.K, 'component')}, {self.n_runs} runs: {self.difference}"]
        rows.append("component  found in  silhouette  cosine  [5 %, 95 %]     can move")
        for k, middle in enumerate(np.median(self.cosines, axis=0)):
            rows.append(
                f"{k:>9}  {self.found_in[k]:>8.0%}  {self.silhouettes[k]:>10.3f}  {middle:>6.3f}"
                f"  [{low[k]:.3f}, {high[k]:.3f}]  {self.move_in_words(k):>8}"
                f"{'' if self.is_stable[k] else '  not stable'}"
            )
        return "\n".join([*rows, *self.in_sentences()])

    def move_in_words(self, k: int) -> str:
        """Return how far noise lets component k be moved: "3.1°"."""
        angle = math.degrees(self.moves[integer("k", k, at_least=0, at_most=self.K - 1)])
        return f"{angle:.1f}°" if math.isfinite(angle) else "unknown"

    def limits_in_words(self) -> str:
        """Return which components have limits, and why the others have none."""
        reasons: dict[str, list[str]] = {}
        for k, reason in enumerate(self.withheld):
            reasons.setdefault(reason, []).append(str(k))
        n_limits = len(reasons.pop("", []))
        words = f"limits of {LEVEL:.0%} for {n_limits} of {counted(self.K, 'component')}"
        for reason, which in reasons.items():
            words += f"; withheld for {', '.join(which)}: {reason}"
        return words

    def in_sentences(self) -> list[str]:
        """Return the verdict, the errors and the number of distinct solutions, in sentences."""
        n_stable = int(self.is_stable.sum())
        named = "relative divergence" if self.loss == "poisson" else "relative error"
        errors = f"{self.relative_error:.4g} of the consensus, {self.best_relative_error:.4g} of"
        n_kept = int(self.is_kept.sum())
        left_out = f"{self.n_left_out} of the {n_kept * self.K} components of {n_kept} runs"
        sentences = [
            f"{self.verdict}: {n_stable} of {counted(self.K, 'component')} found in at least "
            f"{_STABLE_SHARE:.0%} of the runs, with a silhouette of at least {_STABLE_SILHOUETTE}",
            f"{self.limits_in_words()}; stable does not mean unique: limits include how far noise "
            "lets a component move",
            f"{named}: {errors} the best run",
            f"distinct solutions: {self.n_minima} in {self.n_runs} runs; the consensus leaves out "
            f"{left_out}",
        ]
        if self.problem:
            sentences[1:] = [
                self.limits_in_words(),
                f"no consensus: {self.problem}; the components are those of the best run",
                f"{named}: {self.best_relative_error:.4g}",
                f"distinct solutions: {self.n_minima} in {self.n_runs} runs",
            ]
        if self.K > (F := self.W.shape[0]):
            sentences.append(f"{self.K} components of {F} features: at most {F} can be independent")
        return [*sentences, *self._certified()]

    def _certified(self) -> list[str]:
        """What the certificates say: the bound that both share, and how far each is from it."""
        if self.certificate is None or self.best_certificate is None:
            return []
        lines, best = quality_in_words(self.certificate, self.K), _distances(self.best_certificate)
        for what, distance in _distances(self.certificate).items():
            both = f" of the consensus, {best.get(what, '-')} of the best run"
            lines.append(f"{what}: {distance}{'' if self.problem else both}")
        if not self.problem:
            lines.append("a consensus is made of medians: it need not be a minimum, as a run is")
        return lines

    def plot(self, axes: Any = None) -> Array:
        """Draw the components with the limits of their entries; return the matplotlib axes."""
        titles = [
            f"component {k}: in {share:.0%}{', limits withheld' * bool(self.withheld[k])}"
            for k, share in enumerate(self.found_in)
        ]
        lower, upper = (self.W, self.W) if self.problem else (self.lower, self.upper)
        return plots.bands(self.W, lower, upper, axes, titles=titles)


def _distances(certificate: AnyCertificate) -> dict[str, str]:
    """How far factors are from the best, by what is known of it."""
    gap = {"gap to the lower bound": f"{certificate.gap:.2g}"}
    if isinstance(certificate, CountCertificate):
        gaps = f"{certificate.coefficient_gap:.2g}, {certificate.component_gap:.2g}"
        return (gap if certificate.is_bound_telling else {}) | {"duality gaps of H, W": gaps}
    return gap | {"distance from a stationary point": f"{certificate.kkt_residual:.2g}"}


def plain(found: Stability, prefix: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arrays and the facts to save, with a prefix to the names of arrays."""
    arrays = {
        name: getattr(found, name)
        for name in (*_FACTORS, *_NUMBERS, *_WITH_NAN, "labels", "is_kept")
    }
    for name in _CERTIFICATES:
        if (certificate := getattr(found, name)) is not None:
            arrays[name] = numbers_of_certificate(certificate)
    names, shapes = arrays_of_names(found.names)
    facts = {name: getattr(found, name) for name in (*_TEXTS, *_FLOATS, *_INTEGERS)}
    named = {prefix + name: array for name, array in arrays.items()}
    return {**named, **names}, {"format": FORMAT, **shapes, **facts}


def of_saved(
    saved: SavedArrays, prefix: str = "", facts: dict[str, Any] | None = None
) -> Stability:
    """Return what `plain` took apart; refuse what does not fit together."""
    facts = saved.facts if facts is None else facts
    values: dict[str, Any] = {name: saved.factor(prefix + name) for name in _FACTORS}
    values |= {name: saved.numbers(prefix + name) for name in _NUMBERS}
    values |= {name: saved.numbers(prefix + name, nan=True) for name in _WITH_NAN}
    values["labels"] = saved.numbers(prefix + "labels", "i")
    values["is_kept"] = saved.numbers(prefix + "is_kept", "b")
    for names, kind in ((_TEXTS, str), (_FLOATS, float), (_INTEGERS, int)):
        values |= {name: kind(facts[name]) for name in names}
    for name in _CERTIFICATES:
        if prefix + name in saved:
            numbers = saved.numbers(prefix + name)
            values[name] = certificate_of_numbers(numbers, values["loss"])
    found = Stability(**values, names=saved.names_of_data())
    labels = found.labels
    if labels.size and not -1 <= labels.min() <= labels.max() < found.K:
        raise FileFormatError("its labels are not those of its components")
    if found.resample not in _DIFFERENCES:
        raise FileFormatError(f"its runs differ by {found.resample!r}, which is unknown")
    return found
