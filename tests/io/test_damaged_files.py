"""Files that are damaged, too large or of another kind are refused with the reason."""

import gzip
import io
import zipfile

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
import zarr
from PIL import Image

from conenmf import from_columns, from_rows, open_data
from conenmf.errors import DataError, DataTypeError, FileFormatError

X = np.random.default_rng(0).random((40, 12))
OBJECTS = np.array([[{}]], dtype=object)
PARTS = {"data": [1.0], "indices": [1], "indptr": [0, 1, 1]}
HUGE = 10**6, 10**6
LITTLE = {"max_memory": "100MB"}


def something_else(path):
    path.write_bytes(b"something else entirely")


def shortened(write, n_bytes):
    """Write a file without its last bytes."""

    def write_and_cut(path):
        write(path)
        path.write_bytes(path.read_bytes()[:-n_bytes])

    return write_and_cut


def claim(path, shape):
    """Write an array whose header claims another shape."""
    np.save(path, X)
    content = path.read_bytes()
    header = content[10:128].replace(b"(40, 12)", shape.encode())
    path.write_bytes(content[:10] + header[:117].ljust(117) + b"\n" + content[128:])


def archive(path, change, compression=zipfile.ZIP_STORED):
    """Write an archive whose array does not have the length that its header claims."""
    stream = io.BytesIO()
    np.save(stream, X)
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("arr_0.npy", change(stream.getvalue()))


def with_more_rows(member):
    return member.replace(b"(40, 12)", b"(9999,9)")


def bomb(path):
    np.savez_compressed(path, np.zeros((10_000, 1000)))
    assert path.stat().st_size < 100_000


def hdf5(path, *declared, **options):
    with h5py.File(path, "w") as file:
        file.create_dataset("X", *declared, **options)


def virtual(path):
    """A dataset whose numbers are in another file."""
    hdf5(path.with_name("other.h5"), data=X)
    layout = h5py.VirtualLayout(X.shape, X.dtype)
    layout[:] = h5py.VirtualSource(path.with_name("other.h5"), "X", X.shape)
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("X", layout)


def linked(path, name="X"):
    """A file with a link to a matrix in another file."""
    hdf5(path.with_name("other.h5"), data=X)
    with h5py.File(path, "w") as file:
        file[name] = h5py.ExternalLink("other.h5", "/X")


def linked_parts(path):
    """A sparse matrix in AnnData whose numbers are in another file."""
    linked(path, "X/data")
    with h5py.File(path, "a") as file:
        file["X"].attrs["shape"] = (2, 2)
        file["X/indices"], file["X/indptr"] = PARTS["indices"], PARTS["indptr"]


