import copy
import importlib
import json
import os
import pickle
import zipfile

import numpy as np
import pandas as pd
import pytest

from conenmf import ConeNMF, Factorization, certify, factorize, from_columns, from_rows, make_cones
from conenmf.errors import ConeNMFError, DiskFullError, FileFormatError, NotAvailableError
from conenmf.names import Names
from conenmf.solve.stopping import StopReason


@pytest.fixture(scope="module")
def cones():
    return make_cones(80, 4, 0.15, n_samples=300, rng=np.random.default_rng(0)).V


@pytest.fixture
def named(cones):
    """A result whose samples and features have names, some of them hostile."""
    samples = [f"person {n}" for n in range(300)]
    features = ["<script>alert(1)</script>", *(f"gene {f}" for f in range(79))]
    return factorize(from_rows(pd.DataFrame(cones.T, samples, features)), 4)


# --- judging ----------------------------------------------------------------------------------


def test_a_result_judges_itself(cones):
    V = from_columns(cones)
    result = factorize(V, 4)
    assert result.certificate is result.diagnosis is None
    assert result.certify() == certify(V, result.W, result.H)
    assert result.certify() is result.certificate
    assert result.diagnose().certificate == result.certificate
    passes = V.passes
    assert result.diagnose() is result.diagnosis
    assert result.certify() is result.certificate
    assert V.passes == passes


def test_after_pickling_it_knows_what_it_was_asked_before(cones):
    result = factorize(from_columns(cones), 4)
    with pytest.raises(AttributeError, match="certify"):
        pickle.loads(pickle.dumps(result)).certify()
    certificate = result.certify()
    again = pickle.loads(pickle.dumps(result))
    assert again.data is None
    assert again.certificate == certificate
    with pytest.raises(NotAvailableError, match=r"use conenmf.diagnose\(V, W, H, labels\)"):
        again.plot_spectrum()


def test_data_that_changed_are_noticed(cones):
    changed = cones.copy()
    result = factorize(from_columns(changed), 4, max_iter=3, tol=0)
    changed[:] /= changed.sum(axis=0)
    with pytest.raises(ConeNMFError, match="the data were changed after the fit"):
        result.diagnose()


# --- for people -------------------------------------------------------------------------------


def test_the_summary_grows_with_what_is_known(cones):
    result = factorize(from_columns(cones))
    assert len(result.summary()) == 1
    expected = "4 components (number chosen by 'ratio'); relative error 0.0"
    assert result.summary()[0].startswith(expected)
    below = result.certify().lower_bound
    expected = f"no factorisation with 4 components can have an error below {below:.4g}"
    assert result.summary()[1:] == (expected,)
    margin = result.diagnose().cones.geometry.margin
    assert result.summary()[2] == f"the data fall into cones: yes, margin {margin:.3g} rad"


AXES = np.repeat(np.eye(6)[:, :3] + 0.5, 30, axis=1)  # 0.77 rad apart
CLOSE = AXES + np.random.default_rng(0).uniform(-0.3, 0.3, AXES.shape)
MIXTURES = np.tile(np.eye(5), 2)[:, :4] @ np.random.default_rng(0).dirichlet(np.ones(4), 90).T


@pytest.mark.parametrize(
    ("data", "K", "expected"),
    [
        (MIXTURES, 4, "no, the geometric assumption fails by"),
        (np.random.default_rng(0).random((20, 30)), 3, "no, the geometric assumption fails by"),
        (CLOSE, 3, "nearly; 0 samples lie between cones, and the geometric"),
        (np.outer([1.0, 2.0, 3.0], [1.0, 2.0]), 1, "one cone holds them all, within"),
        (np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 1.0]), 2, "no, the samples have fewer directions"),
    ],
)
def test_the_summary_says_whether_there_are_cones(data, K, expected):
    result = factorize(from_columns(data), K, init="random", rng=np.random.default_rng(0))
    result.diagnose()
    assert result.summary()[-1].startswith(f"the data fall into cones: {expected}")


def test_in_a_notebook(named):
    page = named._repr_html_()
    assert "4 components; relative error" in page
    assert "300 x 80" in page
    assert page.count("<") == page.count(">")


def test_names_come_along(named, cones):
    assert named.names.sample(3) == "person 3"
    assert named.names.feature(2) == "gene 1"
    frame = pd.DataFrame(cones.T, columns=[f"g{f}" for f in range(80)])
    assert ConeNMF(4).fit(frame).result_.names == Names(None, tuple(frame.columns))
    assert ConeNMF(4).fit(cones.T).result_.names == Names()


