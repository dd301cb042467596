"""The commands: each reads its options, calls the library, prints what was found, writes files.

Answers go to standard output, progress and errors to standard error.
"""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.shell_completion import get_completion_class
from rich.console import Console

from .. import __version__
from ..comparison import INITS_COMPARED, SOLVERS_COMPARED, compare, read_labels
from ..data.blocks import Array
from ..data.files.atomic import written_whole
from ..data.files.formats import split_member
from ..data.matrix import DataMatrix
from ..errors import OptionError, OutputError, ShapeError
from ..export import (
    ANNOTATED,
    REPORT,
    RESULT,
    TABLES,
    annotate_file,
    check_folder,
    check_packages,
    check_table,
    earlier_files,
    facts,
    files_of_result,
    new_folder,
    write_coefficients,
    write_summary,
    write_tables,
    writing,
)
from ..judge.selection import METHODS, choose_k, select_k
from ..pipeline import factorize
from ..report import check_view, write_report
from ..result import Factorization
from ..solve.inits import INITS
from ..solve.loop import coefficients
from ..solve.solvers import SOLVERS
from ..solve.stopping import StopReason
from ..text import visible
from .answers import show_comparison, show_diagnosis, show_fit, show_rank
from .console import Interruption
from .failures import EXIT_CODES
from .options import (
    COMPONENTS,
    FROM,
    HOW,
    LOOKS,
    SOLVING,
    Given,
    Several,
    plain,
    reads_data,
    with_options,
)

__all__ = ["app"]


class _Group(click.Group):
    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name="conenmf")
def app() -> None:
    """Nonnegative matrix factorization that knows how good its answer is.

    DATA is a file: .csv, .tsv, .npy, .npz, .parquet, .arrow, .mtx, .mat, .h5 (file.h5:/dataset),
    .zarr, .h5ad (file.h5ad:layers/counts), or a folder of images.

    \b
    conenmf demo                          see it work, without data of your own
    conenmf fit counts.csv -o result      factor, judge, and write a report
    conenmf COMMAND --help                what a command does, with examples
    """


# --- fit --------------------------------------------------------------------------------------


