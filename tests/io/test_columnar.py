"""Files of Arrow in all their versions; see test_tables for others."""

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from conenmf import open_data


def write_arrow(path, table, new=pa.ipc.new_file, **options):
    with new(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)


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
def test_files_and_streams(tmp_path, new, options):
    write_arrow(tmp_path / "a.arrow", TABLE, new, **options)
    V = open_data(tmp_path / "a.arrow")
    np.testing.assert_array_equal(V.columns([0, 1199])[0], [5.0, 7.0])
    assert V.names.sample_names[:4] == ("a", "b", "c", "a")


def test_files_of_before_2019(tmp_path):
    write_arrow(tmp_path / "a.arrow", TABLE, pa.ipc.new_stream, use_legacy_format=True)
    assert (tmp_path / "a.arrow").read_bytes()[:4] != b"\xff" * 4
    assert open_data(tmp_path / "a.arrow").shape == (2, 1200)
