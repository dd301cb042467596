"""Scenes of ENVI: every order, type and byte order; wavelengths; headers that lie."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.entries import entries

from conenmf import open_data
from conenmf.errors import DataError, DataTypeError, FileFormatError
from conenmf.io.spectral import band_names
from conenmf.names import Names

CODES = {
    "u1": 1,
    "i2": 2,
    "i4": 3,
    "f4": 4,
    "f8": 5,
    "c8": 6,
    "u2": 12,
    "u4": 13,
    "i8": 14,
    "u8": 15,
}
STORED = {"bip": (0, 1, 2), "bil": (0, 2, 1), "bsq": (2, 0, 1)}
ROWS, COLUMNS, BANDS = 5, 7, 4
SCENE = np.random.default_rng(0).integers(0, 99, (ROWS, COLUMNS, BANDS))
WAVELENGTHS = ("400.5", "500", "600", "712.25")


def write(path, interleave="bsq", kind="f4", order=0, offset=0, data=None, **changes):
    """Write a scene; `changes` replace fields of the header, None removes them."""
    numbers = SCENE.transpose(STORED[interleave]).astype(f"{'<>'[order]}{kind}")
    fields = {
        "description": "{ a scene,\n in two lines }",
        "samples": COLUMNS,
        "lines": ROWS,
        "bands": BANDS,
        "header offset": offset,
        "file type": "ENVI Standard",
        "data type": CODES[kind],
        "interleave": interleave,
        "byte order": order,
        "wavelength": "{" + ",\n ".join(WAVELENGTHS) + "}",
    } | {name.replace("_", " "): value for name, value in changes.items()}
    lines = [f"{name} = {value}" for name, value in fields.items() if value is not None]
    path.write_text("\r\n".join(["ENVI", *lines]))
    data = path.with_suffix(".img") if data is None else data
    data.write_bytes(b"x" * offset + np.ascontiguousarray(numbers).tobytes())
    return path


@pytest.mark.parametrize("interleave", STORED)
@pytest.mark.parametrize(("kind", "order", "offset"), [("f4", 0, 0), ("i2", 1, 3), ("u8", 1, 0)])
def test_every_order_and_type(tmp_path, interleave, kind, order, offset):
    path = write(tmp_path / "scene.hdr", interleave, kind, order, offset)
    for file in (path, path.with_suffix(".img")):
        V = open_data(file)
        np.testing.assert_array_equal(entries(V).T, SCENE.reshape(-1, BANDS))
        assert V.names == Names(None, WAVELENGTHS, pixels_shape=(ROWS, COLUMNS))
        assert f"5 lines x 7 samples x 4 bands ({interleave})" in V.remarks[0]
    small = open_data(path, block_samples=3)
    (total,) = small.sweep(lambda block: (np.asarray(block).sum(axis=1),))
    np.testing.assert_array_equal(total, SCENE.reshape(-1, BANDS).sum(axis=0))


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(sorted(STORED)),
    st.lists(st.integers(0, ROWS * COLUMNS - 1), min_size=1, max_size=9, unique=True),
)
def test_any_pixels(tmp_path_factory, interleave, indices):
    path = write(tmp_path_factory.mktemp("envi") / "scene.hdr", interleave)
    block = open_data(path).columns(indices)
    np.testing.assert_array_equal(np.asarray(block).T, SCENE.reshape(-1, BANDS)[indices])


def test_other_places_of_both_files(tmp_path, refuses):
    write(tmp_path / "a.hdr", data=tmp_path / "a")
    write(tmp_path / "b.img.hdr", data=tmp_path / "b.img")
    for name in ("a.hdr", "b.img"):
        assert open_data(tmp_path / name).shape == (BANDS, ROWS * COLUMNS)
    write(tmp_path / "d.hdr").with_suffix(".img").unlink()
    message = "Unable to determine the ENVI data file"
    refuses(FileFormatError, message, lambda: open_data(tmp_path / "d.hdr"))


@pytest.mark.parametrize(
    ("changes", "error", "problem"),
    [
        ({"lines": 6}, FileFormatError, r"is truncated or empty: scene\.hdr claims 6 lines"),
        ({"lines": 10**14, "samples": 10**14}, FileFormatError, "is truncated"),
        ({"header_offset": 1}, FileFormatError, "is truncated"),
        ({"lines": 0}, FileFormatError, "is truncated or empty"),
        ({"bands": None}, FileFormatError, "is damaged.*bands"),
        ({"bands": "9" * 400}, FileFormatError, "is truncated"),
        ({"kind": "c8"}, DataTypeError, "Complex data not supported"),
        ({"data_type": 7}, FileFormatError, "is damaged"),
        ({"wavelength": "{1, 2}"}, DataError, "2 names for 4 features"),
        (
            {"data_ignore_value": "none"},
            FileFormatError,
            "convert string to float: 'none'",
        ),
        ({"data_ignore_value": int(SCENE[2, 3, 1])}, DataError, "is NaN: remove"),
    ],
)
def test_headers_that_lie(tmp_path, changes, error, problem, refuses):
    refuses(error, problem, lambda: open_data(write(tmp_path / "scene.hdr", **changes)))


@pytest.mark.parametrize(
    ("changes", "names", "remark"),
    [
        ({"wavelength": None}, None, ""),
        (
            {"wavelength": None, "band_names": "{blue, green, red, nir}"},
            ("blue", "green", "red", "nir"),
            "",
        ),
        (
            {"bbl": "{1, 0, 1, 0}"},
            WAVELENGTHS,
            "its header marks 2 bands as bad: 500, 712.25",
        ),
    ],
)
def test_other_fields_of_a_header(tmp_path, changes, names, remark):
    V = open_data(write(tmp_path / "scene.hdr", **changes))
    assert V.names.feature_names == names
    assert V.remarks[0].endswith(remark)


@pytest.mark.parametrize("interleave", sorted(STORED))
def test_the_scale_factor_and_the_ignore_value(tmp_path, interleave, refuses):
    """Both are applied however the scene is read: in blocks, by pixel, and turned."""
    options = {"reflectance_scale_factor": 10000, "data_ignore_value": 65535}
    path = write(tmp_path / "scene.hdr", interleave, **options)
    V = open_data(path, block_samples=4)
    X = SCENE.reshape(-1, BANDS) / 10000
    assert V.dtype == np.float32  # as the numbers are stored
    np.testing.assert_allclose(V.columns([3, 20, 34]).T, X[[3, 20, 34]], rtol=1e-7)
    np.testing.assert_allclose(V.norms_squared, (X**2).sum(axis=1), rtol=1e-6)
    value = int(SCENE[2, 3, 1])
    row, column = np.argwhere(SCENE.reshape(-1, BANDS) == value)[0]
    path = write(tmp_path / "scene.hdr", interleave, data_ignore_value=value)
    refuses(DataError, rf"row {row} .*, column {column} .* is NaN", open_data, path)
    known = np.asarray(open_data(path, missing="nan").observed.weights)
    np.testing.assert_array_equal(known, SCENE.reshape(-1, BANDS) != value)


def test_wavelengths_of_a_cube_lie_along_its_last_axis():
    numbers = np.array([400.0, 500.0, 600.0])
    assert band_names((9, 7, 3), [numbers]).feature_names == ("400", "500", "600")
    assert band_names((9, 3), [numbers]).feature_names == ("400", "500", "600")
    assert band_names((3, 9), [numbers]).sample_names == ("400", "500", "600")
    for sides in ((3, 9, 7), (9, 3, 7)):
        names = band_names(sides, [numbers, numbers[::-1]])
        assert (names.feature_names, names.sample_names) == (None, None)
