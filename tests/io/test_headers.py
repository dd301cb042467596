"""First lines of numbers: titles are recognised, samples are not taken for titles.

The thresholds of the module were chosen on the tables and titles listed as such below; the others
were made afterwards, and are judged with the same thresholds.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from conenmf.io.text import judge_first_line


def texts(rows, form):
    return [[form % value for value in row] for row in np.atleast_2d(rows)]


def smooth(rng, n_rows, F):
    """Rows with one bump each."""
    middle, width = rng.random((n_rows, 1)), rng.uniform(0.1, 0.6, (n_rows, 1))
    return np.exp(-(((np.linspace(0, 1, F) - middle) / width) ** 2)) * rng.random((n_rows, 1))


def sorted_rows(rng, n_rows, F):
    return np.sort(rng.random((n_rows, F)) * 1000)


TABLES_CHOSEN_ON = {  # without a header
    "decimals": lambda rng, n, F: texts(rng.random((n, F)), "%.6g"),
    "counts": lambda rng, n, F: texts(rng.poisson(rng.gamma(0.5, 20, F), (n, F)), "%d"),
    "large counts": lambda rng, n, F: texts(rng.integers(0, 10**5, (n, F)), "%d"),
    "spectra": lambda rng, n, F: texts(smooth(rng, n, F), "%.8g"),
    "images": lambda rng, n, F: texts(255 * smooth(rng, n, F), "%d"),
    "sorted": lambda rng, n, F: texts(sorted_rows(rng, n, F), "%.3f"),
    "multiples": lambda rng, n, F: texts(np.outer(np.arange(1, n + 1), np.arange(1, F + 1)), "%d"),
    "in order": lambda rng, n, F: texts(np.arange(n * F).reshape(n, F), "%d"),
    "constant": lambda rng, n, F: texts(np.repeat(rng.random((n, 1)), F, axis=1), "%.5g"),
    "decay": lambda rng, n, F: texts(np.outer(0.5 ** np.arange(n), rng.random(F)), "%.5g"),
    "ranks": lambda rng, n, F: texts([rng.permutation(F) for _ in range(n)], "%d"),
    "outlier first": lambda rng, n, F: texts(
        rng.random((n, F)) * np.where(np.arange(n) == 0, 1000, 1)[:, None], "%.4f"
    ),
    "walks": lambda rng, n, F: texts(100 + np.cumsum(rng.normal(size=(n, F)), axis=1), "%.3f"),
}
OTHER_TABLES = {
    "ratings": lambda rng, n, F: texts(rng.integers(1, 6, (n, F)), "%d"),
    "percent": lambda rng, n, F: texts(100 * rng.dirichlet(np.ones(F), n), "%.1f"),
    "waves": lambda rng, n, F: texts(
        10 + np.sin(np.linspace(0, 5, F) + rng.uniform(0, 6, (n, 1))), "%.3f"
    ),
    "rates": lambda rng, n, F: texts(rng.exponential(3, (n, F)), "%.2f"),
    "few of many": lambda rng, n, F: texts(rng.poisson(0.2, (n, F)), "%d"),
    "yes or no": lambda rng, n, F: texts(rng.random((n, F)) < 0.4, "%d"),
    "sums": lambda rng, n, F: texts(np.cumsum(rng.poisson(5, (n, F)) + 1, axis=1), "%d"),
    "ramps": lambda rng, n, F: texts(rng.random((n, 1)) * np.linspace(0, 1, F), "%.5f"),
    "falling": lambda rng, n, F: texts(np.exp(-np.outer(rng.random(n), np.arange(F))), "%.6g"),
    "one and others": lambda rng, n, F: texts(
        np.vstack([np.ones(F), rng.random((n - 1, F))]), "%g"
    ),
}
TITLES_CHOSEN_ON = {
    "from 0": lambda rng, F: texts(np.arange(F), "%d")[0],
    "from 1": lambda rng, F: texts(np.arange(F) + 1, "%d")[0],
    "wavelengths": lambda rng, F: texts(np.linspace(400, 2500, F), "%.1f")[0],
    "irregular wavelengths": lambda rng, F: texts(400 + np.cumsum(rng.uniform(1, 9, F)), "%.2f")[0],
    "years": lambda rng, F: texts(2020 - F + np.arange(F), "%d")[0],
    "masses": lambda rng, F: texts(np.sort(rng.uniform(100, 1000, F)), "%.4f")[0],
    "frequencies": lambda rng, F: texts(20 * 1.26 ** np.arange(F), "%.1f")[0],
}
OTHER_TITLES = {
    "from 101": lambda rng, F: texts(np.arange(F) + 101, "%d")[0],
    "quarters": lambda rng, F: texts(1990 + 0.25 * np.arange(F), "%.2f")[0],
    "depths": lambda rng, F: texts(np.cumsum(rng.choice([5, 10, 25], F)), "%d")[0],
    "every tenth": lambda rng, F: texts(400 + 10 * np.arange(F), "%d")[0],
    "falling wavenumbers": lambda rng, F: texts(np.linspace(4000, 400, F), "%.17g")[0],
    "shifts": lambda rng, F: texts(np.linspace(10, 0.5, F), "%.3f")[0],
    "channels": lambda rng, F: texts(np.arange(F) + 1, "%.1f")[0],
    "some years": lambda rng, F: texts(np.sort(rng.choice(120, F, replace=False)) + 1900, "%d")[0],
    "integer masses": lambda rng, F: texts(np.sort(rng.choice(900, F, replace=False)) + 90, "%d")[
        0
    ],
}

OVER = ("decimals", "counts", "spectra", "rates", "few of many", "walks")


@pytest.mark.parametrize("kind", TABLES_CHOSEN_ON | OTHER_TABLES)
def test_samples_are_not_taken_for_titles(kind):
    """At most in one table of twenty, and not without a doubt: see the module."""
    table = (TABLES_CHOSEN_ON | OTHER_TABLES)[kind]
    for F in (2, 3, 5, 8, 40):
        tables = [table(np.random.default_rng([seed, F]), 20, F) for seed in range(20)]
        verdicts = [judge_first_line(rows[0], rows[1:]) for rows in tables]
        assert sum(is_header for is_header, _ in verdicts) <= 1
        assert not any(is_header and is_certain for is_header, is_certain in verdicts)
        assert F == 2 or sum(not is_certain for _, is_certain in verdicts) <= 3


@pytest.mark.parametrize("kind", TITLES_CHOSEN_ON | OTHER_TITLES)
def test_titles_are_recognised(kind):
    """Nearly all of them with eight columns or more, and none is overlooked without a doubt."""
    titles, tables = (TITLES_CHOSEN_ON | OTHER_TITLES)[kind], TABLES_CHOSEN_ON | OTHER_TABLES
    verdicts = []
    for over in OVER:
        for F in (8, 12, 60):
            for seed in range(3):
                rng = np.random.default_rng([seed, F])
                verdicts.append(judge_first_line(titles(rng, F), tables[over](rng, 19, F)))
    assert not any(is_certain and not is_header for is_header, is_certain in verdicts)
    assert sum(is_header for is_header, _ in verdicts) >= 0.95 * len(verdicts)


def test_digits_with_the_header_of_pandas():
    rows = texts(load_digits().data[:19], "%d")
    assert judge_first_line(texts(np.arange(64), "%d")[0], rows) == (True, True)
    assert judge_first_line(rows[0], rows[1:]) == (False, True)


def test_titles_that_are_equal_once_they_are_rounded():
    rng = np.random.default_rng(0)
    masses = np.sort(rng.uniform(300, 1000, 300)).round(2)
    masses[7] = masses[8]
    verdict = judge_first_line(texts(masses, "%.2f")[0], texts(rng.poisson(1, (19, 300)), "%d"))
    assert verdict == (True, True)


def test_two_lines_are_little_evidence():
    assert not judge_first_line(["1", "2"], [["3", "4"]])[0]
    assert not judge_first_line(["1", "2", "3"], [["4", "0", "6"]])[0]
    assert judge_first_line(["0", "1", "2", "3"], [["0.5", "0.25", "1.5", "0.1"]])[0]


def test_a_first_row_that_the_others_are_multiples_of_leaves_a_doubt():
    """1, 2, 3, ... over 0.01, 0.02, 0.03, ... may be either."""
    rows = texts(np.outer(0.01 ** np.arange(20), np.arange(1, 9)), "%g")
    assert not judge_first_line(rows[0], rows[1:])[1]


def test_what_cannot_be_titles():
    rows = [["0.5", "0.25", "0.75"]] * 5
    for first in (["1", "2", "2"], ["1", "", "3"], ["1", "inf", "2"], ["7"]):
        assert judge_first_line(first, [row[: len(first)] for row in rows]) == (False, True)
    assert judge_first_line(["1", "2", "3"], []) == (False, True)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), min_size=3, max_size=3), min_size=2, max_size=8))
def test_the_order_of_the_rows_below_does_not_matter(rows):
    first, *others = texts(np.array(rows), "%d")
    assert judge_first_line(first, others) == judge_first_line(first, others[::-1])


def report():
    """Print how often the verdict is wrong, on fresh draws of every kind."""
    tables, titles = TABLES_CHOSEN_ON | OTHER_TABLES, TITLES_CHOSEN_ON | OTHER_TITLES
    for what, names in (("chosen on", TABLES_CHOSEN_ON), ("others", OTHER_TABLES)):
        drawn = [
            tables[name](np.random.default_rng([seed, F]), 20, F)
            for name in names
            for F in (2, 3, 5, 8, 40)
            for seed in range(100, 160)
        ]
        verdicts = [judge_first_line(rows[0], rows[1:]) for rows in drawn]
        wrong = [verdict for verdict in verdicts if verdict[0]]
        print_line(f"samples, {what}", wrong, verdicts)
    for what, names in (("chosen on", TITLES_CHOSEN_ON), ("others", OTHER_TITLES)):
        verdicts = []
        for name in names:
            for over in (*OVER, "ratings", "percent", "waves"):
                for F in (8, 12, 60):
                    for seed in range(100, 110):
                        rng = np.random.default_rng([seed, F])
                        line, rows = titles[name](rng, F), tables[over](rng, 19, F)
                        verdicts.append(judge_first_line(line, rows))
        wrong = [verdict for verdict in verdicts if not verdict[0]]
        print_line(f"headers, {what}", wrong, verdicts)


def print_line(what, wrong, verdicts):
    silent = sum(is_certain for _, is_certain in wrong)
    doubts = sum(not is_certain for _, is_certain in verdicts)
    print(f"{what}: {len(wrong)} of {len(verdicts)} wrong, {silent} silently; {doubts} doubts")


if __name__ == "__main__":
    report()
