"""Ctrl-C and SIGTERM in the command line, at moments that a test can wait for."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import conenmf
from conenmf import factorize, from_columns
from conenmf.signals import Interruption

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are others there")
SOURCE = str(Path(conenmf.__file__).parents[1])


def start(*arguments, first=()):
    """A Python that finds this library, and before it what is in other folders."""
    path = os.pathsep.join([*map(str, first), SOURCE])
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def script(text):
    """A program that says when a signal may come."""
    process = start("-c", textwrap.dedent(text))
    assert process.stdout.readline() == "now\n"
    return process


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_command_is_imported_leaves_no_traceback(tmp_path, number):
    slow = "import time\nprint('now', flush=True)\ntime.sleep(60)\n"
    (tmp_path / "click.py").write_text(slow)  # what the command line imports first
    process = start("-m", "conenmf", "--help", first=[tmp_path])
    assert process.stdout.readline() == "now\n"
    process.send_signal(number)
    _, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (128 + number, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("module", ["click", "numpy"])
def test_a_module_may_turn_a_signal_into_an_error_of_its_import(tmp_path, number, module):
    """As modules in C do; click is imported first, and NumPy by the command."""
    (tmp_path / f"{module}.py").write_text(
        textwrap.dedent(f"""
            import os
            try:
                os.kill(os.getpid(), {int(number)})
            except BaseException:
                raise ImportError("cannot initialise") from None
        """)
    )
    process = start("-m", "conenmf", "rank", "--help", first=[tmp_path])
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 128 + number
    assert "initialise" not in errors


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_data_are_read_removes_what_was_begun(tmp_path, number):
    np.save(tmp_path / "data.npy", np.ones((30, 4)))
    process = script(f"""
        import os, sys, time
        import conenmf.cli.fit
        from conenmf.__main__ import run
        def wait(self, *arguments):
            print("now", flush=True)
            time.sleep(60)
        conenmf.cli.fit.open_input = wait
        os.chdir({str(tmp_path)!r})
        sys.argv = ["conenmf", "fit", "data.npy", "-o", "out"]
        run()
    """)
    process.send_signal(number)
    process.send_signal(number)  # while the first is handled: ignored
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 128 + number
    assert "Traceback" not in errors
    assert errors.strip().endswith("the same command continues from a checkpoint, if one was saved")
    assert [path.name for path in tmp_path.iterdir()] == ["data.npy"]


# --- saving the result so far -----------------------------------------------------------------

SAVING = "conenmf: saving the result so far; Ctrl-C again to end at once\n"


def press():
    os.kill(os.getpid(), signal.SIGINT)


def test_a_solver_stops_after_its_iteration(capsys, refuses):
    V = from_columns(np.random.default_rng(0).random((20, 50)))

    def show(now):
        if now.iteration == 3:
            press()

    with Interruption() as interruption:
        result = factorize(V, 3, tol=0, max_iter=50, callback=interruption.watch(show))
        assert interruption.asked
        assert (result.n_iter, result.stop_reason) == (3, "callback")
        refuses(KeyboardInterrupt, None, lambda: press())
    assert capsys.readouterr().err == SAVING


def test_optional_work_is_skipped_and_saving_is_not_interrupted(capsys):
    with Interruption() as interruption:
        with interruption.optional():
            press()
            pytest.fail("not reached")
        assert interruption.asked
    with Interruption() as interruption:
        with interruption.optional():
            pass
        press()
        assert interruption.asked
    assert capsys.readouterr().err == 2 * SAVING
