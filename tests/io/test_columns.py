"""Columns of tables: those that are named by the caller, and those that look like no data."""

import gzip
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conenmf import ConeNMF, from_columns, from_rows, open_data
from conenmf.errors import (
    DataError,
    DataTypeError,
    FileFormatError,
    InputWarning,
    OptionError,
)
from conenmf.io.tables import odd_columns
from conenmf.names import Names

TEXT = "day,a,who,b\n1999-12-31,1,x,2\n2000-01-01,3,y,4\n"


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
def test_columns_are_named_or_left_out(tmp_path, name):
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
    with pytest.raises(OptionError, match=r"no column 'c'; it has day, a, who, b, and .* 0 to 3"):
        open_data(path, drop="c")
    with pytest.raises(OptionError, match="no column '4'"):
        open_data(path, names_column=4)
    with pytest.raises(OptionError, match="'who' is among the columns to leave out"):
        open_data(path, names_column="who", drop=2)
    with pytest.raises(DataError, match="at least one feature"):
        open_data(path, names_column="who", drop=("day", "a", "b"))


def test_texts_and_dates_among_numbers_are_named_with_what_to_do(tmp_path):
    (tmp_path / "a.csv").write_text(TEXT)
    with pytest.raises(FileFormatError, match=r"line 2, column 'who': 'x' .* drop='who'"):
        open_data(tmp_path / "a.csv")
    with pytest.raises(FileFormatError, match=r"'1999-12-31' is a date.* with drop='day'"):
        open_data(tmp_path / "a.csv", names_column="who")
    frame = pd.DataFrame({"a": [1.0], "t": pd.to_datetime(["1999-12-31"])})
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataTypeError, match=r"not numbers: t \(timestamp.* with drop='t'"):
        open_data(tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", names_column="t")[1].sample_names[0].startswith("1999")


def test_quoted_and_broken_lines_of_which_columns_are_left_out(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'a,"b, c",d\n1,"u, ""v""",2\r\n\r\n3,w,"4"\n')
    assert read(path, names_column="b, c")[1] == Names(('u, "v"', "w"), ("a", "d"))
    for line, message in ((b"1,x\n", "line 5 has 2 fields"), (b'1,x,"2,5"\n', "'2,5' is not a")):
        path.write_bytes(b'a,"b, c",d\n1,"u",2\r\n\r\n3,w,4\n' + line)
        with pytest.raises(FileFormatError, match=message):
            open_data(path, drop=1)
    path.write_bytes(b"a,b\n1,caf\xe9\n" * 30)
    with pytest.raises(FileFormatError, match="is not UTF-8"):
        open_data(path, names_column="b")


def test_titles_that_are_numbers_or_not_unique(tmp_path):
    (tmp_path / "a.csv").write_text("x,2,0,0\n1.5,2.5,3.5,4.5\n")
    assert read(tmp_path / "a.csv", drop="2")[0] == [[1.5, 3.5, 4.5]]
    assert read(tmp_path / "a.csv", drop=2)[0] == [[1.5, 2.5, 4.5]]
    assert read(tmp_path / "a.csv", drop="3")[0] == [[1.5, 2.5, 3.5]]
    with pytest.raises(
        OptionError, match="2 columns that are called '0': give a number, such as 2"
    ):
        open_data(tmp_path / "a.csv", drop="0")


def test_the_index_of_a_data_frame_gives_way_to_another_column(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0], "who": ["x", "y"]}, index=pd.Index([7.0, 9.0], name="k"))
    frame.to_parquet(tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", drop="who") == ([[1.0], [2.0]], Names(("7", "9"), ("a",)))
    named = Names(("x", "y"), ("a", "k"))
    assert read(tmp_path / "a.parquet", names_column="who") == ([[1.0, 7.0], [2.0, 9.0]], named)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("a.npy", {"header": True}, "header is for tables"),
        ("a.npy", {"header": False}, "header is for tables"),
        ("a.npy", {"drop": "a"}, "drop is for tables"),
        ("a.npy", {"names_column": 0}, "names_column is for tables"),
        ("a.parquet", {"header": True}, "header is for tables written as text"),
        ("a.csv", {"header": "yes"}, "header='yes', expected True or False"),
        ("a.csv", {"drop": [1.5]}, "drop=1.5, expected the title of a column"),
        ("a.csv", {"names_column": True}, "names_column=True, expected the title of a column"),
    ],
)
def test_options_that_do_not_suit_the_file(tmp_path, name, options, message):
    np.save(tmp_path / "a.npy", np.ones((2, 2)))
    pd.DataFrame({"a": [1.0]}).to_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text(TEXT)
    with pytest.raises(OptionError, match=message):
        open_data(tmp_path / name, **options)


# --- a first line of numbers ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.csv", "a.tsv.gz"])
def test_the_header_of_pandas_and_wavelengths(tmp_path, name):
    X = np.random.default_rng(0).random((30, 12)).round(4)
    for titles in (range(12), np.linspace(400, 2500, 12).round(1)):
        write(tmp_path / name, pd.DataFrame(X, columns=titles))
        rows, names = read(tmp_path / name)
        assert rows == X.tolist()
        assert names == Names(None, tuple(map(str, titles)))
        assert (
            open_data(tmp_path / name).remarks[0].startswith("the first line was taken as titles")
        )
        assert open_data(tmp_path / name, header=False).shape == (12, 31)
    gzipped = name.endswith(".gz")
    text = "\n".join(",".join(map(str, row)) for row in X.tolist()).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if gzipped else text)
    V = open_data(tmp_path / name)
    assert (V.shape, V.remarks) == ((12, 30), ("the first line was taken as data",))
    assert open_data(tmp_path / name, header=True).shape == (12, 29)


