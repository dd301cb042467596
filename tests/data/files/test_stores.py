import json
import os
import shutil

import anndata
import h5py
import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from conenmf import from_rows, open_data
from conenmf.data.files import codecs
from conenmf.data.memory import SparseMatrix
from conenmf.errors import (
    DataTypeError,
    FileFormatError,
    MaskedDataError,
    ReadError,
    ShapeError,
)


@pytest.fixture
def X(sample_matrix):
    return np.ascontiguousarray(sample_matrix.T)


@pytest.mark.parametrize("text", [b"csr_matrix", "csr_matrix"])
def test_sparse_groups_of_any_kind(same, tmp_path, X, text):
    half = sp.csr_array(X)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["data"] = half.data.astype(np.float16)
        file["indices"], file["indptr"] = half.indices, half.indptr
        file.attrs["encoding-type"] = np.bytes_(text) if isinstance(text, bytes) else text
        file.attrs["shape"] = X.shape
    V = open_data(tmp_path / "a.h5")
    assert V.dtype == np.float32
    same(V, X.astype(np.float16))
    assert V.columns([5, 5, 2]).shape == (12, 3)


def test_hdf5(same, tmp_path, X):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["group/dense"] = X
        file.create_dataset("chunked", data=X, chunks=(7, 3), compression="gzip")
        file["columns"] = X.T
        group = file.create_group("sparse")
        matrix = sp.csr_array(X)
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(matrix, name)
        group.attrs["shape"] = X.shape
        file["text"] = "nothing"
    same(open_data(path, dataset="/group/dense"), X)
    same(open_data(f"{path}:/chunked"), X)
    same(open_data(path, dataset="columns", samples_in="columns"), X)
    same(open_data(path, dataset="sparse"), X)
    with pytest.raises(FileFormatError, match="holds chunked, columns, group, sparse, text: name"):
        open_data(path)
    with pytest.raises(FileFormatError, match="has no 'nowhere'"):
        open_data(path, dataset="nowhere")
    with pytest.raises(FileFormatError, match="is a group of dense, expected a dataset"):
        open_data(path, dataset="group")
    with pytest.raises(DataTypeError):
        open_data(path, dataset="text")
    with h5py.File(path) as file:
        same(from_rows(file["chunked"]), X)
        same(from_rows(file["sparse"]), X)


@pytest.mark.filterwarnings("ignore:.*zarr v[23]:UserWarning")  # how AnnData will write
def test_anndata(same, tmp_path, X):
    cells = anndata.AnnData(sp.csr_matrix(X))
    cells.layers["dense"] = 2 * X
    cells.layers["columns"] = sp.csc_matrix(X)
    cells.write_h5ad(tmp_path / "a.h5ad")
    cells.write_zarr(tmp_path / "a.zarr")
    for path in (tmp_path / "a.h5ad", tmp_path / "a.zarr"):
        same(open_data(path), X)
        same(open_data(path, dataset="layers/dense"), 2 * X)
        same(open_data(path, dataset="layers/columns"), X, SparseMatrix)
    with pytest.raises(DataTypeError, match=r"pass its \.X"):
        from_rows(cells)
    backed = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    same(from_rows(backed.X), X)
    backed.file.close()


def test_zarr(same, tmp_path, X):
    array = zarr.create_array(tmp_path / "a.zarr", data=X, chunks=(7, 5))
    same(from_rows(array), X)
    same(open_data(tmp_path / "a.zarr"), X)
    (tmp_path / "a.zarr").rename(tmp_path / "folder")
    same(open_data(tmp_path / "folder", samples_in="columns"), X.T)


def test_an_unreadable_chunk(tmp_path):
    X = np.random.default_rng(0).random((400, 20))
    zarr.create_array(tmp_path / "a.zarr", data=X, chunks=(100, 20))
    (tmp_path / "a.zarr" / "c" / "2" / "0").write_bytes(b"damaged")
    with pytest.raises(ReadError, match=r"a\.zarr.*samples 0 to 399 could not be read.*copy it"):
        open_data(tmp_path / "a.zarr")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("X", data=X, chunks=(100, 20), fletcher32=True)
        place = data.id.get_chunk_info(2).byte_offset
    with open(tmp_path / "a.h5", "r+b") as file:
        file.seek(place)
        file.write(b"damaged!")
    with pytest.raises(ReadError, match=r"a\.h5:/X: samples 0 to 399 could not be read"):
        open_data(tmp_path / "a.h5")


