"""One line for users of AnnData and scanpy: ``conenmf.tl.nmf(adata)``, or ``tl.consensus``.

It reads the counts by `io.open.from_rows`, fits by `pipeline.factorize` and annotates by
`export.annotate`; the name of the module is scanpy's for tools.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from inspect import signature
from typing import Any

from .arguments import choice, optional, text
from .data.matrix import DataMatrix
from .errors import DataError, OptionError
from .export import annotate, check_annotated
from .io.open import from_rows
from .judge.stability import Stability, stability
from .names import Names
from .pipeline import factorize
from .result import Factorization
from .text import Facts, visible

_READING_OPTIONS = [*signature(from_rows).parameters][1:]
_SET_HERE = ("names", "V", "K", "n_runs")


def nmf(
    adata: Any,
    n_components: int | str = "auto",
    *,
    layer: str | None = None,
    key_added: str = "conenmf",
    **options: Any,
) -> Factorization:
    """Factor the counts of an AnnData object and add the result to it.

    ``adata.obsm["X_conenmf"]`` gets the coefficients of the cells, ``adata.varm["conenmf"]`` the
    loadings of the genes, ``adata.obs["conenmf"]`` the component that contributes most to each
    cell, as a category for scanpy's groups, and ``adata.uns["conenmf"]`` the facts about the
    fit, as JSON.

    Parameters
    ----------
    adata : AnnData
        In memory or backed by its file.
    n_components : int or "auto"
    layer : str, optional
        The layer to factor; by default X.
    key_added : str
    **options
        As in `conenmf.factorize` and `conenmf.from_rows`.

    Returns
    -------
    Factorization

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> from conenmf import make_cones
    >>> counts = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0)).V.T
    >>> adata = AnnData(counts)
    >>> result = nmf(adata)
    >>> result.K, adata.obsm["X_conenmf"].shape, adata.varm["conenmf"].shape
    (4, (200, 4), (60, 4))
    """
    V, options = _opened(adata, layer, options, factorize)
    key_added = text("key_added", key_added)
    result = factorize(V, n_components, **options)
    annotate(adata, result, key_added)
    return result


def consensus(
    adata: Any,
    n_components: int,
    n_runs: int = 20,
    *,
    layer: str | None = None,
    key_added: str = "conenmf",
    **options: Any,
) -> Stability:
    """Factor the counts of an AnnData object many times, and add the consensus to it.

    The consensus is added like the result of `nmf`. ``adata.uns["conenmf_stability"]`` has the
    share of runs that contain each component, and its silhouette.

    Parameters
    ----------
    adata : AnnData
        In memory or backed by its file.
    n_components : int
    n_runs : int
    layer : str, optional
        The layer to factor; by default X.
    key_added : str
    **options
        As in `conenmf.stability` and `conenmf.from_rows`.

    Returns
    -------
    Stability

    Examples
    --------
    >>> import numpy as np
    >>> from anndata import AnnData
    >>> rng = np.random.default_rng(0)
    >>> adata = AnnData(np.kron(np.eye(3), np.ones((9, 4))) * rng.random((27, 12)))
    >>> found = consensus(adata, 3, 6)
    >>> found.verdict, adata.obsm["X_conenmf"].shape
    ('stable', (27, 3))
    """
    V, options = _opened(adata, layer, options, stability)
    key_added = text("key_added", key_added)
    found = stability(V, n_components, n_runs, **options)
    result = factorize(V, found.K, init=found.W, loss=found.loss, solver=None)
    annotate(adata, result, key_added)
    adata.uns[f"{key_added}_stability"] = {
        "found_in": found.found_in,
        "silhouettes": found.silhouettes,
    }
    return found


def _opened(
    adata: Any, layer: str | None, options: Facts, function: Callable[..., Any]
) -> tuple[DataMatrix, Facts]:
    """The counts, and the options for the function that they are passed to."""
    check_annotated(adata)
    known = {*_READING_OPTIONS, *signature(function).parameters} - {*_SET_HERE}
    for name in options.keys() - known:
        close = get_close_matches(name, known, 1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(sorted(known))}"
        raise OptionError(f"{name!r} is not an option: {hint}")
    optional(choice, "layer", layer, adata.layers.keys())
    if layer is None and adata.X is None:
        raise OptionError(f"there is no X: name a layer, one of {', '.join(adata.layers.keys())}")
    reading = {name: options[name] for name in _READING_OPTIONS if name in options}
    others = {name: value for name, value in options.items() if name not in reading}
    names = Names.of(adata.obs_names, adata.var_names)
    try:
        V = from_rows(adata.X if layer is None else adata.layers[layer], names=names, **reading)
    except DataError as problem:
        if not str(problem).startswith("Negative"):
            raise
        raise DataError(_in_words_of_cells(problem, adata, layer)) from None
    return V, others


def _in_words_of_cells(problem: DataError, adata: Any, layer: str | None) -> str:
    """The message with what to do about counts that were centred or scaled."""
    where = str(problem).partition(";")[0]
    where = where.replace("(sample ", "(cell ").replace("(feature ", "(gene ")
    layers = [f"layer={visible(name)!r}" for name in adata.layers if name != layer]
    way = "adata.layers['lognorm'] = adata.X.copy() before sc.pp.scale keeps them"
    if layers:
        way = f"there is {', '.join(layers[:5])}"
    elif getattr(adata, "raw", None) is not None:
        way = "adata.raw.to_adata() has them"
    return (
        f"{where}; the data were probably centred or scaled: factor the counts, or their "
        f"logarithms, from before that: {way}"
    )
