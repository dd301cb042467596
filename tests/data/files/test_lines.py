"""A text has one row on each line, for every parser, or is refused with the number of the line."""

import csv
import gzip
import io
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conenmf import open_data
from conenmf.data.files import lines, tables
from conenmf.data.files.lines import MAX_FIELD_BYTES, Block, Lines, check_fields
from conenmf.errors import FileFormatError

STRAY = "has a quote that does not begin or end a field"
ALONE = "has a carriage return alone"


@pytest.fixture(params=[1, 200], ids=["wide", "narrow"])
def parser(request, monkeypatch):
    """Both ways to parse: as many columns, or as few."""
    monkeypatch.setattr(tables, "_MAX_PARSED_COLUMNS", request.param)
    return request.param


@pytest.fixture(params=[64, 1 << 20], ids=["small blocks", "one block"])
def blocks(request, monkeypatch):
    monkeypatch.setattr(lines, "batch_bytes", lambda budget: request.param)


def opened(path, text, **options):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return open_data(path, **options)


def named_rows(count):
    return ["name,a,b"] + [f"s{i},{i % 7},{i % 5 + 1}" for i in range(count)]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ('"{}', '"{}', 52),  # the rows between them were lost
        ('"{}', "{}", 52),
        ('"{}', '{}"', 52),
        ('{}"', "{}", 52),
        ('x"{}', "{}", 52),
        ('"{}', '"x",1,2', 52),
        ('""{}', "{}", 52),
        ('"x"{}', "{}", 52),
        ("{}", '"3",4,"5', 92),
        ("{}", 's,4,"5', 92),
        ("{}", 's,"3"4,5', 92),
        ("{}", 's,""3,5', 92),
        ("{}", 's,3"",5', 92),
    ],
)
def test_stray_quotes(tmp_path, parser, blocks, first, second, expected):
    rows = named_rows(100)
    rows[51], rows[91] = first.format(rows[51]), second.format(rows[91])
    text = "\n".join(rows).encode()
    for name, content in (("a.csv", text), ("a.csv.gz", gzip.compress(text))):
        for options in ({}, {"names_column": 0, "drop": 2}, {"drop": [0, 1]}):
            with pytest.raises(FileFormatError, match=f"line {expected} {STRAY}"):
                opened(tmp_path / name, content, **options)


def test_stray_quotes_in_the_first_lines(tmp_path, parser):
    for line in range(4):
        rows = named_rows(50)
        rows[line] = '"' + rows[line]
        with pytest.raises(FileFormatError, match=f"line {line + 1} {STRAY}"):
            opened(tmp_path / "a.csv", "\n".join(rows))
    with pytest.raises(FileFormatError, match=f"line 3 {STRAY}"):
        opened(tmp_path / "a.csv", 'a,b\n\n"3"4,5\n')


@pytest.mark.parametrize("line", [0, 3, 50, 100])
@pytest.mark.parametrize("field", ["1\r7", "\r", "1\r"])
def test_carriage_returns(tmp_path, parser, blocks, line, field):
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


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_every_size_of_blocks_gives_the_same(tmp_path, monkeypatch, parser, end, last):
    text = f'n,a,b{end}"x,""y""",1,2{end}{end}"",3,"4"{end}z,"5",6{end}{end}'
    text += "".join(f'"s {i}",{i},{i}.5{end}' for i in range(40))
    text = text if last else text[: -len(end)]
    expected = list(csv.reader(io.StringIO(text, newline="")))
    expected = [row for row in expected if row][1:]
    for size in (1, 2, 3, 5, 8, 13, 21, 10_000):
        monkeypatch.setattr(lines, "batch_bytes", lambda budget, size=size: size)
        V = opened(tmp_path / "a.csv", text)
        assert list(V.names.sample_names) == [row[0] for row in expected]
        found = V.columns(np.arange(V.shape[1])).T
        assert found.tolist() == [[float(text) for text in row[1:]] for row in expected]


def well_quoted(text, delimiter):
    """The grammar, sign by sign: whether every quote begins or ends a field on its line."""
    state = "start"
    for sign in text + "\n":
        if state == "start" and sign == '"':
            state = "quoted"
        elif state == "quoted":
            if sign == "\n":
                return False
            state = "closed?" if sign == '"' else "quoted"
        elif state == "closed?" and sign == '"':
            state = "quoted"
        elif sign in (delimiter, "\n"):
            state = "start"
        elif state == "closed?" or sign == '"':
            return False
        elif state == "start":
            state = "plain"
    return True


@given(st.text(alphabet='a",\n', max_size=40))
@example('"a""')
@example('""a')
@example('"a\n"')
@example("")
def test_quotes_against_the_grammar(text):
    block = Block.of(1, text.encode())
    try:
        check_fields("it", block, b",")
    except FileFormatError as error:
        number = int(str(error).split("line ")[1].split()[0])
        before = "\n".join(text.split("\n")[: number - 1])
        upto = "\n".join(text.split("\n")[:number])
        assert well_quoted(before, ",")
        assert not well_quoted(upto, ",")
    else:
        assert well_quoted(text, ",")
    assert block.has_rows(sum(line != "" for line in text.split("\n")))


@given(st.lists(st.text(alphabet='1a",\r\n ;', max_size=12), min_size=1, max_size=30))
def test_what_is_accepted_is_what_the_module_csv_reads(tmp_path_factory, parts):
    path = tmp_path_factory.mktemp("fuzz") / "a.csv"
    text = "n,x\n" + 20 * "s,1\n" + "\n".join(parts)
    path.write_bytes(text.encode())
    try:
        named = tables.open_text(path, None, 1 << 30)
    except FileFormatError:
        return
    rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row][1:]
    assert [row[0] for row in rows] == list(named.names.sample_names)
    assert [float(row[1] or "nan") for row in rows] == pytest.approx(
        named.matrix[:, 0].tolist(), rel=0, abs=0, nan_ok=True
    )


