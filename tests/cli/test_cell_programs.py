"""The command `cells`: from a file of counts to programs, and resuming from its folder."""

import json
import re
from functools import partial
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from conenmf.atomic import in_use
from conenmf.cli import cells
from conenmf.judge.matching import match_components


@pytest.fixture
def atlas(tmp_path, monkeypatch):
    """Write counts of two programs in a layer, and logarithms in X."""
    monkeypatch.chdir(tmp_path)
    rates = np.kron(np.eye(2), np.ones((40, 10))) * 4 + 0.3
    counts = np.random.default_rng(0).poisson(rates).astype(np.float32)
    layers = {"counts": sp.csr_matrix(counts)}
    anndata.AnnData(sp.csr_matrix(np.log1p(counts)), layers=layers).write_h5ad("atlas.h5ad")


table = partial(pd.read_csv, sep="\t", index_col=0)


OPTIONS = ("--layer", "counts", "-k", 2, "--runs", 3, "-q")


def test_cells_go_from_a_file_to_programs(atlas, output_of):
    output = output_of("cells", "atlas.h5ad", *OPTIONS, "-o", "out", "--seed", 1)
    assert "80 cells, 20 genes of 20, 2 programs" in output
    assert "program 1: in 100% of the runs, 40 cells; " in output
    assert table("out/atlas.usages.k_2.dt_0_5.consensus.txt").shape == (80, 2)
    groups = anndata.read_h5ad("out/atlas.k_2.dt_0_5.h5ad").obs["conenmf"].to_numpy()
    assert groups.tolist() == np.repeat([groups[0], groups[-1]], 40).tolist()
    assert groups[0] != groups[-1]
    assert 'id="stability"' in Path("out/atlas.report.k_2.html").read_text()
    facts = json.loads(Path("out/atlas.run.k_2.dt_0_5.json").read_text())
    assert facts["verdict"] == "stable"


