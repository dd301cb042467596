"""The options of all commands, and the request that a command makes of them.

One table has the flags, the group and the help of every option, under the name that it has in
Python. Defaults are those of the functions that get the values.
"""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import click
import numpy as np
from click.core import ParameterSource

from ..data.matrix import DataMatrix
from ..data.prepare import Vocabulary, Words, prepare
from ..data.resources import memory_budget
from ..data.validate import Negative, SamplesIn
from ..export import TABLES
from ..io.formats import split_member
from ..io.open import open_data
from ..io.text import read_names
from ..judge.choose_k import METHODS
from ..judge.stability import RESAMPLINGS
from ..names import Names
from ..report import VIEWS, render
from ..solve.constraints import Penalties
from ..solve.inits import INITS
from ..solve.losses import LOSSES, SOLVER_NAMES
from ..solve.solvers import SOLVERS
from ..text import visible
from .console import Display
from .side_files import read_entries


def _components(value: str) -> int | str:
    if value != "auto" and not (value.isdecimal() and len(value) < 10 and int(value)):
        raise click.BadParameter(f"{value!r} is neither 'auto' nor a number of at least 1")
    return value if value == "auto" else int(value)


def _shape(value: str) -> tuple[int, int]:
    rows, _, columns = value.lower().partition("x")
    if not (rows.isdecimal() and columns.isdecimal()):
        raise click.BadParameter(f"{value!r} is not a shape such as 92x112")
    return int(rows), int(columns)


def _names(choices: Iterable[str]) -> dict[str, Any]:
    """The attributes of an option whose value is names with commas between them."""
    known = [*choices]

    def names(value: Any) -> tuple[str, ...]:
        found = value if isinstance(value, tuple) else tuple(value.replace(",", " ").split())
        for name in found:
            if name not in known:
                raise click.BadParameter(f"{name!r} is not one of {', '.join(known)}")
        if not found:
            raise click.BadParameter(f"name some of {', '.join(known)}")
        return found

    return {"type": names, "metavar": "NAME,..."}


# --- the table --------------------------------------------------------------------------------

_GROUPS = (
    "Common options",
    "Reading",
    "Preparing",
    "Known parts",
    "Solving and stopping",
    "Output and resources",
)
_COMMON, _READING, _PREPARING, _KNOWN, _SOLVING, _OUTPUT = _GROUPS
_FILE = {"type": click.Path(), "metavar": "FILE"}
_AT_LEAST_0 = {"type": click.FloatRange(0)}
_FLAG = {"is_flag": True, "default": False}
_SHAPE = {"type": _shape, "metavar": "ROWSxCOLUMNS"}


