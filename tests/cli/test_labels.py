"""Labels, positions and example texts given on the command line, and how the report shows them."""

from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest

from conenmf import Factorization
from conenmf.cli.inputs import read_labels
from conenmf.errors import DataError, FileFormatError
from conenmf.io.hdf5 import read_annotation, read_coordinates
from conenmf.names import Names

NAMED = Names(("x", "y", "z"))


@pytest.mark.parametrize(
    ("content", "names", "labels"),
    [
        ("b\na\nb\n", Names(), ["b", "a", "b"]),
        ("class\nb\na\nb\n", Names(), ["b", "a", "b"]),
        ("name,class\nz,b\ny,a\nx,c\n", NAMED, ["c", "a", "b"]),
    ],
)
def test_labels_in_files(tmp_path, content, names, labels):
    (tmp_path / "labels.txt").write_text(content)
    assert read_labels(tmp_path / "labels.txt", 3, names).tolist() == labels


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (b"z,b\ny,a\nq,c\n", DataError, "not in labels: 'x'"),
        (b"a\n", DataError, "has 1 labels for 3 samples"),
        (b"a,b\nc\nd\n", FileFormatError, r"has rows of \[1, 2\] fields"),
        (b"", DataError, "has 0 labels for 3 samples"),
        (b"\xff\xfe\x00", FileFormatError, "it is not UTF-8"),
    ],
)
def test_files_that_are_not_labels_of_the_data(tmp_path, content, error, message, refuses):
    (tmp_path / "labels.txt").write_bytes(content)
    refuses(error, message, lambda: read_labels(tmp_path / "labels.txt", 3, NAMED))


def test_a_column_of_the_data_colours_the_report_and_is_no_feature(folder, run, fails, rng):
    rows = [f"s{n},{'oak' if n % 3 else 'elm'},{n % 7 + 1},{rng.random():.3f}" for n in range(30)]
    Path("trees.csv").write_text("\n".join(["name,kind,height,width", *rows]) + "\n")
    assert run("fit", "trees.csv", "-k", 2, "-o", "out", "--init", "cr1", "--classes", "kind") == 0
    page = Path("out/report.html").read_text()
    assert "class oak" not in page
    assert ">oak</span><small>20</small>" in page
    assert len(Factorization.load("out/result.npz").W) == 2
    Path("kinds.txt").write_text("\n".join(["pine", "fir"] * 15))
    assert run("report", "out", "--classes", "kinds.txt") == 0
    assert ">pine</span><small>15</small>" in Path("out/report.html").read_text()
    fails(4, "--classes nothing is not a file", "report", "out", "--classes", "nothing")


def test_classes_in_annotated_data(tmp_path, refuses):
    obs = {"type": ["B", "T", None, "B"], "batch": [1, 2, 2, 1], "note": list("wxyz")}
    frame = pd.DataFrame(obs, index=list("abcd")).astype({"type": "category"})
    anndata.AnnData(np.ones((4, 3)), obs=frame).write_h5ad(tmp_path / "cells.h5ad")
    columns = (read_annotation(tmp_path / "cells.h5ad", name) for name in obs)
    assert list(columns) == [["B", "T", "missing", "B"], ["1", "2", "2", "1"], list("wxyz")]
    missing = "no column 'age' in obs; it has"
    refuses(FileFormatError, missing, read_annotation, tmp_path / "cells.h5ad", "age")


def test_cells_are_drawn_where_umap_has_placed_them(folder, run, rng):
    def uses_coordinates(*command):
        assert run(*command) == 0
        return "at the coordinates that were given" in Path("out/report.html").read_text()

    cells = anndata.AnnData(rng.random((30, 6)))
    cells.obsm["X_umap"] = np.stack([np.arange(30.0), np.zeros(30)], axis=1)
    cells.write_h5ad("cells.h5ad")
    assert uses_coordinates("fit", "cells.h5ad", "-k", 2, "-o", "out", "--tables", "none")
    assert not uses_coordinates("report", "out")  # the result does not keep them
    assert uses_coordinates("report", "out", "--data", "cells.h5ad")
    places = read_coordinates(Path("cells.h5ad"), "X_umap", 1 << 24)
    np.testing.assert_array_equal(places, cells.obsm["X_umap"])
    assert read_coordinates(Path("cells.h5ad"), "X_pca", 1 << 24) is None
    cells.obsm["X_pca"] = rng.random((30, 5))
    cells.write_h5ad("more.h5ad")
    places = read_coordinates(Path("more.h5ad"), "X_pca", 1 << 24)
    np.testing.assert_array_equal(places, cells.obsm["X_pca"][:, :2])
    assert read_coordinates(Path("more.h5ad"), "X_pca", 1 << 10) is None  # too large
    cells.obsm["X_umap"][3] = np.nan  # as of a cell that was left out
    cells.write_h5ad("cells.h5ad")
    assert not uses_coordinates("report", "out", "--data", "cells.h5ad")


@pytest.mark.parametrize("kind", ["folder", "column"])
def test_texts_that_are_typical_are_shown(folder, run, kind):
    texts = ["oak elm <b>trees</b>\nin a wood", "elm oak ash trees", "salt pepper", "pepper salt"]
    if kind == "folder":
        Path("notes").mkdir()
        for n, text in enumerate(texts):
            Path(f"notes/{n}.txt").write_text(text)
        data = ("notes",)
    else:
        pd.DataFrame({"note": texts}).to_csv("notes.csv", index=False)
        data = ("notes.csv", "--text-column", "note")
    assert run("fit", *data, "-k", 2, "-o", "out", "--tables", "none") == 0
    page = Path("out/report.html").read_text()
    assert page.count(">oak elm &lt;b&gt;trees&lt;/b&gt; in a wood</span>") == 1
    assert ">pepper salt</span>" in page
