"""Results for other programs: tables in CSV or Parquet, annotations of AnnData, plain facts.

Tables are written a few thousand rows at a time, because H may be larger than memory; CSV by Python
alone, Parquet by pyarrow. Every file appears under its name only when it is complete. `save` writes
results that this library can read again.
"""

from __future__ import annotations

import codecs
import csv
import importlib.util
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from .arguments import choice, text
from .arguments import path as folder_path
from .atomic import files_written_whole, flush, output_file, writing, written_whole
from .data.blocks import Block, compressed
from .data.matrix import Aligned, DataMatrix
from .errors import DataError, DataTypeError, Option, OptionError
from .judge.details import ConeDiagnosis
from .judge.diagnosis import Diagnosis
from .names import Names
from .result import Factorization, result_of
from .solve.scenes import abundances
from .text import shown
from .types import Array, Facts, PathLike, Texts, Titles

TABLES = ("csv", "parquet")
RESULT_FILE = "result.npz"
ANNOTATED_FILE = "annotated.h5ad"
REPORT_FILE = "report.html"
TABLE_NAMES = (
    "components",
    "coefficients",
    "labels",
    "history",
    "verdict",
    "group_scales",
    "group_table",
    "affinities",
)
_BATCH_ROWS = 1 << 16
_FORMULA_SIGNS = "=+-@\t\r\n\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}" + (
    "\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}"
)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def facts(result: Factorization) -> Facts:
    """Describe a result in plain values: numbers, texts, lists and dictionaries."""
    values: Facts = {
        "n_components": result.K,
        "n_samples": result.n_samples,
        "n_features": result.n_features,
        "loss": result.loss,
        "objective": result.objective,
        "relative_error": result.relative_error,
    }
    values |= {
        "n_iter": result.n_iter,
        "stop_reason": result.stop_reason,
        "seconds": result.seconds,
        "passes": result.passes,
        "settings": result.settings,
        "problem": result.problem.plain(),
        "K_decided_by": result.K_decided_by,
        "init_used": result.init_used,
        "summary": result.summary(),
    }
    if result.names.feature_names is not None:
        values["top_features"] = result.top_features()
    if result.groups is not None:
        values["groups"] = result.groups
    if result.race is not None:
        values["race"] = {"entrants": [one._asdict() for one in result.race.entrants]}
    if result.certificate is not None:
        values["certificate"] = vars(result.certificate)
    others = result.known_uniqueness
    if others is not None:
        values["uniqueness"] = {
            "verdicts": others.verdicts,
            "angles": others.angles,
            "error_ratios": others.error_ratios,
            "radii": others.radii,
            "spare": others.spare,
            "in_words": others.lines(result.component_names),
        }
    if result.diagnosis is not None:
        values |= _facts_of_diagnosis(result.diagnosis)
    return json_values(values)


def _facts_of_diagnosis(diagnosis: Diagnosis) -> Facts:
    details = diagnosis.details
    verdict = {
        "headline": diagnosis.headline,
        "components": diagnosis.components,
        "reasons": diagnosis.reasons,
        "agreement": diagnosis.agreement,
        "structure": diagnosis.structure,
        "far_structure": diagnosis.far_structure,
        "class_shares": diagnosis.class_shares,
        "rows": [row._asdict() for row in diagnosis.rows],
    }
    return {
        "verdict": verdict,
        "rank": {"K": details.rank.K, "margin": details.rank.margin},
        "samples_of_component": details.sizes,
        "cones": details.cones and _facts_of_cones(details.cones),
    }


def _facts_of_cones(cones: ConeDiagnosis) -> Facts:
    geometry = cones.geometry
    pairwise = geometry.pairwise
    angles = {
        "assumption": geometry.verdict,
        "margin": geometry.margin,
        "pairwise_separation": pairwise.value if len(cones.sizes) > 1 else None,
        "pairwise_separation_is_exact": pairwise.is_exact,
        "closest": geometry.closest,
        "size_angles": geometry.angles,
    }
    return angles | {
        "samples": cones.sizes,
        "cr1_error": cones.error,
        "cr1_bound": cones.bound,
    }


