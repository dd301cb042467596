import gzip

import pytest

from conenmf.data.files.name_lists import read_names
from conenmf.errors import FileFormatError

BUDGET = 1 << 20


def test_one_name_on_each_line(tmp_path):
    path = tmp_path / "words.txt"
    path.write_bytes(b"\xef\xbb\xbfoak\r\n elm \n\nash\n\n\n")
    assert read_names(path, BUDGET) == ["oak", "elm", "", "ash"]
    packed = tmp_path / "words.txt.gz"
    packed.write_bytes(gzip.compress(b"oak\nelm"))
    assert read_names(packed, BUDGET) == ["oak", "elm"]


def test_a_column_between_tabs(tmp_path):
    path = tmp_path / "features.tsv"
    path.write_text("ENSG1\tACTB\tGene Expression\nENSG2\n")
    assert read_names(path, BUDGET, column=1) == ["ACTB", "ENSG2"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a\n" + b"x" * 5000, "line 2 is not a name: it has more than 4096 bytes"),
        (b"a\0b\n", "line 1 is not a name"),
        (b"a\nb\n\xff\n", "line 3 is not UTF-8: save it as UTF-8"),
        (b"a\n" * 9000, "take more than a quarter of max_memory"),
    ],
)
def test_what_is_no_list_of_names(tmp_path, content, problem):
    path = tmp_path / "words.txt"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=problem):
        read_names(path, BUDGET)


def test_a_damaged_compressed_list(tmp_path):
    path = tmp_path / "words.txt.gz"
    path.write_bytes(gzip.compress(b"oak\nelm\n" * 99)[:-20])
    with pytest.raises(FileFormatError, match="is damaged"):
        read_names(path, BUDGET)
