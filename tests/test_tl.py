"""`conenmf.tl.factorize` on AnnData: layers, views, highly variable genes, labels."""

import anndata
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from anndata import AnnData

import conenmf
from conenmf import Problem
from conenmf.errors import DataError, OptionError
from conenmf.solve.constraints import Penalties


@pytest.fixture
def adata():
    counts = np.random.default_rng(0).poisson(2.0, (60, 20)).astype(np.float32)
    adata = AnnData(sp.csr_matrix(counts), layers={"raw": counts + 1})
    adata.var_names = [f"gene {f}" for f in range(20)]
    return adata


@pytest.fixture
def three_kinds(rng):
    """27 cells of three kinds, each with genes of its own."""
    return AnnData(np.kron(np.eye(3), np.ones((9, 4))) * rng.random((27, 12)))


def test_one_line_for_cells(adata):
    result = conenmf.tl.nmf(adata, 3)
    assert adata.obsm["X_conenmf"].shape == (60, 3)
    np.testing.assert_array_equal(adata.varm["conenmf"], result.W)
    np.testing.assert_array_equal(adata.obs["conenmf"].astype(int), result.labels)
    assert (result.names.feature(4), result.names.sample(4)) == ("gene 4", "4")


def test_a_layer_and_another_key(adata, refuses):
    assert conenmf.tl.nmf(adata, 2, layer="raw", key_added="raw_nmf", max_iter=5, tol=0).n_iter == 5
    assert adata.obsm["X_raw_nmf"].shape == (60, 2)
    unknown = "layer='cooked' is unknown; choose one of 'raw'"
    refuses(OptionError, unknown, conenmf.tl.nmf, adata, 2, layer="cooked")


@pytest.mark.filterwarnings("ignore:Setting element")  # a view becomes a copy: anndata says so
def test_a_view_of_some_genes(adata):
    result = conenmf.tl.nmf(adata[:, :10], 2, n_threads=1)
    np.testing.assert_array_equal(result.W, conenmf.tl.nmf(adata[:, :10].copy(), 2).W)
    assert conenmf.tl.nmf(adata[:40], 2, layer="raw").H.shape == (2, 40)


def test_labels_are_categories_as_scanpy_takes_them(adata):
    adata.X = sp.csr_matrix(np.vstack([adata.X.toarray()[:-1], np.zeros((1, 20))]))
    result = conenmf.tl.nmf(adata, 3)
    groups = adata.obs["conenmf"]
    assert groups.dtype == "category"
    present = sorted(set(result.labels[:-1].tolist()))
    assert list(groups.cat.categories) == [str(k) for k in present]
    assert groups.isna().tolist() == [False] * 59 + [True]  # a cell without counts
    assert groups.iloc[0] == str(result.labels[0])


def test_scaled_counts_are_refused_with_the_cell_the_gene_and_the_way_out(adata, refuses):
    adata.obs_names = [f"cell {n}" for n in range(60)]
    adata.X = np.array(adata.X.toarray())
    adata.X[7, 4] = -2.0
    place = r"\(sample 'cell 7'\), .* \(feature 'gene 4'\)"
    refuses(DataError, rf"{place}.*before centring", conenmf.tl.nmf, adata, 3)


def test_a_consensus_is_added_with_its_stability(three_kinds):
    found = conenmf.tl.consensus(three_kinds, 3, 5, key_added="programs", n_threads=1)
    np.testing.assert_array_equal(three_kinds.varm["programs"], found.W)
    np.testing.assert_array_equal(three_kinds.obsm["X_programs"], np.asarray(found.H).T)
    np.testing.assert_array_equal(three_kinds.uns["programs_stability"]["found_in"], found.found_in)
    assert three_kinds.obs["programs"].nunique() == 3
    found = conenmf.tl.consensus(three_kinds, 2, 3, key_added="counts", loss="poisson")
    assert three_kinds.uns["counts"]["loss"] == found.loss == "poisson"
    np.testing.assert_allclose(three_kinds.obsm["X_counts"], np.asarray(found.H).T)


