import numpy as np
import pytest
import scipy.sparse as sp
from anndata import AnnData

import conenmf
from conenmf.errors import DataError, OptionError


@pytest.fixture
def adata():
    counts = np.random.default_rng(0).poisson(2.0, (60, 20)).astype(np.float32)
    adata = AnnData(sp.csr_matrix(counts), layers={"raw": counts + 1})
    adata.var_names = [f"gene {f}" for f in range(20)]
    return adata


def test_one_line_for_cells(adata):
    result = conenmf.tl.nmf(adata, 3)
    assert adata.obsm["X_conenmf"].shape == (60, 3)
    np.testing.assert_array_equal(adata.varm["conenmf"], result.W)
    np.testing.assert_array_equal(adata.obs["conenmf"].astype(int), result.labels)
    assert result.names.feature(4) == "gene 4"
    assert result.names.sample(4) == "4"


def test_a_layer_and_another_key(adata):
    result = conenmf.tl.nmf(adata, 2, layer="raw", key_added="raw_nmf", max_iter=5, tol=0)
    assert result.n_iter == 5
    assert adata.obsm["X_raw_nmf"].shape == (60, 2)
    with pytest.raises(OptionError, match="layer='cooked' is unknown; choose one of 'raw'"):
        conenmf.tl.nmf(adata, 2, layer="cooked")


@pytest.mark.filterwarnings("ignore:Setting element")  # a view becomes a copy: anndata says so
def test_a_view_of_some_genes(adata):
    result = conenmf.tl.nmf(adata[:, :10], 2, n_threads=1)
    assert result.W.shape == (10, 2)
    whole = conenmf.tl.nmf(adata[:, :10].copy(), 2)
    np.testing.assert_array_equal(result.W, whole.W)
    dense = adata[:40]
    assert conenmf.tl.nmf(dense, 2, layer="raw").H.shape == (2, 40)


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
    adata.raw = adata.copy()
    adata.X = np.array(adata.X.toarray())
    adata.X[7, 4] = -2.0
    way = r"layer='raw'"
    with pytest.raises(DataError, match=rf"\(cell 'cell 7'\), .* \(gene 'gene 4'\).*{way}"):
        conenmf.tl.nmf(adata, 3)
    del adata.layers["raw"]
    refuses(DataError, r"adata\.raw\.to_adata\(\) has them", lambda: conenmf.tl.nmf(adata, 3))
    adata.raw = None
    refuses(DataError, r"before sc\.pp\.scale keeps them", lambda: conenmf.tl.nmf(adata, 3))


def test_a_consensus_is_added_with_what_is_found_again(rng):
    cells = AnnData(np.kron(np.eye(3), np.ones((9, 4))) * rng.random((27, 12)))
    found = conenmf.tl.consensus(cells, 3, 5, key_added="programs", n_threads=1)
    np.testing.assert_array_equal(cells.varm["programs"], found.W)
    np.testing.assert_array_equal(cells.obsm["X_programs"], np.asarray(found.H).T)
    np.testing.assert_array_equal(cells.uns["programs_stability"]["found_in"], found.found_in)
    assert cells.obs["programs"].nunique() == 3


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