def json_values(value: object) -> Any:
    """Return values that JSON supports: arrays become lists, NaN and infinity become null."""
    text = json.dumps(value, default=lambda array: array.tolist())
    return json.loads(text, parse_constant=lambda _: None)


def check_packages(tables: str, *, anndata: bool = False) -> None:
    """Check that the packages for writing are installed, before there are results."""
    needed = []
    if tables == "parquet":
        needed.append("pyarrow")
    if anndata:
        needed.append("anndata")
    for package in needed:
        if importlib.util.find_spec(package) is None:
            raise ImportError(
                f"the package {package} is needed for this: pip install 'conenmf[files]'"
            )


def write_tables(
    result: object,
    folder: PathLike,
    kind: str = "csv",
) -> list[Path]:
    """Write components, coefficients, labels, history and the verdict; return their paths.

    The verdict on each component is written if the result was judged. Of a fit with groups, there
    are also the scales of features in each group, and which components it uses. Labels have the
    weight of each sample after ``robust="samples"``, and symmetric fits their affinities.

    Features and samples are rows, components are columns; the first column has the names. In CSV, a
    name that a spreadsheet would read as a formula gets an apostrophe in front.

    Parameters
    ----------
    result : Factorization or fitted ConeNMF
    folder : path
        An existing folder.
    kind : {"csv", "parquet"}

    Examples
    --------
    >>> import tempfile
    >>> from conenmf import factorize, from_columns
    >>> result = factorize(from_columns([[3.0, 3.0, 0.0], [0.0, 4.0, 5.0]]), 1)
    >>> [path.name for path in write_tables(result, tempfile.mkdtemp())]
    ['components.csv', 'coefficients.csv', 'labels.csv', 'history.csv']
    """
    result = result_of(result)
    kind = choice("tables", kind, TABLES)
    check_packages(kind)
    names = result.names
    target = Path(folder_path("folder", folder))
    labels = np.asarray(result.labels)
    history = {
        "iteration": np.arange(1, result.n_iter + 1),
        "relative_error": result.history.relative_error,
        "seconds": result.history.elapsed,
        "passes": result.history.passes,
    }
    of_samples = {"sample": _row_names(names.sample_names, labels.size), "component": labels}
    if result.sample_weights is not None:
        of_samples["weight"] = result.sample_weights
    titles = result.component_names
    tables: dict[str, Iterable[Facts]] = {
        "components": _rows_of_factor("feature", names.feature_names, result.W, titles),
        "coefficients": _coefficients(result, titles),
        "labels": [of_samples],
        "history": [history],
    }
    if result.diagnosis is not None:
        tables["verdict"] = [_verdict_of_components(result.diagnosis, titles)]
    scales, uses = result.group_scales, result.group_table
    if scales is not None and uses is not None:
        of_features = ("feature", names.feature_names)
        tables["group_scales"] = _rows_of_factor(*of_features, scales.T, result.groups)
        tables["group_table"] = _rows_of_factor("group", result.groups, uses, titles)
    if result.affinities is not None:
        tables["affinities"] = _rows_of_factor("component", titles, result.affinities, titles)
    paths = [output_file(target / f"{name}.{kind}") for name in tables]
    with files_written_whole(paths) as streams:
        for path, stream, batches in zip(paths, streams, tables.values(), strict=True):
            with writing(path):
                _write_batches(stream, kind, iter(batches))
    return paths


def _verdict_of_components(diagnosis: Diagnosis, names: Texts) -> Facts:
    """Return the grade of each component with its reason, as columns."""
    return {
        "component": names,
        "grade": diagnosis.components,
        "reason": diagnosis.reasons,
        "agreement": diagnosis.agreement,
    }


def write_coefficients(
    path: PathLike,
    A: Aligned,
    names: Names,
    component_names: Titles = None,
) -> None:
    """Write coefficients (n_samples, K) in the format of the file's ending.

    ``.csv`` and ``.parquet`` have the names of the samples in their first column, and the names of
    the components (by default numbers) in their first line; ``.npy`` is the bare array.
    """
    target = output_file(path)
    kind = target.suffix.lower().removeprefix(".")
    with written_whole(target) as stream:
        if kind == "npy":
            np.save(stream, np.asarray(A), allow_pickle=False)
        else:
            rows = _rows_of_factor("sample", names.sample_names, A, component_names)
            _write_batches(stream, kind, rows)


