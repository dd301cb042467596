"""Ctrl-C and forks at moments that are random, or worse than any random one.

The moments at which an exception can be raised in the main thread are between any two operations:
here some are chosen, and many are drawn. Nothing may wait for ever afterwards, and the next fit has
the same bits.
"""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from threadpoolctl import threadpool_info

import conenmf
from conenmf import factorize, forks, from_rows, kernels, open_data
from conenmf.data import aligned, threads
from conenmf.data.files import locks

needs_signals = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs setitimer")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
forking = pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")


@pytest.fixture
def X():
    return np.random.default_rng(0).random((120, 10))


@pytest.fixture
def openers(X, tmp_path):
    """The same data, to be opened in memory and in files."""
    np.save(tmp_path / "X.npy", X)
    with h5py.File(tmp_path / "X.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=(20, 10))
    return {
        "memory": lambda: from_rows(X, block_samples=20),
        "npy": lambda: open_data(tmp_path / "X.npy", max_memory="1MB", block_samples=20),
        "hdf5": lambda: open_data(tmp_path / "X.h5", max_memory="1MB", block_samples=20),
    }


def fit(opener):
    return factorize(opener(), 3, init="cr1", sketch=None, tol=0, max_iter=3)


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert condition()


# --- interrupts -------------------------------------------------------------------------------


def is_interrupted(opener, delay):
    """Whether an interrupt after so many seconds ends a loop of fits."""
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        for _ in range(10):
            fit(opener)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        return True
    return False


@needs_signals
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # see below
@pytest.mark.parametrize("kind", ["memory", "npy", "hdf5"])
def test_after_an_interrupt_at_any_moment_the_next_fit_is_the_same(openers, kind):
    expected, before = fit(openers[kind]), blas_threads()
    began = time.perf_counter()
    fit(openers[kind])
    seconds = time.perf_counter() - began
    n_before = threading.active_count()
    earlier = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        n_interrupts = 0
        for share in np.random.default_rng().random(12):
            n_interrupts += is_interrupted(openers[kind], 1e-6 + share * seconds)
            result = fit(openers[kind])
            assert np.array_equal(result.W, expected.W)
            assert np.array_equal(result.H, expected.H)
            wait_until(lambda: blas_threads() == before)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)
    assert n_interrupts > 6  # Python drops a few, and warns: those in its own destructors
    assert threading.active_count() <= n_before + 4  # all of them idle


def test_a_process_that_was_interrupted_anywhere_ends(X, tmp_path):
    """Also if no thread could be stopped in order: every `finally` is interrupted once more."""
    np.save(tmp_path / "X.npy", X)
    script = f"""
        import sys, threading
        from conenmf import open_data
        from conenmf.data import threads
        V = open_data({str(tmp_path / "X.npy")!r}, max_memory="1MB", block_samples=20)
        def interrupted(*arguments):
            raise KeyboardInterrupt
        threads._Done.wait = interrupted
        threads._BlasKeeper._exit = interrupted
        try:
            V.sweep(interrupted)
        except KeyboardInterrupt:
            sys.exit(7)
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(conenmf.__file__).parents[1])}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (7, "")


class InterruptedCrew(threads._Crew):
    """One whose caller is interrupted at once when work has started."""

    def __init__(self):
        super().__init__()
        self.started = []

    def start(self, work):
        self.started.append(super().start(work))
        raise KeyboardInterrupt


@pytest.fixture
def interrupted_crew(monkeypatch):
    crew = InterruptedCrew()
    monkeypatch.setattr(threads, "_crew", crew)
    return crew


def test_a_reader_ends_with_a_caller_that_was_interrupted_while_it_started(interrupted_crew):
    with pytest.raises(KeyboardInterrupt), threads.read_ahead(lambda index: index, 5, 2):
        pass
    wait_until(lambda: interrupted_crew.started[0]._is_set)


def test_blas_is_restored_after_a_user_that_was_interrupted_while_it_entered(interrupted_crew):
    before = blas_threads()
    with pytest.raises(KeyboardInterrupt), threads.one_blas_thread():
        pass
    wait_until(lambda: interrupted_crew.started[0]._is_set)
    assert blas_threads() == before


def test_blas_is_restored_after_a_user_that_could_not_leave(monkeypatch):
    def interrupted(self, user):
        raise KeyboardInterrupt

    before = blas_threads()
    with monkeypatch.context() as patch:
        patch.setattr(threads._BlasKeeper, "_exit", interrupted)
        with pytest.raises(KeyboardInterrupt), threads.one_blas_thread():
            assert set(blas_threads()) == {1}
    wait_until(lambda: blas_threads() == before)


def test_workers_that_were_interrupted_have_ended_when_the_interrupt_arrives():
    at_work = []

    def run(index):
        if threading.current_thread() is threading.main_thread():
            while not at_work:
                time.sleep(0.001)
            raise KeyboardInterrupt
        at_work.append(index)
        time.sleep(0.05)
        at_work.remove(index)

    with pytest.raises(KeyboardInterrupt):
        threads.run_in_order(run, lambda index, result: None, 100, 3)
    assert at_work == []


def test_an_interrupt_while_a_temporary_file_is_removed_is_not_lost(tmp_path, monkeypatch):
    """Arrays go where Python drops exceptions; their files are removed all the same."""
    remove, calls = locks.Temporary.remove, []

    def interrupted(self):
        calls.append(self.path)
        if len(calls) == 1:
            raise KeyboardInterrupt
        time.sleep(0.05)  # longer than it takes until the interrupt could come again
        remove(self)

    arrays = [aligned.new_file(tmp_path, "X", (10, 2), np.dtype(float))]
    monkeypatch.setattr(locks.Temporary, "remove", interrupted)
    with pytest.raises(KeyboardInterrupt):
        wait_until(arrays.clear)
    assert len(calls) == 2
    assert os.listdir(tmp_path) == []


# --- forks ------------------------------------------------------------------------------------


def status_of_child(work):
    """The exit code of a forked child that does some work, or fails within a minute."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@forking
