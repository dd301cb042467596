"""The program: its help, and every error it can give, with its exit code."""

import os
import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io
from PIL import Image

import conenmf
from conenmf import make_cones
from conenmf.cli import EXIT_CODES, app

COMMANDS = {name: app.get_command(None, name) for name in app.list_commands(None)}


def test_every_command_has_help_with_examples(output_of):
    for name, command in COMMANDS.items():
        output = output_of(name, "--help")
        before = output.partition(" options:\n")[0].partition("Output and resources:")[0]
        assert f"conenmf {name}" in before.split("\n", 1)[1]
        options = [one for one in command.params if one.param_type_name == "option"]
        assert all(option.help for option in options)
    output = " ".join(output_of("--help").split())
    for code, meaning in EXIT_CODES.items():
        assert f"{code} {meaning}" in output
    assert output_of().startswith("Usage: conenmf")
    assert conenmf.__version__ in output_of("--version")


@pytest.mark.parametrize(
    ("words", "expected", "slow"),
    [
        (None, "Usage: conenmf", ["numpy", "scipy", "sklearn", "rich"]),
        ("conenmf re", "plain,report", ["numpy", "scipy", "sklearn", "rich"]),
        ("conenmf fit --max-i", "plain,--max-iter", ["sklearn", "pandas", "matplotlib"]),
    ],
)
def test_help_and_completion_import_nothing_slow(words, expected, slow):
    """They would take seconds otherwise; options need the library itself."""
    program = (
        "import sys, atexit\n"
        f"atexit.register(lambda: print([name for name in {slow} if name in sys.modules]))\n"
        "sys.argv = ['conenmf', '--help']\n"
        "from conenmf.__main__ import run\n"
        "run()"
    )
    count = str(words.count(" ")) if words else ""
    completing = {"_CONENMF_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": count}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, **(completing if words else {})},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(expected)
    assert done.stdout.endswith("[]\n")


def test_the_page_about_it_is_true():
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    for name in COMMANDS:
        assert f"| `conenmf {name} " in page or f"| `conenmf {name}`" in page
    shared = {"--samples-in", "--dataset", "--negative", "--threads", "--max-memory", "--seed"}
    for option in {*shared, "--json", "--quiet", "--debug"}:
        assert f"| `{option}" in page
        for name in ("fit", "rank", "diagnose", "compare", "transform", "report"):
            assert any(option in parameter.opts for parameter in COMMANDS[name].params)


# --- errors -----------------------------------------------------------------------------------


