import base64
import hashlib
import io
import os
import re
from dataclasses import replace

import numpy as np
import PIL.Image
import pytest

from conenmf import Factorization, factorize, from_columns, from_rows, make_cones
from conenmf.errors import NotAvailableError, OptionError, OutputError
from conenmf.judge.diagnosis import InspectedSamples
from conenmf.judge.uniqueness import Freedom
from conenmf.names import Names
from conenmf.report import render, write_report
from conenmf.report.charts import Curve
from conenmf.report.context import png
from conenmf.report.sample_map import SampleMap, round_tour

HOSTILE = "</script><img src=x onerror=window.__pwned=1>'\"&\u2028${title}"


def renamed(result, **names):
    result.diagnose()
    return replace(result, names=Names.of(**names))


@pytest.fixture(scope="module")
def cones():
    model = make_cones(80, 4, 0.15, n_samples=300, rng=np.random.default_rng(0))
    return factorize(from_columns(model.V))


@pytest.fixture(scope="module")
def mixtures():
    rng = np.random.default_rng(0)
    V = rng.gamma(0.5, size=(40, 5)) @ rng.dirichlet(np.ones(5), 90).T
    return factorize(from_columns(V), 5, init="random", rng=rng, max_iter=20)


# --- what it shows ----------------------------------------------------------------------------


def test_it_describes_what_was_found(cones, parsed):
    page = parsed(render(cones, title="Four cones", source="cones.npy"))
    assert page.open == []
    for line in cones.summary():
        assert line[1:] in page.text
    certificate, facts = cones.certify(), cones.diagnose().cones
    for value in (certificate.relative_error, certificate.lower_bound, facts.error, facts.bound):
        assert f"{value:.4g}" in page.text
    assert "Proven: no nonnegative factorisation with 4 components" in page.text
    assert f"For factors of any sign it is {certificate.eckart_young:.4g}" in page.text
    assert "The geometric assumption holds" in page.text
    assert "300 samples \N{MULTIPLICATION SIGN} 80 features" in page.text
    assert "V = open_data('cones.npy')" in page.text
    assert "result = factorize(V, 'auto', init='auto', solver='hals'" in page.text
    headings = [tag for tag, _ in page.elements if tag in ("h1", "h2", "main", "nav", "header")]
    assert headings == ["header", "h1", "nav", "main", *["h2"] * 8]
    assert page.all("html") == [{"lang": "en"}]
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_the_numbers_to_point_at_are_those_of_the_result(cones, parsed):
    data = parsed(render(cones)).data
    history, diagnosis = cones.history, cones.diagnose()
    assert len(data["charts"]["error-iteration"]["text"]) == cones.n_iter
    last = data["charts"]["error-iteration"]["text"][-1]
    assert last.endswith(f"{history.relative_error[-1]:.5g}")
    assert data["samples"]["labels"] == diagnosis.inspected.labels.tolist()
    top = [shares[0][0] for shares in data["samples"]["shares"]]
    assert top == diagnosis.inspected.labels.tolist()
    assert sum(name.startswith("curve-") for name in data["charts"]) == cones.K


@pytest.mark.parametrize(
    ("names", "options", "expected"),
    [
        ({}, {}, "curves"),
        ({"image_shape": (8, 10)}, {}, "images"),
        ({}, {"image_shape": (10, 8)}, "images"),
        ({"feature_names": [f"gene {f}" for f in range(80)]}, {}, "terms"),
        ({"feature_names": [f"{400 + 2.5 * f}" for f in range(80)]}, {}, "curves"),
        ({"feature_names": ["nan", *map(str, range(79))]}, {}, "terms"),
        ({"feature_names": [f"gene {f}" for f in range(80)]}, {"view": "curves"}, "curves"),
        ({"image_shape": (8, 10)}, {"view": "terms"}, "terms"),
    ],
)
def test_components_are_shown_as_their_field_does(cones, names, options, expected, parsed):
    cones = renamed(cones, **names)
    page = parsed(render(cones, **options))
    classes = [attributes.get("class") for _, attributes in page.elements]
    assert f"components {expected}" in classes
    assert f"pairs {expected}" in classes
    assert ("endmembers" in page.data["charts"]) == (expected == "curves")
    pictures = [image["src"] for image in page.all("img")]
    n_thumbnails, n_varying = 4 * 6, len(cones.diagnose().freedom.visible)
    n_images = 2 * 4 + n_varying + n_thumbnails + 12  # each component is in the chooser too
    assert len(pictures) == (n_images if expected == "images" else 0)


