"""The commands for a saved result: transform new samples, write its report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource
from rich.console import Console

from ..atomic import in_use, output_file, writing
from ..data.prepare import prepared
from ..errors import DataError, OptionError
from ..export import REPORT_FILE, RESULT_FILE, check_table, write_coefficients
from ..io.text import TABLE_SUFFIXES
from ..judge.scores import matched_rows
from ..judge.stability import Stability
from ..report import write_report
from ..result import Factorization
from ..solve.constraints import Penalties
from ..solve.goals import LOSSES, best_coefficients
from ..solve.losses.weighted import Weighted
from ..text import visible
from .known_parts import ENTRY_OPTIONS, SAMPLE_WEIGHT_OPTION, weighed
from .labels import GivenClasses
from .options import (
    PRINTING_OPTIONS,
    READING_OPTIONS,
    REPORT_OPTIONS,
    CommonOptions,
    reads_data,
    with_options,
)
from .output import STABILITY_FILE, check_complete, list_in_summary

__all__ = ["report", "transform"]

_GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
_READ_AS_BEFORE = (
    "samples_in",
    "dataset",
    "header",
    "names_column",
    "drop",
    "text_column",
    "negative",
    "missing",
    "mask",
    "weights",
    "sample_weight",
)


@click.command()
@click.argument("model", type=click.Path())
@reads_data
@with_options(
    click.option(
        "-o",
        "--output",
        type=click.Path(),
        required=True,
        help="The coefficients: .csv, .parquet or .npy.",
    ),
    *ENTRY_OPTIONS,
)
def transform(common: CommonOptions, model: str, output: str) -> None:
    """Compute the coefficients of new samples DATA in the components of MODEL.

    MODEL is a folder that fit wrote, or the result.npz in it. Features are matched by name where
    both have names; texts are read with the words of MODEL, and counts are prepared as for MODEL,
    by --tfidf and the like. --missing is that of MODEL unless it is given.

    \b
    conenmf transform result new.csv -o coefficients.csv
    """
    result = _load(model)
    check_table(output)
    output_file(output)
    display = common.display
    V = _like_those_of(result, common).open(display, vocabulary=result.vocabulary)
    places = np.arange(len(result.W))[:, None]
    features = matched_rows(places, result.names, V)[:, 0]
    W = result.W[features]
    if result.preparation is not None:
        V = prepared(V, result.preparation.reordered(features))
    with display.working("computing the coefficients"), V.own_threads():
        penalties = Penalties.of_plain(result.settings.get("penalties"))
        W = W.astype(V.dtype, copy=False)
        H, labels, value = best_coefficients(V, W, result.loss, penalties=penalties)
    write_coefficients(output, H.T, V.names, result.component_names)
    is_plain = V.observed is None or result.loss != "frobenius"
    loss = LOSSES[result.loss] if is_plain else Weighted
    error = loss(V, rescale=False).relative_error(value) if V.total else 0.0
    components = np.asarray(labels)[np.asarray(labels) >= 0]
    answer = {
        "n_samples": V.shape[1],
        "n_components": result.K,
        "relative_error": error,
        "samples_of_component": np.bincount(components, minlength=result.K),
        "output": output,
    }

    def show(out: Console) -> None:
        out.print(f"{V.shape[1]} samples in {result.K} components; relative error {error:.4g}")
        out.print(f"the coefficients are in {visible(output, None)}")

    common.answer(answer, show, V)


def _like_those_of(result: Factorization, common: CommonOptions) -> CommonOptions:
    """Read new texts from the column that those of the result were in, unless another is named.

    What is missing is missing here too.
    """
    if common.missing is None:
        common = replace(common, missing=result.settings.get("missing"))
    column = result.settings.get("text_column")
    is_table = common.path.suffix.lower() in TABLE_SUFFIXES
    if common.text_column is None and column is not None and is_table:
        return replace(common, text_column=column)
    return common


def _load(path: str) -> Factorization:
    target = Path(path)
    if target.is_dir():
        check_complete(target)
        target /= RESULT_FILE
    if not target.exists():
        raise FileNotFoundError(f"there is no result {target}: name a folder that fit wrote")
    return Factorization.load(target)


@click.command()
@click.argument("result", type=click.Path())
@with_options(
    click.option(
        "-o",
        "--output",
        type=click.Path(),
        help="File of the report; by default report.html in the folder of RESULT.",
    ),
    click.option("--data", help="The data that were factorised; needed if fit wrote no report."),
    *READING_OPTIONS,
    *ENTRY_OPTIONS,
    SAMPLE_WEIGHT_OPTION,
    *REPORT_OPTIONS,
    *PRINTING_OPTIONS,
)
@click.pass_context
def report(
    context: click.Context,
    /,
    result: str,
    output: str | None,
    data: str | None,
    image_shape: tuple[int, int] | None,
    view: str,
    classes: str | None,
    title: str | None,
    **options: Any,
) -> None:
    """Write the report of RESULT, a folder that fit wrote or the result.npz in it.

    \b
    conenmf report result --view curves -o spectra.html
    conenmf report result --data counts.csv
    conenmf report result --classes classes.txt
    """
    known = GivenClasses.of(classes, CommonOptions(data=data or "", **options))
    common = known.common
    given = {name for name in options if context.get_parameter_source(name) in _GIVEN}
    folder = Path(result) if Path(result).is_dir() else Path(result).parent
    target = folder / REPORT_FILE if output is None else output_file(output)
    is_inside = target.absolute().parent == folder.absolute()
    with ExitStack() as stack:
        if is_inside and folder.is_dir():  # the report must be that of the result in the folder
            check_complete(folder)
            with writing(folder):
                stack.enter_context(in_use(folder))
        factorization = _load(result)
        common = _as_before(common, factorization.settings, given)
        factorization = _judged(factorization, result, data, common)
        heading = title or folder.name
        write_report(
            factorization,
            target,
            title=heading,
            view=view,
            image_shape=image_shape,
            pixels_shape=common.pixels_shape,
            stability=_stability_of(result, factorization),
            **replace(known, common=common).known(factorization.H.shape[1], factorization.names),
        )
        if is_inside and target.name == REPORT_FILE:
            list_in_summary(folder, REPORT_FILE)
    answer = {"report": str(target), "bytes": target.stat().st_size}
    common.answer(answer, lambda out: out.print(f"open {visible(target, None)} in a browser"))


def _stability_of(result: str, factorization: Factorization) -> Stability | None:
    """What `conenmf stability` wrote beside a consensus."""
    path = Path(result) / STABILITY_FILE
    is_consensus = factorization.init_used == "consensus"
    return Stability.load(path) if is_consensus and path.is_file() else None


def _as_before(
    common: CommonOptions, settings: Mapping[str, Any], given: set[str]
) -> CommonOptions:
    """Read the data as they were read for the fit, but for options that are given."""
    known = {name: settings[name] for name in _READ_AS_BEFORE if settings.get(name) is not None}
    if isinstance(columns := known.get("drop"), str):
        known["drop"] = tuple(columns.split(", "))
    return replace(common, **{name: value for name, value in known.items() if name not in given})


def _judged(
    factorization: Factorization, result: str, data: str | None, common: CommonOptions
) -> Factorization:
    """A result with its diagnosis, which may have to be computed from the data."""
    if data is None:
        if factorization.diagnosis is None:
            source = factorization.settings.get("source")
            named = replace(common, data=source if isinstance(source, str) else "DATA")
            command = shlex.join(["conenmf", "report", result, *named.flags])
            raise OptionError(f"{result} was not judged when it was written: run {command}")
        return factorization
    V = common.open(common.display, vocabulary=factorization.vocabulary)
    if V.shape != (factorization.W.shape[0], factorization.H.shape[1]):
        (F, N), n = V.shape, factorization.H.shape[1]
        raise DataError(
            f"{data} has {N} samples and {F} features, and the data of {result} had {n} and "
            f"{factorization.W.shape[0]}: name the right file, and how to read it"
        )
    if factorization.preparation is not None:
        V = prepared(V, factorization.preparation)
    V = weighed(V, common.sample_weight, factorization.loss, common.max_memory)
    factorization = replace(factorization, data=V, certificate=None, diagnosis=None)
    with common.display.working("judging the result"):
        factorization.diagnose()
    return factorization
