"""Large data: a file larger than memory beside merely reading it, and Dask; docs/large.md.

    python benchmarks/large.py file [--rounds 3] [--folder DIR] [--write]
    python benchmarks/large.py memory [--gigabytes 8] [--limit 1GB] [--folder DIR]
    python benchmarks/large.py cluster [--rounds 3] [--other DIR]
    python benchmarks/large.py workers [--samples 80000] [--rounds 3]

``file`` prints the CPU seconds of a pass over files of several formats, with ``max_memory="200MB"``
and one thread, beside those of reading the file with its library and two products (K = 20). The
pass reads rows of H, and keeps rows as large as H. ``--write`` puts the table into docs/large.md.
``memory`` writes a float32 file of cones, and prints the seconds of a pass (K = 20, 10 iterations
of hals) in a process whose private memory is limited, beside those of reading the file once.
``cluster`` prints the CPU time of a pass over trivial chunks on two workers: of the client with its
scheduler, and of the workers, in ms per chunk. Beside it are the same pass of another checkout (its
folder ``src``) and a bare round of ``dask.delayed`` with one task for each group, each in a process
of its own, in turn. ``workers`` prints wall seconds of a fit (cones, F = 1600, K = 40, cr1, 20
iterations of hals) with threads, one worker and two, in turn.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import h5py
import numpy as np
import scipy.sparse as sp
import zarr
from dask import delayed
from distributed import Client, LocalCluster
from measure import command, cones, heading, in_turn, output_of, row, timed, use_one_thread

import conenmf
from conenmf import factorize, from_rows, open_data
from conenmf.data.blocks import products, weighted_sums
from conenmf.data.matrix import DataMatrix

F = 2000
BUFFER = 16 << 20
TEMPORARY = Path(tempfile.gettempdir())


def write(path: Path, N: int) -> None:
    """Write samples of cones to a file, some at a time, each with a random norm."""
    rows, rng = cones(F, 8000, 20).astype(np.float32), np.random.default_rng(1)
    X = np.lib.format.open_memmap(path, "w+", np.float32, (N, F))
    for start in range(0, N, len(rows)):
        part = rows[: N - start]
        X[start : start + len(part)] = part * (rng.random((len(part), 1)) + 0.5)
    X.flush()


def read(path: Path) -> None:
    """Read the file once, from the disk, into one buffer."""
    buffer = bytearray(BUFFER)
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # not from the page cache
        while file.readinto(buffer):
            pass
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def fit_within(path: str, limit: str) -> None:
    """Fit with limited private memory; print seconds, passes, error and peak memory."""
    n_bytes = int(float(limit.removesuffix("GB")) * 1e9)
    resource.setrlimit(resource.RLIMIT_DATA, (n_bytes, n_bytes))
    V = open_data(path, max_memory=limit)
    options = {"init": "cr1", "solver": "hals", "max_iter": 10, "tol": 0}
    seconds, result = timed(lambda: factorize(V, 20, **options), time.perf_counter)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(seconds, V.passes, result.relative_error, peak / 1024)


def memory(gigabytes: float = 8.0, limit: str = "1GB", folder: Path = TEMPORARY) -> None:
    """A fit of a file with limited memory, beside reading it."""
    path = folder / "conenmf-large.npy"
    write(path, int(gigabytes * 1e9 / (4 * F)))
    program = f"import large; large.fit_within({str(path)!r}, {limit!r})"
    try:
        before = timed(lambda: read(path), time.perf_counter)[0]
        seconds, passes, error, peak = map(float, output_of(program).split())
        once = min(before, timed(lambda: read(path), time.perf_counter)[0])
    finally:
        path.unlink()
    heading(
        "GB", "limit", "read once, s", "fit, s", "passes", "error", "peak, MB", "pass / reading"
    )
    row(gigabytes, limit, once, seconds, passes, error, peak, seconds / passes / once)


MEGABYTES = 500
SIZES = {"small": 1 << 20, "four blocks": 12_400_000}  # bytes of a chunk; a block has 3.1 MB
K = 20
PAGE = Path(__file__).parents[1] / "docs" / "large.md"


def counts(start: int, n: int, width: int, density: float = 1.0) -> np.ndarray:
    """Rows of a matrix of counts."""
    rng = np.random.default_rng(start)
    rows = rng.integers(1, 200, (n, width)).astype(float)
    return rows if density == 1.0 else rows * (rng.random((n, width)) < density)


def dense_file(path: Path, chunk_bytes: int = 1 << 20, **options: Any) -> None:
    """Write counts to an npy, HDF5 or Zarr file, whose chunks have this size."""
    width = 500
    N = MEGABYTES * 10**6 // (8 * width)
    chunks = (chunk_bytes // (8 * width), width)
    if path.suffix == ".npy":
        X = np.lib.format.open_memmap(path, "w+", float, (N, width))
    elif path.suffix == ".zarr":
        X = zarr.create_array(path, shape=(N, width), chunks=chunks, dtype=float)
    else:
        X = h5py.File(path, "w").create_dataset("X", (N, width), float, chunks=chunks, **options)
    step = chunks[0] * (10**4 // chunks[0] + 1)
    for start in range(0, N, step):
        X[start : start + step] = counts(start, min(step, N - start), width)


def sparse_file(path: Path) -> None:
    """Write a CSR matrix, 5 % full, to a group of HDF5."""
    width = 2000
    n_rows = MEGABYTES * 10**6 // (12 * width // 20)
    parts = [sp.csr_array(counts(n, 10**4, width, 0.05)) for n in range(0, n_rows, 10**4)]
    X = sp.vstack(parts, format="csr")
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.attrs["shape"] = X.shape
        for name in ("data", "indices", "indptr"):
            group.create_dataset(name, data=getattr(X, name), chunks=(min(1 << 17, X.indptr.size),))


FILES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "npy": ("x.npy", dense_file),
    "HDF5": ("x.h5", dense_file),
    "HDF5, gzip": ("gzip.h5", partial(dense_file, compression="gzip", compression_opts=1)),
    "HDF5, chunks of four blocks": (
        "large.h5",
        partial(dense_file, chunk_bytes=SIZES["four blocks"]),
    ),
    "Zarr": ("x.zarr", dense_file),
    "Zarr, chunks of 4 MB": ("4.zarr", partial(dense_file, chunk_bytes=4_000_000)),
    "Zarr, chunks of four blocks": (
        "large.zarr",
        partial(dense_file, chunk_bytes=SIZES["four blocks"]),
    ),
    "CSR in HDF5": ("csr.h5", sparse_file),
}


def two_products(block: Any, H: np.ndarray, *, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A step with the products of an iteration: V'W, which is kept, and V H."""
    return products(block, W), weighted_sums(block, H)