@needs_fork
def test_children_forked_while_threads_fit(openers):
    expected = {kind: fit(opener).W for kind, opener in openers.items()}
    done, failures = threading.Event(), []

    def keep_fitting(kind):
        while not done.is_set():
            if not np.array_equal(fit(openers[kind]).W, expected[kind]):
                failures.append(kind)

    users = [threading.Thread(target=keep_fitting, args=(kind,), daemon=True) for kind in openers]
    for user in users:
        user.start()
    for kind in (*openers, *openers):
        assert status_of_child(lambda: True) == 0
        same = status_of_child(lambda k=kind: np.array_equal(fit(openers[k]).W, expected[k]))
        assert same == 0
    done.set()
    for user in users:
        user.join(60)
    assert failures == []


@forking
@needs_fork
def test_a_child_may_leave_what_its_parent_had_entered():
    def work():
        with threads.one_blas_thread():
            return set(blas_threads()) == {1}

    before = blas_threads()
    with threads.one_blas_thread():
        child = os.fork()
        if child == 0:
            signal.alarm(60)
    if child == 0:
        os._exit(0 if blas_threads() == before and work() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert blas_threads() == before


@forking
@needs_fork
@pytest.mark.parametrize("place", ["keeper", "kernels", "temporary files", "numba"])
def test_a_fork_waits_for_the_locks_that_a_child_needs(place):
    if place == "numba" and not kernels.AVAILABLE:
        pytest.skip("numba is not installed")
    ours = {
        "keeper": threads._keeper.lock,
        "kernels": kernels._replacing,
        "temporary files": locks._opening,
    }
    lock = ours.get(place) or sys.modules["numba"].core.compiler_lock.global_compiler_lock._lock
    held, released = threading.Event(), []

    def hold():
        with lock:
            held.set()
            time.sleep(0.1)
            released.append(True)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(60)
    assert status_of_child(lambda: bool(released) and lock.acquire(timeout=1)) == 0
    holder.join(60)
    assert lock.acquire(timeout=1)
    lock.release()


@forking
@needs_fork
def test_a_lock_that_is_held_for_too_long_is_new_in_the_child(monkeypatch, recwarn):
    monkeypatch.setattr(forks, "_FORK_SECONDS", 0.01)
    lock, held, go = threads._keeper.lock, threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            go.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(60)
    assert status_of_child(lambda: lock.acquire(timeout=1)) == 0
    assert not lock.acquire(blocking=False)  # the parent's is what it was
    go.set()
    holder.join(60)
    assert lock.acquire(timeout=1)
    lock.release()
    assert not [
        w for w in recwarn if issubclass(w.category, pytest.PytestUnraisableExceptionWarning)
    ]


@forking
@needs_fork
def test_a_fork_waits_for_an_import_that_needs_the_lock_of_h5py(tmp_path, monkeypatch):
    """The hook of h5py takes its lock before ours waits; the import could not end without it."""
    (tmp_path / "slow_to_import.py").write_text(
        "import time, h5py\ntime.sleep(0.1)\nwith h5py._objects.phil:\n    done = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(forks, "_FORK_SECONDS", 60)
    importer = threading.Thread(target=__import__, args=("slow_to_import",))
    importer.start()
    wait_until(lambda: "slow_to_import" in sys.modules)
    try:
        assert status_of_child(lambda: __import__("slow_to_import").done) == 0
    finally:
        importer.join(60)
        del sys.modules["slow_to_import"]


@forking
@needs_fork
def test_threads_that_fork_at_the_same_time_release_each_their_own():
    codes = []
    users = [
        threading.Thread(target=lambda: codes.append(status_of_child(lambda: True)))
        for _ in range(6)
    ]
    for user in users:
        user.start()
    for user in users:
        user.join(60)
    assert codes == [0] * 6
    for lock in forks._ours():
        assert lock.acquire(blocking=False)
        lock.release()


@forking
@needs_fork
def test_a_thread_of_the_crew_may_fork(openers):
    codes = []

    def run(index):
        if threading.current_thread() is threading.main_thread():
            while not codes:
                time.sleep(0.001)
        elif not codes:
            codes.append(status_of_child(lambda: fit(openers["npy"]).n_iter == 3))

    threads.run_in_order(run, lambda index, result: None, 3, 2)
    assert codes == [0]
