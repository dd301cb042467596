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
        (market("array real general", "x y\n"), "is damaged"),
        (market("array real general", "-3 3\n"), "claims"),
        (market("coordinate real general", "3 3 900\n1 1 1\n"), "claims 900 numbers"),
        (market("array real general", "99999 99999\n1\n"), "claims 9999800001 numbers"),
        (market("coordinate real general", "9999999999 3 1\n1 1 1\n"), "read as a whole"),
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
        (market("coordinate real general", "3 3 1\n" + "1" * 100_000), "longer than"),
        (market("array complex general", "1 1\n1 1\n"), "Complex"),
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
