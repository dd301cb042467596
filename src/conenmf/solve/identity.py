"""What a function is, as far as that can be seen: its code, not only its name.

Seen are the code of a function with its constants, its defaults, and the plain values, arrays and
functions of its own module that it refers to, as closures, globals, arguments of `partial` or
attributes of its object. Not seen are functions of other modules that it calls (their names are),
objects that are none of these, and what a compiled function does. The code is that of one version
of Python: under another one the same function looks different.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

__all__ = ["described"]

_PLAIN = (str, bytes, int, float, complex, bool, type(None), type(...), range)
_MUTABLE = (list, dict, set, bytearray)  # in closures: where functions count or remember


def described(thing: object) -> str:
    """Return a SHA-256 of a function, or of anything else that an option may be.

    >>> one, other, same = (lambda x: x + 1), (lambda x: x + 2), (lambda x: x + 1)
    >>> described(one) == described(other), described(one) == described(same)
    (False, True)
    """
    return hashlib.sha256(_text(thing, ()).encode("utf-8", "surrogatepass")).hexdigest()


def _text(thing: Any, above: tuple[int, ...]) -> str:
    """A text that is the same for the same thing; those that it is a part of are `above` it."""
    if isinstance(thing, _PLAIN):
        return f"{type(thing).__name__} {thing!r}"
    if id(thing) in above:
        return f"circle {above[::-1].index(id(thing))}"
    above = (*above, id(thing))
    if isinstance(thing, np.ndarray | np.generic) and not thing.dtype.hasobject:
        bits = hashlib.sha256(np.ascontiguousarray(thing).tobytes()).hexdigest()
        return f"array {thing.dtype} {thing.shape} {bits}"
    if isinstance(thing, tuple | list):
        return f"{type(thing).__name__} [{', '.join(_text(part, above) for part in thing)}]"
    if isinstance(thing, set | frozenset):
        return f"set {sorted(_text(part, above) for part in thing)}"
    if isinstance(thing, dict):
        return f"dict {sorted((_text(k, above), _text(v, above)) for k, v in thing.items())}"
    if isinstance(thing, CodeType):
        names = (thing.co_names, thing.co_varnames, thing.co_freevars, thing.co_cellvars)
        parts = (thing.co_code, thing.co_consts, thing.co_argcount, thing.co_flags, *names)
        return f"code {_text(parts, above)}"
    return _text_of_callable(thing, above)


def _text_of_callable(thing: Any, above: tuple[int, ...]) -> str:
    if isinstance(thing, functools.partial):
        return f"partial {_text((thing.func, thing.args, thing.keywords), above)}"
    if isinstance(thing, MethodType):
        return f"method {_text((thing.__func__, thing.__self__), above)}"
    if isinstance(thing, FunctionType):
        parts = (thing.__code__, thing.__defaults__, thing.__kwdefaults__, _referred(thing))
        return f"function {_text(parts, above)}"
    if isinstance(source := getattr(thing, "py_func", None), FunctionType):  # compiled by numba
        return f"compiled {_text(source, above)}"
    kind = thing if isinstance(thing, type) else type(thing)
    name = getattr(thing, "__qualname__", kind.__qualname__)
    named = f"named {getattr(thing, '__module__', '')}.{name}"
    call = None if isinstance(thing, type) else getattr(kind, "__call__", None)  # noqa: B004 - its code
    if isinstance(call, FunctionType) or (dataclasses.is_dataclass(thing) and thing is not kind):
        return f"{named} {_text((call, getattr(thing, '__dict__', None)), above)}"
    return named


def _referred(function: FunctionType) -> dict[str, Any]:
    """What a function refers to by name, outside of itself, and does not change."""
    code = function.__code__
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    found = {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}
    found = {name: value for name, value in found.items() if not isinstance(value, _MUTABLE)}
    for name in _global_names(code):
        value = function.__globals__.get(name)
        same_module = getattr(value, "__module__", None) == function.__module__
        if isinstance(value, _PLAIN) or (isinstance(value, FunctionType) and same_module):
            found[name] = value
    return found


def _global_names(code: CodeType) -> set[str]:
    """The names in a function, and in the functions defined in it."""
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    return {*code.co_names}.union(*map(_global_names, inner))


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises if it is empty
    except ValueError:
        return False
    return True