_TABLE: dict[str, tuple[Any, ...]] = {
    "K": (
        _COMMON,
        "-k --components",
        "Number of components; auto estimates it.",
        {"type": _components, "metavar": "K|auto"},
    ),
    "output": (_COMMON, "-o --output", "", {"type": click.Path()}),
    "loss": (
        _COMMON,
        "--loss",
        f"What is minimised: {', '.join(loss.help for loss in LOSSES.values())}.",
        {"type": click.Choice([*chain(*((one.name, *one.aliases) for one in LOSSES.values()))])},
    ),
    "init": (
        _COMMON,
        "--init",
        "Initialisation of the factors.",
        {"type": click.Choice(["auto", *INITS])},
    ),
    "missing": (
        _COMMON,
        "--missing",
        "Entries that are missing: NaN, or zeros (what a sparse matrix does not store); "
        "raise: NaN is an error.",
        {"type": click.Choice(["raise", "nan", "zeros"])},
    ),
    "n_runs": (_COMMON, "--runs", "Number of fits.", {"type": click.IntRange(2)}),
    "min_k": (_COMMON, "--min", "Smallest number to try.", {"type": click.IntRange(1)}),
    "max_k": (_COMMON, "--max", "Largest number to try.", {"type": click.IntRange(1)}),
    "methods": (
        _COMMON,
        "--methods",
        f"Estimators to use, some of {', '.join(METHODS)}; by default all that suit the data "
        "(thinning is for counts).",
        _names(METHODS),
    ),
    "inits": (_COMMON, "--inits", "Initialisations to compare.", _names(["auto", *INITS])),
    "solvers": (_COMMON, "--solvers", "Solvers to compare.", _names(SOLVERS)),
    "layer": (_COMMON, "--layer", "The layer of counts of an .h5ad file; by default X."),
    "labels": (
        _COMMON,
        "--labels",
        "True classes: a text file with one class per sample, or a .csv of name and class.",
        {"type": click.Path()},
    ),
    "samples_in": (
        _READING,
        "--samples-in",
        "Whether samples are the rows or the columns of the matrix.",
        {"type": click.Choice(get_args(SamplesIn))},
    ),
    "dataset": (_READING, "--dataset", "Which matrix of a file that holds several."),
    "header": (
        _READING,
        "--header/--no-header",
        "Whether the first line of a text holds titles; by default judged by evidence.",
    ),
    "names_column": (
        _READING,
        "--names-column",
        "The column of a table that names the rows, by title or number, counted from 0.",
        {"metavar": "COLUMN"},
    ),
    "drop": (
        _READING,
        "--drop",
        "A column of a table that is not read; may be given several times.",
        {"metavar": "COLUMN", "multiple": True},
    ),
    "feature_names": (
        _READING,
        "--feature-names",
        "Names of the features, such as words: a text with one on each line.",
        _FILE,
    ),
    "sample_names": (
        _READING,
        "--sample-names",
        "Names of the samples: a text with one on each line.",
        _FILE,
    ),
    "pixels_shape": (
        _READING,
        "--pixels-shape",
        "Samples are the pixels of an image of this shape, row by row; scenes say so.",
        _SHAPE,
    ),
    "negative": (
        _READING,
        "--negative",
        "What to do with negative entries: clip reads tiny ones as zeros, keep is for noise.",
        {"type": click.Choice(get_args(Negative))},
    ),
    "text_column": (
        _READING,
        "--text-column",
        "The samples are the texts in this column of a .csv or .tsv table.",
        {"metavar": "COLUMN"},
    ),
    "stop_words": (
        _READING,
        "--stop-words",
        "Texts: frequent words to leave out; auto knows English.",
        {"type": click.Choice(["auto", "english", "none"])},
    ),
    "min_df": (
        _READING,
        "--min-df",
        "Texts: a word has to be in at least this many of them.",
        {"type": click.IntRange(1)},
    ),
    "max_df": (
        _READING,
        "--max-df",
        "Texts: a word may be in this share of them; by default 0.95, or 0.5 without stop words.",
        {"type": click.FloatRange(0, 1, min_open=True)},
    ),
    "max_words": (
        _READING,
        "--max-words",
        "Texts: keep the most frequent words only.",
        {"type": click.IntRange(1)},
    ),
    "normalize_total": (
        _PREPARING,
        "--normalize-total",
        "Scale each sample to this sum, such as 10000 for cells.",
        {"type": click.FloatRange(0, 1e15, min_open=True), "metavar": "SUM"},
    ),
    "log1p": (_PREPARING, "--log1p", "Take log(1 + x) of each entry.", _FLAG),
    "tfidf": (
        _PREPARING,
        "--tfidf",
        "Counts of words times log(N / df), if df of N samples have the word; unit length.",
        _FLAG,
    ),
    "normalize": (_PREPARING, "--normalize", "Scale each sample to unit length, at last.", _FLAG),
    "n_genes": (
        _PREPARING,
        "--genes",
        "How many genes are factored: those that vary most for their mean.",
        {"type": click.IntRange(1)},
    ),
    "genes_file": (
        _PREPARING,
        "--genes-file",
        "Factor the genes in this text, one on each line.",
        {"type": click.Path()},
    ),
    "mask": (
        _KNOWN,
        "--mask",
        "A matrix of the shape of DATA: 0 or False where an entry is missing.",
        _FILE,
    ),
    "weights": (
        _KNOWN,
        "--weights",
        "A matrix of the shape of DATA: how much each entry counts, such as 1 / sigma^2.",
        _FILE,
    ),
    "sample_weight": (
        _KNOWN,
        "--sample-weight",
        "How often each sample counts: a text with a number per line, or a .npy vector.",
        _FILE,
    ),
    "fixed": (
        _KNOWN,
        "--fixed",
        "Known components, which stay: a row each, features matched by name.",
        _FILE,
    ),
    "alpha_W": (
        _KNOWN,
        "--alpha-w",
        "Penalty of the coefficients, as in scikit-learn's NMF.",
        _AT_LEAST_0,
    ),
    "alpha_H": (
        _KNOWN,
        "--alpha-h",
        "Penalty of the components; by default that of --alpha-w.",
        {**_AT_LEAST_0, "default": None},
    ),
    "l1_ratio": (
        _KNOWN,
        "--l1-ratio",
        "Share of the penalties that is L1; the rest is L2.",
        {"type": click.FloatRange(0, 1)},
    ),
    "orthogonality": (
        _KNOWN,
        "--orthogonality",
        "Penalty of samples that use several components.",
        _AT_LEAST_0,
    ),
    "min_volume": (
        _KNOWN,
        "--min-volume",
        "Penalty of components that are far from each other.",
        _AT_LEAST_0,
    ),
    "sum_to_one": (
        _KNOWN,
        "--sum-to-one",
        "The coefficients of a sample sum to one, as abundances do.",
        _FLAG,
    ),
    "solver": (
        _SOLVING,
        "--solver",
        "How the factors are updated; none keeps the init, such as the pure pixels of snpa.",
        {"type": click.Choice(["auto", *SOLVER_NAMES, "none"])},
    ),
    "max_iter": (
        _SOLVING,
        "--max-iter",
        "Largest number of iterations.",
        {"type": click.IntRange(0)},
    ),
    "tol": (
        _SOLVING,
        "--tol",
        "Stop when the error falls by less than this share of itself in 5 iterations.",
        _AT_LEAST_0,
    ),
    "max_time": (_SOLVING, "--max-time", "Seconds after which the fit stops.", _AT_LEAST_0),
    "checkpoint": (
        _SOLVING,
        "--checkpoint",
        "Folder in which the run is saved every minute. The same command resumes it.",
        {"type": click.Path()},
    ),
    "resample": (
        _SOLVING,
        "--resample",
        "What fits differ by, besides their random init: samples drawn with replacement, "
        "counts drawn again, or nothing (start).",
        {"type": click.Choice(list(RESAMPLINGS))},
    ),
    "density_threshold": (
        _SOLVING,
        "--density-threshold",
        "Components of fits that are farther than this from their neighbours are left out.",
        {"type": click.FloatRange(0, min_open=True)},
    ),
    "refine": (
        _SOLVING,
        "--refine",
        "Iterations of the Poisson loss from the consensus on; 0 leaves it as it is.",
        {"type": click.IntRange(0)},
    ),
    "seed": (
        _SOLVING,
        "--seed",
        "Seed for inits that draw random numbers.",
        {"type": click.IntRange(0), "default": None},
    ),
    "tables": (
        _OUTPUT,
        "--tables",
        "Format of the tables of components, coefficients, labels and history.",
        {"type": click.Choice([*TABLES, "none"]), "default": "csv"},
    ),
    "anndata": (
        _OUTPUT,
        "--anndata",
        "Also write annotated.h5ad: DATA, an .h5ad file, with the result added.",
        _FLAG,
    ),
    "name": (_OUTPUT, "--name", "How the names of files begin; by default as that of DATA."),
    "plot": (
        _OUTPUT,
        "--plot",
        "Draw a picture of it: .png, .pdf or .svg.",
        {"type": click.Path()},
    ),
    "no_report": (_OUTPUT, "--no-report", "Do not judge the result; write no report.", _FLAG),
    "effort": (
        _OUTPUT,
        "--effort",
        "Steps to raise the lower bound of the certificate; 0 for singular values alone, "
        "by default 3, for sparse data 1.",
        {"type": click.IntRange(0)},
    ),
    "uniqueness": (
        _OUTPUT,
        "--uniqueness",
        "Look for other components that are as good; takes about as long as the fit.",
        _FLAG,
    ),
    "data": (_OUTPUT, "--data", "The data that were factorised; needed if fit wrote no report."),
    "image_shape": (
        _OUTPUT,
        "--image-shape",
        "Features are the pixels of images of this shape.",
        _SHAPE,
    ),
    "view": (_OUTPUT, "--view", "How the report shows components.", {"type": click.Choice(VIEWS)}),
    "classes": (
        _OUTPUT,
        "--classes",
        "Known classes, to colour the samples of the report: a column of DATA that is no feature "
        "(of obs in .h5ad), or a text with one class per sample.",
        {"metavar": "COLUMN|FILE"},
    ),
    "title": (_OUTPUT, "--title", "Heading of the report; by default the name of the file."),
    "force": (_OUTPUT, "--force", "Write into a folder that holds other files.", _FLAG),
    "n_threads": (
        _OUTPUT,
        "--threads",
        "Number of threads; by default one for each core.",
        {"type": click.IntRange(1)},
    ),
    "max_memory": (_OUTPUT, "--max-memory", "Memory for data and results, such as 2GB."),
    "quiet": (_OUTPUT, "-q --quiet", "Show no progress.", _FLAG),
    "as_json": (_OUTPUT, "--json", "Print one JSON object instead of text.", _FLAG),
    "debug": (_OUTPUT, "--debug", "Show tracebacks.", _FLAG),
}


