"""Counts of genes in cells as Cell Ranger of 10x Genomics writes them: a folder or an ``.h5`` file.

Both store genes in rows and cells in columns, and say so: here every cell is a sample, every gene a
feature. Genes are called by their symbols; those that share one get their identifiers too.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import FileFormatError
from ..names import Names
from ..text import visible
from .arrays import open_matrix_market
from .hdf5 import hdf5_store, open_member
from .limits import listed
from .source import CompressedSource, NamedMatrix, Remark
from .text import read_names

_MATRIX_ENDINGS = ("matrix.mtx", "matrix.mtx.gz")
_GENE_FILES, _CELL_FILES = ("features.tsv", "genes.tsv"), ("barcodes.tsv",)
_PARTS = {"barcodes", "data", "indices", "indptr", "shape"}  # of a group
_FIXED = "a 10x matrix says itself that cells are samples"
_READING = "each cell is a sample, each gene a feature"
_COUNTS = "Gene Expression"


def matrix_of_folder(folder: Path) -> Path | None:
    """The matrix in a folder of 10x, whose name may have something in front; None without one."""
    names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    found = [name for name in names if name.lower().endswith(_MATRIX_ENDINGS)]
    if len(found) > 1:
        raise FileFormatError(
            f"{folder} holds {listed(found)}: put each matrix, with its genes and its barcodes, "
            "into a folder of its own"
        )
    return folder / found[0] if found else None


def open_10x_folder(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open a folder with a matrix in Matrix Market, a table of genes and one of barcodes."""
    matrix: Any = matrix_of_folder(path)
    prefix = matrix.name[: matrix.name.lower().rindex("matrix.mtx")]
    genes = _beside(path, prefix, _GENE_FILES)
    cells = read_names(_beside(path, prefix, _CELL_FILES), budget, column=0)
    identifiers, symbols, kinds = (read_names(genes, budget, column) for column in range(3))
    counts: Any = open_matrix_market(matrix, None, budget).matrix
    return _named(str(matrix), counts.T, cells, symbols, identifiers, kinds)


def _beside(folder: Path, prefix: str, names: Sequence[str]) -> Path:
    for name in names:
        for ending in ("", ".gz"):
            path = folder / f"{prefix}{name}{ending}"
            if path.is_file():
                return path
    raise FileFormatError(
        f"{folder} holds {prefix}matrix.mtx without {prefix}{names[0]}: copy the whole folder of "
        "10x, or open the .mtx file itself"
    )


def open_h5(path: Path, dataset: str | None, budget: int) -> NamedMatrix:
    """Open a member of an HDF5 file, or X of AnnData, or the counts of 10x."""
    with hdf5_store(path, budget) as store:
        keys = sorted(store.root.keys())
        name = keys[0] if dataset is None and len(keys) == 1 else dataset
        group: Any = () if name is None else store.find(name)
        is_group = hasattr(group, "keys") and set(group.keys()) >= _PARTS
        if not is_group or not ("features" in group or "genes" in group):
            return open_member(store, dataset)
        places = ("barcodes", "gene_names", "genes")
        if "features" in group:
            places = ("barcodes", "features/name", "features/id")
        cells, symbols, identifiers = (store.texts(place, group) for place in places)
        kind = "features/feature_type"
        kinds = (store.texts(kind, group) if kind in group else None) or ()
        parts = [store.find(part, group) for part in ("data", "indices", "indptr")]
        title, shape = f"{path}:{group.name}", store.find("shape", group)[:]
        genes = CompressedSource(title, path, store.stamp(group), parts, shape, "csc")
        return _named(title, genes.turned(), cells, symbols, identifiers, kinds)


def _named(
    name: str,
    counts: Any,
    cells: list[str] | None,
    symbols: list[str] | None,
    identifiers: list[str] | None,
    kinds: Sequence[str],
) -> NamedMatrix:
    """Counts with the names of cells and genes, if there are as many as the matrix has."""
    lengths = {len(names) for names in (symbols, identifiers) if names is not None}
    if lengths - {counts.shape[1]} or (cells is not None and len(cells) != counts.shape[0]):
        raise FileFormatError(
            f"{name} has {counts.shape[1]} genes and {counts.shape[0]} cells, and there are names "
            f"of {len(symbols or ())} genes and {len(cells or ())} cells: copy or download it again"
        )
    shared, pairs = Counter(symbols), zip(symbols or (), identifiers or (), strict=True)
    genes = [gene if shared[gene] == 1 else f"{gene} ({other})" for gene, other in pairs]
    remark, found = _READING, Counter(kinds)
    if len(found) > 1 and _COUNTS in found:
        parts = ", ".join(f"{count} of {visible(kind)}" for kind, count in found.most_common(5))
        remark += f"; there are features of several kinds: {parts}"
    names = Names.of(cells, genes or None)
    return NamedMatrix(counts, names, remarks=(Remark(remark),), fixed=_FIXED)
