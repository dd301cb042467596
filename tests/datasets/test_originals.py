"""Folders of datasets, with official files or prepared ones, whole and damaged."""

import numpy as np
import pytest
import scipy.io
from PIL import Image
from tests.datasets.files import cluto, counts, place

from conenmf.datasets import fingerprint, load
from conenmf.errors import ConeNMFError, DataError, FileFormatError

# Most datasets here are smaller than those of the same name; other tests look for this warning.
pytestmark = pytest.mark.filterwarnings("ignore::conenmf.errors.InputWarning")


def test_nothing_is_unpickled(folder, rng, refuses):
    class Mine:
        def __reduce__(self):
            return (pytest.fail, ("it was unpickled",))

    X, _ = counts(rng)
    place(folder, "tr11", X)
    np.save(folder / "tr11" / "labels.npy", np.array([Mine()], object), allow_pickle=True)
    refuses(FileFormatError, "damaged", lambda: load("tr11"))
    (folder / "tr23").mkdir()
    np.savez(folder / "tr23" / "V.npz", V=np.array([[Mine()]], object))
    refuses(ConeNMFError, None, lambda: load("tr23"))


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


def paint(path, image, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path, **options)


def test_images_of_an_official_archive(folder, rng, small):
    small("orl_112x92", image_shape=(4, 3))
    for person in (1, 2, 10):
        for number in (1, 2, 10):
            image = np.full((4, 3), 20 * person + number, np.uint8)
            paint(folder / "orl_112x92" / f"s{person}" / f"{number}.pgm", image)
    orl = load("orl_112x92")
    np.testing.assert_array_equal(orl.X[:, 0], [21, 22, 30, 41, 42, 50, 201, 202, 210])
    np.testing.assert_array_equal(orl.labels, np.repeat([0, 1, 2], 3))
    assert orl.names.sample(8) == "s10/10.pgm"


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
def test_images_stored_as_a_matrix(folder, rng, name, file, scale, dtype, refuses):
    images = rng.integers(0, 256, (4, 32, 32)) / scale
    (folder / name).mkdir()
    vectors = images.transpose(0, 2, 1).reshape(4, -1)
    scipy.io.savemat(folder / name / file, {"fea": vectors, "gnd": [[1], [1], [2], [2]]})
    loaded = load(name)
    assert loaded.X.dtype == dtype
    np.testing.assert_array_equal(loaded.X, images.reshape(4, -1).astype(dtype))
    np.testing.assert_array_equal(loaded.labels, [1, 1, 2, 2])
    scipy.io.savemat(folder / name / file, {"fea": vectors, "gnd": [[1], [2]]})
    refuses(DataError, "2 labels in .* for 4 samples", lambda: load(name))


def test_frames_are_shrunk_with_a_filter_that_sees_every_pixel(folder):
    stripes = np.zeros((480, 640), np.uint8)
    stripes[:, ::2] = 200
    paint(folder / "georgia_tech" / "s01" / "01.png", stripes)
    X = load("georgia_tech").X.astype(float).reshape(49, 64)
    np.testing.assert_allclose(X[:, 2:-2], 100, atol=3)


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("dtype", ["uint16", "float64"])
def test_scenes_of_matlab(folder, rng, compressed, dtype, small):
    cube = rng.integers(1, 8000, (6, 5, 4), np.uint16)
    classes = rng.integers(0, 10, (6, 5), np.uint8)
    digest = fingerprint(cube.reshape(-1, 4), classes.ravel())
    small("paviau", sha256=digest, image_shape=(6, 5), shape=(30, 4))
    (folder / "paviau").mkdir()
    saved = {"do_compression": compressed}
    scipy.io.savemat(folder / "paviau" / "PaviaU.mat", {"paviaU": cube.astype(dtype)}, **saved)
    assert not load("paviau").verified
    scipy.io.savemat(folder / "paviau" / "PaviaU_gt.mat", {"paviaU_gt": classes}, **saved)
    pavia = load("paviau")
    np.testing.assert_array_equal(pavia.X, cube.reshape(30, 4))
    np.testing.assert_array_equal(pavia.labels, classes.ravel())
    assert pavia.verified
    assert load("paviau", samples_are="bands").X.shape == (4, 30)
