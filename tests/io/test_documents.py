"""Folders and columns of documents, whose words are counted; and lists of names."""

import gzip

import pytest

from conenmf import open_data
from conenmf.data.prepare import Words
from conenmf.errors import FileFormatError
from conenmf.io.text import read_names
from conenmf.names import Names

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
    samples = ("a/one.txt", "four.txt", "three.txt", "two.txt")
    assert V.names == Names(samples, ("elm", "oak", "pepper", "salt"))
    assert V.shape == (4, 4)
    assert open_data(folder / "a", words=V.vocabulary).names.feature_names == V.names.feature_names


def test_a_column_of_texts(tmp_path):
    path = tmp_path / "reviews.csv"
    path.write_text(
        'id,body,stars\nx1,"oak, elm\nand ""oak""",3\nx2,elm oak,4\n\n'
        "x3,salt pepper,5\nx4,pepper salt,1\n"
    )
    V = open_data(path, text_column="body", names_column="id")
    assert V.names == Names(("x1", "x2", "x3", "x4"), ("elm", "oak", "pepper", "salt"))
    assert open_data(path, text_column=1).shape == V.shape
    long = tmp_path / "long.tsv"
    long.write_text("a\t" + "oak " * 50_000 + "\nb\toak elm\nc\telm\n")  # longer than csv allows
    V = open_data(long, text_column=1, header=False, words=Words(max_df=1.0))
    assert V.names.feature_names == ("elm", "oak")


# --- lists of names ---

BUDGET = 1 << 20


def test_one_name_on_each_line(tmp_path):
    path = tmp_path / "words.txt"
    path.write_bytes(b"\xef\xbb\xbfoak\r\n elm \n\nash\n\n\n")
    assert read_names(path, BUDGET) == ["oak", "elm", "", "ash"]
    packed = tmp_path / "words.txt.gz"
    packed.write_bytes(gzip.compress(b"oak\nelm"))
    assert read_names(packed, BUDGET) == ["oak", "elm"]


DOCUMENTS = {
    "plain": "module,doc\n" + "".join(f"m{n},the cat sat {n} here\n" for n in range(9)),
    "quoted": "module,doc\n" + 9 * 'm,"one oak, two elms\nand 3, 4"\n',
    "by semicolon": "doc;module\n" + 9 * "some words, and more;m\n",
    "one column": "doc\n" + "".join(f"text {n} of many\n" for n in range(9)),
}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_table_of_texts_names_a_column_to_factor(tmp_path, refuses, kind):
    (tmp_path / "docs.csv").write_text(DOCUMENTS[kind])
    path = tmp_path / "docs.csv"
    refuses(FileFormatError, "text_column", open_data, path)
    every = Words(min_df=1, max_df=1.0)
    assert open_data(path, text_column="doc", words=every).n_samples == 9
    refuses(FileFormatError, "text_column", open_data, path, header=False)
