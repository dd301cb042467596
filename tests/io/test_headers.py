"""First lines of numbers: titles are recognised, samples are not taken for titles."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from conenmf import open_data
from conenmf.errors import FileFormatError
from conenmf.io.text import guess


def texts(rows, form):
    return [",".join(form % value for value in row) for row in np.atleast_2d(rows)]


def smooth(rng, n_rows, F):
    """Rows with one bump each."""
    middle, width = rng.random((n_rows, 1)), rng.uniform(0.1, 0.6, (n_rows, 1))
    return np.exp(-(((np.linspace(0, 1, F) - middle) / width) ** 2)) * rng.random((n_rows, 1))


TABLES = {  # without a header
    "decimals": lambda rng, n, F: texts(rng.random((n, F)), "%.6g"),
    "counts": lambda rng, n, F: texts(rng.poisson(rng.gamma(0.5, 20, F), (n, F)), "%d"),
    "large counts": lambda rng, n, F: texts(rng.integers(0, 10**5, (n, F)), "%d"),
    "spectra": lambda rng, n, F: texts(smooth(rng, n, F), "%.8g"),
    "images": lambda rng, n, F: texts(255 * smooth(rng, n, F), "%d"),
    "sorted": lambda rng, n, F: texts(np.sort(rng.random((n, F)) * 1000), "%.3f"),
    "multiples": lambda rng, n, F: texts(np.outer(np.arange(1, n + 1), np.arange(1, F + 1)), "%d"),
    "in order": lambda rng, n, F: texts(np.arange(n * F).reshape(n, F), "%d"),
    "constant": lambda rng, n, F: texts(np.repeat(rng.random((n, 1)), F, axis=1), "%.5g"),
    "decay": lambda rng, n, F: texts(np.outer(0.5 ** np.arange(n), rng.random(F)), "%.5g"),
    "ranks": lambda rng, n, F: texts([rng.permutation(F) for _ in range(n)], "%d"),
    "outlier first": lambda rng, n, F: texts(
        rng.random((n, F)) * np.where(np.arange(n) == 0, 1000, 1)[:, None], "%.4f"
    ),
    "walks": lambda rng, n, F: texts(100 + np.cumsum(rng.normal(size=(n, F)), axis=1), "%.3f"),
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
TITLES = {
    "from 0": lambda rng, F: texts(np.arange(F), "%d")[0],
    "from 1": lambda rng, F: texts(np.arange(F) + 1, "%d")[0],
    "wavelengths": lambda rng, F: texts(np.linspace(400, 2500, F), "%.1f")[0],
    "irregular wavelengths": lambda rng, F: texts(400 + np.cumsum(rng.uniform(1, 9, F)), "%.2f")[0],
    "years": lambda rng, F: texts(2020 - F + np.arange(F), "%d")[0],
    "masses": lambda rng, F: texts(np.sort(rng.uniform(100, 1000, F)), "%.4f")[0],
    "frequencies": lambda rng, F: texts(20 * 1.26 ** np.arange(F), "%.1f")[0],
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


def judge(lines):
    """Whether the first line holds titles, and whether there is a warning."""
    dialect = guess(lines, "file")
    return dialect.columns.titles is not None, bool(dialect.remarks)


@pytest.mark.parametrize("kind", TABLES)
def test_samples_are_hardly_ever_mistaken_for_titles(kind):
    """At most in one of ten tables, and never without a warning."""
    for F in (2, 3, 5, 8, 40):
        verdicts = [judge(TABLES[kind](np.random.default_rng([s, F]), 20, F)) for s in range(20)]
        assert sum(is_header for is_header, _ in verdicts) <= 2
        assert all(is_warned for is_header, is_warned in verdicts if is_header)
        assert sum(is_warned for _, is_warned in verdicts) <= 4


@pytest.mark.parametrize("kind", TITLES)
@pytest.mark.parametrize("over", OVER)
def test_titles_are_recognised(kind, over):
    """Of eight columns or more; over rows of which many are in order themselves, of sixty."""
    for F in (60,) if over in ("spectra", "walks") else (8, 12, 60):
        for seed in range(3):
            rng = np.random.default_rng([seed, F])
            titles = TITLES[kind](rng, F)
            assert judge([titles, *TABLES[over](rng, 19, F)]) == (True, True)


@pytest.mark.parametrize("kind", TITLES)
def test_titles_over_smooth_rows_are_never_silently_taken_as_data(kind):
    for F in (8, 12, 20, 60):
        for seed in range(5):
            rng = np.random.default_rng([seed, F])
            assert judge([TITLES[kind](rng, F), *TABLES["spectra"](rng, 19, F)])[1]
            assert judge([TITLES[kind](rng, F), *TABLES["falling"](rng, 19, F)])[1]


def test_digits_with_the_header_of_pandas():
    rows = texts(load_digits().data[:19], "%d")
    assert judge([texts(np.arange(64), "%d")[0], *rows]) == (True, True)
    assert judge(rows) == (False, False)


@pytest.mark.parametrize("first", ["1,2,2", "1,,3", "1,inf,2", "7", "3,1,2"])
def test_lines_that_cannot_be_titles(first):
    rows = [",".join(["0.5", "0.25", "0.75"][: first.count(",") + 1])] * 5
    assert judge([first, *rows]) == (False, False)


def test_a_row_of_units_below_the_titles_is_left_out(tmp_path):
    numbers = [f"day {n},{n + 0.5},{n % 7 + 1},{n % 5 + 1}" for n in range(30)]
    plain = tmp_path / "plain.csv"
    plain.write_text("\n".join(["date,SO4,NO3,Pb", *numbers]) + "\n")
    units = tmp_path / "units.csv"
    units.write_text("\n".join(["date,SO4,NO3,Pb", ",ug/m3,ug/m3,", *numbers]) + "\n")
    with pytest.warns(UserWarning, match="look like row numbers"):
        expected = open_data(plain)
    with pytest.warns(UserWarning, match="look like row numbers"):
        V = open_data(units)
    assert V.names == expected.names
    everything = np.arange(30)
    np.testing.assert_array_equal(V.columns(everything), expected.columns(everything))
    said = "the line below the titles has no numbers (ug/m3, ug/m3, ): left out"
    assert V.remarks == (said, *expected.remarks)


def test_a_first_row_with_one_text_is_no_row_of_units(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b,c\n1,2,three\n" + "4,5,6\n1,3,2\n" * 9)
    with pytest.raises(FileFormatError, match="'three' is not a number"):
        open_data(path)
