"""What a report says of components that are found again in other runs."""

import re
from dataclasses import replace

import numpy as np
import pytest

from conenmf import factorize, from_columns, make_cones, stability
from conenmf.judge.matching import match_components
from conenmf.names import Names
from conenmf.report import render
from conenmf.report.sections import Context, components

STABLE = ("Stability", "fair")  # two of four components are in most runs


@pytest.fixture(scope="module")
def cones():
    model = make_cones(80, 4, 0.15, n_samples=300, rng=np.random.default_rng(0))
    return factorize(from_columns(model.V), 4)


@pytest.fixture(scope="module")
def again(cones):
    """What eight runs have in common, with its components in another order."""
    found = stability(cones.data, 4, 8, max_iter=30)
    order = [2, 0, 3, 1]
    per_component = {
        name: getattr(found, name)[..., order]
        for name in ("W", "found_in", "silhouettes", "cosines", "lower", "upper", "spectra")
    }
    return replace(found, **per_component, H=np.asarray(found.H)[order])


@pytest.mark.parametrize("view", ["curves", "terms", "images"])
def test_the_report_shows_in_how_many_runs_each_component_appears(
    cones, again, parsed, part_of, view
):
    partners, _ = match_components(cones.W, again.W)
    shares = np.array([0.25, 0.5, 0.875, 1.0])
    found = replace(again, found_in=shares)
    cones.diagnose()
    named = replace(cones, names=Names.of(feature_names=[f"gene {f}" for f in range(80)]))
    page = render(named, stability=found, view=view, image_shape=(8, 10))
    text = parsed(page).text
    assert 'id="stability"' in page
    rows = re.findall(r"<dt>(\w+) <small>(\w+)</small></dt>", page)
    assert rows[2:4] == [("Components", cones.diagnosis.row("Components").grade), STABLE]
    assert f"{found.n_minima} in 8" in text
    for k, partner in enumerate(partners):
        article = part_of(page, f"component-{k}")
        assert f"in {shares[partner]:.0%} of 8 runs" in article
        low, high = found.cosine_limits[:, partner]
        assert f"[{low:.3f}, {high:.3f}]" in article
        assert f"silhouette {found.silhouettes[partner]:.2f}" in article
        assert ("not stable" in article) == (shares[partner] < 0.8)
        top = int(cones.W[:, k].argmax())
        scale = cones.W[:, k].sum()
        lower, upper = (limit[top, partner] * scale for limit in (found.lower, found.upper))
        shown = {
            "terms": f"{cones.W[top, k]:.3g} [{lower:.3g}, {upper:.3g}]",
            "curves": 'class="band"',
            "images": f"how much each pixel of component {k} varies",
        }
        assert shown[view] in article
    assert "the 90% limits over 8 runs (random inits, samples drawn with replacement)" in text


def test_limits_beyond_the_frame_end_at_its_top(cones, again):
    """An axis ends at 1.6 times the largest value, however uncertain that is."""
    partners, _ = match_components(cones.W, again.W)
    wide = replace(again, lower=again.lower / 2, upper=6 * again.upper)
    named = replace(cones, names=Names.of(feature_names=[f"gene {f}" for f in range(80)]))
    context = Context(named, "terms", stability=wide)
    for k, card in enumerate(components(context).cards):
        limits = (wide.lower[:, partners[k]], wide.upper[:, partners[k]])
        lower, upper = (one * cones.W[:, k].sum() for one in limits)
        top = context.value_axis(k).high
        assert top == pytest.approx(1.6 * 1.05 * cones.W[:, k].max())
        order = np.argsort(-cones.W[:, k], kind="stable")
        bars = card.picture.bars
        found = [(bar.low, bar.high) for bar in bars]
        expected = np.minimum(np.column_stack([lower, upper]) / top, 1)[order[: len(bars)]]
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert max(bar.high for bar in bars) == 1
        assert f"{upper[order[0]]:.3g}]" in bars[0].value  # the text has the whole range
        (whiskers,) = (mark.path for mark in card.picture.chart.marks if mark.class_ == "whisker")
        ends = np.array(re.findall(r"M[\d.]+ ([\d.]+)V([\d.]+)", whiskers), float)
        shown = 1000 * (1 - np.minimum(np.column_stack([lower, upper]) / top, 1))
        np.testing.assert_allclose(ends, shown, rtol=0, atol=0.051)


def test_a_band_goes_through_the_limits(cones, again, part_of):
    partners, _ = match_components(cones.W, again.W)
    page = render(cones, stability=again, view="curves")
    path = re.search(r'<path d="M([^"]*)z" class="band"', part_of(page, "component-1"))[1]
    x, y = np.array(path.split(), dtype=float).reshape(-1, 2).T
    F, scale = len(cones.W), cones.W[:, 1].sum()
    upper, lower = (limit[:, partners[1]] * scale for limit in (again.upper, again.lower))
    top = max(cones.W[:, 1].max(), min(upper.max(), 1.6 * cones.W[:, 1].max())) * 1.05
    assert x.size == 2 * F
    np.testing.assert_allclose(1 - y[:F] / 1000, np.minimum(upper / top, 1), 0, 1e-4)
    np.testing.assert_allclose(1 - y[: F - 1 : -1] / 1000, lower / top, 0, 1e-4)
