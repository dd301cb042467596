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

from .arguments import choice, flag, optional, several, text
from .data.matrix import DataMatrix
from .data.resample import holds_counts
from .data.views import hold_copy, take_features
from .errors import Option, OptionError
from .export import annotate, check_annotated, unstructured
from .io.open import from_rows
from .judge.association import followers, likely_classes, shares_by_class
from .judge.choose_k import select_k
from .judge.stability import Stability, stability_over
from .names import Names
from .pipeline import factorize
from .progress import Display
from .result import Factorization
from .solve.constraints import Fixed
from .solve.problem import Problem
from .text import suggestion, visible
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
    groups: str | None = None,
    verbose: bool = True,
    **options: Any,
) -> Factorization:
    """Factor the counts of an AnnData object and add the result to it.

    ``adata.obsm["X_conenmf"]`` gets the coefficients of the cells, ``adata.varm["conenmf"]`` the
    loadings of the genes, ``adata.obs["conenmf"]`` the component that contributes most to each
    cell, as a category for scanpy's groups, and ``adata.uns["conenmf"]`` a dict with settings and
    results of the fit. ``result.summary()`` says which components follow a column of ``adata.obs``,
    such as the donor: columns of texts or categories with 20 cells or more for each, unless ``uns``
    has an entry of their name, as it has for clusters.

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
    groups : str, optional
        A column of obs, such as "donor_id". Each donor gets a scale for each gene, in
        ``varm["conenmf_scales"]``, and a table of the components that it uses,
        ``uns["conenmf"]["group_table"]``. ``uns["conenmf"]["groups"]`` names the donors.
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
    labels = _labels(adata, groups, options)
    _check_options(options, "nmf", factorize)
    V, genes, options = _open(adata, layer, use_highly_variable, options)
    key_added = text("key_added", key_added)
    display = _display(verbose)
    if verbose and V.observed is None and "loss" not in options and holds_counts(V):
        sys.stderr.write(_RAW_COUNTS)
    options.setdefault("callback", display.iterations(options.get("max_iter", _MAX_ITER)))
    with display.working("choosing the number of components"):
        if isinstance(n_components, str) or not np.iterable(n_components):
            result = factorize(V, n_components, groups=labels, **options)
        else:
            terms = {name: options[name] for name in _TERMS if name in options}
            chosen = select_k(V, n_components, problem=Problem(**terms))
            result = factorize(V, chosen.K, groups=labels, **options)
            result = replace(result, K_decided_by=chosen.sentence, selection=chosen)
        shares = shares_by_class(result.W, result.H, _classes(adata, key_added))
        result = replace(result, settings={**result.settings, "class_shares": shares})
    _annotate(adata, result, key_added, genes)
    if verbose:
        _tell(shares)
    return result


def consensus(
    adata: Any,
    n_components: int | Iterable[int],
    n_runs: int = 20,
    *,
    layer: str | None = None,
    key_added: str = "conenmf",
    use_highly_variable: bool = True,
    groups: str | None = None,
    verbose: bool = True,
    **options: Any,
) -> Stability:
    """Factor the counts of an AnnData object many times, and add the consensus to it.

    The consensus is added in the same places as the result of `nmf`.
    ``adata.uns["conenmf_stability"]`` has the share of runs that contain each component, and its
    silhouette. It also has the mean silhouette and the error for each number of components that was
    tried. As in `nmf`, the result says which components follow a column of ``adata.obs``.

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
    groups : str, optional
        A column of obs, such as "donor_id". Each donor gets a scale for each gene, in
        ``varm["conenmf_scales"]``, and a table of the components that it uses,
        ``uns["conenmf"]["group_table"]``. ``uns["conenmf"]["groups"]`` names the donors.
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
    labels = _labels(adata, groups, options)
    _check_options(options, "consensus", stability_over)
    V, genes, options = _open(adata, layer, use_highly_variable, options)
    key_added = text("key_added", key_added)
    is_list = np.iterable(n_components)
    ks = several("n_components", n_components if is_list else [n_components], "integers")
    display = _display(verbose)

    def show(one: Stability) -> None:
        display.update(f"{one.K} components are {one.verdict}")

    with display.working(f"fitting {n_runs} times"):
        options.setdefault("classes", _classes(adata, key_added) or None)
        problem = options.get("problem") or Problem(options.get("loss", "frobenius"))
        terms: Facts = {"loss": problem.loss.name, "penalties": problem.penalties}
        terms["fixed"] = problem.fixed
        data = V
        if labels is not None:
            early = factorize(V, max(ks), groups=labels, **terms)
            data = early.problem.groups.divided(V) if early.groups else V
        over = stability_over(data, ks, n_runs, callback=show, **options)
        found = over.found[over.K]
        how: Facts = {"init": found.W, "solver": None}
        if labels is not None:  # the consensus stays as it is
            how |= {"solver": "auto", "groups": labels, "fixed": Fixed(found.W)}
        result = factorize(V, found.K, **terms | how)
        own = replace(result.problem, fixed=problem.bind(V).fixed)
        result = replace(result, problem=own)
    _annotate(adata, result, key_added, genes)
    adata.uns[f"{key_added}_stability"] = {
        "found_in": found.found_in,
        "silhouettes": found.silhouettes,
        "ks": over.ks,
        "mean_silhouettes": over.silhouettes,
        "relative_errors": over.relative_errors,
        "class_shares": unstructured(found.class_shares),
    }
    if verbose:
        _tell(found.class_shares)
    return found


