"""The options of all commands, and the request that a command builds from them.

One table contains the flags, the group and the help of every option, under its name in Python.
Defaults are those of the functions that receive the values.

Options may name further files: masks, weights, known components, classes of samples. Matrices may
have any format that `open_data` reads. Classes are in a text, or in a column of the data that is
not a feature; the scores of `compare` and the colours of reports use them.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import click
import numpy as np
from click import Choice, FloatRange, IntRange
from click.core import ParameterSource
from numpy.random import Generator, default_rng

from ..arguments import Shape
from ..data.blocks import Array, Block, dense, exact
from ..data.known import weigh_samples
from ..data.matrix import DataMatrix, PerSample
from ..data.prepare import Vocabulary, Words
from ..data.resources import memory_budget
from ..data.validate import Negative, SamplesIn
from ..errors import ConeNMFError, DataError, Message, Option, OptionError
from ..export import TABLES, json_values
from ..io.hdf5 import read_annotation, read_coordinates
from ..io.limits import named_damage
from ..io.open import open_data, prepare, split_member
from ..io.source import Reading
from ..io.text import TABLE_SUFFIXES, open_text_column, open_texts, read_names, read_rows
from ..judge.choose_k import Selection, select_k
from ..judge.scores import matched_rows
from ..judge.stability import RESAMPLINGS
from ..mutations import mutation_types
from ..names import Labelled, Names, in_order
from ..progress import Display
from ..ratings import Ratings
from ..report import VIEWS, render
from ..result import Factorization
from ..signals import Interruption
from ..solve.constraints import FIXED_TABLE, Fixed, Penalties
from ..solve.inits import INITS
from ..solve.losses import LOSSES, SOLVER_NAMES, get_loss
from ..text import Facts, Texts, visible


def _components(value: str) -> int | str | range:
    if value == "auto":
        return value
    low, dash, high = value.partition("-")
    ends = [int(end) for end in (low, high or low) if end.isdecimal() and len(end) < 10]
    if len(ends) < 2 or not 0 < ends[0] <= ends[1] or (dash and not high):
        raise click.BadParameter(
            f"{value!r} is neither 'auto' nor a number of at least 1, nor a range such as 2-9"
        )
    return range(ends[0], ends[1] + 1) if dash else ends[0]


def _shape(value: str) -> Shape:
    rows, _, columns = value.lower().partition("x")
    if not (rows.isdecimal() and columns.isdecimal()):
        raise click.BadParameter(f"{value!r} is not a shape such as 92x112")
    return int(rows), int(columns)


def _weight(value: Any) -> Any:
    return value if value == "auto" else _AT_LEAST_0.convert(value, None, None)


def _missing(value: str | float) -> str | float:
    if value in ("raise", "nan", "zeros"):
        return value
    try:
        return float(value)
    except ValueError:
        problem = f"{value!r} is not one of raise, nan, zeros, nor a number such as -999"
        raise click.BadParameter(problem) from None


def _listed(value: str | Texts) -> Texts:
    """Split a text at its commas into names; an empty text has none."""
    if not isinstance(value, str):
        return value
    return tuple(map(str.strip, value.split(","))) if value.strip("()") else ()


def _rises(value: str) -> list[float]:
    """Split a text at its commas into numbers above 0."""
    if re.fullmatch(r"(\d+(\.\d+)?(,|$))+", value) is None:
        raise click.BadParameter(f"{value!r} are not numbers above 0 such as 4,25")
    return list(map(float, value.split(",")))


# --- the table --------------------------------------------------------------------------------

_FILE = click.Path()
_AT_LEAST_0 = FloatRange(0)
_NONE_OR_MORE = IntRange(0)
_ONE_OR_MORE = IntRange(1)
_LOSS_NAMES = [name for loss in LOSSES.values() for name in (loss.name, *loss.aliases)]

# The help and the type of each option, by its group and its name in Python.
_TABLE: dict[str, dict[str, tuple[Any, ...]]] = {
    "Common options": {
        "K": (
            "Number of components; auto estimates it, 2-9 chooses from that range.",
            _components,
        ),
        "output": ("", _FILE),
        "loss": (
            f"The loss to minimise: {', '.join(loss.help for loss in LOSSES.values())}.",
            Choice(_LOSS_NAMES),
        ),
        "scene": (
            "Unmix a scene: endmembers, and abundances of each pixel that sum to one.",
            bool,
        ),
        "init": ("Initialisation of the factors.", Choice(["auto", *INITS])),
        "missing": (
            "Which entries are missing: nan; zeros (if DATA is sparse, entries that are not "
            "stored); or a number such as -999, and NaN. With raise, NaN is an error.",
            _missing,
        ),
        "n_runs": ("Number of fits.", IntRange(2)),
        "inits": ("Initialisations to compare.", _listed),
        "solvers": ("Solvers to compare.", _listed),
        "reference": (
            "Known components, such as COSMIC's signatures: a table, features matched by name.",
            _FILE,
        ),
        "layer": ("The layer of counts of an .h5ad file; by default X.",),
        "labels": (
            "True classes: a text file with one class per sample, or a .csv of name and class.",
            _FILE,
        ),
    },
    "Reading": {
        "samples_in": (
            "Whether samples are the rows or the columns of the matrix.",
            Choice(get_args(SamplesIn)),
        ),
        "dataset": ("Which matrix to read from a file with several.",),
        "header": (
            "Whether the first line of a text file has column titles; detected by default.",
            bool,
        ),
        "names_column": (
            "The column with the row names: its title, or its number counted from 0.",
        ),
        "drop": ("A column to leave out; may be repeated.",),
        "triples": (
            "The columns of users, items and ratings, if each row of DATA is one rating.",
            _listed,
        ),
        "feature_names": (
            "Names of the features, such as words: a text file with one per line.",
            _FILE,
        ),
        "sample_names": ("Names of the samples: a text file with one per line.", _FILE),
        "pixels_shape": (
            "Shape of the image whose pixels are the samples, row by row; scene files state it.",
            _shape,
        ),
        "negative": (
            "Negative entries: raise an error, clip tiny ones to zero, or keep them as noise.",
            Choice(get_args(Negative)),
        ),
        "text_column": ("The samples are the texts in this column of a .csv or .tsv table.",),
        "stop_words": (
            "Texts: frequent words to leave out; auto detects English.",
            Choice(["auto", "english", "none"]),
        ),
        "min_df": ("Texts: keep words that occur in at least this many.", _ONE_OR_MORE),
        "max_df": (
            "Texts: keep words that occur in at most this share; by default 0.95, or 0.5 without "
            "stop words.",
            FloatRange(0, 1, min_open=True),
        ),
        "max_words": ("Texts: keep only this many words, the most frequent ones.", _ONE_OR_MORE),
    },
    "Preparing": {
        "normalize_total": (
            "Scale each sample to this sum, such as 10000 for cells.",
            FloatRange(0, 1e15, min_open=True),
        ),
        "log1p": ("Take log(1 + x) of each entry.", bool),
        "tfidf": (
            "Weight each word by log(N / df), if df of N samples have it; then --normalize.",
            bool,
        ),
        "normalize": ("Finally, scale each sample to unit length.", bool),
        "n_genes": (
            "Number of genes to factor: the most overdispersed ones.",
            _ONE_OR_MORE,
        ),
        "genes_file": ("Factor the genes listed in this text file, one per line.", _FILE),
    },
    "Known parts": {
        "mask": ("A matrix shaped like DATA: 0 or False where an entry is missing.", _FILE),
        "weights": (
            "A matrix shaped like DATA: the weight of each entry, such as 1 / sigma^2.",
            _FILE,
        ),
        "sigma": ("A matrix shaped like DATA: the uncertainty of each entry.", _FILE),
        "sample_weight": (
            "Weight of each sample: a text file with a number per line, or a .npy vector.",
            _FILE,
        ),
        "fixed": ("Known components to keep fixed: one per row, features matched by name.", _FILE),
        "alpha_W": ("Penalty on the coefficients, as in scikit-learn's NMF.", _AT_LEAST_0),
        "alpha_H": ("Penalty on the components; by default equal to --alpha-w.", _AT_LEAST_0),
        "l1_ratio": ("Share of L1 in the penalties; the rest is L2.", FloatRange(0, 1)),
        "orthogonality": ("Penalty on samples that use several components.", _AT_LEAST_0),
        "min_volume": (
            "Penalty on the volume of the components, such as 1e-5; auto estimates it from noise.",
            _weight,
        ),
        "sum_to_one": ("Make the coefficients of each sample sum to one, like abundances.", bool),
    },
    "Solving and stopping": {
        "solver": (
            "Algorithm that updates the factors; none keeps the initial factors.",
            Choice(["auto", *SOLVER_NAMES, "none"]),
        ),
        "max_iter": ("Maximum number of iterations.", _NONE_OR_MORE),
        "tol": (
            "Stop when the error falls by less than this fraction in 5 iterations.",
            _AT_LEAST_0,
        ),
        "max_time": ("Stop the fit after this many seconds.", _AT_LEAST_0),
        "error": (
            "Also say how many components a relative error needs, from 0 to below 1.",
            FloatRange(0, 1, max_open=True),
        ),
        "checkpoint": (
            "Folder in which to save the run every minute; the same command resumes it.",
            _FILE,
        ),
        "resample": (
            "How fits differ beyond their random init: samples drawn with replacement, resampled "
            "counts, or not at all (start).",
            Choice([*RESAMPLINGS]),
        ),
        "density_threshold": (
            "Leave out components farther than this from their neighbours.",
            FloatRange(0, min_open=True),
        ),
        "refine": (
            "Poisson iterations that refine the consensus; 0 for none.",
            _NONE_OR_MORE,
        ),
        "seed": ("Seed for inits that draw random numbers.", _NONE_OR_MORE),
    },
    "Output and resources": {
        "tables": (
            "Format of the tables of components, coefficients, labels and history.",
            Choice([*TABLES, "none"]),
        ),
        "anndata": (
            "Also write annotated.h5ad, a copy of the .h5ad file DATA with the result added.",
            bool,
        ),
        "name": ("Prefix of the file names; by default the name of DATA.",),
        "plot": ("Save a plot: .png, .pdf or .svg.", _FILE),
        "no_report": ("Do not judge the result; write no report.", bool),
        "quick": (
            "Leave out the verdict on components, which takes as long as a few fits.",
            bool,
        ),
        "n_splits": ("Splits of the samples into halves that check components.", _NONE_OR_MORE),
        "effort": (
            "Steps to tighten the lower bound; 0 uses singular values alone. By default 3, or 1 "
            "for sparse data.",
            _NONE_OR_MORE,
        ),
        "uniqueness": (
            "Search for other components with nearly the same error; takes as long as the fit.",
            bool,
        ),
        "displacement": (
            "Also write displacement.csv: how far each entry of a component can move until Q has "
            "risen by these numbers, such as 4,25. Each entry takes about a second.",
            _rises,
        ),
        "data": ("The data of the fit; needed if fit wrote no report.",),
        "image_shape": ("Features are the pixels of images of this shape.", _shape),
        "view": ("How the report draws components.", Choice(VIEWS)),
        "classes": (
            "Known classes: a column of DATA (of obs in .h5ad), or a text file with one class per "
            "sample. The verdict says which components follow them; they colour the report.",
        ),
        "groups": (
            "Groups of samples that belong together, such as donors, given like --classes. The "
            "verdict then compares groups, and says which components follow them.",
        ),
        "title": ("Heading of the report; by default the name of the file.",),
        "force": ("Write to a folder even if it holds other files.", bool),
        "n_threads": ("Number of threads; by default one per core.", _ONE_OR_MORE),
        "max_memory": ("Memory for data and results, such as 2GB.",),
        "quiet": ("Show no progress.", bool),
        "as_json": ("Print one JSON object instead of text.", bool),
        "debug": ("Show tracebacks.", bool),
    },
}

_OPTIONS = {name: one for group in _TABLE.values() for name, one in group.items()}
# The flags of options whose names differ from those in Python.
_FLAGS = {
    "K": "-k --k --components",
    "output": "-o --output",
    "n_runs": "--runs",
    "n_splits": "--splits",
    "sigma": "--uncertainty",
    "n_genes": "--genes",
    "n_threads": "--threads",
    "header": "--header/--no-header",
    "quiet": "-q --quiet",
    "as_json": "--json",
}

_METAVARS = {
    "displacement": "NUMBER,...",
    "K": "K|auto|LOW-HIGH",
    **dict.fromkeys(("names_column", "drop", "text_column"), "COLUMN"),
    "triples": "USER,ITEM,RATING",
    "missing": "raise|nan|zeros|NUMBER",
    "min_volume": "auto|NUMBER",
    **dict.fromkeys(("classes", "groups"), "COLUMN|FILE"),
    **dict.fromkeys(("pixels_shape", "image_shape"), "ROWSxCOLUMNS"),
    **dict.fromkeys(("inits", "solvers"), "NAME,..."),
    "normalize_total": "SUM",
}
_DEFAULTS = {"tables": "csv", "alpha_H": None, "seed": None}


# --- sets of options --------------------------------------------------------------------------

_TABLES = ("samples_in", "header", "names_column", "drop", "text_column", "triples", "negative")
_AS_BEFORE = ("dataset", *_TABLES)
_NAMING = ("feature_names", "sample_names", "pixels_shape")
ENTRIES = ("missing", "mask", "weights", "sigma")
READING = (*_AS_BEFORE, *_NAMING)
WORDS = ("stop_words", "min_df", "max_df", "max_words")
PREPARING = ("normalize_total", "log1p", "tfidf", "normalize")
TERMS = ("alpha_W", "alpha_H", "l1_ratio", "orthogonality", "min_volume", "sum_to_one")
STOPPING = ("max_iter", "tol", "max_time")
LABELS = ("classes", "groups")
VIEWING = ("image_shape", "view", "title")
OUTPUT = ("output", "force")
RUNNING = ("n_threads", "max_memory", "seed")
PRINTING = ("quiet", "as_json", "debug")
_OPENING = (*_TABLES, "missing")
_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    open_data,
    prepare,
    Words,
    Penalties.as_in_sklearn,
    render,
    Factorization.diagnose,
)


def _default(name: str, function: Callable[..., Any] | None = None) -> Any:
    """Return the default of an option in the first function with such a parameter."""
    for one in (function or open_data, *_FUNCTIONS):
        parameter = signature(one).parameters.get(name)
        if parameter is not None and parameter.default is not parameter.empty:
            return parameter.default
    return False if bool in _OPTIONS[name] else None


class _Command(click.Command):
    """A command whose help shows options in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each group that has options."""
        records: dict[str, list[tuple[str, str]]] = {title: [] for title in _TABLE}
        for one in self.get_params(ctx):
            found = [title for title, group in _TABLE.items() if one.name in group]
            record = one.get_help_record(ctx)
            if record is not None and isinstance(one, click.Option):
                records[found[0] if found else [*_TABLE][-1]].append(record)
        for title, lines in records.items():
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)


def command(
    *names: str,
    of: Callable[..., Any] | None = None,
    arguments: Mapping[str, Facts] = {"data": {}},
    **changes: Facts,
) -> Callable[[Callable[[Request], Any]], click.Command]:
    """Make a command from a function of a request.

    `names` are the names of its options. `of` is the function that the command calls; its defaults
    are used. `arguments` are the command's arguments, and `changes` says how options differ from
    the same options of other commands.
    """

    def make(function: Callable[[Request], Any]) -> click.Command:
        parameters: list[click.Parameter] = [
            click.Argument([name], **given) for name, given in arguments.items()
        ]
        for name in sorted({*names, *PRINTING}, key=[*_OPTIONS].index):
            text, *kind = _OPTIONS[name]
            attributes = {"help": text, "default": _DEFAULTS.get(name, _default(name, of))}
            attributes |= {"metavar": _METAVARS.get(name), "multiple": name == "drop"}
            attributes |= {"is_flag": True} if bool in kind else {"type": [*kind, None][0]}
            attributes |= changes.get(name, {})
            attributes["show_default"] = attributes["default"] not in (None, False, ())
            if "required" in attributes:
                del attributes["default"]  # click would treat None as a value
            flags = _FLAGS.get(name, f"--{name.lower().replace('_', '-')}")
            flags = attributes.pop("flags", flags).split()
            parameters.append(click.Option([*flags, name], **attributes))

        @functools.wraps(function)
        def callback(**_: object) -> Any:
            return function(Request(click.get_current_context()))

        return _Command(function.__name__, None, callback, parameters, function.__doc__)

    return make


def flags_of(one: click.Command) -> dict[str, str]:
    """Return the flags of a command by the names of their options in Python."""
    options = [parameter for parameter in one.params if isinstance(parameter, click.Option)]
    return {str(option.name): max(option.opts, key=len) for option in options}


# --- requests ---------------------------------------------------------------------------------


class Request(SimpleNamespace):
    """What a user requests: arguments and options, by their names in Python.

    An option that the command does not have is None. `given` contains the names of options that the
    user gave.
    """

    def __init__(self, context: click.Context) -> None:
        shared = context.find_root().obj
        shared |= {"debug": context.params["debug"], "flags": flags_of(context.command)}
        super().__init__(**{**dict.fromkeys(_OPTIONS), **context.params})
        self.K_decided_by = "user"
        self.selection: Selection | None = None
        self.ratings: Ratings | None = None
        self.words = shlex.join(["conenmf", *shared["arguments"]])
        sources = {name: context.get_parameter_source(name) for name in context.params}
        self.given = {name for name, one in sources.items() if one is ParameterSource.COMMANDLINE}
        self.display = Display(sys.stderr, quiet=self.quiet)

    def chosen(self, names: Iterable[str]) -> Facts:
        """Return the values of options that are set, or that were set to an empty value."""
        values = {name: getattr(self, name) for name in names}
        empty = {name for name, value in values.items() if value is None or value == ()}
        return {name: values[name] for name in values if name not in empty - self.given}

    @property
    def path(self) -> Path:
        """The path of the data file, without the member that DATA may name."""
        return Path(self.data if self.dataset is not None else split_member(self.data)[0])

    @property
    def rng(self) -> Generator | None:
        """The generator for random inits."""
        return None if self.seed is None else default_rng(self.seed)

    @property
    def origin(self) -> Facts:
        """The data file, how it was read, and the command, for storage in a result."""
        values = self.chosen((*READING, *ENTRIES, "sample_weight", *PREPARING))
        changed = {name: value for name, value in values.items() if value != _default(name)}
        return {"source": self.data, **changed, "seed": self.seed, "command": self.words}

    def chosen_k(self, V: DataMatrix) -> int:
        """Return the number of components: given, or chosen from all numbers or from a range."""
        if isinstance(self.K, int):
            return self.K
        candidates = None if self.K == "auto" else self.K
        chosen = select_k(V, candidates, loss=self.loss or "frobenius")
        self.K_decided_by = chosen.sentence
        self.selection = chosen
        return chosen.K

    def described(self, result: Factorization, **more: Any) -> Factorization:
        """Return the result with the source of its data, and why it has so many components."""
        settings = {**result.settings, **self.origin, **more}
        if self.K_decided_by == "user":
            return replace(result, settings=settings)
        reason: Facts = {"K_decided_by": self.K_decided_by, "selection": self.selection}
        return replace(result, settings=settings, **reason)

    def judge(
        self, result: Factorization, interruption: Interruption | None = None, **labels: Any
    ) -> None:
        """Judge a result, and show its progress.

        Ctrl-C ends the fits of halves of the samples, if the command handles it; finished splits
        count.
        """
        options = self.chosen(("effort", "n_splits"))
        if self.quick:
            options["n_splits"] = 0

        def show(split: str) -> None:
            self.display.update("", None, f"checking components: {split}")

        options["watch"] = show if interruption is None else interruption.watch(show)
        with self.display.working("judging the result"):
            if self.uniqueness:
                result.uniqueness()  # first, so that the verdict knows it
            result.diagnose(**options, **labels)

    def read_as(
        self,
        settings: Mapping[str, Any],
        names: Iterable[str] = (*_AS_BEFORE, *ENTRIES, "sample_weight"),
    ) -> None:
        """Read the data with the options of an earlier result, unless the user gives others."""
        for name in names:
            value = settings.get(name)
            if value is not None and name not in self.given:
                setattr(self, name, value)

    def open(self, vocabulary: Vocabulary | None = None) -> DataMatrix:
        """Open the data; texts with the words that the options select, or with a vocabulary.

        If all rows of a table are types of mutations, its samples are in the columns.
        """
        V = self._opened(vocabulary)
        is_guessed = "samples_in" not in self.given and self.samples_in == "rows"
        if is_guessed and mutation_types(V.names.sample_names) is not None:
            self.read_as({"samples_in": "columns"})
            V = self._opened(vocabulary)
            V.remarks += (
                f"rows are the {V.n_features} types of mutations, so columns are samples",
            )
        return V

    def _opened(self, vocabulary: Vocabulary | None) -> DataMatrix:
        """Open the data with the options of the request."""
        with self.display.working(f"reading {self.data}"):
            budget = memory_budget(self.max_memory)
            samples, features = (
                None if file is None else read_names(file, budget)
                for file in (self.sample_names, self.feature_names)
            )
            V = open_data(
                self.data,
                dataset=self.dataset,
                words=vocabulary or Words(**self.chosen(WORDS)),
                names=Names.of(samples, features, self.image_shape, self.pixels_shape),
                **self.chosen((*_OPENING, "n_threads", "max_memory")),
                **read_entries(self),
            )
            steps = self.chosen(PREPARING)
            return prepare(V, **steps) if any(steps.values()) else V

    def answer(self, values: Facts, text: str, V: DataMatrix | None = None) -> None:
        """Print the values as JSON, or as text after a line on how the data were read."""
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
    """Describe the size of a matrix and whether names were read, to show wrong guesses."""
    names = V.names
    samples = f"{V.n_samples} samples{' without names' * (names.sample_names is None)}"
    if names.pixels_shape is not None:
        samples = "{} pixels of an image of {} x {}".format(V.n_samples, *names.pixels_shape)
    features = f"{V.n_features} features{' without names' * (names.feature_names is None)}"
    if names.image_shape is not None:
        features = "images of {} x {} pixels".format(*names.image_shape)
    return f"{samples}, {features}"


def choosing(K: int | str | range) -> str:
    """Describe what a command does between reading and solving."""
    number = "" if isinstance(K, int) else "the number of components and "
    return f"choosing {number}an init"


# --- further files ----------------------------------------------------------------------------

_MAX_CHARS = 1000  # of a text; the report shows its beginning


# --- matrices ---------------------------------------------------------------------------------


def read_entries(request: Request) -> Facts:
    """Read masks, weights and uncertainties as tables in the orientation of the data."""
    entries = {}
    for option, path in request.chosen(("mask", "weights", "sigma")).items():
        M = _opened(request, option, path, samples_in=request.samples_in)
        rows = np.asarray(M.sweep(_rows)[0])
        if M.observed is not None:
            rows = np.where(np.asarray(M.observed.weights) > 0, rows, np.nan)
        rows = rows != 0 if option == "mask" else rows
        if option == "weights" and M.n_samples == 1:  # one weight for each feature
            entries[option] = Labelled(rows[0], M.names.turned())
        elif request.samples_in == "rows":
            entries[option] = Labelled(rows, M.names)
        else:
            entries[option] = Labelled(rows.T, M.names.turned())
    return entries


def read_fixed(request: Request, V: DataMatrix) -> Fixed | None:
    """Read components, one per row, in the order of the features of V; None without a file."""
    if request.fixed is None:
        return None
    M = _opened(request, "fixed", request.fixed, samples_in="rows")
    return Fixed(_in_order_of(M, V, FIXED_TABLE), M.names.sample_names)


def read_reference(request: Request, V: DataMatrix) -> tuple[Array, Texts] | None:
    """Read known components (F, n), in rows or columns, and their names; None without a file."""
    if request.reference is None:
        return None
    features = V.names.feature_names or ()
    M = _opened(request, "reference", request.reference, samples_in="columns")
    if {*features} & {*(M.names.sample_names or ())}:
        M = _opened(request, "reference", request.reference, samples_in="rows")
    names = tuple(M.names.sample(n) for n in range(M.n_samples))
    return _in_order_of(M, V, "--reference"), names


def _in_order_of(M: DataMatrix, V: DataMatrix, owner: str) -> Array:
    """Return the columns of M, with features in the order of the features of V."""
    W = exact(dense(M.columns(np.arange(M.n_samples))))
    return matched_rows(W, M.names, V, owner)


def with_sample_weights(request: Request, V: DataMatrix, loss: str) -> DataMatrix:
    """Return V, or a view with the weights of samples from a file."""
    path = request.sample_weight
    if path is None:
        return V
    read = np.load if path.endswith(".npy") else np.loadtxt
    with named_damage(path):  # np.loadtxt reports the line
        weights = np.ravel(read(path))
    return weigh_samples(V, weights, get_loss(loss).degree)


def _opened(request: Request, option: str, path: str, samples_in: SamplesIn) -> DataMatrix:
    """Open the matrix of an option, in whose name its errors speak."""
    try:
        reading = request.chosen(("header", "n_threads", "max_memory"))
        M = open_data(path, negative="keep", missing="nan", samples_in=samples_in, **reading)
    except ConeNMFError as problem:
        message = problem.args[0]
        parts = message.parts if isinstance(message, Message) else (message,)
        raise type(problem)(Message(Option(option), ": ", *parts)) from problem
    if M.observed is not None and option != "sigma":
        share = f"{M.observed.missing:.2g} of its entries are NaN: expected numbers"
        raise DataError(Option(option, path), ": ", share)
    return M


def _rows(block: Block) -> PerSample:
    return np.ascontiguousarray(dense(block).T), None


# --- samples ----------------------------------------------------------------------------------


def drop_label_columns(request: Request) -> None:
    """Do not read columns of classes and groups as features."""
    for given in request.chosen(LABELS).values():
        is_column = not Path(given).is_file()
        if is_column and request.data and request.path.suffix.lower() in TABLE_SUFFIXES:
            request.drop = (*request.drop, given)


def labels_of(request: Request, N: int, names: Names) -> Facts:
    """Read the classes and the groups of the N samples, those that are given."""
    return {option: _labels(request, option, N, names) for option in request.chosen(LABELS)}


def about_samples(request: Request, N: int, names: Names) -> Facts:
    """Read the UMAP coordinates and the texts of the N samples, for the report."""
    budget = memory_budget(request.max_memory)
    about: Facts = {}
    if not request.data:
        return about
    texts: Any = None
    if request.path.suffix.lower() == ".h5ad":
        places = read_coordinates(request.path, "X_umap", budget)
        if places is not None and places.shape == (N, 2) and np.isfinite(places).all():
            about["coordinates"] = places
    if request.text_column is not None:
        texts = _column(request, request.text_column, budget)
    elif request.path.is_dir() and any(request.path.rglob("*.txt")):
        texts = open_texts(request.path, Reading(budget)).matrix
    if texts is not None and len(texts) == N:
        about["texts"] = [text[:_MAX_CHARS] for text in texts]
    return about


def _column(request: Request, column: str, budget: int) -> list[str]:
    reading = Reading(budget, header=request.header, text_column=column)
    return list(open_text_column(request.path, reading).matrix)


def _labels(request: Request, option: str, N: int, names: Names) -> Array:
    """Return the class or group of each sample, from a file or from a column of the data."""
    given = getattr(request, option)
    if Path(given).is_file():
        return read_labels(given, N, names)
    suffix = request.path.suffix.lower() if request.data else ""
    if suffix == ".h5ad":
        return np.array(read_annotation(request.path, given))
    if suffix in TABLE_SUFFIXES:
        return np.array(_column(request, given, memory_budget(request.max_memory)))
    raise OptionError(
        f"--{option} {visible(given)} is not a file: name one, or a column of DATA, if that is "
        "a .csv, .tsv or .h5ad file"
    )


def read_labels(path: str, N: int, names: Names) -> Array:
    """Read one class per sample, in the order of the samples or by their names.

    The last column contains the classes. If there are more columns, the first one contains the
    names. The first row may be a header.
    """
    rows = read_rows(path)
    if len(rows) == N + 1:
        del rows[0]  # the header
    if len(rows) != N:
        raise DataError(f"{path} has {len(rows)} labels for {N} samples: give one for each")
    classes = np.array([row[-1] for row in rows])
    if len(rows[0]) == 1:
        return classes
    samples = Names.of([row[0] for row in rows])
    return np.asarray(in_order(names, "labels", Labelled(classes, samples), "sample"))
