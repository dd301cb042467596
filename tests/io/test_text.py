"""A text has one row on each line, or is rejected with the number of the line."""

import csv
import gzip
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conenmf import open_data
from conenmf.errors import ConeNMFError, FileFormatError
from conenmf.io.formats import open_path
from conenmf.io.text import guess

STRAY = "cannot be split into fields"
ALONE = "has a carriage return alone"


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


def test_stray_quotes_in_the_first_lines(tmp_path):
    for line in range(4):
        rows = named_rows(50)
        rows[line] = '"' + rows[line]
        with pytest.raises(FileFormatError, match=f"line {line + 1} {STRAY}"):
            opened(tmp_path / "a.csv", "\n".join(rows))
    with pytest.raises(FileFormatError, match=f"line 3 {STRAY}"):
        opened(tmp_path / "a.csv", 'a,b\n\n"3"4,5\n')


@pytest.mark.parametrize("line", [0, 3, 50, 100])
@pytest.mark.parametrize("field", ["1\r7", "\r", "1\r"])
def test_carriage_returns(tmp_path, line, field):
    rows = named_rows(100)
    rows[line] = f"s,{field},7"
    for end in ("\n", "\r\n"):
        with pytest.raises(FileFormatError, match=f"line {line + 1} {ALONE}"):
            opened(tmp_path / "a.csv", end.join(rows) + end)
    rows[line] = "s,1,7"
    text = "\n".join(rows[: line + 1]) + "\r"
    with pytest.raises(FileFormatError, match=f"line {line + 1} {ALONE}"):
        opened(tmp_path / "a.csv", text)


def test_carriage_returns_that_made_whole_rows(tmp_path):
    """Two rows more than lines, and all numbers behind them in other columns."""
    rows = [[str(i + 1)] * 201 for i in range(422)]
    for row in rows[20:]:
        row[5] = "1\r7"
    with pytest.raises(FileFormatError, match=f"line 21 {ALONE}"):
        opened(tmp_path / "a.csv", "\n".join(map(",".join, rows)) + "\n")


@given(st.lists(st.text(alphabet='1a",\r\n ;', max_size=12), min_size=1, max_size=30))
def test_what_is_accepted_is_what_the_module_csv_reads(tmp_path_factory, parts):
    path = tmp_path_factory.mktemp("fuzz") / "a.csv"
    text = "n,x\n" + 20 * "s,1\n" + "\n".join(parts)
    path.write_bytes(text.encode())
    try:
        named = open_path(path, None, 1 << 30)
    except FileFormatError:
        return
    rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row][1:]
    assert [row[0] for row in rows] == list(named.names.sample_names)
    assert [float(row[1].strip() or "nan") for row in rows] == pytest.approx(
        named.matrix[:, 0].tolist(), rel=0, abs=0, nan_ok=True
    )


def test_quotes_inside_of_a_field_are_signs_like_others(tmp_path):
    V = opened(tmp_path / "a.csv", 'n,a\n5" pipe,1\n7" pipe,2\n')
    assert V.names.sample_names == ('5" pipe', '7" pipe')
    with pytest.raises(FileFormatError, match="line 3, column 'a': '3\"\"' is not a number"):
        opened(tmp_path / "a.csv", 'n,a\nx,1\ny,3""\n')


def test_empty_lines(tmp_path):
    assert opened(tmp_path / "a.csv", 5000 * "\n" + "a,b\n1,2\n\n\r\n3,4\n").shape == (2, 2)


def test_messages_quote_little_of_a_text(tmp_path):
    long = "y" * 100_000
    for text in (
        f"{long},b\n1,2\nx,3\n",
        f"a,b\n1,2\n{long},3\n",
        f"a,{long}\n1,2\n3,x\n",
        "a,b\n" + 50 * "1,2\n" + f"3,{long}\n",
        "a,b\n" + 50 * "1,2\n" + f"{long},{long},{long}\n",
    ):
        with pytest.raises(FileFormatError) as caught:
            opened(tmp_path / "a.csv", text)
        assert len(str(caught.value)) < len(str(tmp_path)) + 300


# --- how a table is written ---


@pytest.mark.parametrize(
    ("text", "delimiter", "titles", "named_by", "fields"),
    [
        ("1,2\n3,4", ",", None, None, 2),
        ("a,b\n1,2", ",", ["a", "b"], None, 2),
        ("g,a,b\nx,1,2", ",", ["g", "a", "b"], 0, 3),
        (",a,b\nx,1,2", ",", ["", "a", "b"], 0, 3),
        (",0,1\n0,1,2", ",", ["", "0", "1"], 0, 3),  # as pandas writes it
        ("id,a\n7,2", ",", ["id", "a"], 0, 2),
        ("sample,1,2\n7,1,2", ",", ["sample", "1", "2"], None, 3),
        ("a\tb\nx\t1\t2", "\t", ["", "a", "b"], 0, 3),  # as R writes it
        ('"a b","c,d"\n"x",1,2', ",", ["", "a b", "c,d"], 0, 3),
        ("x,1,2\ny,3,4", ",", None, 0, 3),
        ("x;1,5;2\ny;3;4,25", ";", None, 0, 3),
        ("x;1.5;2\ny;3;4.25", ";", None, 0, 3),
        ("1,5;2\n3;4,25", ";", None, None, 2),
        ("name;a\nx;1,5", ";", ["name", "a"], 0, 2),
        ("a|b\n1|NA\n|4", "|", ["a", "b"], None, 2),
        ("a\n1\n2", ";", ["a"], None, 1),
        ("1e-3,+2,-.5\n1,inf,3.", ",", None, None, 3),
        ("a,b\n10%,20%\n30%,5%", ",", ["a", "b"], None, 2),
        ("name;b;c\nx;20%;1,5\ny;5%;2,5", ";", ["name", "b", "c"], 0, 3),
    ],
)
def test_what_a_text_looks_like(text, delimiter, titles, named_by, fields):
    assert guess(text.split("\n"), "it")[:4] == (delimiter, titles, named_by, fields)


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
    assert dialect.titles is None or len(dialect.titles) == dialect.fields


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
    assert (guess(lines, "file").named_by == 0) is named


def test_percentages_are_named(tmp_path):
    with pytest.raises(FileFormatError, match="line 3, column 'b': '20 %' is a percentage: remove"):
        opened(tmp_path / "a.csv", "a,b\n1,2\n3,20 %\n")


def test_decimal_points_and_decimal_commas_do_not_mix(tmp_path):
    """1.234 may be 1234 where others are 1,5."""
    with pytest.raises(FileFormatError, match="lines 2 to 3 have decimal points and decimal comm"):
        opened(tmp_path / "a.csv", "a;b\n1,5;1.234\n3;4\n")
    matrix = open_path(write(tmp_path / "a.csv", "a;b\n;1,5\n3;\n"), None, 1 << 30).matrix
    assert str(matrix.tolist()) == "[[nan, 1.5], [3.0, nan]]"
