"""Counts of genes in cells as Cell Ranger of 10x Genomics writes them: a folder or an ``.h5`` file.

Both store genes in rows and cells in columns, and say so: here every cell is a sample, every gene a
feature. Genes are called by their symbols; those that share one get their identifiers too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import FileFormatError
from ...names import Names
from ...text import visible
from .layouts import CompressedSource
from .limits import listed
from .market import open_matrix_market
from .name_lists import read_names
from .sources import NamedMatrix, Remark
from .stores import Store, hdf5_store, open_member

__all__ = ["matrix_of_folder", "open_10x_folder", "open_h5"]

_MATRIX_ENDINGS = ("matrix.mtx", "matrix.mtx.gz")
_GENE_FILES, _CELL_FILES = ("features.tsv", "genes.tsv"), ("barcodes.tsv",)
_PARTS = {"barcodes", "data", "indices", "indptr", "shape"}  # of a group
_FIXED = "a 10x matrix says itself that cells are samples"
_READING = "each cell is a sample, each gene a feature"
_COUNTS = "Gene Expression"


def matrix_of_folder(folder: Path) -> Path | None:
    """The matrix in a folder of 10x, whose name may have something in front; None without one."""
    found = sorted(
        path
        for path in folder.iterdir()
        if path.name.lower().endswith(_MATRIX_ENDINGS) and not path.name.startswith(".")
    )
    if len(found) > 1:
        raise FileFormatError(
            f"{folder} holds {listed(path.name for path in found)}: put each matrix, with its "
            "genes and its barcodes, into a folder of its own"
        )
    return found[0] if found else None


def open_10x_folder(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open a folder with a matrix in Matrix Market, a table of genes and one of barcodes."""
    matrix = matrix_of_folder(path)
    assert matrix is not None
    prefix = matrix.name[: matrix.name.lower().rindex("matrix.mtx")]
    genes = _beside(path, prefix, _GENE_FILES)
    cells = read_names(_beside(path, prefix, _CELL_FILES), budget, column=0)
    identifiers, symbols, kinds = (read_names(genes, budget, column) for column in range(3))
    counts = open_matrix_market(matrix, None, budget).turned().matrix
    if counts.shape != (len(cells), len(symbols)):
        raise FileFormatError(
            f"{matrix} has {counts.shape[1]} rows and {counts.shape[0]} columns, and beside it are "
            f"{len(symbols)} genes and {len(cells)} barcodes: copy or download the folder again"
        )
    names = Names.of(cells, _different(symbols, identifiers))
    return NamedMatrix(counts, names, remarks=_remarks(kinds), fixed=_FIXED)


def _beside(folder: Path, prefix: str, names: Sequence[str]) -> Path:
    for name in names:
        for ending in ("", ".gz"):
            path = folder / f"{prefix}{name}{ending}"
            if path.is_file() and path.resolve().is_relative_to(folder.resolve()):
                return path
    raise FileFormatError(
        f"{folder} holds {prefix}matrix.mtx without {prefix}{names[0]}: copy the whole folder of "
        "10x, or open the .mtx file itself"
    )


def _different(symbols: list[str], identifiers: list[str]) -> list[str]:
    """Symbols of genes; those that several have in common with their identifiers."""
    counts = Counter(symbols)
    pairs = zip(symbols, identifiers, strict=True)
    return [name if counts[name] == 1 else f"{name} ({other})" for name, other in pairs]


def _remarks(kinds: Sequence[str]) -> tuple[Remark, ...]:
    counts = Counter(kinds)
    if len(counts) < 2 or _COUNTS not in counts:
        return (Remark(_READING),)
    parts = ", ".join(f"{count} of {visible(kind)}" for kind, count in counts.most_common(5))
    return (Remark(f"{_READING}; there are features of several kinds: {parts}"),)


# --- .h5 --------------------------------------------------------------------------------------


def open_h5(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open a member of an HDF5 file, or X of AnnData, or the counts of 10x."""
    with hdf5_store(path, budget) as store:
        group = _group_of_10x(store, dataset)
        return open_member(store, dataset) if group is None else _open_group(store, group)


def _group_of_10x(store: Store, dataset: str | None) -> Any:
    """The group of 10x that is meant; None if it is something else."""
    keys = sorted(getattr(store.root, "keys", tuple)())
    name = keys[0] if dataset is None and len(keys) == 1 else dataset
    if name is None:
        return None
    group = store.find(name)
    is_group = not hasattr(group, "dtype") and set(group.keys()) >= _PARTS
    return group if is_group and {"features", "genes"} & set(group.keys()) else None


def _open_group(store: Store, group: Any) -> NamedMatrix:
    name = f"{store.path}:{visible(group.name)}"
    is_new = "features" in group
    places = ("features/id", "features/name") if is_new else ("genes", "gene_names")
    identifiers, symbols = (store.texts(place, group) for place in places)
    cells = store.texts("barcodes", group)
    stored = store.find("shape", group)
    if stored.shape != (2,):
        raise FileFormatError(f"{name} has a shape of {stored.shape}, expected two sides")
    data, indices, indptr = (store.find(part, group) for part in ("data", "indices", "indptr"))
    parts = (data, indices, indptr)
    counts = CompressedSource(name, store.path, parts, stored[:], "csc", store.budget)
    lengths = {len(names) for names in (identifiers, symbols) if names is not None}
    if lengths - {counts.shape[0]} or (cells is not None and len(cells) != counts.shape[1]):
        raise FileFormatError(
            f"{name} has {counts.shape[0]} genes and {counts.shape[1]} cells, and other numbers of "
            "their names: copy or download it again"
        )
    genes = None
    if symbols is not None and identifiers is not None:
        genes = _different(symbols, identifiers)
    has_kinds = is_new and "feature_type" in store.find("features", group)
    kinds = (store.texts("features/feature_type", group) if has_kinds else None) or ()
    return NamedMatrix(
        counts.turned(), Names.of(cells, genes), remarks=_remarks(kinds), fixed=_FIXED
    )
