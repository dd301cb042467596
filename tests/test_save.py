import json
import os

import numpy as np
import pytest

from conenmf import Factorization, factorize, from_columns
from conenmf.errors import FileFormatError
from conenmf.names import Names
from conenmf.scale.checkpoint import arrays_of
from conenmf.solve.run import StopReason


def test_save_and_load(tmp_path, cones):
    result = factorize(from_columns(cones), max_iter=5)
    result.save(tmp_path / "result.npz")
    back = Factorization.load(tmp_path / "result.npz")
    for name in ("W", "H", "labels"):
        assert np.array_equal(getattr(back, name), getattr(result, name))
    for name in (
        "objective",
        "relative_error",
        "loss",
        "stop_reason",
        "seconds",
        "passes",
        "settings",
    ):
        assert getattr(back, name) == getattr(result, name)
    for name in ("relative_error", "elapsed", "passes"):
        assert np.array_equal(getattr(back.history, name), getattr(result.history, name))
    assert back.stop_reason is StopReason.MAX_ITER
    assert back.K_decided_by.startswith("4 components, proved")
    assert back.init_used == "nndsvd"
    assert os.listdir(tmp_path) == ["result.npz"]
    with np.load(tmp_path / "result.npz", allow_pickle=False) as stored:
        assert json.loads(str(stored["facts"]))["format"] == "conenmf-factorization-8"


def test_any_damage_is_named(tmp_path, cones, rng):
    target = tmp_path / "result.npz"
    factorize(from_columns(cones[:, :20]), 2, max_iter=1).save(target)
    whole = bytearray(target.read_bytes())
    refused = 0
    for _ in range(200):
        broken = whole.copy()
        for place in rng.integers(0, len(whole), 3):
            broken[place] ^= int(rng.integers(1, 256))
        target.write_bytes(broken)
        try:
            Factorization.load(target)
        except FileFormatError:
            refused += 1
    assert refused > 150


def test_a_changed_header_of_an_array_is_noticed(tmp_path, cones):
    """NumPy would read fewer numbers, and never come to the checksum at the end."""
    target = tmp_path / "result.npz"
    factorize(from_columns(cones), 4, max_iter=1).save(target)
    content = target.read_bytes()
    assert b"(4, 300)" in content
    target.write_bytes(content.replace(b"(4, 300)", b"(3, 300)", 1))
    with pytest.raises(FileFormatError, match="Bad CRC-32"):
        Factorization.load(target)


def test_damaged_and_foreign_files(tmp_path, cones):
    target = tmp_path / "result.npz"
    factorize(from_columns(cones), max_iter=1).save(target)
    whole = target.read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.npz").write_text("not a zip")
    (tmp_path / "empty.npz").write_bytes(b"")
    np.savez(tmp_path / "other.npz", W=np.ones((2, 2)))
    np.save(tmp_path / "pickle.npy", np.array([{}], dtype=object), allow_pickle=True)
    for name, message in (
        ("cut.npz", "not a zip file"),
        ("text.npz", "not a zip file"),
        ("empty.npz", "not a zip file"),
        ("other.npz", "no conenmf metadata found"),
        ("pickle.npy", "not a zip file"),
    ):
        with pytest.raises(FileFormatError, match=f"{name} is not a factorization .*{message}"):
            Factorization.load(tmp_path / name)
    for version in ("conenmf-factorization-2", "conenmf-factorization-9"):  # older, newer
        with np.load(target) as stored:
            parts = {name: stored[name] for name in stored.files}
        facts = json.loads(str(parts["facts"])) | {"format": version}
        np.savez(tmp_path / "version.npz", **{**parts, "facts": np.array(json.dumps(facts))})
        with pytest.raises(
            FileFormatError, match=f"version.npz has format '{version}', this .*-8'"
        ):
            Factorization.load(tmp_path / "version.npz")


def test_names_and_what_is_known_are_saved(tmp_path, named, cones):
    target = tmp_path / "result.npz"
    named.save(target)
    assert Factorization.load(target).names == named.names
    assert Factorization.load(target).certify() == named.first_certificate
    certificate = named.certify()
    named.save(target)
    assert Factorization.load(target).certificate == certificate
    diagnosis = named.diagnose()
    named.save(target)
    back = Factorization.load(target)
    assert back.summary() == named.summary()
    for name, array in arrays_of(diagnosis, "").items():
        np.testing.assert_array_equal(arrays_of(back.diagnosis, "")[name], array)
    assert back.diagnosis.cones.geometry.closest == diagnosis.cones.geometry.closest
    images = factorize(from_columns(cones), 2, max_iter=1)
    images = Factorization(**{**vars(images), "names": Names(image_shape=(8, 10))})
    images.save(target)
    assert Factorization.load(target).names.image_shape == (8, 10)
