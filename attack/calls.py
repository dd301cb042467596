"""Calls of every public function with one argument, sometimes two, that is wrong.

Functions are found in the reference, parameters by introspection. A wrong argument must be an error
with a name. Whether an accepted value was wrong is judged by the annotation of the parameter: text
is no number, NaN is no limit, a list is no generator of random numbers.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import math
import os
import re
import sys
from typing import Any

import numpy as np

from .arguments import WRONG, parameters, public, valid_arguments
from .cases import Case, Ending, Kind, judged

_PLAIN = {"int", "float", "bool", "str", "None"}
_FREE_TEXTS = {"dataset", "title", "source", "key", "key_added", "layer", "path", "folder", "name"}
_FREE_TEXTS |= {"target", "checkpoint"}
_AT_LEAST_ZERO = {
    *("K", "F", "n_samples", "n_features", "n_components", "max_iter", "tol", "max_time", "count"),
    *("n_threads", "block_samples", "runs", "max_passes", "max_products", "sweeps", "effort"),
    *("k_min", "k_max", "noise", "separation", "every", "window", "top", "batch_rows", "epsilon"),
    *("delta", "rank", "rate", "max_pivots", "floor", "n", "shrink", "max_memory", "sample_noise"),
}


@functools.cache
def combinations() -> tuple[tuple[str, str, str], ...]:
    """Every function with every one of its parameters and every wrong value."""
    return tuple(
        (entry, name, value)
        for entry, target in public().items()
        for name in parameters(target)
        for value in WRONG
    )


def _attack(case: Case) -> Ending:
    every = combinations()
    # A large step through all combinations, so that any first part of them is a fair sample.
    entry, name, value = every[(case.number * 7919 + case.seed) % len(every)]
    wrong = {name: value}
    target = public()[entry]
    if case.number >= len(every):
        wrong[case.pick(list(parameters(target)))] = case.pick(list(WRONG))
    note = f"{entry}({', '.join(f'{key}={text}' for key, text in wrong.items())})"
    os.chdir(case.folder)
    try:
        arguments = valid_arguments(entry, target)
        arguments |= {key: WRONG[text]() for key, text in wrong.items()}
        with contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
            called = target(**arguments)
            if entry == "ConeNMF":
                called.fit(valid_arguments("estimator.sklearn_init", _takes_X)["X"])
    except Exception as problem:
        return _judged(problem, target, wrong, note)
    finally:
        _close_figures()
        os.chdir(case.folder.parent)
    accepted = [
        key for key, text in wrong.items() if surely_wrong(parameters(target)[key], WRONG[text]())
    ]
    return Ending("silent" if accepted else "accepted", note)


def _takes_X(X: Any) -> None:
    """Its signature is that of `fit`."""


def _judged(problem: Exception, target: Any, wrong: dict[str, str], note: str) -> Ending:
    ending = judged(problem)
    if ending.outcome == "unnamed" and isinstance(problem, FileNotFoundError):
        paths = [key for key in wrong if "Path" in str(parameters(target)[key].annotation)]
        if paths:  # there is no better name for it
            return Ending("refused", f"{note}: {ending.note}"[:300])
    return Ending(ending.outcome, f"{note}: {ending.note}"[:300])


def _close_figures() -> None:
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def surely_wrong(parameter: inspect.Parameter, value: Any) -> bool:
    """Whether no reading of the annotation allows this value."""
    words = set(re.findall(r"[A-Za-z_]\w*", str(parameter.annotation)))
    if parameter.default is not inspect.Parameter.empty and value is parameter.default:
        return False
    if "DataMatrix" in words:
        return not (value is None and "None" in words)
    if value is None:
        return bool(words) and words <= _PLAIN - {"None"}
    if "Generator" in words and not words & {"int", "Any"}:
        return True
    if not words or not words <= _PLAIN or words <= {"bool", "None"}:  # anything is true or false
        return False
    if isinstance(value, str):
        return "str" not in words or (value == "zebra" and parameter.name not in _FREE_TEXTS)
    if isinstance(value, bool):
        return not words & {"int", "float"}
    if isinstance(value, int | float | np.floating):
        if math.isnan(value):
            return True
        if not words & {"int", "float"}:
            return True
        if isinstance(value, float) and "float" not in words:
            return True
        return value < 0 and parameter.name in _AT_LEAST_ZERO
    return True


KINDS = (Kind("calls", "calls", _attack, default=14000, batch=100),)
