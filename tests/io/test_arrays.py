"""Arrays in NumPy's own files."""

import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from conenmf import open_data
from conenmf.data.memory import DenseMatrix, SparseMatrix
from conenmf.errors import (
    DataError,
    FileFormatError,
)


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
    same(open_data(tmp_path / "two.npz", dataset="arr_0"), X, DenseMatrix)
    same(open_data(f"{tmp_path}/two.npz:other"), X[:5], DenseMatrix)
    with pytest.raises(FileFormatError, match="holds arr_0, other: name one of them"):
        open_data(tmp_path / "two.npz")
    np.savez_compressed(tmp_path / "small.npz", X)
    same(open_data(tmp_path / "small.npz"), X, DenseMatrix)
    with pytest.raises(FileFormatError, match=r"takes 3968 bytes.* only be read as a whole"):
        open_data(tmp_path / "small.npz", max_memory=10_000)


@pytest.mark.parametrize("compressed", [False, True])
def test_sparse_npz(same, tmp_path, X, compressed, refuses):
    sp.save_npz(tmp_path / "rows.npz", sp.csr_array(X), compressed=compressed)
    sp.save_npz(tmp_path / "columns.npz", sp.csc_array(X), compressed=compressed)
    sp.save_npz(tmp_path / "other.npz", sp.bsr_array(X), compressed=compressed)
    same(open_data(tmp_path / "rows.npz"), X, SparseMatrix)
    same(open_data(tmp_path / "columns.npz", samples_in="columns"), X.T, SparseMatrix)
    same(open_data(tmp_path / "columns.npz"), X, SparseMatrix)
    same(open_data(tmp_path / "rows.npz", samples_in="columns"), X.T, SparseMatrix)
    sp.save_npz(tmp_path / "entries.npz", sp.coo_array(X), compressed=compressed)
    same(open_data(tmp_path / "entries.npz"), X, SparseMatrix)
    refuses(FileFormatError, "in bsr order", lambda: open_data(tmp_path / "other.npz"))


def test_raw_parts_need_no_format_and_may_repeat_entries(same, tmp_path):
    parts = {"data": [1.0, 2.0, 3.0], "indices": [1, 1, 0], "indptr": [0, 2, 3], "shape": [2, 2]}
    np.savez(tmp_path / "parts.npz", **parts)
    same(open_data(tmp_path / "parts.npz"), np.array([[0.0, 3.0], [3.0, 0.0]]), SparseMatrix)
    np.savez_compressed(tmp_path / "parts.npz", **parts)
    V = open_data(tmp_path / "parts.npz")
    for _ in range(2):  # reading leaves the parts as they are
        same(V, np.array([[0.0, 3.0], [3.0, 0.0]]), SparseMatrix)
        assert V.mean() == 1.5


def test_pickles_are_never_read(tmp_path, X):
    objects = np.array([[{}]], dtype=object)
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "a.npz", objects)
    np.savez(tmp_path / "b.npz", X=X, feature_names=objects)
    for name in ("a.npy", "a.npz", "b.npz"):
        with pytest.raises(FileFormatError, match=r"[Oo]bject"):
            open_data(tmp_path / name)


def test_matrices_that_are_none(tmp_path, refuses):
    np.save(tmp_path / "a.npy", np.ones(5))
    refuses(DataError, "got 1", lambda: open_data(tmp_path / "a.npy"))
    np.save(tmp_path / "b.npy", np.ones((0, 5)))
    refuses(DataError, "needs at least one sample", lambda: open_data(tmp_path / "b.npy"))
    np.save(tmp_path / "c.npy", np.array([[1.0, -2.0]]))
    with pytest.raises(DataError, match=r"row 0 \(sample\), column 1 \(feature\), .* is -2"):
        open_data(tmp_path / "c.npy")