# --- files ------------------------------------------------------------------------------------


def test_save_and_load(tmp_path, cones):
    result = factorize(from_columns(cones), max_iter=5)
    result.save(tmp_path / "result.npz")
    back = Factorization.load(tmp_path / "result.npz")
    for name in ("W", "H", "labels"):
        assert np.array_equal(getattr(back, name), getattr(result, name))
    for name in ("relative_error", "stop_reason", "seconds", "passes", "settings", "K_decided_by"):
        assert getattr(back, name) == getattr(result, name)
    for name in ("relative_error", "elapsed", "passes"):
        assert np.array_equal(getattr(back.history, name), getattr(result.history, name))
    assert back.stop_reason is StopReason.MAX_ITER
    assert os.listdir(tmp_path) == ["result.npz"]
    with np.load(tmp_path / "result.npz", allow_pickle=False) as stored:
        assert json.loads(str(stored["facts"]))["format"] == "conenmf-factorization-2"


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

    monkeypatch.setattr(importlib.import_module("conenmf.result"), "write_array", full_disk)
    with pytest.raises(DiskFullError, match=r"no room to write .*result.npz; an earlier"):
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
    for name in ("cut.npz", "text.npz", "empty.npz", "other.npz", "pickle.npy"):
        with pytest.raises(FileFormatError, match=name):
            Factorization.load(tmp_path / name)
    for version in ("conenmf-factorization-1", "conenmf-factorization-9"):  # older, newer
        with np.load(target) as stored:
            parts = {name: stored[name] for name in stored.files}
        facts = json.loads(str(parts["facts"])) | {"format": version}
        np.savez(tmp_path / "version.npz", **{**parts, "facts": np.array(json.dumps(facts))})
        with pytest.raises(FileFormatError, match=f"{version}.* reads 'conenmf-factorization-2'"):
            Factorization.load(tmp_path / "version.npz")
    with pytest.raises(FileNotFoundError):
        Factorization.load(tmp_path / "missing.npz")
    with pytest.raises(FileNotFoundError, match="the folder does not exist"):
        Factorization.load(target).save(tmp_path / "nowhere" / "result.npz")


def test_names_and_what_is_known_are_saved(tmp_path, named, cones):
    target = tmp_path / "result.npz"
    named.save(target)
    assert Factorization.load(target).names == named.names
    with pytest.raises(NotAvailableError):
        Factorization.load(target).certify()
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
    with pytest.raises(FileFormatError, match=r"bomb.npz .* its part 'W.npy' is compressed"):
        Factorization.load(bomb)


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("W", np.array([["a"]]), "W holds <U1"),
        ("labels", np.zeros(300), "labels holds float64"),
        ("samples_names", np.frombuffer(b"only one", np.uint8), "1 names for 300 samples"),
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


def test_settings_that_are_no_plain_values_are_refused(tmp_path, cones):
    target = tmp_path / "result.npz"
    factorize(from_columns(cones), 4, max_iter=1).save(target)
    with np.load(target) as stored:
        parts = {name: stored[name] for name in stored.files}
    facts = json.loads(str(parts["facts"]))
    for settings in ({"solver": ["hals"]}, ["hals"]):
        tampered = np.array(json.dumps({**facts, "settings": settings}))
        np.savez(target, **{**parts, "facts": tampered})
        with pytest.raises(FileFormatError, match="its settings are not plain values"):
            Factorization.load(target)
    np.savez(target, **{**parts, "facts": np.array(json.dumps({**facts, "stop_reason": "bored"}))})
    with pytest.raises(FileFormatError, match="'bored' is not a valid StopReason"):
        Factorization.load(target)


def test_copies_keep_what_is_known(cones):
    result = factorize(from_columns(cones), 4, max_iter=3, tol=0)
    certificate = result.certify()
    for made in (copy.copy(result), copy.deepcopy(result)):
        assert made.data is result.data
        assert made.certificate == certificate
    assert copy.deepcopy(result).W is not result.W


def test_data_that_changed_after_the_certificate_are_noticed(cones):
    changed = cones.copy()
    result = factorize(from_columns(changed), 4, max_iter=3, tol=0)
    result.certify()
    changed *= 2
    with pytest.raises(ConeNMFError, match="the data were changed after the fit"):
        result.diagnose()


def test_a_result_cannot_be_changed_by_accident(cones):
    result = factorize(from_columns(cones), 4, max_iter=1)
    for one in (result, pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert one.settings == result.settings
        with pytest.raises(TypeError):
            one.seconds["solve"] = 0.0
        with pytest.raises(AttributeError):
            one.settings.pop("K")
