import struct
import zlib

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from conenmf import open_data
from conenmf.errors import DataTypeError, FileFormatError, ReadError, ShapeError

X = np.arange(1.0, 7.0).reshape(3, 2)


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


def opened(path, content, **options):
    path.write_bytes(content)
    return open_data(path, **options)


def test_the_variable_that_is_meant(tmp_path):
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"V": X, "n": 5.0, "text": "abc", "cell": np.array([1], object)})
    assert open_data(path).shape == (2, 3)
    scipy.io.savemat(path, {"V": X, "U": X[:2], "text": "abc"})
    with pytest.raises(FileFormatError, match="holds U, V, text: name one of them"):
        open_data(path)
    assert open_data(f"{path}:/U").shape == (2, 2)
    assert open_data(path, dataset="U", samples_in="columns").shape == (2, 2)
    with pytest.raises(FileFormatError, match="has no 'W'"):
        open_data(path, dataset="W")
    with pytest.raises(DataTypeError, match="'text' is not a matrix of numbers"):
        open_data(path, dataset="text")


@pytest.mark.parametrize("dtype", ["u1", "i2", "u4", "i8", "f4", "?"])
def test_types_of_numbers(tmp_path, dtype):
    scipy.io.savemat(tmp_path / "a.mat", {"V": X.astype(dtype)}, do_compression=True)
    V = open_data(tmp_path / "a.mat")
    np.testing.assert_array_equal(V.columns([0, 1, 2]).T, X.astype(dtype))
    scipy.io.savemat(tmp_path / "b.mat", {"V": X * 1j})
    with pytest.raises(DataTypeError, match="Complex"):
        open_data(tmp_path / "b.mat")


def test_files_are_read_as_they_are_made_here(tmp_path):
    V = opened(tmp_path / "a.mat", mat(variable(content=numbers(6))))
    assert V.columns([0]).T.tolist() == [[1.0, 4.0]]


NESTED = b""
for _ in range(20_000):  # a cell in a cell in a cell
    NESTED = variable(b"", 1, (1, 1), content=NESTED)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"MATLAB", "not a MATLAB file"),
        (b"\0" * 500, "not a MATLAB file"),
        (mat(), "holds nothing"),
        (mat(variable(content=numbers(6)))[:-9], "truncated in the middle"),
        (mat(variable(shape=(3000, 2000), content=numbers(6))), "truncated: 'V' claims"),
        (mat(variable(shape=(2**31 - 1, 2**31 - 1), content=numbers(6))), "truncated: 'V' claims"),
        (mat(variable(shape=(-3, 2), content=numbers(6))), "truncated: 'V' claims"),
        (mat(variable(shape=(3, 3), content=numbers(6))), "is damaged"),
        (mat(variable(content=element(9, b"")[:4] + b"\xff\xff\xff\x7f" + numbers(6))), "damaged"),
        (mat(variable(kind=5, entries=2**31, content=numbers(6))), "truncated: 'V' claims"),
        (mat(variable(kind=1, content=NESTED)), "name one of them"),
        (mat(*[variable(content=numbers(6))] * 10_001), "more than 10000 variables"),
        (mat(element(15, b"not compressed")), "damaged"),
        (mat(element(15, zlib.compress(element(14, b"\0" * 10_000_000))[:2000])), "claims more"),
        (mat(element(15, zlib.compress(struct.pack("<II", 14, 2**31)))), "claims more"),
        (mat(element(15, b"")), "damaged"),
        (mat(b"\x0e\0\0"), "damaged"),
    ],
)
def test_hostile_files(tmp_path, content, message):
    with pytest.raises(FileFormatError, match=message):
        opened(tmp_path / "a.mat", content)


@pytest.mark.parametrize("kind", [1, 2, 3, 4, 16, 17, 18, 99])
def test_only_numbers_are_looked_into(tmp_path, kind):
    """Cells, structures, objects, texts, functions and what is yet to come."""
    strange = variable(b"S", kind, content=NESTED)
    V = opened(tmp_path / "a.mat", mat(strange, variable(content=numbers(6)), strange))
    assert V.shape == (2, 3)
    with pytest.raises(DataTypeError, match="'S' is not a matrix of numbers"):
        open_data(tmp_path / "a.mat", dataset="S")


