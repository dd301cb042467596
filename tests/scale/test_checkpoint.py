"""A checkpoint is resumed by the same fit with the same bits, and refused by every other one."""

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
import scipy.sparse as sp

from conenmf import (
    ConeNMF,
    factorize,
    from_columns,
    from_rows,
    make_cones,
    open_data,
)
from conenmf.atomic import in_use
from conenmf.errors import CheckpointError, OutputError
from conenmf.scale import checkpoint as checkpoint_module
from conenmf.scale.checkpoint import Checkpoint
from conenmf.solve.solvers import SOLVERS, Solver, mult

LIMITS = {"tol": 0, "max_iter": 6}


@pytest.fixture(scope="module")
def cones():
    return make_cones(40, 3, 0.2, n_samples=200, noise=0.02, rng=np.random.default_rng(0)).V


@pytest.fixture
def run(tmp_path):
    return Checkpoint(tmp_path / "run", every=0)


def resumed(V, run, **options):
    return factorize(V, 3, checkpoint=run, **LIMITS | {"max_iter": 9} | options)


class KilledError(Exception):
    pass


def killed_at(iteration):
    """A callback that ends a run in the middle, as a kill would."""

    def callback(now):
        if now.iteration == iteration:
            raise KilledError

    return callback


# --- the same run -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("solver", "init"),
    [*zip(SOLVERS, 2 * ["cr1", "random", "cr1"], strict=True), ("hals", "random")],
)
def test_a_resumed_run_ends_with_the_same_bits(
    run, sample_matrix, small_blocks, solver, init, refuses
):
    check_resumed(from_columns(sample_matrix, **small_blocks), run, solver, init, refuses)


def test_a_run_that_has_begun_in_single_precision_goes_on_so(run, rng, refuses):
    noise = from_columns(rng.random((11, 6000)))
    check_resumed(noise, run, "hals", "random", refuses)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("solver", "init"), [("hals", "random"), ("plain-mult", "cr1")])
def test_a_resumed_run_on_every_storage(
    run, sample_matrix, main_backend, small_blocks, solver, init, refuses
):
    """With two arrays per sample to save, as extrapolation needs, and with one."""
    check_resumed(main_backend(sample_matrix), run, solver, init, refuses)


def check_resumed(V, run, solver, init, refuses):
    options = {"init": init, "solver": solver, "max_iter": 12, "tol": 0}
    undisturbed = np.random.default_rng(4)
    whole = factorize(V, 3, rng=undisturbed, **options)
    options["checkpoint"] = run
    for iteration in (3, 7):
        killed = {"rng": np.random.default_rng(4), "callback": killed_at(iteration)}
        refuses(KilledError, None, factorize, V, 3, **killed, **options)
        assert os.listdir(run.folder) == [f"{iteration - 1:08d}"]
    rng = np.random.default_rng(4)
    again = factorize(V, 3, rng=rng, **options)
    np.testing.assert_array_equal(again.W, whole.W)
    np.testing.assert_array_equal(np.asarray(again.H), np.asarray(whole.H))
    np.testing.assert_array_equal(again.history.relative_error, whole.history.relative_error)
    np.testing.assert_allclose(again.history.passes, whole.history.passes)
    assert (np.diff(again.history.elapsed) > 0).all()
    assert again.settings == whole.settings
    assert again.seconds["init"] > 0
    assert rng.random() == undisturbed.random()


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937, np.random.Philox])
def test_every_kind_of_generator(run, cones, kind, refuses):
    V, options = from_columns(cones), {"init": "random", "checkpoint": run}
    first, second, undisturbed = (np.random.Generator(kind(1)) for _ in range(3))
    refuses(KilledError, None, factorize, V, 3, rng=first, callback=killed_at(2), **options)
    factorize(V, 3, rng=second, **options)
    factorize(V, 3, init="random", rng=undisturbed)
    assert second.random() == undisturbed.random()
    other = np.random.Generator(np.random.SFC64(1))
    message = "the generator, its seed or its state"
    refuses(CheckpointError, message, factorize, V, 3, rng=other, **options)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"tol": 0, "max_iter": 5}, {"tol": 0, "max_iter": 9}),
        ({"tol": 1e-3, "max_iter": 30}, {"tol": 1e-8, "max_iter": 30}),
    ],
)
def test_more_iterations_or_a_smaller_tol_continue_a_run(run, cones, first, second, same_factors):
    V = from_columns(cones)
    before = factorize(V, 3, init="cr1", checkpoint=run, **first)
    after = factorize(V, 3, init="cr1", checkpoint=run, **second)
    assert after.n_iter > before.n_iter
    same_factors(after, factorize(V, 3, init="cr1", **second))


# --- every kind of fit ------------------------------------------------------------------------


N, F = 60, 12
KNOWN = "the mask, the weights or the missing entries are not those"
FIXED = "the fixed components or their names are not those"

_rng = np.random.default_rng(0)
X = _rng.poisson(_rng.gamma(1.0, 2, (N, 3)) @ _rng.gamma(1.0, 1, (3, F))).astype(float)

