"""`compare`: every init with every solver, and other programs by the same measure."""

import time

import matplotlib
import numpy as np
import pytest
from sklearn.decomposition import NMF

from conenmf import factorize, from_columns, make_cones
from conenmf.comparison import compare
from conenmf.errors import ComponentsError, DataError, OptionError
from conenmf.solve.inits import initialize

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def model():
    return make_cones(30, 3, 0.15, n_samples=120, rng=np.random.default_rng(0))


def test_every_init_with_every_solver(model):
    seen = []
    comparison = compare(
        from_columns(model.V),
        3,
        inits=["cr1", "random", "auto"],
        solvers=["hals", "mult"],
        labels=[f"class {label}" for label in model.labels],
        max_iter=10,
        watch=lambda init, solver: seen.append((init, solver)),
    )
    pairs = {(one.init, one.solver) for one in comparison.contenders}
    assert len(seen) == len(pairs) == 6
    assert set(seen) == pairs
    errors = [one.relative_error for one in comparison.contenders]
    assert errors == sorted(errors)
    for one, row in zip(comparison.contenders, comparison.rows(), strict=True):
        assert one.history.elapsed[-1] <= one.seconds
        assert 0 < one.scores["nmi"] <= 1
        assert (row["relative_error"], row["purity"]) == (one.relative_error, one.scores["purity"])
    assert repr(comparison) == str(comparison)
    header, *lines = str(comparison).splitlines()
    assert header.split() == list(comparison.rows()[0])
    assert [tuple(line.split()[:2]) for line in lines] == [
        (one.init, one.solver) for one in comparison.contenders
    ]
    ax = comparison.plot()
    assert len(ax.lines) == 6
    matplotlib.pyplot.close(ax.figure)


def test_the_time_of_the_init_counts(model, monkeypatch):
    def slowly(*arguments, **options):
        time.sleep(0.05)
        return initialize(*arguments, **options)

    monkeypatch.setattr("conenmf.solve.loss.initialize", slowly)
    V = from_columns(model.V)
    (one,) = compare(V, 3, inits=["cr1"], solvers=["hals"], max_iter=3).contenders
    assert one.seconds > one.history.elapsed[-1] > one.history.elapsed[0] > 0.05


def test_the_same_seed_gives_the_same_errors(model):
    V = from_columns(model.V)
    first, second = (
        [one.relative_error for one in compare(V, 3, inits=["random"], seed=4).contenders]
        for _ in range(2)
    )
    assert first == second


def test_inits_that_cannot_be_made_are_left_out(refuses):
    V = from_columns(np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 1.0, 4.0]))
    comparison = compare(V, 2, inits=["cr1", "random"], solvers=["hals"], max_iter=3)
    assert [one.init for one in comparison.contenders] == ["random"]
    one = "only 1 distinct direction"
    refuses(ComponentsError, one, compare, V, 2, inits=["cr1"], solvers=["hals"])


def test_other_programs_are_judged_as_ours_are(model):
    X = model.V.T
    known = NMF(3, max_iter=5000).fit(X)

    def known_factors(X):
        return known.transform(X), known.components_

    fitted = factorize(from_columns(model.V), 3)
    others = {"scikit-learn": NMF(3, max_iter=5000), "mine": known_factors, "ours": fitted}
    table = compare(
        from_columns(model.V), 3, inits="cr1", solvers="hals", others=others, labels=model.labels
    )
    found = {one.init: one for one in table.contenders}
    theirs, mine, ours = found["scikit-learn"], found["mine"], found["ours"]
    assert ours.relative_error == pytest.approx(fitted.relative_error, rel=1e-9)
    assert ours.seconds > fitted.total_seconds  # its fit counts
    expected = known.reconstruction_err_ / np.linalg.norm(X)
    assert theirs.relative_error == pytest.approx(expected, rel=1e-6)
    rest = np.linalg.norm(X - known.transform(X) @ known.components_)
    assert mine.relative_error == pytest.approx(rest / np.linalg.norm(X), rel=1e-9)
    assert (theirs.n_iter, theirs.scores.keys()) == (known.n_iter_, found["cr1"].scores.keys())
    by_time, by_passes = table.plot(), table.plot(against="passes")
    assert [len(ax.lines) for ax in (by_time, by_passes)] == [4, 1]
    assert by_passes.get_xlabel() == "passes"
    matplotlib.pyplot.close("all")


def test_other_programs_must_return_factors_of_complete_data(model, refuses):
    V = from_columns(model.V)
    holes = from_columns(model.V, mask=np.random.default_rng(0).random(model.V.shape) < 0.9)
    for error, message, data, other in (
        (DataError, "of shape .120, 3. and .30, 3., exp", V, lambda X: (X[:, :3], X[:30, :3])),
        (OptionError, "others", V, 3),
        (OptionError, "complete data in memory", holes, NMF(3)),
    ):
        options = {"inits": "cr1", "solvers": "hals", "others": {"x": other}}
        refuses(error, message, compare, data, 3, **options)
    refuses(OptionError, "others.* a dict", compare, V, 3, inits="cr1", others=[NMF(3)])
