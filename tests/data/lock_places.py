"""Fits that are interrupted where numba acquires or releases its lock, each in its own process.

    python lock_places.py KINDS (raised|signal):PLACE ...

The places of a fit are the profile events (call, C call, C return, return) of `acquire` and
`release` in numba's module `compiler_lock`, in any thread, numbered in the order of their time. An
interrupt is raised there, or sent there as SIGINT. The libraries are imported once: each process is
a fork that has not loaded any kernel, and compiles unless NUMBA_CACHE_DIR has the kernel.

For each place, a line has the outcome as JSON, or null if the process was still waiting after
`LIMIT` seconds. No interrupt comes at place -1. KINDS is the number of kinds of data: 1 to 4.
"""

import hashlib
import itertools
import json
import os
import signal
import sys
import threading
import time
import traceback

import numba  # noqa: F401  # imported before the fork: each process then begins sooner
import numpy as np
import scipy.sparse as sp

from conenmf import factorize, from_rows

LIMIT = 180  # a process that compiles all kernels takes 18 seconds of processor time


def fits(n_kinds):
    """Yield factors of data of several kinds, each of which needs kernels for other types."""
    X = np.random.default_rng(0).random((120, 10))
    rows = sp.csr_array(X * (X > 0.5))
    rows.indices, rows.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    kinds = X, X.astype(np.float32), np.asfortranarray(X), rows
    for data in kinds[:n_kinds]:
        V = from_rows(data, block_samples=20, n_threads=3)
        result = factorize(V, 3, init="cr1", max_iter=3)
        yield result.W, result.H


def digest(n_kinds):
    """Return a digest of all factors."""
    text = hashlib.sha256()
    for W, H in fits(n_kinds):
        text.update(W.tobytes())
        text.update(H.tobytes())
    return text.hexdigest()


def profile_of(place, how, seen):
    """Return a profile function that interrupts at a place, and counts places in `seen`."""
    numbers = itertools.count()

    def profile(frame, event, argument):
        code = frame.f_code
        if not code.co_filename.endswith("compiler_lock.py"):
            return
        if code.co_name not in ("acquire", "release"):
            return
        number = next(numbers)
        seen.append(threading.current_thread().name)
        if number != place:
            return
        if how == "raised":
            raise KeyboardInterrupt
        os.kill(os.getpid(), signal.SIGINT)

    return profile


def outcome(n_kinds, how, place):
    """Return what an interrupt at a place leads to, in this process."""
    seen = []
    profile = profile_of(place, how, seen)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.setprofile(profile)
    sys.setprofile(profile)
    is_interrupted = False
    try:
        digest(n_kinds)
    except KeyboardInterrupt:
        is_interrupted = True
    sys.setprofile(None)
    threading.setprofile(None)
    elsewhere = []
    thread = threading.Thread(target=lambda: elsewhere.append(digest(n_kinds)))
    own = digest(n_kinds)
    thread.start()
    thread.join()
    return {
        "interrupted": is_interrupted,
        "places": len(seen),
        "threads": sorted(set(seen)),
        "digests": [own, *elsewhere],
    }


def in_a_fork(n_kinds, how, place):
    """Return the outcome of a forked process; None if it waits for ever."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, json.dumps(outcome(n_kinds, how, place)).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writer)
    deadline = time.monotonic() + LIMIT
    ended = 0
    while not ended:
        ended, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
    if status:
        raise RuntimeError(f"{how} at place {place} ended with status {status}")
    with open(reader) as file:
        return json.load(file)


if __name__ == "__main__":
    n_kinds, *requests = sys.argv[1:]
    for request in requests:
        how, place = request.split(":")
        print(json.dumps(in_a_fork(int(n_kinds), how, int(place))), flush=True)
