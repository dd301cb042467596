"""Options that several commands of the command line have, and how their values are read."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np
from rich.console import Console

from ..data.matrix import DataMatrix
from ..data.prepare import Vocabulary, Words, prepare
from ..data.resources import memory_budget
from ..io.formats import split_member
from ..io.open import open_data
from ..io.text import read_names
from ..names import Names
from ..report import VIEWS
from ..text import visible
from .console import Display
from .known_parts import KnownEntries
from .text_options import NAME_OPTIONS, TEXT_OPTIONS, ParamType, Shape

__all__ = [
    "COMPONENTS_OPTION",
    "EFFORT_OPTION",
    "FORCE_OPTION",
    "PRINTING_OPTIONS",
    "READING_OPTIONS",
    "REPORT_OPTIONS",
    "STOPPING_OPTIONS",
    "CommonOptions",
    "choosing",
    "json_values",
    "reads_data",
    "with_options",
]


@dataclass(frozen=True)
class CommonOptions:
    """The argument DATA and the options that every command that reads data has."""

    data: str
    samples_in: str
    dataset: str | None
    header: bool | None
    names_column: str | None
    drop: tuple[str, ...]
    feature_names: str | None
    sample_names: str | None
    pixels_shape: tuple[int, int] | None
    text_column: str | None
    stop_words: str
    min_df: int
    max_df: float | None
    max_words: int | None
    negative: str
    n_threads: int | None
    max_memory: str | None
    seed: int | None
    quiet: bool
    as_json: bool
    normalize_total: float | None = None
    log1p: bool = False
    tfidf: bool = False
    normalize: bool = False
    missing: str | None = None
    mask: str | None = None
    weights: str | None = None
    sample_weight: str | None = None

    @functools.cached_property
    def _member(self) -> tuple[str, str | None]:
        """The file and the member of it that are read."""
        return split_member(self.data) if self.dataset is None else (self.data, self.dataset)

    @property
    def path(self) -> Path:
        """The file, without the member that DATA may name."""
        return Path(self._member[0])

    @property
    def display(self) -> Display:
        """Where progress is shown."""
        return Display(quiet=self.quiet)

    @property
    def origin(self) -> dict[str, Any]:
        """The data file and how it was read, to be kept with a result."""
        return {
            "source": self.data,
            "samples_in": self.samples_in,
            "dataset": self.dataset,
            "header": self.header,
            "names_column": self.names_column,
            "drop": ", ".join(self.drop) or None,
            "feature_names": self.feature_names,
            "sample_names": self.sample_names,
            "text_column": self.text_column,
            "negative": self.negative,
            "missing": self.missing,
            "mask": self.mask,
            "weights": self.weights,
            "sample_weight": self.sample_weight,
            **self.preparing,
        }

    @property
    def preparing(self) -> dict[str, Any]:
        """The steps that the data are to go through."""
        names = ("normalize_total", "log1p", "tfidf", "normalize")
        return {name: value for name in names if (value := getattr(self, name))}

    @property
    def flags(self) -> list[str]:
        """How the data were read, as arguments of another command that reads them."""
        given = [
            ("--dataset", self.dataset),
            ("--names-column", self.names_column),
            ("--samples-in", None if self.samples_in == "rows" else self.samples_in),
            ("--feature-names", self.feature_names),
            ("--sample-names", self.sample_names),
            ("--pixels-shape", self.pixels_shape and "{}x{}".format(*self.pixels_shape)),
            ("--text-column", self.text_column),
            ("--negative", None if self.negative == "raise" else self.negative),
            ("--missing", self.missing),
            ("--mask", self.mask),
            ("--weights", self.weights),
            ("--sample-weight", self.sample_weight),
            *(("--drop", column) for column in self.drop),
        ]
        flags = [text for flag, value in given if value is not None for text in (flag, value)]
        if self.header is not None:
            flags.append("--header" if self.header else "--no-header")
        return ["--data", self.data, *flags]

    @property
    def rng(self) -> np.random.Generator | None:
        """A generator for inits that draw random numbers."""
        return None if self.seed is None else np.random.default_rng(self.seed)

    def open(
        self,
        display: Display,
        image_shape: tuple[int, int] | None = None,
        vocabulary: Vocabulary | None = None,
    ) -> DataMatrix:
        """Open the data; texts with the words that the options say, or with a vocabulary."""
        words = Words(self.stop_words, self.min_df, self.max_df, self.max_words)
        with display.working(f"reading {self.data}"):
            path, member = self._member
            files = {"mask": self.mask, "weights": self.weights}
            known = KnownEntries.read(files, self.samples_in, **self.of_other_files)
            V = open_data(
                path,
                samples_in=self.samples_in,  # type: ignore[arg-type]
                dataset=member,
                header=self.header,
                names_column=self.names_column,
                drop=self.drop,
                text_column=self.text_column,
                words=vocabulary or words,
                negative=self.negative,  # type: ignore[arg-type]
                n_threads=self.n_threads,
                max_memory=self.max_memory,
                names=self._names().updated(Names(image_shape=image_shape)),
                missing=self.missing or "raise",
                **known.arrays,
            )
            known.check_names(V)
            return prepare(V, **self.preparing) if self.preparing else V

    @property
    def of_other_files(self) -> dict[str, Any]:
        """How to read a matrix that belongs to the data, such as a mask."""
        names = ("header", "n_threads", "max_memory")
        return {name: getattr(self, name) for name in names}

    def _names(self) -> Names:
        """What the options say about samples and features."""
        budget = memory_budget(self.max_memory)
        samples, features = (
            None if path is None else read_names(path, budget)
            for path in (self.sample_names, self.feature_names)
        )
        return Names.of(samples, features, pixels_shape=self.pixels_shape)

    def answer(
        self, values: dict[str, Any], show: Callable[[Console], None], V: DataMatrix | None = None
    ) -> None:
        """Print the values as JSON, or how the data were read and what `show` prints."""
        if self.as_json:
            if V is not None:
                values = {**values, "remarks": V.remarks}
            click.echo(json.dumps(json_values(values), allow_nan=False))
            return
        out = Console(highlight=False, markup=False, soft_wrap=True)
        if V is not None:
            out.print(f"{visible(self.data, None)}: {_size(V)}")
            for remark in V.remarks:
                out.print(visible(remark, None))
        show(out)


def _size(V: DataMatrix) -> str:
    """The size of a matrix, and whether names were read: a wrong guess is seen here."""
    suffix = ("", " without names")
    samples = f"{V.shape[1]} samples{suffix[V.names.sample_names is None]}"
    if V.names.pixels_shape is not None:
        samples = f"{V.shape[1]} pixels of an image of {_sides(V.names.pixels_shape)}"
    features = f"{V.shape[0]} features{suffix[V.names.feature_names is None]}"
    if V.names.image_shape is not None:
        features = f"images of {_sides(V.names.image_shape)} pixels"
    return f"{samples}, {features}"


def _sides(shape: tuple[int, int]) -> str:
    return f"{shape[0]} x {shape[1]}"


def json_values(value: Any) -> Any:
    """Values that JSON can hold; NaN and infinity become null."""
    if isinstance(value, Mapping):
        return {str(key): json_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return json_values(value.tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def choosing(K: int | str) -> str:
    """What a command does between reading and solving."""
    number = "the number of components and " if isinstance(K, str) else ""
    return f"choosing {number}an init"


_Command = TypeVar("_Command", bound=Callable[..., Any])


def _debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.find_root().obj["debug"] = True


PRINTING_OPTIONS = (
    click.option("--quiet", "-q", is_flag=True, help="Show no progress."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text."),
    click.option(
        "--debug", is_flag=True, expose_value=False, callback=_debug, help="Show tracebacks."
    ),
)
READING_OPTIONS = (
    click.option(
        "--samples-in",
        type=click.Choice(["rows", "columns"]),
        default="rows",
        show_default=True,
        help="Whether samples are the rows or the columns of the matrix.",
    ),
    click.option("--dataset", help="Which matrix of a file that holds several."),
    click.option(
        "--header/--no-header",
        default=None,
        help="Whether the first line of a text holds titles; by default judged by evidence.",
    ),
    click.option(
        "--names-column",
        metavar="COLUMN",
        help="The column of a table that names the rows, by title or number, counted from 0.",
    ),
    click.option(
        "--drop",
        metavar="COLUMN",
        multiple=True,
        help="A column of a table that is not read; may be given several times.",
    ),
    *NAME_OPTIONS,
    *TEXT_OPTIONS,
    click.option(
        "--negative",
        type=click.Choice(["raise", "clip", "keep"]),
        default="raise",
        show_default=True,
        help="What to do with negative entries: clip reads tiny ones as zeros, keep is for noise.",
    ),
    click.option(
        "--threads",
        "n_threads",
        type=click.IntRange(1),
        help="Number of threads; by default one for each core.",
    ),
    click.option("--max-memory", help="Memory for data and results, such as 2GB."),
    click.option("--seed", type=click.IntRange(0), help="Seed for inits that draw random numbers."),
)
FORCE_OPTION = click.option(
    "--force", is_flag=True, help="Write into a folder that holds other files."
)
EFFORT_OPTION = click.option(
    "--effort",
    type=click.IntRange(0),
    help="Steps to raise the lower bound of the certificate; 0 for singular values alone, "
    "by default 3, for sparse data 1.",
)
STOPPING_OPTIONS = (
    click.option(
        "--max-iter",
        type=click.IntRange(0),
        default=200,
        show_default=True,
        help="Largest number of iterations.",
    ),
    click.option(
        "--tol",
        type=click.FloatRange(0),
        default=1e-5,
        show_default=True,
        help="Stop when the error falls by less than this share of itself in 5 iterations.",
    ),
    click.option("--max-time", type=click.FloatRange(0), help="Seconds after which the fit stops."),
)


def with_options(*options: Callable[[Any], Any]) -> Callable[[_Command], _Command]:
    """Give a command several options at once."""

    def add(command: _Command) -> _Command:
        return functools.reduce(
            lambda function, option: option(function), reversed(options), command
        )

    return add


def reads_data(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument DATA and the options that say how to read it."""
    names = tuple(CommonOptions.__dataclass_fields__)

    @with_options(click.argument("data"), *READING_OPTIONS, *PRINTING_OPTIONS)
    @functools.wraps(command)
    def wrapped(**options: Any) -> Any:
        given = {name: options.pop(name) for name in names if name in options}
        return command(CommonOptions(**given), **options)

    return wrapped


class _Components(ParamType):
    name = "auto|K"

    def convert(self, value: Any, param: Any, ctx: Any) -> int | str:
        if value == "auto":
            return "auto"
        try:
            K = int(value)
        except ValueError:
            K = 0
        if K < 1:
            self.fail(f"{value!r} is neither 'auto' nor a number of at least 1", param, ctx)
        return K


COMPONENTS_OPTION = click.option(
    "-k",
    "--components",
    "K",
    type=_Components(),
    default="auto",
    show_default=True,
    help="Number of components; auto estimates it.",
)
REPORT_OPTIONS = (
    click.option(
        "--image-shape", type=Shape(), help="Features are the pixels of images of this shape."
    ),
    click.option(
        "--view",
        type=click.Choice(VIEWS),
        default="auto",
        show_default=True,
        help="How the report shows components.",
    ),
    click.option(
        "--classes",
        metavar="COLUMN|FILE",
        help="Known classes, to colour the samples of the report: a column of DATA that is no "
        "feature (of obs in .h5ad), or a text with one class per sample.",
    ),
    click.option("--title", help="Heading of the report; by default the name of the file."),
)
