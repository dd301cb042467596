"""Arrays in files of their own: they go with their owner, at once where the disk is full."""

import gc
import os
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest

from conenmf import factorize, open_data
from conenmf.data.aligned import check_file, freeing_disk, keep_file, new_file, save_array
from conenmf.errors import CheckpointError, OutputError

FLOAT = np.dtype(float)


def test_a_file_goes_with_its_array(tmp_path):
    array = new_file(tmp_path, "x.npy", (5, 2), FLOAT)
    (name,) = os.listdir(tmp_path)
    assert name.startswith(".x.npy.conenmf-H.")
    assert name.endswith(".tmp")
    array[:] = 1.0
    rows = array[1:]
    del array
    assert os.listdir(tmp_path) == [name]
    del rows
    assert os.listdir(tmp_path) == []


def test_kept_files_never_replace_others(tmp_path):
    (tmp_path / "x.npy.H.npy").write_text("mine")
    for number in (1, 2):
        array = new_file(tmp_path, "x.npy", (5, 2), FLOAT)
        array[:] = number
        kept = keep_file(array, "x.npy")
        assert Path(kept.filename) == tmp_path / f"x.npy.H-{number}.npy"
        assert (kept == number).all()
    assert (tmp_path / "x.npy.H.npy").read_text() == "mine"
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_a_forked_child_leaves_the_file_to_its_parent(tmp_path):
    arrays = [new_file(tmp_path, "x.npy", (5, 2), FLOAT)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of libraries are idle
        child = os.fork()
    if child == 0:
        arrays.clear()
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    assert len(os.listdir(tmp_path)) == 1
    assert Path(keep_file(arrays[0], "x.npy").filename).exists()


def test_a_full_disk_is_freed_at_once(disk):
    place = disk("size=2m")
    np.save(place / "x.npy", np.random.default_rng(0).random((20_000, 5)))
    V = open_data(place / "x.npy", max_memory="1MB")
    free = os.statvfs(place).f_bavail
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(OutputError, match="GB of coefficients in"):
            factorize(V, 3, init="random", rng=np.random.default_rng(0))
        kept = [name for name in os.listdir(place) if "conenmf-H" in name]
        assert len(kept) <= 1  # the norms of the samples, which V keeps
        assert os.statvfs(place).f_bavail == free
    finally:
        gc.enable()


def test_data_on_a_disk_that_cannot_be_written_to(disk, tmp_path, monkeypatch):
    place = disk("size=2m")
    np.save(place / "x.npy", np.random.default_rng(0).random((600, 5)))
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    monkeypatch.setattr("conenmf.data.aligned.tempfile.gettempdir", lambda: str(tmp_path))
    result = factorize(open_data(place / "x.npy", max_memory="100kB"), 3, max_iter=2)
    assert Path(result.H.filename) == tmp_path / "x.npy.H.npy"
    with pytest.raises(CheckpointError, match=r"cannot be used as a folder .*: Read-only"):
        factorize(open_data(place / "x.npy"), 3, checkpoint=place / "run")


def test_checksums(tmp_path):
    array = np.random.default_rng(0).random((1000, 7))
    for order in ("C", "F"):
        path = tmp_path / "a.npy"
        checksum = save_array(path, np.asarray(array, order=order))
        np.testing.assert_array_equal(np.load(path), array)
        check_file(path, checksum)
        assert checksum[0] == path.stat().st_size
    for wrong in (None, (checksum[0], 0), (0, checksum[1])):
        with pytest.raises(CheckpointError, match=r"a\.npy is damaged"):
            check_file(path, wrong)
    with pytest.raises(CheckpointError, match=r"b\.npy cannot be read: No such file"):
        check_file(tmp_path / "b.npy", checksum)


def test_errors_that_cause_each_other_are_raised_and_not_followed_forever():
    @freeing_disk
    def full():
        first, second = OutputError("full"), OSError("as well")
        first.__cause__, second.__context__ = second, first
        raise first

    with pytest.raises(OutputError, match="full"):
        full()