def test_screen_files_and_page_agree(tmp_path, monkeypatch, output_of):
    """One numbering, one word, one list of genes, and the same cells of each program."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    sizes = (50, 35, 25, 10)
    usages = np.repeat(np.eye(4), sizes, axis=0) + 0.1 * rng.random((120, 4))
    spectra = rng.gamma(0.3, 1.0, (4, 60)) * np.array([[0.3], [2.0], [1.0], [5.0]])
    counts = rng.poisson(20 * usages @ spectra + 0.1).astype(np.float32)
    genes = pd.DataFrame(index=[f"gene-{n}" for n in range(60)])
    anndata.AnnData(sp.csr_matrix(counts), var=genes).write_h5ad("mix.h5ad")
    output = output_of("cells", "mix.h5ad", "-k", 4, "--runs", 4, "-q", "-o", "out")
    lines = re.findall(r"^program (\d): .*, (\d+) cells?; (.*)$", output, re.MULTILINE)
    assert [int(number) for number, _, _ in lines] == [1, 2, 3, 4]
    page = Path("out/mix.report.k_4.html").read_text("utf-8")
    plain = re.sub(r"<(script|style).*?</|<[^>]*>", " ", page, flags=re.DOTALL)
    assert "component" not in plain.lower()
    cards = page.split("<article")[1:]
    score = table("out/mix.gene_spectra_score.k_4.dt_0_5.txt")
    labels = anndata.read_h5ad("out/mix.k_4.dt_0_5.h5ad").obs["conenmf"].astype(int)
    for (number, size, named), card in zip(lines, cards, strict=True):
        assert f"Program {number}</h3>" in card
        assert f"{size} of 120" in card
        assert int(size) == (labels == int(number)).sum()
        ordered = score.loc[int(number)].sort_values(ascending=False).index[:6].tolist()
        assert named.split(", ") == ordered
        shown = re.findall(r'<span class="of">(gene-\d+)</span>', card)
        assert shown[:6] == ordered


def test_other_options_and_json(atlas, output_of):
    Path("genes.txt").write_text("3\n12\n15\n")
    options = "-k 2 --runs 2 -q --genes-file genes.txt --log1p --no-anndata --no-report --name b"
    answer = output_of("cells", "atlas.h5ad:layers/counts", *options.split(), "--json")
    assert (answer["n_genes"], answer["log1p"]) == (3, True)
    assert sorted(Path(name).name for name in answer["files"])[-1].startswith("b.usages.k_2")
    assert not any(name.endswith(".h5ad") for name in answer["files"])
    assert Path("programs/b.overdispersed_genes.txt").read_text() == "3\n12\n15"


@pytest.mark.nightly
def test_the_page_leads_from_counts_to_programs(tmp_path, monkeypatch, output_of):
    """What docs/cells.md does in five minutes, on cells whose programs are known."""
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "cells.md").read_text("utf-8")
    values = {}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], values)
    (words,) = re.findall(r"^\$ conenmf (cells cells\.h5ad .*)", page, re.MULTILINE)
    output = output_of(*words.split())
    assert "5 programs of 3 to 7: the largest number whose programs are all stable" in output
    spectra = table("programs/cells.gene_spectra_tpm.k_5.dt_0_5.txt")[[*values["genes"].index]]
    order, cosines = match_components(values["spectra"].T, spectra.to_numpy().T)
    assert cosines.min() > 0.99
    usages = table("programs/cells.usages.k_5.dt_0_5.consensus.txt")
    shares = usages.to_numpy()[:, order]
    shares /= shares.sum(axis=1, keepdims=True)
    assert np.abs(shares - values["usages"]).mean() < 0.03
    for name in ("k_selection", "clustering.k_5.dt_0_5"):
        assert Path(f"programs/cells.{name}.png").read_bytes().startswith(b"\x89PNG")
    assert 'id="stability"' in Path("programs/cells.report.k_5.html").read_text("utf-8")


def test_a_run_continues_from_the_fits_in_its_folder(atlas, fails, run):
    def fits():
        found = Path("out/atlas.runs/K-2").glob("run-*.npz")
        return {path: path.stat().st_mtime_ns for path in found}

    command = ("cells", "atlas.h5ad", *OPTIONS, "-o", "out", "--no-report", "--no-anndata")
    assert run(*command) == 0
    before = fits()
    assert len(before) == 3
    for path in Path("out").glob("atlas.*"):
        if path.is_file():
            path.unlink()  # as if it had been killed before anything was written
    assert run(*command, "--runs", 5) == 0
    assert len(fits()) == 5
    assert fits().items() >= before.items()
    fails(4, "its tol is 0.001, now it is 0.1", *command, "--tol", 0.1)
    assert run(*command, "--tol", 0.1, "--force") == 0


def test_a_folder_in_use_is_refused(atlas, fails):
    Path("out").mkdir()
    with in_use(Path("out")):
        message = "out is in use by another process"
        fails(5, message, "cells", "atlas.h5ad", *OPTIONS, "-o", "out")
    fails(3, "there is no file nowhere.h5ad", "cells", "nowhere.h5ad", *OPTIONS, "-o", "other")
    assert not Path("other").exists()


def test_a_missing_layer_beside_counts_in_x(tmp_path, monkeypatch, fails):
    monkeypatch.chdir(tmp_path)
    counts = np.random.default_rng(0).poisson(2.0, (30, 20)).astype(np.float32)
    anndata.AnnData(sp.csr_matrix(counts)).write_h5ad("plain.h5ad")
    fails(3, "X holds counts: leave out --layer", "cells", "plain.h5ad", *OPTIONS)


def test_the_report_of_donors_is_of_counts_without_their_scales(tmp_path, monkeypatch, output_of):
    """The consensus was formed of these, and describes them."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    donors = np.repeat(["ann", "bob"], 60)
    scales = np.where(donors[:, None] == "ann", rng.lognormal(0, 0.7, 24), 1.0)
    rates = np.kron(np.ones((2, 1)), np.kron(np.eye(2), np.ones((30, 12)))) * 6 + 0.4
    counts = sp.csr_matrix(rng.poisson(rates * scales).astype(np.float32))
    table_of_cells = pd.DataFrame({"donor": donors}, [f"cell {n}" for n in range(120)])
    anndata.AnnData(counts, table_of_cells).write_h5ad("a.h5ad")
    seen = {}
    for name in ("scaled_genes", "as_result"):
        function = getattr(cells, name)

        def kept(V, *given, name=name, function=function):
            seen[name] = found = function(V, *given)
            return found

        monkeypatch.setattr(cells, name, kept)
    output_of("cells", "a.h5ad", "-k", 2, "--runs", 3, "--groups", "donor", "-q", "-o", "out")
    found = table("out/a.donor_scales.k_2.txt").to_numpy().T
    assert np.ptp(np.log(found)) > 0.5
    own = found[(donors == "bob").astype(int)]
    before, judged = (
        V.columns(np.arange(120)).toarray().T
        for V in (seen["scaled_genes"], seen["as_result"].data)
    )
    np.testing.assert_allclose(judged, before / own, rtol=1e-5)
