"""Budgets of memory, numbers of threads, and sizes of blocks."""

import os

import numpy as np
import pytest

from conenmf import from_rows, open_data
from conenmf.data import resources
from conenmf.data.resources import available_threads, memory_budget


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("1GB", 10**9), ("1.5 gb", 15 * 10**8), ("2MiB", 2**21), ("7", 7), ("3k", 3000), (10, 10)],
)
def test_budgets(text, bytes_):
    assert memory_budget(text) == bytes_


def test_threads_are_those_of_the_environment_or_the_cores(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert available_threads() == from_rows(np.eye(2)).n_threads == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "")
    assert 1 <= available_threads() <= os.cpu_count()
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")  # joblib's own limit shows that it is asked
    resources._usable_cores.cache_clear()
    assert available_threads() == 1
    resources._usable_cores.cache_clear()


def test_block_sizes_do_not_depend_on_the_number_of_threads(tmp_path):
    X = np.random.default_rng(0).random((3000, 120))
    np.save(tmp_path / "data.npy", X)
    for door, data in ((from_rows, X), (open_data, tmp_path / "data.npy")):
        assert len({door(data, n_threads=n).block_samples for n in (1, 2, 64)}) == 1
