"""Algorithm 1 of the paper: it finds which samples belong to the same cone.

`plain_centres` is steps 1 to 3 of the algorithm as printed, and `assign` is step 4. `cluster_cones`
runs the algorithm or one of its variants:

- "plain" is Algorithm 1 as printed. It reads V once for each centre.
- "exact" chooses the same centres. Data that fit in one block in memory go to "plain"; for other
  data it computes only the scores of samples that may be next (`LazyScores`).
- "one-pass" reads V once to choose centres.
- "robust" runs "exact". If the clusters are not evident, it allows for noise (`robust`).

Algorithm 2, which computes a factor for each cone, is in `rank_one`.

Cosines are computed in float64 for any type of data. Cosines and norms that differ by less than
their rounding error count as equal; the lowest index wins a tie.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.linalg import norm

from ..arguments import choice, components, generator, integer, optional
from ..data.blocks import Block, dense, exact, norms
from ..data.matrix import Aligned, DataMatrix, PerSample
from ..data.resample import draw_samples
from ..data.validate import require_nonnegative
from ..errors import ComponentsError, Option, OptionError
from ..io.open import as_data
from ..linalg.svd import KnownSpectrum
from ..text import counted
from ..types import Array, Facts, Pair, Rng
from .geometry import angles_between, cosine_rounding, largest_angle
from .robust import are_evident, centres_in_noise

_FEW_ENTRIES = 1 << 18  # nonzero entries of V
_NORM_ROUNDING = 1e-12  # relative difference up to which squared norms count as equal

# --- Algorithm 1 as printed -------------------------------------------------------------------


def plain_centres(V: DataMatrix, K: int, first: int, tie: float) -> Pair:
    """Choose K samples as centres: steps 1 to 3 of Algorithm 1.

    1) Normalize V to obtain V', with columns of unit norm: v'_n = v_n / ||v_n||. V' is not stored;
       products with v_n are divided by ||v_n||.
    2) Pick any column of V' as the first centroid z_1.
    3) For k = 1, ..., K - 1: z_{k+1} = argmin_n max_{i <= k} <z_i, v'_n>.

    Each sample keeps its inner maximum from one k to the next, so each k takes one pass over V and
    one product with z_k.

    Returns
    -------
    centres : array (K,)
        The samples chosen.
    Z : array (F, K)
        z_1, ..., z_K.
    """
    squared = V.norms_squared
    centres = [first]
    z = [_direction(V, first)]  # 2)
    largest: list[Aligned] = []  # max_{i <= k} <z_i, v'_n>
    for k in range(1, K):  # 3)
        *largest, least = V.sweep(_largest_cosines, squared, *largest, reduce=min, z=z[-1])
        require_new_direction(least, k, K, tie)
        n = _first_up_to(V, least + tie, *largest)  # argmin_n
        centres.append(n)
        z.append(_direction(V, n))
    return np.array(centres, dtype=np.intp), np.array(z).T


def _direction(V: DataMatrix, n: int) -> Array:
    """v'_n."""
    return _unit(dense(V.columns([n]))[:, 0])


def _unit(column: Array) -> Array:
    return column / norm(column)


def _largest_cosines(block: Block, squared: Array, *before: Array, z: Array) -> tuple[Array, float]:
    """Update max_i <z_i, v'_n> of each sample for the new centre z, and return the least.

    A zero sample has no direction: it gets infinity, so it never becomes a centre.
    """
    cosines = exact(block).T @ z / norms(squared)
    cosines[squared == 0] = np.inf
    largest = np.maximum.reduce([cosines, *before])
    return largest, float(largest.min())


def _first_up_to(V: DataMatrix, limit: float, values: Aligned, sign: float = 1.0) -> int:
    """Return the first sample whose value, times the sign, is at most `limit`."""
    (n,) = V.map(_lowest_index, values, reduce=min, sign=sign, limit=limit)
    return int(n)


def _lowest_index(index: range, values: Array, *, sign: float, limit: float) -> tuple[float]:
    small = np.flatnonzero(sign * values <= limit)
    return (index[small[0]] if small.size else math.inf,)


