"""The parts of a page hold what follows from the result, here computed once more."""

import base64
import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from conenmf import factorize, from_columns, from_rows, make_cones, stability
from conenmf.judge import details
from conenmf.judge.matching import match_components
from conenmf.names import Names
from conenmf.report.sections import (
    Context,
    components,
    number,
    reconstructions,
    residuals,
    samples,
    verdict,
)

N, F = 90, 12


@pytest.fixture(scope="module")
def genes():
    """A result whose features have names."""
    model = make_cones(40, 4, 0.3, n_samples=120, rng=np.random.default_rng(0))
    names = Names.of(feature_names=[f"gene {f}" for f in range(40)])
    return Context(factorize(from_columns(model.V, names=names)))


@pytest.fixture(scope="module")
def few():
    """A result of measurements of which a third are inspected, with two classes."""
    rng = np.random.default_rng(1)
    truth = rng.gamma(1.0, 1.0, (N, 3)) @ rng.dirichlet(np.full(F, 0.4), 3)
    sigma = 0.02 + 0.1 * truth
    X = np.maximum(truth + sigma * rng.standard_normal(truth.shape), 0)
    names = Names.of([f"day {n}" for n in range(N)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(details, "_MAX_INSPECTED_SAMPLES", N // 3)
        result = factorize(from_rows(X, sigma=sigma, names=names), 3)
        result.diagnose()
    classes = np.where(np.arange(N) % 5, "wet", "dry")
    return Context(result, classes=classes)


def test_specific_terms_are_large_here_and_small_in_other_components(genes):
    units = genes.W / np.linalg.norm(genes.W, axis=0)
    specific = units**2 / units.sum(axis=1, keepdims=True)
    assert (np.argsort(-specific, axis=0) != np.argsort(-units, axis=0))[:6].any()
    for card, own in zip(components(genes).cards, specific.T, strict=True):
        named = card.specific.split(", ")
        assert named == [f"gene {f}" for f in np.argsort(-own)[: len(named)]]


def test_a_card_describes_its_component(few):
    result, inspected = few.result, few.details.inspected
    shares = inspected.coefficients / inspected.coefficients.sum(axis=1, keepdims=True)
    for k, card in enumerate(components(few).cards):
        assert card.peak == f"feature {result.W[:, k].argmax()}"
        chosen = inspected.typical[k]
        assert [one.name for one in card.typical] == [f"day {inspected.indices[n]}" for n in chosen]
        np.testing.assert_allclose([one.share for one in card.typical], shares[chosen, k])


def test_samples_that_were_inspected_have_their_own_names_classes_places_and_errors(few):
    found, inspected = samples(few), few.details.inspected
    assert found.size == inspected.indices.size == N // 3
    data = found.data
    assert data["names"] == [f"day {n}" for n in inspected.indices]
    assert data["classes"] == ["wet" if n % 5 else "dry" for n in inspected.indices]
    assert data["labels"] == few.result.labels[inspected.indices].tolist()
    np.testing.assert_allclose(data["errors"], inspected.errors, rtol=1e-3)
    assert len(data["places"]) == found.size
    shares = 100 * inspected.coefficients / inspected.coefficients.sum(axis=1, keepdims=True)
    for shown, own in zip(data["shares"], shares, strict=True):
        assert shown == [(k, round(own[k])) for k in np.argsort(-own) if own[k] > 0.5]
    of_class, of_component = found.groups
    assert of_class.buttons == [("wet", 72), ("dry", 18)]
    sizes = np.bincount(few.result.labels, minlength=3)
    assert of_component.buttons == [(str(k), size) for k, size in enumerate(sizes)]


def test_residuals_are_those_of_the_samples_that_were_inspected(few):
    inspected, left = few.details.inspected, few.result.residuals()
    found = residuals(few)
    of_samples = found.chart
    expected = [f"day {n}: {left.by_sample[n]:.3g}" for n in inspected.indices]
    assert of_samples.texts == expected
    top = left.by_feature.max()
    assert [bar.share for bar in found.bars] == pytest.approx(np.sort(left.by_feature)[::-1] / top)
    assert found.ratio == f"{left.ratio:.3g}"


def test_samples_stand_beside_their_reconstructions_by_the_larger_of_both(genes):
    result, inspected = genes.result, genes.details.inspected
    pairs = reconstructions(genes).pairs
    for pair, n in zip(pairs, inspected.indices[inspected.examples], strict=True):
        both = np.column_stack([result.data.columns([n])[:, 0], result.W @ result.H[:, n]])
        order = np.argsort(-both.max(axis=1))[: len(pair.bars)]
        assert [bar.name for bar in pair.bars] == [f"gene {f}" for f in order]
        shown = [(bar.share, bar.again) for bar in pair.bars]
        np.testing.assert_allclose(shown, both[order] / both.max())


def test_the_number_of_components_is_marked_among_the_ratios(genes):
    found = number(genes)
    ratios = genes.details.rank.ratios
    drawn = {mark.class_: mark.path.count("M") for mark in found.chart.marks}
    assert drawn == {"bar": ratios.size - 1, "bar main": 1}
    np.testing.assert_array_equal(found.chart.points[1], ratios)
    chosen = genes.result.selection
    shown = [one for one in chosen.evidence if np.isfinite(one.scores).sum() > 1]
    for chart, one in zip(found.evidence, shown, strict=True):
        assert chart.label == f"{one.name} says {one.K}; {one.meaning}"
        ks = one.ks[np.isfinite(one.scores)]
        low, high = chosen.interval
        inside = int(((ks >= low) & (ks <= high)).sum())
        assert [mark.path.count("M") for mark in chart.marks] == [ks.size - inside, inside]


def test_runs_add_a_row_and_limits_to_components():
    rng = np.random.default_rng(2)
    X = rng.dirichlet(np.full(3, 0.3), 90) @ rng.gamma(0.5, 1.0, (3, 12))
    V = from_rows(X + 0.01 * rng.random(X.shape))
    runs = stability(V, 3, 6, resample="samples")
    assert runs.is_stable.all()
    result = factorize(V, 3)
    turned = replace(result, W=result.W[:, ::-1], H=result.H[::-1])
    context = Context(turned, stability=runs)
    names = [row.name for row in verdict(context)]
    assert names[names.index("Components") + 1] == "Stability"
    assert verdict(context)[names.index("Stability")].grade == "good"
    order = match_components(turned.W, runs.W)[0]
    assert sorted(order) == [0, 1, 2]
    for k, card in enumerate(components(context).cards):
        own = order[k]
        lower, upper = context.limits(k)
        np.testing.assert_allclose(lower, runs.lower[:, own] * turned.W[:, k].sum())
        np.testing.assert_allclose(upper, runs.upper[:, own] * turned.W[:, k].sum())
        assert card.stability.share == f"{runs.found_in[own]:.0%}"
        middle = np.median(runs.cosines[:, own])
        assert card.stability.cosine.startswith(f"{middle:.3f} [")
    some = replace(runs, found_in=np.array([1.0, 0.2, 0.1]))
    for found, grade in ((some, "fair"), (replace(some, found_in=np.zeros(3)), "poor")):
        rows = verdict(Context(turned, stability=found))
        assert next(row for row in rows if row.name == "Stability").grade == grade


def test_a_pixel_has_its_row_and_column(few):
    names = Names(pixels_shape=(9, 10))
    context = Context(replace(few.result, names=names))
    for place, index in enumerate(few.details.inspected.indices):
        assert context.sample_name(place) == f"pixel ({index // 10}, {index % 10})"


def test_images_of_typical_samples_are_those_of_their_component(rng):
    """Each beside its name, in the order of their shares."""
    X = rng.random((60, 3)) ** 4 @ rng.gamma(0.3, size=(3, 64))
    names = Names(image_shape=(8, 8))
    context = Context(factorize(from_rows(X, names=names), 3), "images")
    for card in components(context).cards:
        assert len(card.typical) > 1
        for bar in card.typical:
            n = int(bar.name.split()[-1])
            content = base64.b64decode(bar.image.src.partition(",")[2])
            shown = np.asarray(Image.open(io.BytesIO(content)), float).ravel()
            np.testing.assert_allclose(shown, 255 * X[n] / X[n].max(), rtol=0, atol=0.6)
