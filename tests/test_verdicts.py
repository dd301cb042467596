"""How the reproduction of the paper judges a claim."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats


@settings(max_examples=60)
@given(st.lists(st.integers(-30, 30).filter(bool), min_size=1, max_size=12, unique_by=abs))
def test_the_signed_rank_test_is_that_of_scipy(paper, differences):
    expected = stats.wilcoxon(differences, method="exact").pvalue
    assert paper("verdicts").signed_rank(differences) == pytest.approx(expected)


def test_ties_count_all_signs(paper):
    """Against an enumeration; ranks of ties are means."""
    differences = np.array([1.0, 1.0, -2.0, 3.0, 3.0, 3.0])
    ranks = stats.rankdata(np.abs(differences))
    signs = np.array(list(itertools.product([0, 1], repeat=6)))
    sums = signs @ ranks
    seen = ranks[differences > 0].sum()
    expected = 2 * min((sums >= seen).mean(), (sums <= seen).mean())
    signed_rank = paper("verdicts").signed_rank
    assert signed_rank([0.0, *differences]) == pytest.approx(expected)  # zeros say nothing
    assert signed_rank([]) == signed_rank([0.0]) == 1


def test_never_is_the_longest_time(paper):
    verdicts = paper("verdicts")
    ours, theirs = [3.0] * 6, [np.inf] * 5 + [4.0]
    case = verdicts.ahead("a", ours, {"other": theirs})
    assert (case.speaks_for, case.p) == (True, 2 / 64)
    assert case.text == "a: 3, other never (5 of 6 never), ahead in 6 of 6"
    both = verdicts.ahead("a", [np.inf] * 6, {"other": [np.inf] * 6})
    assert (both.speaks_for, both.p) == (False, 1)


def test_one_rival_ahead_is_enough_against_a_claim(paper):
    verdicts = paper("verdicts")
    ours, behind, ahead = [2.0] * 8, [3.0] * 8, [1.0] * 8
    for_it = verdicts.ahead("a", ours, {"b": behind, "c": behind})
    assert (for_it.speaks_for, for_it.p) == (True, 2 / 2**8)
    against = verdicts.ahead("a", ours, {"b": behind, "c": ahead})
    assert (against.speaks_for, against.p) == (False, 2 * 2 / 2**8)
    larger = verdicts.ahead("a", ours, {"c": ahead}, largest=True)
    assert larger.speaks_for


def test_what_the_data_do_not_decide_is_not_decided(paper):
    verdicts = paper("verdicts")
    sure, against, open_ = (
        verdicts.Case("sure", True, 1e-4, 1e-6),
        verdicts.Case("against", False, 1e-4, 1e-6),
        verdicts.Case("open", True, 0.04, 1e-6),  # not after Holm's correction
    )
    judge = lambda *cases: verdicts.decided("claim", cases).verdict  # noqa: E731
    assert judge() == "not measured"
    assert judge(sure, sure) == "holds"
    assert judge(against) == judge(against, open_, open_) == "does not hold"
    assert judge(open_, open_) == "not decided"
    assert judge(sure, against) == judge(sure, open_, open_) == "holds partly"
    assert judge(open_) == "holds"
    assert verdicts.holm([0.01, 0.02, 0.5]) == pytest.approx([0.03, 0.04, 0.5])


def test_few_runs_have_no_verdict_and_show_what_they_saw(paper):
    """Georgia Tech: three runs, all behind k-means by half, are not just "not decided"."""
    verdicts = paper("verdicts")
    ours, theirs = [0.219, 0.222, 0.225], [0.415, 0.435, 0.455]
    found = verdicts.decided("c", [verdicts.ahead("Dice", ours, {"k-means": theirs}, largest=True)])
    assert (found.verdict, found.evidence) == (
        "too few runs",
        "too few runs in 1 (1 leans against it) of 1 cases; too few runs: Dice: 0.222 ± 0.003, "
        "k-means 0.435 ± 0.02, difference -0.21, ahead in 0 of 3",
    )


@pytest.mark.parametrize(
    ("pairs", "cases", "verdict"),
    [(5, 1, "too few runs"), (6, 1, "does not hold"), (6, 9, "too few runs"),
     (8, 9, "too few runs"), (9, 9, "does not hold")],
)  # fmt: skip
def test_a_verdict_needs_as_many_pairs_as_could_decide_it(paper, pairs, cases, verdict):
    """All pairs point one way; with nine cases Holm's method asks for nine pairs."""
    verdicts = paper("verdicts")
    ours, theirs = [2.0 + n for n in range(pairs)], [1.0] * pairs
    found = [verdicts.ahead(str(n), ours, {"other": theirs}) for n in range(cases)]
    assert verdicts.decided("claim", found).verdict == verdict


def test_cases_with_enough_runs_are_judged_beside_others_with_too_few(paper):
    verdicts = paper("verdicts")
    cases = [verdicts.ahead(str(n), [1.0] * n, {"other": [2.0] * n}) for n in (3, 8)]
    found = verdicts.decided("claim", cases)
    assert found.verdict == "holds partly"
    assert found.evidence.startswith("holds in 1, too few runs in 1 (none lean against it) of 2")


def test_a_share_needs_rows_to_be_believed(paper):
    verdicts = paper("verdicts")
    share = verdicts.share_above
    few, many, too_few = share("a", 5, 5, 0.9), share("a", 60, 60, 0.9), share("a", 20, 40, 0.9)
    assert (few.speaks_for, many.speaks_for, too_few.speaks_for) == (True, True, False)
    assert verdicts.decided("c", [few]).verdict == "too few runs"
    assert many.p < 0.05
    assert too_few.p < 1e-6
    assert too_few.text == "a: 20 of 40, 0.36 to 0.64"
    assert verdicts.interval(0, 30) == "0.00 to 0.10"


def test_means_of_few_runs_have_no_verdict(paper):
    judged = paper("presentation").judged
    cases = [("a: 1.0 against 2.0", True), ("b: 3.0 against 2.0", False)]
    assert judged("c", cases, runs=[6, 6]).verdict == "holds partly"
    found = judged("c", cases, runs=[5, 2])
    assert found.verdict == "too few runs"
    assert all(text in found.evidence for text, _ in cases)
    found = judged("c", cases, runs=[6, 2])  # the case against it is not left out
    assert (found.verdict, found.evidence) == (
        "holds partly", "1 of 2 cases; too few runs, 0 for it: b: 3.0 against 2.0"
    )  # fmt: skip
    assert judged("c", cases, runs=[2, 6]).verdict == "does not hold"
