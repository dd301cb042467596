"""Files that change or are cut while they are in use, in every storage and at every stage."""

import os
from pathlib import Path

import anndata
import h5py
import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from conenmf import factorize, make_cones, open_data
from conenmf.errors import DataChangedError
from conenmf.io import tables

SMALL = {"max_memory": "2MB"}  # for several blocks


@pytest.fixture(scope="module")
def X():
    """Larger than what HDF5 keeps of a dataset in memory."""
    model = make_cones(40, 3, 0.15, n_samples=1000, rng=np.random.default_rng(0))
    noise = np.random.default_rng(1).random((1000, 40)) * 0.1
    return np.ascontiguousarray(model.V.T) + noise


def hdf5(folder, X, **options):
    with h5py.File(folder / "d.h5", "w") as file:
        file.create_dataset("X", data=X, **options)
        file.create_dataset("other", data=np.zeros(4000))
    return folder / "d.h5"


def sparse_hdf5(folder, X):
    with h5py.File(folder / "d.h5", "w") as file:
        write_sparse(file.create_group("X"), X)
    return folder / "d.h5"


def write_sparse(group, X):
    matrix = sp.csr_array(np.where(X > np.quantile(X, 0.5), X, 0))
    group.attrs["shape"] = matrix.shape
    for part in ("data", "indices", "indptr"):
        group.create_dataset(part, data=getattr(matrix, part))


def zarr_array(folder, X, **options):
    zarr.create_array(str(folder / "d.zarr"), data=X, chunks=(100, 40), **options)
    return folder / "d.zarr"


