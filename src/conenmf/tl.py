"""One line for users of AnnData and scanpy: ``conenmf.tl.nmf(adata)``.

It reads the counts by `data.doors.from_rows`, fits by `pipeline.factorize` and annotates by
`export.annotate`; the name of the module is scanpy's for tools.
"""

from __future__ import annotations

from typing import Any

from .arguments import choice, optional, text
from .data.doors import from_rows
from .errors import NegativeValueError, OptionError
from .export import annotate, check_annotated
from .names import Names
from .pipeline import factorize
from .result import Factorization
from .text import visible

__all__ = ["nmf"]

_READING_OPTIONS = ("negative", "n_threads", "max_memory")


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
    cell, as a category that scanpy takes for groups, and ``adata.uns["conenmf"]`` the facts about
    the fit, as JSON.

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
    check_annotated(adata)
    optional(choice, "layer", layer, adata.layers.keys())
    key_added = text("key_added", key_added)
    if layer is None and adata.X is None:
        raise OptionError(f"there is no X: name a layer, one of {', '.join(adata.layers.keys())}")
    reading = {name: options.pop(name) for name in _READING_OPTIONS if name in options}
    names = Names.of(adata.obs_names, adata.var_names)
    try:
        V = from_rows(adata.X if layer is None else adata.layers[layer], names=names, **reading)
    except NegativeValueError as problem:
        raise NegativeValueError(_in_words_of_cells(problem, adata, layer)) from None
    result = factorize(V, n_components, **options)
    annotate(adata, result, key_added)
    return result


def _in_words_of_cells(problem: NegativeValueError, adata: Any, layer: str | None) -> str:
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