ERRORS = [
    # the command was not understood
    (2, ["frobnicate"], "No such command 'frobnicate'"),
    (2, ["fit"], "Missing argument 'DATA'"),
    (2, ["fit", "cells.csv", "--frob"], "No such option"),
    (2, ["fti", "cells.csv"], "No such command 'fti'."),
    (2, ["fit", "cells.csv", "-k", "0"], "'0' is neither 'auto' nor a number of at least 1"),
    (2, ["fit", "cells.csv", "-k", "many"], "'many' is neither 'auto' nor a number"),
    (2, ["fit", "cells.csv", "--init", "best"], "'best' is not one of 'auto', 'cr1'"),
    (2, ["fit", "cells.csv", "--solver", "best"], "'best' is not one of 'auto'"),
    (2, ["fit", "cells.csv", "--max-iter", "-1"], "-1 is not in the range x>=0"),
    (2, ["fit", "cells.csv", "--tol", "x"], "'x' is not a valid float"),
    (2, ["fit", "cells.csv", "--threads", "0"], "0 is not in the range x>=1"),
    (2, ["fit", "cells.csv", "--seed", "-4"], "-4 is not in the range x>=0"),
    (2, ["fit", "cells.csv", "--samples-in", "cells"], "'cells' is not one of 'rows', 'columns'"),
    (2, ["fit", "cells.csv", "--image-shape", "9"], "'9' is not a shape such as 92x112"),
    (2, ["fit", "cells.csv", "--view", "poem"], "'poem' is not one of"),
    (2, ["fit", "cells.csv", "--tables", "xls"], "'xls' is not one of 'csv', 'parquet', 'none'"),
    (4, ["compare", "cells.csv", "--inits", ","], "choose one of 'auto', 'cr1'"),
    (2, ["transform", "out", "cells.csv"], "Missing option '-o' / '--output'"),
    # the data cannot be read or used
    (3, ["fit", "gone.csv"], "there is no file gone.csv"),
    (3, ["fit", "cels.csv"], "there is no file cels.csv: did you mean cells.csv?"),
    (3, ["fit", "Cells.CSV"], "there is no file Cells.CSV: did you mean cells.csv?"),
    (3, ["fit", "cells.cs"], "there is no file cells.cs: did you mean cells.csv?"),
    (3, ["fit", "https://a.org/b.csv"], "addresses are not opened; download it"),
    (
        3,
        ["fit", "percent.csv"],
        "'10%' is not a number: write digits with '.', without the percent sign",
    ),
    (3, ["fit", "new.xlsx"], "save a spreadsheet as CSV (UTF-8)"),
    (3, ["fit", "old.XLS"], "save a spreadsheet as CSV (UTF-8)"),
    (3, ["fit", "free.ods"], "save a spreadsheet as CSV (UTF-8)"),
    (3, ["fit", "news.svm"], "read libsvm files with sklearn.datasets.load_svmlight_file"),
    (4, ["fit", "index.csv", "--drop", "c"], "columns called 'c'; it has a, b: give one of these"),
    (3, ["fit", "notes.doc"], "notes.doc: unknown file format; known are"),
    (3, ["fit", "broken.npy"], "broken.npy is damaged, or not what its name says: the magic"),
    (3, ["fit", "pickled.npy"], "says: Array can't be memory-mapped: Python objects in dtype"),
    (3, ["fit", "pickled.npz"], "pickled.npz is damaged, or not what its name says: it holds"),
    (3, ["fit", "broken.npz"], "broken.npz is damaged, or not what its name says: it holds"),
    (
        3,
        ["fit", "minus.npy"],
        "Negative values in data: row 1 (sample), column 0 (feature), counted from 0, is -2",
    ),
    (3, ["fit", "code.npy"], "stands for missing values, pass --missing -999"),
    (3, ["fit", "docs.csv"], "factor the texts of one column with --text-column"),
    (3, ["fit", "nan.npy"], "row 0 (sample), column 1 (feature), counted from 0, is NaN"),
    (3, ["fit", "zero.npy"], "every entry is zero: there is nothing to factor"),
    (3, ["fit", "empty.npy"], "the matrix has shape (0, 4)"),
    (
        4,
        ["fit", "cells.csv", "--image-shape", "5x5"],
        "--image-shape: images of 5 x 5 have 25 pixels, and there are 30",
    ),
    (
        3,
        ["transform", "gone", "cells.csv", "-o", "a.csv"],
        "no result in gone: pass the output folder of",
    ),
    (3, ["transform", "cells.npy", "cells.csv", "-o", "a.csv"], "is not a factorization saved by"),
    (3, ["transform", "out", "narrow.npy", "-o", "a.csv"], "have 5 features, the model has 30"),
    (
        3,
        ["transform", "out", "other.csv", "-o", "a.csv"],
        "missing in the data: 'gene 3'; not in the model: 'gene x'",
    ),
    (3, ["report", "gone"], "no result in gone: pass the output folder of `conenmf fit`"),
    (
        3,
        ["report", "unjudged", "--data", "narrow.npy"],
        "the data of unjudged had 90 and 30",
    ),
    (3, ["compare", "cells.csv", "--labels", "gone.txt"], "gone.txt: No such file or directory"),
    (
        3,
        ["compare", "cells.csv", "--labels", "few.txt"],
        "2 labels in few.txt for 90 samples",
    ),
    # the options do not suit the data
    (4, ["fit", "cells.csv", "-k", "91"], "fewer than the 91 components asked for"),
    (4, ["fit", "cells.csv", "--view", "images"], "--view images needs --image-shape"),
    (4, ["compare", "cells.csv", "--plot", "a.doc"], "a picture ends in .png, .pdf or .svg"),
    (5, ["compare", "cells.csv", "-o", "no/a.csv"], "cannot be written: its folder does not exist"),
    (
        4,
        ["fit", "cells.csv:/counts"],
        "--dataset /counts is not an option for cells.csv: leave it out",
    ),
    (4, ["fit", "cells.csv", "--anndata"], "--anndata is for .h5ad files, and DATA is cells.csv"),
    (4, ["fit", "cells.csv", "--max-memory", "lots"], "--max-memory lots, expected a number of"),
    (3, ["fit", "two.npz"], "two.npz holds a, b: name one of them with --dataset"),
    (3, ["fit", "two.h5"], "two.h5 holds a, b: name one of them with --dataset"),
    (3, ["fit", "two.mat"], "two.mat holds a, b: name one of them with --dataset"),
    (3, ["fit", "tiny.npy"], "the smallest entry; pass --negative clip to read it as zero"),
    (4, ["fit", "cells.npy", "--max-memory", "100"], "--max-memory 100 bytes is too little"),
    (4, ["fit", "cells.npy", "--tol", "nan"], "--tol nan, expected a number of at least 0"),
    (4, ["fit", "cells.npy", "--max-time", "nan"], "--max-time nan, expected seconds"),
    (3, ["fit", "dataset=1.csv"], "there is no file dataset=1.csv"),
    (4, ["fit", "pictures", "--samples-in", "columns"], "a sample: leave out --samples-in"),
    (
        3,
        ["fit", "packed.npz", "--max-memory", "8KB"],
        "or raise --max-memory",
    ),
    (4, ["fit", "cells.csv", "-k", "3", "--checkpoint", "few.txt"], "few.txt"),
    (2, ["rank", "cells.csv", "-k", "9-3"], "'9-3' is neither 'auto' nor a number"),
    (4, ["rank", "cells.csv", "--plot", "a.doc"], "a picture ends in .png"),
    (4, ["transform", "out", "cells.csv", "-o", "a.xls"], "a table ends in .csv, .parquet or .npy"),
    # a result cannot be written
    (5, ["fit", "cells.csv", "-o", "mixed", "--force"], "mixed holds another labels.csv: move it"),
    (5, ["fit", "out/coefficients.csv", "-o", "out"], "is part of the result in out: name another"),
    (5, ["fit", "cells.csv", "-o", "cells.npy"], "cells.npy is a file: name a folder"),
    (5, ["fit", "cells.csv", "-o", "no/where"], "does not exist"),
    (5, ["fit", "cells.csv", "-o", "full"], "full holds other files: name another folder, or add"),
    (
        5,
        ["report", "out", "-o", "no/report.html"],
        "no/report.html cannot be written: its folder does not",
    ),
    (5, ["rank", "cells.csv", "--plot", "no/a.png"], "cannot be written"),
    (
        5,
        ["transform", "out", "cells.csv", "-o", "no/a.csv"],
        "cannot be written: its folder does not exist",
    ),
    (5, ["demo", "-o", "full"], "full holds other files"),
]


