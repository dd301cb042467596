"""The command line: what it writes and prints, and every error it can give, with its exit code."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import conenmf
from conenmf import Factorization, make_cones
from conenmf.cli import EXIT_CODES, app, main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with data, in which commands run."""
    monkeypatch.chdir(tmp_path)
    model = make_cones(30, 3, 0.1, n_samples=90, rng=np.random.default_rng(0))
    X = model.V.T
    frame = pd.DataFrame(X, [f"cell {n}" for n in range(90)], [f"gene {f}" for f in range(30)])
    frame.to_csv("cells.csv")
    frame.iloc[::-1, ::-1].to_csv("turned.csv")
    np.save("cells.npy", X)
    Path("classes.txt").write_text("\n".join(map(str, model.labels)))
    return tmp_path


def run(*arguments):
    return main([str(argument) for argument in arguments])


# --- what commands do -------------------------------------------------------------------------


def test_fit_writes_factors_labels_history_and_a_report(folder, capsys):
    assert run("fit", "cells.csv", "-o", "out") == 0
    said = capsys.readouterr().out
    assert "3 components; relative error 0.0" in said
    assert "the data fall into cones: yes" in said
    assert "open out/report.html in a browser" in said
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
    assert summary["cones"]["assumption_holds"] is True
    assert "cell 0" in Path("out/report.html").read_text()
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_fit_as_json_with_every_option(folder, capsys):
    options = "-k 2 --init random --solver mult --max-iter 7 --tol 0 --max-time 60 --seed 4"
    more = "--threads 1 --max-memory 1GB --samples-in columns --tables parquet --title T --json"
    assert run("fit", "cells.npy", "-o", "out", *options.split(), *more.split()) == 0
    known = json.loads(capsys.readouterr().out)
    assert known["n_components"] == 2
    assert (known["n_samples"], known["n_features"]) == (30, 90)
    assert known["n_iter"] == 7
    assert known["settings"]["seed"] == 4
    assert known["settings"]["init"] == "random"
    assert "out/coefficients.parquet" in known["files"]
    assert pd.read_parquet("out/coefficients.parquet").shape == (30, 3)
    assert "<title>T" in Path("out/report.html").read_text()
    first = Factorization.load("out/result.npz").W
    run("fit", "cells.npy", "-o", "again", *options.split(), *more.split())
    np.testing.assert_array_equal(Factorization.load("again/result.npz").W, first)


def test_a_second_fit_replaces_the_first(folder, capsys):
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
    assert "conenmf report out --data cells.csv makes one" in capsys.readouterr().out


def test_by_default_results_are_named_after_the_data(folder):
    assert run("fit", "cells.csv", "-k", 2, "--no-report") == 0
    assert Path("cells.csv-conenmf/result.npz").exists()


def test_anndata_goes_in_and_out(folder):
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
    np.testing.assert_array_equal(back.obs["conenmf"], result.labels)
    assert list(back.obs) == ["batch", "conenmf"]
    assert json.loads(back.uns["conenmf"])["n_components"] == 3
    np.testing.assert_array_equal(back.X, frame.to_numpy())


def test_a_checkpointed_fit_is_told_to_go_on(folder):
    for _ in range(2):
        assert run("fit", "cells.npy", "-k", 3, "-o", "out", "--checkpoint", "saved") == 0


def test_rank_prints_the_estimators(folder, capsys):
    options = ("--methods", "ratio,parallel", "--max", 8)
    assert run("rank", "cells.csv", *options, "--plot", "rank.png") == 0
    said = capsys.readouterr().out
    assert "recommended: 3" in said
    assert "█" in said
    assert Path("rank.png").read_bytes().startswith(b"\x89PNG")
    assert run("rank", "cells.csv", *options, "--json") == 0
    known = json.loads(capsys.readouterr().out)
    assert known["n_components"] == 3
    assert known["candidates"] == list(range(2, 9))
    assert known["estimators"].keys() == {"ratio", "parallel"}


