"""What people have, fitted on a cluster with Dask's default settings, or refused with a name."""

import asyncio
import io
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import anndata
import dask
import dask.array as da
import dask.dataframe as dd
import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sparse
import xarray as xr
import zarr
from dask_ml.wrappers import Incremental, ParallelPostFit
from distributed import Client, LocalCluster, futures_of, get_client
from distributed.client import FutureCancelledError
from sklearn.model_selection import GridSearchCV

from conenmf import ConeNMF, Factorization, factorize, from_rows
from conenmf.errors import DataError, DataTypeError, ReadError
from conenmf.judge.stability import stability
from conenmf.progress import Display

pytestmark = pytest.mark.filterwarnings("ignore:Sending large graph:UserWarning")
N, F, K = 400, 12, 3


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    return (rng.random((N, K)) ** 3 @ rng.random((K, F)) ** 3 + 0.01) * (rng.random((N, F)) > 0.2)


@pytest.fixture(scope="module")
def client():
    with (
        dask.config.set(scheduler=None),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def cluster(client):
    """The cluster of the module as the one that Dask uses."""
    with dask.config.set(scheduler=None), client.as_current():
        yield client


def start(V, K, rng):
    """The same first factors for every storage."""
    rng = np.random.default_rng(5)
    return rng.random((V.shape[0], K)), rng.random((K, V.shape[1]))


OPTIONS = {"init": start, "max_iter": 3, "tol": 0.0}


def chunked(X, size=110):
    return da.from_array(X, chunks=(size, X.shape[1]))


def model(**options):
    """A fit of few rounds: most of the time of these tests is that of Dask."""
    return ConeNMF(K, max_iter=3, tol=0.0, init="random", random_state=0, **options)


@pytest.fixture(scope="module")
def plain(X):
    """The components of a fit in memory."""
    return model().fit(X)


# --- arrays -----------------------------------------------------------------------------------


def from_zarr(X, folder):
    zarr.create_array(folder / "x.zarr", data=X, chunks=(110, F))
    return da.from_zarr(str(folder / "x.zarr"))


def from_stack(X, folder):
    da.to_npy_stack(str(folder / "stack"), chunked(X))
    return da.from_npy_stack(str(folder / "stack"))


def from_delayed(X, folder):
    parts = [dask.delayed(np.asarray)(part) for part in np.array_split(X, 5)]
    return da.concatenate([da.from_delayed(part, (80, F), dtype=float) for part in parts])


def from_blocks(X, folder):
    def load(block_info=None):
        start, stop = block_info[None]["array-location"][0]
        return X[start:stop]

    return da.map_blocks(load, chunks=((100,) * 4, (F,)), dtype=float, meta=np.empty((0, 0)))


def of_format(function):
    return lambda X, folder: chunked(X).map_blocks(function, dtype=float)


def with_empty_chunks(X, folder):
    whole = chunked(X)
    return da.concatenate([whole[:0], whole[:250], whole[250:250], whole[250:]])


def of_cells(X, folder):
    return anndata.AnnData(layers={"counts": chunked(X)}, shape=X.shape).layers["counts"]


ARRAYS = {
    "from_array": lambda X, folder: chunked(X),
    "from_zarr": from_zarr,
    "from_npy_stack": from_stack,
    "from_delayed": from_delayed,
    "map_blocks": from_blocks,
    "csr": of_format(sp.csr_matrix),
    "csr_array": of_format(sp.csr_array),
    "coo": of_format(sparse.COO.from_numpy),
    "gcxs": of_format(sparse.GCXS.from_numpy),
    "masked, without a mask": lambda X, folder: da.ma.masked_less(chunked(X), -1.0),
    "sliced": lambda X, folder: chunked(np.vstack([X, X]))[3 : N + 3][np.r_[N - 3 : N, : N - 3]],
    "rechunked": lambda X, folder: chunked(X, 37).rechunk((90, F)),
    "concatenated": lambda X, folder: da.concatenate([chunked(X[:70]), chunked(X[70:], 11)]),
    "unequal": lambda X, folder: da.from_array(X, chunks=((1, 250, 9, 140), F)),
    "empty chunks": with_empty_chunks,
    "layer of AnnData": of_cells,
}


LAZY = ("from_zarr", "from_npy_stack", "from_delayed", "map_blocks", "csr", "empty chunks")


@pytest.mark.parametrize("kind", [*ARRAYS, *(f"{kind}, lazy" for kind in LAZY)])
def test_arrays(cluster, X, plain, kind, tmp_path):
    name = kind.removesuffix(", lazy")
    array = ARRAYS[name](X, tmp_path)
    if name == kind:
        array = array.persist()
    found = model()
    A = found.fit_transform(array)
    assert isinstance(A, da.Array)
    np.testing.assert_allclose(found.components_, plain.components_, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(A, plain.result_.H.T, rtol=1e-6, atol=1e-10)


def test_data_frames(cluster, X, plain):
    frame = pd.DataFrame(X, columns=[f"gene {f}" for f in range(F)])
    found = model().fit(dd.from_pandas(frame, npartitions=5))
    np.testing.assert_allclose(found.components_, plain.components_, rtol=1e-8, atol=1e-12)
    assert found.get_feature_names_out().tolist()
    assert found.result_.names.feature_names[:2] == ("gene 0", "gene 1")


def received(client):
    """Bytes that the workers sent so far, except to each other."""

    def sent(dask_worker):
        log = dask_worker.transfer_outgoing_log
        return sum(transfer["total"] for transfer in log if transfer["who"] is None)

    return sum(client.run(sent).values())


def test_a_data_array_of_xarray_stays_on_the_workers(cluster):
    days = pd.date_range("2020-01-01", periods=60_000, freq="min")
    genes = [f"gene {f}" for f in range(30)]
    values = da.random.default_rng(0).random((60_000, 30), chunks=(10_000, 30)).persist()
    table = xr.DataArray(values, dims=("time", "gene"), coords={"time": days, "gene": genes})
    before = received(cluster)
    found = model()
    A = found.fit_transform(table)
    assert isinstance(A, da.Array)
    assert 0 < received(cluster) - before < 50_000 < table.nbytes / 200
    assert found.result_.names.feature_names == tuple(genes)
    assert found.result_.names.sample_names[1] == str(days[1])
    np.testing.assert_allclose(found.transform(table)[:5], A[:5], rtol=1e-6)


def test_tables_of_xarray_beside_the_data(cluster, X):
    rng = np.random.default_rng(1)
    for name, table in (("mask", rng.random(X.shape) > 0.1), ("weights", rng.random(X.shape))):
        given = xr.DataArray(chunked(table, 100).persist())
        V = from_rows(xr.DataArray(chunked(X).persist()), **{name: given})
        expected = factorize(from_rows(X, **{name: table}), K, **OPTIONS)
        found = factorize(V, K, **OPTIONS)
        np.testing.assert_allclose(found.W, expected.W, rtol=1e-6, atol=1e-10)


def gone(X):
    """Chunks that were persisted and then cancelled, as a restart does."""
    array = chunked(X).persist()
    get_client().cancel(futures_of(array))
    return array


REFUSED = {
    "Dataset": (
        DataTypeError,
        "pass one of them",
        lambda X: xr.Dataset({"a": (("x", "y"), chunked(X))}),
    ),
    "three dimensions": (DataError, "2 dimensions", lambda X: xr.DataArray(chunked(X)[None])),
    "masked entries": (DataTypeError, "masked", lambda X: da.ma.masked_less(chunked(X), 0.1)),
    "unknown sizes": (DataError, "compute_chunk_sizes", lambda X: chunked(X)[chunked(X)[:, 0] > 1]),
    "Delayed": (DataError, "expected a Dask array", dask.delayed),
    "gone": (ReadError, "persist again", gone),
    "words": (
        DataTypeError,
        "expected numbers",
        lambda X: dd.from_pandas(pd.DataFrame({"a": ["x", "y"]}), npartitions=1),
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_fitted_has_a_named_error(cluster, X, kind, refuses):
    error, message, make = REFUSED[kind]
    refuses(error, message, lambda: ConeNMF(2).fit(make(X)))


# --- what a fit can do, on arrays that were persisted -----------------------------------------

KNOWN = {
    "holes": {"missing": "nan"},
    "mask": {"mask": np.random.default_rng(3).random((N, F)) > 0.1},
    "weights": {"weights": np.random.default_rng(4).random((N, F))},
}
PERSISTED = {
    "dense": lambda X: chunked(X).persist(),
    "csr": lambda X: chunked(X).map_blocks(sp.csr_matrix, dtype=float).persist(),
}


@pytest.mark.parametrize("kind", PERSISTED)
@pytest.mark.parametrize("known", KNOWN)
def test_known_entries(cluster, X, kind, known):
    data = X
    if known == "holes":
        data = np.where(np.random.default_rng(2).random(X.shape) < 0.05, np.nan, X)
    expected = factorize(from_rows(data, **KNOWN[known]), K, **OPTIONS)
    found = factorize(from_rows(PERSISTED[kind](data), **KNOWN[known]), K, **OPTIONS)
    np.testing.assert_allclose(found.W, expected.W, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("kind", PERSISTED)
def test_poisson_stability_and_transform(cluster, X, kind):
    data = PERSISTED[kind](np.round(5 * X))
    V = from_rows(data)
    options = {"loss": "poisson", **OPTIONS}
    found = factorize(V, K, **options)
    expected = factorize(from_rows(np.round(5 * X)), K, **options)
    assert found.relative_error == pytest.approx(expected.relative_error, rel=0.01)
    rng = np.random.default_rng
    runs = stability(V, 2, 2, rng=rng(0), max_iter=2)
    plain = stability(from_rows(np.round(5 * X)), 2, 2, rng=rng(0), max_iter=2)
    np.testing.assert_allclose(runs.spectra, plain.spectra, rtol=1e-3, atol=1e-3)
    fitted = model()
    A = fitted.fit_transform(data)
    np.testing.assert_allclose(fitted.transform(data), A, rtol=1e-6, atol=1e-9)
    assert fitted.score(data) == pytest.approx(fitted.score(np.round(5 * X)))


# --- progress ---------------------------------------------------------------------------------


def slow_step(block):
    time.sleep(0.05)
    return (0.0,)


def test_the_client_knows_how_much_of_a_pass_is_done(cluster, X):
    V = from_rows(chunked(X, 10))
    shares = []
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(V.sweep, slow_step)
        while not done.done():
            shares.append(V.share_of_pass)
            time.sleep(0.02)
    assert V.share_of_pass is None
    seen = [share for share in shares if share is not None]
    assert seen == sorted(seen)
    assert any(0 < share < 1 for share in seen)
    display = Display(io.StringIO(), data=SimpleNamespace(share_of_pass=0.25))
    display.update("error 0.5", what="solving")
    assert display.line == "solving, error 0.5, 25% of a pass"


# --- where and how a fit is called ------------------------------------------------------------


def fitted_components(X):
    return model().fit(chunked(X)).components_


def test_fits_in_tasks(cluster, X, plain):
    """Two at once, on two workers of one thread each: a fit leaves its thread to its own tasks."""
    futures = cluster.map(fitted_components, [X, X], pure=False)
    for found in cluster.gather(futures):
        np.testing.assert_allclose(found, plain.components_, rtol=1e-8, atol=1e-12)


def test_two_fits_at_once(cluster, X, plain):
    array = chunked(X).persist()
    runs = [joblib.delayed(lambda: model().fit(array).components_)() for _ in range(2)]
    for found in joblib.Parallel(2, backend="threading")(runs):
        np.testing.assert_allclose(found, plain.components_, rtol=1e-8, atol=1e-12)


def test_searches_of_joblib_and_dask_ml(cluster, X):
    search = GridSearchCV(model(), {"n_components": [1, K]}, cv=2)
    scores = search.fit(X).cv_results_["mean_test_score"]
    with joblib.parallel_backend("dask"):
        search.fit(X)
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], scores, rtol=1e-9)
    fitted = ParallelPostFit(model()).fit(X)
    expected = fitted.estimator.transform(X)
    np.testing.assert_allclose(fitted.transform(chunked(X)), expected, rtol=1e-5, atol=1e-8)
    stream = Incremental(ConeNMF(K)).fit(chunked(X, 100).persist())
    assert stream.components_.shape == (K, F)


def test_an_asynchronous_client(client, X, plain, refuses):
    async def main():
        array = chunked(X)
        async with Client(client.scheduler.address, asynchronous=True) as other:
            with other.as_current():
                refuses(ReadError, "asyncio.to_thread", lambda: model().fit(array))

    with dask.config.set(scheduler=None):
        asyncio.run(main())


def test_results_go_to_zarr_from_the_workers(cluster, X, plain, tmp_path):
    A = model().fit_transform(chunked(X).persist())
    A.to_zarr(str(tmp_path / "A.zarr"))
    np.testing.assert_allclose(
        zarr.open_array(tmp_path / "A.zarr")[:], plain.result_.H.T, rtol=1e-6, atol=1e-10
    )


def test_pickled_results(cluster, X, tmp_path):
    fitted = model()
    A = fitted.fit_transform(chunked(X).persist())
    again, B = pickle.loads(pickle.dumps((fitted, A)))
    np.testing.assert_array_equal(B, A)
    np.testing.assert_array_equal(again.transform(chunked(X)), fitted.transform(chunked(X)))
    fitted.result_.save(tmp_path / "fit.npz")
    np.testing.assert_array_equal(Factorization.load(tmp_path / "fit.npz").H, A.T)


def test_a_client_that_is_closed_before_the_results_are_computed(client, X, refuses):
    with (
        dask.config.set(scheduler=None),
        Client(client.scheduler.address) as other,
        other.as_current(),
    ):
        fitted = model()
        A = fitted.fit_transform(chunked(X))
        part = A[:10]
    for use in (A.compute, lambda: np.asarray(A.T), lambda: (2 * A).compute(), A.persist):
        refuses(ReadError, "is closed.*store or compute", use)
    refuses(ReadError, "is closed", fitted.certify)
    with pytest.raises(FutureCancelledError):  # made before: an error of Dask's own
        part.compute()


def test_workers_that_are_threads(X, plain):
    with (
        dask.config.set(scheduler=None),
        LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        found = model().fit(chunked(X).persist())
        np.testing.assert_allclose(found.components_, plain.components_, rtol=1e-8, atol=1e-12)
