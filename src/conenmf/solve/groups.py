"""Groups of samples in a fit: the scales of features in each group, and which components it uses.

The model of a sample of group d is diag(b_d) W T_d h; see `data.groups`. A fit begins without
groups. Then stretches of the ordinary run alternate with estimates of b, which need no pass over V:
with W and H given, b follows from the sums of V over each group and from the sums of H. At the end
the table T is decided by a test, and the run continues to its end.

*Scales.* Let S and M be the sums of a feature over a group, of V and of W H. The ratio S / M is b
with noise. The strength of shrinkage is estimated: every group is divided into parts, whose
deviations S - M have independent noise but the same b. So their products show the variance of b,
whatever the unit and the noise, and the differences between parts show the noise. If no variance is
found, all scales are one. The shrunk scale is (S + a) / (M + a), where a is the noise per unit of M
over the variance of b.

Scales are determined up to a factor for each feature, which W takes, and a factor for each group,
which H takes. So for each feature the geometric mean over groups is one, and for each group the
weighted geometric mean over features, with the same weights for all groups.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..data.blocks import Block, exact, over
from ..data.entries import EntryWeights, weigh, weighted_grams
from ..data.groups import SMALL_GROUP, Groups, sums_by
from ..data.matrix import Aligned, DataMatrix
from ..errors import InputWarning, Option, OptionError
from ..text import counted, excerpt
from ..types import Array
from .problem import Problem
from .run import Run, Stopping, StopReason

_PARTS = 4  # of each group
_FOUND = 3.0  # standard errors of the variance of scales from which on there are any
_ITERATIONS = 8  # of the run between two estimates of scales
_SETTLED = 0.01  # root mean square of the change of log b from which on scales are settled


class Sums(NamedTuple):
    """The sums of V over each part of each group, and the parts of samples.

    Attributes
    ----------
    of_data : array (P, G, F)
    parts : array (N,)
        The part of each sample, g P + p for part p of group g.
    """

    of_data: Array
    parts: Array


def sums_of(V: DataMatrix, groups: Groups) -> Sums:
    """Return the sums of the known entries of V over the parts of groups; one pass."""
    codes = groups.codes_of(V)
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes, minlength=len(groups.names))
    starts = np.cumsum(sizes) - sizes
    ranks = np.empty(len(codes), int)
    ranks[order] = np.arange(len(codes)) - starts[codes[order]]
    parts = codes * _PARTS + ranks % _PARTS
    G = len(groups.names)
    (of_data,) = V.sweep(_sum_parts, parts, *V.aligned_weights, count=G * _PARTS)
    return Sums(of_data.reshape(G, _PARTS, -1).swapaxes(0, 1), parts)


def _sum_parts(
    block: Block, parts: Array, weights: EntryWeights = None, *, count: int
) -> tuple[Array]:
    return (sums_by(parts, weigh(block, weights).T, count),)


def _fitted_sums(V: DataMatrix, sums: Sums, W: Array, H: Aligned) -> Array:
    """Return the sums (P, G, F) of W H over the known entries; a pass only if some are unknown."""
    P, G, F = sums.of_data.shape
    W = exact(W)
    if V.observed is None:
        (of_H,) = V.map(_sum_rows, H.T, sums.parts, count=G * P)
        fitted = of_H @ W.T
    else:
        aligned = V.aligned_weights
        (fitted,) = V.sweep(_sum_known, H.T, sums.parts, *aligned, W=W, count=G * P)
    return np.asarray(fitted).reshape(G, P, F).swapaxes(0, 1)


def _sum_rows(index: range, H: Array, parts: Array, *, count: int) -> tuple[Array]:
    return (sums_by(parts, exact(H), count),)


def _sum_known(
    block: Block, H: Array, parts: Array, weights: EntryWeights = None, *, W: Array, count: int
) -> tuple[Array]:
    sums = np.zeros((count, len(W)))
    for part in np.unique(parts).tolist():
        own = np.flatnonzero(parts == part)
        some = None if weights is None else weights[own]
        known = weighted_grams(block[:, own], some, exact(H[own]))
        sums[part] = np.vecdot(known, W)
    return (sums,)


@dataclass(frozen=True)
class Scales:
    """Estimated scales.

    Attributes
    ----------
    scales : array (G, F)
    features : array (F,)
        What W takes: the factor of each feature.
    groups : array (G,)
        What H takes: the factor of each group.
    variance : float
        The variance of the scales.
    significance : float
        The variance in units of its standard error.
    """

    scales: Array
    features: Array
    groups: Array
    variance: float
    significance: float


def estimate_scales(of_data: Array, fitted: Array, table: Array | None = None) -> Scales:
    """Return the shrunk scales for sums (P, G, F) of V and of W H over parts of groups."""
    _, G, F = of_data.shape
    S = of_data.sum(axis=0)
    M = fitted.sum(axis=0)
    noise = _noise(of_data, fitted)
    deviations = of_data - fitted
    products = (S - M) ** 2 - (deviations**2).sum(axis=0)
    pairs = M**2 - (fitted**2).sum(axis=0)
    of_pairs = over(products, pairs)
    spread = over(noise, M)  # the variance of S / M
    is_told = (pairs > 0) & (spread > 0)
    variance = 0.0
    significance = 0.0
    for _ in range(4):
        weights = over(1.0, (variance + spread) ** 2) * is_told
        total = weights.sum()
        if total <= 0:
            break
        if not variance:
            deviation = np.sqrt(((weights * of_pairs) ** 2).sum())
            significance = float((weights * of_pairs).sum() / deviation) if deviation > 0 else 0.0
        variance = max(float((weights * of_pairs).sum() / total), 0.0) * (G / (G - 1))
        if not variance:
            break
    if significance < _FOUND or not variance:
        return Scales(np.ones((G, F)), np.ones(F), np.ones(G), 0.0, significance)
    return _normed(_shrunk(S, M, noise / variance), M.sum(axis=0), table, variance, significance)


def _noise(of_data: Array, fitted: Array) -> Array:
    """Return the variance of each feature's sums per unit of M, from differences between parts."""
    P = len(of_data)
    M = fitted.sum(axis=0)
    left = of_data - over(of_data.sum(axis=0), M) * fitted
    return over((left**2).sum(axis=(0, 1)) * (P / (P - 1)), M.sum(axis=0))