def test_diagnose_judges(folder, capsys):
    assert run("diagnose", "cells.csv") == 0
    said = capsys.readouterr().out
    assert "the geometric assumption holds, margin 0." in said
    assert "advised start: cr1, because one cone for each sample leaves" in said
    assert "error of cr1-nmf alone" in said
    assert run("diagnose", "cells.csv", "--json") == 0
    known = json.loads(capsys.readouterr().out)
    assert known["certificate"]["lower_bound"] <= known["relative_error"]
    assert known["advised_init"]["init"] == "cr1"
    assert run("diagnose", "cells.csv", "-k", 1, "--json") == 0
    assert json.loads(capsys.readouterr().out)["cones"]["margin"] is None
    assert {*os.listdir()} == {"cells.csv", "turned.csv", "cells.npy", "classes.txt"}


def test_compare_ranks_starts_and_solvers(folder, capsys):
    choice = ("-k", 3, "--inits", "cr1,random", "--solvers", "hals,mult", "--max-iter", 20)
    more = ("--labels", "classes.txt", "-o", "table.csv", "--plot", "error.svg")
    assert run("compare", "cells.csv", *choice, *more, "--json") == 0
    contenders = json.loads(capsys.readouterr().out)["contenders"]
    assert len(contenders) == 4
    errors = [one["relative_error"] for one in contenders]
    assert errors == sorted(errors)
    assert contenders[0]["nmi"] > 0.8
    table = pd.read_csv("table.csv", float_precision="round_trip")
    assert table.to_dict("records") == contenders
    assert "<svg" in Path("error.svg").read_text()
    assert run("compare", "cells.csv", *choice) == 0
    assert "relative_error" in capsys.readouterr().out


def test_transform_matches_features_by_name(folder, capsys):
    run("fit", "cells.csv", "-k", 3, "-o", "out")
    result = Factorization.load("out/result.npz")
    assert run("transform", "out", "turned.csv", "-o", "new.csv") == 0
    assert "90 samples in 3 components" in capsys.readouterr().out
    new = pd.read_csv("new.csv", index_col=0)
    assert new.index[0] == "cell 89"
    np.testing.assert_allclose(new.to_numpy()[::-1], result.H.T, atol=1e-10)
    assert run("transform", "out/result.npz", "cells.npy", "-o", "new.npy", "--json") == 0
    known = json.loads(capsys.readouterr().out)
    assert known["relative_error"] == pytest.approx(result.relative_error)
    np.testing.assert_allclose(np.load("new.npy"), result.H.T, atol=1e-10)


def test_report_of_a_result(folder, capsys):
    run("fit", "cells.csv", "-k", 3, "-o", "out")
    Path("out/report.html").unlink()
    assert run("report", "out") == 0
    assert "open out/report.html" in capsys.readouterr().out
    assert Path("out/report.html").exists()
    assert run("report", "out/result.npz", "-o", "pictures.html", "--image-shape", "5x6") == 0
    run("fit", "cells.csv", "-k", 3, "-o", "out", "--no-report")
    assert run("report", "out", "--data", "cells.csv", "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["report"] == "out/report.html"


def test_demo_needs_nothing(folder, capsys):
    assert run("demo", "--quiet") == 0
    said = capsys.readouterr().out
    assert "10 components; relative error 0.32" in said
    assert Path("conenmf-demo/digits.csv").exists()
    assert Path("conenmf-demo/result/report.html").exists()
    assert run("demo", "--quiet") == 0  # again


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell, capsys):
    assert run("completion", shell) == 0
    assert "_CONENMF_COMPLETE" in capsys.readouterr().out


def test_every_command_has_help_with_examples(capsys):
    for name, command in app.commands.items():
        assert run(name, "--help") == 0
        said = capsys.readouterr().out
        assert name == "demo" or f"conenmf {name}" in said.split("Options:")[0].split("\n", 1)[1]
        options = [one for one in command.params if one.param_type_name == "option"]
        assert all(option.help for option in options)
    assert run("--help") == 0
    said = " ".join(capsys.readouterr().out.split())
    for code, meaning in EXIT_CODES.items():
        assert f"{code} {meaning}" in said
    assert run() == 0
    assert run("--version") == 0
    assert conenmf.__version__ in capsys.readouterr().out