def check_table(path: PathLike) -> None:
    """Check that a table can be written under this name."""
    kind = output_file(path).suffix.lower().removeprefix(".")
    if kind != "npy" and kind not in TABLES:
        raise OptionError(f"{path}: a table ends in .csv, .parquet or .npy")
    check_packages(kind)


def _row_names(names: Texts | None, count: int) -> Any:
    return np.arange(count) if names is None else names


def _rows_of_factor(
    header: str,
    names: Texts | None,
    factor: Aligned,
    titles: Titles,
) -> Iterator[Facts]:
    """Yield the columns of W (F, K), or of the transpose of H (N, K), some rows at a time.

    Columns are named by `titles`, or by numbers if titles repeat.
    """
    K = factor.shape[1]
    if titles is None or len({header, *titles}) <= K:
        titles = [f"component {k}" for k in range(K)]
    row_names = _row_names(names, factor.shape[0])
    for start in range(0, factor.shape[0], _BATCH_ROWS):
        batch = slice(start, start + _BATCH_ROWS)
        rows = np.asarray(factor[batch])
        yield {header: row_names[batch], **dict(zip(titles, rows.T, strict=True))}


def _coefficients(result: Factorization, titles: Titles) -> Iterator[Facts]:
    """Yield coefficients; of a scene whose brightness varies, abundances and the brightness."""
    for rows in _rows_of_factor("sample", result.names.sample_names, result.H.T, titles):
        if not result.is_shaded:
            yield rows
            continue
        (header, *columns) = rows
        values = np.column_stack([rows[title] for title in columns])
        shares = dict(zip(columns, abundances(values).T, strict=True))
        yield {header: rows[header], **shares, "brightness": values.sum(axis=1)}


def _write_batches(stream: BinaryIO, kind: str, batches: Iterator[Facts]) -> None:
    if kind == "parquet":
        _write_parquet(stream, batches)
        return
    first = next(batches)
    write_lines(stream, [map(no_formula, first)], quoting=csv.QUOTE_NONNUMERIC)
    for batch in chain([first], batches):
        columns = [_plain_column(values) for values in batch.values()]
        write_lines(stream, zip(*columns, strict=True), quoting=csv.QUOTE_NONNUMERIC)


def _plain_column(values: Array | Iterable[str]) -> Iterable[object]:
    return plain(values) if isinstance(values, np.ndarray) else map(no_formula, values)


