"""Files read in blocks: budgets, passes, and coefficients that do not fit into memory."""

import os

import anndata
import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from conenmf import Factorization, factorize, from_rows, make_cones, open_data
from conenmf.cones.clustering import cluster_cones
from conenmf.data.blocks import sparse_block_samples
from conenmf.data.matrix import multiplied
from conenmf.errors import OptionError
from conenmf.scale.checkpoint import Checkpoint, _load_rows
from conenmf.scale.disk import DiskMatrix


@pytest.fixture
def X():
    model = make_cones(30, 3, 0.15, n_samples=600, rng=np.random.default_rng(0))
    return np.ascontiguousarray(model.V.T)


@pytest.fixture
def path(tmp_path, X):
    np.save(tmp_path / "data.npy", X)
    return tmp_path / "data.npy"


def test_blocks_stay_within_the_budget(path, refuses):
    V = open_data(path, max_memory="1MB", n_threads=64)
    assert isinstance(V, DiskMatrix)
    block = V.block_samples * 30 * 8
    assert block <= 10**6 / 64
    assert (V.n_threads + 1) * 4 * block <= 10**6 / 4
    refuses(OptionError, "a sample takes 240 bytes", lambda: open_data(path, max_memory=1000))


def test_the_number_of_threads_does_not_matter(path, same_factors):
    opened = (open_data(path, max_memory="1MB", n_threads=n) for n in (1, 2, 4))
    same_factors(*(factorize(V, 3, max_iter=5) for V in opened))


def test_passes_count_every_row_that_is_read(path, X, rows_read):
    V = open_data(path, max_memory="1MB")
    assert sum(rows_read) == 600
    V.columns([3, 3, 500])
    assert sum(rows_read) == 602  # the same sample is read once
    passes = V.passes
    factorize(V, 3, max_iter=5)
    assert sum(rows_read) - 602 == pytest.approx((V.passes - passes) * 600, rel=1e-3)


# --- coefficients that do not fit in memory ---


@pytest.mark.parametrize("chunk", [100, 250])
def test_a_chunk_of_several_blocks_is_read_once_in_a_pass(X, tmp_path, rows_read, chunk):
    """Blocks of at most 30 samples, which end where a chunk ends."""
    stored = zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(chunk, 30))
    V = from_rows(stored, max_memory="1MB")
    assert V.block_samples == 30
    for _ in range(2):
        V._chunks.clear()  # of an earlier pass
        del rows_read[:]
        rows = [V._block(*border).T for border in V._blocks()]  # threads are not always in order
        assert rows_read == [min(chunk, 600 - first) for first in range(0, 600, chunk)]
        np.testing.assert_array_equal(np.concatenate(rows), X)
    products, _ = V.sweep(multiplied, X=np.eye(30))
    np.testing.assert_array_equal(products, X)


def test_scattered_samples_of_a_chunk_are_read_together(X, tmp_path, rows_read):
    stored = zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(100, 30))
    V = from_rows(stored, max_memory="1MB")
    del rows_read[:]
    wanted = [299, 3, 90, 250, 99, 100, 599]
    np.testing.assert_array_equal(V.columns(wanted).T, X[wanted])
    assert rows_read == [97, 1, 50, 1]


def test_algorithm_1_reads_few_chunks_if_most_samples_are_scored_again(tmp_path, rows_read):
    """Counts without cones, so that every centre is far from most samples."""
    X = np.random.default_rng(0).poisson(0.1, (6000, 30)) + np.eye(30)[np.arange(6000) % 30]
    V = from_rows(
        zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(200, 30)), max_memory="1MB"
    )
    del rows_read[:]
    found = cluster_cones(V, 10)
    assert len(rows_read) < 1000
    np.testing.assert_array_equal(found.centres, cluster_cones(from_rows(X), 10).centres)


def test_a_large_h_is_in_a_file_without_a_name(path, X):
    expected = factorize(from_rows(X), 3, max_iter=5)
    result = factorize(open_data(path, max_memory="100kB"), 3, max_iter=5)
    assert isinstance(result.H, np.memmap)
    np.testing.assert_allclose(result.H, expected.H, atol=1e-10)
    assert os.listdir(path.parent) == ["data.npy"]
    factorize(open_data(path, max_memory="70kB"), 2, max_iter=5)
    np.testing.assert_allclose(result.H, expected.H, atol=1e-10)
    result.save(path.with_name("result.npz"))
    np.testing.assert_array_equal(Factorization.load(path.with_name("result.npz")).H, result.H)


def test_a_large_h_resumes_from_its_file(path, tmp_path):
    checkpoint = Checkpoint(tmp_path / "run", every=0)
    options = {"tol": 0, "checkpoint": checkpoint}
    factorize(open_data(path, max_memory="100kB"), 3, max_iter=4, **options)
    V = open_data(path, max_memory="100kB")
    saved = tmp_path / "run" / "00000003"
    assert isinstance(V.map(_load_rows, folder=str(saved), name="H")[0], np.memmap)
    resumed = factorize(V, 3, max_iter=7, **options)
    whole = factorize(open_data(path, max_memory="100kB"), 3, max_iter=7, tol=0)
    assert np.array_equal(resumed.H, whole.H)


def test_a_sample_larger_than_a_block(tmp_path):
    """A block has at most 16 MiB otherwise."""
    X = np.random.default_rng(0).integers(0, 9, (3, 2_200_000), dtype=np.uint8)
    np.save(tmp_path / "wide.npy", X)
    V = open_data(tmp_path / "wide.npy", max_memory="2GB")
    assert V.block_samples == 1
    np.testing.assert_allclose(V.norms_squared, (X.astype(float) ** 2).sum(axis=1))


def test_blocks_of_sparse_files_have_as_many_entries_as_those_in_memory(tmp_path):
    rows = sp.random_array((20_000, 40), density=0.05, rng=np.random.default_rng(0), format="csr")
    anndata.AnnData(rows).write_h5ad(tmp_path / "sparse.h5ad")
    V = open_data(tmp_path / "sparse.h5ad", max_memory="200MB")
    assert isinstance(V, DiskMatrix)
    assert V.block_samples == sparse_block_samples(40, 20_000, rows.nnz) < 20_000 / 4
