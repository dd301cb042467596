"""The parts of the benchmarks that numbers rest on."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import kl_div

FOLDER = Path(__file__).parents[1] / "benchmarks"


def module(name):
    specification = importlib.util.spec_from_file_location(f"_{name}", FOLDER / f"{name}.py")
    found = importlib.util.module_from_spec(specification)
    sys.modules[f"_{name}"] = found  # where dataclasses look for it
    specification.loader.exec_module(found)
    return found


measure = module("measure")


def test_documents_have_the_promised_shape_and_nonzeros():
    draw = [measure.topic_counts(200, 300, 3000, 5, np.random.default_rng(1)) for _ in range(2)]
    counts = draw[0]
    assert counts.shape == (200, 300)
    assert counts.nnz == 3000
    assert counts.has_canonical_format
    assert counts.data.min() >= 1
    assert (counts != draw[1]).nnz == 0
    frequency = np.asarray(counts.sum(axis=0)).ravel()
    assert frequency[:30].sum() > 3 * frequency[-30:].sum()
    lengths = sp.linalg.norm(measure.tf_idf(counts), axis=1)
    np.testing.assert_allclose(lengths[lengths > 0], 1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_exact_error_is_that_of_the_difference(dtype, rng):
    X = (rng.random((30, 20)) * (rng.random((30, 20)) < 0.3)).astype(dtype)
    A, C = rng.random((30, 4)).astype(dtype), rng.random((4, 20)).astype(dtype)
    exact = [part.astype(np.float64) for part in (X, A, C)]
    direct = np.linalg.norm(exact[0] - exact[1] @ exact[2]) / np.linalg.norm(exact[0])
    assert measure.relative_error(X, A, C) == pytest.approx(direct, rel=1e-12)
    assert measure.relative_error(sp.csr_array(X), A, C) == pytest.approx(direct, rel=1e-12)


def test_both_losses_of_counts_use_the_same_measure(monkeypatch, rng):
    """A fit that ends at the mark has at most the divergence that scikit-learn reports."""
    monkeypatch.syspath_prepend(FOLDER)
    counts = module("counts")
    X = rng.poisson(rng.gamma(0.5, 2, (40, 3)) @ rng.gamma(0.5, 2, (3, 20))).astype(float)
    rival = counts.theirs(3, init="nndsvda", tol=0.0, max_iter=5)
    mark = counts.divergence(rival, X)
    assert mark == pytest.approx(kl_div(X, rival.transform(X) @ rival.components_).sum(), rel=0.05)
    ours = counts.until(mark, 3)
    reached = counts.divergence(ours, X)
    rates = ours.transform(X) @ ours.components_
    assert reached == pytest.approx(kl_div(X, rates).sum(), rel=1e-6)
    assert reached <= mark


@pytest.mark.nightly
def test_checkouts_are_compared_on_every_file_of_a_folder(tmp_path, rng):
    """This one with itself, and scikit-learn, on a dense and a sparse set."""
    X = rng.random((30, 3)) @ rng.random((3, 20))
    np.save(tmp_path / "mixtures.npy", X)
    np.save(tmp_path / "vector.npy", X[0])
    (tmp_path / "classes").mkdir()
    sp.save_npz(tmp_path / "classes" / "V.npz", sp.csr_array(X * (X > 0.7)))
    np.save(tmp_path / "classes" / "labels.npy", np.arange(30) % 4)
    options = ["--other", FOLDER.parent, "--data", tmp_path, "--components", "3", "--rounds", "1"]
    command = [sys.executable, FOLDER / "speed.py", "checkouts", "--files", *options]
    environment = os.environ | {"CONENMF_NUMBA": "0"}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = said.stdout.splitlines()
    tasks = ["fit", "to 1 %", "to 0.1 %", "transform of one row"]
    for name in ("| mixtures.npy | 3 ", "| classes | 4 "):
        found = [line.split(" | ") for line in lines if line.startswith(name)]
        assert [cells[2] for cells in found] == tasks
        assert all(cells[6] == cells[8] for cells in found)  # the same error
    assert sum(line.startswith("vector.npy is left out: expected a matrix") for line in lines) == 1
    means = [line.partition(":")[0] for line in lines[-20:]]
    assert means == [
        f"1 {kind} sets, {task}, {ratio}"
        for kind in ("dense", "sparse")
        for task in sorted(tasks)
        for ratio in ("itself / other", "scikit-learn / this", "this / other")
        if ratio != "scikit-learn / this" or not task.startswith("to ")
    ]


def test_a_true_component_counts_once(monkeypatch):
    """Two fitted components are near one true one; the second has no partner."""
    monkeypatch.syspath_prepend(FOLDER)
    families = module("families")
    fitted = np.array([[1.0, 0.0, 0.1], [0.0, 2.0, 0.0], [3.0, 0.0, 0.0]])
    truth = np.array([[0.0, 5.0, 0.0], [1.0, 0.0, 0.0]])
    is_recovered, is_surplus = families.recovered(fitted, truth)
    assert is_recovered.tolist() == [False, True, True]
    assert is_surplus.tolist() == [True, False, False]
    assert not families.recovered(fitted, None)[0].any()


@pytest.mark.nightly
def test_each_of_scikit_learns_tests_passes_or_has_its_reason():
    program = FOLDER / "scikit_learns_tests.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (FOLDER.parent / "docs" / "from_sklearn.md").read_text("utf-8")
    assert done.stdout.strip().rpartition("\n")[0] in page  # the last line names versions
