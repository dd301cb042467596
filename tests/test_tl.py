import numpy as np
import pytest
import scipy.sparse as sp
from anndata import AnnData

import conenmf
from conenmf.errors import OptionError


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
    np.testing.assert_array_equal(adata.obs["conenmf"], result.labels)
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
    with pytest.raises(OptionError, match="there is no X: name a layer, one of raw"):
        conenmf.tl.nmf(AnnData(layers={"raw": np.ones((3, 3))}), 2)
