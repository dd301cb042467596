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
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.linalg import norm
from numpy.typing import ArrayLike

from ..data.blocks import TINY, Block, exact, over
from ..data.entries import EntryWeights, weigh, weighted_grams
from ..data.groups import SMALL_GROUP, Groups, groups_in, sums_by
from ..data.matrix import Aligned, DataMatrix
from ..errors import InputWarning, Option, OptionError
from ..text import counted, excerpt
from ..types import Array
from .problem import Problem
from .run import Run, Stopping, StopReason

_PARTS = 8  # of each group
_SMALLEST = 0.01  # variance of scales that a test should notice
_PLAIN_ITERATIONS = 5  # from given factors, so that W H has the sums of V
_NEW_ROUNDS = 3  # of estimates for new groups, one pass each
_HELD = 6  # stretches in which the variance of scales is assumed to be at least ...
_LEAST = 0.1  # ... this: programs that have taken the scales give them back
_USUAL = 0.95  # of features: the others vary most, perhaps by a component of one group
_WIDEST = 2.5  # standard deviations: larger scales are perhaps a component of one group
_FOUND = 3.0  # standard errors of the variance of scales from which on there are any
_FURTHER = 0.5  # share of the last change of log scales that is added to it, ...
_WIDEST_STEP = 0.5  # ... at most
_ITERATIONS = 8  # of the run between two estimates of scales, at most
_SHARE_OF_STRETCHES = 0.65  # of all iterations; the others come before and after
_STRETCHES = 20
# After so many stretches the table is decided: a group does not use a component if its support is
# below this share of the largest ...
_SHARES = {10: 0.15, 15: 0.06, _STRETCHES: 0.03}
_MOST_RISE = 0.3  # ... and without it the loss of its samples rises by less than this share


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
    places = np.argsort(np.argsort(codes, kind="stable"))  # those of a group are consecutive
    parts = codes * _PARTS + places % _PARTS
    G = len(groups.names)
    (of_data,) = V.sweep(_sum_parts, parts, *V.aligned_weights, count=G * _PARTS)
    return Sums(of_data.reshape(G, _PARTS, -1).swapaxes(0, 1), parts)


def _sum_parts(
    block: Block, parts: Array, weights: EntryWeights = None, *, count: int
) -> tuple[Array]:
    return (sums_by(parts, weigh(block, weights).T, count),)


def fitted_sums(V: DataMatrix, sums: Sums, W: Array, H: Aligned) -> Array:
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
    for part, own, some, of_some in groups_in(parts, block, weights):
        sums[part] = np.vecdot(weighted_grams(some, of_some, exact(H[own])), W)
    return (sums,)


class Scales(NamedTuple):
    """Estimated scales.

    Attributes
    ----------
    scales : array (G, F)
    features : array (G, F)
        What W takes: the factor of each feature, for the components of each group.
    groups : array (G,)
        What H takes: the factor of each group.
    weights : array (F,)
        The weights of features in the geometric mean of the scales of a group, which is one.
    variance : float
        The variance of the scales.
    significance : float
        The variance in units of its standard error.
    """

    scales: Array
    features: Array
    groups: Array
    weights: Array
    variance: float
    significance: float


def estimate_scales(
    of_data: Array, fitted: Array, *, blocks: Array | None = None, least: float = 0.0
) -> Scales:
    """Return the shrunk scales for sums (P, G, F) of V and of W H over parts of groups.

    Groups of different `blocks` (G,) have no component in common, so only scales within a block can
    be compared.
    """
    P, G, F = of_data.shape
    S = of_data.sum(axis=0)
    left = over(S.sum(axis=0), fitted.sum(axis=(0, 1)))
    fitted = fitted * left
    M = fitted.sum(axis=0)
    deviations = of_data - fitted
    squares = (deviations**2).sum(axis=0)
    # The products of the deviations of pairs of parts. W fits the sums over all parts, which lowers
    # the products by a share of the squares.
    lost = (P - 1) / (P * G - 1) * squares
    pairs = M**2 - (fitted**2).sum(axis=0)
    found = over((S - M) ** 2 - squares + lost, pairs)
    # No weight may depend on the signs of deviations, or samples without any scales show some.
    spread = over(over(squares.sum(axis=0), M.sum(axis=0)), M)
    is_told = (pairs > 0) & (spread > 0)
    variance = _SMALLEST
    for _ in range(4):
        weights = over(1.0, (variance + spread) ** 2) * is_told
        of_features = over((weights * found).sum(axis=0), weights.sum(axis=0))
        weights = weights * (of_features <= np.quantile(of_features, _USUAL))
        total = float((weights * found).sum())
        variance = max(float(over(total, weights.sum())) * (G / (G - 1)), 0.0)
    significance = _significance(deviations, lost, over(weights, pairs))
    if significance < _FOUND:
        variance = 0.0
    variance = max(variance, least)
    logs = np.zeros((G, F))
    if variance:
        logs = _shrunk(S, M, _noise(of_data, fitted) / variance)
        widest = _WIDEST * np.sqrt(variance)
        logs = np.clip(logs, -widest, widest)
    of_all = over(M.sum(axis=0), M.sum())
    blocks = np.zeros(G, int) if blocks is None else blocks
    features = (
        sums_by(blocks, logs, G) / np.maximum(np.bincount(blocks, minlength=G), 1)[:, None]
    )[blocks]
    logs = logs - features
    of_groups = logs @ of_all
    scales = np.exp(logs - of_groups[:, None])
    of_W = np.exp(features) * (left if variance else 1.0)
    return Scales(scales, of_W, np.exp(of_groups), of_all, variance, significance)


