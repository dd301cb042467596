import gzip

import pytest

from conenmf import Words, open_data
from conenmf.errors import FileFormatError, OptionError
from conenmf.io.text import read_names

TEXTS = {
    "a/one.txt": "oak elm\noak",
    "two.txt": "elm ash oak",
    "three.txt": "salt pepper",
    "four.txt": "pepper salt salt",
}


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "texts"
    (place / "a").mkdir(parents=True)
    for name, text in TEXTS.items():
        (place / name).write_text(text)
    (place / ".hidden.txt").write_text("oak")
    (place / "notes.md").write_text("oak")
    return place


def test_a_folder_of_texts(folder):
    V = open_data(folder)
    assert V.names.sample_names == ("a/one.txt", "four.txt", "three.txt", "two.txt")
    assert V.names.feature_names == ("elm", "oak", "pepper", "salt")
    assert V.shape == (4, 4)
    again = open_data(folder / "a", words=V.vocabulary)
    assert again.names.feature_names == V.names.feature_names
    with pytest.raises(OptionError, match="each text is a sample"):
        open_data(folder, samples_in="columns")


def test_files_that_are_no_texts(folder):
    (folder / "bad.txt").write_bytes(b"caf\xe9")
    with pytest.raises(FileFormatError, match=r"bad\.txt is not UTF-8: save it as UTF-8"):
        open_data(folder)
    (folder / "bad.txt").write_bytes(b"a\0")
    with pytest.raises(FileFormatError, match=r"bad\.txt holds zero bytes"):
        open_data(folder)
    (folder / "bad.txt").unlink()
    (folder / "large.txt").write_text("oak " * 100_000)
    with pytest.raises(FileFormatError, match="texts have to fit in memory"):
        open_data(folder, max_memory=1 << 20)


def test_a_column_of_texts(tmp_path):
    path = tmp_path / "reviews.csv"
    path.write_text(
        'id,body,stars\nx1,"oak, elm\nand ""oak""",3\nx2,elm oak,4\n\n'
        "x3,salt pepper,5\nx4,pepper salt,1\n"
    )
    V = open_data(path, text_column="body", names_column="id")
    assert V.names.sample_names == ("x1", "x2", "x3", "x4")
    assert V.names.feature_names == ("elm", "oak", "pepper", "salt")
    assert open_data(path, text_column=1).shape == V.shape
    long = tmp_path / "long.tsv"
    long.write_text("a\t" + "oak " * 50_000 + "\nb\toak elm\nc\telm\n")  # longer than csv allows
    V = open_data(long, text_column=1, header=False, words=Words(max_df=1.0))
    assert V.names.feature_names == ("elm", "oak")


@pytest.mark.parametrize(
    ("content", "column", "problem"),
    [
        ("", "body", "is empty"),
        ("id,body\n1,a,b\n", "body", "the row that ends in line 2 has 3 fields, expected 2"),
        ("id,body\n1,a\n", "text", "has no column 'text'; it has id, body"),
        ('id,body\n1,"a', "body", "no word is in 2 texts"),
    ],
)
def test_tables_that_have_no_such_texts(tmp_path, content, column, problem):
    path = tmp_path / "t.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=problem):
        open_data(path, text_column=column)


def test_other_files_have_no_column_of_texts(tmp_path):
    (tmp_path / "t.npy").write_bytes(b"")
    with pytest.raises(OptionError, match=r"text_column='body' is for \.csv and \.tsv tables"):
        open_data(tmp_path / "t.npy", text_column="body")


def test_a_table_with_texts_says_where_to_go(tmp_path):
    path = tmp_path / "t.csv"
    rows = [f"{n}.5,{n + 1}.5,{'' if n != 15 else 'a few words'}{n}" for n in range(30)]
    path.write_text("\n".join(rows))
    with pytest.raises(
        FileFormatError, match=r"drop=2; if it holds texts to factor, text_column=2"
    ):
        open_data(path)
    path.write_text('id,body\n1,"two\nlines"\n2,"three\nlines"\n')
    with pytest.raises(FileFormatError, match="a column of texts is read with text_column"):
        open_data(path)


# --- lists of names ---

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
        (b"a\0b\n", "holds zero bytes"),
        (b"a\nb\n\xff\n", "is not UTF-8: save it as UTF-8"),
        (b"a\n" * 90_000, "takes 720000 bytes, more than a quarter of max_memory"),
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
