"""The oldest versions that pyproject.toml allows (`make oldest`).

Without an option, they are printed as constraints for pip. With ``--write``, which follows the
tests in the environment of these versions, the table of docs/about.md is written from what is
installed there. They are those of the library and of what its users combine it with; tools that
only check the code (pytest, mypy, ruff) are left at their newest.
"""

import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PAGE = ROOT / "docs" / "about.md"
MARKS = ("<!-- make oldest: begin -->\n", "<!-- make oldest: end -->\n")
EXTRAS = ("fast", "disk", "files", "datasets", "dask", "plot", "report", "cli")
BESIDES = ("anndata", "pandas", "polars", "scikit-image")  # of the extra `test`


def bounds():
    """Return the oldest version of every package, and the extras that install it."""
    extras = PROJECT["optional-dependencies"]
    besides = [line for line in extras["test"] if line.startswith(BESIDES)]
    groups = {"": PROJECT["dependencies"], **{name: extras[name] for name in EXTRAS}}
    found = {}
    for extra, lines in {**groups, "test": besides}.items():
        for line in lines:
            if line.startswith("conenmf["):
                continue
            parts = re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", line)
            if parts is None:
                sys.exit(f"{line}: expected name>=version")
            oldest, users = found.setdefault(parts[1], (parts[2], []))
            if oldest != parts[2]:
                sys.exit(f"{parts[1]}: its bounds differ ({oldest} and {parts[2]})")
            users.append(extra)
    return found


def need(extras):
    """Return in words what installs a package."""
    if "" in extras:
        return "every installation"
    if extras == ["test"]:
        return "tests; use it if you like"
    return ", ".join(f"`{extra}`" for extra in extras if extra != "test")


def shortest(number):
    """Return a version without zeros at its end."""
    return re.sub(r"(\.0)+$", "", number)


def table():
    """Return the table; the versions that are installed must be the oldest."""
    python = PROJECT["requires-python"].removeprefix(">=")
    if sys.version_info[:2] != tuple(map(int, python.split("."))):
        sys.exit(f"this is Python {sys.version.split()[0]}, expected {python}")
    lines = [
        "| package | oldest | tested | extras |",
        "|---|---|---|---|",
        f"| Python | {python} | | |",
    ]
    for package, (oldest, extras) in bounds().items():
        tested = version(package)
        if shortest(tested) != shortest(oldest):
            sys.exit(f"{package} {tested} is installed, expected {oldest}")
        lines.append(f"| {package} | {oldest} | {tested} | {need(extras)} |")
    return "\n".join(lines) + "\n"


def write():
    """Replace the table of the page."""
    before, begin, rest = PAGE.read_text("utf-8").partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    PAGE.write_text(before + begin + table() + end + after, "utf-8")


if sys.argv[1:] == ["--write"]:
    write()
else:
    print(*(f"{package}=={oldest}" for package, (oldest, _) in bounds().items()), sep="\n")