# --- sets of options --------------------------------------------------------------------------

_AS_BEFORE = ("samples_in", "dataset", "header", "names_column", "drop", "text_column", "negative")
_NAMING = ("feature_names", "sample_names", "pixels_shape")
ENTRIES = ("missing", "mask", "weights")
READING = (*_AS_BEFORE, *_NAMING)
WORDS = ("stop_words", "min_df", "max_df", "max_words")
PREPARING = ("normalize_total", "log1p", "tfidf", "normalize")
TERMS = ("alpha_W", "alpha_H", "l1_ratio", "orthogonality", "min_volume", "sum_to_one")
STOPPING = ("max_iter", "tol", "max_time")
VIEWING = ("image_shape", "view", "classes", "title")
OUTPUT = ("output", "force")
RUNNING = ("n_threads", "max_memory", "seed")
PRINTING = ("quiet", "as_json", "debug")
_OPENING = ("samples_in", "header", "names_column", "drop", "text_column", "negative", "missing")
_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    open_data,
    prepare,
    Words,
    Penalties.as_in_sklearn,
    render,
)


def _default(name: str, function: Callable[..., Any] | None = None) -> Any:
    """The default that an option has in the first function with such a parameter."""
    for one in (function or open_data, *_FUNCTIONS):
        parameter = signature(one).parameters.get(name)
        if parameter is not None and parameter.default is not parameter.empty:
            return parameter.default
    return None


