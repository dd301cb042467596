"""What can be wrong with an input, by name.

Every error says what was wrong, where, and what to do. All derive from `ConeNMFError`; each
also derives from the built-in exception that scikit-learn's users expect.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from numbers import Integral
from typing import NamedTuple

__all__ = [
    "CheckpointError",
    "ClusterError",
    "ComponentsError",
    "ConeNMFError",
    "DataChangedError",
    "DataTypeError",
    "DatasetError",
    "DatasetMissingError",
    "DiskFullError",
    "EmptyDataError",
    "FactorError",
    "FileFormatError",
    "Message",
    "NegativeValueError",
    "NonFiniteError",
    "NotADataMatrixError",
    "NotAvailableError",
    "Option",
    "OptionError",
    "OutputError",
    "ReadError",
    "ScaleError",
    "ShapeError",
    "ZeroDataError",
    "check_components",
    "is_disk_full",
]


class Option(NamedTuple):
    """An option that a message names: each door writes it in its own way.

    >>> print(Option("negative", "clip"), Option("max_memory"))
    negative='clip' max_memory
    """

    name: str
    value: object = ...  # none is named

    def __str__(self) -> str:
        return self.name if self.value is ... else f"{self.name}={self.value!r}"


class Message(str):
    """The text of an error, joined from parts, some of which are options.

    >>> Message("add ", Option("negative", "clip")).parts
    ('add ', Option(name='negative', value='clip'))
    """

    parts: tuple[object, ...]

    def __new__(cls, *parts: object) -> Message:
        """Join the parts as Python writes them."""
        message = super().__new__(cls, "".join(map(str, parts)))
        message.parts = parts
        return message


class ConeNMFError(Exception):
    """Base of every error this library raises on purpose."""


class DataTypeError(ConeNMFError, TypeError, ValueError):
    """The data are not real numbers: strings, objects, complex numbers."""


class NotADataMatrixError(ConeNMFError, TypeError):
    """A core function was given a bare array, whose layout it cannot know."""


class ShapeError(ConeNMFError, ValueError):
    """The data are not a matrix, or do not have the expected number of rows or columns."""


class EmptyDataError(ShapeError):
    """The matrix has no samples or no features."""


class NonFiniteError(ConeNMFError, ValueError):
    """The matrix holds NaN or infinity."""


class NegativeValueError(ConeNMFError, ValueError):
    """The matrix holds a negative entry."""


class ZeroDataError(ConeNMFError, ValueError):
    """Every entry of the matrix is zero."""


class ScaleError(ConeNMFError, ValueError):
    """The entries are so large or so small that their squares leave the number format."""


class ComponentsError(ConeNMFError, ValueError):
    """The number of components is below one or above what the data allow."""


class FactorError(ConeNMFError, ValueError):
    """A factor given by the user has the wrong shape, sign or values."""


class FileFormatError(ConeNMFError, ValueError):
    """A file does not hold what its name or its header promises."""


class DatasetError(ConeNMFError, OSError):
    """A dataset could not be fetched, or what came is not that dataset."""


class DatasetMissingError(DatasetError, FileNotFoundError):
    """A dataset is not on this machine; the message says where to get it and where to put it."""


class ReadError(ConeNMFError, OSError):
    """A part of the data could not be read: a damaged file, an unreadable chunk."""


class DataChangedError(ReadError):
    """The data were changed while they were being read."""


class DiskFullError(ConeNMFError, OSError):
    """There was no room to write a file; earlier files are untouched."""


class OutputError(ConeNMFError, OSError):
    """A result cannot be written to the place that was named."""


class CheckpointError(ConeNMFError, ValueError):
    """A checkpoint is damaged, or belongs to other data or other settings."""


class ClusterError(ConeNMFError, RuntimeError):
    """The cluster was lost, or gave up on a task."""


class OptionError(ConeNMFError, ValueError):
    """An option has a value that is not among the valid ones."""

    @classmethod
    def unknown(cls, option: str, value: object, valid: Iterable[str]) -> OptionError:
        """Name the option, the value that was given and all that could have been."""
        choices = ", ".join(map(repr, valid))
        return cls(Message(Option(option, value), f" is unknown; choose one of {choices}"))


class NotAvailableError(OptionError, AttributeError):
    """A method does not exist with these options; `hasattr` says so too."""


def is_disk_full(problem: OSError) -> bool:
    """Whether an error of the system means that a file could not grow."""
    return problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def check_components(K: object) -> int:
    """Return K as an int, or say why it is not a number of components."""
    if isinstance(K, bool) or not isinstance(K, Integral):
        raise ComponentsError(f"the number of components is {K!r}, expected an integer or 'auto'")
    if K < 1:
        raise ComponentsError(f"the number of components is {K}, expected at least 1")
    return int(K)
