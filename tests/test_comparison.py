import time

import matplotlib
import numpy as np
import pytest

from conenmf import from_columns, make_cones
from conenmf.comparison import compare
from conenmf.errors import ComponentsError
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
        assert row["relative_error"] == one.relative_error
        assert row["purity"] == one.scores["purity"]
    assert f"{comparison!r}".startswith("Comparison(K=3, 6 contenders, best: ")
    header, *lines = str(comparison).splitlines()
    assert header.split() == list(comparison.rows()[0])
    assert [tuple(line.split()[:2]) for line in lines] == [
        (one.init, one.solver) for one in comparison.contenders
    ]
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
