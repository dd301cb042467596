"""Functions are told apart by what they do, as far as it can be seen."""

import functools
import subprocess
import sys
import textwrap

import numpy as np

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


def different(*things):
    return len({described(thing) for thing in things}) == len(things)


def same(*things):
    return len({described(thing) for thing in things}) == 1


def test_functions_of_one_name():
    assert different(*(of_source(f"def f(x): return x + {n}") for n in range(3)))
    assert same(*(of_source("def f(x):\n  # a comment\n  return x + 1") for _ in range(2)))
    assert same(of_source("def f(x): return x"), of_source("\n\n\ndef f(x):\n    return x"))
    assert different(of_source("def f(x): return x.min()"), of_source("def f(x): return x.max()"))
    assert different(of_source("def f(x, y=1): ..."), of_source("def f(x, y=2): ..."))
    assert different(of_source("def f(*, y=1): ..."), of_source("def f(*, y=2): ..."))
    assert different(*(of_source(f"def f(x): return (lambda: x + {n})()") for n in range(2)))


def test_what_they_refer_to():
    assert different(make(1), make(2), make(1.0), make(True), make("1"))
    assert same(make(1), make(1))
    assert different(make(np.zeros(3)), make(np.ones(3)), make(np.zeros(3, np.float32)))
    source = "def f(x): return x * A"
    assert different(of_source(source, A=1), of_source(source, A=2))
    assert different(functools.partial(make, 1), functools.partial(make, 2), make)
    assert different(functools.partial(hals, floor=0.0), hals, mult, len, np.add, np.multiply)
    assert same(make([1]), make([2]))  # where functions remember what they did: not seen


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
