"""The diagnosis of a result: the same in every storage, cones, examples, and its form on disk."""

import re
from dataclasses import replace
from html import escape

import numpy as np
import pytest

from conenmf import cr1_nmf, factorize, from_columns, from_rows, make_cones
from conenmf.cones.bounds import deterministic_bound
from conenmf.cones.counting import estimate_rank
from conenmf.judge.details import describe
from conenmf.judge.diagnosis import Diagnosis, Row
from conenmf.scale.checkpoint import arrays_of, part_of


@pytest.fixture(scope="module")
def model():
    return make_cones(60, 5, 0.15, n_samples=400, rng=np.random.default_rng(1))


def fit_facts(V, K, **options):
    result = factorize(V, K, **options)
    return result, describe(V, result.W, result.H, result.labels)


def test_every_storage_has_the_same_description(model, main_backend, small_blocks):
    result, facts = fit_facts(main_backend(model.V), 5)
    expected = estimate_rank(from_columns(model.V, **small_blocks)).singular_values
    np.testing.assert_allclose(facts.rank.singular_values, expected, rtol=1e-6)
    assert facts.cones.geometry.holds
    assert facts.rank.K == 5
    assert result.relative_error <= facts.cones.error <= facts.cones.bound
    assert facts.sizes.sum() == facts.cones.sizes.sum() == 400


def test_cones_are_numbered_like_components(model):
    few = np.flatnonzero((model.labels != 2) | (np.arange(400) % 2 == 0))  # unlike sizes
    V = from_columns(model.V[:, few])
    result = factorize(V, 5, init="cr1")
    order = np.array([3, 0, 4, 1, 2])  # no permutation that is its own inverse
    labels = np.argsort(order)[result.labels]
    facts = describe(V, result.W[:, order], result.H[order], labels)
    W = result.W[:, order] / np.linalg.norm(result.W[:, order], axis=0)
    np.testing.assert_array_equal((facts.cones.geometry.axes.T @ W).argmax(axis=1), np.arange(5))
    np.testing.assert_array_equal([facts.cones.sizes, facts.sizes], [np.bincount(labels)] * 2)
    assert np.unique(facts.sizes).size > 1
    axes, _, cones = cr1_nmf(V, 5)
    assert facts.cones.bound == pytest.approx(deterministic_bound(V, axes, cones.labels))


def test_samples_are_looked_at_one_by_one(model):
    result, facts = fit_facts(from_columns(model.V), 5)
    samples = facts.inspected
    np.testing.assert_array_equal(samples.indices, np.arange(400))
    rest = model.V - result.W @ result.H
    errors = np.linalg.norm(rest, axis=0) / np.linalg.norm(model.V, axis=0)
    np.testing.assert_allclose(samples.errors, errors, rtol=1e-8)
    shown = samples.indices[samples.examples]
    assert (np.diff(samples.errors[samples.examples]) >= 0).all()
    assert samples.errors[samples.examples[-1]] == samples.errors.max()
    np.testing.assert_array_equal(samples.originals, model.V[:, shown])
    np.testing.assert_array_equal(samples.coefficients.argmax(axis=1), samples.labels)


def test_what_is_known_of_samples_counts_by_its_weight(rng):
    X = rng.dirichlet(np.ones(3), 40) @ rng.random((3, 8))
    P = rng.integers(0, 4, X.shape) / 2.0  # a weight of zero is a hole
    V = from_rows(X, weights=P)
    result, facts = fit_facts(V, 3, max_iter=3)
    samples = facts.inspected
    roots = np.sqrt(P.T)
    lengths = np.linalg.norm(roots * X.T, axis=0)
    errors = np.linalg.norm(roots * (X.T - result.W @ result.H), axis=0) / lengths
    np.testing.assert_allclose(samples.errors, errors, rtol=1e-8)
    shown = samples.indices[samples.examples]
    np.testing.assert_array_equal(samples.originals, np.where(P > 0, X, np.nan)[shown].T)
    lengths = np.linalg.norm(result.W, axis=0)
    np.testing.assert_allclose(samples.coefficients, result.H.T * lengths, rtol=1e-12)


def test_zero_samples_are_no_examples_while_there_are_others(rng):
    V = rng.random((5, 12)) * (np.arange(12) % 3 > 0)
    samples = fit_facts(from_columns(V), 2)[1].inspected
    assert (samples.errors[V.sum(axis=0) == 0] == 0).all()
    errors = samples.errors[samples.examples]
    known = np.sort(samples.errors[V.any(axis=0)])
    assert errors.size == 6
    assert (errors[0], errors[-1]) == (known[0], known[-1])
    assert samples.originals.any(axis=0).all()


def test_few_of_many_samples_are_kept(rng):
    kept = fit_facts(from_columns(rng.random((4, 3)) @ rng.random((3, 5000))), 3)[1].inspected
    assert (kept.indices.size, kept.originals.shape) == (2000, (4, 6))


def test_fewer_directions_than_components():
    V = from_columns(np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 0.0]))
    facts = fit_facts(V, 2, init="random", rng=np.random.default_rng(0))[1]
    assert facts.cones is None
    assert facts.inspected.errors[2] == 0


@pytest.mark.parametrize("K", [1, 5])
def test_a_diagnosis_is_stored_as_arrays_and_comes_back(model, K):
    diagnosis = factorize(from_columns(model.V), K).diagnose(n_splits=1)
    arrays = arrays_of(diagnosis, "")
    again = part_of(Diagnosis, "", arrays)
    assert again.rows == diagnosis.rows
    assert {type(row) for row in again.rows} == {Row}
    assert (again.components, again.reasons) == (diagnosis.components, diagnosis.reasons)
    assert str(again) == str(diagnosis)
    facts = diagnosis.details
    assert again.details.cones.geometry.closest == facts.cones.geometry.closest
    np.testing.assert_equal(arrays_of(again, ""), arrays)


def test_a_notebook_shows_grades_in_colour_and_no_markup_of_names(model):
    diagnosis = factorize(from_columns(model.V), 5).diagnose(n_splits=1)
    finding = "<script>alert(1)</script>\x1b & more"
    rows = (Row("Data", "poor", finding, "<b>leave</b>"), *diagnosis.rows[1:])
    page = replace(diagnosis, headline="<i>all</i>", rows=rows)._repr_html_()
    assert not [one for one in ("<script>", "<b>leave", "<i>all", "\x1b") if one in page]
    assert escape(finding.replace("\x1b", "\\x1b")) in page
    assert "&lt;i&gt;all" in page
    colours = dict(re.findall(r'color:(#\w+);font-weight:bold">(\w+)<', page))
    assert set(colours.values()) == {row.grade for row in rows}
    assert len(colours) == len(set(colours.values()))


def test_every_singular_value_has_a_next():
    V = from_columns(np.random.default_rng(0).random((10, 30)))
    facts = fit_facts(V, 10, init="random", rng=np.random.default_rng(0))[1]
    assert facts.rank.ratios.size == 9
    assert facts.rank.ratios[1:].max() < 3
