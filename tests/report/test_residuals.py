"""Q, residuals in units of sigma, and contributions over dates on the page of a result."""

import re
from datetime import date, timedelta

import numpy as np
import pytest

from conenmf import factorize, from_rows
from conenmf.names import Names
from conenmf.report import render
from conenmf.report.charts import Axis, Curve, date_axis

N, F = 150, 14


@pytest.fixture(scope="module")
def measured():
    """A fit of 14 species on 150 days; the noise of one is larger than its sigma."""
    rng = np.random.default_rng(0)
    truth = rng.gamma(1.0, 1.0, (N, 3)) @ rng.dirichlet(np.full(F, 0.4), 3)
    sigma = 0.02 + 0.1 * truth
    X = truth + sigma * rng.standard_normal(truth.shape)
    X[:, 4] += 3 * sigma[:, 4] * rng.standard_normal(N)
    X[7] = np.nan
    X[rng.random(X.shape) < 0.05] = np.nan
    days = [str(date(2001, 11, 5) + timedelta(n)) for n in range(N)]
    names = Names.of([*days[:-1], ""], [f"species {f}" for f in range(F)])
    with pytest.warns(UserWarning, match="nothing is observed of 1 sample"):
        V = from_rows(X, sigma=sigma, missing="nan", negative="keep", names=names)
    return factorize(V, 3)


def test_the_page_shows_Q_of_species_and_of_samples(measured, parsed, part_of):
    left = measured.residuals()
    page = render(measured)
    own = part_of(page, "residuals")
    assert f"{left.Q:,.0f}" in own
    assert f'"value">{left.ratio:.3g}<' in own
    listed = re.findall(
        r'class="of">(species \d+)</span><span class="value">([\d.]+), ([^ ]+)', own
    )
    order = np.argsort(-left.by_feature, kind="stable")[:12]
    assert [name for name, *_ in listed] == [f"species {f}" for f in order]
    assert listed[0][0] == "species 4"
    assert float(listed[0][1]) == pytest.approx(left.by_feature[4], rel=0.01)
    known = ~np.isnan(left.scaled[:, 4])
    far = 100 * (np.abs(left.scaled[known, 4]) > 3).mean()
    assert float(listed[0][2].rstrip("%")) == pytest.approx(far, abs=0.6)
    charts = parsed(page).data["charts"]
    assert charts["by-sample"]["text"][3] == f"2001-11-08: {left.by_sample[3]:.3g}"
    assert len(charts["by-sample"]["x"]) == N - 1  # the row without a date is left out
    assert f"Q is {left.Q:,.0f}; the expected Q is {left.expected:,.0f}" in page


def test_a_saved_result_has_the_same_page_without_its_data(measured, reloaded, part_of):
    again = render(reloaded(measured))
    assert part_of(again, "residuals") == part_of(render(measured), "residuals")


def test_without_uncertainties_there_is_no_such_section(parsed):
    page = render(factorize(from_rows(np.random.default_rng(0).random((30, 8))), 2))
    assert 'id="residuals"' not in page
    assert "by-sample" not in parsed(page).data["charts"]


def test_contributions_are_drawn_over_dates(measured, part_of):
    own = part_of(render(measured), "samples")
    assert "contributes to the samples, by date" in own
    drawn = own[own.index('id="contributions"') :]
    months = re.findall(r">(\d{4}-\d{2})<", drawn)
    assert months == ["2001-12", "2002-01", "2002-02", "2002-03", "2002-04"]


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ("1999-06-01", "2003-02-01", ["2000", "2001", "2002", "2003"]),
        ("2001-03-01T04:30", "2001-03-01T07:10", ["T05", "T06", "T07"]),
        ("2001-03-01", "2001-03-01", ["2001-03-01T00:00:00"]),
    ],
)
def test_dates_are_marked_at_round_times(first, last, expected):
    seconds, axis = date_axis(np.array([first, "NaT", last], "datetime64[s]"))
    assert np.isnan(seconds).tolist() == [False, True, False]
    ticks = axis.ticks()
    assert [text[-len(one) :] for (_, text), one in zip(ticks, expected, strict=True)] == expected
    assert all(0 <= place <= 1 for place, _ in ticks)


def test_a_curve_is_interrupted_where_nothing_was_measured():
    x = np.array([0.0, 1.0, 2.0, 3.0, 100.0, 101.0])
    path = Curve(x, str, Axis("x", 0.0, 101.0)).path(np.ones(6), Axis("y", 0.0, 1.0))
    assert path.count("M") == 2
    assert Curve(np.arange(6.0), str, "x").path(np.ones(6), Axis("y", 0, 1)).count("M") == 1
