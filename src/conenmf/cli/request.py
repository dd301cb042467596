"""Commands, and the request that a command builds from its arguments and options."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from numpy.random import Generator, default_rng

from ..data.matrix import DataMatrix
from ..errors import Option, OptionError
from ..export import json_values
from ..fields.measurements import Species
from ..fields.ratings import Ratings
from ..io.open import open_data, split_member
from ..judge.choose_k import Selection, select_k
from ..progress import Display
from ..result import Factorization
from ..signals import Interruption
from ..solve.problem import Problem
from ..text import visible
from ..types import Facts
from .options import (
    AS_BEFORE,
    ENTRIES,
    OPTIONS,
    PREPARING,
    PRINTING,
    READING,
    AnyFunction,
    Options,
    default,
    group_of,
    parameter,
)


@dataclass(kw_only=True)
class Request(Options):
    """What a user requests: arguments and options, by their names in Python.

    `words` is the command line. `given` has the names of the options that the user gave. `model`
    and `result` are arguments of the commands for saved results. `K_decided_by` and `selection` are
    those of the result, `ratings` is the model if the data are ratings, and
    `findings` are further lines to print.
    """

    words: str
    given: set[str]
    display: Display
    model: str = ""
    result: str = ""
    K_decided_by: str = "user"
    selection: Selection | None = None
    ratings: Ratings | None = None
    findings: list[str] = field(default_factory=list)

    def chosen(self, names: Iterable[str]) -> Facts:
        """Return the values of options that are set, or that were set to an empty value."""
        values = {}
        for name in names:
            value = getattr(self, name)
            if name in self.given or value not in (None, ()):
                values[name] = value
        return values

    @property
    def path(self) -> Path:
        """The path of the data file, without the member that DATA may name."""
        return Path(self.data if self.dataset is not None else split_member(self.data)[0])

    @property
    def suffix(self) -> str:
        """The ending of the data file in lower case; "" without data."""
        return self.path.suffix.lower() if self.data else ""

    @property
    def species(self) -> Species:
        """The categories of species."""
        return Species(self.weak, self.bad, self.total)

    @property
    def rng(self) -> Generator | None:
        """The generator for random inits."""
        return None if self.seed is None else default_rng(self.seed)

    @property
    def origin(self) -> Facts:
        """The data file, how it was read, and the command, for storage in a result."""
        facts: Facts = {"source": self.data}
        for name, value in self.chosen((*READING, *ENTRIES, "sample_weight", *PREPARING)).items():
            if value != default(name):
                facts[name] = value
        return facts | {"seed": self.seed, "command": self.words}

    @property
    def candidates(self) -> Iterable[int] | None:
        """The numbers of components to choose from; None for all."""
        if isinstance(self.K, str):
            return None
        return [self.K] if isinstance(self.K, int) else self.K

    def chosen_k(self, V: DataMatrix, problem: Problem | None = None) -> int:
        """Return the number of components: given, or chosen from all numbers or from a range."""
        if isinstance(self.K, int):
            return self.K
        problem = Problem(self.loss) if problem is None else problem

        def show(what: str, _: int) -> None:
            self.display.update("", None, f"choosing K: {what}")

        self.selection = select_k(V, self.candidates, problem=problem, callback=show)
        self.K_decided_by = self.selection.sentence
        return self.selection.K

    def describe(self, result: Factorization, **more: object) -> Factorization:
        """Return the result with the source of its data, and why it has so many components."""
        result = replace(result, settings={**result.settings, **self.origin, **more})
        if self.K_decided_by == "user":
            return result
        return replace(result, K_decided_by=self.K_decided_by, selection=self.selection)

    def judge(
        self, result: Factorization, interruption: Interruption | None = None, **labels: Any
    ) -> None:
        """Judge a result, and show its progress.

        Ctrl-C ends the fits of halves of the samples, if the command handles it; finished splits
        count.
        """

        def show(split: str) -> None:
            self.display.update("", None, f"checking components: {split}")

        with self.display.working("judging the result"):
            if self.uniqueness:
                result.uniqueness()  # first, so that the verdict knows it
            result.diagnose(
                effort=self.effort,
                n_splits=0 if self.quick else self.n_splits,
                watch=show if interruption is None else interruption.watch(show),
                **labels,
            )

    def read_as(self, settings: Mapping[str, Any], names: Iterable[str] = AS_BEFORE) -> None:
        """Read the data with the options of an earlier result, unless the user gives others."""
        for name in names:
            value = settings.get(name)
            if value is not None and name not in self.given:
                setattr(self, name, value)

    def answer(self, values: Facts, lines: Iterable[str], V: DataMatrix | None = None) -> None:
        """Print the values as JSON, or lines, after those on how the data were read."""
        if self.as_json:
            if V is not None:
                values = {**values, "remarks": V.remarks}
            click.echo(json.dumps(json_values(values), allow_nan=False))
            return
        if V is not None:
            lines = [f"{self.data}: {_size(V)}", *V.remarks, *lines]
        for line in lines:
            click.echo(visible(line, None))


def _size(V: DataMatrix) -> str:
    """Describe the size of a matrix and whether names were read, to show wrong guesses."""
    names = V.names
    samples = f"{V.n_samples} samples"
    if names.pixels_shape is not None:
        rows, columns = names.pixels_shape
        samples = f"{V.n_samples} pixels of an image of {rows} x {columns}"
    elif names.sample_names is None:
        samples += " without names"
    features = f"{V.n_features} features"
    if names.image_shape is not None:
        rows, columns = names.image_shape
        features = f"images of {rows} x {columns} pixels"
    elif names.feature_names is None:
        features += " without names"
    return f"{samples}, {features}"


# --- commands ---------------------------------------------------------------------------------


class Command(click.Command):
    """A command that runs a function of a request; its help shows options in groups.

    Parameters
    ----------
    run : function of a Request
        Its name and docstring are those of the command.
    names : names of options
    of : function
        The function that the command calls; its defaults are used.
    arguments : names
        The arguments of the command.
    changes : dict
        How options differ from the same options of other commands.
    """

    def __init__(
        self,
        run: Callable[[Request], object],
        names: Iterable[str],
        of: AnyFunction,
        arguments: Iterable[str],
        changes: Mapping[str, Facts],
    ) -> None:
        self.run = run
        parameters: list[click.Parameter] = [click.Argument([name]) for name in arguments]
        has = {*names, *PRINTING}
        own = [name for name in OPTIONS if name in has]
        parameters += [parameter(name, of, changes.get(name, {})) for name in own]
        super().__init__(run.__name__, params=parameters, help=run.__doc__)

    def invoke(self, ctx: click.Context) -> object:
        """Run the function."""
        return self.run(_request(ctx))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each group that has options."""
        groups: dict[str, list[tuple[str, str]]] = {group_of(name): [] for name in OPTIONS}
        for one in self.get_params(ctx):
            record = one.get_help_record(ctx)
            if record is not None and isinstance(one, click.Option):
                groups[group_of(one.name)].append(record)
        for title, lines in groups.items():
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)


