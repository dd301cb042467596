"""The extra `cli` alone: text files need no further package, other files name what they need."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

import conenmf

# Packages of the extras `files`, `dask` and `datasets`, and what they bring.
ABSENT = (
    *("anndata", "dask", "distributed", "h5py", "numcodecs", "pandas", "polars", "pooch"),
    *("pyarrow", "spectral", "xarray", "zarr"),
)

WITHOUT = "--no-anndata --no-report -q --force"

PROGRAM = """
import json, sys
from importlib.machinery import PathFinder

absent, commands = json.load(sys.stdin)

class Present(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in absent else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Present
from conenmf.cli import main

codes = [main(command) for command in commands]
print(json.dumps([codes, [name for name in absent if name in sys.modules]]))
"""


def without_packages(commands):
    """Run commands in one process that cannot import the packages; return codes and stderr."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([ABSENT, commands]),
        env={**os.environ, "PYTHONPATH": str(Path(conenmf.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    codes, imported = json.loads(done.stdout.splitlines()[-1])
    assert imported == []
    return codes, done.stderr


def test_every_option_that_reads_text_works_without_the_other_packages(folder, run, rng):
    """With the same results to the last bit; the names are not in the order of the data."""
    X = pd.read_csv("cells.csv", index_col=0)
    mixed = X.iloc[::-1, ::-1]
    weights = pd.DataFrame(rng.uniform(0.5, 2, X.shape), mixed.index, mixed.columns)
    weights.to_csv("weights.csv")
    weights.where(weights < 1.8).to_csv("sigma.csv")
    weights.iloc[:1].to_csv("features.csv")
    mask = (weights > 0.7).astype(int)
    mask.to_csv("mask.csv")
    mask.T.to_csv("known.csv")
    mixed.iloc[[3, 40]].to_csv("fixed.csv")
    labels = pd.DataFrame({"class": ["oak", "an elm, old"] * 45}, mixed.index)
    labels.to_csv("labels.csv")
    np.savetxt("samples.txt", rng.uniform(1, 2, 90))
    counts = pd.DataFrame(rng.poisson(40 * X.to_numpy() + 1), X.index, X.columns)
    counts.T.to_csv("counts.csv")
    fit = "-k 3 --init cr1 --max-iter 3 -q --force --no-report"
    lines = (
        f"fit cells.csv -o many {fit} --weights weights.csv --mask mask.csv",
        f"fit cells.csv -o sigma {fit} --uncertainty sigma.csv",
        f"fit cells.csv -o few {fit} --weights features.csv --sample-weight samples.txt",
        f"fit cells.csv -o fixed {fit} --fixed fixed.csv",
        f"fit counts.csv -o counted {fit} --samples-in columns --mask known.csv",
        "transform many turned.csv -o new.csv -q",
        "demo -o demo -q",
        "report fixed --data cells.csv --classes labels.csv -q",
        "compare cells.csv -k 3 --labels labels.csv --inits cr1 --max-iter 2 -q",
        f"cells counts.csv -o programs -k 2 --runs 2 --samples-in columns {WITHOUT}",
    )
    commands = [line.split() for line in lines]
    codes, said = without_packages(commands)
    assert codes == [0] * len(lines), said
    texts = {path: path.read_bytes() for path in Path().rglob("*.csv")}
    assert len(texts) > 25
    assert [run(*command) for command in commands[:6]] == codes[:6]
    for path, text in texts.items():
        assert path.name == "history.csv" or path.read_bytes() == text, path


def test_each_file_and_table_names_the_extra_that_it_needs(tmp_path, monkeypatch):
    """In one sentence, before anything is read or computed."""
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("a,b\n1,2\n3,4\n5,7\n")
    for name in ("a.parquet", "a.feather", "a.h5ad", "a.hdr"):
        Path(name).write_text("nothing")
    Path("a.zarr").mkdir()
    before = sorted(Path().iterdir())
    needs = {
        "fit a.parquet": "pyarrow",
        "fit a.feather": "pyarrow",
        "fit a.h5ad": "h5py",
        "fit a.zarr": "zarr",
        "fit a.hdr": "spectral",
        "fit a.csv --mask a.h5ad": "h5py",
        "fit a.csv --tables parquet": "pyarrow",
        "fit a.h5ad --anndata": "anndata",
        "cells a.csv": "anndata",
        "cells a.h5ad --no-anndata": "h5py",
    }
    codes, said = without_packages([[*line.split(), "-k", "2", "-q"] for line in needs])
    assert 0 not in codes
    sentences = said.splitlines()
    for sentence, package in zip(sentences, needs.values(), strict=True):
        assert sentence.startswith("conenmf: ")
        assert f"the package {package}" in sentence
        assert "pip install 'conenmf[files]'" in sentence
    assert sorted(Path().iterdir()) == before
