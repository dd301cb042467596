"""The package as a whole: what it exports, what it needs, how it behaves without numba."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import conenmf
import conenmf.kernels


def run(program, *path, **settings):
    """What a program prints that runs in an interpreter of its own."""
    places = [*path, Path(conenmf.__file__).parents[1]]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={"PATH": "", "PYTHONPATH": os.pathsep.join(map(str, places)), **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.parametrize("numba", ["1", "0"])
def test_it_works_with_and_without_numba(numba):
    program = (
        "import numpy as np, conenmf, conenmf.kernels\n"
        f"assert conenmf.kernels.AVAILABLE is ({numba} == 1)\n"
        "X = conenmf.make_cones(30, 3, 0.1, n_samples=90, rng=np.random.default_rng(0)).V.T\n"
        "for solver in ('hals', 'mult', 'nnlsb'):\n"
        "    print(conenmf.ConeNMF(solver=solver, max_iter=20, tol=0).fit(X).n_components_)\n"
    )
    assert run(program, CONENMF_NUMBA=numba) == ["3", "3", "3"]


def test_numba_is_not_imported_before_it_is_needed():
    program = (
        "import sys, pickle, conenmf, numpy as np\n"
        "from conenmf import kernels\n"
        "print('numba' in sys.modules)\n"
        "early = pickle.loads(pickle.dumps(kernels.hals_rows))\n"
        "Y = np.zeros((3, 2))\n"
        "early(np.eye(2), np.ones((3, 2)), Y, 0.0, 1, 0.0)\n"
        "print(Y.sum(), 'numba' in sys.modules, early is kernels.hals_rows, kernels.AVAILABLE)\n"
    )
    assert run(program) == ["False", "6.0", "True", "False", "True"]


def test_a_broken_numba_counts_as_missing(tmp_path):
    (tmp_path / "numba.py").write_text("raise ImportError('Numba needs an older NumPy')")
    program = (
        "import numpy as np, conenmf, conenmf.kernels\n"
        "print(conenmf.ConeNMF(2, max_iter=5, tol=0).fit(np.eye(4) + 1).n_components_)\n"
        "print(conenmf.kernels.AVAILABLE)\n"
    )
    assert run(program, tmp_path) == ["2", "False"]


def test_numba_compiles_functions_of_others_that_have_no_module():
    numba = pytest.importorskip("numba")
    if not conenmf.kernels.AVAILABLE:
        pytest.skip("CONENMF_NUMBA=0 turns numba off, and its listener with it")
    seconds = conenmf.kernels.compiling.seconds
    made = {"__name__": None}
    exec("def double(x): return 2 * x", made)
    assert made["double"].__module__ is None
    assert numba.njit(made["double"])(21) == 42
    assert conenmf.kernels.compiling.seconds == seconds
