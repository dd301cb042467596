"""Files beside the data: masks, weights, known components, and the classes of samples.

Matrices are of any kind that `open_data` reads. Classes are in a text, or in a column of the data
that is no feature; the scores of `compare` and the colours of reports need them.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.blocks import Array, Block, dense, exact
from ..data.known import weigh_samples
from ..data.matrix import DataMatrix
from ..data.resources import memory_budget
from ..errors import ConeNMFError, DataError, FileFormatError, Message, Option, OptionError
from ..io.hdf5 import read_annotation, read_coordinates
from ..io.open import open_data
from ..io.tables import ColumnChoice
from ..io.text import TABLE_SUFFIXES, open_text_column, open_texts
from ..judge.scores import matched_rows
from ..names import Names
from ..solve.constraints import FIXED_TABLE, Fixed
from ..solve.losses import get_loss
from ..text import visible

if TYPE_CHECKING:
    from .options import Request

_BOOLEANS = re.compile(rb"(?i)(^|[,;\t| \"])(true|false)(?=[,;\t| \"\r\n]|$)", re.MULTILINE)
_MAX_CHARS = 1000  # of a text, which the report shows the beginning of


# --- matrices ---------------------------------------------------------------------------------


def read_entries(request: Request) -> dict[str, Any]:
    """Read the mask and the weights that were given, as tables in the orientation of the data."""
    import pandas as pd

    entries = {}
    for option in ("mask", "weights"):
        path = getattr(request, option)
        if path is not None:
            with TemporaryDirectory() as folder:
                numbers = _in_numbers(Path(path), Path(folder)) if option == "mask" else path
                M = _opened(request, option, numbers, samples_in=request.samples_in)
                rows = M.sweep(_rows)[0]
            table = pd.DataFrame(rows, M.names.sample_names, M.names.feature_names)
            table = table.ne(0) if option == "mask" else table
            entries[option] = table if request.samples_in == "rows" else table.T
            if option == "weights" and M.shape[1] == 1:  # of features
                entries[option] = table.iloc[0]
    return entries


def read_fixed(request: Request, V: DataMatrix) -> Fixed | None:
    """Read components, a row each, in the order of the features of V; None without a file."""
    if request.fixed is None:
        return None
    M = _opened(request, "fixed", request.fixed, samples_in="rows")
    W = exact(dense(M.columns(np.arange(M.shape[1]))))
    return Fixed(matched_rows(W, M.names, V, FIXED_TABLE), M.names.sample_names)


def weighed(request: Request, V: DataMatrix, loss: str) -> DataMatrix:
    """Return V, or a view with the weights of samples that a file holds."""
    path = request.sample_weight
    if path is None:
        return V
    read: Any = np.load if path.endswith(".npy") else np.loadtxt
    try:
        weights = np.ravel(read(path))
    except ValueError as problem:
        wanted = f": expected a number for each sample, one on each line; {problem}"
        raise FileFormatError(Message(Option("sample_weight", path), wanted)) from None
    return weigh_samples(V, weights, get_loss(loss).degree)


def _in_numbers(source: Path, folder: Path) -> Path:
    """Return the path of a text, or of a copy in the folder with 1 and 0 for True and False."""
    if source.suffix.lower() not in (*TABLE_SUFFIXES, ".txt") or not source.is_file():
        return source
    text = source.read_bytes()
    numbers = _BOOLEANS.sub(lambda found: found[1] + b"%d" % (found[2][0] in b"tT"), text)
    if numbers == text:
        return source
    copy = folder / source.name
    copy.write_bytes(numbers)
    return copy


def _opened(request: Request, option: str, path: str | Path, **reading: Any) -> DataMatrix:
    """Open the matrix of an option, in whose name its errors speak."""
    try:
        reading |= request.chosen(("header", "n_threads", "max_memory"))
        M = open_data(path, negative="keep", missing="nan", **reading)
    except ConeNMFError as problem:
        message = problem.args[0]
        parts = message.parts if isinstance(message, Message) else (message,)
        raise type(problem)(Message(Option(option), ": ", *parts)) from problem
    if M.observed is not None:
        share = f"{M.observed.missing:.2g} of its entries are NaN: expected numbers"
        raise DataError(Message(Option(option, str(path)), ": ", share))
    return M


def _rows(block: Block) -> tuple[Array, None]:
    return np.ascontiguousarray(dense(block).T), None


# --- samples ----------------------------------------------------------------------------------


def drop_class_column(request: Request) -> None:
    """Do not read a column of classes as a feature."""
    given = request.classes
    is_column = given is not None and not Path(given).is_file()
    if is_column and request.data and request.path.suffix.lower() in TABLE_SUFFIXES:
        request.drop = (*request.drop, given)


def about_samples(request: Request, N: int, names: Names) -> dict[str, Any]:
    """What the report shows of the N samples: classes, places of UMAP, and texts."""
    budget, places, classes, texts = memory_budget(request.max_memory), None, None, None
    if request.classes is not None:
        classes = _classes(request, N, names, budget)
    if request.data and request.path.suffix.lower() == ".h5ad":
        places = read_coordinates(request.path, "X_umap", budget)
        if places is not None and not (places.shape == (N, 2) and np.isfinite(places).all()):
            places = None
    if request.data and request.text_column is not None:
        texts = _column(request, request.text_column, budget)
    elif request.data and request.path.is_dir() and any(request.path.rglob("*.txt")):
        opened: Any = open_texts(request.path, None, budget).matrix
        texts = list(opened)
    if texts is not None:
        texts = [text[:_MAX_CHARS] for text in texts] if len(texts) == N else None
    return {"classes": classes, "coordinates": places, "texts": texts}


def _column(request: Request, column: str, budget: int) -> list[str]:
    choice = ColumnChoice(request.header)
    opened: Any = open_text_column(request.path, column, budget, choice).matrix
    return list(opened)


def _classes(request: Request, N: int, names: Names, budget: int) -> Array:
    """The class of each sample, from a file or from a column of the data."""
    given = request.classes
    if Path(given).is_file():
        return read_labels(given, N, names)
    suffix = request.path.suffix.lower() if request.data else ""
    if suffix not in (*TABLE_SUFFIXES, ".h5ad"):
        raise OptionError(
            f"--classes {visible(given)} is no file: name one, or a column of DATA, if that is "
            "a .csv, .tsv or .h5ad file"
        )
    if suffix == ".h5ad":
        classes = read_annotation(request.path, given, budget)
    else:
        classes = _column(request, given, budget)
    if len(classes) != N:
        raise DataError(f"{request.path} has {len(classes)} classes for {N} samples")
    return np.array(classes)


def read_labels(path: str, N: int, names: Names) -> Array:
    """Read one class for each sample: in the order of the samples, or by their names.

    The last column has the classes, the first one the names if there are more columns; a header
    may come first.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as stream:
            rows = [row for row in csv.reader(stream) if row]
    except (UnicodeDecodeError, csv.Error) as problem:
        raise FileFormatError(f"{path} is not a text file of labels: {problem}") from problem
    if len(rows) == N + 1:
        rows = rows[1:]  # without the header
    if len(rows) != N:
        raise DataError(f"{path} has {len(rows)} labels for {N} samples: give one for each")
    classes = [row[-1] for row in rows]
    found = tuple(visible(row[0]) for row in rows)
    if names.sample_names is None or len(rows[0]) == 1 or found == names.sample_names:
        return np.array(classes)
    class_of = dict(zip(found, classes, strict=True))
    if len(class_of) < N:
        raise FileFormatError(
            f"{path} has repeated names, and not in the order of the samples: make names unique"
        )
    for name in names.sample_names:
        if name not in class_of:
            raise FileFormatError(f"{path} has no label for the sample {name!r}: add it")
    return np.array([class_of[name] for name in names.sample_names])
