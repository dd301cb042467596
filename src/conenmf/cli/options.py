"""Options that several commands of the command line have, and how their values are read."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import click
import numpy as np
from rich.console import Console

from ..data.doors import open_data
from ..data.matrix import DataMatrix
from ..errors import OptionError
from ..report import VIEWS
from ..text import visible
from .console import Display

__all__ = [
    "COMPONENTS",
    "FROM",
    "HOW",
    "LOOKS",
    "SOLVING",
    "Given",
    "Several",
    "plain",
    "reads_data",
    "with_options",
]


@dataclass(frozen=True)
class Given:
    """What every command that reads data is given."""

    data: str
    samples_in: str
    dataset: str | None
    negative: str
    threads: int | None
    max_memory: str | None
    seed: int | None
    quiet: bool
    as_json: bool

    @property
    def display(self) -> Display:
        """Where progress is shown."""
        return Display(quiet=self.quiet)

    @property
    def how_read(self) -> dict[str, str | None]:
        """Where the data came from and how they were read, to be kept with a result."""
        return {
            "source": self.data,
            "samples_in": self.samples_in,
            "dataset": self.dataset,
            "negative": self.negative,
        }

    @property
    def rng(self) -> np.random.Generator | None:
        """For starts that draw."""
        return None if self.seed is None else np.random.default_rng(self.seed)

    def open(self, display: Display, image_shape: tuple[int, int] | None = None) -> DataMatrix:
        """Open the data."""
        with display.working(f"reading {self.data}"):
            V = open_data(
                self.data,
                samples_in=self.samples_in,  # type: ignore[arg-type]
                dataset=self.dataset,
                negative=self.negative,  # type: ignore[arg-type]
                n_threads=self.threads,
                max_memory=self.max_memory,
            )
        if image_shape is not None:
            rows, columns = image_shape
            if rows * columns != V.shape[0]:
                raise OptionError(
                    f"--image-shape: images of {rows} x {columns} have {rows * columns} pixels, "
                    f"and there are {V.shape[0]} features"
                )
            V.names = replace(V.names, image_shape=image_shape)
        return V

    def answer(
        self, known: dict[str, Any], show: Callable[[Console], None], V: DataMatrix | None = None
    ) -> None:
        """Print what was found: for a machine, or for a person, who is told what was read too."""
        if self.as_json:
            click.echo(json.dumps(plain(known), allow_nan=False))
            return
        out = Console(highlight=False, markup=False, soft_wrap=True)
        if V is not None:
            out.print(f"{visible(self.data, None)}: {_size(V)}")
        show(out)


def _size(V: DataMatrix) -> str:
    """How large a matrix is, and whether things have names: a wrong guess is seen here."""
    named = ("", " without names")
    samples = f"{V.shape[1]} samples{named[V.names.sample_names is None]}"
    features = f"{V.shape[0]} features{named[V.names.feature_names is None]}"
    if V.names.image_shape is not None:
        features = f"images of {V.names.image_shape[0]} x {V.names.image_shape[1]} pixels"
    return f"{samples}, {features}"


def plain(value: Any) -> Any:
    """Numbers that JSON has no words for become null."""
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


_Command = TypeVar("_Command", bound=Callable[..., Any])


def _debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.find_root().obj["debug"] = True


HOW = (
    click.option("--quiet", "-q", is_flag=True, help="Show no progress."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text."),
    click.option(
        "--debug", is_flag=True, expose_value=False, callback=_debug, help="Show tracebacks."
    ),
)
FROM = (
    click.option(
        "--samples-in",
        type=click.Choice(["rows", "columns"]),
        default="rows",
        show_default=True,
        help="Which way round the matrix is.",
    ),
    click.option("--dataset", help="Which member of a file that holds several."),
    click.option(
        "--negative",
        type=click.Choice(["raise", "clip"]),
        default="raise",
        show_default=True,
        help="What to do with tiny negative entries.",
    ),
    click.option("--threads", type=click.IntRange(1), help="Threads; by default all cores."),
    click.option("--max-memory", help="Memory this process may take, such as 2GB."),
    click.option("--seed", type=click.IntRange(0), help="For starts that draw random numbers."),
)
SOLVING = (
    click.option(
        "--max-iter", type=click.IntRange(0), default=200, show_default=True, help="Iterations."
    ),
    click.option(
        "--tol",
        type=click.FloatRange(0),
        default=1e-4,
        show_default=True,
        help="Stop when the error falls by less than this share of itself in 5 iterations.",
    ),
    click.option("--max-time", type=click.FloatRange(0), help="Seconds for the solver."),
)


def with_options(*options: Callable[[Any], Any]) -> Callable[[_Command], _Command]:
    """Give a command several options at once."""

    def add(command: _Command) -> _Command:
        return functools.reduce(lambda made, option: option(made), reversed(options), command)

    return add


def reads_data(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument DATA and the options that say how to read it."""
    names = tuple(Given.__dataclass_fields__)

    @with_options(click.argument("data"), *FROM, *HOW)
    @functools.wraps(command)
    def wrapped(**options: Any) -> Any:
        return command(Given(**{name: options.pop(name) for name in names}), **options)

    return wrapped


class _Components(click.ParamType[Any]):
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


class _Shape(click.ParamType[Any]):
    name = "ROWSxCOLUMNS"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        rows, _, columns = str(value).lower().partition("x")
        if not (rows.isdecimal() and columns.isdecimal()):
            self.fail(f"{value!r} is not a shape such as 92x112", param, ctx)
        return int(rows), int(columns)


class Several(click.ParamType[Any]):
    """Names with commas between them."""

    name = "NAME,..."

    def __init__(self, known: Sequence[str]) -> None:
        self.known = tuple(known)

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        """Take the names apart and look for unknown ones."""
        if isinstance(value, tuple):
            return value
        names = tuple(part.strip() for part in str(value).split(",") if part.strip())
        for name in names:
            if name not in self.known:
                self.fail(f"{name!r} is not one of {', '.join(self.known)}", param, ctx)
        if not names:
            self.fail(f"name some of {', '.join(self.known)}", param, ctx)
        return names


COMPONENTS = click.option(
    "-k",
    "--components",
    type=_Components(),
    default="auto",
    show_default=True,
    help="How many components; auto estimates it.",
)
LOOKS = (
    click.option("--image-shape", type=_Shape(), help="Features are pixels of such images."),
    click.option(
        "--view",
        type=click.Choice(VIEWS),
        default="auto",
        show_default=True,
        help="How the report shows components.",
    ),
    click.option("--title", help="Heading of the report; by default the name of the file."),
)
