"""The scripts of the paper's tables and figures, in tiny form."""

import csv
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks" / "paper"


@pytest.fixture
def paper(monkeypatch):
    """The scripts by name, found as they find each other."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(sys, "path", list(sys.path))
    scripts = [*(path.stem for path in FOLDER.glob("*.py")), "measure"]

    def script(name):
        specification = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        sys.modules[name] = module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        return module

    yield script
    for name in scripts:
        sys.modules.pop(name, None)


def rows_of(paper, name, results, *options):
    protocol = paper("protocol")
    paper(name).run(protocol.experiment(name, "", ["--tiny", "--results", str(results), *options]))
    with open(results / "tiny" / f"{name}.csv", newline="") as stream:
        return list(csv.DictReader(stream))


def test_figure_2_stays_below_its_bounds(paper, tmp_path):
    rows = rows_of(paper, "figure2", tmp_path)
    assert {row["algorithm"] for row in rows} == {"cr1-nmf", "mult", "nnlsb", "hals"}
    for row in rows:
        if row["algorithm"] == "cr1-nmf":
            assert float(row["error"]) < float(row["deterministic"])


def test_figure_3_finds_the_cones(paper, tmp_path):
    rows = rows_of(paper, "figure3", tmp_path)
    assert all(row["K"] == row["true"] for row in rows if row["delta"] == "0.1")


def test_table_1_has_ratios(paper, tmp_path):
    (row,) = rows_of(paper, "table1", tmp_path)
    assert float(row["mult / cr1-nmf"]) == pytest.approx(
        float(row["mult"]) / float(row["cr1-nmf"]), rel=1e-3
    )


def test_the_same_seed_gives_the_same_rows(paper, tmp_path):
    first = rows_of(paper, "figure3", tmp_path / "a")
    assert rows_of(paper, "figure3", tmp_path / "b") == first
    assert rows_of(paper, "figure3", tmp_path / "c", "--seed", "1") != first


def test_a_run_goes_on_where_it_was(paper, tmp_path, monkeypatch):
    whole = rows_of(paper, "figure3", tmp_path / "whole")
    path = tmp_path / "part" / "tiny" / "figure3.csv"
    rows_of(paper, "figure3", tmp_path / "part")
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:3]) + "\n")
    script, drawn = paper("figure3"), []
    make = script.make_cones
    monkeypatch.setattr(script, "make_cones", lambda *a, **o: drawn.append(1) or make(*a, **o))
    options = ["--tiny", "--results", str(tmp_path / "part")]
    script.run(paper("protocol").experiment("figure3", "", options))
    assert len(drawn) == 2  # the other two rows were kept
    assert path.read_text().splitlines() == lines
    assert len(whole) == 4


def test_the_first_time_an_error_is_reached(paper):
    first_time = paper("protocol").first_time
    errors, seconds = np.array([0.5, 0.3, 0.2]), np.array([1.0, 2.0, 3.0])
    assert first_time(errors, seconds, 0.3) == 2.0
    assert first_time(errors, seconds, 0.1) == float("inf")


def test_verdicts_are_computed(paper):
    judged = paper("page").judged
    assert judged("c", []).verdict == "not measured"
    assert judged("c", [("a", True)]).verdict == "holds"
    partly = judged("c", [("a", True), ("b", False)])
    assert (partly.verdict, partly.evidence) == ("holds partly", "in 1 of 2 cases; not: b")
    assert judged("c", [("a", False)]).verdict == "does not hold"


def test_a_page_of_everything(paper, tmp_path):
    for name in ("figure2", "table1", "figure3"):
        rows_of(paper, name, tmp_path)
    text = paper("page").write(tmp_path / "tiny").read_text()
    assert "| The error of cr1-nmf is below both bounds | holds |" in text
    assert "| claim | verdict | evidence |" in text
    for name in ("figure2.png", "figure3.png"):
        assert (tmp_path / "tiny" / name).read_bytes().startswith(b"\x89PNG")


def test_tables_of_real_data(paper, tmp_path):
    (race,) = rows_of(paper, "table5", tmp_path)
    assert float(race["cr1-nmf: 1.04"]) >= float(race["cr1-nmf: start"])
    scores = rows_of(paper, "table7", tmp_path)
    assert len(scores) == 13  # four starts with three solvers, and k-means
    assert all(0 < float(row["nmi"]) <= 1 for row in scores)
    text = paper("page").write(tmp_path / "tiny").read_text()
    assert "cr1-nmf is the fastest start" in text
    assert "| digits | cr1-nmf | hals |" in text