def write_csv(target: Path, header: Iterable[object], rows: Iterable[Iterable[object]]) -> None:
    """Write a table; cells with a comma or a quote are quoted, and formulas are escaped."""
    lines = ([no_formula(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    with written_whole(target) as stream:
        write_lines(stream, chain([header], lines))


def write_lines(stream: BinaryIO, rows: Iterable[Iterable[object]], **form: Any) -> None:
    r"""Write rows of texts and numbers in a form of `csv.writer`.

    >>> from io import BytesIO
    >>> stream = BytesIO()
    >>> write_lines(stream, [["an oak", 0.1], ["elm", 3]], delimiter=" ")
    >>> stream.getvalue()
    b'"an oak" 0.1\nelm 3\n'
    """
    text: Any = codecs.getwriter("utf-8")(stream)
    csv.writer(text, lineterminator="\n", **form).writerows(rows)


def plain(numbers: Array) -> list[Any]:
    """Return numbers that `csv` writes with the shortest digits of their precision.

    >>> plain(np.array([0.1, 3.0], np.float32))
    [np.float32(0.1), np.float32(3.0)]
    """
    return list(numbers) if numbers.dtype == np.float32 else numbers.tolist()


def _write_parquet(stream: BinaryIO, batches: Iterator[Facts]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    tables = (pa.table({title: _column(x) for title, x in batch.items()}) for batch in batches)
    first = next(tables)
    with parquet.ParquetWriter(stream, first.schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table)


def _column(values: Iterable[str]) -> Array | list[str]:
    if isinstance(values, np.ndarray):
        return np.ascontiguousarray(values)
    return list(values)


def no_formula(name: str) -> str:
    """Return a name that spreadsheets do not read as a formula, with an apostrophe if needed.

    >>> [no_formula(name) for name in ("=1+1", "gene", "-0.5", "-x")]
    ["'=1+1", 'gene', '-0.5', "'-x"]
    """
    is_formula = name[:1] in _FORMULA_SIGNS and not _NUMBER.fullmatch(name)
    return f"'{name}" if name and is_formula else name


# --- AnnData ----------------------------------------------------------------------------------


def annotate(adata: Any, result: object, key: str = "conenmf", genes: Array | None = None) -> None:
    """Add a result to an AnnData object of the same cells and genes.

    ``obsm["X_" + key]`` gets the coefficients (cells, K), ``varm[key]`` the components (genes,
    K), ``obs[key]`` the component of each cell as a category, like scanpy's groups, and
    ``uns[key]`` a dict of settings and results.

    Parameters
    ----------
    adata : AnnData
        Changed in place.
    result : Factorization or fitted ConeNMF
    key : str
        The name of the added entries.
    genes : array of integers, optional
        If the result has only some genes: their indices in `adata`. The other genes get zeros.

    Examples
    --------
    >>> import anndata
    >>> import numpy as np
    >>> from conenmf import factorize, from_rows
    >>> adata = anndata.AnnData(np.array([[3.0, 0.0], [3.0, 4.0], [0.0, 5.0]]))
    >>> annotate(adata, factorize(from_rows(adata.X), 1))
    >>> adata.obsm["X_conenmf"].shape, adata.varm["conenmf"].shape
    ((3, 1), (2, 1))
    """
    check_annotated(adata)
    result = result_of(result)
    key = _check_key(key)
    if tuple(adata.shape) != (result.n_samples, result.n_features) and genes is None:
        raise DataError(
            f"the result is of {result.n_samples} cells and {result.n_features} genes, the AnnData "
            f"has {adata.shape}: use the same"
        )
    for place, name, values in _annotations(result, key):
        if place == "varm" and genes is not None:
            chosen = values
            values = np.zeros((adata.shape[1], result.K), values.dtype)
            values[genes] = chosen
        getattr(adata, place)[name] = values


def check_annotated(adata: object) -> None:
    """Raise `DataTypeError` if this is not like an AnnData object."""
    parts = ("X", "layers", "obs", "obsm", "obs_names", "shape", "uns", "var_names", "varm")
    if isinstance(adata, type) or not all(hasattr(adata, part) for part in parts):
        raise DataTypeError(f"adata={shown(adata)}, expected an AnnData object")


def _check_key(value: object) -> str:
    """Return a valid name for a part of an HDF5 file."""
    key = text("key", value)
    if key in ("", ".") or "/" in key or not key.isprintable():
        raise OptionError(Option("key", key), ", expected a name without / and control characters")
    return key


def _annotations(result: Factorization, key: str) -> list[Annotation]:
    coefficients = np.ascontiguousarray(result.H.T)
    labels = categories(np.asarray(result.labels))
    return [
        ("obsm", f"X_{key}", coefficients),
        ("varm", key, np.ascontiguousarray(result.W)),
        ("obs", key, labels),
        ("uns", key, unstructured(facts(result))),
    ]


def annotate_file(source: PathLike, target: PathLike, result: Factorization) -> None:
    """Write a copy of an ``.h5ad`` file with a result added, as by `annotate`.

    The matrix is copied, not read.
    """
    with written_whole(output_file(target)) as stream:
        annotated_copy(source, stream, _annotations(result, "conenmf"))


# --- files of AnnData -------------------------------------------------------------------------


# The place (obsm, varm, obs, var or uns), the name, and the values of an annotation.
Annotation: TypeAlias = tuple[str, str, Any]

_COPIED_BYTES = 16 << 20  # at a time


def categories(labels: Array, first: int = 0) -> Any:
    """Return labels as scanpy's groups: categories "0", "1", ...; none for cells with label -1.

    `first` is the number of the first component in the categories.
    """
    import pandas as pd

    present = np.unique(labels[labels >= 0])
    codes = np.where(labels < 0, -1, np.searchsorted(present, labels))
    return pd.Categorical.from_codes(codes, [str(k + first) for k in present])


def unstructured(facts: Facts) -> Facts:
    """Return facts in the form of AnnData files: dicts of texts, numbers and arrays, without None.

    >>> unstructured({"K": 3, "shares": [0.5, 0.5], "race": None, "markers": [["a", "b"], ["c"]]})
    {'K': 3, 'shares': array([0.5, 0.5]), 'markers': '[["a", "b"], ["c"]]'}
    """
    kept: Facts = {}
    for name, value in json_values(facts).items():
        if isinstance(value, dict):
            kept[name] = unstructured(value)
        elif isinstance(value, list):
            is_flat = all(isinstance(one, float | int | str) for one in value)
            kept[name] = np.array(value) if is_flat else json.dumps(value)
        elif value is not None:
            kept[name] = value
    return kept


def annotated_copy(source: PathLike, stream: BinaryIO, annotations: Sequence[Annotation]) -> None:
    """Copy an .h5ad file to an open one, and add annotations; the matrix is copied, not read."""
    with open(source, "rb") as original:
        shutil.copyfileobj(original, stream, _COPIED_BYTES)
    with _open(stream, "r+") as copy:
        _add(copy, annotations)


def _rows_of_cells(block: Block) -> tuple[list[Block]]:
    return ([compressed(block).T.astype(np.float32)],)


def annotated_counts(V: DataMatrix, stream: BinaryIO, annotations: Sequence[Annotation]) -> None:
    """Write counts (genes, cells) and names to an open .h5ad file, and add annotations."""
    import pandas as pd
    from anndata import AnnData
    from anndata.io import sparse_dataset, write_elem

    F, N = V.shape
    cells = pd.DataFrame(index=[V.names.sample(n) for n in range(N)])
    genes = pd.DataFrame(index=[V.names.feature(f) for f in range(F)])

    def append(first: list[Block], more: list[Block]) -> list[Block]:
        for rows in (*first, *more):
            if "X" in file:
                sparse_dataset(file["X"]).append(rows)
            else:
                write_elem(file, "X", rows, dataset_kwargs={"compression": "gzip"})
        return []

    with _open(stream, "w") as file:
        write_elem(file, "/", AnnData(obs=cells, var=genes))
        file.pop("X", None)
        (last,) = V.sweep(_rows_of_cells, reduce=append)
        append(last, [])
        _add(file, annotations)


@contextmanager
def _open(stream: BinaryIO, mode: str) -> Iterator[Any]:
    """Open the file of a stream as HDF5; the stream is locked already, as all incomplete ones."""
    import h5py

    stream.flush()
    try:
        with h5py.File(stream.name, mode, locking=False) as file:
            yield file
    except RuntimeError as error:  # HDF5 does not say that the disk is full when it closes a file
        stream.seek(0, os.SEEK_END)
        stream.write(bytes(_COPIED_BYTES))  # fails with the true reason
        flush(stream)
        raise OSError(f"HDF5 failed: {error}") from error


def _add(file: Any, annotations: Sequence[Annotation]) -> None:
    from anndata.io import write_elem

    for place, name, values in annotations:
        home = _home(file, place, values)
        write_elem(home, name, values)
        if place in ("obs", "var"):
            order = home.attrs["column-order"]
            columns = [*order[order != name], name]
            home.attrs["column-order"] = np.array(columns, dtype=object)


def _home(file: Any, place: str, values: Any) -> Any:
    """Return the group for an annotation; for genes it is raw's if only raw has as many genes.

    Names are an array or a group of arrays, by the versions of pandas and anndata that wrote them.
    """
    from anndata.io import read_elem

    names = read_elem(file["var"][file["var"].attrs["_index"]])
    if place in ("var", "varm") and len(values) != len(names) and "raw" in file:
        place = f"raw/{place}"
    return file.require_group(place)
