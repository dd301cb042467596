"""Which components follow a class: eta squared less chance, and what counts as a class."""

import anndata
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData

import conenmf
from conenmf import factorize, from_rows
from conenmf.cli import main
from conenmf.errors import DataError
from conenmf.fields.cells import find_programs
from conenmf.judge.association import (
    followers,
    likely_classes,
    named_columns,
    shares_by_class,
)
from conenmf.judge.stability import Stability, stability
from conenmf.report import render

DONORS = np.repeat(["D1", "D2", "D3"], 60)


def shares_of(W, H, labels):
    """The shares (K,) that one column of classes explains."""
    return np.array(shares_by_class(W, H, {"class": labels})["class"])


@pytest.fixture(scope="module")
def counts():
    """Counts of 180 cells: three programs by Dirichlet shares, and one that only donor D2 has."""
    rng = np.random.default_rng(3)
    spectra = np.kron(np.eye(4), np.ones(8)) * 6 + 0.3
    usages = rng.dirichlet(np.full(3, 0.4), 180)
    own = np.where(DONORS == "D2", 0.5, 0.0)[:, None]
    rates = np.hstack([usages * (1 - own), own]) @ spectra
    return rng.poisson(rates * rng.lognormal(2.0, 0.3, (180, 1))).astype(np.float32)


def one_component(usage):
    """Factors whose first component has this share in each sample."""
    usage = np.asarray(usage, float)
    return np.eye(2), np.vstack([usage, 1 - usage])


def test_the_share_of_shuffled_classes_is_zero_on_average(rng):
    """The expectation of eta squared over all orders of the labels is (G - 1) / (N - 1)."""
    usage = rng.dirichlet([0.1, 1], 40)[:, 0]
    labels = rng.integers(6, size=40)
    totals = []
    for _ in range(600):
        shuffled = rng.permutation(labels)
        means = np.array([usage[shuffled == g].mean() for g in range(6)])
        totals.append(((means[shuffled] - usage.mean()) ** 2).sum() / (40 * usage.var()))
    assert np.mean(totals) == pytest.approx(5 / 39, rel=0.06)


@pytest.mark.parametrize(("n_same", "expected"), [(2, 0.0), (8, 1.0)])
def test_what_shuffled_classes_explain_as_well_does_not_follow(n_same, expected):
    """Forty pairs of samples: two equal samples in a pair are no evidence, four pairs are."""
    labels = np.arange(80) // 2
    usage = np.zeros(80)
    usage[:n_same] = 0.9
    assert shares_of(*one_component(usage), labels)[0] == pytest.approx(expected)


