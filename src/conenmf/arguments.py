"""Checks of arguments: every public function checks what it was given with these, at its head.

Each takes the name of an argument and its value, and returns the value in the type that the
function computes with, or raises a named error that says the name, the value, shortened, and what
was expected: ``tol=-1, expected a number of at least 0``. A check never calls a method of an object
of unknown type without being prepared for any error. What depends on the data is checked in
`data.validate`.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Collection
from itertools import islice
from numbers import Integral, Real
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from .errors import (
    ComponentsError,
    ConeNMFError,
    DataError,
    DataTypeError,
    Message,
    Option,
    OptionError,
)
from .text import shown

__all__ = [
    "array",
    "choice",
    "choices",
    "classes",
    "components",
    "factor",
    "flag",
    "function",
    "generator",
    "indices",
    "instance",
    "integer",
    "number",
    "optional",
    "path",
    "rows_and_columns",
    "seeded",
    "several",
    "text",
]

Array: TypeAlias = npt.NDArray[Any]
T = TypeVar("T")
P = ParamSpec("P")

_MAX_PATH_CHARS = 1 << 15  # more than any operating system takes
_MAX_SEVERAL = 10**6  # names or numbers that are taken from an iterable, which may be endless


def _refused(
    name: str, value: object, expected: str, error: type[ConeNMFError] = OptionError
) -> ConeNMFError:
    return error(Message(Option(name, value), f", expected {expected}"))


def optional(
    check: Callable[Concatenate[str, Any, P], T],
    name: str,
    value: Any,
    *args: P.args,
    **limits: P.kwargs,
) -> T | None:
    """Check a value that may be None.

    >>> optional(integer, "k_max", None, at_least=1), optional(integer, "k_max", 3, at_least=1)
    (None, 3)
    """
    if value is None:
        return None
    try:
        return check(name, value, *args, **limits)
    except (OptionError, DataError) as problem:
        parts = getattr(problem.args[0], "parts", problem.args[:1])
        raise type(problem)(Message(*parts, ", or None")) from None


# --- numbers ----------------------------------------------------------------------------------


def integer(
    name: str, value: Any, *, at_least: int | None = None, at_most: int | None = None
) -> int:
    """Return an integer of 64 bits within limits; a bool is none.

    >>> integer("runs", np.int64(4), at_least=1)
    4
    """
    whole = _whole(value)
    if whole is None or not _within(whole, at_least, at_most):
        raise _refused(name, value, f"an integer{_limits(at_least, at_most)}")
    if abs(whole) >= 1 << 63:
        raise _refused(name, value, "an integer of 64 bits")
    return whole


def components(K: Any, *, auto: bool = False) -> int:
    """Return a number of components; what the data allow is checked elsewhere."""
    whole = _whole(K)
    if whole is not None and whole >= 1:
        return whole
    what = "an integer of at least 1" + " or 'auto'" * auto
    raise ComponentsError(f"the number of components is {shown(K)}, expected {what}")


def _whole(value: Any) -> int | None:
    """The value as an int, None if it is no integer."""
    if type(value) is int:  # by far the most frequent, and `Integral` is slow to ask
        return value
    return int(value) if type(value) is not bool and isinstance(value, Integral) else None


def number(
    name: str,
    value: Any,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    or_infinite: bool = False,
    what: str = "a number",
) -> float:
    """Return a real number within limits as a float; NaN is never one, infinity only if asked for.

    >>> number("tol", 1, at_least=0), number("max_time", float("inf"), or_infinite=True)
    (1.0, inf)
    """
    if type(value) is float or (type(value) is not bool and isinstance(value, Real)):
        try:
            real = float(value)
        except OverflowError:
            real = math.nan
        if (math.isfinite(real) or (or_infinite and not math.isnan(real))) and _within(
            real, at_least, at_most, above, below
        ):
            return real
    raise _refused(name, value, what + _limits(at_least, at_most, above, below))


def _within(
    value: float,
    at_least: float | None,
    at_most: float | None,
    above: float | None = None,
    below: float | None = None,
) -> bool:
    return (
        (at_least is None or value >= at_least)
        and (at_most is None or value <= at_most)
        and (above is None or value > above)
        and (below is None or value < below)
    )


def _limits(
    at_least: float | None,
    at_most: float | None,
    above: float | None = None,
    below: float | None = None,
) -> str:
    """The limits in words: " of at least 1"."""
    words = [
        f"{word} {limit:.6g}" if isinstance(limit, float) else f"{word} {limit}"
        for word, limit in (
            ("of at least", at_least),
            ("above", above),
            ("of at most", at_most),
            ("below", below),
        )
        if limit is not None
    ]
    return "".join(
        f" {phrase}" if place == 0 else f" and {phrase.removeprefix('of ')}"
        for place, phrase in enumerate(words)
    )


# --- words, switches, functions, objects ------------------------------------------------------


def choice(name: str, value: Any, valid: Collection[str]) -> str:
    """Return one of the valid words.

    >>> choice("method", "exact", ("exact", "plain"))
    'exact'
    """
    if isinstance(value, str) and value in valid:
        return str(value)
    raise OptionError.unknown(name, value, valid)


def choices(name: str, values: Any, valid: Collection[str]) -> tuple[str, ...]:
    """Return several of the valid words; a single one counts as a list of one."""
    words = (values,) if isinstance(values, str) else several(name, values)
    return tuple(choice(name, word, valid) for word in words)


def several(name: str, values: Any, what: str = "a list") -> list[Any]:
    """Return the elements of an iterable that is no text."""
    try:
        if isinstance(values, str | bytes):
            raise TypeError
        elements = list(islice(values, _MAX_SEVERAL + 1))
        if len(elements) > _MAX_SEVERAL:
            raise TypeError
    except Exception:  # an iterable of the caller's own may raise anything
        raise _refused(name, values, what) from None
    return elements


def text(name: str, value: Any, *, what: str = "a text") -> str:
    """Return a string."""
    if isinstance(value, str):
        return str(value)
    raise _refused(name, value, what)


def flag(name: str, value: Any) -> bool:
    """Return True or False; a number or a text is neither."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise _refused(name, value, "True or False")


