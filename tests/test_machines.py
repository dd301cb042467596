"""The legs of machines.py: what each runs, and that none passes for a processor that it is not."""

import itertools
from types import SimpleNamespace

import pytest
from tests import machines
from tests.machines import BACKENDS, KERNELS, LEGS, ROOT, STORAGES, Leg, Machine

MACHINES = {
    "AVX-512": ({"SSE42", "AVX", "AVX2", "AVX512F"}, ["haswell", "skylakex"]),
    "AVX2": ({"SSE42", "AVX", "AVX2"}, ["haswell", "sandybridge"]),
    "ARM": ({"ASIMD", "ASIMDDP"}, ["armv8", "neoversen1"]),
}


@pytest.fixture(params=MACHINES)
def machine(request, monkeypatch):
    """What NumPy finds on machines of several kinds; the legs of storages there."""
    monkeypatch.setattr(machines.sys, "platform", "linux")
    features, of_storages = MACHINES[request.param]
    return Machine(frozenset(features), ()), of_storages


def test_every_test_runs_in_two_legs_whose_kernels_differ(machine):
    possible = machines.possible_legs(machine[0])
    kernels = {name: machines.kernel_of(LEGS[name], machine[0]) for name in possible}
    for part in range(3):
        assert len({kernels[name] for name in kernels if LEGS[name].part == part}) >= 2
    assert machines.legs_of_storages(possible) == machine[1]
    without_numba = {kernels[name] for name in kernels if LEGS[name].numba in ("off", "missing")}
    assert len(without_numba) >= 2
    assert {leg.numba for leg in map(LEGS.get, kernels)} == {"host", "generic", "off", "missing"}


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10, 11, 12])
def test_a_leg_runs_a_third_and_three_legs_run_everything(count):
    names = {f"tests/test_text.py::test_{number}" for number in range(count)}
    parts = [machines.chosen(names, part) for part in range(3)]
    assert all(3 * len(part) >= count for part in parts)
    assert set().union(*parts) == names


class Doctest(pytest.DoctestItem):
    nodeid = "src/conenmf/names.py::conenmf.names"


def test_storages_and_doctests_are_in_every_leg():
    def item(name, *fixtures):
        return SimpleNamespace(nodeid=name, fixturenames=fixtures)

    for path in STORAGES:
        assert (ROOT / path).exists()
        assert machines.is_always_run(item(f"{path}::test_x[y]"))
    for fixture in BACKENDS:
        assert machines.is_always_run(item("tests/test_text.py::test_x", fixture))
    assert not machines.is_always_run(item("tests/test_text.py::test_x", "rng"))
    assert machines.is_always_run(object.__new__(Doctest))


def test_left_out_tests_are_reported_and_the_others_stay():
    def item(name):
        return SimpleNamespace(nodeid=name, fixturenames=())

    always = [item("tests/io/test_x.py::test_x[1]"), item("tests/io/test_x.py::test_x[2]")]
    others = [item(f"tests/test_y.py::test_{a}[{b}]") for a, b in itertools.product("abcd", "12")]
    items, left_out = [*always, *others], []
    config = SimpleNamespace(
        option=SimpleNamespace(machine="skylakex"),
        hook=SimpleNamespace(pytest_deselected=lambda items: left_out.extend(items)),
        machine_kernels=["SkylakeX"],
        machine_reports=[],
        workeroutput={},
    )
    machines.pytest_collection_modifyitems(config, items)
    kept = [item.nodeid for item in items]
    assert kept == [item.nodeid for item in always + others[:4]]  # every third, from b on: b, a
    (report,) = config.machine_reports
    assert report == config.workeroutput["machine"]
    assert report["left_out"] == sorted({machines.function_of(item) for item in left_out})
    assert set(report["always"] + report["kept"]) == {name.partition("[")[0] for name in kept}


@pytest.mark.parametrize(
    ("loaded", "message"),
    [
        ({}, None),
        ({"kernels": ["SkylakeX"]}, r"OPENBLAS_CORETYPE is Haswell, but OpenBLAS has loaded"),
        ({"kernels": ["Haswell", "Zen"]}, r"has loaded \['Haswell', 'Zen'\]"),
        ({"numba": "host"}, "numba is expected to be off, but is host"),
        ({"numpy_features": {"X86_V3": False, "X86_V4": True}}, "still has loops for X86_V4"),
    ],
)
def test_another_processor_than_that_of_the_leg_stops_it(loaded, message, monkeypatch, refuses):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    leg = Leg(0, ("Haswell",), numba="off", numpy="baseline")
    right = {"kernels": ["Haswell"], "numba": "off", "numpy_features": {"X86_V3": False}}
    wrong = list(machines.differences(leg, **(right | loaded)))
    assert len(wrong) == (message is not None)
    if message:
        monkeypatch.setattr(machines, "differences", lambda *_: iter(wrong))
        refuses(pytest.UsageError, message, machines.check_this_process, leg)


def test_the_process_of_the_tests_says_what_it_has_loaded(monkeypatch):
    kernels = machines.loaded_kernels()[:1]  # the two copies may take different ones
    monkeypatch.setattr(machines, "loaded_kernels", lambda: kernels)
    monkeypatch.setenv("OPENBLAS_CORETYPE", *kernels)
    monkeypatch.delenv("NPY_DISABLE_CPU_FEATURES", raising=False)
    leg = Leg(0, tuple(kernels), numba=machines.loaded_numba())
    assert machines.check_this_process(leg) == kernels


@pytest.mark.parametrize("name", LEGS)
def test_the_environment_of_a_leg(name, monkeypatch):
    for variable in ("OPENBLAS_NUM_THREADS", "NPY_X", "NUMBA_CPU_NAME", "CONENMF_NUMBA"):
        monkeypatch.setenv(variable, "theirs")
    monkeypatch.setattr(machines.sys, "platform", "linux")
    machine = Machine(frozenset(KERNELS.values()) | {"X86_V3", "X86_V4"}, ("X86_V3", "X86_V4", "Y"))
    environment, leg = machines.environment_of(name, machine), LEGS[name]
    expected = {"OPENBLAS_CORETYPE": leg.kernels[0]}
    if leg.numpy == "baseline":
        expected["NPY_DISABLE_CPU_FEATURES"] = "X86_V3 X86_V4"
    if leg.numba == "generic":
        expected |= {"NUMBA_CPU_NAME": "generic"}
        assert environment.pop("NUMBA_CACHE_DIR").endswith("generic")
    if leg.numba == "off":
        expected["CONENMF_NUMBA"] = "0"
    found = {key: value for key, value in environment.items() if key.startswith(machines.HIDING)}
    assert found == expected


def test_features_of_this_machine_are_those_of_numpy():
    machine = machines.this_machine()
    assert {"SSE42", "ASIMD"} & machine.features
    assert machine.dispatch
