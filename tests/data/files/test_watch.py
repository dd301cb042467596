"""Data that change or are cut while they are in use, in every storage and at every stage."""

import contextlib
import os
import warnings
from pathlib import Path
from uuid import uuid4

import anndata
import h5py
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from zarr.storage import MemoryStore

from conenmf import ConeNMF, certify, factorize, from_rows, make_cones, open_data
from conenmf.errors import DataChangedError, FactorError
from conenmf.solve.coefficients import coefficients

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


def npz(folder, X):
    np.savez(folder / "d.npz", X)
    return folder / "d.npz"


def sparse_npz(folder, X):
    sp.save_npz(folder / "d.npz", sp.csr_array(X), compressed=False)
    return folder / "d.npz"


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
    "npz": npz,
    "npz-csr": sparse_npz,
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


def memmap(order="C", mode="r"):
    def make(folder, X):
        path = folder / "d.bin"
        path.write_bytes(b"head" * 8 + X.tobytes(order))
        return path, np.memmap(path, X.dtype, mode, 32, X.shape, order)

    return make


def opened_hdf5(mode, write=hdf5):
    def make(folder, X):
        path = write(folder, X)
        return path, h5py.File(path, mode)["X"]

    return make


def opened_zarr(folder, X):
    path = zarr_array(folder, X)
    return path, zarr.open(str(path), mode="r+")


def backed_anndata(folder, X):
    path = h5ad(folder, X)
    return path, anndata.read_h5ad(path, backed="r").X


OPENED = {
    "memmap": memmap(),
    "memmap-F": memmap("F"),
    "memmap-private": memmap(mode="c"),
    "memmap-written": memmap(mode="r+"),
    "h5-r": opened_hdf5("r"),
    "h5-r+": opened_hdf5("r+"),
    "h5-sparse": opened_hdf5("r", sparse_hdf5),
    "zarr": opened_zarr,
    "anndata": backed_anndata,
}


# --- harm -------------------------------------------------------------------------------------


def files_of(path):
    """Of a store, its chunks."""
    if path.is_file():
        return [path]
    return sorted(f for f in path.rglob("*") if f.is_file() and "json" not in f.name)[1:]