def assign(block: Block, squared: Array, *, Z: Array, tie: float) -> tuple[Array, float]:
    """Step 4 of Algorithm 1: sample n belongs to cone argmax_j <z_j, v'_n>.

    Returns the labels of a block (-1 for zero samples) and the smallest cosine between a sample and
    its centre.
    """
    cosines = (Z.T @ exact(block)) / norms(squared)
    largest = cosines.max(axis=0)
    nearest = (cosines >= largest - tie).argmax(axis=0)
    smallest = float(largest.min(where=squared > 0, initial=1.0))
    return np.where(squared > 0, nearest, -1), smallest


def require_new_direction(cosine: float, k: int, K: int, tie: float) -> None:
    """Raise an error if the sample farthest from k centres has the direction of one of them."""
    if cosine >= 1.0 - tie:
        raise ComponentsError(
            f"the samples have only {counted(k, 'distinct direction')}, fewer than "
            f"the {K} components asked for: use at most {k}"
        )


# --- the result and the methods -----------------------------------------------------------------


@dataclass(frozen=True)
class Cones:
    """Clusters of samples, each around a sample that is its centre.

    Algorithm 1 or one of its variants (one pass, random draws) chose the centres.

    Attributes
    ----------
    labels : array (N,), integers
        The cone of each sample, in the order the centres were chosen; -1 for zero samples.
    centres : array (K,), integers
        The indices of the samples chosen as centres.
    directions : array (F, K)
        The centres as unit vectors z_k; if centres were `moved`, the axes of the clusters.
    radius : float
        The largest angle between a sample and the centre of its cone, in radians. No size angle
        is larger.
    moved : bool
        Whether the directions were moved from the chosen samples to the axes of the clusters.
    noise : float
        The norm of the noise that the method "robust" assumed. It is 0 for all other methods, and
        if clusters are well separated. It is NaN if the noise could not be estimated, because there
        are no singular values beyond K (K is F or N, or V has rank K), or because fewer than K
        directions are above the noise. Then the shortest sample may have become a centre.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> cones = cluster_cones(from_columns([[9.0, 1.0, 4.0], [0.0, 8.0, 0.0]]), 2, first=0)
    >>> cones.centres.tolist(), cones.labels.tolist(), round(cones.radius, 6)
    ([0, 1], [0, 1, 0], 0.0)
    """

    labels: Array
    centres: Array
    directions: Array
    radius: float
    moved: bool = False
    noise: float = 0.0

    @property
    def least_size_angle(self) -> float:
        """Lower bound on the largest size angle of any K cones that contain all samples.

        Let rho be the radius and beta the smallest angle between two centres. The bound is min(rho,
        beta) / 2 (after Gonzalez, 1985); it holds for any data and any centres. For the centres of
        Algorithm 1 it is rho / 2, so their clusters have at most twice the smallest possible size
        angle. If centres were moved, the bound is 0.

        Proof. Take the K centres and a sample at angle rho from its centre, which is the nearest
        one. These K + 1 samples are pairwise at least r = min(rho, beta) apart. Any K cones that
        contain them put two of them into one cone, and by the triangle inequality on the sphere two
        vectors in a cone of size angle alpha are at most 2 alpha apart. Algorithm 1 chose each
        centre as the sample farthest from the earlier centres, so that centre is at least as far
        from them as the sample at rho: centres are at least rho apart.
        """
        if self.moved:
            return 0.0
        apart = angles_between(self.directions, self.directions)
        np.fill_diagonal(apart, np.inf)
        return min(self.radius, float(apart.min())) / 2


