"""The errors and warnings of this library, and what their messages are made of.

Every error says what is wrong, where, and what to do. All derive from `ConeNMFError`; each also
derives from the built-in exception that users of scikit-learn expect.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from .text import Shown, shown

__all__ = [
    "CheckpointError",
    "CheckpointWarning",
    "ClusterError",
    "ColumnWarning",
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
    "HeaderWarning",
    "InputWarning",
    "MaskedDataError",
    "Message",
    "NegativeValueError",
    "NonFiniteError",
    "NotADataMatrixError",
    "NotAvailableError",
    "Option",
    "OptionError",
    "OutOfMemoryError",
    "OutputError",
    "ReadError",
    "ScaleError",
    "ShapeError",
    "ShapeWarning",
    "UnseenFeaturesError",
    "UnseenFeaturesWarning",
    "ZeroDataError",
    "is_disk_full",
    "name_out_of_memory",
]


class Option(NamedTuple):
    """An option that a message names; Python and the command line write it differently.

    >>> print(Option("negative", "clip"), Option("max_memory"))
    negative='clip' max_memory
    """

    name: str
    value: object = ...  # none is named

    def __str__(self) -> str:
        return self.name if self.value is ... else f"{self.name}={shown(self.value)}"

    def plain(self) -> Option:
        """Return the option with a value that is short and can be pickled: a text if need be."""
        value = self.value
        if value is ... or type(value) in (bool, float, type(None), Shown):
            return self
        if (type(value) is int and abs(value) < 2**63) or (type(value) is str and len(value) < 60):
            return self
        return self._replace(value=shown(value))


class Message(str):
    """The text of an error, joined from parts, some of which are options.

    Options keep plain values only, so that every error can be pickled and holds on to no data.

    >>> Message("add ", Option("negative", "clip")).parts
    ('add ', Option(name='negative', value='clip'))
    """

    parts: tuple[object, ...]

    def __new__(cls, *parts: object) -> Message:
        """Join the parts as Python writes them."""
        parts = tuple(part.plain() if isinstance(part, Option) else part for part in parts)
        message = super().__new__(cls, "".join(map(str, parts)))
        message.parts = parts
        return message


class ConeNMFError(Exception):
    """Base of all errors that this library raises on purpose."""


class DataTypeError(ConeNMFError, TypeError, ValueError):
    """The data are not real numbers: strings, objects, complex numbers."""


class MaskedDataError(DataTypeError):
    """Some entries of the data are masked, and no value is known for them."""


class NotADataMatrixError(ConeNMFError, TypeError):
    """A function got a bare array, which does not say whether samples are rows or columns."""


class ShapeError(ConeNMFError, ValueError):
    """Something has the wrong shape: data, labels, names, or parts that belong together."""


class EmptyDataError(ShapeError):
    """The matrix has no samples or no features."""


class NonFiniteError(ConeNMFError, ValueError):
    """The matrix holds NaN or infinity."""


class NegativeValueError(ConeNMFError, ValueError):
    """The matrix holds a negative entry."""


class UnseenFeaturesError(ConeNMFError, ValueError):
    """Samples have counts of features that no component has."""


class ZeroDataError(ConeNMFError, ValueError):
    """Every entry of the matrix is zero."""


class ScaleError(ConeNMFError, ValueError):
    """The entries are so large or so small that their squares overflow or underflow."""


class ComponentsError(ConeNMFError, ValueError):
    """The number of components is not an integer, is below 1, or exceeds what the data allow."""


class FactorError(ConeNMFError, ValueError):
    """A factor, from the user or from a solver, has the wrong shape, sign or values."""


class FileFormatError(ConeNMFError, ValueError):
    """A file is damaged, or does not hold what its name or its header claims."""


class DatasetError(ConeNMFError, OSError):
    """A dataset could not be downloaded, or the downloaded file is not the expected one."""


class DatasetMissingError(DatasetError, FileNotFoundError):
    """A dataset is not on this computer; the message says where to get it and where to put it."""


class ReadError(ConeNMFError, OSError):
    """Some of the data could not be read: a damaged file, an unreadable chunk."""


class DataChangedError(ReadError):
    """The data changed while they were in use."""


class DiskFullError(ConeNMFError, OSError):
    """The disk is full, so a file could not be written; the message says what is left."""


class OutOfMemoryError(MemoryError, ConeNMFError):  # in this order it can be pickled
    """There is not enough memory; the message says for what, and what to do."""


class OutputError(ConeNMFError, OSError):
    """A result cannot be written to the file or folder that was named."""


class CheckpointError(ConeNMFError, ValueError):
    """A checkpoint is damaged, in use, of other data or settings, or its folder cannot be used."""


class ClusterError(ConeNMFError, RuntimeError):
    """The connection to the cluster was lost, or a task failed on it."""


class OptionError(ConeNMFError, ValueError):
    """An option has an invalid value, or cannot be combined with the other options."""

    @classmethod
    def unknown(cls, option: str, value: object, valid: Iterable[str]) -> OptionError:
        """Make the error for an unknown value; it lists the valid ones."""
        choices = ", ".join(map(repr, valid))
        advice = f"choose one of {choices}" if choices else "there is none: leave it out"
        return cls(Message(Option(option, value), f" is unknown; {advice}"))


class NotAvailableError(OptionError, AttributeError):
    """Not available with these settings; an AttributeError, so `hasattr` returns False."""


class InputWarning(UserWarning):
    """Data may have been read in another way than they are meant; the message says what to do."""


class HeaderWarning(InputWarning):
    """The first line of a table may be titles or a sample: the evidence leaves a doubt."""


class ColumnWarning(InputWarning):
    """A column that was read as data looks like numbers of rows, identifiers or dates."""


class ShapeWarning(InputWarning):
    """The three axes of a cube may be others than rows, columns and bands."""


class UnseenFeaturesWarning(InputWarning):
    """Counts of features that no component has are left out."""


class CheckpointWarning(UserWarning):
    """A run was resumed from a checkpoint that is beyond the point at which it would have ended."""


@contextmanager
def name_out_of_memory(what: str, *advice: object) -> Iterator[None]:
    """Name what there is not enough memory for, in the place of a bare MemoryError.

    >>> with name_out_of_memory("a matrix", "take fewer samples"):
    ...     raise MemoryError("Unable to allocate 9 GiB")
    Traceback (most recent call last):
    conenmf.errors.OutOfMemoryError: not enough memory for a matrix (Unable to allocate 9 GiB): \
take fewer samples
    """
    try:
        yield
    except ConeNMFError:
        raise
    except MemoryError as problem:
        reason = f" ({problem})" if str(problem) else ""
        raise OutOfMemoryError(
            Message(f"not enough memory for {what}{reason}: ", *advice)
        ) from problem


def is_disk_full(problem: OSError) -> bool:
    """Return whether an error of the operating system means that the disk is full."""
    return problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
