"""Checkpoints that were damaged, belong to other runs, are in use, or cannot be saved."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import dask.array as da
import numpy as np
import pytest

from conenmf import factorize, from_columns, from_rows, make_cones, open_data
from conenmf.atomic import in_use
from conenmf.errors import CheckpointError, CheckpointWarning, OptionError, OutputError
from conenmf.scale.checkpoint import Checkpoint
from conenmf.solve.solvers import Solver, mult

OPTIONS = {"tol": 0, "max_iter": 6, "sketch": None}


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
def test_flipped_bits_in_every_file(cones, run, storage):
    """The run is refused, and the file is named; or the bits do not matter, and nothing changes."""
    X = np.ascontiguousarray(cones.T)
    V = from_rows(X if storage == "memory" else da.from_array(X, chunks=(100, 40)))
    factorize(V, 3, checkpoint=run, init="cr1", **OPTIONS)
    expected = factorize(V, 3, init="cr1", **OPTIONS | {"max_iter": 9}).W
    (saved,) = Path(run.folder).iterdir()
    files = sorted(saved.iterdir())
    assert len(files) == (3 if storage == "memory" else 5)
    rng = np.random.default_rng(0)
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


@pytest.mark.parametrize("harm", ["zeros", "longer", "swapped", "empty"])
def test_files_that_are_not_what_was_written(cones, run, harm):
    V = from_columns(cones)
    factorize(V, 3, checkpoint=run, **OPTIONS)
    (saved,) = Path(run.folder).iterdir()
    H, before = (saved / name for name in ("H.npy", "before.npy"))
    whole = H.read_bytes()
    if harm == "swapped":
        H.write_bytes(before.read_bytes())
    else:
        H.write_bytes({"zeros": bytes(len(whole)), "longer": whole + b"x", "empty": b""}[harm])
    with pytest.raises(CheckpointError, match=r"H\.npy is damaged"):
        resumed(V, run)


def test_all_is_on_the_disk_before_the_checkpoint_before_goes(cones, run, monkeypatch):
    events = []

    def noting(module, name, note):
        original = getattr(module, name)

        def noted(*arguments, **options):
            events.append(note(arguments[0]))
            return original(*arguments, **options)

        monkeypatch.setattr(module, name, noted)

    V = from_columns(cones)
    factorize(V, 3, checkpoint=run, **OPTIONS | {"max_iter": 2})
    name_of = lambda opened: Path(os.readlink(f"/proc/self/fd/{opened}")).name  # noqa: E731
    noting(os, "fsync", lambda opened: ("flushed", name_of(opened).partition(".conenmf")[0]))
    noting(shutil, "rmtree", lambda path: ("removed", Path(path).name))
    factorize(V, 3, checkpoint=run, **OPTIONS | {"max_iter": 3})
    assert [name for what, name in events if what == "removed"] == ["00000001"]
    last = events.index(("removed", "00000001"))
    flushed = [name for what, name in events[:last] if what == "flushed"]
    assert flushed == [
        "H.npy",
        "before.npy",
        ".state.npz",
        ".00000002",  # after state.npz has its name
        ".00000002",  # before it is moved itself
        "run",
    ]


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


def test_a_larger_tol_is_applied_to_the_history(cones, run):
    V = from_columns(cones)
    factorize(V, 3, checkpoint=run, tol=0, max_iter=40)
    fresh = factorize(V, 3, tol=1e-2, max_iter=60)
    assert fresh.n_iter < 39
    with pytest.warns(
        CheckpointWarning, match=rf"tol=0.01 was met at iteration {fresh.n_iter}, .* iteration 39"
    ):
        late = factorize(V, 3, checkpoint=run, tol=1e-2, max_iter=60)
    assert (late.stop_reason, late.n_iter) == ("converged", 39)
    np.testing.assert_array_equal(
        late.history.relative_error[: fresh.n_iter], fresh.history.relative_error
    )


def test_a_smaller_tol_continues(cones, run):
    V = from_columns(cones)
    first = factorize(V, 3, checkpoint=run, init="cr1", tol=1e-3, max_iter=30)
    second = factorize(V, 3, checkpoint=run, init="cr1", tol=1e-8, max_iter=30)
    assert second.n_iter > first.n_iter
    np.testing.assert_array_equal(second.W, factorize(V, 3, init="cr1", tol=1e-8, max_iter=30).W)


def test_the_same_tol_says_nothing(cones, run):
    V = from_columns(cones)
    first = factorize(V, 3, checkpoint=run, tol=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = factorize(V, 3, checkpoint=run, tol=1e-4)
    np.testing.assert_array_equal(first.W, again.W)
    assert again.n_iter == first.n_iter


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


def test_a_run_that_ends_above_its_init_resumes_with_the_same_bits(cones, tmp_path):
    """Then W is that of the init, which the checkpoint keeps."""
    options = {"init": "cr1", "solver": "plain-mult", "max_iter": 3, "tol": 0}
    V = from_columns(cones)
    alone = factorize(V, 3, **options)
    assert alone.relative_error < alone.history.relative_error[-1]
    run = Checkpoint(tmp_path / "run", every=0)
    factorize(V, 3, checkpoint=run, callback=lambda now: now.iteration == 2, **options)
    resumed = factorize(V, 3, checkpoint=run, **options)
    np.testing.assert_array_equal(resumed.W, alone.W)
    np.testing.assert_array_equal(resumed.H, alone.H)


@pytest.mark.parametrize("place", ["/proc", "/proc/run", "file/run", "file", "a\0b", "x" * 300])
def test_an_unusable_folder_is_refused_at_the_start(cones, tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("in the way")
    V = from_columns(cones)
    passes = V.passes
    unusable = "cannot be used as a folder for checkpoints|expected the path of a file or folder"
    with pytest.raises((CheckpointError, OptionError), match=unusable):
        factorize(V, 3, checkpoint=place)
    assert V.passes == passes


def test_a_full_disk_does_not_claim_a_checkpoint_that_is_not_there(cones, run, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("conenmf.data.memory.save_array", full)
    with pytest.raises(OutputError, match=r"for a checkpoint in .*run: .*there is no earlier"):
        factorize(from_columns(cones), 3, checkpoint=run, **OPTIONS)
    assert os.listdir(run.folder) == []


def test_a_folder_that_is_removed_meanwhile(cones, run):
    def callback(now):
        if now.iteration == 3:
            shutil.rmtree(run.folder)

    with pytest.raises(CheckpointError, match=r"no checkpoint can be saved in .*there is no"):
        factorize(from_columns(cones), 3, checkpoint=run, callback=callback, **OPTIONS)


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
    factorize(V, 3, tol=0, max_iter=6, init="cr1", sketch=None, checkpoint=checkpoint)
"""


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
