"""Algorithm 1 of the paper: which samples belong to one cone.

First the algorithm as the paper has it, which reads V once for each centre; tests compare the
other forms with it. Then `cluster_cones`, which offers all forms; then the lazy one, whose choice
is the same centre for centre. The one that reads V once is in `farthest`, the one that survives
noise in `noisy`. The factors of the cones are Algorithm 2, in `rank_one`.

Cosines are computed in float64 for any type of data. Cosines, or norms, closer than their rounding
error count as equal, and ties go to the lowest index.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arguments import choice, components, generator, instance, integer, optional
from ..data.blocks import Array, Block, dense, exact, norms
from ..data.matrix import DataMatrix
from ..data.sampling import draw_samples
from ..data.validate import require_data_matrix, require_nonnegative
from ..errors import ComponentsError, Message, Option, OptionError
from ..linalg.spectrum import Spectrum
from .angles import angles_between, largest_angle
from .farthest import SCORE_OF_ZERO, one_pass_centres, require_new_direction, unit
from .greedy import LazyScores
from .noisy import are_evident, centres_in_noise

__all__ = [
    "Cones",
    "assign",
    "choose_centres",
    "cluster_cones",
    "cosine_rounding",
    "require_samples",
]

_NORM_ROUNDING = 1e-12  # share by which squared norms that count as equal may differ


@dataclass(frozen=True)
class Cones:
    """Clusters of samples, each round a sample that is its centre.

    Algorithm 1 chose the centres, or a relative of it: one pass, or draws at random.

    Attributes
    ----------
    labels : array (N,), integers
        The cone of each sample, in the order the centres were chosen; -1 for zero samples.
    centres : array (K,), integers
        The samples chosen as centres.
    directions : array (F, K)
        The centres as unit vectors z_k; if they were `moved`, the axes that they were moved to.
    cosines : array (N,)
        Cosine of each sample to the centre of its cone; 0 for zero samples.
    radius : float
        The largest angle between a sample and the centre of its cone, in radians. No size angle
        is above it.
    moved : bool
        Whether the directions are no longer those of samples.
    noise : float
        The norm of noise that the choice of centres allowed for. It is 0 for every method but
        "robust", and for clusters that are evident. NaN if "robust" could allow for none: nothing
        is left beyond K components to estimate it from (K is F or N, or V has rank K), or fewer
        than K directions stand out from it. Then the shortest sample may have become a centre.
    """

    labels: Array
    centres: Array
    directions: Array
    cosines: Array
    radius: float
    moved: bool = False
    noise: float = 0.0

    @property
    def least_size_angle(self) -> float:
        """One of any K circular cones that hold all samples has a size angle of at least this.

        Half of the radius rho or of the smallest angle between two centres, whichever is smaller
        (after Gonzalez, 1985). It holds for any data and any centres. For those of Algorithm 1 it
        is rho / 2: their clusters have at most twice the smallest possible size angle. Other
        centres may be close to each other, and rho / 2 is no such bound then. Of centres that were
        moved nothing is known: 0.

        Proof. The K centres and a sample at angle rho from its centre, which is the nearest, are
        K + 1 samples that are pairwise at least r apart, with r the smaller of the two angles. Two
        of them share one of any K cones, and two vectors of a cone of size angle alpha are at most
        2 alpha apart, by the triangle inequality on the sphere. In Algorithm 1 the k-th centre was
        chosen as the sample farthest from the earlier ones, so no sample, that at rho included, was
        farther from them than it was: centres are at least rho apart.
        """
        if self.moved:
            return 0.0
        apart = angles_between(self.directions, self.directions)
        closest = apart[~np.eye(apart.shape[0], dtype=bool)].min(initial=np.inf)
        return min(self.radius, float(closest)) / 2

    @property
    def insertion_angles(self) -> Array:
        """The angles d_2, ..., d_K between each centre and the nearest one before it, in radians.

        Centres are nested: those of fewer cones are the first ones. If Algorithm 1 itself chose
        them (the methods "exact" and "plain"), d_k is the largest angle that any sample had to the
        nearest of the first k - 1 centres, their `radius`, so that d_2 >= d_3 >= ...
        """
        Z = self.directions
        angles = np.empty(Z.shape[1] - 1)
        for k in range(1, Z.shape[1]):
            apart = np.linalg.norm(Z[:, :k] - Z[:, [k]], axis=0).min()
            angles[k - 1] = 2.0 * np.arcsin(min(apart / 2.0, 1.0))
        return angles


# --- Algorithm 1 as the paper has it ----------------------------------------------------------


def _plain_centres(V: DataMatrix, K: int, first: int, tie: float) -> tuple[Array, Array]:
    """Steps 1 to 3 of Algorithm 1; each centre after the first takes a pass over V.

    1) V' is V with columns of unit norm: v'_n = v_n / ||v_n||. It is not formed; products with
       v_n are divided by ||v_n||.
    2) The first centre z_1 is any column of V'.
    3) For k = 1, ..., K - 1: z_{k+1} = argmin_n max_{i <= k} <z_i, v'_n>.

    Returns the samples chosen, and Z = [z_1, ..., z_K].
    """
    centres = [first]
    Z = _direction(V, first)[:, None]  # 2)
    for k in range(1, K):  # 3)
        largest, smallest = V.sweep(_largest_cosines, V.norms_squared, reduce=min, Z=Z)
        (n,) = V.map(_lowest_index, largest, reduce=min, sign=1.0, limit=smallest + tie)
        require_new_direction(smallest, k, K, tie)
        centres.append(n)
        Z = np.column_stack([Z, _direction(V, n)])
    return np.array(centres, dtype=np.intp), Z


def _direction(V: DataMatrix, n: int) -> Array:
    """v'_n."""
    return unit(dense(V.columns([n]))[:, 0])


