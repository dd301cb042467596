import gzip

import pytest
import scipy.io
import scipy.sparse as sp

from conenmf import open_data
from conenmf.errors import DataTypeError, FileFormatError


def opened(path, content, **options):
    path.write_bytes(content)
    return open_data(path, **options)


def market(kind, rest):
    return f"%%MatrixMarket matrix {kind}\n% a comment\n\n{rest}".encode()


def test_symmetric_and_patterns(tmp_path):
    content = market("coordinate pattern symmetric", "2 2 2\n1 1\n2 1\n")
    V = opened(tmp_path / "a.mtx", content)
    assert V.columns([0, 1]).toarray().tolist() == [[1.0, 1.0], [1.0, 0.0]]
    V = opened(tmp_path / "a.mtx.gz", gzip.compress(content), samples_in="columns")
    assert V.shape == (2, 2)
    V = opened(tmp_path / "a.mtx", market("array integer symmetric", "2 2\n1\n2\n3\n"))
    assert V.columns([0, 1]).tolist() == [[1.0, 2.0], [2.0, 3.0]]
    V = opened(tmp_path / "a.mtx", market("coordinate real general", "2 3 0\n"))
    assert V.shape == (3, 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no valid Matrix Market header"),
        (b"%%MatrixMarket matrix\n", "no valid Matrix Market header"),
        (market("coordinate real general", "3 3\n1 1 1\n"), "no line with its numbers of rows"),
        (market("array real general", "x y\n"), "claims the size x"),
        (market("array real general", "-3 3\n"), "claims"),
        (market("coordinate real general", "3 3 900\n1 1 1\n"), "claims 900 numbers"),
        (market("array real general", "99999 99999\n1\n"), "claims 9999800001 numbers"),
        (market("coordinate real general", "9999999999 3 1\n1 1 1\n"), "with 1 entries"),
        (market("coordinate real general", "3 3 2\n1 1 1\n"), "damaged"),
        (market("coordinate real general", "3 3 1\n7 1 1\n"), "outside its matrix"),
        (market("coordinate real general", "3 3 1\n1.5 1 1\n"), "outside its matrix"),
        (market("coordinate real general", "3 3 1\nnan 1 1\n"), "outside its matrix"),
        (
            market("array real symmetric", "3 2\n" + 9 * "1\n"),
            "claims to be symmetric, with 3 rows",
        ),
        (market("array real general", "3 2\n" + 5 * "1\n"), "damaged"),
        (market("array real skew-symmetric", "2 2\n1\n"), "is skew-symmetric"),
        (market("coordinate real general", "3 3 1\n1 1 1\n" + 9 * "2 2 2\n"), "damaged"),
        (
            market("coordinate real general", "3 3 1\n" + "1" * 100_000),
            "a line has 4096 bytes or more",
        ),
        (market("array complex general", "1 1\n1 1\n"), "Complex"),
        (market("coordinate banana general", "2 2 1\n1 1 1\n"), "is banana, expected a matrix"),
        (market("diagonal real general", "2 2 1\n1 1 1\n"), "is diagonal, expected"),
        (market("array pattern general", "1 1\n1\n"), "no line with its numbers of rows"),
        (market("coordinate real general", "1_0 2 1\n1 1 1\n"), "claims the size 1_0"),
        (market("coordinate real general", "9" * 4000 + " 2 1\n"), "claims the size 9{39}…, exp"),
        (market("coordinate real general", "2 2 0\n1 1 1\n"), "more lines than its header claims"),
        (market("array integer general", "2 1\n1\n2.5\n"), "holds other numbers"),
        (market("array real general", "2 1\n1\n2\r3\n"), "damaged"),
        (market("array real general", "2 1\n1\n2\xa0\n"), "damaged"),
        (market("array real general", "%" + "c" * 5000 + "\n2 1\n1\n2\n"), "a line has 4096 bytes"),
        (market("array real general", "2 1\n1\n" + 10_001 * "\n" + "2\n"), "more than 10000 lines"),
        (market("array real general", 10_001 * "% c\n" + "2 1\n1\n2\n"), "more than 10000 lines"),
    ],
)
def test_hostile_matrix_market(tmp_path, content, message):
    with pytest.raises((FileFormatError, DataTypeError), match=message):
        opened(tmp_path / "a.mtx", content, max_memory="1GB")
    with pytest.raises((FileFormatError, DataTypeError)):
        opened(tmp_path / "a.mtx.gz", gzip.compress(content), max_memory="1GB")


def test_what_does_not_fit_is_refused(tmp_path):
    scipy.io.mmwrite(tmp_path / "a.mtx", sp.eye_array(5000))
    with pytest.raises(FileFormatError, match="only be read as a whole"):
        open_data(tmp_path / "a.mtx", max_memory="100kB")


@pytest.mark.parametrize("sides", ["370000000 2", "2 370000000", "8000000 3"])
def test_sides_in_proportion_to_the_entries(tmp_path, sides):
    """A file of 76 bytes asked for gigabytes."""
    content = market("coordinate real general", f"{sides} 2\n1 1 1.0\n2 2 3.0\n")
    for samples_in in ("rows", "columns"):
        with pytest.raises(FileFormatError, match="with 2 entries"):
            opened(tmp_path / "a.mtx", content, samples_in=samples_in)


def test_messages_quote_little_of_a_file(tmp_path):
    for content in (
        market("coordinate real general", "9" * 4000 + " 2 1\n1 1 1\n"),
        market("coordinate " + "x" * 4000 + " general", "2 2 1\n1 1 1\n"),
        market("array real general", "1 1\n" + "9" * 3000 + "x\n"),
    ):
        with pytest.raises(FileFormatError) as caught:
            opened(tmp_path / "a.mtx", content)
        assert len(str(caught.value)) < len(str(tmp_path)) + 400


def test_empty_lines_without_end(tmp_path):
    """200 million of them, in 200 kB, took a minute; 4 million are enough here."""
    content = gzip.compress(market("array real general", "1 1\n" + 4_000_000 * "\n" + "1\n"))
    with pytest.raises(FileFormatError, match="lines that are empty"):
        opened(tmp_path / "a.mtx.gz", content)
