"""Images: folders of pictures, stacks as scenes, and pictures that do not fit into memory."""

import struct

import numpy as np
import pytest
from PIL import Image

from conenmf import factorize, from_rows, open_data
from conenmf.data.memory import DenseMatrix
from conenmf.errors import (
    FileFormatError,
    OptionError,
)
from conenmf.scale.disk import DiskMatrix


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 255, (9, 4, 5), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path, pixels):
    folder = tmp_path / "faces"
    (folder / "b").mkdir(parents=True)
    for number, image in enumerate(pixels):
        name = f"b/{number}.bmp" if number > 6 else f"a{number}.png"
        Image.fromarray(image).save(folder / name)
    (folder / "notes.txt").write_text("not an image")
    (folder / ".hidden.png").write_text("not an image")
    return folder


def test_a_folder_of_images(folder, pixels):
    V = open_data(folder)
    assert isinstance(V, DenseMatrix)
    X = pixels.reshape(9, 20).astype(float)
    np.testing.assert_array_equal(V.columns(np.arange(9)).T, X)
    assert V.names.image_shape == (4, 5)
    assert V.names.sample_names == (*(f"a{n}.png" for n in range(7)), "b/7.bmp", "b/8.bmp")
    result, expected = factorize(V, 2), factorize(from_rows(X), 2)
    np.testing.assert_allclose(result.W, expected.W, rtol=1e-10)


@pytest.fixture
def many(tmp_path):
    """More images than a quarter of the least memory that reading them takes."""
    grey = np.random.default_rng(1).integers(0, 256, (150, 4, 5), dtype=np.uint8)
    for number, image in enumerate(grey):
        Image.fromarray(image).save(tmp_path / f"a{number:03d}.png")
    return tmp_path, grey.reshape(150, 20)


def test_images_that_do_not_fit_are_decoded_as_needed(many):
    path, X = many
    V = open_data(path, max_memory=11_000)
    assert isinstance(V, DiskMatrix)
    np.testing.assert_array_equal(V.columns([0, 77, 149]).T, X[[0, 77, 149]])
    result, expected = factorize(V, 2, max_iter=5), factorize(from_rows(X), 2, max_iter=5)
    np.testing.assert_allclose(result.W, expected.W, rtol=1e-10)


@pytest.mark.parametrize(
    ("mode", "suffixes"),
    [
        ("1", "jpg gif tif pgm bmp png"),
        ("L", "jpeg gif tiff pgm bmp png"),
        ("P", "gif tif bmp png"),
        ("RGB", "jpg gif tif bmp png"),
        ("RGBA", "tif png"),
        ("LA", "tif png"),
    ],
)
def test_colours_become_grey(tmp_path, mode, suffixes):
    white = Image.new("RGB", (3, 2), (255, 255, 255)).convert(mode)
    for suffix in suffixes.split():
        white.save(tmp_path / f"a.{suffix}")
    V = open_data(tmp_path)
    assert V.shape == (6, len(suffixes.split()))
    np.testing.assert_array_equal(V.columns([0, 1]), 255)


def test_deep_images_keep_their_numbers(tmp_path):
    Image.fromarray(np.array([[0, 60_000], [1, 256]], np.uint16)).save(tmp_path / "a.png")
    assert open_data(tmp_path).columns([0]).ravel().tolist() == [0, 60_000, 1, 256]


# --- images that take more than they seem to --------------------------------------------------


def test_small_files_of_large_images(tmp_path, refuses):
    """Kept as bytes they would fit, but a block of them in float64 would not."""
    for number in range(30):
        Image.new("L", (512, 512)).save(tmp_path / f"{number}.png")
    Image.new("L", (512, 512), 9).save(tmp_path / "0.png")
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 100_000
    message = "is too little: a sample takes 2097152 bytes"
    refuses(OptionError, message, lambda: open_data(tmp_path, max_memory=4 * 7_864_320))
    # decoded as needed, or all at once
    assert isinstance(open_data(tmp_path, max_memory=64 * 2_097_152), DiskMatrix)
    assert isinstance(open_data(tmp_path, max_memory=4 * 8 * 7_864_320), DenseMatrix)


def save_stack(path, pages):
    first, *rest = (Image.fromarray(page) for page in pages)
    first.save(path, save_all=True, append_images=rest)
    return path


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4"])
def test_a_stack_is_a_scene(tmp_path, dtype):
    cube = np.random.default_rng(0).integers(0, 200, (4, 5, 6)).astype(dtype)  # bands first
    V = open_data(save_stack(tmp_path / "scene.tif", cube))
    np.testing.assert_array_equal(np.asarray(V.columns(np.arange(30))), cube.reshape(4, -1))
    assert V.names.pixels_shape == (5, 6)
    assert V.remarks[0].startswith("a stack of 4 pages of 5 x 6 was read as the bands of a scene")


def test_a_tiff_of_one_page_is_no_scene(tmp_path, refuses):
    page = np.arange(30, dtype="u1").reshape(1, 5, 6)
    path = save_stack(tmp_path / "page.tif", page)
    refuses(FileFormatError, "a picture of 1 pages in mode L, expected several", open_data, path)


@pytest.mark.parametrize(("bands", "dtype", "kind"), [(6, "<u2", 1), (1, "<f8", 3)])
def test_a_valid_tiff_of_an_unread_kind_is_not_called_damaged(
    tmp_path, refuses, bands, dtype, kind
):
    """As GDAL writes a scene of 4 x 5 pixels: all bands of a pixel side by side, in one strip."""
    content = np.arange(20 * bands, dtype=dtype).tobytes()
    bits = 8 * np.dtype(dtype).itemsize
    tags = {256: 5, 257: 4, 258: bits, 259: 1, 262: 1, 273: 0, 277: bands, 278: 4}
    tags |= {279: len(content), 339: kind}
    tags[273] = 8 + 2 + 12 * len(tags) + 4  # where the pixels begin
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    directory = struct.pack("<H", len(tags)) + entries + bytes(4)
    whole = b"II*\0" + struct.pack("<I", 8) + directory + content
    (tmp_path / "scene.tif").write_bytes(whole)
    words = f"TIFF with {bands} bands of 4 x 5 pixels of {bits} bits on.*gdal_translate -of ENVI"
    for path in (tmp_path / "scene.tif", tmp_path):
        refuses(FileFormatError, words, open_data, path)
    for part in (whole[:60], whole[:8] + b"\0\0"):
        (tmp_path / "scene.tif").write_bytes(part)
        refuses(FileFormatError, "damaged", open_data, tmp_path / "scene.tif")
