"""Cells of three programs, in memory and in files."""

import numpy as np
import pytest
import scipy.sparse as sp
from anndata import AnnData

N_CELLS, N_GENES, K = 240, 50, 3


@pytest.fixture(scope="session")
def spectra():
    """The truth, (genes, programs): each program has ten genes of its own."""
    values = np.full((N_GENES, K), 0.3)
    for k in range(K):
        values[10 * k : 10 * k + 10, k] = 6.0
    return values / values.sum(axis=0)


@pytest.fixture(scope="session")
def counts(spectra):
    """Raw counts (cells, genes) in float32; the last cell has none."""
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(np.full(K, 0.3), N_CELLS)
    rates = rng.lognormal(5.0, 0.4, N_CELLS)[:, None] * (shares @ spectra.T)
    drawn = rng.poisson(rates).astype(np.float32)
    drawn[-1] = 0
    return drawn


@pytest.fixture
def atlas(counts, tmp_path, monkeypatch):
    """An AnnData file of these counts, in a folder in which commands run; X has logarithms."""
    monkeypatch.chdir(tmp_path)
    adata = AnnData(sp.csr_matrix(np.log1p(counts)), layers={"counts": sp.csr_matrix(counts)})
    adata.obs_names = [f"cell{n}" for n in range(N_CELLS)]
    adata.var_names = [f"gene{f}" for f in range(N_GENES)]
    adata.obs["batch"] = ["a", "b"] * (N_CELLS // 2)
    adata.write_h5ad("atlas.h5ad")
    return adata
