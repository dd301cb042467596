"""A diagnosis: how good a factorisation is, and a description of its data.

It collects what other modules compute: the certificate and the bounds, how far components can be
turned at the same error, the singular values, the cones and what is known of the geometric
assumption (Section II of the paper). Cones get the numbers of the components they belong to. It
keeps the data of some samples, so that the report can be drawn without the matrix. It computes no
bound of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from ..arguments import instance, optional
from ..cones.bounds import deterministic_bound
from ..cones.certificate import Certificate
from ..cones.geometry import ConeGeometry, cone_geometry
from ..cones.rank import RankEstimate, default_range, estimate_rank
from ..cones.rank_one import cr1_error, cr1_nmf
from ..cones.separation import Separation
from ..data.blocks import Array, exact
from ..data.holes import completed
from ..data.matrix import Aligned, DataMatrix
from ..data.validate import check_factors, check_labels, check_shapes, require_data_matrix
from ..errors import ComponentsError, ShapeError
from ..linalg.spectrum import Spectrum
from ..solve.inits import MAX_CONE_MIXING, lie_in_cones, mixing
from .certifying import AnyCertificate, certify
from .count_certificate import CountCertificate
from .inspected import InspectedSamples, inspected_samples
from .metrics import match_components
from .typical import thumbnails_shape
from .uniqueness import Freedom, component_freedom

__all__ = ["ConeDiagnosis", "Diagnosis", "InspectedSamples", "diagnose"]


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
    mixing : float
        The share of `error` that disappears if samples may mix cones; see `mixing` of
        `conenmf.solve`.
    unmixed : bool
        Whether one cone explains each sample about as well as a mixture; ``init="auto"`` decides
        by it. It does not say that the cones are apart.
    """

    geometry: ConeGeometry
    sizes: Array
    error: float
    bound: float
    mixing: float
    unmixed: bool


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """How good a factorisation is, and a description of its data.

    Attributes
    ----------
    certificate : Certificate or CountCertificate
        The error, a lower bound for it, and how far from stationary the factors are.
    freedom : Freedom
        How far each component can be turned at the same error, since the certificate judges the
        error and not the components.
    rank : RankEstimate
        The singular values, their ratios, and where the largest ratio is.
    cones : ConeDiagnosis or None
        None if the samples have fewer directions than there are components.
    inspected : InspectedSamples
        Samples evenly spread over the data, each judged by itself.
    sizes : array (K,)
        The number of samples to which each component contributes most.
    shares : array (K,)
        The share of each component in the reconstruction, <w_k h_k, W H> / ||W H||^2; they sum to
        one.
    """

    certificate: AnyCertificate
    freedom: Freedom
    rank: RankEstimate
    cones: ConeDiagnosis | None
    inspected: InspectedSamples
    sizes: Array
    shares: Array

    @property
    def advice(self) -> tuple[str, str]:
        """The init that suits these data, and why: ("cr1", "...")."""
        if self.cones is None:
            return "nndsvda", "the samples have fewer directions than there are components"
        unexplained = f"{self.cones.error**2:.1%} of the squared norm"
        if self.cones.unmixed:
            return "cr1", (
                f"one cone for each sample leaves {unexplained} unexplained, and mixing cones "
                "hardly less"
            )
        return "auto", (
            "the samples are mixtures rather than cones: one cone for each sample leaves "
            f"{unexplained} unexplained, and mixing cones lowers the error by "
            f"{self.cones.mixing:.0%} (the limit for cones is {MAX_CONE_MIXING:.0%}), so several "
            "inits should compete"
        )

    def arrays(self) -> dict[str, Array]:
        """Return all values as arrays by name; `from_arrays` re-creates the diagnosis."""
        return _flatten(self, "")

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], F: int, N: int, K: int) -> Diagnosis:
        """Re-create a diagnosis from what `arrays` returned.

        Raises
        ------
        ShapeError
            If an array is missing, or cannot belong to a factorisation of these F, N and K.
        """
        S, E = arrays["inspected_indices"].size, arrays["inspected_examples"].size
        R, T = arrays["rank_ratios"].size, arrays["inspected_typical"].size // K
        shapes = {
            "sizes": (K,),
            "shares": (K,),
            **dict.fromkeys(("freedom_angles", "freedom_spare", "freedom_radii"), (K,)),
            **dict.fromkeys(("freedom_exchange", "freedom_limits"), (K, K)),
            "rank_singular_values": (R + 1,),
            "rank_ratios": (R,),
            "inspected_indices": (S,),
            "inspected_coefficients": (S, K),
            "inspected_labels": (S,),
            "inspected_errors": (S,),
            "inspected_examples": (E,),
            "inspected_originals": (F, E),
            "inspected_missing": (F, E),
            "inspected_typical": (K, T),
            "inspected_thumbnails": thumbnails_shape(arrays["inspected_thumbnails"], K * T),
            "cones_sizes": (K,),
            "cones_geometry_axes": (F, K),
            "cones_geometry_angles": (K,),
            "cones_geometry_between": (K, K),
        }
        limits = {
            "inspected_indices": (0, N),
            "inspected_labels": (-1, K),
            "inspected_examples": (0, S),
            "inspected_typical": (-1, S),
            "inspected_thumbnails": (0, 256),
            "cones_geometry_closest": (0, K),
            "cones_geometry_ambiguous": (0, N),
            "rank_K": (1, R + 1),
            "freedom_angles": (0, np.pi),
        }
        newer = ("cones_", "freedom_radii", "freedom_limits", "inspected_missing")
        required = (name for name in shapes if not name.startswith(newer))
        if missing := next((name for name in required if name not in arrays), None):
            raise ShapeError(f"its {missing} is missing")
        for name, array in arrays.items():
            low, stop = limits.get(name, (-np.inf, None))
            within = array.size == 0 or low <= array.min()
            within &= array.size == 0 or stop is None or array.max() < stop
            if array.shape != shapes.get(name, array.shape) or not within:
                raise ShapeError(f"its {name} does not fit the factors")
        diagnosis = _unflatten(cls, "", arrays)
        assert isinstance(diagnosis, cls)
        return diagnosis


