"""`rank`, `diagnose` and `compare`."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest


def test_rank_prints_the_evidence_for_the_number_that_fit_takes(folder, output_of):
    output = output_of("rank", "cells.csv", "--k", "2-8", "--plot", "rank.png")
    assert "3 to 5 components, supported: use 3; 3 cones, proved" in output
    assert "  cones    3  3 clusters are apart" in output
    assert Path("rank.png").read_bytes().startswith(b"\x89PNG")
    answer = output_of("rank", "cells.csv", "--json")
    found = (answer["n_components"], answer["interval"], answer["grade"])
    assert found == (3, [3, 5], "supported")
    assert answer["evidence"].keys() == {"edge", "ratio", "cones"}
    fit = output_of("fit", "cells.csv", "-o", "out", "--json")
    assert (fit["n_components"], fit["K_decided_by"]) == (3, answer["sentence"])


def test_counts_are_judged_by_their_deviance(folder, output_of, rng):
    counts = rng.poisson(rng.gamma(0.7, 90, (60, 3)) @ rng.dirichlet(np.full(20, 0.2), 3))
    pd.DataFrame(counts).to_csv("counts.csv", index=False)
    poisson = ("counts.csv", "--loss", "poisson")
    output = output_of("diagnose", *poisson, "-k", 3)
    floor = "Noise      good  The fit is at the noise floor"
    for line in ("of the deviance explained", floor, "component gap"):
        assert line in output
    assert "kkt" not in output
    assert output_of("rank", *poisson, "-k", "2-5", "--json")["n_components"] == 3
    answer = output_of("fit", *poisson, "-k", 1, "-o", "out", "--json")
    noise = [row for row in answer["verdict"]["rows"] if row["name"] == "Noise"]
    assert noise[0]["grade"] == "poor"
    assert "K is too small" in noise[0]["finding"]
    assert answer["certificate"]["lower_bound"] == pytest.approx(1.0)


def test_diagnose_judges(folder, output_of):
    output = output_of("diagnose", "cells.csv")
    for line in (
        "the geometric assumption holds, margin 0.",
        "error of cr1-nmf alone",
        "it judges the error, not the components",
        "\nStructure ",
    ):
        assert output.count(line) == 1
    answer = output_of("diagnose", "cells.csv", "--json")
    assert answer["certificate"]["lower_bound"] <= answer["relative_error"]
    assert answer["certificate"]["effort"] == 3
    verdicts = answer["uniqueness"]["verdicts"]
    turned = [k for k, angle in enumerate(answer["uniqueness"]["angles"]) if angle > 0.0873]
    assert all(verdicts[k] == "can be moved" for k in turned)
    assert output.count("; can be moved ") == verdicts.count("can be moved")
    found = answer["verdict"]
    assert "\n" + found["headline"] + "\nData " in output
    judged = enumerate(zip(found["components"], found["reasons"], strict=True))
    for k, (grade, reason) in judged:
        assert f"\ncomponent {k}: {grade}; {reason}\n" in output
    certificate = output_of("diagnose", "cells.csv", "--effort", 0, "--json")["certificate"]
    assert certificate["lower_bound"] == certificate["eckart_young"]
    cones = output_of("diagnose", "cells.csv", "-k", 1, "--json")["cones"]
    assert cones["margin"] is cones["pairwise_separation"] is None
    assert {*os.listdir()} == {"cells.csv", "turned.csv", "cells.npy", "classes.txt"}


def test_compare_ranks_inits_and_solvers(folder, output_of):
    choice = ("-k", 3, "--inits", "cr1,random", "--solvers", "hals,mult", "--max-iter", 20)
    more = ("--labels", "classes.txt", "-o", "table.csv", "--plot", "error.svg")
    contenders = output_of("compare", "cells.csv", *choice, *more, "--json")["contenders"]
    assert len(contenders) == 4
    errors = [one["relative_error"] for one in contenders]
    assert errors == sorted(errors)
    assert contenders[0]["nmi"] > 0.8
    table = pd.read_csv("table.csv", float_precision="round_trip")
    assert table.to_dict("records") == contenders
    assert "<svg" in Path("error.svg").read_text()
    assert "relative_error" in output_of("compare", "cells.csv", *choice)