# --- files of unknown origin ------------------------------------------------------------------


@pytest.fixture
def hostile(tmp_path, X):
    """An HDF5 file that would lead to others, beside one that it would lead to."""
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["X"] = X
    X.tofile(tmp_path / "secret.bin")
    layout = h5py.VirtualLayout(X.shape, X.dtype)
    layout[:] = h5py.VirtualSource(tmp_path / "secret.h5", "X", X.shape)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["plain"] = X
        file["soft"] = h5py.SoftLink("/plain")
        file["group/soft"] = h5py.SoftLink("../plain")
        file["group/plain"] = X
        file["group/relative"] = h5py.SoftLink("plain")
        file["linked"] = h5py.ExternalLink("secret.h5", "/X")
        file["through"] = h5py.SoftLink("/linked")
        file["circle"] = h5py.SoftLink("/circle")
        file["dangling"] = h5py.SoftLink("/nowhere")
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset(
            "raw", X.shape, X.dtype, external=[(str(tmp_path / "secret.bin"), 0, X.nbytes)]
        )
        file.create_dataset("nothing", (10**6, 10**6), "f8", chunks=(1000, 1000))
        file.create_dataset("giant", (40, 10**7), "f8", chunks=(1, 10**7))
        file["objects"] = np.array(["a", "b"], dtype=object)
        file["pairs"] = np.zeros((3, 3), [("re", "f8"), ("im", "f8")])
        file.create_dataset("references", (2, 2), h5py.ref_dtype)
        sparse = file.create_group("sparse")
        for name in ("data", "indices"):
            sparse[name] = np.ones(1)
        sparse["indptr"] = h5py.ExternalLink("secret.h5", "/X")
        sparse.attrs["shape"] = (2, 2)
    return tmp_path / "a.h5"


def test_links_within_a_file(hostile, same, X):
    same(open_data(hostile, dataset="soft"), X)
    same(open_data(hostile, dataset="group/relative"), X)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("linked", r"'linked' is a link to the file 'secret\.h5'"),
        ("through", r"'linked' is a link to the file 'secret\.h5'"),
        ("sparse", r"'indptr' is a link to the file 'secret\.h5'"),
        ("circle", "leads in a circle"),
        ("dangling", "has no 'dangling'"),
        ("group/soft", "has no 'group/soft'"),
        ("plain/x", "has no 'plain/x'"),
        ("../secret.h5", r"has no '\.\./secret\.h5'"),
        ("virtual", "stored in other files"),
        ("raw", "stored in other files"),
        ("nothing", r"claims 8e\+03 GB but only 0 bytes are stored"),
        ("giant", "a chunk takes 80000000 bytes"),
        ("objects", "type object"),
        ("pairs", "expected numbers"),
        ("references", "type object"),
    ],
)
def test_members_that_are_refused(hostile, name, message):
    with pytest.raises((FileFormatError, DataTypeError), match=message):
        open_data(hostile, dataset=name, max_memory="100MB")


def test_names_are_not_fetched_from_elsewhere(tmp_path, X):
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["names"] = [f"secret {n}" for n in range(40)]
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        file["X"] = X
        file["obs/index"] = h5py.ExternalLink("secret.h5", "/names")
        file["var/index"] = [f"<b>\x1b[{n}m" for n in range(12)]
        file["obs"].attrs["_index"] = "index"
        file["var"].attrs["_index"] = "index"
    names = open_data(tmp_path / "a.h5ad").names
    assert names.sample_names is None
    assert names.feature_names[0] == "<b>\\x1b[0m"


def test_an_index_of_another_length(tmp_path, X):
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        file["X"] = X
        file["obs/index"] = ["one", "two"]
        file["obs"].attrs["_index"] = "index"
    with pytest.raises(ShapeError, match="2 names for 40 samples"):
        open_data(tmp_path / "a.h5ad")


