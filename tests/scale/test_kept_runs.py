"""Replicates kept in a folder: resumed with the same bits, refused for other settings."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from conenmf import from_columns, open_data, stability
from conenmf.errors import CheckpointError
from conenmf.judge.stability import stability_over
from conenmf.scale.checkpoint import Checkpoint

OPTIONS = {"max_iter": 6, "tol": 0.0}


@pytest.fixture
def counts():
    rng = np.random.default_rng(0)
    return rng.poisson(rng.gamma(0.5, 4, (20, 3)) @ rng.gamma(0.5, 4, (3, 60))).astype(float)


def same_runs(one, other):
    for name in ("spectra", "run_errors", "W", "H"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def iterations(folder):
    """How many of some run that has not ended are saved."""
    names = [place.name for place in folder.glob("run-*/*")]
    return max((int(name) for name in names if name.isdigit()), default=0)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("loss", "resample"),
    [("frobenius", "start"), ("poisson", "samples"), ("frobenius", "counts")],
)
def test_a_killed_process_continues_with_the_same_bits(tmp_path, counts, loss, resample):
    """Killed for good, in the middle of runs that share their passes and are saved in each."""
    np.save(tmp_path / "counts.npy", counts.T)
    folder = tmp_path / "runs"
    script = f"""
        from conenmf import open_data, stability
        from conenmf.scale.checkpoint import Checkpoint
        V = open_data({str(tmp_path / "counts.npy")!r})
        stability(V, 3, 4, loss={loss!r}, resample={resample!r}, max_iter=400, tol=0.0,
                  checkpoint=Checkpoint({str(folder)!r}, every=0))
    """
    V = open_data(tmp_path / "counts.npy")
    options = {"loss": loss, "resample": resample, "max_iter": 400, "tol": 0.0}
    victim = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)])
    try:
        while iterations(folder) < 5:
            assert victim.poll() is None
            time.sleep(0.01)
    finally:
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    continued = stability(V, 3, 4, checkpoint=folder, **options)
    same_runs(continued, stability(V, 3, 4, **options))
    assert sorted(os.listdir(folder)) == [f"run-000{n}.npz" for n in range(4)]


def test_runs_that_have_ended_are_not_computed_again(tmp_path, counts, monkeypatch):
    V, folder = from_columns(counts), tmp_path / "runs"
    whole = stability(V, 3, 6, **OPTIONS)
    stability(V, 3, 4, checkpoint=folder, **OPTIONS)
    (folder / "run-0001.npz").unlink()
    seen = []
    monkeypatch.setattr(
        "conenmf.scale.checkpoint.KeptRuns.keep", lambda self, number, *end: seen.append(number)
    )
    same_runs(stability(V, 3, 6, checkpoint=folder, **OPTIONS), whole)
    assert seen == [1, 4, 5]  # two more than before, and the one that was lost


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"K": 2}, "its K is 3, now it is 2"),
        ({"loss": "poisson"}, "its loss is 'frobenius', now it is 'poisson'"),
        ({"resample": "counts"}, "its resample is 'samples', now it is 'counts'"),
        ({"tol": 0.5}, "its tol is 0.0, now it is 0.5"),
        ({"max_iter": 7}, "its max_iter is 6, now it is 7"),
        ({"rng": np.random.default_rng(9)}, "the generator, its seed or its state are not those"),
        ({"added": 1}, "some entries of the data, or their order, are not"),
    ],
)
def test_a_folder_of_other_settings_or_data_is_refused(tmp_path, counts, change, message, refuses):
    stability(from_columns(counts), 3, 2, checkpoint=tmp_path / "runs", **OPTIONS)
    options = {"K": 3, "n_runs": 2, "checkpoint": tmp_path / "runs", **OPTIONS, **change}
    counts[3, 4] += options.pop("added", 0)
    message = rf"belongs to another run: {message}.*; use another folder"
    refuses(CheckpointError, message, lambda: stability(from_columns(counts), **options))


def test_damage_is_named(tmp_path, counts, refuses):
    V, folder = from_columns(counts), tmp_path / "runs"
    stability(V, 3, 2, checkpoint=Checkpoint(folder), **OPTIONS)
    run = folder / "run-0001.npz"
    run.write_bytes(run.read_bytes()[:100])
    for place, message in (
        (folder, r"run-0001.npz is not a checkpoint .*; delete it"),
        (run, "cannot be used as a folder for checkpoints"),
    ):
        options = {"checkpoint": place, **OPTIONS}
        refuses(CheckpointError, message, lambda options=options: stability(V, 3, 2, **options))


def test_a_range_keeps_its_runs_too(tmp_path, counts, monkeypatch):
    V, folder = from_columns(counts), tmp_path / "runs"
    whole = stability_over(V, [2, 3], 3, checkpoint=folder, **OPTIONS)
    assert sorted(os.listdir(folder)) == ["K-2", "K-3"]
    monkeypatch.setattr("conenmf.scale.checkpoint.KeptRuns.keep", None)  # nothing is left to keep
    again = stability_over(V, [2, 3], 3, checkpoint=folder, **OPTIONS)
    assert again.K == whole.K
    for k in (2, 3):
        same_runs(again.found[k], whole.found[k])


OTHER_NUMBER = "run-0001.npz belongs to another run: its number is 0, now it is 1"


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda runs, _: (runs / "run-0000.npz").rename(runs / "run-0001.npz"), OTHER_NUMBER),
        (
            lambda runs, _: shutil.copy(runs / "run-0000.npz", runs / "run-0001.npz"),
            OTHER_NUMBER,
        ),
        (
            lambda runs, other: shutil.copy(other / "run-0001.npz", runs),
            "run-0001.npz belongs to another run: some entries of the data",
        ),
    ],
    ids=["renamed", "copied here", "from other data"],
)
def test_runs_that_are_not_those_of_this_folder_are_refused(
    tmp_path, counts, harm, message, refuses
):
    V, turned, options = from_columns(counts), from_columns(counts[:, ::-1]), {**OPTIONS}
    options["checkpoint"] = tmp_path / "runs"
    stability(V, 3, 2, **options)
    stability(turned, 3, 2, **options | {"checkpoint": tmp_path / "other"})
    harm(tmp_path / "runs", tmp_path / "other")
    refuses(CheckpointError, message, lambda: stability(V, 3, 2, **options))


def test_runs_of_another_dispersion_or_number_of_components_are_refused(tmp_path, counts, refuses):
    def run(K, dispersion=0.0):
        options = {"loss": "poisson", "resample": "counts", "dispersion": dispersion, **OPTIONS}
        stability(from_columns(counts), K, 2, checkpoint=tmp_path / f"K={K}", **options)

    run(2)
    run(3)
    refuses(CheckpointError, r"its dispersion is 0\.0, now it is 0\.2", run, 3, 0.2)
    shutil.copy(tmp_path / "K=2" / "run-0000.npz", tmp_path / "K=3" / "run-0000.npz")
    refuses(CheckpointError, "its K is 2, now it is 3", run, 3)
