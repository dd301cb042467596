import json
import os
import shutil

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from conenmf import open_data
from conenmf.data.files import zarr_stores
from conenmf.errors import FileFormatError

X = np.random.default_rng(0).integers(1, 9, (40, 12)).astype("f8")


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A store like that of AnnData, with a sparse matrix."""
    path = tmp_path_factory.mktemp("template") / "a.zarr"
    root = zarr.open_group(path, mode="w", zarr_format=2)
    group = root.create_group("X")
    matrix = sp.csr_array(X)
    for part in ("data", "indices", "indptr"):
        group.create_array(part, data=getattr(matrix, part))
    group.attrs.update({"shape": X.shape, "encoding-type": "csr_matrix"})
    root.create_group("obs").attrs["_index"] = "index"
    assert open_data(path).shape == (12, 40)
    return path


@pytest.fixture
def store(tmp_path, template):
    return shutil.copytree(template, tmp_path / "a.zarr")


FILES = (".zgroup", ".zattrs", ".zmetadata", "zarr.json", "X/.zgroup", "X/.zattrs", "X/zarr.json")
FILES += (
    "obs/.zgroup",
    "obs/.zattrs",
    "X/data/.zarray",
    "X/data/.zattrs",
    "X/data/0",
    "X/indptr/0",
)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("target", ["/dev/zero", "outside", "inside", None])
def test_links_and_pipes_are_refused_before_anything_is_read(store, name, target):
    file = store / name
    shutil.copy(store / ".zgroup", store.parent / "outside")
    file.unlink(missing_ok=True)
    if target is None:
        os.mkfifo(file)
    elif target == "inside":
        file.symlink_to(store / "X" / "indices" / ".zarray")
    else:
        file.symlink_to(store.parent / target)
    with pytest.raises(FileFormatError, match=r"is a link|is not a file"):
        open_data(store)


@pytest.mark.parametrize("name", ["zarr.json", ".zgroup", ".zarray", ".zattrs", ".zmetadata"])
def test_a_store_of_nothing_but_a_link(tmp_path, name):
    (tmp_path / "z.zarr").mkdir()
    (tmp_path / "z.zarr" / name).symlink_to("/dev/zero")
    (tmp_path / "f.zarr").mkdir()
    os.mkfifo(tmp_path / "f.zarr" / name)
    for path in ("z.zarr", "f.zarr"):
        with pytest.raises(FileFormatError, match=r"is a link|is not a file"):
            open_data(tmp_path / path)


def test_folders_that_are_links(store):
    (store / "Y").symlink_to(store / "X")
    with pytest.raises(FileFormatError, match="Y is a link"):
        open_data(store)
    (store / "Y").unlink()
    (store / "Y").symlink_to(store)
    with pytest.raises(FileFormatError, match="Y is a link"):
        open_data(store)


def test_a_store_behind_a_link(store):
    (store.parent / "b.zarr").symlink_to(store)
    assert open_data(store.parent / "b.zarr").shape == (12, 40)


def test_settings_without_end(store, monkeypatch):
    with open(store / "X" / ".zattrs", "r+b") as stream:
        stream.truncate(1 << 40)  # of which nothing is stored
    with pytest.raises(FileFormatError, match="too many for settings"):
        open_data(store)
    monkeypatch.setattr(zarr_stores, "_MAX_FILES", 5)
    (store / "X" / ".zattrs").unlink()
    with pytest.raises(FileFormatError, match="more than 5 files"):
        open_data(store)


def test_folders_without_end(store):
    os.makedirs(store / "/".join("d" * 70))
    with pytest.raises(FileFormatError, match="64 deep"):
        open_data(store)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        "1" * 100_000,
        '"' + "x" * 100_000,
        "NaN",
        "",
        "\0" * 99,
    ],
)
@pytest.mark.parametrize("name", [".zattrs", "X/.zattrs", "X/data/.zarray"])
def test_settings_that_are_no_settings(store, name, text):
    (store / name).write_text(text)
    with pytest.raises(FileFormatError) as caught:
        open_data(store)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "shape",
    [[2.5, 12], ["40", "12"], [40, 12, 1], [[40, 12]], [10**400, 12], [40, None], 40, {}, "ab"],
)
def test_shapes_in_attributes(store, shape):
    (store / "X" / ".zattrs").write_text(json.dumps({"shape": shape, "encoding-type": "csr"}))
    with pytest.raises(FileFormatError):
        open_data(store)


@pytest.mark.parametrize(("rows", "columns"), [(40, 10**8), (40, 2**62), (10**8, 12), (2**62, 12)])
def test_sides_in_attributes(store, rows, columns):
    (store / "X" / ".zattrs").write_text(json.dumps({"shape": [rows, columns]}))
    with pytest.raises(FileFormatError):
        open_data(store)


@pytest.mark.parametrize(
    "options", [{"zarr_format": 2}, {"zarr_format": 3}, {"shards": (10**5, 4)}]
)
def test_more_chunks_than_are_stored(tmp_path, options):
    options = {"chunks": (1, 1), "dtype": "f8"} | options
    zarr.create_array(tmp_path / "a.zarr", shape=(5_000_000, 4), **options)
    with pytest.raises(FileFormatError, match="claims to be cut into 20000000 chunks"):
        open_data(tmp_path / "a.zarr")


def test_a_chunk_that_is_longer_than_its_numbers(tmp_path):
    zarr.create_array(tmp_path / "a.zarr", data=X, chunks=X.shape)
    with open(tmp_path / "a.zarr" / "c" / "0" / "0", "r+b") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(FileFormatError, match="it is read as a whole"):
        open_data(tmp_path / "a.zarr")
