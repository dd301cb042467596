import json
import os
import zipfile

import numpy as np
import pytest

from conenmf import Factorization, factorize, from_columns
from conenmf.errors import FileFormatError, NotAvailableError, OutputError
from conenmf.names import Names
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
    assert (back.K_decided_by, back.init_used) == ("cones", "cr1")
    assert os.listdir(tmp_path) == ["result.npz"]
    with np.load(tmp_path / "result.npz", allow_pickle=False) as stored:
        assert json.loads(str(stored["facts"]))["format"] == "conenmf-factorization-4"


def test_numbers_of_numpy_can_be_saved(tmp_path, cones):
    result = factorize(from_columns(cones), np.int64(4), max_iter=np.int64(2), tol=np.float32(0))
    result.save(tmp_path / "result.npz")
    assert Factorization.load(tmp_path / "result.npz").settings == result.settings


def test_any_damage_is_named(tmp_path, cones):
    target = tmp_path / "result.npz"
    factorize(from_columns(cones[:, :20]), 2, max_iter=1).save(target)
    whole = bytearray(target.read_bytes())
    rng = np.random.default_rng(0)
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


def test_an_interrupted_save_leaves_the_old_file(tmp_path, cones, monkeypatch):
    result = factorize(from_columns(cones), max_iter=1)
    target = tmp_path / "result.npz"
    result.save(target)
    before = target.read_bytes()

    def full_disk(stream, array):
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("conenmf.data.saving.write_array", full_disk)
    with pytest.raises(
        OutputError,
        match=r"not enough disk space to write .*result.npz: free some.*the earlier one is intact",
    ):
        result.save(target)
    assert target.read_bytes() == before
    assert os.listdir(tmp_path) == ["result.npz"]


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
        ("cut.npz", "not a zip archive"),
        ("text.npz", "not a zip archive"),
        ("empty.npz", "not a zip archive"),
        ("other.npz", "no conenmf metadata found"),
        ("pickle.npy", "not a zip archive"),
    ):
        with pytest.raises(FileFormatError, match=f"{name} is not a factorisation .*{message}"):
            Factorization.load(tmp_path / name)
    for version in ("conenmf-factorization-2", "conenmf-factorization-9"):  # older, newer
        with np.load(target) as stored:
            parts = {name: stored[name] for name in stored.files}
        facts = json.loads(str(parts["facts"])) | {"format": version}
        np.savez(tmp_path / "version.npz", **{**parts, "facts": np.array(json.dumps(facts))})
        with pytest.raises(
            FileFormatError, match=f"version.npz has format '{version}', this .*-4'"
        ):
            Factorization.load(tmp_path / "version.npz")
    with pytest.raises(FileNotFoundError):
        Factorization.load(tmp_path / "missing.npz")
    with pytest.raises(OutputError, match="its folder does not exist"):
        Factorization.load(target).save(tmp_path / "nowhere" / "result.npz")


def test_names_and_what_is_known_are_saved(tmp_path, named, cones):
    target = tmp_path / "result.npz"
    named.save(target)
    assert Factorization.load(target).names == named.names
    assert Factorization.load(target).certify() == named.first_certificate
    with pytest.raises(NotAvailableError):
        Factorization.load(target).certify(effort=1)
    certificate = named.certify()
    named.save(target)
    assert Factorization.load(target).certificate == certificate
    diagnosis = named.diagnose()
    named.save(target)
    back = Factorization.load(target)
    assert back.summary() == named.summary()
    for name, array in diagnosis.arrays().items():
        np.testing.assert_array_equal(back.diagnosis.arrays()[name], array)
    assert back.diagnosis.cones.geometry.closest == diagnosis.cones.geometry.closest
    images = factorize(from_columns(cones), 2, max_iter=1)
    images = Factorization(**{**vars(images), "names": Names(image_shape=(8, 10))})
    images.save(target)
    assert Factorization.load(target).names.image_shape == (8, 10)


def test_a_file_that_unpacks_to_more_than_it_is_large_is_refused(tmp_path, cones):
    target, bomb = tmp_path / "result.npz", tmp_path / "bomb.npz"
    factorize(from_columns(cones), 4, max_iter=1).save(target)
    with zipfile.ZipFile(target) as plain, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as out:
        for info in plain.infolist():
            out.writestr(info.filename, plain.read(info))
    with pytest.raises(FileFormatError, match=r"bomb.npz .* its member 'W.npy' is compressed"):
        Factorization.load(bomb)


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("W", np.array([["a"]]), "W holds <U1"),
        ("W", -np.ones((40, 4)), "W holds negative or infinite numbers"),
        ("H", np.full((4, 300), np.inf), "H holds negative or infinite numbers"),
        ("labels", np.zeros(300), "labels holds float64"),
        ("sample_names", np.frombuffer(b"only one", np.uint8), "1 names for 300 samples"),
    ],
)
def test_parts_of_the_wrong_kind_are_refused(tmp_path, cones, part, value, message):
    target = tmp_path / "result.npz"
    factorize(from_columns(cones), 4, max_iter=1).save(target)
    with np.load(target) as stored:
        parts = {name: stored[name] for name in stored.files}
    np.savez(target, **{**parts, part: value})
    with pytest.raises(FileFormatError, match=message):
        Factorization.load(target)


def test_an_unknown_reason_to_stop_is_refused(tmp_path, cones):
    target = tmp_path / "result.npz"
    factorize(from_columns(cones), 4, max_iter=1).save(target)
    with np.load(target) as stored:
        parts = {name: stored[name] for name in stored.files}
    facts = json.loads(str(parts["facts"]))
    np.savez(target, **{**parts, "facts": np.array(json.dumps({**facts, "stop_reason": "bored"}))})
    with pytest.raises(FileFormatError, match="'bored' is not a valid StopReason"):
        Factorization.load(target)
