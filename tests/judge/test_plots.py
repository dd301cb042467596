"""Plots of results: what each axis shows."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import matplotlib
import numpy as np
import pandas as pd
import pytest

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from conenmf import ConeNMF, factorize, from_columns, make_cones, plots
from conenmf.names import Names
from conenmf.plots import abundance_maps
from conenmf.solve.run import History


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
    below = result.certify().lower_bound
    errors, limit = result.plot_history(against=against).lines
    np.testing.assert_array_equal(errors.get_ydata(), result.history.relative_error)
    np.testing.assert_array_equal(limit.get_ydata(), below)


def test_spectrum_shows_values_and_ratios(result):
    ax = result.plot_spectrum()
    rank = result._details().rank
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), rank.singular_values)
    (other,) = (twin for twin in ax.figure.axes if twin is not ax)
    assert {bar.get_y() for bar in other.patches} == {1.0}
    tops = [bar.get_y() + bar.get_height() for bar in other.patches]
    np.testing.assert_allclose(tops, rank.ratios)
    bottom, top = other.get_ylim()
    assert bottom == 1.0 <= rank.ratios[1:].max() < top
    ax.figure.canvas.draw()
    (label,) = ax.get_legend().get_texts()
    assert label.get_text() == "K = 4"
    frame, text = ax.get_window_extent(), label.get_window_extent()
    assert frame.y1 - text.y1 > 2  # not on the frame
    assert text.x0 > ax.transData.transform((4, 1))[0]  # nor on the line


def test_maps_show_shares_of_pixels(result):
    H = result.H.copy()
    H[:, 7] = 0  # a pixel without signal
    result = replace(result, H=H)
    axes = result.plot_maps(pixels_shape=(10, 20))
    shares = np.array([ax.images[0].get_array() for ax in axes])
    assert shares.shape == (4, 10, 20)
    amounts = result.H * np.linalg.norm(result.W, axis=0)[:, None]
    lit = amounts.sum(axis=0) > 0
    np.testing.assert_allclose(shares.sum(axis=0).ravel(), lit)
    np.testing.assert_allclose(shares[2].ravel()[lit], amounts[2, lit] / amounts.sum(axis=0)[lit])
    assert axes[0].images[0].get_clim() == (0, 1)
    (ax,) = result.plot_maps(components=[3], pixels_shape=(20, 10))
    assert ax.get_title() == "component 3"
    coarse = abundance_maps(result.W, result.H, (10, 20), max_pixels=200)
    np.testing.assert_array_equal(coarse, shares[:, ::2, ::2])


def test_endmembers_are_drawn_over_wavelengths(result):
    wavelengths = np.linspace(2500, 400, 60)
    spectra = replace(result, names=Names.of(feature_names=wavelengths))
    lines = spectra.plot_endmembers().lines
    np.testing.assert_array_equal(lines[1].get_xdata(), wavelengths[::-1])
    unit = result.W[::-1] / np.linalg.norm(result.W, axis=0)
    np.testing.assert_allclose([line.get_ydata() for line in lines], unit.T)
    assert len(result.plot_endmembers(components=[0, 3]).lines) == 2


def test_components_as_curves_images_or_top_features(result):
    curves = [ax.lines[0].get_ydata() for ax in result.plot_components()]
    np.testing.assert_array_equal(curves, result.W.T)
    (image,) = result.plot_components(components=[1], image_shape=(6, 10))[0].images
    np.testing.assert_array_equal(image.get_array(), result.W[:, 1].reshape(6, 10))
    frame = pd.DataFrame(result.H.T, columns=["a$b$", "b", "c", "d"])
    named = ConeNMF(2).fit(frame).result_
    (ax,) = named.plot_components(components=[0], top=3)
    ax.figure.canvas.draw()
    heaviest = np.argsort(-named.W[:, 0])[:3]
    shown = [label.get_text().replace("\\", "") for label in ax.get_yticklabels()]
    assert shown == [frame.columns[f] for f in heaviest]


def test_components_with_limits_have_bands(result):
    limits = (0.8 * result.W, 1.1 * result.W)
    (ax,) = result.plot_components(components=[2], limits=limits)
    (band,) = ax.collections
    corners = band.get_paths()[0].vertices
    assert corners[:, 1].max() == pytest.approx(1.1 * result.W[:, 2].max())
    named = ConeNMF(2).fit(pd.DataFrame(result.H.T, columns=list("abcd"))).result_
    (ax,) = named.plot_components(components=[0], top=3, limits=(0.8 * named.W, 1.1 * named.W))
    largest = np.sort(named.W[:, 0])[::-1][:3]
    ends = np.array([path.vertices[:, 0] for path in ax.collections[0].get_paths()])
    np.testing.assert_allclose(ends, np.outer(largest, [0.8, 1.1]))
    found = result.uniqueness()
    titles = [ax.get_title() for ax in found.plot(result.W)]
    assert titles == [f"component {k}: {verdict}" for k, verdict in enumerate(found.verdicts)]


def test_a_colour_for_each_init_and_a_style_for_each_solver():
    names = [("cr1", "hals"), ("cr1", "mult"), ("random", "hals"), ("other", "")]
    histories = {
        name: History(np.array([0.5, 0.4]) / n, np.array([1.0, 2.0]) * n, np.array([3.0, 4.0]) * n)
        for n, name in enumerate(names, 1)
    }
    histories[names[3]] = History(*np.full((3, 1), 0.3))
    lines = plots.curves(histories).lines
    colours = [line.get_color() for line in lines]
    assert colours[0] == colours[1] != colours[2]
    styles = [line.get_linestyle() for line in lines]
    assert styles[0] == styles[2] != styles[1]
    assert [line.get_marker() for line in lines] == ["None", "None", "None", "o"]
    assert [line.get_label() for line in lines] == ["cr1 hals", "cr1 mult", "random hals", "other"]
    np.testing.assert_array_equal(lines[1].get_xdata(), [2, 4])
    over_passes = plots.curves(histories, against="passes").lines
    np.testing.assert_array_equal(over_passes[1].get_xdata(), [6, 8])
    np.testing.assert_array_equal(over_passes[1].get_ydata(), [0.25, 0.2])


def test_evidence_shows_scores_the_choice_and_the_interval():
    piece = SimpleNamespace(ks=[2, 3, 4], scores=[1.0, 5.0, 2.0], K=3, meaning="a; b", name="gap")
    (ax,) = plots.evidence([piece], (2, 4), None)
    scores, choice = ax.lines
    np.testing.assert_array_equal(scores.get_xydata(), [[2, 1], [3, 5], [4, 2]])
    assert set(choice.get_xdata()) == {3}
    box = ax.patches[0]  # a polygon before Matplotlib 3.9, and then a rectangle
    corners = box.get_patch_transform().transform(box.get_path().vertices)
    assert (corners[:, 0].min(), corners[:, 0].max()) == (1.5, 4.5)
    assert (ax.get_title(), ax.get_ylabel()) == ("gap: 3", "a\nb")


def test_crosses_mark_cones_that_are_too_close():
    between = np.array([[0.0, 0.2, 1.0], [0.2, 0.0, 0.6], [1.0, 0.6, 0.0]])
    required = np.full((3, 3), 0.5)
    geometry = SimpleNamespace(
        angles=np.full(3, 0.1), between=between, required_angle=required, holds=False
    )
    ax = plots.cones(geometry)
    np.testing.assert_allclose(ax.images[0].get_array(), np.degrees(between))
    (crosses,) = ax.lines
    assert sorted(map(tuple, crosses.get_xydata().tolist())) == [(0, 1), (1, 0)]
    assert "too close" in ax.get_title()


def test_lines_separate_clusters():
    clusters = np.array([0, 0, 1, 1, 1, -1])
    means = np.array([0.1, 0.2, 0.1, 0.3, 0.2, np.inf])
    picture, counts = plots.clustergram(np.ones((6, 6)), clusters, means, 0.5)
    ends = [line.get_xdata()[0] for line in picture.lines if len(set(line.get_xdata())) == 1]
    assert ends == [1.5, 4.5]
    assert len(picture.lines) == 4
    assert picture.get_xlabel() == "1 are left out, and drawn last"
    assert sum(bar.get_height() for bar in counts.patches) == 5
    assert set(counts.lines[0].get_xdata()) == {0.5}


def test_stability_and_error_have_an_axis_each():
    ks, values, errors = np.array([2, 3]), np.array([0.9, 0.7]), np.array([0.3, 0.2])
    left, right = plots.stability_and_error(ks, values, errors, 2, None)
    np.testing.assert_array_equal(left.lines[0].get_ydata(), values)
    np.testing.assert_array_equal(right.lines[0].get_ydata(), errors)
    assert set(left.lines[1].get_xdata()) == {2}
    assert (left.get_ylabel(), right.get_ylabel()) == ("mean silhouette", "relative error")


def test_without_matplotlib(result, monkeypatch, refuses):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    refuses(ImportError, r"pip install 'conenmf\[plot\]'", lambda: result.plot_history())


def test_contributions_are_drawn_over_dates(result):
    days = pd.date_range("2001-01-30", periods=200)[::-1].strftime("%m/%d/%Y")
    ax = replace(result, names=Names.of(days)).plot_contributions(components=[0, 2])
    first, second = ax.lines
    np.testing.assert_allclose(second.get_ydata(), result.W[:, 2].sum() * result.H[2, ::-1])
    assert str(first.get_xdata()[0]).startswith("2001-01-30")
    assert ax.get_xlabel() == "date"
    assert result.plot_contributions().get_xlabel() == "sample"
    assert Names.of(["2001-01-30", "one"]).sample_times is None
