"""Small faults, one at a time, in a copy of the repository: do the tests notice?

Run ``python tests/mutations.py`` for all of them, ``python tests/mutations.py S1 D7`` for some, and
``python tests/mutations.py --file more.toml`` for those of another list. A fault counts as killed
if a test fails that `make test` runs: no nightly test, and the doctests of its own module first.
They are listed in mutations.toml. This is no test itself, and takes half an hour or so.
"""

import argparse
import contextlib
import importlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "mutations.toml"
MUTATIONS = tomllib.loads(LIST.read_text("utf-8"))
NOT_COPIED = shutil.ignore_patterns(".git", ".venv*", "__pycache__", "_build", "dist", "results")
MAX_SECONDS = 900

# Imported once, in the process from which that of each fault is forked. Not those that pytest
# rewrites, such as hypothesis.
LIBRARIES = (
    *("scipy.optimize", "scipy.sparse", "scipy.stats", "sklearn.cluster", "sklearn.decomposition"),
    *("sklearn.utils.estimator_checks", "numba", "pandas", "anndata", "dask.array", "h5py", "zarr"),
    *("matplotlib.pyplot", "click", "jinja2", "rich.progress", "PIL.Image", "pytest"),
)


def run_tests(copy, tests, cache, output):
    """Run these tests in a copy, in this process, and exit with the code of pytest."""
    from numba.core import config

    os.setsid()
    os.chdir(copy)
    with output.open("w") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    sys.path[0] = str(copy / "src")  # instead of the folder of this file
    os.environ |= {"PYTHONPATH": sys.path[0], "CI": "1"}  # CI: the same examples
    if cache is not None:
        os.environ["NUMBA_CACHE_DIR"] = config.CACHE_DIR = str(cache)
    import pytest

    options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # libraries are imported already
    sys.exit(pytest.main([*options, *tests]))


def failures(copy, tests, cache=None):
    """Return the tests that fail in a copy, and what pytest ended with."""
    output = copy / "output.txt"
    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=run_tests, args=(copy, tests, cache, output))
    process.start()
    try:
        process.join(MAX_SECONDS)
        is_late = process.is_alive()
    finally:
        with contextlib.suppress(ProcessLookupError):  # also what its tests have started
            os.killpg(process.pid, signal.SIGKILL)
    process.join()
    if is_late:
        return ["no end"], 1
    lines = output.read_text("utf-8").splitlines()
    names = (line for line in lines if line.startswith(("FAILED", "ERROR ")))
    return [name.split(" - ")[0].split(" ", 1)[1] for name in names], process.exitcode


def outcome(copy, fault, number):
    """Return what the tests say of a copy with this fault in it, but not without it."""
    path = copy / "src" / "conenmf" / fault["file"]
    text, times = path.read_text("utf-8"), path.stat()
    if text.count(fault["old"]) != 1:
        return "MOVED"
    cache = None  # beside the kernels
    if path.parent.name == "kernels":  # compiled anew, and not kept
        cache = copy / f"numba-{number}"
    own = [f"src/conenmf/{fault['file']}"] if path.suffix == ".py" else []
    path.write_text(text.replace(fault["old"], fault["new"]), "utf-8")
    os.utime(path, (number, number))  # its own time, so that no compiled file stands for another
    try:
        tests = [f"tests/{name}" for name in fault["tests"].split()]
        failed, code = failures(copy, own + tests, cache)
    finally:
        path.write_text(text, "utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    if code == 0:
        return "equivalent" if "equivalent" in fault else "SURVIVED"
    functions = [test.partition("[")[0] for test in failed]  # parameters may not be plain text
    if failed != ["no end"] and failures(copy, functions or tests)[1] != 0:
        return f"BROKEN without it: {failed}"
    return f"killed: {failed[0] if failed else code}"


def main(arguments):
    """Print a line for each fault; return 1 if one survives."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="by default all of the list")
    parser.add_argument("--file", type=Path, default=LIST, help="the list of faults")
    options = parser.parse_args(arguments)
    faults = tomllib.loads(options.file.read_text("utf-8"))
    for library in LIBRARIES:
        importlib.import_module(library)
    counts = Counter()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(ROOT, Path(folder) / "repo", ignore=NOT_COPIED))
        for number, name in enumerate(options.names or faults, 1):
            began = time.perf_counter()
            said = outcome(copy, faults[name], number)
            seconds = time.perf_counter() - began
            counts[said.partition(":")[0]] += 1
            print(f"{name:6} {faults[name]['file']:30} {seconds:4.0f} s {said}", flush=True)
    print(", ".join(f"{count} {said}" for said, count in counts.items()))
    return int(not set(counts) <= {"killed", "equivalent"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
