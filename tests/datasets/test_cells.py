"""Counts of genes in cells, from files of AnnData."""

import importlib
import sys

import h5py
import numpy as np
import pytest
import scipy.sparse as sp

from conenmf import from_rows
from conenmf.datasets import available, load
from conenmf.datasets.finding import package_file
from conenmf.errors import FileFormatError

# Most datasets here are smaller than those of the same name; other tests look for this warning.
pytestmark = pytest.mark.filterwarnings("ignore::conenmf.datasets.DatasetWarning")


CELLS = "10x_pbmc68k_reduced.h5ad"


def cells(path, rng, old=False, **changes):
    """A file of AnnData like that of scanpy, as it is now or as it was; its counts and types."""
    X = rng.poisson(0.8, (7, 5))
    types, totals = np.array([1, 0, 1, 1, 0, 0, 1], np.int8), X.sum(1) + rng.integers(9, 40, 7)
    values = sp.csr_array(np.round(np.log1p(X / totals[:, None] * 1e4), 3).astype(np.float32))
    values.data = values.data * changes.get("scale", 1)
    types, totals = changes.get("types", types), totals[: changes.get("sums")].astype(np.float32)
    barcodes, genes = [b"cell%d" % n for n in range(7)], [b"gene%d" % n for n in range(5)]
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        parts = file.create_group("raw.X" if old else "raw/X")
        for part in ("data", "indices", "indptr"):
            parts[part] = getattr(values, part)
        parts.attrs["h5sparse_shape" if old else "shape"] = values.shape
        if old:
            frame = np.zeros(7, [("index", "S8"), ("bulk_labels", "i1"), ("n_counts", "f4")])
            frame["index"], frame["bulk_labels"], frame["n_counts"] = barcodes, types, totals
            file["obs"], file["raw.var"] = (
                frame,
                np.array([(gene,) for gene in genes], [("index", "S8")]),
            )
            file["uns/bulk_labels_categories"] = [b"B", b"NK"]
        else:
            for table, index in (("obs", barcodes), ("raw/var", genes)):
                file.create_group(table).attrs["_index"] = "index"
                file[table]["index"] = index
            file["obs/n_counts"] = totals
            file["obs/bulk_labels/codes"], file["obs/bulk_labels/categories"] = types, [b"B", b"NK"]
    return X, types


@pytest.mark.parametrize("old", [True, False])
def test_counts_of_cells(folder, rng, old):
    X, types = cells(folder / "pbmc68k_reduced" / CELLS, rng, old)
    stored = load("pbmc68k_reduced", weights="counts")
    np.testing.assert_array_equal(stored.X.toarray(), X)
    np.testing.assert_array_equal(stored.labels, types)
    assert stored.classes == ("B", "NK")
    assert stored.names.feature_names[:2] == ("gene0", "gene1")
    assert stored.names.sample(6) == "cell6"
    weighted = load("pbmc68k_reduced").X
    np.testing.assert_allclose(
        weighted.toarray(), np.log1p(1e4 * X / X.sum(1, keepdims=True).clip(1))
    )
    assert from_rows(weighted).shape == (5, 7)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"scale": 1.1}, "does not hold logarithms of counts"),
        ({"scale": -1}, "does not hold logarithms of counts"),
        ({"scale": np.nan}, "does not hold logarithms of counts"),
        ({"types": np.array([0, 1, 2, 0, 0, 0, 0])}, "a cell without a type"),
        ({"types": np.array([0, 1, -1, 0, 0, 0, 0])}, "a cell without a type"),
        ({"types": np.array([0, 1])}, "7 cells in raw/X, 7 sums and 2 types"),
        ({"sums": 3}, "7 cells in raw/X, 3 sums and 7 types"),
    ],
)
def test_damaged_cells(folder, rng, changes, match):
    cells(folder / "pbmc68k_reduced" / CELLS, rng, **changes)
    with pytest.raises(FileFormatError, match=match):
        load("pbmc68k_reduced")


@pytest.mark.parametrize("lost", ["raw", "obs", "obs/n_counts", "obs/bulk_labels"])
def test_cells_of_which_a_part_is_missing(folder, rng, lost):
    path = folder / "pbmc68k_reduced" / CELLS
    cells(path, rng)
    with h5py.File(path, "r+") as file:
        del file[lost]
    with pytest.raises(FileFormatError, match=CELLS):
        load("pbmc68k_reduced")
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(FileFormatError, match=CELLS):
        load("pbmc68k_reduced")


def test_cells_from_an_installed_package(folder, tmp_path, monkeypatch, rng, place, warned):
    monkeypatch.setattr("conenmf.datasets.finding.package_file", package_file)
    site = tmp_path / "site"
    X, _ = cells(site / "scanpy" / "datasets" / CELLS, rng)
    (site / "scanpy" / "__init__.py").write_text("raise AssertionError('it was imported')")
    monkeypatch.delitem(sys.modules, "scanpy", raising=False)
    monkeypatch.syspath_prepend(site)
    importlib.invalidate_caches()
    assert "pbmc68k_reduced" in available()
    np.testing.assert_array_equal(load("pbmc68k_reduced", weights="counts").X.toarray(), X)
    assert "scanpy" not in sys.modules
    assert str(site / "scanpy" / "datasets" / CELLS) in warned("pbmc68k_reduced")[0]
    place(folder, "pbmc68k_reduced", np.ones((2, 5), np.uint8), [0, 1])
    assert load("pbmc68k_reduced").X.shape == (2, 5)