def zarr_group(folder, X):
    group = zarr.open_group(str(folder / "d.zarr"), mode="w")
    matrix = sp.csr_array(X)
    for part in ("data", "indices", "indptr"):
        array = getattr(matrix, part)
        group.create_array(part, data=array, chunks=(len(array) // 9,))
    group.attrs["shape"] = list(X.shape)
    return folder / "d.zarr"


def npy(folder, X):
    np.save(folder / "d.npy", X)
    return folder / "d.npy"


def h5ad(folder, X):
    anndata.AnnData(sp.csr_matrix(X)).write_h5ad(folder / "d.h5ad")
    return folder / "d.h5ad"


def matlab(folder, X):
    """Version 7.3, whose columns are rows for HDF5."""
    with h5py.File(folder / "d.mat", "w", userblock_size=512) as file:
        file.create_dataset("X", data=X.T)
    with open(folder / "d.mat", "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    return folder / "d.mat"


def cube(folder, X):
    return hdf5(folder, X.reshape(50, 20, 40))


BY_PATH = {
    "npy": npy,
    "npy-F": lambda folder, X: npy(folder, np.asfortranarray(X)),
    "h5": hdf5,
    "h5-chunks": lambda folder, X: hdf5(folder, X, chunks=(100, 40)),
    "h5-gzip": lambda folder, X: hdf5(folder, X, chunks=(100, 40), compression="gzip"),
    "h5-sparse": sparse_hdf5,
    "h5ad": h5ad,
    "mat": matlab,
    "cube": cube,
    "zarr": zarr_array,
    "zarr-2": lambda folder, X: zarr_array(folder, X, zarr_format=2),
    "zarr-shards": lambda folder, X: zarr_array(folder, X, shards=(200, 40)),
    "zarr-sparse": zarr_group,
}


def open_path(path):
    return open_data(f"{path}:X" if path.name == "d.h5" else path, **SMALL)


# --- harm -------------------------------------------------------------------------------------


def files_of(path):
    """Of a store, its chunks."""
    if path.is_file():
        return [path]
    return sorted(f for f in path.rglob("*") if f.is_file() and "json" not in f.name)[1:]


def cut(path, share=0.5):
    for file in files_of(path):
        os.truncate(file, round(share * file.stat().st_size))


def overwrite(path, value=1.5):
    """Half of each file, in place; its size stays."""
    for file in files_of(path):
        size = file.stat().st_size // 2
        with open(file, "r+b") as stream:
            stream.seek(size // 8 * 8)
            stream.write(np.full(size // 8, value).tobytes())


def replace(path):
    """By a file of the same size."""
    for file in files_of(path)[:1]:
        new = Path(f"{path}.new")
        new.write_bytes(bytes(file.stat().st_size))
        os.replace(new, file)


HARM = {
    "cut": cut,
    "emptied": lambda path: cut(path, 0),
    "overwritten": overwrite,
    "overwritten with infinity": lambda path: overwrite(path, np.inf),
    "replaced": replace,
}
MAIN = ("npy", "h5-chunks", "zarr")  # with every harm
CASES = [(kind, harm) for kind in BY_PATH for harm in (HARM if kind in MAIN else [*HARM][::3])]


def fit(V, init="random", **options):
    return factorize(V, 3, init=init, rng=np.random.default_rng(0), max_iter=4, tol=0, **options)


def after_iteration(number, action):
    return lambda now: action() if now.iteration == number else None


@pytest.mark.parametrize(("kind", "harm"), CASES)
def test_a_file_that_is_harmed_during_the_iterations(tmp_path, X, kind, harm, refuses):
    path = BY_PATH[kind](tmp_path, X)
    for file in files_of(path):
        os.utime(file, ns=(1, 1))  # some systems have the same time for ten milliseconds
    V = open_path(path)
    callback = after_iteration(2, lambda: HARM[harm](path))
    refuses(DataChangedError, path.name, fit, V, callback=callback)


# Threads that read blocks out of order read some of their chunks again, not always equally often.
IN_CHUNKS = {"h5-chunks", "h5-gzip", "zarr", "zarr-2", "zarr-shards"}


@pytest.mark.parametrize("stage", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("kind", ["npy", "h5", "h5-sparse", "cube", "zarr"])
def test_a_file_that_is_cut_in_the_middle_of_a_pass(tmp_path, X, kind, stage, refuses):
    """Of the first pass of the inits, of others, of the exact finish; before its last block."""
    path = BY_PATH[kind](tmp_path, X)
    V = open_path(path)
    read, n_reads, harmed = V._source.read, 0, None

    def counted(start, stop):
        nonlocal n_reads
        n_reads += 1
        if n_reads == harmed:
            cut(path)
        return read(start, stop)

    V._source.read = counted
    init = "auto" if kind in ("npy", "h5") else "random"
    fit(V, init)
    if kind in IN_CHUNKS:
        stage = min(stage, 0.7)  # the next fit may read up to a fifth less
    harmed, n_reads = max(1, round(stage * n_reads)), 0
    refuses(DataChangedError, path.name, lambda: fit(V, init))


def test_chunks_that_are_removed_or_written_through_zarr(tmp_path, X, refuses):
    path = tmp_path / "d.zarr"
    array = zarr.create_array(str(path), data=X, chunks=(100, 40))
    chunk = path / "c" / "3" / "0"
    V = open_data(path, **SMALL)
    kept, status = chunk.read_bytes(), chunk.stat()
    chunk.unlink()
    refuses(DataChangedError, r"d\.zarr/c/3/0 can no longer be read", lambda: fit(V))
    chunk.write_bytes(kept)
    os.utime(chunk, ns=(status.st_atime_ns, status.st_mtime_ns))
    fit(V)  # the same numbers
    array[:10] = 5.0
    refuses(DataChangedError, r"d\.zarr/c/0/0", lambda: fit(V))


# --- no false alarms --------------------------------------------------------------------------


def harmless(path):
    """Everything but the numbers."""
    os.utime(path, ns=(1, path.stat().st_mtime_ns))
    for file in (path, *files_of(path)):
        file.chmod(0o600 if file.is_file() else 0o700)
    link = Path(f"{path}.link")
    if not link.exists():
        os.link(files_of(path)[0], link)
    path.with_name("neighbour.txt").write_text("of no interest")
    if path.is_dir():
        (path / "notes.txt").write_text("of no interest")


@pytest.mark.parametrize("kind", BY_PATH)
def test_harmless_changes_of_a_file_cost_no_pass(tmp_path, X, kind, rows_read, same_factors):
    path = BY_PATH[kind](tmp_path, X)
    V = open_path(path)
    costs = [(V.passes, sum(rows_read))]
    expected = fit(V)
    costs.append((V.passes, sum(rows_read)))
    result = fit(V, callback=lambda now: harmless(path))
    costs.append((V.passes, sum(rows_read)))
    (passes, rows), (passes_again, rows_again) = np.diff(costs, axis=0).tolist()
    assert passes_again == passes > 0
    if kind not in IN_CHUNKS:
        assert rows_again == rows > 0
    same_factors(result, expected)
    result.certify()


# --- files of the caller ---


def test_a_table_that_changes_while_it_is_read(tmp_path, X, monkeypatch, refuses):
    np.savetxt(tmp_path / "a.csv", X, delimiter=",")
    read = tables.remark_on_columns

    def change(*arguments):
        with open(tmp_path / "a.csv", "a") as stream:
            stream.write("1\n")
        return read(*arguments)

    monkeypatch.setattr(tables, "remark_on_columns", change)
    refuses(DataChangedError, r"a\.csv had \d+ bytes", open_data, tmp_path / "a.csv", header=False)