def _largest_cosines(block: Block, squared: Array, *, Z: Array) -> tuple[Array, float]:
    """max_i <z_i, v'_n> of each sample, infinite for a zero sample; and the smallest of them."""
    cosines = (Z.T @ exact(block)) / norms(squared)
    largest = np.where(squared > 0, cosines.max(axis=0), np.inf)
    return largest, float(largest.min())


def _lowest_index(index: range, values: Array, *, sign: float, limit: float) -> tuple[int]:
    """The first sample whose value, times the sign, is at most `limit`."""
    return (int(np.where(sign * values <= limit, index, np.iinfo(np.intp).max).min()),)


def assign(block: Block, squared: Array, *, Z: Array, tie: float) -> tuple[Array, Array, float]:
    """Step 4 of Algorithm 1: sample n belongs to cone argmax_j <z_j, v'_n>.

    Returns the labels of a block, -1 for zero samples, the cosines, and the smallest of them.
    """
    cosines = (Z.T @ exact(block)) / norms(squared)
    largest = cosines.max(axis=0)
    nearest = (cosines >= largest - tie).argmax(axis=0)
    smallest = float(largest.min(where=squared > 0, initial=1.0))
    return np.where(squared > 0, nearest, -1), largest, smallest


def cosine_rounding(V: DataMatrix) -> float:
    """Return how close two cosines to samples of V must be to count as equal."""
    return float(8.0 * np.finfo(np.float64).eps * np.sqrt(V.shape[0]))


# --- all forms --------------------------------------------------------------------------------


def cluster_cones(
    V: DataMatrix,
    K: int,
    *,
    rng: np.random.Generator | None = None,
    first: int | None = None,
    method: str = "exact",
) -> Cones:
    """Group the samples into K cones (Algorithm 1).

    z_1 is any sample, z_{k+1} = argmin_n max_{i <= k} <z_i, v_n> / ||v_n||, and sample n belongs
    to the cone k with the largest <z_k, v_n>. Under the geometric assumption these are the true
    cones, if each has a sample (Lemma 1 of the paper).

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
        Number of cones, at most the number of distinct directions among the samples; directions
        closer than about 1e-7 rad count as one.
    rng : numpy.random.Generator, optional
        Draws the first centre among the nonzero samples. Without it the first centre is the
        sample with the largest norm, so that the result is always the same.
    first : int, optional
        The first centre itself.
    method : {"exact", "one-pass", "plain", "robust"}
        "plain" is Algorithm 1 as the paper has it: V is read K times. "exact" makes the same choice
        without scoring every sample for every centre. "one-pass" reads V twice, once to choose
        centres and once to assign samples: every block chooses K centres of its own by Algorithm 1,
        and the final K are chosen among them in the same way; see the notes. If V has one block
        only, that is Algorithm 1 itself, and what "exact" does too. "robust" is "exact" if its
        clusters are evident, as they are under the geometric assumption; if not, centres are chosen
        as noise allows (`cones.noisy`): after projection, among samples that are longer than the
        noise, and moved to the axes of their clusters. How long noise is, is an estimate, and
        `Cones.noise` says if there is none. It reads V some three times more, and for the singular
        vectors.

    Notes
    -----
    *One pass finds every cone.* Let samples of different cones be farther apart than samples of one
    cone, which the geometric assumption implies. Then any run of Algorithm 1 on any set of samples
    that come from J cones chooses, if it chooses at least J, one of each cone first: as long as
    some cone has no centre, its samples are farther from every centre (all of other cones) than
    samples of cones with a centre are from theirs, so the next centre belongs to a new cone. A
    block chooses K >= J centres, or all its directions if they are fewer, so its choice has a
    sample of each cone that the block has samples of. The union of two such choices has one of each
    cone in either block, so K centres chosen from the union do too, and so on over all blocks: the
    last choice holds one sample of each of the K cones. Every sample is closer to the centre of its
    own cone than to the others, so all labels are right, up to the order of the cones. (Without the
    assumption the choice is no longer that of Algorithm 1, and `Cones.least_size_angle` may be less
    than half of the radius.)

    Examples
    --------
    >>> from conenmf import from_columns
    >>> V = from_columns([[9.0, 1.0, 0.0, 4.0, 0.0], [1.0, 8.0, 0.0, 0.0, 2.0]])
    >>> cluster_cones(V, 2, first=0).labels
    array([ 0,  1, -1,  0,  1])
    """
    require_data_matrix(V, nonzero=True)
    with V.own_threads():
        centres, Z, moved, noise = choose_centres(V, K, rng, first, method)
        labels, cosines, smallest = V.sweep(
            assign, V.norms_squared, reduce=min, Z=Z, tie=cosine_rounding(V)
        )
        radius = largest_angle(V, labels, Z, smallest)
    return Cones(labels, centres, Z, cosines, radius, moved, noise)


