"""Where datasets are looked for, and how they get into the cache."""

import io
import shutil
import sys
import zipfile

import numpy as np
import pytest
import scipy.io
from PIL import Image

from conenmf.datasets import DATASETS, available, fingerprint, load
from conenmf.datasets.dataset import package_file
from conenmf.errors import ConeNMFError, DatasetError

# Most datasets here are smaller than those of the same name; other tests look for this warning.
pytestmark = [
    pytest.mark.filterwarnings("ignore::conenmf.errors.InputWarning"),
    # requests leaves the socket of a broken download to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize("name", [name for name in DATASETS if name != "digits"])
@pytest.mark.parametrize("named", [True, False])
def test_a_missing_dataset_says_where_to_get_it(name, named, tmp_path, monkeypatch):
    if named:
        monkeypatch.setenv("CONENMF_DATA", str(tmp_path / "mine"))
    with pytest.raises(DatasetError, match="is not in") as caught:
        load(name)
    message = str(caught.value)
    assert DATASETS[name].source in message
    assert DATASETS[name].licence in message
    assert str(tmp_path / ("mine" if named else "cache") / name) in message
    assert ("download=True" in message) == bool(DATASETS[name].downloads)
    assert isinstance(caught.value, OSError)
    assert isinstance(caught.value, ConeNMFError)


def test_what_has_no_address_is_not_fetched():
    with pytest.raises(DatasetError, match="no direct address"):
        load("ck", download=True)


def test_the_named_folder_comes_first_then_the_cache(folder, cache, rng, place, counts):
    place(cache, "tr11", *counts(rng, 7))
    assert load("tr11").X.shape[0] == 7
    place(folder, "tr11", *counts(rng, 8))
    assert load("tr11").X.shape[0] == 8


def test_the_home_of_the_user(rng, tmp_path, monkeypatch, place, counts):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("CONENMF_DATA", "~/mine")
    place(tmp_path / "mine", "tr11", *counts(rng))
    assert load("tr11").X.shape == (6, 9)


def test_without_pooch_there_is_no_cache(monkeypatch):
    monkeypatch.undo()
    monkeypatch.delenv("CONENMF_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert "digits" in available()
    with pytest.raises(DatasetError, match=r"\$CONENMF_DATA.tr11"):
        load("tr11")
    with pytest.raises(DatasetError, match=r"needs pooch: pip install 'conenmf\[datasets\]'"):
        load("tr11", download=True)


def test_a_package_without_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("conenmf.datasets.dataset.package_file", package_file)
    (tmp_path / "site" / "scanpy").mkdir(parents=True)
    monkeypatch.delitem(sys.modules, "scanpy", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    with pytest.raises(DatasetError, match="pip install scanpy"):
        load("pbmc68k_reduced")
    assert "pbmc68k_reduced" not in available()


def test_a_download_stays_in_the_cache(server, cache, rng, counts, cluto_archive, offer):
    X, labels = counts(rng)
    files = {"datasets.tar.gz": cluto_archive(X, labels)}
    offer("tr11", files, sha256=fingerprint(X, labels))
    with pytest.raises(DatasetError, match="is not in"):
        load("tr11")
    assert server.asked == []
    tr11 = load("tr11", weights="counts", download=True)
    np.testing.assert_array_equal(tr11.X.toarray(), X.toarray())
    assert tr11.verified
    files = sorted(path.name for path in cache.rglob("*") if path.is_file())
    assert files == ["other.mat", "tr11.mat", "tr11.mat.rclass"]
    assert load("tr11", download=True).verified
    assert len(server.asked) == 1
    assert available() == ["tr11", "digits"]


def test_scenes_are_fetched_in_two_files(rng, scene, offer):
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
    offer("paviau", files, sha256=part, window=(0, 3, 0, 5), **shapes)
    assert load("paviau", samples_are="bands", download=True).verified


def test_images_are_fetched_in_an_archive(offer):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for person in ("s01", "s02"):
            Image.fromarray(np.full((49, 64), 7, np.uint8)).save(image := io.BytesIO(), "png")
            archive.writestr(f"gt_db/{person}/01.png", image.getvalue())
        archive.writestr("gt_db/readme.txt", "of no use")
        archive.writestr("__MACOSX/gt_db/s01/._01.png", "of no use either")
    files = {"gt_db.zip": packed.getvalue()}
    offer("georgia_tech", files, known=True, shape=(2, 3136), K=3)
    with pytest.raises(DatasetError, match="files fetched are not those of"):  # a person is missing
        load("georgia_tech", download=True)
    offer("georgia_tech", files, known=True, K=2)
    frames = load("georgia_tech", download=True)
    assert frames.classes == ("gt_db/s01", "gt_db/s02")
    np.testing.assert_array_equal(frames.labels, [0, 1])
    assert not frames.verified


def test_other_numbers_than_expected_are_not_kept(cache, rng, counts, tar, cluto_archive, offer):
    X, labels = counts(rng)
    offer("tr11", {"d.tar.gz": cluto_archive(X, labels)})
    with pytest.raises(DatasetError, match="files fetched are not those of"):
        load("tr11", download=True)
    offer("tr11", {"d.tar.gz": cluto_archive(X, labels, "tr12")})
    with pytest.raises(DatasetError, match="files fetched are not those of"):
        load("tr11", download=True)
    offer("tr11", {"d.tar.gz": tar({"tr11.mat": b"1 1 1\n7 7\n"})})
    with pytest.raises(DatasetError, match="outside 1 to"):
        load("tr11", download=True)
    assert list(cache.glob("*")) == []


@pytest.mark.parametrize(
    ("file", "content", "match"),
    [
        ("cut.tar.gz", b"x" * 100_000, "could not be fetched"),
        ("d.tar.gz", b"no archive", "could not be fetched"),
        ("d.zip", b"no archive", "could not be fetched"),
        ("missing.tar.gz", None, "404"),
    ],
)
def test_a_failed_download_leaves_nothing(cache, file, content, match, offer):
    offer("tr11", {file: content})
    with pytest.raises(DatasetError, match=match):
        load("tr11", download=True)
    assert list(cache.glob("*")) == []


def test_a_member_that_leads_out_of_the_archive_is_refused(cache, tmp_path, tar, offer):
    offer("tr11", {"d.tar.gz": tar({"../../../outside.mat": b"no"})})
    with pytest.raises(DatasetError, match="outside"):
        load("tr11", download=True)
    assert list(tmp_path.rglob("outside.mat")) == []


def test_a_file_with_another_checksum_is_refused(cache, rng, counts, cluto_archive, offer, small):
    X, labels = counts(rng)
    archive = cluto_archive(X, labels)
    offer("tr11", {"d.tar.gz": archive}, known=True, sha256=fingerprint(X, labels))
    assert load("tr11", download=True).verified
    shutil.rmtree(cache / "tr11")
    small("tr11", download_sha256="0" * 64)
    with pytest.raises(DatasetError, match="hash"):
        load("tr11", download=True)


def test_an_obstacle_is_reported_before_anything_is_fetched(
    server, cache, rng, counts, cluto_archive, offer
):
    X, labels = counts(rng)
    files = {"d.tar.gz": cluto_archive(X, labels)}
    offer("tr11", files, sha256=fingerprint(X, labels))
    (cache / "tr11").mkdir(parents=True)
    (cache / "tr11" / "notes.txt").write_text("mine")
    with pytest.raises(DatasetError, match="exists but does not hold"):
        load("tr11", download=True)
    assert server.asked == []
    assert (cache / "tr11" / "notes.txt").read_text() == "mine"
    (cache / "tr11" / "notes.txt").unlink()
    assert load("tr11", download=True).verified  # an empty folder is no obstacle
    assert [path.name for path in cache.iterdir()] == ["tr11"]


def test_jpeg_may_be_decoded_otherwise(rng, warned, offer):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for person in ("female/anpage", "female/gotone", "male/cjsake"):
            image = Image.fromarray(rng.integers(0, 256, (2, 2, 3), np.uint8))
            image.save(content := io.BytesIO(), "jpeg")
            archive.writestr(f"faces94/{person}/{person[-6:]}.1.jpg", content.getvalue())
    files = {"faces94.zip": packed.getvalue()}
    offer("faces94", files, known=True, image_shape=(2, 2), shape=(2, 4), K=2)
    assert not load("faces94", download=True).verified
    assert "JPEG" in warned("faces94")[0]


def test_the_cache_that_cannot_be_written(cache, rng, counts, cluto_archive, offer):
    cache.write_text("a file in its place")
    offer("tr11", {"d.tar.gz": cluto_archive(*counts(rng))})
    with pytest.raises(DatasetError, match="cannot be stored in"):
        load("tr11", download=True)
