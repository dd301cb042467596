"""The attack in its short form, and the attack itself: it must notice what is broken on purpose."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

import conenmf

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from attack import arguments, calls, selftest, squares, summary  # noqa: E402
from attack.campaign import run_campaign, schedule  # noqa: E402
from attack.cases import FAILURES  # noqa: E402
from attack.kinds import KINDS, chosen  # noqa: E402
from attack.ledger import Ledger  # noqa: E402
from attack.workers import measured  # noqa: E402

SEED, SCALE = 20, 0.003  # of the cases of an ordinary attack; some of each kind are accepted


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger.jsonl")


def failures(ledger):
    return summary.failures_of(ledger)


# --- the short form -----------------------------------------------------------------------------


def test_random_numbers_and_wrong_calls(ledger):
    assert run_campaign(chosen(("numbers", "calls")), ledger, SEED, scale=SCALE, n_workers=1)
    assert failures(ledger) == ""


def test_kills_interrupts_and_forks(ledger):
    kinds = chosen(("changes", "kills", "interrupts", "forks"))
    assert run_campaign(kinds, ledger, SEED, scale=SCALE, n_workers=1)
    assert failures(ledger) == ""


# --- what it must notice ------------------------------------------------------------------------


def test_crashes_hangs_memory_and_leftovers_are_noticed(ledger, tmp_path):
    kind, results = KINDS["selftest"], []
    kept = tmp_path / "failures"
    options = {"cases": 9, "n_workers": 1, "keep": kept, "on_result": results.append}
    assert run_campaign([kind], ledger, 1, **options)
    by_number = {result.number: result.ending.outcome for result in results}
    assert tuple(by_number[number] for number in range(9)) == selftest.EXPECTED
    notes = {result.number: result.ending.note for result in results}
    assert "selftest.py:_hangs" in notes[1]
    assert "SIGSEGV" in notes[3]
    assert "by the library; then in the reader: crash" in notes[4]
    assert {path.name for path in kept.iterdir()} == {f"selftest-1-{n}" for n in (1, 3, 5, 6, 7)}
    text = failures(ledger)
    assert "python -m attack one selftest --seed 1 --case 3" in text
    assert len(ledger.cases(FAILURES)) == 5


def test_a_campaign_is_resumed_where_it_was(ledger):
    kind = KINDS["nnls"]
    assert run_campaign([kind], ledger, 3, cases=250, n_workers=1)
    with open(ledger.path, "a", encoding="utf-8") as stream:
        stream.write('{"what": "batch", "kind": "nnls", "se')  # a kill in the middle of a line
    again = Ledger(ledger.path)
    results = []
    assert run_campaign([kind], again, 3, cases=250, n_workers=1, on_result=results.append)
    assert results == []
    assert again.totals()["nnls"].cases == 250
    assert again.totals()["nnls"].problems == 250 * squares.ROWS


def test_every_kind_is_at_the_same_share_at_any_time():
    batches = schedule([KINDS["fits"], KINDS["checkpoint-identity"]], None)
    first_half = batches[: len(batches) // 2]
    shares = {
        name: sum(batch.last - batch.first for batch in first_half if batch.kind.name == name)
        / KINDS[name].default
        for name in ("fits", "checkpoint-identity")
    }
    assert shares["fits"] == pytest.approx(shares["checkpoint-identity"], abs=0.05)


def endings(kind, folder, numbers=range(40)):
    return {measured(KINDS[kind], 5, number, folder)[0].outcome for number in numbers}


def test_wrong_least_squares_are_noticed(monkeypatch, tmp_path):
    monkeypatch.setattr(squares, "nnls", lambda G, C: np.zeros_like(C))
    assert "different" in endings("nnls", tmp_path, range(3))
    monkeypatch.setattr(squares, "nnls", lambda G, C: np.full_like(C, np.nan))
    assert endings("nnls", tmp_path, range(3)) == {"factors"}


def test_the_norm_that_scipy_returns_is_not_trusted(monkeypatch, tmp_path):
    """For K > F it may be far below that of the solution it comes with."""
    true = squares.scipy.optimize.nnls
    monkeypatch.setattr(squares.scipy.optimize, "nnls", lambda W, v: (true(W, v)[0], 0.0))
    assert endings("nnls", tmp_path, range(3)) == {"accepted"}


@pytest.mark.filterwarnings("ignore")
def test_an_error_that_is_not_that_of_the_factors_is_noticed(monkeypatch, tmp_path):
    def flattered(*arguments, **options):
        result = true(*arguments, **options)
        result._remember(relative_error=0.9 * result.relative_error)
        return result

    true = conenmf.factorize
    monkeypatch.setattr(conenmf, "factorize", flattered)
    assert "factors" in endings("fits", tmp_path)


def test_a_wrong_value_that_is_accepted_is_noticed():
    parameters = calls.parameters(conenmf.factorize)
    for name, value in (("tol", float("nan")), ("tol", -1), ("rng", 7), ("max_iter", 3.5)):
        assert calls.surely_wrong(parameters[name], value), name
    for name, value in (("tol", 0), ("max_time", None), ("K", 10**9), ("callback", None)):
        assert not calls.surely_wrong(parameters[name], value), name


# --- what it rests on ---------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_every_public_function_is_called_or_listed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    for entry, target in arguments.public().items():
        target(**arguments.valid_arguments(entry, target))  # raises nothing
    importlib.import_module("matplotlib.pyplot").close("all")
    assert len(calls.combinations()) > 10_000


def test_the_table_is_written_into_the_page(ledger, tmp_path):
    run_campaign([KINDS["nnls"]], ledger, 3, cases=20, n_workers=1)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{summary.BEGIN}\nold\n{summary.END}\nafter\n")
    summary.write_into(page, ledger)
    text = page.read_text()
    assert "| nnls | 20 (400 problems) |" in text
    assert "old" not in text
    assert text.startswith("before")
    assert text.endswith("after\n")
