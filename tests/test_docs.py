"""The documentation: what it names exists, what it shows runs, what is public is in it."""

import importlib.util
import inspect
import re
from pathlib import Path

import dask.array as da
import matplotlib as mpl
import numpy as np
import pytest

import conenmf
from conenmf import errors
from conenmf.cli import EXIT_CODES, app
from conenmf.datasets import DATASETS
from conenmf.io.open import KINDS
from conenmf.solve.inits import INITS
from conenmf.solve.losses import SOLVER_NAMES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXAMPLES = sorted((ROOT / "examples").glob("*/plot_*.py"))
SHOWN = (
    *("index", "getting_started", "choosing_k", "certificate", "from_sklearn", "extending"),
    *("images", "scenes", "text", "cells", "counts", "cli", "files", "measurements"),
    *("mutations", "ratings", "constraints", "stability"),
)
LONG = ("mutations", "ratings")


def extension(name):
    """A module of the build of the documentation."""
    path = DOCS / "_ext" / f"{name}.py"
    specification = importlib.util.spec_from_file_location(f"_{name}", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


OUTPUTS, RELATED = extension("outputs"), extension("related")


PAGES = sorted(DOCS.glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_test_and_every_page_that_is_named_exists(page):
    text = page.read_text("utf-8")
    for file, name in re.findall(r"(tests/[\w/]+\.py)::(\w+)", text):
        assert f"\ndef {name}(" in (ROOT / file).read_text("utf-8"), f"{page.name}: {file}::{name}"
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (DOCS / target).exists(), f"{page.name}: {target}"


def test_the_page_on_theory_names_a_test_for_every_statement():
    text = (DOCS / "theory.md").read_text("utf-8")
    sections = re.split(r"^##+ ", text, flags=re.MULTILINE)[1:]
    for section in sections:
        title = section.splitlines()[0]
        if re.match(r"(Theorem|Lemma|Lemmas|Algorithm) \d", title):
            assert "- In the code: " in section, title
            assert "::test_" in section, title
    statements = {"Lemma": (1, 2, 3, 10, 15), "Theorem": (4, 5, 6, 8, 9), "Algorithm": (1, 2)}
    needed = {f"{kind} {number}" for kind, numbers in statements.items() for number in numbers}
    assert needed <= {section.splitlines()[0] for section in sections}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_compile_and_are_linked(path):
    program = path.read_text("utf-8")
    compile(program, path, "exec")
    title, rule = program.splitlines()[1:3]
    assert rule == "=" * len(title)
    link = f"](../examples/{path.parent.name}/{path.name})"
    assert any(link in page.read_text("utf-8") for page in PAGES), f"no page links to {link}"


def test_the_reference_lists_what_is_public():
    text = (DOCS / "api.rst").read_text("utf-8")
    entries = re.findall(r"^   ([\w.]+)$", text, re.MULTILINE)
    assert len(entries) == len(set(entries))
    front = {name for name in entries if "." not in name and not hasattr(errors, name)}
    modules = {name for name in conenmf.__all__ if inspect.ismodule(getattr(conenmf, name))}
    assert front | {"ConeNMFError"} == set(conenmf.__all__) - modules
    assert {name for name in vars(errors) if name.endswith("Error")} <= set(entries)
    for entry in entries:
        home, _, name = entry.rpartition(".")
        if home:
            assert hasattr(importlib.import_module(f"conenmf.{home}"), name), entry


def test_related_functions_are_in_the_reference():
    text = (DOCS / "api.rst").read_text("utf-8")
    entries = set(re.findall(r"^   ([\w.]+)$", text, re.MULTILINE))
    cited = set()
    for name, (functions, _, publications) in RELATED.RELATED.items():
        assert {name, *functions} <= entries, name
        cited |= set(publications)
    assert cited == set(RELATED.PUBLICATIONS)
    lines = RELATED.added("conenmf.certify", ["Notes", "-----"])
    assert {"See Also", "References"} <= {*lines} - {"Notes"}


def quoted(text):
    return set(re.findall(r'"([\w+-]+)"', text))


def description(function, parameter):
    """The description of a parameter in a docstring."""
    text = inspect.cleandoc(function.__doc__)
    return re.search(rf"^{parameter} : .*\n((?: {{4}}.*\n)+)", text, re.MULTILINE)[1]


def test_lists_of_inits_and_solvers_are_complete():
    solvers = quoted(description(conenmf.factorize, "solver"))
    assert solvers == {*SOLVER_NAMES, "auto"}
    page = (DOCS / "from_sklearn.md").read_text("utf-8")
    row = re.search(r"^\| `init=\"(?!custom).*", page, re.MULTILINE)[0]
    for text in (description(conenmf.factorize, "init"), row):
        assert quoted(text) == {*INITS, "auto"}, text


def test_lists_of_file_formats_are_complete():
    table = (DOCS / "files.md").read_text("utf-8")
    first_cells = " ".join(re.findall(r"^\| ([^|]*`.*?) \|", table, re.MULTILINE))
    (help_text,) = re.findall(r"DATA is a file: (.*?)images", app.help, re.DOTALL)
    for text in (first_cells, description(conenmf.open_data, "path"), help_text):
        endings = set(re.findall(r"(?<!\w)\.[a-z]\w*", text)) - {".gz", ".zarr"}
        assert endings == {ending.removesuffix(".gz") for ending in KINDS}, text


def test_the_table_of_exit_codes_is_that_of_the_program():
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", (DOCS / "cli.md").read_text("utf-8"), re.MULTILINE)
    assert {int(code): meaning for code, meaning in rows} == EXIT_CODES


def test_code_that_is_shown_from_its_file_is_there():
    text = (DOCS / "extending.md").read_text("utf-8")
    shown = re.findall(r"```{literalinclude} (\S+)\n((?::.*\n)*)", text)
    assert len(shown) > 8
    for file, options in shown:
        code = (DOCS / file).read_text("utf-8")
        for how, what in re.findall(r":(pyobject|start-at|end-before): (.+)", options):
            if how == "pyobject":
                *_, name = what.split(".")
                assert re.search(rf"^ *(def|class) {name}\b", code, re.MULTILINE), what
            else:
                assert what.strip('"') in code, what


def mark_page(page):
    """Mark pages of fields whose examples take seconds."""
    return pytest.param(page, marks=pytest.mark.nightly) if page in LONG else page


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("page", [mark_page(page) for page in SHOWN])
def test_the_python_of_the_pages_prints_what_they_show(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    text = (DOCS / f"{page}.md").read_text("utf-8")
    if "skimage" in text:
        pytest.importorskip("skimage")
    shown, printed = OUTPUTS.shown(text), list(OUTPUTS.printed(text, f"{page}.md"))
    assert shown
    for before, now in zip(shown, printed, strict=True):
        assert OUTPUTS.alike(before, now), (
            f"{page}.md shows\n{before}\nbut prints\n{now}\n"
            f"(python docs/_ext/outputs.py docs/{page}.md writes what is printed)"
        )
    importlib.import_module("matplotlib.pyplot").close("all")


@pytest.fixture
def counts(tmp_path, monkeypatch):
    """The file that README.md and docs/large.md read."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.save("counts.npy", rng.poisson(rng.random((300, 10)) @ rng.random((10, 120))))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_python_of_the_readme_prints_what_it_shows(counts):
    text = (ROOT / "README.md").read_text("utf-8")
    names = {"dask_array": da.from_array(np.load("counts.npy"), chunks=(100, 120))}
    printed = list(OUTPUTS.printed(text, "README.md", names))
    for shown, now in zip(OUTPUTS.shown(text), printed, strict=True):
        assert OUTPUTS.alike(shown, now), f"{shown}\n{now}"
    error, below = map(float, re.findall(r"0\.\d{3,}", printed[0]))
    assert below < error < 1.2 * below
    assert names["result"].K == names["model"].n_components_ == 20


def test_the_python_of_the_page_on_large_data_runs(counts):
    names = {}
    for program in re.findall(r"```python\n(.*?)```", (DOCS / "large.md").read_text(), re.DOTALL):
        if "scheduler:8786" not in program:  # needs a cluster
            exec(compile(program, "docs/large.md", "exec"), names)
    assert names["result"].K == 20
    assert names["V"].passes > 20


def test_the_first_page_leads_to_every_page():
    text = (DOCS / "index.md").read_text("utf-8")
    trees = re.findall(r"```{toctree}\n(.*?)```", text, re.DOTALL)
    listed = re.findall(r"^\w+$", "".join(trees), re.MULTILINE)
    assert sorted(listed) == sorted({*(page.stem for page in PAGES), "api"} - {"index"})


def test_the_page_on_files_has_a_table_for_each_kind_of_dataset():
    text = (DOCS / "files.md").read_text("utf-8")
    kinds = {description.kind for description in DATASETS.values()}
    assert sorted(re.findall(r"```{datasets} (\w+)\n", text)) == sorted(kinds)
