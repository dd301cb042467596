"""What a look at files shows, which changes are harmless, and what is looked at."""

import os
import time

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from conenmf import factorize, from_columns, from_rows, open_data
from conenmf.data.files import evidence, formats
from conenmf.data.files.evidence import WatchedFile, WatchedFiles
from conenmf.data.files.watch import Watch, watch_mapped
from conenmf.errors import DataChangedError

SMALL = {"max_memory": "1MB"}


@pytest.fixture
def X():
    return np.random.default_rng(0).random((400, 30)) + 0.1


@pytest.fixture
def path(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"numbers")
    return tmp_path / "a.bin"


def fit(V, callback=None, max_iter=4):
    rng = np.random.default_rng(0)
    return factorize(V, 3, init="random", rng=rng, max_iter=max_iter, tol=0, callback=callback)


def test_a_file_by_its_path(path):
    file = WatchedFile(path)
    assert file.look() == file.opened
    path.chmod(0o600)
    now = file.look()
    assert now.firm == file.opened.firm
    assert now.hint != file.opened.hint
    new = path.with_name("b.bin")
    new.write_bytes(b"nombers")
    os.utime(new, ns=(1, path.stat().st_mtime_ns))
    os.replace(new, path)
    assert file.look().firm != file.opened.firm  # another inode
    path.unlink()
    with pytest.raises(DataChangedError, match=r"a\.bin can no longer be read"):
        file.look()


def test_a_file_that_the_caller_has_open(path):
    shared, mapped = WatchedFile(path, firm="nothing"), WatchedFile(path, firm="size")
    path.write_bytes(b"other, and more")
    assert shared.look().firm == shared.opened.firm
    assert shared.look().hint != shared.opened.hint
    with pytest.raises(DataChangedError, match=r"had 7 bytes .* and now has 15"):
        Watch("a", (mapped,)).check()
    path.unlink()
    for file in (shared, mapped):
        assert file.look().firm == file.opened.firm
        assert file.look().hint != file.opened.hint


def test_a_change_right_after_the_opening_has_another_time(path):
    for number in range(50):
        path.write_bytes(b"numbe%02d" % number)
        file = WatchedFile(path)
        path.write_bytes(b"other%02d" % number)
        assert file.look().firm != file.opened.firm


def test_a_time_in_the_future_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(evidence.time, "sleep", lambda seconds: pytest.fail("waits"))
    evidence._await_tick(time.time_ns() + 10**12)
    evidence._await_tick(time.time_ns() - 10**9)