def cut(path):
    for file in files_of(path):
        os.truncate(file, file.stat().st_size // 2)


def empty(path):
    for file in files_of(path):
        os.truncate(file, 0)


def overwrite(path, value=1.5):
    """Half of each file, in place; its size stays."""
    for file in files_of(path):
        size = file.stat().st_size // 2
        with open(file, "r+b") as stream:
            stream.seek(size // 8 * 8)
            stream.write(np.full(size // 8, value).tobytes())


def overwrite_with_infinity(path):
    overwrite(path, np.inf)


def replace(path):
    """By a file of the same size."""
    for file in files_of(path)[:1]:
        new = Path(f"{path}.new")
        new.write_bytes(bytes(file.stat().st_size))
        os.replace(new, file)


def overwrite_and_set_back_the_time(path):
    before = [file.stat() for file in files_of(path)]
    overwrite(path)
    for file, status in zip(files_of(path), before, strict=True):
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


HARM = (cut, empty, overwrite, overwrite_with_infinity, replace)
MAIN = ("npy", "h5-chunks", "zarr")  # with every harm
CASES = [(kind, harm) for kind in BY_PATH for harm in (HARM if kind in MAIN else HARM[::3])]


def fit(V, init="random", **options):
    rng = np.random.default_rng(0)
    return factorize(V, 3, init=init, rng=rng, max_iter=4, tol=0, **options)


def after_iteration(number, action):
    return lambda now: action() if now.iteration == number else None


def is_fit_right(V, callback):
    """Or refused; a library may keep the numbers as they were in memory."""
    expected = fit(V)
    with contextlib.suppress(DataChangedError):
        assert np.array_equal(fit(V, callback=callback).H, expected.H)
        return True
    return False


@pytest.mark.parametrize(("kind", "harm"), CASES)
def test_a_file_that_is_harmed_during_the_iterations(tmp_path, X, kind, harm):
    path = BY_PATH[kind](tmp_path, X)
    V = open_path(path)
    with pytest.raises(DataChangedError, match=path.name):
        fit(V, callback=after_iteration(2, lambda: harm(path)))


@pytest.mark.parametrize("kind", BY_PATH)
def test_a_time_that_is_set_back_does_not_hide_a_change(tmp_path, X, kind):
    path = BY_PATH[kind](tmp_path, X)
    harm = after_iteration(2, lambda: overwrite_and_set_back_the_time(path))
    is_right = is_fit_right(open_path(path), harm)
    assert not is_right or kind in ("h5-chunks", "h5-gzip", "h5ad")  # which HDF5 keeps in memory


@pytest.mark.parametrize("harm", [cut, overwrite, overwrite_with_infinity])
@pytest.mark.parametrize("kind", sorted(OPENED.keys() - {"anndata"}))  # which HDF5 keeps in memory
def test_a_file_of_the_caller_that_is_harmed_during_the_iterations(tmp_path, X, kind, harm):
    path, matrix = OPENED[kind](tmp_path, X)
    V = from_rows(matrix, **SMALL)
    with pytest.raises(DataChangedError, match=path.name):
        fit(V, callback=after_iteration(2, lambda: harm(path)))


@pytest.mark.parametrize("stage", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("kind", ["npy", "npz-csr", "h5", "h5-sparse", "cube", "zarr"])
def test_a_file_that_is_cut_in_the_middle_of_a_pass(tmp_path, X, kind, stage):
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
    harmed, n_reads = max(1, round(stage * n_reads)), 0
    with pytest.raises(DataChangedError, match=path.name):
        fit(V, init)


@pytest.mark.parametrize("kind", ["npy", "h5", "h5-sparse", "zarr"])
def test_a_file_that_is_cut_before_it_is_judged_or_used_again(tmp_path, X, kind):
    path = BY_PATH[kind](tmp_path, X)
    V = open_path(path)
    model = ConeNMF(3, tol=0.1).fit(V)
    result, H = model.result_, np.array(model.result_.H)
    cut(path)
    for use in (
        result.certify,
        result.diagnose,
        lambda: certify(V, result.W, H),
        lambda: model.transform(V),
        lambda: V.columns([1, 999]),
        lambda: fit(V),
        lambda: V.turned().mean(),
    ):
        with pytest.raises(DataChangedError, match=path.name):
            use()


def test_chunks_that_are_removed_added_or_written_through_zarr(tmp_path, X):
    X = X.copy()
    X[:100] = 0
    path = tmp_path / "d.zarr"
    array = zarr.create_array(str(path), shape=X.shape, dtype=X.dtype, chunks=(100, 40))
    array[:] = X
    chunks = sorted((path / "c").rglob("0"))
    assert len(chunks) == 9  # one of zeros is not stored
    V = open_data(path, **SMALL)
    kept = chunks[3].read_bytes()
    status = chunks[3].stat()
    chunks[3].unlink()
    with pytest.raises(DataChangedError, match=r"1 of 10 files of .*d\.zarr were removed"):
        fit(V)
    chunks[3].write_bytes(kept)
    os.utime(chunks[3], ns=(status.st_atime_ns, status.st_mtime_ns))
    fit(V)  # another inode, but the same numbers
    array[:10] = -5.0
    with pytest.raises(DataChangedError, match=r"c/0/0 was changed after .*d\.zarr was opened"):
        fit(V)


# --- contents ---------------------------------------------------------------------------------


def in_memory_zarr(X):
    array = zarr.create_array(MemoryStore(), data=X, chunks=(100, 40))
    return array, array


def in_memory_hdf5(X):
    file = h5py.File(f"no file {uuid4()}", "w", driver="core", backing_store=False)
    dataset = file.create_dataset("X", data=X)
    return dataset, dataset


@pytest.mark.parametrize("make", [in_memory_zarr, in_memory_hdf5])
@pytest.mark.parametrize("row", [0, 500, 999])
def test_what_is_in_no_file_is_compared_in_the_exact_finish(X, make, row):
    matrix, target = make(X.copy())
    V = from_rows(matrix, **SMALL)

    def write():
        target[row] = 7.0

    with pytest.raises(DataChangedError, match=r"samples \d+ to \d+ are not as they were"):
        fit(V, callback=after_iteration(4, write))
    expected = fit(from_rows(X))
    W, H = expected.W, expected.H
    target[row] = X[row]
    certify(V, W, H)
    write()
    with pytest.raises(DataChangedError):
        certify(V, W, H)
    with pytest.raises(DataChangedError):
        coefficients(V, W)


def test_all_blocks_are_compared_within_64_passes(X):
    """Others in each pass, the same ones in the same pass of every run."""
    matrix, target = in_memory_hdf5(X.copy())
    V = from_rows(matrix, **SMALL, block_samples=8)
    assert len(V._blocks()) == 125
    found = []
    for row in (0, 400, 800, 999):
        target[row] = 7.0
        for n_passes in range(1, 65):
            try:
                V.mean()
            except DataChangedError:
                found.append(n_passes)
                break
        target[row] = X[row]
    assert len(found) == 4
    assert len(set(found)) > 1


def test_numbers_that_are_not_finite_are_blamed_on_the_change(X):
    """They lead to an error before the block is compared."""
    matrix, target = in_memory_zarr(X.copy())
    V = from_rows(matrix, **SMALL)

    def write():
        target[499] = np.inf

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(DataChangedError, match="as they were") as error:
            fit(V, callback=after_iteration(2, write))
    assert isinstance(error.value.__context__, FactorError)


def test_errors_for_other_reasons_stay(tmp_path, X):
    def broken(G, C, Y):
        return np.full_like(Y, np.nan)

    path = npy(tmp_path, X)
    for V in (open_data(path, **SMALL), from_rows(np.load(path, mmap_mode="r"), **SMALL)):
        read = V.bytes_read
        with pytest.raises(FactorError, match="not finite"):
            fit(V, solver=broken)
        assert V.bytes_read > read
        fit(V)


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
def test_harmless_changes_of_a_file_cost_no_pass(tmp_path, X, kind):
    path = BY_PATH[kind](tmp_path, X)
    V = open_path(path)
    n_bytes = [V.bytes_read]
    expected = fit(V)
    n_bytes.append(V.bytes_read)
    result = fit(V, callback=lambda now: harmless(path))
    n_bytes.append(V.bytes_read)
    assert n_bytes[2] - n_bytes[1] == n_bytes[1] - n_bytes[0]
    assert np.array_equal(result.W, expected.W)
    assert np.array_equal(result.H, expected.H)
    result.certify()


@pytest.mark.parametrize("kind", OPENED)
def test_harmless_changes_of_a_file_of_the_caller(tmp_path, X, kind):
    path, matrix = OPENED[kind](tmp_path, X)
    V = from_rows(matrix, **SMALL)

    def touch(now):
        harmless(path)
        os.utime(path)

    expected, result = fit(V), fit(V, callback=touch)
    assert np.array_equal(result.H, expected.H)
    result.certify()
