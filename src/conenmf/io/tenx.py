"""Counts of genes in cells from Cell Ranger (10x Genomics): a folder or an ``.h5`` file.

Both store genes in rows and cells in columns; here every cell is a sample and every gene a feature.
Genes are named by their symbols; genes with the same symbol get their identifiers too.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from ..errors import FileFormatError, Message
from ..names import Names
from ..text import Titles, visible
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
    matrix: Any = matrix_of_folder(path)
    prefix = matrix.name.partition("matrix.mtx")[0]
    tables = {}
    for kind, endings in (("genes", "features genes"), ("cells", "barcodes")):
        names = [f"{prefix}{ending}.tsv{gz}" for ending in endings.split() for gz in ("", ".gz")]
        places = [path / name for name in names if (path / name).is_file()]
        if not places:
            raise FileFormatError(
                f"{path} holds {matrix.name} without {names[0]}: copy the whole folder of 10x, or "
                "open the .mtx file itself"
            )
        tables[kind] = places[0]
    cells = [line.split("\t")[0] for line in read_names(tables["cells"], reading.budget)]
    rows = [line.split("\t") for line in read_names(tables["genes"], reading.budget)]
    genes = list(zip(*rows, strict=True))[:3]
    return _named(str(matrix), open_matrix_market(matrix, reading).matrix.T, cells, *genes)


def open_h5(path: Path, reading: Reading) -> NamedMatrix:
    """Open a member of an HDF5 file, X of AnnData, or the counts of 10x."""
    return open_hdf5(path, reading, _open_counts)


def _open_counts(root: Member, path: Path, reading: Reading) -> NamedMatrix:
    keys = list(root.keys())
    name = keys[0] if reading.dataset is None and len(keys) == 1 else reading.dataset or "/"
    group = root.get(name)
    members = group if hasattr(group, "keys") else ()
    if "barcodes" not in members or not ("features" in members or "genes" in members):
        return open_store(root, path, reading)
    places: tuple[str, ...] = ("barcodes", "genes", "gene_names")
    if "features" in members:
        places = ("barcodes", "features/id", "features/name", "features/feature_type")
    names = [texts(group[place], path, reading.budget) for place in places if place in members]
    genes = open_matrix(group, path, reading.budget, PARTS, group["shape"][:])
    return _named(genes.name, genes.turned(), *names)


def _named(
    name: str,
    counts: Any,
    cells: Titles,
    identifiers: Titles = None,
    symbols: Titles = None,
    kinds: Titles = None,
) -> NamedMatrix:
    """Return counts with names of cells and genes, if the numbers of names match the matrix."""
    sides = tuple(counts.shape)
    found = (len(cells or range(sides[0])), len(symbols or range(sides[1])))
    if found != sides:
        raise FileFormatError(
            f"{name} has {sides[1]} genes and {sides[0]} cells, and there are names of {found[1]} "
            f"genes and {found[0]} cells: copy or download it again"
        )
    shared = Counter(symbols)
    pairs = zip(symbols or (), identifiers or (), strict=True)
    genes = [gene if shared[gene] == 1 else f"{gene} ({other})" for gene, other in pairs]
    remark = _READING
    by_kind = Counter(kinds)
    if len(by_kind) > 1 and "Gene Expression" in by_kind:
        parts = [f"{count} of {visible(kind)}" for kind, count in by_kind.most_common(5)]
        remark += f"; there are features of several kinds: {', '.join(parts)}"
    return NamedMatrix(counts, Names.of(cells, genes or None), (Message(remark),), _FIXED)