def _shrunk(S: Array, M: Array, prior: Array) -> Array:
    """Return log (S + a) / (M + a); 0 where nothing is known."""
    S = np.maximum(S, 0) + prior
    M = M + prior
    is_known = (S > 0) & (M > 0)
    return np.log(np.where(is_known, S, 1.0) / np.where(is_known, M, 1.0))


def _normed(
    logs: Array, weights: Array, table: Array | None, variance: float, significance: float
) -> Scales:
    """Return scales whose geometric means are one, for groups that share components."""
    weights = weights / weights.sum()
    features = logs.mean(axis=0)
    logs = logs - features
    of_groups = logs @ weights
    logs = logs - of_groups[:, None]
    return Scales(np.exp(logs), np.exp(features), np.exp(of_groups), variance, significance)


def run_groups(run: Run, problem: Problem, V: DataMatrix, stopping: Stopping) -> Problem:
    """Continue a run with what groups change; return the problem with their scales and table.

    A run of a checkpoint that was in a stretch finishes it first.
    """
    groups = problem.groups
    assert isinstance(groups, Groups)
    sums = sums_of(V, groups)
    while not _is_over(run, stopping):
        if groups.scales is not None and run.n_iter < run.since + _ITERATIONS:
            most = min(stopping.max_iter, run.since + _ITERATIONS)
            run.continue_with(replace(stopping, max_iter=most, tol=0.0))
            run.run()
            continue
        W, H = run.factors()
        found = estimate_scales(sums.of_data, _fitted_sums(V, sums, W, H), groups.table)
        if groups.scales is None and not found.variance:
            groups = groups.fitted(np.ones(sums.of_data.shape[1:]), None)
            problem = replace(problem, groups=groups)
            break
        is_settled = groups.scales is not None and _change(groups.scales, found.scales) < _SETTLED
        groups = groups.fitted(found.scales, groups.table)
        problem = replace(problem, groups=groups)
        W, H = _rescaled(V, problem, found, W, H)
        run.continue_from(problem.objective(V), W, H, stopping)
        if is_settled:
            break
    if not _is_over(run, stopping):
        run.continue_with(stopping)
        run.run()
    return problem


def _is_over(run: Run, stopping: Stopping) -> bool:
    """Return whether the user or a limit has ended a run."""
    return run.reason in _OVER or run.n_iter >= stopping.max_iter


def _change(before: Array, now: Array) -> float:
    """Return the root mean square of the change of log scales."""
    return float(np.sqrt(np.mean(np.log(now / before) ** 2)))


