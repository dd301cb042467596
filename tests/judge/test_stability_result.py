import json
import pickle
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest

from conenmf import Stability, certify, factorize, from_columns, from_rows, stability
from conenmf.errors import DiskFullError, FactorError, FileFormatError, NotAvailableError
from conenmf.judge.stability_range import StabilityRange, stability_over

OPTIONS = {"max_iter": 30, "tol": 1e-4}


def counts_of(K=3, F=20, N=70):
    rng = np.random.default_rng(0)
    W = rng.exponential(size=(F, K)) * (rng.random((F, K)) < 0.4) + 1e-3
    H = 300 * rng.exponential(size=(K, N)) * (rng.random((K, N)) < 0.6)
    return rng.poisson(W / W.sum(axis=0) @ H).astype(float)


@pytest.fixture(scope="module", params=["frobenius", "poisson"])
def found(request):
    table = pd.DataFrame(counts_of().T, columns=[f"type {f}" for f in range(20)])
    return stability(from_rows(table), 3, 5, loss=request.param, **OPTIONS)


def check_equal(one, other):
    for field in fields(Stability):
        if field.name != "data":
            first, second = getattr(one, field.name), getattr(other, field.name)
            if isinstance(first, np.ndarray):
                np.testing.assert_array_equal(first, second, strict=True)
            else:
                assert first == second


@pytest.mark.parametrize("is_certified", [False, True])
def test_it_is_saved_and_loaded_whole(tmp_path, found, is_certified):
    if is_certified:
        found = replace(found)
        found.certify(effort=0)
    found.save(tmp_path / "found.npz")
    back = Stability.load(tmp_path / "found.npz")
    check_equal(found, back)
    assert back.names.feature_names[:2] == ("type 0", "type 1")
    assert str(back) == str(found)
    assert back.data is None
    check_equal(pickle.loads(pickle.dumps(found)), found)


def test_without_a_consensus_it_is_saved_too(tmp_path):
    found = stability(from_columns(counts_of()), 3, 3, density_threshold=1e-12, **OPTIONS)
    assert found.problem
    found.save(tmp_path / "found.npz")
    check_equal(found, Stability.load(tmp_path / "found.npz"))


def test_a_range_is_saved_and_loaded_whole(tmp_path):
    V = from_columns(counts_of())
    found = stability_over(V, [2, 3], 3, **OPTIONS)
    found.save(tmp_path / "range.npz")
    back = StabilityRange.load(tmp_path / "range.npz")
    assert (back.K, back.reason, str(back)) == (found.K, found.reason, str(found))
    for k, one in found.found.items():
        check_equal(one, back.found[k])
    with pytest.raises(FileFormatError, match=r"range.npz is not .* its format is"):
        Stability.load(tmp_path / "range.npz")


def rewritten(path, **changed):
    with np.load(path) as stored:
        parts = {name: stored[name] for name in stored.files}
    facts = json.loads(str(parts["facts"])) | changed.pop("facts", {})
    np.savez(path, **{**parts, **changed, "facts": np.array(json.dumps(facts))})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"W": -np.ones((20, 3))}, "W holds negative or infinite numbers"),
        ({"H": np.full((3, 70), np.nan)}, "H holds NaN"),
        ({"cosines": np.ones((4, 3))}, "these parts do not belong together"),
        ({"labels": np.full(70, 3)}, "its labels are not those of its components"),
        ({"facts": {"resample": "dice"}}, "differ by 'dice', which is unknown"),
        ({"facts": {"format": "conenmf-stability-9"}}, "this version reads 'conenmf-stability-2'"),
    ],
)
def test_what_cannot_have_been_saved_is_refused(tmp_path, found, change, message):
    target = tmp_path / "found.npz"
    found.save(target)
    rewritten(target, **{**change})
    with pytest.raises(FileFormatError, match=message):
        Stability.load(target)


def test_a_full_disk_leaves_the_earlier_file(tmp_path, found, monkeypatch):
    target = tmp_path / "found.npz"
    found.save(target)
    before = target.read_bytes()

    def full_disk(stream, array):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("conenmf.data.saving.write_array", full_disk)
    with pytest.raises(DiskFullError, match="the earlier one is intact"):
        found.save(target)
    assert target.read_bytes() == before


def test_parts_that_do_not_belong_together_are_refused(found):
    with pytest.raises(FactorError, match="these parts do not belong together"):
        replace(found, W=found.W[:, :2])


def test_certificates_of_the_consensus_and_of_the_best_run(found):
    found = replace(found)
    V, loss = found.data, found.loss
    known = found.certify()
    assert known is found.certificate
    alone = certify(V, found.W, found.H, loss=loss)
    assert known == alone
    best = factorize(V, 3, init=found.best_run, solver=None, loss=loss, sketch=None)
    beside = certify(V, best.W, best.H, loss=loss)
    assert found.best_certificate.lower_bound == pytest.approx(beside.lower_bound, rel=1e-6)
    assert found.best_certificate.gap == pytest.approx(beside.gap, rel=1e-6)
    assert found.best_certificate.relative_error == pytest.approx(
        found.best_relative_error, rel=1e-9
    )
    assert 0 <= known.lower_bound <= known.relative_error == pytest.approx(found.relative_error)
    name = "component_gap" if loss == "poisson" else "kkt_residual"
    assert getattr(found.best_certificate, name) == pytest.approx(getattr(beside, name), rel=1e-6)
    said = "duality gaps of H, W" if loss == "poisson" else "no factorisation with 3 components"
    assert said in str(found)
    passes = V.passes
    assert found.certify(effort=0) is known
    assert V.passes == passes


def test_certificates_need_the_data(found, tmp_path):
    found.save(tmp_path / "found.npz")
    with pytest.raises(NotAvailableError, match="needs the data"):
        Stability.load(tmp_path / "found.npz").certify()


def test_it_is_saved_from_any_storage(main_backend, small_blocks, tmp_path):
    found = stability(main_backend(counts_of()), 2, 2, max_iter=2)
    found.save(tmp_path / "found.npz")
    back = Stability.load(tmp_path / "found.npz")
    np.testing.assert_array_equal(back.H, np.asarray(found.H))
    np.testing.assert_array_equal(back.labels, np.asarray(found.labels))