def _check_options(options: Facts, name: str, function: Function) -> None:
    """Reject an option that neither the function of this module nor the one it calls has."""
    own = signature(globals()[name]).parameters
    known = [*own, *_READING_OPTIONS, *signature(function).parameters]
    for option in options:
        if option not in known:
            raise TypeError(f"tl.{name} has no option {option!r}{suggestion(option, known)}")


def _labels(adata: Any, groups: Any, options: Facts) -> Any:
    """Return the column of obs that has the groups; None without groups."""
    for name in ("batch", "batch_key"):
        if name in options:
            raise OptionError(Option(name, options[name]), " is called ", Option("groups"), " here")
    if groups is None:
        return None
    if not isinstance(groups, str) and np.iterable(groups):
        raise OptionError(
            Option("groups", groups),
            ", expected one column: join several in a new column of obs, and name that as ",
            Option("groups"),
        )
    return adata.obs[choice("groups", groups, [*map(str, adata.obs.columns)])]


def _display(verbose: bool) -> Display:
    return Display(sys.stderr, quiet=not flag("verbose", verbose), delay=_SILENT_SECONDS)


def _annotate(adata: Any, result: Factorization, key: str, genes: Array | None) -> None:
    """Add a result, and the scales and the table of groups if there are any."""
    annotate(adata, result, key, genes)
    scales = result.group_scales
    adata.varm.pop(f"{key}_scales", None)  # of an earlier fit
    if scales is not None:
        values = np.ones((adata.shape[1], len(scales)))
        values[slice(None) if genes is None else genes] = scales.T
        adata.varm[f"{key}_scales"] = values
        adata.uns[key]["group_table"] = result.group_table


def _classes(adata: Any, key_added: str) -> Facts:
    """Return the columns of obs that may be classes, without those that were computed."""
    return likely_classes(adata.obs, [key_added, *adata.uns])


def _tell(shares: Facts) -> None:
    for line in followers(shares):
        print(visible(line, None), file=sys.stderr)


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
    V = from_rows(adata.X if layer is None else adata.layers[layer], names=names, **reading)
    if not flag("use_highly_variable", use_highly_variable) or _VARIABLE not in adata.var:
        return V, None, others
    genes = np.flatnonzero(adata.var[_VARIABLE])
    if V.observed is not None or genes.size == 0:
        reason = "missing or weighted entries need all genes" if genes.size else "none is marked"
        raise OptionError(f"highly variable genes: {reason}; give use_highly_variable=False")
    view = take_features(V, genes, dtype=str(V.dtype))
    return hold_copy(view) if V.is_in_memory else view, genes, others
