"""Options that say what is known: entries, by masks and weights; components; and penalties.

Masks, weights and components are matrices in files, which `open_data` reads as it reads the data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np

from ..data.blocks import Array, Block, dense, exact
from ..data.known import weigh_samples
from ..data.matrix import DataMatrix
from ..data.resources import memory_budget
from ..errors import ConeNMFError, DataError, FileFormatError, Message, Option
from ..io.open import open_data
from ..io.text import read_names
from ..judge.scores import matched_rows
from ..names import Names
from ..solve.constraints import FIXED_TABLE, Fixed
from ..solve.goals import checked_loss
from ..text import visible

__all__ = [
    "ENTRY_OPTIONS",
    "SAMPLE_WEIGHT_OPTION",
    "TERM_OPTIONS",
    "KnownEntries",
    "read_fixed",
    "weighed",
]

_WORDS = re.compile(rb"(?i)(^|[,;\t| \"])(true|false)(?=[,;\t| \"\r\n]|$)", re.MULTILINE)
_TEXT_SUFFIXES = (".csv", ".tsv", ".txt")

ENTRY_OPTIONS = (
    click.option(
        "--missing",
        type=click.Choice(["raise", "nan", "zeros"]),
        help="Entries that are missing: NaN, or zeros (what a sparse matrix does not store); "
        "by default NaN is an error.",
    ),
    click.option(
        "--mask",
        type=click.Path(),
        metavar="FILE",
        help="A matrix of the shape of DATA: 0 or False where an entry is missing.",
    ),
    click.option(
        "--weights",
        type=click.Path(),
        metavar="FILE",
        help="A matrix of the shape of DATA: how much each entry counts, such as 1 / sigma^2.",
    ),
)
TERM_OPTIONS = (
    click.option(
        "--fixed",
        type=click.Path(),
        metavar="FILE",
        help="Known components, which stay: a row each, features matched by name.",
    ),
    click.option(
        "--alpha-w",
        "alpha_W",
        type=click.FloatRange(0),
        default=0.0,
        show_default=True,
        help="Penalty of the coefficients, as in scikit-learn's NMF.",
    ),
    click.option(
        "--alpha-h",
        "alpha_H",
        type=click.FloatRange(0),
        help="Penalty of the components; by default that of --alpha-w.",
    ),
    click.option(
        "--l1-ratio",
        "l1_ratio",
        type=click.FloatRange(0, 1),
        default=0.0,
        show_default=True,
        help="Share of the penalties that is L1; the rest is L2.",
    ),
    click.option(
        "--orthogonality",
        type=click.FloatRange(0),
        default=0.0,
        show_default=True,
        help="Penalty of samples that use several components.",
    ),
    click.option(
        "--min-volume",
        "min_volume",
        type=click.FloatRange(0),
        default=0.0,
        show_default=True,
        help="Penalty of components that are far from each other.",
    ),
    click.option(
        "--sum-to-one",
        "sum_to_one",
        is_flag=True,
        help="The coefficients of a sample sum to one, as abundances do.",
    ),
)
SAMPLE_WEIGHT_OPTION = click.option(
    "--sample-weight",
    "sample_weight",
    type=click.Path(),
    metavar="FILE",
    help="How often each sample counts: a text with a number per line, or a .npy vector.",
)


@dataclass(frozen=True)
class KnownEntries:
    """What files say about the entries of the data.

    Attributes
    ----------
    arrays : dict
        The mask and the weights that were given, in the orientation of the data.
    names : dict
        The names that their files have.
    """

    arrays: dict[str, Any] = field(default_factory=dict)
    names: dict[str, Names] = field(default_factory=dict)

    @classmethod
    def read(cls, files: Mapping[str, str | None], samples_in: str, **reading: Any) -> KnownEntries:
        """Read the files of options, by their names; `reading` is for `open_data`."""
        known = cls()
        for name, path in files.items():
            if path is not None:
                with TemporaryDirectory() as folder:
                    numbers = _in_numbers(path, folder) if name == "mask" else path
                    M = _opened(name, numbers, samples_in=samples_in, **reading)
                    step = _is_known if name == "mask" else _numbers
                    rows: Any = M.sweep(step)[0]
                known.arrays[name] = rows if samples_in == "rows" else rows.T
                known.names[name] = M.names
                if name == "weights" and M.shape[1] == 1:
                    known.arrays[name] = rows[0]  # of features
                    known.names[name] = replace(M.names, sample_names=None)
        return known

    def check_names(self, V: DataMatrix) -> None:
        """Refuse a file whose samples or features have names, but not those of the data."""
        for option, names in self.names.items():
            for what in ("sample_names", "feature_names"):
                own, others = getattr(names, what), getattr(V.names, what)
                if own is not None and others is not None and own != others:
                    side = what.replace("_", " ")
                    problem = f" has other {side} than the data, or in another order: "
                    raise DataError(Message(Option(option), problem, "write it as the data are"))


def read_fixed(path: str | None, V: DataMatrix, **reading: Any) -> Fixed | None:
    """Read components, a row each, in the order of the features of V; None without a file."""
    if path is None:
        return None
    M = _opened("fixed", path, samples_in="rows", **reading)
    W = exact(dense(M.columns(np.arange(M.shape[1]))))
    return Fixed(matched_rows(W, M.names, V, FIXED_TABLE), M.names.sample_names)


def weighed(V: DataMatrix, path: str | None, loss: str, max_memory: str | None) -> DataMatrix:
    """Return V, or a view with the weights of samples that a file holds."""
    if path is None:
        return V
    if path.endswith(".npy"):
        try:
            weights = np.load(path, allow_pickle=False)
        except ValueError:
            message = Message(Option("sample_weight", path), ": no vector of numbers in .npy form")
            raise FileFormatError(message) from None
        return weigh_samples(V, np.ravel(weights), checked_loss(loss))
    lines = read_names(path, memory_budget(max_memory))
    try:
        numbers = [float(line) for line in lines]
    except ValueError:
        number = next(n for n, line in enumerate(lines, 1) if not _is_number(line))
        problem = f": line {number} is {visible(lines[number - 1])!r}, expected a number"
        raise FileFormatError(Message(Option("sample_weight", path), problem)) from None
    if len(numbers) != V.shape[1]:
        problem = f" has {len(numbers)} lines for {V.shape[1]} samples: give one number for each"
        raise DataError(Message(Option("sample_weight", path), problem))
    return weigh_samples(V, numbers, checked_loss(loss))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _in_numbers(path: str, folder: str) -> str:
    """Return the path of a text, or of a copy in the folder with 1 and 0 for True and False."""
    source = Path(path)
    if source.suffix.lower() not in _TEXT_SUFFIXES or not source.is_file():
        return path
    text = source.read_bytes()
    numbers = _WORDS.sub(lambda found: found[1] + (b"0" if found[2][0] in b"fF" else b"1"), text)
    if numbers == text:
        return path
    copy = Path(folder) / source.name
    copy.write_bytes(numbers)
    return str(copy)


def _opened(option: str, path: str, **reading: Any) -> DataMatrix:
    """Open the matrix of an option, in whose name its errors speak."""
    try:
        M = open_data(path, negative="keep", missing="nan", **reading)
    except ConeNMFError as problem:
        message = problem.args[0]
        parts = message.parts if isinstance(message, Message) else (message,)
        raise type(problem)(Message(Option(option), ": ", *parts)) from problem
    if M.observed is not None:
        share = f"{M.observed.missing:.2g} of its entries are NaN: expected numbers"
        raise DataError(Message(Option(option, path), ": ", share))
    return M


def _is_known(block: Block) -> tuple[Array, None]:
    return np.ascontiguousarray(dense(block).T != 0), None


def _numbers(block: Block) -> tuple[Array, None]:
    return np.ascontiguousarray(dense(block).T), None