def test_every_option_of_reading_and_of_the_fit(adata):
    """A mask, weights and what is missing are for reading; the rest goes to the fit."""
    rng, X = np.random.default_rng(1), adata.X.toarray()
    mask, weights = rng.random(X.shape) > 0.1, rng.random(20) + 0.5
    fit = {"init": "random", "max_iter": 9, "tol": 0}
    for reading in ({"mask": mask}, {"weights": weights}, {"missing": "zeros"}):
        given = {"block_samples": 20, "n_threads": 1, **reading}
        V = conenmf.from_rows(adata.X, **given)
        expected = conenmf.factorize(V, 3, rng=np.random.default_rng(0), **fit)
        result = conenmf.tl.nmf(adata, 3, rng=np.random.default_rng(0), **fit, **given)
        np.testing.assert_array_equal(result.W, expected.W)
        np.testing.assert_array_equal(adata.obsm["X_conenmf"], expected.H.T)


def variable_genes(adata):
    adata.var["highly_variable"] = np.arange(20) % 2 == 0
    return np.arange(0, 20, 2)


@pytest.mark.parametrize("storage", ["memory", "dense", "backed", "dask"])
def test_highly_variable_genes_are_used_alone_as_in_scanpy(adata, tmp_path, storage):
    genes = variable_genes(adata)
    part = adata[:, genes].copy()
    del part.var["highly_variable"]
    expected = conenmf.tl.nmf(part, 3)
    if storage == "dense":
        adata.X = adata.X.toarray()
    elif storage == "backed":
        adata.write_h5ad(tmp_path / "cells.h5ad")
        adata = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    elif storage == "dask":
        adata.X = da.from_array(adata.X.toarray(), chunks=(20, 20))
    result = conenmf.tl.nmf(adata, 3)
    assert result.names.feature_names == tuple(f"gene {f}" for f in genes)
    np.testing.assert_allclose(result.relative_error, expected.relative_error, rtol=1e-6)
    near = np.sqrt(1e-5) * expected.W.max()  # at an error within tol, 1e-5, of the lowest one
    np.testing.assert_allclose(result.W, expected.W, atol=near)
    loadings = adata.varm["conenmf"]
    assert loadings.shape == (20, 3)
    np.testing.assert_array_equal(loadings[genes], result.W)
    assert not loadings[1::2].any()


def test_all_genes_are_used_if_one_asks_for_it(adata, refuses):
    variable_genes(adata)
    assert conenmf.tl.nmf(adata, 3, use_highly_variable=False).W.shape == (20, 3)
    assert conenmf.tl.consensus(adata, 2, 3).W.shape == (10, 2)
    needed = "need all genes; give use_highly_variable=False"
    refuses(OptionError, needed, conenmf.tl.nmf, adata, 3, missing="zeros")
    adata.var["highly_variable"] = False
    unmarked = "none is marked; give use_highly_variable=False"
    refuses(OptionError, unmarked, conenmf.tl.nmf, adata, 3)


def test_a_range_of_numbers_of_components(three_kinds):
    result = conenmf.tl.nmf(three_kinds, range(2, 6))
    assert result.K == result.selection.K == 3
    assert conenmf.tl.consensus(three_kinds, [2, 3, 4], 5).K == 3
    facts = three_kinds.uns["conenmf_stability"]
    assert facts["ks"].tolist() == [2, 3, 4]
    assert facts["mean_silhouettes"].argmax() == 1
    assert facts["relative_errors"][0] > facts["relative_errors"][1]
    assert three_kinds.obsm["X_conenmf"].shape == (27, 3)


def test_what_takes_long_shows_its_progress(adata, monkeypatch, capsys):
    monkeypatch.setattr("conenmf.tl._SILENT_SECONDS", 0.0)
    conenmf.tl.consensus(adata, 2, 3)
    assert "fitting 3 times" in capsys.readouterr().err
    conenmf.tl.nmf(adata, 2, verbose=False)
    assert not capsys.readouterr().err