@app.command()
@reads_data
@with_options(
    COMPONENTS,
    click.option(
        "-o", "--output", type=click.Path(), help="Folder for the results; by default DATA-conenmf."
    ),
    click.option("--init", type=click.Choice(["auto", *INITS]), default="auto", show_default=True),
    click.option("--solver", type=click.Choice(list(SOLVERS)), default="hals", show_default=True),
    *SOLVING,
    click.option(
        "--checkpoint",
        type=click.Path(),
        help="Folder in which the run is saved every minute, to go on from after a crash.",
    ),
    click.option(
        "--tables",
        type=click.Choice([*TABLES, "none"]),
        default="csv",
        show_default=True,
        help="Kind of the tables of components, coefficients, labels and history.",
    ),
    click.option("--anndata", is_flag=True, help="Also write a copy of an .h5ad with the result."),
    click.option("--no-report", is_flag=True, help="Skip the judgement and the report."),
    *LOOKS,
    click.option("--force", is_flag=True, help="Write into a folder that holds other files."),
)
@click.pass_context
def fit(
    context: click.Context,
    given: Given,
    components: int | str,
    output: str | None,
    init: str,
    solver: str,
    max_iter: int,
    tol: float,
    max_time: float | None,
    checkpoint: str | None,
    tables: str,
    anndata: bool,
    no_report: bool,
    image_shape: tuple[int, int] | None,
    view: str,
    title: str | None,
    force: bool,
) -> int:
    """Factor DATA; write the factors, labels, history and a report to a folder.

    \b
    conenmf fit counts.csv
    conenmf fit spectra.npy -k 12 -o result --max-time 60
    conenmf fit faces/ -k 40 -o faces-40
    conenmf fit cells.h5ad:layers/counts --max-memory 4GB --checkpoint run --anndata

    Ctrl-C stops after the current iteration and saves what there is.
    """
    source = Path(split_member(given.data)[0])
    if anndata and source.suffix.lower() != ".h5ad":
        raise OptionError(f"--anndata is for .h5ad files, and DATA is {given.data}")
    check_packages(tables, anndata=anndata)
    target = Path(f"{source.resolve().name}-conenmf" if output is None else output)
    names = files_of_result(tables, anndata=anndata, report=not no_report)
    check_folder(target, force, names)
    if source.resolve().parent == target.resolve() and source.name in earlier_files(target):
        raise OutputError(f"{source} is part of the result in {target}: name another folder")
    display = given.display
    interruption = Interruption(lambda line: print(f"conenmf: {line}", file=sys.stderr))
    show = display.iterations(max_iter, tol, max_time, "solving")
    problem = None
    with interruption, new_folder(target) as folder:
        V = given.open(display, image_shape)
        check_view(view, V.names)
        with display.working(_choosing(components)):
            result = factorize(
                V,
                components,
                init=init,
                solver=solver,
                max_iter=max_iter,
                tol=tol,
                max_time=max_time,
                rng=given.rng,
                callback=interruption.watch(show),
                checkpoint=checkpoint,
            )
        command = shlex.join(["conenmf", *context.obj["arguments"]])
        result = replace(
            result,
            stop_reason=StopReason.INTERRUPTED if interruption.asked else result.stop_reason,
            settings={**result.settings, **given.how_read, "seed": given.seed, "command": command},
        )
        if not (interruption.asked or no_report):
            with interruption.may_be_left_out(), display.working("judging the result"):
                result.diagnose()
        with interruption.put_off(), display.working(f"writing {target}"), writing(target):
            result.save(folder / RESULT)
            try:
                if tables != "none":
                    write_tables(result, folder, tables)
                if anndata:
                    annotate_file(source, folder / ANNOTATED, result)
                if result.diagnosis is not None:
                    heading = title or source.resolve().name
                    write_report(result, folder / REPORT, title=heading, view=view)
            except Exception as reason:  # what has been written is kept all the same
                problem = reason
            known = plain({**facts(result), "version": __version__})
            write_summary(folder, known)
    if problem is not None:
        raise problem
    files = sorted(str(target / name) for name in earlier_files(target))
    given.answer(
        {**known, "files": files}, lambda out: show_fit(out, result, target, given.data), V
    )
    return 130 if interruption.asked else 0


def _choosing(components: int | str) -> str:
    number = "the number of components and " if isinstance(components, str) else ""
    return f"choosing {number}a start"


# --- rank -------------------------------------------------------------------------------------


@app.command()
@reads_data
@with_options(
    click.option("--min", "low", type=click.IntRange(1), help="Smallest number to try."),
    click.option("--max", "high", type=click.IntRange(1), help="Largest number to try."),
    click.option(
        "--methods",
        type=Several(list(METHODS)),
        default=",".join(METHODS),
        show_default=True,
        help="Estimators to ask.",
    ),
    click.option("--plot", type=click.Path(), help="Draw the scores to this .png, .pdf or .svg."),
)
def rank(
    given: Given, low: int | None, high: int | None, methods: tuple[str, ...], plot: str | None
) -> None:
    """Estimate how many components DATA has: a table of estimators, and a recommendation.

    \b
    conenmf rank counts.csv
    conenmf rank counts.csv --max 40 --methods ratio,parallel --plot rank.png
    """
    _check_picture(plot)
    display = given.display
    V = given.open(display)
    ks = None
    if low is not None or high is not None:
        last = min(high or 20, min(V.shape))
        ks = range(low or min(2, last), last + 1)
        if not ks:
            raise OptionError(f"--min {low} is above --max {last}")

    def shown(name: str) -> Callable[..., Any]:
        @functools.wraps(METHODS[name])
        def method(*arguments: Any) -> Any:
            display.update("", (methods.index(name) + 0.5) / len(methods), f"asking {name}")
            return METHODS[name](*arguments)

        method.__name__ = name
        return method

    with display.working("asking the estimators"):
        selection = select_k(V, ks, methods=[shown(name) for name in methods], rng=given.rng)
    if plot is not None:
        _save_picture(selection.plot()[0].figure, plot)
    known = {
        "n_components": selection.K,
        "decided_by": selection.decided_by,
        "reason": selection.reason,
        "candidates": selection.ks.tolist(),
        "estimators": {
            name: {"n_components": vote.K, "reason": vote.reason, "scores": vote.scores}
            for name, vote in selection.votes.items()
        },
        "plot": plot,
    }
    given.answer(known, lambda out: show_rank(out, selection, plot), V)


