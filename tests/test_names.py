"""Names of samples and features: where they come from, and how they are shown."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conenmf import from_columns, from_rows
from conenmf.errors import DataError
from conenmf.names import Names, in_order, names_of
from conenmf.text import visible


@given(st.text(max_size=400))
def test_a_visible_text_is_one_short_line_without_control_characters(text):
    shown = visible(text)
    assert len(shown.splitlines()) <= 1
    assert not any(ord(sign) < 32 or 127 <= ord(sign) < 160 for sign in shown)
    assert visible(shown) == shown or len(text) >= 200
    if len(text) < 200 and text.isprintable():
        assert shown == text


def test_names_of_data_frames():
    frame = pd.DataFrame([[1.0, 2.0], [3.0, 4.0]], columns=["a", "b"])
    for data, names in (
        (frame, Names(None, ("a", "b"))),
        (frame.set_axis(["x", "y"]), Names(("x", "y"), ("a", "b"))),
        (pd.DataFrame(np.eye(2)), Names()),
        (pl.DataFrame({"a": [1.0], "b": [2.0]}), Names(None, ("a", "b"))),
        (np.eye(2), Names()),
    ):
        assert names_of(data) == names


def test_an_opened_matrix_knows_the_names():
    frame = pd.DataFrame([[1.0, 2.0, 0.0], [3.0, 4.0, 1.0]], ["x", "y"], ["a", "b", "c"])
    assert from_rows(frame).names == Names(("x", "y"), ("a", "b", "c"))
    assert from_columns(frame).names == Names(("a", "b", "c"), ("x", "y"))
    assert from_rows(frame.to_numpy()).names == Names()


def test_there_is_a_name_for_each(refuses):
    names = Names(("x",), ("a", "b"))
    assert names.checked(1, 2) is names
    refuses(DataError, "1 names for 3 samples", names.checked, 3, 2)


def test_samples_and_features_without_names_are_numbered():
    assert (Names().sample(3), Names().feature(0)) == ("sample 3", "feature 0")
    assert Names(("x",), ("a",)).sample(0) == "x"


def test_tables_are_brought_into_the_order_of_the_data():
    names = Names.of(["a", "b"], ["x", "y", "z"])
    values = np.arange(6.0).reshape(2, 3)
    sides = ("mask", values, "sample", "feature")
    assert in_order(names, *sides) is values
    assert in_order(names, "mask", None, "sample", "feature") is None
    for table in (
        pd.DataFrame(values),  # no names of its own
        pd.DataFrame(values, ["a", "b"], ["x", "y", "z"]),
        pd.DataFrame(values[::-1], ["b", "a"], ["x", "y", "z"]),
        pd.DataFrame(values[:, [2, 0, 1]], ["a", "b"], ["z", "x", "y"]),
        pl.DataFrame(values[:, [2, 0, 1]], ["z", "x", "y"]),
    ):
        np.testing.assert_array_equal(in_order(names, "mask", table, "sample", "feature"), values)
    weights = pd.Series([3.0, 1.0, 2.0], ["z", "x", "y"])
    np.testing.assert_array_equal(in_order(names, "weights", weights, "feature"), [1, 2, 3])
    assert in_order(names, "weights", pl.Series([3.0, 1.0, 2.0]), "feature")[0] == 3
    assert in_order(names, "fixed", pd.DataFrame(values, ["c", "d"]), "", "feature").shape == (2, 3)
    few = pd.Series([3.0, 1.0], ["z", "x"])
    assert in_order(names, "weights", few, "feature") is few  # the caller says how many are asked


def test_places_decide_where_the_data_have_no_names():
    weights = pd.Series([1.0, 2.0, 3.0])
    assert in_order(Names(), "sample_weight", weights, "sample") is weights
    other = weights.set_axis([5, 2, 9])
    assert in_order(Names(), "sample_weight", other, "sample") is other


def test_a_default_index_beside_the_same_numbers_in_another_order_is_refused():
    names = Names.of(sample_names=[2, 0, 1])
    given = pd.Series([5.0, 6.0, 7.0])
    with pytest.raises(DataError, match="sample_weight has a default index, and the rows"):
        in_order(names, "sample_weight", given, "sample")
    assert in_order(names, "sample_weight", given.to_numpy(), "sample").tolist() == [5, 6, 7]
    assert in_order(names, "sample_weight", given[[1, 0, 2]], "sample").tolist() == [7, 5, 6]
    some = Names.of(sample_names=[7, 0, 1])
    assert in_order(some, "sample_weight", given, "sample") is given
