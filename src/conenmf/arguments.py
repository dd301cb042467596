"""Checks of arguments for the public functions and the estimator; inner functions do not check.

Each check takes the name of an argument and its value, and returns the value in the type that the
function computes with, or raises an error that gives the name, the value and what was expected:
``tol=-1, expected a number of at least 0``. Checks that need the data are in `data.validate`.
"""

from __future__ import annotations

import inspect
import math
import operator
import os
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from numbers import Integral, Real
from typing import Any, Concatenate, ParamSpec, TypeGuard, TypeVar

import numpy as np
from numpy.random import Generator, default_rng

from .errors import (
    ComponentsError,
    ConeNMFError,
    DataError,
    DataTypeError,
    Option,
    OptionError,
    ParameterError,
)
from .text import counted, shown
from .types import Array, Function, Shape, Sides

T = TypeVar("T")
P = ParamSpec("P")
NOTHING: Mapping[str, str] = {}

_LIMITS = {
    "at_least": operator.ge,
    "above": operator.gt,
    "at_most": operator.le,
    "below": operator.lt,
}


def _refusal(
    name: str, value: object, expected: str, error: type[ConeNMFError] = OptionError
) -> ConeNMFError:
    return error(Option(name, value), f", expected {expected}")


def optional(
    check: Callable[Concatenate[str, Any, P], T],
    name: str,
    value: object,
    *args: P.args,
    **limits: P.kwargs,
) -> T | None:
    """Check a value that may be None.

    >>> optional(integer, "k_max", None, at_least=1), optional(integer, "k_max", 3, at_least=1)
    (None, 3)
    """
    return None if value is None else check(name, value, *args, **limits)


# --- numbers ----------------------------------------------------------------------------------


def integer(name: str, value: object, /, **limits: float) -> int:
    """Return an integer within limits: `at_least`, `above`, `at_most`, `below`; a bool is rejected.

    >>> integer("runs", np.int64(4), at_least=1)
    4
    """
    if _is_integer(value) and _within(value, limits):
        return int(value)
    raise _refusal(name, value, f"an integer{_in_words(limits)}")


def components(K: object, *, auto: bool = False) -> int:
    """Return a number of components; `data.validate` checks it against the data."""
    if _is_integer(K) and K >= 1:
        return int(K)
    expected = "an integer of at least 1"
    if auto:
        expected += " or 'auto'"
    if K is None:
        expected += " (in scikit-learn None means the number of features: pass that number)"
    raise ComponentsError(f"the number of components is {shown(K)}, expected {expected}")


def number(
    name: str,
    value: object,
    /,
    *,
    or_infinite: bool = False,
    what: str = "a number",
    **limits: float,
) -> float:
    """Return a real number within limits as a float; NaN is rejected, infinity allowed on request.

    >>> number("tol", 1, at_least=0), number("max_time", float("inf"), or_infinite=True)
    (1.0, inf)
    """
    if not isinstance(value, bool) and isinstance(value, Real):
        is_usable = not math.isnan(value) if or_infinite else math.isfinite(value)
        if is_usable and _within(value, limits):
            return float(value)
    raise _refusal(name, value, what + _in_words(limits))


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _within(value: Any, limits: Mapping[str, float]) -> Any:
    """Return whether a number, or each number of an array, is within limits."""
    inside = True
    for kind, limit in limits.items():
        inside = inside & _LIMITS[kind](value, limit)
    return inside


def _in_words(limits: Mapping[str, float]) -> str:
    """Return the limits in words: " of at least 1 and at most 9"."""
    words = []
    for kind, limit in limits.items():
        shown_limit = f"{limit:.6g}" if isinstance(limit, float) else limit
        words.append(f"{' of' * kind.startswith('at')} {kind.replace('_', ' ')} {shown_limit}")
    return " and".join(words).replace("and of", "and")


# --- words, switches, functions, objects ------------------------------------------------------


def choice(
    name: str, value: object, valid: Collection[str], twins: Mapping[str, str] = NOTHING
) -> str:
    """Return one of the valid words; `twins` says what words of scikit-learn are called here.

    >>> choice("method", "exact", ("exact", "plain"))
    'exact'
    """
    if isinstance(value, str) and value in valid:
        return value
    problem = OptionError.unknown(name, value, valid)
    if isinstance(value, str) and value in twins:
        hint = f" (scikit-learn's {value!r} is {twins[value]} here)"
        raise OptionError(*problem.args[0].parts, hint)
    raise problem


def several(name: str, values: object, what: str = "a list") -> list[Any]:
    """Return the elements of an iterable that is not a text."""
    if np.iterable(values) and not isinstance(values, str | bytes):
        return list(values)
    raise _refusal(name, values, what)


def text(name: str, value: object) -> str:
    """Return a string."""
    if isinstance(value, str):
        return value
    raise _refusal(name, value, "a text")


