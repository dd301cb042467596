"""Every way to hold a matrix, as data: a test that takes `backend` runs on each of them."""

import functools
import importlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import anndata
import dask
import dask.array as da
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

from conenmf import factorize, from_columns, from_rows, make_cones, open_data
from conenmf.io.source import ArraySource, CompressedSource
from conenmf.scale.disk import DiskMatrix

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell has started this in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Workers of pytest share the cores. With more threads of BLAS than cores, threads that wait for
# others spin, and a test takes up to four times its processor time.
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
if WORKERS > 1:
    BLAS_THREADS = max(1, (os.cpu_count() or 1) // WORKERS)
    threadpool_limits(BLAS_THREADS, user_api="blas")
    os.environ["OPENBLAS_NUM_THREADS"] = str(BLAS_THREADS)  # for processes that tests start

settings.register_profile(
    "conenmf",
    deadline=None,
    max_examples=40,
    derandomize="CI" in os.environ,  # new examples at every desk, the same ones in every landing
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("conenmf")


def _set_examples(items):
    """Let each drawn test have CONENMF_EXAMPLES examples, whatever number it states itself."""
    count = os.environ.get("CONENMF_EXAMPLES")
    for item in items if count else ():
        test = getattr(item, "obj", None)
        if hasattr(test, "hypothesis"):
            own = getattr(test, "_hypothesis_internal_use_settings", settings.default)
            test._hypothesis_internal_use_settings = settings(own, max_examples=int(count))


def pytest_collection_modifyitems(config, items):
    """Leave out combinations of parameters of tests that are `thinned`.

    Those stay whose indices sum to a multiple of `step`: a Latin square, in which every value of a
    parameter meets values of all kinds of the others. CONENMF_TESTS=all runs every combination.
    """
    _set_examples(items)
    if os.environ.get("CONENMF_TESTS") == "all":
        return
    kept, left_out, seen = [], [], {}
    for item in items:
        total, mark = 0, item.get_closest_marker("thinned")
        for name, value in item.callspec.params.items() if mark else ():
            values = seen.setdefault((item.parent.nodeid, item.originalname, name), {})
            total += values.setdefault(id(value), len(values))  # by the order in which they come
        (left_out if mark and total % mark.args[0] else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def _strided(V, **options):
    wide = np.zeros((2 * V.shape[1], 3 * V.shape[0]), V.dtype)
    wide[::2, ::3] = V.T
    return from_rows(wide[::2, ::3], **options)


def _read_only(V, **options):
    X = np.ascontiguousarray(V.T)
    X.flags.writeable = False
    return from_rows(X, **options)


def _long_indices(V, **options):
    X = sp.csr_array(V.T)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return from_rows(X, **options)


def _duplicates(V, **options):
    """CSR whose entries are each stored as two halves."""
    half = sp.coo_array(V.T / 2)
    rows, columns = np.tile(half.row, 2), np.tile(half.col, 2)
    order = np.argsort(rows, kind="stable")
    indptr = np.searchsorted(rows[order], np.arange(V.shape[1] + 1))
    parts = (np.tile(half.data, 2)[order], columns[order], indptr)
    return from_rows(sp.csr_array(parts, shape=V.T.shape), **options)


DENSE = {
    "rows-C": lambda V, **options: from_rows(np.ascontiguousarray(V.T), **options),
    "rows-F": lambda V, **options: from_rows(np.asfortranarray(V.T), **options),
    "columns-C": lambda V, **options: from_columns(np.ascontiguousarray(V), **options),
    "columns-F": lambda V, **options: from_columns(np.asfortranarray(V), **options),
    "strided": _strided,
    "read-only": _read_only,
}


def _in_format(name):
    return lambda V, **options: from_rows(getattr(sp, name)(V.T), **options)


SPARSE = {
    f"{kind}_{variant}": _in_format(f"{kind}_{variant}")
    for kind in ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")
    for variant in ("matrix", "array")
} | {
    "columns-csc": lambda V, **options: from_columns(sp.csc_array(V), **options),
    "columns-csr": lambda V, **options: from_columns(sp.csr_array(V), **options),
    "int64-indices": _long_indices,
    "duplicates": _duplicates,
}

# --- on disk, in a folder that lasts as long as the tests do ---

_folder = tempfile.TemporaryDirectory(prefix="conenmf-tests-")
_names = itertools.count()


def _new_path(ending):
    return os.path.join(_folder.name, f"{next(_names)}{ending}")


def _chunk_length(side, at_least, count):
    """At least `at_least`, and so many that there are not far more than `count` chunks."""
    return min(side, max(at_least, side // count + 1))


def _memmap(V, **options):
    X = np.ascontiguousarray(V.T)
    mapped = np.memmap(_new_path(".bin"), X.dtype, "w+", offset=24, shape=X.shape)
    mapped[:] = X
    return from_rows(mapped, **options)


def _saved(ending, save, **reading):
    """Open a file that `save` writes, given its path and V."""

    def make(V, **options):
        path = _new_path(ending)
        save(path, V)
        return open_data(path, **reading, **options)

    return make


def _hdf5(V, **options):
    X = np.ascontiguousarray(V.T)
    file = h5py.File(_new_path(".h5"), "w")
    chunks = (_chunk_length(X.shape[0], 5, 9), _chunk_length(X.shape[1], 4, 3))
    dataset = file.create_dataset("X", data=X, chunks=chunks, compression="gzip")
    return from_rows(dataset, **options)


def _zarr(V, **options):
    X = np.ascontiguousarray(V.T)
    chunks = (_chunk_length(X.shape[0], 5, 9), X.shape[1])
    return from_rows(zarr.create_array(_new_path(".zarr"), data=X, chunks=chunks), **options)


def _chunked(V):
    """At most 10 chunks; more than 8, which is more than one level of sums, from 105 samples on."""
    X = np.ascontiguousarray(V.T)
    return da.from_array(X, chunks=(_chunk_length(X.shape[0], 13, 10), X.shape[1]))


def _dask_columns(V, **options):
    chunks = (V.shape[0], _chunk_length(V.shape[1], 13, 10))
    return from_columns(da.from_array(V, chunks=chunks), persist=False, **options)


DISK = {
    "memmap": _memmap,
    "npy": _saved(".npy", lambda path, V: np.save(path, np.ascontiguousarray(V.T))),
    "npy-F": _saved(".npy", lambda path, V: np.save(path, np.asfortranarray(V.T))),
    "npy-columns": _saved(
        ".npy", lambda path, V: np.save(path, np.ascontiguousarray(V)), samples_in="columns"
    ),
    "npz": _saved(".npz", lambda path, V: np.savez(path, V.T)),
    "npz-csr": _saved(
        ".npz", lambda path, V: sp.save_npz(path, sp.csr_array(V.T), compressed=False)
    ),
    "hdf5": _hdf5,
    "hdf5-columns": lambda V, **options: from_columns(
        h5py.File(_new_path(".h5"), "w").create_dataset("V", data=V), **options
    ),
    "h5ad": _saved(".h5ad", lambda path, V: anndata.AnnData(sp.csr_matrix(V.T)).write_h5ad(path)),
    "zarr": _zarr,
}
CLUSTER = {
    "dask": lambda V, **options: from_rows(_chunked(V), **options),
    "dask-columns": _dask_columns,
    "dask-sparse": lambda V, **options: from_rows(
        _chunked(V).map_blocks(sp.csr_matrix, dtype=V.dtype), **options
    ),
}
BACKENDS = DENSE | SPARSE | DISK | CLUSTER
MAIN_BACKENDS = {
    name: BACKENDS[name]
    for name in (
        *("rows-C", "columns-C", "csr_array", "csc_array"),
        *("memmap", "npz-csr", "hdf5", "zarr", "dask", "dask-sparse"),
    )
}


@pytest.fixture(scope="session", autouse=True)
def _plain_dask():
    """Dask's simplest scheduler, unless a test brings a cluster."""
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture
def rng(request):
    """A generator of seed 0, or of another one: ``@pytest.mark.seed(3)``."""
    mark = request.node.get_closest_marker("seed")
    return np.random.default_rng(mark.args[0] if mark else 0)


@pytest.fixture
def refuses():
    """Check that a call raises this error, with a message that matches."""

    def check(error, message, call, *arguments, **options):
        with pytest.raises(error, match=message):
            call(*arguments, **options)

    return check


@pytest.fixture
def small_blocks():
    """Options of a door that make even tiny matrices have several blocks.

    A test that takes this and a backend has them from the backend.
    """
    return {"block_samples": 7}


def _opener(request, backends):
    make = backends[request.param]
    if "small_blocks" not in request.fixturenames:
        return make
    options = request.getfixturevalue("small_blocks")
    if request.param in DISK:  # a read is slow, so a few blocks will do
        return lambda V: make(V, block_samples=_chunk_length(V.shape[1], 7, 6))
    return functools.partial(make, **options)


@pytest.fixture(params=BACKENDS)
def backend(request):
    """A function from V (F, N) to a DataMatrix, for every kind of storage."""
    return _opener(request, BACKENDS)


@pytest.fixture(params=MAIN_BACKENDS)
def main_backend(request):
    """The same for the kinds whose code differs."""
    return _opener(request, MAIN_BACKENDS)


@pytest.fixture(
    params=sorted((Path(__file__).parent / "oracle").glob("*.npz")), ids=lambda p: p.stem
)
def oracle(request):
    """Data, and what the original programs made of them."""
    return np.load(request.param)


@pytest.fixture
def sample_matrix():
    """A 12 x 40 matrix with a zero row, zero columns, duplicates and about half zeros."""
    rng = np.random.default_rng(3)
    V = rng.random((12, 40)) * (rng.random((12, 40)) < 0.5)
    V[5] = 0.0
    V[:, [0, 17]] = 0.0
    V[:, 21] = 2 * V[:, 3]
    return V


@pytest.fixture
def same():
    """Check that V holds the rows of X, bit for bit, and in which kind of matrix."""

    def check(V, X, kind=DiskMatrix):
        assert isinstance(V, kind)
        assert V.shape == X.shape[::-1]
        np.testing.assert_allclose(V.norms_squared, (X.astype(float) ** 2).sum(axis=1), rtol=1e-12)
        everything = V.columns(np.arange(V.shape[1])) @ np.eye(V.shape[1])
        np.testing.assert_array_equal(everything, X.T)

    return check


@pytest.fixture
def same_factors():
    """Check that fits have the same factors, bit for bit."""

    def check(one, *others):
        for other in others:
            np.testing.assert_array_equal(one.W, other.W)
            np.testing.assert_array_equal(np.asarray(one.H), np.asarray(other.H))

    return check


@pytest.fixture
def reloaded(tmp_path):
    """Save a result to a file, and load it."""

    def reload(result):
        result.save(tmp_path / "reloaded.npz")
        return type(result).load(tmp_path / "reloaded.npz")

    return reload


@pytest.fixture(params=["compiled", "numpy"])
def both_twins(request, monkeypatch):
    """Run with the compiled kernels and with their NumPy twins."""
    from conenmf import kernels

    if request.param == "compiled" and not kernels.AVAILABLE:
        pytest.skip("numba is not installed")
    monkeypatch.setattr(kernels, "AVAILABLE", request.param == "compiled")
    return request.param


@pytest.fixture(scope="session")
def all_close():
    """Check that arrays, such as W and H, are close to others, one by one."""

    def check(found, expected, **tolerances):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(np.asarray(one), np.asarray(other), **tolerances)

    return check


@pytest.fixture(scope="session")
def same_clusters():
    """Whether two arrays of labels have the same clusters, whatever their numbers."""

    def check(one, other):
        pairs = set(zip(np.asarray(one).tolist(), np.asarray(other).tolist(), strict=True))
        return len(pairs) == len({x for x, _ in pairs}) == len({y for _, y in pairs})

    return check


@pytest.fixture(scope="module")
def cones():
    """Samples (80, 300) in four cones."""
    return make_cones(80, 4, 0.15, n_samples=300, rng=np.random.default_rng(0)).V


@pytest.fixture
def named(cones):
    """A result whose samples and features have names, some of them hostile."""
    samples = [f"person {n}" for n in range(300)]
    features = ["<script>alert(1)</script>", *(f"gene {f}" for f in range(79))]
    return factorize(from_rows(pd.DataFrame(cones.T, samples, features)), 4)


@pytest.fixture
def disk(tmp_path):
    """Mount a small disk of its own, where that is allowed: of a size, or made read-only later."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options):
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("no disk can be mounted here: not root, or in a container")
        return place

    yield mount
    while os.path.ismount(place):
        subprocess.run(["umount", "-l", str(place)], check=True)  # arrays may still be mapped


@pytest.fixture(scope="module")
def paper():
    """The scripts of benchmarks/paper by name, found as they find each other."""
    folder = Path(__file__).parents[1] / "benchmarks" / "paper"
    names = ["measure", *(path.stem for path in folder.glob("*.py"))]
    before, hidden = list(sys.path), {name: sys.modules.pop(name, None) for name in names}
    sys.path.insert(0, str(folder))
    yield importlib.import_module
    sys.path[:] = before
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update({name: module for name, module in hidden.items() if module})


# --- what travels between a client and its workers --------------------------------------------


class Traffic(NamedTuple):
    """Rounds, tasks with a step, bytes shared with all chunks in a round, and bytes of sums."""

    rounds: int = 0
    tasks: int = 0
    bytes_out: int = 0
    bytes_in: int = 0


def _bytes(message):
    """About how many bytes a message has."""
    if isinstance(message, np.ndarray):
        return message.nbytes
    if isinstance(message, dict):
        return sum(map(_bytes, message.values()))
    return sum(map(_bytes, message)) if isinstance(message, tuple | list) else 8


@pytest.fixture
def traffic(monkeypatch):
    """Let matrices on a cluster count in `traffic` what is sent to and from their workers."""
    from conenmf.scale.dask import ClusterMatrix

    run, gather = ClusterMatrix._run, ClusterMatrix._gather

    def add(V, *counts):
        V.traffic = Traffic(*np.add(getattr(V, "traffic", Traffic()), counts).tolist())

    def counting_run(V, work):
        results = run(V, work)
        add(V, 1, len(V._groups), _bytes(work.shared), _bytes(results[-1]))
        return results

    def counting_gather(V, indices):
        block = gather(V, indices)
        owners = np.searchsorted(V._starts, indices, side="right")
        add(V, 1, np.unique(owners).size, 0, _bytes(np.asarray(block)))
        return block

    monkeypatch.setattr(ClusterMatrix, "_run", counting_run)
    monkeypatch.setattr(ClusterMatrix, "_gather", counting_gather)
    return Traffic


@pytest.fixture
def rows_read(monkeypatch):
    """How many rows each read of a file returned."""
    counts = []

    def watch(source):
        read = source.read

        def watched(self, start, stop):
            counts.append(stop - start)
            return read(self, start, stop)

        monkeypatch.setattr(source, "read", watched)

    watch(ArraySource)
    watch(CompressedSource)
    return counts