def _check_picture(path: str | None) -> None:
    if path is not None and Path(path).suffix.lower() not in (".png", ".pdf", ".svg"):
        raise OptionError(f"{path}: a picture ends in .png, .pdf or .svg")
    _check_place(path)


def _check_place(path: str | None) -> None:
    """Refuse a place before any work is done for it."""
    if path is not None and not Path(path).absolute().parent.is_dir():
        raise OutputError(f"{path} cannot be written: its folder does not exist")


def _save_picture(figure: Any, path: str) -> None:
    target = Path(path)
    with writing(target), written_whole(target) as stream:
        figure.savefig(stream, format=target.suffix.lower().removeprefix("."), dpi=150)


# --- diagnose ---------------------------------------------------------------------------------


@app.command()
@reads_data
@with_options(COMPONENTS, *SOLVING)
def diagnose(
    given: Given, components: int | str, max_iter: int, tol: float, max_time: float | None
) -> None:
    """Tell whether DATA lie in cones, how good a fit is, and which start suits them.

    Shows the cones and whether the geometric assumption holds, the bounds, the certificate of a
    fit, and which start is advised and why. Nothing is written.

    \b
    conenmf diagnose counts.csv
    conenmf diagnose spectra.npy -k 12 --json
    """
    display = given.display
    V = given.open(display)
    with display.working(_choosing(components)):
        result = factorize(
            V,
            components,
            init="auto",
            max_iter=max_iter,
            tol=tol,
            max_time=max_time,
            rng=given.rng,
            callback=display.iterations(max_iter, tol, max_time, "solving"),
        )
    with display.working("judging the result"):
        result.diagnose()
    given.answer(facts(result), lambda out: show_diagnosis(out, result), V)


# --- compare ----------------------------------------------------------------------------------


