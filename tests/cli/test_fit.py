"""`fit` and `demo`: what they write and print, and what Ctrl-C leaves."""

import json
import os
import shutil
import signal
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest

from conenmf import Factorization
from conenmf.progress import Display


def test_fit_writes_factors_labels_history_and_a_report(folder, output_of):
    output = output_of("fit", "cells.csv", "-o", "out")
    for line in (
        "3 components; relative error 0.0",
        "3 to 5 components, supported: use 3; 3 cones, proved",
        "The data fall into cones: yes",
        "open out/report.html in a browser",
    ):
        assert line in output
    assert {*os.listdir("out")} == {
        "result.npz",
        "components.csv",
        "coefficients.csv",
        "labels.csv",
        "history.csv",
        "verdict.csv",
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
    np.testing.assert_array_equal(pd.read_csv("out/labels.csv")["component"], result.labels)
    errors = pd.read_csv("out/history.csv")["relative_error"]
    np.testing.assert_allclose(errors, result.history.relative_error)
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["relative_error"] == result.relative_error
    assert summary["cones"]["assumption"] == "holds"
    assert "cell 0" in Path("out/report.html").read_text()
    assert f"\n\n{result.diagnosis}\n\n" in output
    verdict = pd.read_csv("out/verdict.csv")
    assert verdict.grade.tolist() == [*result.diagnosis.components]
    assert "out/verdict.csv" in [f"out/{name}" for name in summary["files"]]
    assert [name for name in os.listdir() if name.startswith(".")] == []


def test_fit_as_json_with_every_option(folder, output_of):
    options = "-k 2 --init random --solver mult --max-iter 7 --tol 0 --max-time 60 --seed 4"
    more = "--threads 1 --max-memory 1GB --samples-in columns --tables parquet --title T --json"
    command = ("fit", "cells.npy", *options.split(), *more.split())
    answer = output_of(*command, "-o", "out")
    expected = {"n_components": 2, "n_samples": 30, "n_features": 90, "n_iter": 7}
    assert {name: answer[name] for name in expected} == expected
    assert (answer["settings"]["seed"], answer["settings"]["init"]) == (4, "random")
    assert "out/coefficients.parquet" in answer["files"]
    assert pd.read_parquet("out/coefficients.parquet").shape == (30, 3)
    assert "<title>T" in Path("out/report.html").read_text()
    output_of(*command, "-o", "again")
    first, again = (Factorization.load(f"{name}/result.npz").W for name in ("out", "again"))
    np.testing.assert_array_equal(again, first)


def test_a_second_fit_replaces_the_first(folder, output_of):
    command = ("fit", "cells.csv", "-o", "out")
    output_of(*command, "-k", 2)
    Path("out/notes.txt").write_text("mine")
    output = output_of(*command, "-k", 3, "--no-report", "--tables", "none")
    assert "To create it: conenmf report out\n" in output
    assert sorted(os.listdir("out")) == ["notes.txt", "result.npz", "summary.json"]
    assert Path("out/notes.txt").read_text() == "mine"
    assert Factorization.load("out/result.npz").K == 3


def test_by_default_results_are_named_after_the_data(folder, run):
    assert run("fit", "cells.csv", "-k", 2, "--no-report") == 0
    assert Path("cells.csv-conenmf/result.npz").exists()


def test_anndata_goes_in_and_out(folder, run):
    frame = pd.read_csv("cells.csv", index_col=0)
    adata = anndata.AnnData(frame, layers={"counts": frame.to_numpy() * 2})
    adata.obs["batch"] = "a"
    adata.write_h5ad("cells.h5ad")
    assert run("fit", "cells.h5ad:layers/counts", "-k", 3, "-o", "out", "--anndata") == 0
    result = Factorization.load("out/result.npz")
    assert result.names.sample(1) == "cell 1"
    back = anndata.read_h5ad("out/annotated.h5ad")
    np.testing.assert_array_equal(back.obsm["X_conenmf"], result.H.T)


def test_demo_needs_nothing(folder, output_of):
    for _ in range(2):
        assert "10 components; relative error 0.32" in output_of("demo", "--quiet")
        assert Path("conenmf-demo/digits.csv").exists()
        assert Path("conenmf-demo/result/report.html").exists()


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
def test_ctrl_c_saves_the_result_so_far_and_the_same_command_resumes_it(
    folder, output_of, start, same_factors
):
    np.save("large.npy", np.random.default_rng(0).random((2000, 300)))
    words = "fit large.npy -k 20 --init random --seed 0 --tol 0 --no-report --tables none"
    command, saved = words.split(), ("--checkpoint", "saved")
    with start(*command, *saved, "-o", "out", "--max-iter", 10**6) as process:
        for line in process.stderr:  # plain lines, since this is not a terminal
            if "iteration" in line:
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "saving the result so far" in err
    assert "Traceback" not in err
    assert ", interrupted, " in out
    interrupted = Factorization.load("out/result.npz")
    n_iter = interrupted.n_iter
    assert (interrupted.stop_reason, n_iter > 1) == ("interrupted", True)
    assert os.listdir("saved") == [f"{n_iter:08d}"]
    assert f"run the same command to continue at iteration {n_iter}" in out

    last = ("--max-iter", n_iter + 3)
    output = output_of(*command, *saved, "-o", "resumed", *last)
    assert f"{n_iter + 3} iterations, continued at {n_iter}, " in output
    output_of(*command, "-o", "undisturbed", *last)
    resumed, undisturbed = (
        Factorization.load(f"{name}/result.npz") for name in ("resumed", "undisturbed")
    )
    # Times are never the same twice: the first ones are those of the interrupted run.
    np.testing.assert_array_equal(resumed.history.elapsed[:n_iter], interrupted.history.elapsed)
    assert resumed.n_iter == undisturbed.n_iter == n_iter + 3
    same_factors(resumed, undisturbed)
    errors = (one.history.relative_error for one in (resumed, undisturbed))
    np.testing.assert_array_equal(*errors)


def test_fit_can_look_for_other_components(folder, output_of):
    for options, was_searched in (("--quick",), False), (("--quick", "--uniqueness"), True):
        output_of("fit", "cells.csv", "-k", 3, "-o", "out", *options)
        found = Factorization.load("out/result.npz").known_uniqueness
        assert found.was_searched == was_searched
        page = Path("out/report.html").read_text("utf-8")
        assert ("<dt>Other factors</dt><dd>Not searched" in page) != was_searched


def test_a_quick_fit_leaves_the_components_open(folder, output_of):
    fit = ("fit", "cells.csv", "-k", 3, "-o", "out")
    output = output_of(*fit, "--quick")
    assert "\n\nopen: the 3 components were not checked\nData " in output
    assert "To check them: conenmf report out --data cells.csv\n" in output
    found = Factorization.load("out/result.npz").diagnosis
    assert found.cosines.shape == (0, 3)
    assert {found.row(name).grade for name in ("Structure", "Components")} == {"open"}
    output_of("report", "out", "--data", "cells.csv", "--splits", 1)
    assert "of 2 fits of halves" in Path("out/report.html").read_text("utf-8")
    output_of(*fit, "--splits", 4)
    assert Factorization.load("out/result.npz").diagnosis.cosines.shape == (8, 3)


def test_the_verdict_knows_groups_and_classes(folder, output_of, fails):
    table = pd.read_csv("cells.csv", index_col=0)
    donors = np.repeat(["ann", "bob", "eve"], 30)
    table.assign(donor=donors).to_csv("donors.csv")
    Path("donors.txt").write_text("\n".join(donors))
    fit = ("fit", "-k", 3, "-o", "out")
    for data, option, given in (
        ("donors.csv", "--groups", "donor"),
        ("cells.csv", "--groups", "donors.txt"),
        ("cells.csv", "--classes", "donors.txt"),
    ):
        output_of(*fit, data, option, given)
        result = Factorization.load("out/result.npz")
        assert result.n_features == table.shape[1]
        assert np.isfinite(result.diagnosis.class_shares).all()
    answer = output_of("diagnose", "cells.csv", "-k", 3, "--groups", "donors.txt", "--json")
    assert answer["verdict"]["components"] != []
    fails(4, "--groups is for a new verdict", "report", "out", "--groups", "donors.txt")
    fails(4, "--groups none.txt is not a file", *fit, "cells.npy", "--groups", "none.txt")


def test_ctrl_c_ends_the_verdict_and_keeps_the_finished_splits(folder, run, capsys, monkeypatch):
    update = Display.update
    notes = []

    def pressed(display, note, share=None, what=None):
        update(display, note, share, what)
        notes.append(what)
        if what == "checking components: split 2 of 3" and notes.count(what) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Display, "update", pressed)
    assert run("fit", "cells.csv", "-k", 3, "-o", "out") == 130
    output, problem = capsys.readouterr()
    assert "conenmf: saving the result so far" in problem  # after what took a second
    assert "checking components: split 3 of 3" not in notes
    result = Factorization.load("out/result.npz")
    assert result.stop_reason == "converged"
    assert result.diagnosis.cosines.shape == (2, 3)
    assert str(result.diagnosis) in output
    assert Path("out/report.html").exists()


