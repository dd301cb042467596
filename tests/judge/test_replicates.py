import numpy as np
import pytest
import scipy.sparse as sp

from conenmf import factorize, from_columns, open_data, stability
from conenmf.data.resampled import bootstrapped, redrawn
from conenmf.data.together import is_in_memory
from conenmf.data.views import take_samples
from conenmf.judge import replicates
from conenmf.judge.replicates import replicate, replicate_over
from conenmf.solve.run import Stopping

RESAMPLED = {
    "start": lambda V, rng, loss: V,
    "samples": lambda V, rng, loss: bootstrapped(V, rng, loss=loss),
    "counts": lambda V, rng, loss: redrawn(V, rng),
}


def counts_of(K=3, F=24, N=60, seed=0):
    rng = np.random.default_rng(seed)
    W = rng.exponential(size=(F, K)) * (rng.random((F, K)) < 0.3) + 1e-3
    H = rng.exponential(size=(K, N)) * (rng.random((K, N)) < 0.6)
    return rng.poisson(400 * (W / W.sum(axis=0)) @ H).astype(float)


def sorted_columns(W):
    return W[:, np.lexsort(W)]


def check_runs_are_those_alone(V, loss, resample, *, max_iter=4):
    """Every run together has the bits of the same fit by itself."""
    stopping = Stopping(1e-2, max_iter=max_iter)
    options = {"loss": loss, "resample": resample, "stopping": stopping}
    together = replicate(V, 3, 3, rng=np.random.default_rng(7), **options)
    for W, rng in zip(together.spectra, np.random.default_rng(7).spawn(3), strict=True):
        data = RESAMPLED[resample](V, rng, loss)
        if resample != "start" and is_in_memory(V):
            data = take_samples(data, np.arange(V.shape[1]))
        alone = factorize(
            data, 3, init="random", sketch=None, rng=rng, loss=loss, tol=1e-2, max_iter=max_iter
        )
        if loss == "poisson":  # where a result is scaled to sums of one: that is a rounding
            W = W / W.sum(axis=0)
            np.testing.assert_allclose(sorted_columns(W), sorted_columns(alone.W), rtol=1e-13)
        else:
            np.testing.assert_array_equal(sorted_columns(W), sorted_columns(alone.W))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("resample", RESAMPLED)
@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_each_run_has_the_bits_of_the_same_fit_alone(main_backend, small_blocks, loss, resample):
    check_runs_are_those_alone(main_backend(counts_of()), loss, resample)


@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_runs_leave_as_they_converge(tmp_path, monkeypatch, loss):
    path = tmp_path / "counts.npy"
    np.save(path, counts_of().T)
    V = open_data(path, max_memory="2MB", block_samples=20)
    options = {"loss": loss, "resample": "samples", "stopping": Stopping(1e-3, max_iter=90)}
    before = V.passes
    together = replicate(V, 3, 3, rng=np.random.default_rng(1), **options)
    spent = V.passes - before
    alone = []

    def each_by_itself(V, row_bytes, count=1):
        alone.append(V.passes)
        return 1

    monkeypatch.setattr(replicates, "room_for_aligned", each_by_itself)
    monkeypatch.setattr(replicates, "measure_together", each_by_itself)
    by_itself = replicate(V, 3, 3, rng=np.random.default_rng(1), **options)
    np.testing.assert_array_equal(together.spectra, by_itself.spectra)
    np.testing.assert_array_equal(together.errors, by_itself.errors)
    passes = np.diff([*alone[1:], V.passes])  # from where each was measured
    assert len(set(passes)) > 1
    assert spent == passes.max()


@pytest.mark.parametrize("resample", RESAMPLED)
@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_a_file_is_read_as_often_as_for_one_fit(tmp_path, loss, resample):
    path = tmp_path / "counts.npz"
    sp.save_npz(path, sp.csr_array(counts_of(N=120).T), compressed=False)
    limits = {"tol": 0.0, "max_iter": 40}
    passes, size = [], []
    for n in range(4):
        V = open_data(path, max_memory="2MB", block_samples=60)
        assert not is_in_memory(V)
        before, began = V.passes, V.bytes_read
        if n:
            rng = np.random.default_rng(0).spawn(3)[n - 1]
            data = RESAMPLED[resample](V, rng, loss)
            factorize(data, 3, init="random", sketch=None, rng=rng, loss=loss, **limits)
        else:
            stability(V, 3, 3, loss=loss, resample=resample, **limits)
        passes.append(V.passes - before)
        size.append(V.bytes_read - began)
    # Limits need the samples themselves once, to see how far components can move.
    size[0] -= size[1] / passes[1]
    passes[0] -= 1
    assert passes[0] <= 1.1 * max(passes[1:])
    assert size[0] <= 1.1 * max(size[1:])


def test_runs_share_passes_in_groups_that_fit_into_memory(tmp_path, monkeypatch):
    path = tmp_path / "counts.npy"
    np.save(path, counts_of().T)
    V = open_data(path, max_memory="2MB", block_samples=10)
    options = {"loss": "frobenius", "resample": "samples", "stopping": Stopping(0.0, max_iter=5)}
    before = V.passes
    together = replicate(V, 3, 5, rng=np.random.default_rng(1), **options)
    spent = V.passes - before
    monkeypatch.setattr(replicates, "room_for_aligned", lambda V, row_bytes, count: 2)
    before = V.passes
    grouped = replicate(V, 3, 5, rng=np.random.default_rng(1), **options)
    assert V.passes - before == 3 * spent
    np.testing.assert_array_equal(grouped.spectra, together.spectra)
    np.testing.assert_array_equal(grouped.errors, together.errors)


def test_no_solver_of_replicates_leaves_a_floor():
    X = np.kron(np.eye(3), np.ones((4, 9))) * np.random.default_rng(0).random((12, 27))
    V = from_columns(X)
    options = {"loss": "frobenius", "resample": "start", "stopping": Stopping(1e-6)}
    spectra = replicate(V, 3, 2, rng=np.random.default_rng(0), **options).spectra
    assert ((spectra > 0).sum(axis=1) == 4).all()


@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_runs_of_several_numbers_of_components_share_passes_too(tmp_path, loss):
    path = tmp_path / "counts.npy"
    np.save(path, counts_of().T)
    V = open_data(path, max_memory="2MB", block_samples=20)
    options = {"loss": loss, "resample": "samples", "stopping": Stopping(0.0, max_iter=5)}
    before, rng = V.passes, np.random.default_rng(1)
    together = dict(replicate_over(V, {2: None, 4: None}, 3, rng=rng, **options))
    spent, rng = V.passes - before, np.random.default_rng(1)
    for K in (2, 4):
        before = V.passes
        alone = replicate(V, K, 3, rng=rng, **options)
        assert V.passes - before == spent
        np.testing.assert_array_equal(together[K].spectra, alone.spectra)
        np.testing.assert_array_equal(together[K].errors, alone.errors)
