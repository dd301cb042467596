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


def test_fit_writes_factors_labels_history_and_a_report(folder, capsys, run):
    assert run("fit", "cells.csv", "-o", "out") == 0
    output = capsys.readouterr().out
    assert "3 components; relative error 0.0" in output
    assert "3 components, proved: 3 clusters are apart" in output
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
    assert "To create it: conenmf report out\n" in capsys.readouterr().out


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


@pytest.mark.nightly
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


@pytest.mark.nightly
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
    assert f"continued at {n_iter}" in shown.out
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


def test_fit_can_look_for_other_components(folder, capsys, run):
    assert run("fit", "cells.csv", "-k", 3, "-o", "plain") == 0
    assert not Factorization.load("plain/result.npz").known_uniqueness.was_searched
    assert run("fit", "cells.csv", "-k", 3, "-o", "judged", "--uniqueness") == 0
    found = Factorization.load("judged/result.npz").known_uniqueness
    assert found.was_searched
    assert found.summary() in " ".join(capsys.readouterr().out.split())
    assert "only factors with the same" not in Path("judged/report.html").read_text("utf-8")
    assert "only factors with the same" in Path("plain/report.html").read_text("utf-8")


def test_fit_says_what_else_the_data_may_be(folder, capsys, run, rng):
    np.save("images.npy", rng.random((30, 784)))
    np.save("counts.npy", rng.poisson(3.0, (30, 12)))
    Path("twice.csv").write_text("a,a,b\n" + "1.5,2,3\n4,1,2.5\n" * 9)
    quiet = ("--no-report", "--tables", "none", "-q", "--max-iter", 2)
    for words, hint in (
        (("images.npy", "-k", 2), "if samples are the columns, use --samples-in columns; if "),
        (("images.npy", "-k", 2), "if features are pixels, use --image-shape 28x28"),
        (("counts.npy", "-k", 2), "if they are counts, try --loss poisson"),
        (("counts.npy", "-k", 20), "20 components for 12 features fit any data: use fewer"),
        (("twice.csv", "-k", 2), "several features are called 'a'"),
        (("counts.npy", "-k", 12), "12 components for 12 features fit any data: use fewer"),
    ):
        assert run("fit", *words, *quiet) == 0
        assert hint in capsys.readouterr().out
    for words in (("cells.npy",), ("counts.npy", "--loss", "poisson"), ("counts.npy", "--log1p")):
        assert run("fit", *words, "-k", 2, "-o", "out", *quiet, "--json") == 0
        assert not any("if " in remark for remark in json.loads(capsys.readouterr().out)["remarks"])


def test_tables_of_sigprofiler_are_read(folder, run):
    content = Path("cells.csv").read_bytes()
    for ending in ("all", "exome", "region"):
        Path(f"cells.SBS96.{ending}").write_bytes(content)
        assert run("fit", f"cells.SBS96.{ending}", "-k", 2, "--no-report", "-q") == 0


def test_files_that_cannot_be_read_are_explained(folder, capsys, run):
    Path("shares.csv").write_text("a,b\n10%,20%\n30%,40%\n")
    for name, words in (
        ("https://example.org/cells.csv", "addresses are not opened; download it"),
        ("shares.csv", "'10%' is not a number: write digits with '.', without the percent sign"),
        ("celsl.csv", "did you mean cells.csv?"),
        ("cells.cs", "did you mean cells.csv?"),
    ):
        assert run("fit", name) == 3
        assert words in capsys.readouterr().err


def test_the_number_of_components_may_be_a_range(folder, capsys, run):
    quiet = ("--no-report", "--tables", "none", "-q", "--json")
    assert run("fit", "cells.csv", "-k", "2-6", *quiet, "-o", "out") == 0
    assert json.loads(capsys.readouterr().out)["n_components"] == 3
    assert run("stability", "cells.csv", "-k", "4-6", "--runs", 2, "--no-report", "--json") == 0
    assert json.loads(capsys.readouterr().out)["n_components"] in (4, 5, 6)
    for wrong in ("6-2", "2-", "-3", "0-4", "a-b"):
        assert run("fit", "cells.csv", f"-k{wrong}", *quiet) == 2
