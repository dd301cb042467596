"""What a report shows of all components at once: table, maps, thumbnails, classes, downloads."""

import base64
import csv
import io
import re
from dataclasses import replace

import numpy as np
import pytest

from conenmf import factorize, from_columns, from_rows, make_cones
from conenmf.errors import DataError, OptionError
from conenmf.export import write_tables
from conenmf.names import Names
from conenmf.report import render


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
        *("summary", "components", "maps", "samples", "error"),
        *("reconstruction", "spectrum", "cones", "settings"),
    ]
    lines = re.findall(r'<div class="(\w+)"><dt>(\w+)</dt><dd>(.*?)</dd>', page)
    assert [name for _, name, _ in lines][:4] == ["Error", "Number", "Stability", "Uniqueness"]
    assert {level for level, *_ in lines} <= {"good", "fair", "poor", "open"}
    said = {name: text for _, name, text in lines}
    assert said["Stability"].startswith("Not checked.")


def test_the_table_has_all_components_by_their_share(scene):
    W, H = scene.W, scene.H
    whole = W @ H
    shares = [np.vdot(np.outer(W[:, k], H[k]), whole) / np.vdot(whole, whole) for k in range(4)]
    assert sum(shares) == pytest.approx(1)
    np.testing.assert_allclose(scene.diagnose().shares, shares)
    titles, *rows = rows_of_table(render(scene))
    assert titles == ["component", "share of the reconstruction", "samples", "unique?", "peaks at"]
    order = np.argsort(shares)[::-1]
    assert [plain(row[0]) for row in rows] == [str(k) for k in order]
    assert [plain(row[1]) for row in rows] == [f"{100 * shares[k]:.0f}%" for k in order]
    movable = scene.diagnose().freedom.visible
    verdicts = ["can be moved" if k in movable else "undecided" for k in order]
    assert [plain(row[3]) for row in rows] == verdicts
    peaks = [str(400 + 10 * int(W[:, k].argmax())) for k in order]
    assert [plain(row[4]) for row in rows] == peaks
    words = Names.of(feature_names=[f"word {f}" for f in range(40)])
    titles, *rows = rows_of_table(render(replace(scene, names=words)))
    assert titles[-1] == "largest features"
    largest = np.argsort(-W[:, order[0]])[:8]
    assert plain(rows[0][-1]) == ", ".join(f"word {f}" for f in largest)


def test_terms_that_are_specific_to_a_component(scene):
    W = scene.W.copy()
    W[3] = W.max()  # large in all components, so specific to none
    W[5, 2] = W.max()
    W[5, [0, 1, 3]] = 0
    words = Names.of(feature_names=[f"word {f}" for f in range(40)])
    page = render(replace(scene, W=W, names=words))
    article = page[page.index('id="component-2"') : page.index('id="component-3"')]
    assert "Most specific: large here, small in others</h4><p>word 5, " in article
    assert '<span class="of">word 3<' in article  # the largest value


# --- maps and curves --------------------------------------------------------------------------


def test_a_scene_has_maps_and_pixels_have_places(scene, parsed):
    page = render(scene)
    maps = page[page.index('id="maps"') :].partition("</section>")[0]
    assert maps.count("<img") == 4
    assert 'width="25" height="12"' in maps
    assert "a scene of 12 x 25 pixels" in page
    assert parsed(page).data["samples"]["names"][26] == "pixel (1, 1)"
    assert 'id="endmembers"' in page
    assert page.count('<div class="x name" aria-hidden="true">wavelength</div>') > 4
    given = replace(scene, names=Names())
    assert 'id="maps"' not in render(given)
    assert 'id="maps"' in render(given, pixels_shape=(10, 30))
    with pytest.raises(OptionError, match="5 x 5 have 25 pixels, and there are 300 samples"):
        render(given, pixels_shape=(5, 5))


