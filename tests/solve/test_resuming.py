"""Checkpoints that were damaged, belong to other runs, are in use, or cannot be saved."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import dask.array as da
import numpy as np
import pytest

from conenmf import factorize, from_columns, from_rows, make_cones, open_data
from conenmf.atomic import in_use
from conenmf.errors import CheckpointError
from conenmf.scale.checkpoint import Checkpoint
from conenmf.solve.solvers import Solver, mult

OPTIONS = {"tol": 0, "max_iter": 6}


@pytest.fixture(scope="module")
def cones():
    return make_cones(40, 3, 0.2, n_samples=200, noise=0.02, rng=np.random.default_rng(0)).V


@pytest.fixture
def run(tmp_path):
    return Checkpoint(tmp_path / "run", every=0)


def resumed(V, run, **options):
    return factorize(V, 3, checkpoint=run, **OPTIONS | {"max_iter": 9} | options)


# --- damage -----------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["memory", "dask"])
def test_flipped_bits_in_every_file(cones, run, storage, rng):
    """The run is refused, and the file is named; or the bits do not matter, and nothing changes."""
    X = np.ascontiguousarray(cones.T)
    V = from_rows(X if storage == "memory" else da.from_array(X, chunks=(100, 40)))
    factorize(V, 3, checkpoint=run, init="cr1", **OPTIONS)
    expected = factorize(V, 3, init="cr1", **OPTIONS | {"max_iter": 9}).W
    (saved,) = Path(run.folder).iterdir()
    files = sorted(saved.iterdir())
    assert len(files) == (3 if storage == "memory" else 5)
    shutil.copytree(run.folder, f"{run.folder}-whole")
    refused = 0
    for file in files:
        whole = file.read_bytes()
        for _ in range(10):
            damaged = bytearray(whole)
            damaged[rng.integers(len(whole))] ^= 1 << rng.integers(8)
            file.write_bytes(damaged)
            try:
                result, message = resumed(V, run, init="cr1"), None
            except CheckpointError as problem:
                message = str(problem)
            if message is not None:
                refused += 1
                assert file.name in message
            else:
                assert file.name == "state.npz"  # unused fields of the archive
                np.testing.assert_array_equal(result.W, expected)
                shutil.rmtree(run.folder)
                shutil.copytree(f"{run.folder}-whole", run.folder)
            file.write_bytes(whole)
    assert refused >= 10 * (len(files) - 1)


# --- other runs -------------------------------------------------------------------------------


def test_other_data_are_refused(cones, run):
    factorize(from_columns(cones), 3, checkpoint=run, **OPTIONS)
    one_reversed, one_changed = cones.copy(), cones.copy()
    one_reversed[:, 7] = one_reversed[::-1, 7]
    one_changed[5, 8] += 1e-9
    for V in (cones[::-1], one_reversed, one_changed, cones[:, ::-1]):
        with pytest.raises(CheckpointError, match="entries of the data, or their order"):
            resumed(from_columns(V), run)
    with pytest.raises(CheckpointError, match="its dtype is 'float64', now it is 'float32'"):
        resumed(from_columns(cones.astype(np.float32)), run)
    resumed(from_columns(np.asfortranarray(cones), block_samples=17), run)


def custom_init(column):
    def init(V, K, rng):
        return V.columns([column, 70, 150]), None

    return init


def custom_update(share):
    def update(G, C, Y):
        return mult(G, C, Y) * share + Y * (1 - share)

    return update


def test_other_functions_of_the_same_name_are_refused(cones, run):
    V = from_columns(cones)
    options = {"init": custom_init(0), "solver": Solver(custom_update(0.9), first="H")}
    factorize(V, 3, checkpoint=run, **OPTIONS, **options)
    for other in (
        {"init": custom_init(1)},
        {"solver": Solver(custom_update(0.8), first="H")},
        {"solver": Solver(custom_update(0.9), first="H", floored=True)},
    ):
        with pytest.raises(CheckpointError, match="functions given as init or solver"):
            resumed(V, run, **options | other)
    resumed(V, run, init=custom_init(0), solver=Solver(custom_update(0.9), first="H"))


# --- limits -----------------------------------------------------------------------------------


def test_a_smaller_tol_continues(cones, run):
    V = from_columns(cones)
    first = factorize(V, 3, checkpoint=run, init="cr1", tol=1e-3, max_iter=30)
    second = factorize(V, 3, checkpoint=run, init="cr1", tol=1e-8, max_iter=30)
    assert second.n_iter > first.n_iter
    np.testing.assert_array_equal(second.W, factorize(V, 3, init="cr1", tol=1e-8, max_iter=30).W)


# --- folders ----------------------------------------------------------------------------------


def test_a_folder_in_use_is_refused(cones, run):
    V, folder = from_columns(cones), Path(run.folder)
    folder.mkdir()
    refused = pytest.raises(CheckpointError, match="in use by another process: wait")
    with in_use(folder, folder / ".checkpoint.conenmf-lock"), refused:
        factorize(V, 3, checkpoint=run, **OPTIONS)

    def second(iteration):
        with pytest.raises(CheckpointError, match="in use by another process"):
            factorize(V, 3, checkpoint=run, **OPTIONS)

    factorize(V, 3, checkpoint=run, callback=second, **OPTIONS)
    assert os.listdir(folder) == ["00000005"]


KILLED = """
    import os, signal, sys
    import numpy as np
    from conenmf import factorize, open_data
    from conenmf.scale.checkpoint import Checkpoint
    folder, budget = sys.argv[1], sys.argv[2]
    originals, calls = (os.fsync, os.replace), []
    last = int(sys.argv[3])
    def counted(original):
        def call(*arguments):
            calls.append(original)
            if len(calls) == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments)
        return call
    os.fsync, os.replace = map(counted, originals)
    V = open_data(folder + "/x.npy", max_memory=budget)
    checkpoint = Checkpoint(folder + "/run", every=0)
    factorize(V, 3, tol=0, max_iter=6, init="cr1", checkpoint=checkpoint)
"""


@pytest.mark.nightly
@pytest.mark.parametrize(("budget", "last"), [("100kB", 19)])
def test_killed_while_it_saves(cones, tmp_path, budget, last):
    """At a moment between writing, flushing and moving; the next run has the same bits."""
    X = np.ascontiguousarray(np.tile(cones, 4).T)
    np.save(tmp_path / "x.npy", X)
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), budget, str(last)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert {*os.listdir(tmp_path)} == {"x.npy", "run"}  # arrays of samples leave nothing
    V = open_data(tmp_path / "x.npy", max_memory=budget)
    options = OPTIONS | {"init": "cr1"}
    found = factorize(V, 3, checkpoint=Checkpoint(tmp_path / "run", every=0), **options)
    np.testing.assert_array_equal(found.W, factorize(V, 3, **options).W)
    assert os.listdir(tmp_path / "run") == ["00000005"]
