import h5py
import numpy as np
import pytest
import scipy.sparse as sp

from conenmf import from_rows, open_data
from conenmf.errors import DataChangedError, FileFormatError, ReadError


@pytest.fixture
def X(sample_matrix):
    return np.ascontiguousarray(sample_matrix.T)


def test_sparse_rows_of_unequal_length(same, tmp_path):
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


def test_blocks_follow_the_chunks_of_the_file(tmp_path):
    X = np.random.default_rng(0).random((5000, 20))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("X", data=X, chunks=(300, 20))
        V = from_rows(data, max_memory="20MB")
        assert V.block_samples == 600
        assert from_rows(data, max_memory="4MB").block_samples == 122  # a chunk is too much


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


def test_a_dataset_that_changes_size(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("X", data=np.ones((50, 4)), maxshape=(None, 4))
        V = from_rows(data)
        data.resize((60, 4))
        with pytest.raises(DataChangedError, match=r"had shape \(50, 4\) .* now has \(60, 4\)"):
            V.mean()
