"""Exported tables, facts and AnnData: names, every digit, and full disks."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData, read_h5ad, settings

from conenmf import export, factorize, from_rows, make_cones, open_data
from conenmf.export import annotate_file, categories, facts, write_coefficients, write_tables
from conenmf.names import Names


@pytest.fixture(scope="module")
def frame():
    X = make_cones(20, 3, 0.1, n_samples=70, rng=np.random.default_rng(0)).V.T
    samples = ['a "quoted", name', "=1+1", *(f"s{n}" for n in range(68))]
    return pd.DataFrame(X, samples, [f"gene {f}" for f in range(20)])


@pytest.fixture(scope="module")
def result(frame):
    return factorize(from_rows(frame), 3)


def read(path):
    if path.suffix == ".csv":
        return pd.read_csv(path, float_precision="round_trip")
    return pd.read_parquet(path)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_have_names_and_every_digit(kind, tmp_path, result, frame, monkeypatch):
    monkeypatch.setattr("conenmf.export._BATCH_ROWS", 32)  # several batches
    paths = write_tables(result, tmp_path, kind)
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    components, coefficients, labels, history = map(read, paths)
    assert list(components["feature"]) == list(frame.columns)
    written = [f"'{name}" if kind == "csv" and name[0] == "=" else name for name in frame.index]
    assert list(coefficients["sample"]) == list(labels["sample"]) == written
    np.testing.assert_array_equal(components.iloc[:, 1:].to_numpy(), result.W)
    np.testing.assert_array_equal(coefficients.iloc[:, 1:].to_numpy(), result.H.T)
    assert list(coefficients)[1:] == ["component 0", "component 1", "component 2"]
    np.testing.assert_array_equal(labels["component"], result.labels)
    assert list(history) == ["iteration", "relative_error", "seconds", "passes"]
    assert history["iteration"].tolist() == list(range(1, result.n_iter + 1))
    np.testing.assert_array_equal(history["relative_error"], result.history.relative_error)
    np.testing.assert_array_equal(history["seconds"], result.history.elapsed)


def first_cells(path):
    """The first cell of each row below the header, as a spreadsheet reads them."""
    with open(path, newline="") as file:
        return [row[0] for row in csv.reader(file)][1:]


def test_names_are_not_formulas_in_a_spreadsheet(tmp_path, frame):
    names = ["=1+1", "+1 a", "-x", "@SUM(A1)", "\N{FULLWIDTH EQUALS SIGN}1", "=", "-"]
    plain = ["-0.5", "+3", "1e-3", "-1E+5", "a=b", "'=1", "", " x"]
    rows = frame.iloc[: len(names) + len(plain)]
    features = ['=HYPERLINK("http://evil","x")', *frame.columns[1:]]
    named = from_rows(rows.to_numpy(), names=Names.of([*names, *plain], features))
    result = factorize(named, 2, max_iter=1)
    read_back = [f"'{name}" for name in names] + plain
    components, coefficients, labels, _ = write_tables(result, tmp_path)
    write_coefficients(tmp_path / "a.csv", result.H.T, result.names)
    for path in (coefficients, labels, tmp_path / "a.csv"):
        assert first_cells(path) == read_back
    assert first_cells(components) == [f"'{features[0]}", *features[1:]]
    assert open_data(components).names.sample_names[0] == f"'{features[0]}"
    write_coefficients(tmp_path / "a.parquet", result.H.T, result.names)
    assert list(read(tmp_path / "a.parquet")["sample"]) == [*names, *plain]
    assert [export.no_formula(name)[0] for name in ("\t=1", "\r=1", "\n=1")] == ["'"] * 3


def test_facts_are_json_and_include_certificate_and_diagnosis(frame):
    result = factorize(from_rows(frame), 3)
    assert "certificate" not in facts(result)
    result.certify()
    assert facts(result)["certificate"]["lower_bound"] == result.certificate.lower_bound
    verdict = result.diagnose()
    diagnosis = verdict.details
    described = json.loads(json.dumps(facts(result)))
    assert described["samples_of_component"] == diagnosis.sizes.tolist()
    assert described["uniqueness"]["angles"] == result.known_uniqueness.angles.tolist()
    found = described["verdict"]
    assert found["headline"] == verdict.headline
    assert [tuple(row.values()) for row in found["rows"]] == [*verdict.rows]
    assert found["components"] == [*verdict.components]
    assert found["agreement"] == verdict.agreement.tolist()
    assert found["structure"] == (None if np.isnan(verdict.structure) else verdict.structure)
    cones = {
        "assumption": "holds",
        "samples": diagnosis.cones.sizes.tolist(),
        "cr1_error": diagnosis.cones.error,
    }
    assert described["cones"].items() >= cones.items()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_verdict_on_components_is_a_table(frame, tmp_path, kind):
    result = factorize(from_rows(frame), 3)
    names = [path.name for path in write_tables(result, tmp_path, kind)]
    assert f"verdict.{kind}" not in names
    found = result.diagnose()
    table = read(write_tables(result, tmp_path, kind)[-1])
    assert [*table.columns] == ["component", "grade", "reason", "agreement"]
    assert table.component.tolist() == [*result.component_names]
    assert table.grade.tolist() == [*found.components]
    assert table.reason.tolist() == [*found.reasons]
    np.testing.assert_array_equal(table.agreement, found.agreement)


# --- AnnData ----------------------------------------------------------------------------------


def test_cells_without_a_component_have_no_category():
    found = categories(np.array([2, -1, 0, 2]))
    assert list(found.categories) == ["0", "2"]
    assert [None if one != one else one for one in found] == ["2", None, "0", "2"]
    assert list(categories(np.array([2, -1, 0]), first=1).categories) == ["1", "3"]


def test_a_copy_of_a_file_is_annotated(result, frame, tmp_path):
    source, target = tmp_path / "cells.h5ad", tmp_path / "out.h5ad"
    adata = AnnData(frame, layers={"twice": 2 * frame.to_numpy()})
    adata.obs["batch"] = ["a", "b"] * 35
    adata.write_h5ad(source)
    before = source.read_bytes()
    for _ in range(2):  # the second time the annotations are there already
        annotate_file(source, target, result)
        back = read_h5ad(target)
        np.testing.assert_array_equal(back.obsm["X_conenmf"], result.H.T)
        np.testing.assert_array_equal(back.varm["conenmf"], result.W)
        np.testing.assert_array_equal(back.obs["conenmf"].astype(int), result.labels)
        assert list(back.obs) == ["batch", "conenmf"]
        assert back.uns["conenmf"]["n_components"] == 3
        np.testing.assert_array_equal(back.layers["twice"], 2 * frame.to_numpy())
        source, target = target, tmp_path / "again.h5ad"
    assert (tmp_path / "cells.h5ad").read_bytes() == before


FULL_DISK = """
import resource, sys
import numpy as np
from conenmf import Factorization
from conenmf.errors import OutputError
from conenmf.export import annotate_file
source, target, saved, *sizes = sys.argv[1:]
result = Factorization.load(saved)
for size in map(int, sizes):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        annotate_file(source, target, result)
    except OutputError as problem:
        print(problem)