def test_the_page_about_it_is_true():
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in page
    for name in app.commands:
        assert f"| `conenmf {name} " in page or f"| `conenmf {name}`" in page
    shared = {"--samples-in", "--dataset", "--negative", "--threads", "--max-memory", "--seed"}
    for option in {*shared, "--json", "--quiet", "--debug"}:
        assert f"| `{option}" in page
        for name in ("fit", "rank", "diagnose", "compare", "transform", "report"):
            assert any(option in parameter.opts for parameter in app.commands[name].params)


# --- errors -----------------------------------------------------------------------------------


def write(name, content):
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())


ERRORS = [
    # the command was not understood
    (2, ["frobnicate"], "No such command 'frobnicate'"),
    (2, ["fit"], "Missing argument 'DATA'"),
    (2, ["fit", "cells.csv", "--frob"], "No such option"),
    (2, ["fit", "cells.csv", "-k", "0"], "'0' is neither 'auto' nor a number of at least 1"),
    (2, ["fit", "cells.csv", "-k", "many"], "'many' is neither 'auto' nor a number"),
    (2, ["fit", "cells.csv", "--init", "best"], "'best' is not one of 'auto', 'cr1'"),
    (2, ["fit", "cells.csv", "--solver", "best"], "'best' is not one of 'hals'"),
    (2, ["fit", "cells.csv", "--max-iter", "-1"], "-1 is not in the range x>=0"),
    (2, ["fit", "cells.csv", "--tol", "x"], "'x' is not a valid float"),
    (2, ["fit", "cells.csv", "--threads", "0"], "0 is not in the range x>=1"),
    (2, ["fit", "cells.csv", "--seed", "-4"], "-4 is not in the range x>=0"),
    (2, ["fit", "cells.csv", "--samples-in", "cells"], "'cells' is not one of 'rows', 'columns'"),
    (2, ["fit", "cells.csv", "--image-shape", "9"], "'9' is not a shape such as 92x112"),
    (2, ["fit", "cells.csv", "--view", "poem"], "'poem' is not one of"),
    (2, ["fit", "cells.csv", "--tables", "xls"], "'xls' is not one of 'csv', 'parquet', 'none'"),
    (2, ["rank", "cells.csv", "--methods", "guess"], "'guess' is not one of ratio, parallel"),
    (2, ["compare", "cells.csv", "--inits", ","], "name some of auto, cr1"),
    (2, ["transform", "out", "cells.csv"], "Missing option '-o' / '--output'"),
    (2, ["completion", "tcsh"], "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
    # the data cannot be read or used
    (3, ["fit", "gone.csv"], "there is no file gone.csv"),
    (3, ["fit", "notes.doc"], "notes.doc: unknown kind of file; known are"),
    (3, ["fit", "broken.npy"], "broken.npy does not begin like an .npy file"),
    (3, ["fit", "pickled.npy"], "entries have type object, expected numbers"),
    (3, ["fit", "minus.npy"], "Negative values in data: row 1 (sample), column 0 (feature) is -2"),
    (3, ["fit", "nan.npy"], "row 0 (sample), column 1 (feature) is NaN"),
    (3, ["fit", "zero.npy"], "every entry is zero: there is nothing to factor"),
    (3, ["fit", "empty.npy"], "the matrix has shape (0, 4)"),
    (4, ["fit", "cells.csv", "--image-shape", "5x5"], "5 x 5 have 25 pixels, and there are 30"),
    (
        3,
        ["transform", "gone", "cells.csv", "-o", "a.csv"],
        "there is no result gone: name a folder",
    ),
    (3, ["transform", "cells.npy", "cells.csv", "-o", "a.csv"], "is not a factorisation saved by"),
    (3, ["transform", "out", "narrow.npy", "-o", "a.csv"], "have 5 features, the model has 30"),
    (3, ["transform", "out", "other.csv", "-o", "a.csv"], "the model has no feature 'gene x'"),
    (3, ["report", "gone"], "there is no result gone: name a folder that fit wrote"),
    (3, ["report", "unjudged", "--data", "narrow.npy"], "narrow.npy has another shape than the"),
    (3, ["compare", "cells.csv", "--labels", "gone.txt"], "gone.txt: No such file or directory"),
    (3, ["compare", "cells.csv", "--labels", "few.txt"], "few.txt has 2 labels for 90 samples"),
    # the options do not suit the data
    (4, ["fit", "cells.csv", "-k", "91"], "fewer than the 91 components asked for"),
    (4, ["fit", "cells.csv", "--view", "images"], "view='images' needs image_shape"),
    (4, ["compare", "cells.csv", "--plot", "a.doc"], "a picture ends in .png, .pdf or .svg"),
    (5, ["compare", "cells.csv", "-o", "no/a.csv"], "cannot be written: its folder does not exist"),
    (4, ["fit", "cells.csv:/counts"], "cells.csv holds one matrix and no '/counts'"),
    (4, ["fit", "cells.csv", "--anndata"], "--anndata is for .h5ad files, and DATA is cells.csv"),
    (4, ["fit", "cells.csv", "--max-memory", "lots"], "max_memory='lots', expected a number of"),
    (4, ["fit", "cells.csv", "-k", "3", "--checkpoint", "few.txt"], "few.txt"),
    (4, ["rank", "cells.csv", "--min", "9", "--max", "3"], "--min 9 is above --max 3"),
    (4, ["rank", "cells.csv", "--methods", "ratio", "--plot", "a.doc"], "a picture ends in .png"),
    (4, ["transform", "out", "cells.csv", "-o", "a.xls"], "a table ends in .csv, .parquet or .npy"),
    (4, ["report", "unjudged"], "unjudged was not judged when it was written: add --data DATA"),
    # a result cannot be written
    (5, ["fit", "cells.csv", "-o", "mixed", "--force"], "mixed holds another labels.csv: move it"),
    (5, ["fit", "out/coefficients.csv", "-o", "out"], "is part of the result in out: name another"),
    (5, ["fit", "cells.csv", "-o", "cells.npy"], "cells.npy is a file: name a folder"),
    (5, ["fit", "cells.csv", "-o", "no/where"], "does not exist"),
    (5, ["fit", "cells.csv", "-o", "full"], "full holds other files: name another folder, or add"),
    (
        5,
        ["report", "out", "-o", "no/report.html"],
        "cannot write no/report.html: the folder does not",
    ),
    (5, ["rank", "cells.csv", "--methods", "ratio", "--plot", "no/a.png"], "cannot be written"),
    (
        5,
        ["transform", "out", "cells.csv", "-o", "no/a.csv"],
        "cannot be written: its folder does not exist",
    ),
    (5, ["demo", "-o", "full"], "full holds other files"),
]


@pytest.fixture(scope="module")
def crime_scene(tmp_path_factory):
    """A folder in which much can go wrong."""
    place = tmp_path_factory.mktemp("scene")
    before = os.getcwd()
    os.chdir(place)
    try:
        model = make_cones(30, 3, 0.1, n_samples=90, rng=np.random.default_rng(0))
        frame = pd.DataFrame(model.V.T).set_axis([f"gene {f}" for f in range(30)], axis=1)
        frame.to_csv("cells.csv", index=False)
        frame.rename(columns={"gene 3": "gene x"}).to_csv("other.csv", index=False)
        np.save("cells.npy", model.V.T)
        write("notes.doc", "dear diary")
        write("broken.npy", "no header")
        np.save("pickled.npy", np.array([[{}]], dtype=object), allow_pickle=True)
        np.save("minus.npy", [[1.0, 2.0], [-2.0, 1.0]])
        np.save("nan.npy", [[1.0, np.nan], [2.0, 1.0]])
        np.save("zero.npy", np.zeros((3, 3)))
        np.save("empty.npy", np.zeros((0, 4)))
        np.save("narrow.npy", np.ones((4, 5)))
        write("few.txt", "a\nb\n")
        Path("full").mkdir()
        write("full/thesis.tex", "precious")
        Path("mixed").mkdir()
        write("mixed/labels.csv", "precious")
        assert run("fit", "cells.csv", "-k", 3, "-o", "out") == 0
        assert run("fit", "cells.csv", "-k", 3, "-o", "unjudged", "--no-report") == 0
    finally:
        os.chdir(before)
    return place


@pytest.mark.parametrize(("code", "arguments", "message"), ERRORS)
def test_every_error_is_one_line_with_its_code(
    code, arguments, message, crime_scene, monkeypatch, capsys
):
    monkeypatch.chdir(crime_scene)
    before = sorted(crime_scene.rglob("*"))
    assert run(*arguments) == code
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith("conenmf: ")
    assert message in line
    assert "Traceback" not in line
    assert sorted(crime_scene.rglob("*")) == before  # nothing half done is left behind


def test_a_mistake_of_ours_is_one_line_too(folder, monkeypatch, capsys):
    def broken(*_, **__):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("conenmf.cli.fitting.factorize", broken)
    assert run("fit", "cells.csv") == 1
    said = capsys.readouterr().err
    assert said == "conenmf: unexpected ZeroDivisionError: division by zero; --debug shows where\n"
    assert run("fit", "cells.csv", "--debug") == 1
    assert "Traceback" in capsys.readouterr().err


def test_too_little_memory_is_said(folder, monkeypatch, capsys):
    def broken(*_, **__):
        raise MemoryError

    monkeypatch.setattr("conenmf.cli.fitting.factorize", broken)
    assert run("fit", "cells.csv") == 4
    assert "there is not enough memory: try --max-memory" in capsys.readouterr().err


def test_a_full_disk_is_said(folder, monkeypatch, capsys):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("conenmf.result.write_array", full)
    assert run("fit", "cells.csv", "-o", "out", "--no-report") == 5
    assert "no room to write" in capsys.readouterr().err
    assert not Path("out").exists()


def test_a_table_that_cannot_be_written_does_not_lose_the_result(folder, monkeypatch, capsys):
    def broken(*_, **__):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("conenmf.export.write_coefficients", broken)
    assert run("fit", "cells.csv", "-k", 3, "-o", "out") == 3
    assert "Input/output error" in capsys.readouterr().err
    assert {path.name for path in Path("out").iterdir()} == {"result.npz", "summary.json"}
    assert json.loads(Path("out/summary.json").read_text())["files"] == sorted(os.listdir("out"))
    assert Factorization.load("out/result.npz").K == 3


def test_what_could_act_on_a_terminal_is_spelled_out(folder, capsys):
    assert run("fit", "evil\x1b[2J.csv") == 3
    assert capsys.readouterr().err == "conenmf: there is no file evil\\x1b[2J.csv\n"


# --- as a program -----------------------------------------------------------------------------


def start(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "conenmf", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(conenmf.__file__).parents[1])},
        **options,
    )


