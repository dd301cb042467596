"""What can be said about a factorisation and the data it is of, gathered for people to look at.

Everything here is computed elsewhere: the certificate and the bounds, the spectrum, the cones and
whether the geometric assumption holds for them. This module asks for it once, numbers the cones
like the components they belong to, and keeps what a picture needs of a few samples, so that it can
be drawn without the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from ..cones.bounds import Certificate, certify, deterministic_bound
from ..cones.clustering import cr1_error, cr1_nmf
from ..cones.geometry import ConeGeometry, cone_geometry
from ..cones.rank import RankEstimate, default_range, estimate_rank
from ..data.blocks import Array
from ..data.doors import require_data_matrix
from ..data.matrix import Aligned, DataMatrix
from ..errors import ComponentsError
from ..solve.inits import MOSTLY_CONES, lie_in_cones, mixing
from .metrics import match_components

__all__ = ["ConeDiagnosis", "Diagnosis", "InspectedSamples", "diagnose"]

_SHOWN = 2000  # samples that are looked at one by one
_EXAMPLES = 6  # of them that are kept whole


@dataclass(frozen=True, eq=False)
class ConeDiagnosis:
    """The cones that Algorithm 1 finds for this number of components.

    Attributes
    ----------
    geometry : ConeGeometry
        Cone k is the one that belongs to component k.
    sizes : array (K,)
        Samples in each.
    error : float
        Relative error of cr1-nmf, one rank-one factor for each cone.
    bound : float
        What the error was bound to be at most: max sin(alpha_k) of the cones round the axes of
        cr1-nmf (Theorem 4).
    mixing : float
        How much of that error goes if samples may mix cones; see `conenmf.inits.mixing`.
    unmixed : bool
        Whether one cone explains each sample about as well as a mixture, by which
        ``init="auto"`` goes. It does not say that the cones are apart.
    """

    geometry: ConeGeometry
    sizes: Array
    error: float
    bound: float
    mixing: float
    unmixed: bool


@dataclass(frozen=True, eq=False)
class InspectedSamples:
    """Samples evenly spread over the data, each judged by itself.

    Attributes
    ----------
    indices : array (S,)
    coefficients : array (S, K)
        ||w_k|| H(k, n): what each component contributes.
    labels : array (S,)
    errors : array (S,)
        Relative error of each; 0 for a sample that is zero.
    examples : array of int
        Which of them are kept whole, from the best reconstructed to the worst.
    originals : array (F, E)
        Those samples.
    """

    indices: Array
    coefficients: Array
    labels: Array
    errors: Array
    examples: Array
    originals: Array


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """How good a factorisation is, and what its data look like.

    Attributes
    ----------
    certificate : Certificate
    rank : RankEstimate
        The singular values, their ratios, and where the largest ratio is.
    cones : ConeDiagnosis or None
        None if the samples have fewer directions than there are components.
    inspected : InspectedSamples
    sizes : array (K,)
        Samples to which each component contributes most.
    """

    certificate: Certificate
    rank: RankEstimate
    cones: ConeDiagnosis | None
    inspected: InspectedSamples
    sizes: Array

    @property
    def advice(self) -> tuple[str, str]:
        """The start that suits these data, and why: ("cr1", "...")."""
        if self.cones is None:
            return "nndsvda", "the samples have fewer directions than there are components"
        unexplained = self.cones.error**2
        facts = f"one cone for each sample leaves {unexplained:.1%} of the squared norm"
        if self.cones.unmixed:
            return "cr1", f"{facts}, and mixing cones hardly less"
        return "auto", (
            f"the samples are mixtures rather than cones: {facts}, and mixing cones lowers the "
            f"error by {self.cones.mixing:.0%} (up to {MOSTLY_CONES:.0%} does not count): "
            "let cr1 and a start from singular vectors compete"
        )

    def arrays(self) -> dict[str, Array]:
        """Everything in arrays by name, from which `from_arrays` makes it again."""
        return _taken_apart(self, "")

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], F: int, N: int, K: int) -> Diagnosis:
        """Make it again from what `arrays` returned, and refuse what cannot be of F, N and K."""
        S, E = arrays["inspected_indices"].size, arrays["inspected_examples"].size
        R = arrays["rank_ratios"].size
        shapes = {
            "sizes": (K,),
            "rank_singular_values": (R + 1,),
            "rank_ratios": (R,),
            "inspected_indices": (S,),
            "inspected_coefficients": (S, K),
            "inspected_labels": (S,),
            "inspected_errors": (S,),
            "inspected_examples": (E,),
            "inspected_originals": (F, E),
            "cones_sizes": (K,),
            "cones_geometry_axes": (F, K),
            "cones_geometry_angles": (K,),
            "cones_geometry_between": (K, K),
        }
        limits = {
            "inspected_indices": (0, N),
            "inspected_labels": (-1, K),
            "inspected_examples": (0, S),
            "cones_geometry_closest": (0, K),
            "cones_geometry_ambiguous": (0, N),
            "rank_K": (1, R + 1),
        }
        for name, array in arrays.items():
            low, stop = limits.get(name, (-np.inf, None))
            within = array.size == 0 or low <= array.min()
            within &= array.size == 0 or stop is None or array.max() < stop
            if array.shape != shapes.get(name, array.shape) or not within:
                raise ValueError(f"its part {name} cannot be of this factorisation")
        made = _put_together(cls, "", arrays)
        assert isinstance(made, cls)
        return made


_PARTS: dict[type, dict[str, type]] = {
    Diagnosis: {
        "certificate": Certificate,
        "rank": RankEstimate,
        "cones": ConeDiagnosis,
        "inspected": InspectedSamples,
    },
    ConeDiagnosis: {"geometry": ConeGeometry},
}


def _taken_apart(part: Any, prefix: str) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for field in fields(part):
        value = getattr(part, field.name)
        if is_dataclass(value):
            arrays |= _taken_apart(value, f"{prefix}{field.name}_")
        elif value is not None:
            arrays[prefix + field.name] = np.asarray(value)
    return arrays


def _put_together(kind: type, prefix: str, arrays: Mapping[str, Array]) -> Any:
    values: dict[str, Any] = {}
    for field in fields(kind):
        name = prefix + field.name
        part = _PARTS.get(kind, {}).get(field.name)
        if part is not None:
            there = any(key.startswith(f"{name}_") for key in arrays)
            values[field.name] = _put_together(part, f"{name}_", arrays) if there else None
        elif name not in arrays:
            values[field.name] = None
        else:
            array = arrays[name]
            values[field.name] = array.item() if array.ndim == 0 else array
    if kind is ConeGeometry and values["closest"] is not None:
        values["closest"] = tuple(values["closest"].tolist())
    return kind(**values)


def diagnose(
    V: DataMatrix, W: Array, H: Aligned, labels: Aligned, certificate: Certificate | None = None
) -> Diagnosis:
    """Judge a factorisation V ~ W H and describe its data; some tens of passes over V.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)
    labels : array (N,)
        The component of each sample, -1 for none.
    certificate : Certificate, optional
        If it is known already.

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
    require_data_matrix(V, nonzero=True)
    K = W.shape[1]
    k_max = max(1, min(max(default_range(V)[1], K), min(V.shape) - 1))  # with a next one each
    with V.own_threads():
        return Diagnosis(
            certificate=certificate or certify(V, W, H),
            rank=estimate_rank(V, min(2, k_max), k_max),
            cones=_cones(V, W),
            inspected=_inspect(V, W, H, labels),
            sizes=_sizes(labels, K),
        )


