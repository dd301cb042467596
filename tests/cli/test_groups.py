"""Groups on the command line: fit, its files, what it refuses, and new samples."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from conenmf import ConeNMF, Factorization


@pytest.fixture
def scaled(tmp_path, monkeypatch):
    """A folder with samples of four groups, whose features differ in scale."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(2)
    codes = np.repeat(np.arange(4), 30)
    X = rng.gamma(0.6, size=(120, 3)) @ rng.gamma(0.4, size=(3, 20))
    X = X * np.exp(0.5 * rng.standard_normal((4, 20)))[codes] + 0.01 * rng.random((120, 20))
    frame = pd.DataFrame(X, [f"s{n}" for n in range(120)], [f"x{f}" for f in range(20)])
    groups = pd.Series([f"d{code}" for code in codes], frame.index)
    frame.to_csv("x.csv")
    frame.assign(donor=groups).to_csv("both.csv")
    groups.to_csv("g.csv", header=False)
    return frame, groups


def read(path):
    return pd.read_csv(path, index_col=0, float_precision="round_trip")


def test_new_samples_have_the_scales_of_their_groups(scaled, run, output_of, capsys):
    frame, groups = scaled
    output_of("fit", "both.csv", "-k", 3, "--groups", "donor", "-o", "out")
    model = ConeNMF(3).fit(frame, groups=groups)
    own = read("out/coefficients.csv")
    some = frame.iloc[::-3, ::-1]
    some.assign(donor=groups.loc[some.index]).to_csv("some.csv")
    output_of("transform", "out", "some.csv", "--groups", "donor", "-o", "a.csv")
    np.testing.assert_allclose(read("a.csv"), own.loc[some.index], rtol=1e-8, atol=1e-12)
    again = ("transform", "out/result.npz", "x.csv", "--groups", "g.csv", "-o", "a.csv", "--json")
    assert output_of(*again)["relative_error"] == pytest.approx(model.relative_error_)
    np.testing.assert_allclose(read("a.csv"), own, rtol=1e-8, atol=1e-12)
    twice = pd.concat([frame, frame])
    twice.to_csv("twice.csv")
    capsys.readouterr()
    assert run("transform", "out", "twice.csv", "-o", "a.csv") == 0
    assert "scales of one are used" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="scales of one"):
        np.testing.assert_allclose(read("a.csv"), model.transform(twice), rtol=1e-6, atol=1e-9)


def test_files_of_groups(scaled, output_of):
    printed = output_of("fit", "x.csv", "-k", 3, "--groups", "g.csv", "-o", "out")
    result = Factorization.load("out/result.npz")
    scales = read("out/group_scales.csv")
    assert scales.columns.tolist() == ["d0", "d1", "d2", "d3"]
    assert scales.index.tolist() == [f"x{f}" for f in range(20)]
    np.testing.assert_array_equal(scales.to_numpy().T, result.group_scales)
    np.testing.assert_array_equal(read("out/group_table.csv"), result.group_table)
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["groups"] == ["d0", "d1", "d2", "d3"]
    assert {"group_scales.csv", "group_table.csv"} <= {*summary["files"]}
    assert "conenmf report" not in printed
    output_of("fit", "x.csv", "-k", 3, "-o", "out", "--no-report")
    assert not Path("out/group_scales.csv").exists()


def test_uncertainties_and_groups(scaled, output_of):
    frame, _ = scaled
    (0.1 + 0.1 * frame).to_csv("sigma.csv")
    fit = ("fit", "x.csv", "-k", 3, "--groups", "g.csv", "-o", "out")
    assert ", in " not in output_of(*fit, "--uncertainty", "sigma.csv")
    assert read("out/residuals.csv").shape == (120, 21)


def test_judges_that_do_not_know_groups_are_refused_before_the_fit(scaled, fails):
    fit = ("fit", "x.csv", "-k", 3, "--groups", "g.csv", "-o", "out")
    for flag, name in (("--displacement", "displacement"), ("--bootstrap", "bootstrap")):
        fails(4, f"{name} is not available for a fit with groups", *fit, flag, 4)
        assert not Path("out").exists()


def test_the_report_is_refused_by_name(scaled, output_of, fails):
    output_of("fit", "x.csv", "-k", 3, "--groups", "g.csv", "-o", "out")
    fails(4, "report is not available for a fit with groups", "report", "out")


def test_labels_are_given_once_and_for_every_sample(scaled, fails):
    frame, groups = scaled
    fit = ("fit", "holes.csv", "-k", 3, "-o", "out")
    groups.iloc[5] = None
    frame.assign(donor=groups).to_csv("holes.csv")
    fails(3, "no label for 1 samples, the first is sample 5", *fit, "--groups", "donor")
    fails(4, "--groups was given twice", *fit, "--groups", "donor", "--groups=x1")


def test_cells_without_a_label_are_refused(scaled, fails):
    anndata = pytest.importorskip("anndata")
    frame, groups = scaled
    groups.iloc[5] = None
    adata = anndata.AnnData(np.rint(20 * frame))
    adata.obs["donor"] = pd.Categorical(groups)
    adata.write_h5ad("cells.h5ad")
    for command in ("fit", "cells"):
        words = (command, "cells.h5ad", "-k", 3, "-o", "out", "--groups", "donor")
        fails(3, "no label for 1 samples, the first is sample 5", *words)


def test_a_fit_says_when_groups_are_not_in_the_model(scaled, output_of):
    fit = ("fit", "x.csv", "-k", 3, "-o", "out", "--quick", "--groups", "g.csv")
    said = "the model has no groups; a verdict compares them"
    assert said in output_of(*fit, "--solver", "none")
    assert said not in output_of(*fit)


def test_a_single_group_is_judged_as_none(scaled, output_of):
    Path("one.csv").write_text("a\n" * 120)
    plain = output_of("fit", "x.csv", "-k", 3, "-o", "out", "--json")
    one = output_of("fit", "x.csv", "-k", 3, "-o", "out", "--groups", "one.csv", "--json")
    assert one["verdict"]["components"] == plain["verdict"]["components"] != []
