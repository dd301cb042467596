import time

import matplotlib
import numpy as np
import pytest

from conenmf import from_columns, make_cones
from conenmf.comparison import compare
from conenmf.errors import ComponentsError, DataError, OptionError
from conenmf.solve.inits import initialize
from conenmf.solve.solvers import Solver, mult

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
        assert row["relative_error"] == one.relative_error
        assert row["purity"] == one.scores["purity"]
    assert f"{comparison!r}".startswith("Comparison(K=3, 6 contenders, best: ")
    header, *lines = str(comparison).splitlines()
    assert header.split() == list(comparison.rows()[0])
    assert [tuple(line.split()[:2]) for line in lines] == [
        (one.init, one.solver) for one in comparison.contenders
    ]
    ends = {len(line) - len(line.rsplit(maxsplit=3)[-1]) for line in lines}
    assert len(ends) <= 2  # columns are aligned
    page = comparison._repr_html_()
    assert page.count("<tr>") == 7
    ax = comparison.plot()
    assert len(ax.lines) == 6
    matplotlib.pyplot.close(ax.figure)


def test_the_time_of_the_init_counts(model, monkeypatch):
    def slowly(*arguments, **options):
        time.sleep(0.05)
        return initialize(*arguments, **options)

    monkeypatch.setattr("conenmf.solve.losses.loss.initialize", slowly)
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


def test_inits_that_cannot_be_made_are_left_out():
    V = from_columns(np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 1.0, 4.0]))
    comparison = compare(V, 2, inits=["cr1", "random"], solvers=["hals"], max_iter=3)
    assert [one.init for one in comparison.contenders] == ["random"]
    with pytest.raises(ComponentsError, match="only 1 distinct direction"):
        compare(V, 2, inits=["cr1"], solvers=["hals"])


def test_wrong_options(model):
    V = from_columns(model.V)
    with pytest.raises(OptionError, match="inits='best' is unknown"):
        compare(V, 3, inits=["best"])
    with pytest.raises(OptionError, match="solvers='auto' is unknown"):
        compare(V, 3, solvers=["auto"])
    with pytest.raises(OptionError, match="nothing to compare"):
        compare(V, 3, inits=[])
    with pytest.raises(DataError, match="2 labels for 120 samples"):
        compare(V, 3, labels=[0, 1])


def test_functions_are_compared_under_their_names():
    seen = []

    def first_samples(V, K, rng):
        seen.append(rng.random())
        return V.columns(np.arange(K)) + 1e-3, None

    def gradient(G, C, Y):
        return np.maximum(Y - (Y @ G - C) / np.linalg.eigvalsh(G)[-1], 0)

    V = from_columns(np.random.default_rng(0).random((8, 30)))
    solvers = ["hals", gradient, Solver(mult, first="H", lift_zeros=True)]
    table = compare(V, 2, inits=["cr1", first_samples], solvers=solvers, max_iter=3)
    names = {(one.init, one.solver) for one in table.contenders}
    assert names == {(i, s) for i in ("cr1", "first_samples") for s in ("hals", "gradient", "mult")}
    assert len({*seen}) == 1  # the seed is the same for each
    assert "gradient" in str(table)
    assert compare(V, 2, inits=first_samples, solvers=gradient).contenders[0].solver == "gradient"
    with pytest.raises(OptionError, match="inits=3"):
        compare(V, 2, inits=[3])
    with pytest.raises(OptionError, match="solvers='newton' is unknown"):
        compare(V, 2, solvers=["newton"])