# What a fit gives to `ConeNMF` and to `fit`, and what a message says if only this differs.
KINDS = {
    "plain": ({}, {}, None),
    "sum to one": ({"sum_to_one": True}, {}, "its penalties is"),
    "volume": ({"sum_to_one": True, "min_volume": "auto"}, {}, "its penalties is"),
    "L2": ({"alpha_W": 0.1, "l1_ratio": 0.0}, {}, "its penalties is"),
    "L1": ({"alpha_W": 0.1, "alpha_H": 0.2, "l1_ratio": 1.0}, {}, "its penalties is"),
    "orthogonal": ({"orthogonality": 0.1}, {}, "its penalties is"),
    "mask": ({}, {"mask": X != 1}, KNOWN),
    "another mask": ({}, {"mask": X != 2}, KNOWN),
    "weights": ({}, {"weights": 1 / (1 + X)}, KNOWN),
    "weights of features": ({}, {"weights": np.arange(1.0, F + 1)}, KNOWN),
    "weights of samples": ({}, {"sample_weight": np.linspace(1, 2, N)}, KNOWN),
    "repeated samples": ({}, {"sample_weight": 1 + np.arange(N) % 2}, KNOWN),
    "missing": ({"missing": "zeros"}, {}, KNOWN),
    "fixed": ({"fixed": X[:1]}, {}, FIXED),
    "others fixed": ({"fixed": X[1:2]}, {}, FIXED),
    "poisson": ({"loss": "poisson"}, {}, "its loss is"),
    "poisson, L1": ({"loss": "poisson", "alpha_W": 0.1, "l1_ratio": 1.0}, {}, "its loss is"),
    "poisson, mask": ({"loss": "poisson"}, {"mask": X != 1}, "its loss is"),
    "poisson, L2, weights": (
        {"loss": "poisson", "alpha_W": 0.01, "l1_ratio": 0.5},
        {"weights": 1 / (1 + X)},
        "its loss is",
    ),
}


def fit(kind, **more):
    of_model, of_fit, _ = KINDS[kind]
    options = {"init": "random", "random_state": 0, "solver": "auto", "max_iter": 6, "tol": 0}
    return ConeNMF(3, **options | of_model | more).fit(sp.csr_array(X), **of_fit)


@pytest.mark.filterwarnings("ignore:sum_to_one")
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_fit_resumes_with_the_same_bits_and_others_are_refused(tmp_path, kind, refuses):
    whole, saved = fit(kind), Checkpoint(tmp_path, every=0)
    refuses(KilledError, None, fit, kind, checkpoint=saved, callback=killed_at(3))
    before = [*KINDS][[*KINDS].index(kind) - 1]
    for other in [*KINDS][1:] if kind == "plain" else dict.fromkeys(("plain", before)):
        differs = KINDS[other if kind == "plain" else kind][2] if "plain" in (kind, other) else None
        message = f"belongs to another run: {differs or 'the|its'}"
        refuses(CheckpointError, message, fit, other, checkpoint=tmp_path)
    resumed = fit(kind, checkpoint=tmp_path)
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    np.testing.assert_array_equal(resumed.result_.H, whole.result_.H)
    assert resumed.n_iter_ == 6


# --- other runs -------------------------------------------------------------------------------


def test_checkpoints_of_other_runs_are_refused(run, cones, refuses):
    factorize(from_columns(cones), 3, checkpoint=run)
    one_reversed, one_changed = cones.copy(), cones.copy()
    one_reversed[:, 7] = one_reversed[::-1, 7]
    one_changed[5, 8] += 1e-9
    for V, K, options, what in (
        (cones, 4, {}, "its K is 3, now it is 4"),
        (cones, 3, {"solver": "mult"}, "its solver is 'hals', now it is 'mult'"),
        (cones, 3, {"init": "spa"}, "its init is 'auto'"),
        (cones, 3, {"init": np.ones((40, 3))}, "its init is 'auto'"),
        (2 * cones, 3, {}, "entries of the data"),
        (cones[::-1], 3, {}, "entries of the data, or their order"),
        (cones[:, ::-1], 3, {}, "entries of the data, or their order"),
        (one_reversed, 3, {}, "entries of the data, or their order"),
        (one_changed, 3, {}, "entries of the data, or their order"),
        (cones.astype(np.float32), 3, {}, "its dtype is 'float64', now it is 'float32'"),
        (cones, 3, {"rng": np.random.default_rng(0)}, "the generator, its seed or its state"),
        (cones, 3, {"max_iter": 1}, r"is at iteration \d+, beyond max_iter=1"),
        (cones[:, 1:], 3, {}, r"its shape is \[40, 200\], now it is \[40, 199\]"),
    ):
        refuses(CheckpointError, what, factorize, from_columns(V), K, checkpoint=run, **options)
    factorize(from_columns(np.asfortranarray(cones), block_samples=17), 3, checkpoint=run)


def custom_init(column):
    def init(V, K, rng):
        return V.columns([column, 70, 150]), None

    return init


def custom_update(share):
    def update(G, C, Y):
        return mult(G, C, Y) * share + Y * (1 - share)

    return update


