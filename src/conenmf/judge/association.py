"""Which components follow a class of the samples, such as the donor of a cell.

The share of the variation of a component that classes explain is eta squared of its usage: the
variance between classes over the total variance. Classes that have nothing to do with the usage
explain (G - 1) / (N - 1) of it on average, which is subtracted. A component follows the classes if
they explain more than half, and more than shuffled classes do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.linalg import norm
from numpy.random import default_rng

from ..arguments import classes as numbered
from ..data.blocks import exact, over
from ..data.matrix import Aligned
from ..errors import DataError
from ..types import Array

MAX_CLASS_SHARE = 0.5  # of the variation of a component; above, it follows the classes
_MAX_SAMPLES = 200_000  # whose usages are compared
_MAX_SHUFFLED = 2_000  # ... with shuffled classes
_N_SHUFFLES = 199
_TIE_SHARE = 1e-9  # relative difference up to which shares count as equal
_MIN_PER_CLASS = 20  # samples for each class, in a column that is taken without being named


def named_columns(option: str, values: Any, N: int, name: str = "class") -> dict[str, Array]:
    """Return the classes of N samples as integers, by the names of their columns.

    `values` is one list of classes, a mapping or a data frame with several, or None. A list without
    a name gets `name`.

    >>> named_columns("classes", {"donor": ["b", "a"]}, 2)
    {'donor': array([1, 0])}
    """
    if values is None:
        return {}
    table = {getattr(values, "name", None) or name: values}
    if isinstance(values, Mapping) or hasattr(values, "columns"):
        table = {**values} or {name: values}
    found = {}
    for title, column in table.items():
        labels = numbered(option, column)
        if labels.size != N:
            raise DataError(f"{option} has {labels.size} labels for {N} samples: give one for each")
        found[str(title)] = labels
    return found


def likely_classes(table: Any, leave_out: Iterable[str] = ()) -> dict[str, Array]:
    """Return the columns of a data frame that may be classes of its rows, as integers.

    They are categories, texts or truth values, with at least 20 rows for each on average. Of
    columns that divide the rows equally, only the first is returned.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"donor": list("ab") * 20, "code": list("xy") * 20, "depth": range(40)})
    >>> list(likely_classes(rows))
    ['donor']
    """
    found: dict[bytes, tuple[str, Array]] = {}
    for name in table.columns.difference([*leave_out], sort=False):
        column = table[name]
        if column.dtype.kind not in "Ob":
            continue
        codes = column.astype(str).factorize(use_na_sentinel=False)[0]  # as they appear
        if 2 <= codes.max() + 1 <= codes.size / _MIN_PER_CLASS:
            found.setdefault(codes.tobytes(), (str(name), codes))
    return dict(found.values())


def shares_by_class(W: Array, H: Aligned, columns: Mapping[str, Array]) -> dict[str, list[float]]:
    """Return the share of the variation of each component that each column of classes explains.

    It is eta squared of the share of the component in each sample (of at most 200,000), less what
    chance gives. It is 0 for a component of which shuffled classes explain as much.

    >>> H = np.repeat([[3.0, 1.0], [1.0, 3.0]], 6, axis=1)
    >>> shares_by_class(np.eye(2), H, {"kind": np.arange(12) // 6, "turn": np.arange(12) % 2})
    {'kind': [1.0, 1.0], 'turn': [0.0, 0.0]}
    """
    if not columns:
        return {}
    some = _some(H.shape[1], _MAX_SAMPLES)
    amounts = np.asarray(H[:, some], dtype=float).T * norm(exact(W), axis=0)
    usages = over(amounts, amounts.sum(axis=1, keepdims=True))
    return {name: _shares(usages, own[some]).tolist() for name, own in columns.items()}


def _shares(usages: Array, labels: Array) -> Array:
    """Return the share (K,) that the classes of samples explain of the usages (N, K)."""
    chance = (np.unique(labels).size - 1) / max(labels.size - 1, 1)
    shares = (_explained(usages, labels) - chance) / max(1 - chance, 1e-12)
    shares = np.clip(shares, 0.0, 1.0)
    large = np.flatnonzero(shares > MAX_CLASS_SHARE)
    if large.size:
        some = _some(labels.size, _MAX_SHUFFLED)
        usages = usages[np.ix_(some, large)]
        labels = labels[some]
        rng = default_rng(0)
        null = [_explained(usages, rng.permutation(labels)) for _ in range(_N_SHUFFLES)]
        is_usual = _explained(usages, labels) <= (1 + _TIE_SHARE) * np.max(null, axis=0)
        shares[large[is_usual]] = 0.0
    return shares


def _explained(usages: Array, labels: Array) -> Array:
    """Return eta squared (K,): the variance between classes over the variance."""
    usages = usages - usages.mean(axis=0)
    sizes = np.bincount(labels)
    sums = np.array([np.bincount(labels, column) for column in usages.T])
    between = over(sums**2, sizes).sum(axis=1)
    return np.asarray(over(between, (usages**2).sum(axis=0)))


def _some(N: int, count: int) -> Array:
    """Return at most `count` of N indices at random: classes may repeat at even distances."""
    return np.sort(default_rng(0).permutation(N)[:count])


def followers(
    shares: Mapping[str, Sequence[float]], unit: str = "component", first: int = 0
) -> list[str]:
    """Say which components follow which column of classes; they are numbered from `first`.

    >>> followers({"donor": [0.1, 0.97, 0.0, 0.954], "sex": [0.1, 0.2, 0.0, 0.7]})
    ['components 1 and 3 follow the donor (97%, 95%)', 'component 3 follows the sex (70%)']
    """
    lines = []
    for name, values in shares.items():
        own = [k for k, share in enumerate(values) if share > MAX_CLASS_SHARE]
        if not own:
            continue
        numbers = ", ".join(str(k + first) for k in own)
        numbers = " and".join(numbers.rsplit(",", 1))
        percents = ", ".join(f"{values[k]:.0%}" for k in own)
        subject = f"{unit}s {numbers} follow" if own[1:] else f"{unit} {numbers} follows"
        lines.append(f"{subject} the {name} ({percents})")
    return lines
