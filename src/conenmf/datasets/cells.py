"""Counts of genes in cells, from a file of AnnData that holds logarithms of them.

Single-cell data are mostly published after preprocessing: ``raw`` holds log(1 + x), where x is the
count of a gene scaled so that all genes of the cell sum to 10,000. The counts follow from these and
the sum before scaling, which ``obs`` keeps; if they are whole numbers, they are right.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..data.blocks import Array
from ..data.files.limits import named_damage
from ..data.files.stores import Store, hdf5_store, open_hdf5
from ..data.resources import memory_budget
from ..errors import FileFormatError
from ..text import decoded

__all__ = ["Cells", "read_cells"]

_SCALED_SUM = 1e4
_TYPES_COLUMN, _TOTALS_COLUMN = "bulk_labels", "n_counts"
_MAX_ROUNDING = 0.25  # largest distance of a count from a whole number


class Cells(NamedTuple):
    """Counts, cells in rows, and the type of each cell."""

    counts: Any
    labels: Array
    barcodes: list[str] | None
    genes: list[str] | None
    types: list[str]


def read_cells(path: Path) -> Cells:
    """Counts and types of the cells of a file."""
    budget = memory_budget(None)
    with hdf5_store(path, budget) as store:
        # Before version 0.7, AnnData had no group for raw, and a table for each data frame.
        old = "raw.X" in store.root
        matrix, genes = ("raw.X", "raw.var") if old else ("raw/X", "raw/var")
        totals = np.asarray(_column(store, _TOTALS_COLUMN), np.float64)
        codes, types = _categories(store)
        barcodes, gene_names = _index(store, "obs"), _index(store, genes)
        store.root.close()
    logs = sp.csr_array(open_hdf5(path, matrix, budget).whole(budget))
    if logs.shape[0] != totals.size or totals.size != codes.size:
        raise FileFormatError(
            f"{path} holds {logs.shape[0]} cells in {matrix}, {totals.size} sums and {codes.size} "
            "types of cells, expected one of each for each cell: copy it again"
        )
    if codes.size and not 0 <= codes.min() <= codes.max() < len(types):
        raise FileFormatError(f"{path} holds a cell without a type: copy it again")
    counts = np.expm1(logs.data.astype(np.float64)) * np.repeat(totals, np.diff(logs.indptr))
    counts /= _SCALED_SUM
    if not (np.abs(counts - np.rint(counts)) < _MAX_ROUNDING).all() or (counts < 0).any():
        raise FileFormatError(
            f"{path} does not hold logarithms of counts in {matrix}, scaled to {_SCALED_SUM:.0f} "
            "counts for each cell: copy it again"
        )
    counts = sp.csr_array((np.rint(counts).astype(np.int64), logs.indices, logs.indptr), logs.shape)
    return Cells(counts, codes.astype(np.int16), barcodes, gene_names, types)


def _column(store: Store, name: str, table: str = "obs") -> Any:
    """A column of a data frame."""
    frame = store.find(table)
    if not hasattr(frame, "dtype"):
        return store.find(name, frame)[:]
    with named_damage(f"{store.path}:{table}/{name}"):
        return frame[name]


def _categories(store: Store) -> tuple[Array, list[str]]:
    """The types of the cells as numbers, and the names of these."""
    frame = store.find("obs")
    if hasattr(frame, "dtype"):
        types = store.find(f"uns/{_TYPES_COLUMN}_categories")[:]
        return np.asarray(_column(store, _TYPES_COLUMN)), _texts(types)
    codes, types = (
        store.find(f"{_TYPES_COLUMN}/{member}", frame)[:] for member in ("codes", "categories")
    )
    return np.asarray(codes), _texts(types)


def _index(store: Store, table: str) -> list[str]:
    frame = store.find(table)
    name = "index" if hasattr(frame, "dtype") else str(frame.attrs["_index"])
    return _texts(_column(store, name, table))


def _texts(texts: Any) -> list[str]:
    return [decoded(text) for text in texts.tolist()]
