"""HDF5 and Zarr: datasets, sparse groups, AnnData, and what was never written."""

import anndata
import h5py
import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from conenmf import from_rows, open_data
from conenmf.data.memory import SparseMatrix
from conenmf.errors import (
    DataError,
    FileFormatError,
)


@pytest.mark.parametrize("text", [b"csr_matrix", "csr_matrix"])
def test_sparse_groups_of_any_kind(same, tmp_path, X, text):
    half = sp.csr_array(X)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["data"] = half.data.astype(np.float16)
        file["indices"], file["indptr"] = half.indices, half.indptr
        file.attrs["encoding-type"] = np.bytes_(text) if isinstance(text, bytes) else text
        file.attrs["shape"] = X.shape
    V = open_data(tmp_path / "a.h5")
    assert V.dtype == np.float32
    same(V, X.astype(np.float16))
    assert V.columns([5, 5, 2]).shape == (12, 3)


def test_hdf5(same, tmp_path, X, refuses):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["group/dense"] = X
        file.create_dataset("chunked", data=X, chunks=(7, 3), compression="gzip")
        file["columns"] = X.T
        group = file.create_group("sparse")
        matrix = sp.csr_array(X)
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(matrix, name)
        group.attrs["shape"] = X.shape
        file["text"] = "nothing"
    same(open_data(path, dataset="/group/dense"), X)
    same(open_data(f"{path}:/chunked"), X)
    same(open_data(path, dataset="columns", samples_in="columns"), X)
    same(open_data(path, dataset="sparse"), X)
    message = "holds chunked, columns, group, sparse, text: name"
    refuses(FileFormatError, message, lambda: open_data(path))
    refuses(FileFormatError, "has no 'nowhere'", lambda: open_data(path, dataset="nowhere"))
    with h5py.File(path) as file:
        same(from_rows(file["chunked"]), X)
        same(from_rows(file["sparse"]), X)


@pytest.mark.filterwarnings("ignore:.*zarr v[23]:UserWarning")  # how AnnData will write
def test_anndata(same, tmp_path, X):
    cells = anndata.AnnData(sp.csr_matrix(X))
    cells.layers["dense"] = 2 * X
    cells.layers["columns"] = sp.csc_matrix(X)
    cells.write_h5ad(tmp_path / "a.h5ad")
    cells.write_zarr(tmp_path / "a.zarr")
    for path in (tmp_path / "a.h5ad", tmp_path / "a.zarr"):
        same(open_data(path), X)
        same(open_data(path, dataset="layers/dense"), 2 * X)
        same(open_data(path, dataset="layers/columns"), X, SparseMatrix)
    backed = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    same(from_rows(backed.X), X)
    backed.file.close()


@pytest.mark.filterwarnings("ignore:.*zarr v[23]:UserWarning")  # how AnnData will write
def test_raw_counts_of_anndata_have_genes_of_their_own(tmp_path, X):
    cells = anndata.AnnData(sp.csr_matrix(X))
    cells.obs_names = [f"cell {n}" for n in range(len(X))]
    cells.var_names = [f"gene {f}" for f in range(X.shape[1])]
    cells.raw = cells
    few = cells[:, [4, 1, 2]].copy()
    few.write_h5ad(tmp_path / "a.h5ad")
    few.write_zarr(tmp_path / "a.zarr")
    for path in (tmp_path / "a.h5ad", tmp_path / "a.zarr"):
        raw, chosen = open_data(path, dataset="raw/X").names, open_data(path).names
        assert raw.sample_names == chosen.sample_names == tuple(cells.obs_names)
        assert raw.feature_names == tuple(cells.var_names)
        assert chosen.feature_names == ("gene 4", "gene 1", "gene 2")


def test_zarr(same, tmp_path, X):
    same(from_rows(zarr.create_array(tmp_path / "a.zarr", data=X, chunks=(7, 5))), X)
    same(open_data(tmp_path / "a.zarr"), X)
    (tmp_path / "a.zarr").rename(tmp_path / "folder")
    same(open_data(tmp_path / "folder", samples_in="columns"), X.T)


# --- what is not there ---


def hdf5(path, chunks, compression=None):
    with h5py.File(path, "w") as file:
        file.create_dataset("X", (20, 4), "f8", chunks=chunks, compression=compression)[:10] = 1.0
    return path


def zarr_array(path, **options):
    zarr.create_array(path, shape=(20, 4), chunks=(5, 4), dtype="f8", **options)[:10] = 1.0
    return path


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: hdf5(folder / "a.h5", (5, 4)),
        lambda folder: hdf5(folder / "a.h5", (5, 4), "gzip"),
        lambda folder: zarr_array(folder / "a.zarr"),
        lambda folder: zarr_array(folder / "a.zarr", zarr_format=2),
        lambda folder: zarr_array(folder / "a.zarr", shards=(10, 4)),
    ],
)
def test_chunks_that_were_never_written_are_refused(tmp_path, write, refuses):
    """The libraries read them as zeros; so they do if a file of a store was lost."""
    path = write(tmp_path)
    refuses(FileFormatError, "2 of 4 chunks were never written", lambda: open_data(path))
    array = h5py.File(path)["X"] if path.suffix == ".h5" else zarr.open(path, mode="r")
    assert from_rows(array).norms_squared.sum() == 40.0  # as the caller says


@pytest.mark.parametrize("shape", [(6, 4), (3, 2, 4)])
def test_entries_that_are_marked_as_missing(tmp_path, shape, refuses):
    X = np.arange(1, 25, dtype=np.uint16).reshape(shape)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"] = X
        file["X"].attrs["_FillValue"] = np.uint16(65535)
    assert open_data(tmp_path / "a.h5").shape == (4, 6)
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["X"][0, ..., 0] = 65535
    refuses(DataError, "row 0 .*, column 0 .* is NaN", lambda: open_data(tmp_path / "a.h5"))
    V = open_data(tmp_path / "a.h5", missing="nan")
    assert np.asarray(V.observed.weights)[0].tolist() == [False, True, True, True]
    zarr.create_array(str(tmp_path / "a.zarr"), data=X).attrs["missing_value"] = 24
    refuses(DataError, "row 5 .*, column 3 .* is NaN", lambda: open_data(tmp_path / "a.zarr"))


def test_netcdf_4_is_hdf5(same, tmp_path, X, refuses):
    path = tmp_path / "a.nc"
    with h5py.File(path, "w") as file:
        file["conc"], file["time"] = X, np.arange(len(X))
    same(open_data(path, dataset="conc"), X)
    refuses(FileFormatError, "conc, time: name one of them", open_data, path)
    path.write_bytes(b"CDF\x01" + bytes(100))
    refuses(FileFormatError, "is NetCDF 3, which is not read: convert it with", open_data, path)
