"""Tables of Parquet and Arrow that unpack to more than they hold; see test_tables for others."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from conenmf import open_data
from conenmf.data.files import arrow_messages, columnar, limits
from conenmf.errors import FileFormatError

LONG = "x" * (1 << 20)


def in_little_memory(path):
    """Open a file in a process that may take four gigabytes more than it has."""
    program = f"""
import resource, pyarrow.parquet, pyarrow.compute
from conenmf import open_data
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 30),) * 2)
V = open_data({str(path)!r}, n_threads=1)
print(V.shape, V.names.sample_names[-1][-3:])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return done.stdout or done.stderr


def write_arrow(path, table, new=pa.ipc.new_file, **options):
    with new(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)


def test_names_that_share_a_long_one(tmp_path):
    """A few kilobytes on disk, gigabytes once each row has its own text."""
    indices = pa.array(np.zeros(120, np.int8))
    names = pa.DictionaryArray.from_arrays(indices, pa.array(["y" * (50 << 20)]))
    table = pa.table({"name": names, "a": np.ones(120)})
    write_arrow(tmp_path / "a.arrow", table, compression="zstd")
    assert (tmp_path / "a.arrow").stat().st_size < 10_000
    assert in_little_memory(tmp_path / "a.arrow") == "(1, 120) yy…\n"


def test_rows_of_parquet_that_share_a_long_name(tmp_path):
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(9000, np.int16)), pa.array([LONG]))
    table = pa.table({"name": names, "a": np.ones(9000)})
    for store_schema in (False, True):  # without, they are read as plain texts
        options = {"compression": "zstd", "store_schema": store_schema}
        pq.write_table(table, tmp_path / "a.parquet", **options)
        assert (tmp_path / "a.parquet").stat().st_size < 10_000
        assert in_little_memory(tmp_path / "a.parquet") == "(1, 9000) xx…\n"


@pytest.mark.parametrize("kind", ["string", "large_string", "binary", "string_view"])
@pytest.mark.parametrize("stored", ["parquet", "arrow"])
def test_long_names_are_cut(tmp_path, kind, stored):
    names = pa.array(["é" * 300, "b" * 200, "c"]).cast(kind)
    table = pa.table({"a": [1.0, 2.0, 3.0], "name": names})
    path = tmp_path / f"a.{stored}"
    if (kind, stored) == ("string_view", "parquet") and int(pa.__version__.split(".")[0]) < 21:
        pytest.skip("pyarrow writes views to Parquet from version 21 on")
    if stored == "parquet":
        pq.write_table(table, path)
    else:
        write_arrow(path, table)
    names = open_data(path, names_column="name").names.sample_names
    assert names == ("é" * 199 + "…", "b" * 200, "c")


def test_views_of_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "HARMLESS_BYTES", 1 << 20)
    monkeypatch.setattr(limits, "MAX_EXPANSION_RATIO", 2)
    view = np.array([1 << 20, 0x78787878, 0, 0], "<i4").tobytes()  # length, beginning, place
    buffers = [None, pa.py_buffer(view * 60), pa.py_buffer(LONG.encode())]
    names = pa.Array.from_buffers(pa.string_view(), 60, buffers)
    names.validate(full=True)
    write_arrow(tmp_path / "a.arrow", pa.table({"name": names, "a": np.ones(60)}))
    with pytest.raises(FileFormatError, match=r"claims 0\.0629 GB"):
        open_data(tmp_path / "a.arrow")


def test_a_few_very_long_names(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "HARMLESS_BYTES", 1 << 20)
    names = [letter * (1 << 20) for letter in "abcd"]
    table = pa.table({"name": names, "a": np.ones(4)})
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd", use_dictionary=False)
    write_arrow(tmp_path / "a.arrow", table, compression="zstd")
    for name in ("a.parquet", "a.arrow"):
        assert (tmp_path / name).stat().st_size < 10_000
        with pytest.raises(FileFormatError, match=r"claims 0\.00\d* GB .* decompression bomb"):
            open_data(tmp_path / name)