"""


@pytest.mark.skipif(os.name == "nt", reason="files have no limit there")
def test_a_disk_that_is_full_is_named_at_every_size(result, frame, tmp_path):
    """HDF5 notices it when it writes, or with another error when it closes the file."""
    source, target, saved = (tmp_path / name for name in ("cells.h5ad", "out.h5ad", "result.npz"))
    AnnData(frame).write_h5ad(source)
    annotate_file(source, target, result)
    result.save(saved)
    before = target.read_bytes()
    sizes = np.linspace(source.stat().st_size // 2, len(before) - 1, 12).astype(int)
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, source, target, saved, *map(str, sizes)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(export.__file__).parents[1])},
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 12
    assert all(line.startswith("not enough disk space") for line in lines)
    assert target.read_bytes() == before


@pytest.mark.parametrize("kind", [object, "string"])
def test_genes_are_counted_in_every_layout_of_their_names(result, frame, tmp_path, kind):
    """pandas 3 writes texts as a group of two arrays, pandas 2 as an array."""
    source, target = tmp_path / "cells.h5ad", tmp_path / "out.h5ad"
    genes = pd.DataFrame(index=pd.Index(frame.columns, dtype=kind))
    cells = pd.DataFrame(index=pd.Index(frame.index, dtype=kind))
    adata = AnnData(frame.to_numpy(), cells, genes)
    adata.raw = adata
    with settings.override(allow_write_nullable_strings=True):
        adata[:, :12].copy().write_h5ad(source)
    annotate_file(source, target, result)
    back = read_h5ad(target)
    np.testing.assert_array_equal(back.raw.varm["conenmf"], result.W)
    assert (dict(back.varm), back.shape) == ({}, (70, 12))
    few = factorize(from_rows(adata.X[:, :12]), 2)
    annotate_file(source, target, few)
    back = read_h5ad(target)
    np.testing.assert_array_equal(back.varm["conenmf"], few.W)
    assert list(back.raw.varm) == []


# --- packages ---------------------------------------------------------------------------------


def test_columns_have_the_names_of_components_if_these_differ(tmp_path):
    A, path = np.arange(4.0).reshape(2, 2), tmp_path / "a.csv"
    write_coefficients(tmp_path / "a.npy", A, Names())
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), A)  # it has no names
    numbers = ["component 0", "component 1"]
    for given, written in (
        (["quartz", "=x"], ["quartz", "'=x"]),
        (["quartz", "quartz"], numbers),
        (["sample", "quartz"], numbers),
        (None, numbers),
    ):
        write_coefficients(path, A, Names(), given)
        assert list(pd.read_csv(path)) == ["sample", *written]


def test_lists_of_texts_are_arrays_in_files_of_anndata():
    assert export.unstructured({"kinds": ["a", "b"]})["kinds"].tolist() == ["a", "b"]
