"""Dask arrays: in this process, and on a cluster of two worker processes that can be killed."""

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from multiprocessing import forkserver

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context

from conenmf import ConeNMF, Factorization, certify, factorize, from_rows
from conenmf.cones.simulate import make_cones
from conenmf.data.resample import bootstrap
from conenmf.errors import (
    DataError,
    InputWarning,
)
from conenmf.judge.stability import stability
from conenmf.solve.losses import get_loss

pytestmark = pytest.mark.filterwarnings("ignore:Sending large graph:UserWarning")


@pytest.fixture(scope="module")
def X():
    model = make_cones(30, 4, 0.15, n_samples=2000, rng=np.random.default_rng(0))
    return np.ascontiguousarray(model.V.T)


@pytest.fixture(scope="module")
def forked():
    """Processes as copies of one that has imported everything: they start in no time."""
    settings = {
        "multiprocessing.context": "forkserver",
        "distributed.worker.multiprocessing-method": "forkserver",
    }
    with dask.config.set(settings):
        get_mp_context().set_forkserver_preload(["distributed", "conenmf.scale.dask", "numba"])
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OMP_NUM_THREADS", "1")  # too late when Dask sets it for a copy
            forkserver.ensure_running()
        yield


@pytest.fixture(scope="module")
def client(forked):
    with (
        dask.config.set(
            {
                "scheduler": None,
                # on a busy machine, Dask's 15 s are too few for a worker to come back
                "distributed.deploy.lost-worker-timeout": "10 minutes",
            }
        ),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def chunked(X, size=300):
    return da.from_array(X, chunks=(size, X.shape[1]))


@pytest.fixture(scope="module")
def undisturbed(client, X):
    """What a run of 8 iterations gives if nothing happens to it; held here, not on the workers."""
    run = factorize(from_rows(chunked(X)), 4, init="cr1", tol=0, max_iter=8)
    return replace(run, H=np.asarray(run.H))


# --- in this process --------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_any_scheduler(X, scheduler):
    with dask.config.set(scheduler=scheduler):
        V = from_rows(chunked(X))
        result = factorize(V, 4, max_iter=4)
        H = np.asarray(result.H)
    expected = factorize(from_rows(X), 4, max_iter=4)
    np.testing.assert_allclose(result.W, expected.W, atol=1e-10)
    np.testing.assert_allclose(H, expected.H, atol=1e-10)


def test_large_data_begin_in_single_on_every_storage(X):
    """The factors of few iterations agree to single precision, the errors to more."""
    larger = np.hstack([X, X[::-1]])
    expected = factorize(from_rows(larger), 4, max_iter=4)
    found = factorize(from_rows(chunked(larger)), 4, max_iter=4)
    assert np.abs(found.W - expected.W).max() > 0  # they were rounded on the way
    np.testing.assert_allclose(found.W, expected.W, atol=1e-4)
    assert found.relative_error == pytest.approx(expected.relative_error, rel=1e-6)


def test_the_estimator_takes_and_returns_dask_arrays(X):
    model = ConeNMF(4)
    A = model.fit_transform(chunked(X))
    assert isinstance(A, da.Array)
    assert A.shape == (2000, 4)
    plain = ConeNMF(4).fit(X)
    np.testing.assert_allclose(model.components_, plain.components_, atol=1e-10)
    np.testing.assert_array_equal(model.labels_, plain.labels_)
    np.testing.assert_allclose(model.transform(chunked(X, 500)), A, atol=1e-10)
    back = model.inverse_transform(A)
    assert isinstance(back, da.Array)  # not brought to the client
    np.testing.assert_allclose(back, np.asarray(A) @ model.components_)
    assert model.score(chunked(X)) == pytest.approx(plain.score(X))
    assert model.certify().gap == pytest.approx(plain.certify().gap, abs=1e-8)


def test_own_factors_in_any_form(X, rng):
    W, H = rng.random((30, 4)), rng.random((4, 2000))
    V = from_rows(chunked(X))
    expected = factorize(from_rows(X), 4, init=(W, H), max_iter=3)
    for own in (H, da.from_array(H, chunks=(2, 123))):
        result = factorize(V, 4, init=(W, own), max_iter=3)
        np.testing.assert_allclose(result.W, expected.W, atol=1e-10)
    assert certify(V, result.W, result.H.rechunk({0: 2})).gap > 0
    certificate = certify(V, result.W, np.asarray(result.H))
    assert certificate.relative_error == pytest.approx(expected.relative_error)


def test_chunks_along_features_are_cut_anew_with_a_warning(X):
    with pytest.warns(InputWarning, match="cut along features into 3 chunks"):
        V = from_rows(da.from_array(X, chunks=(500, 10)))
    np.testing.assert_allclose(V.norms_squared, (X**2).sum(axis=1))
    sparse = da.from_array(X, chunks=(500, 25)).map_blocks(sp.csr_matrix, dtype=float)
    with pytest.warns(InputWarning):
        V = from_rows(sparse)
    np.testing.assert_allclose(V.norms_squared, (X**2).sum(axis=1))


def test_empty_chunks_and_unknown_chunks(X, refuses):
    whole = chunked(X)
    V = from_rows(da.concatenate([whole[:0], whole[:600], whole[600:600], whole[600:]]))
    np.testing.assert_allclose(V.norms_squared, (X**2).sum(axis=1))
    unknown = whole[whole[:, 0] > whole[:, 0].mean()]
    refuses(DataError, "compute_chunk_sizes", lambda: from_rows(unknown))
    V = from_rows(unknown.compute_chunk_sizes())
    assert 0 < V.shape[1] < 2000


@pytest.mark.parametrize("persist", [True, False])
def test_data_are_persisted_only_when_asked(X, persist):
    reads = []

    def load(block_info=None):
        reads.append(block_info[None]["chunk-location"])
        start = 500 * block_info[None]["chunk-location"][0]
        return X[start : start + 500]

    lazy = da.map_blocks(load, chunks=((500,) * 4, (30,)), dtype=float, meta=np.empty((0, 0)))
    V = from_rows(lazy, persist=persist)
    V.mean()
    assert len(reads) == (4 if persist else 8)


# --- on two worker processes ------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_the_cluster_gives_the_same_bits_as_one_process(client, X, sparse, same_factors):
    data = chunked(X)
    data = data.map_blocks(sp.csr_matrix, dtype=float) if sparse else data
    result = factorize(from_rows(data), 4, max_iter=5)
    with dask.config.set(scheduler="synchronous"):
        alone = factorize(from_rows(data), 4, max_iter=5)
        alone = replace(alone, H=np.asarray(alone.H))
    same_factors(result, alone)
    assert isinstance(result.H, da.Array)


@pytest.mark.nightly
@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_many_fits_on_workers_have_the_bits_of_each_alone(client, loss, traffic):
    V = from_rows(chunked(np.random.default_rng(0).poisson(3.0, (60, 12)).astype(float), 20))
    options = {"loss": loss, "max_iter": 3, "tol": 0.0}
    rounds = [V.traffic.rounds]
    found = stability(V, 2, 3, rng=np.random.default_rng(7), **options)
    for W, rng in zip(found.spectra, np.random.default_rng(7).spawn(3), strict=True):
        rounds.append(V.traffic.rounds)
        data = bootstrap(V, rng, degree=get_loss(loss).degree)
        alone = factorize(data, 2, init="random", rng=rng, **options).W
        W, alone = (Y / Y.sum(axis=0) for Y in (W, alone))
        np.testing.assert_allclose(np.sort(W, axis=1), np.sort(alone, axis=1), rtol=1e-13)
    together, *each = np.diff([*rounds, V.traffic.rounds])
    assert together < 2 * max(each) + 20  # not three times as many


@pytest.mark.nightly
@pytest.mark.parametrize("persist", [True, False], ids=["persisted", "read-again"])
def test_a_killed_worker_changes_nothing_but_the_time(
    client, X, undisturbed, persist, same_factors
):
    def kill(progress):
        if progress.iteration == 4:
            pids = client.run(os.getpid)
            os.kill(next(iter(pids.values())), signal.SIGKILL)

    V = from_rows(chunked(X), persist=persist)
    same_factors(factorize(V, 4, init="cr1", tol=0, max_iter=8, callback=kill), undisturbed)
    client.wait_for_workers(2, timeout=300)


CLIENT = """
    import os, signal, sys
    import dask.array as da
    import numpy as np
    from distributed import Client
    from conenmf import factorize, from_rows
    from conenmf.scale.checkpoint import Checkpoint
    def callback(progress):
        if sys.argv[1] == "die" and progress.iteration == 4:
            os.kill(os.getpid(), signal.SIGKILL)
    with Client("{address}"):
        V = from_rows(da.from_array(np.load("{folder}/X.npy"), chunks=(300, 30)))
        checkpoint = Checkpoint("{folder}/run", every=0)
        options = {{"init": "cr1", "tol": 0, "max_iter": 8}}
        result = factorize(V, 4, callback=callback, checkpoint=checkpoint, **options)
        result.save("{folder}/result.npz")
"""


@pytest.mark.nightly
def test_a_killed_client_resumes_with_the_same_bits(client, X, undisturbed, tmp_path, same_factors):
    np.save(tmp_path / "X.npy", X)
    address = client.scheduler.address
    script = textwrap.dedent(CLIENT.format(address=address, folder=tmp_path))

    def run(how):
        return subprocess.run([sys.executable, "-c", script, how], check=False).returncode

    assert run("die") == -signal.SIGKILL
    assert len(list((tmp_path / "run" / "00000003").glob("H-*.npy"))) == 7  # by the workers
    assert run("resume") == 0
    same_factors(Factorization.load(tmp_path / "result.npz"), undisturbed)


@pytest.fixture
def no_stealing(client):
    """Dask may move a chunk with all its results to an idle worker; here it must not."""

    async def steal(dask_scheduler, how):
        await getattr(dask_scheduler.extensions["stealing"], how)()

    client.run_on_scheduler(steal, how="stop")
    yield
    client.run_on_scheduler(steal, how="start")


@pytest.mark.nightly
def test_what_really_travels_does_not_depend_on_the_samples(client, no_stealing):
    """Counted by the workers themselves: W comes, sums go, H stays."""

    def sent():
        counts = client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total)
        return sum(counts.values())

    K, F = 5, 30
    per_iteration = []
    for N in (4000, 32_000):
        V = from_rows(da.random.default_rng(0).random((N, F), chunks=(N // 4, F)), persist=True)
        counts = []

        def watch(progress, counts=counts):
            counts.append(sent())

        factorize(V, K, init="random", tol=0, max_iter=8, callback=watch)
        per_iteration.append((counts[-1] - counts[0]) / 7)
    assert max(per_iteration) < 20 * 8 * F * K  # the part of H in one chunk has N / 4 * K numbers
    assert per_iteration[1] < per_iteration[0] + 8 * 8 * F * K


def test_numbers_depend_neither_on_the_groups_nor_on_the_threads(X, monkeypatch, same_factors):
    """Groups are whole subtrees of one tree over the chunks."""
    results, n_groups, indices = [], [], [1999, 0, 24, 24, 23]
    for threads in (1, 3, 1000):
        monkeypatch.setattr("conenmf.scale.dask._n_threads", lambda threads=threads: threads)
        V = from_rows(chunked(X, 23))
        results.append(factorize(V, 4, init="cr1", max_iter=4, tol=0))
        n_groups.append(len(V._groups))
        np.testing.assert_array_equal(V.columns(indices), X[indices].T)
    assert n_groups == [6, 22, 87]
    same_factors(*results)
