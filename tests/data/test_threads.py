"""Threads: order of results, nested tasks, interrupts, errors, and the threads of BLAS."""

import signal
import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from conenmf import from_columns, from_rows
from conenmf.data.resources import run_in_order


def products(block, piece, *, W):
    C = block.T @ W
    return C, piece + 1, (block @ C, float(C.sum()))


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_results_are_collected_in_order(n_threads):
    collected = []
    run_in_order(lambda i: i * i, lambda i, r: collected.append((i, r)), 50, n_threads)
    assert collected == [(i, i * i) for i in range(50)]


def sum_of(count, depth, n_threads=3):
    """Tasks that have their own tasks, which have their own."""
    total = []
    below = (lambda i: sum_of(count, depth - 1)) if depth else (lambda i: i)
    run_in_order(below, lambda i, r: total.append(r), count, n_threads)
    return sum(total)


def run_in_threads(*targets):
    """Run functions at the same time, each in a thread of its own, until all have ended."""
    users = [threading.Thread(target=target) for target in targets]
    for user in users:
        user.start()
    for user in users:
        user.join(60)


def test_tasks_may_start_tasks_from_several_threads():
    results = []
    run_in_threads(*[lambda: results.append(sum_of(5, 2))] * 4)
    assert results == [250] * 4


def interrupted(index):
    if threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt
    time.sleep(0.01)


def test_an_interrupt_ends_the_tasks():
    done = []
    with pytest.raises(KeyboardInterrupt):
        run_in_order(interrupted, lambda i, r: done.append(i), 1000, 2)
    assert len(done) < 500  # on a busy machine the main thread may take its first task late
    assert sum_of(4, 1) == 24


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs pthread_kill")
def test_an_interrupt_while_waiting_is_raised_after_the_last_task():
    main, begun, ended = threading.main_thread(), threading.Event(), []

    def run(index):
        if threading.current_thread() is main:
            begun.wait(60)  # the other thread has the other task, so this one waits for it next
            return
        begun.set()
        time.sleep(0.1)
        signal.pthread_kill(main.ident, signal.SIGINT)
        time.sleep(0.2)
        ended.append(index)

    with pytest.raises(KeyboardInterrupt):
        run_in_order(run, lambda *_: None, 2, 2)
    assert len(ended) == 1


def failing_step(block):
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("lost a worker")
    raise RuntimeError("lost the main thread")


def test_an_exception_in_a_block_ends_the_sweep(small_blocks, sample_matrix, refuses):
    V = from_columns(sample_matrix, n_threads=3, **small_blocks)
    refuses(RuntimeError, "lost", lambda: V.sweep(failing_step))
    before = threading.active_count()
    V.sweep(products, np.arange(40), W=np.ones((12, 1)))  # and the next one works
    assert threading.active_count() <= before


def blas_threads(block):
    counts = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    return (max(counts),)


@pytest.mark.usefixtures("several_blas_threads")
def test_blas_threads_are_held_for_overlapping_users_in_any_thread(small_blocks, sample_matrix):
    V = from_columns(sample_matrix, **small_blocks)
    before = blas_threads(None)
    assert before == (3,)
    seen = []
    first_in, second_in, first_out = (threading.Event() for _ in range(3))

    def first():
        with V.own_threads():
            first_in.set()
            second_in.wait()
        first_out.set()

    def second():
        first_in.wait()
        with V.own_threads():
            second_in.set()
            first_out.wait()
            seen.append(blas_threads(None))

    run_in_threads(first, second)
    assert seen == [(1,)]
    assert blas_threads(None) == before
    with threadpool_limits(1):
        assert blas_threads(None) == (1,)
    assert blas_threads(None) == before


@pytest.mark.usefixtures("several_blas_threads")
def test_same_bits_from_any_thread():
    X = np.random.default_rng(0).random((3000, 400))
    results = []

    def work():
        results.append(from_rows(X).sweep(products, np.arange(3000), W=X[:50].T)[2][0])

    work()
    run_in_threads(work)
    assert np.array_equal(*results)


@pytest.mark.usefixtures("several_blas_threads")
def test_blas_threads_are_held_and_given_back(small_blocks, sample_matrix):
    V = from_columns(sample_matrix, **small_blocks)
    before = blas_threads(None)
    assert before == (3,)
    with V.own_threads(), V.own_threads():
        assert blas_threads(None) == V.sweep(blas_threads, reduce=max) == (1,)
    assert V.sweep(blas_threads, reduce=max) == (1,)
    assert blas_threads(None) == before