def test_noise_never_follows_small_classes():
    rng = np.random.default_rng(0)
    for _ in range(100):
        usage = rng.dirichlet([0.05, 1], 30)[:, 0]
        shares = shares_of(*one_component(usage), rng.permutation(30) // 3)
        assert (shares <= 0.5).all()


def test_many_samples_are_sampled_without_regard_to_their_order(monkeypatch):
    """Classes that alternate would look like one class at even distances."""
    monkeypatch.setattr("conenmf.judge.association._MAX_SAMPLES", 1000)
    monkeypatch.setattr("conenmf.judge.association._MAX_SHUFFLED", 200)
    usage = np.tile([0.2, 0.6], 2000)
    shares = shares_by_class(*one_component(usage), {"batch": np.tile([0, 1], 2000)})
    assert shares["batch"] == pytest.approx([1.0, 1.0])


def test_sentences_name_the_column_and_count_from_one_for_programs():
    shares = {"donor_id": [0.97, 0.2, 0.95, 0.51], "sex": [0.5, 0.0, 0.0, 0.0]}
    (line,) = followers(shares, "program", 1)
    assert line == "programs 1, 3 and 4 follow the donor_id (97%, 95%, 51%)"


def test_columns_come_from_lists_series_dicts_and_frames(refuses):
    frame = pd.DataFrame({"donor": ["a", "b", "a"], "day": [1, 1, 2]})
    assert list(named_columns("classes", frame, 3)) == ["donor", "day"]
    assert list(named_columns("classes", dict(frame), 3)) == ["donor", "day"]
    assert list(named_columns("classes", frame["day"], 3)) == ["day"]
    assert list(named_columns("groups", ["a", "b", "a"], 3, "group")) == ["group"]
    assert named_columns("classes", frame, 3)["donor"].tolist() == [0, 1, 0]
    refuses(DataError, "3 labels for 4 samples", named_columns, "classes", frame, 4)
    refuses(DataError, "a list of classes", named_columns, "classes", {"a": [[1], [2, 3]]}, 2)


def test_likely_classes_are_categories_with_enough_rows():
    n = 120
    frame = pd.DataFrame(
        {
            "donor": pd.Categorical(np.arange(n) % 6),
            "barcode": [f"c{k}" for k in range(n)],
            "many": [str(k // 10) for k in range(n)],
            "depth": np.arange(n),
            "is_male": np.arange(n) % 6 < 3,
            "one": ["x"] * n,
            "again": [f"donor {k % 6}" for k in range(n)],
            "hole": [None if k % 2 else "x" for k in range(n)],
            "leiden": [str(k % 3) for k in range(n)],
        }
    )
    found = likely_classes(frame, leave_out=["leiden", "absent"])
    assert list(found) == ["donor", "is_male", "hole"]
    assert found["hole"].tolist() == [0, 1] * 60


def test_stability_says_it_and_keeps_it(counts, tmp_path):
    found = stability(from_rows(counts), 4, 4, resample="start", classes={"donor": DONORS})
    (line,) = [line for line in found.in_sentences() if "follow" in line]
    (k,) = np.flatnonzero(np.array(found.class_shares["donor"]) > 0.5)
    assert line.startswith(f"component {k} follows the donor (")
    assert line in str(found)
    found.save(tmp_path / "found.npz")
    assert Stability.load(tmp_path / "found.npz").class_shares == found.class_shares
    result = factorize(from_rows(counts), 4, init=found.W, solver=None)
    assert f"Component {k} follows the donor (" in render(result, stability=found)


def test_annotated_cells_say_it(counts, capsys):
    adata = AnnData(counts)
    adata.obs["donor_id"] = pd.Categorical(DONORS)
    adata.obs["cluster"] = pd.Categorical(DONORS)
    adata.uns["cluster"] = {"params": {}}
    result = conenmf.tl.nmf(adata, 4)
    (line,) = [line for line in result.summary() if "follows" in line]
    assert "follows the donor_id (" in line
    assert line in capsys.readouterr().err
    assert list(adata.uns["conenmf"]["settings"]["class_shares"]) == ["donor_id"]
    found = conenmf.tl.consensus(adata, 4, 3, verbose=False)
    assert list(found.class_shares) == ["donor_id"]  # not the labels of the fit before
    assert not capsys.readouterr().err
    assert max(adata.uns["conenmf_stability"]["class_shares"]["donor_id"]) > 0.5


def test_programs_and_the_commands_say_it(counts, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    programs = find_programs(from_rows(counts), 4, 4, classes=pd.Series(DONORS, name="patient"))
    shares = programs.stability.class_shares["patient"]
    (k,) = np.flatnonzero(np.array(shares) > 0.5)
    assert f"program {k + 1} follows the patient ({shares[k]:.0%})" in str(programs)
    adata = anndata.AnnData(counts, obs=pd.DataFrame({"donor_id": DONORS}, map(str, range(180))))
    adata.write_h5ad("atlas.h5ad")
    pd.DataFrame(counts).assign(patient=DONORS).to_csv("cells.csv", index=False)
    many = ("--runs", "3", "-k", "4", "-q", "--no-report")
    for words, name in (
        (("cells", "atlas.h5ad", "--no-anndata"), "donor_id"),
        (("stability", "atlas.h5ad"), "donor_id"),
        (("stability", "cells.csv", "--classes", "patient"), "patient"),
    ):
        assert main([*words, *many]) == 0
        printed = capsys.readouterr().out
        assert f"follows the {name} (" in printed
