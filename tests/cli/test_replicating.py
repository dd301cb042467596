import json
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


def test_what_is_found_again_is_said_and_written(counts, capsys, run):
    assert run("stability", counts, *OPTIONS, "-o", "out", "--plot", "a.png") == 0
    said = capsys.readouterr().out
    assert "stable: 3 of 3 components" in said
    assert "an estimate, if counts are Poisson" in said
    assert "of the consensus" in said
    assert "open out/report.html in a browser" in said
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv("out/limits.csv")
    assert len(table) == 60
    assert (table.lower <= table.upper).all()
    assert table.withheld.isna().all()
    np.testing.assert_allclose(table.groupby("component").value.sum(), 1)
    found, result = Stability.load("out/stability.npz"), Factorization.load("out/result.npz")
    np.testing.assert_allclose(result.W, found.W, rtol=1e-12)
    np.testing.assert_allclose(result.H, found.H, rtol=1e-9, atol=1e-9)
    assert result.certificate is not None
    runs = pd.read_csv("out/runs.csv")
    assert runs.is_kept.tolist() == [1] * 5
    np.testing.assert_allclose(runs["cosine of component 2"], found.cosines[:, 2])
    np.testing.assert_allclose(runs.relative_error, found.run_errors)
    assert run("stability", counts, *OPTIONS, "--json", "--effort", 0) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["verdict"] == "stable"
    assert answer["found_in"] == [1.0, 1.0, 1.0]
    assert answer["certificate"]["effort"] == 0
    assert answer["certificate"]["lower_bound"] <= answer["best_relative_error"]
    assert "counts.csv-stability/stability.npz" in answer["files"]


def test_the_consensus_is_a_result_for_other_commands(counts, capsys, run):
    assert run("stability", counts, *OPTIONS, "-o", "out") == 0
    Path("out/report.html").unlink()
    assert run("report", "out") == 0
    page = Path("out/report.html").read_text("utf-8")
    assert 'id="stability"' in page
    assert page.count('class="band"') == 3
    known = Factorization.load("out/result.npz").known_uniqueness
    assert known.was_searched
    assert all(f"<dd>{verdict.capitalize()} " in page for verdict in known.verdicts)
    assert run("transform", "out", counts, "-o", "again.csv") == 0
    again = pd.read_csv("again.csv", index_col=0).to_numpy()
    np.testing.assert_allclose(again.T, Factorization.load("out/result.npz").H, rtol=1e-9)


@pytest.mark.nightly
def test_a_killed_command_continues(folder, run, start):
    options = ("stability", "cells.csv", "-k", 3, "--no-report")
    victim = start(*options, "--runs", 2000, "-o", "out")
    kept = Path("out/runs")
    while len(list(kept.glob("run-*.npz"))) < 3:
        assert victim.poll() is None, victim.communicate()
        time.sleep(0.01)
    victim.send_signal(signal.SIGINT)
    _, said = victim.communicate()
    assert victim.returncode == 130
    assert "the same command continues from a checkpoint" in said
    victim = start(*options, "--runs", 2000, "-o", "out")
    n_kept = len(list(kept.glob("run-*.npz")))
    while len(list(kept.glob("run-*.npz"))) < n_kept + 3:
        assert victim.poll() is None, victim.communicate()
        time.sleep(0.01)
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    assert not Path("out/summary.json").exists()
    n_runs = len(list(kept.glob("run-*.npz"))) + 2
    before = {path: path.stat().st_mtime_ns for path in kept.glob("run-*.npz")}
    assert run(*options, "--runs", n_runs, "-o", "out") == 0
    assert run(*options, "--runs", n_runs, "-o", "undisturbed") == 0
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in before.items())
    found, other = (Stability.load(f"{name}/stability.npz") for name in ("out", "undisturbed"))
    np.testing.assert_array_equal(found.spectra, other.spectra)
    np.testing.assert_array_equal(found.W, other.W)
    np.testing.assert_array_equal(found.H, other.H)


def test_other_runs_and_other_files_are_refused(counts, capsys, run):
    assert run("stability", counts, *OPTIONS, "-o", "out", "--no-report") == 0
    before = Path("out/stability.npz").read_bytes()
    capsys.readouterr()
    assert run("stability", counts, *OPTIONS, "-k", 2, "-o", "out") != 0
    assert "belongs to another run: its K is 3, now it is 2; use another" in capsys.readouterr().err
    assert run("stability", counts, *OPTIONS, "--seed", 8, "-o", "out") != 0
    assert "the generator, its seed or its state" in capsys.readouterr().err
    Path("counts.csv").write_text(Path("counts.csv").read_text().replace("\n0,", "\n1,", 1))
    assert run("stability", counts, *OPTIONS, "-o", "out") != 0
    assert "some entries of the data, or their order, are not" in capsys.readouterr().err
    assert Path("out/stability.npz").read_bytes() == before
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    assert run("stability", counts, *OPTIONS, "-o", "mine") != 0
    assert "holds other files" in capsys.readouterr().err
    assert run("stability", counts, "-k", 3, "--runs", 1, "-o", "one") != 0
    assert "--runs" in capsys.readouterr().err
    assert not Path("one").exists()
