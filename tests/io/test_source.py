"""Matrices in files: names, blocks that follow chunks, and damaged sparse parts."""

import h5py
import numpy as np
import pytest
import scipy.sparse as sp

from conenmf import from_rows, open_data
from conenmf.errors import FileFormatError, ReadError
from conenmf.io.source import NamedMatrix
from conenmf.names import Names


def test_a_matrix_is_turned_with_its_names_unless_their_roles_are_stored(rng):
    X = rng.random((7, 5))
    names = Names.of(list("abcdefg"), list("vwxyz"))
    turned = NamedMatrix(X, names).turned()
    np.testing.assert_array_equal(turned.matrix, X.T)
    assert turned.names == Names.of(list("vwxyz"), list("abcdefg"))
    assert NamedMatrix(X, names, roles_stored=True).turned().names == names


def test_sparse_rows_of_unequal_length(same, tmp_path):
    """Blocks end where they would become too large."""
    X = np.zeros((3000, 400))
    X[:60] = np.random.default_rng(0).random((60, 400)) + 0.1
    X[:, 0] = 1.0
    rows = sp.csr_array(X)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.update({"data": rows.data, "indices": rows.indices, "indptr": rows.indptr})
        file.attrs["shape"] = X.shape
    V = open_data(tmp_path / "a.h5", max_memory="2MB")
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
        assert from_rows(data, max_memory="20MB").block_samples == 600
        assert from_rows(data, max_memory="4MB").block_samples == 122  # a chunk is too much


PARTS = {"data": [1.0, 2.0, 3.0], "indices": [0, 1, 0], "indptr": [0, 2, 3], "shape": [2, 2]}


@pytest.mark.parametrize(
    "change",
    [
        {"indptr": [0, 4, 3]},
        {"indptr": [0, 3]},
        {"indptr": [1, 2, 3]},
        {"indices": [0, 1]},
        {"data": [1.0]},
        {"shape": [5, 2]},
        {"indices": [0, -1, 0]},
        {"indices": [0, 2, 0]},
    ],
)
@pytest.mark.parametrize("kind", ["npz", "h5"])
def test_sparse_parts_that_do_not_fit_are_refused(tmp_path, change, kind, refuses):
    parts = PARTS | change
    if kind == "npz":
        np.savez(tmp_path / "a.npz", format="csr", **parts)
    else:
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.attrs["shape"] = parts.pop("shape")
            file.update(parts)
    refuses(
        (FileFormatError, ReadError),
        rf"a\.{kind}.* (is damaged|is not a sparse matrix)",
        lambda: open_data(tmp_path / f"a.{kind}"),
    )


@pytest.mark.parametrize("index", [-1, 2])
def test_column_indices_outside_the_matrix_are_noticed_in_the_first_pass(tmp_path, index, refuses):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.update({"data": [1.0], "indices": [index], "indptr": [0, 1, 1]})
        file.attrs["shape"] = [2, 2]
    message = r"samples 0 to 1 could not be read: .*indices"
    refuses(ReadError, message, lambda: open_data(tmp_path / "a.h5"))
