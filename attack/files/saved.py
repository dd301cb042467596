"""What the library itself saves: results, and checkpoints of runs.

A damaged result is refused, or harmless. A damaged checkpoint is refused, or the run that resumes
from it ends with the bits of an undisturbed one.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import conenmf
from conenmf.errors import CheckpointError
from conenmf.solve.checkpoint import Checkpoint

from ..cases import Case, Ending, Kind, judged
from ..mutations import mutated
from .arrays import mutated_npz
from .formats import Document, read_document, write

_RUNS: tuple[dict[str, Any], ...] = (
    {"init": "random", "solver": "hals"},
    {"init": "cr1", "solver": "nnlsb", "sketch": None},
    {"init": "kmeans", "solver": "mult"},
)
_ITERATIONS = 12  # of which some are in the checkpoint


def _data() -> Any:
    rng = np.random.default_rng(5)
    X = rng.random((60, 3)) @ rng.random((3, 12)) + 0.2 * rng.random((60, 12))
    return conenmf.from_rows(X, n_threads=1)


def _fit(run: int, iterations: int, checkpoint: Checkpoint | None = None) -> Any:
    rng = np.random.default_rng(1)
    options = {**_RUNS[run], "tol": 0.0, "max_iter": iterations, "checkpoint": checkpoint}
    return conenmf.factorize(_data(), 3, rng=rng, **options)


@functools.cache
def _truth(run: int) -> Any:
    return _fit(run, _ITERATIONS)


@functools.cache
def _saved_run(run: int, iterations: int) -> Document:
    with tempfile.TemporaryDirectory() as folder:
        stop = Checkpoint(Path(folder, "run"), every=0)
        rng = np.random.default_rng(1)
        options = {**_RUNS[run], "tol": 0.0, "max_iter": _ITERATIONS, "checkpoint": stop}
        conenmf.factorize(
            _data(), 3, rng=rng, callback=lambda now: now.iteration == iterations, **options
        )
        return read_document(Path(folder))


def _attack_checkpoint(case: Case) -> Ending:
    run, iterations = int(case.rng.integers(len(_RUNS))), int(case.rng.integers(2, 9))
    document = dict(_saved_run(run, iterations))
    names = sorted(name for name in document if "lock" not in name)
    name = case.pick(names)
    # With its checksums repaired, an archive may hold another state that is as good as any.
    repaired = name.endswith(".npz") and case.chance(0.3)
    change = mutated_npz if repaired else mutated
    if case.chance(0.05):
        del document[name]
    else:
        document[name] = change(document[name], case.rng)
    write(document, case.folder)
    try:
        result = _fit(run, _ITERATIONS, Checkpoint(case.folder / "run", every=0))
    except Exception as problem:
        ending = judged(problem)
        misleading = not (repaired or isinstance(problem, CheckpointError))
        if ending.outcome == "refused" and misleading:
            return Ending("different", f"{name}: {ending.note}")
        return Ending(ending.outcome, f"{name}: {ending.note}"[:300])
    truth = _truth(run)
    if np.array_equal(result.W, truth.W) and np.array_equal(result.H, truth.H):
        return Ending("recovered", name, compared=True)
    if repaired and np.isfinite(result.W).all() and min(result.W.min(), result.H.min()) >= 0:
        return Ending("accepted", f"{name}, checksums repaired")
    return Ending("different", f"{name}: resumed with other bits", compared=True)


@functools.cache
def _saved_result(run: int) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "result.npz")
        _truth(run).save(path)
        return path.read_bytes()


def _attack_result(case: Case) -> Ending:
    run = int(case.rng.integers(len(_RUNS)))
    packed_again = case.chance(0.5)
    change = mutated_npz if packed_again else mutated
    path = case.folder / "result.npz"
    path.write_bytes(change(_saved_result(run), case.rng))
    try:
        result = conenmf.Factorization.load(path)
    except Exception as problem:
        return judged(problem)
    truth, W, H = _truth(run), np.asarray(result.W), np.asarray(result.H)
    same = np.array_equal(W, truth.W) and np.array_equal(H, truth.H)
    if not same and not packed_again:  # then a checksum of the archive does not fit
        return Ending("different", "loaded with other factors", compared=True)
    if not (np.isfinite(W).all() and np.isfinite(H).all() and W.min() >= 0 and H.min() >= 0):
        return Ending("factors", "loaded factors are negative or not finite")
    return Ending("accepted", "", compared=True)


KINDS = (
    Kind("saved-checkpoint", "files", _attack_checkpoint, default=3000),
    Kind("saved-result", "files", _attack_result, default=3000),
)
