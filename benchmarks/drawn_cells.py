"""Cells drawn from a stated model of gene programs, in memory or streamed to an .h5ad file.

The mean share of gene g in all cells is lognormal(0, 1). A program multiplies a tenth of the genes,
drawn for it, by lognormal(2, 0.5), and is scaled to a sum of one: its spectrum, the truth. The
first programs are identities: every cell has one, and uses it with a share of 0.6 or more. The
others, a quarter of all, are activities: a cell uses the first of those that it draws, each with
probability 0.3, with a share that is uniform between 0.1 and 0.4, and what is left belongs to the
identity. A cell has lognormal(log(depth), 0.5) counts, each of which is of a program by these
shares, and then of a gene by the spectrum of that program.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import scipy.sparse as sp

_LEVELS = 1 << 16  # in which the spectra are rounded, so that a count is one look-up
_ACTIVE_SHARE, _ACTIVE_CELLS = (0.1, 0.4), 0.3
_AT_A_TIME = 2000  # cells


class Model(NamedTuple):
    """What cells are drawn from: spectra (genes, programs) and the counts of a cell."""

    spectra: np.ndarray
    n_identities: int
    depth: float


def draw_model(n_genes: int, n_programs: int, depth: float, rng: np.random.Generator) -> Model:
    """Draw the spectra; see the docstring of this file."""
    mean = rng.lognormal(0.0, 1.0, n_genes)
    spectra = np.empty((n_genes, n_programs))
    for k in range(n_programs):
        own = rng.choice(n_genes, n_genes // 10, replace=False)
        spectra[:, k] = mean
        spectra[own, k] *= rng.lognormal(2.0, 0.5, own.size)
    spectra /= spectra.sum(axis=0)
    return Model(spectra, n_programs - n_programs // 4, depth)


def draw_cells(model: Model, n_cells: int, rng: np.random.Generator) -> Iterator[sp.csr_matrix]:
    """Draw counts (cells, genes) in float32, some thousand cells at a time."""
    n_genes, n_programs = model.spectra.shape
    n_activities = n_programs - model.n_identities
    # gene of each of 65536 equal parts of a spectrum
    middles = (np.arange(_LEVELS) + 0.5) / _LEVELS
    genes = np.array(
        [np.searchsorted(np.cumsum(s) / s.sum(), middles) for s in model.spectra.T], np.int64
    )
    genes = np.minimum(genes, n_genes - 1)
    for start in range(0, n_cells, _AT_A_TIME):
        n = min(_AT_A_TIME, n_cells - start)
        shares = np.zeros((n, n_programs))
        active = rng.random((n, n_activities)) < _ACTIVE_CELLS
        active &= np.cumsum(active, axis=1) <= 1  # so that the identity has 0.6 or more
        size = rng.uniform(*_ACTIVE_SHARE, (n, n_activities))
        shares[:, model.n_identities :] = active * size
        identity = rng.integers(model.n_identities, size=n)
        shares[np.arange(n), identity] = 1.0 - shares.sum(axis=1)
        totals = np.maximum(rng.lognormal(np.log(model.depth), 0.5, n), 1.0).astype(np.int64)
        counts = rng.multinomial(totals, shares)
        program = np.repeat(np.tile(np.arange(n_programs), n), counts.ravel())
        cell = np.repeat(np.arange(n), totals)
        gene = genes[program, rng.integers(_LEVELS, size=program.size)]
        drawn = np.bincount(cell * n_genes + gene, minlength=n * n_genes)
        yield sp.csr_matrix(drawn.reshape(n, n_genes).astype(np.float32))


def write_cells(path: Path, model: Model, n_cells: int, rng: np.random.Generator) -> int:
    """Write cells to an .h5ad file as they are drawn; return the number of nonzeros."""
    n_genes = len(model.spectra)
    with h5py.File(path, "w") as file:
        file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        for name, count, letter in (("obs", n_cells, "c"), ("var", n_genes, "g")):
            table = file.create_group(name)
            table.attrs.update(
                {"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"}
            )
            table.attrs.create("column-order", np.array([], dtype=h5py.string_dtype()))
            names = np.char.add(letter, np.arange(count).astype(str)).astype("S")
            index = table.create_dataset(
                "_index", data=names.astype(object), dtype=h5py.string_dtype()
            )
            index.attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})
        for name in ("layers", "obsm", "obsp", "uns", "varm", "varp"):
            group = file.create_group(name)
            group.attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})
        X = file.create_group("X")
        X.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0"})
        X.attrs["shape"] = np.array([n_cells, n_genes])
        chunk = {"shape": (0,), "maxshape": (None,), "chunks": (1 << 18,)}
        data = X.create_dataset("data", dtype=np.float32, **chunk)
        indices = X.create_dataset("indices", dtype=np.int32, **chunk)
        indptr = np.zeros(n_cells + 1, np.int64)
        n_stored, row = 0, 0
        for part in draw_cells(model, n_cells, rng):
            for dataset, values in ((data, part.data), (indices, part.indices)):
                dataset.resize((n_stored + part.nnz,))
                dataset[n_stored:] = values
            indptr[row + 1 : row + 1 + part.shape[0]] = n_stored + part.indptr[1:]
            n_stored, row = n_stored + part.nnz, row + part.shape[0]
        X.create_dataset("indptr", data=indptr)
    return n_stored
