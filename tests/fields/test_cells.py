"""Gene programs: known programs are found, and usages and spectra equal direct formulas."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import nnls

from conenmf import factorize, from_rows, open_data
from conenmf.errors import ComponentsError, DataError, DataTypeError, OptionError
from conenmf.fields import cells as module
from conenmf.fields.cells import as_result, find_programs, scaled_genes
from conenmf.judge.matching import match_components
from conenmf.scale.disk import DiskMatrix


def find(counts, K=3, n_runs=4, **options):
    return find_programs(from_rows(sp.csr_array(counts)), K, n_runs, **options)


def test_programs_are_found(counts, spectra):
    programs = find(counts)
    assert programs.stability.verdict == "stable"
    deviation = programs.statistics.variance**0.5
    truth = (spectra / deviation[:, None])[programs.genes]
    assert match_components(truth, programs.spectra)[1].min() > 0.98
    assert match_components(spectra, programs.spectra_tpm)[1].min() > 0.98
    np.testing.assert_allclose(programs.spectra_tpm.sum(axis=0), 1e6, rtol=0.05)
    order = match_components(spectra, programs.spectra_tpm)[0]
    for k, names in enumerate(programs.markers(10)):
        own = int(np.flatnonzero(order == k)[0])
        assert set(names) == {f"feature {f}" for f in range(10 * own, 10 * own + 10)}
    assert programs.labels[-1] == -1
    assert set(programs.labels[:-1]) == {0, 1, 2}
    assert "3 programs" in str(programs)


def test_spectra_of_all_genes_and_usages_are_those_of_dense_least_squares(counts):
    programs = find(counts, n_genes=30, refine=0)
    assert programs.genes.size == 30
    np.testing.assert_array_equal(programs.spectra, programs.stability.W)
    U = np.asarray(programs.stability.H).T.astype(float)
    totals = counts.sum(axis=1, dtype=float)
    tpm = 1e6 * counts / np.where(totals > 0, totals, 1)[:, None]
    P = U / np.where(U.sum(axis=1) > 0, U.sum(axis=1), 1)[:, None]
    expected = np.array([nnls(P, gene)[0] for gene in tpm.T])
    np.testing.assert_allclose(programs.spectra_tpm, expected, rtol=1e-5, atol=1e-3)
    standard = (tpm - tpm.mean(axis=0)) / tpm.std(axis=0)
    scores = np.linalg.solve(U.T @ U, U.T @ standard).T
    np.testing.assert_allclose(programs.spectra_score, scores, rtol=1e-6, atol=1e-9)
    largest = [np.argsort(-values, axis=0)[:5].T.tolist() for values in (scores, expected)]
    assert largest[0] != largest[1]
    assert programs.markers(5) == [[f"feature {f}" for f in genes] for genes in largest[0]]
    genes = programs.genes
    S = expected[genes] / tpm.std(axis=0)[genes, None]
    data = tpm[:, genes] / tpm.std(axis=0, ddof=1)[genes]
    usages = np.array([nnls(S, cell)[0] for cell in data])
    np.testing.assert_allclose(programs.usages, usages, rtol=1e-3, atol=1e-4)


def test_refined_spectra_explain_the_counts_better(counts):
    plain, refined = (find(counts, refine=n) for n in (0, 8))
    deviation = plain.statistics.variance[plain.genes, None] ** 0.5
    before, after = (
        factorize(
            from_rows(counts[:, plain.genes]),
            3,
            init=one.spectra.astype(float) * deviation,
            loss="poisson",
            solver=None,
        ).objective
        for one in (plain, refined)
    )
    assert after < before * (1 - 1e-4)
    places, cosines = match_components(plain.spectra, refined.spectra)
    assert places.tolist() == [0, 1, 2]
    assert cosines.min() > 0.99
    np.testing.assert_allclose(refined.spectra.sum(axis=0), 1, rtol=1e-6)
    np.testing.assert_array_equal(plain.stability.W, refined.stability.W)


def test_counts_on_disk_are_read_through_views(atlas, monkeypatch):
    V = open_data("atlas.h5ad", dataset="layers/counts", max_memory="200MB")
    assert isinstance(V, DiskMatrix)
    whole = find_programs(V, 3, 4)
    monkeypatch.setattr(module, "_HELD_ENTRIES", 10)
    passes = V.passes
    streamed = find_programs(V, 3, 4)
    assert V.passes - passes < 40  # one pass serves all runs
    assert streamed.usages.dtype == np.float32
    assert match_components(streamed.spectra, whole.spectra)[1].min() > 0.9999
    # one run after the other, with the same bits
    monkeypatch.setattr(DiskMatrix, "room_for_aligned", lambda *_: 1)
    alone = find_programs(V, 3, 4)
    np.testing.assert_array_equal(alone.stability.spectra, streamed.stability.spectra)
    np.testing.assert_array_equal(alone.usages, streamed.usages)


def test_chosen_genes_logarithms_and_a_number_of_programs_by_estimate(atlas):
    V = open_data("atlas.h5ad", dataset="layers/counts")
    named = find_programs(V, 3, 3, genes=["gene7", "gene2", "gene15", "gene25"])
    assert named.genes.tolist() == [2, 7, 15, 25]
    assert named.spectra_tpm.shape == (50, 3)
    logarithms = find_programs(V, 3, 3, log1p=True, rng=np.random.default_rng(2))
    assert logarithms.stability.verdict == "stable"
    view = module.scaled_genes(V, logarithms.statistics, logarithms.genes, True)
    rows = view.columns(np.arange(240)).toarray()
    np.testing.assert_allclose(rows.std(axis=1, ddof=1), 1, rtol=1e-4)
    assert find_programs(V, "auto", 3).K in (3, 4)
    said = []
    find_programs(V, 2, 3, callback=lambda what, share: said.append(share))
    assert said == sorted(said)
    assert len(said) >= 4


def test_other_seeds_are_other_runs_and_the_same_seed_is_the_same(counts):
    one, two, other = (
        find(counts, n_runs=2, rng=np.random.default_rng(seed)) for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(one.usages, two.usages)
    assert not np.array_equal(one.stability.spectra, other.stability.spectra)


def test_bad_input_is_named(counts, refuses):
    refuses(DataTypeError, "not counts: give raw counts", find, np.log1p(counts))
    negative = from_rows(counts - 1.0, negative="keep")
    refuses(DataError, "[Nn]egative", find_programs, negative, 3)
    refuses(ComponentsError, "50 genes to factor, fewer than the 51 programs", find, counts, 51)
    same = np.array(counts)
    same[:, 1] = 3
    V = from_rows(same, names=module.Names.of(feature_names=[f"g{f}" for f in range(50)]))
    for genes, message in (
        (["g1", "x", "y"], "2 of 3 genes are not in the data: 'x', 'y'"),
        (["g1", "g2"], "'g1' is the same in all cells"),
    ):
        refuses(OptionError, message, find_programs, V, 2, 2, genes=genes)


def test_the_result_of_a_page_has_the_programs_of_the_files():
    rng = np.random.default_rng(5)
    usages = np.repeat(np.eye(4), (50, 35, 25, 10), axis=0) + 0.1 * rng.random((120, 4))
    spectra = rng.gamma(0.3, 1.0, (4, 60)) * np.array([[0.3], [2.0], [1.0], [5.0]])
    V = from_rows(rng.poisson(20 * usages @ spectra + 0.1).astype(float))
    programs = find_programs(V, 4, 4)
    data = scaled_genes(V, programs.statistics, programs.genes, False)
    result = as_result(programs, data)
    dense = data.columns(np.arange(120))
    dense = dense.toarray() if sp.issparse(dense) else np.asarray(dense)
    error = np.linalg.norm(dense - result.W @ result.H) / np.linalg.norm(dense)
    assert result.relative_error == pytest.approx(error, rel=1e-6)
    spectra = programs.spectra / np.linalg.norm(programs.spectra, axis=0)
    np.testing.assert_allclose(result.W / np.linalg.norm(result.W, axis=0), spectra, atol=1e-5)
    assert not np.allclose(programs.stability.W, programs.spectra, rtol=0.01)  # before refits
