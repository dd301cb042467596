import numpy as np
import pytest

from conenmf import from_rows
from conenmf.cli.labels import read_labels
from conenmf.errors import FileFormatError, ShapeError
from conenmf.names import Names


def test_labels_in_files(tmp_path):
    V = from_rows(np.ones((3, 2)))
    path = tmp_path / "labels.txt"
    path.write_text("b\na\nb\n")
    assert read_labels(path, V).tolist() == ["b", "a", "b"]
    path.write_text("class\nb\na\nb\n")
    assert read_labels(path, V).tolist() == ["b", "a", "b"]
    V = from_rows(np.ones((3, 2)), names=Names(("x", "y", "z")))
    path.write_text("name,class\nz,b\ny,a\nx,c\n")
    assert read_labels(path, V).tolist() == ["c", "a", "b"]
    path.write_text("z,b\ny,a\nq,c\n")
    with pytest.raises(FileFormatError, match="no label for the sample 'x'"):
        read_labels(path, V)
    path.write_text("a\n")
    with pytest.raises(ShapeError, match="has 1 labels for 3 samples"):
        read_labels(path, V)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileFormatError, match="is not a text file of labels"):
        read_labels(path, V)


def test_names_that_repeat(tmp_path):
    V = from_rows(np.ones((4, 2)), names=Names(("a", "a", "b", "c")))
    path = tmp_path / "labels.csv"
    path.write_text("a,0\na,1\nb,2\nc,3\n")
    assert read_labels(path, V).tolist() == ["0", "1", "2", "3"]
    path.write_text("c,0\na,1\nb,2\na,3\n")
    with pytest.raises(FileFormatError, match="repeated names, and not in the order"):
        read_labels(path, V)
