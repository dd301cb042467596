"""Workers that are killed, retired or scaled away during a fit: same bits, or a named error.

Dask's settings are the defaults, except where a test says why.
"""

import os
import signal
import threading
import time
import warnings
from dataclasses import replace

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

from conenmf import factorize, from_rows
from conenmf.cones.simulate import make_cones
from conenmf.errors import InputWarning, ReadError
from conenmf.scale.checkpoint import Checkpoint

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.filterwarnings("ignore:Sending large graph:UserWarning"),
    pytest.mark.filterwarnings("ignore:the cluster has had no worker"),  # on a busy machine
]
OPTIONS = {"init": "cr1", "tol": 0.0, "max_iter": 8}
# A LocalCluster forgets a worker that is not back within 15 s, too few on a busy machine.
PATIENT = {"distributed.deploy.lost-worker-timeout": "10 minutes"}


@pytest.fixture(scope="module")
def X():
    model = make_cones(30, 4, 0.15, n_samples=2000, rng=np.random.default_rng(0))
    return np.ascontiguousarray(model.V.T)


@pytest.fixture(scope="module")
def undisturbed(X):
    """A fit on Dask's threads."""
    run = factorize(from_rows(chunked(X)), 4, **OPTIONS)
    return replace(run, H=np.asarray(run.H))


@pytest.fixture
def cluster():
    """A new cluster for each test, and its client."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        dask.config.set({"scheduler": None, **PATIENT}),
        LocalCluster(**options) as cluster,
        Client(cluster) as client,
    ):
        yield cluster, client


def chunked(X):
    return da.from_array(X, chunks=(100, X.shape[1]))


def kill_one(client):
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)


def at(iterations, action):
    """A callback that acts once at each of some iterations."""

    def callback(progress):
        if progress.iteration in iterations:
            action(progress.iteration)

    return callback


@pytest.mark.parametrize("iterations", [(0,), (1,), (5,), (3, 6)], ids=str)
@pytest.mark.parametrize("persist", [True, False], ids=["persisted", "read again"])
def test_killed(cluster, X, undisturbed, same_factors, iterations, persist):
    """Also two in turn, the second when the first is back."""
    _, client = cluster

    def kill(iteration):
        client.wait_for_workers(2, timeout=300)
        kill_one(client)

    V = from_rows(chunked(X), persist=persist)
    same_factors(factorize(V, 4, callback=at(iterations, kill), **OPTIONS), undisturbed)


@pytest.mark.parametrize("seconds", [0.05, 0.4, 1.5])
def test_killed_at_any_moment(cluster, X, undisturbed, same_factors, seconds):
    _, client = cluster
    array = chunked(X).persist()
    pids = list(client.run(os.getpid).values())
    timer = threading.Timer(seconds, os.kill, (pids[0], signal.SIGKILL))
    timer.start()
    same_factors(factorize(from_rows(array), 4, **OPTIONS), undisturbed)
    timer.join()


def test_retired_and_scaled(cluster, X, undisturbed, same_factors):
    group, client = cluster

    def change(iteration):
        if iteration == 1:
            group.scale(3)
        elif iteration == 3:
            workers = list(client.nthreads())
            client.retire_workers(workers[:1])
        else:
            group.scale(1)

    found = factorize(from_rows(chunked(X)), 4, callback=at((1, 3, 6), change), **OPTIONS)
    same_factors(found, undisturbed)


def test_adaptive(cluster, X, undisturbed, same_factors):
    group, _ = cluster
    group.adapt(minimum=0, maximum=3)
    same_factors(factorize(from_rows(chunked(X)), 4, **OPTIONS), undisturbed)


def test_restarted(cluster, X, undisturbed, same_factors, tmp_path):
    """Dask forgets every task: a named error; the checkpoint is whole, and the call resumes."""
    _, client = cluster
    checkpoint = Checkpoint(tmp_path / "run", every=0)

    def restart(iteration):
        client.restart()

    with pytest.raises(ReadError, match="repeat the call"):
        factorize(
            from_rows(chunked(X)),
            4,
            checkpoint=checkpoint,
            callback=at((4,), restart),
            **OPTIONS,
        )
    found = factorize(from_rows(chunked(X)), 4, checkpoint=checkpoint, **OPTIONS)
    same_factors(found, undisturbed)


def test_no_worker_is_left_and_later_some_come(cluster, X, undisturbed, same_factors):
    """One warning after half a minute; the fit goes on with the workers that come."""
    group, _ = cluster

    def leave(iteration):
        group.scale(0)
        threading.Timer(50.0, group.scale, (2,)).start()

    V = from_rows(chunked(X))
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = factorize(V, 4, callback=at((3,), leave), **OPTIONS)
    assert time.perf_counter() - began > 50.0
    said = [str(one.message) for one in caught if issubclass(one.category, InputWarning)]
    assert len(said) == 1
    assert "no-workers-timeout" in said[0]
    same_factors(found, undisturbed)


def greedy(rows, block_info=None):
    """Take more memory than the worker may have."""
    return rows + np.ones(2 << 30, np.uint8)[0]


def test_a_worker_that_takes_too_much_memory(X):
    options = {"n_workers": 1, "threads_per_worker": 1, "memory_limit": "800MB"}
    with (
        dask.config.set({"scheduler": None}),
        LocalCluster(**options, dashboard_address=":0") as group,
        Client(group),
        pytest.raises(ReadError, match="smaller chunks, or workers with more memory"),
    ):
        from_rows(chunked(X).map_blocks(greedy, dtype=float), persist=True)
