"""Cells of many donors: draws whose truth is known, what a result is worth, and other methods.

`draw_donors` draws from the model diag(b_d) W h of cell n of donor d; `draw_identities` and
`draw_ambient` do not. The former resembles Splatter and scsim: cells have identities and activities
with differential genes, counts are overdispersed, libraries differ by donor, and half of the genes
have a factor per donor. The latter has soup by donor, programs that differ between donors, and
doublets. `measures` compares usages and spectra with the truth. The other functions are methods:
scales and a table at fixed shares (`scaled_rounds`), fits of single donors whose programs are
clustered (`clustered`), and integrative NMF (`inmf`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import linear_sum_assignment, nnls

from conenmf import factorize, from_rows

_PRESENT, _TRULY_PRESENT = 0.03, 0.005  # mean usages in a donor
_N_MARKERS = 25
_FOUND = 0.6  # of the markers of a program
_NEIGHBOURS = 30  # of a cell, whose donors are compared
_MOST_CELLS = 1500  # that are looked up for their neighbours


class Draw(NamedTuple):
    """Counts and what they are drawn from.

    Attributes
    ----------
    counts : array (N, F)
    donors : array (N,), integers
    usages : array (N, K)
        Shares of the programs; each row sums to one.
    spectra : array (F, K)
        Each column sums to one.
    is_shared : array (K,)
        Whether a program was drawn for all donors, and not for one alone.
    constant : int
        The program that is constant in its donors; -1 without one.
    """

    counts: np.ndarray
    donors: np.ndarray
    usages: np.ndarray
    spectra: np.ndarray
    is_shared: np.ndarray
    constant: int = -1

    @property
    def K(self) -> int:
        """The number of programs."""
        return self.usages.shape[1]

    def grouped(self, labels: np.ndarray) -> Draw:
        """The same cells with other labels."""
        return self._replace(donors=labels)


# --- draws --------------------------------------------------------------------------------------


def programs(rng: np.random.Generator, F: int, K: int) -> np.ndarray:
    """Spectra (F, K): a lognormal base, in which 31 genes are multiplied by lognormal(2.2, 0.6)."""
    spectra = np.tile(rng.lognormal(0.0, 1.5, (F, 1)), K)
    for k in range(K):
        own = rng.choice(F, 31, replace=False)
        spectra[own, k] *= rng.lognormal(2.2, 0.6, own.size)
    return spectra / spectra.sum(axis=0)


def who_uses(rng: np.random.Generator, D: int, shared: int, private: int) -> np.ndarray:
    """A table (D, K): each donor has three of four shared programs, and private ones of its own.

    Each shared program is in two donors at least.
    """
    table = np.zeros((D, shared + private * D), bool)
    for k in range(shared):
        n_users = max(2, round(0.75 * D))
        table[rng.choice(D, n_users, replace=False), k] = True
    for d in range(D):
        table[d, shared + private * d :][:private] = True
    return table


def draw_donors(
    seed: int,
    sd: float = 0.4,
    D: int = 6,
    n_cells: int = 200,
    F: int = 500,
    shared: int = 6,
    private: int = 1,
    constant: str = "",
) -> Draw:
    """Draw from the model: a lognormal factor for each gene and donor, usages Dirichlet(0.25).

    With `constant` "treatment" the first half of the donors use another program with a share of
    about 0.25 in each cell; with "private" the first donor alone, with about 0.3.
    """
    rng = np.random.default_rng([seed, D, n_cells, F])
    table = who_uses(rng, D, shared, private)
    own = -1
    n_treated = {"treatment": D // 2, "private": 1, "": 0}[constant]
    if n_treated:
        own = table.shape[1]
        table = np.column_stack([table, np.arange(D) < n_treated])
    spectra = programs(rng, F, table.shape[1])
    donors = np.repeat(np.arange(D), n_cells)
    alpha = 0.25 * np.where(np.arange(table.shape[1]) == own, 0, table)[donors]
    usages = rng.gamma(np.maximum(alpha, 1e-12)) * (alpha > 0)
    usages /= np.maximum(usages.sum(axis=1, keepdims=True), 1e-300)
    if n_treated:
        level = 0.25 if constant == "treatment" else 0.3
        share = np.where(donors < n_treated, rng.normal(level, 0.02, donors.size), 0.0)
        usages *= 1 - share[:, None]
        usages[:, own] = share
    rates = usages @ spectra.T * rng.lognormal(0.0, sd, (D, F))[donors]
    counts = _counted(rng, rates)
    is_shared = table.sum(axis=0) > 1
    return Draw(counts, donors, usages, spectra, is_shared, own)


def draw_disjoint(seed: int, sd: float = 0.4) -> Draw:
    """Four donors of 300 cells; each has two programs that no other donor has."""
    return draw_donors(seed, sd, D=4, n_cells=300, shared=0, private=2)


def draw_identities(seed: int, D: int = 6, n_cells: int = 200, F: int = 1000) -> Draw:
    """Draw cells with one of eight identities, and one of two activities in a third of them.

    Gene means are gamma(0.6), with outliers; a program changes a gene with a probability of 0.05,
    by a factor of lognormal(1, 0.8) up or, in a fifth of the cases, down. Each donor has its own
    mixture of identities, of which it lacks some, its own depth, and factors of lognormal(0, 0.5)
    in half of the genes. Counts are gamma-Poisson, with a variation that falls with the mean.
    """
    rng = np.random.default_rng([seed, 1])
    K, n_identities = 10, 8
    base = rng.gamma(0.6, 1 / 0.3, F) + 1e-3
    outliers = rng.random(F) < 0.01
    base[outliers] = np.median(base) * rng.lognormal(4, 0.7, outliers.sum())
    factors = np.ones((F, K))
    changed = rng.random((F, K)) < 0.05
    down = np.where(rng.random((F, K)) < 0.2, -1, 1)
    factors[changed] = np.exp(down * rng.normal(1.0, 0.8, (F, K)))[changed]
    spectra = base[:, None] * factors
    spectra /= spectra.sum(axis=0)
    donors = np.repeat(np.arange(D), n_cells)
    has = rng.random((D, n_identities)) < 0.75
    has[np.arange(D), rng.integers(n_identities, size=D)] = True
    has[np.arange(n_identities) % D, np.arange(n_identities)] = True  # none is missing everywhere
    mixture = rng.gamma(1.0, size=(D, n_identities)) * has
    mixture /= mixture.sum(axis=1, keepdims=True)
    usages = np.zeros((donors.size, K))
    for n, d in enumerate(donors):
        usages[n, rng.choice(n_identities, p=mixture[d])] = 1.0
    active = rng.random(donors.size) < 0.3
    share = np.where(active, rng.uniform(0.1, 0.7, donors.size), 0.0)
    usages *= 1 - share[:, None]
    usages[np.arange(donors.size), n_identities + rng.integers(2, size=donors.size)] += share
    batch = np.where(rng.random((D, F)) < 0.5, rng.lognormal(0.0, 0.5, (D, F)), 1.0)
    rates = usages @ spectra.T * batch[donors]
    depths = rng.lognormal(7.64, 0.2, D)[donors] * rng.lognormal(0.0, 0.4, donors.size)
    means = depths[:, None] * rates / rates.sum(axis=1, keepdims=True)
    variation = (0.1 + 1 / np.sqrt(np.maximum(means, 1e-12))) * np.sqrt(
        60 / rng.chisquare(60, size=(1, F))
    )
    shape = 1 / np.minimum(variation, 10.0) ** 2
    counts = rng.poisson(means * rng.gamma(shape) / shape).astype(float)
    return Draw(counts, donors, usages, spectra, np.ones(K, bool))


def draw_ambient(seed: int, D: int = 6, n_cells: int = 200, F: int = 500) -> Draw:
    """Draw from programs that differ by lognormal(0, 0.3) in each donor, with soup and doublets.

    Between 5 and 30 % of the counts of a donor's cells come from its mean cell. A twentieth of the
    cells are two cells; their usages are those of both.
    """
    rng = np.random.default_rng([seed, 2])
    table = who_uses(rng, D, 6, 1)
    spectra = programs(rng, F, table.shape[1])
    donors = np.repeat(np.arange(D), n_cells)
    alpha = 0.25 * table[donors]
    usages = rng.gamma(np.maximum(alpha, 1e-12)) * table[donors]
    usages /= usages.sum(axis=1, keepdims=True)
    for d in range(D):
        own = np.flatnonzero(donors == d)
        pairs = rng.permutation(own)[: 2 * (n_cells // 20)].reshape(-1, 2)
        usages[pairs[:, 0]] = usages[pairs].mean(axis=1)
    rates = np.empty((donors.size, F))
    for d in range(D):
        own = donors == d
        varied = spectra * rng.lognormal(0.0, 0.3, spectra.shape)
        rates[own] = usages[own] @ (varied / varied.sum(axis=0)).T
        soup = rng.uniform(0.05, 0.3)
        rates[own] = (1 - soup) * rates[own] + soup * rates[own].mean(axis=0)
    return Draw(_counted(rng, rates), donors, usages, spectra, table.sum(axis=0) > 1)


def _counted(rng: np.random.Generator, rates: np.ndarray) -> np.ndarray:
    """Poisson counts of cells with 2000 lognormal(0, 0.35) counts on average."""
    depths = 2000 * rng.lognormal(0.0, 0.35, (len(rates), 1))
    return rng.poisson(depths * rates / rates.sum(axis=1, keepdims=True)).astype(float)


# --- what a result is worth ---------------------------------------------------------------------


def to_one(values: np.ndarray, axis: int = 1) -> np.ndarray:
    """Values divided by their sums along an axis; zeros stay zeros."""
    return values / np.maximum(values.sum(axis=axis, keepdims=True), 1e-300)


def partners(truth: np.ndarray, found: np.ndarray) -> np.ndarray:
    """The column of `found` (N, K') for each column of `truth` (N, K), or -1.

    The pairs are those with the least squared difference; a program without a partner counts as 0.
    """
    costs = (truth**2).sum(axis=0)[:, None] - 2 * truth.T @ found + (found**2).sum(axis=0)
    rows, columns = linear_sum_assignment(costs)
    own = np.full(truth.shape[1], -1)
    own[rows] = columns
    return own


def means_of(values: np.ndarray, donors: np.ndarray) -> np.ndarray:
    """The mean row of each donor, (D, K)."""
    return np.array([values[donors == d].mean(axis=0) for d in np.unique(donors)])


def markers(spectra: np.ndarray) -> np.ndarray:
    """The 25 genes of each program (25, K) that stand out most from the mean of the others.

    Differences of roots are compared, which are about equally precise for all counts.
    """
    shares = to_one(spectra, axis=0)
    K = shares.shape[1]
    others = (shares.sum(axis=1, keepdims=True) - shares) / max(K - 1, 1)
    return np.argsort(others**0.5 - shares**0.5, axis=0, kind="stable")[:_N_MARKERS]


def measures(draw: Draw, usages: np.ndarray, spectra: np.ndarray) -> dict[str, float]:
    """How far usages (N, K') and spectra (F, K') are from the truth.

    rmse : of usages that sum to one, over cells and true programs
    donors : root mean square of the donors' mean errors
    F1 : of which donor uses which program: a mean usage of 3 %; in truth, of 0.5 %
    markers, found : the share of true markers among the top genes, mean over all programs; how many
    shared programs have 60 % of theirs
    constant : the mean usage of the constant program in its donors
    mixing : by how many donors the neighbours of a cell are, 0 for one and 1 for all (iLISI)
    """
    found = to_one(usages * spectra.sum(axis=0))
    own = partners(draw.usages, found)
    matched = np.where(own >= 0, found[:, own], 0.0)
    errors = matched - draw.usages
    by_donor = means_of(errors, draw.donors)
    truly = means_of(draw.usages, draw.donors) > _TRULY_PRESENT
    said = means_of(matched, draw.donors) > _PRESENT
    true_markers, top = markers(draw.spectra), markers(spectra)
    hits = np.zeros(draw.K)
    for k in np.flatnonzero(own >= 0):
        hits[k] = np.isin(true_markers[:, k], top[:, own[k]]).mean()
    figures = {
        "rmse": np.sqrt((errors**2).mean()),
        "donors": np.sqrt((by_donor**2).mean()),
        "F1": 2 * (truly & said).sum() / (truly.sum() + said.sum()),
        "markers": hits.mean(),
        "found": (hits[draw.is_shared] >= _FOUND).sum(),
    }
    if draw.constant >= 0:
        users = draw.usages[:, draw.constant] > 0
        figures["constant"] = matched[users, draw.constant].mean()
        figures["true"] = draw.usages[users, draw.constant].mean()
    figures["mixing"] = mixing(found, draw.donors)
    return {name: float(value) for name, value in figures.items()}


def mixing(usages: np.ndarray, donors: np.ndarray) -> float:
    """The local inverse Simpson index of donors among 30 neighbours, from 0 to 1; mean of cells."""
    D = np.unique(donors).size
    indices = np.linspace(0, len(usages) - 1, min(len(usages), _MOST_CELLS)).astype(int)
    U = usages[indices]
    distances = (U**2).sum(axis=1)[:, None] - 2 * U @ U.T + (U**2).sum(axis=1)
    np.fill_diagonal(distances, np.inf)
    near = np.argpartition(distances, _NEIGHBOURS, axis=1)[:, :_NEIGHBOURS]
    labels = donors[indices][near]
    simpson = sum((labels == d).mean(axis=1) ** 2 for d in np.unique(donors))
    return float((1 / simpson - 1).mean() / max(D - 1, 1))


# --- methods ------------------------------------------------------------------------------------


def scaled_rounds(
    draw: Draw,
    usages: np.ndarray,
    spectra: np.ndarray,
    shares: tuple[tuple[int, float], ...] = (),
    n_iter: int = 240,
    has_scales: bool = True,
    prior: float = 20.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Refine usages (N, K) and spectra (F, K) by Poisson updates with scales and a table.

    A program stays in a donor if its share there is above a number; `shares` has pairs of the
    iteration from which on a number holds.
    """
    X, d = draw.counts, draw.donors
    own = [d == donor for donor in np.unique(d)]
    sums = spectra.sum(axis=0)
    W = np.maximum((spectra / sums).T, 1e-8 / len(spectra))  # (K, F)
    scale = X.sum(axis=1, keepdims=True)
    H = np.maximum(to_one(usages * sums), 1e-4) * scale
    B = np.ones((len(own), X.shape[1]))
    T = np.ones(H.shape)
    steps = dict(shares)
    for i in range(n_iter):
        if i in steps:
            means = means_of(to_one(H * W.sum(axis=1)), d)
            T = (means > steps[i])[d].astype(float)
            H = H * T
        b = B[d]
        ratio = X / np.maximum((H @ W) * b, 1e-9) * b
        H = T * H * (ratio @ W.T) / np.maximum(b @ W.T, 1e-12)
        ratio = X / np.maximum((H @ W) * b, 1e-9) * b
        weights = sum(np.outer(H[one].sum(axis=0), B[j]) for j, one in enumerate(own))
        W = W * (H.T @ ratio) / np.maximum(weights, 1e-12)
        if has_scales and i % 3 == 2:
            M = H @ W
            B = np.array([(X[one].sum(0) + prior) / (M[one].sum(0) + prior) for one in own])
            middle = np.exp(np.log(B).mean(axis=0))
            B, W = B / middle, W * middle
    return H, W.T


def clustered(draw: Draw, K: int) -> tuple[np.ndarray, np.ndarray]:
    """Fit each donor with 4 to 9 programs, as GeneNMF does, and cluster them; then NNLS.

    The spectrum of a cluster is its mean.
    """
    X = to_one(draw.counts)
    deviation = np.maximum(X.std(axis=0), 1e-9)
    found = []
    for d in np.unique(draw.donors):
        part = X[draw.donors == d] / deviation
        found += [factorize(from_rows(part), k).W for k in range(4, min(10, len(part)))]
    spectra = to_one(np.hstack(found), axis=0).T
    clusters = fcluster(linkage(spectra, "average", metric="cosine"), K, "maxclust")
    W = np.array([spectra[clusters == k].mean(axis=0) for k in np.unique(clusters)]).T
    return coefficients_of(X / deviation, W), W * deviation[:, None]


def coefficients_of(X: np.ndarray, W: np.ndarray) -> np.ndarray:
    """The NNLS coefficients (N, K) of samples X (N, F)."""
    return np.array([nnls(W, x)[0] for x in X])


class Integrated(NamedTuple):
    """Factors of integrative NMF: H by donor, W shared and V by donor; and the objectives."""

    H: list[np.ndarray]
    W: np.ndarray
    V: list[np.ndarray]
    objectives: list[float]


def inmf_objective(
    Xs: list[np.ndarray], Hs: list[np.ndarray], W: np.ndarray, Vs: list[np.ndarray], penalty: float
) -> float:
    """Welch et al. (2019): the sum over donors of |X - H (W + V)|^2 + penalty |H V|^2."""
    total = 0.0
    for X, H, V in zip(Xs, Hs, Vs, strict=True):
        total += ((X - H @ (W + V)) ** 2).sum() + penalty * ((H @ V) ** 2).sum()
    return float(total)


def inmf(Xs: list[np.ndarray], K: int, penalty: float = 5.0, n_iter: int = 60) -> Integrated:
    """Integrative NMF of matrices (cells, genes): block coordinate descent, a column at a time."""
    rng = np.random.default_rng(0)
    F = Xs[0].shape[1]
    W = rng.random((K, F))
    Vs = [rng.random((K, F)) * 0.5 for _ in Xs]
    Hs = [rng.random((len(X), K)) for X in Xs]
    objectives = []
    for _ in range(n_iter):
        for j, X in enumerate(Xs):
            A = W + Vs[j]
            _descend(Hs[j].T, A @ A.T + penalty * Vs[j] @ Vs[j].T, A @ X.T)
        Gs = [H.T @ H for H in Hs]
        for j, X in enumerate(Xs):
            _descend(Vs[j], (1 + penalty) * Gs[j], Hs[j].T @ X - Gs[j] @ W)
        sides = sum(H.T @ X - G @ V for H, X, G, V in zip(Hs, Xs, Gs, Vs, strict=True))
        _descend(W, sum(Gs), sides)
        objectives.append(inmf_objective(Xs, Hs, W, Vs, penalty))
    return Integrated(Hs, W, Vs, objectives)


def _descend(Y: np.ndarray, G: np.ndarray, C: np.ndarray, sweeps: int = 2) -> None:
    """Minimise y'Gy / 2 - c'y over the nonnegative rows of Y (K, n) in turn, in place."""
    for _ in range(sweeps):
        for k in range(len(Y)):
            if G[k, k] > 0:
                Y[k] = np.maximum(Y[k] - (G[k] @ Y - C[k]) / G[k, k], 0)


def integrated(draw: Draw, K: int) -> tuple[np.ndarray, np.ndarray]:
    """Usages and shared spectra of integrative NMF, with the normalisation of LIGER."""
    shares = to_one(draw.counts)
    parts = [shares[draw.donors == d] for d in np.unique(draw.donors)]
    scales = [np.maximum(np.sqrt((one**2).mean(axis=0)), 1e-12) for one in parts]
    found = inmf([one / scale for one, scale in zip(parts, scales, strict=True)], K)
    usages = np.empty((len(shares), K))
    for d, H in zip(np.unique(draw.donors), found.H, strict=True):
        usages[draw.donors == d] = H
    return usages, found.W.T * np.mean(scales, axis=0)[:, None]


def principal(draw: Draw, K: int = 30) -> np.ndarray:
    """Principal components (N, K) of standardised logarithms, for Harmony."""
    X = np.log1p(1e4 * to_one(draw.counts))
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
    U, S, _ = np.linalg.svd(X, full_matrices=False)
    return U[:, :K] * S[:K]


def corrected(draw: Draw, memberships: np.ndarray) -> np.ndarray:
    """Counts of variance one, corrected as in cNMF by the clusters (N, C) that Harmony found.

    In each cluster, what a ridge regression ascribes to the donor is subtracted; then entries below
    zero become zero.
    """
    X = draw.counts / np.maximum(draw.counts.std(axis=0), 1e-9)
    d = np.unique(draw.donors, return_inverse=True)[1]
    design = np.column_stack([np.ones(len(X)), np.eye(d.max() + 1)[d]])
    ridge = np.diag([0.0, *np.ones(d.max() + 1)])
    left = X.copy()
    for weights in memberships.T:
        weighted = design * weights[:, None]
        slopes = np.linalg.solve(weighted.T @ design + ridge, weighted.T @ X)
        slopes[0] = 0
        left -= weighted @ slopes
    return np.maximum(left, 0)