TEXTS = {
    "notes.doc": "my notes",
    "broken.npy": "no header",
    "broken.npz": "no archive",
    "new.xlsx": "PK\3\4",
    "news.svm": "1 3:0.5",
    "old.XLS": "PK\3\4",
    "free.ods": "PK\3\4",
    "percent.csv": "a,b\n10%,20%\n30%,5%\n",
    "index.csv": ",a,b\nx,1,2\ny,3,4\n",
    "docs.csv": "id,text\nx,one oak\ny,two elms\n",
    "few.txt": "a\nb\n",
    "full/thesis.tex": "precious",
    "mixed/labels.csv": "precious",
}
ARRAYS = {
    "minus.npy": [[1.0, 2.0], [-2.0, 1.0]],
    "code.npy": [[1.0, -999], [2.0, 1.0]],
    "nan.npy": [[1.0, np.nan], [2.0, 1.0]],
    "zero.npy": np.zeros((3, 3)),
    "empty.npy": np.zeros((0, 4)),
    "narrow.npy": np.ones((4, 5)),
    "tiny.npy": [[1.0, 2.0], [-1e-9, 1.0]],
    "pickled.npy": np.array([[{}]], dtype=object),
}


@pytest.fixture(scope="module")
def bad_files(tmp_path_factory, run):
    """A folder with files that cannot be read, and with results."""
    place = tmp_path_factory.mktemp("bad")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        model = make_cones(30, 3, 0.1, n_samples=90, rng=np.random.default_rng(0))
        frame = pd.DataFrame(model.V.T).set_axis([f"gene {f}" for f in range(30)], axis=1)
        frame.to_csv("cells.csv", index=False)
        frame.rename(columns={"gene 3": "gene x"}).to_csv("other.csv", index=False)
        for name in ("pictures", "full", "mixed"):
            Path(name).mkdir()
        for name, text in TEXTS.items():
            Path(name).write_text(text)
        for name, array in (ARRAYS | {"cells.npy": model.V.T}).items():
            np.save(name, array, allow_pickle=True)
        np.savez("pickled.npz", ARRAYS["pickled.npy"])
        np.savez_compressed("packed.npz", V=model.V.T)
        two = {"a": np.ones((3, 2)), "b": np.ones((4, 2))}
        np.savez("two.npz", **two)
        scipy.io.savemat("two.mat", two)
        with h5py.File("two.h5", "w") as file:
            file.update(two)
        for name in ("a", "b"):
            Image.fromarray(np.full((4, 3), 7, np.uint8)).save(f"pictures/{name}.png")
        assert run("fit", "cells.csv", "-k", 3, "-o", "out") == 0
        assert run("fit", "cells.csv", "-k", 3, "-o", "unjudged", "--no-report") == 0
    return place


