"""What a report shows of all components at once: table, maps, thumbnails, classes."""

import re
from dataclasses import replace

import numpy as np
import pytest

from conenmf import factorize, from_columns, make_cones
from conenmf.names import Names
from conenmf.report import render
from conenmf.report.sections import percent, sentence


@pytest.fixture(scope="module")
def scene():
    """A scene of 12 x 25 pixels in 40 bands; one pixel is black."""
    model = make_cones(40, 4, 0.3, n_samples=300, rng=np.random.default_rng(0))
    V = model.V.copy()
    V[:, 7] = 0
    names = Names.of(feature_names=np.arange(400, 800, 10), pixels_shape=(12, 25))
    result = factorize(from_columns(V, names=names), 4)
    result.diagnose()
    return result


def rows_of_table(page):
    table = page[page.index('id="overview"') :].partition("</table>")[0]
    rows = re.findall(r"<tr.*?</tr>", table)
    return [re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row) for row in rows]


def plain(html):
    return re.sub(r"<[^>]*>", "", html).strip()


def test_the_verdict_comes_first_then_components_then_details(scene, parsed):
    page = render(scene)
    order = [a["id"] for a in parsed(page).all("section")]
    assert order == [
        *("summary", "components", "maps", "samples"),
        *("reconstruction", "number", "cones", "settings"),
    ]
    diagnosis = scene.diagnose()
    assert f'<p class="headline">{sentence(diagnosis.headline)}</p>' in page
    lines = re.findall(
        r'<div class="(\w+)"><dt>(\w+) <small>(\w+)</small></dt><dd>(.*?)</dd>', page
    )
    assert lines[0][1] == "Data"
    for (level, name, said, text), row in zip(lines, diagnosis.rows, strict=True):
        assert (name, said, level) == (row.name, row.grade, row.grade)
        advice = f" {sentence(row.advice)}." if row.advice else ""
        assert plain(text) == f"{sentence(row.finding)}.{advice}"


def test_every_component_shows_its_grade_in_colour_and_the_reason(scene, part_of):
    grades = ("interpret", "with care", "do not", "open")
    reasons = tuple(f"reason {k}; <b> & more" for k in range(4))
    judged = replace(scene.diagnose(), components=grades, reasons=reasons)
    page = render(replace(scene, diagnosis=judged))
    assert "nique" not in page.partition("<body>")[2]
    _, *rows = rows_of_table(page)
    shown = {plain(row[0]): row[3] for row in rows}
    for k, level in enumerate(("good", "fair", "poor", "open")):
        grade = f'<b class="grade {level}">{grades[k]}</b>'
        reason = f"reason {k}; &lt;b&gt; &amp; more"
        assert shown[str(k)] == f"{grade} <small>{reason}</small>"
        card = part_of(page, f"component-{k}")
        assert f"<dt>Interpret it?</dt><dd>{grade} <small>{sentence(reason)}</small>" in card
        words = scene.known_uniqueness.in_words(k).removeprefix("other factors: ")
        assert f"<dt>Other factors</dt><dd>{sentence(words)}" in card


def test_a_component_of_which_other_factors_are_not_known_says_so(scene, part_of):
    known = replace(
        scene.known_uniqueness, was_searched=False, radii=np.zeros(4), angles=np.zeros(4)
    )
    searched = replace(known, was_searched=True)
    for found, words in (
        (known, "Not searched; exact factors of WH move it by at most 0.01°"),
        (searched, "Proved: no other factors of WH (exact factors"),
    ):
        page = render(replace(scene, known_uniqueness=found))
        assert f"<dt>Other factors</dt><dd>{words}" in part_of(page, "component-2")


def test_the_table_has_all_components_by_their_share(scene):
    W, H = scene.W, scene.H
    whole = W @ H
    shares = [np.vdot(np.outer(W[:, k], H[k]), whole) / np.vdot(whole, whole) for k in range(4)]
    assert sum(shares) == pytest.approx(1)
    np.testing.assert_allclose(scene.shares, shares)
    titles, *rows = rows_of_table(render(scene))
    shown = ["component", "share of the reconstruction", "samples", "interpret it?", "peaks at"]
    assert titles == shown
    order = np.argsort(shares)[::-1]
    peaks = 400 + 10 * W.argmax(axis=0)
    expected = [[str(k), percent(shares[k]), str(peaks[k])] for k in order]
    assert [[plain(row[place]) for place in (0, 1, 4)] for row in rows] == expected
    words = Names.of(feature_names=[f"word {f}" for f in range(40)])
    titles, *rows = rows_of_table(render(replace(scene, names=words)))
    assert titles[-1] == "largest features"
    largest = np.argsort(-W[:, order[0]])[:8]
    assert plain(rows[0][-1]) == ", ".join(f"word {f}" for f in largest)