OWN = {"init": custom_init(0), "solver": Solver(custom_update(0.9), first="H")}
W = np.random.default_rng(0).random((40, 3))


@pytest.mark.parametrize(
    ("own", "other", "message"),
    [
        ({"init": W}, {"init": W + 1}, "the factors given as init"),
        (OWN, {"init": custom_init(1)}, "functions given as init or solver"),
        (OWN, {"solver": Solver(custom_update(0.8), first="H")}, "functions given as init or"),
        (OWN, {"solver": Solver(custom_update(0.9), first="H", floored=True)}, "functions given"),
    ],
)
def test_own_factors_and_functions_belong_to_the_run(cones, run, own, other, message, refuses):
    V = from_columns(cones)
    factorize(V, np.int64(3), checkpoint=run, **LIMITS, **own)
    refuses(CheckpointError, message, lambda: resumed(V, run, **own | other))
    functions = {"init": custom_init(0), "solver": Solver(custom_update(0.9), first="H")}
    resumed(V, run, **functions if own is OWN else own)


def test_every_part_of_an_identity_counts(tmp_path, refuses):
    """Also what only the saved run has, or only the new one."""
    file = tmp_path / "state.npz"
    checkpoint_module._write(file, {"K": 3, "known": None}, {"W": W}, {"rng": None})
    facts, arrays = checkpoint_module._read(file, {"K": 3, "known": None})
    assert facts["rng"] is None
    np.testing.assert_array_equal(arrays["W"], W)
    for other, message in (
        ({"K": 3}, "the mask, the weights or the missing entries are not those"),
        ({"K": 3, "known": None, "side": "a"}, "its side is None, now it is 'a'"),
        ({"K": 3, "known": None, "side": None}, "its side is None, now it is None"),
        ({"K": 3, "known": None, "groups": "a"}, "the groups of the samples are not those"),
        ({"K": 4, "known": None}, "its K is 3, now it is 4"),
    ):
        refuses(CheckpointError, message, checkpoint_module._read, file, other)


# --- damage -----------------------------------------------------------------------------------


HARM = {"cut": lambda file: file.write_bytes(file.read_bytes()[:-100]), "gone": Path.unlink}


@pytest.mark.parametrize("name", ["state.npz", "H-000000000000000.npy"])
@pytest.mark.parametrize("how", HARM)
def test_damaged_checkpoints(run, cones, name, how, refuses):
    factorize(from_columns(cones), 3, checkpoint=run, **LIMITS)
    (saved,) = Path(run.folder).iterdir()
    HARM[how](saved / name)
    message = rf"{name}.*; delete"
    refuses(CheckpointError, message, lambda: resumed(from_columns(cones), run))


@pytest.mark.parametrize("storage", ["memory", "dask"])
def test_flipped_bits_in_every_file(cones, run, storage, rng):
    """The run is refused, and the file is named; or the bits do not matter, and nothing changes."""
    X = np.ascontiguousarray(cones.T)
    V = from_rows(X if storage == "memory" else da.from_array(X, chunks=(100, 40)))
    factorize(V, 3, checkpoint=run, init="cr1", **LIMITS)
    expected = factorize(V, 3, init="cr1", **LIMITS | {"max_iter": 9}).W
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


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path, cones, monkeypatch, refuses):
    V, saves = from_columns(cones), []
    options = {"tol": 0, "max_iter": 8}
    whole = factorize(V, 3, **options)
    original = checkpoint_module.write_arrays

    def full(path, *content):
        saves.append(path)
        if len(saves) == 4:
            raise OSError(28, "No space left on device")
        original(path, *content)

    options["checkpoint"] = Checkpoint(tmp_path, every=0)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_module, "write_arrays", full)
        refuses(
            OutputError, "not enough disk space to write .*00000003", factorize, V, 3, **options
        )
    assert os.listdir(tmp_path) == ["00000002"]
    assert np.array_equal(factorize(V, 3, **options).W, whole.W)


# --- folders ----------------------------------------------------------------------------------


def test_a_folder_in_use_is_refused(cones, run, refuses):
    V, folder = from_columns(cones), Path(run.folder)
    folder.mkdir()

    def second(iteration=None):
        message = "in use by another process: wait"
        refuses(CheckpointError, message, factorize, V, 3, checkpoint=run, **LIMITS)

    with in_use(folder, folder / ".checkpoint.conenmf-lock"):
        second()
    factorize(V, 3, checkpoint=run, callback=second, **LIMITS)
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
    np.save(tmp_path / "x.npy", np.ascontiguousarray(np.tile(cones, 4).T))
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), budget, str(last)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert {*os.listdir(tmp_path)} == {"x.npy", "run"}  # arrays of samples leave nothing
    V = open_data(tmp_path / "x.npy", max_memory=budget)
    options = LIMITS | {"init": "cr1"}
    found = factorize(V, 3, checkpoint=Checkpoint(tmp_path / "run", every=0), **options)
    np.testing.assert_array_equal(found.W, factorize(V, 3, **options).W)
    assert os.listdir(tmp_path / "run") == ["00000005"]