def test_large_maps_are_thinned(scene, monkeypatch):
    monkeypatch.setattr("conenmf.report.sections._MAX_MAP_PIXELS", 300)
    page = render(scene)
    assert "Of 12 x 25 pixels, 6 x 13 are drawn." in page


def test_all_curves_can_be_pointed_at(scene, parsed):
    data = parsed(render(scene)).data["charts"]["endmembers"]
    units = scene.W / np.linalg.norm(scene.W, axis=0)
    largest = int(units[5].argmax())
    assert data["text"][5].startswith(f"450\ncomponents {largest}: {units[5, largest]:.3g}")
    assert len(data["x"]) == len(data["y"]) == 40
    assert 0 <= min(data["y"]) < max(data["y"]) <= 1


# --- samples ------------------------------------------------------------------------------------


def test_typical_samples_have_thumbnails(scene, tmp_path):
    images = replace(scene, names=Names(image_shape=(5, 8)), data=None)
    article = render(images).partition('id="component-1"')[2].partition("</article>")[0]
    n_images = 1 + (1 in scene.diagnose().freedom.visible)  # how much pixels vary
    assert article.count("<img") == n_images  # features were not known to be pixels
    V = from_columns(np.asarray(scene.data.columns(np.arange(300))), names=images.names)
    again = factorize(V, 4)
    again.diagnose()
    again.save(tmp_path / "result.npz")
    loaded = type(again).load(tmp_path / "result.npz")
    article = render(loaded).partition('id="component-1"')[2].partition("</article>")[0]
    assert article.count("<img") == 7 + (1 in loaded.diagnosis.freedom.visible)
    inspected = loaded.diagnosis.inspected
    assert inspected.thumbnails.shape == (24, 5, 8)
    sample = V.columns([inspected.indices[inspected.typical[1, 2]]])[:, 0].reshape(5, 8)
    expected = (255 / sample.max() * sample).round()
    np.testing.assert_array_equal(inspected.thumbnails[8], expected)


def test_a_zero_sample_is_no_example(scene):
    inspected = scene.diagnose().inspected
    assert inspected.errors[7] == 0
    assert 7 not in inspected.examples
    assert (np.diff(inspected.errors[inspected.examples]) >= 0).all()


def test_typical_samples_are_those_with_the_largest_share(scene):
    inspected = scene.diagnose().inspected
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
    data = parsed(page).data["samples"]
    assert data["classes"] == classes.tolist()
    kinds = [a["data-by"] for _, a in parsed(page).elements if "data-by" in a]
    assert sorted(kinds) == ["class", "class", "component", "component"]
    rows = {plain(row[0]): plain(row[4]) for row in rows_of_table(page)[1:]}
    assert rows["2"] == "oak (100%)"
    names = re.findall(r'<span class="of">([^<]*)</span><small>[\d,]+</small>', page)
    assert {"oak", "elm", "&lt;ash&gt;"} <= set(names)
    elements = parsed(render(scene)).elements
    assert {a["data-by"] for _, a in elements if "data-by" in a} == {"component"}
    with pytest.raises(DataError, match="there are 3 classes for 300 samples"):
        render(scene, classes=[1, 2, 3])
    with pytest.raises(DataError, match="classes="):
        render(scene, classes=[[1], [2]])


def test_very_many_classes_are_joined(scene):
    page = render(scene, classes=np.minimum(np.arange(300), 99))
    assert ">61 others</span><small>61</small>" in page
    assert ">99</span><small>201</small>" in page


def test_one_sample_is_one_sample():
    V = np.eye(4)[:, [0, 1, 2, 3, 3, 3]] + 0.01
    page = render(factorize(from_columns(V), 4))
    assert "1 sample " in page
    assert not re.search(r"\b1 samples", page)


def test_usual_data_are_not_called_failed(parsed):
    V = np.random.default_rng(0).random((20, 60))
    page = parsed(render(factorize(from_columns(V), 4))).text
    assert "too wide for it, as is usual" in page
    assert page.count("fit is not affected") == 1
    assert not re.search("miss(es)? the|too close|must be more", page)