@pytest.mark.parametrize(("code", "arguments", "message"), ERRORS)
def test_every_error_is_one_line_with_its_code(
    code, arguments, message, bad_files, monkeypatch, capsys, run
):
    monkeypatch.chdir(bad_files)
    before = sorted(bad_files.rglob("*"))
    has_quiet = arguments[0] in COMMANDS
    assert run(*arguments, *["--quiet"] * has_quiet) == code
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert line.startswith("conenmf: ")
    assert message in line
    in_python = r"Traceback|allow_pickle|\b[a-z_]+="  # flags are named, not options of Python
    assert not re.search(in_python, line.replace("dataset=1.csv", ""))
    assert sorted(bad_files.rglob("*")) == before  # nothing half done is left behind


def test_an_error_in_conenmf_is_one_line_too(folder, monkeypatch, fails):
    def broken(*_, **__):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("conenmf.cli.fit.factorize", broken)
    line = "conenmf: unexpected ZeroDivisionError: division by zero; --debug shows where\n"
    fails(1, line, "fit", "cells.csv")
    fails(1, "Traceback", "fit", "cells.csv", "--debug")


# --- as a program -----------------------------------------------------------------------------


def test_a_closed_pipe_is_not_an_error(folder, start):
    with start("rank", "cells.csv", "--quiet") as process:
        process.stdout.close()
        assert process.wait(timeout=300) == 0
        assert process.stderr.read() == ""


def test_without_the_packages_it_says_which(tmp_path):
    (tmp_path / "click.py").write_text("raise ModuleNotFoundError('no click', name='click')")
    look_here = f"import sys; sys.path.insert(0, {str(tmp_path)!r})"
    program = f"{look_here}\nfrom conenmf.__main__ import run\nrun()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        1,
        'conenmf: the command line needs the package click: run pip install ".[cli]" in the '
        "folder of conenmf\n",
    )
