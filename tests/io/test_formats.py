"""Every kind of file: the same matrix comes in from each of them, and nothing else does."""

import gzip

import anndata
import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import scipy.io
import scipy.sparse as sp
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from conenmf import factorize, from_columns, from_rows, open_data
from conenmf.data.memory import DenseMatrix
from conenmf.errors import ConeNMFError
from conenmf.io.open import KINDS
from conenmf.names import Names

ROWS = [f"row {n}" for n in range(40)]
COLUMNS = [f"column {n}" for n in range(12)]


def _frame(X):
    return pd.DataFrame(X, ROWS[: len(X)], COLUMNS[: X.shape[1]])


def _npz(path, X):
    np.savez(path, X, sample_names=ROWS, feature_names=COLUMNS)


def _hdf5(path, X):
    with h5py.File(path, "w") as file:
        file.create_dataset("X", data=X, chunks=(7, 3), compression="gzip")


def _mat_7_3(path, X):
    with h5py.File(path, "w", userblock_size=512) as file:
        file["V"] = X.T
        file["V"].attrs["MATLAB_class"] = np.bytes_("double")
        file["text"] = np.ones((3, 1), np.uint16)
        file["text"].attrs["MATLAB_class"] = np.bytes_("char")
        file.create_group("#refs#")


def _sparse_mat_7_3(path, X):
    matrix = sp.csc_array(X)
    with h5py.File(path, "w", userblock_size=512) as file:
        group = file.create_group("V")
        group["data"], group["ir"], group["jc"] = matrix.data, matrix.indices, matrix.indptr
        group.attrs["MATLAB_class"] = np.bytes_("double")
        group.attrs["MATLAB_sparse"] = np.uint64(X.shape[0])


def _market(path, matrix):
    with gzip.open(path, "wb") if path.suffix == ".gz" else open(path, "wb") as stream:
        scipy.io.mmwrite(stream, matrix, precision=17)


def _cells(X):
    cells = anndata.AnnData(X, pd.DataFrame(index=ROWS), pd.DataFrame(index=COLUMNS))
    cells.layers["twice"] = 2 * X
    return cells


def _stream(path, X):
    table = pa.Table.from_pandas(_frame(X))
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=11)


WRITERS = {  # how a matrix is written, and whether its names are
    "a.npy": (np.save, False),
    "a.npz": (_npz, True),
    "s.npz": (lambda path, X: sp.save_npz(path, sp.csr_array(X)), False),
    "a.h5": (_hdf5, False),
    "a.h5ad": (lambda path, X: _cells(sp.csr_matrix(X)).write_h5ad(path), True),
    "d.h5ad": (lambda path, X: _cells(X).write_h5ad(path), True),
    "anndata.zarr": (lambda path, X: _cells(sp.csr_matrix(X)).write_zarr(path), True),
    "a.zarr": (lambda path, X: zarr.create_array(path, data=X, chunks=(7, 5)), False),
    "a.csv": (lambda path, X: _frame(X).to_csv(path), True),
    "a.csv.gz": (lambda path, X: _frame(X).to_csv(path), True),
    "a.tsv": (lambda path, X: _frame(X).to_csv(path, sep="\t"), True),
    "b.csv": (lambda path, X: _frame(X).to_csv(path, sep=";", decimal=","), True),
    "bare.csv": (lambda path, X: np.savetxt(path, X, delimiter=",", fmt="%.17g"), False),
    "a.parquet": (lambda path, X: _frame(X).to_parquet(path), True),
    "a.feather": (lambda path, X: _frame(X).to_feather(path), True),
    "a.arrow": (_stream, True),
    "a.mtx": (_market, False),
    "s.mtx.gz": (lambda path, X: _market(path, sp.coo_array(X)), False),
    "a.mat": (lambda path, X: scipy.io.savemat(path, {"V": X, "n": 5, "t": "text"}), False),
    "c.mat": (lambda path, X: scipy.io.savemat(path, {"V": X}, do_compression=True), False),
    "s.mat": (lambda path, X: scipy.io.savemat(path, {"V": sp.csc_array(X)}), False),
    "7.mat": (_mat_7_3, False),
    "7s.mat": (_sparse_mat_7_3, False),
}


