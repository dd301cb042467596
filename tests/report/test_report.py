"""The report page: numbers and names of the result, every kind of result, no script from names."""

import base64
import hashlib
import re
from dataclasses import replace

import numpy as np
import pytest

from conenmf import factorize, from_columns, make_cones
from conenmf.names import Names
from conenmf.report import render

HOSTILE = "</script><img src=x onerror=window.__pwned=1>'\"&\u2028${title}"


def with_names(result, **names):
    result.diagnose()
    return replace(result, names=Names.of(**names))


@pytest.fixture(scope="module")
def cones():
    model = make_cones(80, 4, 0.15, n_samples=300, rng=np.random.default_rng(0))
    return factorize(from_columns(model.V))


# --- what it shows ----------------------------------------------------------------------------


def test_it_describes_what_was_found(cones, parsed):
    page = parsed(render(cones, title="Four cones", source="cones.npy"))
    assert page.open == []
    assert cones.diagnose().headline.capitalize() in page.text
    certificate, facts = cones.certify(), cones.diagnose().details.cones
    for value in (certificate.relative_error, certificate.lower_bound, facts.error, facts.bound):
        assert f"{value:.4g}" in page.text
    for sentence in (
        "Proven: no nonnegative factorization with 4 components",
        f"Without the constraint of nonnegativity, the bound is {certificate.eckart_young:.4g}",
        "The geometric assumption holds",
        "300 samples \N{MULTIPLICATION SIGN} 80 features",
    ):
        assert sentence in page.text
    headings = [tag for tag, _ in page.elements if tag in ("h1", "h2", "main", "nav", "header")]
    assert headings == ["header", "h1", "nav", "main", *["h2"] * 7]
    assert page.all("html") == [{"lang": "en"}]
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_the_numbers_to_point_at_are_those_of_the_result(cones, parsed):
    data = parsed(render(cones)).data
    diagnosis = cones.diagnose().details
    ratio = f": {diagnosis.rank.ratios[3]:.4g}"
    assert data["charts"]["ratios"]["text"][3].endswith(ratio)
    top = [shares[0][0] for shares in data["samples"]["shares"]]
    assert data["samples"]["labels"] == top == diagnosis.inspected.labels.tolist()
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
    cones = with_names(cones, **names)
    page = parsed(render(cones, **options))
    classes = {attributes.get("class") for _, attributes in page.elements}
    assert {f"components {expected}", f"pairs {expected}"} <= classes
    assert ("endmembers" in page.data["charts"]) == (expected == "curves")
    pictures = [image["src"] for image in page.all("img")]
    n_thumbnails, n_varying = 4 * 6, cones.known_uniqueness.verdicts.count("can be moved")
    n_images = 2 * 4 + n_varying + n_thumbnails + 12  # each component is in the chooser too
    assert len(pictures) == (n_images if expected == "images" else 0)


def test_terms_are_the_features_with_the_largest_values(cones, part_of):
    page = render(with_names(cones, feature_names=[f"gene {f}" for f in range(80)]))
    named = re.findall(r'<span class="of">(gene \d+)<', part_of(page, "component-2"))
    assert named == [f"gene {f}" for f in np.argsort(-cones.W[:, 2])[:12]]


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
def test_every_kind_of_result_has_a_report_in_every_view(kind, parsed):
    data, options = KINDS[kind]
    result = factorize(from_columns(data), rng=np.random.default_rng(0), **options)
    has_cones = result.diagnose().details.cones is not None
    for view in ("curves", "terms", "images"):
        page = parsed(render(result, view=view, image_shape=(1, data.shape[0])))
        assert page.open == [], view
        assert "nan" not in page.text, view
        assert ("There are no cones" in page.text) != has_cones, view
        assert ("There was no iteration" in page.text) == (result.n_iter == 0), view


def test_a_loaded_result_has_the_same_report(cones, reloaded):
    cones.diagnose()
    assert render(reloaded(cones)) == render(cones)


# --- safety -----------------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["curves", "terms", "images"])
def test_names_stay_text(cones, view, parsed):
    names = {
        "sample_names": [f"{n}{HOSTILE}\x1b[31m" for n in range(300)],
        "feature_names": [HOSTILE] * 80,
    }
    result = with_names(cones, **names, image_shape=(8, 10))
    settings = {**result.settings, "init": HOSTILE, HOSTILE: HOSTILE, "command": HOSTILE}
    decided = {"K_decided_by": HOSTILE, "init_used": HOSTILE}
    usual = replace(cones, settings={**cones.settings, "command": "x"})
    plain = parsed(render(usual, view=view, image_shape=(8, 10)))
    hostile = replace(result, settings=settings, **decided)
    text = render(hostile, view=view, title=HOSTILE, source=HOSTILE)
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
