"""Reports in a browser: they draw, react to pointer and keys, and make no network request."""

import itertools
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from conenmf import Factorization, factorize, from_columns, make_cones, stability
from conenmf.names import Names
from conenmf.report import write_report

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
playwright = pytest.importorskip("playwright.sync_api")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

ARTEFACTS = Path(__file__).parent / "artefacts"  # pictures to look at; git ignores them
HOSTILE = "</script><img src=x onerror=window.__pwned=1><svg onload=window.__pwned=1>"
VIEWS = ("curves", "terms", "images")
BANDS = tuple(f"bands-{view}" for view in VIEWS)


@pytest.fixture(scope="module")
def browser():
    sandbox = [] if os.geteuid() else ["--no-sandbox"]  # which root cannot have
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(
            executable_path=CHROMIUM, args=["--disable-gpu", "--disable-dev-shm-usage", *sandbox]
        )
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """The same result in each view; its names are hostile."""
    folder = tmp_path_factory.mktemp("reports")
    model = make_cones(80, 5, 0.15, n_samples=300, rng=np.random.default_rng(0))
    result = factorize(from_columns(model.V), 5, max_iter=15, tol=0)
    names = Names.of([f"{n}{HOSTILE}" for n in range(300)], [f"{f}{HOSTILE}" for f in range(80)])
    parts = {name: getattr(result, name) for name in result.__dataclass_fields__}
    result = Factorization(**{**parts, "names": names})
    settings = {**result.settings, "fixed": {"count": 1, "names": [HOSTILE]}}
    stable = Factorization(**{**parts, "names": names, "settings": settings})
    found = stability(from_columns(model.V), 5, 5, max_iter=15)
    for view in VIEWS:
        options = {"view": view, "image_shape": (8, 10) if view == "images" else None}
        write_report(result, folder / f"{view}.html", title=HOSTILE, source=HOSTILE, **options)
        write_report(stable, folder / f"bands-{view}.html", stability=found, **options)
    days = np.datetime64("2019-01-01") + 4 * np.arange(300) // 3
    dated = Factorization(**{**parts, "names": Names.of(days.astype(str))})
    write_report(dated, folder / "dated.html")
    one = factorize(from_columns(np.random.default_rng(0).random((20, 30))), 1, solver=None)
    write_report(one, folder / "one.html")
    bands = Names.of(feature_names=range(80), pixels_shape=(15, 20))
    scene = Factorization(**{**parts, "names": bands})
    classes = [f"class {n % 3}{HOSTILE}" for n in range(300)]
    write_report(scene, folder / "scene.html", classes=classes)
    W, H = (np.random.default_rng(0).random(shape) for shape in ((80, 40), (40, 300)))
    many = factorize(from_columns(W @ H), 40, init=(W, H), solver=None)
    many.diagnose(effort=0)
    write_report(many, folder / "forty.html", image_shape=(8, 10))
    ARTEFACTS.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def opened(browser, reports):
    """A function that opens a report; any problem in it fails the test."""
    contexts, problems = [], []

    def open_report(name, *, width=1100, scheme="light", **options):
        context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme=scheme,
            reduced_motion="reduce",
            **options,
        )
        contexts.append(context)
        context.set_offline(True)
        page = context.new_page()
        page.set_default_timeout(5000)
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith(("file:", "data:")) else problems.append(request.url)
            ),
        )
        page.goto((reports / f"{name}.html").as_uri())
        return page

    yield open_report
    for context in contexts:
        context.close()
    assert problems == []


