"""Spectra of all genes, and usages, for given usages of the factored counts: two passes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.blocks import Array, Block, exact, scaled, weighted_sums
from ..data.matrix import Aligned, DataMatrix
from ..data.views import MappedMatrix, take_features
from ..linalg.nnls import solve_rows
from ..solve.coefficients import coefficients
from .genes import TPM, GeneStatistics


def spectra_of_all(
    V: DataMatrix, statistics: GeneStatistics, usages: Aligned
) -> tuple[Array, Array]:
    """Spectra of all genes in TPM, and their scores, from one pass.

    TPM are explained by the shares of programs in cells, with nonnegative least squares; and,
    standardised, by the usages themselves, with least squares.
    """
    (sums,) = V.sweep(_regress, statistics.totals, usages)
    K = len(sums["U"])
    tpm = solve_rows(sums["PP"], sums["TPM"][:, K:])
    centred = sums["TPM"][:, :K] - np.outer(statistics.tpm_mean, sums["U"])
    deviation = np.sqrt(np.maximum(statistics.tpm_variance, 1e-12))
    score = np.linalg.lstsq(sums["UU"], (centred / deviation[:, None]).T, rcond=None)[0].T
    return tpm, np.ascontiguousarray(score)


def _regress(block: Block, totals: Array, usages: Array) -> tuple[dict[str, Array]]:
    U = exact(usages)
    size = U.sum(axis=1, keepdims=True)
    P = U / np.where(size > 0, size, 1.0)
    tpm = _to_tpm(block, totals)
    sums = weighted_sums(tpm, np.hstack([U, P]))
    return ({"UU": U.T @ U, "U": U.sum(axis=0), "PP": P.T @ P, "TPM": sums},)


def _to_tpm(block: Block, totals: Array, *, dtype: Any = np.float64) -> Block:
    factors = TPM / np.where(totals > 0, totals, 1.0)
    return scaled(exact(block), factors).astype(dtype, copy=False)


def usages_of(
    V: DataMatrix, statistics: GeneStatistics, genes: Array, tpm: Array
) -> tuple[Array, Array]:
    """The usages that explain the TPM of the chosen genes best, each over its deviation."""
    N, variance = V.shape[1], statistics.tpm_variance[genes]
    variance = np.where(variance > 0, variance, 1.0)
    cells = MappedMatrix(V, _to_tpm, statistics.totals, dtype=np.dtype(np.float64))
    factors = np.sqrt(max(N - 1, 1) / (N * variance))
    view = take_features(cells, genes, factors=factors, dtype="float32")
    H, labels, _ = coefficients(view, tpm[genes] / np.sqrt(variance)[:, None])
    return np.ascontiguousarray(np.asarray(H).T), np.asarray(labels)
