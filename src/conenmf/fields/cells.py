"""Gene programs of cells: genes are chosen and scaled, and a consensus of many fits is formed.

The steps follow cNMF 1.7 (Kotliar et al., "Identifying gene expression programs of cell-type
identity and cellular activity with single-cell RNA-Seq", eLife 8, 2019). Counts are read through
views. Genes are chosen and scaled, and cells scaled to a million counts, while blocks are read;
nothing is written. Usages and other values that cNMF approximates are exact here.

The results are tables with the file names of cNMF, and an .h5ad with annotations. All files of a
run are written under temporary names and moved into place when all are complete. Runs with
different numbers of programs may share a folder if they use the same data and genes; the file
``NAME.run.k_20.dt_0_5.json`` of each run is compared to check this.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.linalg import lstsq
from numpy.random import default_rng
from numpy.typing import ArrayLike

from .. import plots
from ..arguments import choice, components, flag, function, generator, integer, optional, several
from ..atomic import files_written_whole, output_folder, writing
from ..data.blocks import Block, divisors, entrywise, exact, over, scaled, weighted_sums
from ..data.groups import Groups
from ..data.matrix import Aligned, DataMatrix
from ..data.resample import evenly_spaced
from ..data.validate import require_nonnegative
from ..data.views import MappedMatrix, hold_copy, take_features, take_samples
from ..errors import ComponentsError, Option, OptionError, OutputError
from ..export import (
    Annotation,
    annotated_copy,
    annotated_counts,
    categories,
    json_values,
    no_formula,
    plain,
    unstructured,
    write_lines,
)
from ..io.open import as_data, prepare
from ..judge.association import named_columns, shares_by_class
from ..judge.choose_k import Selection, select_k
from ..judge.stability import Stability, StabilityRange, stability_over
from ..linalg.nnls import nnls
from ..names import Names
from ..pipeline import factorize
from ..result import Factorization
from ..solve.alternate import alternate
from ..solve.coefficients import coefficients
from ..solve.losses import get_loss
from ..solve.problem import Problem
from ..solve.run import Stopping
from ..text import counted, excerpt, visible
from ..types import Array, Arrays, Facts, Pair, PathLike, Rng
from .donors import Donors, first_scales, fit_donors, returning, scales_of_all, selected
from .genes import TPM, GeneStatistics, gene_statistics, overdispersion
from .mutations import consensus_of

# Called with the current step and the share of the work that is done.
Progress: TypeAlias = Callable[[str, float], object]

_HELD_ENTRIES = 1 << 25  # of the chosen genes: up to this number, they are stored in memory
_CELLS_FOR_K = 20_000  # largest number of cells from which the number of programs is estimated
_CELL_TOTAL = 1e4  # sum to which cells are scaled before taking logarithms
_RESAMPLINGS = ("start", "samples")
_SCALE_ROUNDS = 2  # of scales and spectra of all genes


@dataclass(frozen=True, eq=False)
class Programs:
    """Gene programs of N cells with F genes, sorted by their share of the reconstruction.

    Attributes
    ----------
    usages : array (N, K)
        How much each cell uses each program, in units of its total counts.
    labels : array (N,), integers
        The program that contributes most to each cell; -1 for a cell that uses none.
    spectra : array (n, K)
        The refined consensus: spectra of the factored genes, in units of the standard deviation of
        each gene; each sums to one. `stability` has the consensus before refinement.
    spectra_tpm : array (F, K)
        The spectra of all genes, in counts per million.
    spectra_score : array (F, K)
        Scores of all genes: by how many of its standard deviations a gene rises for a unit of usage
        of the program, if the other programs are held fixed. Genes with the largest scores are the
        markers of a program.
    genes : array (n,), integers
        The genes that were factored.
    statistics : GeneStatistics
    stability : Stability
        How often each program recurs, and how precisely.
    names : Names
        The names of cells and genes.
    settings : dict
        The options of the call.
    tried : Selection, StabilityRange or None
        The evidence for the number of programs, or the stability for each number of a range;
        ``tried.plot()`` plots it. None if the number was given.
    donors : Donors or None
        With groups: their scales of all genes, which programs they use, and their mean usages.

    Examples
    --------
    >>> from conenmf import from_rows
    >>> rng = np.random.default_rng(0)
    >>> rates = np.kron(np.eye(3), np.ones((30, 10))) * 5 + 0.2
    >>> programs = find_programs(from_rows(rng.poisson(rates).astype(float)), 3, 5)
    >>> [len(genes) for genes in programs.markers(4)]
    [4, 4, 4]
    """

    usages: Array
    labels: Array
    spectra: Array
    spectra_tpm: Array
    spectra_score: Array
    genes: Array
    statistics: GeneStatistics
    stability: Stability
    names: Names
    settings: Facts
    tried: Selection | StabilityRange | None = None
    donors: Donors | None = None

    @property
    def K(self) -> int:
        """The number of programs."""
        return int(self.spectra.shape[1])

    def markers(self, n: int = 10) -> list[list[str]]:
        """Return the names of the n genes with the largest scores of each program.

        Parameters
        ----------
        n : int
        """
        order = np.argsort(-self.spectra_score, axis=0, kind="stable")[:n]
        return [[self.names.feature(gene) for gene in column] for column in order.T.tolist()]

    def __str__(self) -> str:
        N, K = self.usages.shape
        F = len(self.spectra_tpm)
        genes = counted(len(self.genes), "gene")
        rows = [f"{counted(N, 'cell')}, {genes} of {F:,}, {counted(K, 'program')}"]
        if self.settings["K_decided_by"] != "user":
            rows.append(str(self.settings["K_decided_by"]))
        sizes = np.bincount(self.labels[self.labels >= 0], minlength=K)
        for k, names in enumerate(self.markers(6)):
            share = self.stability.found_in[k]
            cells = counted(int(sizes[k]), "cell")
            markers = ", ".join(names)
            where = "" if self.donors is None else f", {self.donors.in_words(k)}"
            rows.append(f"program {k + 1}: in {share:.0%} of the runs, {cells}{where}; {markers}")
        if self.donors is not None:
            rows += self.donors.in_sentences(self.names)
        rows += self.stability.in_sentences("program", 1)
        return "\n".join(rows)


def find_programs(
    V: object,
    K: int | str | range = "auto",
    n_runs: int = 20,
    *,
    n_genes: int = 2000,
    genes: Iterable[str] | None = None,
    log1p: bool = False,
    refine: int = 5,
    resample: str = "start",
    density_threshold: float = 0.5,
    max_iter: int = 200,
    tol: float = 1e-3,
    rng: Rng = None,
    callback: Progress | None = None,
    checkpoint: PathLike | None = None,
    classes: Any = None,
    groups: ArrayLike | None = None,
) -> Programs:
    """Find gene programs in raw counts, in any storage, by the consensus of many fits.

    The fits are least squares of scaled genes, as in cNMF, so they take no `Problem`;
    `tl.consensus` and `stability` take one.

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
        Raw counts: cells are samples, all genes are features. ``open_data("atlas.h5ad")`` leaves
        them on disk.
    K : int, "auto", or a range of numbers to choose from
        How many programs. "auto" estimates the number from at most 20,000 cells. For a range, each
        number is fitted many times, and `stability_over` recommends one.
    n_runs : int
        The number of fits. Each starts from its own random init and uses all cells.
    n_genes : int
        The number of genes to factor. The function chooses genes whose variance is largest for
        their mean.
    genes : names, optional
        The genes to factor instead.
    log1p : bool
        Factor log(1 + x) of counts that are scaled to 10,000 in each cell. By default, as in cNMF,
        the counts are factored. In both cases genes are scaled to unit variance, not centred.
    refine : int
        The number of iterations with the Poisson loss on the counts of the chosen genes, starting
        from the consensus. The noise model of this loss suits counts, so spectra come closer to the
        truth. 0 leaves the consensus as it is, as in cNMF. Logarithms are not refined.
    resample : {"start", "samples"}
        As in `stability`: with "samples", each fit uses cells drawn with replacement.
    density_threshold : float
        As in `consensus`.
    max_iter, tol
        As in `Stopping`.
    rng : numpy.random.Generator, optional
        By default a generator with a fixed seed.
    callback : callable, optional
        Called with a description of the current step and the share of the work that is done.
    checkpoint : path, optional
        A folder in which fits are saved every minute and when they end; the same call, even with
        more runs, resumes from it.
    classes : array (N,) or table of N rows, optional
        Known classes of the cells, such as donors: one column, or a dict or data frame with
        several. The result says which programs follow them.
    groups : array (N,), optional
        The donor of each cell, or its batch or sample. Each donor gets a scale for each gene and a
        table of the programs that it uses, so that differences between donors become fewer programs
        and usages can be compared between donors; see `fields.donors`. Logarithms take no groups.

    Returns
    -------
    Programs

    Examples
    --------
    >>> from conenmf import from_rows
    >>> rng = np.random.default_rng(0)
    >>> rates = np.kron(np.eye(3), np.ones((30, 10))) * 5 + 0.2
    >>> programs = find_programs(from_rows(rng.poisson(rates).astype(float)), 3, 5)
    >>> programs.usages.shape, programs.stability.verdict
    ((90, 3), 'stable')
    """
    V = as_data(V, nonzero=True)
    require_nonnegative(V, "counting")
    is_range = isinstance(K, range) and len(K) > 0
    if not (is_range or (isinstance(K, str) and K == "auto")):
        K = components(K, auto=True)
    n_genes = integer("n_genes", n_genes, at_least=1)
    log1p = flag("log1p", log1p)
    refine = 0 if log1p else integer("refine", refine, at_least=0)
    if log1p and groups is not None:
        raise OptionError(Option("groups"), " are for counts: leave out ", Option("log1p"))
    resample = choice("resample", resample, _RESAMPLINGS)
    rng = default_rng(0) if rng is None else generator("rng", rng)
    columns = named_columns("classes", classes, V.n_samples)
    report = optional(function, "callback", callback, takes=2) or (lambda *_: None)
    named = None if genes is None else _places_of_genes(V.names, genes)
    with V.own_threads():
        report("measuring genes", 0.0)
        statistics = gene_statistics(V)
        chosen = _choose_genes(statistics, n_genes) if named is None else named
        data = scaled_genes(V, statistics, chosen, log1p)
        how: Facts = {
            "resample": resample,
            "density_threshold": density_threshold,
            "max_iter": max_iter,
            "tol": tol,
        }
        counts = data if log1p else _held(take_features(V, chosen, dtype="float32"))
        deviation = np.sqrt(statistics.variance[chosen])[:, None]
        donors = None if groups is None else first_scales(counts, groups)
        of_donors = few = None
        if donors is not None:
            report("estimating scales of donors", 0.02)
            early = _held(donors.divided(data))
            few = factorize(early, _choose_number(K, early)[0][-1], max_iter=max_iter, tol=tol)
            donors = fit_donors(counts, donors, few.W * deviation, few.H, is_early=True).groups
            data = _held(donors.divided(data))
        ks, reason, tried = _choose_number(K, data, donors, few)
        report(f"fitting {n_runs} times", 0.05)

        def report_one(one: Stability) -> None:
            report(f"fitting; {one.K} programs are {one.verdict}", 0.5)

        compared = stability_over(
            data, ks, n_runs, rng=rng, checkpoint=checkpoint, callback=report_one, **how
        )
        K = compared.K
        found = compared.found[K]
        if isinstance(ks, range):
            reason = f"{counted(K, 'program')} of {ks[0]} to {ks[-1]}: {compared.reason}"
            tried = compared
        spectra = found.W
        H = found.H
        if donors is not None:
            report("fitting scales of donors", 0.91)
            fit = fit_donors(counts, donors, spectra * deviation, H)
            spectra = _with_sum_one(fit.W / deviation, spectra)
            H = fit.H * (fit.W / deviation).sum(axis=0)[:, None]
        elif refine:
            report("refining the consensus", 0.91)
            W = _refine(counts, spectra * deviation, H, refine)
            spectra = _with_sum_one(W / deviation, spectra)
            H = coefficients(data, spectra)[0]
        report("computing spectra of all genes", 0.95)
        tpm, score = _spectra_of_all(V, statistics, H.T)
        report("computing usages", 0.98)
        if donors is None:
            usages, labels = _usages_of(V, statistics, chosen, tpm)
        else:
            for _ in range(_SCALE_ROUNDS):
                shares = over(H.T, H.T.sum(axis=1, keepdims=True))
                in_counts = shares * (statistics.totals / TPM)[:, None]
                donors = scales_of_all(V, fit.groups, in_counts, tpm)
                tpm, score = _spectra_of_all(donors.divided(V), statistics, H.T)
            scales = np.asarray(donors.scales)[:, chosen]
            some = donors.fitted(scales, donors.table)
            usages, labels = _counted_usages(counts, statistics, some, tpm[chosen] / TPM)
            of_donors = Donors.of(donors, usages, returning(data, donors.codes, spectra))
        found = replace(found, class_shares=shares_by_class(tpm, usages.T, columns))
    settings = {
        "n_components": K,
        "K_decided_by": reason.replace("component", "program"),
        "n_runs": n_runs,
        "n_genes": int(chosen.size),
        "log1p": log1p,
        "refine": refine,
        **how,
    }
    return Programs(
        usages,
        labels,
        spectra,
        tpm,
        score,
        chosen,
        statistics,
        found,
        V.names,
        settings,
        tried,
        of_donors,
    )


# --- genes ------------------------------------------------------------------------------------


def _places_of_genes(names: Names, genes: Iterable[str]) -> Array:
    wanted = list(map(str, several("genes", genes, "a list of names of genes")))
    if names.feature_names is None:
        raise OptionError("the genes of these data have no names: leave the list of genes out")
    place = {name: f for f, name in enumerate(names.feature_names)}
    missing = [name for name in wanted if name not in place]
    if missing or not wanted:
        first = [repr(excerpt(name)) for name in missing[:5]]
        listed = ", ".join(first) or "no gene is named"
        raise OptionError(
            f"{len(missing)} of {len(wanted)} genes are not in the data: {listed}; "
            "name genes as the data do"
        )
    return np.unique([place[name] for name in wanted])


def _choose_genes(statistics: GeneStatistics, n_genes: int) -> Array:
    """Return the most overdispersed genes, in the order of the data."""
    ratio = overdispersion(statistics)
    there = np.flatnonzero(np.isfinite(ratio) & (statistics.variance > 0))
    if there.size == 0:
        raise OptionError("no gene varies from cell to cell: there are no programs to be found")
    order = np.argsort(-ratio[there], kind="stable")
    return np.sort(there[order[:n_genes]])


def scaled_genes(
    V: DataMatrix, statistics: GeneStatistics, genes: Array, log1p: bool
) -> DataMatrix:
    """Return a view of these genes with unit variance in float32; in memory if it is small."""
    variance = statistics.variance[genes]
    source = V
    if log1p:
        source = prepare(V, normalize_total=_CELL_TOTAL, log1p=True)
        (moments,) = take_features(source, genes).sweep(_moments)
        sums, squares = moments.T
        N = V.n_samples
        variance = (squares - sums**2 / N) / max(N - 1, 1)
    if not (variance > 0).all():
        gene = V.names.feature(int(genes[np.argmin(variance)]))
        raise OptionError(f"gene {excerpt(gene)!r} is the same in all cells: leave it out")
    return _held(take_features(source, genes, factors=1 / np.sqrt(variance), dtype="float32"))


def _held(view: DataMatrix) -> DataMatrix:
    return hold_copy(view) if view.n_entries <= _HELD_ENTRIES else view


def _moments(block: Block) -> tuple[Array]:
    ones = np.ones((block.shape[1], 1))
    values = exact(block)
    squares = entrywise(values, np.square)
    moments = [weighted_sums(values, ones), weighted_sums(squares, ones)]
    return (np.hstack(moments),)


def _choose_number(
    K: int | str | range,
    data: DataMatrix,
    donors: Groups | None = None,
    few: Factorization | None = None,
) -> tuple[Sequence[int], str, Selection | StabilityRange | None]:
    """Return the numbers of programs to fit, how they were chosen, and the evidence.

    With donors, `few` is a fit of data from which differences between donors were not removed yet,
    and therefore has too many programs.
    """
    F, N = data.shape
    if isinstance(K, str):
        some = evenly_spaced(N, min(N, _CELLS_FOR_K))
        if len(some) < N:
            data = take_samples(data, some)
        chosen = select_k(data)
        if donors is not None and few is not None:
            W = factorize(data, few.W.shape[1]).W
            chosen = selected(chosen, data, donors.codes[some], W)
        return [chosen.K], chosen.sentence, chosen
    ks = K if isinstance(K, range) else [K]
    if ks[-1] > min(F, N):
        raise ComponentsError(
            f"there are {counted(N, 'cell')} and {counted(F, 'gene')} to factor, fewer than the "
            f"{ks[-1]} programs asked for: ask for fewer"
        )
    return ks, "user", None


# --- spectra ----------------------------------------------------------------------------------


def _refine(counts: DataMatrix, W: Array, H: Aligned, n_iter: int) -> Array:
    """Refine spectra in counts with some iterations of the Poisson loss."""
    loss = get_loss("poisson")
    start = loss.initialize(counts, W.shape[1], (W, H))
    how: Facts = {"stopping": Stopping(0.0, max_iter=n_iter), "objective": loss.on(counts)}
    return alternate(counts, start.W, start.H, "newton", **how).W


def _with_sum_one(W: Array, before: Array) -> Array:
    """Return spectra that sum to one; those from before if no cell uses a program any more."""
    sums = W.sum(axis=0)
    return np.asarray(W / sums, before.dtype) if (sums > 0).all() else before


def _counted_usages(
    counts: DataMatrix, statistics: GeneStatistics, groups: Groups, W: Array
) -> Pair:
    """Return the usages that best explain the counts of genes with the scales of donors."""
    H, labels, _ = Problem("poisson", groups=groups).coefficients(counts, W, unseen="ignore")
    usages = over(np.asarray(H.T, dtype=float), np.asarray(statistics.totals)[:, None])
    return np.ascontiguousarray(usages), np.asarray(labels)


def _spectra_of_all(V: DataMatrix, statistics: GeneStatistics, usages: Aligned) -> Pair:
    """Return spectra of all genes in TPM, and their scores, from one pass.

    Nonnegative least squares explains TPM by the shares of programs in cells. Least squares
    explains standardised TPM by the usages.
    """
    (sums,) = V.sweep(_regress, statistics.totals, usages)
    K = len(sums["U"])
    tpm = nnls(sums["PP"], sums["TPM"][:, K : 2 * K])
    mean = sums["TPM"][:, -1] / V.n_samples
    centred = sums["TPM"][:, :K] - np.outer(mean, sums["U"])
    deviation = np.sqrt(np.maximum(statistics.tpm_variance, 1e-12))
    standardised = centred / deviation[:, None]
    score = lstsq(sums["UU"], standardised.T, rcond=None)[0]
    return tpm, np.ascontiguousarray(score.T)


def _regress(block: Block, totals: Array, usages: Array) -> tuple[Arrays]:
    U = exact(usages)
    P = over(U, U.sum(axis=1, keepdims=True))
    tpm = _to_tpm(block, totals)
    sums = weighted_sums(tpm, np.hstack([U, P, np.ones((len(U), 1))]))
    return ({"UU": U.T @ U, "U": U.sum(axis=0), "PP": P.T @ P, "TPM": sums},)


def _to_tpm(block: Block, totals: Array) -> Block:
    return scaled(exact(block), TPM / divisors(totals))


def _usages_of(V: DataMatrix, statistics: GeneStatistics, genes: Array, tpm: Array) -> Pair:
    """Return the usages that best explain the TPM of the chosen genes, each over its deviation."""
    N = V.n_samples
    variance = statistics.tpm_variance[genes]
    variance = divisors(variance)
    cells = MappedMatrix(V, _to_tpm, statistics.totals, dtype=np.dtype(float))
    factors = np.sqrt(max(N - 1, 1) / (N * variance))
    view = take_features(cells, genes, factors=factors, dtype="float32")
    spectra = tpm[genes] / np.sqrt(variance)[:, None]
    H, labels, _ = coefficients(view, spectra)
    return np.ascontiguousarray(H.T), np.asarray(labels)


# --- programs in files ------------------------------------------------------------------------

_TABLES = {
    "genes": "{name}.overdispersed_genes.txt",
    "spectra": "{name}.spectra.{run}.consensus.txt",
    "usages": "{name}.usages.{run}.consensus.txt",
    "tpm": "{name}.gene_spectra_tpm.{run}.txt",
    "score": "{name}.gene_spectra_score.{run}.txt",
    "starcat": "{name}.starcat_spectra.{run}.txt",
    "facts": "{name}.run.{run}.json",
    "donors": "{name}.donors.k_{K}.txt",
    "scales": "{name}.donor_scales.k_{K}.txt",
    "annotated": "{name}.{run}.h5ad",
}
_PICTURES = {
    "number": "{name}.k_selection.png",
    "clusters": "{name}.clustering.{run}.png",
    "donors": "{name}.donors.k_{K}.png",
}
_STARCAT_SUM = 1e6


def file_names(
    name: str, K: int, density_threshold: float, patterns: Mapping[str, str] = _TABLES
) -> dict[str, str]:
    """Return the names of the files of a run by content; tables and pictures are named as in cNMF.

    >>> file_names("atlas", 20, 0.5)["usages"]
    'atlas.usages.k_20.dt_0_5.consensus.txt'
    """
    run = f"k_{K}.dt_{str(density_threshold).replace('.', '_')}"
    return {what: pattern.format(name=name, run=run, K=K) for what, pattern in patterns.items()}


def runs_folder(name: str) -> str:
    """Return the name of the folder in which the fits of a run are saved."""
    return f"{name}.runs"


def check_run(
    folder: PathLike,
    name: str,
    *,
    source: str | None = None,
    genes: str | None = None,
    force: bool = False,
) -> Path:
    """Return a folder for the files of a run; reject a folder with other data or genes.

    Parameters
    ----------
    folder : path
        It need not exist, but its parent must.
    name : str
        File-name prefix.
    source, genes : str, optional
        The data file, and how genes were chosen.
    force : bool
        Use the folder in any case; files with the same names are replaced.
    """
    if not name or "/" in name or not name.isprintable() or name.startswith("."):
        raise OptionError(Option("name", name), ", expected a prefix for file names")
    target = output_folder(folder)
    if force or not target.is_dir():
        return target
    runs = list(target.glob(f"{name}.run.k_*.json"))
    for path in runs:
        _refuse_other(target, path, {"source": source, "genes": genes})
    files = {path.name for path in target.glob(f"{glob.escape(name)}.*")} - {runs_folder(name)}
    if files and not runs:
        raise OutputError(
            f"{target} holds another {min(files)}: name another folder, or other files with ",
            Option("name"),
        )
    return target


def _refuse_other(target: Path, path: Path, here: Mapping[str, str | None]) -> None:
    """Raise an error if a run in the folder used other data or genes."""
    try:
        earlier = json.loads(path.read_bytes())
        different = [key for key in here if earlier[key] != here[key]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OutputError(
            f"{path} does not say which run it belongs to: name another folder"
        ) from error
    for key in different:
        what = "file" if key == "source" else "choice of genes"
        raise OutputError(
            f"{target} holds a run of another {what} ({visible(earlier[key])}, now "
            f"{visible(here[key])}): name another folder, or other files with ",
            Option("name"),
        )


def write_programs(
    programs: Programs,
    folder: PathLike,
    name: str,
    *,
    source: str | None = None,
    genes: str | None = None,
    counts: DataMatrix | None = None,
    copy_of: PathLike | None = None,
) -> list[Path]:
    """Write tables as cNMF does, and an .h5ad with annotations; return the paths of all files.

    Parameters
    ----------
    programs : Programs
    folder, name, source, genes
        See `check_run`.
    counts : DataMatrix, optional
        The counts, if a new .h5ad file should contain them.
    copy_of : path, optional
        An .h5ad file. If given, a copy of it is annotated, and the file itself is not changed.
        ``obsm["X_conenmf"]`` gets the usages, ``varm["conenmf"]`` the spectra in TPM,
        ``varm["conenmf_score"]`` the scores, ``obs["conenmf"]`` the labels as categories,
        ``var["conenmf"]`` whether a gene was factored, and ``uns["conenmf"]`` the facts. With
        groups, ``varm["conenmf_scales"]`` gets the scales of genes in each donor.
    """
    target = Path(folder)
    names = file_names(name, programs.K, programs.settings["density_threshold"])
    if counts is None and copy_of is None:
        del names["annotated"]
    if programs.donors is None:
        del names["donors"], names["scales"]
    facts = json_values({**run_facts(programs), "source": source, "genes": genes})
    with writing(target):
        target.mkdir(exist_ok=True)
    paths = {what: target / file for what, file in names.items()}
    with writing(target), files_written_whole(list(paths.values())) as opened:
        streams = dict(zip(paths, opened, strict=True))
        for what, rows in _tables(programs).items():
            write_lines(streams[what], rows, delimiter="\t")
        genes_listed = "\n".join(_titles_of_genes(programs))
        streams["genes"].write(genes_listed.encode())
        content = json.dumps({"made_by": "conenmf", **facts}, indent=2)
        streams["facts"].write(content.encode())
        if copy_of is not None:
            annotated_copy(copy_of, streams["annotated"], _annotations(programs, facts))
        elif counts is not None:
            annotated_counts(counts, streams["annotated"], _annotations(programs, facts))
    return list(paths.values())


def as_result(programs: Programs, data: DataMatrix) -> Factorization:
    """Return programs as a result whose report has their numbers, names, cells and markers.

    Parameters
    ----------
    programs : Programs
    data : DataMatrix
        The factored genes, as `scaled_genes` returns them.
    """
    found = replace(programs.stability, W=programs.spectra)
    result = consensus_of(data, found)
    markers = []
    for k, genes in enumerate(programs.markers()):
        scores = np.sort(programs.spectra_score[:, k])[::-1][: len(genes)]
        markers.append((genes, scores.tolist()))
    names = [f"program {k + 1}" for k in range(programs.K)]
    words: Facts = {"word": "program", "component_names": names, "markers": markers}
    return replace(result, labels=programs.labels, settings={**result.settings, **words})


def pictures(programs: Programs, name: str) -> Facts:
    """Return the figures of a run by file names, which are those of cNMF.

    One figure shows the clusters of the fits. If the number of programs was chosen, another shows
    the evidence for it, or the stability and error for each number of a range. With groups, one
    shows usages by donor and the scales of genes.
    """
    threshold = programs.settings["density_threshold"]
    names = file_names(name, programs.K, threshold, _PICTURES)
    axes = programs.stability.clustergram(threshold)
    drawn = {names["clusters"]: axes[0].figure}
    if programs.tried is not None:
        drawn[names["number"]] = programs.tried.plot()[0].figure
    donors = programs.donors
    if donors is not None:
        axes = plots.donors(donors.names, donors.usages, donors.table, donors.scales)
        drawn[names["donors"]] = axes[0].figure
    return drawn


def run_facts(programs: Programs) -> Facts:
    """Describe programs and how they were found as plain values."""
    found = programs.stability
    facts = {
        **programs.settings,
        "n_cells": len(programs.usages),
        "n_all_genes": len(programs.spectra_tpm),
    }
    donors = programs.donors
    if donors is not None:
        facts["donors"] = {
            "names": donors.names,
            "n_cells": donors.sizes,
            "found_in": donors.found_in,
            "uses": donors.table,
            "usages": donors.usages,
            "returns_in_both_halves": donors.returns,
            "moved_genes": donors.moved(programs.names),
        }
    return facts | {
        "verdict": found.verdict,
        "no_consensus": found.no_consensus,
        "found_in": found.found_in,
        "class_shares": found.class_shares,
        "silhouettes": found.silhouettes,
        "relative_error": found.relative_error,
        "best_relative_error": found.best_relative_error,
        "n_left_out": found.n_left_out,
        "markers": programs.markers(),
    }


def _annotations(programs: Programs, facts: Facts) -> list[Annotation]:
    was_factored = np.zeros(len(programs.spectra_tpm), bool)
    was_factored[programs.genes] = True
    of_cells = categories(programs.labels, first=1)
    donors = programs.donors
    more = [] if donors is None else [("varm", "conenmf_scales", donors.scales.T)]
    return [
        *more,
        ("obsm", "X_conenmf", programs.usages),
        ("varm", "conenmf", programs.spectra_tpm),
        ("varm", "conenmf_score", programs.spectra_score),
        ("obs", "conenmf", of_cells),
        ("var", "conenmf", was_factored),
        ("uns", "conenmf", unstructured(facts)),
    ]


def _titles_of_genes(programs: Programs) -> list[str]:
    return [no_formula(programs.names.feature(f)) for f in programs.genes.tolist()]


def _tables(programs: Programs) -> dict[str, Iterator[list[object]]]:
    """Return the rows of each table; they are programs, except in usages, where they are cells.

    Names that a spreadsheet would read as formulas get an apostrophe.
    """
    names = programs.names
    tpm = programs.spectra_tpm
    chosen = _titles_of_genes(programs)
    all_genes = [no_formula(names.feature(f)) for f in range(len(tpm))]
    cells = [no_formula(names.sample(n)) for n in range(len(programs.usages))]
    numbers = range(1, programs.K + 1)
    starcat_names = [f"GEP{number}" for number in numbers]
    tables = {
        "spectra": _rows(programs.spectra.T, numbers, chosen),
        "usages": _rows(programs.usages, cells, numbers),
        "tpm": _rows(tpm.T, numbers, all_genes),
    }
    donors = programs.donors
    if donors is not None:
        titles = [no_formula(name) for name in donors.names]
        shown = np.column_stack(
            [donors.found_in.astype(object), np.where(donors.table, donors.usages, 0.0).T]
        )
        tables["donors"] = _rows(shown, numbers, ["donors", *titles])
        tables["scales"] = _rows(donors.scales.T, all_genes, titles)
    return tables | {
        "score": _rows(programs.spectra_score.T, numbers, all_genes),
        "starcat": _rows(_starcat(programs).T, starcat_names, chosen),
    }


def _starcat(programs: Programs) -> Array:
    """Return the spectra of the factored genes as starCAT expects them: over their deviations."""
    tpm = programs.spectra_tpm
    shares = tpm / np.maximum(tpm.sum(axis=0), 1e-300)
    deviation = np.sqrt(programs.statistics.tpm_variance)[programs.genes]
    spectra = _STARCAT_SUM * shares[programs.genes]
    return spectra / divisors(deviation)[:, None]


def _rows(
    values: Array, names: Iterable[object], columns: Iterable[object]
) -> Iterator[list[object]]:
    """Yield the names of the columns, and then the name and the numbers of each row."""
    yield ["", *columns]
    for name, numbers in zip(names, values, strict=True):
        yield [name, *plain(numbers)]
