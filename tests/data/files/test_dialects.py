import pytest
from hypothesis import given
from hypothesis import strategies as st

from conenmf.data.files.dialects import Dialect, fault, guess
from conenmf.data.files.lines import Block
from conenmf.errors import ConeNMFError, FileFormatError, Option


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


def test_more_columns_than_anybody_has():
    with pytest.raises(FileFormatError, match="more than 1000000 columns"):
        guess(["," * 1_000_000], "it")


def test_the_first_fault_is_named_with_its_line():
    dialect = Dialect(",", ["", "a", "b\x1b"], 0, 3)
    assert fault(Block.of(5, b"x,1,2\r\n\r\ny,3,4\n"), dialect) is None
    assert fault(Block.of(5, b"x,1,2\n\ny,3\n"), dialect) == "line 7 has 2 fields, expected 3"
    wrong = fault(Block.of(5, b"x,1,2\ny,3,\x1b[m\n"), dialect)
    assert wrong.startswith(r"line 6, column 'b\\x1b': '\\x1b[m' is not a number; ")
    assert wrong.parts[-1] == Option("drop", "b\x1b")
    wrong = fault(Block.of(5, b"x,1,20 %\n"), dialect)
    assert wrong.endswith("'20 %' is a percentage: remove the percent signs")
    assert "column '1'" in fault(Block.of(1, b"1,x\n"), Dialect(",", None, None, 2))


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