def _significance(deviations: Array, lost: Array, weights: Array) -> float:
    """Return the sum of the products of all pairs of parts, in standard errors.

    Without scales, products of different pairs are independent, with means of zero.
    """
    P = len(deviations)
    by_group = deviations.swapaxes(0, 1)
    products = (by_group * weights[:, None]) @ by_group.swapaxes(1, 2)
    products = products[:, *np.triu_indices(P, 1)]
    products += (weights * lost).sum(axis=1, keepdims=True) / (P * (P - 1))
    return float(products.sum() / max(norm(products), TINY))


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


def run_groups(
    run: Run,
    problem: Problem,
    V: DataMatrix,
    stopping: Stopping,
    n_plain: int,
    *,
    has_table: bool = True,
) -> Problem:
    """Continue a run to its end; return the problem with the scales and the table of groups.

    In the first `n_plain` iterations groups do not count. A run of a checkpoint that was in a
    stretch finishes it first.
    """
    groups = problem.groups
    if groups is None:
        run.continue_with(stopping)
        run.run()
        return problem
    if not problem.has_effects:
        run.continue_with(replace(stopping, max_iter=min(n_plain, stopping.max_iter)))
        run.run()
    sums = sums_of(V, groups)
    length = max(1, min(_ITERATIONS, int(_SHARE_OF_STRETCHES * stopping.max_iter) // _STRETCHES))
    n_held = _HELD if groups.scales is None or groups.has_scales else 0
    while run.stretch < _STRETCHES and not _is_over(run, stopping):
        if problem.groups.scales is not None:
            most = min(stopping.max_iter, run.since + length)
            run.continue_with(replace(stopping, max_iter=most, tol=0.0))
            run.run()
        share = _SHARES.get(run.stretch + 1) if has_table else None
        if share is not None:
            groups = replace(problem.groups, table=_table(V, problem, run, share))
            problem = replace(problem, groups=groups)
        least = _LEAST if run.stretch < n_held and not _is_over(run, stopping) else 0.0
        problem = _rescaled(V, problem, run, sums, least)
    if not _is_over(run, stopping):
        run.continue_with(stopping)
        run.run()
    return problem


def _rescaled(V: DataMatrix, problem: Problem, run: Run, sums: Sums, least: float) -> Problem:
    """Estimate the scales from the factors of a run, which continues with them."""
    W, H = run.factors()
    groups = problem.groups
    table = groups.table
    if table is None:
        table = np.ones((len(groups.names), W.shape[1]), bool)
    fitted = fitted_sums(V, sums, W, H)
    found = estimate_scales(sums.of_data, fitted, blocks=groups.blocks, least=least)
    scales = found.scales
    if groups.scales is not None and found.variance and not groups.blocks.any():
        logs = np.log(scales)
        step = np.clip(_FURTHER * (logs - np.log(groups.scales)), -_WIDEST_STEP, _WIDEST_STEP)
        logs = logs + step
        scales = np.exp(logs - (logs @ found.weights)[:, None])
    groups = replace(groups, scales=scales, weights=found.weights, matter=found.significance)
    problem = replace(problem, groups=groups)
    of_W = found.features[table.argmax(axis=0)].T  # those of a group that uses the component
    of_W[:, : problem.n_fixed] = 1.0
    factors = found.groups[:, None] * table
    Ht, _ = V.map(_times_group, H.T, groups.codes_of(V), factors=factors)
    reason = run.reason
    run.continue_from(problem.objective(V), W * of_W.astype(W.dtype), Ht.T, run.stopping)
    if reason in _OVER:
        run.reason = reason
    return problem


def _table(V: DataMatrix, problem: Problem, run: Run, share: float) -> Array:
    """Return which component each group uses (G, K), decided anew from the factors of a run.

    A group does not use a component if it supports it far less than the group that supports it
    most, and the loss of the group hardly rises without it. A component that groups use alike,
    however little, stays in all of them.
    """
    W, H = run.factors()
    left = run.in_units
    groups = problem.groups
    if groups.bars is not None:  # let all groups use all components again
        free = replace(problem, groups=replace(groups, table=None))
        H, _, left = free.coefficients(V, W, unseen="ignore")
    codes = groups.codes_of(V)
    masses, sizes, is_small = _sizes(V, groups)
    rises, squares = run.objective.support(W, H.T, V.align(codes), len(sizes))
    squares = over(squares, sizes[:, None])
    is_used = squares >= share**2 * squares.max(axis=0)
    is_needed = over(rises, masses[:, None]) > _MOST_RISE * left / masses.sum()
    return is_small[:, None] | is_used | is_needed


def _sizes(V: DataMatrix, groups: Groups) -> tuple[Array, Array, Array]:
    """Return the weight of each group, its size as its support counts it, and whether it is small.

    A sample of weight w has w^2 times the support. Chance decides what a small group uses, in which
    samples count as often as their weights say, and those without a known entry do not count.
    """
    G = len(groups.names)
    codes = groups.codes_of(V)
    given = V.unweighed
    weights = np.ones(codes.size) if given is None or given.scales is None else given.weights
    masses = np.bincount(codes, weights, minlength=G)
    sizes = np.bincount(codes, weights**2, minlength=G)
    n_known = np.bincount(codes, weights * (np.asarray(V.norms_squared) > 0), minlength=G)
    return masses, sizes, n_known < SMALL_GROUP


_OVER = (StopReason.MAX_TIME, StopReason.CALLBACK, StopReason.INTERRUPTED)


def _is_over(run: Run, stopping: Stopping) -> bool:
    """Return whether the user or a limit has ended a run."""
    return run.reason in _OVER or run.n_iter >= stopping.max_iter


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
    has_table: bool = True,
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
    has_table : bool
        Whether a group may use some components only.
    """
    problem = Problem(loss, groups=groups)
    chosen = problem.loss.solver(solver)
    problem = problem.bind(V, chosen)
    data, problem = problem.iterated(V)
    with data.own_threads():
        run = Run(problem.objective(data), W, H, chosen, stopping)
        found = run_groups(
            run, problem, data, stopping, _PLAIN_ITERATIONS, has_table=has_table
        ).groups
        if found is None:
            found = Groups(np.zeros(V.n_samples, int), ("all",), np.ones((1, V.n_features)))
        return GroupFit(*run.factors(), found)


def _times_group(index: range, H: Array, codes: Array, *, factors: Array) -> tuple[Array, None]:
    return H * factors[codes].astype(H.dtype), None


def problem_of_groups(
    V: DataMatrix, problem: Problem, W: Array, fitted: Groups | None, labels: ArrayLike | None
) -> Problem:
    """Return the problem of new samples V, whose groups are those of a fit or new ones.

    A new group gets scales from all its samples, in a few passes before the last one. Small groups
    keep scales of one.
    """
    if labels is None:
        if fitted is not None and not fitted.are_neutral:
            text = "the model was fitted with groups: without groups, scales of one are used"
            warnings.warn(InputWarning(text), stacklevel=5)
        return problem
    if fitted is None:
        problem_of_model = " was given, and the model was fitted without groups: leave it out"
        raise OptionError(Option("groups", labels), problem_of_model)
    groups = Groups.of(labels, V, is_new=True)
    assert groups is not None
    groups = groups.among(V, fitted)
    if fitted.are_neutral:
        return replace(problem, groups=groups)
    is_new = np.arange(len(groups.names)) >= len(fitted.names)
    is_small = groups.sizes < SMALL_GROUP
    small = np.flatnonzero(is_new & is_small)
    if small.size:
        name = excerpt(groups.names[small[0]])
        text = (
            f"{counted(small.size, 'new group')} of fewer than {SMALL_GROUP} samples, such as "
            f"{name!r}: scales of one are used"
        )
        warnings.warn(InputWarning(text), stacklevel=5)
    is_told = (is_new & ~is_small)[:, None]
    if is_told.any():
        scales = _new_scales(V, problem, W, groups, fitted)
        groups = replace(groups, scales=np.where(is_told, scales, np.asarray(groups.scales)))
    return replace(problem, groups=groups)


def _new_scales(V: DataMatrix, problem: Problem, W: Array, groups: Groups, fitted: Groups) -> Array:
    """Return the scales of all groups of new samples, shrunk as strongly as those of the fit."""
    assert fitted.weights is not None
    sums = sums_of(V, groups)
    variance = float(np.var(np.log(np.asarray(fitted.scales))))
    scales = np.ones(sums.of_data.shape[1:])
    for _ in range(_NEW_ROUNDS):
        now = replace(problem, groups=replace(groups, scales=scales))
        H = now.coefficients(V, W, unseen="ignore")[0]
        M = fitted_sums(V, sums, W, H)
        noise = _noise(sums.of_data, M)
        logs = _shrunk(sums.of_data.sum(axis=0), M.sum(axis=0), noise / variance)
        scales = np.exp(logs - (logs @ fitted.weights)[:, None])
    return scales