@app.command("compare")
@reads_data
@with_options(
    COMPONENTS,
    click.option(
        "--inits",
        type=Several(["auto", *INITS]),
        default=",".join(INITS_COMPARED),
        show_default=True,
    ),
    click.option(
        "--solvers",
        type=Several(list(SOLVERS)),
        default=",".join(SOLVERS_COMPARED),
        show_default=True,
    ),
    click.option(
        "--labels",
        type=click.Path(),
        help="True classes: a text file with one for each sample, or a .csv of name and class.",
    ),
    *SOLVING,
    click.option("-o", "--output", type=click.Path(), help="Also write the table to this .csv."),
    click.option("--plot", type=click.Path(), help="Draw error against time to this picture."),
)
def compare_(
    given: Given,
    components: int | str,
    inits: tuple[str, ...],
    solvers: tuple[str, ...],
    labels: str | None,
    max_iter: int,
    tol: float,
    max_time: float | None,
    output: str | None,
    plot: str | None,
) -> None:
    """Compare starts and solvers on DATA: error, time, and clustering scores.

    \b
    conenmf compare counts.csv -k 9
    conenmf compare faces/ -k 40 --inits cr1,nndsvd --solvers hals --plot faces.png
    conenmf compare digits.csv -k 10 --labels digit.txt -o table.csv
    """
    _check_picture(plot)
    _check_place(output)
    display = given.display
    V = given.open(display)
    truth = None if labels is None else read_labels(labels, V)
    runs = [(init, solver) for init in inits for solver in solvers]

    def watch(init: str, solver: str) -> Callable[[Any], None]:
        share = runs.index((init, solver)) / len(runs)

        def show(now: Any) -> None:
            note = f"iteration {now.iteration}, error {now.relative_error:.5g}"
            display.update(note, share, f"{init} + {solver}")

        return show

    with display.working(_choosing(components)):
        K = choose_k(V)[0] if isinstance(components, str) else components
        comparison = compare(
            V,
            K,
            inits=inits,
            solvers=solvers,
            labels=truth,
            max_iter=max_iter,
            tol=tol,
            max_time=max_time,
            seed=given.seed or 0,
            watch=watch,
        )
    if plot is not None:
        _save_picture(comparison.plot().figure, plot)
    rows = comparison.rows()
    if output is not None:
        _write_csv(Path(output), rows)
    known = {"n_components": K, "contenders": rows, "plot": plot, "table": output}
    given.answer(known, lambda out: show_comparison(out, comparison, (output, plot)), V)


def _write_csv(target: Path, rows: list[dict[str, Any]]) -> None:
    with writing(target), written_whole(target) as stream:
        lines = [list(rows[0]), *(row.values() for row in rows)]
        stream.write("".join(",".join(map(str, line)) + "\n" for line in lines).encode())


# --- transform, report, demo ------------------------------------------------------------------


@app.command()
@click.argument("model", type=click.Path())
@reads_data
@with_options(
    click.option(
        "-o",
        "--output",
        type=click.Path(),
        required=True,
        help="The coefficients: .csv, .parquet or .npy.",
    )
)
def transform(given: Given, model: str, output: str) -> None:
    """Give the coefficients of new samples DATA in the components of MODEL.

    MODEL is a folder that fit wrote, or the result.npz in it. Features are matched by name where
    both have names.

    \b
    conenmf transform result new.csv -o coefficients.csv
    """
    result = _load(model)
    check_table(output)
    _check_place(output)
    display = given.display
    V = given.open(display)
    W = _matched(result, V)
    with display.working("finding the coefficients"), V.own_threads():
        H, labels, squared = coefficients(V, W.astype(V.dtype, copy=False))
    with writing(Path(output)):
        write_coefficients(output, H.T, V.names)
    error = float(np.sqrt(squared / V.total)) if V.total else 0.0
    known = {
        "n_samples": V.shape[1],
        "n_components": result.K,
        "relative_error": error,
        "samples_of_component": np.bincount(
            np.asarray(labels)[np.asarray(labels) >= 0], minlength=result.K
        ),
        "output": output,
    }

    def show(out: Console) -> None:
        out.print(f"{V.shape[1]} samples in {result.K} components; relative error {error:.4g}")
        out.print(f"the coefficients are in {visible(output, None)}")

    given.answer(known, show, V)


def _load(path: str) -> Factorization:
    target = Path(path)
    if target.is_dir():
        target /= RESULT
    if not target.exists():
        raise FileNotFoundError(f"there is no result {target}: name a folder that fit wrote")
    return Factorization.load(target)


def _matched(result: Factorization, V: DataMatrix) -> Array:
    """W with its rows in the order of the features of V."""
    F = result.W.shape[0]
    if V.shape[0] != F:
        raise ShapeError(f"the data have {V.shape[0]} features, the model has {F}")
    ours, theirs = result.names.feature_names, V.names.feature_names
    if ours is None or theirs is None or ours == theirs:
        return result.W
    place = {name: f for f, name in enumerate(ours)}
    missing = [name for name in theirs if name not in place]
    if missing:
        raise ShapeError(f"the model does not know the feature {missing[0]!r} of the data")
    if len(place) < F or len(set(theirs)) < F:
        raise ShapeError("features share names and are in another order than those of the model")
    return result.W[[place[name] for name in theirs]]


