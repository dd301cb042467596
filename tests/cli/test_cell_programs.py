import json
import re
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from conenmf.atomic import in_use
from conenmf.judge.scores import match_components


@pytest.fixture
def atlas(tmp_path, monkeypatch):
    """Counts of two programs in a layer, and logarithms in X."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rates = np.kron(np.eye(2), np.ones((40, 10))) * 4 + 0.3
    counts = rng.poisson(rates).astype(np.float32)
    adata = anndata.AnnData(sp.csr_matrix(np.log1p(counts)))
    adata.layers["counts"] = sp.csr_matrix(counts)
    adata.write_h5ad("atlas.h5ad")
    return counts


OPTIONS = ("--layer", "counts", "-k", 2, "--runs", 3, "-q")


def test_cells_go_from_a_file_to_programs(atlas, capsys, run):
    assert run("cells", "atlas.h5ad", *OPTIONS, "-o", "out", "--seed", 1) == 0
    printed = capsys.readouterr().out
    assert "80 cells, 20 genes of 20, 2 programs" in printed
    assert "program 1: in 100% of the runs, 40 cells; " in printed
    usages = pd.read_csv("out/atlas.usages.k_2.dt_0_5.consensus.txt", sep="\t", index_col=0)
    assert usages.shape == (80, 2)
    copy = anndata.read_h5ad("out/atlas.k_2.dt_0_5.h5ad")
    groups = copy.obs["conenmf"].to_numpy()
    assert (groups[:40] == groups[0]).all()
    assert (groups[40:] == groups[-1]).all()
    assert groups[0] != groups[-1]
    page = Path("out/atlas.report.k_2.html").read_text()
    assert 'id="stability"' in page
    facts = json.loads(Path("out/atlas.run.k_2.dt_0_5.json").read_text())
    assert facts["verdict"] == "stable"


def test_other_options_and_json(atlas, capsys, run):
    Path("genes.txt").write_text("3\n12\n15\n")
    options = ("--genes-file", "genes.txt", "--log1p", "--no-anndata", "--name", "b", "--json")
    options += ("--no-report",)
    assert run("cells", "atlas.h5ad:layers/counts", "-k", 2, "--runs", 2, "-q", *options) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["n_genes"] == 3
    assert answer["log1p"] is True
    assert sorted(Path(name).name for name in answer["files"])[-1].startswith("b.usages.k_2")
    assert not any(name.endswith(".h5ad") for name in answer["files"])
    assert Path("programs/b.overdispersed_genes.txt").read_text() == "3\n12\n15"


def test_the_page_leads_from_counts_to_programs(tmp_path, monkeypatch, capsys, run):
    """What docs/cells.md does in five minutes, on cells whose programs are known."""
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "cells.md").read_text("utf-8")
    values = {}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], values)
    (words,) = re.findall(r"^\$ conenmf (cells cells\.h5ad .*)", page, re.MULTILINE)
    assert run(*words.split()) == 0
    assert "5 programs of 3 to 7: the most that are all stable" in capsys.readouterr().out
    table = pd.read_csv("programs/cells.gene_spectra_tpm.k_5.dt_0_5.txt", sep="\t", index_col=0)[
        list(values["genes"].index)
    ]
    order, cosines = match_components(values["spectra"].T, table.to_numpy().T)
    assert cosines.min() > 0.99
    usages = pd.read_csv("programs/cells.usages.k_5.dt_0_5.consensus.txt", sep="\t", index_col=0)
    shares = usages.to_numpy()[:, order]
    shares /= shares.sum(axis=1, keepdims=True)
    assert np.abs(shares - values["usages"]).mean() < 0.03
    for name in ("k_selection", "clustering.k_5.dt_0_5"):
        assert Path(f"programs/cells.{name}.png").read_bytes().startswith(b"\x89PNG")
    assert 'id="stability"' in Path("programs/cells.report.k_5.html").read_text("utf-8")


def test_a_run_continues_from_the_fits_in_its_folder(atlas, capsys, run):
    quick = (*OPTIONS, "-o", "out", "--no-report", "--no-anndata")
    assert run("cells", "atlas.h5ad", *quick) == 0
    fits = {path: path.stat().st_mtime_ns for path in Path("out/atlas.runs/K-2").glob("run-*.npz")}
    assert len(fits) == 3
    Path("out/atlas.run.k_2.dt_0_5.json").unlink()
    for path in Path("out").glob("atlas.*"):
        if path.is_file():
            path.unlink()  # as if it had been killed before anything was written
    assert run("cells", "atlas.h5ad", *quick, "--runs", 5) == 0
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in fits.items())
    assert len(list(Path("out/atlas.runs/K-2").glob("run-*.npz"))) == 5
    capsys.readouterr()
    assert run("cells", "atlas.h5ad", *quick, "--tol", 0.1) == 4
    assert "its tol is 0.001, now it is 0.1" in capsys.readouterr().err
    assert run("cells", "atlas.h5ad", *quick, "--tol", 0.1, "--force") == 0


def test_a_folder_in_use_is_refused(atlas, capsys, run):
    Path("out").mkdir()
    with in_use(Path("out")):
        assert run("cells", "atlas.h5ad", *OPTIONS, "-o", "out") == 5
    assert "out is in use by another process" in capsys.readouterr().err
    assert run("cells", "nowhere.h5ad", *OPTIONS, "-o", "other") == 3
    assert not Path("other").exists()
