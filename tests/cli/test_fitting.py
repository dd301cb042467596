"""`fit` and `demo`: what they write and print, and what Ctrl-C leaves."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from conenmf import Factorization
from conenmf.atomic import written_whole
from conenmf.errors import OutputError


def test_fit_writes_factors_labels_history_and_a_report(folder, capsys, run):
    assert run("fit", "cells.csv", "-o", "out") == 0
    output = capsys.readouterr().out
    assert "3 components (chosen by counting cones); relative error 0.0" in output
    assert "the data fall into cones: yes" in output
    assert "open out/report.html in a browser" in output
    assert {path.name for path in Path("out").iterdir()} == {
        "result.npz",
        "components.csv",
        "coefficients.csv",
        "labels.csv",
        "history.csv",
        "report.html",
        "summary.json",
    }
    result = Factorization.load("out/result.npz")
    components = pd.read_csv("out/components.csv", index_col=0)
    assert list(components.index[:2]) == ["gene 0", "gene 1"]
    np.testing.assert_allclose(components.to_numpy(), result.W, rtol=1e-12)
    coefficients = pd.read_csv("out/coefficients.csv", index_col=0)
    assert coefficients.index[89] == "cell 89"
    np.testing.assert_allclose(coefficients.to_numpy(), result.H.T, rtol=1e-12)
    labels = pd.read_csv("out/labels.csv")
    np.testing.assert_array_equal(labels["component"], result.labels)
    history = pd.read_csv("out/history.csv")
    np.testing.assert_allclose(history["relative_error"], result.history.relative_error)
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["relative_error"] == result.relative_error
    assert summary["cones"]["assumption"] == "holds"
    assert "cell 0" in Path("out/report.html").read_text()
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_fit_as_json_with_every_option(folder, capsys, run):
    options = "-k 2 --init random --solver mult --max-iter 7 --tol 0 --max-time 60 --seed 4"
    more = "--threads 1 --max-memory 1GB --samples-in columns --tables parquet --title T --json"
    assert run("fit", "cells.npy", "-o", "out", *options.split(), *more.split()) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["n_components"] == 2
    assert (answer["n_samples"], answer["n_features"]) == (30, 90)
    assert answer["n_iter"] == 7
    assert answer["settings"]["seed"] == 4
    assert answer["settings"]["init"] == "random"
    assert "out/coefficients.parquet" in answer["files"]
    assert pd.read_parquet("out/coefficients.parquet").shape == (30, 3)
    assert "<title>T" in Path("out/report.html").read_text()
    first = Factorization.load("out/result.npz").W
    run("fit", "cells.npy", "-o", "again", *options.split(), *more.split())
    np.testing.assert_array_equal(Factorization.load("again/result.npz").W, first)


def test_a_second_fit_replaces_the_first(folder, capsys, run):
    run("fit", "cells.csv", "-o", "out", "-k", 2)
    Path("out/notes.txt").write_text("mine")
    assert run("fit", "cells.csv", "-o", "out", "-k", 3, "--no-report", "--tables", "none") == 0
    assert {path.name for path in Path("out").iterdir()} == {
        "notes.txt",
        "result.npz",
        "summary.json",
    }
    assert Path("out/notes.txt").read_text() == "mine"
    assert Factorization.load("out/result.npz").K == 3
    assert "To create it: conenmf report out --data cells.csv" in capsys.readouterr().out


def test_by_default_results_are_named_after_the_data(folder, run):
    assert run("fit", "cells.csv", "-k", 2, "--no-report") == 0
    assert Path("cells.csv-conenmf/result.npz").exists()


def test_anndata_goes_in_and_out(folder, run):
    anndata = pytest.importorskip("anndata")
    frame = pd.read_csv("cells.csv", index_col=0)
    adata = anndata.AnnData(frame, layers={"counts": frame.to_numpy() * 2})
    adata.obs["batch"] = "a"
    adata.write_h5ad("cells.h5ad")
    assert run("fit", "cells.h5ad:layers/counts", "-k", 3, "-o", "out", "--anndata") == 0
    result = Factorization.load("out/result.npz")
    assert result.names.sample(1) == "cell 1"
    back = anndata.read_h5ad("out/annotated.h5ad")
    np.testing.assert_array_equal(back.obsm["X_conenmf"], result.H.T)
    np.testing.assert_array_equal(back.varm["conenmf"], result.W)
    assert back.obs["conenmf"].dtype == "category"
    np.testing.assert_array_equal(back.obs["conenmf"].astype(int), result.labels)
    assert list(back.obs) == ["batch", "conenmf"]
    assert json.loads(back.uns["conenmf"])["n_components"] == 3
    np.testing.assert_array_equal(back.X, frame.to_numpy())


def test_demo_needs_nothing(folder, capsys, run):
    assert run("demo", "--quiet") == 0
    output = capsys.readouterr().out
    assert "10 components; relative error 0.32" in output
    assert Path("conenmf-demo/digits.csv").exists()
    assert Path("conenmf-demo/result/report.html").exists()
    assert run("demo", "--quiet") == 0  # again


def test_too_little_memory_is_said(folder, monkeypatch, capsys, run):
    def broken(*_, **__):
        raise MemoryError

    monkeypatch.setattr("conenmf.cli.fit.factorize", broken)
    assert run("fit", "cells.csv") == 4
    assert "there is not enough memory: try --max-memory" in capsys.readouterr().err


def test_a_full_disk_is_said(folder, monkeypatch, capsys, run):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("conenmf.data.saving.write_array", full)
    assert run("fit", "cells.csv", "-o", "out", "--no-report") == 5
    assert "not enough disk space to write" in capsys.readouterr().err
    assert not Path("out").exists()


def test_a_table_that_cannot_be_written_does_not_lose_the_result(folder, monkeypatch, capsys, run):
    def broken(result, folder, kind):
        (folder / "components.csv").write_text("one of four tables")
        raise OutputError("components.csv cannot be written: Input/output error")

    monkeypatch.setattr("conenmf.cli.fit.write_tables", broken)
    assert run("fit", "cells.csv", "-k", 3, "-o", "out") == 5
    message = capsys.readouterr().err
    assert "Input/output error" in message
    assert "the new result is kept in out/unfinished-result" in message
    assert os.listdir("out") == ["unfinished-result"]
    assert Factorization.load("out/unfinished-result/result.npz").K == 3


def test_a_full_disk_leaves_the_earlier_result(folder, disk, capsys, run):
    place = disk("size=2m")
    np.save("small.npy", np.random.default_rng(0).random((50, 20)))
    np.save("large.npy", np.random.default_rng(0).random((8000, 20)))
    out = place / "out"
    assert run("fit", "small.npy", "-k", 3, "-o", out) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    capsys.readouterr()
    for K in (10, 200):  # too large for all files; too large for any
        assert run("fit", "large.npy", "-k", min(K, 20), "--max-iter", 1, "-o", out) == 5
        message = capsys.readouterr().err
        assert "not enough disk space to write" in message
        assert {name: (out / name).read_bytes() for name in before} == before
        kept = out / "unfinished-result"
        assert (f"the new result is kept in {kept}" in message) == kept.exists() == (K == 10)
        if kept.exists():
            assert Factorization.load(kept / "result.npz").K == 10
            shutil.rmtree(kept)
        assert {path.name for path in out.iterdir()} == {*before}
        if K == 10:
            (place / "filler").write_bytes(bytes(1_000_000))


def test_a_report_that_fails_leaves_the_earlier_result(folder, monkeypatch, capsys, run):
    assert run("fit", "cells.csv", "-k", 3, "-o", "out") == 0
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}

    def full(result, path, **options):
        with written_whole(path):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("conenmf.cli.fit.write_report", full)
    capsys.readouterr()
    assert run("fit", "cells.csv", "-k", 2, "-o", "out") == 5
    message = capsys.readouterr().err
    assert "not enough disk space to write out/unfinished-result/report.html" in message
    assert "; the new result is kept in out/unfinished-result\n" in message
    kept = {"components.csv", "coefficients.csv", "history.csv", "labels.csv", "result.npz"}
    assert {*os.listdir("out/unfinished-result")} == kept
    assert {name: Path("out", name).read_bytes() for name in before} == before


@pytest.mark.parametrize("command", ["fit", "diagnose"])
def test_a_large_h_leaves_no_file_beside_the_data(folder, run, command):
    (folder / "data").mkdir()
    np.save("data/large.npy", np.random.default_rng(0).random((600, 20)))
    output = ("-o", "out", "--tables", "none") if command == "fit" else ()
    limits = ("--max-memory", "100kB", "--max-iter", 3, "--effort", 0)
    assert run(command, "data/large.npy", "-k", 3, *limits, *output) == 0
    assert os.listdir("data") == ["large.npy"]
    if output:
        with np.load("out/result.npz") as saved:
            assert saved["H"].shape == (3, 600)


def test_two_commands_for_one_folder(folder, capsys, run, start):
    """The second is refused at once; when the first is killed, nothing of it stays."""
    np.save("large.npy", np.random.default_rng(0).random((2000, 300)))
    command = ("fit", "large.npy", "-k", 20, "--init", "random", "--tol", 0, "-o", "out")
    command += ("--max-iter", 10**6)

    def hidden():
        return [path.name for path in Path(".").rglob("*") if path.name.startswith(".")]

    short = ("fit", "cells.csv", "-k", 3, "-o", "out", "--no-report", "--tables", "none")
    assert run(*short) == 0
    with start(*command) as process:
        while not Path("out/unfinished-result").exists():
            assert process.poll() is None
            time.sleep(0.02)
        assert run(*short) == 5
        assert "out is in use by another process" in capsys.readouterr().err
        process.kill()
    left = {*os.listdir("out")} - {*hidden()}
    assert left == {"result.npz", "summary.json", "unfinished-result"}
    assert run(*short) == 0
    assert hidden() == []
    assert sorted(os.listdir("out")) == ["result.npz", "summary.json"]


def test_ctrl_c_saves_the_result_so_far_and_the_same_command_resumes_it(folder, capsys, run, start):
    np.save("large.npy", np.random.default_rng(0).random((2000, 300)))
    command = ("fit", "large.npy", "-k", 20, "--init", "random", "--seed", 0, "--tol", 0)
    command += ("--no-report", "--tables", "none")
    saved = ("--checkpoint", "saved")
    with start(*command, *saved, "-o", "out", "--max-iter", 10**6) as process:
        for line in process.stderr:  # plain lines, since this is not a terminal
            if "iteration" in line:
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "saving the result so far" in err
    assert ", interrupted, " in out
    assert "Traceback" not in err
    interrupted = Factorization.load("out/result.npz")
    assert interrupted.stop_reason == "interrupted"
    n_iter = interrupted.n_iter
    assert n_iter > 1
    assert os.listdir("saved") == [f"{n_iter:08d}"]
    assert f"run the same command to continue at iteration {n_iter}" in out

    last = ("--max-iter", n_iter + 3)
    capsys.readouterr()
    assert run(*command, *saved, "-o", "resumed", *last) == 0
    shown = capsys.readouterr()
    assert shown.err.startswith(f"conenmf: continuing at iteration {n_iter}\n")
    assert f"{n_iter + 3} iterations, continued at {n_iter}, " in shown.out
    assert run(*command, "-o", "undisturbed", *last) == 0
    resumed, undisturbed = (
        Factorization.load(f"{name}/result.npz") for name in ("resumed", "undisturbed")
    )
    # Times are never the same twice: the first ones are those of the interrupted run.
    np.testing.assert_array_equal(resumed.history.elapsed[:n_iter], interrupted.history.elapsed)
    assert resumed.n_iter == undisturbed.n_iter == n_iter + 3
    np.testing.assert_array_equal(resumed.W, undisturbed.W)
    np.testing.assert_array_equal(resumed.H, undisturbed.H)
    errors = (one.history.relative_error for one in (resumed, undisturbed))
    np.testing.assert_array_equal(*errors)


def test_a_checkpoint_in_the_folder_of_the_result(folder, run):
    command = ("fit", "cells.csv", "-k", 3, "-o", "out", "--checkpoint", "out", "--no-report")
    for _ in range(2):
        assert run(*command) == 0
    assert not [name for name in os.listdir("out") if name.startswith(".")]


def test_no_work_is_done_for_a_place_that_cannot_be_written(folder, capsys, run):
    assert run("fit", "gone.csv", "-o", "no/where") == 5  # the data were not even looked for
    assert "does not exist" in capsys.readouterr().err


def test_an_empty_folder_name_is_refused(folder, capsys, run):
    assert run("fit", "cells.npy", "-k", 2, "-o", "") == 4
    error = capsys.readouterr().err
    assert error == "conenmf: --output '', expected the path of a file or folder\n"


@pytest.mark.parametrize("flag", ["--solver", "-k", "--tol", "--max-iter", "-o", "--seed"])
@pytest.mark.parametrize("value", ["a" * 9000, "9" * 9000, "a " * 4500, "\x1b" * 9000])
def test_long_values_are_not_shown_whole(folder, capsys, run, flag, value):
    options = {"-k": 2, "--max-iter": 1, "--tables": "none", flag: value}
    assert run("fit", "cells.npy", *(one for pair in options.items() for one in pair)) in (2, 4, 5)
    (line,) = capsys.readouterr().err.splitlines()
    assert len(line) < 2100


def test_an_example_to_try(tmp_path, monkeypatch, capsys, run):
    monkeypatch.chdir(tmp_path)
    assert run("example") == 0
    assert "$ conenmf fit counts.csv\n" in capsys.readouterr().out
    assert run("fit", "counts.csv", "--no-report") == 0
    out = capsys.readouterr().out
    assert "counts.csv: 300 samples, 20 features\n4 components" in out
    assert "coffee, cereal, milk, bread, jam" in out
    assert run("example") == 5
    assert "counts.csv exists: name another file, or add --force" in capsys.readouterr().err
    assert run("example", "--force") == 0
    assert run("example", "counts.xlsx") == 4


def test_fit_can_look_for_other_components(folder, capsys, run):
    assert run("fit", "cells.csv", "-k", 3, "-o", "plain") == 0
    assert Factorization.load("plain/result.npz").known_uniqueness is None
    assert run("fit", "cells.csv", "-k", 3, "-o", "judged", "--uniqueness") == 0
    found = Factorization.load("judged/result.npz").known_uniqueness
    assert found.was_searched
    assert found.summary() in " ".join(capsys.readouterr().out.split())
    assert "only factors with the same" not in Path("judged/report.html").read_text("utf-8")
    assert "only factors with the same" in Path("plain/report.html").read_text("utf-8")
