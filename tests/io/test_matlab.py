"""Matrix Market and MATLAB, versions 5 to 7.3."""

import gzip
import struct

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from conenmf import open_data
from conenmf.errors import DataError, DataTypeError, FileFormatError, ReadError


def open_bytes(path, content, **options):
    path.write_bytes(content)
    return open_data(path, **options)


def market(kind, rest):
    return f"%%MatrixMarket matrix {kind}\n% a comment\n\n{rest}".encode()


@pytest.mark.parametrize(
    ("kind", "rest", "columns"),
    [
        ("coordinate pattern symmetric", "2 2 2\n1 1\n2 1\n", [[1, 1], [1, 0]]),
        ("array integer symmetric", "2 2\n1\n2\n3\n", [[1, 2], [2, 3]]),
        ("coordinate real general", "2 3 0\n", [[0, 0], [0, 0], [0, 0]]),
    ],
)
def test_symmetric_matrices_patterns_and_empty_ones(tmp_path, kind, rest, columns):
    content = market(kind, rest)
    for name, packed in (("a.mtx", content), ("a.mtx.gz", gzip.compress(content))):
        V = open_bytes(tmp_path / name, packed)
        np.testing.assert_array_equal(V.columns([0, 1]) @ np.eye(2), columns)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "damaged, or not what its name says"),
        (market("coordinate real general", "3 3\n1 1 1\n"), "damaged"),
        (market("coordinate real general", "3 3 900\n1 1 1\n"), "claims 900 numbers"),
        (market("array real general", "99999 99999\n1\n"), "claims 9999800001 numbers"),
        (market("coordinate real general", "9999999999 3 1\n1 1 1\n"), "takes 80000000016 bytes"),
        (market("coordinate real general", "3 3 2\n1 1 1\n"), "damaged"),
        (market("coordinate real general", "3 3 1\n7 1 1\n"), "Row index out of bounds"),
        (market("coordinate real general", "3 3 1\n1.5 1 1\n"), "damaged"),
        (market("array real general", "3 2\n" + 5 * "1\n"), "damaged"),
        (market("coordinate real general", "3 3 1\n1 1 1\n" + 9 * "2 2 2\n"), "damaged"),
        (market("array complex general", "1 1\n1 1\n"), "Complex"),
        (market("coordinate banana general", "2 2 1\n1 1 1\n"), "banana"),
    ],
)
def test_matrix_market_that_is_not_what_its_header_claims(tmp_path, content, message, refuses):
    errors, packed = (FileFormatError, DataTypeError), gzip.compress(content)
    refuses(errors, message, lambda: open_bytes(tmp_path / "a.mtx", content, max_memory="1GB"))
    refuses(errors, None, lambda: open_bytes(tmp_path / "a.mtx.gz", packed, max_memory="1GB"))


# --- MATLAB ---


MATRIX = np.arange(1.0, 7.0).reshape(3, 2)


def element(kind, content):
    return struct.pack("<II", kind, len(content)) + content


def part(kind, content):
    return element(kind, content) + b"\0" * (-len(content) % 8)


def variable(name=b"V", kind=6, shape=(3, 2), entries=0, content=b"", flags=0):
    return element(
        14,
        part(6, struct.pack("<II", kind | flags, entries))
        + part(5, struct.pack(f"<{len(shape)}i", *shape))
        + part(1, name)
        + content,
    )


def mat(*elements):
    return (
        b"MATLAB 5.0 MAT-file".ljust(124, b" ")
        + struct.pack("<HH", 0x0100, 0x4D49)
        + b"".join(elements)
    )


def numbers(count):
    return part(9, np.arange(1.0, count + 1).tobytes())


def test_the_variable_that_is_meant(tmp_path, refuses):
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"V": MATRIX, "n": 5.0, "text": "abc", "cell": np.array([1], object)})
    assert open_data(path).shape == (2, 3)
    scipy.io.savemat(path, {"V": MATRIX, "U": MATRIX[:2], "text": "abc"})
    refuses(FileFormatError, "holds U, V: name one of them", lambda: open_data(path))
    assert open_data(f"{path}:/U").shape == (2, 2)
    assert open_data(path, dataset="U", samples_in="columns").shape == (2, 2)


