"""The list of small faults points at the code as it is; mutations.py says whether tests notice."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from mutations import MUTATIONS  # noqa: E402


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_fault_is_in_one_place(name):
    fault = MUTATIONS[name]
    text = (ROOT / "src" / "conenmf" / fault["file"]).read_text("utf-8")
    assert text.count(fault["old"]) == 1
    assert fault["new"] != fault["old"]
    for test in fault["tests"].split():
        assert (ROOT / "tests" / test).exists(), test