def command(
    *names: str,
    of: AnyFunction = open_data,
    arguments: Iterable[str] = ("data",),
    **changes: Facts,
) -> Callable[[Callable[[Request], object]], Command]:
    """Make a `Command` from a function of a request."""
    return partial(Command, names=names, of=of, arguments=arguments, changes=changes)


def flags_of(one: click.Command) -> dict[str, str]:
    """Return the flags of a command by the names of their options in Python."""
    flags = {}
    for option in one.params:
        if isinstance(option, click.Option):
            flags[str(option.name)] = max(option.opts, key=len)
    return flags


def _request(context: click.Context) -> Request:
    """Return the request of a command; what the shell needs for errors is shared with it."""
    shared = context.find_root().obj
    shared |= {"debug": context.params["debug"], "flags": flags_of(context.command)}
    given = set()
    for name in context.params:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            given.add(name)
    if sum(word.startswith("--groups") for word in shared["arguments"]) > 1:
        problem = " was given twice, and takes one column: join several in a new one, and name that"
        raise OptionError(Option("groups"), problem)
    values = {name: default(name) for name in OPTIONS} | context.params
    return Request(
        **values,
        words=shlex.join(["conenmf", *shared["arguments"]]),
        given=given,
        display=Display(sys.stderr, quiet=values["quiet"]),
    )