def one_line(path):
    """A compressed line of 64 million numbers."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(128):
            file.write(b"0," * (1 << 19))
    assert path.stat().st_size < 1 << 20


def zarr_without_a_chunk(path):
    zarr.create_array(path, data=X + 1, chunks=(10, 12))
    (path / "c" / "2" / "0").unlink()


def folder(path, **files):
    path.mkdir()
    for name, content in files.items():
        (path / name.replace("_", ".")).write_bytes(content)


def images(path):
    path.mkdir()
    for name, dtype in (("a.png", np.uint16), ("b.png", np.uint8)):
        Image.fromarray(np.ones((2, 2), dtype)).save(path / name)


BITMAP = b"BM" + b"\0" * 12 + np.array([40, 60_000, 60_000, 8 << 16 | 1], "<u4").tobytes()
# fmt: off
REFUSED = {  # the name of a file, how it is written, the error, its message, and how it is opened
    "one axis": ("a.npy", lambda path: np.save(path, np.ones(5)), DataError, "got 1"),
    "four axes": ("a.npy", lambda path: np.save(path, np.ones((2,) * 4)), DataError, "got 4"),
    "no samples": (
        "a.npy", lambda path: np.save(path, np.ones((0, 5))),
        DataError, "needs at least one sample",
    ),
    "a cube without pixels": (
        "a.npy", lambda path: np.save(path, np.ones((2, 0, 3))),
        DataError, r"a\.npy has shape \(2, 0, 3\)",
    ),
    "a negative entry": (
        "a.npy", lambda path: np.save(path, [[1.0, -2.0]]),
        DataError, r"row 0 \(sample\), column 1 \(feature\), .* is -2",
    ),
    "a complex cube": (
        "a.npy", lambda path: np.save(path, np.full((6, 5, 4), 1j)),
        DataTypeError, "Complex",
    ),
    "a cube that is cut": (
        "a.npy", shortened(lambda path: np.save(path, np.ones((6, 5, 4))), 8),
        FileFormatError, "greater than file size",
    ),
    "a pickle": (
        "a.npy", lambda path: np.save(path, OBJECTS, allow_pickle=True),
        FileFormatError, "[Oo]bject",
    ),
    "a pickle in an archive": (
        "a.npz", lambda path: np.savez(path, OBJECTS),
        FileFormatError, "[Oo]bject",
    ),
    "names that are a pickle": (
        "a.npz", lambda path: np.savez(path, X=X, feature_names=OBJECTS),
        FileFormatError, "[Oo]bject",
    ),
    "too few names": (
        "a.npz", lambda path: np.savez(path, V=X, sample_names=["x"] * 39),
        DataError, "39 names for 40 samples",
    ),
    "two arrays": (
        "a.npz", lambda path: np.savez(path, X, other=X[1:]),
        FileFormatError, "holds arr_0, other: name one of them",
    ),
    "a zip bomb": (
        "a.npz", bomb, FileFormatError,
        r"takes 80000128 bytes.* only be read as a whole", LITTLE,
    ),
    "a compressed array beyond the budget": (
        "a.npz", lambda path: np.savez_compressed(path, X), FileFormatError,
        r"takes 3968 bytes.* only be read as a whole", {"max_memory": 10_000},
    ),
    "an archive that is too short": (
        "a.npz", lambda path: archive(path, lambda member: member[:-8]),
        FileFormatError, "EOF: reading array data",
    ),
    "an archive that claims too much": (
        "a.npz", lambda path: archive(path, with_more_rows, zipfile.ZIP_DEFLATED),
        FileFormatError, "EOF: reading array data",
    ),
    "an unknown ending": (
        "a.doc", lambda path: path.write_text("1,2\n3,4\n"),
        FileFormatError, r"unknown file format; known are \.all, \.arrow",
    ),
    "an empty folder": ("empty", folder, FileFormatError, "not a Zarr store"),
    "no file": ("a.npy", lambda path: None, FileNotFoundError, "there is no file"),
    "numbers in another file": (
        "a.h5", virtual, FileFormatError,
        r"never written here, .* or they are in other files",
    ),
    "a link to another HDF5 file": (
        "a.h5", linked, FileFormatError, "only links to /X in .*other.h5, whose changes",
    ),
    "a link in AnnData": (
        "a.h5ad", linked, FileFormatError, "only links to /X in .*other.h5",
    ),
    "a link to a part of a sparse matrix": (
        "a.h5ad", linked_parts, FileFormatError, "only links to /X in .*other.h5",
    ),
    "a long compressed line": (
        "a.csv.gz", one_line, FileFormatError, "line 1 takes 100000016 bytes", LITTLE,
    ),
    "texts in HDF5": (
        "a.h5", lambda path: hdf5(path, data=np.array(["a", "b"], dtype=object)),
        DataTypeError, None,
    ),
    "pairs in HDF5": (
        "a.h5", lambda path: hdf5(path, data=np.zeros((3, 3), [("re", "f8"), ("im", "f8")])),
        DataTypeError, None,
    ),
    "HDF5 without numbers": (
        "a.h5", lambda path: hdf5(path, HUGE, "f8"),
        FileFormatError, "never written", LITTLE,
    ),
    "HDF5 without chunks": (
        "a.h5", lambda path: hdf5(path, HUGE, "f8", chunks=(1000, 1000)),
        FileFormatError, "never written", LITTLE,
    ),
    "HDF5 with a giant chunk": (
        "a.h5", lambda path: hdf5(path, (40, 10**7), "f8", chunks=(1, 10**7)),
        FileFormatError, "a chunk takes 80000000 bytes", LITTLE,
    ),
    "Zarr without chunks": (
        "a.zarr",
        lambda path: zarr.create_array(path, shape=HUGE, chunks=(1000,) * 2, dtype=float),
        FileFormatError, "1000000 of 1000000 chunks were never written", LITTLE,
    ),
    "Zarr with a lost chunk": (
        "a.zarr", zarr_without_a_chunk, FileFormatError,
        "1 of 4 chunks were never written",
    ),
    "Zarr with a giant chunk": (
        "a.zarr",
        lambda path: zarr.create_array(path, shape=(4, 10**9), chunks=(1, 10**9), dtype=float),
        FileFormatError, "a chunk takes 8000000000 bytes", LITTLE,
    ),
    "images of other depths": (
        "images", images, FileFormatError,
        r"b\.png has 2 x 2 pixels of 8 bits, unlike .*a\.png",
    ),
    "an image that claims too many pixels": (
        "images", lambda path: folder(path, a_png=BITMAP + b"\0" * 24),
        FileFormatError, r"a\.png",
    ),
    "a text in another encoding": (
        "texts", lambda path: folder(path, a_txt=b"oak", bad_txt=b"caf\xe9"),
        FileFormatError, r"bad\.txt is damaged.*: it is not UTF-8",
    ),
    "a text that does not fit": (
        "texts", lambda path: folder(path, a_txt=b"oak " * 100_000),
        FileFormatError, "only be read as a whole", {"max_memory": 1 << 20},
    ),
    "Matrix Market that does not fit": (
        "a.mtx", lambda path: scipy.io.mmwrite(path, sp.eye_array(5000)),
        FileFormatError, "only be read as a whole", {"max_memory": "100kB"},
    ),
    "a complex variable of MATLAB": (
        "a.mat", lambda path: scipy.io.savemat(path, {"V": 1j * X}),
        DataTypeError, "Complex",
    ),
    "a text that is no header of ENVI": (
        "a.hdr", lambda path: path.write_text("samples = 3"),
        FileFormatError, "not appear to be an ENVI header",
    ),
    "ENVI without a header": (
        "c.bil", lambda path: path.write_bytes(b""),
        FileFormatError, r"needs its header, c\.hdr, beside it",
    ),
}
REFUSED |= {
    f"{name} that is something else": (name, something_else, FileFormatError, name)
    for name in ("a.npy", "a.npz", "a.h5", "a.h5ad")
}
REFUSED |= {
    f"{name} that is cut": (
        name, shortened(write, 900), FileFormatError,
        "is damaged, or not what its name says",
    )
    for name, write in (
        ("a.npy", lambda path: np.save(path, X)),
        ("a.npz", lambda path: sp.save_npz(path, sp.csr_array(X), compressed=False)),
        ("a.h5", lambda path: hdf5(path, data=X)),
    )
}
REFUSED |= {
    f"an array that claims {shape}": (
        "a.npy", lambda path, shape=shape: claim(path, shape),
        FileFormatError, None,
    )
    for shape in ("(-4, 12)", "(2**9, 4)", "(999999999999, 9999999)", "(40, 1.5)")
}
REFUSED |= {
    f"a sparse matrix that claims {shape}": (
        "a.npz", lambda path, shape=shape: np.savez(path, **PARTS, shape=shape),
        FileFormatError, None,
    )
    for shape in ([2, -2], [2, 2**60], ["x", "y"], [2])
}
# fmt: on


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_cannot_be_used_is_refused_with_the_reason(tmp_path, case, refuses):
    name, write, error, message, *options = REFUSED[case]
    write(tmp_path / name)
    refuses(error, message, lambda: open_data(tmp_path / name, **dict(*options)))


@pytest.mark.parametrize("door", [from_rows, from_columns])
def test_arrays_of_three_axes_are_refused_with_the_way_to_reshape_them(door, refuses):
    words = r"got 3: .*X\.reshape\(len\(X\), -1\).*shape\[-1\]"
    refuses(DataError, words, lambda: door(np.ones((60, 50, 40))))
