"""The tests as each of several processors, on one machine (`make test-machines`).

``python tests/machines.py`` runs every leg of `LEGS` that this machine can run, ``python
tests/machines.py haswell twins-haswell`` some of them. ``python tests/machines.py storages`` runs
the files of `STORAGES` under two kernels of OpenBLAS (`make test-storages`).

A leg sets environment variables. OpenBLAS, NumPy and numba ignore a value that they do not know,
so pytest loads this file as a plugin (``-p tests.machines --machine haswell``). Every process of
the run, the one that starts the tests and its workers, then compares what is loaded with the leg
and stops at a difference. The plugin also leaves out two thirds of the tests that depend little on
the processor, by a rule that every leg and worker applies alike.
"""

import importlib.util
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / ".machines"  # for each leg: what was loaded, what ran, what was left out
HIDING = ("OPENBLAS_", "NPY_", "NUMBA_", "CONENMF_NUMBA")  # variables that decide what is loaded

# A kernel of OpenBLAS, and the feature of NumPy's list that a processor needs for it.
KERNELS = {
    "SkylakeX": "AVX512F",
    "Haswell": "AVX2",
    "Sandybridge": "AVX",
    "Nehalem": "SSE42",
    "NEOVERSEN1": "ASIMDDP",
    "ARMV8": "ASIMD",
}

STORAGES = (  # files that compare storages, containers and what the library does by itself
    *("tests/scale", "tests/io", "tests/data", "tests/cli/test_known_parts.py"),
    *("tests/test_same_answer.py", "tests/test_estimator.py", "tests/test_counts_estimator.py"),
    *("tests/test_workflows.py", "tests/test_names.py", "tests/test_tl.py"),
    *("tests/test_ties.py", "tests/test_contract.py", "tests/test_scikit_learns_checks.py"),
)
BACKENDS = {"backend", "main_backend"}  # fixtures: a test that takes one runs on every storage


@dataclass(frozen=True)
class Leg:
    """One processor.

    Attributes
    ----------
    part : int
        Which third of the tests runs that may be left out: 0, 1 or 2.
    kernels : tuple of str
        Names for OpenBLAS; the leg takes the first that this machine can run.
    numba : {"host", "generic", "off", "missing"}
        Kernels for this processor or for any; turned off; or an environment without numba.
    numpy : {"host", "baseline"}
        NumPy's loops for this processor, or only those that every processor can run.
    """

    part: int
    kernels: tuple[str, ...]
    numba: str = "host"
    numpy: str = "host"


# Each part is in two legs whose kernels differ, with AVX-512, without it, and on ARM.
LEGS = {
    "haswell": Leg(0, ("Haswell",)),
    "skylakex": Leg(1, ("SkylakeX",)),
    "sandybridge": Leg(2, ("Sandybridge",)),
    "nehalem": Leg(1, ("Nehalem",)),
    "armv8": Leg(0, ("ARMV8",)),
    "neoversen1": Leg(1, ("NEOVERSEN1",)),
    "numpy-baseline": Leg(2, ("Haswell", "ARMV8"), numpy="baseline"),
    "numba-generic": Leg(0, ("Sandybridge", "NEOVERSEN1"), numba="generic"),
    "twins": Leg(1, ("Haswell", "ARMV8"), numba="off"),
    "twins-2": Leg(2, ("SkylakeX", "Nehalem", "NEOVERSEN1"), numba="off"),
    "without-numba": Leg(0, ("Sandybridge", "ARMV8"), numba="missing"),
}


# --- the machine, and the environment of a leg --------------------------------------------------


@dataclass(frozen=True)
class Machine:
    """What NumPy finds in this processor, and for which features it has loops of their own."""

    features: frozenset[str]
    dispatch: tuple[str, ...]


def clean_environment():
    """Return the environment without the variables that hide the processor."""
    return {name: value for name, value in os.environ.items() if not name.startswith(HIDING)}


def this_machine():
    """Ask NumPy in a process of its own, because this one may have variables set."""
    program = (
        "import json; from numpy._core import _multiarray_umath as found; "
        "on = [name for name, is_on in found.__cpu_features__.items() if is_on]; "
        "print(json.dumps([on, found.__cpu_dispatch__]))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, env=clean_environment(), check=True, stdout=subprocess.PIPE, text=True
    )
    features, dispatch = json.loads(done.stdout)
    return Machine(frozenset(features), tuple(dispatch))