_PARTS: dict[type, dict[str, type]] = {
    Diagnosis: {
        "certificate": Certificate,
        "freedom": Freedom,
        "rank": RankEstimate,
        "cones": ConeDiagnosis,
        "inspected": InspectedSamples,
    },
    ConeDiagnosis: {"geometry": ConeGeometry},
    ConeGeometry: {"pairwise": Separation},
}


def _flatten(part: Any, prefix: str) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for field in fields(part):
        value = getattr(part, field.name)
        if is_dataclass(value):
            arrays |= _flatten(value, f"{prefix}{field.name}_")
        elif value is not None:
            arrays[prefix + field.name] = np.asarray(value)
    return arrays


def _unflatten(kind: type, prefix: str, arrays: Mapping[str, Array]) -> Any:
    values: dict[str, Any] = {}
    for field in fields(kind):
        name = prefix + field.name
        part = _PARTS.get(kind, {}).get(field.name)
        if part is not None:
            has_part = any(key.startswith(f"{name}_") for key in arrays)
            if part is Certificate and f"{name}_divergence" in arrays:
                part = CountCertificate
            values[field.name] = _unflatten(part, f"{name}_", arrays) if has_part else None
        elif name not in arrays:
            values[field.name] = None
        else:
            array = arrays[name]
            values[field.name] = array.item() if array.ndim == 0 else array
    if kind is ConeGeometry and values["closest"] is not None:
        values["closest"] = tuple(values["closest"].tolist())
    return kind(**values)


