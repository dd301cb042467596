"""What commands print without ``--json``."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from ..comparison import Comparison
from ..cones.certificate import Certificate
from ..data.blocks import Array
from ..export import REPORT_FILE
from ..judge.certificate import AnyCertificate, CountCertificate
from ..judge.choose_k import Selection
from ..judge.diagnosis import NO_GUARANTEE, ConeDiagnosis, Diagnosis
from ..result import Factorization
from ..solve.race import Race
from ..solve.run import StopReason
from ..text import visible

__all__ = ["Circumstances", "show_comparison", "show_diagnosis", "show_fit", "show_rank"]

_SHOWN_FEATURES, _SHOWN_COMPONENTS = 8, 20
_MAX_WORD_CHARS = 30


@dataclass(frozen=True)
class Circumstances:
    """What `show_fit` says besides the result.

    Attributes
    ----------
    target : Path
        The folder of the result.
    reading : list of str
        How to read its data, as arguments of another command.
    replaces : bool
        Whether an earlier result was in the folder.
    continued_at : int
        The iteration from which a checkpoint was continued; 0 if none was.
    can_continue : bool
        Whether the run has a checkpoint.
    """

    target: Path
    reading: list[str]
    replaces: bool
    continued_at: int
    can_continue: bool


def show_fit(out: Console, result: Factorization, about: Circumstances) -> None:
    """Print the summary of a fit, where its files are, and what can be done next."""
    target = about.target
    for line in result.summary():
        out.print(line)
    if result.is_on_plateau:
        out.print("raise --max-iter, or try another --init")
    elif result.stop_reason is StopReason.MAX_ITER and result.settings["max_iter"] > 0:
        out.print("the error was still falling at --max-iter: raise it for a better fit")
    _show_components(out, result)
    is_interrupted = result.stop_reason is StopReason.INTERRUPTED
    middle = f", continued at {about.continued_at}" if about.continued_at else ""
    middle += ", interrupted" * is_interrupted
    iterations = f"{result.n_iter} iteration{'s' * (result.n_iter != 1)}"
    out.print(f"{iterations}{middle}, {result.total_seconds:.3g} s")
    replacing = ", in place of an earlier result" * about.replaces
    out.print(f"results are in {visible(target, None)}{replacing}")
    if is_interrupted and about.can_continue and not result.n_iter:
        out.print("the same command begins again: inits were still competing")
    elif is_interrupted and about.can_continue:
        out.print(f"run the same command to continue at iteration {result.n_iter}")
    elif is_interrupted:
        out.print("a run with --checkpoint FOLDER could be continued by the same command")
    if result.diagnosis is not None:
        out.print(f"open {visible(target / REPORT_FILE, None)} in a browser")
    else:
        command = shlex.join(["conenmf", "report", str(target), *about.reading])
        out.print(f"No report written. To create it: {visible(command, None)}")


def _show_components(out: Console, result: Factorization) -> None:
    """Print the largest features of each component, if they have names; not of too many."""
    names = result.names
    if names.feature_names is None or names.image_shape is not None:
        return
    if _are_numbers(names.feature_names):  # a curve over wavelengths, say
        return
    for k, features in enumerate(result.top_features(_SHOWN_FEATURES)[:_SHOWN_COMPONENTS]):
        words = ", ".join(visible(name, _MAX_WORD_CHARS) for name in features)
        name = visible(result.component_names[k], _MAX_WORD_CHARS)
        out.print(f"  {name}: {words or 'zero'}")
    if result.K > _SHOWN_COMPONENTS:
        out.print(f"  and {result.K - _SHOWN_COMPONENTS} more, in the report and the tables")


def _are_numbers(names: tuple[str, ...]) -> bool:
    try:
        return all(np.isfinite(float(name)) for name in names)
    except ValueError:
        return False


def show_rank(out: Console, selection: Selection, plot: str | None) -> None:
    """Print the table of estimators, and a sparkline of the scores of each."""
    out.print(str(selection))
    out.print()
    first, last = selection.ks[0], selection.ks[-1]
    for name, vote in selection.votes.items():
        out.print(f"{name:>12}  {_sparkline(vote.scores)}  K = {first} to {last}")
    if plot is not None:
        out.print(f"the picture is in {visible(plot, None)}")


def _sparkline(values: Array) -> str:
    finite = np.where(np.isfinite(values), values, np.nan)
    low, high = np.nanmin(finite), np.nanmax(finite)
    heights = np.nan_to_num((finite - low) / ((high - low) or 1.0))
    return "".join("▁▂▃▄▅▆▇█"[int(height * 7.999)] for height in heights)


def show_diagnosis(out: Console, result: Factorization) -> None:
    """Print the bounds, which components are unique, the cones and the advice."""
    diagnosis = result.diagnose()
    for line in result.summary():
        out.print(line)
    _show_bounds(out, result.K, diagnosis.certificate, diagnosis)
    _show_uniqueness(out, result)
    if diagnosis.cones is not None:
        _show_cones(out, diagnosis.cones)
    init, reason = diagnosis.advice
    out.print(f"\nadvised init: {init}, because {reason}")
    if result.race is not None:
        _show_race(out, result.race)


def _show_race(out: Console, race: Race) -> None:
    table = Table("init", "error reached", "iterations", "seconds", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for one in race.entrants:
        error, seconds = f"{one.relative_error:.6g}", f"{one.seconds:.2g}"
        table.add_row(visible(one.init), error, str(one.iterations), seconds)
    out.print(f"\nrace of inits on {race.place}, won by {visible(race.winner.init)}")
    out.print(table)


def _bounds(K: int, certificate: AnyCertificate) -> list[tuple[str, str]]:
    """Name and value of what a certificate knows."""
    if not isinstance(certificate, CountCertificate):
        return [
            ("error of the fit", f"{certificate.relative_error:.6g}"),
            (f"lower bound for {K} components", certificate.described_bound),
            ("the same for factors of any sign", _any_sign(certificate)),
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


def _show_bounds(out: Console, K: int, certificate: AnyCertificate, diagnosis: Diagnosis) -> None:
    rows = _bounds(K, certificate)
    rows.append(("largest ratio of singular values", f"at {diagnosis.rank.K}"))
    if diagnosis.cones is not None:
        cr1 = f"{diagnosis.cones.error:.6g}, proven upper bound {diagnosis.cones.bound:.6g}"
        rows.append(("error of cr1-nmf alone", cr1))
    out.print()
    for name, value in rows:
        out.print(f"  {name:37}{value}")


def _show_uniqueness(out: Console, result: Factorization) -> None:
    out.print("\nthe certificate judges the error, not the truth of the components")
    for line in result.uniqueness().lines(result.component_names)[1:]:
        out.print(f"  {visible(line, None)}")


def _any_sign(certificate: Certificate) -> str:
    bound = f"{certificate.eckart_young:.6g}"
    if certificate.is_attained:
        return f"{bound}, attained"
    return f"{bound}; nonnegativity closes {certificate.closed:.0%} of the gap"


def _show_cones(out: Console, cones: ConeDiagnosis) -> None:
    geometry = cones.geometry
    table = Table("cone", "samples", "size angle", "nearest", "angle to it", box=None)
    for column in table.columns:
        column.justify = "right"
    K = geometry.angles.size
    for k in range(K):
        others = np.where(np.arange(K) == k, np.inf, geometry.between[k])
        nearest = int(others.argmin())
        neighbour = ("", "") if K == 1 else (str(nearest), f"{others[nearest]:.3f} rad")
        table.add_row(str(k), str(cones.sizes[k]), f"{geometry.angles[k]:.3f} rad", *neighbour)
    out.print()
    out.print(table)
    margin = "" if K == 1 else f", margin {geometry.margin:.3f} rad"
    calm = "" if geometry.holds else f": {NO_GUARANTEE}"
    out.print(f"\nthe geometric assumption {geometry.verdict}{margin}{calm}")
    if K > 1:
        least = "" if geometry.pairwise.is_exact else "at least "
        out.print(f"pairwise separation of samples: {least}{geometry.pairwise.value:.3f} rad")
    if geometry.ambiguous.size:
        out.print(f"{geometry.ambiguous.size} samples lie between cones")


def show_comparison(out: Console, comparison: Comparison, files: tuple[str | None, ...]) -> None:
    """Print the contenders, best first."""
    rows = comparison.rows()
    table = Table(*rows[0], box=None)
    for column in table.columns[2:]:
        column.justify = "right"
    for row in rows:
        table.add_row(
            *(f"{cell:.5g}" if isinstance(cell, float) else str(cell) for cell in row.values())
        )
    out.print(f"{comparison.K} components")
    out.print(table)
    for path in filter(None, files):
        out.print(f"written: {visible(path, None)}")