def choose_centres(
    V: DataMatrix,
    K: int,
    rng: np.random.Generator | None,
    first: int | None,
    method: str,
    spectrum: Spectrum | None = None,
) -> tuple[Array, Array, bool, float]:
    """Return which samples are centres, directions Z (F, K), if these were moved, and the noise."""
    require_data_matrix(V, nonzero=True)
    require_nonnegative(V, "a cone")
    K, method = components(K), choice("method", method, (*_METHODS, "robust"))
    rng = optional(generator, "rng", rng)
    optional(instance, "spectrum", spectrum, Spectrum, "Spectrum(V)")
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


def _first_centre(V: DataMatrix, rng: np.random.Generator | None, first: int | None) -> int:
    if first is not None:
        first = integer("first", first)
        squared = V.norms_squared[first] if 0 <= first < V.shape[1] else 0.0
        if not float(squared) > 0:
            problem = (
                " is not the index of a nonzero sample: "
                f"there are {V.shape[1]} samples, {V.nonzero} of them nonzero"
            )
            raise OptionError(Message(Option("first", first), problem))
        return first
    if rng is not None:
        return int(draw_samples(V, 1, rng)[0])
    limit = (1.0 - _NORM_ROUNDING) * V.measures.largest_squared
    (longest,) = V.map(_lowest_index, V.norms_squared, reduce=min, sign=-1.0, limit=-limit)
    return int(longest)


# --- the lazy form ----------------------------------------------------------------------------


def _exact_centres(V: DataMatrix, K: int, first: int, tie: float) -> tuple[Array, Array]:
    """The choice of Algorithm 1, scoring again only samples that may be next (see `greedy`).

    A matrix of one block is read once instead, and the loop runs while the block is at hand.
    """
    small = V.as_one_block()
    if small.is_one_block:
        return one_pass_centres(small, K, first, tie)
    centres = np.empty(K, dtype=np.intp)
    Z = np.empty((V.shape[0], K), order="F")
    centres[0], Z[:, 0] = first, _direction(V, first)
    scores, _ = V.sweep(_first_scores, V.norms_squared, z=Z[:, 0])
    lazy = LazyScores(V, scores, _score, n_choices=1, tie=tie)
    for k in range(1, K):
        centres[k], farthest, column = lazy.worst(k, Z=Z[:, :k])
        require_new_direction(-farthest, k, K, tie)
        Z[:, k] = unit(column)
    return centres, Z


def _first_scores(block: Block, squared: Array, *, z: Array) -> tuple[Array, None]:
    """Minus the cosine to the first centre."""
    cosines = exact(block).T @ z / norms(squared)
    return np.where(squared > 0, -cosines, SCORE_OF_ZERO), None


def _score(block: Block, squared: Array, *, n_choices: int, Z: Array) -> Array:
    """Minus the largest cosine to the centres that are new."""
    products = Z[:, n_choices:].T @ exact(block)
    largest: Array = products.max(axis=0) / np.sqrt(squared)
    return -largest


# --- the form that survives noise -------------------------------------------------------------


def _robust(
    V: DataMatrix, K: int, first: int, tie: float, spectrum: Spectrum | None
) -> tuple[Array, Array, bool, float]:
    """The choice of Algorithm 1 if its clusters are evident; else one that survives noise."""
    centres, Z = _exact_centres(V, K, first, tie)
    if K >= min(V.shape):
        return centres, Z, False, np.nan
    if are_evident(V, Z, tie):
        return centres, Z, False, 0.0
    noisy = centres_in_noise(V, K, first=first, spectrum=spectrum)
    if noisy.counts.min() == 0:  # fewer than K directions stand out from the noise
        return centres, Z, False, np.nan
    return noisy.centres, noisy.axes, True, noisy.noise


_METHODS = {"exact": _exact_centres, "one-pass": one_pass_centres, "plain": _plain_centres}