def flag(name: str, value: object) -> bool:
    """Return True or False; numbers and texts are rejected."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise _refusal(name, value, "True or False")


def generator(name: str, value: object) -> Generator:
    """Return a random generator; seeds are rejected."""
    if isinstance(value, Generator):
        return value
    what = "a numpy.random.Generator, such as numpy.random.default_rng(0)"
    raise _refusal(name, value, what)


def instance(name: str, value: object, kind: type[T], source: str = "") -> T:
    """Return an object of one of our own classes; `source` says where to get one."""
    if isinstance(value, kind):
        return value
    article = "an" if kind.__name__[0] in "AEIO" else "a"
    what = f"{article} {kind.__name__}"
    if source:
        what += f", from {source}"
    raise _refusal(name, value, what)


def function(name: str, value: object, *, takes: int) -> Any:
    """Return a function that can be called with `takes` arguments; classes are rejected.

    >>> function("callback", print, takes=1) is print
    True
    """
    if callable(value) and not isinstance(value, type) and _takes(value, takes):
        return value
    raise _refusal(name, value, f"a function of {counted(takes, 'argument')}")


def _takes(value: Function, count: int) -> bool:
    """Return whether a function takes `count` arguments; builtins without a signature pass."""
    try:
        inspect.signature(value).bind(*range(count))
    except ValueError:
        return True
    except TypeError:
        return False
    return True


def answers(**advice: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function answer parameters of scikit-learn that it does not have, with what it has.

    >>> count = answers(size="is `n` here")(lambda n: n)
    >>> count(size=3)
    Traceback (most recent call last):
    conenmf.errors.ParameterError: scikit-learn's size is `n` here
    """

    def answering(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def answered(*given: P.args, **options: P.kwargs) -> T:
            for name in options:
                if name in advice:
                    raise ParameterError(f"scikit-learn's {name} {advice[name]}")
            return function(*given, **options)

        return answered

    return answering


def as_generator(name: str, value: object) -> Generator:
    """Return a generator from a seed, a generator or None."""
    if value is None or isinstance(value, Generator) or (_is_integer(value) and value >= 0):
        return default_rng(value)
    raise _refusal(name, value, "a seed of at least 0, a numpy.random.Generator, or None")


def path(name: str, value: object) -> str:
    """Return the path of a file or folder as a text."""
    place = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if place and isinstance(place, str):
        return place
    raise _refusal(name, value, "the path of a file or folder")


# --- arrays -----------------------------------------------------------------------------------


def array(
    name: str,
    value: object,
    /,
    shape: Sides,
    *,
    or_one: bool = False,
    error: type[ConeNMFError] = OptionError,
    **limits: float,
) -> Array:
    """Return an array of finite numbers within limits; letters in `shape` stand for any length.

    With `or_one`, a single number counts as a vector of length one.

    >>> array("W", [[1, 2], [3, 4]], (2, "K"), at_least=0)
    array([[1, 2],
           [3, 4]])
    """
    numbers = real_numbers(name, value, shape, error)
    if or_one and numbers.ndim == 0:
        numbers = numbers[None]
    own = numbers.shape
    pairs = zip(own, shape, strict=False)
    fits = all(side == asked or isinstance(asked, str) for side, asked in pairs)
    if len(own) != len(shape) or 0 in own or not fits:
        raise error(Option(name), f" has shape {own}, expected {_shape_text(shape)}")
    wrong = np.argwhere(~(np.isfinite(numbers) & _within(numbers, limits)))
    if len(wrong):
        place = tuple(wrong[0].tolist())
        problem = f" is {numbers[place]} at {place}"
        raise error(Option(name), f"{problem}, expected finite numbers{_in_words(limits)}")
    return numbers


def factor(name: str, value: object, shape: Sides) -> Array:
    """Return a factor: finite, nonnegative numbers."""
    return array(name, value, shape, at_least=0, error=DataError)


def classes(name: str, value: object) -> Array:
    """Return the classes of samples as integers; classes may have any type with an order.

    >>> classes("labels", ["oak", "elm", "oak"])
    array([1, 0, 1])
    """
    try:
        labels = np.asarray(value)
        is_complete = not np.ma.is_masked(value) and bool((labels == labels).all())  # no NaN
        if labels.ndim == 1 and labels.size and is_complete:
            return np.unique(labels, return_inverse=True)[1]
    except (TypeError, ValueError):  # classes that cannot be compared, rows of different lengths
        pass
    raise _refusal(name, value, "a list of classes, one for each sample", DataError)


def rows_and_columns(name: str, value: object) -> Shape:
    """Return the shape of an image."""
    what = "a pair of integers, rows and columns"
    sides = several(name, value, what)
    if len(sides) != 2 or not all(_is_integer(side) and side > 0 for side in sides):
        raise _refusal(name, value, what)
    return int(sides[0]), int(sides[1])


def real_numbers(name: str, value: object, shape: Sides, error: type[ConeNMFError]) -> Array:
    """Return an array of real numbers; masked arrays are rejected."""
    if np.ma.is_masked(value):
        raise DataTypeError(Option(name), ": some entries are masked; fill them first")
    try:
        numbers = np.asarray(value)
    except ValueError:  # rows of different lengths
        numbers = np.empty((), dtype=object)
    if numbers.dtype.kind not in "fiub":
        raise _refusal(name, value, f"an array of numbers of shape {_shape_text(shape)}", error)
    return numbers


def _shape_text(shape: Sides) -> str:
    """Return a shape in Python's notation, with letters as names."""
    return str(shape).replace("'", "")
