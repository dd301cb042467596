"""Each row of a diagnosis follows from the evidence by stated limits."""

from types import SimpleNamespace

import numpy as np
import pytest

from conenmf.judge.association import shares_by_class
from conenmf.judge.diagnosis import (
    Evidence,
    Row,
    _judged,
    agreement,
    components_row,
    data_row,
    number_row,
    optimum_row,
    structure_row,
)
from conenmf.judge.halves import Structure
from conenmf.judge.pitfalls import Pitfall


def shares_of(W, H, labels):
    """The shares (K,) that one column of classes explains."""
    return np.array(shares_by_class(W, H, {"class": labels})["class"])


def evidence(structure=None, shares=(0.0, 0.0, 0.0), sampled=()):
    names = ["class", "class", "class"]
    return Evidence(np.ones((4, 3)), structure, "too few", np.array(shares), names, list(sampled))


def grades(**labels):
    names = {"interpret": [], "with care": [], "do not": [], "open": []}
    return names | {name.replace("_", " "): own for name, own in labels.items()}


GOOD = Row("Data", "good", "")
LABELS = ["0", "1", "2"]


def test_one_fit_of_a_half_may_be_poor():
    cosines = np.array([[0.99, 0.5], [0.2, 0.9], [0.98, 0.6]])
    assert agreement(cosines).tolist() == [0.98, 0.6]
    assert agreement(cosines[:1]).tolist() == [0.99, 0.5]


def test_only_components_that_were_estimated_must_not_follow_a_class():
    """A known component may: it was not made of these samples."""
    others = SimpleNamespace(in_words=lambda k, names: f"no other {names[k]}")
    fit = SimpleNamespace(n_fixed=1, names=("a", "b", "c"), others=others)
    found = evidence(Structure(0.8, 0.8), shares=(0.9, 0.8, 0.4))
    chosen, reasons = _judged(found, fit, are_apart=True)
    assert chosen == ["interpret", "with care", "interpret"]
    assert (
        reasons[0] == "given, not estimated; follows the class (90% of its variation); no other a"
    )
    assert reasons[1].endswith("; follows the class (80% of its variation); no other b")
    assert reasons[2].endswith("(typical cosine 1.00); no other c")


def test_classes_explain_a_share_of_what_each_sample_uses():
    """The length of a component counts, the size of a sample does not."""
    rng = np.random.default_rng(0)
    W, H = rng.random((6, 3)), rng.random((3, 50))
    labels = np.arange(50) % 4
    usages = H * np.linalg.norm(W, axis=0)[:, None]
    usages /= usages.sum(axis=0)
    total = ((usages - usages.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    means = np.array([usages[:, labels == one].mean(axis=1) for one in range(4)])
    within = ((usages - means[labels].T) ** 2).sum(axis=1)
    chance = 3 / 49
    expected = np.clip((1 - within / total - chance) / (1 - chance), 0, 1)
    assert expected.max() > 0
    np.testing.assert_allclose(shares_of(W, H, labels), expected, atol=1e-12)
    np.testing.assert_allclose(shares_of(W, H * rng.random(50), labels), expected, atol=1e-12)


def test_the_gravest_pitfall_comes_first():
    found = [Pitfall("a total", "leave it out", "poor"), Pitfall("constant", "other", "fair")]
    assert data_row(found) == Row("Data", "poor", "a total; constant", "leave it out")
    assert data_row([]).grade == "good"


@pytest.mark.parametrize(
    ("found", "own", "grade"),
    [
        (Structure(0.44, 0.9), ["interpret"], "poor"),
        (Structure(0.46, 0.29), ["interpret"], "fair"),
        (Structure(0.46, 0.31), ["interpret", "do not"], "good"),
        (Structure(0.46, 0.31), ["with care"], "fair"),
        (None, ["interpret"], "open"),
    ],
)
def test_structure_needs_both_shares_and_a_component(found, own, grade):
    row = structure_row(evidence(found), own, "")
    assert row.grade == grade
    assert row.finding == "too few" or row.finding.endswith(f"{found.share:.0%} of samples")


def test_components_are_listed_by_their_grade():
    def row(by_grade, data=GOOD, **options):
        return components_row(by_grade, evidence(**options), LABELS, data)

    good = Structure(0.9, 0.9)
    assert row(grades(interpret=LABELS)) == Row("Components", "good", "interpret: 0, 1, 2")
    mixed = grades(interpret=["1"], with_care=["0"], do_not=["2"])
    found = row(mixed, structure=good)
    assert found.finding == "interpret: 1; with care: 0; do not interpret: 2"
    assert (found.grade, found.advice[:12]) == ("fair", "try another ")
    assert row(grades(do_not=LABELS)).grade == "poor"
    assert row(grades(open=LABELS)).grade == "open"
    follows = row(mixed, structure=good, shares=(0.6, 0.4, 0.6), sampled=["judged on 9 of 10"])
    assert follows.finding.endswith("; follow the class: 0, 2; judged on 9 of 10")
    assert follows.advice == "fit the samples of one class alone"
    assert row(mixed, data=Row("Data", "poor", "")).advice == "change the data first"
    assert row(mixed, structure=Structure(0.3, 0.9)).advice == ""


def test_a_number_that_was_chosen_or_guessed_is_open():
    assert number_row(4, "user")[:3] == ("Number", "open", "4 components, as you chose")
    assert number_row(4, "4 components, by the eigenvalues").grade == "good"


@pytest.mark.parametrize(
    ("error", "lower", "telling", "grade"),
    [
        (0.1009, 0.1, True, "good"),
        (0.1011, 0.1, True, "fair"),
        (0.1, 0.0, False, "open"),
    ],
)
def test_an_error_within_a_hundredth_of_its_bound_is_near(error, lower, telling, grade):
    known = SimpleNamespace(relative_error=error, lower_bound=lower, is_bound_telling=telling)
    others = SimpleNamespace(span_angles=np.zeros(0))
    fit = SimpleNamespace(advice="", certificate=known, error="the error", others=others)
    assert optimum_row(fit).grade == grade
    fit.advice = "begin elsewhere"
    assert optimum_row(fit) == Row("Optimum", "poor", "the error", "begin elsewhere")
    fit.advice, fit.certificate = "", None
    assert optimum_row(fit).grade == "open"
