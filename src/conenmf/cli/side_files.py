"""Files beside the data: masks, weights, known components, and the classes of samples.

Matrices are of any kind that `open_data` reads. Classes are in a text, or in a column of the data
that is no feature; the scores of `compare` and the colours of reports need them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.blocks import Array, Block, dense, exact
from ..data.known import weigh_samples
from ..data.matrix import DataMatrix, PerSample
from ..data.resources import memory_budget
from ..data.validate import SamplesIn
from ..errors import ConeNMFError, DataError, FileFormatError, Message, Option, OptionError
from ..io.hdf5 import read_annotation, read_coordinates
from ..io.limits import named_damage
from ..io.open import open_data
from ..io.source import Reading
from ..io.text import TABLE_SUFFIXES, open_text_column, open_texts
from ..judge.scores import matched_rows
from ..names import Names, in_order
from ..solve.constraints import FIXED_TABLE, Fixed
from ..solve.losses import get_loss
from ..text import Facts, Texts, visible

if TYPE_CHECKING:
    from .options import Request

_MAX_CHARS = 1000  # of a text, which the report shows the beginning of


# --- matrices ---------------------------------------------------------------------------------


def read_entries(request: Request) -> Facts:
    """Read masks, weights and uncertainties, as tables in the orientation of the data."""
    import pandas as pd

    entries = {}
    for option, path in request.chosen(("mask", "weights", "sigma")).items():
        M = _opened(request, option, path, samples_in=request.samples_in)
        rows = M.sweep(_rows)[0]
        table = pd.DataFrame(rows, M.names.sample_names, M.names.feature_names)
        if M.observed is not None:
            table = table.where(np.asarray(M.observed.weights) > 0)
        if option == "weights" and M.n_samples == 1:  # of features
            entries[option] = table.iloc[0]
            continue
        table = table.ne(0) if option == "mask" else table
        entries[option] = table if request.samples_in == "rows" else table.T
    return entries


def read_fixed(request: Request, V: DataMatrix) -> Fixed | None:
    """Read components, a row each, in the order of the features of V; None without a file."""
    if request.fixed is None:
        return None
    M = _opened(request, "fixed", request.fixed, samples_in="rows")
    return Fixed(_components(M, V, FIXED_TABLE), M.names.sample_names)


def read_reference(request: Request, V: DataMatrix) -> tuple[Array, Texts] | None:
    """Read known components (F, n), in rows or in columns, and their names; None without a file."""
    if request.reference is None:
        return None
    features = V.names.feature_names or ()
    M = _opened(request, "reference", request.reference, samples_in="columns")
    if {*features} & {*(M.names.sample_names or ())}:
        M = _opened(request, "reference", request.reference, samples_in="rows")
    names = tuple(M.names.sample(n) for n in range(M.n_samples))
    return _components(M, V, "--reference"), names


def _components(M: DataMatrix, V: DataMatrix, owner: str) -> Array:
    """The columns of M, with features in the order of those of V."""
    W = exact(dense(M.columns(np.arange(M.n_samples))))
    return matched_rows(W, M.names, V, owner)


def with_sample_weights(request: Request, V: DataMatrix, loss: str) -> DataMatrix:
    """Return V, or a view with the weights of samples that a file holds."""
    path = request.sample_weight
    if path is None:
        return V
    read = np.load if path.endswith(".npy") else np.loadtxt
    with named_damage(path):  # np.loadtxt names the line
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


def drop_class_column(request: Request) -> None:
    """Do not read a column of classes as a feature."""
    given = request.classes
    is_column = given is not None and not Path(given).is_file()
    if is_column and request.data and request.path.suffix.lower() in TABLE_SUFFIXES:
        request.drop = (*request.drop, given)


def about_samples(request: Request, N: int, names: Names) -> Facts:
    """What the report shows of the N samples: classes, places of UMAP, and texts."""
    budget = memory_budget(request.max_memory)
    about: Facts = {}
    if request.classes is not None:
        about["classes"] = _classes(request, N, names, budget)
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


def _classes(request: Request, N: int, names: Names, budget: int) -> Array:
    """The class of each sample, from a file or from a column of the data."""
    given = request.classes
    if Path(given).is_file():
        return read_labels(given, N, names)
    suffix = request.path.suffix.lower() if request.data else ""
    if suffix == ".h5ad":
        return np.array(read_annotation(request.path, given))
    if suffix in TABLE_SUFFIXES:
        return np.array(_column(request, given, budget))
    raise OptionError(
        f"--classes {visible(given)} is not a file: name one, or a column of DATA, if that is "
        "a .csv, .tsv or .h5ad file"
    )


def read_labels(path: str, N: int, names: Names) -> Array:
    """Read one class for each sample: in the order of the samples, or by their names.

    The last column has the classes, the first one the names if there are more columns; a header
    may come first.
    """
    import pandas as pd

    try:
        table = pd.read_csv(path, header=None, dtype=str, keep_default_na=False)
    except ValueError as problem:  # among them those of pandas, and bytes that are no text
        raise FileFormatError(f"{path} is not a text file of labels: {problem}") from problem
    if len(table) == N + 1:
        table = table[1:].reset_index(drop=True)  # without the header
    if len(table) != N:
        raise DataError(f"{path} has {len(table)} labels for {N} samples: give one for each")
    classes = table.iloc[:, -1]
    if table.shape[1] > 1:
        classes.index = pd.Index(table[0].map(visible))
    return np.asarray(in_order(names, "labels", classes, "sample"))
