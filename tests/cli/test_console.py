import io
import os
import signal
import time

import numpy as np
import pytest
from rich.console import Console

from conenmf import factorize, from_columns, kernels
from conenmf.cli.console import Display, Interruption
from conenmf.solve.run import Iteration


def display(terminal, delay=0.02, **options):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=120, color_system=None)
    return Display(console=console, delay=delay, interval=0.02, **options), stream


def test_plain_lines_where_there_is_no_terminal():
    shown, stream = display(terminal=False)
    with shown.working("reading \x1b[2Jcells.csv"):
        time.sleep(0.1)
        shown.update("iteration 3", 0.5, "solving")
        time.sleep(0.1)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "reading \\x1b[2Jcells.csv, 0 s"
    assert lines[-1] == "solving, 0 s, iteration 3"


def wait_for(stream, text):
    """Wait until a text is shown; a busy machine takes its time."""
    end = time.monotonic() + 20
    while text not in stream.getvalue():
        assert time.monotonic() < end, text
        time.sleep(0.01)


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


def test_a_bar_on_a_terminal():
    shown, stream = display(terminal=True)
    with shown.working("solving"):
        shown.update("iteration 3, error 0.1", 0.5)
        time.sleep(0.3)
    output = stream.getvalue()
    assert "solving" in output
    assert "iteration 3, error 0.1" in output
    assert "━" in output


@pytest.mark.parametrize("terminal", [True, False])
def test_silence(terminal):
    shown, stream = display(terminal, quiet=True)
    with shown.working("reading"):
        time.sleep(0.05)
    assert stream.getvalue() == ""
    shown, stream = display(terminal, delay=5.0)  # what is done soon is not shown
    with shown.working("reading"):
        pass
    assert stream.getvalue() == ""


def test_an_error_ends_the_display():
    shown, _ = display(terminal=False)
    with pytest.raises(ValueError, match="wrong"), shown.working("reading"):
        raise ValueError("wrong")
    with shown.working("again"):
        pass


def test_the_time_left_is_that_of_what_comes_first():
    shown, _ = display(terminal=False)
    show = shown.iterations(100, 1e-4, None, "solving")
    shares, notes = [], []
    for iteration in range(1, 61):
        show(Iteration(iteration, 0.1 * iteration, 0.1 + 0.8**iteration, float(iteration), 1.0))
        shares.append(shown._share)
        notes.append(shown._note)
    assert shares[3] == 0.04  # by the number of iterations, before anything is known
    assert "about 10 s left" in notes[3]
    assert shares[52] > 0.9  # by how much the error still falls
    assert np.all(np.diff(shares[6:53]) > 0)
    assert (shown._share, shown._what) == (1.0, "finishing")


def press():
    os.kill(os.getpid(), signal.SIGINT)


def test_before_there_is_anything_to_save_ctrl_c_ends_at_once():
    output = []
    with pytest.raises(KeyboardInterrupt), Interruption(output.append) as interruption:
        press()
    assert not interruption.asked
    assert output == []


def test_a_solver_stops_after_its_iteration():
    V = from_columns(np.random.default_rng(0).random((20, 50)))
    output = []

    def show(now):
        if now.iteration == 3:
            press()

    with Interruption(output.append) as interruption:
        result = factorize(V, 3, tol=0, max_iter=50, callback=interruption.watch(show))
        assert interruption.asked
        assert (result.n_iter, result.stop_reason) == (3, "callback")
        with pytest.raises(KeyboardInterrupt):
            press()
    assert output == ["saving the result so far; Ctrl-C again to end at once"]


def test_optional_work_is_skipped():
    done = []
    with Interruption(done.append) as interruption:
        with interruption.optional():
            press()
            done.append("not reached")
        assert interruption.asked
        with interruption.finishing():
            done.append("saved")
    assert done == ["saving the result so far; Ctrl-C again to end at once", "saved"]


def test_saving_is_not_interrupted():
    with Interruption(str) as interruption, interruption.finishing():
        press()
        assert interruption.asked


def test_ctrl_c_means_afterwards_what_it_meant_before():
    before = signal.getsignal(signal.SIGINT)
    with Interruption(str):
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before
