"""Counts of 10x: folders and .h5 files of both versions, cells as samples."""

import gzip

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from conenmf import open_data
from conenmf.errors import DataError, FileFormatError
from conenmf.names import Names

COUNTS = sp.csc_array(np.random.default_rng(0).poisson(0.7, (6, 9)))  # genes x cells
GENES = ["ACTB", "CD3E", "MATR3", "MATR3", "NKG7", "GNLY"]
IDS = [f"ENSG{n}" for n in range(6)]
CELLS = [f"AAAC-{n}" for n in range(9)]
NAMES = ("ACTB", "CD3E", "MATR3 (ENSG2)", "MATR3 (ENSG3)", "NKG7", "GNLY")


def write_folder(folder, prefix="", packed=True, genes="features.tsv", kinds=("Gene Expression",)):
    folder.mkdir()
    kinds = (list(kinds) * 6)[:6]
    tables = {
        genes: "".join(f"{i}\t{g}\t{k}\n" for i, g, k in zip(IDS, GENES, kinds, strict=True)),
        "barcodes.tsv": "".join(f"{cell}\n" for cell in CELLS),
    }
    path = folder / f"{prefix}matrix.mtx"
    scipy.io.mmwrite(path, sp.coo_array(COUNTS))
    tables["matrix.mtx"] = path.read_text()
    for name, text in tables.items():
        (folder / f"{prefix}{name}").unlink(missing_ok=True)
        if packed:
            (folder / f"{prefix}{name}.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / f"{prefix}{name}").write_text(text)
    return folder


def write_h5(path, old=False):
    with h5py.File(path, "w") as file:
        group = file.create_group("GRCh38" if old else "matrix")
        group["barcodes"] = np.array(CELLS, "S")
        for part in ("data", "indices", "indptr"):
            group[part] = getattr(COUNTS, part)
        group["shape"] = np.array(COUNTS.shape)
        if old:
            group["genes"], group["gene_names"] = np.array(IDS, "S"), np.array(GENES, "S")
        else:
            group["features/id"] = np.array(IDS, "S")
            group["features/name"] = np.array(GENES, "S")
            group["features/feature_type"] = np.array(["Gene Expression"] * 6, "S")
    return path


def check(V):
    assert V.shape == (6, 9)
    block = V.columns(np.arange(9))
    np.testing.assert_array_equal(sp.csc_array(block).toarray(), COUNTS.toarray())
    assert V.names == Names(tuple(CELLS), NAMES)
    assert V.remarks[0].startswith("10x counts: each cell is a sample, each gene a feature")


@pytest.mark.parametrize(
    "how",
    [{}, {"packed": False}, {"prefix": "GSM1_"}, {"packed": False, "genes": "genes.tsv"}],
)
def test_a_folder(tmp_path, how):
    check(open_data(write_folder(tmp_path / "filtered", **how)))


@pytest.mark.parametrize("old", [False, True])
def test_an_h5_file(tmp_path, old):
    path = write_h5(tmp_path / "filtered.h5", old)
    check(open_data(path))
    check(open_data(path, dataset="GRCh38" if old else "matrix"))


def test_folders_that_are_not_whole(tmp_path, refuses):
    folder = write_folder(tmp_path / "f", packed=False)

    def check_refused(message):
        refuses(FileFormatError, message, lambda: open_data(folder))

    (folder / "barcodes.tsv").write_text("AAAC-1\n")
    message = "1 barcodes beside .* for 9 cells"
    refuses(DataError, message, lambda: open_data(folder))
    (folder / "barcodes.tsv").unlink()
    check_refused(r"matrix\.mtx without barcodes\.tsv: copy the whole")
    (folder / "x_matrix.mtx").write_text("")
    check_refused(r"matrix\.mtx, x_matrix\.mtx: put each matrix")
