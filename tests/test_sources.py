import zipfile

import anndata
import h5py
import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from conenmf import from_columns, from_rows, open_data
from conenmf.disk import StoredMatrix
from conenmf.errors import (
    DataChangedError,
    DataTypeError,
    EmptyDataError,
    FileFormatError,
    NegativeValueError,
    OptionError,
    ReadError,
    ShapeError,
)
from conenmf.memory import DenseMatrix, SparseMatrix


@pytest.fixture
def X(sample_matrix):
    return np.ascontiguousarray(sample_matrix.T)


def same(V, X, kind=StoredMatrix):
    assert isinstance(V, kind)
    assert V.shape == X.shape[::-1]
    np.testing.assert_allclose(V.norms_squared, (X.astype(float) ** 2).sum(axis=1), rtol=1e-12)
    everything = V.columns(np.arange(V.shape[1])) @ np.eye(V.shape[1])
    np.testing.assert_array_equal(everything, X.T)


@pytest.mark.parametrize("dtype", ["f4", "f8", ">f8", "u1", "i8", "f2", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy(tmp_path, X, dtype, order):
    stored = np.asarray((10 * X).astype(dtype), order=order)
    np.save(tmp_path / "a.npy", stored)
    V = open_data(tmp_path / "a.npy")
    assert V.dtype == (np.float32 if dtype in ("f4", "f2") else np.float64)
    same(V, stored)
    same(open_data(str(tmp_path / "a.npy"), samples_in="columns"), stored.T)


def test_memmaps(tmp_path, X):
    np.save(tmp_path / "a.npy", X)
    whole = np.load(tmp_path / "a.npy", mmap_mode="r+")
    same(from_rows(whole), X)
    whole[0, 0] = 5.0  # seen although it is not flushed
    changed = np.array(whole)
    same(from_rows(whole), changed)
    same(from_columns(whole), changed.T)
    same(from_rows(whole.T), changed.T, DenseMatrix)  # a view, not the whole file in order
    same(from_rows(whole[5:]), changed[5:], DenseMatrix)
    private = np.load(tmp_path / "a.npy", mmap_mode="c")
    private[0, 0] = 7.0
    same(from_rows(private), np.array(private), DenseMatrix)


def test_npz(tmp_path, X):
    np.savez(tmp_path / "two.npz", X, other=X[:5])
    same(open_data(tmp_path / "two.npz", dataset="arr_0"), X)
    same(open_data(f"{tmp_path}/two.npz:other"), X[:5])
    with pytest.raises(FileFormatError, match="holds arr_0, other: name one of them"):
        open_data(tmp_path / "two.npz")
    np.savez_compressed(tmp_path / "small.npz", X)
    same(open_data(tmp_path / "small.npz"), X, DenseMatrix)
    with pytest.raises(FileFormatError, match="compressed and takes 3840 bytes"):
        open_data(tmp_path / "small.npz", max_memory=10_000)


@pytest.mark.parametrize("compressed", [False, True])
def test_sparse_npz(tmp_path, X, compressed):
    sp.save_npz(tmp_path / "rows.npz", sp.csr_array(X), compressed=compressed)
    sp.save_npz(tmp_path / "columns.npz", sp.csc_array(X), compressed=compressed)
    sp.save_npz(tmp_path / "other.npz", sp.bsr_array(X), compressed=compressed)
    same(open_data(tmp_path / "rows.npz"), X)
    same(open_data(tmp_path / "columns.npz", samples_in="columns"), X.T)
    same(open_data(tmp_path / "columns.npz"), X, SparseMatrix)
    same(open_data(tmp_path / "rows.npz", samples_in="columns"), X.T, SparseMatrix)
    if not compressed:
        with pytest.raises(FileFormatError, match="compressed by feature"):
            open_data(tmp_path / "columns.npz", max_memory="4kB")
    with pytest.raises(FileFormatError, match="in bsr order"):
        open_data(tmp_path / "other.npz")


def test_raw_parts_need_no_format_and_may_repeat_entries(tmp_path):
    parts = {"data": [1.0, 2.0, 3.0], "indices": [1, 1, 0], "indptr": [0, 2, 3], "shape": [2, 2]}
    np.savez(tmp_path / "parts.npz", **parts)
    same(open_data(tmp_path / "parts.npz"), np.array([[0.0, 3.0], [3.0, 0.0]]))
    np.savez_compressed(tmp_path / "parts.npz", **parts)
    V = open_data(tmp_path / "parts.npz")
    for _ in range(2):  # reading leaves the parts as they are
        same(V, np.array([[0.0, 3.0], [3.0, 0.0]]))
        assert V.mean == 1.5


def test_sparse_rows_of_unequal_length(tmp_path):
    """Blocks end where they would become too large."""
    X = np.zeros((3000, 400))
    X[:60] = np.random.default_rng(0).random((60, 400)) + 0.1
    X[:, 0] = 1.0
    sp.save_npz(tmp_path / "a.npz", sp.csr_array(X), compressed=False)
    V = open_data(tmp_path / "a.npz", max_memory="2MB")
    blocks = V._blocks()
    assert [start for start, _ in blocks[1:]] == [stop for _, stop in blocks[:-1]]
    assert (blocks[0][0], blocks[-1][1]) == (0, 3000)
    sizes = [np.count_nonzero(X[start:stop]) * 12 for start, stop in blocks]
    assert max(sizes) <= 2_000_000 / 64
    assert blocks[0] == (0, 6)
    assert blocks[-2][1] - blocks[-2][0] == V.block_samples == 61
    same(V, X)


@pytest.mark.parametrize("text", [b"csr_matrix", "csr_matrix"])
def test_sparse_groups_of_any_kind(tmp_path, X, text):
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


def test_hdf5(tmp_path, X):
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


def test_blocks_follow_the_chunks_of_the_file(tmp_path):
    X = np.random.default_rng(0).random((5000, 20))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("X", data=X, chunks=(300, 20))
        V = from_rows(data, max_memory="20MB")
        assert V.block_samples == 600
        assert from_rows(data, max_memory="4MB").block_samples == 122  # a chunk is too much


@pytest.mark.filterwarnings("ignore:.*zarr v[23]:UserWarning")  # how AnnData will write
def test_anndata(tmp_path, X):
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


def test_zarr(tmp_path, X):
    array = zarr.create_array(tmp_path / "a.zarr", data=X, chunks=(7, 5))
    same(from_rows(array), X)
    same(open_data(tmp_path / "a.zarr"), X)
    (tmp_path / "a.zarr").rename(tmp_path / "folder")
    same(open_data(tmp_path / "folder", samples_in="columns"), X.T)


# --- bad files --------------------------------------------------------------------------------


def test_files_that_are_not_what_they_seem(tmp_path, X):
    for name in ("a.npy", "a.npz", "a.h5", "a.h5ad"):
        (tmp_path / name).write_bytes(b"something else entirely")
        with pytest.raises(FileFormatError, match=name):
            open_data(tmp_path / name)
    (tmp_path / "a.csv").write_text("1,2\n3,4\n")
    with pytest.raises(FileFormatError, match=r"unknown kind of file; known are \.h5, \.h5ad"):
        open_data(tmp_path / "a.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileFormatError, match="not a Zarr store"):
        open_data(tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        open_data(tmp_path / "nothing.npy")
    with pytest.raises(OptionError, match="samples_in='up'"):
        open_data(tmp_path / "a.npy", samples_in="up")
    with pytest.raises(DataTypeError, match="use open_data"):
        from_rows(str(tmp_path / "a.npy"))


def test_truncated_files(tmp_path, X):
    np.save(tmp_path / "a.npy", X)
    sp.save_npz(tmp_path / "a.npz", sp.csr_array(X), compressed=False)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"] = X
    for name in ("a.npy", "a.npz", "a.h5"):
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) - 900])
        with pytest.raises(FileFormatError, match="cut off"):
            open_data(tmp_path / name)


def test_pickles_are_never_read(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    with pytest.raises(DataTypeError):
        open_data(tmp_path / "a.npy")
    np.savez(tmp_path / "a.npz", np.array([[{}]], dtype=object))
    with pytest.raises(DataTypeError):
        open_data(tmp_path / "a.npz")


def test_matrices_that_are_none(tmp_path):
    np.save(tmp_path / "a.npy", np.ones(5))
    with pytest.raises(ShapeError, match="got 1"):
        open_data(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", np.ones((0, 5)))
    with pytest.raises(EmptyDataError):
        open_data(tmp_path / "b.npy")
    np.save(tmp_path / "c.npy", np.array([[1.0, -2.0]]))
    with pytest.raises(NegativeValueError, match=r"row 0 \(sample\), column 1 \(feature\) is -2"):
        open_data(tmp_path / "c.npy")


@pytest.mark.parametrize(
    "change",
    [
        {"indptr": [0, 3, 2]},
        {"indptr": [0, 3]},
        {"indptr": [1, 2, 3]},
        {"indices": [0, 1]},
        {"data": [1.0]},
        {"shape": [5, 2]},
    ],
)
def test_sparse_parts_that_do_not_fit(tmp_path, change):
    parts = {"data": [1.0, 2.0, 3.0], "indices": [0, 1, 0], "indptr": [0, 2, 3], "shape": [2, 2]}
    np.savez(tmp_path / "a.npz", **(parts | change))
    with pytest.raises(FileFormatError, match="not a compressed sparse matrix"):
        open_data(tmp_path / "a.npz")


@pytest.mark.parametrize("index", [-1, 2])
def test_column_indices_outside_the_matrix(tmp_path, index):
    np.savez(tmp_path / "a.npz", data=[1.0], indices=[index], indptr=[0, 1, 1], shape=[2, 2])
    with pytest.raises(ReadError, match=r"samples 0 to 1 could not be read: column indices"):
        open_data(tmp_path / "a.npz")


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


def test_a_dataset_that_changes_size(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("X", data=np.ones((50, 4)), maxshape=(None, 4))
        V = from_rows(data)
        data.resize((60, 4))
        with pytest.raises(DataChangedError, match=r"had shape \(50, 4\) .* now has \(60, 4\)"):
            _ = V.mean


def test_archives_that_lie_about_sizes(tmp_path, X):
    np.savez(tmp_path / "a.npz", X)
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        member = archive.read("arr_0.npy")
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        archive.writestr("arr_0.npy", member[:-8])
    with pytest.raises(FileFormatError, match="cut off"):
        open_data(tmp_path / "b.npz")
    huge = member.replace(b"(40, 12)", b"(9999,9)")
    with zipfile.ZipFile(tmp_path / "c.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("arr_0.npy", huge)
    with pytest.raises(FileFormatError):
        open_data(tmp_path / "c.npz")