def plain_rows(X: Any, start: int, stop: int) -> Any:
    """Rows of a dataset as its library reads them."""
    if hasattr(X, "shape"):
        return np.asarray(X[start:stop])
    indptr = X["indptr"][start : stop + 1].astype(np.int64)
    entries = slice(indptr[0], indptr[-1])
    parts = (X["data"][entries], X["indices"][entries], indptr - indptr[0])
    return sp.csr_array(parts, shape=(stop - start, X.attrs["shape"][1]))


def plain_pass(path: Path, W: np.ndarray, H: np.ndarray) -> np.ndarray:
    """Read a file in multiples of its chunks, and multiply twice."""
    sums = np.zeros_like(W)
    with h5py.File(path) if path.suffix == ".h5" else nullcontext() as file:
        if file is None:
            X = zarr.open_array(path, mode="r") if path.suffix == ".zarr" else np.load(path, "r")
        else:
            X = file["X"]
        size = getattr(X, "chunks", (2000,))[0] if hasattr(X, "shape") else 8192
        size *= max(1, 2000 // size)
        for start in range(0, len(H), size):
            rows = plain_rows(X, start, min(start + size, len(H)))
            rows @ W
            sums += rows.T @ H[start : start + size]
    return sums


def pass_over(path: str, rounds: int) -> None:
    """Print CPU seconds of a pass over a file, and of reading it with two products."""
    use_one_thread()
    V = open_data(
        path, max_memory="200MB", n_threads=1, dataset="X" if path.endswith("h5") else None
    )
    W = np.random.default_rng(0).random((V.shape[0], K))
    kept, _ = V.sweep(two_products, np.ones((V.shape[1], K)), W=W)
    H = np.array(kept)
    runs = {
        "ours": lambda: V.sweep(two_products, kept, W=W)[1],
        "plain": lambda: plain_pass(Path(path), W, H),
    }
    found = in_turn(runs, rounds)
    np.testing.assert_allclose(found["ours"][1], found["plain"][1])
    print(found["ours"][0], found["plain"][0])


def file(rounds: int = 3, folder: Path = TEMPORARY, write: bool = False) -> None:
    """A pass over files of 500 MB with max_memory="200MB", beside reading and two products."""
    lines = [
        "| file of 500 MB | a pass, CPU s | reading and two products, CPU s | ratio |",
        "|---|---|---|---|",
    ]
    for name, (ending, make) in FILES.items():
        with tempfile.TemporaryDirectory(dir=folder) as place:
            path = Path(place) / ending
            make(path)
            program = f"import large; large.pass_over({str(path)!r}, {rounds})"
            ours, plain = map(float, output_of(program).split())
        lines.append(f"| {name} | {ours:.2f} | {plain:.2f} | {ours / plain:.2f} |")
        print(lines[-1], flush=True)
    if write:
        begin, end = (
            "<!-- benchmarks/large.py file: begin -->",
            "<!-- benchmarks/large.py file: end -->",
        )
        before, _, rest = PAGE.read_text("utf-8").partition(begin)
        text = "\n".join([*lines, ""])
        PAGE.write_text(f"{before}{begin}\n{text}{end}{rest.partition(end)[2]}", "utf-8")


PASSES = 30
CHUNKS = (400, 2000)
CHUNK = (10, 5)  # samples and features


def one_more(block: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, float]:
    """A step that takes rows, keeps rows and adds up a number."""
    return rows + 1.0, float(rows.sum())


def used(client: Client) -> np.ndarray:
    """CPU seconds of the client with its scheduler, and of the workers."""
    return np.array([time.process_time(), sum(client.run(time.process_time).values())])


def bare_round(groups: list[Any], rows: list[Any]) -> tuple[list[Any], float]:
    """The least that a pass can be: a task for each group, and their sum."""
    pairs = zip(groups, rows, strict=True)
    tasks = [delayed(one_more, nout=2)(group, part) for group, part in pairs]
    total = delayed(sum)([part for _, part in tasks])
    *rows, total = dask.persist(*(row for row, _ in tasks), total)
    return rows, total.compute()


def passes_on_workers(n_chunks: int, bare: bool) -> None:
    """Print CPU milliseconds per chunk and pass, of the client and the workers, and the groups."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    N = CHUNK[0] * n_chunks
    with LocalCluster(**options) as both, Client(both) as client:
        V = from_rows(da.ones((N, CHUNK[1]), chunks=CHUNK), persist=True)
        n_groups = len(V.align(np.ones((N, 2))).chunks[0])
        rows = np.ones((N, 2))
        if bare:
            parts = np.array_split(rows, n_groups)
            groups = rows = dask.persist(*(delayed(part) for part in parts))
        for turn in range(PASSES + 5):
            if turn == 5:
                before = used(client)
            rows, _ = bare_round(groups, rows) if bare else V.sweep(one_more, rows)
        client_ms, workers_ms = (used(client) - before) * 1e3 / (PASSES * n_chunks)
    print(client_ms, workers_ms, n_groups)


def cluster(rounds: int = 3, other: str = "") -> None:
    """CPU time of a pass on a cluster, beside another checkout and a bare round of Dask."""
    here = str(Path(conenmf.__file__).parents[1])
    sources = {"this checkout": (here, False), "bare delayed": (here, True)}
    if other:
        sources["other checkout"] = (other, False)
    heading("chunks", "passes of", "client, ms per chunk", "workers, ms per chunk", "groups")
    for n_chunks in CHUNKS:
        runs = {}
        for name, (source, bare) in sources.items():
            program = f"import large; large.passes_on_workers({n_chunks}, {bare})"
            runs[name] = partial(output_of, program, PYTHONPATH=source)
        numbers = {name: [] for name in runs}
        for _ in range(rounds):
            for name, run in runs.items():
                numbers[name].append([float(text) for text in run().split()])
        for name, found in numbers.items():
            client_ms, workers_ms, n_groups = np.median(found, axis=0).tolist()
            row(n_chunks, name, client_ms, workers_ms, int(n_groups))


def fit_on(client: Client, V: DataMatrix) -> float:
    """Fit with a client as the current one, and return the error."""
    with client.as_current():
        return factorize(V, 40, init="cr1", max_iter=20, tol=0).relative_error


def workers(samples: int = 80_000, rounds: int = 3) -> None:
    """A fit with threads, and with workers of Dask."""
    X = cones(1600, samples, 40)
    options = {"threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        LocalCluster(n_workers=1, **options) as one,
        LocalCluster(n_workers=2, **options) as two,
        Client(one) as first,
        Client(two) as second,
    ):
        in_memory = from_rows(X, n_threads=2)
        runs = {"threads": lambda: fit_on(first, in_memory)}
        for name, client in (("1 worker", first), ("2 workers", second)):
            with client.as_current():
                V = from_rows(da.from_array(X, chunks=(-(-samples // 8), -1)), persist=True)
            runs[name] = lambda client=client, V=V: fit_on(client, V)
        heading("on", "seconds", "error")
        for name, (seconds, error) in in_turn(runs, rounds, time.perf_counter).items():
            row(name, seconds, f"{error:.12f}")


if __name__ == "__main__":
    command(__doc__, file, memory, cluster, workers)