def test_fit_says_what_else_the_data_may_be(folder, output_of, rng):
    np.save("images.npy", rng.random((30, 784)))
    np.save("counts.npy", rng.poisson(3.0, (30, 12)))
    genes = "".join(f"gene{i},{i % 5 + 1},{i % 3},{i % 7}\n" for i in range(40))
    Path("genes.csv").write_text(",a,b,c\n" + genes)
    quiet = ("--no-report", "--tables", "none", "-q", "--max-iter", 2)
    for words, hint in (
        (("images.npy", "-k", 2), "if samples are the columns, use --samples-in columns; if "),
        (("images.npy", "-k", 2), "if features are pixels, use --image-shape 28x28"),
        (("counts.npy", "-k", 2), "if they are counts, try --loss poisson"),
        (("genes.csv", "-k", 2), "if samples are the columns, use --samples-in columns"),
    ):
        assert hint in output_of("fit", *words, *quiet)
    np.save("long.npy", rng.poisson(3.0, (120, 4)))  # genes would have names
    Path("long.csv").write_text(",a,b,c\n" + genes.replace(",1,", ",1.5,"))  # no counts
    plain = (("cells.npy",), ("counts.npy", "--loss", "poisson"), ("counts.npy", "--log1p"))
    for words in (*plain, ("long.npy", "--loss", "poisson"), ("long.csv",)):
        answer = output_of("fit", *words, "-k", 2, "-o", "out", *quiet, "--json")
        assert not any("if " in remark for remark in answer["remarks"])


def test_tables_of_sigprofiler_are_read(folder, run):
    content = Path("cells.csv").read_bytes()
    for ending in ("all", "exome", "region"):
        Path(f"cells.SBS96.{ending}").write_bytes(content)
        assert run("fit", f"cells.SBS96.{ending}", "-k", 2, "--no-report", "-q") == 0


def test_the_number_of_components_may_be_a_range(folder, output_of, run):
    quiet = ("--no-report", "--tables", "none", "-q", "--json")
    assert output_of("fit", "cells.csv", "-k", "2-6", *quiet)["n_components"] == 3
    options = ("-k", "4-6", "--runs", 2, "--no-report", "--json")
    assert output_of("stability", "cells.csv", *options)["n_components"] in (4, 5, 6)
    for wrong in ("6-2", "2-", "-3", "0-4", "a-b"):
        assert run("fit", "cells.csv", f"-k{wrong}", *quiet) == 2
