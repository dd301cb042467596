import gc
import os
import threading
import time
import weakref
from concurrent.futures import CancelledError

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from conenmf import from_columns, from_rows
from conenmf.data import threads
from conenmf.data.threads import read_ahead, run_in_order


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


def test_tasks_may_start_tasks_from_several_threads():
    results = []
    users = [threading.Thread(target=lambda: results.append(sum_of(5, 2))) for _ in range(4)]
    for user in users:
        user.start()
    for user in users:
        user.join(60)
    assert results == [250] * 4


def test_threads_are_used_again_and_keep_no_data():
    class Data:
        pass

    data = Data()
    kept = weakref.ref(data)
    barrier = threading.Barrier(3)

    def run(index, data=data):
        barrier.wait(60)

    run_in_order(run, lambda i, r: None, 3, 3)
    before = threading.active_count()
    for _ in range(4):
        run_in_order(run, lambda i, r: None, 3, 3)
    assert threading.active_count() == before
    del run, data
    gc.collect()
    deadline = time.monotonic() + 60
    while kept() is not None and time.monotonic() < deadline:
        time.sleep(0.001)
    assert kept() is None


def interrupted(index):
    if threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt
    time.sleep(0.01)


def test_an_interrupt_ends_the_tasks():
    done = []
    with pytest.raises(KeyboardInterrupt):
        run_in_order(interrupted, lambda i, r: done.append(i), 1000, 2)
    assert len(done) < 10
    assert sum_of(4, 1) == 24


def in_child(work):
    """What a forked child's work returns, as bytes."""
    end, start = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(start, str(work()).encode())
        finally:
            os._exit(0)
    os.close(start)
    with os.fdopen(end, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    return text


@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_has_threads_of_its_own(small_blocks, sample_matrix):
    assert sum_of(5, 1) == 50
    assert in_child(lambda: sum_of(5, 2)) == "250"
    before = blas_threads(None)
    held, done = threading.Event(), threading.Event()

    def user():
        with from_columns(sample_matrix, **small_blocks).own_threads():
            held.set()
            done.wait(60)

    thread = threading.Thread(target=user)
    thread.start()
    held.wait(60)
    assert in_child(lambda: sum_of(5, 2)) == "250"
    assert blas_threads(None) == (1,)
    done.set()
    thread.join(60)
    assert blas_threads(None) == before


def test_a_child_is_not_inside_what_its_parent_was_inside(small_blocks, sample_matrix):
    V = from_columns(sample_matrix, **small_blocks)

    def inside():
        with V.own_threads():
            return blas_threads(None)

    with threadpool_limits(2, user_api="blas"), V.own_threads():
        assert in_child(inside) == "(1,)"


def test_a_user_of_blas_that_was_abandoned_holds_it_no_longer(small_blocks, sample_matrix):
    V = from_columns(sample_matrix, **small_blocks)
    before = blas_threads(None)
    abandoned = V.own_threads()
    abandoned.__enter__()
    assert blas_threads(None) == (1,)
    del abandoned  # as an interrupt may leave it
    gc.collect()
    assert blas_threads(None) == before
    with threadpool_limits(2, user_api="blas"), V.own_threads():
        assert blas_threads(None) == (1,)


def failing_step(block):
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("lost a worker")
    raise RuntimeError("lost the main thread")


def test_an_exception_in_a_block_ends_the_sweep(small_blocks, sample_matrix):
    V = from_columns(sample_matrix, n_threads=3, **small_blocks)
    with pytest.raises(RuntimeError, match="lost"):
        V.sweep(failing_step)
    before = threading.active_count()
    V.sweep(products, np.arange(40), W=np.ones((12, 1)))  # and the next one works
    assert threading.active_count() == before


@pytest.fixture
def several_blas_threads():
    """Let BLAS have two threads, also where OMP_NUM_THREADS is 1."""
    with threadpool_limits(2, user_api="blas"):
        yield


def blas_threads(block):
    counts = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    return (max(counts),)


def test_blas_threads_are_held_for_overlapping_users_in_any_thread(small_blocks, sample_matrix):
    V = from_columns(sample_matrix, **small_blocks)
    before = blas_threads(None)
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

    users = [threading.Thread(target=target) for target in (first, second)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert seen == [(1,)]
    assert blas_threads(None) == before
    with threadpool_limits(1):
        assert blas_threads(None) == (1,)
    assert blas_threads(None) == before


def test_same_bits_from_any_thread():
    X = np.random.default_rng(0).random((3000, 400))
    results = []

    def work():
        V = from_rows(X)
        results.append(V.sweep(products, np.arange(3000), W=X[:50].T)[2][0])

    work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert np.array_equal(*results)


def test_blas_threads_are_held_and_given_back(small_blocks, sample_matrix):
    V = from_columns(sample_matrix, **small_blocks)
    before = blas_threads(None)
    (most,) = V.sweep(blas_threads, reduce=max)
    assert most == 1
    assert blas_threads(None) == before
    with V.own_threads(), V.own_threads():
        assert blas_threads(None) == (1,)
    assert blas_threads(None) == before


def test_a_limit_that_cannot_be_set_leaves_nothing_behind(
    monkeypatch, several_blas_threads, small_blocks, sample_matrix
):
    V = from_columns(sample_matrix, **small_blocks)
    before = blas_threads(None)

    def refuse(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        fresh = threads._BlasLimit()
        patch.setattr(threads, "_blas_limit", lambda process: fresh)
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"), V.own_threads():
            pass
    with V.own_threads():
        assert blas_threads(None) == (1,)
    assert blas_threads(None) == before


def test_an_exception_inside_gives_the_threads_back(small_blocks, sample_matrix):
    before = blas_threads(None)
    with (
        pytest.raises(KeyboardInterrupt),
        from_columns(sample_matrix, **small_blocks).own_threads(),
    ):
        raise KeyboardInterrupt
    assert blas_threads(None) == before


def test_reading_ahead_stays_within_its_depth_and_in_order():
    read = []
    with read_ahead(lambda index: read.append(index) or index, 10, 3) as take:
        for index in range(10):
            assert take(index) == index
            assert len(read) <= index + 1 + 3
    assert read == list(range(10))


def test_failures_of_the_reader_reach_the_taker():
    def read(index):
        if index == 2:
            raise OSError("unreadable")
        return index

    with read_ahead(read, 5, 2) as take:
        assert [take(0), take(1)] == [0, 1]
        with pytest.raises(OSError, match="unreadable"):
            take(2)


def test_reading_ahead_serves_callers_out_of_order():
    with read_ahead(lambda index: index, 9, 2) as take:
        assert [take(index) for index in (5, 0, 2, 1, 4, 3, 8, 6, 7)] == [5, 0, 2, 1, 4, 3, 8, 6, 7]


def test_a_caller_that_still_waits_when_reading_ends_gets_an_error():
    began, go, caught = threading.Event(), threading.Event(), []

    def read(index):
        began.set()
        go.wait(60)

    def wait(take):
        try:
            take(7)
        except (CancelledError, RuntimeError) as problem:  # waiting, or about to
            caught.append(problem)

    with read_ahead(read, 9, 2) as take:
        waiter = threading.Thread(target=wait, args=(take,))
        waiter.start()
        began.wait(60)
        threading.Timer(0.05, go.set).start()
    waiter.join(60)
    assert len(caught) == 1