def _cones(V: DataMatrix, W: Array) -> ConeDiagnosis | None:
    K = W.shape[1]
    try:
        axes, H, cones = cr1_nmf(V, K)
    except ComponentsError:
        return None
    error = cr1_error(V, H)
    component, _ = match_components(axes, W)
    labels, _ = V.map(_renumbered, cones.labels, to=component)
    order = np.argsort(component)
    return ConeDiagnosis(
        geometry=cone_geometry(V, labels),
        sizes=_sizes(labels, K),
        error=error,
        bound=deterministic_bound(V, axes[:, order], labels),
        mixing=mixing(V, K, axes),
        unmixed=lie_in_cones(V, axes, error),
    )


def _renumbered(samples: range, labels: Array, *, to: Array) -> tuple[Array, None]:
    return np.where(labels >= 0, to[labels], -1), None


def _sizes(labels: Aligned, K: int) -> Array:
    found = np.asarray(labels)
    return np.bincount(found[found >= 0], minlength=K)


def _inspect(V: DataMatrix, W: Array, H: Aligned, labels: Aligned) -> InspectedSamples:
    N = V.shape[1]
    shown = np.unique(np.linspace(0, N - 1, min(N, _SHOWN)).astype(np.intp))
    few = np.asarray(H[:, shown], dtype=np.float64).T
    errors = np.concatenate(
        [
            _errors(V.columns(part), W, few[first : first + part.size])
            for first in range(0, shown.size, V.max_gather)
            if (part := shown[first : first + V.max_gather]).size
        ]
    )
    by_error = np.argsort(errors, kind="stable")
    spread = np.linspace(0, shown.size - 1, min(_EXAMPLES, shown.size)).astype(np.intp)
    examples = by_error[spread]
    originals = V.columns(np.sort(shown[examples]))
    back = np.argsort(np.argsort(shown[examples]))
    return InspectedSamples(
        indices=shown,
        coefficients=few * np.linalg.norm(W, axis=0),
        labels=np.asarray(labels[shown]),
        errors=errors,
        examples=examples,
        originals=_dense(originals)[:, back],
    )


def _errors(columns: Any, W: Array, H: Array) -> Array:
    exact = _dense(columns)
    size = np.linalg.norm(exact, axis=0)
    rest = np.linalg.norm(exact - W @ H.T, axis=0)
    errors: Array = np.divide(rest, size, out=np.zeros_like(rest), where=size > 0)
    return errors


def _dense(columns: Any) -> Array:
    dense: Array = columns.astype(np.float64) @ np.eye(columns.shape[1])
    return dense