def test_more_than_two_dimensions(tmp_path):
    V = opened(tmp_path / "a.mat", mat(variable(shape=(3, 1, 2), content=numbers(6))))
    assert (V.shape, V.names.pixels_shape) == ((2, 3), (3, 1))
    with pytest.raises(ShapeError, match="got 4"):
        opened(tmp_path / "a.mat", mat(variable(shape=(3, 1, 2, 1), content=numbers(6))))


def test_sparse_indices_outside_the_matrix(tmp_path):
    content = part(5, struct.pack("<2i", 0, 99)) + part(5, struct.pack("<3i", 0, 1, 2)) + numbers(2)
    for samples_in in ("rows", "columns"):
        with pytest.raises((FileFormatError, ReadError), match="column indices"):
            opened(
                tmp_path / "a.mat",
                mat(variable(kind=5, entries=2, content=content)),
                samples_in=samples_in,
            )


@pytest.mark.parametrize("kind", range(8, 16))
@pytest.mark.parametrize("wrong", [-5.0, 1e30, np.nan, np.inf, 0.5])
def test_numbers_that_their_class_cannot_hold(tmp_path, kind, wrong):
    if kind in (8, 10, 12, 14) and wrong == -5.0:
        wrong = -1e30
    content = part(9, np.array([1.0, wrong, 3.0, 4.0, 5.0, 6.0]).tobytes())
    with pytest.raises(FileFormatError, match="'V': numbers of type float64 are not all of type"):
        opened(tmp_path / "a.mat", mat(variable(kind=kind, content=content)))


def test_a_class_changed_by_one_byte(tmp_path):
    scipy.io.savemat(tmp_path / "a.mat", {"X": np.array([[1.0, -5.0], [300.0, np.nan]])})
    content = bytearray((tmp_path / "a.mat").read_bytes())
    content[144] = 9  # a matrix of doubles becomes one of bytes
    with pytest.raises(FileFormatError, match="not all of type uint8"):
        opened(tmp_path / "a.mat", bytes(content))


def sparse_variable(shape, rows, pointers, kind=5, dtype="<i4"):
    """A sparse matrix whose indices are stored as numbers of another kind."""
    content = part(kind, np.array(rows, dtype).tobytes())
    content += part(kind, np.array(pointers, dtype).tobytes()) + numbers(len(rows))
    return mat(variable(kind=5, shape=shape, entries=len(rows), content=content))


@pytest.mark.parametrize("rows", [8_000_000, 13_000_000, 200_000_000, 1_400_000_000, 2**31 - 1])
def test_sparse_matrices_with_more_rows_than_they_can_fill(tmp_path, rows):
    content = sparse_variable((rows, 2), [0, 1], [0, 1, 2])
    for samples_in in ("rows", "columns"):
        with pytest.raises(FileFormatError, match="with 2 entries"):
            opened(tmp_path / "a.mat", content, samples_in=samples_in)


@pytest.mark.parametrize(
    ("rows", "pointers"),
    [([0.5, 1.0], [0.0, 1.0, 2.0]), ([0.0, 1.0], [0.0, 1.5, 2.0]), ([0.0, np.nan], [0.0, 1, 2])],
)
def test_sparse_indices_that_are_no_whole_numbers(tmp_path, rows, pointers):
    with pytest.raises((FileFormatError, ReadError), match="are not all of type int64"):
        opened(tmp_path / "a.mat", sparse_variable((3, 2), rows, pointers, 9, "<f8"))


@pytest.mark.parametrize("pointers", [[0, 1, -1], [0, 3, 2], [0, 1, 9], [1, 1, 2]])
def test_sparse_pointers_that_lead_astray(tmp_path, pointers):
    with pytest.raises(FileFormatError, match="not a compressed sparse matrix"):
        opened(tmp_path / "a.mat", sparse_variable((3, 2), [0, 1], pointers))


