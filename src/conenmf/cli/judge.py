"""The commands that judge data and methods: rank, diagnose, compare and stability."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__, comparison
from ..arguments import path as checked_path
from ..atomic import output_file
from ..data.matrix import DataMatrix
from ..errors import OptionError
from ..export import REPORT_FILE, RESULT_FILE, facts
from ..judge.choose_k import METHODS, choose_k, select_k
from ..judge.stability import Stability
from ..judge.stability import stability as fit_many_times
from ..pipeline import factorize
from ..report import write_report
from ..result import Factorization
from ..solve.run import Iteration
from ..text import visible
from .options import (
    ENTRIES,
    OUTPUT,
    PREPARING,
    READING,
    RUNNING,
    STOPPING,
    WORDS,
    Request,
    choosing,
    command,
    json_values,
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
from .show import diagnosis_text, rank_text
from .side_files import read_labels

_DATA = (*READING, *WORDS, *PREPARING, *ENTRIES, *RUNNING)
_DEFAULT_MAX_K = 20


@command(*{*_DATA} - {"weights"}, "min_k", "max_k", "methods", "plot")
def rank(request: Request) -> None:
    """Estimate how many components DATA has: a table of estimators, and a recommendation.

    The recommendation is the number that `conenmf fit -k auto` takes, unless that is not among the
    numbers to try or its estimator not among --methods; then the reason says so. Entries that are
    missing are the means of their features here; of sparse DATA, zeros.

    \b
    conenmf rank counts.csv
    conenmf rank counts.csv --max 40 --methods ratio,parallel --plot rank.png
    """
    check_picture(request.plot)
    display, methods = request.display, request.methods
    V = request.open()

    def show(name: str, place: int) -> None:
        display.update("", (place + 0.5) / len(methods or METHODS), f"estimating by {name}")

    with display.working("estimating the number of components"):
        candidates = _candidates(V, request.min_k, request.max_k)
        selection = select_k(V, candidates, methods=methods, rng=request.rng, callback=show)
    if request.plot is not None:
        save_picture(selection.plot()[0].figure, request.plot)
    answer = {
        "n_components": selection.K,
        "decided_by": selection.decided_by,
        "reason": selection.reason,
        "candidates": selection.ks.tolist(),
        "estimators": {
            name: {"n_components": vote.K, "reason": vote.reason, "scores": vote.scores}
            for name, vote in selection.votes.items()
        },
        "plot": request.plot,
    }
    request.answer(answer, rank_text(selection, request.plot), V)


def _candidates(V: DataMatrix, min_k: int | None, max_k: int | None) -> range | None:
    if min_k is None and max_k is None:
        return None
    last = min(max_k or _DEFAULT_MAX_K, min(V.shape))
    first = min_k or min(2, last)
    if first > last:
        raise OptionError(f"--min {first} is above --max {last}: lower --min or raise --max")
    return range(first, last + 1)


@command(*_DATA, *STOPPING, "K", "loss", "effort", of=factorize)
def diagnose(request: Request) -> None:
    """Report whether DATA lie in cones, how good a fit is, and which init suits them.

    Shows the cones and what is known of the geometric assumption, the bounds, the certificate of a
    fit, and which init is advised and why. Nothing is written.

    \b
    conenmf diagnose counts.csv
    conenmf diagnose spectra.npy -k 12 --json
    conenmf diagnose words.npz -k 20 --loss poisson
    """
    display, limits = request.display, request.limits
    V = request.open()
    show = display.iterations(**limits, what="solving")
    with display.working(choosing(request.K)):
        rng = request.rng
        result = factorize(V, request.K, loss=request.loss, rng=rng, callback=show, **limits)
    with display.working("judging the result"):
        result.diagnose(effort=request.effort)
    with display.working("looking for other components that are as good"):
        result.uniqueness()
    request.answer(facts(result), diagnosis_text(result), V)


@command(
    *_DATA,
    *STOPPING,
    *("K", "inits", "solvers", "labels", "output", "plot"),
    of=comparison.compare,
    K={"default": "auto"},
    output={"help": "Also write the table to this .csv."},
)
def compare(request: Request) -> None:
    """Compare inits and solvers on DATA: error, time, and clustering scores.

    \b
    conenmf compare counts.csv -k 9
    conenmf compare faces/ -k 40 --inits cr1,nndsvd --solvers hals --plot faces.png
    conenmf compare digits.csv -k 10 --labels digit.txt -o table.csv
    """
    check_picture(request.plot)
    target = None if request.output is None else output_file(request.output)
    display, inits, solvers = request.display, request.inits, request.solvers
    V = request.open()
    classes = None
    if request.labels is not None:
        classes = read_labels(request.labels, V.shape[1], V.names)

    def watch(init: str, solver: str) -> Callable[[Iteration], None]:
        place = inits.index(init) * len(solvers) + solvers.index(solver)
        share = place / (len(inits) * len(solvers))

        def show(now: Iteration) -> None:
            note = f"iteration {now.iteration}, error {now.relative_error:.5g}"
            display.update(note, share, f"{init} + {solver}")

        return show

    with display.working(choosing(request.K)):
        compared = comparison.compare(
            V,
            _chosen_k(request, V),
            inits=inits,
            solvers=solvers,
            labels=classes,
            seed=request.seed or 0,
            watch=watch,
            **request.limits,
        )
    if request.plot is not None:
        save_picture(compared.plot().figure, request.plot)
    rows = compared.rows()
    if target is not None:
        write_csv(target, rows[0], (row.values() for row in rows))
    files = {"plot": request.plot, "table": request.output}
    answer = {"n_components": compared.K, "contenders": rows, **files}
    written = [f"written: {visible(path, None)}" for path in files.values() if path]
    request.answer(answer, "\n".join([f"{compared.K} components", str(compared), *written]), V)


def _chosen_k(request: Request, V: DataMatrix) -> int:
    return choose_k(V).K if isinstance(request.K, str) else int(request.K)


@command(
    *_DATA,
    *OUTPUT,
    *("K", "loss", "n_runs", "resample", "plot", "no_report", "effort"),
    of=fit_many_times,
    K={"default": "auto"},
    output={
        "help": "Folder for what is found, and for every fit that has ended. The same command "
        "continues there after it was killed, or with more --runs."
    },
)
def stability(request: Request) -> None:
    """Fit DATA many times; say which components are found again, and how exactly.

    The folder gets the consensus as a result, which `conenmf report` and `conenmf transform` read;
    components with their limits, and the fits, as tables; and all of it in one file.

    \b
    conenmf stability counts.csv -k 5
    conenmf stability mutations.csv -k 12 --loss poisson --resample counts -o signatures
    conenmf report signatures
    """
    check_picture(request.plot)
    display, where = request.display, ""
    files: list[str] = []
    how: dict[str, Any] = request.chosen(("loss", "resample"))
    if request.output is not None:
        target = Path(checked_path("output", request.output))
        check_folder(target, request.force)
        how["checkpoint"] = target / RUNS_FOLDER
        where = f"\nthe consensus and the runs are in {visible(target, None)}"
    V = request.open()
    with ExitStack() as stack:
        folder = None if request.output is None else stack.enter_context(new_result(target))
        with display.working(f"fitting {request.n_runs} times"):
            K, n_runs = _chosen_k(request, V), request.n_runs
            found = fit_many_times(V, K, n_runs, rng=request.rng, **how)
        result = None if folder is None else _as_result(V, found, request)
        if not request.no_report:
            with display.working("judging the consensus"):
                _judge(found, result, request.effort)
        answer = _answer(found)
        if folder is not None and result is not None:
            with display.working(f"writing {target}"):
                files = _write(folder, found, result, answer, request.path.resolve().name)
    if request.plot is not None:
        save_picture(found.plot()[0].figure, request.plot)
    if REPORT_FILE in files:
        where += f"\nopen {visible(target / REPORT_FILE, None)} in a browser"
    answer |= {"files": [str(target / name) for name in files], "plot": request.plot}
    request.answer(answer, f"{found}{where}", V)


def _as_result(V: DataMatrix, found: Stability, request: Request) -> Factorization:
    """The consensus as the other commands read it."""
    result = factorize(V, found.K, init=found.W, loss=found.loss, solver=None, sketch=None)
    how = {"init": "consensus", "n_runs": found.n_runs, "resample": found.resample}
    settings = {**result.settings, **request.origin, **how}
    return replace(result, init_used="consensus", settings=settings)


def _judge(found: Stability, result: Factorization | None, effort: int | None) -> None:
    """Certify the consensus and the best run; one certificate serves the result too."""
    if result is not None:
        object.__setattr__(found, "certificate", result.diagnose(effort=effort).certificate)
        result.uniqueness()  # it costs about one fit of many
        effort = None
    found.certify(effort=effort)


def _answer(found: Stability) -> dict[str, Any]:
    names = ("verdict", "problem", "found_in", "silhouettes", "cosine_limits", "n_minima", "n_runs")
    errors = ("relative_error", "best_relative_error")
    certificates = {name: getattr(found, name) for name in ("certificate", "best_certificate")}
    return {
        "n_components": found.K,
        **{name: getattr(found, name) for name in (*names, *errors)},
        "stable": found.is_stable.tolist(),
        "moves_in_degrees": np.degrees(found.moves),
        "withheld_limits": found.withheld,
        **{name: one and dict(vars(one)) for name, one in certificates.items()},
    }


def _write(
    folder: Path, found: Stability, result: Factorization, answer: dict[str, Any], title: str
) -> list[str]:
    """Write all files of a result; return their names."""
    files = [RESULT_FILE, STABILITY_FILE, LIMITS_FILE, RUNS_FILE]
    result.save(folder / RESULT_FILE)
    found.save(folder / STABILITY_FILE)
    limits = (
        [k, found.names.feature(f), found.W[f, k], found.lower[f, k], found.upper[f, k], reason]
        for k, reason in enumerate(found.withheld)
        for f in range(len(found.W))
    )
    header = ["component", "feature", "value", "lower", "upper", "withheld"]
    write_csv(folder / LIMITS_FILE, header, limits)
    runs = zip(found.run_errors, found.is_kept, found.cosines, strict=True)
    rows = ([n, error, int(kept), *cosines] for n, (error, kept, cosines) in enumerate(runs))
    names = (f"cosine of component {k}" for k in range(found.K))
    write_csv(folder / RUNS_FILE, ["run", "relative_error", "is_kept", *names], rows)
    if result.diagnosis is not None:
        write_report(result, folder / REPORT_FILE, title=title, stability=found)
        files.append(REPORT_FILE)
    summary = {**facts(result), "stability": answer, "version": __version__}
    return write_summary(folder, json_values(summary), files)
