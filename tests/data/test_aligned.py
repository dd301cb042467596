"""Arrays in files of their own, which go with them."""

import os
import subprocess
from tempfile import TemporaryFile

import numpy as np
import pytest

from conenmf import factorize, open_data
from conenmf.data.aligned import check_file, new_file, release_rows, save_array
from conenmf.errors import CheckpointError, OutputError

FLOAT = np.dtype(float)


def test_a_file_goes_with_its_array(disk):
    place = disk("size=2m")
    free = os.statvfs(place).f_bavail
    array = new_file(place, (50_000, 2), FLOAT)
    assert os.listdir(place) == []  # it has no name
    assert os.statvfs(place).f_bavail < free
    array[:] = 1.0
    rows = array[1:]
    del array
    assert rows.sum() == 99_998
    assert os.statvfs(place).f_bavail < free
    del rows
    assert os.statvfs(place).f_bavail == free


def test_rows_that_are_released_stay_in_the_file(tmp_path):
    array = new_file(tmp_path, (5000, 3), FLOAT)
    array[:] = np.arange(15_000).reshape(-1, 3)
    release_rows(array, 0, 5000)
    np.testing.assert_array_equal(array, np.arange(15_000).reshape(-1, 3))


def test_a_full_disk_is_named(disk):
    place = disk("size=2m")
    np.save(place / "x.npy", np.random.default_rng(0).random((20_000, 5)))
    V = open_data(place / "x.npy", max_memory="1MB")
    with pytest.raises(OutputError, match="GB of coefficients in"):
        factorize(V, 3, init="random", rng=np.random.default_rng(0))


def test_data_on_a_disk_that_cannot_be_written_to(disk, tmp_path, monkeypatch):
    place = disk("size=2m")
    np.save(place / "x.npy", np.random.default_rng(0).random((600, 5)))
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    folders = []

    def temporary(dir):
        folders.append(dir)
        return TemporaryFile(dir=dir)

    monkeypatch.setattr("conenmf.data.aligned.tempfile.TemporaryFile", temporary)
    monkeypatch.setattr("conenmf.data.aligned.tempfile.gettempdir", lambda: str(tmp_path))
    result = factorize(open_data(place / "x.npy", max_memory="100kB"), 3, max_iter=2)
    assert isinstance(result.H, np.memmap)
    assert tmp_path in folders
    assert place not in folders
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
