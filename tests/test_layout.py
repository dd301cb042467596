"""The shape of the code: no name with two meanings, fast imports."""

import importlib
import pkgutil
import subprocess
import sys

import conenmf


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


def test_what_is_exported_can_be_listed_and_imported():
    assert set(conenmf.__all__) <= set(dir(conenmf))
    for name in conenmf.__all__:
        assert getattr(conenmf, name).__doc__, name
