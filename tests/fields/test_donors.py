"""Programs of cells of several donors: what is found, said and written, and what is refused."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from anndata import AnnData, read_h5ad

import conenmf
from conenmf import from_rows
from conenmf.cli import main
from conenmf.errors import DataError, OptionError
from conenmf.fields.cells import find_programs, write_programs
from conenmf.fields.donors import Donors, first_scales
from conenmf.names import Names
from conenmf.report import render

D, K, N_CELLS, N_GENES = 4, 4, 70, 60


@pytest.fixture(scope="module")
def atlas():
    """Counts, donors, usages and factors: three shared programs, and one of donor d2 alone."""
    rng = np.random.default_rng(5)
    spectra = np.kron(np.eye(K), np.ones(15)) * 5 + 0.4
    donors = np.repeat([f"d{d}" for d in range(D)], N_CELLS)
    usages = rng.dirichlet(np.full(3, 0.4), len(donors))
    own = np.where(donors == "d2", rng.uniform(0.2, 0.6, len(donors)), 0.0)[:, None]
    usages = np.hstack([usages * (1 - own), own])
    factors = rng.lognormal(0, 0.5, (D, N_GENES))
    rates = usages @ spectra * np.repeat(factors, N_CELLS, axis=0)
    counts = rng.poisson(rates * rng.lognormal(1.5, 0.3, (len(donors), 1))).astype(np.float32)
    return counts, donors, usages, factors / np.exp(np.log(factors).mean(axis=0))


@pytest.fixture(scope="module")
def programs(atlas):
    return find_programs(from_rows(atlas[0]), K, 4, groups=atlas[1])


def errors_of(found, usages):
    shares = found.usages / found.usages.sum(axis=1, keepdims=True)
    costs = ((usages[:, :, None] - shares[:, None]) ** 2).mean(axis=0)
    return np.sqrt(costs.min(axis=1))


def test_usages_come_close_to_the_truth_and_closer_than_without_groups(atlas, programs):
    counts, _, usages, _ = atlas
    plain = find_programs(from_rows(counts), K, 4)
    own, without = errors_of(programs, usages).mean(), errors_of(plain, usages).mean()
    assert own < 0.6 * without
    assert own < 0.06


def test_scales_and_the_table_are_those_of_the_draw(atlas, programs):
    _, _, _, factors = atlas
    donors = programs.donors
    assert donors.names == ("d0", "d1", "d2", "d3")
    np.testing.assert_allclose(np.exp(np.log(donors.scales).mean(axis=0)), 1, rtol=1e-6)
    others = [0, 1, 3]  # the scales of d2 and its private program trade genes
    logs = np.log(donors.scales[others]), np.log(factors[others])
    assert np.corrcoef(logs[0].ravel(), logs[1].ravel())[0, 1] > 0.9
    (private,) = np.flatnonzero(donors.found_in == 1)
    assert donors.in_words(private) == "private, in d2 alone"
    assert sorted(donors.found_in.tolist()) == [1, 4, 4, 4]
    np.testing.assert_array_equal(donors.returns, donors.found_in > 1)  # one half lacks d2
    means = [programs.usages[atlas[1] == name].mean(axis=0) for name in donors.names]
    np.testing.assert_allclose(donors.usages, means, rtol=1e-6)


def test_independent_cells_choose_the_number_of_programs(atlas):
    """A private program counts by cells of its donor, a shared one by other donors too."""
    counts, donors, usages, _ = atlas
    found = find_programs(from_rows(counts), "auto", 4, groups=donors)
    assert found.tried.decided_by == "donors"
    piece = found.tried.evidence[-1]
    assert piece.interval[0] == 3  # programs in several donors
    assert K <= found.K <= K + 2
    assert f"{found.K} of {piece.interval[1]} programs return" in found.tried.sentence
    assert errors_of(found, usages).max() < 0.1


def test_the_report_shows_who_uses_what(atlas, programs):
    donors = programs.donors
    facts = donors.plain(Names())
    shares = np.array([row["shares"] for row in facts["rows"]])
    np.testing.assert_array_equal(shares > 0, donors.table.T)
    used = np.where(donors.table, donors.usages, 0) / donors.usages.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares, used.T)
    result = conenmf.factorize(from_rows(atlas[0]), K, max_iter=5)
    page = render(replace(result, settings={**result.settings, "donors": facts}))
    (private,) = np.flatnonzero(donors.found_in == 1)
    assert 'href="#donors"' in page
    table = page.split('id="donors-table"')[1].split("</table>")[0]
    titles, *rows = table.split("<tr")[1:]
    assert re.findall("<th[^>]*>([^<]*)</th>", titles) == ["program", "found", *donors.names]
    cells = [re.findall("<td[^>]*>([^<]*)</td>", row) for row in rows]
    assert cells[private][0] == "private, in d2 alone"
    assert [[cell != "" for cell in own[1:]] for own in cells] == donors.table.T.tolist()
    assert 'id="donors"' not in render(result)


def test_cells_of_a_donor_have_no_usage_of_what_it_does_not_use(atlas, programs):
    donors = programs.donors
    for d, name in enumerate(donors.names):
        forbidden = programs.usages[atlas[1] == name][:, ~donors.table[d]]
        assert (forbidden == 0).all()


def test_the_genes_that_move_are_named_with_their_factor():
    scales = np.array([[1.0, 2.0, 0.25], [1.0, 0.5, 4.0]])
    sizes, table, means = np.array([5, 5]), np.full((2, 1), True), np.ones((2, 1))
    found = Donors(("a", "b"), sizes, scales, table, means, table[0])
    names = Names.of(["c"], ["x", "y", "z"])
    assert found.moved(names, 2) == {"a": ["z x 0.25", "y x 2"], "b": ["z x 4", "y x 0.5"]}
    assert found.in_words(0) == "in 2 of 2 donors"
    shared = "shared, and found in both halves of the donors: 1"
    line = f"2 donors; private to one of them: 0 of 1 program; {shared}"
    assert found.in_sentences(names)[0] == line
    same = replace(found, scales=np.ones((2, 3)))
    assert same.in_sentences(names)[-1] == "the donors have no effect of their own on genes"


def test_the_text_and_the_files_say_where_programs_are_found(atlas, programs, tmp_path):
    text = str(programs)
    assert "in 4 of 4 donors; " in text
    assert "private, in d2 alone" in text
    assert "genes that move with d1: " in text
    counts = from_rows(atlas[0])
    paths = write_programs(programs, tmp_path, "run", counts=counts)
    written = {path.name for path in paths}
    assert {"run.donors.k_4.txt", "run.donor_scales.k_4.txt"} <= written
    table = pd.read_csv(tmp_path / "run.donors.k_4.txt", sep="\t", index_col=0)
    assert table.columns.tolist() == ["donors", "d0", "d1", "d2", "d3"]
    np.testing.assert_array_equal(table["donors"], programs.donors.found_in)
    expected = np.where(programs.donors.table, programs.donors.usages, 0).T
    np.testing.assert_allclose(table.to_numpy()[:, 1:], expected)
    scales = pd.read_csv(tmp_path / "run.donor_scales.k_4.txt", sep="\t", index_col=0)
    np.testing.assert_allclose(scales.to_numpy(), programs.donors.scales.T)
    cells = read_h5ad(tmp_path / "run.k_4.dt_0_5.h5ad")
    np.testing.assert_allclose(cells.varm["conenmf_scales"], programs.donors.scales.T)
    facts = json.loads((tmp_path / "run.run.k_4.dt_0_5.json").read_text())
    assert facts["donors"]["found_in"] == programs.donors.found_in.tolist()


def test_without_groups_nothing_is_said_of_donors(atlas):
    plain = find_programs(from_rows(atlas[0]), K, 2)
    assert plain.donors is None
    assert "donor" not in str(plain)


@pytest.mark.filterwarnings("ignore:all samples are of the group")
def test_one_donor_is_a_plain_fit(atlas):
    counts = from_rows(atlas[0])
    one = find_programs(counts, K, 2, groups=["a"] * len(atlas[1]))
    assert one.donors is None
    np.testing.assert_array_equal(one.usages, find_programs(counts, K, 2).usages)


def test_first_scales_are_part_of_the_ratio_of_means(atlas):
    groups = first_scales(from_rows(atlas[0]), atlas[1])
    found = np.corrcoef(np.log(groups.scales).ravel(), np.log(atlas[3]).ravel())[0, 1]
    assert found > 0.5
    assert groups.table is None


def test_what_is_no_group_is_refused(atlas, refuses):
    counts, donors, *_ = atlas
    refuses(
        OptionError, "groups are for counts", find_programs, counts, K, groups=donors, log1p=True
    )
    refuses(DataError, "groups", find_programs, counts, K, groups=donors[:-1])
    adata = AnnData(
        counts, obs=pd.DataFrame({"a": donors, "b": donors}, map(str, range(len(donors))))
    )
    refuses(OptionError, "batch_key='a' is called groups", conenmf.tl.nmf, adata, K, batch_key="a")
    refuses(OptionError, "one column: join", conenmf.tl.consensus, adata, K, groups=["a", "b"])
    refuses(OptionError, "groups='c' is unknown", conenmf.tl.nmf, adata, K, groups="c")


def test_annotated_cells_take_a_column(atlas):
    counts, donors, *_ = atlas
    adata = AnnData(sp.csr_matrix(counts))
    adata.obs["donor_id"] = pd.Categorical(donors)
    result = conenmf.tl.nmf(adata, K, groups="donor_id", loss="poisson", verbose=False)
    assert result.groups == ("d0", "d1", "d2", "d3")
    np.testing.assert_allclose(adata.varm["conenmf_scales"], result.group_scales.T)
    found = conenmf.tl.consensus(adata, K, 3, groups="donor_id", verbose=False)
    assert found.K == K
    assert adata.varm["conenmf_scales"].shape == (N_GENES, D)


def test_the_command_takes_a_column(atlas, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    counts, donors, *_ = atlas
    frame = pd.DataFrame({"donor_id": donors}, map(str, range(len(donors))))
    AnnData(sp.csr_matrix(counts), obs=frame).write_h5ad("atlas.h5ad")
    words = ["cells", "atlas.h5ad", "-k", "4", "--runs", "3", "-q", "--no-anndata"]
    assert main([*words, "--groups", "donor_id"]) == 0
    assert "private, in d2 alone" in capsys.readouterr().out
    folder = tmp_path / "programs"
    assert (folder / "atlas.donors.k_4.txt").is_file()
    assert (folder / "atlas.donors.k_4.png").read_bytes().startswith(b"\x89PNG")
    assert "Genes that move with d1" in (folder / "atlas.report.k_4.html").read_text()
    assert main([*words, "--batch", "donor_id"]) == 2
    assert "batches and donors are --groups COLUMN" in capsys.readouterr().err
