"""A folder with data, and ways to run a command in it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import conenmf
from conenmf import make_cones
from conenmf.cli import main


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


@pytest.fixture(scope="session")
def run():
    """Run a command in this process; its exit code."""
    return lambda *arguments: main([str(argument) for argument in arguments])


@pytest.fixture
def output_of(run, capsys):
    """Run a command that succeeds; what it prints, read as JSON if the command has --json."""

    def output(*arguments):
        capsys.readouterr()
        assert run(*arguments) == 0
        printed = capsys.readouterr().out
        return json.loads(printed) if "--json" in arguments else printed

    return output


@pytest.fixture
def fails(run, capsys):
    """Check that a command ends with this code and says this on stderr."""

    def check(code, message, *arguments):
        capsys.readouterr()
        assert run(*arguments) == code
        assert message in capsys.readouterr().err

    return check


@pytest.fixture(scope="session")
def start():
    """Start the program."""

    def popen(*arguments):
        return subprocess.Popen(
            [sys.executable, "-m", "conenmf", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(conenmf.__file__).parents[1])},
        )

    return popen
