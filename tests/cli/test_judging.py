"""`rank`, `diagnose` and `compare`."""

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest


def test_rank_prints_the_evidence(folder, capsys, run):
    options = ("--k", "2-8")
    assert run("rank", "cells.csv", *options, "--plot", "rank.png") == 0
    output = capsys.readouterr().out
    assert "3 components, proved: 3 clusters are apart" in output
    assert "  cones    3  3 clusters are apart" in output
    assert Path("rank.png").read_bytes().startswith(b"\x89PNG")
    assert run("rank", "cells.csv", *options, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["n_components"] == 3
    assert (answer["interval"], answer["grade"]) == ([3, 3], "proved")
    assert answer["evidence"].keys() == {"edge", "ratio", "cones"}


def test_rank_is_the_number_that_fit_takes(folder, capsys, run):
    assert run("rank", "cells.csv", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert run("fit", "cells.csv", "-o", "out", "--json") == 0
    fit = json.loads(capsys.readouterr().out)
    assert answer["n_components"] == fit["n_components"]
    assert answer["sentence"] == fit["K_decided_by"]


def test_diagnose_speaks_of_counts(folder, capsys, run, rng):
    counts = rng.poisson(rng.gamma(0.7, 90, (60, 3)) @ rng.dirichlet(np.full(20, 0.2), 3))
    pd.DataFrame(counts).to_csv("counts.csv", index=False)
    assert run("diagnose", "counts.csv", "-k", 3, "--loss", "poisson") == 0
    output = capsys.readouterr().out
    assert "of the deviance explained" in output
    assert "Noise (good): the fit is at the noise floor" in output
    assert "component gap" in output
    assert "kkt" not in output
    assert run("rank", "counts.csv", "-k", "2-5", "--loss", "poisson", "--json") == 0
    assert json.loads(capsys.readouterr().out)["n_components"] == 3
    assert run("fit", "counts.csv", "-k", 1, "--loss", "poisson", "-o", "out", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert any("K is too small" in line for line in answer["summary"])
    assert answer["certificate"]["lower_bound"] == pytest.approx(1.0)


def test_diagnose_judges(folder, capsys, run):
    assert run("diagnose", "cells.csv") == 0
    output = capsys.readouterr().out
    assert "the geometric assumption holds, margin 0." in output
    assert "pairwise separation of samples: 0." in output
    assert "advised init: cr1, because one cone for each sample leaves" in output
    assert "error of cr1-nmf alone" in output
    assert "it judges the error, not the truth of the components" in output
    assert output.count("Stability (open): not checked") == 1
    assert run("diagnose", "cells.csv", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["certificate"]["lower_bound"] <= answer["relative_error"]
    assert answer["certificate"]["effort"] == 3
    assert answer["advised_init"]["init"] == "cr1"
    verdicts = answer["uniqueness"]["verdicts"]
    turned = [k for k, angle in enumerate(answer["uniqueness"]["angles"]) if angle > 0.0873]
    assert all(verdicts[k] == "can be moved" for k in turned)
    assert output.count(": can be moved ") == verdicts.count("can be moved")
    assert all(line in " ".join(output.split()) for line in answer["uniqueness"]["in_words"])
    assert run("diagnose", "cells.csv", "--effort", 0, "--json") == 0
    certificate = json.loads(capsys.readouterr().out)["certificate"]
    assert certificate["lower_bound"] == certificate["eckart_young"]
    assert run("diagnose", "cells.csv", "-k", 1, "--json") == 0
    cones = json.loads(capsys.readouterr().out)["cones"]
    assert cones["margin"] is cones["pairwise_separation"] is None
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
