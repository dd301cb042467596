"""Charts: positions, round numbers, and where samples lie between components."""

import re

import numpy as np
import pytest

from conenmf.report.charts import (
    _MAX_BINS,
    _SIDE,
    Axis,
    Curve,
    bars,
    date_axis,
    map_of,
    round_tour,
    value_axis,
    whiskers,
)


def test_positions_go_from_zero_to_one():
    np.testing.assert_allclose(Axis("", -2.0, 6.0).place([-2, 0, 6, np.nan]), [0, 0.25, 1, np.nan])
    assert Axis("", 3.0, 3.0).place([3.0, 3.0]).tolist() == [0.5, 0.5]
    assert value_axis(10.0).high == 10.5
    assert value_axis(0.0).high == 1.0


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (0.0, 1.0, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (-0.5, 2.0, ["-0.5", "0", "0.5", "1", "1.5", "2"]),
        (3.0, 47.0, ["10", "20", "30", "40"]),
    ],
)
def test_ticks_are_round_numbers_with_both_ends(low, high, texts):
    places, shown = zip(*Axis("", low, high).ticks(), strict=True)
    assert list(shown) == texts
    np.testing.assert_allclose(places, (np.array(texts, float) - low) / (high - low), atol=1e-12)


def test_ticks_of_names_are_those_of_their_numbers():
    ticks = Axis("", 0.0, 5.0, [f"gene {f}" for f in range(6)]).ticks()
    assert ticks == [(f / 5, f"gene {f}") for f in range(6)]
    assert Axis("", 0.0, 9.0, (), [(4.5, "C>A")]).ticks() == [(0.5, "C>A")]


def test_dates_begin_months_within_their_range():
    times = np.array(["2001-11-05", "2002-02-20", "NaT"], "datetime64[s]")
    seconds, axis = date_axis(times)
    assert np.isnan(seconds).tolist() == [False, False, True]
    assert (axis.low, axis.high) == (seconds[0], seconds[1])
    places, shown = zip(*axis.ticks(), strict=True)
    assert shown == ("2001-12", "2002-01", "2002-02")
    days = np.array([26, 57, 88]) / 107  # since the fifth of November
    np.testing.assert_allclose(places, days)


def test_bars_and_whiskers_are_drawn_from_below():
    x, heights = np.array([0.1, 0.5]), np.array([0.25, 1.0])
    assert bars(x, heights, 0.1) == "M50 1000V750h100V1000zM450 1000V0h100V1000z"
    assert whiskers(x, heights / 5, heights) == "M100 950V750M500 800V0"


def test_a_component_follows_the_one_that_is_most_like_it():
    similarity = np.eye(4) + 0.1
    similarity[0, 2] = similarity[2, 0] = similarity[2, 1] = similarity[1, 2] = 0.9
    assert round_tour(similarity).tolist() == [0, 2, 1, 3]


def test_samples_lie_near_the_component_that_they_use_more_than_others_do():
    """A component in all samples does not attract them."""
    common = np.full(60, 0.7)
    own = 0.3 * np.eye(3)[np.arange(60) % 3]
    found = map_of(np.column_stack([common, own]), np.eye(4))
    np.testing.assert_allclose(np.linalg.norm(found.anchors, axis=1), 1)
    distances = np.linalg.norm(found.places[:, None] - found.anchors, axis=2)
    assert (distances.argmin(axis=1) == 1 + np.arange(60) % 3).all()
    apart = np.linalg.norm(found.places[:, None] - found.places, axis=2) + np.eye(60)
    assert apart.min() > 0.01  # equal samples form a disc
    assert np.abs(found.places).max() < found.half_side


def test_the_band_of_a_binned_curve_covers_all_limits():
    """From the lowest lower limit of a bin to its highest upper one."""
    n, rng = 20 * _MAX_BINS, np.random.default_rng(0)
    curve = Curve(np.arange(float(n)), str, "feature")
    lower, upper = 0.1 + 0.2 * rng.random(n), 0.5 + 0.2 * rng.random(n)
    path = curve.band(lower, upper, value_axis(1.0))
    heights = 1 - np.array(re.findall(r"[\d.]+", path), float)[1::2] / _SIDE
    size = value_axis(1.0).high
    high, low = heights[: curve.x.size], heights[curve.x.size :][::-1]
    for bin_, (top, bottom) in enumerate(zip(high * size, low * size, strict=True)):
        own = slice(20 * bin_, 20 * bin_ + 20)
        assert top == pytest.approx(upper[own].max(), abs=1e-3)
        assert bottom == pytest.approx(lower[own].min(), abs=1e-3)


def test_a_curve_is_interrupted_where_values_or_neighbours_are_missing():
    """A gap is wide compared with most distances, however wide the widest one is."""
    x = np.r_[np.arange(30.0), 30.0 + 15 + np.arange(30), 1000.0 + np.arange(30)]
    curve = Curve(x, str, "feature")
    heights = np.ones(90)
    parts = [len(part.split()) // 2 for part in curve.path(heights, value_axis(1.0)).split("M")[1:]]
    assert parts == [60, 30]
    assert Curve(x[:30], str, "feature").path(heights[:30], value_axis(1.0)).count("M") == 1
    heights[10:12] = np.nan
    parts = [len(part.split()) // 2 for part in curve.path(heights, value_axis(1.0)).split("M")[1:]]
    assert parts == [10, 48, 30]
    assert Curve(np.arange(1.0), str, "feature").path(np.full(1, np.nan), value_axis(1.0)) == "M0 0"


@pytest.mark.parametrize(("last", "unit"), [("2040-03", "Y"), ("2003-08", "M"), ("2001-12", "D")])
def test_a_long_time_has_few_dates_from_begin_to_end(last, unit):
    day = np.timedelta64(1, "D")
    times = np.arange(np.datetime64("2001-11-05", "s"), np.datetime64(last, "s"), day)
    places, shown = zip(*date_axis(times)[1].ticks(), strict=True)
    assert 2 < len(shown) <= 8
    assert len(shown[0]) == {"Y": 4, "M": 7, "D": 10}[unit]
    steps = np.diff(places)
    assert steps.max() < 1.2 * steps.min()
    assert places[0] < steps.max()
    assert places[-1] > 1 - 1.05 * steps.max()
