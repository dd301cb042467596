"""Functions for users of AnnData and scanpy: ``conenmf.tl.nmf(adata)`` and ``tl.consensus``.

They read counts with `io.open.from_rows`, fit with `pipeline.factorize` and annotate with
`export.annotate`; scanpy calls its module of tools `tl` too. As in scanpy, only genes marked as
highly variable are used, if any are marked. A progress bar appears after two seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np

from .arguments import choice, flag, optional, text
from .data.matrix import DataMatrix
from .data.resample import holds_counts
from .data.views import hold_copy, take_features
from .errors import DataError, OptionError
from .export import annotate, check_annotated
from .io.open import from_rows
from .judge.choose_k import select_k
from .judge.stability import Stability, stability_over
from .names import Names
from .pipeline import factorize
from .progress import Display
from .result import Factorization
from .solve.problem import Problem
from .text import suggestion
from .types import Array, Facts, Function

_READING_OPTIONS = [*signature(from_rows).parameters][1:]
_TERMS = [*signature(Problem).parameters][:3]  # the loss, penalties, known components
_MAX_ITER = signature(factorize).parameters["max_iter"].default
_SILENT_SECONDS = 2.0  # before progress is shown
_RAW_COUNTS = (
    "tl.nmf: these are raw counts, and large ones dominate squared errors: give loss='poisson', "
    "factor log-normalised counts, or use conenmf.find_programs\n"
)
_VARIABLE = "highly_variable"  # the column of var in which scanpy marks genes


def nmf(
    adata: Any,
    n_components: int | str | Iterable[int] = "auto",
    *,
    layer: str | None = None,
    key_added: str = "conenmf",
    use_highly_variable: bool = True,
    verbose: bool = True,
    **options: Any,
) -> Factorization:
    """Factor the counts of an AnnData object and add the result to it.

    ``adata.obsm["X_conenmf"]`` gets the coefficients of the cells, ``adata.varm["conenmf"]`` the
    loadings of the genes, ``adata.obs["conenmf"]`` the component that contributes most to each
    cell, as a category for scanpy's groups, and ``adata.uns["conenmf"]`` a dict with settings and
    results of the fit.

    Parameters
    ----------
    adata : AnnData
        In memory or backed by its file.
    n_components : int, "auto", or several integers
        If you pass several, such as ``range(5, 16)``, `select_k` chooses one of them.
    layer : str, optional
        The layer to factor; by default X.
    key_added : str
    use_highly_variable : bool
        Factor only the genes that ``adata.var["highly_variable"]`` marks, if there is such a
        column. Other genes have zeros in varm.
    verbose : bool
        Show progress if it takes longer than two seconds.
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
    _check_options(options, "nmf", factorize)
    V, genes, options = _open(adata, layer, use_highly_variable, options)
    key_added = text("key_added", key_added)
    display = Display(sys.stderr, quiet=not flag("verbose", verbose), delay=_SILENT_SECONDS)
    if verbose and V.observed is None and "loss" not in options and holds_counts(V):
        sys.stderr.write(_RAW_COUNTS)
    options.setdefault("callback", display.iterations(options.get("max_iter", _MAX_ITER)))
    with display.working("choosing the number of components"):
        if isinstance(n_components, int | str):
            result = factorize(V, n_components, **options)
        else:
            terms = {name: options[name] for name in _TERMS if name in options}
            chosen = select_k(V, n_components, problem=Problem(**terms))
            result = factorize(V, chosen.K, **options)
            result = replace(result, K_decided_by=chosen.sentence, selection=chosen)
    annotate(adata, result, key_added, genes)
    return result


