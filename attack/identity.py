"""Checkpoints of other data or other options: refused, or the result is that of a fresh run.

And Dask arrays whose chunks are not what they were declared to be.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import conenmf
from conenmf.errors import CheckpointError
from conenmf.solve.checkpoint import Checkpoint

from .cases import Case, Ending, Kind, judged

N, F, K = 80, 12, 3


def _samples(rng: np.random.Generator) -> Any:
    return rng.random((N, K)) ** 2 @ rng.random((K, F)) + 0.2 * rng.random((N, F))


# --- other data, other options --------------------------------------------------------------------


def _other_data(X: Any, rng: np.random.Generator) -> tuple[str, Any]:
    row, column = int(rng.integers(N)), int(rng.integers(F))
    changed = X.copy()
    what = str(rng.choice(["features", "samples", "sample", "entry", "scale", "swap", "turn"]))
    if what == "features":
        changed = X[:, rng.permutation(F)]
    elif what == "samples":
        changed = X[rng.permutation(N)]
    elif what == "sample":
        changed[row] = X[row, ::-1]
    elif what == "entry":
        changed[row, column] += 10.0 ** rng.uniform(-12, 0)
    elif what == "scale":
        changed *= 1 + 10.0 ** rng.uniform(-12, 0)
    elif what == "swap":
        changed[[row, (row + 1) % N]] = X[[(row + 1) % N, row]]
    else:  # the same norms of all samples
        angle = float(rng.uniform(0, 0.5))
        a, b = X[:, 0].copy(), X[:, 1].copy()
        changed[:, 0] = np.abs(np.cos(angle) * a - np.sin(angle) * b)
        changed[:, 1] = np.abs(np.sin(angle) * a + np.cos(angle) * b)
    return what, changed


def _init_a(V: Any, K: int, rng: Any) -> Any:
    return np.asarray(V.columns(np.arange(K))) + 1e-3, None


def _init_b(V: Any, K: int, rng: Any) -> Any:
    return np.asarray(V.columns(np.arange(K, 2 * K))) + 1e-3, None


_init_b.__name__ = _init_b.__qualname__ = "_init_a"  # another function of the same name

_OPTIONS: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({"init": "cr1"}, {"init": "random"}),
    ({"init": "cr1"}, {"init": "nndsvda"}),
    ({"init": _init_a}, {"init": _init_b}),
    ({"init": "cr1", "solver": "hals"}, {"init": "cr1", "solver": "nnlsb"}),
    ({"init": "cr1", "solver": "mult"}, {"init": "cr1", "solver": "plain-mult"}),
    ({"init": "random", "sketch": None}, {"init": "random", "sketch": 6}),
    ({"init": "random", "seed": 1}, {"init": "random", "seed": 2}),
    ({"init": "cr1", "max_iter": 12}, {"init": "cr1", "max_iter": 20}),
)


def _fit(X: Any, options: dict[str, Any], checkpoint: Path | None, stop: int | None = None) -> Any:
    plain = {"tol": 0.0, "max_iter": 12, "sketch": None, **options}
    rng = np.random.default_rng(plain.pop("seed", 1))
    saved = None if checkpoint is None else Checkpoint(checkpoint, every=0)
    callback = None if stop is None else lambda now: now.iteration == stop
    V = conenmf.from_rows(X, n_threads=1)
    return conenmf.factorize(V, K, rng=rng, checkpoint=saved, callback=callback, **plain)


def _attack_identity(case: Case) -> Ending:
    X, (options, others) = _samples(case.rng), case.pick(_OPTIONS)
    what, changed = "other options", X
    if case.chance(0.7):
        others = options
        what, changed = _other_data(X, case.rng)
    elif case.chance(0.2):
        what, others = "nothing", options
    note = f"{what}: {options} then {others}"
    _fit(X, options, case.folder / "run", stop=int(case.rng.integers(2, 9)))
    fresh = _fit(changed, others, None)
    try:
        result = _fit(changed, others, case.folder / "run")
    except Exception as problem:
        ending = judged(problem)
        if isinstance(problem, CheckpointError) and what != "nothing":
            return Ending("refused", note)
        wrong = "unnamed" if ending.outcome == "unnamed" else "different"
        return Ending(wrong, f"{note}: {ending.note}"[:300])
    if np.array_equal(result.W, fresh.W) and np.array_equal(result.H, fresh.H):
        return Ending("recovered", note, compared=True)
    return Ending("different", f"{note}: neither refused nor as a fresh run", compared=True)


# --- Dask ---------------------------------------------------------------------------------------

_calls = 0


def _fewer_rows(block: Any) -> Any:
    return block[: len(block) // 2]


def _fewer_features(block: Any) -> Any:
    return block[:, :-2]


def _another_each_time(block: Any) -> Any:
    global _calls
    _calls += 1
    return block + 0.01 * (_calls % 7)


def _another_axis(block: Any) -> Any:
    return block[:, :, None]


def _raises(block: Any) -> Any:
    raise RuntimeError("a task failed")


def _nothing(block: Any) -> Any:
    return None


_BLOCKS: dict[str, Callable[[Any], Any]] = {
    "right": lambda block: block,
    "fewer rows": _fewer_rows,
    "fewer features": _fewer_features,
    "more rows": lambda block: np.vstack([block, block[:1]]),
    "another each time": _another_each_time,
    "another axis": _another_axis,
    "raises": _raises,
    "None": _nothing,
    "text": lambda block: block.astype(str),
    "complex": lambda block: block * 1j,
    "objects": lambda block: block.astype(object),
    "NaN": lambda block: np.where(block > 0.5, np.nan, block),
    "negative": lambda block: -block,
    "masked": lambda block: np.ma.masked_greater(block, 0.5),
    "single": lambda block: block.astype("f4"),
    "list": lambda block: block.tolist(),
}


def _attack_dask(case: Case) -> Ending:
    import dask
    import dask.array as da

    X, what = _samples(case.rng), case.pick(list(_BLOCKS))
    options: dict[str, Any] = {"init": "cr1", "max_iter": 4, "tol": 0.0, "sketch": None}
    rows = int(case.rng.integers(5, N + 1))
    array = da.from_array(X, chunks=(rows, F)).map_blocks(_BLOCKS[what], dtype=X.dtype, meta=X[:0])
    persist = case.pick((None, True, False))
    scheduler = case.pick(("synchronous", "threads"))
    note = f"{what}, chunks of {rows}, persist={persist}, {scheduler}"
    truth = conenmf.factorize(conenmf.from_rows(X), K, **options)
    try:
        with dask.config.set(scheduler=scheduler):
            V = conenmf.from_rows(array, persist=persist)
            result = conenmf.factorize(V, K, **options)
            W, error = np.asarray(result.W), float(result.relative_error)
    except Exception as problem:
        ending = judged(problem)
        outcome = "different" if what == "right" else ending.outcome
        return Ending(outcome, f"{note}: {ending.note}"[:300])
    if what in ("single", "list", "objects") or (what == "another each time" and V.passes < 2):
        return Ending("accepted", note)
    if np.allclose(W, truth.W, rtol=1e-8) and abs(error - truth.relative_error) < 1e-9:
        return Ending("recovered", note, compared=True)
    if what == "another each time" and persist is not False:  # computed once, and kept
        return Ending("accepted", note)
    return Ending("different", f"{note}: {error:.6g} instead of {truth.relative_error:.6g}")


KINDS = (
    Kind("checkpoint-identity", "changes", _attack_identity, default=1500),
    Kind("dask-chunks", "changes", _attack_dask, default=600, batch=20, seconds=20.0),
)
