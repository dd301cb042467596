"""Genes whose variance is larger than their mean explains, from one pass over raw counts.

Genes are chosen as in cNMF 1.7 (Kotliar et al., eLife 8, 2019). Counts are scaled to a million per
cell (TPM). The variance over the mean of each gene is then compared with a linear function of the
mean that fits most genes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..data.blocks import Block, divisors, entrywise, exact, products, weighted_sums
from ..data.matrix import Aligned, DataMatrix
from ..errors import DataTypeError
from ..text import excerpt
from ..types import Array, Arrays

TPM = 1e6  # the sum to which each cell is scaled
_TOP_GENES = 20  # the genes with the largest means, among which the smallest variation is found
_WINSOR = (0.1, 0.9)  # quantiles that enclose most genes


class GeneStatistics(NamedTuple):
    """What one pass over counts (F genes, N cells) measures.

    Attributes
    ----------
    totals : aligned (N,)
        The sum of counts of each cell.
    mean, variance : arrays (F,)
        Of the counts; the variance divides by N - 1.
    tpm_mean, tpm_variance : arrays (F,)
        Of counts scaled to a million in each cell; the variance divides by N.
    """

    totals: Aligned
    mean: Array
    variance: Array
    tpm_mean: Array
    tpm_variance: Array


def gene_statistics(V: DataMatrix) -> GeneStatistics:
    """Measure genes in one pass; reject entries that are not counts."""
    N = V.n_samples
    with V.own_threads():
        totals, sums = V.sweep(_measure)
    if sums["fractions"].any():
        gene = V.names.feature(int(sums["fractions"].argmax()))
        raise DataTypeError(
            f"gene {excerpt(gene)!r} has entries that are not counts: give raw counts, before "
            "scaling and logarithms, such as those of a layer (layers/counts) or of raw (raw/X)"
        )
    first = sums["first"] / N
    second = sums["second"] / N
    spread = np.maximum(second - first**2, 0.0)
    variance = spread[:, 0] * (N / max(N - 1, 1))
    return GeneStatistics(totals, first[:, 0], variance, first[:, 1], spread[:, 1])


def overdispersion(statistics: GeneStatistics) -> Array:
    """Return variance over mean of each gene, relative to the value expected for its mean.

    The expected value is A^2 mean + B^2. A is the smallest variation among the most expressed
    genes; B^2 is the median of variance over mean among genes that are extreme in neither. The
    result is NaN for genes without counts.
    """
    mean = statistics.tpm_mean
    variance = statistics.tpm_variance
    with np.errstate(divide="ignore", invalid="ignore"):
        fano = variance / mean
        variation = np.sqrt(variance) / mean
    top = np.argsort(-mean, kind="stable")[:_TOP_GENES]
    A = np.nanmin(variation[top])
    low, high = np.quantile(mean, _WINSOR)
    least, most = np.nanquantile(fano, _WINSOR)
    has_usual_mean = (mean > low) & (mean < high)
    usual = has_usual_mean & (fano > least) & (fano < most)
    B2 = np.median(fano[usual]) if usual.any() else np.nanmedian(fano)
    expected = A**2 * mean + B2
    return np.divide(fano, expected, out=np.full(len(fano), np.nan), where=expected > 0)


def _measure(block: Block) -> tuple[Array, Arrays]:
    """Return totals of cells, and sums over cells of counts, TPM and their squares."""
    counts = exact(block)
    totals = products(counts, np.ones((block.shape[0], 1)))[:, 0]
    ones = np.ones((len(totals), 1))
    scale = TPM / divisors(totals)
    factors = np.column_stack([ones, scale])
    squares = entrywise(counts, np.square)
    fractions = entrywise(counts, _fractions)
    return totals, {
        "first": weighted_sums(counts, factors),
        "second": weighted_sums(squares, factors**2),
        "fractions": weighted_sums(fractions, ones),
    }


def _fractions(values: Array) -> Array:
    return values - np.floor(values)
