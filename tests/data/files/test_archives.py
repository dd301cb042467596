import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from conenmf import open_data
from conenmf.data.memory import DenseMatrix, SparseMatrix
from conenmf.errors import (
    DataTypeError,
    EmptyDataError,
    FileFormatError,
    NegativeValueError,
    ShapeError,
)


@pytest.fixture
def X(sample_matrix):
    return np.ascontiguousarray(sample_matrix.T)


@pytest.mark.parametrize("dtype", ["f4", "f8", ">f8", "u1", "i8", "f2", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy(same, tmp_path, X, dtype, order):
    stored = np.asarray((10 * X).astype(dtype), order=order)
    np.save(tmp_path / "a.npy", stored)
    V = open_data(tmp_path / "a.npy")
    assert V.dtype == (np.float32 if dtype in ("f4", "f2") else np.float64)
    same(V, stored)
    same(open_data(str(tmp_path / "a.npy"), samples_in="columns"), stored.T)


def test_npz(same, tmp_path, X):
    np.savez(tmp_path / "two.npz", X, other=X[:5])
    same(open_data(tmp_path / "two.npz", dataset="arr_0"), X)
    same(open_data(f"{tmp_path}/two.npz:other"), X[:5])
    with pytest.raises(FileFormatError, match="holds arr_0, other: name one of them"):
        open_data(tmp_path / "two.npz")
    np.savez_compressed(tmp_path / "small.npz", X)
    same(open_data(tmp_path / "small.npz"), X, DenseMatrix)
    with pytest.raises(FileFormatError, match=r"takes 3840 bytes.* it is compressed"):
        open_data(tmp_path / "small.npz", max_memory=10_000)


@pytest.mark.parametrize("compressed", [False, True])
def test_sparse_npz(same, tmp_path, X, compressed):
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


def test_raw_parts_need_no_format_and_may_repeat_entries(same, tmp_path):
    parts = {"data": [1.0, 2.0, 3.0], "indices": [1, 1, 0], "indptr": [0, 2, 3], "shape": [2, 2]}
    np.savez(tmp_path / "parts.npz", **parts)
    same(open_data(tmp_path / "parts.npz"), np.array([[0.0, 3.0], [3.0, 0.0]]))
    np.savez_compressed(tmp_path / "parts.npz", **parts)
    V = open_data(tmp_path / "parts.npz")
    for _ in range(2):  # reading leaves the parts as they are
        same(V, np.array([[0.0, 3.0], [3.0, 0.0]]))
        assert V.mean() == 1.5


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


def test_archives_that_lie_about_sizes(tmp_path, X):
    np.savez(tmp_path / "a.npz", X)
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        member = archive.read("arr_0.npy")
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        archive.writestr("arr_0.npy", member[:-8])
    with pytest.raises(FileFormatError, match="truncated"):
        open_data(tmp_path / "b.npz")
    huge = member.replace(b"(40, 12)", b"(9999,9)")
    with zipfile.ZipFile(tmp_path / "c.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("arr_0.npy", huge)
    with pytest.raises(FileFormatError):
        open_data(tmp_path / "c.npz")


@pytest.mark.parametrize("shape", ["(-4, 12)", "(2**9, 4)", "(999999999999, 9999999)", "(40, 1.5)"])
def test_headers_that_claim_too_much(tmp_path, X, shape):
    np.save(tmp_path / "a.npy", X)
    content = (tmp_path / "a.npy").read_bytes()
    header = content[10:128].replace(b"(40, 12)", shape.encode())
    (tmp_path / "a.npy").write_bytes(content[:10] + header[:117].ljust(117) + b"\n" + content[128:])
    with pytest.raises(FileFormatError):
        open_data(tmp_path / "a.npy")


def test_a_zip_bomb(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", np.zeros((10_000, 1000)))
    assert (tmp_path / "a.npz").stat().st_size < 100_000
    with pytest.raises(FileFormatError, match=r"takes 80000000 bytes.* it is compressed"):
        open_data(tmp_path / "a.npz", max_memory="100MB")


def test_names_beside_a_matrix(tmp_path, X):
    samples, features = [f"s{n}\x1b" for n in range(40)], [b"f%d" % n for n in range(12)]
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", V=X, sample_names=samples, feature_names=features)
        names = open_data(tmp_path / "a.npz").names
        assert names.sample_names[:2] == ("s0\\x1b", "s1\\x1b")
        assert names.feature_names[:2] == ("f0", "f1")
    np.savez(tmp_path / "a.npz", V=X, sample_names=samples[1:])
    with pytest.raises(ShapeError, match="39 names for 40 samples"):
        open_data(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", V=X, sample_names=np.arange(40))
    with pytest.raises(DataTypeError, match="sample_names has shape"):
        open_data(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", V=X, sample_names=np.array([{}] * 40, dtype=object))
    with pytest.raises(DataTypeError, match="holds objects"):
        open_data(tmp_path / "a.npz")


def test_a_sparse_matrix_with_names_and_one_without_end(tmp_path, X):
    parts = {"data": [1.0], "indices": [1], "indptr": [0, 1, 1]}
    np.savez(tmp_path / "a.npz", **parts, shape=[2, 2], sample_names=["x", "y"])
    assert open_data(tmp_path / "a.npz").names.sample_names == ("x", "y")
    for shape in ([2, -2], [2, 2**60], ["x", "y"], [2]):
        np.savez(tmp_path / "a.npz", **parts, shape=shape)
        with pytest.raises(FileFormatError):
            open_data(tmp_path / "a.npz")