def test_numbers_that_name_features_are_their_places(cones, parsed):
    wavelengths = [f"{400 + 5 * f}" for f in reversed(range(80))]
    page = render(renamed(cones, feature_names=wavelengths))
    texts = parsed(page).data["charts"]["curve-2"]["text"]
    assert texts[0] == f"400: {cones.W[-1, 2]:.3g}"
    assert ">500</span>" in page


def test_terms_are_the_features_with_the_largest_values(cones):
    page = render(renamed(cones, feature_names=[f"gene {f}" for f in range(80)]))
    article = page[page.index('id="component-2"') : page.index('id="component-3"')]
    heaviest = np.argsort(-cones.W[:, 2])[:12]
    named = re.findall(r'<span class="of">(gene \d+)<', article)
    assert named == [f"gene {f}" for f in heaviest]


def test_which_components_are_unique_or_can_be_moved(cones, parsed):
    assert "judges the error, not the truth of the components" in parsed(render(cones)).text
    spare, exchange = np.array([False, False, True, False]), np.zeros((4, 4))
    exchange[3, 1] = 0.3
    angles, radii = np.radians([0, 16.9, 80, 4.9]), np.array([0.001, np.inf, np.inf, np.inf])
    freedom = Freedom(angles, exchange, spare, radii, np.zeros((4, 4)))
    known = replace(cones.diagnose(), freedom=freedom)
    page = render(replace(cones, diagnosis=known))
    turns = (
        "Unique <small>exact factors of WH move it by at most 0.06°</small>",
        "Can be moved <small>by 16° towards component 3, at the same error</small>",
        "Can be moved <small>to anything, since the others make",
        "Undecided <small>not proved unique",
    )
    for k, turn in enumerate(turns):
        assert turn in article_of(page, k)
        assert ('class="band"' in article_of(page, k)) == (k in (1, 2))
    assert "1 unique (exact factors of WH move them by at most 1°), 2 can be moved" in page
    assert "only factors with the same reconstruction were sought" in page
    assert "The band of a component shows where values are in other factors" in page


def article_of(page, k):
    return page[page.index(f'id="component-{k}"') :].partition("</article>")[0]


def test_reconstructions_go_from_the_best_to_the_worst(mixtures):
    page = render(mixtures)
    errors = [float(e) for e in re.findall(r"relative error ([\d.e-]+)</span></figcaption>", page)]
    assert len(errors) == 6
    assert errors == sorted(errors)


def test_samples_are_called_by_name(cones, parsed):
    page = render(renamed(cones, sample_names=[f"person {n}" for n in range(300)]))
    assert parsed(page).data["samples"]["names"][7] == "person 7"
    coefficients = cones.diagnose().inspected.coefficients
    strongest = np.argmax(coefficients[:, 1] / coefficients.sum(axis=1))
    article = page[page.index('id="component-1"') : page.index('id="component-2"')]
    assert f"person {cones.diagnose().inspected.indices[strongest]}<" in article


def test_further_facts(cones, parsed):
    page = parsed(render(cones, extra={"command": "conenmf fit <x>", "seed": 7}))
    assert "conenmf fit <x>" in page.text
    assert "seed7" in page.text


def test_own_functions_are_not_called_by_name(cones, parsed):
    own = factorize(
        from_columns(np.eye(4) + 0.1), 2, init=lambda V, K, rng: (np.ones((4, 2)), None)
    )
    assert "init='<lambda>'" not in render(own)
    assert "# init: your own" in parsed(render(own)).text


# --- all kinds of results ---------------------------------------------------------------------


