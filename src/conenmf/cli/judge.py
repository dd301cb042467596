"""The commands that judge data and methods: rank, diagnose, compare and stability."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from .. import __version__, comparison
from ..atomic import output_file
from ..data.blocks import exact
from ..data.matrix import DataMatrix
from ..export import REPORT_FILE, facts, json_values
from ..judge.choose_k import select_k
from ..judge.requirement import components_for
from ..judge.scores import named_after
from ..judge.stability import Stability
from ..judge.stability import stability as fit_many_times
from ..pipeline import factorize
from ..result import Factorization
from ..text import Facts, attributes, visible
from .fit import result_folder, write_result
from .options import (
    ENTRIES,
    LABELS,
    OUTPUT,
    PREPARING,
    READING,
    RUNNING,
    STOPPING,
    WORDS,
    Request,
    choosing,
    command,
    drop_label_columns,
    labels_of,
    read_labels,
    read_reference,
)
from .output import (
    LIMITS_FILE,
    RUNS_FILE,
    RUNS_FOLDER,
    STABILITY_FILE,
    check_picture,
    diagnosis_text,
    new_result,
    save_picture,
    write_csv,
)

_DATA = (*READING, *WORDS, *PREPARING, *ENTRIES, *RUNNING)
_JUDGING = ("quick", "n_splits", "effort", "uniqueness")


@command(*_DATA, "K", "loss", "max_time", "error", "plot", of=factorize)
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
    """
    check_picture(request.plot)
    display = request.display
    V = request.open()
    with display.working("estimating the number of components"):
        candidates = [request.K] if isinstance(request.K, int) else request.K
        selection = select_k(
            V,
            None if candidates == "auto" else candidates,
            loss=request.loss,
            budget=request.max_time,
            callback=lambda name, _: display.update("", 0.5, f"choosing K: {name}"),
        )
    needed = None
    if request.error is not None:
        with display.working("fitting"):
            needed = components_for(V, request.error, loss=request.loss)
    if request.plot is not None:
        save_picture(selection.plot(requirement=needed)[0].figure, request.plot)
    answer = {
        "n_components": selection.K,
        **attributes(selection, "interval", "grade", "decided_by", "sentence"),
        "evidence": {
            one.name: {
                "n_components": one.K,
                "reason": one.text,
                "ks": one.ks,
                "scores": one.scores,
            }
            for one in selection.evidence
        },
        "components_for": None if needed is None else vars(needed),
        "plot": request.plot,
    }
    lines = [str(selection)]
    if needed is not None:
        lines.append(needed.sentence)
    if request.plot is not None:
        lines.append(f"written: {visible(request.plot, None)}")
    request.answer(answer, "\n".join(lines), V)


@command(*_DATA, *STOPPING, *LABELS, "K", "loss", *_JUDGING, of=factorize)
def diagnose(request: Request) -> None:
    """Say whether the components of a fit of DATA may be interpreted; write no files.

    Prints the verdict, then its details: the grade of each component with the reason, the
    certificate, the cones, and the recommended init.

    \b
    conenmf diagnose counts.csv
    conenmf diagnose cells.h5ad -k 12 --groups donor
    conenmf diagnose spectra.npy -k 12 --json
    conenmf diagnose words.npz -k 20 --loss poisson
    """
    display = request.display
    drop_label_columns(request)
    V = request.open()
    labels = labels_of(request, V.n_samples, V.names)
    show = display.iterations(request.max_iter)
    with display.working(choosing(request.K)):
        K = request.K if request.K == "auto" else request.chosen_k(V)
        how = request.chosen(("loss", *STOPPING))
        result = factorize(V, K, rng=request.rng, callback=show, **how)
    result = request.described(result)
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
    display = request.display
    V = request.open()
    classes = None
    if request.labels is not None:
        classes = read_labels(request.labels, V.n_samples, V.names)
    with display.working(choosing(request.K)):
        compared = comparison.compare(
            V,
            request.chosen_k(V),
            inits=request.inits,
            solvers=request.solvers,
            labels=classes,
            seed=request.seed or 0,
            watch=lambda *pair: display.iterations(request.max_iter, " + ".join(pair)),
            **request.chosen(STOPPING),
        )
    if request.plot is not None:
        save_picture(compared.plot().figure, request.plot)
    rows = compared.rows()
    if target is not None:
        write_csv(target, rows[0], (row.values() for row in rows))
    files = {"plot": request.plot, "table": request.output}
    decided = {"n_components": compared.K, "K_decided_by": request.K_decided_by}
    written = [f"written: {visible(path, None)}" for path in files.values() if path]
    is_given = request.K_decided_by == "user"
    number = f"{compared.K} components" if is_given else request.K_decided_by
    answer = {**decided, "contenders": rows, **files}
    request.answer(answer, "\n".join([number, str(compared), *written]), V)