def test_known_components_and_penalties_are_in_both_functions(three_kinds):
    known = np.repeat([1.0, 0.0], [4, 8])[:, None]
    penalties = Penalties(l2_h=0.1, l2_w=0.1)
    result = conenmf.tl.nmf(three_kinds, range(2, 5), fixed=known, penalties=penalties)
    problem = Problem(penalties=penalties, fixed=known)
    chosen = conenmf.select_k(three_kinds.X, range(2, 5), problem=problem)
    assert result.selection.evidence[0].scores.tolist() == chosen.evidence[0].scores.tolist()
    assert result.K == chosen.K == 3
    found = conenmf.tl.consensus(three_kinds, 3, 4, problem=problem)
    np.testing.assert_array_equal(three_kinds.varm["conenmf"][:, :1], known)
    np.testing.assert_allclose(three_kinds.varm["conenmf"], found.W, rtol=1e-12)
    np.testing.assert_allclose(three_kinds.obsm["X_conenmf"], found.H.T, rtol=1e-9, atol=1e-12)


def test_unknown_options_are_those_of_the_function_that_was_called(adata):
    with pytest.raises(
        TypeError, match=r"tl\.nmf has no option 'max_iters': did you mean max_iter"
    ):
        conenmf.tl.nmf(adata, 3, max_iters=1)
    with pytest.raises(TypeError, match=r"tl\.consensus has no option 'runs': did you mean n_runs"):
        conenmf.tl.consensus(adata, 3, runs=5)


def test_raw_counts_get_a_word(adata, capsys):
    conenmf.tl.nmf(adata, 2)
    assert "these are raw counts" in capsys.readouterr().err
    conenmf.tl.nmf(adata, 2, loss="poisson")
    adata.X = adata.X.astype(float).log1p()
    conenmf.tl.nmf(adata, 2)
    assert "raw counts" not in capsys.readouterr().err


@pytest.fixture
def donors():
    """Counts of four donors, whose genes differ in scale."""
    rng = np.random.default_rng(1)
    codes = np.repeat(np.arange(4), 40)
    rates = rng.gamma(0.6, size=(160, 4)) @ rng.gamma(0.4, size=(4, 40))
    counts = rng.poisson(5 * rates * np.exp(0.8 * rng.standard_normal((4, 40)))[codes]) * 1.0
    adata = AnnData(counts)
    adata.obs["donor"] = [f"d{code}" for code in codes]
    return adata


@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_a_consensus_with_groups_keeps_its_components_and_their_order(donors, loss):
    found = conenmf.tl.consensus(donors, 4, 4, groups="donor", loss=loss)
    np.testing.assert_array_equal(donors.varm["conenmf"], found.W)
    assert donors.varm["conenmf_scales"].shape == (40, 4)
    assert (donors.varm["conenmf_scales"] != 1).any()
    assert donors.uns["conenmf"]["problem"].get("fixed") is None


def test_groups_have_names_and_a_table_and_go_with_their_fit(donors, tmp_path):
    result = conenmf.tl.nmf(donors, 3, groups="donor", loss="poisson")
    assert donors.uns["conenmf"]["groups"].tolist() == ["d0", "d1", "d2", "d3"]
    np.testing.assert_array_equal(donors.uns["conenmf"]["group_table"], result.group_table)
    donors.write_h5ad(tmp_path / "donors.h5ad")
    conenmf.tl.nmf(donors, 3)
    assert "conenmf_scales" not in donors.varm
    assert "groups" not in donors.uns["conenmf"]


def test_numbers_of_components_of_numpy(three_kinds, refuses):
    assert conenmf.tl.nmf(three_kinds, np.int64(3)).K == 3
    assert conenmf.tl.consensus(three_kinds, np.int64(3), 3).K == 3
    refuses(OptionError, "n_components='auto'", conenmf.tl.consensus, three_kinds, "auto")