def cluster_cones(
    V: object,
    K: int,
    *,
    rng: Rng = None,
    first: int | None = None,
    method: str = "exact",
) -> Cones:
    """Group the samples into K cones (Algorithm 1).

    z_1 is any sample, z_{k+1} = argmin_n max_{i <= k} <z_i, v_n> / ||v_n||, and sample n belongs
    to the cone k with the largest <z_k, v_n>. Under the geometric assumption these are the true
    cones, if each has a sample (Lemma 1 of the paper).

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
    K : int
        Number of cones, at most the number of distinct directions among the samples; directions
        closer than about 1e-7 rad count as one.
    rng : numpy.random.Generator, optional
        Draws the first centre among the nonzero samples. Without it the first centre is the
        sample with the largest norm, so that the result is always the same.
    first : int, optional
        The index of the first centre.
    method : {"exact", "one-pass", "plain", "robust"}
        "plain" is Algorithm 1 as printed; it reads V K times. "exact" chooses the same centres
        without computing the angle of every sample to every centre; if V is in memory and fits in
        one block, it runs "plain". "one-pass" reads V twice, once to choose centres and once to
        assign samples: it chooses K centres in every block by Algorithm 1, and then the final K
        centres among these in the same way; see the notes. "robust" gives the clusters of "exact"
        if they are well separated, as they are under the geometric assumption. If they are not, it
        projects the samples, chooses centres among those longer than the noise, and moves the
        centres to the axes of their clusters (`cones.robust`). It estimates the noise;
        `Cones.noise` is NaN if that fails. "robust" reads V about three more times, plus the passes
        for the singular vectors.

    Notes
    -----
    *One pass finds every cone.* Let samples of different cones be farther apart than samples of one
    cone, which the geometric assumption implies. Apply Algorithm 1 to any samples from J cones, and
    let it choose at least J centres. Then its first J centres are from different cones: as long
    as some cone has no centre, its samples are farther from every centre (all of other cones) than
    samples of cones with a centre are from that centre, so the next centre belongs to a new cone.
    In a block, Algorithm 1 chooses K >= J centres, or all directions if there are fewer, so the
    choice contains a sample of each cone that occurs in the block. The union of two such choices
    contains a sample of each cone that occurs in either block, so K centres chosen from the union
    do too, and so on over all blocks. The last choice contains one sample of each of the K cones.
    Every sample is closer to the centre of its own cone than to the other centres, so all labels
    are right, up to the order of the cones. (Without the assumption the centres may differ from
    those of Algorithm 1, and `Cones.least_size_angle` may be less than half of the radius.)

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = from_columns([[9.0, 1.0, 0.0, 4.0, 0.0], [1.0, 8.0, 0.0, 0.0, 2.0]])
    >>> cluster_cones(V, 2, first=0).labels
    array([ 0,  1, -1,  0,  1])
    """
    V = as_data(V, nonzero=True)
    with V.own_threads():
        centres, Z, moved, noise = choose_centres(V, K, rng, first, method)
        tie = cosine_rounding(V)
        labels, smallest = V.sweep(assign, V.norms_squared, reduce=min, Z=Z, tie=tie)
        radius = largest_angle(V, labels, Z, smallest)
    return Cones(labels, centres, Z, radius, moved, noise)


def choose_centres(
    V: DataMatrix,
    K: int,
    rng: Rng,
    first: int | None,
    method: str,
    spectrum: KnownSpectrum = None,
) -> tuple[Array, Array, bool, float]:
    """Return the centres' indices, their directions Z (F, K), whether they moved, and the noise."""
    require_nonnegative(V, "a cone")
    K = components(K)
    choice("method", method, (*_METHODS, "robust"))
    optional(generator, "rng", rng)
    require_samples(V, K)
    options = (K, _first_centre(V, rng, first), cosine_rounding(V))
    if method == "robust":
        return _robust(V, *options, spectrum)
    return (*_METHODS[method](V, *options), False, 0.0)


def require_samples(V: DataMatrix, K: int) -> None:
    """Raise an error if V has fewer than K samples that are not zero."""
    if V.nonzero < K:
        raise ComponentsError(
            f"there are {V.nonzero} nonzero samples, fewer than the {K} components asked for: "
            f"use at most {V.nonzero}"
        )


def _first_centre(V: DataMatrix, rng: Rng, first: int | None) -> int:
    if first is not None:
        first = integer("first", first)
        squared = V.norms_squared[first] if 0 <= first < V.n_samples else 0.0
        if not float(squared) > 0:
            advice = f"use one of {V.nonzero} such samples, counted from 0 to {V.n_samples - 1}"
            problem = f" is not the index of a nonzero sample: {advice}"
            raise OptionError(Option("first", first), problem)
        return first
    if rng is not None:
        return int(draw_samples(V, 1, rng)[0])
    limit = (1.0 - _NORM_ROUNDING) * V.measures.largest_squared
    return _first_up_to(V, -limit, V.norms_squared, sign=-1.0)