# --- downloads ----------------------------------------------------------------------------------


def downloads_of(page):
    links = re.findall(r'download="(\w+).csv" href="data:text/csv;base64,([^"]*)"', page)
    return {name: base64.b64decode(content).decode() for name, content in links}


def test_factors_can_be_downloaded_from_the_page(scene, tmp_path):
    files = downloads_of(render(scene))
    write_tables(scene, tmp_path)
    for name, factor in (("components", scene.W), ("coefficients", scene.H.T)):
        header, *rows = csv.reader(io.StringIO(files[name]))
        assert header == next(csv.reader(io.StringIO((tmp_path / f"{name}.csv").read_text())))
        np.testing.assert_allclose(np.array(rows)[:, 1:].astype(float), factor, rtol=1e-7)
    assert files["components"].splitlines()[4].startswith('"430",')
    hostile = Names.of(feature_names=["=1+1"] * 40)
    named = downloads_of(render(replace(scene, names=hostile)))["components"]
    assert named.splitlines()[1].startswith('"\'=1+1",')


def test_large_factors_are_not_kept_in_the_page(scene, monkeypatch):
    monkeypatch.setattr("conenmf.report.sections._MAX_FACTOR_BYTES", 4000)
    page = render(scene)
    assert list(downloads_of(page)) == ["components"]
    assert "Download coefficients" not in page
    assert "The coefficients are too large for this page: they are in coefficients.csv" in page


# --- places and texts that are known ------------------------------------------------------------


def test_samples_at_given_coordinates(scene, parsed):
    N = scene.H.shape[1]
    angles = np.linspace(0, 2 * np.pi, N)
    places = np.stack([5 + 2 * np.cos(angles), 40 + np.sin(angles)], axis=1)
    page = parsed(render(scene, coordinates=places))
    assert "at the coordinates that were given, in the colour of the component" in page.text
    assert not [span for span in page.all("span") if span.get("class") == "anchor"]
    drawn = np.array(page.data["samples"]["places"])
    expected = places[scene.diagnose().inspected.indices] - places.mean(axis=0)
    np.testing.assert_allclose(drawn, expected / 2 * (1, -1), atol=0.01)  # upwards, to one scale
    flat = render(scene, coordinates=np.ones((N, 2)))  # all in one place
    assert "nan" not in str(parsed(flat).data["samples"]["places"]).lower()
    for wrong in (places[:-1], places[:, :1], np.full((N, 2), np.nan)):
        with pytest.raises(OptionError, match="coordinates"):
            render(scene, coordinates=wrong)


def test_typical_texts_begin_below_their_names(scene, parsed):
    N = scene.H.shape[1]
    texts = [f"text {n} <script> " + "long " * 200 for n in range(N)]
    page = parsed(render(scene, view="curves", texts=texts))
    below = [span for span in page.all("span") if span.get("class") == "text"]
    assert len(below) == (scene.diagnose().inspected.typical >= 0).sum() > 0
    first = int(scene.diagnose().inspected.indices[scene.diagnose().inspected.typical[0, 0]])
    assert f"text {first} <script> long" in page.text
    assert "long " * 60 not in page.text  # only the beginning
    with pytest.raises(DataError, match=f"{N - 1} texts for {N} samples"):
        render(scene, texts=texts[1:])


def test_components_of_counts_have_the_shares_of_the_result():
    rng = np.random.default_rng(0)
    counts = rng.poisson(rng.gamma(0.3, size=(80, 3)) @ rng.gamma(0.5, size=(3, 12)) * 9)
    result = factorize(from_rows(counts), 3, loss="poisson", init="nndsvd")
    rows = rows_of_table(render(result))[1:]
    assert [plain(row[1]) for row in rows] == [f"{100 * share:.0f}%" for share in result.shares]
