"""Interrupts at every place where numba acquires or releases its lock (see `lock_places`).

An interrupt there could leave the lock to the main thread, and a helper that compiled waited for
it for ever.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from conenmf import kernels
from conenmf.data.resources import run_in_order
from conenmf.kernels import load

pytest.importorskip("numba")
pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.skipif(os.environ.get("CONENMF_NUMBA") == "0", reason="needs kernels"),
]

STEP = 1 if os.environ.get("CONENMF_TESTS") == "all" else 19  # not a multiple of 2: all kinds


def outcomes(n_kinds, requests, cache):
    """Return the outcomes of interrupts, each in a process of its own."""
    program = Path(__file__).with_name("lock_places.py")
    command = [sys.executable, "-W", "ignore", str(program), str(n_kinds), *requests]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in ended.stdout.splitlines()]


def assert_harmless(interrupted, expected):
    """Check that nothing hangs, and that later fits in both threads have the same bits."""
    assert interrupted.count(None) == 0
    for outcome in interrupted:
        assert outcome["interrupted"]
        assert outcome["digests"] == expected["digests"]


def test_fits_go_on_after_an_interrupt_of_the_compiler(tmp_path):
    compiling = outcomes(1, ["signal:3001"], tmp_path)  # and the later fits fill the cache
    expected, *loading = outcomes(
        1, ["signal:-1", "raised:2", "signal:70", "raised:203", "raised:1004"], tmp_path
    )
    assert not expected["interrupted"]
    assert len(set(expected["digests"])) == 1
    assert_harmless(compiling + loading, expected)
    assert expected["threads"] == ["conenmf-compiler"]  # signals raise in the main thread only


@pytest.mark.nightly
def test_fits_go_on_after_an_interrupt_at_any_place_of_the_lock(tmp_path):
    (cold,) = outcomes(4, ["signal:-1"], tmp_path / "cold")
    compiling = []
    for number in range(4):  # raised amid type inference, where no signal can, it breaks numba
        place = (2 * number + 1) * cold["places"] // 8
        compiling += outcomes(4, [f"signal:{place}"], tmp_path / str(number))
    (warm,) = outcomes(4, ["signal:-1"], tmp_path / "cold")
    assert warm["places"] < cold["places"]
    assert warm["digests"] == cold["digests"]
    places = range(0, warm["places"], STEP)
    requests = [f"{how}:{place}" for how in ("raised", "signal") for place in places]
    loading = outcomes(4, requests, tmp_path / "cold")
    print(len(compiling), "places that compile and", len(loading), "that load were interrupted")
    assert_harmless(compiling + loading, warm)


# --- waiting for a compilation -------------------------------------------------------------------


def interrupt_main():
    """Interrupt the main thread, which soon waits for this one."""
    time.sleep(0.5)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    time.sleep(0.5)


def test_an_interrupt_waits_for_the_compiler():
    ended = []

    def work():
        interrupt_main()
        ended.append(threading.current_thread())

    with pytest.raises(KeyboardInterrupt):
        load.run_apart(work)
    assert len(ended) == 1
    assert ended[0] is not threading.current_thread()


def test_a_second_interrupt_does_not_wait():
    may_end = threading.Event()
    raised = []
    ended = []

    def interrupt(*signal_and_frame):
        if len(raised) < 2:  # a busy machine may deliver two signals as one, so more are sent
            raised.append(True)
            raise KeyboardInterrupt

    def work():
        time.sleep(1)  # until the main thread waits
        while len(raised) < 2 and not may_end.wait(0.1):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        may_end.wait(60)
        ended.append(True)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            load.run_apart(work)
        assert not ended
        assert len(raised) == 2
    finally:
        may_end.set()
        while not ended:
            time.sleep(0.01)
        signal.signal(signal.SIGINT, before)


def test_errors_of_the_compiler_are_raised():
    with pytest.raises(ZeroDivisionError):
        load.run_apart(lambda: 1 // 0)


def test_helpers_start_with_a_free_lock():
    kernels.load_kernels()
    lock = load._numba_lock()
    for _ in range(2):  # left by interrupts of somebody else's kernels
        lock.acquire()
    run_in_order(lambda index: index, lambda *_: None, 2, 2)
    assert not lock.is_locked()