@pytest.mark.parametrize(
    ("name", "width"),
    [
        *((name, 360) for name in (*VIEWS, *BANDS, "one", "scene", "forty")),
        ("terms", 1100),
        ("scene", 1100),
    ],
)
def test_it_fits_and_nothing_in_it_acts(opened, name, width):
    page = opened(name, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate("window.__pwned") is None
    assert page.locator("h2").count() == 7 + (name == "scene") + (name in BANDS)
    page.screenshot(path=ARTEFACTS / f"{name}-{width}.png", full_page=True)
    assert page.locator("#map svg").bounding_box()["width"] > 200


@pytest.mark.parametrize("width", [360, 1100])
def test_dates_do_not_overlap(opened, width):
    page = opened("dated", width=width)
    dates = page.locator(".x.axis").filter(has_text="2019-").first.locator("span:visible")
    boxes = [one.bounding_box() for one in dates.all()]
    assert len(boxes) >= 4
    for left, right in itertools.pairwise(boxes):
        assert left["x"] + left["width"] < right["x"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_bands_are_seen_on_screen_and_on_paper(opened, scheme):
    curves, terms, images = (opened(name, scheme=scheme) for name in BANDS)
    band = curves.locator("#component-0 path.band")
    assert band.bounding_box()["height"] > 20
    fill = band.evaluate("part => getComputedStyle(part).fill")
    assert fill == curves.locator("#component-0 h3 path").evaluate(
        "part => getComputedStyle(part).fill"
    )
    limits = """part => { const own = getComputedStyle(part, "::before");
      return [parseFloat(own.left), parseFloat(own.width), part.clientWidth]; }"""
    left, width, whole = terms.locator("#component-0 li.limits").first.evaluate(limits)
    assert 0 <= left < left + width <= whole + 2
    assert images.locator("#component-0 .with-band img").count() == 2
    for page, name in ((curves, "curves"), (terms, "terms"), (images, "images")):
        assert page.locator("#again tbody tr").count() == 5
        page.screenshot(path=ARTEFACTS / f"bands-{name}-{scheme}.png", full_page=True)
        page.emulate_media(media="print")
        assert page.locator("#component-4 .about").is_visible()
        page.screenshot(path=ARTEFACTS / f"bands-{name}-{scheme}-print.png", full_page=True)


def test_the_verdict_is_seen_without_scrolling(opened):
    for width in (360, 1100):
        first = opened("curves", width=width).locator(".verdict > div").first.bounding_box()
        assert first["y"] + first["height"] < 800


def test_samples_are_found_pointed_at_and_highlighted(opened):
    page = opened("curves")
    page.get_by_label("Find a sample").fill("17<")
    readout = page.locator("figure:has(#map) .readout")
    assert readout.text_content().startswith(f"17{HOSTILE}")
    assert "mostly component" in readout.text_content()
    page.locator("#map .ring").hover(force=True)
    assert page.locator("#tip").text_content().startswith(f"17{HOSTILE}")
    page.get_by_label("Find a sample").fill("no such name")
    assert "no sample here has this name" in readout.text_content()
    for n_dim in (4, 0):
        page.locator(".marks button").nth(2).click()
        assert page.locator(".samples.dim").count() == n_dim


CONTRAST = """selector => [...document.querySelectorAll(selector)].map(part => {
  const numbers = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = text => numbers(text)
    .map(c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = part => getComputedStyle(part).backgroundColor;
  let behind = part;
  while (ground(behind) === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
  const [a, b] = [getComputedStyle(part).color, ground(behind)].map(light);
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
})"""
TEXTS = (
    "p, dd, dt, h1, h2, h3, h4, a, button, th, td, code, .axis span, .readout, .of, .value, small"
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(opened, scheme):
    page = opened("terms", scheme=scheme)
    assert min(page.evaluate(CONTRAST, TEXTS)) >= 4.5
    page.screenshot(path=ARTEFACTS / f"terms-{scheme}.png", full_page=True)


@pytest.mark.parametrize("view", VIEWS)
def test_print_shows_all_and_no_controls(opened, view):
    page = opened(view, width=680, scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator(".component:visible").count() == 5
    assert page.locator("#ratios").is_visible()
    assert page.locator(".controls:visible, nav:visible").count() == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("document.documentElement.scrollWidth") <= 680


def test_without_scripts_all_is_there(opened):
    page = opened("images", java_script_enabled=False)
    assert page.locator(".component").count() == 5
    assert all(part.is_visible() for part in page.locator(".component img").all())
    assert page.locator("#ratios svg").is_visible()


def test_every_control_has_a_name_and_can_be_reached(opened):
    page = opened("curves")
    unnamed = """[...document.querySelectorAll("button, input, [tabindex='0']")].filter(part =>
      !(part.textContent.trim() || part.ariaLabel || part.labels?.length)).length"""
    assert page.evaluate(unnamed) == 0
    reached = set()
    page.locator("body").focus()
    for _ in range(90):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id"))
        if "ratios" in reached:
            break
    assert {"ratios", "choose-0", "curve-0", "find"} <= reached
