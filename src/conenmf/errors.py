"""The errors and warnings of this library, and the parts of their messages.

Every error says what is wrong, where, and what to do. All derive from `ConeNMFError`; each also
derives from the built-in exception that users of scikit-learn expect.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from .text import shown


class Option(NamedTuple):
    """An option that a message names; Python and the command line write it differently.

    >>> print(Option("negative", "clip"), Option("max_memory"))
    negative='clip' max_memory
    """

    name: str
    value: object = ...  # ... means that no value is named

    def __str__(self) -> str:
        return self.name if self.value is ... else f"{self.name}={shown(self.value)}"

    def plain(self) -> Option:
        """Return the option with a value that can be pickled, converted to text if necessary."""
        if self.value is ... or isinstance(self.value, bool | int | float | str | None):
            return self
        return self._replace(value=shown(self.value))


class Message(str):
    """The text of an error, joined from parts, some of which are options.

    Options keep plain values only, so that every error can be pickled and does not refer to data.

    >>> Message("add ", Option("negative", "clip")).parts
    ('add ', Option(name='negative', value='clip'))
    """

    parts: tuple[object, ...]

    def __new__(cls, *parts: object) -> Message:
        """Join the parts in Python's notation."""
        if len(parts) == 1 and isinstance(parts[0], Message):
            return parts[0]
        plain = [part.plain() if isinstance(part, Option) else part for part in parts]
        message = super().__new__(cls, "".join(map(str, plain)))
        message.parts = tuple(plain)
        return message


class ConeNMFError(Exception):
    """Base of all errors that this library raises on purpose; takes the parts of its message."""

    def __init__(self, *parts: object) -> None:
        super().__init__(Message(*parts))


class DataError(ConeNMFError, ValueError):
    """The data cannot be used: NaN, negative or zero entries, a wrong shape or scale."""


class DataTypeError(DataError, TypeError):
    """The data have the wrong type: strings, objects, complex or masked numbers, a bare array."""


class OptionError(ConeNMFError, ValueError):
    """An option has an invalid value, or cannot be combined with the other options."""

    @classmethod
    def unknown(cls, option: str, value: object, valid: Iterable[str]) -> OptionError:
        """Make the error for an unknown value; it lists the valid ones."""
        choices = ", ".join(map(repr, valid))
        advice = f"choose one of {choices}" if choices else "there is none: leave it out"
        return cls(Option(option, value), f" is unknown; {advice}")


class ParameterError(OptionError, TypeError):
    """A parameter has another name here."""


class ComponentsError(ConeNMFError, ValueError):
    """The number of components is not an integer, is below 1, or exceeds what the data allow."""


class NotAvailableError(OptionError, AttributeError):
    """Not available with these settings; an AttributeError, so `hasattr` returns False."""


class NotFiniteError(ConeNMFError, ArithmeticError):
    """A computation ended in NaN or infinity, so there is no result."""


class FileFormatError(ConeNMFError, ValueError):
    """A file is damaged, or its content does not match its name or header."""


class ReadError(ConeNMFError, OSError):
    """Data could not be read: an unreadable chunk, a lost cluster, or a missing dataset."""


class DataChangedError(ReadError):
    """The data changed while they were in use."""


class OutOfMemoryError(MemoryError, ConeNMFError):  # can be pickled only in this order
    """There is not enough memory; the message says for what and how to reduce it."""


class OutputError(ConeNMFError, OSError):
    """A file or folder cannot be written; the disk may be full."""


class CheckpointError(ConeNMFError, ValueError):
    """A checkpoint is damaged, in use, of other data or settings, or its folder is not usable."""


class InputWarning(UserWarning):
    """Data may have been misread; the message says how they were read and what to do."""


@contextmanager
def name_out_of_memory(what: str, *advice: object) -> Iterator[None]:
    """Raise an error that names what needs the memory, instead of a bare MemoryError.

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


def is_disk_full(problem: BaseException | None) -> bool:
    """Return whether an error, or its cause, means that the disk is full."""
    if not isinstance(problem, OSError):
        return False
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    is_short = "requested and" in str(problem)  # NumPy's message for an incomplete write
    return problem.errno in full or is_short or is_disk_full(problem.__cause__)