def kernel_of(leg, machine):
    """Return the kernel that a leg has on this machine; None if it has none."""
    possible = (name for name in leg.kernels if KERNELS[name] in machine.features)
    return (
        None if sys.platform == "darwin" else next(possible, None)
    )  # NumPy has another BLAS there


def environment_of(name, machine):
    """Return the environment variables of a leg."""
    leg = LEGS[name]
    environment = clean_environment() | {"OPENBLAS_CORETYPE": kernel_of(leg, machine)}
    if leg.numpy == "baseline":  # a feature that this processor lacks would be warned of
        disabled = [feature for feature in machine.dispatch if feature in machine.features]
        environment["NPY_DISABLE_CPU_FEATURES"] = " ".join(disabled)
    if leg.numba == "generic":
        environment["NUMBA_CPU_NAME"] = "generic"
        environment["NUMBA_CACHE_DIR"] = str(RESULTS / "numba-generic")
    if leg.numba == "off":
        environment["CONENMF_NUMBA"] = "0"
    return environment


def python_without_numba():
    """Install all packages of the tests but numba into an environment of its own, once."""
    folder = ROOT / ".venv-without-numba"
    python, stamp = folder / "bin" / "python", folder / "complete"
    if not stamp.exists() or stamp.stat().st_mtime < (ROOT / "pyproject.toml").stat().st_mtime:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--editable", ".[test]"], cwd=ROOT, check=True)
        subprocess.run([*pip, "uninstall", "--yes", "numba", "llvmlite"], cwd=ROOT, check=True)
        stamp.touch()
    return str(python)


# --- what is loaded in this process -------------------------------------------------------------


def loaded_kernels():
    """Return the names of the kernels of all copies of OpenBLAS in this process."""
    import scipy.linalg  # noqa: F401  it has a copy of its own
    from threadpoolctl import threadpool_info

    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    return sorted({library.get("architecture", library["filepath"]) for library in libraries})


def loaded_numba():
    """Return for which processor numba compiles; "off" or "missing" if it does not."""
    from conenmf import kernels

    if importlib.util.find_spec("numba") is None:
        return "missing"
    if not kernels.AVAILABLE:
        return "off"
    from numba.core import config, registry

    _, processor, features = registry.cpu_target.target_context.codegen().magic_tuple()
    if config.CPU_NAME is None and config.CPU_FEATURES is None:
        return "host"  # which LLVM calls generic, too, if it does not know this processor
    return "generic" if (processor, features) == ("generic", "") else f"{processor} {features}"


def differences(leg, kernels, numba, numpy_features):
    """Yield in which way what is loaded differs from a leg."""
    named = {name.lower() for name in leg.kernels}
    asked = os.environ.get("OPENBLAS_CORETYPE", "")
    if [name.lower() for name in kernels] != [asked.lower()] or asked.lower() not in named:
        yield f"OPENBLAS_CORETYPE is {asked or 'not set'}, but OpenBLAS has loaded {kernels}"
    if numba != leg.numba:
        yield f"numba is expected to be {leg.numba}, but is {numba}"
    on = [name for name, is_on in numpy_features.items() if is_on]
    if leg.numpy == "baseline" and on:
        yield f"NumPy still has loops for {', '.join(on)}"
    if leg.numpy == "host" and "NPY_DISABLE_CPU_FEATURES" in os.environ:
        yield "NPY_DISABLE_CPU_FEATURES is set"


def check_this_process(leg):
    """Return the kernels that are loaded; stop the tests if they are not those of the leg."""
    from numpy._core import _multiarray_umath as found

    features = {name: found.__cpu_features__[name] for name in found.__cpu_dispatch__}
    kernels = loaded_kernels()
    wrong = list(differences(leg, kernels, loaded_numba(), features))
    if wrong:
        raise pytest.UsageError("; ".join(wrong))
    return kernels


# --- the plugin of pytest -----------------------------------------------------------------------


def chosen(names, part):
    """Return every third name: at least a third of them, and all in the three parts together."""
    names = sorted(names)
    return {names[index % len(names)] for index in range(part, len(names) + 2, 3) if names}


def function_of(item):
    """Return the name of a test without its parameters."""
    return item.nodeid.partition("[")[0]


def is_always_run(item):
    """Return whether a test compares storages or containers, or is a doctest."""
    is_of_storages = BACKENDS & set(getattr(item, "fixturenames", ()))
    in_file = function_of(item).startswith(STORAGES)
    return bool(isinstance(item, pytest.DoctestItem) or is_of_storages or in_file)


