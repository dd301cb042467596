"""Folders of datasets, with official files or prepared ones, whole and damaged."""

import numpy as np
import pytest
import scipy.io
from PIL import Image

from conenmf.datasets import fingerprint, load
from conenmf.errors import ConeNMFError, DatasetError, FileFormatError

# Most datasets here are smaller than those of the same name; other tests look for this warning.
pytestmark = pytest.mark.filterwarnings("ignore::conenmf.errors.InputWarning")


def test_labels_have_to_fit(folder, rng, place, counts):
    X, labels = counts(rng)
    place(folder, "tr11", X, labels[:4])
    with pytest.raises(FileFormatError, match="6 samples and 4 labels"):
        load("tr11")
    np.save(folder / "tr11" / "labels.npy", labels.astype(float))
    with pytest.raises(FileFormatError, match="float64 of shape"):
        load("tr11")


def test_nothing_is_unpickled(folder, rng, place, counts):
    class Mine:
        def __reduce__(self):
            return (pytest.fail, ("it was unpickled",))

    X, _ = counts(rng)
    place(folder, "tr11", X)
    np.save(folder / "tr11" / "labels.npy", np.array([Mine()], object), allow_pickle=True)
    with pytest.raises(FileFormatError, match="damaged"):
        load("tr11")
    (folder / "tr23").mkdir()
    np.savez(folder / "tr23" / "V.npz", V=np.array([[Mine()]], object))
    with pytest.raises(ConeNMFError):
        load("tr23")


def test_a_file_that_is_cut_off(folder, rng, place, counts):
    X, labels = counts(rng)
    place(folder, "tr11", X, labels)
    for name in ("labels.npy", "V.npz"):
        path = folder / "tr11" / name
        path.write_bytes(path.read_bytes()[:-5])
        with pytest.raises(FileFormatError, match="damaged"):
            load("tr11")


def test_the_text_of_cluto(folder, rng, counts, cluto):
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
        ("2 3 2\n1 1\n", "claims 2 counts of 3 terms in 2 documents and holds 1 in 1"),
        ("1 3 1\n4 1\n", "a term outside 1 to 3"),
        ("1 3 1\n0 1\n", "a term outside 1 to 3"),
        ("1 3 1\n1 0.5\n", "a count that is not whole"),
        ("1 3 1\n1 -2\n", "a count that is not whole"),
        ("1 3 1\n1 nan\n", "a count that is not whole"),
        ("1 3 1\n1 2 3\n", "copy it again"),
        ("1 3 1\none 2\n", "damaged"),
        ("", "damaged"),
        ("1 3\n", "damaged"),
        ("1 3 1\n1 2\n1 2\n", "in 1 documents and holds 2 in 2"),
        ("1 3 1\n1 inf\n", "a count that is not whole"),
        ("1 3 1\n1 1e300\n", "a count that is not whole"),
        ("1 3 99999\n1 2\n", "claims .* and holds"),
        ("1 3 -1\n1 2\n", "claims .* and holds"),
        ("1 999999999999 1\n1 2\n", "claims .* and holds"),
        ("999999999999 3 1\n1 2\n", "claims .* and holds"),
        ("-1 3 1\n1 2\n", "claims .* and holds"),
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


def test_faces94_is_without_the_folder_of_copies(folder, small):
    small("faces94", image_shape=(2, 2))
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
def test_an_image_without_a_class(folder, name, file, match):
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
def test_images_stored_as_a_matrix(folder, rng, name, file, scale, dtype):
    images = rng.integers(0, 256, (4, 32, 32)) / scale
    (folder / name).mkdir()
    vectors = images.transpose(0, 2, 1).reshape(4, -1)
    scipy.io.savemat(folder / name / file, {"fea": vectors, "gnd": [[1], [1], [2], [2]]})
    loaded = load(name)
    assert loaded.X.dtype == dtype
    np.testing.assert_array_equal(loaded.X, images.reshape(4, -1).astype(dtype))
    np.testing.assert_array_equal(loaded.labels, [1, 1, 2, 2])
    scipy.io.savemat(folder / name / file, {"fea": vectors, "gnd": [[1], [2]]})
    with pytest.raises(FileFormatError, match=r"classes of shape \(2, 1\), expected one class"):
        load(name)


def test_frames_are_shrunk_with_a_filter_that_sees_every_pixel(folder):
    stripes = np.zeros((480, 640), np.uint8)
    stripes[:, ::2] = 200
    paint(folder / "georgia_tech" / "s01" / "01.png", stripes)
    X = load("georgia_tech").X.astype(float).reshape(49, 64)
    np.testing.assert_allclose(X[:, 2:-2], 100, atol=3)


def test_damaged_images(folder):
    (folder / "ck" / "S010" / "001").mkdir(parents=True)
    with pytest.raises(DatasetError, match="is not in"):
        load("ck")
    (folder / "ck" / "S010" / "001" / "a.png").write_bytes(b"not an image")
    with pytest.raises(FileFormatError, match=r"damaged file: .*a\.png"):
        load("ck")


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("dtype", ["uint16", "float64"])
def test_scenes_of_matlab(folder, rng, compressed, dtype, small, scene):
    cube, classes = scene(rng)
    window = (1, 4, 2, 5)
    part = fingerprint(cube[1:4, 2:5].reshape(-1, 4), classes[1:4, 2:5].ravel())
    shapes = {"image_shape": (6, 5), "shape": (30, 4)}
    small("paviau", sha256=part, window=window, **shapes)
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
    small("paviau", window=(0, 3, 2, 5))
    assert not load("paviau").verified


@pytest.mark.parametrize(
    ("matrix", "match"),
    [
        ({"other": np.ones((2, 2, 2))}, "called 'paviaU'"),
        ({"paviaU": np.ones((2, 2))}, r"shape \(2, 2\), not"),
        ({"paviaU": {"cube": 1}}, "called 'paviaU'"),
    ],
)
def test_scenes_that_are_none(folder, matrix, match):
    (folder / "paviau").mkdir()
    scipy.io.savemat(folder / "paviau" / "PaviaU.mat", matrix)
    with pytest.raises(FileFormatError, match=match):
        load("paviau")


def test_classes_of_another_scene(folder, rng, scene):
    (folder / "paviau").mkdir()
    scipy.io.savemat(folder / "paviau" / "PaviaU.mat", {"paviaU": scene(rng)[0]})
    scipy.io.savemat(folder / "paviau" / "PaviaU_gt.mat", {"paviaU_gt": np.ones((5, 6))})
    with pytest.raises(FileFormatError, match=r"classes of shape \(5, 6\), expected one class"):
        load("paviau")


def test_a_scene_that_is_cut_off(folder, rng, scene):
    path = folder / "paviau" / "PaviaU.mat"
    path.parent.mkdir()
    scipy.io.savemat(path, {"paviaU": scene(rng)[0]})
    whole = path.read_bytes()
    for content in (whole[:-20], whole[:100], whole[:140], b"x" * 300):
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match="paviau has a damaged file"):
            load("paviau")


def test_more_classes_than_small_integers(folder):
    (folder / "wap").mkdir()
    (folder / "wap" / "wap.mat").write_text("40000 3 40000\n" + 40_000 * "1 1\n")
    topics = "".join(f"{n}\n" for n in range(40_000))
    (folder / "wap" / "wap.mat.rclass").write_text(topics)
    assert len(set(load("wap").labels.tolist())) == 40_000
