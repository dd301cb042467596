"""Tables in text, Parquet and Arrow."""

import csv
import gzip
import io
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conenmf import factorize, from_rows, open_data
from conenmf.errors import ConeNMFError, DataError, FileFormatError
from conenmf.io import tables, text
from conenmf.io.open import open_path
from conenmf.io.source import Reading
from conenmf.io.tables import Columns
from conenmf.io.text import Dialect, guess, plain_rows, rows_of_fields
from conenmf.names import Names
from conenmf.scale.disk import DiskMatrix


def read(path, text, **options):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    V = open_data(path, **options)
    return (V.columns(np.arange(V.shape[1])).T).tolist(), V.names


@pytest.mark.parametrize(
    ("text", "rows", "columns"),
    [
        ("1,2\n3,4", None, None),
        ("1,2\n3,4\n\n", None, None),
        ("\n1,2\r\n\r\n3,4\r\n", None, None),
        ("\ufeffa,b\n1,2\n3,4\n", None, ("a", "b")),
        (',"a ""x""","b, c"\n"u,v",1,2\nw,3,4\n', ("u,v", "w"), ('a "x"', "b, c")),
        ("a b\na;b\nx;1;2\ny;3;4\n".partition("\n")[2], ("x", "y"), ("a", "b")),
        ("a\tb\nx\t1\t2\ny\t 3\t4e0\n", ("x", "y"), ("a", "b")),
        ("g|a|b\nx|1.0|2,0\n".replace(",", ".") + "y|3|4", ("x", "y"), ("a", "b")),
        ("g;a;b\nx;1,0;2\ny;3;4,0", ("x", "y"), ("a", "b")),
        ("id,a,a\n7,1,2\n8,3,4\n", ("7", "8"), ("a", "a")),
        pytest.param(5000 * "\n" + "a,b\n1,2\n\n\r\n3,4\n", None, ("a", "b"), id="empty lines"),
    ],
)
def test_texts(tmp_path, text, rows, columns):
    expected = [[1.0, 2.0], [3.0, 4.0]]
    assert read(tmp_path / "a.csv", text) == (expected, Names(rows, columns))
    assert read(tmp_path / "a.csv.gz", gzip.compress(text.encode()))[0] == expected
    turned, names = read(tmp_path / "a.txt", text, samples_in="columns")
    assert (turned, names) == ([[1.0, 3.0], [2.0, 4.0]], Names(columns, rows))


def test_names_that_would_act_on_a_terminal_are_escaped(tmp_path):
    _, names = read(tmp_path / "a.csv", "n,\x1b[2Jx,<b>\ncafé,1,2\nb,3,4\n".encode())
    assert names == Names(("café", "b"), ("\\x1b[2Jx", "<b>"))


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("a,b\n1,2\n3,x\n", FileFormatError, "line 3, column 'b': 'x' is not a number"),
        ("a,b\n1,2\n3\n", FileFormatError, "line 3 has 1 fields, expected 2"),
        ("a,b\n1,2\n3,4,5\n", FileFormatError, "line 3 has 3 fields, expected 2"),
        ("a,b\n" + 60 * "1,2\n" + "1,1_0\n", FileFormatError, "line 62, column 'b': '1_0'"),
        ("a;b\n1;2\n3;1.000,5\n", FileFormatError, "line 3, column 'b': '1.000,5'"),
        (
            "a,b\n1,2\n3,\n",
            DataError,
            r"row 1 \(sample\), column 1 \(feature 'b'\), .* is NaN",
        ),
        (
            "a,b\n1,2\n3,NA\n",
            DataError,
            r"row 1 \(sample\), column 1 \(feature 'b'\), .* is NaN",
        ),
        (
            "a,b\n1,2\n3,-1\n",
            DataError,
            r"row 1 \(sample\), column 1 \(feature 'b'\), .* is -1",
        ),
        ("a,b\n", DataError, "a header and no rows"),
        ("\n\n", DataError, "is empty"),
        ("", DataError, "is empty"),
        ("1,2\n3,\x004\n", FileFormatError, "line 2, column '1': .* is not a number"),
        ("1,2\r3,4\r", FileFormatError, "new-line character"),
        ("a,b\n1,2\n".encode("utf-16"), FileFormatError, "it is not UTF-8"),
        (b"n,x\nb,3\ncaf\xe9,1\n", FileFormatError, r"not UTF-8.*iconv -f latin1 -t utf-8"),
        (b"n,x\n" + 100 * b"b,3\n" + b"caf\xe9,1\n", FileFormatError, "not UTF-8.*iconv"),
        ("n,a,b\nx,1,2\nu,1", FileFormatError, "line 3.* has 2 fields"),
        ("n,a,b\nx,1,2\nu,1,x", FileFormatError, "line 3.* 'x' is not a number"),
        ("n,a,b\nx,1,2\nx,1,\n", DataError, "row 1 .* column 1"),
        ("a,b\n1,2,3,4", FileFormatError, "the header has 2 .* 4: .* text_column"),
        # 1.234 may be 1234 where others are 1,5
        ("a;b\n1,5;1.234\n3;4\n", FileFormatError, "line 2, column 'a': '1,5' is not a number"),
        pytest.param(
            "a,b\n" + 99_999 * "1,2\n" + "1,x\n" + 50_000 * "1,2\n",
            FileFormatError,
            "line 100001, column 'b': 'x' is not a number",
            id="far inside",
        ),
        pytest.param(  # two rows more than lines, and all numbers behind them in other columns
            20 * (200 * "1," + "1\n") + 402 * ("1,1,1,1,1,1\r7" + 195 * ",1" + "\n"),
            FileFormatError,
            "line 21 cannot be split into fields",
            id="carriage returns",
        ),
    ],
)
def test_texts_that_are_wrong_somewhere(tmp_path, text, error, message, refuses):
    refuses(error, message, lambda: read(tmp_path / "a.csv", text))


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(text, "batch_bytes", lambda budget: 5000)
    monkeypatch.setattr(tables, "batch_bytes", lambda budget: 5000)