def test_columns_that_are_left_out_are_not_read(tmp_path, monkeypatch):
    table = pa.table({"a": [1.0, 2.0], "b": ["x", "y"], "c": [3.0, 4.0], "d": ["s", "t"]})
    pq.write_table(table, tmp_path / "a.parquet")
    read = []
    plain = columnar._read_batches

    def spy(path, layout, batches, budget):
        batches = list(batches)
        read.extend(batches[0].schema.names)
        return plain(path, layout, batches, budget)

    monkeypatch.setattr(columnar, "_read_batches", spy)
    V = open_data(tmp_path / "a.parquet", drop="b", names_column="d")
    assert read == ["a", "c", "d"]
    np.testing.assert_array_equal(V.columns([0, 1]), [[1.0, 2.0], [3.0, 4.0]])
    assert V.names.sample_names == ("s", "t")


# --- messages of Arrow ------------------------------------------------------------------------


TABLE = pa.table(
    {
        "name": pa.array(["a", "b", "c"] * 400).dictionary_encode(),
        "a": [5.0, 2.0, 7.0] * 400,
        "b": [1.0, 2.0, 4.0] * 400,
    }
)


OPTIONS = [{}, {"compression": "lz4"}, {"compression": "zstd"}]
OPTIONS += [{"metadata_version": pa.ipc.MetadataVersion.V4}]


@pytest.mark.parametrize("new", [pa.ipc.new_file, pa.ipc.new_stream])
@pytest.mark.parametrize("options", OPTIONS)
def test_messages_that_are_as_they_should_be(tmp_path, new, options):
    write_arrow(tmp_path / "a.arrow", TABLE, new, **options)
    V = open_data(tmp_path / "a.arrow")
    np.testing.assert_array_equal(V.columns([0, 1199])[0], [5.0, 7.0])
    assert V.names.sample_names[:4] == ("a", "b", "c", "a")


def test_files_of_before_2019(tmp_path):
    write_arrow(tmp_path / "a.arrow", TABLE, pa.ipc.new_stream, use_legacy_format=True)
    assert (tmp_path / "a.arrow").read_bytes()[:4] != b"\xff" * 4
    assert open_data(tmp_path / "a.arrow").shape == (2, 1200)


def test_a_buffer_that_claims_too_much(tmp_path):
    write_arrow(tmp_path / "a.arrow", TABLE, compression="lz4")
    content = (tmp_path / "a.arrow").read_bytes()
    length = (9600).to_bytes(8, "little")  # of a column, unpacked
    for claimed, message in ((1 << 40, "claims 1.1e"), (-5, "a buffer claims -5 bytes")):
        number = claimed.to_bytes(8, "little", signed=True)
        (tmp_path / "b.arrow").write_bytes(content.replace(length, number, 1))
        with pytest.raises(FileFormatError, match=message):
            open_data(tmp_path / "b.arrow")


def test_a_batch_that_does_not_fit(tmp_path):
    write_arrow(tmp_path / "a.arrow", TABLE, compression="zstd")
    with pytest.raises(FileFormatError, match=r"a batch of .* it has to be read as a whole"):
        open_data(tmp_path / "a.arrow", max_memory=50_000)


def test_messages_that_are_damaged(tmp_path):
    write_arrow(tmp_path / "a.arrow", TABLE, compression="lz4")
    content, rng = (tmp_path / "a.arrow").read_bytes(), np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        changed = bytearray(content)
        for at in rng.integers(8, len(content), 3):
            changed[at] = rng.integers(256)
        (tmp_path / "b.arrow").write_bytes(changed)
        try:
            open_data(tmp_path / "b.arrow")
        except (FileFormatError, ValueError):
            refused += 1
    assert refused > 100


def test_the_description_of_a_message_may_not_be_endless(tmp_path):
    (tmp_path / "a.arrow").write_bytes(b"\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(100))
    assert arrow_messages._MAX_DESCRIPTION_BYTES < 0x7FFFFFFF
    with pytest.raises(FileFormatError, match="damaged or truncated"):
        open_data(tmp_path / "a.arrow")
