"""Arrays in NumPy's own files."""

import re

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.io import savemat

from conenmf import open_data
from conenmf.data.memory import DenseMatrix, SparseMatrix
from conenmf.errors import (
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
    np.savez_compressed(tmp_path / "small.npz", X)
    same(open_data(tmp_path / "small.npz"), X, DenseMatrix)


def test_the_one_large_array_is_the_data(tmp_path, refuses):
    rng = np.random.default_rng(0)
    scene, labels = rng.random((30, 10)), rng.random((30, 2))
    parts = {"Y": scene, "A": labels, "bands": np.arange(10), "title": "samson"}
    np.savez(tmp_path / "scene.npz", **parts)
    savemat(tmp_path / "scene.mat", parts)
    with h5py.File(tmp_path / "new.mat", "w", userblock_size=512) as file:
        file["Y"], file["A"] = scene.T, labels.T
    for name in ("scene.npz", "scene.mat", "new.mat"):
        V = open_data(tmp_path / name)
        np.testing.assert_array_equal(V.columns(np.arange(30)).T, scene)
        (remark,) = V.remarks
        assert re.search(r"'Y' (\(\d+ x \d+\) )?was read.*(largest|most).*; to read A, ", remark)
    savemat(tmp_path / "cube.mat", {"cube": rng.random((6, 5, 4)), "labels": np.ones((6, 5))})
    with pytest.raises(FileFormatError, match="holds cube, labels"):  # 4 times as large
        open_data(tmp_path / "cube.mat")
    savemat(tmp_path / "cube.mat", {"cube": rng.random((6, 5, 9)), "labels": np.ones((6, 5))})
    assert "to read labels, name it" in open_data(tmp_path / "cube.mat").remarks[0]
    alike = {"A": scene[:5], "Y": scene[:24]}  # 4.8 times as large
    np.savez(tmp_path / "two.npz", **alike)
    savemat(tmp_path / "two.mat", alike)
    for name in ("two.npz", "two.mat"):
        refuses(FileFormatError, "holds A, Y: name one", open_data, tmp_path / name)
    np.savez(tmp_path / "labels.npz", X=scene[:2], labels=np.arange(200))
    refuses(FileFormatError, "holds X, labels: name", open_data, tmp_path / "labels.npz")


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("order", [sp.csr_array, sp.csc_array, sp.coo_array, sp.bsr_array])
def test_sparse_npz(same, tmp_path, X, order, compressed):
    sp.save_npz(tmp_path / "a.npz", order(X), compressed=compressed)
    same(open_data(tmp_path / "a.npz"), X, SparseMatrix)
    same(open_data(tmp_path / "a.npz", samples_in="columns"), X.T, SparseMatrix)


def test_parts_may_repeat_entries(same, tmp_path):
    parts = {"data": [1.0, 2.0, 3.0], "indices": [1, 1, 0], "indptr": [0, 2, 3], "shape": [2, 2]}
    parts["format"] = "csr"
    np.savez(tmp_path / "parts.npz", **parts)
    same(open_data(tmp_path / "parts.npz"), np.array([[0.0, 3.0], [3.0, 0.0]]), SparseMatrix)
    np.savez_compressed(tmp_path / "parts.npz", **parts)
    V = open_data(tmp_path / "parts.npz")
    for _ in range(2):  # reading leaves the parts as they are
        same(V, np.array([[0.0, 3.0], [3.0, 0.0]]), SparseMatrix)
        assert V.mean() == 1.5


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_names_beside_a_matrix(tmp_path, X, save):
    samples, features = [f"s{n}\x1b" for n in range(40)], [b"f%d" % n for n in range(12)]
    save(tmp_path / "a.npz", V=X, sample_names=samples, feature_names=features)
    names = open_data(tmp_path / "a.npz").names
    assert names.sample_names[:2] == ("s0\\x1b", "s1\\x1b")
    assert names.feature_names[:2] == ("f0", "f1")


def test_names_beside_a_sparse_matrix(tmp_path):
    parts = {"data": [1.0], "indices": [1], "indptr": [0, 1, 1], "shape": [2, 2]}
    np.savez(tmp_path / "a.npz", **parts, format="csr", sample_names=["x", "y"])
    assert open_data(tmp_path / "a.npz").names.sample_names == ("x", "y")


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_flipped_bit_is_noticed(tmp_path, order, refuses):
    np.savez(tmp_path / "a.npz", np.asarray(np.ones((500, 20)), order=order))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "a.npz").write_bytes(content)
    for samples_in in ("rows", "columns"):
        refuses(
            FileFormatError,
            "Bad CRC-32",
            lambda how=samples_in: open_data(tmp_path / "a.npz", samples_in=how),
        )


def test_version_3_of_numpys_format(same, tmp_path, X):
    with open(tmp_path / "a.npy", "wb") as stream:
        np.lib.format.write_array(stream, X, version=(3, 0))
    same(open_data(tmp_path / "a.npy"), X)


def test_a_dense_matrix_of_digits_takes_two_bytes_for_each(tmp_path, rng):
    X = rng.integers(10, size=(60, 50))
    path = tmp_path / "digits.mtx"
    header = "%%MatrixMarket matrix array integer general\n60 50\n"
    path.write_text(header + "\n".join(map(str, X.T.ravel())) + "\n")
    assert path.stat().st_size < 4 * X.size
    np.testing.assert_array_equal(open_data(path).columns(np.arange(60)), X.T)