def test_archives_that_lie_about_sizes(tmp_path, X, refuses):
    np.savez(tmp_path / "a.npz", X)
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        member = archive.read("arr_0.npy")
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        archive.writestr("arr_0.npy", member[:-8])
    refuses(FileFormatError, "EOF: reading array data", lambda: open_data(tmp_path / "b.npz"))
    huge = member.replace(b"(40, 12)", b"(9999,9)")
    with zipfile.ZipFile(tmp_path / "c.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("arr_0.npy", huge)
    refuses(FileFormatError, "EOF: reading array data", lambda: open_data(tmp_path / "c.npz"))


@pytest.mark.parametrize("shape", ["(-4, 12)", "(2**9, 4)", "(999999999999, 9999999)", "(40, 1.5)"])
def test_headers_that_claim_too_much(tmp_path, X, shape, refuses):
    np.save(tmp_path / "a.npy", X)
    content = (tmp_path / "a.npy").read_bytes()
    header = content[10:128].replace(b"(40, 12)", shape.encode())
    (tmp_path / "a.npy").write_bytes(content[:10] + header[:117].ljust(117) + b"\n" + content[128:])
    refuses(FileFormatError, None, lambda: open_data(tmp_path / "a.npy"))


def test_a_zip_bomb(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", np.zeros((10_000, 1000)))
    assert (tmp_path / "a.npz").stat().st_size < 100_000
    with pytest.raises(FileFormatError, match=r"takes 80000128 bytes.* only be read as a whole"):
        open_data(tmp_path / "a.npz", max_memory="100MB")


def test_names_beside_a_matrix(tmp_path, X, refuses):
    samples, features = [f"s{n}\x1b" for n in range(40)], [b"f%d" % n for n in range(12)]
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", V=X, sample_names=samples, feature_names=features)
        names = open_data(tmp_path / "a.npz").names
        assert names.sample_names[:2] == ("s0\\x1b", "s1\\x1b")
        assert names.feature_names[:2] == ("f0", "f1")
    np.savez(tmp_path / "a.npz", V=X, sample_names=samples[1:])
    refuses(DataError, "39 names for 40 samples", lambda: open_data(tmp_path / "a.npz"))


def test_a_sparse_matrix_with_names_and_one_without_end(tmp_path, X):
    parts = {"data": [1.0], "indices": [1], "indptr": [0, 1, 1]}
    np.savez(tmp_path / "a.npz", **parts, shape=[2, 2], sample_names=["x", "y"])
    assert open_data(tmp_path / "a.npz").names.sample_names == ("x", "y")
    for shape in ([2, -2], [2, 2**60], ["x", "y"], [2]):
        np.savez(tmp_path / "a.npz", **parts, shape=shape)
        with pytest.raises(FileFormatError):
            open_data(tmp_path / "a.npz")


# --- archives that lie ------------------------------------------------------------------------


@pytest.fixture
def flipped(tmp_path):
    """Write a file with one flipped bit in the middle."""

    def write(save, *arrays, **named):
        save(tmp_path / "a.npz", *arrays, **named)
        content = bytearray((tmp_path / "a.npz").read_bytes())
        content[len(content) // 2] ^= 1
        (tmp_path / "a.npz").write_bytes(content)
        return tmp_path / "a.npz"

    return write


@pytest.mark.parametrize("order", ["C", "F"])
def test_checksums_of_members_in_place(flipped, order, refuses):
    path = flipped(np.savez, np.asarray(np.ones((500, 20)), order=order))
    refuses(zipfile.BadZipFile, "Bad CRC-32", lambda: np.load(path)["arr_0"])
    for samples_in in ("rows", "columns"):
        with pytest.raises(FileFormatError, match="Bad CRC-32"):
            open_data(path, samples_in=samples_in)


def test_version_3_of_numpys_format(same, tmp_path, X):
    with open(tmp_path / "a.npy", "wb") as stream:
        np.lib.format.write_array(stream, X, version=(3, 0))
    same(open_data(tmp_path / "a.npy"), X)
