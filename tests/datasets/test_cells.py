"""Counts of genes in cells, from files of AnnData."""

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from conenmf import from_rows
from conenmf.datasets import load

# Most datasets here are smaller than those of the same name; other tests look for this warning.
pytestmark = pytest.mark.filterwarnings("ignore::conenmf.errors.InputWarning")


CELLS = "10x_pbmc68k_reduced.h5ad"


def cells(path, rng, scale=1, types=(1, 0, 1, 1, 0, 0, 1)):
    """An AnnData file like scanpy's; return its counts and types."""
    X = rng.poisson(0.8, (7, 5))
    totals = (X.sum(1) + rng.integers(9, 40, 7)).astype(np.float32)
    logs = sp.csr_matrix(np.round(np.log1p(X / totals[:, None] * 1e4), 3).astype(np.float32))
    labels = pd.Categorical.from_codes(types, ["B", "NK"])
    obs = pd.DataFrame(
        {"bulk_labels": labels, "n_counts": totals}, index=[f"cell{n}" for n in range(7)]
    )
    adata = anndata.AnnData(logs * scale, obs, pd.DataFrame(index=[f"gene{n}" for n in range(5)]))
    adata.raw = adata
    path.parent.mkdir(parents=True, exist_ok=True)
    adata.write_h5ad(path)
    return X, np.array(types)


def test_counts_of_cells(folder, rng):
    X, types = cells(folder / "pbmc68k_reduced" / CELLS, rng)
    stored = load("pbmc68k_reduced", weights="counts")
    np.testing.assert_array_equal(stored.X.toarray(), X)
    np.testing.assert_array_equal(stored.labels, types)
    assert stored.classes == ("B", "NK")
    assert stored.names.feature_names[:2] == ("gene0", "gene1")
    assert stored.names.sample(6) == "cell6"
    weighted = load("pbmc68k_reduced").X
    np.testing.assert_allclose(
        weighted.toarray(), np.log1p(1e4 * X / X.sum(1, keepdims=True).clip(1))
    )
    assert from_rows(weighted).shape == (5, 7)
