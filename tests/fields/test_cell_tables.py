"""Tables and annotated copies of gene programs, in the layout of cNMF."""

import json
from functools import partial
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from conenmf import from_rows, open_data
from conenmf.errors import OutputError
from conenmf.fields.cells import check_run, find_programs, write_programs
from conenmf.names import Names

table = partial(pd.read_csv, sep="\t", index_col=0)


@pytest.fixture
def programs(atlas):
    return find_programs(open_data("atlas.h5ad", dataset="layers/counts"), 3, 3, n_genes=20)


def test_tables_have_the_names_and_the_form_of_cnmf(programs):
    paths = write_programs(programs, "out", "atlas")
    assert sorted(path.name for path in paths) == sorted(
        [
            "atlas.overdispersed_genes.txt",
            "atlas.spectra.k_3.dt_0_5.consensus.txt",
            "atlas.usages.k_3.dt_0_5.consensus.txt",
            "atlas.gene_spectra_tpm.k_3.dt_0_5.txt",
            "atlas.gene_spectra_score.k_3.dt_0_5.txt",
            "atlas.starcat_spectra.k_3.dt_0_5.txt",
            "atlas.run.k_3.dt_0_5.json",
        ]
    )
    genes = Path("out/atlas.overdispersed_genes.txt").read_text().split("\n")
    assert genes == [f"gene{f}" for f in programs.genes]
    usages = table("out/atlas.usages.k_3.dt_0_5.consensus.txt")
    assert (list(usages.columns), usages.index[7]) == (["1", "2", "3"], "cell7")
    np.testing.assert_array_equal(usages.to_numpy(np.float32), programs.usages)
    spectra = table("out/atlas.spectra.k_3.dt_0_5.consensus.txt")
    assert (list(spectra.columns), list(spectra.index)) == (genes, [1, 2, 3])
    np.testing.assert_allclose(spectra.to_numpy(), programs.spectra.T, rtol=1e-6)
    tpm = table("out/atlas.gene_spectra_tpm.k_3.dt_0_5.txt")
    np.testing.assert_allclose(tpm.to_numpy(), programs.spectra_tpm.T, rtol=1e-14)
    starcat = table("out/atlas.starcat_spectra.k_3.dt_0_5.txt")
    assert list(starcat.index) == ["GEP1", "GEP2", "GEP3"]
    deviation = programs.statistics.tpm_variance**0.5
    expected = tpm.div(tpm.sum(axis=1), axis=0) * 1e6 / deviation
    np.testing.assert_allclose(starcat.to_numpy(), expected[genes].to_numpy(), rtol=1e-9)


def test_an_annotated_copy_leaves_the_original_alone(programs, atlas, counts):
    before = Path("atlas.h5ad").read_bytes()
    write_programs(programs, "out", "atlas", copy_of="atlas.h5ad")
    assert Path("atlas.h5ad").read_bytes() == before
    copy = anndata.read_h5ad("out/atlas.k_3.dt_0_5.h5ad")
    np.testing.assert_array_equal(copy.obsm["X_conenmf"], programs.usages)
    np.testing.assert_array_equal(copy.varm["conenmf"], programs.spectra_tpm)
    np.testing.assert_array_equal(copy.varm["conenmf_score"], programs.spectra_score)
    np.testing.assert_array_equal(np.flatnonzero(copy.var["conenmf"]), programs.genes)
    groups = copy.obs["conenmf"]
    assert (groups.dtype, list(groups.cat.categories)) == ("category", ["1", "2", "3"])
    assert groups.isna().tolist() == [False] * 239 + [True]
    assert groups.iloc[0] == str(programs.labels[0] + 1)
    assert copy.uns["conenmf"]["n_runs"] == 3
    np.testing.assert_array_equal(copy.uns["conenmf"]["found_in"], programs.stability.found_in)
    assert json.loads(copy.uns["conenmf"]["markers"]) == programs.markers()
    assert list(copy.obs.columns) == ["batch", "conenmf"]
    np.testing.assert_array_equal(copy.layers["counts"].toarray(), counts)


def test_genes_of_raw_are_annotated_in_raw(atlas, counts):
    adata = atlas[:, :30].copy()
    adata.raw = anndata.AnnData(sp.csr_matrix(counts), obs=adata.obs[[]], var=atlas.var)
    adata.write_h5ad("raw.h5ad")
    programs = find_programs(open_data("raw.h5ad", dataset="raw/X"), 3, 2)
    write_programs(programs, "out", "raw", copy_of="raw.h5ad")
    copy = anndata.read_h5ad("out/raw.k_3.dt_0_5.h5ad")
    assert (copy.raw.varm["conenmf"].shape, copy.obsm["X_conenmf"].shape) == ((50, 3), (240, 3))


def test_counts_that_are_in_no_anndata_file_become_one(counts, tmp_path):
    """Such as those of 10x; io/test_tenx.py reads these."""
    names = Names.of([f"cell{n}" for n in range(240)], [f"gene{f}" for f in range(50)])
    V = from_rows(sp.csr_array(counts.astype(int)), names=names)
    programs = find_programs(V, 3, 2)
    write_programs(programs, tmp_path / "out", "a", counts=V)
    copy = anndata.read_h5ad(tmp_path / "out/a.k_3.dt_0_5.h5ad")
    np.testing.assert_array_equal(copy.X.toarray(), counts)
    assert (copy.var_names[3], copy.obs_names[4]) == ("gene3", "cell4")
    assert copy.obsm["X_conenmf"].shape == (240, 3)


def test_a_folder_of_another_run_is_refused(programs, refuses):
    about = {"source": "atlas.h5ad", "genes": "20"}
    write_programs(programs, "out", "atlas", **about)
    write_programs(programs, "out", "atlas", **about)  # the same run again
    for other, told in (({"source": "b"}, "another file"), ({"genes": "9"}, "choice of genes")):
        refuses(OutputError, told, check_run, "out", "atlas", **{**about, **other})
    check_run("out", "atlas", **{**about, "genes": "9"}, force=True)
    check_run("out", "other", **{**about, "genes": "9"})
    Path("out/loose.usages.k_3.dt_0_5.consensus.txt").write_text("")
    refuses(OutputError, r"holds another loose\.usages", check_run, "out", "loose", **about)
    Path("out/atlas.run.k_9.dt_0_5.json").write_text("[]")
    refuses(OutputError, "does not say which run", check_run, "out", "atlas", **about)
    Path("file").write_text("")
    refuses(OutputError, "is a file", check_run, "file", "atlas")
