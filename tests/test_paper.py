"""The scripts of the paper's tables and figures, in tiny form."""

import csv
import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks" / "paper"
NAMES = ["measure", *(path.stem for path in FOLDER.glob("*.py"))]
TIMED = ("seconds", "mult", "nnlsb", "hals", "cr1-nmf")  # times, and what follows from them


@pytest.fixture(scope="module")
def paper():
    """The scripts by name, found as they find each other."""
    before, hidden = list(sys.path), {name: sys.modules.pop(name, None) for name in NAMES}
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module
    sys.path[:] = before
    for name in NAMES:
        sys.modules.pop(name, None)
    sys.modules.update({name: module for name, module in hidden.items() if module})


def rows_of(paper, name, results, *options):
    script = paper(name)
    arguments = ["--tiny", "--results", str(results), *options]
    script.run(paper("protocol").experiment(name, "", script.SIZES, arguments))
    with open(results / "tiny" / f"{name}.csv", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def results(paper, tmp_path_factory):
    """A folder in which every script has run."""
    folder = tmp_path_factory.mktemp("paper")
    for name in dict.fromkeys(paper("page").SCRIPTS.values()):
        rows_of(paper, name, folder)
    return folder


@pytest.fixture
def rows(paper, results):
    return lambda name: paper("protocol").kept(results / "tiny" / f"{name}.csv")


def untimed(rows):
    return [
        {name: value for name, value in row.items() if not name.startswith(TIMED)} for row in rows
    ]


def test_figure_1_shows_cones_that_satisfy_the_assumption(rows):
    (row,) = rows("figure1")
    assert float(row["largest size angle"]) == pytest.approx(0.2, abs=1e-6)
    assert float(row["angle between axes"]) == pytest.approx(0.9, abs=1e-6)
    assert float(row["margin"]) == pytest.approx(0.1, abs=1e-6)
    assert row["wrong labels"] == "0"


def test_figure_2_stays_below_its_bounds(rows):
    found = rows("figure2")
    assert {row["algorithm"] for row in found} == {"cr1-nmf", "mult", "nnlsb", "hals"}
    for row in found:
        if row["algorithm"] == "cr1-nmf":
            assert float(row["error"]) < float(row["deterministic"])


def test_figure_3_finds_the_cones(rows):
    assert all(row["K"] == row["true"] for row in rows("figure3") if row["delta"] == "0.1")


def test_table_1_has_ratios(rows):
    (row,) = rows("table1")
    assert float(row["mult / cr1-nmf"]) == pytest.approx(
        float(row["mult"]) / float(row["cr1-nmf"]), rel=1e-3
    )


def test_races_keep_whole_curves(paper, rows):
    found = rows("races")
    assert len(found) == 19  # four inits with three solvers, seven newer ones with nnlsb
    numbers = paper("races").numbers
    for row in found:
        errors, seconds = numbers(row["errors"]), numbers(row["seconds"])
        assert errors.size == seconds.size == (5 if row["solver"] == "nnlsb" else 10)
        assert np.all(np.diff(errors) <= 1e-9)
        assert np.all(np.diff(seconds) > 0)


def test_seconds_to_an_error_include_the_init(paper):
    races = paper("races")
    row = {"errors": "0.5 0.3", "seconds": "1 2", "seconds of init": "10"}
    assert races.reached([row], 0.3) == 12
    assert races.reached([row], 0.1) == float("inf")
    assert races.seconds_or_never(float("inf")) == "never"


def test_a_shift_is_how_many_iterations_an_init_takes(paper):
    row = {
        "dataset": "d", "solver": "mult", "init": "spkm",
        "seconds": "0.5 1.0 1.5 2.0", "seconds of init": "1.9",
    }  # fmt: skip
    assert paper("table4").shift([row], "d", "mult", "spkm") == 3


def test_basis_images_survive_a_cell(paper):
    figure6 = paper("figure6")
    images = np.random.default_rng(0).random((2, 3, 4, 5))
    back = figure6._unpacked(figure6._packed(images))
    largest = images.max(axis=(2, 3), keepdims=True)
    np.testing.assert_allclose(back / 255, images / largest, atol=1 / 255)


def test_spherical_k_means_finds_directions(paper):
    clustering = paper("clustering")
    rng = np.random.default_rng(0)
    X = np.repeat(np.eye(3), 20, axis=0) * rng.uniform(1, 100, (60, 1)) + 0.01 * rng.random((60, 3))
    data = type("Data", (), {"X": X, "K": 3})
    runs = [clustering._spherical_k_means(data, np.random.default_rng(seed)) for seed in range(5)]
    truth = np.repeat(range(3), 20)
    assert max(clustering.scores(truth, labels)["purity"] for labels in runs) == 1.0
    assert all(np.unique(labels).size == 3 for labels in runs)


def test_clusterings_have_scores(rows):
    found = rows("table7")
    assert len(found) == 35  # eleven inits with three solvers, k-means and spherical k-means
    assert all(0 < float(row["nmi"]) <= 1 for row in found)


def test_every_init_takes_part_beyond_the_paper(paper, rows):
    found = rows("beyond")
    assert {row["init"] for row in found} == set(paper("beyond").INITS)
    assert all(0 < float(row["errors"].split()[-1]) < 1 for row in found)


def test_bounds_hold_under_noise(rows):
    for row in rows("open_noise"):
        assert float(row["error"]) <= float(row["bound of error"])
        assert float(row["distance to clean"]) <= float(row["bound of distance"])


def test_the_same_seed_gives_the_same_rows(paper, rows, tmp_path):
    for name in dict.fromkeys(paper("page").SCRIPTS.values()):
        if name != "table6":  # which is table7 with other data
            assert untimed(rows_of(paper, name, tmp_path)) == untimed(rows(name)), name
    other = tmp_path / "other"
    assert rows_of(paper, "figure3", other, "--seed", "1") != rows("figure3")


def test_rows_of_another_seed_or_of_other_sizes_are_left_alone(paper, tmp_path):
    before = rows_of(paper, "figure1", tmp_path)
    with pytest.raises(SystemExit, match="rows of another seed; delete it"):
        rows_of(paper, "figure1", tmp_path, "--seed", "1")
    protocol = paper("protocol")
    with pytest.raises(SystemExit, match="rows of another sizes"):
        protocol.Experiment("figure1", "tiny", 0, tmp_path / "tiny", "others")
    assert protocol.kept(tmp_path / "tiny" / "figure1.csv") == before


def test_rows_with_other_columns_are_not_mixed(paper, tmp_path):
    rows = paper("protocol").Experiment("test", "tiny", 0, tmp_path)
    rows.row(lambda: {"error": 1.0}, key=1)
    with pytest.raises(SystemExit, match="other columns"):
        rows.row(lambda: {"error": 1.0, "seconds": 2.0}, key=2)


def test_a_run_goes_on_where_it_was(paper, tmp_path, monkeypatch):
    whole = rows_of(paper, "figure3", tmp_path)
    path = tmp_path / "tiny" / "figure3.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:3]) + "\n")
    script, drawn = paper("figure3"), []
    make = script.make_cones
    monkeypatch.setattr(script, "make_cones", lambda *a, **o: drawn.append(1) or make(*a, **o))
    assert rows_of(paper, "figure3", tmp_path) == whole
    assert len(drawn) == 2  # the other two rows were kept
    assert path.read_text().splitlines() == lines


def test_a_row_that_was_cut_off_is_computed_again(paper, tmp_path):
    whole = rows_of(paper, "figure3", tmp_path)
    path = tmp_path / "tiny" / "figure3.csv"
    path.write_text(path.read_text()[:-12])
    assert rows_of(paper, "figure3", tmp_path) == whole


def test_the_first_time_an_error_is_reached(paper):
    first_time = paper("protocol").first_time
    errors, seconds = np.array([0.5, 0.3, 0.2]), np.array([1.0, 2.0, 3.0])
    assert first_time(errors, seconds, 0.3) == 2.0
    assert first_time(errors, seconds, 0.1) == float("inf")


def test_what_is_not_here_is_told(paper, capsys, tmp_path):
    rows = paper("protocol").Experiment("table6", "tiny", 0, tmp_path)
    assert rows.at_hand(["digits", "elsewhere"]) == ["digits"]
    assert capsys.readouterr().out.startswith("table6: elsewhere is not on this machine")
    assert json.loads((tmp_path / "table6.json").read_text())["missing"] == ["elsewhere"]
    presentation = paper("presentation")
    (told,) = presentation.Section([]).without(["elsewhere"]).body
    assert told.text.endswith(": elsewhere.")


def test_seconds_that_no_init_needed(paper):
    """Errors that no init reaches count neither for nor against one."""
    rows = [
        {
            "dataset": "faces94", "solver": "nnlsb", "init": init, "errors": errors,
            "seconds": "1 2", "seconds of init": "0.5",
        }
        for init, errors in {
            "rand": "0.5 0.2", "cr1-nmf": "0.2 0.138", "spkm": "0.2 0.134", "nndsvd": "0.2 0.15",
            **dict.fromkeys(paper("protocol").NEWER, "0.2 0.139"),
        }.items()
    ]  # fmt: skip
    section = paper("table5").show(rows)
    assert [line[-1] for line in section.body[0].lines] == ["cr1-nmf", "spkm", "none"]
    newer = section.body[1].lines
    assert newer[0][2:] == ["2.50 s, 1.0"] * 7
    assert newer[1][2:] == ["never"] * 7
    (verdict,) = section.verdicts
    assert verdict.verdict == "holds partly"
    assert verdict.evidence == "1 of 2 cases; not: faces94, 0.135: spkm, cr1-nmf never does"


def test_a_solver_that_never_arrives_gives_a_lower_bound(paper):
    columns = {f"{name}, paper": "1" for name in ("mult", "nnlsb", "hals")}
    columns |= {f"{name} / cr1-nmf": "20" for name in ("mult", "hals")}
    columns |= {"N": "1000", "run": "0", "cr1-nmf": "1", "nnlsb / cr1-nmf": "5"}
    row = columns | {"not reached by": "nnlsb", "eigenvalues off by": "0.5"}
    section = paper("table1").show([row])
    assert section.body[0].lines[0][3] == "at least 5.0 (1.0)"
    assert section.verdicts[0].evidence.startswith("2 of 3 cases")
    assert section.verdicts[0].evidence.endswith("; not: nnlsb at N = 1000: 5.0")
    assert section.verdicts[1].verdict == "does not hold"


def test_photographs_are_not_published(paper):
    presentation = paper("presentation")
    face = presentation.Picture("face.png", b"", "a face", photographs=True)
    kept = presentation.Picture("curve.png", b"", "a curve")
    section = presentation.Section([face, kept]).without_photographs()
    assert list(section.pictures()) == [kept]


def test_verdicts_are_computed(paper):
    judged = paper("presentation").judged
    assert judged("c", []).verdict == "not measured"
    assert judged("c", [("a", True)]).verdict == "holds"
    partly = judged("c", [("a", True), ("b", False)])
    assert (partly.verdict, partly.evidence) == ("holds partly", "1 of 2 cases; not: b")
    assert judged("c", [("a", False)]).verdict == "does not hold"


def test_a_page_of_everything(paper, results, tmp_path):
    page = paper("page").write(results / "tiny", tmp_path)
    assert (tmp_path / "page.md").read_text().startswith("# The paper, reproduced")
    assert (tmp_path / "figure2.png").exists()
    text = page.with_suffix(".md").read_text()
    for script in paper("page").SCRIPTS:
        assert f"## {paper(script).TITLE}" in text
    assert "| The mean error of cr1-nmf is below both bounds | holds |" in text
    pictures = [line.split("(")[-1].rstrip(")") for line in text.splitlines() if line[:2] == "!["]
    assert len(pictures) == 8
    for name in pictures:
        assert (results / "tiny" / name).read_bytes().startswith(b"\x89PNG")
    html = page.read_text()
    assert html.count("data:image/png;base64,") == len(pictures)
    assert "http" not in html  # nothing is fetched
    assert "seed: 0; scale: tiny" in text
