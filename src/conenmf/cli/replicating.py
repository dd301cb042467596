"""The command ``stability``: many fits, what they have in common, and a folder with both."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from .. import __version__
from ..arguments import path as checked_path
from ..data.aligned import remove_kept_file
from ..data.matrix import DataMatrix
from ..export import REPORT_FILE, RESULT_FILE, facts
from ..judge.choose_k import choose_k
from ..judge.stability import RESAMPLINGS, Stability
from ..judge.stability import stability as judged
from ..pipeline import factorize
from ..report import write_report
from ..result import Factorization
from ..text import visible
from .known_parts import ENTRY_OPTIONS
from .losses import LOSS_OPTION
from .options import (
    COMPONENTS_OPTION,
    EFFORT_OPTION,
    FORCE_OPTION,
    CommonOptions,
    json_values,
    reads_data,
    with_options,
)
from .output import (
    LIMITS_FILE,
    RUNS_FILE,
    RUNS_FOLDER,
    STABILITY_FILE,
    check_folder,
    check_picture,
    new_result,
    save_picture,
    write_csv,
    write_summary,
)
from .preparing import PREPARING_OPTIONS

__all__ = ["stability"]


@click.command()
@reads_data
@with_options(
    COMPONENTS_OPTION,
    *PREPARING_OPTIONS,
    *ENTRY_OPTIONS,
    LOSS_OPTION,
    click.option("--runs", type=click.IntRange(2), default=20, show_default=True, help="Fits."),
    click.option(
        "--resample",
        type=click.Choice(list(RESAMPLINGS)),
        default="samples",
        show_default=True,
        help="What fits differ by, besides their random init: samples drawn with replacement, "
        "counts drawn again, or nothing (start).",
    ),
    click.option(
        "-o",
        "--output",
        type=click.Path(),
        help="Folder for what is found, and for every fit that has ended. The same command "
        "continues there after it was killed, or with more --runs.",
    ),
    click.option("--plot", type=click.Path(), help="Draw them to this .png, .pdf or .svg."),
    click.option("--no-report", is_flag=True, help="Do not judge the consensus; write no report."),
    EFFORT_OPTION,
    FORCE_OPTION,
)
@click.pass_context
def stability(
    context: click.Context,
    /,
    common: CommonOptions,
    K: int | str,
    output: str | None,
    plot: str | None,
    no_report: bool,
    effort: int | None,
    force: bool,
    **how: Any,
) -> None:
    """Fit DATA many times; say which components are found again, and how exactly.

    The folder gets the consensus as a result, which `conenmf report` and `conenmf transform` read;
    components with their limits, and the fits, as tables; and all of it in one file.

    \b
    conenmf stability counts.csv -k 5
    conenmf stability mutations.csv -k 12 --loss poisson --resample counts -o signatures
    conenmf report signatures
    """
    check_picture(plot)
    target = None if output is None else Path(checked_path("output", output))
    if target is not None:
        check_folder(target, force)
    display, how["n_runs"] = common.display, how.pop("runs")
    V = common.open(display)
    with ExitStack() as stack:
        folder = None
        if target is not None:
            folder = stack.enter_context(new_result(target))
            how["checkpoint"] = target / RUNS_FOLDER
        with display.working(f"fitting {how['n_runs']} times"):
            n_components = choose_k(V).K if isinstance(K, str) else K
            found = judged(V, n_components, rng=common.rng, **how)
        remove_kept_file(found.H)
        result = None if folder is None else _as_result(V, found, common, context)
        if not no_report:
            with display.working("judging the consensus"):
                _judge(found, result, effort)
        files: list[str] = []
        answer = _answer(found)
        if folder is not None and result is not None:
            with display.working(f"writing {target}"):
                files = _write(folder, found, result, answer, common.path)
    if plot is not None:
        save_picture(found.plot()[0].figure, plot)
    answer |= {"files": [str(Path(output or "") / name) for name in files], "plot": plot}
    where = "" if target is None else f"\nthe consensus and the runs are in {visible(target, None)}"
    if target is not None and REPORT_FILE in files:
        where += f"\nopen {visible(target / REPORT_FILE, None)} in a browser"
    common.answer(answer, lambda out: out.print(f"{found}{where}", highlight=False), V)


def _as_result(
    V: DataMatrix, found: Stability, common: CommonOptions, context: click.Context
) -> Factorization:
    """The consensus as the other commands read it."""
    result = factorize(V, found.K, init=found.W, loss=found.loss, solver=None, sketch=None)
    remove_kept_file(result.H)
    settings = {
        **result.settings,
        **common.origin,
        "init": "consensus",
        "n_runs": found.n_runs,
        "resample": found.resample,
        "seed": common.seed,
        "command": shlex.join(["conenmf", *context.obj["arguments"]]),
    }
    return replace(result, init_used="consensus", settings=settings)


def _judge(found: Stability, result: Factorization | None, effort: int | None) -> None:
    """Certify the consensus and the best run; one certificate serves the result too."""
    if result is not None:
        object.__setattr__(found, "certificate", result.diagnose(effort=effort).certificate)
        result.uniqueness()  # it costs about one fit of many
        effort = None
    found.certify(effort=effort)


def _answer(found: Stability) -> dict[str, Any]:
    certificates = {
        name: None if certificate is None else dict(vars(certificate))
        for name, certificate in (
            ("certificate", found.certificate),
            ("best_certificate", found.best_certificate),
        )
    }
    return {
        "n_components": found.K,
        "n_runs": found.n_runs,
        "verdict": found.verdict,
        "problem": found.problem,
        "stable": found.is_stable.tolist(),
        "found_in": found.found_in,
        "silhouettes": found.silhouettes,
        "cosine_limits": found.cosine_limits,
        "moves_in_degrees": np.degrees(found.moves),
        "withheld_limits": found.withheld,
        "n_minima": found.n_minima,
        "relative_error": found.relative_error,
        "best_relative_error": found.best_relative_error,
        **certificates,
    }


def _write(
    folder: Path, found: Stability, result: Factorization, answer: dict[str, Any], source: Path
) -> list[str]:
    """Write all files of a result; return their names."""
    files = [RESULT_FILE, STABILITY_FILE, LIMITS_FILE, RUNS_FILE]
    result.save(folder / RESULT_FILE)
    found.save(folder / STABILITY_FILE)
    _write_limits(folder / LIMITS_FILE, found)
    _write_runs(folder / RUNS_FILE, found)
    if result.diagnosis is not None:
        title = source.resolve().name
        write_report(result, folder / REPORT_FILE, title=title, stability=found)
        files.append(REPORT_FILE)
    summary = {**facts(result), "stability": answer, "version": __version__}
    return write_summary(folder, json_values(summary), files)


def _write_limits(target: Path, found: Stability) -> None:
    """A row for each entry of a component: its median, and its limits or why they are withheld."""
    rows = (
        [k, found.names.feature(f), found.W[f, k], found.lower[f, k], found.upper[f, k], reason]
        for k, reason in enumerate(found.withheld)
        for f in range(len(found.W))
    )
    write_csv(target, ["component", "feature", "value", "lower", "upper", "withheld"], rows)


def _write_runs(target: Path, found: Stability) -> None:
    """A row for each run: its error, and how close the components of the consensus are in it."""
    rows = (
        [n, error, int(is_kept), *cosines]
        for n, (error, is_kept, cosines) in enumerate(
            zip(found.run_errors, found.is_kept, found.cosines, strict=True)
        )
    )
    names = (f"cosine of component {k}" for k in range(found.K))
    write_csv(target, ["run", "relative_error", "is_kept", *names], rows)
