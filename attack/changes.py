"""Files that are cut, overwritten, replaced or deleted while a fit reads them.

The outcome has to be an error that names the file, or the bits of the undisturbed fit. The change
is made between two passes, or by a thread at any moment.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import conenmf
from conenmf.errors import FileFormatError, ReadError

from .cases import Case, Ending, Kind, judged

N, F, K = 1600, 60, 3
_BUDGET = 2_000_000  # so little that the data are read from the file in every pass


def _samples(rng: np.random.Generator) -> Any:
    return rng.random((N, K)) ** 2 @ rng.random((K, F)) + 0.3 * rng.random((N, F))


def _sparse(X: Any) -> Any:
    return sp.csr_array(X * (X > np.quantile(X, 0.6)))


def _write_npy(X: Any, path: Path) -> Any:
    np.save(path, X)
    return lambda: conenmf.open_data(path, max_memory=_BUDGET)


def _write_npz(X: Any, path: Path) -> Any:
    np.savez(path, X=X)
    return lambda: conenmf.open_data(path, max_memory=_BUDGET)


def _write_sparse_npz(X: Any, path: Path) -> Any:
    sp.save_npz(path, _sparse(X), compressed=False)
    return lambda: conenmf.open_data(path, max_memory=_BUDGET)


def _write_csv(X: Any, path: Path) -> Any:
    np.savetxt(path, X, delimiter=",", fmt="%.4f")
    return lambda: conenmf.open_data(path, max_memory=_BUDGET, header=False)


def _hdf5(**storage: Any) -> Callable[[Any, Path], Any]:
    def write(X: Any, path: Path) -> Any:
        import h5py

        with h5py.File(path, "w") as file:
            file.create_dataset("X", data=X, **storage)
        return lambda: conenmf.open_data(path, max_memory=_BUDGET)

    return write


def _write_sparse_hdf5(X: Any, path: Path) -> Any:
    import h5py

    matrix = _sparse(X)
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.attrs["shape"] = matrix.shape
        for part in ("data", "indices", "indptr"):
            group[part] = getattr(matrix, part)
    return lambda: conenmf.open_data(path, max_memory=_BUDGET)


def _write_open_hdf5(X: Any, path: Path) -> Any:
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("X", data=X, chunks=(100, F))
    return lambda: conenmf.from_rows(h5py.File(path, "r")["X"], max_memory=_BUDGET)


def _zarr(**options: Any) -> Callable[[Any, Path], Any]:
    def write(X: Any, path: Path) -> Any:
        import zarr

        array = zarr.create_array(str(path), shape=X.shape, dtype=X.dtype, **options)
        array[:] = X
        return lambda: conenmf.open_data(path, max_memory=_BUDGET)

    return write


def _write_open_zarr(X: Any, path: Path) -> Any:
    import zarr

    _zarr(chunks=(100, F))(X, path)
    return lambda: conenmf.from_rows(zarr.open(str(path), mode="r"), max_memory=_BUDGET)


def _write_memmap(X: Any, path: Path) -> Any:
    X.tofile(path)
    return lambda: conenmf.from_rows(
        np.memmap(path, X.dtype, "r", shape=X.shape), max_memory=_BUDGET
    )


def _write_mat73(X: Any, path: Path) -> Any:
    import h5py

    with h5py.File(path, "w", userblock_size=512) as file:
        file["X"] = X.T
        file["X"].attrs["MATLAB_class"] = np.bytes_("double")
    with open(path, "r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    return lambda: conenmf.open_data(path, max_memory=_BUDGET)


def _write_images(X: Any, path: Path) -> Any:
    from PIL import Image

    path.mkdir()
    for number, row in enumerate(X[:200]):
        pixels = np.resize((255 * row / X.max()).astype("u1"), (60, 60))
        Image.fromarray(pixels).save(path / f"{number:03}.png")
    return lambda: conenmf.open_data(path, max_memory=_BUDGET)


STORAGES: dict[str, tuple[str, Callable[[Any, Path], Any]]] = {
    "npy": ("x.npy", _write_npy),
    "npz": ("x.npz", _write_npz),
    "npz-sparse": ("x.npz", _write_sparse_npz),
    "csv": ("x.csv", _write_csv),
    "h5": ("x.h5", _hdf5()),
    "h5-chunks": ("x.h5", _hdf5(chunks=(100, 20))),
    "h5-gzip": ("x.h5", _hdf5(chunks=(100, F), compression="gzip")),
    "h5-sparse": ("x.h5", _write_sparse_hdf5),
    "h5-open": ("x.h5", _write_open_hdf5),
    "zarr": ("x.zarr", _zarr(chunks=(100, F))),
    "zarr-2": ("x.zarr", _zarr(chunks=(100, F), zarr_format=2, compressors=None)),
    "zarr-shards": ("x.zarr", _zarr(chunks=(50, F), shards=(200, F))),
    "zarr-open": ("x.zarr", _write_open_zarr),
    "memmap": ("x.bin", _write_memmap),
    "mat7.3": ("x.mat", _write_mat73),
    "images": ("x", _write_images),
}


# --- harm -----------------------------------------------------------------------------------------


def _cut(path: Path, other: Path, rng: np.random.Generator) -> None:
    size = path.stat().st_size
    os.truncate(
        path, int(rng.choice([0, size // 2, max(0, size - 8), int(rng.integers(size + 1))]))
    )


def _overwrite(path: Path, other: Path, rng: np.random.Generator) -> None:
    size = path.stat().st_size
    with open(path, "r+b") as stream:
        stream.seek(int(rng.integers(max(1, size // 4), max(2, size - 100))))
        value = rng.choice([0.77, float("inf"), -5.0, float("nan")])
        stream.write(np.full(int(rng.integers(1, 500)), value).tobytes()[: size // 2])


def _replace(path: Path, other: Path, rng: np.random.Generator) -> None:
    os.replace(other, path)


def _rewrite(path: Path, other: Path, rng: np.random.Generator) -> None:
    with open(path, "r+b") as stream:
        stream.write(other.read_bytes())


def _append(path: Path, other: Path, rng: np.random.Generator) -> None:
    with open(path, "ab") as stream:
        stream.write(rng.bytes(100))


def _delete(path: Path, other: Path, rng: np.random.Generator) -> None:
    path.unlink()


_HARMS = {
    "cut": _cut,
    "overwritten": _overwrite,
    "replaced": _replace,
    "rewritten": _rewrite,
    "appended": _append,
    "deleted": _delete,
}


def harm(path: Path, other: Path, how: str, rng: np.random.Generator) -> None:
    """Change a file, or some files of a folder that hold numbers."""
    if path.is_file():
        _HARMS[how](path, other, rng)
        return
    files = sorted(p for p in path.rglob("*") if p.is_file() and "json" not in p.name)
    files = [file for file in files if not file.name.startswith(".z")]
    for file in rng.choice(np.array(files, object), min(len(files), 4), replace=False):
        _HARMS[how](file, other / file.relative_to(path), rng)


def _attack(case: Case) -> Ending:
    storage, how = case.pick(list(STORAGES)), case.pick(list(_HARMS))
    name, write = STORAGES[storage]
    path, other = case.folder / name, case.folder / "other" / name
    other.parent.mkdir()
    X = _samples(case.rng)
    write(_samples(case.rng), other)
    options: dict[str, Any] = {
        "init": case.pick(("random", "cr1")),
        "max_iter": 8,
        "tol": 0.0,
        "sketch": None,
    }

    def fit(V: Any, callback: Any = None) -> Any:
        rng = np.random.default_rng(0)
        return conenmf.factorize(V, K, rng=rng, callback=callback, **options)

    door = write(X, path)
    truth = fit(door())
    iteration = int(case.rng.integers(1, 8))
    between = case.chance(0.6)
    note = f"{storage} {how} {f'after iteration {iteration}' if between else 'at any moment'}"

    def between_passes(now: Any) -> None:
        if now.iteration == iteration:
            harm(path, other, how, case.rng)

    V = door()
    if between:
        return _judge(lambda: fit(V, between_passes), lambda: fit(V), truth, note)
    seconds = truth.total_seconds * float(case.rng.random())
    timer = threading.Timer(seconds, harm, (path, other, how, case.rng))
    timer.start()
    ending = _judge(lambda: fit(V), lambda: timer.join() or fit(V), truth, note)
    timer.join()
    shutil.rmtree(case.folder / "other", ignore_errors=True)
    return ending


def _judge(fit: Callable[[], Any], again: Callable[[], Any], truth: Any, note: str) -> Ending:
    """The ending of a fit under which the file changed, and of a second one after it."""
    refusals = []
    for attempt in (fit, again):
        try:
            result = attempt()
        except (ReadError, FileFormatError) as problem:
            refusals.append(type(problem).__name__)
            continue
        except Exception as problem:
            ending = judged(problem)
            outcome = "unnamed" if ending.outcome == "unnamed" else "different"
            return Ending(outcome, f"{note}: {ending.note}")
        if not _same(result, truth):
            text = f"error {result.relative_error:.6g} instead of {truth.relative_error:.6g}"
            which = "the fit" if attempt is fit else "a second fit"
            return Ending("different", f"{note}: {which}: {text}", compared=True)
    outcome = "refused" if refusals else "recovered"
    return Ending(outcome, f"{note}: {refusals}", compared=True)


def _same(result: Any, truth: Any) -> bool:
    return np.array_equal(result.W, truth.W) and np.array_equal(result.H, truth.H)


KINDS = (Kind("file-changes", "changes", _attack, default=300, batch=10, seconds=20.0),)
