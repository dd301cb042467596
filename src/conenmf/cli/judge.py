"""The commands that judge data and methods: rank, diagnose, compare and stability."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .. import __version__, comparison
from ..atomic import output_file
from ..data.matrix import DataMatrix
from ..export import REPORT_FILE, facts, json_values, write_csv
from ..fields.mutations import (
    check_catalogue,
    consensus_of,
    name_components,
    write_runs,
)
from ..judge.choose_k import select_k
from ..judge.requirement import components_for
from ..judge.stability import Stability
from ..judge.stability import stability as fit_many_times
from ..pipeline import factorize
from ..solve.problem import Problem
from ..solve.run import Callback
from ..types import Facts
from .fit import result_folder, write_result
from .inputs import (
    classes_of,
    drop_label_columns,
    labels_of,
    open_input,
    read_labels,
    read_problem,
    read_reference,
)
from .options import (
    ENTRIES,
    LABELS,
    OUTPUT,
    PREPARING,
    READING,
    RUNNING,
    STOPPING,
    TERMS,
    WORDS,
)
from .output import (
    RUNS_FOLDER,
    check_picture,
    diagnosis_text,
    new_result,
    save_picture,
)
from .request import Request, command

_DATA = (*READING, *WORDS, *PREPARING, *ENTRIES, *RUNNING)
_PROBLEM = ("loss", "fixed", *TERMS)
_JUDGING = ("quick", "n_splits", "effort", "uniqueness")


@command(*_DATA, *_PROBLEM, "K", "max_time", "error", "plot", of=factorize)
def rank(request: Request) -> None:
    """Choose the number of components of DATA, with an interval, a confidence and the reasons.

    `conenmf fit -k auto` uses the same number. With uncertainties or weights, or if more than a
    tenth of the entries is missing, it is the number that predicts hidden entries best.
    Otherwise missing entries are replaced by the mean of their feature, or by zero if DATA is
    sparse.

    \b
    conenmf rank counts.csv --loss poisson
    conenmf rank con.csv --missing -999 --uncertainty unc.csv
    conenmf rank scene.npy -k 2-40 --plot rank.png
    conenmf rank scene.npy --error 0.1
    conenmf rank spectra.csv --fixed library.csv
    """
    check_picture(request.plot)
    display = request.display
    V = open_input(request)
    problem = read_problem(request, V)
    with display.working("estimating the number of components"):
        selection = select_k(
            V,
            request.candidates,
            problem=problem,
            budget=request.max_time,
            callback=lambda name, _: display.update("", 0.5, f"choosing K: {name}"),
        )
    needed = None
    if request.error is not None:
        with display.working("fitting"):
            needed = components_for(V, request.error, problem=problem)
    if request.plot is not None:
        save_picture(selection.plot()[0].figure, request.plot)
    evidence = {}
    for one in selection.evidence:
        facts_of_one = {"n_components": one.K, "reason": one.text, "ks": one.ks}
        evidence[one.name] = {**facts_of_one, "scores": one.scores}
    answer = {
        "n_components": selection.K,
        "interval": selection.interval,
        "grade": selection.grade,
        "decided_by": selection.decided_by,
        "sentence": selection.sentence,
        "evidence": evidence,
        "components_for": None if needed is None else vars(needed),
        "plot": request.plot,
    }
    lines = str(selection).split("\n")
    if needed is not None:
        lines.append(needed.sentence)
    if request.plot is not None:
        lines.append(f"written: {request.plot}")
    request.answer(answer, lines, V)


@command(*_DATA, *STOPPING, *LABELS, "K", "loss", *_JUDGING, of=factorize)
def diagnose(request: Request) -> None:
    """Say whether the components of a fit of DATA may be interpreted; write no files.

    Prints the verdict, then its details: the grade of each component with the reason, the
    certificate, and the cones.

    \b
    conenmf diagnose counts.csv
    conenmf diagnose cells.h5ad -k 12 --groups donor
    conenmf diagnose spectra.npy -k 12 --json
    conenmf diagnose words.npz -k 20 --loss poisson
    """
    display = request.display
    drop_label_columns(request)
    V = open_input(request)
    labels = labels_of(request, V.n_samples, V.names)
    show = display.iterations(request.max_iter)
    with display.working("choosing an init"):
        K = "auto" if request.K == "auto" else request.chosen_k(V)
        how = request.chosen(("loss", *STOPPING))
        result = factorize(V, K, rng=request.rng, callback=show, **how)
    result = request.describe(result)
    with display.working("certifying the error"):
        result.certify(effort=request.effort)
    request.judge(result, **labels)
    request.answer(facts(result), diagnosis_text(result), V)


@command(
    *_DATA,
    *STOPPING,
    "K",
    "inits",
    "solvers",
    "labels",
    "output",
    "plot",
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
    V = open_input(request)
    classes = None
    if request.labels is not None:
        classes = read_labels(request.labels, V.n_samples, V.names)

    def watch(init: str, solver: str) -> Callback:
        return request.display.iterations(request.max_iter, f"{init} + {solver}")

    with request.display.working("choosing an init"):
        table = comparison.compare(
            V,
            request.chosen_k(V),
            inits=request.inits,
            solvers=request.solvers,
            labels=classes,
            seed=request.seed or 0,
            watch=watch,
            **request.chosen(STOPPING),
        )
    if request.plot is not None:
        save_picture(table.plot().figure, request.plot)
    rows = table.rows()
    if target is not None:
        write_csv(target, rows[0], (row.values() for row in rows))
    number = request.K_decided_by
    if number == "user":
        number = f"{table.K} components"
    paths = filter(None, (request.plot, request.output))
    lines = [number, *str(table).split("\n")]
    lines += [f"written: {path}" for path in paths]
    answer = {
        "n_components": table.K,
        "K_decided_by": request.K_decided_by,
        "contenders": rows,
        "plot": request.plot,
        "table": request.output,
    }
    request.answer(answer, lines, V)


_RUNS = ("K", "n_runs", "resample")
_MANY_FITS = (*OUTPUT, *_RUNS, *_PROBLEM, "tables", "plot", "no_report", "effort", "classes")
_FOLDER = (
    "Folder for the results and each finished fit; by default DATA-{}. The same command continues "
    "there, also with more --runs."
)


@command(
    *_DATA,
    *_MANY_FITS,
    of=fit_many_times,
    K={"default": "auto"},
    output={"help": _FOLDER.format("stability")},
)
def stability(request: Request) -> None:
    """Fit DATA many times; report which components recur, and how precisely.

    The folder then holds the consensus as a result for `conenmf report` and `conenmf transform`,
    tables of the components with their limits and of the fits, and a report.

    \b
    conenmf stability counts.csv -k 5
    conenmf stability counts.csv -k 12 --loss poisson --resample counts -o consensus
    conenmf stability spectra.csv -k 5 --fixed library.csv --alpha-w 0.01
    conenmf report consensus
    """
    _fit_many(request, "stability")


@command(
    *READING,
    *RUNNING,
    *_MANY_FITS,
    "reference",
    of=fit_many_times,
    K={"default": "auto"},
    loss={"default": "poisson"},
    resample={"default": "counts"},
    output={"help": _FOLDER.format("signatures")},
)
def signatures(request: Request) -> None:
    """Extract mutational signatures from the catalogue DATA, with limits and activities.

    DATA is a table of counts, such as SigProfiler's SBS96.all: mutation types in rows, samples in
    columns. Each fit uses resampled counts. The folder then holds the signatures with their
    limits, their activities in each sample, and a report. The names of known signatures are those
    of --reference.

    \b
    conenmf signatures SBS96.all --reference COSMIC_SBS.txt -o signatures
    conenmf signatures ID83.all -k 2-12 --runs 50
    conenmf signatures SBS96.all --fixed known.txt -k 8
    """
    _fit_many(request, "signatures")


def _fit_many(request: Request, kind: str) -> None:
    """Fit many times; write the consensus, its certificate and a report."""
    check_picture(request.plot)
    target = result_folder(request, kind)
    drop_label_columns(request)
    V = open_input(request)
    if kind == "signatures" and (question := check_catalogue(V)):
        V.remarks += (question,)
    classes = classes_of(request, V)
    reference = read_reference(request, V)
    problem = read_problem(request, V)
    lines = []
    with new_result(target) as folder:
        found = _replicates(V, problem, request, kind, target / RUNS_FOLDER, classes)
        result = request.describe(consensus_of(V, found, problem))
        if request.K_decided_by != "user":
            lines.append(request.K_decided_by)
        lines += str(found).split("\n")
        answer = _answer(found)
        if reference is not None:
            result = name_components(result, *reference)
        matches = result.settings.get("known_as", [])
        answer["known_as"] = matches
        if not request.no_report:
            request.uniqueness = True  # takes about as long as one of the fits
            request.judge(result)
            answer["certificate"] = vars(result.certify())
            lines += ["", *result.diagnose().lines(), ""]
        for k, match in enumerate(matches):
            lines.append(f"component {k}: {match}")
        if repeated := result.settings.get("repeated"):
            lines.append(repeated)
        with request.display.working(f"writing {target}"):
            summary = json_values({**facts(result), "stability": answer, "version": __version__})
            write_runs(folder, found)
            files = write_result(folder, result, summary, request, stability=found)
    if request.plot is not None:
        save_picture(found.plot()[0].figure, request.plot)
    lines.append(f"the consensus and the runs are in {target}")
    if REPORT_FILE in files:
        lines.append(f"open {target / REPORT_FILE} in a browser")
    answer["K_decided_by"] = request.K_decided_by
    answer["files"] = [str(target / name) for name in files]
    answer["plot"] = request.plot
    request.answer(answer, lines, V)


def _replicates(
    V: DataMatrix,
    problem: Problem,
    request: Request,
    kind: str,
    checkpoint: Path,
    classes: Facts | None,
) -> Stability:
    """Choose the number of components, and fit many times."""
    with request.display.working("choosing the number of components"):
        K = request.chosen_k(V, problem)
    if request.K == "auto":
        K = max(K, problem.n_fixed + 1)  # one that is not known
    with request.display.working(f"fitting {request.n_runs} times"):
        return fit_many_times(
            V,
            K,
            problem=problem,
            prune=kind == "signatures",
            rng=request.rng,
            checkpoint=checkpoint,
            classes=classes,
            **request.chosen(("n_runs", "resample")),
        )


def _answer(found: Stability) -> Facts:
    answer: Facts = {
        "n_components": found.K,
        "verdict": found.verdict,
        "no_consensus": found.no_consensus,
        "found_in": found.found_in,
        "silhouettes": found.silhouettes,
        "cosine_limits": found.cosine_limits,
        "n_minima": found.n_minima,
        "n_runs": found.n_runs,
    }
    return answer | {
        "relative_error": found.relative_error,
        "best_relative_error": found.best_relative_error,
        "stable": found.is_stable.tolist(),
        "moves_in_degrees": np.degrees(found.moves),
        "withheld_limits": found.withheld,
        "class_shares": found.class_shares,
    }
