"""What commands print without ``--json``."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np

from ..data.blocks import Array
from ..export import REPORT_FILE
from ..judge.certificate import AnyCertificate, CountCertificate
from ..judge.choose_k import Selection
from ..judge.diagnosis import NO_GUARANTEE, ConeDiagnosis
from ..result import Factorization
from ..solve.race import Race
from ..solve.run import StopReason
from ..text import counted, visible
from .options import Request

_SHOWN_FEATURES, _SHOWN_COMPONENTS = 8, 20
_MAX_WORD_CHARS = 30


def fit_text(result: Factorization, request: Request, target: Path, replaces: bool) -> str:
    """The summary of a fit, where its files are, and what can be done next."""
    lines = [*result.summary()]
    if result.is_on_plateau:
        lines.append("raise --max-iter, or try another --init")
    elif result.stop_reason is StopReason.MAX_ITER and result.settings["max_iter"] > 0:
        lines.append("the error was still falling at --max-iter: raise it for a better fit")
    lines += _components(result)
    is_interrupted = result.stop_reason is StopReason.INTERRUPTED
    began = request.display.continued_at
    middle = f", continued at {began}" * bool(began) + ", interrupted" * is_interrupted
    iterations = counted(result.n_iter, "iteration")
    lines.append(f"{iterations}{middle}, {result.total_seconds:.3g} s")
    replacing = ", in place of an earlier result" * replaces
    lines.append(f"results are in {visible(target, None)}{replacing}")
    if is_interrupted and request.checkpoint is None:
        lines.append("a run with --checkpoint FOLDER could be continued by the same command")
    elif is_interrupted and result.n_iter:
        lines.append(f"run the same command to continue at iteration {result.n_iter}")
    elif is_interrupted:
        lines.append("the same command begins again: inits were still competing")
    if result.diagnosis is not None:
        lines.append(f"open {visible(target / REPORT_FILE, None)} in a browser")
    else:
        words = shlex.join(["conenmf", "report", str(target), *request.flags])
        lines.append(f"No report written. To create it: {visible(words, None)}")
    return "\n".join(lines)


def _components(result: Factorization) -> list[str]:
    """The largest features of each component, if they have names; not of too many."""
    names = result.names
    if names.feature_names is None or names.image_shape is not None:
        return []
    if _are_numbers(names.feature_names):  # a curve over wavelengths, say
        return []
    lines = []
    for k, features in enumerate(result.top_features(_SHOWN_FEATURES)[:_SHOWN_COMPONENTS]):
        words = ", ".join(visible(name, _MAX_WORD_CHARS) for name in features)
        name = visible(result.component_names[k], _MAX_WORD_CHARS)
        lines.append(f"  {name}: {words or 'zero'}")
    if result.K > _SHOWN_COMPONENTS:
        lines.append(f"  and {result.K - _SHOWN_COMPONENTS} more, in the report and the tables")
    return lines


def _are_numbers(names: tuple[str, ...]) -> bool:
    try:
        return all(np.isfinite(float(name)) for name in names)
    except ValueError:
        return False


def rank_text(selection: Selection, plot: str | None) -> str:
    """The table of estimators, and a sparkline of the scores of each."""
    range_of_k = f"K = {selection.ks[0]} to {selection.ks[-1]}"
    lines = [str(selection), ""]
    for name, vote in selection.votes.items():
        lines.append(f"{name:>12}  {_sparkline(vote.scores)}  {range_of_k}")
    if plot is not None:
        lines.append(f"the picture is in {visible(plot, None)}")
    return "\n".join(lines)


def _sparkline(values: Array) -> str:
    finite = np.where(np.isfinite(values), values, np.nan)
    low, high = np.nanmin(finite), np.nanmax(finite)
    heights = np.nan_to_num((finite - low) / ((high - low) or 1.0))
    return "".join("▁▂▃▄▅▆▇█"[int(height * 7.999)] for height in heights)


def diagnosis_text(result: Factorization) -> str:
    """The bounds, which components are unique, the cones and the advice."""
    diagnosis = result.diagnose()
    cones = diagnosis.cones
    rows = _bounds(result.K, diagnosis.certificate)
    rows.append(("largest ratio of singular values", f"at {diagnosis.rank.K}"))
    if cones is not None:
        cr1 = f"{cones.error:.6g}, proven upper bound {cones.bound:.6g}"
        rows.append(("error of cr1-nmf alone", cr1))
    lines = [*result.summary(), "", *(f"  {name:37}{value}" for name, value in rows)]
    lines += ["", "the certificate judges the error, not the truth of the components"]
    verdicts = result.uniqueness().lines(result.component_names)[1:]
    lines += [f"  {visible(line, None)}" for line in verdicts]
    if cones is not None:
        lines += _cones(cones)
    lines += ["", "advised init: {}, because {}".format(*diagnosis.advice)]
    if result.race is not None:
        lines += _race(result.race)
    return "\n".join(lines)


def _race(race: Race) -> list[str]:
    lines = ["", f"race of inits on {race.place}, won by {visible(race.winner.init)}"]
    lines.append(f"{'init':12}{'error reached':>15}{'iterations':>12}{'seconds':>9}")
    for one in race.entrants:
        numbers = f"{one.relative_error:>15.6g}{one.iterations:>12}{one.seconds:>9.2g}"
        lines.append(f"{visible(one.init):12}{numbers}")
    return lines


def _bounds(K: int, certificate: AnyCertificate) -> list[tuple[str, str]]:
    """Name and value of what a certificate knows."""
    if not isinstance(certificate, CountCertificate):
        any_sign = f"{certificate.eckart_young:.6g}"
        closed = f"; nonnegativity closes {certificate.closed:.0%} of the gap"
        any_sign += ", attained" if certificate.is_attained else closed
        return [
            ("error of the fit", f"{certificate.relative_error:.6g}"),
            (f"lower bound for {K} components", certificate.described_bound),
            ("the same for factors of any sign", any_sign),
            ("gap: at most this above the optimum", f"{certificate.gap:.3g}"),
            ("KKT residual (0: stationary point)", f"{certificate.kkt_residual:.3g}"),
        ]
    floor = f"{certificate.noise_floor:.6g}, spread {certificate.floor_spread:.2g}"
    rows = [
        ("divergence of the fit", f"{certificate.divergence:.6g}"),
        ("the same for one component", f"{certificate.of_margins:.6g}"),
        ("deviance explained", f"{certificate.deviance_explained:.1%}"),
        ("noise floor, if counts are Poisson", floor),
        ("less by better coefficients, at most", f"{certificate.coefficient_gap:.3g}"),
        ("less by better components, at most", f"{certificate.component_gap:.3g}"),
    ]
    if certificate.is_bound_telling:
        below = f"{certificate.proven_share * certificate.divergence:.6g}, {certificate.proven}"
        rows.append((f"lower bound for {K} components", below))
    return rows


def _cones(cones: ConeDiagnosis) -> list[str]:
    geometry, K = cones.geometry, cones.geometry.angles.size
    lines = ["", "cone  samples  size angle"]
    for k in range(K):
        line = f"{k:>4}{cones.sizes[k]:>9}{geometry.angles[k]:>8.3f} rad"
        if K > 1:
            others = np.where(np.arange(K) == k, np.inf, geometry.between[k])
            line += f", nearest {others.argmin()} at {others.min():.3f} rad"
        lines.append(line)
    margin = "" if K == 1 else f", margin {geometry.margin:.3f} rad"
    calm = "" if geometry.holds else f": {NO_GUARANTEE}"
    lines += ["", f"the geometric assumption {geometry.verdict}{margin}{calm}"]
    if K > 1:
        least = "" if geometry.pairwise.is_exact else "at least "
        lines.append(f"pairwise separation of samples: {least}{geometry.pairwise.value:.3f} rad")
    if geometry.ambiguous.size:
        lines.append(f"{geometry.ambiguous.size} samples lie between cones")
    return lines
