"""Temporary files go with their owners, and only with them; a folder has one user at a time."""

import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import warnings

import numpy as np
import pytest

from conenmf.data import aligned
from conenmf.data.files import locks
from conenmf.data.files.atomic import folder_written_whole, written_whole
from conenmf.data.files.locks import Temporary, in_use, remove_leftovers
from conenmf.errors import LockWarning, OutputError

OWNER = """
    import sys, time
    from pathlib import Path
    from conenmf.data.files.atomic import folder_written_whole, written_whole
    from conenmf.data.files.locks import Temporary, in_use
    folder = Path(sys.argv[1])
    one, two = Temporary(folder / "data.npy", "H"), Temporary(folder / "out", is_folder=True)
    (two.path / "part").write_text("x")
    with written_whole(folder / "a.csv") as stream, in_use(folder):
        print("ready", flush=True)
        time.sleep(600)
"""


@pytest.fixture
def owner(tmp_path):
    """Start processes that own a file, a folder, an unfinished file and a lock in the folder."""
    processes = []

    def start(folder):
        command = [sys.executable, "-c", textwrap.dedent(OWNER), str(folder)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def hidden(folder):
    return sorted(name for name in os.listdir(folder) if name.endswith(".tmp"))


def test_leftovers_of_a_killed_process_go_and_those_of_a_living_one_stay(tmp_path, owner):
    killed = owner(tmp_path)
    of_killed = hidden(tmp_path)
    killed.kill()
    killed.wait()
    alive = owner(tmp_path)  # which removes the leftovers of the first
    of_alive = hidden(tmp_path)
    assert len(of_alive) == len(of_killed) == 3
    assert not {*of_alive} & {*of_killed}
    for name in (".data.npy.conenmf-H.", ".out.conenmf-part.", ".a.csv.conenmf-part."):
        assert sum(one.startswith(name) for one in of_alive) == 1
    (tmp_path / ".data.npy.conenmf-H.tmp").write_text("no name of ours")
    remove_leftovers(tmp_path)
    with written_whole(tmp_path / "b.csv"):
        pass
    for name in of_alive:
        os.utime(tmp_path / name, (0, 0))  # age does not count
    remove_leftovers(tmp_path, of_all_machines=True)
    assert set(of_alive) < set(hidden(tmp_path))
    os.kill(alive.pid, signal.SIGTERM)
    alive.wait()
    remove_leftovers(tmp_path)
    assert hidden(tmp_path) == [".data.npy.conenmf-H.tmp"]


def test_a_in_use_is_refused_until_its_user_has_ended(tmp_path, owner):
    process = owner(tmp_path)
    with (
        pytest.raises(
            OutputError,
            match=rf"in use by process {process.pid} on .* since 2.*: wait until",
        ),
        in_use(tmp_path),
    ):
        pass
    process.kill()
    process.wait()
    with in_use(tmp_path):
        refused = pytest.raises(OutputError, match=f"by process {os.getpid()} on")
        with refused, in_use(tmp_path):  # in the same process too
            pass
        assert ".conenmf-lock" in os.listdir(tmp_path)
    assert ".conenmf-lock" not in os.listdir(tmp_path)


def test_a_lock_file_that_a_killed_process_left_goes_too(tmp_path, owner):
    process = owner(tmp_path)
    remove_leftovers(tmp_path)
    assert ".conenmf-lock" in os.listdir(tmp_path)
    process.kill()
    process.wait()
    (tmp_path / ".x.conenmf-lock").write_text("process 1 on another machine since yesterday")
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == [".x.conenmf-lock"]


def test_those_of_other_machines_are_left_to_them(tmp_path, monkeypatch):
    temporary = Temporary(tmp_path / "a")
    path = temporary.path
    temporary._release()  # as if its owner had been killed
    with monkeypatch.context() as patch:
        patch.setattr(locks, "_machine", lambda: ("0" * 8, "1" * 8))
        remove_leftovers(tmp_path)
        assert path.exists()
    remove_leftovers(tmp_path)
    assert not path.exists()


@pytest.mark.parametrize("is_folder", [False, True])
def test_one_that_is_taken_for_a_leftover_before_it_is_locked_is_made_again(
    tmp_path, monkeypatch, is_folder
):
    original, seen = locks._locked, []

    def after_a_scan(path, flags):
        if not seen:
            seen.append(path)
            monkeypatch.setattr(locks, "_locked", original)
            remove_leftovers(tmp_path)
        return original(path, flags)

    monkeypatch.setattr(locks, "_locked", after_a_scan)
    temporary = Temporary(tmp_path / "a", is_folder=is_folder)
    assert not seen[0].exists()
    assert temporary.path.exists()
    remove_leftovers(tmp_path)
    assert temporary.path.exists()
    temporary.remove()
    assert os.listdir(tmp_path) == []


def test_many_makers_and_scanners_at_once(tmp_path):
    lost = []

    def make():
        for _ in range(100):
            temporary = Temporary(tmp_path / "a")
            remove_leftovers(tmp_path)
            if not temporary.path.exists():
                lost.append(temporary.path)
            temporary.remove()

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lost == []
    assert os.listdir(tmp_path) == []


def test_links_and_other_kinds_are_not_touched(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    name = locks._temporary_name("a", "part")
    os.symlink(precious, tmp_path / name)
    os.mkfifo(tmp_path / locks._temporary_name("b", "part"))
    remove_leftovers(tmp_path)
    assert len(hidden(tmp_path)) == 2
    assert precious.read_text() == "mine"


def test_names_of_any_length_and_kind(tmp_path):
    for name in ("x" * 255, "ä" * 127, "\udcff.npy", "a\nb"):
        Temporary(tmp_path / name).remove()
    assert os.listdir(tmp_path) == []


def test_a_forked_child_neither_keeps_nor_frees_nor_removes(tmp_path):
    """Locks end with what the parent does, though the child has copies of the open files."""
    temporary = Temporary(tmp_path / "a")
    ready, done = os.pipe(), os.pipe()
    with in_use(tmp_path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of libraries are idle
            child = os.fork()
        if child == 0:
            temporary.remove()  # it is not the child's
            os.write(ready[1], b"x")
            os.read(done[0], 1)
            os._exit(0)
        assert os.read(ready[0], 1) == b"x"
        remove_leftovers(tmp_path)
        assert temporary.path.exists()
        with pytest.raises(OutputError, match="in use"), in_use(tmp_path):
            pass
    with in_use(tmp_path):  # free, though the child lives
        pass
    temporary.remove()
    assert os.listdir(tmp_path) == []
    os.write(done[1], b"x")
    os.waitpid(child, 0)
    for end in (*ready, *done):
        os.close(end)


def test_where_there_are_no_locks(tmp_path, monkeypatch):
    class NoLocks:
        LOCK_EX = LOCK_NB = 0

        def flock(self, *_):
            raise OSError(38, "Function not implemented")

    temporary = Temporary(tmp_path / "a")
    left = temporary.path
    temporary._release()
    monkeypatch.setattr(locks, "fcntl", NoLocks())
    with written_whole(tmp_path / "b") as stream:
        stream.write(b"x")
    assert left.exists()  # nothing is removed, whoever it belongs to
    with pytest.warns(LockWarning, match="has no locks"), in_use(tmp_path):
        pass
    monkeypatch.setattr(locks, "fcntl", None)  # Windows
    with in_use(tmp_path), written_whole(tmp_path / "b"):
        pass
    assert left.exists()
    assert os.listdir(tmp_path) != []


@pytest.mark.skipif(os.name != "posix", reason="needs permissions")
@pytest.mark.parametrize(
    ("umask", "of_file", "of_folder"), [(0o022, 0o644, 0o755), (0o007, 0o660, 0o770)]
)
def test_only_the_owner_can_read_what_is_temporary(tmp_path, umask, of_file, of_folder):
    def mode(path):
        return stat.S_IMODE(path.stat().st_mode)

    before = os.umask(umask)
    try:
        with written_whole(tmp_path / "a") as stream:
            stream.write(b"x")
            (hidden_file,) = (tmp_path / name for name in os.listdir(tmp_path))
            assert mode(hidden_file) == 0o600
        with folder_written_whole(tmp_path / "b") as folder:
            assert mode(folder) == 0o700
        array = aligned.new_file(tmp_path, "H", (10, 2), np.dtype(float))
        (hidden_file,) = (tmp_path / name for name in hidden(tmp_path))
        assert mode(hidden_file) == 0o600
        aligned.keep_file(array, "kept")
    finally:
        os.umask(before)
    modes = {path.name: mode(path) for path in tmp_path.iterdir()}
    assert modes == {"a": of_file, "b": of_folder, "kept.H.npy": of_file}
