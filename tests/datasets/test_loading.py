"""Options, preprocessing and warnings of `load`."""

import numpy as np
import pytest
import scipy.sparse as sp
from tests.datasets.files import counts, place

from conenmf import from_rows
from conenmf.datasets import DATASETS, available, fingerprint, load, tf_idf

# Most datasets here are smaller than those of the same name; other tests look for this warning.
pytestmark = pytest.mark.filterwarnings("ignore::conenmf.errors.InputWarning")


def test_digits_come_with_scikit_learn():
    digits = load("digits")
    assert (digits.verified, digits.labels.shape) == (True, (1797,))
    assert digits.names.image_shape == digits.image_shape == (8, 8)
    assert available() == ["digits"]
    assert "array" not in repr(digits)


def test_text_is_weighted_as_in_the_paper(folder, rng):
    X, labels = counts(rng)
    place(folder, "tr11", X, labels)
    tr11 = load("tr11")
    np.testing.assert_array_equal(tr11.X.toarray(), tf_idf(X).toarray())
    np.testing.assert_array_equal(tr11.labels, labels)
    np.testing.assert_array_equal(load("tr11", weights="counts").X.toarray(), X.toarray())
    assert (tr11.K, tr11.image_shape, tr11.verified) == (9, None, False)
    assert from_rows(tr11.X).shape == (9, 6)
    assert available() == ["tr11", "digits"]


def test_images_are_upright(folder, rng):
    images = rng.integers(0, 256, (5, 32, 32), np.uint8)
    place(folder, "yale_32x32", images.transpose(0, 2, 1).reshape(5, -1), range(5))
    place(folder, "georgia_tech_crop", np.ones((3, 49 * 64), np.uint8))
    yale = load("yale_32x32")
    np.testing.assert_array_equal(yale.X, images.reshape(5, -1))
    assert yale.names.image_shape == yale.image_shape == (32, 32)
    assert load("georgia_tech_crop").labels is None


def test_pixels_or_bands_are_the_samples(folder, rng, small):
    small("paviau_subset", image_shape=(3, 4))
    X = rng.integers(0, 9000, (12, 5), np.uint16)
    place(folder, "paviau_subset", X, range(12))
    pixels, bands = load("paviau_subset"), load("paviau_subset", samples_are="bands")
    np.testing.assert_array_equal(pixels.X, X)
    assert pixels.names.feature_names == bands.names.sample_names
    assert bands.names.sample_names == tuple(f"band {n}" for n in range(1, 6))
    assert pixels.names.image_shape is None
    assert bands.names.image_shape == pixels.image_shape == (3, 4)
    np.testing.assert_array_equal(bands.X, X.T)
    assert bands.labels is None
    assert bands.X.flags.c_contiguous


def test_one_changed_number_gives_a_warning(folder, rng, small, warned):
    X, labels = counts(rng)
    place(folder, "tr11", X, labels)
    small("tr11", shape=X.shape, K=3, sha256=fingerprint(X, labels))
    assert warned("tr11") == []
    X.data[3] += 1
    sp.save_npz(folder / "tr11" / "V.npz", X)
    (message,) = warned("tr11")
    assert f"tr11 in {folder / 'tr11'} holds other numbers or classes" in message
    assert DATASETS["tr11"].source in message
    small("tr11", sha256=fingerprint(X, np.sort(labels)))
    assert "other numbers or classes" in warned("tr11")[0]
    small("tr11", shape=(414, 6429), K=9)
    assert "holds (6, 9) numbers in 3 classes, expected (414, 6429) in 9" in warned("tr11")[0]
    (folder / "tr11" / "labels.npy").unlink()
    assert "in 0 classes" in warned("tr11")[0]