def function(name: str, value: Any, *, takes: int | None = None, what: str = "a function") -> Any:
    """Return a function that can be called with so many arguments; a class is none.

    >>> function("callback", print, takes=1) is print
    True
    """
    if callable(value) and not isinstance(value, type) and _takes(value, takes):
        return value
    of = f" of {takes} argument{'s' * (takes > 1)}" if takes else ""
    raise _refused(name, value, what + of)


def _takes(value: Callable[..., Any], count: int | None) -> bool:
    if count is None:
        return True
    try:
        signature = inspect.signature(value)
    except Exception:  # builtins may have none, and the caller's own objects may raise anything
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def generator(name: str, value: Any) -> np.random.Generator:
    """Return a generator of random numbers; a seed is none."""
    if isinstance(value, np.random.Generator):
        return value
    raise _refused(name, value, "a numpy.random.Generator, such as numpy.random.default_rng(0)")


def seeded(name: str, value: Any) -> np.random.Generator:
    """Return a generator from a seed, a generator or None."""
    if value is None or isinstance(value, np.random.Generator):
        return np.random.default_rng(value)
    seed = _whole(value)
    if seed is not None and seed >= 0:
        return np.random.default_rng(seed)
    raise _refused(name, value, "a seed of at least 0, a numpy.random.Generator, or None")


def instance(name: str, value: Any, kind: type[T], source: str = "") -> T:
    """Return an object of one of our own classes; `source` says where to get one."""
    if isinstance(value, kind):
        return value
    article = "an" if kind.__name__[0] in "AEIO" else "a"
    raise _refused(name, value, f"{article} {kind.__name__}{source and f', from {source}'}")


def path(name: str, value: Any) -> str:
    """Return the path of a file or folder as a text."""
    try:
        place = os.fspath(value)
    except Exception:  # a path of the caller's own may raise anything
        place = None
    if isinstance(place, str) and place and "\0" not in place and len(place) < _MAX_PATH_CHARS:
        return str(place)
    raise _refused(name, value, "the path of a file or folder")


