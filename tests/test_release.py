"""What users install: the wheel, made from the sdist, in an environment without the sources."""

import ast
import email
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import warnings
import zipfile
from pathlib import Path

import pytest
from packaging.version import Version

import conenmf

ROOT = Path(__file__).parents[1]
CONTENT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = CONTENT["project"]
OWN = CONTENT["tool"]["conenmf"]  # addresses, empty until the owners fill them in
LAST_MINOR = 14  # the newest Python that the suite was run with
CORE = ("tests/test_names.py", "tests/test_save.py")


def files(folder):
    """Files that belong to a release, by their path in the repository."""
    for path in sorted((ROOT / folder).rglob("*")):
        ignored = {"__pycache__", "_build", "artefacts", "auto_examples", "generated", "results"}
        if path.is_file() and not ignored & set(path.relative_to(ROOT).parts):
            yield path.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """The paths of an sdist and of the wheel that was built from it, as `python -m build` does."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(release, tmp_path_factory):
    """The unpacked sdist, and the folder of programs of an environment that has the wheel.

    The environment sees the packages that are installed here, but not the one under test: lines
    of a .pth file, such as that of an editable install, are not read from folders that another
    .pth file names.
    """
    sdist, wheel = release
    folder = tmp_path_factory.mktemp("installed")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    venv.create(folder / "env", with_pip=False, symlinks=True)
    home = {"base": str(folder / "env"), "platbase": str(folder / "env")}
    packages = Path(sysconfig.get_path("purelib", "venv", home))
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    programs = Path(sysconfig.get_path("scripts", "venv", home))
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install"]
    subprocess.run(
        [*pip, "--quiet", "--no-deps", "--no-index", "--ignore-installed", str(wheel)], check=True
    )
    return folder / sdist.name.removesuffix(".tar.gz"), programs


def run(installed, *command):
    """Run a program of the environment in the unpacked sdist, without anything of this process."""
    sources, programs = installed
    hidden = {"PYTHONPATH", "PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST", "PYTEST_ADDOPTS"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"CONENMF_NUMBA": "0", "COLUMNS": "100"}
    program, *options = command
    done = subprocess.run(
        [str(programs / program), *options],
        cwd=sources,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.nightly
def test_the_wheel_holds_the_package_and_the_sdist_what_the_tests_need(release):
    sdist, wheel = release
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
        (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    assert packed == {name.removeprefix("src/") for name in files("src")}
    stated = (metadata["Version"], metadata["License-Expression"])
    assert stated == (conenmf.__version__, "BSD-3-Clause")
    assert metadata.get_payload().startswith("# conenmf")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for folder in ("attack", "benchmarks", "docs", "examples", "recipe", "src", "tests", ".github"):
        assert set(files(folder)) <= names, folder


@pytest.mark.nightly
def test_the_installed_wheel_passes_tests_of_the_sdist_and_its_command_runs(installed, tmp_path):
    where = run(installed, "python", "-c", "import conenmf; print(conenmf.__file__)")
    assert Path(where.strip()).is_relative_to(installed[1].parent)
    out = run(installed, "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *CORE)
    assert re.search(r"\d\d passed", out), out
    table = tmp_path / "table.csv"
    table.write_text("a,b,c\n" + "\n".join(f"{n},{2 * n},{n % 3}" for n in range(1, 30)))
    assert conenmf.__version__ in run(installed, "conenmf", "--version")
    run(installed, "conenmf", "fit", str(table), "-k", "2", "-o", str(tmp_path / "result"))
    assert (tmp_path / "result" / "report.html").stat().st_size > 10_000


def built_with(release, folder, **addresses):
    """The metadata of a wheel that is built from the sdist after filling in addresses."""
    with tarfile.open(release[0]) as archive:
        archive.extractall(folder, filter="data")
    (sources,) = folder.iterdir()
    (sources / "PKG-INFO").unlink()  # from which hatchling would take the readme
    project = sources / "pyproject.toml"
    text = project.read_text("utf-8")
    for name, address in addresses.items():
        assert text.count(f'{name} = ""\n') == 1, name
        text = text.replace(f'{name} = ""\n', f'{name} = "{address}"\n')
    project.write_text(text, "utf-8")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", str(sources)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = sources.glob("dist/*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_the_readme_of_a_wheel_has_absolute_links_to_files_of_its_version(release, tmp_path):
    place = "https://example.org/conenmf"
    pages = "https://example.org/pages/"
    metadata = built_with(release, tmp_path, repository=place, documentation=pages)
    targets = re.findall(r"\]\(([^)]+)\)", metadata.get_payload())
    assert len(targets) > 30
    assert [one for one in targets if not one.startswith("https://")] == []
    start = re.compile(rf"{place}/(blob|raw)/v{re.escape(conenmf.__version__)}/([^#]+)")
    own = [match for match in map(start.match, targets) if match]
    assert all((ROOT / match[2]).is_file() for match in own)
    assert [match[2] for match in own if match[1] == "raw"] == ["docs/readme.png"]
    relative = re.findall(r"\]\((?!https:)([^)]+)\)", (ROOT / "README.md").read_text("utf-8"))
    assert len(own) == len(relative)
    shown = dict(line.split(", ") for line in metadata.get_all("Project-URL"))
    assert shown["Source"] == place
    assert shown["Documentation"] == pages
    assert shown["Paper"] == OWN["paper"]


def test_the_files_that_describe_the_software_agree():
    cited = (ROOT / "CITATION.cff").read_text("utf-8")
    described = json.loads((ROOT / "codemeta.json").read_text("utf-8"))
    assert f"\nversion: {described['version']}\n" in cited
    assert described["version"] == conenmf.__version__
    assert described["description"] == PROJECT["description"]
    assert described["license"].endswith(PROJECT["license"])
    assert set(described["keywords"]) == set(PROJECT["keywords"])
    assert described["runtimePlatform"] == f"Python {PROJECT['requires-python']}"
    assert described.get("codeRepository", "") == OWN["repository"]
    repositories = re.findall(r"^repository-code: (\S+)$", cited, re.MULTILINE)
    assert repositories == [OWN["repository"]] * bool(OWN["repository"])


def test_the_paper_about_the_software_cites_what_its_bibliography_has():
    paper = (ROOT / "paper.md").read_text("utf-8")
    listed = re.findall(r"^@\w+\{(\w+),", (ROOT / "paper.bib").read_text("utf-8"), re.MULTILINE)
    assert set(re.findall(r"@(\w+)", paper)) == set(listed)
    headings = re.findall(r"^# (.+)$", paper, re.MULTILINE)
    assert headings[:3] == ["Summary", "Statement of need", "State of the field"]


def test_the_metadata_say_which_versions_of_python_are_tested():
    first = int(PROJECT["requires-python"].removeprefix(">=3."))
    expected = [f"Programming Language :: Python :: 3.{n}" for n in range(first, LAST_MINOR + 1)]
    assert [c for c in PROJECT["classifiers"] if re.search(r"3\.\d+$", c)] == expected
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text("utf-8")
    assert all(f'"3.{minor}"' in workflow for minor in range(first, LAST_MINOR + 1))


def test_the_recipe_has_the_requirements_and_the_version_of_the_project():
    recipe = (ROOT / "recipe" / "meta.yaml").read_text("utf-8")
    assert f'{{% set version = "{conenmf.__version__}" %}}' in recipe
    run_time = recipe.partition("  run:\n")[2].partition("\n\n")[0]
    listed = {line.strip("- ").replace(" ", "") for line in run_time.splitlines()}
    needed = {*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["fast"]}
    of_command = {f"{package}>={oldest}" for package, oldest in required("cli").items()}
    needed |= {line for line in of_command if line.startswith(("click", "rich"))}
    assert listed == {*needed, f"python{PROJECT['requires-python']}"}
    about = recipe.partition("\nabout:\n")[2]
    assert "home: {{ own.repository }}" in about
    assert "doc_url: {{ own.documentation }}" in about


def required(*extras):
    """Return the oldest versions of packages that the project and its extras require."""
    optional = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in optional[extra])]
    found = (re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", line) for line in lines)
    return dict(match.groups() for match in found if match)


def test_the_table_of_the_oldest_versions_is_that_of_the_requirements():
    page = (ROOT / "docs" / "about.md").read_text("utf-8")
    table = page.partition("<!-- make oldest: begin -->\n")[2].partition("<!-- make oldest: end")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    assert rows.pop(0)[:2] == ["Python", PROJECT["requires-python"].removeprefix(">=")]
    stated = {package: oldest for package, oldest, _, _ in rows}
    beside = {"anndata", "pandas", "polars", "scikit-image"}
    libraries = required("fast", "disk", "files", "datasets", "dask", "plot", "report", "cli")
    others = {package: oldest for package, oldest in required("test").items() if package in beside}
    assert stated == libraries | others
    for package, oldest, tested, _ in rows:
        assert Version(tested) == Version(oldest), package


def test_all_extras_require_the_same_versions():
    every = required(*PROJECT["optional-dependencies"])
    for extra in PROJECT["optional-dependencies"]:
        assert required(extra).items() <= every.items(), extra


def imported(path):
    """Return the first part of every name that a program imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.partition(".")[0]