def diagnose(
    V: DataMatrix,
    W: Array,
    H: Aligned,
    labels: Aligned,
    certificate: AnyCertificate | None = None,
    *,
    spectrum: Spectrum | None = None,
) -> Diagnosis:
    """Judge a factorisation V ~ W H and describe its data, in some tens of passes over V.

    Where entries are missing, W H replaces them in the singular values and the cones; negative
    entries, if they were kept, are zeros there.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)
    labels : array (N,)
        The component of each sample, -1 for none.
    certificate : Certificate or CountCertificate, optional
        The certificate of these factors, if it was computed before.
    spectrum : Spectrum, optional
        That of V, if it is used elsewhere too.

    Examples
    --------
    >>> from conenmf import factorize, from_columns, make_cones
    >>> model = make_cones(80, 3, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> V = from_columns(model.V)
    >>> result = factorize(V, 3)
    >>> facts = diagnose(V, result.W, result.H, result.labels)
    >>> facts.cones.geometry.holds, facts.rank.K, facts.advice[0]
    (True, 3, 'cr1')
    """
    require_data_matrix(V, nonzero=True, whole=True, holes=True)
    W, H = check_shapes(V, W, H)[0], H if hasattr(H, "dtype") else np.asarray(H)
    K, is_whole = W.shape[1], V.observed is None and V.measures.lowest >= 0
    spectrum = Spectrum.of(V, spectrum) if V.observed is None else None
    labels = check_labels(V, labels, K)
    if not isinstance(certificate, CountCertificate):
        optional(instance, "certificate", certificate, Certificate, "certify(V, W, H)")
    # Every singular value shown has a next one, for their ratio.
    k_max = max(1, min(max(default_range(V)[1], K), min(V.shape) - 1))
    with V.own_threads():
        described = V if is_whole else completed(V, W, check_factors(V, W, H)[1])
        known = spectrum if is_whole else None
        return Diagnosis(
            certificate=certificate or certify(V, W, H, spectrum=spectrum),
            freedom=component_freedom(V, W, H),
            rank=estimate_rank(described, min(2, k_max), k_max, spectrum=known),
            cones=_diagnose_cones(described, W),
            inspected=inspected_samples(V, described, W, H, labels),
            sizes=_component_sizes(labels, K),
            shares=_shares(V, W, H),
        )


def _shares(V: DataMatrix, W: Array, H: Aligned) -> Array:
    """<w_k h_k, W H> / ||W H||^2: the sums over rows of W'W * HH'."""
    W, Ht = check_factors(V, W, H)
    (HH,) = V.map(_gram, Ht)
    largest = np.sqrt(np.diagonal(HH).max(initial=0.0)) or 1.0
    products = (W.T @ W) / (np.square(W).sum() or 1.0) * (HH / largest**2)
    total = products.sum()
    shares: Array = products.sum(axis=1) / total if total > 0 else np.zeros(W.shape[1])
    return shares


def _gram(index: range, H: Array) -> tuple[Array]:
    H = exact(H)
    return (H.T @ H,)


def _diagnose_cones(V: DataMatrix, W: Array) -> ConeDiagnosis | None:
    K = W.shape[1]
    try:
        axes, H, cones = cr1_nmf(V, K)
    except ComponentsError:
        return None
    error = cr1_error(V, axes, H)
    component, _ = match_components(axes, W)
    labels, _ = V.map(_renumber, cones.labels, component=component)
    order = np.argsort(component)
    return ConeDiagnosis(
        geometry=cone_geometry(V, labels),
        sizes=_component_sizes(labels, K),
        error=error,
        bound=deterministic_bound(V, axes[:, order], labels),
        mixing=mixing(V, K, axes),
        unmixed=lie_in_cones(V, axes, error),
    )


def _renumber(index: range, labels: Array, *, component: Array) -> tuple[Array, None]:
    return np.where(labels >= 0, component[labels], -1), None


def _component_sizes(labels: Aligned, K: int) -> Array:
    components = np.asarray(labels)
    return np.bincount(components[components >= 0], minlength=K)