@pytest.fixture
def frame():
    X = np.random.default_rng(0).random((3000, 20)).round(6)
    return pd.DataFrame(X, [f"row {n}" for n in range(3000)], [f"c{n}" for n in range(20)])


WRITERS = {
    "a.csv": lambda frame, path: frame.to_csv(path),
    "a.csv.gz": lambda frame, path: frame.to_csv(path),
    "a.parquet": lambda frame, path: frame.to_parquet(path, row_group_size=700),
    "a.feather": lambda frame, path: pyarrow.feather.write_feather(frame, path, chunksize=99),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("samples_in", ["rows", "columns"])
def test_a_table_that_does_not_fit_is_read_from_a_temporary_file(
    tmp_path, monkeypatch, small_batches, frame, name, samples_in
):
    monkeypatch.setattr(tables, "NAME_BYTES", 1)
    X = frame.to_numpy() if samples_in == "rows" else frame.to_numpy().T
    WRITERS[name](frame, tmp_path / name)
    V = open_data(tmp_path / name, max_memory=1_600_000, samples_in=samples_in)
    assert isinstance(V, DiskMatrix)
    N = len(X)
    np.testing.assert_array_equal(V.columns(np.arange(N)), X.T)
    names = Names(tuple(frame.index), tuple(frame.columns))
    expected = names if samples_in == "rows" else names.turned()
    assert V.names == expected
    np.testing.assert_allclose(V.norms_squared, (X**2).sum(axis=1))
    assert os.listdir(tmp_path) == [name]  # the temporary file has no name
    expected = factorize(from_rows(X), 3, init="cr1", max_iter=3)
    result = factorize(V, 3, init="cr1", max_iter=3)
    assert result.relative_error == pytest.approx(expected.relative_error)


@pytest.mark.parametrize("sign", [",", ";"])
def test_names_in_quotes(tmp_path, sign):
    text = 'n,a,b\n"x ""1"", y",1,2\n\nz,3.5,4\r\nw,"1",2\n'.replace(",", sign)
    rows, names = read(tmp_path / "a.csv", text)
    assert rows == [[1.0, 2.0], [3.5, 4.0], [1.0, 2.0]]
    assert names.sample_names == (f'x "1"{sign} y', "z", "w")


def test_types_of_columns(tmp_path):
    path = tmp_path / "a.parquet"
    pl.DataFrame({"name": ["x", "y"], "a": [1, 2], "b": [True, False], "c": [0.5, None]}).select(
        "name", "a", "b"
    ).write_parquet(path)
    V = open_data(path)
    assert V.names == Names(("x", "y"), ("a", "b"))
    assert V.columns([0, 1]).T.tolist() == [[1.0, 1.0], [2.0, 0.0]]
    half = pa.array(np.array([1, 2], np.float16))
    pq.write_table(pa.table({"a": half, "b": pa.array([3, 4], pa.float32())}), path)
    assert open_data(path).dtype == np.float32
    kinds = [pa.decimal128(25, 2), pa.uint8(), pa.int64(), pa.float64()]
    pq.write_table(pa.table({str(kind): pa.array([1, 2]).cast(kind) for kind in kinds}), path)
    assert open_data(path).norms_squared.tolist() == [4.0, 16.0]
    names = pa.array(["x", "y"]).dictionary_encode()
    pq.write_table(pa.table({"name": names, "a": [1.0, 2.0]}), path)
    assert open_data(path).names == Names(("x", "y"), ("a",))


def test_the_index_of_a_data_frame_may_be_anywhere_and_of_numbers(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0]}, index=pd.Index([7, 8], name="key"))
    frame.to_parquet(tmp_path / "a.parquet")
    assert open_data(tmp_path / "a.parquet").names == Names(("7", "8"), ("a",))
    schema = pa.Table.from_pandas(frame).schema.with_metadata({b"pandas": b"{not json"})
    with pa.ipc.new_file(tmp_path / "a.arrow", schema) as writer:
        writer.write_table(pa.table({"a": [1.0], "key": [7]}, schema=schema))
    assert open_data(tmp_path / "a.arrow").names == Names(None, ("a", "key"))