@pytest.mark.filterwarnings("ignore:.*zarr v[23]:UserWarning")  # how AnnData will write
@pytest.mark.parametrize("name", WRITERS)
def test_the_same_matrix_comes_in_from_every_kind_of_file(tmp_path, X, name):
    """Entries to the last bit; sums of sparse ones in memory and in files may round apart."""
    write, named = WRITERS[name]
    write(tmp_path / name, X)
    V = open_data(tmp_path / name)
    np.testing.assert_array_equal(V.columns(np.arange(40)) @ np.eye(40), X.T)
    assert V.names == (Names(tuple(ROWS), tuple(COLUMNS)) if named else Names())
    dense = np.asfortranarray(X) if name.endswith(".mat") else X  # the order of sums follows
    expected = from_rows(sp.csr_array(X) if sp.issparse(V.columns([0])) else dense)
    result, plain = factorize(V, 3, max_iter=20), factorize(expected, 3, max_iter=20)
    assert result.relative_error == pytest.approx(plain.relative_error, rel=1e-8)
    np.testing.assert_array_equal(result.labels, plain.labels)

    if name == "a.npz":  # says what is what
        np.savez(tmp_path / name, X, sample_names=COLUMNS, feature_names=ROWS)
    V = open_data(f"{tmp_path}/{name}", samples_in="columns")
    np.testing.assert_array_equal(V.columns(np.arange(12)) @ np.eye(12), X)
    assert V.names == (Names(tuple(COLUMNS), tuple(ROWS)) if named else Names())


def test_memmaps(same, tmp_path, X):
    np.save(tmp_path / "a.npy", X)
    whole = np.load(tmp_path / "a.npy", mmap_mode="r+")
    same(from_rows(whole), X)
    whole[0, 0] = 5.0  # seen although it is not flushed
    changed = np.array(whole)
    same(from_rows(whole), changed)
    same(from_columns(whole), changed.T)
    same(from_rows(whole.T), changed.T)
    same(from_rows(whole[5:]), changed[5:])
    same(from_rows(whole[::2, 1:]), changed[::2, 1:])
    private = np.load(tmp_path / "a.npy", mmap_mode="c")
    private[0, 0] = 7.0
    same(from_rows(private), np.array(private), DenseMatrix)


# --- anything at all ---


def outcome(path):
    """A matrix, or an error that was meant: nothing else may come of a file."""
    try:
        return open_data(path, max_memory="50MB").shape
    except (ConeNMFError, FileNotFoundError) as error:
        return str(error)


@pytest.mark.parametrize("ending", KINDS)
@settings(max_examples=15)
@given(content=st.binary(max_size=300))
def test_random_bytes(tmp_path, ending, content):
    path = tmp_path / f"a{ending}"
    path.write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
    assert outcome(path)


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    """A small file of each kind, as bytes."""
    folder = tmp_path_factory.mktemp("valid")
    X = np.arange(12.0).reshape(4, 3)
    for name in FUZZED:
        path = folder / name
        if name == "names.npz":
            np.savez(path, X, sample_names=list("abcd"))
        else:
            WRITERS[name][0](path, X)
    return {name: (folder / name).read_bytes() for name in FUZZED}


FUZZED = ("a.npy", "names.npz", "s.npz", "b.csv", "a.csv.gz", "bare.csv")  # read by Python alone


@pytest.mark.parametrize("name", FUZZED)
@settings(max_examples=25)
@given(
    changes=st.lists(st.tuples(st.integers(0, 3999), st.integers(0, 255)), max_size=4),
    kept=st.just(1.0) | st.floats(0, 1),
)
def test_damaged_files(tmp_path, valid, name, changes, kept):
    """Cut off anywhere, or with a few other bytes."""
    content = bytearray(valid[name])
    for where, byte in changes:
        content[where % len(content)] = byte
    del content[round(kept * len(content)) :]
    (tmp_path / name).write_bytes(content)
    assert outcome(tmp_path / name)
