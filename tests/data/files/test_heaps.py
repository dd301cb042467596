import subprocess
import sys

import h5py
import numpy as np
import pytest

from conenmf import open_data
from conenmf.data.files.heaps import text_lengths
from conenmf.errors import FileFormatError

NAMES = ["x" * n for n in range(1, 301)]
STORED = {
    "contiguous": {},
    "chunks": {"chunks": (70,)},
    "gzip": {"chunks": (70,), "compression": "gzip"},
    "shuffled": {"chunks": (70,), "compression": "gzip", "shuffle": True},
    "lzf": {"chunks": (70,), "compression": "lzf"},
    "without end": {"chunks": (70,), "maxshape": (None,)},
}


def write(path, names, **options):
    with h5py.File(path, "w") as file:
        file["X"] = np.ones((len(names), 2))
        file.create_dataset("obs/index", data=names, dtype=h5py.string_dtype(), **options)
        file["obs"].attrs["_index"] = "index"


@pytest.mark.parametrize("options", STORED.values(), ids=STORED)
def test_lengths_are_known_before_the_texts_are_read(tmp_path, options):
    write(tmp_path / "a.h5ad", NAMES, **options)
    with h5py.File(tmp_path / "a.h5ad") as file:
        assert sum(text_lengths(file["obs/index"])) == sum(map(len, NAMES))
    names = open_data(tmp_path / "a.h5ad").names.sample_names
    assert names[:2] == ("x", "xx")
    assert names[299] == "x" * 199 + "…"


def test_lengths_of_texts_that_were_not_written(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, chunks in (("chunks", (3,)), ("contiguous", None)):
            data = file.create_dataset(name, (5,), h5py.string_dtype(), chunks=chunks)
            assert sum(text_lengths(data)) == 0


def share_first(path):
    """Let all texts be the first one."""
    with h5py.File(path) as file:
        data = file["obs/index"].id
        place = data.get_offset() or data.get_chunk_info(0).byte_offset
        count = data.shape[0]
    content = bytearray(path.read_bytes())
    content[place : place + 16 * count] = content[place : place + 16] * count
    path.write_bytes(content)


@pytest.mark.parametrize("chunks", [None, (3000,)])
def test_texts_that_share_a_long_one(tmp_path, chunks):
    """A megabyte on disk, three gigabytes in memory."""
    path = tmp_path / "a.h5ad"
    write(path, ["x" * (1 << 20)] + [""] * 2999, chunks=chunks)
    share_first(path)
    assert path.stat().st_size < 1_300_000
    program = f"""
import resource
from conenmf import open_data
from conenmf.data.files.stores import hdf5_store
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30),) * 2)
V = open_data({str(path)!r}, n_threads=1)
print(V.shape, V.names.sample_names)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "(2, 3000) None\n", done.stderr


def test_few_texts_may_share_one(tmp_path):
    path = tmp_path / "a.h5ad"
    write(path, ["same"] + ["x"] * 99)
    share_first(path)
    assert open_data(path).names.sample_names == ("same",) * 100


@pytest.mark.parametrize("name", ["shape", "encoding-type", "_FillValue", "MATLAB_class"])
def test_long_attributes(tmp_path, name):
    ending = "mat" if name.startswith("M") else "h5"
    with h5py.File(tmp_path / f"a.{ending}", "w") as file:
        for part, numbers in (("data", [1.0]), ("indices", [0]), ("indptr", [0, 1])):
            file[f"X/{part}"] = numbers
        file["X"].attrs["shape"] = (1, 1)
        file["Y"] = np.ones((3, 2))
        for member in ("X", "Y"):
            file[member].attrs[name] = ["long"] * 100
    with pytest.raises(FileFormatError, match=f"the attribute {name} has shape"):
        open_data(tmp_path / f"a.{ending}", dataset="Y" if name[0] in "_M" else "X")
