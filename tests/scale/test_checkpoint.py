import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from conenmf import ConeNMF, Factorization, factorize, from_columns, make_cones
from conenmf.errors import CheckpointError, OutputError
from conenmf.scale import checkpoint as checkpoint_module
from conenmf.scale.checkpoint import Checkpoint
from conenmf.solve.solvers import SOLVERS


@pytest.fixture
def cones():
    return make_cones(40, 3, 0.2, n_samples=200, noise=0.02, rng=np.random.default_rng(0)).V


class KilledError(Exception):
    pass


def die_at(iteration):
    def callback(now):
        if now.iteration == iteration:
            raise KilledError

    return callback


@pytest.mark.parametrize(
    ("solver", "init"),
    [*zip(SOLVERS, 2 * ["cr1", "random", "cr1"], strict=True), ("hals", "random")],
)
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, sample_matrix, small_blocks, solver, init):
    check_resumed(from_columns(sample_matrix, **small_blocks), tmp_path, solver, init)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("solver", "init"), [("hals", "random"), ("plain-mult", "cr1")])
def test_a_resumed_run_on_every_storage(
    tmp_path, sample_matrix, main_backend, small_blocks, solver, init
):
    """With two arrays per sample to save, as extrapolation needs, and with one."""
    check_resumed(main_backend(sample_matrix), tmp_path, solver, init)


def check_resumed(V, tmp_path, solver, init):
    options = {"init": init, "solver": solver, "max_iter": 12, "tol": 0}
    undisturbed = np.random.default_rng(4)
    whole = factorize(V, 3, rng=undisturbed, **options)
    checkpoint = Checkpoint(tmp_path / "run", every=0)
    for iteration in (3, 7):
        with pytest.raises(KilledError):
            factorize(
                V,
                3,
                rng=np.random.default_rng(4),
                checkpoint=checkpoint,
                callback=die_at(iteration),
                **options,
            )
        assert os.listdir(tmp_path / "run") == [f"{iteration - 1:08d}"]
    rng = np.random.default_rng(4)
    resumed = factorize(V, 3, rng=rng, checkpoint=checkpoint, **options)
    assert np.array_equal(resumed.W, whole.W)
    assert np.array_equal(np.asarray(resumed.H), np.asarray(whole.H))
    assert np.array_equal(resumed.history.relative_error, whole.history.relative_error)
    np.testing.assert_allclose(resumed.history.passes, whole.history.passes)
    assert (np.diff(resumed.history.elapsed) > 0).all()
    assert resumed.settings == whole.settings
    assert resumed.seconds["init"] > 0
    assert rng.random() == undisturbed.random()


def test_a_run_that_the_user_ended_resumes(tmp_path, cones):
    V = from_columns(cones)
    options = {"max_iter": 12, "tol": 0}
    whole = factorize(V, 3, **options)
    checkpoint = Checkpoint(tmp_path / "run")  # saves every minute, and when the run is ended
    callback = lambda now: now.iteration == 5  # noqa: E731
    ended = factorize(V, 3, checkpoint=checkpoint, callback=callback, **options)
    assert ended.n_iter == 5
    resumed = factorize(V, 3, checkpoint=checkpoint, **options)
    assert np.array_equal(resumed.W, whole.W)
    assert np.array_equal(resumed.history.relative_error, whole.history.relative_error)


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937, np.random.Philox])
def test_every_kind_of_generator(tmp_path, cones, kind):
    V, checkpoint = from_columns(cones), Checkpoint(tmp_path, every=0)
    with pytest.raises(KilledError):
        factorize(
            V,
            3,
            init="random",
            checkpoint=checkpoint,
            rng=np.random.Generator(kind(1)),
            callback=die_at(2),
        )
    rng = np.random.Generator(kind(1))
    factorize(V, 3, init="random", checkpoint=checkpoint, rng=rng)
    other = np.random.Generator(kind(1))
    factorize(V, 3, init="random", rng=other)
    assert rng.random() == other.random()
    wrong = np.random.SFC64
    with pytest.raises(CheckpointError, match="the generator, its seed or its state"):
        factorize(V, 3, init="random", checkpoint=checkpoint, rng=np.random.Generator(wrong(1)))


@pytest.mark.nightly
def test_a_process_that_is_really_killed(tmp_path, cones):
    np.save(tmp_path / "V.npy", cones)
    script = f"""
        import os, signal, sys
        import numpy as np
        from conenmf import factorize, open_data
        from conenmf.scale.checkpoint import Checkpoint
        calls = []
        def callback(now):
            calls.append(now)
            if sys.argv[1] == "die" and len(calls) == 4:
                os.kill(os.getpid(), signal.SIGKILL)
        V = open_data({str(tmp_path / "V.npy")!r}, samples_in="columns")
        checkpoint = Checkpoint({str(tmp_path / "run")!r}, every=0) if sys.argv[2:] else None
        result = factorize(V, 3, tol=0, max_iter=15, callback=callback, checkpoint=checkpoint)
        result.save({str(tmp_path)!r} + "/" + sys.argv[1] + ".npz")
    """

    def run(*arguments):
        command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
        quick = {**os.environ, "CONENMF_NUMBA": "0"}  # nothing to import and compile
        return subprocess.run(command, env=quick, check=False).returncode

    assert run("whole") == 0
    n_killed = 0
    while (status := run("die", "checkpoint")) == -signal.SIGKILL and n_killed < 15:
        assert not (tmp_path / "die.npz").exists()
        n_killed += 1
    assert (status, n_killed > 2) == (0, True)
    whole, resumed = (Factorization.load(tmp_path / f"{name}.npz") for name in ("whole", "die"))
    for name in ("W", "H", "labels", "relative_error", "objective"):
        assert np.array_equal(getattr(whole, name), getattr(resumed, name)), name
    assert np.array_equal(whole.history.relative_error, resumed.history.relative_error)


