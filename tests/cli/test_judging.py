"""`rank`, `diagnose` and `compare`."""

import json
import os
from pathlib import Path

import pandas as pd


def test_rank_prints_the_estimators(folder, capsys, run):
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


def test_diagnose_judges(folder, capsys, run):
    assert run("diagnose", "cells.csv") == 0
    said = capsys.readouterr().out
    assert "the geometric assumption holds, margin 0." in said
    assert "advised init: cr1, because one cone for each sample leaves" in said
    assert "error of cr1-nmf alone" in said
    assert run("diagnose", "cells.csv", "--json") == 0
    known = json.loads(capsys.readouterr().out)
    assert known["certificate"]["lower_bound"] <= known["relative_error"]
    assert known["advised_init"]["init"] == "cr1"
    assert run("diagnose", "cells.csv", "-k", 1, "--json") == 0
    assert json.loads(capsys.readouterr().out)["cones"]["margin"] is None
    assert {*os.listdir()} == {"cells.csv", "turned.csv", "cells.npy", "classes.txt"}


def test_compare_ranks_starts_and_solvers(folder, capsys, run):
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
