import os
import subprocess
import sys

import numpy as np
import pytest

from conenmf import from_rows, open_data
from conenmf.data.resources import available_memory, available_threads, memory_budget
from conenmf.errors import OptionError

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("1GB", 10**9), ("1.5 gb", 15 * 10**8), ("2MiB", 2**21), ("7", 7), ("3k", 3000), (10, 10)],
)
def test_budgets(text, bytes_):
    assert memory_budget(text) == bytes_


@pytest.mark.parametrize("text", ["", "much", "-1GB", "1XB", 0, True, 3.5, 1.5e300, "GB", "nan"])
def test_bad_budgets(text, tmp_path):
    np.save(tmp_path / "data.npy", np.eye(3))
    with pytest.raises(OptionError, match="max_memory="):
        open_data(tmp_path / "data.npy", max_memory=text)


@pytest.mark.parametrize(
    ("file", "limit", "expected"),
    [
        ("memory.max", 2**20, 2**20),
        ("memory.max", "max", MACHINE),
        ("memory.max", "what is this", MACHINE),
        ("memory/memory.limit_in_bytes", 2**20, 2**20),  # version 1
        ("memory/memory.limit_in_bytes", 2**63 - 4096, MACHINE),  # none
    ],
)
def test_memory_is_that_of_the_container(file, limit, expected, tmp_path):
    (tmp_path / "memory").mkdir()
    (tmp_path / file).write_text(f"{limit}\n")
    assert available_memory(tmp_path) == expected


def test_memory_is_that_of_the_machine_where_there_are_no_cgroups(tmp_path):
    assert available_memory(tmp_path) == MACHINE


def test_the_default_budget_is_half_of_the_memory():
    assert memory_budget(None) == available_memory() // 2


def test_threads_are_those_of_the_environment_or_the_cores(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert available_threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "")
    assert 1 <= available_threads() <= os.cpu_count()
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")  # joblib's own limit shows that it is asked
    assert available_threads() == 1


def test_block_sizes_do_not_depend_on_the_number_of_threads(tmp_path):
    X = np.random.default_rng(0).random((3000, 120))
    np.save(tmp_path / "data.npy", X)
    for door, data in ((from_rows, X), (open_data, tmp_path / "data.npy")):
        assert len({door(data, n_threads=n).block_samples for n in (1, 2, 64)}) == 1


def test_importing_the_library_does_not_import_joblib():
    code = "import sys, conenmf; sys.exit('joblib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
