"""Datasets: in folders of the same layout as the real ones, and from a server on this machine."""

import errno
import hashlib
import importlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
import warnings
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from PIL import Image
from sklearn.feature_extraction.text import TfidfTransformer

from conenmf import datasets, from_rows
from conenmf.datasets import (
    DATASETS,
    DatasetWarning,
    Download,
    available,
    fingerprint,
    load,
    log_counts,
    places,
    tf_idf,
)
from conenmf.datasets.downloads import fetch, show_progress, unpack
from conenmf.errors import (
    ConeNMFError,
    DatasetError,
    DatasetMissingError,
    DiskFullError,
    FileFormatError,
    OptionError,
)

try:
    import pty
except ImportError:  # Windows
    pty = None


# Most datasets here are smaller than those of the same name; other tests look for this warning.
pytestmark = pytest.mark.filterwarnings("ignore::conenmf.datasets.DatasetWarning")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """No test sees the folders of the user."""
    place = tmp_path / "cache"
    monkeypatch.setattr("conenmf.datasets.places.cache", lambda: place)
    monkeypatch.setattr("conenmf.datasets.cache", lambda: place)
    monkeypatch.setattr("conenmf.datasets.shipped", lambda description: None)
    monkeypatch.delenv("CONENMF_DATA", raising=False)
    return place


@pytest.fixture
def folder(tmp_path, monkeypatch):
    place = tmp_path / "data"
    place.mkdir()
    monkeypatch.setenv("CONENMF_DATA", str(place))
    return place


def place(folder, name, X, labels=None):
    (folder / name).mkdir(parents=True)
    if sp.issparse(X):
        sp.save_npz(folder / name / "V.npz", X)
    else:
        np.savez_compressed(folder / name / "V.npz", V=X)
    if labels is not None:
        np.save(folder / name / "labels.npy", np.asarray(labels, np.int16))


def small(monkeypatch, name, **changes):
    """A dataset of that name that is smaller than the real one."""
    monkeypatch.setitem(DATASETS, name, replace(DATASETS[name], **changes))


def counts(rng, N=6, F=9):
    X = sp.csr_array(rng.poisson(0.7, (N, F)).astype(np.uint16))
    return X, np.arange(N) % 3


# --- the catalogue ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", DATASETS)
def test_every_dataset_says_where_it_comes_from(name):
    description = DATASETS[name]
    assert description.name == name
    assert "http" in description.source
    assert description.licence
    assert description.preprocessing
    assert description.sha256 is None or len(description.sha256) == 64
    if description.kind == "images":
        assert np.prod(description.image_shape) == description.shape[1]
    if description.kind == "scene":
        assert np.prod(description.image_shape) == description.shape[0]
        assert len(description.variables) == len(description.downloads)
    if description.columns_first:
        assert description.variables
    if description.kind == "cells":
        assert description.shipped


@pytest.mark.parametrize("name", [name for name in DATASETS if name != "digits"])
@pytest.mark.parametrize("named", [True, False])
def test_a_missing_dataset_says_where_to_get_it(name, named, tmp_path, monkeypatch):
    if named:
        monkeypatch.setenv("CONENMF_DATA", str(tmp_path / "mine"))
    with pytest.raises(DatasetMissingError) as caught:
        load(name)
    message = str(caught.value)
    assert DATASETS[name].source in message
    assert DATASETS[name].licence in message
    assert str(tmp_path / ("mine" if named else "cache") / name) in message
    assert ("download=True" in message) == bool(DATASETS[name].downloads)
    assert isinstance(caught.value, FileNotFoundError)
    assert isinstance(caught.value, ConeNMFError)


def test_what_has_no_address_is_not_fetched(monkeypatch):
    monkeypatch.setattr(datasets, "fetch", None)
    with pytest.raises(DatasetMissingError, match="no direct address"):
        load("ck", download=True)


def test_an_unknown_name_is_answered_with_all_names():
    with pytest.raises(OptionError, match="'faces95' is unknown; choose one of 'faces94'"):
        load("faces95")
    with pytest.raises(OptionError, match="choose one of"):
        load(["faces94"])


def test_digits_come_with_scikit_learn():
    digits = load("digits")
    assert digits.verified
    assert digits.labels.shape == (1797,)
    assert digits.names.image_shape == digits.image_shape == (8, 8)
    assert available() == ["digits"]
    assert "array" not in repr(digits)


# --- folders ----------------------------------------------------------------------------------


def test_text_is_weighted_as_in_the_paper(folder, rng):
    X, labels = counts(rng)
    place(folder, "tr11", X, labels)
    tr11 = load("tr11")
    idf = np.log(6 / np.bincount(X.indices, minlength=9).clip(1))
    expected = X.toarray() * idf
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(tr11.X.toarray(), expected)
    np.testing.assert_array_equal(tr11.labels, labels)
    np.testing.assert_array_equal(load("tr11", weights="counts").X.toarray(), X.toarray())
    assert (tr11.K, tr11.image_shape, tr11.verified) == (9, None, False)
    assert from_rows(tr11.X).shape == (9, 6)
    assert available() == ["tr11", "digits"]


def test_weights_agree_with_scikit_learn(rng):
    X = sp.csr_array(rng.poisson(0.4, (20, 30)))
    # Its idf is log(N / df) + 1: the difference of two of its results has no 1.
    theirs = TfidfTransformer(norm=None, smooth_idf=False).fit(X).idf_ - 1
    expected = X.toarray() * np.where(np.isfinite(theirs), theirs, 0)
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(tf_idf(X).toarray(), expected / lengths)


