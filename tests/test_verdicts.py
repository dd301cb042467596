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