def consensus(
    adata: Any,
    n_components: int | Iterable[int],
    n_runs: int = 20,
    *,
    layer: str | None = None,
    key_added: str = "conenmf",
    use_highly_variable: bool = True,
    verbose: bool = True,
    **options: Any,
) -> Stability:
    """Factor the counts of an AnnData object many times, and add the consensus to it.

    The consensus is added in the same places as the result of `nmf`.
    ``adata.uns["conenmf_stability"]`` has the share of runs that contain each component, and its
    silhouette. It also has the mean silhouette and the error for each number of components that was
    tried.

    Parameters
    ----------
    adata : AnnData
        In memory or backed by its file.
    n_components : int, or several integers
        If you pass several, such as ``range(5, 16)``, `stability_over` recommends one of them.
    n_runs : int
    layer : str, optional
        The layer to factor; by default X.
    key_added : str
    use_highly_variable : bool
        Factor only the genes that ``adata.var["highly_variable"]`` marks, if there is such a
        column. Other genes have zeros in varm.
    verbose : bool
        Show progress if it takes longer than two seconds.
    **options
        As in `conenmf.stability` and `conenmf.from_rows`. Known components and penalties are those
        of a `problem`.

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
    _check_options(options, "consensus", stability_over)
    V, genes, options = _open(adata, layer, use_highly_variable, options)
    key_added = text("key_added", key_added)
    ks = [n_components] if isinstance(n_components, int) else n_components
    display = Display(sys.stderr, quiet=not flag("verbose", verbose), delay=_SILENT_SECONDS)

    def show(one: Stability) -> None:
        display.update(f"{one.K} components are {one.verdict}")

    with display.working(f"fitting {n_runs} times"):
        over = stability_over(V, ks, n_runs, callback=show, **options)
        found = over.found[over.K]
        problem = options.get("problem") or Problem(found.loss)
        result = factorize(
            V,
            found.K,
            init=found.W,
            loss=found.loss,
            solver=None,
            penalties=problem.penalties,
            fixed=problem.fixed,
        )
    annotate(adata, result, key_added, genes)
    adata.uns[f"{key_added}_stability"] = {
        "found_in": found.found_in,
        "silhouettes": found.silhouettes,
        "ks": over.ks,
        "mean_silhouettes": over.silhouettes,
        "relative_errors": over.relative_errors,
    }
    return found


def _check_options(options: Facts, name: str, function: Function) -> None:
    """Reject an option that neither the function of this module nor the one it calls has."""
    own = signature(globals()[name]).parameters
    known = [*own, *_READING_OPTIONS, *signature(function).parameters]
    for option in options:
        if option not in known:
            raise TypeError(f"tl.{name} has no option {option!r}{suggestion(option, known)}")


def _open(
    adata: Any, layer: str | None, use_highly_variable: bool, options: Facts
) -> tuple[DataMatrix, Array | None, Facts]:
    """Return the counts, the indices of their genes, and the options that are not for reading."""
    check_annotated(adata)
    optional(choice, "layer", layer, adata.layers.keys())
    if layer is None and adata.X is None:
        raise OptionError(f"there is no X: name a layer, one of {', '.join(adata.layers.keys())}")
    others = dict(options)
    reading = {name: others.pop(name) for name in _READING_OPTIONS if name in others}
    names = Names.of(adata.obs_names, adata.var_names)
    try:
        V = from_rows(adata.X if layer is None else adata.layers[layer], names=names, **reading)
    except DataError as error:
        finding = str(error)
        if not finding.startswith("Negative"):
            raise
        raise DataError(
            f"{finding.partition(';')[0]}; the data were probably centred or scaled: factor the "
            "counts, or their logarithms, from before that: name a layer, or pass "
            "adata.raw.to_adata()"
        ) from None
    if not flag("use_highly_variable", use_highly_variable) or _VARIABLE not in adata.var:
        return V, None, others
    genes = np.flatnonzero(adata.var[_VARIABLE])
    if V.observed is not None or genes.size == 0:
        reason = "missing or weighted entries need all genes" if genes.size else "none is marked"
        raise OptionError(f"highly variable genes: {reason}; give use_highly_variable=False")
    view = take_features(V, genes, dtype=str(V.dtype))
    return hold_copy(view) if V.is_in_memory else view, genes, others