def test_weights_of_what_is_everywhere_or_nowhere():
    X = np.array([[1, 0, 0], [2, 0, 1], [1, 0, 0]])
    before = X.copy()
    np.testing.assert_array_equal(tf_idf(X).toarray(), [[0, 0, 0], [0, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(X, before)


def test_images_are_upright(folder, rng):
    images = rng.integers(0, 256, (5, 32, 32), np.uint8)
    place(folder, "yale_32x32", images.transpose(0, 2, 1).reshape(5, -1), range(5))
    place(folder, "georgia_tech_crop", np.ones((3, 49 * 64), np.uint8))
    yale = load("yale_32x32")
    np.testing.assert_array_equal(yale.X, images.reshape(5, -1))
    assert yale.names.image_shape == yale.image_shape == (32, 32)
    assert load("georgia_tech_crop").labels is None


def test_images_are_shrunk(folder, rng):
    images = rng.integers(0, 256, (2, 200, 180), np.uint8)
    place(folder, "faces94", images.reshape(2, -1), [0, 1])
    half = load("faces94", shrink=2)
    assert half.image_shape == half.names.image_shape == (100, 90)
    np.testing.assert_array_equal(half.X[1].reshape(100, 90)[7, 8], images[1, 14:16, 16:18].mean())
    with pytest.raises(OptionError, match="shrink=7 does not divide"):
        load("faces94", shrink=7)
    for shrink in (0, 2.0, "2"):
        with pytest.raises(OptionError, match=f"shrink={shrink!r}"):
            load("faces94", shrink=shrink)


def test_pixels_or_bands_are_the_samples(folder, monkeypatch, rng):
    small(monkeypatch, "paviau_subset", image_shape=(3, 4))
    X = rng.integers(0, 9000, (12, 5), np.uint16)
    place(folder, "paviau_subset", X, range(12))
    pixels, bands = load("paviau_subset"), load("paviau_subset", samples="bands")
    np.testing.assert_array_equal(pixels.X, X)
    assert pixels.names.feature_names == bands.names.sample_names
    assert bands.names.sample_names[:2] == ("band 1", "band 2")
    assert pixels.names.image_shape is None
    assert bands.names.image_shape == pixels.image_shape == (3, 4)
    np.testing.assert_array_equal(bands.X, X.T)
    assert bands.labels is None
    assert bands.X.flags.c_contiguous


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("tr11", {"samples": "bands"}, "samples='bands' is for datasets of the kind 'scene'"),
        ("digits", {"weights": "counts"}, "weights='counts' is for"),
        ("paviau", {"shrink": 2}, "shrink=2 is for"),
        ("paviau", {"samples": "rows"}, "choose one of 'pixels', 'bands'"),
        ("tr11", {"weights": "bm25"}, "choose one of 'tf-idf', 'counts'"),
        ("tr11", {"weights": "log"}, "choose one of 'tf-idf', 'counts'"),
        ("pbmc68k_reduced", {"weights": "tf-idf"}, "choose one of 'log', 'counts'"),
        ("pbmc68k_reduced", {"shrink": 2}, "of the kind 'images'"),
    ],
)
def test_options_that_do_not_apply_are_refused(name, options, match):
    with pytest.raises(OptionError, match=match):
        load(name, **options)


def test_the_named_folder_comes_first_then_the_cache(folder, cache, rng):
    place(cache, "tr11", *counts(rng, 7))
    assert load("tr11").X.shape[0] == 7
    place(folder, "tr11", *counts(rng, 8))
    assert load("tr11").X.shape[0] == 8


def test_numbers_are_recognised_however_they_are_stored(folder, monkeypatch, rng):
    X, labels = counts(rng)
    small(monkeypatch, "tr11", sha256=fingerprint(X.toarray().astype(float), labels))
    place(folder, "tr11", X, labels)
    assert not load("tr11").verified  # dense numbers are others than sparse ones
    small(monkeypatch, "tr11", sha256=fingerprint(X.astype(np.float64), 5 - labels))
    assert load("tr11").verified
    small(monkeypatch, "tr11", sha256=fingerprint(X, labels[::-1] * labels))
    assert not load("tr11").verified


def test_fingerprints_tell_numbers_apart(rng):
    X = rng.random((3, 4), np.float32)
    assert fingerprint(X, None) == fingerprint(np.asfortranarray(X), None)
    others = [X.astype("f8"), X.T, X + 1, X[::-1], sp.csr_array(X)]
    assert len({fingerprint(other, None) for other in [X, *others]}) == 6


@pytest.mark.parametrize("other", [1 + 65536, 1 - 65536, -1, 1 << 40, np.inf, np.nan])
def test_no_number_passes_for_another(other):
    X = np.array([[1.0, 2.0], [3.0, 65535.0]])
    changed = X.copy()
    changed[0, 0] = other
    assert fingerprint(changed, None) != fingerprint(X, None)
    assert fingerprint(sp.csr_array(changed), None) != fingerprint(sp.csr_array(X), None)


def test_large_numbers_are_recognised_however_they_are_stored():
    X = np.array([[1, -70000], [0, 2]])
    same = [X, X.astype("i4"), X.astype("f8"), np.asfortranarray(X)]
    assert len({fingerprint(one, None) for one in same}) == 1
    padded = sp.csr_array(([1, -70000, 0, 2], [0, 1, 0, 1], [0, 2, 4]), shape=(2, 2))
    assert padded.nnz == 4
    assert fingerprint(padded, None) == fingerprint(sp.csr_array(X), None)


def warned(name, **options):
    """What `load` warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load(name, **options)
    for warning in caught:
        assert warning.category is DatasetWarning
        assert warning.filename == __file__
    return [str(warning.message) for warning in caught]


def test_one_changed_number_is_told(folder, monkeypatch, rng):
    X, labels = counts(rng)
    place(folder, "tr11", X, labels)
    small(monkeypatch, "tr11", shape=X.shape, K=3, sha256=fingerprint(X, labels))
    assert warned("tr11") == []
    X.data[3] += 1
    sp.save_npz(folder / "tr11" / "V.npz", X)
    (message,) = warned("tr11")
    assert f"tr11 in {folder / 'tr11'} holds other numbers or classes" in message
    assert DATASETS["tr11"].source in message
    small(monkeypatch, "tr11", sha256=fingerprint(X, np.sort(labels)))
    assert "other numbers or classes" in warned("tr11")[0]
    small(monkeypatch, "tr11", shape=(414, 6429), K=9)
    assert "6 samples of 9 features in 3 classes, expected 414 of 6429 in 9" in warned("tr11")[0]
    (folder / "tr11" / "labels.npy").unlink()
    assert "in no classes" in warned("tr11")[0]


def test_where_no_checksum_is_known_the_size_is_compared(folder, monkeypatch):
    place(folder, "ck", np.ones((4, 3136), np.uint8), [0, 0, 1, 1])
    assert "4 samples of 3136 features in 2 classes, expected 8795" in warned("ck")[0]
    small(monkeypatch, "ck", shape=(4, 3136), K=2)
    assert warned("ck") == []
    assert not load("ck").verified


def test_the_home_of_the_user(rng, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("CONENMF_DATA", "~/mine")
    place(tmp_path / "mine", "tr11", *counts(rng))
    assert load("tr11").X.shape == (6, 9)


def test_a_user_without_a_home(monkeypatch):
    monkeypatch.undo()
    for name in ("CONENMF_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)

    def nobody(path):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pathlib.Path.expanduser", nobody)
    monkeypatch.setattr(datasets, "fetch", None)
    assert "digits" in available()
    with pytest.raises(DatasetMissingError, match=r"\$CONENMF_DATA.tr11") as caught:
        load("tr11")
    assert DATASETS["tr11"].source in str(caught.value)
    with pytest.raises(DatasetError, match="set XDG_CACHE_HOME"):
        load("tr11", download=True)


# --- folders that are damaged -----------------------------------------------------------------


def test_labels_have_to_fit(folder, rng):
    X, labels = counts(rng)
    place(folder, "tr11", X, labels[:4])
    with pytest.raises(FileFormatError, match="6 samples and 4 labels"):
        load("tr11")
    np.save(folder / "tr11" / "labels.npy", labels.astype(float))
    with pytest.raises(FileFormatError, match="float64 of shape"):
        load("tr11")


def test_pixels_have_to_fit(folder):
    place(folder, "orl_32x32", np.ones((4, 1000), np.uint8))
    with pytest.raises(FileFormatError, match="holds 1000 pixels where 32 x 32 are expected"):
        load("orl_32x32")


def test_nothing_is_unpickled(folder, rng):
    class Mine:
        def __reduce__(self):
            return (pytest.fail, ("it was unpickled",))

    X, _ = counts(rng)
    place(folder, "tr11", X)
    np.save(folder / "tr11" / "labels.npy", np.array([Mine()], object), allow_pickle=True)
    with pytest.raises(FileFormatError, match=r"labels\.npy"):
        load("tr11")
    (folder / "tr23").mkdir()
    np.savez(folder / "tr23" / "V.npz", V=np.array([[Mine()]], object))
    with pytest.raises(ConeNMFError):
        load("tr23")


def test_a_file_that_is_cut_off(folder, rng):
    X, labels = counts(rng)
    place(folder, "tr11", X, labels)
    for name in ("labels.npy", "V.npz"):
        path = folder / "tr11" / name
        path.write_bytes(path.read_bytes()[:-5])
        with pytest.raises(FileFormatError, match=name):
            load("tr11")


# --- official files ---------------------------------------------------------------------------


def cluto(X, classes):
    """The two texts of CLUTO."""
    lines = [f"{X.shape[0]} {X.shape[1]} {X.nnz}"]
    for row in X:
        row = sp.coo_array(row)
        lines.append(
            " ".join(f"{f + 1} {v:d}" for f, v in zip(row.coords[-1], row.data, strict=True))
        )
    return "\n".join(lines) + "\n", "".join(f"{name}\n" for name in classes)


def test_the_text_of_cluto(folder, rng):
    X, labels = counts(rng)
    matrix, classes = cluto(X, [f"topic{label}" for label in labels])
    (folder / "wap").mkdir()
    (folder / "wap" / "wap.mat").write_text(matrix)
    assert load("wap").labels is None
    (folder / "wap" / "wap.mat.rclass").write_text(classes)
    wap = load("wap", weights="counts")
    np.testing.assert_array_equal(wap.X.toarray(), X.toarray())
    np.testing.assert_array_equal(wap.labels, labels)
    assert wap.classes == ("topic0", "topic1", "topic2")
    assert fingerprint(wap.X, wap.labels) == fingerprint(X, labels)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("2 3 2\n1 1\n", "promises 2 counts in 2 documents and holds 1 in 1"),
        ("1 3 1\n4 1\n", "a term outside 1 to 3"),
        ("1 3 1\n0 1\n", "a term outside 1 to 3"),
        ("1 3 1\n1 0.5\n", "part of a count"),
        ("1 3 1\n1 -2\n", "part of a count"),
        ("1 3 1\n1 nan\n", "part of a count"),
        ("1 3 1\n1 2 3\n", "copy it anew"),
        ("1 3 1\none 2\n", "damaged"),
        ("", "damaged"),
        ("1 3\n", "damaged"),
    ],
)
def test_damaged_text_of_cluto(folder, text, match):
    (folder / "wap").mkdir()
    (folder / "wap" / "wap.mat").write_text(text)
    with pytest.raises(FileFormatError, match=match):
        load("wap")


def paint(path, image, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path, **options)


def test_images_of_an_official_archive(folder, monkeypatch, rng):
    small(monkeypatch, "orl_112x92", image_shape=(4, 3))
    for person in (1, 2, 10):
        for number in (1, 2, 10):
            image = np.full((4, 3), 20 * person + number, np.uint8)
            paint(folder / "orl_112x92" / f"s{person}" / f"{number}.pgm", image)
    orl = load("orl_112x92")
    np.testing.assert_array_equal(orl.X[:, 0], [21, 22, 30, 41, 42, 50, 201, 202, 210])
    np.testing.assert_array_equal(orl.labels, np.repeat([0, 1, 2], 3))
    assert orl.names.sample(8) == "s10/10.pgm"


def test_faces94_is_without_the_folder_of_copies(folder, monkeypatch):
    small(monkeypatch, "faces94", image_shape=(2, 2))
    for person in ("female/anpage", "female/gotone", "male/cjsake", "male/gotone"):
        paint(folder / "faces94" / person / "x.1.jpg", np.full((2, 2, 3), 90, np.uint8))
    faces = load("faces94")
    assert faces.classes == ("female/anpage", "male/cjsake", "male/gotone")
    assert faces.names.sample_names == tuple(f"{person}/x.1.jpg" for person in faces.classes)
    np.testing.assert_array_equal(faces.labels, [0, 1, 2])


def test_ck_from_ones_own_copy(folder):
    for number, (person, sequence, rows) in enumerate(
        (("S010", "001", 490), ("S010", "002", 480), ("S011", "001", 490))
    ):
        image = np.full((rows, 640), 50 + number, np.uint8)
        paint(folder / "ck" / "cohn-kanade" / person / sequence / f"{person}_1.png", image)
    ck = load("ck")
    np.testing.assert_array_equal(ck.X, np.repeat([[50], [51], [52]], 3136, axis=1))
    np.testing.assert_array_equal(ck.labels, [0, 0, 1])
    assert (ck.image_shape, ck.K) == ((49, 64), 97)


@pytest.mark.parametrize(
    ("name", "file", "match"),
    [
        ("ck", "S010/a.png", "2 folders deep"),
        ("georgia_tech", "01.png", "1 folders deep"),
        ("coil20", "obj1.png", "called like obj1__0.png"),
    ],
)
def test_an_image_that_is_nobodys(folder, name, file, match):
    paint(folder / name / file, np.ones((9, 9), np.uint8))
    with pytest.raises(FileFormatError, match=match) as caught:
        load(name)
    assert str(folder / name / file) in str(caught.value)


def test_the_names_of_images_say_what_they_show(folder):
    for number in (1, 2, 10):
        for turn in (0, 5, 10):
            path = folder / "coil20" / "coil-20-proc" / f"obj{number}__{turn}.png"
            paint(path, np.full((128, 128), 10 * number + turn, np.uint8))
    coil = load("coil20")
    np.testing.assert_array_equal(coil.labels, np.repeat([0, 1, 2], 3))
    np.testing.assert_array_equal(coil.X[:, 0], [10, 15, 20, 20, 25, 30, 100, 105, 110])
    assert coil.classes == ("obj1", "obj2", "obj10")


@pytest.mark.parametrize(
    ("name", "file", "scale", "dtype"),
    [("orl_32x32", "ORL_32x32.mat", 1, "uint8"), ("coil20_32x32", "COIL20.mat", 255, "float32")],
)
def test_images_that_somebody_made_a_matrix_of(folder, rng, name, file, scale, dtype):
    images = rng.integers(0, 256, (4, 32, 32)) / scale
    (folder / name).mkdir()
    vectors = images.transpose(0, 2, 1).reshape(4, -1)
    scipy.io.savemat(folder / name / file, {"fea": vectors, "gnd": [[1], [1], [2], [2]]})
    loaded = load(name)
    assert loaded.X.dtype == dtype
    np.testing.assert_array_equal(loaded.X, images.reshape(4, -1).astype(dtype))
    np.testing.assert_array_equal(loaded.labels, [1, 1, 2, 2])
    scipy.io.savemat(folder / name / file, {"fea": vectors, "gnd": [[1], [2]]})
    with pytest.raises(FileFormatError, match="and 2 classes, expected one row"):
        load(name)


def test_frames_are_shrunk_with_a_filter_that_sees_every_pixel(folder):
    stripes = np.zeros((480, 640), np.uint8)
    stripes[:, ::2] = 200
    paint(folder / "georgia_tech" / "s01" / "01.png", stripes)
    X = load("georgia_tech").X.astype(float).reshape(49, 64)
    np.testing.assert_allclose(X[:, 2:-2], 100, atol=3)


def test_damaged_images(folder):
    (folder / "ck" / "S010" / "001").mkdir(parents=True)
    with pytest.raises(DatasetMissingError):
        load("ck")
    (folder / "ck" / "S010" / "001" / "a.png").write_bytes(b"not an image")
    with pytest.raises(FileFormatError, match=r"a\.png is damaged"):
        load("ck")


def scene(rng, rows=6, columns=5, bands=4):
    cube = rng.integers(1, 8000, (rows, columns, bands), np.uint16)
    return cube, rng.integers(0, 10, (rows, columns), np.uint8)


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("dtype", ["uint16", "float64"])
def test_scenes_of_matlab(folder, monkeypatch, rng, compressed, dtype):
    cube, classes = scene(rng)
    window = (1, 4, 2, 5)
    part = fingerprint(cube[1:4, 2:5].reshape(-1, 4), classes[1:4, 2:5].ravel())
    shapes = {"image_shape": (6, 5), "shape": (30, 4)}
    small(monkeypatch, "paviau", sha256=part, window=window, **shapes)
    (folder / "paviau").mkdir()
    saved = {"do_compression": compressed}
    scipy.io.savemat(folder / "paviau" / "PaviaU.mat", {"paviaU": cube.astype(dtype)}, **saved)
    assert not load("paviau").verified
    scipy.io.savemat(folder / "paviau" / "PaviaU_gt.mat", {"paviaU_gt": classes}, **saved)
    pavia = load("paviau")
    np.testing.assert_array_equal(pavia.X, cube.reshape(30, 4))
    np.testing.assert_array_equal(pavia.labels, classes.ravel())
    assert pavia.verified
    assert load("paviau", samples="bands").X.shape == (4, 30)
    small(monkeypatch, "paviau", window=(0, 3, 2, 5))
    assert not load("paviau").verified


@pytest.mark.parametrize(
    ("matrix", "match"),
    [
        ({"other": np.ones((2, 2, 2))}, "called 'paviaU'"),
        ({"paviaU": np.ones((2, 2))}, "expected 3 sides"),
        ({"paviaU": {"cube": 1}}, "called 'paviaU'"),
    ],
)
def test_scenes_that_are_none(folder, matrix, match):
    (folder / "paviau").mkdir()
    scipy.io.savemat(folder / "paviau" / "PaviaU.mat", matrix)
    with pytest.raises(FileFormatError, match=match):
        load("paviau")


def test_classes_of_another_scene(folder, rng):
    (folder / "paviau").mkdir()
    scipy.io.savemat(folder / "paviau" / "PaviaU.mat", {"paviaU": scene(rng)[0]})
    scipy.io.savemat(folder / "paviau" / "PaviaU_gt.mat", {"paviaU_gt": np.ones((5, 6))})
    with pytest.raises(FileFormatError, match=r"classes of shape \(5, 6\), expected one class"):
        load("paviau")


def test_a_scene_that_is_cut_off(folder, rng):
    path = folder / "paviau" / "PaviaU.mat"
    path.parent.mkdir()
    scipy.io.savemat(path, {"paviaU": scene(rng)[0]})
    whole = path.read_bytes()
    for content in (whole[:-20], whole[:100], whole[:140], b"x" * 300):
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match=r"PaviaU\.mat"):
            load("paviau")


# --- cells ------------------------------------------------------------------------------------


CELLS = "10x_pbmc68k_reduced.h5ad"


def cells(path, rng, old=False, **changes):
    """A file of AnnData like that of scanpy, as it is now or as it was; its counts and types."""
    X = rng.poisson(0.8, (7, 5))
    types, totals = np.array([1, 0, 1, 1, 0, 0, 1], np.int8), X.sum(1) + rng.integers(9, 40, 7)
    values = sp.csr_array(np.round(np.log1p(X / totals[:, None] * 1e4), 3).astype(np.float32))
    values.data = values.data * changes.get("scale", 1)
    types, totals = changes.get("types", types), totals[: changes.get("sums")].astype(np.float32)
    barcodes, genes = [b"cell%d" % n for n in range(7)], [b"gene%d" % n for n in range(5)]
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        parts = file.create_group("raw.X" if old else "raw/X")
        for part in ("data", "indices", "indptr"):
            parts[part] = getattr(values, part)
        parts.attrs["h5sparse_shape" if old else "shape"] = values.shape
        if old:
            frame = np.zeros(7, [("index", "S8"), ("bulk_labels", "i1"), ("n_counts", "f4")])
            frame["index"], frame["bulk_labels"], frame["n_counts"] = barcodes, types, totals
            file["obs"], file["raw.var"] = (
                frame,
                np.array([(gene,) for gene in genes], [("index", "S8")]),
            )
            file["uns/bulk_labels_categories"] = [b"B", b"NK"]
        else:
            for table, index in (("obs", barcodes), ("raw/var", genes)):
                file.create_group(table).attrs["_index"] = "index"
                file[table]["index"] = index
            file["obs/n_counts"] = totals
            file["obs/bulk_labels/codes"], file["obs/bulk_labels/categories"] = types, [b"B", b"NK"]
    return X, types


@pytest.mark.parametrize("old", [True, False])
def test_counts_of_cells(folder, rng, old):
    X, types = cells(folder / "pbmc68k_reduced" / CELLS, rng, old)
    stored = load("pbmc68k_reduced", weights="counts")
    np.testing.assert_array_equal(stored.X.toarray(), X)
    np.testing.assert_array_equal(stored.labels, types)
    assert stored.classes == ("B", "NK")
    assert stored.names.feature_names[:2] == ("gene0", "gene1")
    assert stored.names.sample(6) == "cell6"
    weighted = load("pbmc68k_reduced").X
    np.testing.assert_allclose(
        weighted.toarray(), np.log1p(1e4 * X / X.sum(1, keepdims=True).clip(1))
    )
    assert from_rows(weighted).shape == (5, 7)


def test_cells_from_an_installed_package(folder, tmp_path, monkeypatch, rng):
    monkeypatch.setattr("conenmf.datasets.shipped", places.shipped)
    site = tmp_path / "site"
    X, _ = cells(site / "scanpy" / "datasets" / CELLS, rng)
    (site / "scanpy" / "__init__.py").write_text("raise AssertionError('it was imported')")
    monkeypatch.delitem(sys.modules, "scanpy", raising=False)
    monkeypatch.syspath_prepend(site)
    importlib.invalidate_caches()
    assert "pbmc68k_reduced" in available()
    np.testing.assert_array_equal(load("pbmc68k_reduced", weights="counts").X.toarray(), X)
    assert "scanpy" not in sys.modules
    assert str(site / "scanpy" / "datasets" / CELLS) in warned("pbmc68k_reduced")[0]
    place(folder, "pbmc68k_reduced", np.ones((2, 5), np.uint8), [0, 1])
    assert load("pbmc68k_reduced").X.shape == (2, 5)


def test_a_package_without_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("conenmf.datasets.shipped", places.shipped)
    (tmp_path / "site" / "scanpy").mkdir(parents=True)
    monkeypatch.delitem(sys.modules, "scanpy", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    with pytest.raises(DatasetMissingError, match="pip install scanpy"):
        load("pbmc68k_reduced")
    assert "pbmc68k_reduced" not in available()


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"scale": 1.1}, "does not hold logarithms of counts"),
        ({"scale": -1}, "does not hold logarithms of counts"),
        ({"scale": np.nan}, "does not hold logarithms of counts"),
        ({"types": np.array([0, 1, 2, 0, 0, 0, 0])}, "a cell without a type"),
        ({"types": np.array([0, 1, -1, 0, 0, 0, 0])}, "a cell without a type"),
        ({"types": np.array([0, 1])}, "7 cells in raw/X, 7 sums and 2 types"),
        ({"sums": 3}, "7 cells in raw/X, 3 sums and 7 types"),
    ],
)
def test_damaged_cells(folder, rng, changes, match):
    cells(folder / "pbmc68k_reduced" / CELLS, rng, **changes)
    with pytest.raises(FileFormatError, match=match):
        load("pbmc68k_reduced")


@pytest.mark.parametrize("lost", ["raw", "obs", "obs/n_counts", "obs/bulk_labels"])
def test_cells_of_which_a_part_is_missing(folder, rng, lost):
    path = folder / "pbmc68k_reduced" / CELLS
    cells(path, rng)
    with h5py.File(path, "r+") as file:
        del file[lost]
    with pytest.raises(FileFormatError, match=CELLS):
        load("pbmc68k_reduced")
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(FileFormatError, match=CELLS):
        load("pbmc68k_reduced")


def test_logarithms_of_counts_agree_with_their_definition(rng):
    X = rng.poisson(1.0, (9, 6))
    X[4] = 0
    before = X.copy()
    expected = np.log1p(1e4 * X / X.sum(1, keepdims=True).clip(1))
    np.testing.assert_allclose(log_counts(X).toarray(), expected)
    np.testing.assert_allclose(log_counts(sp.csr_array(X)).toarray(), expected)
    np.testing.assert_array_equal(X, before)


# --- downloads, from this machine -------------------------------------------------------------


class _Answers(BaseHTTPRequestHandler):
    """Answers with what the server has; "cut" ends too early, "stalls" waits before its end,
    "endless" does not say how long it is."""

    def do_GET(self):
        content = self.server.files.get(self.path)
        self.server.asked.append(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        if "endless" not in self.path:
            extra = 1000 if "cut" in self.path or "stalls" in self.path else 0
            self.send_header("Content-Length", str(len(content) + extra))
        self.end_headers()
        self.wfile.write(content)
        if "stalls" in self.path:
            self.server.stalled.wait(60)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as here:
        here.files, here.asked, here.stalled = {}, [], threading.Event()
        here.url = f"http://127.0.0.1:{here.server_port}"
        thread = threading.Thread(target=here.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield here
        here.shutdown()
        thread.join()


def offer(server, monkeypatch, name, files, **changes):
    """Let a dataset be at this server."""
    server.files.update({f"/{file}": content for file, content in files.items()})
    addresses = tuple(Download(f"{server.url}/{file}", 10**6) for file in files)
    small(monkeypatch, name, downloads=addresses, **changes)


def tar(members):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def cluto_archive(X, labels, name="tr11"):
    matrix, classes = cluto(X, labels)
    return tar(
        {
            f"datasets/{name}.mat": matrix.encode(),
            f"datasets/{name}.mat.rclass": classes.encode(),
            "datasets/other.mat": b"not wanted",
            "../outside.mat": b"not wanted either",
        }
    )


def test_a_download_stays_in_the_cache(server, cache, monkeypatch, rng):
    X, labels = counts(rng)
    files = {"datasets.tar.gz": cluto_archive(X, labels)}
    offer(server, monkeypatch, "tr11", files, sha256=fingerprint(X, labels))
    with pytest.raises(DatasetMissingError):
        load("tr11")
    assert server.asked == []
    seen = []
    tr11 = load("tr11", weights="counts", download=True, progress=lambda *at: seen.append(at))
    np.testing.assert_array_equal(tr11.X.toarray(), X.toarray())
    assert tr11.verified
    size = len(files["datasets.tar.gz"])
    assert seen[-1] == ("datasets.tar.gz", size, size)
    kept = sorted(path.name for path in cache.rglob("*") if path.is_file())
    assert kept == ["tr11.mat", "tr11.mat.rclass"]
    assert load("tr11", download=True).verified
    assert len(server.asked) == 1
    assert available() == ["tr11", "digits"]


def test_scenes_are_fetched_in_two_files(server, monkeypatch, rng):
    cube, classes = scene(rng)
    files = {}
    for name, matrix in (
        ("PaviaU.mat", {"paviaU": cube}),
        ("PaviaU_gt.mat", {"paviaU_gt": classes}),
    ):
        scipy.io.savemat(content := io.BytesIO(), matrix)
        files[name] = content.getvalue()
    part = fingerprint(cube[:3].reshape(-1, 4), classes[:3].ravel())
    shapes = {"image_shape": (6, 5), "shape": (30, 4)}
    offer(server, monkeypatch, "paviau", files, sha256=part, window=(0, 3, 0, 5), **shapes)
    assert load("paviau", samples="bands", download=True, progress=None).verified


def test_images_are_fetched_in_an_archive(server, monkeypatch):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for person in ("s01", "s02"):
            Image.fromarray(np.full((49, 64), 7, np.uint8)).save(image := io.BytesIO(), "png")
            archive.writestr(f"gt_db/{person}/01.png", image.getvalue())
        archive.writestr("gt_db/readme.txt", "not wanted")
        archive.writestr("__MACOSX/gt_db/s01/._01.png", "not wanted either")
    files = {"gt_db.zip": packed.getvalue()}
    offer(server, monkeypatch, "georgia_tech", files, shape=(2, 3136), K=3)
    with pytest.raises(DatasetError, match="is not that dataset"):  # a person is missing
        load("georgia_tech", download=True)
    offer(server, monkeypatch, "georgia_tech", files, K=2)
    frames = load("georgia_tech", download=True)
    assert frames.classes == ("gt_db/s01", "gt_db/s02")
    np.testing.assert_array_equal(frames.labels, [0, 1])
    assert not frames.verified


def nothing_is_left(cache):
    return not cache.exists() or not list(cache.iterdir())


def test_other_numbers_than_expected_are_not_kept(server, cache, monkeypatch, rng):
    X, labels = counts(rng)
    offer(server, monkeypatch, "tr11", {"d.tar.gz": cluto_archive(X, labels)})
    with pytest.raises(DatasetError, match="is not that dataset"):
        load("tr11", download=True)
    offer(server, monkeypatch, "tr11", {"d.tar.gz": cluto_archive(X, labels, "tr12")})
    with pytest.raises(DatasetError, match="is not that dataset"):
        load("tr11", download=True)
    offer(server, monkeypatch, "tr11", {"d.tar.gz": tar({"tr11.mat": b"1 1 1\n7 7\n"})})
    with pytest.raises(DatasetError, match="cannot be read, and nothing was kept"):
        load("tr11", download=True)
    assert nothing_is_left(cache)


@pytest.mark.parametrize(
    ("file", "content", "match"),
    [
        ("cut.tar.gz", b"x" * 100_000, "cut off after|IncompleteRead|could not be fetched"),
        ("large.tar.gz", b"x" * 1_000_001, "more than the 1000000 bytes"),
        ("endless.tar.gz", b"x" * 1_200_000, "more than the 1000000 bytes"),
        ("d.tar.gz", b"no archive", "not an archive"),
        ("d.zip", b"no archive", "not an archive"),
        ("missing.tar.gz", None, "could not be fetched: HTTP Error 404"),
    ],
)
def test_a_failed_download_leaves_nothing(server, cache, monkeypatch, file, content, match):
    offer(server, monkeypatch, "tr11", {file: content})
    with pytest.raises(DatasetError, match=match) as caught:
        load("tr11", download=True, progress=None)
    assert not isinstance(caught.value, DatasetMissingError)
    assert nothing_is_left(cache)


def test_an_interrupted_download_leaves_nothing(server, cache, monkeypatch, rng):
    offer(server, monkeypatch, "tr11", {"d.tar.gz": cluto_archive(*counts(rng))})

    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load("tr11", download=True, progress=interrupt)
    assert nothing_is_left(cache)


def test_a_file_with_another_checksum_is_not_kept(server, tmp_path):
    server.files["/file"] = b"content"
    right = hashlib.sha256(b"content").hexdigest()
    path = fetch(Download(f"{server.url}/file", 100, right), tmp_path)
    assert path.read_bytes() == b"content"
    path.unlink()
    with pytest.raises(DatasetError, match=f"has the checksum {right}, expected 0000"):
        fetch(Download(f"{server.url}/file", 100, "0" * 64), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_only_the_web_is_asked(tmp_path):
    (tmp_path / "secret").write_text("secret")
    with pytest.raises(DatasetError, match="not an address of the web"):
        fetch(Download((tmp_path / "secret").as_uri(), 100), tmp_path)


def test_what_is_in_the_way_is_told_before_anything_is_fetched(server, cache, monkeypatch, rng):
    X, labels = counts(rng)
    files = {"d.tar.gz": cluto_archive(X, labels)}
    offer(server, monkeypatch, "tr11", files, sha256=fingerprint(X, labels))
    (cache / "tr11").mkdir(parents=True)
    (cache / "tr11" / "notes.txt").write_text("mine")
    with pytest.raises(DatasetError, match="in the way"):
        load("tr11", download=True)
    assert server.asked == []
    assert (cache / "tr11" / "notes.txt").read_text() == "mine"
    (cache / "tr11" / "notes.txt").unlink()
    assert load("tr11", download=True).verified  # an empty folder is nobody's
    assert [path.name for path in cache.iterdir()] == ["tr11"]


def test_another_process_was_faster(server, cache, monkeypatch, rng):
    X, labels = counts(rng)
    files = {"d.tar.gz": cluto_archive(X, labels)}
    offer(server, monkeypatch, "tr11", files, sha256=fingerprint(X, labels))

    def another(*_):
        if not cache.joinpath("tr11").exists():
            place(cache, "tr11", X, labels)

    assert load("tr11", download=True, progress=another).verified
    assert sorted(path.name for path in cache.rglob("*")) == ["V.npz", "labels.npy", "tr11"]


def test_jpeg_may_be_decoded_otherwise(server, monkeypatch, rng):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for person in ("female/anpage", "female/gotone", "male/cjsake"):
            image = Image.fromarray(rng.integers(0, 256, (2, 2, 3), np.uint8))
            image.save(content := io.BytesIO(), "jpeg")
            archive.writestr(f"faces94/{person}/{person[-6:]}.1.jpg", content.getvalue())
    files = {"faces94.zip": packed.getvalue()}
    offer(server, monkeypatch, "faces94", files, image_shape=(2, 2), shape=(2, 4), K=2)
    assert not load("faces94", download=True).verified
    assert "JPEG" in warned("faces94")[0]


def test_an_archive_whose_members_collide(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a", "a file")
        archive.writestr("a/b", "in a folder of its name")
    with pytest.raises(DatasetError, match="cannot be unpacked into"):
        unpack(tmp_path / "a.zip", tmp_path / "in", lambda member: True)


def test_a_disk_that_is_full_while_unpacking(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    (tmp_path / "a.tar.gz").write_bytes(tar({"a": b"content"}))
    with pytest.raises(DiskFullError, match=r"no room for a\.tar\.gz"):
        unpack(tmp_path / "a.tar.gz", tmp_path, lambda member: True)


def test_nobody_answers(tmp_path):
    with pytest.raises(DatasetError, match="could not be fetched"):
        fetch(Download("http://127.0.0.1:1/file", 100), tmp_path)


@pytest.mark.parametrize("name", ["../a.png", "/a.png", "x/../../a.png", "..\\a.png", "c:/a.png"])
def test_no_member_of_an_archive_leads_out_of_it(tmp_path, name):
    (tmp_path / "in").mkdir()
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(name, "content")
    (tmp_path / "a.tar.gz").write_bytes(tar({name: b"content"}))
    for archive in ("a.zip", "a.tar.gz"):
        with pytest.raises(DatasetError, match="leads out of it"):
            unpack(tmp_path / archive, tmp_path / "in", lambda member: True)
    assert list((tmp_path / "in").iterdir()) == []


def test_an_archive_that_unpacks_to_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr("conenmf.datasets.downloads._UNPACKED", 100)
    (tmp_path / "a.tar.gz").write_bytes(tar({"a": bytes(60), "b": bytes(60)}))
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", bytes(101))
    for archive in ("a.zip", "a.tar.gz"):
        with pytest.raises(DatasetError, match="unpacks to more than 100 bytes"):
            unpack(tmp_path / archive, tmp_path, lambda member: False)


def test_a_damaged_archive(tmp_path):
    whole = tar({"a": " ".join(map(str, range(9000))).encode()})
    for damaged in (whole[:-2000], b"\xff" * 20 + whole[20:]):
        (tmp_path / "a.tar.gz").write_bytes(damaged)
        with pytest.raises(DatasetError, match="not an archive"):
            unpack(tmp_path / "a.tar.gz", tmp_path, lambda member: True)


def test_a_bar_is_drawn_on_terminals_only(capsys, monkeypatch):
    show_progress("file", 5, 10)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    show_progress("file", 5_000_000, 10_000_000)
    show_progress("file", 10_000_000, 10_000_000)
    show_progress("file", 2_000_000, None)
    shown = capsys.readouterr().err
    assert f"\rfile [{'#' * 15}{'.' * 15}] 5.0 MB of 10.0 MB\rfile" in shown
    assert shown.endswith("\n\rfile 2.0 MB")


def test_the_bar_fits_the_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    for columns in (200, 40, 24, 5):
        monkeypatch.setenv("COLUMNS", str(columns))
        show_progress("file", 5_000_000, 10_000_000)
        shown = capsys.readouterr().err.lstrip("\r")
        assert len(shown) < max(columns, len("file 5.0 MB of 10.0 MB") + 1)
        assert ("#" in shown) == (columns > 25)
    monkeypatch.setattr("sys.stderr", None)
    show_progress("file", 5_000_000, 10_000_000)


# A process of its own on a terminal of its own, which fetches a dataset from a server.
_FETCHING = """
import signal
import sys
from dataclasses import replace
from conenmf.datasets import DATASETS, Download, load

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
url, sha256 = sys.argv[1:]
DATASETS["tr11"] = replace(DATASETS["tr11"], downloads=(Download(url, 10**7),), sha256=sha256)
print("verified", load("tr11", download=True).verified)
"""


class _OnTerminal:
    """Fetch on a terminal; what is shown there."""

    def __init__(self, url, sha256, cache):
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _FETCHING, url, sha256],
            env={**os.environ, "XDG_CACHE_HOME": str(cache), "COLUMNS": "100"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = ""

    def read(self, until=None):
        """Read to the end, or until something is shown."""
        while until is None or until not in self.shown:
            try:
                more = os.read(self._ours, 4096)
            except OSError:  # how a terminal ends
                more = b""
            if not more:
                break
            self.shown += more.decode()
        if until is None:
            os.close(self._ours)
            self.process.wait(60)
        return self.shown


needs_terminals = pytest.mark.skipif(pty is None, reason="there are no terminals here")


@needs_terminals
@pytest.mark.parametrize("file", ["d.tar.gz", "endless.tar.gz"])
def test_a_download_on_a_terminal(server, tmp_path, rng, file):
    X, labels = counts(rng)
    server.files[f"/{file}"] = content = cluto_archive(X, labels)
    terminal = _OnTerminal(f"{server.url}/{file}", fingerprint(X, labels), tmp_path)
    lines = terminal.read().splitlines()
    assert terminal.process.returncode == 0, terminal.shown
    assert lines[-1] == "verified True"
    size = f"{len(content) / 1e6:.1f} MB"
    assert f"\r{file} [{'#' * 30}] {size} of {size}\r\nverified True" in terminal.shown


@needs_terminals
def test_ctrl_c_on_a_terminal(server, tmp_path):
    server.files["/stalls.tar.gz"] = b"x" * 300_000
    terminal = _OnTerminal(f"{server.url}/stalls.tar.gz", "0" * 64, tmp_path)
    terminal.read(until="0.3 MB of")
    os.kill(terminal.process.pid, signal.SIGINT)
    shown = terminal.read()
    server.stalled.set()
    assert terminal.process.returncode != 0
    assert shown.splitlines()[-1] == "KeyboardInterrupt"
    assert "MB\r\nTraceback" in shown  # not behind the bar
    assert nothing_is_left(tmp_path / "conenmf" / "datasets")


@needs_terminals
def test_a_download_that_is_cut_off_on_a_terminal(server, tmp_path):
    server.files["/cut.tar.gz"] = b"x" * 300_000
    terminal = _OnTerminal(f"{server.url}/cut.tar.gz", "0" * 64, tmp_path)
    shown = terminal.read()
    assert "MB\r\nTraceback" in shown
    assert "DatasetError" in shown
    assert nothing_is_left(tmp_path / "conenmf" / "datasets")


def test_the_cache_that_cannot_be_written(cache, monkeypatch, server, rng):
    cache.write_text("a file in its place")
    offer(server, monkeypatch, "tr11", {"d.tar.gz": cluto_archive(*counts(rng))})
    with pytest.raises(DatasetError, match="cannot be written to"):
        load("tr11", download=True)


def test_weighted_texts_suit_scikit_learn():
    counts = sp.csr_array(np.array([[2, 1, 0], [2, 0, 3]]))
    counts.indices, counts.indptr = counts.indices.astype(np.int64), counts.indptr.astype(np.int64)
    weighted = tf_idf(counts)
    assert weighted.indices.dtype == weighted.indptr.dtype == np.int32
