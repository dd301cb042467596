"""Columns of tables: those that are named by the caller, and those that look like no data."""

import gzip
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conenmf import ConeNMF, from_columns, from_rows, open_data
from conenmf.errors import (
    InputWarning,
    OptionError,
)
from conenmf.io.tables import odd_columns
from conenmf.names import Names


def read(path, **options):
    V = open_data(path, **options)
    return V.columns(np.arange(V.shape[1])).T.tolist(), V.names


def write(path, frame):
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    elif path.suffix == ".feather":
        pyarrow.feather.write_feather(pa.Table.from_pandas(frame, preserve_index=False), str(path))
    else:
        frame.to_csv(path, index=False, sep="\t" if ".tsv" in path.name else ",")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv.gz", "a.parquet", "a.feather"])
def test_columns_are_named_or_left_out(tmp_path, name, refuses):
    path = tmp_path / name
    frame = pd.DataFrame({"day": ["1999-12-31", "2000-01-01"], "a": [1, 3], "who": ["x", "y"]})
    write(path, frame.assign(b=[2, 4]))
    rows = [[1.0, 2.0], [3.0, 4.0]]
    assert read(path, drop="who") == (rows, Names(("1999-12-31", "2000-01-01"), ("a", "b")))
    for who, day in (("who", "day"), (2, 0), ("2", "0")):
        assert read(path, names_column=who, drop=[day]) == (rows, Names(("x", "y"), ("a", "b")))
    assert read(path, drop=("who", "day", 1)) == ([[2.0], [4.0]], Names(None, ("b",)))
    turned = read(path, drop="day", names_column="who", samples_in="columns")
    assert turned == ([[1.0, 3.0], [2.0, 4.0]], Names(("a", "b"), ("x", "y")))
    message = "no columns called 'c'; it has day, a, who, b: .* 0 to 3"
    refuses(OptionError, message, lambda: open_data(path, drop="c"))
    for beyond in (4, "4"):
        refuses(OptionError, "no columns called '?4", open_data, path, drop=beyond)


def test_titles_that_are_numbers_or_not_unique(tmp_path, refuses):
    (tmp_path / "a.csv").write_text("x,2,0,0\n1.5,2.5,3.5,4.5\n")
    for column, left in (("2", [1.5, 3.5, 4.5]), (2, [1.5, 2.5, 4.5]), ("3", [1.5, 2.5, 3.5])):
        assert read(tmp_path / "a.csv", drop=column)[0] == [left]
    message = "2 columns called '0'; .* a number from 0 to 3"
    refuses(OptionError, message, lambda: open_data(tmp_path / "a.csv", drop="0"))


def test_the_index_of_a_data_frame_gives_way_to_another_column(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0], "who": ["x", "y"]}, index=pd.Index([7.0, 9.0], name="k"))
    frame.to_parquet(tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", drop="who") == (
        [[1.0], [2.0]],
        Names(("7.0", "9.0"), ("a",)),
    )
    named = Names(("x", "y"), ("a", "k"))
    assert read(tmp_path / "a.parquet", names_column="who") == ([[1.0, 7.0], [2.0, 9.0]], named)


# --- a first line of numbers ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.csv", "a.tsv.gz"])
def test_the_header_of_pandas_and_wavelengths(tmp_path, name):
    X = np.random.default_rng(0).random((30, 12)).round(4)
    for titles in (range(12), np.linspace(400, 2500, 12).round(1)):
        write(tmp_path / name, pd.DataFrame(X, columns=titles))
        with pytest.warns(InputWarning, match="it was read as titles"):
            rows, names = read(tmp_path / name)
        assert rows == X.tolist()
        assert names == Names(None, tuple(map(str, titles)))
        assert open_data(tmp_path / name, header=False).shape == (12, 31)
    gzipped = name.endswith(".gz")
    text = "\n".join(",".join(map(str, row)) for row in X.tolist()).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if gzipped else text)
    V = open_data(tmp_path / name)
    assert (V.shape, V.remarks) == ((12, 30), ())
    assert open_data(tmp_path / name, header=True).shape == (12, 29)


def test_numbers_over_numbers_beside_names(tmp_path):
    rows = "y,0.5,0.1,0.2,0.4,0.3,0.9\nz,1.5,0.7,2.5,0.1,0.3,0.2\n" * 9
    (tmp_path / "a.csv").write_text("x,400,410,420,430,440,450\n" + rows)
    with pytest.warns(InputWarning, match="it was read as titles"):
        assert open_data(tmp_path / "a.csv").names.feature_names[:2] == ("400", "410")
    (tmp_path / "a.csv").write_text("x,0.2,0.1,0.2,0.4\ny,0.5,0.1,0.2,0.4\n")
    assert open_data(tmp_path / "a.csv").names == Names(("x", "y"))
    (tmp_path / "a.csv").write_text("Sample,2,1\ny,0.5,0.1\n")
    assert open_data(tmp_path / "a.csv").names == Names(("y",), ("2", "1"))


