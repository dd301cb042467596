"""The list of small faults points at the code as it is; mutations.py says whether tests notice."""

import pytest
from tests.mutations import MUTATIONS, ROOT


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_fault_is_in_one_place(name):
    fault = MUTATIONS[name]
    text = (ROOT / "src" / "conenmf" / fault["file"]).read_text("utf-8")
    assert text.count(fault["old"]) == 1
    assert fault["new"] != fault["old"]
    for test in fault["tests"].split():
        file, _, function = test.partition("::")
        assert (ROOT / "tests" / file).exists(), test
        assert f"def {function}" in (ROOT / "tests" / file).read_text("utf-8"), test
