"""The attack in its short form; it must notice what is broken on purpose."""

import time

import numpy as np
import pytest
from attack import cases, kills
from attack.__main__ import KINDS, main
from attack.cases import run_case

import conenmf

pytestmark = pytest.mark.filterwarnings("ignore")


def endings(kind, numbers):
    return {run_case(KINDS[kind], kind, 5, number).outcome for number in numbers}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kind", "count"),
    [("fits", 60), ("checkpoint-kills", 2), ("command-kills", 2)],
)  # tests/test_options.py has the other kind
def test_nothing_is_found(kind, count, capsys):
    assert main([kind, "--cases", str(count), "--seed", "20"]) == 0
    assert f"{kind}: {count} cases in " in capsys.readouterr().out


def test_errors_and_hangs_are_failures(monkeypatch):
    def raises(case):
        raise RuntimeError("an error of the attack")

    assert run_case(raises, "fits", 0, 0).outcome == "broken"
    monkeypatch.setattr(cases, "SECONDS", 1)
    assert run_case(lambda case: time.sleep(60), "fits", 0, 0).outcome == "hang"


def test_an_error_that_is_not_that_of_the_factors_is_noticed(monkeypatch):
    def flattered(*arguments, **options):
        result = true(*arguments, **options)
        result._remember(relative_error=0.9 * result.relative_error)
        return result

    true = conenmf.factorize
    monkeypatch.setattr(conenmf, "factorize", flattered)
    assert "factors" in endings("fits", range(20))


def test_a_mixture_of_two_results_is_noticed(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((40, 6)))
    out = tmp_path / "out"
    assert kills.state_of(out) == "none"
    tables = {}
    for K in (3, 2):
        words = ["fit", str(tmp_path / "x.npy"), "-k", str(K), "-o", str(out), "--no-report"]
        child = kills.Child(tmp_path / "log", kills._command, words)
        assert child.wait() == 0, child.text
        assert kills.state_of(out) == str(K)
        tables[K] = (out / "components.csv").read_bytes()
    (out / "components.csv").write_bytes(tables[3])
    assert "components: [2, 3]" in kills.state_of(out)
    (out / ".begun").touch()
    assert kills.state_of(out) == "left: ['.begun']"
