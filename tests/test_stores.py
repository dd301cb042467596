import anndata
import h5py
import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from conenmf import from_rows, open_data
from conenmf.errors import (
    DataTypeError,
    FileFormatError,
    ReadError,
)
from conenmf.memory import SparseMatrix


@pytest.fixture
def X(sample_matrix):
    return np.ascontiguousarray(sample_matrix.T)


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


def test_hdf5(same, tmp_path, X):
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
    with pytest.raises(FileFormatError, match="holds chunked, columns, group, sparse, text: name"):
        open_data(path)
    with pytest.raises(FileFormatError, match="has no 'nowhere'"):
        open_data(path, dataset="nowhere")
    with pytest.raises(FileFormatError, match="is a group of dense, expected a dataset"):
        open_data(path, dataset="group")
    with pytest.raises(DataTypeError):
        open_data(path, dataset="text")
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
    with pytest.raises(DataTypeError, match=r"pass its \.X"):
        from_rows(cells)
    backed = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    same(from_rows(backed.X), X)
    backed.file.close()


def test_zarr(same, tmp_path, X):
    array = zarr.create_array(tmp_path / "a.zarr", data=X, chunks=(7, 5))
    same(from_rows(array), X)
    same(open_data(tmp_path / "a.zarr"), X)
    (tmp_path / "a.zarr").rename(tmp_path / "folder")
    same(open_data(tmp_path / "folder", samples_in="columns"), X.T)


def test_an_unreadable_chunk(tmp_path):
    X = np.random.default_rng(0).random((400, 20))
    zarr.create_array(tmp_path / "a.zarr", data=X, chunks=(100, 20))
    (tmp_path / "a.zarr" / "c" / "2" / "0").write_bytes(b"damaged")
    with pytest.raises(ReadError, match=r"a\.zarr.*samples 0 to 399 could not be read.*copy it"):
        open_data(tmp_path / "a.zarr")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("X", data=X, chunks=(100, 20), fletcher32=True)
        place = data.id.get_chunk_info(2).byte_offset
    with open(tmp_path / "a.h5", "r+b") as file:
        file.seek(place)
        file.write(b"damaged!")
    with pytest.raises(ReadError, match=r"a\.h5:/X: samples 0 to 399 could not be read"):
        open_data(tmp_path / "a.h5")
