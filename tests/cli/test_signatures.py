"""The five minutes of docs/mutations.md: the page's own program and command, and what they find."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from conenmf import Factorization
from conenmf.judge.matching import match_components
from conenmf.names import MUTATION_CLASSES, MUTATION_COLOURS

PAGE = (Path(__file__).parents[2] / "docs" / "mutations.md").read_text("utf-8")


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    """The variables of the page's first program, in whose folder the tests run."""
    program, values = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("mutations"))
        exec(program, values)
        yield values


@pytest.mark.nightly
def test_the_page_leads_from_a_catalogue_to_named_signatures(values, output_of):
    (words,) = re.findall(r"^\$ conenmf (signatures .*)", PAGE, re.MULTILINE)
    output = output_of(*words.split())
    for line, count in {
        "rows are the 96 types of mutations, so columns are samples": 1,
        "components, supported: ": 2,  # in the first lines, and in the verdict
        ": known as SBS-": 4,
        ": new (nearest: SBS-": 1,
        "stable: 5 of 5 components": 1,
    }.items():
        assert output.count(line) == count, line

    truth = values["signatures"]
    components = pd.read_csv("signatures/components.csv", index_col=0)
    assert list(components.index) == list(truth.index)
    (new,) = {*components} - {*truth}
    assert new.startswith("new ")
    np.testing.assert_allclose(components.sum(), 1, rtol=1e-9)
    renamed = components.rename(columns={new: "SBS-E"})[truth.columns]
    order, cosines = match_components(truth.to_numpy(), renamed.to_numpy())
    assert order.tolist() == [0, 1, 2, 3, 4]
    assert cosines.min() > 0.99
    activities = pd.read_csv("signatures/coefficients.csv", index_col=0)
    activities = activities.rename(columns={new: "SBS-E"})[truth.columns]
    np.testing.assert_allclose(activities.sum(axis=1), values["counts"].sum(axis=0), rtol=1e-2)
    error = np.linalg.norm(activities.to_numpy().T - values["activities"])
    assert error < 0.1 * np.linalg.norm(values["activities"])
    limits = pd.read_csv("signatures/limits.csv")
    assert len(limits) == 5 * 96
    assert limits.value.between(limits.lower, limits.upper).all()
    summary = json.loads(Path("signatures/summary.json").read_text())
    assert len(summary["stability"]["known_as"]) == 5


def test_the_report_on_signatures_has_bars_in_the_colours_of_the_field(values, run):
    options = ("-k", 5, "--runs", 3, "--reference", "known.tsv", "--effort", 0)
    assert run("signatures", "SBS96.all", *options, "-o", "few") == 0
    page = Path("few/report.html").read_text("utf-8")
    cards = page.split('<article class="component"')[1:]
    assert len(cards) == 5
    for card in cards:
        colours = re.findall(r'class="bar own" style="--colour:(#\w+)"', card)
        assert colours == [MUTATION_COLOURS[one] for one in list(MUTATION_COLOURS)[:6]]
        paths = re.findall(r'<path d="([^"]*)" class="bar own"', card)
        assert [path.count("M") for path in paths] == [16] * 6
        starts = [float(path[1:].split()[0]) for path in paths]
        assert starts == sorted(starts)
        assert 'class="whisker"' in card
        ticks = re.search(r'<div class="x axis".*?</div>', card)[0]
        names = re.findall(r">([CT]&gt;[ACGT])<", ticks)
        assert names == ["C&gt;A", "C&gt;G", "C&gt;T", "T&gt;A", "T&gt;C", "T&gt;G"]
    assert page.count("Known as SBS-") == 4
    Path("few/report.html").unlink()
    assert run("report", "few") == 0
    assert "Known as SBS-" in Path("few/report.html").read_text("utf-8")


def test_types_in_columns_and_a_reference_in_rows_are_the_same(values, output_of):
    shuffled = pd.read_csv("SBS96.all", sep="\t", index_col=0).sample(frac=1, random_state=0)
    shuffled.T.to_csv("turned.csv")
    pd.read_csv("known.tsv", sep="\t", index_col=0).T.to_csv("known-rows.csv")
    options = ("-k", 5, "--runs", 3, "--no-report", "--reference", "known-rows.csv")
    output = output_of("signatures", "turned.csv", *options)
    assert "rows are" not in output
    assert output.count(": known as SBS-") == 4
    result = Factorization.load("turned.csv-signatures/result.npz")
    assert result.names.feature_names == tuple(shuffled.index)
    assert sum(name.startswith("new ") for name in result.component_names) == 1


def test_a_reference_of_other_features_is_refused(values, fails):
    pd.DataFrame({"ID1": np.ones(83)}, [*MUTATION_CLASSES][96:179]).to_csv("indels.csv")
    options = ("-k", 5, "--runs", 2, "--reference", "indels.csv", "-o", "refused")
    fails(3, "--reference has 83", "signatures", "SBS96.all", *options)
    assert not Path("refused").exists()