# --- "exact": the same centres with fewer scores ----------------------------------------------


def _exact_centres(V: DataMatrix, K: int, first: int, tie: float) -> Pair:
    """Choose the centres of Algorithm 1, but score only samples that may be next (`LazyScores`).

    For small data in memory the plain loop is faster.
    """
    if V.is_in_memory and V.n_entries <= _FEW_ENTRIES:
        return plain_centres(V, K, first, tie)
    centres = np.full(K, first, dtype=np.intp)
    Z = np.empty((V.n_features, K), order="F")
    Z[:, 0] = _direction(V, first)
    scores, _ = V.sweep(_first_scores, V.norms_squared, z=Z[:, 0])
    lazy = LazyScores(V, scores, _score, n_choices=1, tie=tie)
    for k in range(1, K):
        n, farthest, column = lazy.worst(k, Z=Z[:, :k])
        require_new_direction(-farthest, k, K, tie)
        centres[k] = n
        Z[:, k] = _unit(column)
    return centres, Z


def _first_scores(block: Block, squared: Array, *, z: Array) -> PerSample:
    """Return minus the cosine to the first centre."""
    cosines = exact(block).T @ z / norms(squared)
    return np.where(squared > 0, -cosines, -np.inf), None


def _score(block: Block, squared: Array, *, n_choices: int, Z: Array) -> Array:
    """Return minus the largest cosine to the new centres."""
    products = Z[:, n_choices:].T @ exact(block)
    largest = products.max(axis=0) / np.sqrt(squared)
    return -largest


# --- "one-pass" -------------------------------------------------------------------------------


def _one_pass_centres(V: DataMatrix, K: int, first: int, tie: float) -> Pair:
    """Choose K centres in every block, then K among the centres of two blocks, and so on."""
    options = {"K": K, "first": first, "tie": tie}
    join = partial(_centres_of_two, options)
    ((centres, Z),) = V.sweep(
        _centres_of_block, V.indices(), V.norms_squared, reduce=join, **options
    )
    if centres.size < K:
        require_new_direction(1.0, centres.size, K, tie)
    return centres, Z


def _centres_of_block(
    block: Block, index: Array, squared: Array, *, K: int, first: int, tie: float
) -> tuple[Pair]:
    """Run Algorithm 1 on a few samples; with too few directions, return fewer than K centres."""
    scores = np.where(squared > 0, 2.0, -np.inf)  # no centre yet: larger than minus any cosine
    scores[index == first] = np.inf
    indices, Z = farthest_first(exact(block), norms(squared), scores, K, -1.0, tie)
    return ((index[indices], Z),)


def _centres_of_two(options: Facts, a: Pair, b: Pair) -> Pair:
    centres, Z = (np.concatenate(parts, axis=-1) for parts in zip(a, b, strict=True))
    (pair,) = _centres_of_block(Z, centres, np.ones(centres.size), **options)
    return pair


def farthest_first(
    block: Block, norms: Array, scores: Array, most: int, enough: float, tie: float
) -> tuple[list[int], Array]:
    """Choose samples of a block, each one the farthest from all earlier centres.

    Parameters
    ----------
    block : float64 block (F, n)
    norms : array (n,)
        Norms of the samples; any positive number for a zero sample.
    scores : array (n,)
        Minus the largest cosine to the existing centres; -inf for a sample that must not be chosen.
    most : int
        The largest number of samples to choose.
    enough : float
        Choose only samples with scores above this; -1 requires only a new direction.
    tie : float
        Scores closer than this count as equal, and the first sample wins.

    Returns
    -------
    indices : list of int
    Z : array (F, m)
        Directions of these samples, as unit vectors.
    """
    indices: list[int] = []
    Z = np.empty((block.shape[0], most), order="F")
    while len(indices) < most and scores.max() > enough + tie:
        n = int(np.argmax(scores >= scores.max() - tie))
        z = _unit(dense(block[:, [n]])[:, 0])
        Z[:, len(indices)] = z
        indices.append(n)
        scores = np.minimum(scores, -(block.T @ z) / norms)
    return indices, Z[:, : len(indices)]


