from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from conenmf import Factorization, from_rows
from conenmf.cli.side_files import read_labels
from conenmf.errors import DataError, FileFormatError
from conenmf.io.hdf5 import read_annotation, read_coordinates
from conenmf.names import Names


def test_labels_in_files(tmp_path, refuses):
    V = from_rows(np.ones((3, 2)))
    path = tmp_path / "labels.txt"
    path.write_text("b\na\nb\n")
    assert read_labels(path, V.shape[1], V.names).tolist() == ["b", "a", "b"]
    path.write_text("class\nb\na\nb\n")
    assert read_labels(path, V.shape[1], V.names).tolist() == ["b", "a", "b"]
    V = from_rows(np.ones((3, 2)), names=Names(("x", "y", "z")))
    path.write_text("name,class\nz,b\ny,a\nx,c\n")
    assert read_labels(path, V.shape[1], V.names).tolist() == ["c", "a", "b"]
    path.write_text("z,b\ny,a\nq,c\n")
    refuses(DataError, "not in labels: 'x'", lambda: read_labels(path, V.shape[1], V.names))
    path.write_text("a\n")
    refuses(DataError, "has 1 labels for 3 samples", lambda: read_labels(path, V.shape[1], V.names))
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileFormatError, match="is not a text file of labels"):
        read_labels(path, V.shape[1], V.names)


def test_a_column_of_the_data_colours_the_report_and_is_no_feature(folder, run, capsys, rng):
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
    assert run("report", "out", "--classes", "nothing") != 0
    assert "--classes nothing is not a file" in capsys.readouterr().err


def test_classes_in_annotated_data(tmp_path):
    anndata = pytest.importorskip("anndata")
    obs = {"type": ["B", "T", None, "B"], "batch": [1, 2, 2, 1], "note": list("wxyz")}
    frame = pd.DataFrame(obs, index=list("abcd")).astype({"type": "category"})
    anndata.AnnData(np.ones((4, 3)), obs=frame).write_h5ad(tmp_path / "cells.h5ad")
    columns = (read_annotation(tmp_path / "cells.h5ad", name) for name in obs)
    assert list(columns) == [["B", "T", "missing", "B"], ["1", "2", "2", "1"], list("wxyz")]
    with pytest.raises(FileFormatError, match="no column 'age' in obs; it has"):
        read_annotation(tmp_path / "cells.h5ad", "age")


def test_cells_are_drawn_where_umap_has_placed_them(tmp_path, monkeypatch, run, rng):
    anndata = pytest.importorskip("anndata")
    monkeypatch.chdir(tmp_path)
    cells = anndata.AnnData(rng.random((30, 6)))
    cells.obsm["X_umap"] = np.stack([np.arange(30.0), np.zeros(30)], axis=1)
    cells.write_h5ad("cells.h5ad")
    assert run("fit", "cells.h5ad", "-k", 2, "-o", "out", "--tables", "none") == 0
    assert "at the coordinates that were given" in Path("out/report.html").read_text()
    assert run("report", "out", "-o", "again.html") == 0  # without the data it is not known
    assert "at the coordinates" not in Path("again.html").read_text()
    assert run("report", "out", "--data", "cells.h5ad") == 0
    assert "at the coordinates that were given" in Path("out/report.html").read_text()
    places = read_coordinates(Path("cells.h5ad"), "X_umap", 1 << 24)
    np.testing.assert_array_equal(places, cells.obsm["X_umap"])
    assert read_coordinates(Path("cells.h5ad"), "X_pca", 1 << 24) is None
    cells.obsm["X_umap"][3] = np.nan  # as of a cell that was left out
    cells.write_h5ad("cells.h5ad")
    assert run("report", "out", "--data", "cells.h5ad") == 0
    assert "at the coordinates" not in Path("out/report.html").read_text()


@pytest.mark.parametrize("kind", ["folder", "column"])
def test_texts_that_are_typical_are_shown(tmp_path, monkeypatch, run, kind):
    monkeypatch.chdir(tmp_path)
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
