"""The commands for a saved result: transform new samples, and write its report."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..atomic import output_file
from ..components import matched_rows
from ..data.prepare import apply_preparation
from ..errors import DataError, OptionError
from ..export import REPORT_FILE, RESULT_FILE, check_table, write_coefficients
from ..fields.mutations import STABILITY_FILE
from ..io.text import TABLE_SUFFIXES
from ..judge.stability import Stability
from ..report import write_report
from ..result import Factorization
from ..solve.groups import problem_of_groups
from ..solve.scenes import abundances_of
from ..types import Array
from .inputs import (
    about_samples,
    drop_label_columns,
    labels_of,
    open_input,
    with_sample_weights,
)
from .options import (
    ENTRIES,
    LABELS,
    READING,
    RUNNING,
    VIEWING,
)
from .output import check_complete, list_in_summary, locked_folder
from .request import Request, command, flags_of


@command(
    *READING,
    *ENTRIES,
    *RUNNING,
    "output",
    "groups",
    arguments=("model", "data"),
    output={"required": True, "help": "The coefficients: .csv, .parquet or .npy."},
    groups={
        "help": "Groups of the samples, for a MODEL with groups: a file with a line for each "
        "sample, or a column of DATA. Those of MODEL keep their scales; without it all are one."
    },
)
def transform(request: Request) -> None:
    """Compute the coefficients of new samples DATA for the components of MODEL.

    MODEL is a folder that fit wrote, or the result.npz in it. Features are matched by name where
    both have names. Texts use the vocabulary of MODEL; preparation such as --tfidf and, unless
    given, --missing are also taken from MODEL.

    \b
    conenmf transform result new.csv -o coefficients.csv
    """
    result = _load(request.model)
    if "ratings" in result.settings:
        raise OptionError(
            f"{request.model} is a model of ratings, whose offsets new users do not have: fit the "
            "ratings of old and new users together, or use `with_ratings` in Python"
        )
    result.problem.require_two_factors("the coefficients of new nodes are")
    output = str(request.output)
    check_table(output)
    drop_label_columns(request)
    request.read_as(result.settings, ["missing", "bad"])
    if request.suffix in TABLE_SUFFIXES:
        request.read_as(result.settings, ["text_column"])
    V = open_input(request, result.vocabulary)
    (groups,) = labels_of(request, V.n_samples, V.names).get("groups", {"": None}).values()
    places = np.arange(len(result.W))[:, None]
    features = matched_rows(places, result.names, V)[:, 0]
    if result.preparation is not None:
        V = apply_preparation(V, result.preparation.reordered(features))
    with request.display.working("computing the coefficients"), V.own_threads():
        W = result.W[features].astype(V.dtype, copy=False)
        fitted = result.problem.groups
        fitted = None if fitted is None else fitted.of_features(features)
        problem = replace(result.problem, groups=None)
        problem = problem_of_groups(V, problem, W, fitted, groups)
        H, labels, value = problem.coefficients(V, W)
    A = abundances_of(V, H) if result.is_shaded else H.T
    write_coefficients(output, A, V.names, result.component_names)
    error = 0.0
    if V.total and problem.has_effects:
        error = problem.finish(V, W, sort=False)[1]
    elif V.total:
        error = problem.loss.on(V, rescale=False).relative_error(value)
    labels = np.asarray(labels)
    answer = {
        "n_samples": V.n_samples,
        "n_components": result.K,
        "relative_error": error,
        "samples_of_component": np.bincount(labels[labels >= 0], minlength=result.K),
        "output": output,
    }
    said = f"{V.n_samples} samples in {result.K} components; relative error {error:.4g}"
    where = f"the coefficients are in {output}"
    request.answer(answer, [said, where], V)


def _load(path: str) -> Factorization:
    target = Path(path)
    if target.is_dir():
        check_complete(target)
        target /= RESULT_FILE
    if not target.exists():
        raise FileNotFoundError(f"no result in {target}: pass the output folder of `conenmf fit`")
    return Factorization.load(target)


@command(
    *READING,
    *ENTRIES,
    *LABELS,
    *VIEWING,
    *RUNNING,
    "output",
    "data",
    "n_splits",
    "uniqueness",
    "sample_weight",
    arguments=("result",),
    output={"help": "File of the report; by default report.html in the folder of RESULT."},
)
def report(request: Request) -> None:
    """Write the report of RESULT, a folder that fit wrote or the result.npz in it.

    \b
    conenmf report result --view curves -o spectra.html
    conenmf report result --data counts.csv
    conenmf report result --classes classes.txt
    """
    drop_label_columns(request)
    folder = Path(request.result)
    if not folder.is_dir():
        folder = folder.parent
    target = folder / REPORT_FILE if request.output is None else output_file(request.output)
    is_inside = target.absolute().parent == folder.absolute()
    is_locked = is_inside and folder.is_dir()  # the report must belong to the result in the folder
    with locked_folder(folder) if is_locked else nullcontext():
        result = _load(request.result)
        request.read_as(result.settings)
        result, classes = _judge(result, request)
        about = about_samples(request, result.n_samples)
        consensus = folder / STABILITY_FILE
        if result.init_used == "consensus" and consensus.is_file():
            about["stability"] = Stability.load(consensus)
        write_report(
            result,
            target,
            title=request.title or folder.name,
            view=request.view,
            image_shape=request.image_shape,
            pixels_shape=request.pixels_shape,
            classes=classes,
            **about,
        )
        if is_inside and target.name == REPORT_FILE:
            list_in_summary(folder, REPORT_FILE)
    answer = {"report": str(target), "bytes": target.stat().st_size}
    request.answer(answer, [f"open {target} in a browser"])


def _judge(result: Factorization, request: Request) -> tuple[Factorization, Array | None]:
    """Return a result with its diagnosis, which may be computed from the data, and the classes."""
    if result.diagnosis is None:
        result.problem.require_no_effects("report")
    if not request.data and result.diagnosis is None:
        request.data = result.settings.get("source", "")
        if not request.data:
            raise OptionError(f"{request.result} was not judged: name its data with --data")
    labels = labels_of(request, result.n_samples, result.names)
    classes = labels.get("classes")
    if not request.data:
        for option in ("groups", "n_splits", "uniqueness"):
            if option in request.given:
                flag = flags_of(report)[option]
                raise OptionError(f"{flag} is for a new verdict: name the data with --data")
        return result, classes
    if "ratings" in result.settings:
        raise OptionError("a model of ratings is judged when it is fitted: leave out --data")
    V = open_input(request, result.vocabulary)
    if V.shape != (result.n_features, result.n_samples):
        size = f"{V.n_samples} samples and {V.n_features} features"
        raise DataError(
            f"{request.data} has {size}, and the data of {request.result} had {result.n_samples} "
            f"and {result.n_features}: name the right file, and say how to read it"
        )
    if result.preparation is not None:
        V = apply_preparation(V, result.preparation)
    V = with_sample_weights(request, V, result.loss)
    result = replace(result, data=V, certificate=None, diagnosis=None)
    request.judge(result, **labels)
    return result, classes
