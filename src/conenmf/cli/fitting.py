"""The commands ``fit``, which factorises data and writes a folder of results, and data to try."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from .. import __version__
from ..arguments import path as checked_path
from ..atomic import writing
from ..data.aligned import remove_kept_file
from ..data.matrix import DataMatrix
from ..errors import OptionError, OutputError
from ..export import (
    ANNOTATED_FILE,
    REPORT_FILE,
    RESULT_FILE,
    TABLES,
    annotate_file,
    check_packages,
    facts,
    write_tables,
)
from ..pipeline import factorize
from ..report import check_view, write_report
from ..result import Factorization
from ..solve.constraints import Penalties
from ..solve.inits import INITS
from ..solve.losses.poisson import POISSON_SOLVERS
from ..solve.run import StopReason
from ..solve.solvers import SOLVERS
from ..text import visible
from .answers import Circumstances, show_fit
from .console import Interruption
from .known_parts import (
    ENTRY_OPTIONS,
    SAMPLE_WEIGHT_OPTION,
    TERM_OPTIONS,
    read_fixed,
    weighed,
)
from .labels import GivenClasses
from .losses import LOSS_OPTION
from .options import (
    COMPONENTS_OPTION,
    EFFORT_OPTION,
    FORCE_OPTION,
    PRINTING_OPTIONS,
    REPORT_OPTIONS,
    STOPPING_OPTIONS,
    CommonOptions,
    choosing,
    json_values,
    reads_data,
    with_options,
)
from .output import check_folder, earlier_files, new_result, write_csv, write_summary
from .preparing import PREPARING_OPTIONS

__all__ = ["demo", "example", "fit"]


@dataclass(frozen=True)
class _FitOptions:
    """The options of ``fit`` that no other command that reads data has."""

    K: int | str
    output: str | None
    init: str
    loss: str
    solver: str
    max_iter: int
    tol: float
    max_time: float | None
    checkpoint: str | None
    tables: str
    anndata: bool
    no_report: bool
    effort: int | None
    uniqueness: bool
    image_shape: tuple[int, int] | None
    view: str
    classes: str | None
    title: str | None
    force: bool
    fixed: str | None
    alpha_W: float  # noqa: N815  scikit-learn calls them so
    alpha_H: float | None  # noqa: N815
    l1_ratio: float
    orthogonality: float
    min_volume: float
    sum_to_one: bool

    @property
    def limits(self) -> dict[str, Any]:
        """When to stop."""
        return {"max_iter": self.max_iter, "tol": self.tol, "max_time": self.max_time}

    def terms(self, V: DataMatrix, **reading: Any) -> dict[str, Any]:
        """Known components and penalties, for `factorize`."""
        names = ("l1_ratio", "orthogonality", "min_volume", "sum_to_one")
        penalties = Penalties.as_in_sklearn(
            (V.shape[0], V.shape[1] if V.unweighed is None else V.unweighed.n_counted),
            alpha_W=self.alpha_W,
            alpha_H="same" if self.alpha_H is None else self.alpha_H,
            **{name: getattr(self, name) for name in names},
        )
        return {"fixed": read_fixed(self.fixed, V, **reading), "penalties": penalties}


@click.command()
@reads_data
@with_options(
    COMPONENTS_OPTION,
    *PREPARING_OPTIONS,
    *ENTRY_OPTIONS,
    SAMPLE_WEIGHT_OPTION,
    click.option(
        "-o", "--output", type=click.Path(), help="Folder for the results; by default DATA-conenmf."
    ),
    click.option(
        "--init",
        type=click.Choice(["auto", *INITS]),
        default="auto",
        show_default=True,
        help="Initialisation of the factors.",
    ),
    LOSS_OPTION,
    click.option(
        "--solver",
        type=click.Choice(["auto", *SOLVERS, *POISSON_SOLVERS.keys() - SOLVERS.keys(), "none"]),
        default="auto",
        show_default=True,
        help="How the factors are updated; none keeps the init, such as the pure pixels of snpa.",
    ),
    *TERM_OPTIONS,
    *STOPPING_OPTIONS,
    click.option(
        "--checkpoint",
        type=click.Path(),
        help="Folder in which the run is saved every minute. The same command resumes it.",
    ),
    click.option(
        "--tables",
        type=click.Choice([*TABLES, "none"]),
        default="csv",
        show_default=True,
        help="Format of the tables of components, coefficients, labels and history.",
    ),
    click.option(
        "--anndata",
        is_flag=True,
        help="Also write annotated.h5ad: DATA, an .h5ad file, with the result added.",
    ),
    click.option("--no-report", is_flag=True, help="Do not judge the result; write no report."),
    EFFORT_OPTION,
    click.option(
        "--uniqueness",
        is_flag=True,
        help="Look for other components that are as good; takes about as long as the fit.",
    ),
    *REPORT_OPTIONS,
    FORCE_OPTION,
)
@click.pass_context
def fit(context: click.Context, /, common: CommonOptions, **values: Any) -> int:
    """Factorise DATA; write the factors, labels, history and a report to a folder.

    \b
    conenmf fit counts.csv
    conenmf fit spectra.npy -k 12 -o result --max-time 60
    conenmf fit faces/ -k 40 -o faces-40
    conenmf fit articles/ -k 20 -o topics
    conenmf fit scene.hdr -k 6 --init snpa --solver none
    conenmf fit reviews.csv --text-column review -k 10
    conenmf fit words.npz -k 20 --tfidf
    conenmf fit words.npz -k 20 --loss poisson
    conenmf fit ratings.npz -k 8 --missing zeros --alpha-w 0.005
    conenmf fit spectra.csv -k 5 --fixed library.csv
    conenmf fit cells.h5ad:layers/counts --max-memory 4GB --checkpoint run --anndata

    Ctrl-C stops after the current iteration and saves the result so far.
    """
    options = _FitOptions(**values)
    given = GivenClasses.of(options.classes, common)
    common = given.common
    target = _check_options(common, options)
    display = common.display
    interruption = Interruption(lambda line: print(f"conenmf: {line}", file=sys.stderr))
    with interruption, new_result(target) as folder:
        own = common.open(display, options.image_shape)
        check_view(options.view, own.names)
        V = weighed(own, common.sample_weight, options.loss, common.max_memory)
        terms = options.terms(V, **common.of_other_files)
        replaces = bool(earlier_files(target))
        known = {} if options.no_report else given.known(own.shape[1], own.names)
        show = display.iterations(**options.limits, what="solving")
        with display.working(choosing(options.K)):
            result = factorize(
                V,
                options.K,
                init=options.init,
                loss=options.loss,
                solver=None if options.solver == "none" else options.solver,
                rng=common.rng,
                callback=interruption.watch(show),
                checkpoint=options.checkpoint,
                **options.limits,
                **terms,
            )
        remove_kept_file(result.H)  # one beside the data, if it is large: the result will have it
        command = shlex.join(["conenmf", *context.obj["arguments"]])
        result = replace(
            result,
            stop_reason=StopReason.INTERRUPTED if interruption.asked else result.stop_reason,
            settings={**result.settings, **common.origin, "seed": common.seed, "command": command},
        )
        if not (interruption.asked or options.no_report):
            with interruption.optional(), display.working("judging the result"):
                result.diagnose(effort=options.effort)
                if options.uniqueness:
                    result.uniqueness()
        with interruption.finishing(), display.working(f"writing {target}"):
            summary = json_values({**facts(result), "version": __version__})
            files = _write_result(folder, result, summary, common.path, options, known)
    common.answer(
        {**summary, "files": [str(target / name) for name in files]},
        lambda out: show_fit(
            out,
            result,
            Circumstances(
                target,
                common.flags,
                replaces,
                display.continued_at,
                options.checkpoint is not None,
            ),
        ),
        own,
    )
    return 130 if interruption.asked else 0


def _check_options(common: CommonOptions, options: _FitOptions) -> Path:
    """Refuse what cannot be done before the data are read; return the folder for the result."""
    source, output = common.path, options.output
    if options.anndata and source.suffix.lower() != ".h5ad":
        raise OptionError(f"--anndata is for .h5ad files, and DATA is {common.data}: leave it out")
    check_packages(options.tables, anndata=options.anndata)
    if output is None:
        output = f"{source.resolve().name}-conenmf"
    target = Path(checked_path("output", output))
    check_folder(target, options.force)
    if source.resolve().parent == target.resolve() and source.name in earlier_files(target):
        raise OutputError(f"{source} is part of the result in {target}: name another folder")
    return target


def _write_result(
    folder: Path,
    result: Factorization,
    summary: dict[str, Any],
    source: Path,
    options: _FitOptions,
    known: dict[str, Any],
) -> list[str]:
    """Write the files of a result; return their names.

    The result itself is written first: a table or a report that fails does not lose it.
    """
    files = [RESULT_FILE]
    result.save(folder / RESULT_FILE)
    if options.tables != "none":
        files += [path.name for path in write_tables(result, folder, options.tables)]
    if options.anndata:
        annotate_file(source, folder / ANNOTATED_FILE, result)
        files.append(ANNOTATED_FILE)
    if result.diagnosis is not None:
        title = options.title or source.resolve().name
        write_report(result, folder / REPORT_FILE, title=title, view=options.view, **known)
        files.append(REPORT_FILE)
    return write_summary(folder, summary, files)


@click.command()
@click.argument("file", type=click.Path(), default="counts.csv")
@FORCE_OPTION
def example(file: str, force: bool) -> None:
    """Write a small table to try: what 300 customers of a shop bought; by default counts.csv.

    \b
    conenmf example
    conenmf fit counts.csv -o result
    """
    from ..datasets.baskets import draw_baskets

    path = Path(file)
    if path.suffix.lower() != ".csv":
        raise OptionError(f"{file}: the example is a table, give it a name that ends in .csv")
    if path.exists() and not force:
        raise OutputError(f"{file} exists: name another file, or add --force to replace it")
    counts, customers, products = draw_baskets()
    rows = zip(customers, counts, strict=True)
    write_csv(path, ["customer", *products], ([name, *bought] for name, bought in rows))
    click.echo(f"{visible(file, None)}: how often each customer bought each product; now try")
    click.echo(f"$ {shlex.join(['conenmf', 'fit', file])}")


@click.command()
@click.option(
    "-o", "--output", type=click.Path(), default="conenmf-demo", show_default=True, help="Folder."
)
@FORCE_OPTION
@with_options(*PRINTING_OPTIONS)
@click.pass_context
def demo(context: click.Context, output: str, force: bool, quiet: bool, as_json: bool) -> int:
    """Factorise handwritten digits: write digits.csv, the results and a report."""
    from sklearn.datasets import load_digits

    target = Path(output)
    path = target / "digits.csv"
    header = ["image", *(f"pixel {row} {column}" for row in range(8) for column in range(8))]
    is_ours = path.is_file() and path.read_bytes().startswith(",".join(header).encode())
    check_folder(target, force or is_ours)
    digits = load_digits()
    with writing(target):
        target.mkdir(exist_ok=True)
    write_csv(
        path,
        header,
        (
            [f"a {digit} (no. {n})", *(f"{grey:g}" for grey in image)]
            for n, (image, digit) in enumerate(zip(digits.data, digits.target, strict=True))
        ),
    )
    result = str(target / "result")
    command = ["fit", str(path), "-k", "10", "--image-shape", "8x8", "-o", result]
    context.obj["arguments"] = command
    if not as_json:
        click.echo(f"{path}: {len(digits.data)} images of 8 x 8 pixels, one in each row; now\n")
        click.echo(f"$ {shlex.join(['conenmf', *command])}\n")
    code = context.invoke(
        fit,
        data=str(path),
        K=10,
        image_shape=(8, 8),
        output=result,
        quiet=quiet,
        as_json=as_json,
        force=force,
    )
    return int(code)
