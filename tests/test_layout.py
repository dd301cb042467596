"""The shape of the code: no name with two meanings, fast imports, its map in CONTRIBUTING.md."""

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import conenmf
from conenmf import ConeNMF

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "conenmf"
GUIDE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")


def test_no_name_hides_a_module():
    packages = [
        "conenmf",
        *(m.name for m in pkgutil.walk_packages(conenmf.__path__, "conenmf.") if m.ispkg),
    ]
    for name in packages:
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(package.__path__):
            if module.name == "__main__":
                continue
            importlib.import_module(f"{name}.{module.name}")
            attribute = getattr(package, module.name)
            assert attribute is sys.modules[f"{name}.{module.name}"], f"{name}.{module.name}"


def test_importing_the_package_imports_little():
    program = "import sys, conenmf; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    heavy = {"numpy", "scipy", "sklearn", "numba", "dask", "pandas", "pyarrow", "matplotlib"}
    assert heavy & set(done.stdout.split()) == set()


def test_exported_names_can_be_listed_and_imported():
    assert set(conenmf.__all__) <= set(dir(conenmf))
    for name in conenmf.__all__:
        assert getattr(conenmf, name).__doc__, name


def test_each_test_file_says_first_what_it_tests():
    for path in sorted((ROOT / "tests").rglob("*.py")):
        before, _, rest = path.read_text("utf-8").partition('"""')
        sentence = rest.partition('"""')[0].partition("\n\n")[0]
        assert before == "", path
        assert sentence.endswith((".", "?")), path


def names_defined(path):
    """The functions, classes, methods and values that a file defines, as dotted names."""

    def collect(body, home):
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield f"{home}{node.name}"
            if isinstance(node, ast.ClassDef):
                yield from collect(node.body, f"{home}{node.name}.")
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            yield from (f"{home}{one.id}" for one in targets if isinstance(one, ast.Name))

    return set(collect(ast.parse(path.read_text("utf-8")).body, ""))


def section(title):
    """The text of a section of CONTRIBUTING.md, with its subsections."""
    text = GUIDE.partition(f"\n{title}\n")[2]
    assert text, title
    depth = len(title.partition(" ")[0])
    return re.split(rf"^#{{1,{depth}}} ", text, maxsplit=1, flags=re.MULTILINE)[0]


def test_the_map_for_contributors_has_the_layers_that_are_checked():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    (layers,) = (one["layers"] for one in settings["contracts"] if one["type"] == "layers")
    shown = section("## Where things are").split("```")[1].strip("\n").splitlines()
    assert [line.split("  ")[0] for line in shown if not line.startswith(" ")] == layers
    modules = [name for layer in layers for name in re.split(" [|:] ", layer)]
    assert sorted(modules) == sorted(
        path.stem
        for path in SOURCE.iterdir()
        if path.name not in ("__init__.py", "__main__.py", "__pycache__", "py.typed")
    )


def test_what_the_guide_for_contributors_names_exists():
    files = [*SOURCE.rglob("*.py"), ROOT / "tests" / "conftest.py", ROOT / "tests" / "machines.py"]
    defined = {"conenmf", *(path.stem for path in [*SOURCE.iterdir(), *files])}
    for path in files:
        names = names_defined(path)
        defined |= names | {f"{path.stem}.{name}" for name in names}
        defined |= {name.rpartition(".")[2] for name in names}
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    parts = ("## Where things are", "## Rules", "## Extending the library", "## The documentation")
    named = [one for part in parts for one in re.findall(r"`([^`\n]+)`", section(part))]
    assert len(named) > 80
    for name in named:
        if command := re.search(r"\bmake ([\w-]+)", name):
            assert command[1] in targets, name
        elif "/" in name:
            path = name.split()[1] if name.startswith("python ") else name
            assert (ROOT / path).exists() or (SOURCE / path).exists(), name
        elif name.endswith((".py", ".md", ".toml")):
            assert list(SOURCE.rglob(name)) or (ROOT / name).exists(), name
        elif re.fullmatch(r"\.?[A-Za-z_][\w.]*", name):
            assert name.removeprefix(".") in defined | {"numpy.random.Generator", "layers"}, name


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_with_the_defaults_calls_what_the_guide_says(rng):
    steps = re.findall(r"^\d\. .*\n(?:   .*\n)+", section("### What a fit calls"), re.MULTILINE)
    named = re.findall(r"`((?:\w+\.)?[a-z]\w*)`", "".join(steps))
    assert len(named) >= 15
    called = set()

    def note(frame, event, argument):
        if event == "call" and frame.f_globals.get("__name__", "").startswith("conenmf."):
            called.add(frame.f_code.co_qualname)

    noise = rng.random((100, 20))
    sys.setprofile(note)
    try:
        ConeNMF().fit(noise)  # the number of components is chosen
        ConeNMF(9).fit(noise)  # several inits compete
    finally:
        sys.setprofile(None)
    assert {*named} - called == {"pipeline.py", "certify"}  # the user calls certify
