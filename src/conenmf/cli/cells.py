"""The command ``conenmf cells``: from raw counts to programs, in files named as in cNMF."""

from __future__ import annotations

import shutil
import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import click

from ..data.matrix import DataMatrix
from ..data.resample import holds_counts
from ..data.resources import memory_budget
from ..errors import ConeNMFError, FileFormatError, Option
from ..export import check_packages
from ..fields.cells import (
    Programs,
    as_result,
    check_run,
    find_programs,
    pictures,
    run_facts,
    runs_folder,
    scaled_genes,
    write_programs,
)
from ..io.text import read_names
from ..report import write_report
from ..types import Facts
from .inputs import classes_of, labels_of, open_input
from .options import LABELS, OUTPUT, RUNNING
from .output import locked_folder, save_picture
from .request import Request, command

_NEAR = 3  # numbers of programs this near to the chosen one are worth a comparison
_READING = ("samples_in", "dataset", "header", "names_column", "drop", "feature_names")
_FITTING = ("refine", "resample", "density_threshold", "max_iter", "tol", "log1p", "n_genes")


_OWN = (
    "K",
    "n_runs",
    "name",
    "layer",
    "genes_file",
    "anndata",
    "negative",
    "sample_names",
    "no_report",
    *LABELS,
)
# How options differ from the same options of other commands.
_CHANGES: dict[str, Facts] = {
    "output": {"default": "programs", "help": "Folder for the results."},
    "log1p": {"help": "Factor log(1 + x) of counts scaled to 10000 per cell."},
    "resample": {
        "type": click.Choice(["start", "samples"]),
        "help": "How fits differ: by their random init alone, or also by resampled cells.",
    },
    "max_iter": {"type": click.IntRange(1), "help": "Maximum number of iterations of each fit."},
    "anndata": {
        "flags": "--anndata/--no-anndata",
        "default": True,
        "help": "Whether to write an .h5ad file with the counts and the programs.",
    },
    "force": {"help": "Replace the files of another run."},
    "groups": {
        "help": "The donor, batch or sample of each cell, given like --classes. Each gets a scale "
        "for each gene, and a table says which programs it uses."
    },
}


@command(*_OWN, *_READING, *_FITTING, *OUTPUT, *RUNNING, of=find_programs, **_CHANGES)
def cells(request: Request) -> None:
    """Find gene programs in the raw counts DATA; write them in cNMF's format.

    DATA is an .h5ad file, or a folder or .h5 file from 10x Genomics, with raw counts. It is read
    from disk and not changed.

    \b
    conenmf cells atlas.h5ad -k 20
    conenmf cells atlas.h5ad --layer counts -k 20 --runs 50 -o programs
    conenmf cells filtered_feature_bc_matrix/ -k 12 --genes 3000
    conenmf cells cohort.h5ad --groups donor_id
    """
    fitting = request.chosen(_FITTING)
    request.log1p = False  # log1p applies to the chosen genes, not to the counts that are read
    if request.layer is not None:
        request.dataset = f"layers/{request.layer}"
    name = request.name or request.path.name.partition(".")[0] or "cells"
    genes = None
    how = f"{request.n_genes} most overdispersed"
    if request.genes_file is not None:
        genes = read_names(request.genes_file, memory_budget(None))
        digest = zlib.crc32("\n".join(genes).encode())
        how = f"listed, {len(genes)} genes, {digest:08x}"
    source = str(Path(request.data).absolute())
    if request.dataset:
        source += f":{request.dataset}"
    identity = {"source": source, "genes": how}
    check_packages("none", anndata=request.anndata)
    target = check_run(str(request.output), name, **identity, force=request.force)
    with locked_folder(target):
        programs, V, paths = _find(request, target, name, genes, fitting, identity)
    answer = {**run_facts(programs), "files": [str(path) for path in paths]}
    lines = [*str(programs).split("\n"), f"files are in {request.output}"]
    if request.K == "auto":
        near = f"{max(2, programs.K - _NEAR)}-{programs.K + _NEAR}"
        lines.append(f"to compare the stability of numbers near this one, add -k {near}")
    if not request.no_report:
        lines.append(f"open {paths[-1]} in a browser")
    request.answer(answer, lines, V)


def _open_counts(request: Request) -> DataMatrix:
    """Open the counts; if the layer is missing but X has counts, say so."""
    try:
        return open_input(request)
    except FileFormatError as error:
        has_counts = False
        with suppress(ConeNMFError):
            has_counts = holds_counts(open_input(replace(request, dataset="X")))
        if request.layer is None or not has_counts:
            raise
        raise FileFormatError(f"{error}; X holds counts: leave out ", Option("layer")) from None


def _find(
    request: Request,
    target: Path,
    name: str,
    genes: list[str] | None,
    fitting: Facts,
    identity: Facts,
) -> tuple[Programs, DataMatrix, list[Path]]:
    """Find programs; write all files into the folder, and return their paths with the page last."""
    runs = target / runs_folder(name)
    if request.force:
        shutil.rmtree(runs, ignore_errors=True)
    V = _open_counts(request)

    def show(step: str, share: float) -> None:
        request.display.update("", share, step)

    groups = None
    for labels in labels_of(request, V.n_samples, V.names).get("groups", {}).values():
        groups = labels
    with request.display.working("measuring genes"):
        programs = find_programs(
            V,
            request.K,
            request.n_runs,
            genes=genes,
            rng=request.rng,
            callback=show,
            checkpoint=runs,
            classes=classes_of(request, V),
            groups=groups,
            **fitting,
        )
    request.K_decided_by = programs.settings["K_decided_by"]
    annotated: Facts = {}
    if request.anndata:
        annotated = {"copy_of": request.path} if request.suffix == ".h5ad" else {"counts": V}
    with request.display.working("writing"):
        paths = write_programs(programs, target, name, **annotated, **identity)
        for file, figure in pictures(programs, name).items():
            save_picture(figure, str(target / file))
            paths.append(target / file)
    if not request.no_report:
        found = programs.stability
        paths.append(target / f"{name}.report.k_{programs.K}.html")
        with request.display.working("judging the consensus"):
            log1p = programs.settings["log1p"]
            factored = scaled_genes(V, programs.statistics, programs.genes, log1p)
            more: Facts = {}
            if programs.donors is not None:
                factored = programs.donors.divided(factored, groups, programs.genes)
                more["donors"] = programs.donors.plain(programs.names)
            result = request.describe(as_result(programs, factored), **more)
            write_report(result, paths[-1], title=name, stability=found)
    return programs, V, paths