def test_parquet_in_little_memory(tmp_path, frame):
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=700)
    X = frame.to_numpy()
    for samples_in, budget in (("rows", 400_000), ("columns", 1_600_000)):
        V = open_data(tmp_path / "a.parquet", max_memory=budget, samples_in=samples_in)
        assert isinstance(V, DiskMatrix)
        every = np.arange(V.shape[1])
        np.testing.assert_array_equal(V.columns(every), X.T if samples_in == "rows" else X)
    frame.columns = ["c"] * 20
    pq.write_table(pa.table([frame.iloc[:, n] for n in range(20)], ["c"] * 20), tmp_path / "b.pq")
    assert open_data(tmp_path / "b.pq").names.feature_names == ("c",) * 20


def test_what_numpy_writes(tmp_path):
    X = np.random.default_rng(0).random((30, 4))
    np.savetxt(tmp_path / "a.txt", X)
    V = open_data(tmp_path / "a.txt", header=False)
    np.testing.assert_array_equal(V.columns(np.arange(30)).T, X)
    assert V.names == Names()
    rows, names = read(tmp_path / "b.txt", b'gene "cell 1" c2\nab 1 2\ncd 3 4\n')
    np.testing.assert_array_equal(rows, [[1, 2], [3, 4]])
    assert names == Names(("ab", "cd"), ("cell 1", "c2"))
    _, names = read(tmp_path / "c.csv", b"a name,x\nb c,1\nd e f,2\n")
    assert names == Names(("b c", "d e f"), ("x",))


def test_printed_numbers_come_back_to_the_last_bit(tmp_path, rng):
    """100,000 doubles of all magnitudes, as Python prints them and with 17 digits."""
    X = rng.random((1000, 100)) * 10.0 ** rng.integers(-30, 30, (1000, 100))
    for form in (repr, "{:.17g}".format, "{:.16e}".format):
        rows = (",".join(map(form, row)) for row in X.tolist())
        (tmp_path / "a.csv").write_text("\n".join(rows) + "\n")
        V = open_data(tmp_path / "a.csv", header=False)
        assert np.array_equal(V.columns(np.arange(1000)).T, X)


@pytest.mark.parametrize(
    "field", ["1_0", "0x1F", "1,234", "1d5", "\u0661", "1 2", "--1", "1e", "x"]
)
def test_texts_that_are_not_numbers(tmp_path, field, refuses):
    """Python, or another parser, would take some of them for numbers."""
    for row in (5, 60):
        rows = ["1\t2"] * 100
        rows[row] = f"3\t{field}"
        message, table = f"line {row + 2}, column 'b': .* is not a number", "\n".join(rows)
        refuses(FileFormatError, message, read, tmp_path / "a.tsv", f"a\tb\n{table}")


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a;b\n 1,5 ;+2\n;3e2\nNA; inf\n", [[1.5, 2.0], [np.nan, 300.0], [np.nan, np.inf]]),
        ("a;b\n;1,5\n3;\n", [[np.nan, 1.5], [3.0, np.nan]]),
    ],
)
def test_blanks_and_missing_entries(tmp_path, text, rows):
    (tmp_path / "a.csv").write_text(text)
    matrix = open_path(str(tmp_path / "a.csv"), Reading(1 << 30)).matrix
    np.testing.assert_array_equal(matrix, rows)


