"""The options of all commands: their flags, groups, types and help.

Each option is a field of one of six groups, under its name in Python. Unless it says otherwise, its
default is the default of the function that receives the value.

Options may name further files: masks, weights, known components, classes of samples. Matrices may
have any format that `open_data` reads. Classes are in a text, or in a column of the data that is
not a feature; the scores of `compare` and the colours of reports use them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from inspect import signature
from typing import Any, get_args

import click
from click import Choice, FloatRange, IntRange

from ..data.prepare import Words
from ..data.validate import Negative, SamplesIn
from ..export import TABLES
from ..io.open import open_data, prepare
from ..judge.replicates import RESAMPLINGS
from ..report import VIEWS, render
from ..result import Factorization
from ..solve.constraints import Penalties
from ..solve.inits import INITS
from ..solve.losses import LOSSES, SOLVER_NAMES
from ..solve.reweigh import KINDS
from ..types import Facts, Shape, Texts

# --- values -----------------------------------------------------------------------------------


def _components(value: str) -> int | str | range:
    if value == "auto":
        return value
    if re.fullmatch(r"0*[1-9]\d{0,8}(-\d{1,9})?", value, re.ASCII):
        low, dash, high = value.partition("-")
        if not dash:
            return int(low)
        if int(low) <= int(high):
            return range(int(low), int(high) + 1)
    raise click.BadParameter(
        f"{value!r} is neither 'auto' nor a number of at least 1, nor a range such as 2-9"
    )


def _shape(value: str) -> Shape:
    rows, _, columns = value.lower().partition("x")
    if not (rows.isdecimal() and columns.isdecimal()):
        raise click.BadParameter(f"{value!r} is not a shape such as 92x112")
    return int(rows), int(columns)


def _weight(value: Any) -> str | float:
    return value if value == "auto" else _AT_LEAST_0.convert(value, None, None)


def _starts(value: Any) -> str | int:
    return value if value == "auto" else _ONE_OR_MORE.convert(value, None, None)


def _missing(value: str | float) -> str | float:
    if value in ("raise", "nan", "zeros"):
        return value
    try:
        return float(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not one of raise, nan, zeros, nor a number such as -999"
        ) from None


def _names(value: str | Texts) -> Texts:
    """Split a text at its commas into names; an empty text has none."""
    if not isinstance(value, str):
        return value
    if not value.strip("()"):
        return ()
    return tuple(name.strip() for name in value.split(","))


def _rises(value: str) -> list[float]:
    """Split a text at its commas into numbers above 0."""
    if re.fullmatch(r"(\d+(\.\d+)?(,|$))+", value) is None:
        raise click.BadParameter(f"{value!r} are not numbers above 0 such as 4,25")
    return [float(rise) for rise in value.split(",")]


_FILE = click.Path()
_AT_LEAST_0 = FloatRange(0)
_NONE_OR_MORE = IntRange(0)
_ONE_OR_MORE = IntRange(1)
_LOSS_NAMES = [name for loss in LOSSES.values() for name in (loss.name, *loss.words.aliases)]
_LOSS_HELP = ", ".join(loss.words.help for loss in LOSSES.values())

# --- groups of options ------------------------------------------------------------------------


def option(help: str, type: object = None, **attributes: object) -> Any:
    """Return the field of an option with the attributes that click takes.

    Without `flags`, the flag is the name in Python.
    """
    return field(metadata={"help": help, "type": type, **attributes})


@dataclass
class _Common:
    """What most commands ask for."""

    K: int | str | range = option(
        "Number of components; auto estimates it, 2-9 chooses from that range.",
        _components,
        flags="-k --k --components",
        metavar="K|auto|LOW-HIGH",
    )
    output: str | None = option("", _FILE, flags="-o --output")
    loss: str = option(
        f"The loss to minimise: {_LOSS_HELP}.",
        Choice(_LOSS_NAMES),
        default="frobenius",
    )
    scene: bool = option(
        "Unmix a scene: endmembers, and abundances of each pixel that sum to one.", bool
    )
    symmetric: bool = option("Find groups of nodes; DATA has the edges of a graph.", bool)
    init: str = option("Initialisation of the factors.", Choice(["auto", *INITS]))
    n_init: int | str = option(
        "Number of random starts that run to their end; the best is written. With auto, other "
        "inits compete if they are likely to help.",
        _starts,
        flags="--n-init",
        metavar="auto|NUMBER",
    )
    missing: str | float = option(
        "Which entries are missing: nan; zeros (if DATA is sparse, entries that are not "
        "stored); or a number such as -999, and NaN. With raise, NaN is an error.",
        _missing,
        metavar="raise|nan|zeros|NUMBER",
    )
    n_runs: int = option("Number of fits.", IntRange(2), flags="--runs")
    inits: Texts = option("Initialisations to compare.", _names, metavar="NAME,...")
    solvers: Texts = option("Solvers to compare.", _names, metavar="NAME,...")
    reference: str | None = option(
        "Known components, such as COSMIC's signatures: a table, features matched by name. Of a "
        "scene: FILE[:NAME] with spectra of its materials, and abundances; prints angles and RMSE.",
        _FILE,
    )
    layer: str | None = option("The layer of counts of an .h5ad file; by default X.")
    labels: str | None = option(
        "True classes: a text file with one class per sample, or a .csv of name and class.", _FILE
    )


@dataclass
class _Reading:
    """How data are read."""

    samples_in: SamplesIn = option(
        "Whether samples are the rows or the columns of the matrix.", Choice(get_args(SamplesIn))
    )
    dataset: str | None = option("Which matrix to read from a file with several.")
    header: bool | None = option(
        "Whether the first line of a text file has column titles; detected by default.",
        bool,
        flags="--header/--no-header",
    )
    names_column: str | None = option(
        "The column with the row names: its title, or its number counted from 0.", metavar="COLUMN"
    )
    drop: Texts = option("A column to leave out; may be repeated.", metavar="COLUMN", multiple=True)
    triples: Texts | None = option(
        "The columns of users, items and ratings, if each row of DATA is one rating.",
        _names,
        metavar="USER,ITEM,RATING",
    )
    feature_names: str | None = option(
        "Names of the features, such as words: a text file with one per line.", _FILE
    )
    sample_names: str | None = option("Names of the samples: a text file with one per line.", _FILE)
    pixels_shape: Shape | None = option(
        "Shape of the image whose pixels are the samples, row by row; scene files state it.",
        _shape,
        metavar="ROWSxCOLUMNS",
    )
    negative: Negative = option(
        "Negative entries: raise an error, clip tiny ones to zero, or keep them as noise.",
        Choice(get_args(Negative)),
    )
    text_column: str | None = option(
        "The samples are the texts in this column of a .csv or .tsv table.", metavar="COLUMN"
    )
    stop_words: str = option(
        "Texts: frequent words to leave out; auto detects English.",
        Choice(["auto", "english", "none"]),
    )
    min_df: int = option("Texts: keep words that occur in at least this many.", _ONE_OR_MORE)
    max_df: float | None = option(
        "Texts: keep words that occur in at most this share; by default 0.95, or 0.5 without "
        "stop words.",
        FloatRange(0, 1, min_open=True),
    )
    max_words: int | None = option(
        "Texts: keep only this many words, the most frequent ones.", _ONE_OR_MORE
    )


@dataclass
class _Preparing:
    """How entries are transformed before the fit."""

    normalize_total: float | None = option(
        "Scale each sample to this sum, such as 10000 for cells.",
        FloatRange(0, 1e15, min_open=True),
        metavar="SUM",
    )
    log1p: bool = option("Take log(1 + x) of each entry.", bool)
    tfidf: bool = option(
        "Weight each word by log(N / df), if df of N samples have it; then --normalize.", bool
    )
    normalize: bool = option("Finally, scale each sample to unit length.", bool)
    n_genes: int = option(
        "Number of genes to factor: the most overdispersed ones.", _ONE_OR_MORE, flags="--genes"
    )
    genes_file: str | None = option(
        "Factor the genes listed in this text file, one per line.", _FILE
    )


@dataclass
class _Known:
    """What is known of entries, samples and factors, and penalties."""

    mask: str | None = option(
        "A matrix shaped like DATA: 0 or False where an entry is missing.", _FILE
    )
    weights: str | None = option(
        "A matrix shaped like DATA: the weight of each entry, such as 1 / sigma^2.", _FILE
    )
    sigma: str | None = option(
        "A matrix shaped like DATA: the uncertainty of each entry.", _FILE, flags="--uncertainty"
    )
    weak: Texts = option(
        "A weak species, with three times its uncertainty; may be repeated.",
        metavar="NAME",
        multiple=True,
        default=(),
    )
    bad: Texts = option(
        "A bad species, to leave out; may be repeated.", metavar="NAME", multiple=True, default=()
    )
    total: str | None = option(
        "The species that is the sum of the others, such as PM2.5: it is weak, and total.csv has "
        "the contributions in its units.",
        metavar="NAME",
    )
    sample_weight: str | None = option(
        "Weight of each sample: a text file with a number per line, or a .npy vector.", _FILE
    )
    robust: str | None = option(
        "Do not let a few wild samples, or entries, decide the components.", Choice(KINDS)
    )
    fixed: str | None = option(
        "Known components to keep fixed: one per row, features matched by name.", _FILE
    )
    alpha_W: float = option("Penalty on the coefficients, as in scikit-learn's NMF.", _AT_LEAST_0)
    alpha_H: float | None = option(
        "Penalty on the components; by default equal to --alpha-w.", _AT_LEAST_0, default=None
    )
    l1_ratio: float = option("Share of L1 in the penalties; the rest is L2.", FloatRange(0, 1))
    orthogonality: float = option("Penalty on samples that use several components.", _AT_LEAST_0)
    min_volume: float | str = option(
        "Penalty on the volume of the components, such as 1e-5; auto estimates it from noise.",
        _weight,
        metavar="auto|NUMBER",
    )
    sum_to_one: bool = option(
        "Make the coefficients of each sample sum to one, like abundances.", bool
    )


@dataclass
class _Solving:
    """Algorithms, and when they stop."""

    solver: str = option(
        "Algorithm that updates the factors; none keeps the initial factors.",
        Choice(["auto", *SOLVER_NAMES, "none"]),
    )
    max_iter: int = option("Maximum number of iterations.", _NONE_OR_MORE)
    tol: float = option(
        "Stop when the error falls by less than this fraction in 5 iterations.", _AT_LEAST_0
    )
    max_time: float | None = option("Stop the fit after this many seconds.", _AT_LEAST_0)
    error: float | None = option(
        "Also say how many components a relative error needs, from 0 to below 1.",
        FloatRange(0, 1, max_open=True),
    )
    checkpoint: str | None = option(
        "Folder in which to save the run every minute; the same command resumes it.", _FILE
    )
    resample: str = option(
        "How fits differ beyond their random init: samples drawn with replacement, resampled "
        "counts, or not at all (start).",
        Choice([*RESAMPLINGS]),
    )
    density_threshold: float = option(
        "Leave out components farther than this from their neighbours.",
        FloatRange(0, min_open=True),
    )
    refine: int = option("Poisson iterations that refine the consensus; 0 for none.", _NONE_OR_MORE)
    seed: int | None = option(
        "Seed for inits that draw random numbers.", _NONE_OR_MORE, default=None
    )


@dataclass
class _Output:
    """What is judged, shown and written, and with which resources."""

    tables: str = option(
        "Format of the tables of components, coefficients, labels and history.",
        Choice([*TABLES, "none"]),
        default="csv",
    )
    anndata: bool = option(
        "Also write annotated.h5ad, a copy of the .h5ad file DATA with the result added.", bool
    )
    name: str | None = option("Prefix of the file names; by default the name of DATA.")
    plot: str | None = option("Save a plot: .png, .pdf or .svg.", _FILE)
    no_report: bool = option("Do not judge the result; write no report.", bool)
    quick: bool = option(
        "Leave out the verdict on components, which takes as long as a few fits.", bool
    )
    n_splits: int = option(
        "Splits of the samples into halves that check components.", _NONE_OR_MORE, flags="--splits"
    )
    effort: int | None = option(
        "Steps to tighten the lower bound; 0 uses singular values alone. By default 3, or 1 "
        "for sparse data.",
        _NONE_OR_MORE,
    )
    uniqueness: bool = option(
        "Search for other components with nearly the same error; takes as long as the fit.", bool
    )
    displacement: Sequence[float] | None = option(
        "Also write displacement.csv: how far each entry of a component can move until Q has "
        "risen by these numbers, such as 4,25. Each entry takes about a second.",
        _rises,
        metavar="NUMBER,...",
    )
    n_bootstrap: int | None = option(
        "With --uncertainty: fit resampled samples so many times, and write bootstrap.csv: in how "
        "many runs each component was found, with limits.",
        IntRange(2),
        flags="--bootstrap",
        metavar="NUMBER",
    )
    data: str = option("The data of the fit; needed if fit wrote no report.", default="")
    image_shape: Shape | None = option(
        "Features are the pixels of images of this shape.", _shape, metavar="ROWSxCOLUMNS"
    )
    view: str = option("How the report draws components.", Choice(VIEWS))
    classes: str | None = option(
        "Known classes: a column of DATA (of obs in .h5ad), or a text file with one class per "
        "sample. The answer says which components follow them; they colour the report. cells, "
        "stability and signatures also look at the columns of obs if none is named.",
        metavar="COLUMN|FILE",
    )
    groups: str | None = option(
        "Groups of samples that belong together, such as donors, given like --classes. A fit of "
        "least squares or counts gives each group its own scales of features; a verdict compares "
        "groups, and says which components follow them.",
        metavar="COLUMN|FILE",
    )
    title: str | None = option("Heading of the report; by default the name of the file.")
    force: bool = option("Write to a folder even if it holds other files.", bool)
    n_threads: int | None = option(
        "Number of threads; by default one per core.", _ONE_OR_MORE, flags="--threads"
    )
    max_memory: str | None = option("Memory for data and results, such as 2GB.")
    quiet: bool = option("Show no progress.", bool, flags="-q --quiet")
    as_json: bool = option("Print one JSON object instead of text.", bool, flags="--json")
    debug: bool = option("Show tracebacks.", bool)


_GROUPS = {
    "Common options": _Common,
    "Reading": _Reading,
    "Preparing": _Preparing,
    "Known parts": _Known,
    "Solving and stopping": _Solving,
    "Output and resources": _Output,
}
OPTIONS = {one.name: one.metadata for group in _GROUPS.values() for one in fields(group)}


@dataclass
class Options(_Common, _Reading, _Preparing, _Known, _Solving, _Output):
    """The values of all options; those that a command does not have keep their defaults."""


# --- sets of options --------------------------------------------------------------------------

OPENING = ("samples_in", "header", "names_column", "drop", "text_column", "triples", "negative")
READING = ("dataset", *OPENING, "feature_names", "sample_names", "pixels_shape")
ENTRIES = ("missing", "mask", "weights", "sigma", "weak", "bad", "total")
AS_BEFORE = ("dataset", *OPENING, *ENTRIES, "sample_weight")
WORDS = ("stop_words", "min_df", "max_df", "max_words")
PREPARING = ("normalize_total", "log1p", "tfidf", "normalize")
TERMS = ("alpha_W", "alpha_H", "l1_ratio", "orthogonality", "min_volume", "sum_to_one")
STOPPING = ("max_iter", "tol", "max_time")
LABELS = ("classes", "groups")
VIEWING = ("image_shape", "view", "title")
OUTPUT = ("output", "force")
RUNNING = ("n_threads", "max_memory", "seed")
PRINTING = ("quiet", "as_json", "debug")

# --- parameters for click ---------------------------------------------------------------------

AnyFunction = Callable[..., Any]
_FUNCTIONS: tuple[AnyFunction, ...] = (
    open_data,
    prepare,
    Words,
    Penalties.as_in_sklearn,
    render,
    Factorization.diagnose,
)


def default(name: str, function: AnyFunction = open_data) -> Any:
    """Return the default of an option: its own, or that of the first function that takes it."""
    attributes = OPTIONS[name]
    if "default" in attributes:
        return attributes["default"]
    for one in (function, *_FUNCTIONS):
        parameter = signature(one).parameters.get(name)
        if parameter is not None and parameter.default is not parameter.empty:
            return parameter.default
    return False if attributes["type"] is bool else None


def parameter(name: str, function: AnyFunction, changes: Facts) -> click.Option:
    """Return an option of a command, with the defaults of the function that it calls."""
    attributes: Facts = {"default": default(name, function), **OPTIONS[name], **changes}
    flags = attributes.pop("flags", f"--{name.lower().replace('_', '-')}")
    if attributes["type"] is bool:
        attributes |= {"is_flag": True, "type": None}
    attributes["show_default"] = attributes["default"] not in (None, False, (), "")
    if "required" in attributes:
        del attributes["default"]  # click would treat None as a value
    return click.Option([*flags.split(), name], **attributes)


def group_of(name: str | None) -> str:
    """Return the title of the group of an option; other options, such as --help, come last."""
    for title, group in _GROUPS.items():
        if name in group.__annotations__:
            return title
    return title
