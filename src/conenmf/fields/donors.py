"""Programs of cells of many donors: a scale for each gene and donor, and who uses which program.

Differences between donors look like programs, so a consensus of plain fits contains some. Here each
donor has a scale for each gene (`solve.groups`), and the consensus is formed of counts that are
divided by them. The scales are found in two steps: from the mean expression of each donor, halved,
since a part of it comes from which programs the donor uses; and again from a fit of counts divided
by those.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import default_rng

from ..data.blocks import TINY, over
from ..data.groups import Groups, sums_by
from ..data.matrix import Aligned, DataMatrix
from ..judge.choose_k import GUESS, Evidence, Selection
from ..judge.halves import HalfFit, cosines_in_halves, half_spectra, units_of
from ..judge.matching import KNOWN_COSINE
from ..names import Names
from ..solve.groups import GroupFit, estimate_scales, fit_groups, fitted_sums, sums_of
from ..solve.losses import get_loss
from ..solve.problem import Problem
from ..solve.run import Stopping
from ..text import counted
from ..types import Array, Facts, Texts

_EARLY, _FULL = Stopping(1e-4, max_iter=40), Stopping(1e-4, max_iter=80)
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


def fit_donors(
    counts: DataMatrix, groups: Groups, W: Array, H: Aligned, *, is_early: bool = False
) -> GroupFit:
    """Fit counts (F, N) from these factors, whose scales of donors are known in part."""
    groups = replace(groups, table=None)  # it was of other components
    stopping = _EARLY if is_early else _FULL
    start = get_loss("poisson").initialize(counts, W.shape[1], (W, H))
    return fit_groups(
        counts,
        groups,
        "poisson",
        start.W,
        start.H,
        stopping=stopping,
        has_table=not is_early,
    )


def scales_of_all(V: DataMatrix, groups: Groups, usages: Array, tpm: Array) -> Groups:
    """Return the donors with scales of all genes, given usages (N, K) in counts and spectra."""
    sums = sums_of(V, groups)
    fitted = fitted_sums(V, sums, tpm, usages.T)
    return groups.fitted(estimate_scales(sums.of_data, fitted).scales, groups.table)


def returning(data: DataMatrix, codes: Array | None, W: Array) -> Array:
    """Return which components (K,) are in fits of both halves of donors, in one of 2 splits.

    Without `codes`, the donors of the cells, the halves are of the cells.

    `data` are divided by the scales of the donors; a component is in a fit if its cosine with one
    of the fit's is above 0.9.
    """
    K = W.shape[1]
    units = units_of(data, codes)
    spectra = half_spectra(data, K, HalfFit(Problem()), units, default_rng(0), 2)
    is_there = cosines_in_halves(W, spectra) > KNOWN_COSINE
    return np.asarray(is_there.reshape(-1, 2, K).all(axis=1).any(axis=0))


def selected(chosen: Selection, data: DataMatrix, codes: Array, W: Array) -> Selection:
    """Return the choice of the number of programs by independent cells, given a fit of too many.

    A program counts if it returns in both halves of the donors, or in both halves of the cells: a
    program of one donor cannot return in others.
    """
    in_donors = returning(data, codes, W)
    is_real = in_donors | returning(data, None, W)
    K = max(int(is_real.sum()), 1)
    n_shared = int(in_donors.sum())
    most = W.shape[1]
    reason = f"{K} of {most} programs return in independent cells, {n_shared} in other donors"
    interval = (max(n_shared, 1), most)
    ks = np.array([n_shared, K])
    piece = Evidence("donors", K, interval, reason, 1, ks, ks / most, "share that returns")
    return Selection(K, interval, GUESS, piece.name, reason, (*chosen.evidence, piece), (reason,))


# --- what is said of donors -------------------------------------------------------------------

_N_MOVED = 5  # genes that are named for a donor


@dataclass(frozen=True, eq=False)
class Donors:
    """What each of G donors does with F genes and K programs.

    Attributes
    ----------
    names : tuple of str
    sizes : array (G,)
        The number of cells.
    scales : array (G, F)
        How much larger each gene is in a donor than in the programs. The geometric mean over donors
        is one.
    table : array (G, K)
        Whether a donor uses a program, by the test of `solve.groups`.
    usages : array (G, K)
        The mean usage.
    returns : array (K,)
        Whether each program is in fits of both halves of the donors, in a split at random.
    """

    names: Texts
    sizes: Array
    scales: Array
    table: Array
    usages: Array
    returns: Array

    @classmethod
    def of(cls, groups: Groups, usages: Array, returns: Array) -> Donors:
        """Return what groups say, and the usages of their cells.

        Parameters
        ----------
        groups : Groups
            With scales of all genes.
        usages : array (N, K)
        returns : array (K,)
        """
        sizes = groups.sizes
        sums = sums_by(groups.codes, usages, len(sizes))
        table = np.full(sums.shape, True) if groups.table is None else groups.table
        return cls(
            groups.names, sizes, np.asarray(groups.scales), table, sums / sizes[:, None], returns
        )

    def divided(self, V: DataMatrix, labels: Any, genes: Array) -> DataMatrix:
        """Return a view of some genes divided by their scales.

        Parameters
        ----------
        V : DataMatrix (n, N)
        labels : array (N,)
            The donors of the cells.
        genes : array (n,), integers
        """
        groups = Groups.of(labels, V, is_new=True)
        assert groups is not None
        return groups.fitted(self.scales[:, genes], None).divided(V)

    @property
    def found_in(self) -> Array:
        """The number of donors (K,) that use each program."""
        return np.asarray(self.table.sum(axis=0))

    def in_words(self, k: int) -> str:
        """Return which share of the donors uses program k, such as "in 17 of 20 donors".

        Parameters
        ----------
        k : int
        """
        count = int(self.found_in[k])
        if count == 1:
            return f"private, in {self.names[int(self.table[:, k].argmax())]} alone"
        return f"in {count} of {counted(len(self.names), 'donor')}"

    def moved(self, names: Names, n: int = _N_MOVED) -> dict[str, list[str]]:
        """Return the genes that move most with each donor, with the factor.

        Parameters
        ----------
        names : Names
        n : int
            How many for each donor.
        """
        order = np.argsort(-np.abs(np.log(self.scales)), axis=1, kind="stable")[:, :n]
        found: dict[str, list[str]] = {}
        for d, own in enumerate(order.tolist()):
            moved = [f for f in own if self.scales[d, f] != 1]
            genes = [f"{names.feature(f)} x {self.scales[d, f]:.2g}" for f in moved]
            found[self.names[d]] = genes
        return found

    def in_sentences(self, names: Names) -> list[str]:
        """Say which programs are private, and which genes move with which donor.

        Parameters
        ----------
        names : Names
        """
        n_private = int((self.found_in == 1).sum())
        K = self.table.shape[1]
        donors = counted(len(self.names), "donor")
        n_again = int((self.returns & (self.found_in > 1)).sum())
        lines = [
            f"{donors}; private to one of them: {n_private} of {counted(K, 'program')}; shared, "
            f"and found in both halves of the donors: {n_again}"
        ]
        for name, genes in self.moved(names).items():
            if genes:
                lines.append(f"genes that move with {name}: {', '.join(genes)}")
        if not lines[1:]:
            lines.append("the donors have no effect of their own on genes")
        return lines

    def plain(self, names: Names) -> Facts:
        """Return the sentences, and the shares of programs in donors, as plain values.

        Parameters
        ----------
        names : Names
        """
        shares = np.where(self.table, over(self.usages, self.usages.sum(axis=1, keepdims=True)), 0)
        rows = [
            {"found": self.in_words(k), "shares": own.tolist(), "most": max(float(own.max()), TINY)}
            for k, own in enumerate(shares.T)
        ]
        return {"sentences": self.in_sentences(names), "names": self.names, "rows": rows}