def test_a_column_of_texts_does_not_make_a_header(tmp_path):
    (tmp_path / "a.csv").write_text("5,1999-12-31,7\n3,2000-01-01,4\n")
    assert read(tmp_path / "a.csv", drop=1)[0] == [[5.0, 7.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("first", "rows", "shape", "message"),
    [
        (
            "1,2,5,9,11,19\n",
            "0.5,0.2,3,1,1,1\n0.7,0.1,2,3,4,1\n",
            (6, 18),
            r"read as titles.*if it holds data, give header=False",
        ),
        (
            "0,1\n",
            "0.5,0.25\n0.75,0.125\n",
            (2, 19),
            r"read as data.*if it holds titles, give header=True",
        ),
    ],
)
def test_a_doubtful_first_line_gives_a_warning_unless_the_caller_decides(
    tmp_path, first, rows, shape, message
):
    (tmp_path / "a.csv").write_text(first + 9 * rows)
    with pytest.warns(InputWarning, match=message):
        assert open_data(tmp_path / "a.csv").shape == shape
    for header, N in ((True, 18), (False, 19)):
        V = open_data(tmp_path / "a.csv", header=header)
        assert (V.shape[1], V.remarks) == (N, ())


@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 6),
    st.integers(2, 40),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**16).map(np.random.default_rng),
)
def test_written_files_are_read_back(tmp_path_factory, F, N, titled, named, rng):
    """With the options that say how it was written, any table comes back."""
    path = tmp_path_factory.mktemp("round") / "a.csv"
    X = rng.choice([rng.random((N, F)), rng.integers(0, 9, (N, F)), np.sort(rng.random((N, F)))])
    frame = pd.DataFrame(X, columns=rng.integers(0, 99, F) if titled else None)
    place = int(rng.integers(0, F + 1))
    if named:
        frame.insert(place, "who", [f"n{i}" for i in range(N)], allow_duplicates=True)
    frame.to_csv(path, index=False, header=titled)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        rows, names = read(path, header=titled, names_column=place if named else None)
        kept, _ = read(path, header=titled, drop=place) if named else (rows, names)
    assert rows == kept == X.tolist()
    assert (names.sample_names is not None) is named
    assert (names.feature_names is not None) is titled


# --- columns that look like no data -----------------------------------------------------------

N = 60
RNG = np.random.default_rng(0)
DATA = RNG.gamma(1, 5, (N, 4))
ODD = {
    "counts the rows": np.arange(N) + 1,
    "counts the rows ": 0.25 * np.arange(N)[::-1],
    "holds another integer in each row, such as": np.cumsum(RNG.integers(1, 9, N)) + 100,
    "holds another integer in each row, such as ": RNG.permutation(10**4)[:N] + 30_000,
    "holds dates or times such as 20191201": 20191201 + np.arange(N) % 30,
    "holds dates or times such as": 1990 + np.arange(N) % 7,
    "holds dates or times such as ": 1.6e9 + np.sort(RNG.integers(0, 10**6, N)),
    "holds dates or times such as  ": 1.6e12 + np.sort(RNG.integers(0, 10**6, N)),
}


@pytest.mark.parametrize("reason", ODD)
@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_odd_columns_are_named(tmp_path, reason, name):
    frame = pd.DataFrame(DATA, columns=list("abcd"))
    frame.insert(2, "odd", ODD[reason])
    write(tmp_path / name, frame)
    with pytest.warns(InputWarning, match=r"as data: odd; .* drop='odd'.*names_column='odd'"):
        V = open_data(tmp_path / name)
    assert V.shape == (5, N)
    assert V.remarks[-1].endswith("were read as data: odd")
    assert open_data(tmp_path / name, drop="odd").remarks == ()
    with pytest.warns(InputWarning, match=r"the data frame: .* data: odd.*X\.drop\(columns='odd"):
        from_rows(frame)
    with pytest.warns(InputWarning, match="read as data: odd"):
        from_columns(frame)


@pytest.mark.parametrize("kind", ["pandas", "polars", "unsigned"])
def test_frames_of_booleans_and_small_integers(kind):
    colours = pd.DataFrame({"a": RNG.choice(list("xyz"), 50), "b": RNG.choice(list("pq"), 50)})
    frame = pd.get_dummies(colours)
    given = frame.astype("uint8") if kind == "unsigned" else frame
    if kind == "polars":
        given = pl.DataFrame(frame.to_dict("list"))
    errors = [ConeNMF(2).fit(X).relative_error_ for X in (given, frame.to_numpy(float))]
    assert errors[0] == pytest.approx(errors[1], rel=1e-8)  # as for any two storages


def test_booleans_in_a_text_are_ones_and_zeros(tmp_path):
    frame = pd.get_dummies(pd.DataFrame({"a": list("xyzx") * 5}))
    frame.to_csv(tmp_path / "dummies.csv", index=False)
    assert read(tmp_path / "dummies.csv")[0] == frame.to_numpy(float).tolist()


def test_identifiers_by_their_title():
    ids = RNG.permutation(N)
    assert odd_columns(np.column_stack([ids, DATA]), ["user_id", *"abcd"]) == ["user_id"]
    assert odd_columns(np.column_stack([ids, DATA]), ["user", *"abcd"]) == []