def test_without_the_extra_a_table_says_which_one(tmp_path, monkeypatch, refuses):
    (tmp_path / "a.parquet").write_text("a\n1\n")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    extra = r"pyarrow: pip install 'conenmf\[files\]'"
    refuses(FileFormatError, extra, open_data, tmp_path / "a.parquet")


# --- one row on each line ---


def named_rows(count):
    return ["name,a,b"] + [f"s{i},{i % 7},{i % 5 + 1}" for i in range(count)]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ('"{}', '"{}', 52),  # the rows between them were lost
        ('"{}', "{}", 52),
        ('"{}', '{}"', 52),
        ('"{}', '"x",1,2', 52),
        ('""{}', "{}", 52),
        ('"x"{}', "{}", 52),
        ("{}", '"3",4,"5', 92),
        ("{}", 's,4,"5', 92),
        ("{}", 's,"3"4,5', 92),
        ("{}", 's,""3,5', 92),
    ],
)
def test_stray_quotes(tmp_path, first, second, expected, refuses):
    rows = named_rows(100)
    rows[51], rows[91] = first.format(rows[51]), second.format(rows[91])
    text = "\n".join(rows).encode()
    for name, content in (("a.csv", text), ("a.csv.gz", gzip.compress(text))):
        for options in ({}, {"names_column": 0, "drop": 2}, {"drop": [0, 1]}):
            split = f"line {expected} cannot be split"
            refuses(FileFormatError, split, read, tmp_path / name, content, **options)


@pytest.mark.parametrize("line", [0, 3, 50, 100])
@pytest.mark.parametrize("field", ["1\r7", "\r", "1\r"])
def test_carriage_returns(tmp_path, line, field, refuses):
    rows = named_rows(100)
    rows[line] = f"s,{field},7"
    for end in ("\n", "\r\n"):
        split = f"line {line + 1} cannot be split|damaged"
        refuses(FileFormatError, split, read, tmp_path / "a.csv", end.join(rows) + end)


@given(st.lists(st.text(alphabet='1a",\r\n ;', max_size=12), min_size=1, max_size=30))
def test_accepted_lines_are_those_that_the_csv_module_reads(tmp_path_factory, parts):
    path = tmp_path_factory.mktemp("fuzz") / "a.csv"
    text = "n,x\n" + 20 * "s,1\n" + "\n".join(parts)
    path.write_bytes(text.encode())
    try:
        named = open_path(str(path), Reading(1 << 30))
    except FileFormatError:
        return
    rows = [
        row
        for row in csv.reader(io.StringIO(text, newline=""))
        if "".join(row).strip(" ") or len(row) > 1
    ][1:]
    assert [row[0].lstrip(" ") for row in rows] == list(named.names.sample_names)
    assert [float(row[1].strip() or "nan") for row in rows] == pytest.approx(
        named.matrix[:, 0].tolist(), rel=0, abs=0, nan_ok=True
    )


ODD_FIELDS = (  # what one of two parsers might take for a number, or for the end of a field
    *("-0", "1e400", "5e-324", ".5", "1.", "+1E+05", " 7 ", "\t8", "\x0b9", "\x1c1", "1\x00"),
    *("nan", "NaN", "-NAN", "inf", "-Infinity", "NA", "", " ", "true", "1_0", "0x10", "1j", "1d5"),
    *("\uff11", "1\xa0", "\u20281", "\x851", "#1", "1#", '"1"', '"1', "'1'", "1\r", "1 2", "x"),
)