def test_ctrl_c_saves_what_there_is(folder):
    rng = np.random.default_rng(0)
    np.save("large.npy", rng.random((2000, 300)))
    asked = ("-k", 20, "--init", "random", "--seed", 0, "--tol", 0, "--max-iter", 10**6)
    with start("fit", "large.npy", *asked, "-o", "out", "--checkpoint", "saved") as process:
        for line in process.stderr:  # plain lines, since this is not a terminal
            if "iteration" in line:
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "saving what there is" in err
    assert "interrupted" in out
    result = Factorization.load("out/result.npz")
    assert result.stop_reason == "interrupted"
    assert result.n_iter > 1
    assert "Traceback" not in err
    assert len(os.listdir("saved")) == 1  # the same command would go on from here


def test_a_reader_that_has_seen_enough_is_no_error(folder):
    with start("rank", "cells.csv", "--methods", "ratio", "--quiet") as process:
        process.stdout.close()
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == ""


def test_without_the_packages_it_says_which(tmp_path):
    (tmp_path / "click.py").write_text("raise ModuleNotFoundError('no click', name='click')")
    look_here = f"import sys; sys.path.insert(0, {str(tmp_path)!r})"
    program = f"{look_here}\nfrom conenmf.__main__ import run\nrun()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "conenmf: the command line needs the package click: pip install 'conenmf[cli]'\n"
    )


def test_no_work_is_done_for_a_place_that_cannot_be_written(folder, capsys):
    assert run("fit", "gone.csv", "-o", "no/where") == 5  # the data were not even looked for
    assert "does not exist" in capsys.readouterr().err