_MANY_FITS = (*OUTPUT, "K", "loss", "n_runs", "resample", "tables", "plot", "no_report", "effort")
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
    """
    _fit_many(request, "signatures")


def _fit_many(request: Request, kind: str) -> None:
    """Fit many times; write the consensus, its certificate and a report."""
    check_picture(request.plot)
    target = result_folder(request, kind)
    display = request.display
    V = request.open()
    known = read_reference(request, V)
    with new_result(target) as folder:
        with display.working("choosing the number of components"):
            K = request.chosen_k(V)
        with display.working(f"fitting {request.n_runs} times"):
            how = request.chosen(("n_runs", "loss", "resample"))
            how |= {"rng": request.rng, "checkpoint": target / RUNS_FOLDER}
            found = fit_many_times(V, K, prune=kind == "signatures", **how)
        result = consensus(V, found, request)
        lines = [request.K_decided_by] * (request.K_decided_by != "user") + [str(found)]
        answer = {**_answer(found), "known_as": []}
        if known is not None:
            names, answer["known_as"] = map(list, named_after(exact(result.W), *known))
            more = {"component_names": names, "known_as": answer["known_as"]}
            result = replace(result, settings={**result.settings, **more})
        if not request.no_report:
            request.uniqueness = True  # takes about as long as one of the fits
            request.judge(result)
            answer["certificate"] = vars(result.certify())
            lines += ["", *result.diagnose().lines(), ""]
        lines += [f"component {k}: {one}" for k, one in enumerate(answer["known_as"])]
        with display.working(f"writing {target}"):
            summary = json_values({**facts(result), "stability": answer, "version": __version__})
            _write_runs(folder, found)
            files = write_result(folder, result, summary, request, stability=found)
    if request.plot is not None:
        save_picture(found.plot()[0].figure, request.plot)
    lines.append(f"the consensus and the runs are in {visible(target, None)}")
    if REPORT_FILE in files:
        lines.append(f"open {visible(target / REPORT_FILE, None)} in a browser")
    paths = [str(target / name) for name in files]
    answer |= {"K_decided_by": request.K_decided_by, "files": paths, "plot": request.plot}
    request.answer(answer, "\n".join(lines), V)


def consensus(V: DataMatrix, found: Stability, request: Request) -> Factorization:
    """Return the consensus of many fits as a result for other commands and the report."""
    result = factorize(V, found.K, init=found.W, loss=found.loss, solver=None)
    how = {"init": "consensus", "n_runs": found.n_runs, "resample": found.resample}
    return replace(request.described(result, **how), init_used="consensus")


def _answer(found: Stability) -> Facts:
    names = ("verdict", "problem", "found_in", "silhouettes", "cosine_limits", "n_minima", "n_runs")
    errors = ("relative_error", "best_relative_error")
    return {
        "n_components": found.K,
        **{name: getattr(found, name) for name in (*names, *errors)},
        "stable": found.is_stable.tolist(),
        "moves_in_degrees": np.degrees(found.moves),
        "withheld_limits": found.withheld,
    }


def _write_runs(folder: Path, found: Stability) -> None:
    """Write statistics of all fits."""
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
