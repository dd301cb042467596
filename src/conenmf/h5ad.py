"""Annotations in .h5ad files: of a copy of one, or of counts that are written as they are read.

The packages anndata and h5py are needed when something is written, not before.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from .data.blocks import Array, Block, compressed
from .data.matrix import DataMatrix
from .text import PathLike

Annotation: TypeAlias = tuple[str, str, Any]
"""Where it goes (obsm, varm, obs, var or uns), under which name, and what it is."""

_COPIED_BYTES = 16 << 20  # at a time


def categories(labels: Array, first: int = 0) -> Any:
    """Return labels as scanpy takes groups: categories "0", "1", ...; a cell without any has none.

    `first` is the number of the first component.
    """
    import pandas as pd

    present = np.unique(labels[labels >= 0])
    codes = np.where(labels < 0, -1, np.searchsorted(present, labels))
    return pd.Categorical.from_codes(codes, [str(k + first) for k in present])


def annotated_copy(source: PathLike, stream: BinaryIO, annotations: Sequence[Annotation]) -> None:
    """Copy an .h5ad file to an open one, and add to it; the matrix is copied, not read."""
    with open(source, "rb") as original:
        shutil.copyfileobj(original, stream, _COPIED_BYTES)
    with _opened(stream, "r+") as copy:
        _add(copy, annotations)


def annotated_counts(V: DataMatrix, stream: BinaryIO, annotations: Sequence[Annotation]) -> None:
    """Write counts (genes, cells), with their names, to an open .h5ad file, and add to it."""
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

    with _opened(stream, "w") as file:
        write_elem(file, "/", AnnData(obs=cells, var=genes))
        file.pop("X", None)
        append(V.sweep(_compressed, reduce=append)[0], [])
        _add(file, annotations)


@contextmanager
def _opened(stream: BinaryIO, mode: str) -> Iterator[Any]:
    """The file of a stream as HDF5; it is locked already, as all that are not complete."""
    import h5py

    stream.flush()
    with h5py.File(stream.name, mode, locking=False) as file:
        yield file


def _add(file: Any, annotations: Sequence[Annotation]) -> None:
    from anndata.io import write_elem

    for place, name, values in annotations:
        home = _home(file, place, values)
        write_elem(home, name, values)
        if place in ("obs", "var"):
            columns = [one for one in home.attrs["column-order"] if one != name]
            home.attrs["column-order"] = np.array([*columns, name], dtype=object)


def _home(file: Any, place: str, values: Any) -> Any:
    """The group of an annotation; of genes it is that of raw, if only there are as many."""
    if place in ("var", "varm") and len(values) != _n_rows(file["var"]) and "raw" in file:
        place = f"raw/{place}"
    return file.require_group(place)


def _n_rows(table: Any) -> int:
    return int(table[table.attrs["_index"]].shape[0])


def _compressed(block: Block) -> tuple[list[Block]]:
    return ([compressed(block).T.astype(np.float32)],)