def pytest_addoption(parser):
    parser.addoption("--machine", choices=list(LEGS), help="stop unless this leg is loaded")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session):
    config = session.config
    config.machine_reports = []  # of the workers, or of this process if it has none
    config.machine_kernels = check_this_process(LEGS[config.option.machine])


@pytest.hookimpl(trylast=True)  # when tests that no leg runs are gone
def pytest_collection_modifyitems(config, items):
    functions = {function_of(item) for item in items}
    always = {function_of(item) for item in items if is_always_run(item)}
    kept = always | chosen(functions - always, LEGS[config.option.machine].part)
    left_out = [item for item in items if function_of(item) not in kept]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if function_of(item) in kept]
    report = {"kernels": config.machine_kernels, "always": sorted(always)}
    report |= {"kept": sorted(kept - always), "left_out": sorted(functions - kept)}
    config.machine_reports.append(report)
    if hasattr(config, "workeroutput"):
        config.workeroutput["machine"] = report


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    report = getattr(node, "workeroutput", {}).get("machine")
    if report is not None:
        node.config.machine_reports.append(report)


def pytest_terminal_summary(terminalreporter, config):
    reports = config.machine_reports
    if not reports:
        return
    assert all(report == reports[0] for report in reports), "workers differ"
    assert reports[0]["kernels"] == config.machine_kernels, "the workers differ from their parent"
    counts = {
        outcome: len(terminalreporter.getreports(outcome))
        for outcome in ("passed", "failed", "error", "skipped")
    }
    failures = terminalreporter.getreports("failed") + terminalreporter.getreports("error")
    failed = sorted(report.nodeid for report in failures)
    name = config.option.machine
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    content = {"leg": name, **reports[0], "processes": len(reports), **counts, "failures": failed}
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    terminalreporter.write_line(f"{name}: {in_words(content)}; {path.relative_to(ROOT)}")


# --- the program --------------------------------------------------------------------------------


def in_words(result):
    """Return what a leg loaded, ran and left out."""
    n_always, n_kept = len(result["always"]), len(result["kept"])
    n_left_out = len(result["left_out"])
    return (
        f"OpenBLAS {' and '.join(result['kernels'])} in {result['processes']} workers; "
        f"{result['passed']} passed, {result['failed'] + result['error']} failed, "
        f"{result['skipped']} skipped; all {n_always} functions of storages, containers and "
        f"doctests, and {n_kept} of {n_kept + n_left_out} others ({n_left_out} left out)"
    )


def run(name, machine, paths):
    """Run the tests as one leg; return whether it passes, a line on it, and what was loaded."""
    path = RESULTS / f"{name}.json"
    path.unlink(missing_ok=True)
    python = python_without_numba() if LEGS[name].numba == "missing" else sys.executable
    command = [python, "-m", "pytest", "-q", "-n", "auto", "-p", "tests.machines"]
    command += ["--machine", name, *paths]
    began = time.monotonic()
    code = subprocess.run(command, cwd=ROOT, env=environment_of(name, machine)).returncode
    minutes = (time.monotonic() - began) / 60
    if not path.exists():
        return False, f"did not run, pytest ended with {code}", []
    result = json.loads(path.read_text("utf-8"))
    return code == 0, f"{in_words(result)}; {minutes:.1f} minutes", result["kernels"]


def possible_legs(machine):
    """Return the names of the legs that a machine can run."""
    return [name for name, leg in LEGS.items() if kernel_of(leg, machine)]


def legs_of_storages(possible):
    """Return two legs that differ in nothing but the kernel of OpenBLAS."""
    plain = (name for name in possible if (LEGS[name].numba, LEGS[name].numpy) == ("host", "host"))
    return list(plain)[:2]


def main(names):
    """Run legs, print a line for each; return 1 if one fails or none can run."""
    machine = this_machine()
    possible = possible_legs(machine)
    is_of_storages = names == ["storages"]
    if is_of_storages:
        names = legs_of_storages(possible)
    lines, kernels, is_good = [], set(), True
    for name in names or LEGS:
        if name not in possible:
            kernel = " or ".join(LEGS[name].kernels)
            lines.append(f"{name}: left out, because this machine cannot run {kernel}")
            continue
        print(f"--- {name} ---", flush=True)
        passed, line, loaded = run(name, machine, STORAGES if is_of_storages else ())
        is_good = is_good and passed
        kernels.update(loaded)
        lines.append(f"{name}: {line}")
    print(*lines, sep="\n")
    if len(kernels) < 1 + is_of_storages:
        print(f"too few kernels could be loaded: {sorted(kernels)}")
        return 1
    return int(not is_good)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
