"""Where datasets are looked for, and how they get into the cache."""

import io
import shutil
import sys
import zipfile

import numpy as np
import pytest
from PIL import Image
from tests.datasets.files import cluto_archive, counts, place, tar

from conenmf.datasets import DATASETS, available, fingerprint, load
from conenmf.errors import ConeNMFError, ReadError

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
    with pytest.raises(ReadError, match="is not in") as caught:
        load(name)
    message = str(caught.value)
    place = tmp_path / ("mine" if named else "cache") / name
    for part in (DATASETS[name].source, DATASETS[name].licence, str(place)):
        assert part in message
    assert ("download=True" in message) == bool(DATASETS[name].downloads)
    assert isinstance(caught.value, OSError)
    assert isinstance(caught.value, ConeNMFError)


def test_the_named_folder_comes_first_then_the_cache(folder, cache, rng):
    place(cache, "tr11", *counts(rng, 7))
    assert load("tr11").X.shape[0] == 7
    place(folder, "tr11", *counts(rng, 8))
    assert load("tr11").X.shape[0] == 8


def test_without_pooch_there_is_no_cache(monkeypatch, refuses):
    monkeypatch.undo()
    monkeypatch.delenv("CONENMF_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert "digits" in available()
    refuses(ReadError, r"\$CONENMF_DATA.tr11", lambda: load("tr11"))
    message = r"needs pooch: pip install 'conenmf\[datasets\]'"
    refuses(ReadError, message, lambda: load("tr11", download=True))


def test_a_download_stays_in_the_cache(server, cache, rng, offer, refuses):
    X, labels = counts(rng)
    files = {"datasets.tar.gz": cluto_archive(X, labels)}
    offer("tr11", files, sha256=fingerprint(X, labels))
    refuses(ReadError, "is not in", lambda: load("tr11"))
    assert server.asked == []
    tr11 = load("tr11", weights="counts", download=True)
    np.testing.assert_array_equal(tr11.X.toarray(), X.toarray())
    assert tr11.verified
    files = sorted(path.name for path in cache.rglob("*") if path.is_file())
    assert files == ["other.mat", "tr11.mat", "tr11.mat.rclass"]
    assert load("tr11", download=True).verified
    assert len(server.asked) == 1
    assert available() == ["tr11", "digits"]


def test_images_are_fetched_in_an_archive(offer, refuses):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for person in ("s01", "s02"):
            Image.fromarray(np.full((49, 64), 7, np.uint8)).save(image := io.BytesIO(), "png")
            archive.writestr(f"gt_db/{person}/01.png", image.getvalue())
        archive.writestr("gt_db/readme.txt", "of no use")
        archive.writestr("__MACOSX/gt_db/s01/._01.png", "of no use either")
    files = {"gt_db.zip": packed.getvalue()}
    offer("georgia_tech", files, known=True, shape=(2, 3136), K=3)
    # a person is missing
    refuses(ReadError, "files fetched are not", lambda: load("georgia_tech", download=True))
    offer("georgia_tech", files, known=True, K=2)
    frames = load("georgia_tech", download=True)
    assert frames.classes == ("gt_db/s01", "gt_db/s02")
    assert (frames.labels.tolist(), frames.verified) == ([0, 1], False)


def test_other_numbers_than_expected_are_not_kept(cache, rng, offer, refuses):
    X, labels = counts(rng)
    for archive, message in (
        (cluto_archive(X, labels), "files fetched are not those of"),
        (cluto_archive(X, labels, "tr12"), "files fetched are not those of"),
        (tar({"tr11.mat": b"1 1 1\n7 7\n"}), "damaged"),
    ):
        offer("tr11", {"d.tar.gz": archive})
        refuses(ReadError, message, lambda: load("tr11", download=True))
    assert list(cache.glob("*")) == []


def test_a_member_that_leads_out_of_the_archive_is_refused(cache, tmp_path, offer, refuses):
    offer("tr11", {"d.tar.gz": tar({"../../../outside.mat": b"no"})})
    refuses(ReadError, "outside", lambda: load("tr11", download=True))
    assert list(tmp_path.rglob("outside.mat")) == []


def test_a_file_with_another_checksum_is_refused(cache, rng, offer, small, refuses):
    X, labels = counts(rng)
    archive = cluto_archive(X, labels)
    offer("tr11", {"d.tar.gz": archive}, known=True, sha256=fingerprint(X, labels))
    assert load("tr11", download=True).verified
    shutil.rmtree(cache / "tr11")
    small("tr11", download_sha256="0" * 64)
    refuses(ReadError, "hash", lambda: load("tr11", download=True))
