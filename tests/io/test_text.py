"""A text has one row on each line, or is rejected with the number of the line."""

import csv
import gzip
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conenmf import open_data
from conenmf.errors import ConeNMFError, FileFormatError
from conenmf.io.open import open_path
from conenmf.io.source import Reading
from conenmf.io.text import guess

STRAY = "cannot be split into fields"


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def opened(path, text, **options):
    return open_data(write(path, text), **options)


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
def test_stray_quotes(tmp_path, first, second, expected):
    rows = named_rows(100)
    rows[51], rows[91] = first.format(rows[51]), second.format(rows[91])
    text = "\n".join(rows).encode()
    for name, content in (("a.csv", text), ("a.csv.gz", gzip.compress(text))):
        for options in ({}, {"names_column": 0, "drop": 2}, {"drop": [0, 1]}):
            with pytest.raises(FileFormatError, match=f"line {expected} {STRAY}"):
                opened(tmp_path / name, content, **options)


@pytest.mark.parametrize("line", [0, 3, 50, 100])
@pytest.mark.parametrize("field", ["1\r7", "\r", "1\r"])
def test_carriage_returns(tmp_path, line, field):
    rows = named_rows(100)
    rows[line] = f"s,{field},7"
    for end in ("\n", "\r\n"):
        with pytest.raises(FileFormatError, match=f"line {line + 1} {STRAY}|damaged"):
            opened(tmp_path / "a.csv", end.join(rows) + end)


def test_carriage_returns_that_made_whole_rows(tmp_path):
    """Two rows more than lines, and all numbers behind them in other columns."""
    rows = [[str(i + 1)] * 201 for i in range(422)]
    for row in rows[20:]:
        row[5] = "1\r7"
    with pytest.raises(FileFormatError, match=f"line 21 {STRAY}"):
        opened(tmp_path / "a.csv", "\n".join(map(",".join, rows)) + "\n")


@given(st.lists(st.text(alphabet='1a",\r\n ;', max_size=12), min_size=1, max_size=30))
def test_what_is_accepted_is_what_the_module_csv_reads(tmp_path_factory, parts):
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


def test_empty_lines(tmp_path):
    assert opened(tmp_path / "a.csv", 5000 * "\n" + "a,b\n1,2\n\n\r\n3,4\n").shape == (2, 2)


# --- how a table is written ---


def test_a_header_of_another_length():
    with pytest.raises(
        FileFormatError, match="it: the header has 2 fields and the first row has 4"
    ):
        guess(["a,b", "1,2,3,4"], "it")


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


def test_decimal_points_and_decimal_commas_do_not_mix(tmp_path):
    """1.234 may be 1234 where others are 1,5."""
    with pytest.raises(FileFormatError, match="line 2, column 'a': '1,5' is not a number"):
        opened(tmp_path / "a.csv", "a;b\n1,5;1.234\n3;4\n")
    matrix = open_path(str(write(tmp_path / "a.csv", "a;b\n;1,5\n3;\n")), Reading(1 << 30)).matrix
    assert str(matrix.tolist()) == "[[nan, 1.5], [3.0, nan]]"