class _Command(click.Command):
    """A command whose help shows options in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each group that has options."""
        groups: dict[str, list[tuple[str, str]]] = {group: [] for group in _GROUPS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                group = _TABLE.get(parameter.name or "", (_OUTPUT,))[0]
                groups[group].append(record)
        for group, records in groups.items():
            if records:
                with formatter.section(group):
                    formatter.write_dl(records)


def command(
    *names: str,
    of: Callable[..., Any] | None = None,
    arguments: Mapping[str, str | None] = {"data": None},
    **changes: Mapping[str, Any],
) -> Callable[[Callable[[Request], Any]], click.Command]:
    """Make a command of a function of a request.

    `names` are those of its options. `of` is the function that the command calls, whose defaults
    they have; `arguments` has the defaults of arguments, and `changes` says how options differ
    from those of other commands.
    """

    def make(function: Callable[[Request], Any]) -> click.Command:
        parameters: list[click.Parameter] = [
            click.Argument([name], default=default) if default else click.Argument([name])
            for name, default in arguments.items()
        ]
        for name in sorted({*names, *PRINTING}, key=[*_TABLE].index):
            _, flags, text, *more = _TABLE[name]
            attributes = {"help": text, "default": _default(name, of), **dict(*more)}
            attributes |= {"flags": flags, **changes.get(name, {})}
            attributes["show_default"] = attributes["default"] not in (None, False, ())
            if "required" in attributes:
                del attributes["default"]  # click would take None for a value
            flags = attributes.pop("flags").split()
            parameters.append(click.Option([*flags, name], **attributes))

        @functools.wraps(function)
        def callback(**_: Any) -> Any:
            return function(Request(click.get_current_context()))

        return _Command(function.__name__, None, callback, parameters, function.__doc__)

    return make


def flags_of(one: click.Command) -> dict[str, str]:
    """The flags of a command by the names that their options have in Python."""
    options = [parameter for parameter in one.params if isinstance(parameter, click.Option)]
    return {str(option.name): max(option.opts, key=len) for option in options}


# --- requests ---------------------------------------------------------------------------------


class Request(SimpleNamespace):
    """What a command is asked to do: its arguments and options, by their names in Python.

    An option that the command does not have is None. `given` holds the names of those that the
    user gave.
    """

    def __init__(self, context: click.Context) -> None:
        shared = context.find_root().obj
        shared |= {"debug": context.params["debug"], "flags": flags_of(context.command)}
        super().__init__(**{**dict.fromkeys(_TABLE), **context.params})
        self.words = shlex.join(["conenmf", *shared["arguments"]])
        sources = {name: context.get_parameter_source(name) for name in context.params}
        self.given = {name for name, one in sources.items() if one is ParameterSource.COMMANDLINE}

    def chosen(self, names: Iterable[str]) -> dict[str, Any]:
        """The values of options that have one."""
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def _changed(self, names: Iterable[str]) -> dict[str, Any]:
        """The values of options that differ from their defaults."""
        values = self.chosen(names)
        return {name: values[name] for name in values if values[name] not in ((), _default(name))}

    @property
    def member(self) -> tuple[str, str | None]:
        """The file and the member of it that are read."""
        return split_member(self.data) if self.dataset is None else (self.data, self.dataset)

    @property
    def path(self) -> Path:
        """The file, without the member that DATA may name."""
        return Path(self.member[0])

    @functools.cached_property
    def display(self) -> Display:
        """Where progress is shown."""
        return Display(quiet=self.quiet)

    @property
    def limits(self) -> dict[str, Any]:
        """When to stop."""
        return {name: getattr(self, name) for name in STOPPING}

    @property
    def rng(self) -> np.random.Generator | None:
        """A generator for inits that draw random numbers."""
        return None if self.seed is None else np.random.default_rng(self.seed)

    @property
    def origin(self) -> dict[str, Any]:
        """The data file, how it was read, and the command, to be kept with a result."""
        changed = self._changed((*READING, *ENTRIES, "sample_weight", *PREPARING))
        plain = {
            name: ", ".join(map(str, value)) if isinstance(value, tuple) else value
            for name, value in changed.items()
        }
        return {"source": self.data, **plain, "seed": self.seed, "command": self.words}

    def read_as(self, settings: Mapping[str, Any]) -> None:
        """Read the data as those of a result were read, but for options that are given."""
        for name in (*_AS_BEFORE, *ENTRIES, "sample_weight"):
            value = settings.get(name)
            if value is not None and name not in self.given:
                setattr(self, name, tuple(value.split(", ")) if name == "drop" else value)

    @property
    def flags(self) -> list[str]:
        """How the data were read, as arguments of another command that reads them."""
        words = ["--data", self.data]
        for name, value in self._changed((*READING, *ENTRIES, "sample_weight")).items():
            flag = _TABLE[name][1]
            if name == "header":
                words.append(flag.split("/")[not value])
            elif name == "pixels_shape":
                words += [flag, "{}x{}".format(*value)]
            else:
                for one in value if name == "drop" else [value]:
                    words += [flag, one]
        return words

    def open(self, vocabulary: Vocabulary | None = None) -> DataMatrix:
        """Open the data; texts with the words that the options say, or with a vocabulary."""
        with self.display.working(f"reading {self.data}"):
            path, member = self.member
            budget = memory_budget(self.max_memory)
            samples, features = (
                None if file is None else read_names(file, budget)
                for file in (self.sample_names, self.feature_names)
            )
            V = open_data(
                path,
                dataset=member,
                words=vocabulary or Words(**self.chosen(WORDS)),
                names=Names.of(samples, features, self.image_shape, self.pixels_shape),
                **self.chosen((*_OPENING, "n_threads", "max_memory")),
                **read_entries(self),
            )
            steps = self._changed(PREPARING)
            return prepare(V, **steps) if steps else V

    def answer(self, values: dict[str, Any], text: str, V: DataMatrix | None = None) -> None:
        """Print the values as JSON, or how the data were read and a text."""
        if self.as_json:
            remarks = {} if V is None else {"remarks": V.remarks}
            click.echo(json.dumps(json_values({**values, **remarks}), allow_nan=False))
            return
        if V is not None:
            click.echo(f"{visible(self.data, None)}: {_size(V)}")
            for remark in V.remarks:
                click.echo(visible(remark, None))
        click.echo(text)


def _size(V: DataMatrix) -> str:
    """The size of a matrix, and whether names were read: a wrong guess is seen here."""
    names, suffix = V.names, ("", " without names")
    samples = f"{V.shape[1]} samples{suffix[names.sample_names is None]}"
    if names.pixels_shape is not None:
        samples = "{} pixels of an image of {} x {}".format(V.shape[1], *names.pixels_shape)
    features = f"{V.shape[0]} features{suffix[names.feature_names is None]}"
    if names.image_shape is not None:
        features = "images of {} x {} pixels".format(*names.image_shape)
    return f"{samples}, {features}"


def json_values(value: Any) -> Any:
    """Values that JSON can hold; NaN and infinity become null."""
    text = json.dumps(value, default=lambda array: array.tolist())
    return json.loads(text, parse_constant=lambda _: None)


def choosing(K: int | str) -> str:
    """What a command does between reading and solving."""
    number = "the number of components and " if isinstance(K, str) else ""
    return f"choosing {number}an init"