@pytest.mark.filterwarnings("ignore::UserWarning")  # Zarr's, about codecs beyond its standard
@pytest.mark.parametrize("codec", ["pickle", "json2", "msgpack2"])
def test_codecs_that_run_code(tmp_path, X, codec):
    zarr.create_array(tmp_path / "a.zarr", data=X, chunks=X.shape, zarr_format=2)
    settings = json.loads((tmp_path / "a.zarr" / ".zarray").read_text())
    settings["filters"] = [{"id": codec}]
    (tmp_path / "a.zarr" / ".zarray").write_text(json.dumps(settings))
    bomb = f"(cposix\nsystem\nS'touch {tmp_path}/pwned'\ntR.".encode()
    (tmp_path / "a.zarr" / "0.0").write_bytes(bomb)
    with pytest.raises(FileFormatError):
        open_data(tmp_path / "a.zarr")
    settings.update(compressor=None, dtype="|O", fill_value=None)
    (tmp_path / "a.zarr" / ".zarray").write_text(json.dumps(settings))
    with pytest.raises((FileFormatError, DataTypeError)):
        open_data(tmp_path / "a.zarr")
    assert not (tmp_path / "pwned").exists()


def test_every_codec_that_only_compresses(tmp_path, same, X):
    array = zarr.create_array(tmp_path / "a.zarr", data=X, chunks=(5, 4), shards=(10, 8))
    same(open_data(tmp_path / "a.zarr"), X)
    assert set(codecs._codecs(array.metadata.to_dict())) <= codecs._CODECS


def test_zarr_that_leads_out_of_its_store(tmp_path, X):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("X", data=X, chunks=(10, 12))
    zarr.create_array(tmp_path / "secret.zarr", data=X, chunks=(10, 12))
    with pytest.raises(FileFormatError, match="has no"):
        open_data(tmp_path / "a.zarr", dataset="../secret.zarr")
    chunk = tmp_path / "a.zarr" / "X" / "c" / "1" / "0"
    chunk.unlink()
    os.mkfifo(chunk)
    with pytest.raises(FileFormatError, match="is not a file"):
        open_data(tmp_path / "a.zarr")
    chunk.unlink()
    chunk.symlink_to(tmp_path / "secret.zarr" / "c" / "1" / "0")
    with pytest.raises(FileFormatError, match="is a link"):
        open_data(tmp_path / "a.zarr")
    shutil.rmtree(tmp_path / "a.zarr" / "X")
    (tmp_path / "a.zarr" / "X").symlink_to(tmp_path / "secret.zarr")
    with pytest.raises(FileFormatError, match="is a link"):
        open_data(tmp_path / "a.zarr")


def test_zarr_that_holds_nothing(tmp_path):
    zarr.create_array(tmp_path / "a.zarr", shape=(10**6, 10**6), chunks=(1000, 1000), dtype="f8")
    with pytest.raises(FileFormatError, match="claims"):
        open_data(tmp_path / "a.zarr", max_memory="100MB")
    zarr.create_array(tmp_path / "b.zarr", shape=(4, 10**9), chunks=(1, 10**9), dtype="f8")
    with pytest.raises(FileFormatError, match="a chunk takes 8000000000 bytes"):
        open_data(tmp_path / "b.zarr", max_memory="100MB")


@pytest.mark.parametrize("shape", [(6, 4), (3, 2, 4)])
def test_entries_that_are_marked_as_missing(tmp_path, shape):
    X = np.arange(1, 25, dtype=np.uint16).reshape(shape)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"] = X
        file["X"].attrs["_FillValue"] = np.uint16(65535)
    root = zarr.create_array(str(tmp_path / "a.zarr"), data=X)
    root.attrs["missing_value"] = 24
    assert open_data(tmp_path / "a.h5").shape == (4, 6)
    with pytest.raises(MaskedDataError, match=r"some entries are 24, which its attribute"):
        open_data(tmp_path / "a.zarr")
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["X"][0, ..., 0] = 65535
    with pytest.raises(MaskedDataError, match=r"a\.h5:/X: some entries are 65535"):
        open_data(tmp_path / "a.h5")


def test_a_chunk_without_its_checksum_is_refused(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        data = file.create_dataset("X", data=np.ones((20, 4)), chunks=(10, 4), fletcher32=True)
        data.id.write_direct_chunk((10, 0), b"12")
    with pytest.raises(FileFormatError, match="X has a damaged chunk"):
        open_data(tmp_path / "x.h5")
