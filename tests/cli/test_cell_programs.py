import json
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp


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
