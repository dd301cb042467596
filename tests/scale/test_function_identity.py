"""Functions are told apart by what they do, as far as it can be seen."""

import functools
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from conenmf.scale.checkpoint import described
from conenmf.solve.solvers import hals, mult


def make(number):
    def update(G, C, Y):
        return Y + number

    return update


def of_source(source, **names):
    scope = {"__name__": "mine", **names}
    exec(textwrap.dedent(source), scope)
    return scope["f"]


def of_sources(*sources):
    return [of_source(source) for source in sources]


@pytest.mark.parametrize(
    "things",
    [
        of_sources(*(f"def f(x): return x + {n}" for n in range(3))),
        of_sources("def f(x): return x.min()", "def f(x): return x.max()"),
        of_sources("def f(x, y=1): ...", "def f(x, y=2): ..."),
        of_sources("def f(*, y=1): ...", "def f(*, y=2): ..."),
        of_sources(*(f"def f(x): return (lambda: x + {n})()" for n in range(2))),
        [make(1), make(2), make(1.0), make(True), make("1")],
        [make(np.zeros(3)), make(np.ones(3)), make(np.zeros(3, np.float32))],
        [of_source("def f(x): return x * A", A=number) for number in (1, 2)],
        [functools.partial(make, 1), functools.partial(make, 2), make],
        [functools.partial(hals, floor=0.0), hals, mult, len, np.add, np.multiply],
    ],
)
def test_functions_that_do_other_things_are_told_apart(things):
    assert len({described(thing) for thing in things}) == len(things)


@pytest.mark.parametrize(
    "things",
    [
        of_sources(*2 * ["def f(x):\n  # a comment\n  return x + 1"]),
        of_sources("def f(x): return x", "\n\n\ndef f(x):\n    return x"),
        [make(1), make(1)],
        [make([1]), make([2])],  # where functions remember what they did: not seen
    ],
)
def test_functions_that_do_the_same_have_one_description(things):
    assert len({described(thing) for thing in things}) == 1


def test_another_process_sees_the_same():
    """Sets of names are in another order there."""
    source = "def f(x): return x in {'a', 'b', 'c', 'd'}"
    script = f"""
        from conenmf.scale.checkpoint import described
        scope = {{"__name__": "mine"}}
        exec({source!r}, scope)
        print(described(scope["f"]))
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    seen = {subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()}
    assert seen == {described(of_source(source))}