def test_numbers_over_numbers_beside_names(tmp_path):
    (tmp_path / "a.csv").write_text(
        "x,400,410,420,430\n" + "y,0.5,0.1,0.2,0.4\nz,1.5,0.7,2.5,0.1\n" * 9
    )
    assert open_data(tmp_path / "a.csv").names.feature_names == ("400", "410", "420", "430")
    (tmp_path / "a.csv").write_text("x,0.2,0.1,0.2,0.4\ny,0.5,0.1,0.2,0.4\n")
    assert open_data(tmp_path / "a.csv").names == Names(("x", "y"))
    (tmp_path / "a.csv").write_text("Sample,2,1\ny,0.5,0.1\n")
    assert open_data(tmp_path / "a.csv").names == Names(("y",), ("2", "1"))
    (tmp_path / "a.csv").write_text('"2","1"\n1,2\n3,4\n')
    assert open_data(tmp_path / "a.csv").names == Names(None, ("2", "1"))


def test_a_column_of_texts_does_not_make_a_header(tmp_path):
    (tmp_path / "a.csv").write_text("5,1999-12-31,7\n3,2000-01-01,4\n")
    assert read(tmp_path / "a.csv", drop=1)[0] == [[5.0, 7.0], [3.0, 4.0]]


def test_a_doubt_is_said(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("0,1\n" + "0.5,0.25\n0.75,0.125\n" * 9)
    with pytest.warns(InputWarning, match=r"taken as titles.*if it holds data, give header=False"):
        V = open_data(path)
    assert V.shape == (2, 18)
    path.write_text("1,2\n" + "30,4\n7,60\n" * 9)
    with pytest.warns(InputWarning, match=r"taken as data.*if it holds titles, give header=True"):
        V = open_data(path)
    assert V.shape == (2, 19)
    for header, N in ((True, 18), (False, 19)):
        assert open_data(path, header=header).shape == (2, N)
        assert open_data(path, header=header).remarks == ()


@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 6),
    st.integers(2, 40),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**16),
)
def test_what_is_written_is_read(tmp_path_factory, F, N, titled, named, seed):
    """With the options that say how it was written, any table comes back."""
    path = tmp_path_factory.mktemp("round") / "a.csv"
    rng = np.random.default_rng(seed)
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
    with pytest.warns(InputWarning, match=rf"column 'odd' {reason.strip()}.* drop='odd'.*n='odd'"):
        V = open_data(tmp_path / name)
    assert V.shape == (5, N)
    assert V.remarks[-1].startswith("column 'odd' ")
    assert open_data(tmp_path / name, drop="odd").remarks == ()
    with pytest.warns(InputWarning, match=r"the data frame: column 'odd' .*X\.drop\(columns='odd"):
        from_rows(frame)
    with pytest.warns(InputWarning, match="column 'odd'"):
        from_columns(frame)


def test_odd_columns_reach_the_estimator():
    frame = pd.DataFrame(DATA, columns=list("abcd")).assign(PassengerId=np.arange(N) + 5)
    with pytest.warns(InputWarning, match="column 'PassengerId' counts the rows"):
        ConeNMF(2, max_iter=1, tol=0).fit(frame)


@pytest.mark.parametrize("kind", ["pandas", "polars", "unsigned"])
def test_frames_of_booleans_and_small_integers(kind):
    colours = pd.DataFrame({"a": RNG.choice(list("xyz"), 50), "b": RNG.choice(list("pq"), 50)})
    frame = pd.get_dummies(colours)
    given = frame.astype("uint8") if kind == "unsigned" else frame
    if kind == "polars":
        given = pytest.importorskip("polars").DataFrame(frame.to_dict("list"))
    model = ConeNMF(2).fit(given)
    assert model.relative_error_ == ConeNMF(2).fit(frame.to_numpy(float)).relative_error_


def test_booleans_in_a_text_are_named_with_their_column(tmp_path):
    frame = pd.get_dummies(pd.DataFrame({"a": list("xyzx") * 5}))
    frame.to_csv(tmp_path / "dummies.csv", index=False)
    with pytest.raises(FileFormatError, match=r"line 2, column 'a_x': 'True' .* write 1 for"):
        open_data(tmp_path / "dummies.csv")


def test_identifiers_by_their_title():
    ids = RNG.permutation(N)
    assert odd_columns(np.column_stack([ids, DATA]), ["user_id", *"abcd"])[0][0] == "user_id"
    assert odd_columns(np.column_stack([ids, DATA]), ["user", *"abcd"]) == []


@pytest.mark.parametrize(
    "rows",
    [
        DATA,
        np.round(DATA),
        RNG.integers(10**5, 10**6, (N, 4)),  # all are large counts
        np.arange(4 * N).reshape(N, 4),  # all rise in equal steps
        np.outer(np.arange(N), [1.0, 2, 3, 4]),
        np.full((N, 4), 2000.0),  # all are the same
        np.column_stack([np.arange(9), DATA[:9]]),  # too few to know
        np.full((N, 4), np.nan),
    ],
)
def test_ordinary_columns_are_not_named(rows):
    assert odd_columns(rows, list("abcde")[: rows.shape[1]]) == []


def test_many_odd_columns_are_counted(tmp_path):
    frame = pd.DataFrame(RNG.random((N, 20)), columns=[f"c{n}" for n in range(20)])
    for n in range(7):
        frame[f"t{n}"] = np.arange(N) + n
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.warns(InputWarning, match=r"column 't4' counts the rows, and 2 more like these"):
        open_data(tmp_path / "a.csv")