# --- "robust" ---------------------------------------------------------------------------------


def _robust(
    V: DataMatrix, K: int, first: int, tie: float, spectrum: KnownSpectrum
) -> tuple[Array, Array, bool, float]:
    """Return the centres of Algorithm 1 if its clusters are evident; if not, allow for noise."""
    centres, Z = _exact_centres(V, K, first, tie)
    if K >= min(V.shape):
        return centres, Z, False, np.nan
    if are_evident(V, Z, tie):
        return centres, Z, False, 0.0
    noisy = centres_in_noise(V, K, first=first, spectrum=spectrum)
    if noisy.counts.min() == 0:  # fewer than K directions are above the noise
        return centres, Z, False, np.nan
    return noisy.centres, noisy.axes, True, noisy.noise


_METHODS = {"exact": _exact_centres, "one-pass": _one_pass_centres, "plain": plain_centres}


# --- choosing samples one at a time -----------------------------------------------------------

_FIRST_BATCH_SAMPLES = 16  # to update at first
_GROWTH = 8  # of the number of samples to update
_NEVER_STALE = np.iinfo(np.intp).max  # choices that a forbidden sample already takes into account

Score: TypeAlias = Callable[..., Array]


class LazyScores:
    """Upper bounds on the scores of all samples; exact where a choice depends on the score.

    Algorithm 1 and the successive projection algorithms repeatedly choose the sample with the
    largest score: the sample that the chosen samples represent worst. Scores only fall as more
    samples are chosen, so an earlier score is an upper bound. To find the largest score, update the
    samples with the largest bounds until the largest bound is an exact score. The plain method,
    which scores every sample at every step, makes the same choices.

    Parameters
    ----------
    V : DataMatrix (F, N)
    scores : aligned (N,)
        Exact scores for the first `n_choices`; -inf for samples that must not be chosen.
    score : callable
        ``score(block, squared, *, n_choices, **shared) -> scores`` of a few samples. It gets their
        squared norms; the samples have been scored against the first `n_choices`.
    n_choices : int
        How many choices `scores` takes into account.
    tie : float
        Scores that differ by less than this count as equal; the lowest index wins.
    relative : bool
        Whether `tie` is a share of the largest score.
    """

    def __init__(
        self,
        V: DataMatrix,
        scores: Aligned,
        score: Score,
        *,
        n_choices: int,
        tie: float,
        relative: bool = False,
    ) -> None:
        self.V = V
        self.bounds = np.array(scores)
        self.counts = np.where(np.isfinite(self.bounds), n_choices, _NEVER_STALE)
        self.squared = np.asarray(V.norms_squared)
        self.score = score
        self.tie = tie
        self.relative = relative

    def worst(self, k: int, **shared: Any) -> tuple[int, float, Array]:
        """Return the sample with the largest score after k choices, its score and its column.

        This sample is not chosen again. `shared` is passed to `score`.
        """
        size = _FIRST_BATCH_SAMPLES
        while True:
            known = np.where(self.counts < k, -np.inf, self.bounds)
            largest = float(known.max())
            tied_from = largest - self.tie * (abs(largest) if self.relative else 1.0)
            stale = np.flatnonzero((self.counts < k) & (self.bounds >= tied_from))
            if not stale.size:
                break
            if stale.size > size:  # update the largest bounds first
                stale = np.sort(stale[np.argpartition(-self.bounds[stale], size)[:size]])
            self._update(stale, k, shared)
            size *= _GROWTH
        n = int(np.argmax(known >= tied_from))
        self.bounds[n] = -np.inf
        self.counts[n] = _NEVER_STALE
        return n, largest, dense(self.V.columns([n]))[:, 0]

    def _update(self, stale: Array, k: int, shared: Facts) -> None:
        """Compute the scores of some samples after k choices."""
        for part in np.array_split(stale, 1 + stale.size // self.V.max_gather):
            if part.size:
                block = self.V.columns(part)
                known = self.counts[part].min()
                fresh = self.score(block, self.squared[part], n_choices=known, **shared)
                self.bounds[part] = np.minimum(self.bounds[part], fresh)
                self.counts[part] = k
