"""Ctrl-C and forks at moments that are random, or worse than any random one.

The moments at which an exception can be raised in the main thread are between any two operations:
here some are chosen, and many are drawn. Nothing may wait for ever afterwards, and the next fit has
the same bits.
"""

import multiprocessing
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
from conenmf import factorize, from_rows, open_data
from conenmf.data import threads

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


def fit_of(X, loss):
    return factorize(from_rows(X, n_threads=3, block_samples=20), 3, loss=loss, max_iter=3).W


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
        import queue, sys
        from conenmf import open_data
        from conenmf.data import threads
        V = open_data({str(tmp_path / "X.npy")!r}, max_memory="1MB", block_samples=20)
        class Interrupted(queue.SimpleQueue):
            def get(self):
                raise KeyboardInterrupt
        threads.SimpleQueue = Interrupted
        try:
            V.sweep(print)
        except KeyboardInterrupt:
            sys.exit(7)
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(conenmf.__file__).parents[1])}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (7, "")


@pytest.mark.parametrize("moment", ["entering", "leaving"])
def test_blas_is_restored_by_the_next_user_after_an_interrupt(monkeypatch, moment):
    def interrupted(*arguments):
        put(*arguments)
        raise KeyboardInterrupt

    before, put = blas_threads(), threads._Pool.put
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):  # noqa: PT012
        if moment == "entering":
            patch.setattr(threads._Pool, "put", interrupted)
        with threads._blas_limit(os.getpid()).hold():
            assert set(blas_threads()) == {1}
            patch.setattr(threads._Pool, "put", interrupted)
    with threads.one_blas_thread():
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
        os._exit(0 if work() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert blas_threads() == before


def test_nothing_is_registered_to_run_at_forks(X):
    """A fork of the user's process costs what it costs without this library."""
    script = """
        import os, numpy, h5py, sklearn.decomposition, scipy.sparse, numba
        hooks = []
        os.register_at_fork = lambda **functions: hooks.append(functions)
        import conenmf.cli
        X = numpy.random.default_rng(0).random((60, 10))
        conenmf.ConeNMF(3).fit(X)
        conenmf.ConeNMF(3, loss="poisson").fit(X)
        functions = [f for hook in hooks for f in hook.values()]
        ours = [f for f in functions if str(f.__module__).startswith("conenmf")]
        print(len(ours))
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(conenmf.__file__).parents[1])}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("0\n", "")


@forking
@needs_fork
def test_a_child_that_was_forked_while_a_thread_held_our_locks_fits(openers):
    expected, held, go = fit(openers["npy"]).W, threading.Event(), threading.Event()

    def hold():
        with threads.one_blas_thread(), threads._blas_limit(os.getpid())._lock:
            held.set()
            go.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(60)
    assert status_of_child(lambda: np.array_equal(fit(openers["npy"]).W, expected)) == 0
    go.set()
    holder.join(60)


@forking
@needs_fork
@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_processes_of_a_forked_pool_fit_after_a_fit_of_their_parent(X, loss):
    expected = fit_of(X, loss)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for W in pool.starmap(fit_of, [(X, loss)] * 4):
            assert np.array_equal(W, expected)


@forking
@needs_fork
def test_a_thread_that_helps_may_fork(openers):
    codes = []

    def run(index):
        if threading.current_thread() is threading.main_thread():
            while not codes:
                time.sleep(0.001)
        elif not codes:
            codes.append(status_of_child(lambda: fit(openers["npy"]).n_iter == 3))

    threads.run_in_order(run, lambda index, result: None, 3, 2)
    assert codes == [0]
