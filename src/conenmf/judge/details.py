"""Details of a diagnosis: a description of a factorization and its data.

They collect results of other modules: the singular values, the cones, and whether the geometric
assumption (Section II of the paper) holds. Cones are numbered like the components they belong to.
It stores some samples, evenly spread over the data, so that the report can be drawn without the
matrix. This module also contains the sentences that a result, its report and the command line
share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.linalg import norm

from ..cones.bounds import deterministic_bound
from ..cones.counting import RankEstimate, default_most, estimate_rank
from ..cones.geometry import ConeGeometry, cone_geometry
from ..cones.rank_one import cr1_error, cr1_nmf
from ..data.blocks import dense, exact, over, slices
from ..data.entries import known_entries
from ..data.imputation import complete
from ..data.matrix import Aligned, DataMatrix
from ..data.resample import evenly_spaced
from ..errors import ComponentsError
from ..judge.matching import match_components
from ..linalg.svd import KnownSpectrum
from ..solve.problem import Entries, Problem
from ..types import Array, Pair, Shape
from .residuals import ResidualSummary

# --- typical samples ----------------------------------------------------------------------------

_MAX_SIDE = 48  # pixels of a thumbnail
_MAX_PIXELS = 1_000_000  # in all thumbnails together
_MAX_TYPICAL_SAMPLES = 6  # of each component
_SHARE_DIGITS = 2  # shares are compared to this precision, so that faint samples do not come first


def typical_samples(coefficients: Array) -> Array:
    """Return the samples (K, T) with the largest share of each component; -1 if too few.

    If shares agree to two digits, the sample with more of the component comes first.

    Parameters
    ----------
    coefficients : array (S, K)
        ||w_k|| H(k, n) of each sample.
    """
    shares = over(coefficients, coefficients.sum(axis=1, keepdims=True))
    typical = np.full((coefficients.shape[1], min(_MAX_TYPICAL_SAMPLES, len(shares))), -1)
    for k, row in enumerate(typical):
        rough = shares[:, k].round(_SHARE_DIGITS)
        order = np.lexsort((-coefficients[:, k], -rough))[: row.size]
        found = order[shares[order, k] > 0]
        found = found[np.argsort(-shares[found, k], kind="stable")]
        row[: found.size] = found
    return typical


def shrink(image: Array, factor: int) -> Array:
    """Return means over squares of pixels; incomplete squares at the ends are cut off."""
    high, wide = (max(1, min(factor, side)) for side in image.shape)
    rows = image.shape[0] // high
    columns = image.shape[1] // wide
    squares = image[: rows * high, : columns * wide].reshape(rows, high, columns, wide)
    return squares.mean(axis=(1, 3))


def thumbnails(V: DataMatrix, indices: Array, typical: Array, image_shape: Shape | None) -> Array:
    """Return typical samples as images (K T, rows, columns) from 0 to 255; none without a shape.

    Each image is scaled to full brightness. Positions without a sample are black.
    """
    places = typical.ravel()
    known = np.flatnonzero(places >= 0)
    if image_shape is None or not known.size:
        return np.zeros((0, 1, 1), dtype=np.uint8)
    pixels = max(max(image_shape) / _MAX_SIDE, np.sqrt(places.size * V.n_features / _MAX_PIXELS))
    factor = int(np.ceil(pixels))
    images = np.zeros((places.size, *shrink(np.zeros(image_shape), factor).shape), dtype=np.uint8)
    for part in (known[rows] for rows in slices(known.size, V.max_gather)):
        for place, column in zip(
            part, samples_and_weights(V, indices[places[part]])[0].T, strict=True
        ):
            image = shrink(column.reshape(image_shape), factor)
            images[place] = (image * (255.0 / (image.max() or 1.0))).round()
    return images


def samples_and_weights(V: DataMatrix, indices: Array) -> Pair:
    """Return samples (F, n) and the weights of their entries, 0 for missing ones."""
    unique, back = np.unique(indices, return_inverse=True)
    block = V.columns(unique)
    observed = V.observed
    columns = dense(block)
    if observed is None:
        weights = np.ones_like(columns)
    elif observed.weights is None:
        weights = known_entries(block, None).T
    else:
        weights = exact(np.asarray(observed.weights[unique])).T
    return columns[:, back], weights[:, back]


# --- inspected samples --------------------------------------------------------------------------

_MAX_INSPECTED_SAMPLES = 2000
_MAX_EXAMPLES = 6  # inspected samples that are stored with all their features


@dataclass(frozen=True, eq=False)
class InspectedSamples:
    """Statistics of some samples, which are evenly spread over the data.

    Attributes
    ----------
    indices : array (S,)
        Their indices in the data.
    coefficients : array (S, K)
        ||w_k|| H(k, n): the norm of the contribution of each component.
    labels : array (S,)
        The main component of each sample, or -1.
    errors : array (S,)
        The relative error of each sample; 0 for a zero sample.
    examples : array (E,)
        Positions within `indices` of the samples stored with all features, sorted from the best
        reconstructed to the worst.
    originals : array (F, E)
        The samples `examples`; NaN at missing entries.
    typical : array (K, T)
        Positions within `indices` of the samples with the largest share of each component; -1 if
        there are too few.
    thumbnails : array (K T, rows, columns), integers from 0 to 255
        The typical samples as small images if features are pixels; otherwise empty.
    """

    indices: Array
    coefficients: Array
    labels: Array
    errors: Array
    examples: Array
    originals: Array
    typical: Array
    thumbnails: Array


def inspected_samples(
    V: DataMatrix, described: DataMatrix, W: Array, H: Aligned, labels: Aligned
) -> InspectedSamples:
    """Compute statistics of samples that are evenly spread over V (F, N), and store some of them.

    `described` is V, or a view of it without missing or negative entries, for thumbnails.
    """
    indices = evenly_spaced(V.n_samples, _MAX_INSPECTED_SAMPLES)
    Ht = np.asarray(H[:, indices], dtype=float).T
    norms, errors = np.zeros((2, indices.size))
    for part in slices(indices.size, V.max_gather):
        columns, weights = samples_and_weights(V, indices[part])
        roots = np.sqrt(weights)
        norms[part] = norm(columns * roots, axis=0)
        errors[part] = norm((columns - W @ Ht[part].T) * roots, axis=0)
    errors = over(errors, norms)
    by_error = np.lexsort((errors, norms == 0))  # zero samples come last: their images are empty
    count = int((norms > 0).sum()) or indices.size
    examples = by_error[evenly_spaced(count, _MAX_EXAMPLES)]
    coefficients = Ht * norm(W, axis=0)
    typical = typical_samples(coefficients)
    originals, weights = samples_and_weights(V, indices[examples])
    return InspectedSamples(
        indices=indices,
        coefficients=coefficients,
        labels=np.asarray(labels[indices]),
        errors=errors,
        examples=examples,
        originals=np.where(weights == 0, np.nan, originals),
        typical=typical,
        thumbnails=thumbnails(described, indices, typical, V.names.image_shape),
    )


# --- the diagnosis ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ConeDiagnosis:
    """The cones that Algorithm 1 finds for this number of components.

    Attributes
    ----------
    geometry : ConeGeometry
        Cone k belongs to component k.
    sizes : array (K,)
        The number of samples in each cone.
    error : float
        Relative error of cr1-nmf, one rank-one factor for each cone.
    bound : float
        Proven upper bound for `error`: max sin(alpha_k) of the cones round the axes of cr1-nmf
        (Theorem 4).
    """

    geometry: ConeGeometry
    sizes: Array
    error: float
    bound: float


@dataclass(frozen=True, eq=False)
class Details:
    """A description of a factorization and its data.

    Attributes
    ----------
    rank : RankEstimate
        The singular values, their ratios, and where the largest ratio is.
    cones : ConeDiagnosis or None
        None if the samples have fewer directions than there are components.
    inspected : InspectedSamples
        Statistics of some samples, which are evenly spread over the data.
    sizes : array (K,)
        The number of samples to which each component contributes most.
    residuals : ResidualSummary or None
        Residuals in units of the uncertainties of the entries, if these are known.

    Examples
    --------
    >>> from conenmf import factorize, from_columns, make_cones
    >>> model = make_cones(80, 3, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> details = factorize(from_columns(model.V), 3).diagnose().details
    >>> int(details.sizes.sum()), details.cones.geometry.verdict
    (200, 'holds')
    """

    rank: RankEstimate
    cones: ConeDiagnosis | None
    inspected: InspectedSamples
    sizes: Array
    residuals: ResidualSummary | None = None


def describe(
    V: DataMatrix,
    W: Array,
    H: Aligned,
    labels: Aligned,
    *,
    spectrum: KnownSpectrum = None,
) -> Details:
    """Describe V ~ W H and its data: spectrum, cones, samples; some tens of passes over V.

    For singular values and cones, missing entries are replaced by W H and negative entries by
    zeros.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)
    labels : array (N,)
        The main component of each sample, or -1.
    spectrum : Spectrum, optional
        The spectrum of V, to reuse one that was computed before.

    Examples
    --------
    >>> from conenmf import factorize, from_columns, make_cones
    >>> model = make_cones(80, 3, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> V = from_columns(model.V)
    >>> result = factorize(V, 3)
    >>> details = describe(V, result.W, result.H, result.labels)
    >>> details.cones.geometry.holds, details.rank.K
    (True, 3)
    """
    W = exact(W)
    Ht = V.align(H.T)
    K = W.shape[1]
    is_whole = V.is_complete and V.measures.lowest >= 0
    # Every singular value that is shown needs a next one, for their ratio.
    k_max = max(1, min(max(default_most(V), K), min(V.shape) - 1))
    with V.own_threads():
        described = V if is_whole else complete(V, W, Ht)
        spectrum = spectrum if is_whole else None
        return Details(
            rank=estimate_rank(described, min(2, k_max), k_max, spectrum=spectrum),
            cones=_diagnose_cones(described, W),
            inspected=inspected_samples(V, described, W, Ht.T, labels),
            sizes=_component_sizes(labels, K),
        )


def _diagnose_cones(V: DataMatrix, W: Array) -> ConeDiagnosis | None:
    K = W.shape[1]
    try:
        axes, H, cones = cr1_nmf(V, K)
    except ComponentsError:
        return None
    component, _ = match_components(axes, W)
    renumber = np.append(component, -1)  # label -1 stays -1
    labels = V.by_rows(lambda index, labels: renumber[labels], cones.labels)
    return ConeDiagnosis(
        geometry=cone_geometry(V, labels),
        sizes=_component_sizes(labels, K),
        error=cr1_error(V, axes, H),
        bound=deterministic_bound(V, axes[:, np.argsort(component)], labels),
    )


def _component_sizes(labels: Aligned, K: int) -> Array:
    components = np.asarray(labels)
    return np.bincount(components[components >= 0], minlength=K)


# --- sentences ----------------------------------------------------------------------------------

NO_GUARANTEE = "the fit is not affected; only the paper's guarantee for cones does not apply"


def error_in_words(problem: Problem, relative_error: float, objective: float) -> str:
    """Describe the error; for counts, the share of the deviance that is explained."""
    return problem.loss.words.summary.format(
        error=relative_error,
        objective=objective,
        explained=max(1 - relative_error, 0.0),
        known=_known_in_words(problem.entries),
    )


def _known_in_words(entries: Entries) -> str:
    if entries.are_whole:
        return ""
    if not entries.missing:
        return " of the weighted entries"
    weighted = "weighted " if entries.is_weighted else ""
    return f" of the {weighted}entries that are known ({entries.missing:.3g} of all are missing)"


def cones_in_words(cones: ConeDiagnosis | None) -> str:
    """Say that samples fall into cones; "" if they do not, which is usual."""
    geometry = None if cones is None else cones.geometry
    if geometry is None or geometry.angles.size == 1:  # any data lie in a single cone
        return ""
    if geometry.holds:
        return f"the data fall into cones: yes, margin {geometry.margin:.3g} rad"
    apart = geometry.pairwise.value
    if apart <= 0:
        return ""
    return (
        f"the data fall into cones: yes, samples of different cones are {apart:.3g} rad farther "
        "apart than samples of one; the paper's stricter assumption is not shown to hold"
    )