RNG = np.random.default_rng(0)
KINDS = {
    "one component": (RNG.random((20, 30)), {"K": 1}),
    "two components": (RNG.random((20, 30)), {"K": 2}),
    "no cones": (np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 1.0]), {"K": 2, "init": "random"}),
    "no solver": (RNG.random((20, 30)), {"K": 3, "solver": None}),
    "no iteration": (RNG.random((20, 30)), {"K": 3, "max_iter": 0}),
    "exact": (np.eye(3), {"K": 3}),
    "zero samples": (RNG.random((20, 30)) * (np.arange(30) % 3 > 0), {"K": 3}),
    "zero features": (RNG.random((20, 30)) * (np.arange(20) % 3 > 0)[:, None], {"K": 3}),
    "one feature": (RNG.random((1, 30)), {"K": 1}),
    "one sample": (RNG.random((20, 1)), {"K": 1}),
    "tiny": (1e-30 * RNG.random((20, 30)), {"K": 3}),
    "huge": (1e30 * RNG.random((20, 30)), {"K": 3}),
    "float32": (RNG.random((20, 30), dtype=np.float32), {"K": 3}),
    "integers": (RNG.integers(0, 9, (20, 30)), {"K": 3}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("view", ["curves", "terms", "images"])
def test_every_kind_of_result_has_a_report(kind, view, parsed):
    data, options = KINDS[kind]
    V = from_columns(data)
    result = factorize(V, rng=np.random.default_rng(0), **options)
    page = parsed(render(result, view=view, image_shape=(1, data.shape[0])))
    assert page.open == []
    assert "nan" not in page.text
    assert ("There are no cones" in page.text) == (result.diagnose().cones is None)
    assert ("There was no iteration" in page.text) == (result.n_iter == 0)


def test_a_loaded_result_has_the_same_report(cones, tmp_path):
    cones.diagnose()
    cones.save(tmp_path / "result.npz")
    assert render(Factorization.load(tmp_path / "result.npz")) == render(cones)


def test_without_a_diagnosis_or_data_there_is_none(tmp_path):
    factorize(from_columns(np.eye(3)), 2).save(tmp_path / "result.npz")
    with pytest.raises(NotAvailableError, match="diagnose"):
        render(Factorization.load(tmp_path / "result.npz"))


def test_wrong_options(cones):
    with pytest.raises(OptionError, match="view='pie' is unknown"):
        render(cones, view="pie")
    with pytest.raises(OptionError, match="needs image_shape"):
        render(cones, view="images")
    with pytest.raises(OptionError, match="9 x 9 have 81 pixels, and there are 80 features"):
        render(cones, image_shape=(9, 9))


# --- safety -----------------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["curves", "terms", "images"])
def test_names_stay_text(cones, view, parsed):
    names = {
        "sample_names": [f"{n}{HOSTILE}\x1b[31m" for n in range(300)],
        "feature_names": [HOSTILE] * 80,
    }
    result = renamed(cones, **names, image_shape=(8, 10))
    settings = {**result.settings, "init": HOSTILE, HOSTILE: HOSTILE}
    decided = {"K_decided_by": HOSTILE, "init_used": HOSTILE}
    plain = parsed(render(cones, view=view, image_shape=(8, 10)))
    text = render(
        replace(result, settings=settings, **decided),
        view=view,
        title=HOSTILE,
        source=HOSTILE,
        extra={HOSTILE: HOSTILE, "command": HOSTILE},
    )
    page = parsed(text)
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in plain.elements}
    assert not any(key.startswith("on") for _, attributes in page.elements for key in attributes)
    assert all(image["src"].startswith("data:image/png;base64,") for image in page.all("img"))
    assert "\x1b" not in text
    assert "\\x1b[31m" in page.data["samples"]["names"][0]
    assert page.text.count("onerror") > 3


def test_the_policy_lets_in_only_the_script_of_the_page(cones):
    page = render(cones)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{digest}'; ")
    assert "http:" not in page.replace("http-equiv", "")
    assert "https:" not in page
    assert "innerHTML" not in script


# --- charts and the map ---------------------------------------------------------------------


def test_pictures_are_png():
    image = np.arange(12.0).reshape(3, 4)
    content = base64.b64decode(png(image, 11.0).split(",")[1])
    pixels = np.asarray(PIL.Image.open(io.BytesIO(content), formats=["PNG"]))
    np.testing.assert_array_equal(pixels, np.round(image / 11 * 255))


def test_long_curves_keep_their_peaks():
    values = np.zeros(50_000)
    values[31_234] = 7.0
    curve = Curve.over(np.arange(50_000.0))
    assert curve.thinned
    assert curve.highs(values).max() == 7.0
    assert curve.x.size == 400


@pytest.mark.parametrize("K", [1, 2, 3, 9, 30])
def test_samples_have_places_of_their_own(K):
    shares = np.random.default_rng(K).dirichlet(np.full(K, 0.2 / max(K / 9, 1)), 500)
    similarity = shares.T @ shares
    assert sorted(round_tour(similarity)) == list(range(K))
    layout = SampleMap.of(shares, similarity)
    assert len(np.unique(layout.places.round(6), axis=0)) == 500
    assert np.abs(layout.places).max() < layout.half_side
    pure = shares.max(axis=1) > 0.95
    distances = ((layout.places[pure, None] - layout.anchors) ** 2).sum(axis=2)
    nearest = np.argmin(distances, axis=1)
    assert (nearest == shares[pure].argmax(axis=1)).mean() > 0.9


def test_similar_components_are_neighbours():
    angle = np.random.default_rng(0).permutation(12) * 2 * np.pi / 12
    tour = round_tour(np.cos(angle[:, None] - angle))
    steps = np.abs(np.diff(angle[np.append(tour, tour[0])]))
    np.testing.assert_allclose(np.minimum(steps, 2 * np.pi - steps), 2 * np.pi / 12)


