"""The command `stability`: what it prints and writes, and resuming from its folder."""

import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from conenmf import Factorization
from conenmf.judge.stability import Stability

OPTIONS = ("-k", 3, "--runs", 5, "--loss", "poisson", "--resample", "counts")


@pytest.fixture
def counts(folder):
    rng = np.random.default_rng(0)
    counts = rng.poisson(rng.gamma(0.7, 90, (60, 3)) @ rng.dirichlet(np.full(20, 0.2), 3))
    pd.DataFrame(counts).to_csv("counts.csv", index=False)
    return "counts.csv"


def test_stability_is_printed_and_written(counts, output_of, all_close):
    output = output_of("stability", counts, *OPTIONS, "-o", "out", "--plot", "a.png")
    for line in (
        "stable: 3 of 3 components",
        "an estimate, if counts are Poisson",
        "(consensus)",
        "open out/report.html in a browser",
    ):
        assert line in output
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv("out/limits.csv")
    assert len(table) == 60
    assert ((table.lower <= table.upper) & table.withheld.isna()).all()
    np.testing.assert_allclose(table.groupby("component").value.sum(), 1)
    found, result = Stability.load("out/stability.npz"), Factorization.load("out/result.npz")
    np.testing.assert_allclose(result.W, found.W, rtol=1e-12)
    np.testing.assert_allclose(result.H, found.H, rtol=1e-9, atol=1e-9)
    assert result.certificate is not None
    runs = pd.read_csv("out/runs.csv")
    written = (runs["cosine of component 2"], runs.relative_error, runs.is_kept)
    all_close(written, (found.cosines[:, 2], found.run_errors, [1] * 5))
    answer = output_of("stability", counts, *OPTIONS, "--json", "--effort", 0)
    assert (answer["verdict"], answer["found_in"]) == ("stable", [1.0, 1.0, 1.0])
    again = Stability.load("counts.csv-stability/stability.npz")
    assert answer["moves_in_degrees"] == pytest.approx(np.degrees(again.moves))
    assert answer["withheld_limits"] == [*again.withheld]
    assert answer["certificate"]["effort"] == 0
    assert answer["certificate"]["lower_bound"] <= answer["best_relative_error"]
    assert "counts.csv-stability/stability.npz" in answer["files"]


def test_the_consensus_is_a_result_for_other_commands(counts, run):
    assert run("stability", counts, *OPTIONS, "-o", "out") == 0
    Path("out/report.html").unlink()
    assert run("report", "out") == 0
    page = Path("out/report.html").read_text("utf-8")
    assert 'id="stability"' in page
    assert page.count('class="band"') == 3
    result = Factorization.load("out/result.npz")
    assert result.known_uniqueness.was_searched
    assert page.count('<b class="grade ') == 2 * 3  # in the cards and in the table
    assert run("transform", "out", counts, "-o", "again.csv") == 0
    again = pd.read_csv("again.csv", index_col=0).to_numpy()
    np.testing.assert_allclose(again.T, result.H, rtol=1e-9)


@pytest.mark.nightly
def test_a_killed_command_continues(folder, run, start, same_factors):
    options = ("stability", "cells.csv", "-k", 3, "--no-report")

    def kept():
        return {path: path.stat().st_mtime_ns for path in Path("out/runs").glob("run-*.npz")}

    def ended_by(number):
        """What a command says that is ended when it has kept three more runs."""
        n_runs = len(kept())
        victim = start(*options, "--runs", 2000, "-o", "out")
        while len(kept()) < n_runs + 3:
            assert victim.poll() is None, victim.communicate()
            time.sleep(0.01)
        victim.send_signal(number)
        return victim.communicate()[1], victim.returncode

    message, code = ended_by(signal.SIGINT)
    assert "the same command continues from a checkpoint" in message
    assert (code, ended_by(signal.SIGKILL)[1]) == (130, -signal.SIGKILL)
    assert not Path("out/summary.json").exists()
    before = kept()
    n_runs = len(before) + 2
    for folder_of_result in ("out", "undisturbed"):
        assert run(*options, "--runs", n_runs, "-o", folder_of_result) == 0
    assert kept().items() >= before.items()
    found, other = (Stability.load(f"{name}/stability.npz") for name in ("out", "undisturbed"))
    np.testing.assert_array_equal(found.spectra, other.spectra)
    same_factors(found, other)


def test_other_runs_and_other_files_are_refused(counts, fails, run):
    command = ("stability", counts, *OPTIONS)
    assert run(*command, "-o", "out", "--no-report") == 0
    before = Path("out/stability.npz").read_bytes()
    other_k = "belongs to another run: its K is 3, now it is 2; use another"
    fails(4, other_k, *command, "-k", 2, "-o", "out")
    fails(4, "the generator, its seed or its state", *command, "--seed", 8, "-o", "out")
    Path("counts.csv").write_text(Path("counts.csv").read_text().replace("\n0,", "\n1,", 1))
    fails(4, "some entries of the data, or their order, are not", *command, "-o", "out")
    assert Path("out/stability.npz").read_bytes() == before
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    fails(5, "holds other files", *command, "-o", "mine")
    fails(2, "--runs", *command, "--runs", 1, "-o", "one")
    assert not Path("one").exists()


def test_an_automatic_number_has_a_component_that_is_not_known(folder, output_of, rng):
    known = pd.DataFrame(rng.random((2, 12)))
    pd.DataFrame(rng.random((50, 2)) @ known.to_numpy()).to_csv("a.csv", index=False)
    known.to_csv("known.csv", index=False)
    options = ("--fixed", "known.csv", "--runs", 3, "--no-report", "--json")
    alone = output_of("rank", "a.csv", "--fixed", "known.csv", "--json")
    assert alone["n_components"] == 2
    assert output_of("stability", "a.csv", *options, "-k", "auto")["n_components"] == 3
    known.iloc[:1].to_csv("known.csv", index=False)
    assert output_of("stability", "a.csv", *options, "-k", "auto", "-o", "b")["n_components"] >= 2


def test_the_consensus_keeps_known_components(counts, run):
    known = np.random.default_rng(1).gamma(0.5, size=(1, 20)) + 0.01
    pd.DataFrame(known).to_csv("known.csv", index=False)
    assert run("stability", counts, *OPTIONS, "--fixed", "known.csv", "--no-report", "-o", "b") == 0
    result = Factorization.load("b/result.npz")
    assert result.problem.n_fixed == 1
    np.testing.assert_allclose(result.W[:, 0] / result.W[:, 0].sum(), known[0] / known.sum())
