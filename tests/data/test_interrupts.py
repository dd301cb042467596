"""Ctrl-C and forks at moments that are random, or worse than any random one.

The moments at which an exception can be raised in the main thread are between any two operations:
here some are chosen, and many are drawn. Nothing may wait for ever afterwards, and the next fit has
the same bits.
"""

import multiprocessing
import os
import signal
import threading
import time
import timeit

import h5py
import numpy as np
import pytest
from threadpoolctl import threadpool_info

from conenmf import factorize, from_rows, open_data

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
    return factorize(opener(), 3, init="cr1", tol=0, max_iter=3)


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


@pytest.mark.nightly
@needs_signals
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # see below
@pytest.mark.usefixtures("several_blas_threads")
@pytest.mark.parametrize("kind", ["memory", "npy", "hdf5"])
def test_after_an_interrupt_at_any_moment_the_next_fit_is_the_same(openers, kind):
    expected, before = fit(openers[kind]), blas_threads()
    seconds = min(timeit.repeat(lambda: fit(openers[kind]), number=1, repeat=5))
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


# --- forks ------------------------------------------------------------------------------------


@pytest.mark.nightly
@forking
@needs_fork
@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_processes_of_a_forked_pool_fit_after_a_fit_of_their_parent(X, loss):
    expected = fit_of(X, loss)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for W in pool.starmap(fit_of, [(X, loss)] * 4):
            assert np.array_equal(W, expected)