def test_a_working_folder_that_changes(tmp_path, X, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", X)
    zarr.create_array("a.zarr", data=X, chunks=(50, 30))
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("X", data=X)
    expected = fit(from_rows(X)).relative_error
    for name in ("a.npy", "a.zarr", "a.h5"):
        monkeypatch.chdir(tmp_path)
        V = open_data(name, **SMALL)
        result = fit(V, callback=lambda now: monkeypatch.chdir("/"))
        assert result.relative_error == pytest.approx(expected)


def test_the_files_of_a_list(tmp_path):
    files = [tmp_path / f"{number}.png" for number in range(5)]
    for file in files:
        file.write_bytes(b"image")
    watch = Watch("images", (WatchedFiles.of_list("images", files),))
    (tmp_path / "5.png").write_bytes(b"image")
    watch.check()
    files[3].write_bytes(b"image!")
    with pytest.raises(DataChangedError, match=r"3\.png was changed after images was opened"):
        watch.check()
    files[3].unlink()
    with pytest.raises(DataChangedError, match=r"3\.png can no longer be read"):
        watch.check()


def test_looking_at_many_files_keeps_one_number_each(tmp_path):
    files = [tmp_path / str(number) for number in range(2000)]
    for file in files:
        file.touch()
    watched = WatchedFiles.of_zarr(tmp_path)
    assert watched.n_files == 2000
    assert len(watched.opened.firm) == 8 * 2000


# --- what is in the same file or store ---


def test_another_dataset_is_written_by_the_caller(tmp_path, X):
    """The file gets longer, and its time moves."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        V = from_rows(file.create_dataset("X", data=X), **SMALL)
        expected = fit(V)
        passes, n_bytes = V.passes, V.bytes_read

        def write(now):
            file[f"other {now.iteration} {len(file)}"] = np.ones(10_000)
            file.flush()

        result = fit(V, callback=write)
        assert np.array_equal(result.H, expected.H)
        assert V.bytes_read - n_bytes == (V.passes - passes) * X.nbytes  # nothing is read twice
        file["X"][200] = 9.0
        with pytest.raises(DataChangedError, match=r"a\.h5:/X was changed .* samples"):
            fit(V)


def test_another_array_is_written_beside_one_of_zarr(tmp_path, X):
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="w")
    group.create_array("X", data=X, chunks=(50, 30))
    for V in (open_data(tmp_path / "a.zarr", **SMALL), from_rows(group["X"], **SMALL)):

        def write(now):
            group.create_array(f"other{now.iteration}", data=X, overwrite=True)
            group.attrs["note"] = now.iteration

        fit(V, callback=write)


# --- memmaps, and arrays that are views of them ---


def mapped(tmp_path, X, mode="r"):
    np.save(tmp_path / "a.npy", X)
    return np.load(tmp_path / "a.npy", mmap_mode=mode)


VIEWS = {
    "slice": lambda array: from_rows(array[5:]),
    "steps": lambda array: from_rows(array[::2]),
    "turned": lambda array: from_columns(array.T),
    "plain": lambda array: from_rows(np.asarray(array)),
    "private": from_rows,
}


@pytest.mark.parametrize("kind", VIEWS)
def test_views_of_memmaps_are_compared_too(tmp_path, X, kind):
    array = mapped(tmp_path, X, "c" if kind == "private" else "r")
    V = VIEWS[kind](array)

    def write():
        with open(tmp_path / "a.npy", "r+b") as stream:
            stream.seek(-30 * 8 * 10, os.SEEK_END)
            stream.write(np.full(300, 7.0).tobytes())

    result = fit(V)
    assert np.array_equal(fit(V, callback=lambda now: os.utime(tmp_path / "a.npy")).H, result.H)
    with pytest.raises(DataChangedError, match=r"a\.npy was changed .* samples"):
        fit(V, callback=lambda now: write() if now.iteration == 2 else None)
    os.truncate(tmp_path / "a.npy", 5000)  # reading what is mapped would end the process
    for use in (lambda: fit(V), lambda: V.columns([150]), V.turned().mean):
        with pytest.raises(DataChangedError, match=r"a\.npy .* now has 5000"):
            use()


def test_a_sparse_matrix_of_memmaps(tmp_path, X):
    matrix = sp.csr_array(np.where(X > 0.5, X, 0))
    np.save(tmp_path / "data.npy", matrix.data)
    numbers = np.load(tmp_path / "data.npy", mmap_mode="r+")
    V = from_rows(sp.csr_array((numbers, matrix.indices, matrix.indptr), shape=X.shape))
    fit(V)

    def write(now):
        numbers[-1] += 1.0

    with pytest.raises(DataChangedError, match=r"data\.npy was changed .* samples"):
        fit(V, callback=write)


def test_arrays_in_memory_are_not_watched(X):
    assert watch_mapped(X, X[3:]) is None
    assert from_rows(X).watch is None


def test_a_memmap_whose_file_was_replaced_before(tmp_path, X):
    array = mapped(tmp_path, X)
    np.save(tmp_path / "b.npy", X[::-1])
    os.replace(tmp_path / "b.npy", tmp_path / "a.npy")
    with pytest.raises(DataChangedError, match=r"a\.npy does not hold what the memmap shows"):
        from_rows(array)


def test_a_memmap_whose_file_has_no_name_any_more(tmp_path, X):
    V = from_rows(mapped(tmp_path, X))
    fit(V, callback=lambda now: (tmp_path / "a.npy").unlink(missing_ok=True))


# --- files that are read as a whole ---


def test_a_table_that_changes_while_it_is_read(tmp_path, X, monkeypatch):
    path = tmp_path / "a.csv"
    np.savetxt(path, X, delimiter=",")
    read = formats.open_text

    def change(*arguments):
        matrix = read(*arguments)
        with open(path, "a") as stream:
            stream.write("1\n")
        return matrix

    monkeypatch.setitem(formats.KINDS, ".csv", change)
    monkeypatch.setattr(formats, "_TABLES", (change,))
    with pytest.raises(DataChangedError, match=r"a\.csv had \d+ bytes"):
        open_data(path, header=None)


def test_what_is_written_through_a_mapping_is_noticed_in_the_exact_finish(tmp_path, X):
    """The time of the file does not move: its page had been written to before."""
    array = np.lib.format.open_memmap(tmp_path / "a.npy", "w+", X.dtype, X.shape)
    array[:] = X
    V = open_data(tmp_path / "a.npy", **SMALL)

    def write(now):
        array[123] = 7.0

    with pytest.raises(DataChangedError, match=r"a\.npy was changed"):
        fit(V, callback=write)
