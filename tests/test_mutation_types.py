"""Types of mutations: their number, order and names, and tables that name them."""

import itertools

import numpy as np
import pandas as pd
import pytest

from conenmf import open_data
from conenmf.names import MUTATION_CLASSES, MUTATION_COLOURS, mutation_types, type_name

TYPES = [*MUTATION_CLASSES]
SUBSTITUTIONS, INDELS, DOUBLETS = TYPES[:96], TYPES[96:179], TYPES[179:]


def test_there_are_96_substitutions_and_83_indels_in_the_order_of_the_field():
    assert len(INDELS) == 83
    assert SUBSTITUTIONS[:5] == ["A[C>A]A", "A[C>A]C", "A[C>A]G", "A[C>A]T", "C[C>A]A"]
    assert SUBSTITUTIONS[-1] == "T[T>G]T"
    assert INDELS[5:7] == ["1:Del:C:5", "1:Del:T:0"]
    assert INDELS[-11:-5] == [f"{n}:Del:M:{m}" for n in (2, 3, 4) for m in range(1, n)]
    assert list(dict.fromkeys(MUTATION_CLASSES[one] for one in SUBSTITUTIONS)) == [
        *("C>A", "C>G", "C>T", "T>A", "T>C", "T>G")
    ]
    assert {*MUTATION_CLASSES.values()} == {*MUTATION_COLOURS}


def test_there_are_78_doublets_and_each_is_counted_on_one_strand():
    opposite = str.maketrans("ACGT", "TGCA")
    pairs = [tuple(one.split(">")) for one in DOUBLETS]
    turned = [tuple(bases.translate(opposite)[::-1] for bases in pair) for pair in pairs]
    every = {
        (a + b, c + d) for a, b, c, d in itertools.product("ACGT", repeat=4) if a != c and b != d
    }
    assert len(pairs) == len({*pairs}) == 78
    assert {*pairs, *turned} == every
    assert all(one == other for one, other in zip(pairs, turned, strict=True) if other in pairs)
    assert pairs == sorted(pairs)
    assert list(dict.fromkeys(MUTATION_CLASSES[one] for one in DOUBLETS)) == [
        f"{bases}>NN" for bases in ("AC", "AT", "CC", "CG", "CT", "GC", "TA", "TC", "TG", "TT")
    ]


def test_parts_in_several_columns_make_a_name():
    assert [type_name(f"{one[2:5]}", one[0] + one[2] + one[6]) for one in SUBSTITUTIONS] == (
        SUBSTITUTIONS
    )
    assert type_name("C>A", "ACA", "A[C>A]A") == "A[C>A]A"
    assert type_name("DEL", "repeats", "5+", "5+") == "5:Del:R:5"
    assert [type_name(*one.split(">")) for one in DOUBLETS] == DOUBLETS
    assert type_name("oak", "elm") == "oak:elm"


@pytest.mark.parametrize("types", [SUBSTITUTIONS, INDELS, DOUBLETS])
def test_types_in_any_order_have_places(types):
    shuffled = np.random.default_rng(0).permutation(types).tolist()
    known = mutation_types(shuffled)
    assert [types[place] for place in known.places] == shuffled
    assert known.classes == tuple(MUTATION_CLASSES[one] for one in shuffled)
    middles = [middle for middle, _ in mutation_types(types).groups]
    assert middles == sorted(middles)
    assert mutation_types(shuffled[1:]) is None
    assert mutation_types([*shuffled[1:], "oak"]) is None
    assert mutation_types(None) is None


def test_groups_of_types_have_their_names_in_the_middle():
    groups = mutation_types(SUBSTITUTIONS[::-1]).groups
    names = [name for _, name in sorted(groups)]
    assert names == ["C>A", "C>G", "C>T", "T>A", "T>C", "T>G"]
    assert sorted(middle for middle, _ in groups) == [7.5 + 16 * n for n in range(6)]


@pytest.mark.parametrize(
    ("titles", "rows"),
    [
        (["Mutation type", "Trinucleotide"], [["C>A", "ACA"], ["T>G", "TTT"]]),
        (["Type", "SubType"], [["C>A", "ACA"], ["T>G", "TTT"]]),
        (["Ref", "Var"], [["CC", "TT"], ["AC", "CA"]]),
        (
            ["Type", "Subtype", "Indel_size", "Repeat_MH_size"],
            [["DEL", "C", "1", "0"], ["DEL", "MH", "5+", "5+"]],
        ),
    ],
)
def test_tables_that_name_types_in_several_columns_are_read(tmp_path, titles, rows):
    table = pd.DataFrame(rows, columns=titles)
    table["tumour 1"], table["tumour 2"] = [3, 4], [0, 7]
    table.to_csv(tmp_path / "catalogue.csv", index=False)
    V = open_data(tmp_path / "catalogue.csv", samples_in="columns")
    assert V.names.feature_names == tuple(type_name(*row) for row in rows)
    assert V.names.sample_names == ("tumour 1", "tumour 2")
    np.testing.assert_array_equal(np.asarray(V.columns(np.arange(2))), [[3, 0], [4, 7]])
    first = open_data(tmp_path / "catalogue.csv", names_column=titles[0], drop=titles[1:])
    assert first.names.sample_names == tuple(row[0] for row in rows)
