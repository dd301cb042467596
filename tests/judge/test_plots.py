import sys

import matplotlib
import numpy as np
import pandas as pd
import pytest

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from conenmf import ConeNMF, factorize, from_columns, make_cones
from conenmf.errors import NotAvailableError, OptionError


@pytest.fixture(scope="module")
def result():
    model = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0))
    return factorize(from_columns(model.V), 4)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.mark.parametrize("draw", ["plot_history", "plot_spectrum", "plot_cones"])
def test_axes_in_and_out(result, draw):
    _, ax = plt.subplots()
    assert getattr(result, draw)(ax) is ax
    assert getattr(result, draw)().get_title()
    ax.figure.canvas.draw()


@pytest.mark.parametrize("against", ["iteration", "seconds", "passes"])
def test_history_shows_the_errors_and_their_lower_bound(result, against):
    below = result.diagnose().certificate.lower_bound
    ax = result.plot_history(against=against)
    errors, limit = ax.lines
    np.testing.assert_array_equal(errors.get_ydata(), result.history.relative_error)
    np.testing.assert_array_equal(limit.get_ydata(), below)


def test_spectrum_shows_values_and_ratios(result):
    ax = result.plot_spectrum()
    rank = result.diagnose().rank
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), rank.singular_values)
    (other,) = (twin for twin in ax.figure.axes if twin is not ax)
    heights = [bar.get_height() for bar in other.patches]
    np.testing.assert_allclose(heights, rank.ratios)


def test_cones_that_break_the_assumption_are_marked(result):
    assert not result.plot_cones().lines[0].get_xdata().size
    rng = np.random.default_rng(0)
    mixed = factorize(from_columns(rng.random((10, 50))), 3)
    assert mixed.plot_cones().lines[0].get_xdata().size == 6


def test_components_as_curves_images_or_top_features(result):
    curves = result.plot_components()
    assert len(curves) == 4
    np.testing.assert_array_equal(curves[2].lines[0].get_ydata(), result.W[:, 2])
    (image,) = result.plot_components(components=[1], image_shape=(6, 10))[0].images
    np.testing.assert_array_equal(image.get_array(), result.W[:, 1].reshape(6, 10))
    frame = pd.DataFrame(result.H.T, columns=["a$b$", "b", "c", "d"])
    named = ConeNMF(2).fit(frame).result_
    (ax,) = named.plot_components(components=[0], top=3)
    ax.figure.canvas.draw()
    heaviest = np.argsort(-named.W[:, 0])[:3]
    shown = [label.get_text().replace("\\", "") for label in ax.get_yticklabels()]
    assert shown == [frame.columns[f] for f in heaviest]


def test_own_axes_for_components(result):
    _, axes = plt.subplots(2, 3)
    used = result.plot_components(axes)
    assert list(used) == list(axes.flat[:4])
    assert not axes.flat[5].get_visible()


def test_wrong_wishes(result):
    with pytest.raises(OptionError, match="against='hour'"):
        result.plot_history(against="hour")
    with pytest.raises(OptionError, match=r"components=\[4\], expected a list of indices"):
        result.plot_components(components=[4])
    with pytest.raises(OptionError, match="1 axes were given for 4 components"):
        result.plot_components(plt.subplots()[1])
    with pytest.raises(OptionError, match="5 x 5 have 25 pixels"):
        result.plot_components(image_shape=(5, 5))
    flat = factorize(from_columns(np.outer([1.0, 2.0], [1.0, 2.0])), 2, init=np.eye(2))
    with pytest.raises(NotAvailableError, match="there are no cones to draw"):
        flat.plot_cones()


def test_without_matplotlib(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'conenmf\[plot\]'"):
        result.plot_history()
