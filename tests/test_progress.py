"""What is shown while a fit or a command runs."""

import builtins
import io
import time

import numpy as np
import pytest

from conenmf import ConeNMF, kernels
from conenmf.progress import Display
from conenmf.solve.run import Iteration

X = np.random.default_rng(0).random((60, 20))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def display(terminal, **options):
    stream = Terminal() if terminal else io.StringIO()
    return Display(stream, **{"delay": 0.02, "interval": 0.02, **options}), stream


def wait_for(stream, text):
    """Wait until a text is shown; a busy machine takes its time."""
    end = time.monotonic() + 20
    while text not in stream.getvalue():
        assert time.monotonic() < end, text
        time.sleep(0.01)


def iteration(number, error=0.5):
    return Iteration(number, 1.0, error, float(number), 1.0)


@pytest.mark.parametrize("terminal", [True, False])
def test_the_current_step_is_shown_with_its_note(terminal):
    shown, stream = display(terminal)
    with shown.working("reading \x1b[2Jcells.csv"):
        wait_for(stream, "reading \\x1b[2Jcells.csv")
        shown.update("3 of 5", 0.5, "comparing")
        wait_for(stream, "comparing, 3 of 5")
    assert ("━" in stream.getvalue()) == terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_compiling_is_what_is_shown_while_kernels_are_compiled(terminal, monkeypatch):
    monkeypatch.setattr(kernels.compiling, "is_announced", False)
    shown, stream = display(terminal)
    with shown.working("choosing an init"):
        kernels.compiling.begin()
        wait_for(stream, "compiling (first time only)")
        assert "choosing an init" not in stream.getvalue()
        kernels.compiling.end()
        wait_for(stream, "choosing an init")


def test_iterations_and_where_a_saved_run_continues():
    shown, _ = display(False)
    show = shown.iterations(200)
    show(iteration(0, 0.9))
    assert shown.line == "choosing an init, error 0.9"
    show(iteration(31, 0.25))
    assert shown.line == "solving, iteration 31 of at most 200, error 0.25"
    show(iteration(32))
    assert shown.continued_at == 30


@pytest.mark.parametrize("has_rich", [True, False])
def test_verbose_prints_a_line_per_iteration_elsewhere(capsys, monkeypatch, has_rich):
    imported = builtins.__import__

    def without_rich(name, *rest):
        if name.partition(".")[0] == "rich":
            raise ImportError(name)
        return imported(name, *rest)

    if not has_rich:
        monkeypatch.setattr(builtins, "__import__", without_rich)
    ConeNMF(3, max_iter=2, tol=0, verbose=True).fit(X)
    _, line = capsys.readouterr().out.splitlines()
    assert line.startswith("[ConeNMF] solving, iteration 2 of at most 2, error 0.")
