"""Counts of genes in cells from Cell Ranger (10x Genomics): a folder or an ``.h5`` file.

Both store genes in rows and cells in columns; here every cell is a sample and every gene a feature.
Genes are named by their symbols; genes with the same symbol get their identifiers too.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from ..errors import FileFormatError, Message
from ..names import Names, check_count
from ..text import visible
from ..types import Texts, Titles
from .arrays import open_matrix_market
from .hdf5 import PARTS, Member, open_hdf5, open_matrix, open_store, texts
from .limits import listed
from .source import NamedMatrix, Reading
from .text import read_names

_FIXED = "a 10x matrix says itself that cells are samples"
_READING = "10x counts: each cell is a sample, each gene a feature"


def matrix_of_folder(folder: Path) -> Path | None:
    """Return the matrix in a 10x folder, whose name may have a prefix; None if there is none."""
    endings = ("matrix.mtx", "matrix.mtx.gz")
    files = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    found = [path for path in files if path.name.endswith(endings)]
    if len(found) > 1:
        raise FileFormatError(
            f"{folder} holds {listed(path.name for path in found)}: put each matrix, with its "
            "genes and its barcodes, into a folder of its own"
        )
    return found[0] if found else None


def open_10x_folder(path: Path, reading: Reading) -> NamedMatrix:
    """Open a folder with a Matrix Market file and tables of genes and barcodes."""
    matrix = matrix_of_folder(path)
    assert matrix is not None
    rows = _table_beside(matrix, ("features", "genes"), reading)
    genes = list(zip(*rows, strict=True))
    cells = [row[0] for row in _table_beside(matrix, ("barcodes",), reading)]
    counts = open_matrix_market(matrix, reading).matrix.T
    return _name(str(matrix), counts, cells, *genes[:3])


def _table_beside(matrix: Path, kinds: Texts, reading: Reading) -> list[list[str]]:
    """Return the rows of the table of genes or cells in the folder of a matrix."""
    prefix = matrix.name.partition("matrix.mtx")[0]
    for kind in kinds:
        for ending in (".tsv", ".tsv.gz"):
            path = matrix.with_name(f"{prefix}{kind}{ending}")
            if path.is_file():
                return [line.split("\t") for line in read_names(path, reading.budget)]
    raise FileFormatError(
        f"{matrix.parent} holds {matrix.name} without {prefix}{kinds[0]}.tsv: copy the whole "
        "folder of 10x, or open the .mtx file itself"
    )


def open_h5(path: Path, reading: Reading) -> NamedMatrix:
    """Open a member of an HDF5 file, X of AnnData, or the counts of 10x."""
    return open_hdf5(path, reading, _open_counts)


def _open_counts(root: Member, path: Path, reading: Reading) -> NamedMatrix:
    keys = list(root.keys())
    dataset = reading.dataset or "/"
    if reading.dataset is None and len(keys) == 1:
        dataset = keys[0]
    group = root.get(dataset)
    members = group if hasattr(group, "keys") else ()
    if "barcodes" not in members or not ("features" in members or "genes" in members):
        return open_store(root, path, reading)
    places: Texts = ("barcodes", "genes", "gene_names")
    if "features" in members:
        places = ("barcodes", "features/id", "features/name", "features/feature_type")
    names = [texts(group[place], path, reading.budget) for place in places if place in members]
    counts = open_matrix(group, path, reading.budget, PARTS, group["shape"][:])
    return _name(counts.name, counts.turned(), *names)


def _name(
    name: str,
    counts: Any,
    cells: Titles,
    identifiers: Titles = None,
    symbols: Titles = None,
    kinds: Titles = None,
) -> NamedMatrix:
    """Return counts with names of cells and genes, if the numbers of names match the matrix."""
    n_cells, n_genes = counts.shape
    n_cell_names = len(cells or range(n_cells))
    n_symbols = len(symbols or range(n_genes))
    check_count(n_cell_names, f"barcodes beside {name}", n_cells, "cells")
    check_count(n_symbols, f"names beside {name}", n_genes, "genes")
    shared = Counter(symbols)
    genes = []
    for gene, identifier in zip(symbols or (), identifiers or (), strict=True):
        genes.append(gene if shared[gene] == 1 else f"{gene} ({identifier})")
    remark = _READING
    by_kind = Counter(kinds)
    if len(by_kind) > 1 and "Gene Expression" in by_kind:
        parts = [f"{count} of {visible(kind)}" for kind, count in by_kind.most_common(5)]
        remark += f"; there are features of several kinds: {', '.join(parts)}"
    return NamedMatrix(counts, Names.of(cells, genes or None), (Message(remark),), _FIXED)
