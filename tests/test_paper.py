"""The paper's tables and figures, in tiny form."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from conenmf import cr1_nmf, from_columns, make_cones

REPRODUCED = pytest.mark.nightly  # the fixture `results` computes every part: 11 s
TIMED = ("seconds", "mult", "nnlsb", "hals", "cr1-nmf")  # times, and what follows from them


@pytest.fixture(scope="module")
def results(paper, tmp_path_factory):
    """A folder with the rows of every part."""
    folder = tmp_path_factory.mktemp("paper")
    for name in paper("reproduce").PARTS:
        paper("reproduce").compute(name, "tiny", 0, folder)
    return folder


@pytest.fixture
def rows(paper, results):
    return lambda name: paper("experiment").kept(results, name)


def untimed(rows):
    return [
        {name: value for name, value in row.items() if not name.startswith(TIMED)} for row in rows
    ]


@REPRODUCED
def test_figure_1_shows_cones_that_satisfy_the_assumption(paper, rows):
    u = paper("cones").axes()
    np.testing.assert_allclose(u.T @ u, [[1, np.cos(0.9)], [np.cos(0.9), 1]], rtol=1e-12)
    (row,) = rows("figure1")
    assert 0.19 < float(row["largest size angle"]) <= 0.2
    assert float(row["angle between axes"]) == pytest.approx(0.9, abs=0.02)
    assert float(row["margin"]) > 0.05
    assert row["wrong labels"] == "0"


@REPRODUCED
def test_figure_2_stays_below_its_bounds(paper, rows):
    found = rows("figure2")
    assert {(row["alpha"], row["project"]) for row in found} == {
        (alpha, project) for alpha in ("0.2", "0.3") for project in ("True", "False")
    }
    numbers = paper("page").numbers
    for row in found:
        assert float(row["largest difference of two runs"]) < 1e-12  # Lemma 1
        assert np.all(numbers(row["errors"]) < np.sin(float(row["alpha"])))


@REPRODUCED
def test_classical_algorithms_end_near_cr1_nmf(rows):
    for row in rows("figure2_right"):
        for name in ("nnlsb", "hals"):
            assert float(row[f"error of {name}"]) == pytest.approx(
                float(row["error of cr1-nmf"]), rel=0.05
            )


@REPRODUCED
def test_figure_3_finds_the_cones(rows):
    assert all(row["K"] == row["true"] for row in rows("figure3") if row["delta"] == "0.1")


@REPRODUCED
def test_fewer_cones_are_found_if_they_overlap(rows):
    found = {row["beta"]: int(row["K"]) for row in rows("violated")}
    assert found["4 alpha + 0.01"] == 5 > found["alpha"]


@REPRODUCED
def test_the_number_of_cones_is_counted_in_other_ways(rows):
    counts = ("ARD, l1", "ARD, l2", "X-means", "gap", "silhouette", "elbow", "ratio", "edge")
    found = rows("ard")
    assert {row["delta"] for row in found} == {"0.0", "0.1"}
    for row in found:
        assert all(1 <= int(row[name]) <= 6 for name in counts)
        assert row["silhouette"] == row["ratio"] == row["true"] == "3"


def test_relevance_is_judged_at_each_level_of_noise(paper):
    """By an exact test of a share of one half, for each prior."""
    row = dict.fromkeys(("X-means", "gap", "silhouette", "elbow", "ratio", "edge"), "9")
    rows = [
        row | {"delta": delta, "true": "10", "ARD, l1": l1, "ARD, l2": "13"}
        for delta, l1 in (("0.0", "18"), ("0.1", "10")) for _ in range(10)
    ]  # fmt: skip
    section = paper("counting").show_counts(rows)
    assert section.body[0].splitlines()[2].startswith("| 0.0 | 18 (0 of 10) | 13 (0 of 10) | 9 (0")
    assert "K is 13 to 18, right in 0 of 20 runs at delta 0.0; K is 10 to 13" in section.body[1]
    (verdict,) = section.verdicts
    assert verdict.evidence.startswith("holds in 3, fails in 1 of 4 cases; fails: ARD, l1, delta")


def test_a_shift_is_how_many_iterations_an_init_takes(paper):
    row = {
        "dataset": "d", "solver": "mult", "init": "spkm", "run": "0", "iterations": "4",
        "seconds": "2.0", "seconds of init": "1.9",
    }  # fmt: skip
    assert paper("races").shift([row], "d", "mult", "spkm") == 3


@REPRODUCED
def test_basis_images_are_drawn_beside_the_rows(paper, rows, results):
    counts = {len(row["likeness"].split()) for row in rows("figure6")}
    assert counts == {len(paper("clustering").AFTER)}
    for init in paper("starts").INITS:
        assert (results / f"figure6 {init}.png").read_bytes().startswith(b"\x89PNG")


# --- the published inits ----------------------------------------------------------------------


def test_the_rank_one_step_is_as_accurate_as_published(paper, rng):
    """The eigenvalue, whose last step was below 1e-4, against an exact one."""
    for shape in ((8, 30), (30, 8)):
        V = rng.random(shape) ** 4
        w = paper("starts").leading(V)
        exact = np.linalg.svd(V, compute_uv=False)[0] ** 2
        assert exact - 1e-3 < np.linalg.norm(V.T @ w) ** 2 <= exact + 1e-9
        assert w.min() >= 0
        assert np.linalg.norm(w) == pytest.approx(1)


def test_published_starts_and_the_librarys_agree(paper):
    starts = paper("starts")
    V = from_columns(make_cones(50, 4, 0.2, n_samples=120, rng=np.random.default_rng(0)).V)
    W, H = starts.cr1(V, 4, np.random.default_rng(1))
    exact_W, exact_H, _ = cr1_nmf(V, 4, rng=np.random.default_rng(1))
    np.testing.assert_allclose(W @ H, exact_W @ exact_H, atol=2e-2)
    for init in starts.INITS:
        W, H, seconds = starts.begin(V, 4, init, "hals", np.random.default_rng(2))
        assert (W.shape, H.shape) == ((50, 4), (4, 120))
        assert min(W.min(), H.min(), seconds) >= 0
        assert starts.begin(V, 4, init, "nnlsb", np.random.default_rng(2))[1] is None


@REPRODUCED
def test_cited_inits_are_followed_on_both_losses(paper, rows):
    module, found = paper("cited_inits"), rows("cited_inits")
    inits = {module.OURS, *module.CITED}
    for loss in module.SOLVERS:
        here = [row for row in found if row["loss"] == loss]
        assert {row["init"] for row in here} == inits
        assert len(here) == 2 * len(inits) - 1  # nndsvd draws nothing
        assert all(0 < float(row["last"]) == float(row["soon"]) < 1 for row in here)


def test_eight_cited_inits_need_nine_runs(paper):
    module = paper("cited_inits")

    def verdicts(runs):
        rows = [
            {
                "dataset": "d", "loss": "frobenius", "init": init, "run": str(run),
                "iterations": "200", "soon": "0.3" if init == "cr1-nmf" else "0.4",
                "last": "0.2", "seconds": "2" if init == "cr1-nmf" else "1",
            }
            for init in (module.OURS, *module.CITED) for run in range(runs)
            if run == 0 or init != "nndsvd"
        ]  # fmt: skip
        section = module.show_inits(rows)
        assert "| nndsvd | 1 | 0.4 |" in section.body[0]
        return [one.verdict for one in section.verdicts]

    assert verdicts(9) == ["holds", "not decided", "does not hold"]
    assert verdicts(8) == ["too few runs"] * 3


@REPRODUCED
def test_rank_one_nmf_is_better_than_a_mean_direction(rows):
    errors = {row["way"]: float(row["error"]) for row in rows("example")}
    assert errors == pytest.approx({"rank-one NMF": 1.0, "mean direction": np.sqrt(1.2)}, abs=1e-5)


# --- verdicts ---------------------------------------------------------------------------------


def test_claims_use_only_the_papers_cases(paper):
    parts = paper("reproduce").PARTS
    assert {*parts["table6"].sizes["full"], *parts["table7"].sizes["full"]} == {
        "ck", "georgia_tech_crop", "faces94 / 10", "faces94", "tr11", "wap"
    }  # fmt: skip
    assert set(parts["table5"].sizes["full"]) <= set(paper("races").ORIGINAL)
    assert list(paper("starts").INITS) == ["rand", "cr1-nmf", "spkm", "nndsvd"]


def test_never_is_the_longest_time(paper):
    page = paper("page")
    case = page.ahead("a", [3.0] * 6, {"other": [np.inf] * 5 + [4.0]})
    assert (case.speaks_for, case.p) == (True, 2 / 64)
    assert case.text == "a: 3, other never (5 of 6 never), ahead in 6 of 6"
    both = page.ahead("a", [np.inf] * 6, {"other": [np.inf] * 6})
    assert (both.speaks_for, both.p) == (False, 1)


def test_one_rival_ahead_is_enough_against_a_claim(paper):
    page = paper("page")
    ours, behind, ahead = [2.0] * 8, [3.0] * 8, [1.0] * 8
    for_it = page.ahead("a", ours, {"b": behind, "c": behind})
    assert (for_it.speaks_for, for_it.p) == (True, 2 / 2**8)
    against = page.ahead("a", ours, {"b": behind, "c": ahead})
    assert (against.speaks_for, against.p) == (False, 2 * 2 / 2**8)
    assert page.ahead("a", ours, {"c": ahead}, largest=True).speaks_for


def test_what_the_data_do_not_decide_is_not_decided(paper):
    page = paper("page")
    sure, against, open_, few = (
        page.Case("sure", True, 1e-4, 1e-6),
        page.Case("against", False, 1e-4, 1e-6),
        page.Case("open", True, 0.04, 1e-6),  # not after Holm's correction
        page.Case("few", True, 0.125, 1.0),
    )
    judge = lambda *cases: page.judged("claim", cases).verdict  # noqa: E731
    assert judge() == "not measured"
    assert judge(sure, sure) == "holds"
    assert judge(against) == judge(against, open_, open_) == "does not hold"
    assert judge(open_, open_) == "not decided"
    assert judge(sure, against) == judge(sure, open_, open_) == judge(sure, few) == "holds partly"
    assert judge(open_) == "holds"
    assert judge(few) == "too few runs"
    assert page.holm([0.01, 0.02, 0.5]) == pytest.approx([0.03, 0.04, 0.5])


def test_the_exception_of_the_paper_is_a_claim_of_its_own(paper):
    """nndsvd with hals is best for PaviaU: it does not count against cr1-nmf."""
    errors = {"rand": 0.4, "cr1-nmf": 0.2, "spkm": 0.3, "nndsvd": 0.1}
    rows = [
        {
            "dataset": "paviau_subset", "solver": solver, "init": init, "run": str(run),
            "iterations": "20", "errors": " ".join([str(error + run / 1000)] * 20),
            "seconds": "1", "seconds of init": "0",
        }
        for solver in ("mult", "hals") for init, error in errors.items() for run in range(7)
        if run == 0 or init != "nndsvd"
    ]  # fmt: skip
    early, last, exception = paper("races").show_errors(rows).verdicts
    assert exception.verdict == "holds"
    assert exception.evidence.startswith("holds in 1 of 1 cases")
    assert last.verdict == early.verdict == "does not hold"  # for mult, and hals is left out
    assert last.evidence.startswith("fails in 1 of 1 cases")


@REPRODUCED
def test_clusterings_have_scores(paper, rows):
    found = rows("table7")
    assert len(found) == 3 * len(paper("starts").INITS) + 2  # k-means and spherical k-means
    assert all(0 < float(row["nmi"]) <= 1 for row in found)


def test_a_claim_uses_all_runs_of_the_ways_that_it_compares(paper):
    """Ten runs of cr1-nmf and k-means decide nine cases, whatever else has run."""
    clustering = paper("clustering")
    ways = [("k-means", "", 10, 0.9), ("spkm", "", 10, 0.5)]
    for solver in clustering.ITERATIONS:
        ways += [("cr1-nmf", solver, 10, 0.4), ("rand", solver, 3, 0.1)]
        ways += [("spkm", solver, 3, 0.1), ("nndsvd", solver, 1, 0.1)]
    rows = [
        {"dataset": "d", "init": init, "solver": solver, "run": str(run)}
        | dict.fromkeys(clustering.SCORES, str(score + run / 100))
        for init, solver, runs, score in ways for run in range(runs)
    ]  # fmt: skip
    best, alone = clustering.show_scores(rows, {}).verdicts
    assert best.verdict == "too few runs"
    assert "ahead in 3 of 3" in best.evidence
    assert alone.evidence.startswith("fails in 9 of 9 cases")
    assert "ahead in 0 of 10" in alone.evidence


@REPRODUCED
def test_bounds_hold_under_noise(rows):
    for row in rows("open_noise"):
        assert float(row["error of cr1-nmf"]) <= float(row["bound of error"])
        assert float(row["distance to clean"]) <= float(row["bound of distance"])


def test_a_run_goes_on_where_it_was(paper, tmp_path, monkeypatch, refuses):
    compute, counting, drawn = paper("reproduce").compute, paper("counting"), []
    whole = compute("figure3", "tiny", 0, tmp_path)
    path = tmp_path / "figure3.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:3]) + "\n")
    make = counting.make_cones
    monkeypatch.setattr(counting, "make_cones", lambda *a, **o: drawn.append(1) or make(*a, **o))
    assert compute("figure3", "tiny", 0, tmp_path) == whole
    assert len(drawn) == 2  # the other two rows were kept
    assert path.read_text().splitlines() == lines
    refuses(SystemExit, "rows of another seed", lambda: compute("figure3", "tiny", 1, tmp_path))


def test_seconds_that_no_init_needed(paper):
    """Errors that no init reaches count neither for nor against one."""
    curves = {"rand": "9 inf inf", "cr1-nmf": "3 5 inf", "spkm": "4 4 inf", "nndsvd": "6 8 inf"}
    rows = [
        {
            "dataset": "faces94", "solver": "nnlsb", "init": init, "run": str(run),
            "iterations": "10", "errors": " ".join(["0.1"] * 10), "reached": reached,
            "seconds to reach": reached, "seconds of some": "1",
        }
        for init, reached in curves.items() for run in range(9)
        if run == 0 or init != "nndsvd"
    ]  # fmt: skip
    section = paper("races").show_targets(rows)
    lines = section.body[0].splitlines()[2:]
    assert len(lines) == 6  # three errors, iterations and seconds
    assert lines[1].endswith("| 9, 3.0 (7.2) | 3, 1.0 (1.0) | 4, 1.3 (1.4) | 6, 2.0 (4.5) |")
    iterations = section.verdicts[0]
    assert iterations.verdict == "holds partly"
    assert iterations.evidence.startswith(
        "holds in 1, fails in 1 of 2 cases; fails: faces94, 0.135"
    )


def test_a_solver_that_never_arrives_gives_a_lower_bound(paper):
    row = {"N": "1000", "cr1-nmf": "1", "mult": "20", "nnlsb": "5", "hals": "20"}
    row |= {f"{name}, iterations": "9" for name in ("mult", "nnlsb", "hals")}
    row |= {"not reached by": "nnlsb"}
    section = paper("cones").show_times([row | {"run": str(run)} for run in range(8)])
    assert "| 5 (24.8), 8 never: at least that |" in section.body[0]
    (times,) = section.verdicts
    assert times.evidence.startswith("holds in 2, fails in 1 of 3 cases; fails: nnlsb at N = 1000")


@REPRODUCED
def test_a_page_of_everything(paper, results, tmp_path):
    text = paper("reproduce").write(results, tmp_path).read_text()
    assert text.startswith("# The paper, reproduced")
    for name, part in paper("reproduce").PARTS.items():
        assert (f"## {part.title}" in text) == (name != "open_noise")
    assert "| For every matrix and every N it is below the deterministic bound | holds |" in text
    text += (tmp_path / "open_noise.md").read_text()
    pictures = [line.split("(")[-1].rstrip(")") for line in text.splitlines() if line[:2] == "!["]
    assert len(pictures) == 7
    for name in pictures:
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert "| `races.csv` | 21 | tiny | 0 |" in text


def test_the_published_page_follows_from_the_published_rows(paper, monkeypatch):
    """Every table and verdict of the documentation, computed again from the committed rows."""
    page = paper("reproduce")
    monkeypatch.setattr(Figure, "savefig", lambda *arguments, **options: None)  # takes long
    texts, _ = page.pages(page.COMMITTED)
    for name, text in texts.items():
        assert (page.COMMITTED.parent / name).read_text("utf-8") == text
    assert not list(page.COMMITTED.glob("*.png"))  # photographs
    missing = [line for line in texts["page.md"].splitlines() if "| not measured |" in line]
    assert [line.split(" | ")[0] for line in missing] == ["| ck: cr1-nmf clusters best"]
    for path in page.COMMITTED.glob("*.csv"):
        kept = paper("experiment").kept(page.COMMITTED, path.stem)
        rows = [tuple(row.values()) for row in untimed(kept)]
        assert len(set(rows)) == len(rows), f"{path.name} has a row twice"
