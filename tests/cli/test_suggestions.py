"""Commands that the program suggests work as they are printed, and what it says is in its words."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest


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
        assert "save a spreadsheet as CSV (UTF-8)" in capsys.readouterr().err