def test_more_iterations_can_be_asked_for(tmp_path, cones):
    V, checkpoint = from_columns(cones), Checkpoint(tmp_path, every=0)
    factorize(V, 3, tol=0, max_iter=5, checkpoint=checkpoint)
    longer = factorize(V, 3, tol=0, max_iter=9, checkpoint=checkpoint)
    assert np.array_equal(longer.W, factorize(V, 3, tol=0, max_iter=9).W)


def test_the_estimator_resumes(tmp_path, cones):
    checkpoint = Checkpoint(tmp_path, every=0)
    with pytest.raises(KilledError):
        ConeNMF(3, checkpoint=checkpoint, callback=die_at(4)).fit(cones.T)
    resumed = ConeNMF(3, checkpoint=checkpoint).fit(cones.T)
    assert np.array_equal(resumed.components_, ConeNMF(3).fit(cones.T).components_)


def test_checkpoints_of_other_runs_are_refused(tmp_path, cones):
    checkpoint = Checkpoint(tmp_path, every=0)
    factorize(from_columns(cones), 3, checkpoint=checkpoint)
    for V, K, options, what in (
        (cones, 4, {}, "its K is 3, now it is 4"),
        (cones, 3, {"solver": "mult"}, "its solver is 'hals', now it is 'mult'"),
        (cones, 3, {"init": "spa"}, "its init is 'auto'"),
        (cones, 3, {"init": np.ones((40, 3))}, "its init is 'auto'"),
        (2 * cones, 3, {}, "entries of the data"),
        (cones[:, ::-1], 3, {}, "entries of the data, or their order"),
        (cones, 3, {"rng": np.random.default_rng(0)}, "the generator, its seed or its state"),
        (cones, 3, {"max_iter": 1}, r"is at iteration \d+, beyond max_iter=1"),
        (cones[:, 1:], 3, {}, r"its shape is \[40, 200\], now it is \[40, 199\]"),
    ):
        with pytest.raises(CheckpointError, match=what):
            factorize(from_columns(V), K, checkpoint=checkpoint, **options)


def test_own_factors_belong_to_the_run(tmp_path, cones):
    V, checkpoint = from_columns(cones), Checkpoint(tmp_path, every=0)
    W = np.random.default_rng(0).random((40, 3))
    factorize(V, np.int64(3), init=W, max_iter=3, checkpoint=checkpoint)
    factorize(V, 3, init=W, max_iter=4, checkpoint=checkpoint)
    with pytest.raises(CheckpointError, match="the factors given as init"):
        factorize(V, 3, init=W + 1, checkpoint=checkpoint)


@pytest.mark.parametrize("name", ["state.npz", "H-000000000000000.npy"])
@pytest.mark.parametrize("how", ["cut", "gone"])
def test_damaged_checkpoints(tmp_path, cones, name, how):
    checkpoint = Checkpoint(tmp_path, every=0)
    factorize(from_columns(cones), 3, checkpoint=checkpoint)
    (saved,) = tmp_path.iterdir()
    file = saved / name
    if how == "cut":
        file.write_bytes(file.read_bytes()[:-100])
    else:
        file.unlink()
    with pytest.raises(CheckpointError, match=rf"{name}.*; delete"):
        factorize(from_columns(cones), 3, checkpoint=checkpoint)


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path, cones, monkeypatch):
    V = from_columns(cones)
    whole = factorize(V, 3, tol=0, max_iter=8)
    saves = []
    original = checkpoint_module.write_arrays

    def full(path, *content):
        saves.append(path)
        if len(saves) == 4:
            raise OSError(28, "No space left on device")
        original(path, *content)

    checkpoint = Checkpoint(tmp_path, every=0)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_module, "write_arrays", full)
        with pytest.raises(OutputError, match=r"not enough disk space to write .*00000003"):
            factorize(V, 3, tol=0, max_iter=8, checkpoint=checkpoint)
    assert os.listdir(tmp_path) == ["00000002"]
    resumed = factorize(V, 3, tol=0, max_iter=8, checkpoint=checkpoint)
    assert np.array_equal(resumed.W, whole.W)


def test_a_changed_header_of_an_array_is_noticed(tmp_path, cones):
    """NumPy would read fewer numbers, and never come to the checksum at the end."""
    V, checkpoint = from_columns(cones), Checkpoint(tmp_path, every=0)
    factorize(V, 3, solver="hals", max_iter=3, checkpoint=checkpoint)
    (state,) = tmp_path.glob("*/state.npz")
    content = state.read_bytes()
    assert b"(40, 3)" in content
    state.write_bytes(content.replace(b"(40, 3)", b"(40, 2)", 1))
    with pytest.raises(CheckpointError, match="Bad CRC-32"):
        factorize(V, 3, solver="hals", max_iter=3, checkpoint=checkpoint)