# --- limits -------------------------------------------------------------------------------------


class Endless(io.RawIOBase):
    """The same text without end, and how much of it was read."""

    def __init__(self, text, beginning=b""):
        self._text, self._rest, self.n_bytes = text, beginning, 0

    def readable(self):
        return True

    def readinto(self, buffer):
        while len(self._rest) < len(buffer):
            self._rest += self._text * (1 + len(buffer) // len(self._text))
        buffer[:] = self._rest[: len(buffer)]
        self._rest = self._rest[len(buffer) :]
        self.n_bytes += len(buffer)
        return len(buffer)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"12,", "line 2 has more than 1000000 columns"),
        (b"1, 2;", "line 2 has more than 1000000 columns"),
        (b"1", "line 2 has a field of more than 131072 bytes"),
        (b'"', "line 2 has a field of more than 131072 bytes"),
        (b"1234567890" * 20 + b",", "line 2 has more than 8388608 bytes"),
    ],
)
def test_a_line_without_end_is_not_read_to_its_end(text, message):
    for use in ("line", "block"):
        source = Endless(text, b"1,2,3\n")
        text_lines = Lines(io.BufferedReader(source), Path("a.csv"), 1 << 27)
        if use == "line":
            text_lines.next(b";,\t| ")
        with pytest.raises(FileFormatError, match=message):
            text_lines.next(b";,\t| ") if use == "line" else list(text_lines.blocks(b","))
        limit = (8 << 20) if "8388608" in message else 0
        assert source.n_bytes <= limit + (8 << 20)


def test_a_line_with_more_columns_inside_of_a_block(tmp_path):
    text = 40 * b"1,2,3\n" + b"1," * 1_000_001 + b"1\n" + 40 * b"1,2,3\n"
    with pytest.raises(FileFormatError, match="line 41 has more than 1000000 columns"):
        opened(tmp_path / "a.csv.gz", gzip.compress(text))


@pytest.mark.parametrize("quote", ["", '"'])
def test_long_fields(tmp_path, quote):
    for row in (1, 60):
        rows = named_rows(100)
        rows[row] = f"{quote}{'x' * (MAX_FIELD_BYTES - 2)}{quote},1,2"
        assert opened(tmp_path / "a.csv", "\n".join(rows)).shape == (2, 100)
        rows[row] = f"{quote}{'x' * (MAX_FIELD_BYTES + 1)}{quote},1,2"
        with pytest.raises(FileFormatError, match=f"line {row + 1} has a field of more than"):
            opened(tmp_path / "a.csv", "\n".join(rows))
    rows[60] = f'"{"x," * MAX_FIELD_BYTES}",1,2'
    with pytest.raises(FileFormatError, match="line 61 has a field of more than"):
        opened(tmp_path / "a.csv", "\n".join(rows))


def test_empty_lines(tmp_path):
    assert opened(tmp_path / "a.csv", 5000 * "\n" + "a,b\n1,2\n\n\r\n3,4\n").shape == (2, 2)
    with pytest.raises(FileFormatError, match="begins with more than 10000 empty lines"):
        opened(tmp_path / "a.csv", 10_001 * "\n" + "a,b\n1,2\n3,4\n")


def test_messages_quote_little_of_a_text(tmp_path):
    long = "y" * 100_000
    for text in (
        f"{long},b\n1,2\nx,3\n",
        f"a,b\n1,2\n{long},3\n",
        f"a,{long}\n1,2\n3,x\n",
        "a,b\n" + 50 * "1,2\n" + f"3,{long}\n",
        "a;b\n" + 50 * "1;2\n" + "3;1,5\n3.5;" + "1" * 10_000 + "\n",
        "a,b\n" + 50 * "1,2\n" + f"{long},{long},{long}\n",
    ):
        with pytest.raises(FileFormatError) as caught:
            opened(tmp_path / "a.csv", text)
        assert len(str(caught.value)) < len(str(tmp_path)) + 300


def test_no_expression_takes_long(tmp_path):
    """The work grows in proportion: quadratic expressions took minutes for fields of 130 kB."""
    script = """
        import resource
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
        from conenmf.data.files import columns, dialects, headers, tables
        dialect = dialects.Dialect(";", None, None, 2)
        size = 200_000
        for part in ("1", ".", "1.", "e", "1e", "-", "_", "id", " ", "0-", "1/", "T", "n_", "é"):
            for end in ("", "x", ".", "e", "_"):
                text = part * (size // len(part)) + end
                dialect.is_number(text)
                dialects._DATE.fullmatch(text)
                dialects._DATE.fullmatch("2020-01-01 " + text)
                columns.is_index_title(text)
                headers._INTEGER.fullmatch(text)
        for part in (b'"', b'""', b'"a', b'""a', b'a""', b"a"):
            for start in (b'"', b""):
                text = start + part * (size // len(part))
                tables._QUOTED.match(text)
                tables._QUOTED.match(text + b"x")
        print("done")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "done\n"
    text = b"a,b\n" + 30 * b"1,2\n" + b"1" * 130_000 + b"x,3\n"
    with pytest.raises(FileFormatError, match=r"line 32, column 'a': '1{39}…' is not a number"):
        opened(tmp_path / "a.csv", text)