def test_what_reproduces_the_paper_imports_only_what_its_extra_installs():
    folder = ROOT / "benchmarks"
    own = {path.stem: path for path in (*folder.glob("*.py"), *folder.glob("paper/*.py"))}
    reached = set()
    modules = {"reproduce"}
    while new := modules & own.keys() - reached:
        reached |= new
        modules |= {name for module in new for name in imported(own[module])}
    assert {path.stem for path in folder.glob("paper/*.py")} <= reached
    packages = {"PIL": "pillow", "sklearn": "scikit-learn"}
    needed = {packages.get(name, name) for name in modules - reached - sys.stdlib_module_names}
    (extra,) = PROJECT["optional-dependencies"]["reproduce"]
    parts = re.fullmatch(r"conenmf\[(.*)\]", extra)[1].split(",")
    assert {"matplotlib", "numpy", "scikit-learn"} < needed
    assert needed - {"conenmf"} <= required(*parts).keys()


def warns(module, category):
    warnings.warn_explicit("is deprecated", category, f"{module}.py", 1, module)


@pytest.mark.parametrize("category", [DeprecationWarning, FutureWarning, PendingDeprecationWarning])
def test_deprecation_warnings_are_errors_in_our_own_calls_only(category):
    for module in ("conenmf", "conenmf.io.text", "tests.test_release", "attack.options"):
        with pytest.raises(category, match="is deprecated"):
            warns(module, category)
    with warnings.catch_warnings(record=True) as shown:
        for module in ("anndata.compat", "zarr.core.tests", "conenmfx"):
            warns(module, category)
    assert len(shown) == 3


def test_every_version_of_python_is_tested_with_the_newest_packages():
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text("utf-8")
    newest = workflow.partition("  newest:\n")[2].partition("\n\n")[0]
    first = int(PROJECT["requires-python"].removeprefix(">=3."))
    assert all(f'"3.{minor}"' in newest for minor in range(first, LAST_MINOR + 1))
    assert "make newest PYTHON=python" in newest
    oldest = workflow.partition("  oldest:\n")[2].partition("\n\n")[0]
    assert f'"3.{first}"' in oldest
    assert "make oldest PYTHON=python" in oldest