@pytest.mark.parametrize("dtype", ["u1", "i2", "u4", "i8", "f4", "?"])
def test_types_of_numbers(tmp_path, dtype):
    scipy.io.savemat(tmp_path / "a.mat", {"V": MATRIX.astype(dtype)}, do_compression=True)
    V = open_data(tmp_path / "a.mat")
    np.testing.assert_array_equal(V.columns([0, 1, 2]).T, MATRIX.astype(dtype))


def test_files_are_read_as_they_are_made_here(tmp_path):
    V = open_bytes(tmp_path / "a.mat", mat(variable(content=numbers(6))))
    assert V.columns([0]).T.tolist() == [[1.0, 4.0]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"MATLAB", "damaged, or not what its name says"),
        (mat(), "holds nothing"),
        (mat(variable(content=numbers(6)))[:-9], "damaged"),
        (mat(variable(shape=(3000, 2000), content=numbers(6))), "damaged"),
        (mat(variable(shape=(2**31 - 1, 2**31 - 1), content=numbers(6))), "'V': header claims"),
        (mat(variable(shape=(3, 3), content=numbers(6))), "damaged"),
        (mat(element(15, b"not compressed")), "damaged"),
    ],
)
def test_matlab_that_is_not_what_its_header_claims(tmp_path, content, message, refuses):
    refuses(FileFormatError, message, lambda: open_bytes(tmp_path / "a.mat", content))


def test_a_variable_that_scipy_can_load_but_not_list(tmp_path, monkeypatch):
    """Such as a table, or a text in double quotes."""
    monkeypatch.setattr(scipy.io, "whosmat", lambda path: tuple(None))
    scipy.io.savemat(tmp_path / "a.mat", {"V": MATRIX, "n": 5.0, "text": "abc"})
    assert open_data(tmp_path / "a.mat").columns([0]).T.tolist() == [[1.0, 2.0]]
    scipy.io.savemat(tmp_path / "a.mat", {"S": sp.csc_array(MATRIX)})
    assert open_data(tmp_path / "a.mat").columns([0]).toarray().T.tolist() == [[1.0, 2.0]]


def test_more_than_two_dimensions(tmp_path, refuses):
    V = open_bytes(tmp_path / "a.mat", mat(variable(shape=(3, 1, 2), content=numbers(6))))
    assert (V.shape, V.names.pixels_shape) == ((2, 3), (3, 1))
    four = mat(variable(shape=(3, 1, 2, 1), content=numbers(6)))
    refuses(DataError, "got 4", open_bytes, tmp_path / "a.mat", four)


@pytest.mark.parametrize("samples_in", ["rows", "columns"])
def test_sparse_indices_outside_the_matrix(tmp_path, samples_in, refuses):
    content = part(5, struct.pack("<2i", 0, 99)) + part(5, struct.pack("<3i", 0, 1, 2)) + numbers(2)
    (tmp_path / "a.mat").write_bytes(mat(variable(kind=5, entries=2, content=content)))
    refuses(
        (FileFormatError, ReadError),
        "indices must be",
        lambda: open_data(tmp_path / "a.mat", samples_in=samples_in),
    )


@pytest.mark.parametrize("compressed", [False, True])
def test_sparse_matrices_with_few_entries_in_each_column(tmp_path, compressed):
    for matrix in (sp.eye_array(100), sp.csc_array(([1.0], ([3], [50])), shape=(100, 100))):
        content = {"V": sp.csc_array(matrix)}
        scipy.io.savemat(tmp_path / "a.mat", content, do_compression=compressed)
        V = open_data(tmp_path / "a.mat")
        np.testing.assert_array_equal(V.columns(range(100)).toarray().T, matrix.toarray())


def test_version_7_3(tmp_path, refuses):
    path = tmp_path / "a.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["s/x"] = MATRIX.T
        file["s"].attrs["MATLAB_class"] = np.bytes_("struct")
        file["text"] = np.ones((1, 4), np.uint16)
        file["text"].attrs["MATLAB_class"] = np.bytes_("char")
        file["n"] = np.ones((1, 1))
        file["link"] = h5py.ExternalLink("other.mat", "/V")
        file["V"] = MATRIX.T
    assert open_data(path).columns([0]).T.tolist() == [[1.0, 2.0]]
    assert open_data(path, dataset="s/x").shape == (2, 3)
    refuses(DataTypeError, "'text' is not a matrix", lambda: open_data(path, dataset="text"))
    refuses(FileFormatError, "has no 'link'", lambda: open_data(path, dataset="link"))
