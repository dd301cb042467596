"""Dask against threads in memory, and two workers against one; all contenders in turn.

    python benchmarks/cluster.py [--samples 80000] [--repeats 3]

Prints seconds of the solver's loop (hals, 20 iterations) and of the whole fit (cr1 init, loop,
exact finish) on cones, F = 1600, K = 40, float64, and what a round over the workers costs: CPU
time per chunk of a pass over 400 trivial chunks, beside a bare Dask map and tree over them.
"""

import argparse
import tempfile
import time

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

from conenmf import factorize, from_rows, make_cones

F, K = 1600, 40
ITERATIONS = 20
CHUNKS = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--samples", type=int, default=80_000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    N = arguments.samples
    X = np.ascontiguousarray(make_cones(F, K, 0.2, n_samples=N, rng=np.random.default_rng(0)).V.T)
    print(f"cones, F={F}, N={N}, K={K}, float64 ({X.nbytes / 1e6:.0f} MB), {CHUNKS} chunks")
    folder = tempfile.TemporaryDirectory()
    path = f"{folder.name}/X.npy"
    np.save(path, X)
    size = -(-N // CHUNKS)
    sizes = tuple(min(size, N - start) for start in range(0, N, size))
    chunked = da.map_blocks(_load, path, size, chunks=(sizes, (F,)), dtype=X.dtype)

    def cluster(workers: int) -> LocalCluster:
        return LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0"
        )

    with cluster(1) as one, cluster(2) as two, Client(one) as first, Client(two) as second:
        contenders = {"threads in memory": from_rows(X, n_threads=2)}
        for name, client in (("1 worker", first), ("2 workers", second)):
            with client.as_current():
                contenders[name] = from_rows(chunked, persist=True)
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
        errors = {}
        for _ in range(arguments.repeats + 1):  # the first one warms up
            for name, V in contenders.items():
                with (second if name == "2 workers" else first).as_current():
                    began = time.perf_counter()
                    result = factorize(V, K, init="cr1", max_iter=ITERATIONS, tol=0)
                    whole = time.perf_counter() - began
                times[name].append((result.seconds["solve"], whole))
                errors[name] = result.relative_error
        with second.as_current():
            V = contenders["2 workers"]
            latency = np.median([_round(V) for _ in range(20)])
    medians = {name: np.median(runs[1:], axis=0) for name, runs in times.items()}
    print(f"{'':20s} {'loop, s':>10s} {'whole fit, s':>14s}   relative error")
    for name, (loop, whole) in medians.items():
        print(f"{name:20s} {loop:10.2f} {whole:14.2f}   {errors[name]:.12f}")
    loop, whole = medians["1 worker"] / medians["2 workers"]
    print(f"1 worker / 2 workers:          loop {loop:.2f}, whole fit {whole:.2f}")
    loop, whole = medians["2 workers"] / medians["threads in memory"]
    print(f"2 workers / threads in memory: loop {loop:.2f}, whole fit {whole:.2f}")
    print(f"a round over {CHUNKS} chunks without work: {1e3 * latency:.0f} ms")
    overhead()


def overhead(n_chunks: int = 400, repeats: int = 7) -> None:
    """Print the CPU time of a pass over trivial chunks, in turn with Dask's own."""
    data = da.from_array(np.ones((n_chunks, 8)), chunks=(1, 8))
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as two,
        Client(two) as client,
    ):
        V, bare = from_rows(data, persist=True), data.persist()

        def spent() -> np.ndarray:
            return np.array([time.process_time(), sum(client.run(time.process_time).values())])

        contenders = {
            "conenmf": lambda: V.sweep(_count),
            "bare map and tree": lambda: (
                bare.map_blocks(np.negative).sum(axis=0, split_every={0: 8}).compute()
            ),
        }
        used: dict[str, list[np.ndarray]] = {name: [] for name in contenders}
        for _ in range(repeats + 1):
            for name, run in contenders.items():
                began = spent()
                run()
                used[name].append(1e6 * (spent() - began) / n_chunks)
    print(f"CPU microseconds per chunk of {n_chunks}:   client and scheduler   workers")
    for name, runs in used.items():
        here, there = np.median(runs[1:], axis=0)
        print(f"{name:35s} {here:18.0f} {there:9.0f}")


def _count(block) -> tuple[float]:
    return (float(block.shape[1]),)


def _load(path: str, size: int, block_info=None):
    start = size * block_info[None]["chunk-location"][0]
    return np.array(np.load(path, mmap_mode="r")[start : start + size])


def _nothing(samples: range) -> tuple[None]:
    return (None,)


def _first(a: None, b: None) -> None:
    return None


def _round(V) -> float:
    began = time.perf_counter()
    V.map(_nothing, reduce=_first)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
