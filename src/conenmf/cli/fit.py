"""The commands ``fit``, which factors data and writes a folder of results, and ``demo``."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from .. import __version__
from ..arguments import path as folder_path
from ..atomic import writing
from ..data.matrix import DataMatrix
from ..errors import Option, OptionError, OutputError
from ..export import (
    ANNOTATED_FILE,
    REPORT_FILE,
    RESULT_FILE,
    annotate_file,
    check_packages,
    facts,
    write_csv,
    write_tables,
)
from ..fields.measurements import (
    bootstrap,
    write_bootstrap,
    write_displacement,
    write_residuals,
    write_total,
)
from ..fields.ratings import Ratings, fit_ratings
from ..judge.matching import match_scene
from ..pipeline import factorize
from ..report import check_view, write_report
from ..result import Factorization
from ..signals import Interruption
from ..solve.losses import get_loss
from ..solve.problem import Problem
from ..solve.run import StopReason
from ..solve.scenes import SCENE
from ..types import Array, Facts
from .inputs import (
    about_samples,
    drop_label_columns,
    labels_of,
    open_input,
    read_problem,
    read_scene_reference,
    with_sample_weights,
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
    VIEWING,
    WORDS,
)
from .output import (
    RECOMMENDATIONS_FILE,
    advice,
    check_folder,
    earlier_files,
    fit_text,
    new_result,
    write_summary,
)
from .request import Request, command

# If one of these options is given, ratings are fitted like other data.
_PLAIN = {*TERMS, "init", "n_init", "loss", "solver", "fixed", "sample_weight", "checkpoint"}
_PLAIN |= {"robust", "symmetric"}


_SOLVING = (
    "K",
    "init",
    "n_init",
    "loss",
    "solver",
    "fixed",
    "sample_weight",
    "checkpoint",
    "scene",
)
_JUDGING = ("no_report", "quick", "n_splits", "effort", "uniqueness", "displacement", "n_bootstrap")
_READING = (*READING, *WORDS, *PREPARING, *ENTRIES)


@command(
    *_SOLVING,
    "scene",
    *_JUDGING,
    *_READING,
    *OUTPUT,
    *TERMS,
    *STOPPING,
    *LABELS,
    *VIEWING,
    *RUNNING,
    "tables",
    "anndata",
    "reference",
    "robust",
    "symmetric",
    of=factorize,
    output={"help": "Folder for the results; by default DATA-conenmf."},
)
def fit(request: Request) -> int:
    """Factor DATA and judge the fit; write the factors, the verdict and a report to a folder.

    \b
    conenmf fit counts.csv
    conenmf fit spectra.npy -k 12 -o result --max-time 60
    conenmf fit faces/ -k 40 -o faces-40
    conenmf fit articles/ -k 20 -o topics
    conenmf fit scene.hdr -k 6 --scene
    conenmf fit scene.mat -k 4 --scene --reference scene.mat
    conenmf fit reviews.csv --text-column review -k 10
    conenmf fit words.npz -k 20 --tfidf
    conenmf fit words.npz -k 20 --loss poisson
    conenmf fit ratings.csv
    conenmf fit spectra.csv -k 5 --fixed library.csv
    conenmf fit cells.h5ad -k 10 --groups donor
    conenmf fit graph.mtx -k 6 --symmetric
    conenmf fit cells.h5ad:layers/counts --max-memory 4GB --checkpoint run --anndata

    Ctrl-C stops after the current iteration and saves the result so far. Later it ends the
    verdict, which keeps the finished splits.
    """
    if request.reference is not None and not request.scene:
        raise OptionError("--reference is for scenes: add --scene, or leave it out")
    if request.scene:
        request.read_as({**SCENE, "solver": "none"}, SCENE)
    drop_label_columns(request)
    target = _check_options(request)
    display = request.display
    with Interruption() as interruption, new_result(target) as folder:
        V = open_input(request)
        hint = advice(V, request)
        if hint:
            V.remarks += (hint,)
        check_view(request.view, V.names)
        replaces = bool(earlier_files(target))
        about: Facts = {}
        labels = labels_of(request, V.n_samples, V.names)
        if not request.no_report:
            about = about_samples(request, V.n_samples)
            about["classes"] = labels.get("classes")
        reference = read_scene_reference(request, V)
        (groups,) = labels.get("groups", {"": None}).values()
        result = _factorize(request, V, interruption, groups)
        if "groups" in labels and result.problem.groups is None:
            V.remarks += ("the model has no groups; a verdict compares them",)
        if reference is not None:
            match, words = match_scene(V, result.W, *reference)
            found = {"angles": match.angles.tolist(), "rmse": match.rmse, "words": words}
            result = replace(result, settings={**result.settings, "reference": found})
        has_effects = result.problem.has_effects  # which no judge knows
        if interruption.asked:
            result = replace(result, stop_reason=StopReason.INTERRUPTED)
        elif has_effects and not request.no_report:
            V.remarks += ("no verdict: judges do not know groups whose scales differ",)
        elif not (request.no_report or request.symmetric):
            with interruption.optional():
                request.judge(result, interruption, **labels)
        with display.working(f"writing {target}"):
            summary = {**facts(result), "version": __version__}
            files = write_result(folder, result, summary, request, **about)
    answer = {**summary, "files": [str(target / name) for name in files]}
    request.answer(answer, fit_text(result, request, target, replaces), V)
    return 130 if interruption.asked else 0


def _check_options(request: Request) -> Path:
    """Reject impossible options before the data are read; return the folder for the result."""
    source = request.path
    if request.anndata and request.suffix != ".h5ad":
        raise OptionError(f"--anndata is for .h5ad files, and DATA is {request.data}: leave it out")
    for name in ("displacement", "n_bootstrap"):
        is_asked = getattr(request, name) is not None
        if is_asked and "sigma" not in get_loss(request.loss).constraints:
            raise OptionError(Option(name), " is for least squares: leave out ", Option("loss"))
        if is_asked and _takes_groups(request):
            Problem(groups=request.groups).require_no_effects(name.removeprefix("n_"))
    target = result_folder(request, "conenmf")
    if source.resolve().parent == target.resolve() and source.name in earlier_files(target):
        raise OutputError(f"{source} is part of the result in {target}: name another folder")
    return target


def result_folder(request: Request, kind: str) -> Path:
    """Return the folder for a result; reject it if it cannot be written to."""
    check_packages(request.tables, anndata=bool(request.anndata))
    output = request.output or f"{request.path.resolve().name}-{kind}"
    target = Path(folder_path("output", output))
    check_folder(target, request.force)
    return target


def _factorize(
    request: Request, own: DataMatrix, interruption: Interruption, groups: Array | None
) -> Factorization:
    """Fit the data with the given weights, known components, penalties and groups.

    A sparse matrix whose stored entries are the known ones contains ratings. `fit_ratings` fits it,
    unless options say otherwise.
    """
    is_weighted = own.observed is not None and own.observed.weights is not None
    if own.are_ratings and not is_weighted and not request.given & _PLAIN:
        return _fit_ratings(request, own)
    V = with_sample_weights(request, own, request.loss)
    problem = read_problem(request, V)
    callback = interruption.watch(request.display.iterations(request.max_iter))
    solver = None if request.solver == "none" else request.solver
    options = ("init", "n_init", "loss", "checkpoint", "robust", "symmetric")
    how = request.chosen((*options, *STOPPING))
    how |= {"fixed": problem.fixed, "penalties": problem.penalties}
    if _takes_groups(request):
        how["groups"] = groups
    with request.display.working("choosing an init"):
        K = "auto" if request.K == "auto" else request.chosen_k(V, problem)
        result = factorize(V, K, solver=solver, rng=request.rng, callback=callback, **how)
    return request.describe(result)


def _takes_groups(request: Request) -> bool:
    """Return whether groups are a part of the model; otherwise only the verdict uses them."""
    takes_none = request.solver == "none" or request.sum_to_one
    known = get_loss(request.loss).constraints
    return request.groups is not None and "groups" in known and not takes_none


def _fit_ratings(request: Request, V: DataMatrix) -> Factorization:
    """Fit ratings; the settings of the result contain the errors on hidden ratings."""
    K = request.K if isinstance(request.K, str) else request.chosen_k(V)

    def show(step: str, share: float) -> None:
        request.display.update("", share, f"choosing the model by hidden ratings: {step}")

    with request.display.working("reading the ratings"):
        model = fit_ratings(V, K, callback=show)
    request.ratings = model
    return request.describe(
        model.result,
        ratings=model.summary(),
        rmse=model.rmse,
        rmse_of_means=model.rmse_of_means,
    )


def write_result(
    folder: Path,
    result: Factorization,
    summary: Facts,
    request: Request,
    **about: Any,
) -> list[str]:
    """Write the files of a result; return the names of all files in its folder.

    The result itself is written first, so a failing table or report does not lose it.
    """
    result.save(folder / RESULT_FILE)
    if request.tables != "none":
        write_tables(result, folder, request.tables)
    if "Q" in result.settings:
        write_residuals(folder, result, request.species)
        if request.total is not None:
            shares = write_total(folder, result, request.total)
            parts = zip(result.component_names, shares, strict=True)
            words = ", ".join(f"{name} {share:.0%}" for name, share in parts)
            request.findings.append(f"of {request.total}: {words}")
    if request.displacement is not None:
        with request.display.working("displacing entries"):
            write_displacement(folder, result, request.displacement)
    if request.n_bootstrap is not None:
        with request.display.working("fitting resampled samples"):
            found = bootstrap(result, request.n_bootstrap, rng=request.rng)
        write_bootstrap(folder, result, found)
        request.findings.append(str(found))
    if request.ratings is not None:
        _write_recommendations(folder, request.ratings)
    if request.anndata:
        annotate_file(request.path, folder / ANNOTATED_FILE, result)
    if result.diagnosis is not None:
        title = request.title or request.path.resolve().name
        write_report(result, folder / REPORT_FILE, title=title, view=request.view, **about)
    return write_summary(folder, summary, os.listdir(folder))


def _write_recommendations(folder: Path, ratings: Ratings) -> None:
    """Write the items that each user has not rated and would like best."""
    rows = []
    for user, found in ratings.recommend_many().items():
        rows += [(user, *pair) for pair in found]
    write_csv(folder / RECOMMENDATIONS_FILE, ("user", "item", "predicted rating"), rows)


@command(*OUTPUT, arguments=(), output={"default": "conenmf-demo", "help": "Folder."})
def demo(request: Request) -> int:
    """Factor handwritten digits: write digits.csv, the results and a report.

    \b
    conenmf demo
    conenmf fit conenmf-demo/digits.csv -k 16 --image-shape 8x8
    """
    from sklearn.datasets import load_digits

    target = Path(str(request.output))
    path = target / "digits.csv"
    is_ours = path.is_file() and path.read_bytes().startswith(b"image,pixel_0_0,")
    check_folder(target, request.force or is_ours)
    with writing(target):
        target.mkdir(exist_ok=True)
    digits = load_digits()
    rows = []
    for n, pixels in enumerate(digits.data.tolist()):
        rows.append((f"a {digits.target[n]} (no. {n})", *pixels))
    write_csv(path, ("image", *digits.feature_names), rows)
    words = ["fit", str(path), "-k", "10", "--image-shape", "8x8", "-o", str(target / "result")]
    if not request.as_json:
        click.echo(f"{path}: {len(rows)} images of 8 x 8 pixels, one in each row; now\n")
        click.echo(f"$ {shlex.join(['conenmf', *words])}\n")
    for flag, is_given in (
        ("--quiet", request.quiet),
        ("--json", request.as_json),
        ("--force", request.force),
    ):
        if is_given:
            words.append(flag)
    return int(fit.main(words[1:], "conenmf fit", standalone_mode=False, obj={"arguments": words}))
