import json
import os
import re
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

from conenmf import ConeNMF, Factorization, factorize, from_rows, make_cones, open_data
from conenmf.cones.geometry import cone_geometry
from conenmf.data.disk import DiskMatrix
from conenmf.errors import DataChangedError, OptionError, ReadError
from conenmf.io.formats import open_path
from conenmf.scale.checkpoint import Checkpoint


@pytest.fixture
def X():
    model = make_cones(30, 3, 0.15, n_samples=600, rng=np.random.default_rng(0))
    return np.ascontiguousarray(model.V.T)


@pytest.fixture
def path(tmp_path, X):
    np.save(tmp_path / "data.npy", X)
    return tmp_path / "data.npy"


def test_blocks_stay_within_the_budget(path):
    V = open_data(path, max_memory="1MB", n_threads=64)
    assert isinstance(V, DiskMatrix)
    block = V.block_samples * 30 * 8
    assert block <= 10**6 / 64
    assert (V.n_threads + 2) * 4 * block <= 10**6 / 4
    with pytest.raises(OptionError, match="a sample takes 240 bytes"):
        open_data(path, max_memory=1000)


def test_the_number_of_threads_does_not_matter(path):
    runs = [
        factorize(open_data(path, max_memory="1MB", n_threads=n), 3, max_iter=5) for n in (1, 2, 4)
    ]
    for run in runs[1:]:
        assert np.array_equal(run.W, runs[0].W)
        assert np.array_equal(run.H, runs[0].H)


def test_passes_count_every_row_that_is_read(path, X, rows_read):
    V = open_data(path, max_memory="1MB")
    assert sum(rows_read) == 600
    V.columns([3, 3, 500])
    assert sum(rows_read) == 602  # the same sample is read once
    passes = V.passes
    factorize(V, 3, max_iter=5)
    assert sum(rows_read) - 602 == pytest.approx((V.passes - passes) * 600, rel=1e-3)


def test_blocks_are_read_ahead_and_in_order(path):
    source = open_path(path, None, 200_000).matrix
    read, reads = source.read, []

    def watched(start, stop):
        reads.append((threading.current_thread(), start))
        return read(start, stop)

    source.read = watched
    V = DiskMatrix(source, 200_000, n_threads=2)
    V.sweep(lambda block: (float(block.sum()),))
    (reader,) = {thread for thread, _ in reads}
    assert reader is not threading.current_thread()
    assert reader.daemon  # the process need not wait for it
    assert [start for _, start in reads] == list(range(0, 600, V.block_samples))


# --- coefficients that do not fit in memory ---


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


def test_coefficients_of_a_transform_are_in_a_file_too(path):
    model = ConeNMF(3, max_memory="100kB", max_iter=500)
    A = model.fit(open_data(path, max_memory="100kB")).transform(
        open_data(path, max_memory="100kB")
    )
    assert isinstance(A, np.memmap)
    np.testing.assert_array_equal(A, model.result_.H.T)
    assert os.listdir(path.parent) == ["data.npy"]


def test_a_full_disk(path):
    """In a process whose files may not grow beyond what H needs."""
    script = f"""
        import resource
        from conenmf import factorize, open_data
        from conenmf.errors import OutputError
        V = open_data({str(path)!r}, max_memory="70kB")
        factorize(V, 2, max_iter=1)
        resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))
        try:
            factorize(V, 3, max_iter=1)
        except OutputError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert re.match(r"not enough disk space for [\d.e-]+ GB of coefficients in ", done.stdout)
    assert os.listdir(path.parent) == ["data.npy"]


def test_changes_in_a_private_mapping_are_not_lost(path, tmp_path):
    np.save(tmp_path / "labels.npy", np.zeros(600, dtype=int))
    labels = np.load(tmp_path / "labels.npy", mmap_mode="c")
    labels[:] = np.arange(600) % 3
    cone_geometry(open_data(path, max_memory="70kB"), labels)
    assert labels.tolist() == (np.arange(600) % 3).tolist()


def test_a_large_h_resumes_from_its_file(path, tmp_path):
    checkpoint = Checkpoint(tmp_path / "run", every=0)
    options = {"tol": 0, "checkpoint": checkpoint}
    factorize(open_data(path, max_memory="100kB"), 3, max_iter=4, **options)
    V = open_data(path, max_memory="100kB")
    saved = tmp_path / "run" / "00000003"
    with np.load(saved / "state.npz") as state:
        files = {k: tuple(v) for k, v in json.loads(str(state["facts"]))["files"].items()}
    assert isinstance(V.load_aligned(saved, "H", files), np.memmap)
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


# --- files that do not stay as they were ---


def test_a_file_that_grows_or_shrinks(path):
    V = open_data(path)
    size = path.stat().st_size
    with open(path, "ab") as file:
        file.write(b"more")
    with pytest.raises(DataChangedError, match=rf"had {size} bytes .* now has {size + 4}"):
        factorize(V, 3)
    os.truncate(path, size // 2)
    with pytest.raises(DataChangedError, match=rf"now has {size // 2}"):
        factorize(V, 3)
    with pytest.raises(DataChangedError, match=rf"now has {size // 2}"):
        V.columns([599])
    path.unlink()
    with pytest.raises(DataChangedError, match="can no longer be read"):
        factorize(V, 3)


def test_a_file_that_is_rewritten(path, X):
    V = open_data(path)
    os.utime(path, (1, 1))
    with pytest.raises(DataChangedError, match="was changed after it was opened"):
        factorize(V, 3)


def test_a_file_that_shrinks_in_the_middle_of_a_pass(path):
    V = open_data(path, max_memory="200kB")

    def shrink(progress):
        if progress.iteration == 2:
            os.truncate(path, 1000)

    with pytest.raises(ReadError, match="now has 1000"):
        factorize(V, 3, tol=0, callback=shrink)
