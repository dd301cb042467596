"""Saved results: every field comes back, and every damage is named."""

import json
import os
import tracemalloc
from dataclasses import replace

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
    names = "W H labels objective relative_error loss stop_reason seconds passes settings"
    for name in names.split():
        np.testing.assert_array_equal(getattr(back, name), getattr(result, name))
    for name in ("relative_error", "elapsed", "passes"):
        assert np.array_equal(getattr(back.history, name), getattr(result.history, name))
    assert back.stop_reason is StopReason.MAX_ITER
    assert back.K_decided_by.startswith("4 to 6 components, supported")
    assert back.init_used == "nndsvd"
    assert os.listdir(tmp_path) == ["result.npz"]
    with np.load(tmp_path / "result.npz", allow_pickle=False) as stored:
        assert json.loads(str(stored["facts"]))["format"] == "conenmf-factorization-12"


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


@pytest.fixture
def path(tmp_path, cones):
    """A file with a result."""
    factorize(from_columns(cones), 4, max_iter=1).save(tmp_path / "result.npz")
    return tmp_path / "result.npz"


def test_a_changed_header_of_an_array_is_noticed(path, refuses):
    """NumPy would read fewer numbers, and never come to the checksum at the end."""
    content = path.read_bytes()
    assert b"(4, 300)" in content
    path.write_bytes(content.replace(b"(4, 300)", b"(3, 300)", 1))
    refuses(FileFormatError, "Bad CRC-32", Factorization.load, path)


@pytest.mark.parametrize(
    "damage", [lambda whole: b"", lambda whole: b"no zip", lambda whole: whole[: len(whole) // 2]]
)
def test_damaged_files_are_refused(path, damage, refuses):
    path.write_bytes(damage(path.read_bytes()))
    message = "result.npz is not a factorization .*not a zip file"
    refuses(FileFormatError, message, Factorization.load, path)


def test_foreign_files_are_refused(tmp_path, refuses):
    np.savez(tmp_path / "other.npz", W=np.ones((2, 2)))
    message = "other.npz is not a factorization .*no conenmf metadata found"
    refuses(FileFormatError, message, Factorization.load, tmp_path / "other.npz")


def test_nothing_is_inflated(tmp_path, refuses):
    """Zeros shrink a thousandfold, so a small file could take all memory."""
    np.savez_compressed(tmp_path / "bomb.npz", W=np.zeros((1 << 12, 1 << 12)))
    tracemalloc.start()
    refuses(FileFormatError, "compressed", Factorization.load, tmp_path / "bomb.npz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 24  # an eighth of the zeros


@pytest.mark.parametrize("version", ["conenmf-factorization-2", "conenmf-factorization-13"])
def test_older_and_newer_formats_are_refused(path, version, refuses):
    with np.load(path) as stored:
        parts = dict(stored)
    facts = json.loads(str(parts["facts"])) | {"format": version}
    np.savez(path, **{**parts, "facts": np.array(json.dumps(facts))})
    message = f"result.npz has format '{version}', this .*-12'"
    refuses(FileFormatError, message, Factorization.load, path)


def test_names_certificates_and_diagnoses_are_saved(reloaded, named):
    assert reloaded(named).names == named.names
    assert reloaded(named).certify() == named.first_certificate
    certificate = named.certify()
    assert reloaded(named).certificate == certificate
    diagnosis = named.diagnose()
    back = reloaded(named)
    assert back.summary() == named.summary()
    for name, array in arrays_of(diagnosis, "").items():
        np.testing.assert_array_equal(arrays_of(back.diagnosis, "")[name], array)
    assert back.diagnosis.details.cones.geometry.closest == diagnosis.details.cones.geometry.closest
    images = replace(named, names=Names(image_shape=(8, 10)))
    assert reloaded(images).names.image_shape == (8, 10)