@pytest.mark.parametrize("compressed", [False, True])
def test_sparse_matrices_with_few_entries_in_each_column(tmp_path, compressed):
    for matrix in (sp.eye_array(100), sp.csc_array(([1.0], ([3], [50])), shape=(100, 100))):
        content = {"V": sp.csc_array(matrix)}
        scipy.io.savemat(tmp_path / "a.mat", content, do_compression=compressed)
        V = open_data(tmp_path / "a.mat")
        np.testing.assert_array_equal(V.columns(range(100)).toarray().T, matrix.toarray())


@pytest.mark.parametrize("rows", [2.5, "3", [3, 3], -1, 10**9])
def test_rows_of_sparse_matrices_of_version_7_3(tmp_path, rows):
    with h5py.File(tmp_path / "a.mat", "w") as file:
        group = file.create_group("V")
        group["data"], group["ir"], group["jc"] = [1.0, 2.0], [0, 2], [0, 1, 2]
        group.attrs["MATLAB_class"], group.attrs["MATLAB_sparse"] = "double", rows
    for dataset in (None, "V"):
        with pytest.raises(FileFormatError):
            open_data(tmp_path / "a.mat", dataset=dataset)


def test_what_does_not_fit_is_refused(tmp_path):
    scipy.io.savemat(tmp_path / "a.mat", {"V": np.ones((100, 100))})
    with pytest.raises(FileFormatError, match=r"takes 80\d* bytes.*only be read as a whole"):
        open_data(tmp_path / "a.mat", max_memory="100kB")
    scipy.io.savemat(tmp_path / "c.mat", {"V": np.ones((100, 100))}, do_compression=True)
    with pytest.raises(FileFormatError, match="only be read as a whole"):
        open_data(tmp_path / "c.mat", max_memory="100kB")


def test_version_7_3(tmp_path):
    path = tmp_path / "a.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["s/x"] = X.T
        file["s"].attrs["MATLAB_class"] = np.bytes_("struct")
        file["text"] = np.ones((1, 4), np.uint16)
        file["text"].attrs["MATLAB_class"] = np.bytes_("char")
        file["n"] = np.ones((1, 1))
        file["link"] = h5py.ExternalLink("other.mat", "/V")
        file["V"] = X.T
    assert open_data(path).columns([0]).T.tolist() == [[1.0, 2.0]]
    assert open_data(path, dataset="s/x").shape == (2, 3)
    with pytest.raises(DataTypeError, match="'text' is a char"):
        open_data(path, dataset="text")
    with pytest.raises(DataTypeError, match="'s' is a struct"):
        open_data(path, dataset="s")
    with pytest.raises(FileFormatError, match=r"a link to the file 'other\.mat'"):
        open_data(path, dataset="link")


def test_variables_that_begin_or_end_in_another_way(tmp_path):
    good = variable(content=numbers(6))
    for at, value in ((24, 9), (40, 9)):  # the kinds of its shape and of its name
        changed = bytearray(good)
        changed[at] = value
        with pytest.raises(FileFormatError, match="not that of a matrix"):
            opened(tmp_path / "a.mat", mat(bytes(changed)))
    packed = zlib.compress(good)
    assert opened(tmp_path / "a.mat", mat(element(15, packed))).shape == (2, 3)
    wrong = packed[:-1] + bytes([packed[-1] ^ 1])  # its checksum
    for content in (wrong, packed[:-4], zlib.compress(good + b"more")):
        with pytest.raises(FileFormatError, match="damaged"):
            opened(tmp_path / "a.mat", mat(element(15, content)))
    short = good.replace(part(1, b"V"), struct.pack("<HH", 1, 5) + b"VVVV" + bytes(8))
    with pytest.raises(FileFormatError, match="a short part has 5 bytes"):
        opened(tmp_path / "a.mat", mat(short))
