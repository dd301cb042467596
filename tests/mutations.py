"""Small faults, one at a time, in a copy of the repository: do the tests notice?

Run ``python tests/mutations.py`` for all of them, ``python tests/mutations.py S1 D7`` for some.
They are listed in mutations.toml. This is no test itself, and takes an hour or so.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
MUTATIONS = tomllib.loads((ROOT / "tests" / "mutations.toml").read_text("utf-8"))
NOT_COPIED = shutil.ignore_patterns(".git", ".venv*", "__pycache__", "_build", "dist", "results")
MAX_SECONDS = 3600


def failures(copy, tests):
    """Return the first test that fails in a copy, and what pytest ended with."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-m", ""]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "CI": "1"}  # the same examples
    environment["NUMBA_CACHE_DIR"] = str(copy / "numba")
    options = {"cwd": copy, "env": environment, "capture_output": True, "text": True}
    try:
        done = subprocess.run([*command, *tests], timeout=MAX_SECONDS, **options)
    except subprocess.TimeoutExpired:
        return ["no end"], 1
    lines = (line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR ")))
    return [line.split(" - ")[0].split(" ", 1)[1] for line in lines], done.returncode


def outcome(copy, fault):
    """Return what the tests say of a copy with this fault in it, but not without it."""
    path = copy / "src" / "conenmf" / fault["file"]
    text = path.read_text("utf-8")
    if text.count(fault["old"]) != 1:
        return "MOVED"
    path.write_text(text.replace(fault["old"], fault["new"]), "utf-8")
    try:
        failed, code = failures(copy, [f"tests/{name}" for name in fault["tests"].split()])
    finally:
        path.write_text(text, "utf-8")
    if code == 0:
        return "equivalent" if "equivalent" in fault else "SURVIVED"
    functions = [test.partition("[")[0] for test in failed]  # parameters may not be plain text
    if failed != ["no end"] and failures(copy, functions)[1] != 0:
        return f"BROKEN without it: {failed}"
    return f"killed: {failed[0]}"


def main(names):
    """Print a line for each fault; return 1 if one survives."""
    counts = Counter()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(ROOT, Path(folder) / "repo", ignore=NOT_COPIED))
        for name in names or MUTATIONS:
            said = outcome(copy, MUTATIONS[name])
            counts[said.partition(":")[0]] += 1
            print(f"{name:4} {MUTATIONS[name]['file']:30} {said}", flush=True)
    print(", ".join(f"{count} {said}" for said, count in counts.items()))
    return int(not set(counts) <= {"killed", "equivalent"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