@app.command()
@click.argument("result", type=click.Path())
@with_options(
    click.option("-o", "--output", type=click.Path(), help="By default report.html beside it."),
    click.option("--data", help="The data that were factored, if fit did not judge the result."),
    *FROM,
    *LOOKS,
    *HOW,
)
def report(
    result: str,
    output: str | None,
    data: str | None,
    image_shape: tuple[int, int] | None,
    view: str,
    title: str | None,
    **options: Any,
) -> None:
    """Write the report of RESULT, a folder that fit wrote or the result.npz in it.

    \b
    conenmf report result --view curves -o spectra.html
    conenmf report result --data counts.csv
    """
    given = Given(data=data or "", **options)
    made = _load(result)
    display = given.display
    place = Path(result) if Path(result).is_dir() else Path(result).parent
    target = place / REPORT if output is None else Path(output)
    if data is not None:
        V = given.open(display)
        if V.shape != (made.W.shape[0], made.H.shape[1]):
            raise ShapeError(f"{data} has another shape than the data of {result}")
        made = replace(made, data=V, certificate=None, diagnosis=None)
        with display.working("judging the result"):
            made.diagnose()
    elif made.diagnosis is None:
        raise OptionError(f"{result} was not judged when it was made: add --data DATA")
    with writing(target):
        write_report(made, target, title=title or place.name, view=view, image_shape=image_shape)
    known = {"report": str(target), "bytes": target.stat().st_size}
    given.answer(known, lambda out: out.print(f"open {visible(target, None)} in a browser"))


@app.command()
@click.option(
    "-o", "--output", type=click.Path(), default="conenmf-demo", show_default=True, help="Folder."
)
@click.option("--force", is_flag=True, help="Write into a folder that holds other files.")
@with_options(*HOW)
@click.pass_context
def demo(context: click.Context, output: str, force: bool, quiet: bool, as_json: bool) -> int:
    """Factor handwritten digits: writes digits.csv, the results and a report."""
    from sklearn.datasets import load_digits

    target = Path(output)
    made = target / "digits.csv"
    pixels = [f"pixel {row} {column}" for row in range(8) for column in range(8)]
    header = ",".join(["image", *pixels])
    ours = made.is_file() and made.read_bytes().startswith(header.encode())
    check_folder(target, force or ours)
    digits = load_digits()
    with writing(target):
        target.mkdir(exist_ok=True)
        with written_whole(made) as stream:
            lines = [header]
            for n, (image, digit) in enumerate(zip(digits.data, digits.target, strict=True)):
                lines.append(",".join([f"a {digit} (no. {n})", *(f"{grey:g}" for grey in image)]))
            stream.write("\n".join(lines).encode())
    result = str(target / "result")
    command = ["fit", str(made), "-k", "10", "--image-shape", "8x8", "-o", result]
    context.obj["arguments"] = command
    if not as_json:
        click.echo(f"{made}: {len(digits.data)} images of 8 x 8 pixels, one in each row; now\n")
        click.echo(f"$ {shlex.join(['conenmf', *command])}\n")
    options = {
        "data": str(made),
        "components": 10,
        "image_shape": (8, 8),
        "output": result,
        "quiet": quiet,
        "as_json": as_json,
        "force": force,
    }
    code = context.invoke(fit, **options)
    return int(code)


@app.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes SHELL complete commands and options.

    \b
    eval "$(conenmf completion bash)"                                  in ~/.bashrc
    eval "$(conenmf completion zsh)"                                   in ~/.zshrc
    conenmf completion fish > ~/.config/fish/completions/conenmf.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(app, {}, "conenmf", "_CONENMF_COMPLETE").source())