# --- maps and curves --------------------------------------------------------------------------


def test_a_scene_has_maps_and_pixels_have_places(scene, parsed, part_of):
    page = render(scene)
    maps = part_of(page, "maps")
    assert maps.count("<img") == 4
    assert 'width="25" height="12"' in maps
    assert parsed(page).data["samples"]["names"][26] == "pixel (1, 1)"
    assert 'id="endmembers"' in page
    assert page.count('<div class="x name" aria-hidden="true">wavelength</div>') > 4
    given = replace(scene, names=Names())
    assert 'id="maps"' not in render(given)
    assert 'id="maps"' in render(given, pixels_shape=(10, 30))


# --- samples ------------------------------------------------------------------------------------


def is_moved(result, k):
    return result.known_uniqueness.verdicts[k] == "can be moved"


def test_typical_samples_have_thumbnails(scene, reloaded, part_of):
    images = replace(scene, names=Names(image_shape=(5, 8)), data=None)
    n_images = 1 + is_moved(scene, 1)  # how much pixels vary
    # features were not known to be pixels
    assert part_of(render(images), "component-1").count("<img") == n_images
    V = from_columns(np.asarray(scene.data.columns(np.arange(300))), names=images.names)
    again = factorize(V, 4)
    again.diagnose()
    loaded = reloaded(again)
    assert part_of(render(loaded), "component-1").count("<img") == 7 + is_moved(loaded, 1)
    inspected = loaded.diagnosis.details.inspected
    assert inspected.thumbnails.shape == (24, 5, 8)
    sample = V.columns([inspected.indices[inspected.typical[1, 2]]])[:, 0].reshape(5, 8)
    expected = (255 / sample.max() * sample).round()
    np.testing.assert_array_equal(inspected.thumbnails[8], expected)


def test_typical_samples_are_those_with_the_largest_share(scene):
    inspected = scene.diagnose().details.inspected
    shares = (
        inspected.coefficients / np.maximum(inspected.coefficients.sum(axis=1), 1e-300)[:, None]
    )
    for k, places in enumerate(inspected.typical):
        chosen = shares[places, k]
        assert (np.diff(chosen) <= 0).all()
        assert chosen.min() >= np.sort(shares[:, k])[-6] - 0.01


def test_known_classes_colour_the_map_and_are_counted(scene, parsed):
    classes = np.where(scene.labels == 2, "oak", np.where(np.arange(300) % 2, "elm", "<ash>"))
    page = render(scene, classes=classes)
    assert parsed(page).data["samples"]["classes"] == classes.tolist()
    kinds = [a["data-by"] for _, a in parsed(page).elements if "data-by" in a]
    assert sorted(kinds) == ["class", "class", "component", "component"]
    names = re.findall(r'<span class="of">([^<]*)</span><small>[\d,]+</small>', page)
    assert {"oak", "elm", "&lt;ash&gt;"} <= set(names)
    elements = parsed(render(scene)).elements
    assert {a["data-by"] for _, a in elements if "data-by" in a} == {"component"}


# --- places and texts that are known ------------------------------------------------------------


def test_square_images_are_recognised_and_curves_are_not():
    rows, columns = np.mgrid[:12, :12]
    places = ((3, 3), (3, 9), (9, 5))
    spots = [np.exp(-((rows - r) ** 2 + (columns - c) ** 2) / 9).ravel() for r, c in places]
    images = np.stack(spots, axis=1)
    H = np.random.default_rng(0).random((3, 60))
    assert 'class="components images"' in render(factorize(from_columns(images @ H), 3))
    peaks = np.exp(-((np.arange(144)[:, None] - (30, 70, 110)) ** 2) / 200)
    noise = np.random.default_rng(0).random((144, 3))
    for W in (peaks, noise):
        assert 'class="components curves"' in render(factorize(from_columns(W @ H), 3))


@pytest.mark.parametrize(
    ("share", "said"),
    [
        *((0.0, "0.0%"), (0.0004, "< 0.1%"), (0.012, "1.2%"), (0.0994, "9.9%"), (0.0996, "10%")),
        *((0.234, "23%"), (0.994, "99%"), (0.995, "99.50%"), (0.99999, "99.99%"), (1.0, "100%")),
    ],
)
def test_a_share_has_two_digits_and_only_all_is_all(share, said):
    assert percent(share) == said
