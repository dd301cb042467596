"""Statistics of genes, and the choice of overdispersed genes."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from conenmf import from_rows
from conenmf.errors import DataTypeError
from conenmf.fields.genes import gene_statistics, overdispersion
from conenmf.names import Names


def draw_counts(n_cells=200, n_genes=60, seed=0):
    rng = np.random.default_rng(seed)
    rates = rng.gamma(1.0, 1.0, n_genes) * rng.gamma(3.0, 0.5, (n_cells, n_genes))
    counts = rng.poisson(rates).astype(float)
    counts[:, 7] = 0  # a gene that no cell has
    counts[3] = 0  # a cell without counts
    return counts


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_statistics_are_those_of_counts_and_of_counts_per_million(make):
    counts = draw_counts()
    V = from_rows(make(counts), block_samples=17)
    passes = V.passes
    found = gene_statistics(V)
    assert V.passes - passes == 1
    totals = counts.sum(axis=1)
    tpm = 1e6 * counts / np.where(totals > 0, totals, 1)[:, None]
    np.testing.assert_allclose(found.totals, totals)
    np.testing.assert_allclose(found.mean, counts.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.variance, counts.var(axis=0, ddof=1), rtol=1e-9)
    np.testing.assert_allclose(found.tpm_mean, tpm.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.tpm_variance, tpm.var(axis=0), rtol=1e-9)


def test_a_gene_that_varies_more_than_its_mean_explains_is_overdispersed():
    counts = draw_counts(400)
    counts[::4, 20] += 40
    statistics = gene_statistics(from_rows(counts))
    ratio = overdispersion(statistics)
    assert np.nanargmax(ratio) == 20
    assert np.flatnonzero(np.isnan(ratio)).tolist() == [7]
    # the line of the docstring, by the quantiles of pandas
    mean, fano = pd.Series(statistics.tpm_mean), pd.Series(statistics.tpm_variance)
    fano = fano / mean.where(mean > 0)
    A2 = (fano / mean)[mean.nlargest(20).index].min()
    usual = (mean > mean.quantile(0.1)) & (mean < mean.quantile(0.9))
    usual &= (fano > fano.quantile(0.1)) & (fano < fano.quantile(0.9))
    np.testing.assert_allclose(ratio, fano / (A2 * mean + fano[usual].median()), rtol=1e-10)


def test_entries_that_are_not_counts_are_named(refuses):
    counts = draw_counts()
    counts[5, 9] = 0.5
    names = Names.of([f"cell {n}" for n in range(200)], [f"gene {f}" for f in range(60)])
    V = from_rows(sp.csr_array(counts), names=names)
    refuses(DataTypeError, "'gene 9' has entries .*layers/counts", gene_statistics, V)
