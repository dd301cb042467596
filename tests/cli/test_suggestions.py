"""Commands that the program suggests work as they are printed, and what it says is in its words."""

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

COMMAND = re.compile(
    r"(?:^\$ |: |run |')(conenmf (?:[a-z]+|--help)\b[^\n]*?)(?:'\)|$)", re.MULTILINE
)


def suggested(shown):
    """The commands in what was printed, as lists of words."""
    return [shlex.split(command)[1:] for command in COMMAND.findall(shown.out + shown.err)]


@pytest.fixture
def odd_folder(folder):
    """Files whose names and content need options to be read."""
    frame = pd.read_csv("cells.csv", index_col=0)
    frame.T.to_csv("genes by cells.csv")
    np.savez("two.npz", a=frame.to_numpy(), b=frame.to_numpy()[:, ::-1])
    tiny = frame.to_numpy().copy()
    tiny[3, 4] = -1e-13
    np.save("it's tiny.npy", tiny)
    frame.assign(day=range(90)).to_csv("days.csv", index_label="cell")
    np.savetxt("numbers.csv", frame.to_numpy(), delimiter=",")
    return folder


FIT = ("-k", 3, "--no-report", "--tables", "none", "-q")


@pytest.mark.parametrize(
    "arguments",
    [
        ("fit", "genes by cells.csv", "--samples-in", "columns", "-o", "my result"),
        ("fit", "two.npz", "--dataset", "b"),
        ("fit", "two.npz:b"),
        ("fit", "it's tiny.npy", "--negative", "clip"),
        ("fit", "days.csv", "--drop", "day", "--names-column", "cell"),
        ("fit", "numbers.csv", "--no-header"),
        ("fit", "cells.csv", "--log1p", "--normalize"),
    ],
    ids=lambda arguments: arguments[1],
)
def test_the_report_that_was_left_out(odd_folder, capsys, run, arguments):
    assert run(*arguments, *FIT) == 0
    target = next(path for path in Path().iterdir() if (path / "result.npz").exists())
    (printed,) = suggested(capsys.readouterr())
    assert printed[:2] == ["report", str(target)]
    assert run("report", target) == 4  # it says with which data
    assert suggested(capsys.readouterr()) == [printed]
    assert run(*printed) == 0
    assert (target / "report.html").exists()
    (target / "report.html").unlink()
    assert run("report", target, "--data", arguments[1], "-q") == 0  # read as before


def test_help_is_where_it_is_said_to_be(odd_folder, capsys, run):
    for arguments in (("fit",), ("fit", "cells.csv", "--colour"), ("rank", "--max", "x"), ("fut",)):
        assert run(*arguments) == 2
        (command,) = suggested(capsys.readouterr())
        assert run(*command) == 0
        assert "Usage: conenmf" in capsys.readouterr().out


def test_the_demo_shows_the_command_that_it_runs(folder, capsys, run):
    assert run("demo", "-q") == 0
    (command,) = suggested(capsys.readouterr())
    assert run(*command, "-q", "--no-report") == 0
    assert "in place of an earlier result" in capsys.readouterr().out


def test_options_that_a_message_names_can_be_added(odd_folder, capsys, run):
    """Each line is a command that fails or warns, and what its message says to add."""
    for arguments, added in (
        (("fit", "two.npz"), "--dataset"),
        (("fit", "it's tiny.npy"), "--negative clip"),
        (("fit", "cells.csv", "--view", "images"), "--image-shape"),
        (("fit", "cells.csv", "--max-memory", "lots"), "--max-memory lots"),
        (("fit", "days.csv"), "--drop day"),
        (("fit", "numbers.csv", "--tfidf"), "--tfidf"),
    ):
        run(*arguments, *FIT, "-o", "out")
        message = capsys.readouterr().err
        assert added in message, message
        assert not re.search(r"\b[a-z_]+=", message), message


def test_spreadsheets_are_refused_with_advice(folder, capsys, run):
    for name in ("table.xlsx", "old.XLS", "free.ods"):
        Path(name).write_bytes(b"PK\3\4")
        assert run("fit", name) == 3
        assert "save the sheet with the numbers as CSV" in capsys.readouterr().err
