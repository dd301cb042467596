"""scikit-learn's own tests of NMF, run with `ConeNMF` in its place; docs/from_sklearn.md.

    python benchmarks/scikit_learns_tests.py [--file PATH] [--write]

The tests are read from the installed scikit-learn, or from a file. Only names are mapped: "cd" is
"hals", "mu" is "mult", `beta_loss` is `loss`, and W and H are an init. Cases of `MiniBatchNMF`, of
private functions and of the function `non_negative_factorization` are counted, not run. A test that
differs must have its reason in `REASONS`, and a reason must belong to such a test.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
from measure import command

import conenmf
from conenmf import ConeNMF

PAGE = Path(__file__).parents[1] / "docs" / "from_sklearn.md"
MARKS = (
    "<!-- benchmarks/scikit_learns_tests.py: begin -->\n",
    "<!-- benchmarks/scikit_learns_tests.py: end -->",
)
IMPORTS = (
    "from sklearn.decomposition import NMF, MiniBatchNMF, non_negative_factorization\n"
    "from sklearn.decomposition import _nmf as nmf  # For testing internals\n"
)
NAMES = "from scikit_learns_names import NMF, MiniBatchNMF, nmf, non_negative_factorization\n\n"
SOLVERS = {"cd": "hals", "mu": "mult"}
LOSSES = {1: "kl", 0: "is", 2: "frobenius"}
REASONS = {
    "test_convergence_warning": "a matrix of ones is solved exactly in one iteration",
    "test_parameter_checking": "the error has other words",
    "test_nmf_true_reconstruction": "entries of 1e-17 stand where it expects zeros",
    "test_nmf_sparse_input": "one entry differs by 2e-7 between dense and sparse data, whose sums "
    "have another order; the relative errors agree to 1e-15",
    "test_nmf_custom_init_dtype_error": "factors of another type are converted",
    "test_nmf_custom_init_shape_error": "the error has other words",
}


class NotOfNMFError(Exception):
    """A case is about something else than `NMF`; the message names it."""


class Renamed(ConeNMF):
    """A model that takes W and H where scikit-learn's does."""

    def fit_transform(self, X: object, y: object = None, W: object = None, H: object = None):
        """Fit X from the factors given."""
        if W is not None:
            self.init = (W, H)
        return super().fit_transform(X)

    def fit(self, X: object, y: object = None, W: object = None, H: object = None):
        """Fit X from the factors given."""
        self.fit_transform(X, W=W, H=H)
        return self

    @property
    def _n_components(self) -> int:
        return self.n_components_


Renamed.__name__ = "NMF"


def mapped(
    n_components: object = "auto",
    *,
    solver: str = "cd",
    beta_loss: object = 2,
    init: object = None,
    **options: object,
) -> ConeNMF:
    """The model with scikit-learn's parameters under our names."""
    loss = LOSSES.get(beta_loss, beta_loss)
    solver = SOLVERS[solver]
    init = "auto" if init in (None, "custom") else init
    return Renamed(n_components, solver=solver, loss=loss, init=init, **options)


def elsewhere(name: str):
    """A function that ends a case, because it is about something else."""

    def called(*given: object, **options: object) -> None:
        raise NotOfNMFError(name)

    return called


class Private:
    """The module of scikit-learn's private functions."""

    def __getattr__(self, name: str):
        """Return what ends a case."""
        return elsewhere("private functions")


class Outcomes:
    """A plugin of pytest that counts how the cases of each test end."""

    def __init__(self) -> None:
        self.by_test: dict[str, Counter[str]] = {}
        self.lines: dict[str, set[int]] = {}

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo) -> None:
        """Count a case."""
        if call.when != "call":
            return
        error = None if call.excinfo is None else call.excinfo.value
        counts = self.by_test.setdefault(item.originalname, Counter())
        cause = error
        while cause is not None and not isinstance(cause, NotOfNMFError):
            cause = cause.__context__
        if cause is not None:
            counts[str(cause)] += 1
        elif error is None:
            counts["passed"] += 1
        else:
            counts["differs"] += 1
            own = [entry for entry in call.excinfo.traceback if entry.path == item.path]
            self.lines.setdefault(item.originalname, set()).add(own[-1].lineno + 1)


def outcomes(path: Path) -> Outcomes:
    """How the cases of each test of a file end."""
    source = path.read_text("utf-8")
    if IMPORTS not in source:
        raise SystemExit(f"{path} does not import NMF as expected")
    names = ModuleType("scikit_learns_names")
    vars(names).update(
        NMF=mapped,
        MiniBatchNMF=elsewhere("MiniBatchNMF"),
        nmf=Private(),
        non_negative_factorization=elsewhere("the function"),
    )
    sys.modules["scikit_learns_names"] = names
    found = Outcomes()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "test_nmf.py"
        copy.write_text(source.replace(IMPORTS, NAMES), "utf-8")
        options = ["-p", "no:cacheprovider", "-p", "no:terminal", "-c", "/dev/null"]
        pytest.main([*options, str(copy)], plugins=[found])
    return found


def table(found: Outcomes) -> str:
    """The outcomes as a table; tests that differ and reasons must belong together."""
    if found.lines.keys() != REASONS.keys():
        raise SystemExit(f"without a test or a reason: {found.lines.keys() ^ REASONS.keys()}")
    lines = [
        "| test | passed | differs | of something else |",
        "|---|---|---|---|",
    ]
    for name, counts in found.by_test.items():
        differs = ""
        if counts["differs"]:
            places = ", ".join(map(str, sorted(found.lines[name])))
            differs = f"{counts['differs']}: line {places}, {REASONS[name]}"
        others = [kind for kind in counts if kind not in ("passed", "differs")]
        elsewhere = ", ".join(f"{counts[kind]} of {kind}" for kind in others)
        lines.append(f"| `{name}` | {counts['passed'] or ''} | {differs} | {elsewhere} |")
    total = Counter()
    for counts in found.by_test.values():
        total.update(counts)
    rest = sum(total.values()) - total["passed"] - total["differs"]
    lines.append(
        f"| {len(found.by_test)} tests | {total['passed']} | {total['differs']} | {rest} |"
    )
    versions = f"conenmf {conenmf.__version__}, scikit-learn {version('scikit-learn')}"
    note = f"`python benchmarks/scikit_learns_tests.py` prints this table ({versions})."
    return "\n".join([*lines, "", note, ""])


def compare(file: str = "", write: bool = False) -> None:
    """The table of scikit-learn's tests."""
    path = Path(file or find_spec("sklearn.decomposition.tests.test_nmf").origin)
    result = table(outcomes(path))
    print(result)
    if write:
        before, begin, rest = PAGE.read_text("utf-8").partition(MARKS[0])
        _, end, after = rest.partition(MARKS[1])
        PAGE.write_text(before + begin + result + end + after, "utf-8")


if __name__ == "__main__":
    command(__doc__, compare)
