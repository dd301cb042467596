"""Catalogues of mutations: their types are checked, and signatures that repeat others are named."""

import numpy as np
import pandas as pd
import pytest

from conenmf import from_rows, select_k
from conenmf.cli import main
from conenmf.errors import DataError
from conenmf.fields.mutations import check_catalogue
from conenmf.judge.matching import named_after, repeated_names
from conenmf.names import MUTATION_CLASSES, Names

TYPES = [*MUTATION_CLASSES][:96]


@pytest.mark.parametrize("side", ["sample_names", "feature_names"])
def test_an_impossible_type_is_refused_wherever_it_stands(side):
    names = Names.of(**{side: ["A[C>A]A", "C[C>A]Q"]})
    with pytest.raises(DataError, match=r"'C\[C>A\]Q' is no type of mutation: expected"):
        check_catalogue(from_rows(np.ones((2, 2)), names=names))
    fine = Names.of(**{side: ["A[C>A]A", "TP53"]})
    assert check_catalogue(from_rows(np.ones((2, 2)), names=fine)) == ""


def test_rows_that_may_be_types_without_names_are_questioned():
    rng = np.random.default_rng(0)
    assert "are the 96 rows types of mutations?" in check_catalogue(from_rows(rng.random((96, 9))))
    assert check_catalogue(from_rows(rng.random((95, 9)))) == ""
    named = from_rows(rng.random((96, 96)), names=Names.of(feature_names=TYPES))
    assert check_catalogue(named) == ""


@pytest.mark.parametrize("types", [TYPES[:95], [*TYPES[:95], TYPES[0]]], ids=["missing", "twice"])
def test_types_that_are_no_catalogue(types, tmp_path, capsys):
    counts = np.random.default_rng(2).poisson(9, (len(types), 30))
    with pytest.raises(DataError, match="no catalogue of 96 substitutions"):
        check_catalogue(from_rows(counts.T, names=Names.of(feature_names=types)))
    table = tmp_path / "types_in_rows.csv"
    pd.DataFrame(counts, types).to_csv(table)
    assert main(["signatures", str(table), "-k", "2", "-o", str(tmp_path / "out")]) != 0
    assert "no catalogue of 96 substitutions" in capsys.readouterr().err


def test_a_second_component_near_a_known_one_is_not_new():
    rng = np.random.default_rng(1)
    known = rng.dirichlet(np.full(40, 0.2), 3).T
    noise = rng.dirichlet(np.full(40, 0.2), 3).T
    W = np.column_stack([known[:, 0], known, 0.85 * known[:, [0]] + 0.3 * noise[:, [0]]])
    W[:, 0] += 0.1 * noise[:, 1]
    names, words = named_after(W, known, ["A", "B", "C"])
    assert names == ("like A 0", "A", "B", "C", "like A 4")
    assert words[0].startswith("another component like A (cosine 0.")
    said = repeated_names(W, known, ["A", "B", "C"], names)
    assert said.startswith("component 0 resembles A (cosine 0.")
    assert "; component 4 resembles A (cosine 0." in said
    assert said.endswith("as component 1 does: try 3 components")
    assert repeated_names(known, known, ["A", "B", "C"], ["A", "B", "C"]) == ""
    (fresh,), (word,) = named_after(noise[:, :1], known, ["A", "B", "C"])
    assert (fresh, word[:14]) == ("new 0", "new (nearest: ")


def test_progress_says_which_number_is_tried():
    rng = np.random.default_rng(0)
    counts = rng.poisson(30 * rng.dirichlet(np.full(2, 0.4), 60) @ rng.gamma(1.0, size=(2, 20)))
    seen = []
    found = select_k(from_rows(counts), loss="poisson", callback=lambda what, _: seen.append(what))
    tried = {int(what.split()[-2]) for what in seen if what.startswith("counting noise, ")}
    assert tried >= {found.K, found.K + 1}