@given(
    st.lists(
        st.lists(
            st.floats().map(repr)
            | st.integers().map(str)
            | st.sampled_from(ODD_FIELDS)
            | st.text(alphabet='01.e+-_na# "\t\r\x1f', max_size=5),
            min_size=1,
            max_size=4,
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([",", "\t", " ", "|", ";", "::"]),
    st.sampled_from([None, 0, 1]),
    st.sampled_from(["\n", "\r\n", ""]),
)
def test_numpy_reads_the_same_numbers_or_leaves_them_to_our_parser(rows, delimiter, named_by, end):
    """The same names, and the same numbers to the last bit."""
    lines = [delimiter.join(row) + end for row in rows]
    lines = [line for line in lines if line.strip(" \r\n")]
    dialect = Dialect(delimiter, ".", Columns(len(rows[0]), None, named_by))
    plain = plain_rows(lines, dialect) if lines and len(rows[0]) > 1 else None
    if plain is not None:
        names, numbers = rows_of_fields(Path("a.csv"), list(enumerate(lines, 1)), dialect)
        assert plain[0] == names
        assert plain[1].tobytes() == numbers.tobytes()


def test_plain_rows_are_read_by_numpy():
    dialect = Dialect(",", ".", Columns(3, None, 0))
    names, numbers = plain_rows(["a b,1,2.5\n", "\xfc,-1e3, 0.1\r\n"], dialect)
    assert names == ["a b", "\xfc"]
    assert numbers.tolist() == [[1, 2.5], [-1e3, 0.1]]


@pytest.mark.parametrize("row", [5, 1500, 2999])
def test_rows_that_numpy_leaves_are_read_in_any_batch(tmp_path, row, refuses):
    """At this budget, there are 546 rows in a batch."""
    rows = [[n, n / 8] for n in range(3000)]
    lines = [f"s{n},{n},{n / 8}" for n in range(3000)]
    lines[row] = f'"s{row}",true,{row / 8}'
    rows[row][0] = 1
    (tmp_path / "a.csv").write_text("\n".join(["n,x,y", *lines]))
    named = open_path(str(tmp_path / "a.csv"), Reading(1 << 20))
    assert named.matrix.tolist() == rows
    lines[row] = f"s{row},1,yes"
    message = f"line {row + 2}, column 'y': 'yes' is not a number"
    refuses(FileFormatError, message, read, tmp_path / "a.csv", "\n".join(["n,x,y", *lines]))


@given(st.lists(st.text(max_size=30), min_size=1, max_size=4))
def test_any_text_has_a_dialect_or_is_refused(lines):
    try:
        dialect = guess(lines, "it")
    except ConeNMFError:
        return
    columns = dialect.columns
    assert columns.titles is None or len(columns.titles) == columns.width


@pytest.mark.parametrize(
    ("title", "column", "named"),
    [
        ("Sample_ID", ["1000", "1001", "1002"], True),
        ("patient no", ["1", "2", "3"], True),
        ("sampleID", ["7", "8", "9"], True),
        ("Sample_ID", ["1", "1", "2"], False),  # these repeat
        ("patient_id", ["1.5", "2.5", "3.5"], False),
        ("valid", ["1", "2", "3"], False),
        ("gene_0", ["1", "2", "3"], False),
        ("gene_0", ["1", "n.d.", "3"], False),  # one that is wrong makes no names of the others
        ("gene_0", ["a", "b", "3"], True),
    ],
)
def test_a_first_column_that_names_the_rows(title, column, named):
    lines = [f"{title},x,y", *(f"{text},2,3" for text in column)]
    assert (guess(lines, "file").columns.named_by == 0) is named


# --- files of Arrow in all their versions ---


def write_arrow(path, table, new=pa.ipc.new_file, **options):
    with new(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)


WRITE = {"parquet": lambda path, table: pq.write_table(table, path), "arrow": write_arrow}


@pytest.mark.parametrize("kind", ["string", "large_string", "binary", "string_view"])
@pytest.mark.parametrize("stored", WRITE)
def test_long_names_are_cut(tmp_path, kind, stored):
    if (kind, stored) == ("string_view", "parquet") and int(pa.__version__.split(".")[0]) < 21:
        pytest.skip("pyarrow writes views to Parquet from version 21 on")
    names = pa.array(["é" * 300, "b" * 200, "c"]).cast(kind)
    WRITE[stored](tmp_path / f"a.{stored}", pa.table({"a": [1.0, 2.0, 3.0], "name": names}))
    found = open_data(tmp_path / f"a.{stored}", names_column="name").names.sample_names
    assert found == ("é" * 199 + "…", "b" * 200, "c")


TABLE = pa.table(
    {
        "name": pa.array(["a", "b", "c"] * 400).dictionary_encode(),
        "a": [5.0, 2.0, 7.0] * 400,
        "b": [1.0, 2.0, 4.0] * 400,
    }
)


@pytest.mark.parametrize("new", [pa.ipc.new_file, pa.ipc.new_stream])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "lz4"},
        {"compression": "zstd"},
        {"metadata_version": pa.ipc.MetadataVersion.V4},
        {"use_legacy_format": True},  # files of before 2019
    ],
)
def test_files_and_streams(tmp_path, new, options):
    write_arrow(tmp_path / "a.arrow", TABLE, new, **options)
    V = open_data(tmp_path / "a.arrow")
    np.testing.assert_array_equal(V.columns([0, 1199])[0], [5.0, 7.0])
    assert V.names.sample_names[:4] == ("a", "b", "c", "a")