class GroupFit(NamedTuple):
    """A fit of groups from given factors: W (F, K), H (K, N), and the groups.

    `groups` has the scales (G, F) and the table (G, K).
    """

    W: Array
    H: Aligned
    groups: Groups


def fit_groups(
    V: DataMatrix,
    groups: ArrayLike | Groups,
    loss: str,
    W: Array,
    H: Aligned,
    *,
    solver: str = "auto",
    stopping: Stopping = Stopping(),  # noqa: B008 - immutable
) -> GroupFit:
    """Fit factors with groups, from given factors; see the module.

    Parameters
    ----------
    V : DataMatrix (F, N)
    groups : array (N,) or Groups
        Labels of samples.
    loss : str
        The loss.
    W, H : array (F, K), array (K, N)
    solver : str
    stopping : Stopping
        Its iterations include those of all stretches.
    """
    problem = Problem(loss, groups=groups)
    chosen = problem.loss.solver(solver)
    problem = problem.bind(V, chosen)
    data, problem = problem.iterated(V)
    with data.own_threads():
        run = Run(problem.objective(data), W, H, chosen, stopping)
        if problem.groups is None:
            run.run()
            G = Groups(np.zeros(V.n_samples, int), ("all",))
            return GroupFit(*run.factors(), G.fitted(np.ones((1, V.n_features)), None))
        problem = run_groups(run, problem, data, stopping)
        return GroupFit(*run.factors(), problem.groups)


_OVER = (StopReason.MAX_TIME, StopReason.CALLBACK, StopReason.INTERRUPTED)


def _rescaled(
    V: DataMatrix, problem: Problem, found: Scales, W: Array, H: Aligned
) -> tuple[Array, Aligned]:
    """Return W and H with the factors that the scales leave to them."""
    W = np.array(W)
    n_fixed = problem.n_fixed
    W[:, n_fixed:] *= found.features[:, None].astype(W.dtype)
    codes = problem.groups.codes_of(V)
    Ht = V.map(_times_group, H.T, codes, factors=found.groups)[0]
    return W, Ht.T


def _times_group(index: range, H: Array, codes: Array, *, factors: Array) -> tuple[Array, None]:
    return H * factors[codes][:, None].astype(H.dtype), None


def problem_of_groups(
    V: DataMatrix, problem: Problem, W: Array, fitted: Groups | None, labels: ArrayLike | None
) -> Problem:
    """Return the problem of new samples V, whose groups are those of a fit or new ones.

    A new group gets scales from all its samples, in two passes: one for their coefficients with
    scales of one, one for the sums. Small groups keep scales of one.
    """
    if labels is None:
        if fitted is not None and not fitted.are_neutral:
            text = "the model was fitted with groups: without groups, scales of one are used"
            warnings.warn(InputWarning(text), stacklevel=5)
        return problem
    if fitted is None:
        option = Option("groups")
        raise OptionError("the model was fitted without groups: leave out ", option)
    groups = Groups.of(labels, V, is_new=True)
    assert groups is not None
    groups = groups.among(V, fitted)
    new = np.arange(len(groups.names)) >= len(fitted.names)
    if new.any() and groups.scales is not None and not fitted.are_neutral:
        is_large = new & (groups.sizes >= SMALL_GROUP)
        small = [name for name, one in zip(groups.names, new & ~is_large, strict=True) if one]
        if small:
            text = (
                f"{counted(len(small), 'new group')} of fewer than {SMALL_GROUP} samples, such as "
                f"{excerpt(small[0])!r}: scales of one are used"
            )
            warnings.warn(InputWarning(text), stacklevel=5)
        if is_large.any():
            scales = _new_scales(V, problem, W, groups, fitted)
            groups = groups.fitted(np.where(is_large[:, None], scales, groups.scales), groups.table)
    return replace(problem, groups=groups)


def _new_scales(V: DataMatrix, problem: Problem, W: Array, groups: Groups, fitted: Groups) -> Array:
    """Return the scales of all groups of new samples, shrunk as strongly as those of the fit."""
    assert fitted.scales is not None
    H, _, _ = problem.coefficients(V, W, unseen="ignore")
    sums = sums_of(V, groups)
    M = _fitted_sums(V, sums, W, H)
    noise = _noise(sums.of_data, M)
    logs = _shrunk(sums.of_data.sum(axis=0), M.sum(axis=0), noise / np.var(np.log(fitted.scales)))
    weights = W.sum(axis=1)
    return np.exp(logs - (logs @ weights / weights.sum())[:, None])