# --- size and files ---------------------------------------------------------------------------


def test_large_results_have_small_reports(cones):
    """Of 50,000 features and as many samples as are ever shown; only the diagnosis is made up."""
    rng, F, K, S = np.random.default_rng(0), 50_000, 20, 2000
    samples = InspectedSamples(
        indices=np.arange(S),
        coefficients=rng.dirichlet(np.full(K, 0.2), S),
        labels=rng.integers(0, K, S),
        errors=rng.random(S),
        examples=np.arange(6),
        originals=rng.random((F, 6)),
        typical=rng.integers(0, S, (K, 6)),
        thumbnails=np.zeros((0, 1, 1), dtype=np.uint8),
    )
    sizes = np.full(K, 100)
    ones = np.ones((K, K))
    freedom = Freedom(np.ones(K), ones, np.zeros(K, bool), np.full(K, np.inf), ones)
    parts = {"cones": None, "freedom": freedom, "inspected": samples, "sizes": sizes}
    parts["shares"] = np.full(K, 1 / K)
    known = replace(cones.diagnose(), **parts)
    factors = {"W": rng.random((F, K)), "H": np.ones((K, S)), "labels": samples.labels}
    result = replace(cones, **factors, shares=parts["shares"], diagnosis=known, data=None)
    assert len(render(result).encode()) < 2e6
    assert len(render(result, view="terms").encode()) < 1e6
    assert len(render(result, image_shape=(250, 200)).encode()) < 5e6


def test_it_is_written_whole(cones, tmp_path):
    target = tmp_path / "report.html"
    target.write_text("earlier")
    with pytest.raises(OptionError):
        write_report(cones, target, view="pie")
    assert target.read_text() == "earlier"
    write_report(cones, target, title="Cones")
    assert target.read_text(encoding="utf-8") == render(cones, title="Cones")
    assert os.listdir(tmp_path) == ["report.html"]
    with pytest.raises(OutputError, match="its folder does not exist"):
        write_report(cones, tmp_path / "nowhere" / "report.html")


def test_samples_in_rows_with_names(parsed):
    pandas = pytest.importorskip("pandas")
    X = np.random.default_rng(0).random((30, 4))
    frame = pandas.DataFrame(X, [f"cell {n}" for n in range(30)], list("ACGT"))
    page = parsed(render(factorize(from_rows(frame), 2)))
    assert "cell 0" in page.data["samples"]["names"]


def test_the_numbers_of_the_cones_are_those_of_the_assumption(cones, mixtures, parsed):
    for result in (cones, mixtures):
        geometry = result.diagnose().cones.geometry
        first, second = np.degrees(np.sort(geometry.angles)[::-1][:2])
        page = parsed(render(result)).text
        text = f"{first:.1f}° + {second:.1f}° = {3 * first + second:.1f}° apart"
        assert text in page


def test_each_component_shows_its_number_of_samples(mixtures):
    page = render(mixtures)
    sizes = np.bincount(mixtures.labels[mixtures.labels >= 0], minlength=5)
    assert np.unique(sizes).size > 1
    for k, size in enumerate(sizes):
        start = page.index(f'id="component-{k}"')
        assert f"{size} of 90" in page[start : page.find("</article>", start)]


def test_the_race_of_inits_is_shown(cones, tmp_path):
    assert "Only cr1 was run, on the data, where the lower bound is about" in render(cones)
    V = np.random.default_rng(0).gamma(0.5, size=(30, 80))
    result = factorize(from_columns(V), 4)
    page = render(result)
    assert len(result.race.entrants) > 1
    assert f"the solver continued from {result.race.winner.init}." in page
    for one in result.race.entrants:
        assert f'<th scope="row">{one.init}</th><td>{one.relative_error:.4g}</td>' in page
    result.save(tmp_path / "result.npz")
    loaded = Factorization.load(tmp_path / "result.npz")
    assert (loaded.race, loaded.prospect) == (result.race, result.prospect)


def test_the_program_that_repeats_a_fit_has_its_loss_and_names_what_else_it_needs(parsed):
    rng = np.random.default_rng(0)
    X = rng.poisson(5.0, (30, 8)).astype(float)
    text = parsed(render(factorize(from_rows(X), 2, loss="poisson"))).text
    assert "factorize(V, 2, loss='poisson', init='auto', solver='newton'" in text
    X[rng.random(X.shape) < 0.2] = np.nan
    text = parsed(render(factorize(from_rows(X, missing="nan"), 2))).text
    assert "which entries are missing" in text
    assert "observed: " not in text
    assert "{'missing'" not in text