# --- arrays -----------------------------------------------------------------------------------


def array(
    name: str,
    value: Any,
    shape: tuple[int | str, ...],
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    or_one: bool = False,
    error: type[ConeNMFError] = OptionError,
) -> Array:
    """Return an array of finite numbers within limits, of a shape in which letters are free.

    With `or_one`, a single number counts as a vector of one.

    >>> array("W", [[1, 2], [3, 4]], (2, "K"), at_least=0)
    array([[1, 2],
           [3, 4]])
    """
    numbers = _numbers(name, value, shape, error)
    if or_one and numbers.ndim == 0:
        numbers = numbers[None]
    own = numbers.shape
    fixed = [(side, one) for side, one in zip(shape, own, strict=False) if isinstance(side, int)]
    if len(own) != len(shape) or 0 in own or any(side != one for side, one in fixed):
        raise error(Message(Option(name), f" has shape {own}, expected {_written(shape)}"))
    wrong = ~np.isfinite(numbers)
    for limit, beyond in ((at_least, np.less), (above, np.less_equal), (at_most, np.greater)):
        if limit is not None:
            wrong |= beyond(numbers, limit)
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0].tolist())
        what = f"finite numbers{_limits(at_least, at_most, above)}"
        problem = f" is {numbers[place]} at {_written(place)}, expected {what}"
        raise error(Message(Option(name), problem))
    return numbers


def factor(name: str, value: Any, shape: tuple[int | str, ...]) -> Array:
    """Return a factor: finite, nonnegative numbers."""
    return array(name, value, shape, at_least=0, error=DataError)


def indices(name: str, value: Any, count: int) -> Array:
    """Return a vector of indices, each from 0 to count - 1."""
    numbers = _numbers(name, value, ("n",), OptionError)
    if numbers.size == 0 and numbers.ndim == 1:
        return np.empty(0, dtype=np.intp)
    is_list = numbers.ndim == 1 and numbers.dtype.kind in "iu"
    if not is_list or not 0 <= numbers.min() <= numbers.max() < count:
        raise _refused(name, value, f"a list of indices from 0 to {count - 1}")
    return numbers.astype(np.intp, copy=False)


def classes(name: str, value: Any) -> Array:
    """Return the classes of samples, of any type that has an order, by their numbers.

    >>> classes("labels", ["oak", "elm", "oak"])
    array([1, 0, 1])
    """
    try:
        labels = np.asarray(value)
        is_complete = not np.ma.is_masked(value) and bool((labels == labels).all())  # no NaN
        if labels.ndim == 1 and labels.size and is_complete:
            return np.unique(labels, return_inverse=True)[1]
    except Exception:  # classes that cannot be compared, or an object of the caller's own
        pass
    raise _refused(name, value, "a list of classes, one for each sample", DataError)


def rows_and_columns(name: str, value: Any) -> tuple[int, int]:
    """Return the shape of an image."""
    pair = several(name, value, what := "a pair of integers, rows and columns")
    sides = [whole for side in pair if (whole := _whole(side) or 0) > 0]
    if len(pair) != 2 or len(sides) != 2:
        raise _refused(name, value, what)
    return sides[0], sides[1]


def _numbers(
    name: str, value: Any, shape: tuple[int | str, ...], error: type[ConeNMFError]
) -> Array:
    """An array of real numbers, without masked ones."""
    try:
        is_masked, numbers = np.ma.is_masked(value), np.asarray(value)
    except Exception:  # rows that differ in length, or an object of the caller's own
        is_masked, numbers = False, np.empty((), dtype=object)
    if is_masked:
        raise DataTypeError(Message(Option(name), ": some entries are masked; fill them first"))
    if numbers.dtype.kind not in "fiub":
        raise _refused(name, value, f"an array of numbers of shape {_written(shape)}", error)
    return numbers


def _written(shape: tuple[int | str, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
