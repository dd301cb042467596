"""Programs of cells of many donors: a scale for each gene and donor, and who uses which program.

Differences between donors look like programs, so a consensus of plain fits contains some. Here each
donor has a scale for each gene (`solve.groups`), and the consensus is formed of counts that are
divided by them. The scales are found in two steps: from the mean expression of each donor, halved,
since a part of it comes from which programs the donor uses; and again from a small consensus of
counts divided by those.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..data.groups import Groups, sums_by
from ..data.matrix import Aligned, DataMatrix
from ..solve.groups import GroupFit, estimate_scales, fit_groups, sums_of
from ..solve.losses import get_loss
from ..solve.run import Stopping
from ..types import Array

_STOPPING = Stopping(1e-4, max_iter=100)
_COMPOSITION = 0.5  # power of the ratio of means that is taken for a scale at first


def first_scales(counts: DataMatrix, labels: Any) -> Groups | None:
    """Return the donors with scales from their mean expression; None if there is one donor."""
    groups = Groups.of(labels, counts)
    if groups is None:
        return None
    sums = sums_of(counts, groups).of_data
    totals = sums.sum(axis=2, keepdims=True)
    profile = sums.sum(axis=(0, 1)) / sums.sum()
    scales = estimate_scales(sums, totals * profile).scales
    return groups.fitted(scales**_COMPOSITION, None)


def fit_donors(counts: DataMatrix, groups: Groups, W: Array, H: Aligned) -> GroupFit:
    """Fit counts (F, N) from these factors, whose scales of donors are known in part."""
    groups = replace(groups, table=None)  # it was of other components
    start = get_loss("poisson").initialize(counts, W.shape[1], (W, H))
    return fit_groups(counts, groups, "poisson", start.W, start.H, stopping=_STOPPING)


def scales_of_all(V: DataMatrix, groups: Groups, usages: Array, tpm: Array) -> Groups:
    """Return the donors with scales of all genes, given usages (N, K) in counts and spectra."""
    sums = sums_of(V, groups)
    P, G, F = sums.of_data.shape
    fitted = sums_by(sums.parts, usages, G * P) @ tpm.T
    fitted = fitted.reshape(G, P, F).swapaxes(0, 1)
    return groups.fitted(estimate_scales(sums.of_data, fitted).scales, groups.table)
