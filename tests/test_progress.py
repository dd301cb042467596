"""The estimate of the time left, and what `verbose` shows."""

import builtins
import io

import numpy as np
import pytest
from rich.console import Console

from conenmf import ConeNMF, factorize, from_rows
from conenmf.progress import TimeLeft, watching
from conenmf.solve.run import Iteration

X = np.random.default_rng(0).random((60, 20))
LIMITS = {"max_iter": 10, "tol": 0.0, "max_time": None}


def iteration(number, error, elapsed):
    return Iteration(number, elapsed, error, float(number), 1.0)


def test_with_max_iter_alone_the_time_left_is_proportional():
    left = TimeLeft(**LIMITS)
    assert left.after(iteration(2, 0.5, 4.0)) == (0.2, pytest.approx(16.0))
    assert left.after(iteration(10, 0.4, 20.0)) == (1.0, 0.0)


def test_a_fall_that_shrinks_ends_sooner():
    """The fall over five iterations goes from 1e-1 to 1e-5 by equal factors."""
    left = TimeLeft(10**6, 1e-5, None)
    errors = [1.0]
    for n in range(1, 60):
        errors.append(errors[-1] * (1 - 0.1 * 0.85**n / 5))
    shares = [left.after(iteration(n + 1, error, n + 1.0))[0] for n, error in enumerate(errors)]
    assert shares == sorted(shares)
    assert shares[3] < 0.01
    assert shares[30] == pytest.approx(0.5, abs=0.1)
    assert shares[-1] > 0.9


def test_max_time_is_a_limit_too():
    left = TimeLeft(10**6, 0.0, 100.0)
    left.began -= 50.0  # which were spent on an init, for example
    share, seconds = left.after(iteration(1, 0.5, 1.0))
    assert share == pytest.approx(0.5, abs=0.1)
    assert seconds == pytest.approx(50, abs=10)


def test_while_inits_compete_the_time_left_is_not_known():
    left = TimeLeft(**LIMITS)
    assert left.after(iteration(0, 0.9, 3.0)) is None
    assert left.after(iteration(1, 0.5, 4.0)) == (0.1, pytest.approx(9.0))


def fit(**options):
    with watching(1, None, **LIMITS, **options) as callback:
        factorize(from_rows(X), 3, callback=callback, max_iter=10, tol=0)


def test_a_terminal_shows_a_bar():
    console = Console(file=io.StringIO(), force_terminal=True, force_interactive=True, width=120)
    fit(console=console)
    shown = console.file.getvalue()
    assert "choosing an init" in shown
    assert "━" in shown
    assert "\n[ConeNMF]" not in shown  # one line, drawn again


def test_the_bar_shows_the_error_while_inits_compete():
    console = Console(file=io.StringIO(), force_terminal=True, force_interactive=True, width=120)
    with watching(1, None, **LIMITS, console=console) as callback:
        callback(iteration(0, 0.9, 3.0))
    assert "choosing an init: relative error 0.900000 after 3.00 s" in console.file.getvalue()


def test_without_a_terminal_there_is_a_line_per_iteration(capsys):
    fit(console=Console(file=io.StringIO()))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("[ConeNMF] iteration 1: relative error 0.")
    assert lines[0].endswith(" s left")
    assert not lines[-1].endswith("left")


def test_without_rich_too(capsys, monkeypatch):
    imported = builtins.__import__

    def without_rich(name, *rest):
        if name.partition(".")[0] == "rich":
            raise ImportError(name)
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_rich)
    ConeNMF(3, max_iter=2, tol=0, verbose=True).fit(X)
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_nothing_is_shown_unless_asked_for(capsys):
    with watching(0, print, **LIMITS) as callback:
        assert callback is print
    ConeNMF(3, max_iter=2, tol=0).fit(X)
    assert capsys.readouterr().out == ""
