"""The command ``conenmf cells``: from raw counts to programs, in files under cNMF's names."""

from __future__ import annotations

import zlib
from pathlib import Path

import click

from ..atomic import writing
from ..cells.programs import find_programs, scaled_genes
from ..cells.tables import check_run, write_programs
from ..data.resources import memory_budget
from ..errors import OptionError
from ..export import check_packages
from ..io.text import read_names
from ..report import write_report
from ..text import visible
from .judge import consensus
from .options import OUTPUT, RUNNING, Request, command

_READING = ("samples_in", "dataset", "header", "names_column", "drop", "feature_names")
_FITTING = ("refine", "resample", "density_threshold", "max_iter", "tol", "log1p", "n_genes")


@command(
    *("K", "n_runs", "name", "layer", "genes_file", "anndata", "negative", "sample_names"),
    "no_report",
    *_READING,
    *_FITTING,
    *OUTPUT,
    *RUNNING,
    of=find_programs,
    output={"default": "programs", "help": "Folder for the results."},
    log1p={"help": "Factor log(1 + x) of counts scaled to 10000 per cell."},
    resample={
        "type": click.Choice(["start", "samples"]),
        "help": "How fits differ: by their random init alone, or also by resampled cells.",
    },
    max_iter={"type": click.IntRange(1), "help": "Maximum number of iterations of each fit."},
    anndata={
        "flags": "--anndata/--no-anndata",
        "is_flag": True,
        "default": True,
        "help": "Whether to write an .h5ad file with the counts and the programs.",
    },
    force={"help": "Replace the files of another run."},
)
def cells(request: Request) -> None:
    """Find gene programs in the raw counts DATA; write them in cNMF's format.

    DATA is an .h5ad file, or a folder or .h5 file from 10x Genomics, with raw counts. It is read
    from disk and not changed.

    \b
    conenmf cells atlas.h5ad -k 20
    conenmf cells atlas.h5ad --layer counts -k 20 --runs 50 -o programs
    conenmf cells filtered_feature_bc_matrix/ -k 12 --genes 3000
    """
    fitting = request.chosen(_FITTING)
    request.log1p = None  # logarithms are taken of chosen genes, not while counts are read
    _choose_layer(request)
    is_annotated = request.path.suffix.lower() == ".h5ad"
    name = request.name or request.path.name.partition(".")[0] or "cells"
    chosen, how = None, f"{request.n_genes} most overdispersed"
    if request.genes_file is not None:
        chosen = read_names(request.genes_file, memory_budget(None))
        how = f"listed, {len(chosen)} genes, {zlib.crc32(chr(10).join(chosen).encode()):08x}"
    member = f":{request.dataset}" if request.dataset else ""
    source = f"{Path(request.data).absolute()}{member}"
    identity = {"source": source, "genes": how, "force": request.force}
    _try_folder(check_run(request.output, name, **identity))
    if request.anndata:
        check_packages("none", anndata=True)
    display, V = request.display, request.open()
    with display.working("measuring genes"):
        programs = find_programs(
            V,
            request.K,
            request.n_runs,
            genes=chosen,
            rng=request.rng,
            callback=lambda what, share: display.update("", share, what),
            **fitting,
        )
    request.K_decided_by = programs.settings["K_decided_by"]
    with display.working("writing"):
        paths = write_programs(
            programs,
            request.output,
            name,
            copy_of=request.path if request.anndata and is_annotated else None,
            counts=V if request.anndata and not is_annotated else None,
            **identity,
        )
    if not request.no_report:
        found = programs.stability
        page = Path(request.output) / f"{name}.report.k_{programs.K}.html"
        with display.working("judging the consensus"):
            fitted = programs.genes, programs.settings["log1p"]
            result = consensus(scaled_genes(V, programs.statistics, *fitted), found, request)
            write_report(result, page, title=name, stability=found)
        paths = [*paths, page]
    answer = {
        **programs.settings,
        "verdict": programs.stability.verdict,
        "problem": programs.stability.problem,
        "found_in": programs.stability.found_in,
        "markers": programs.markers(),
        "files": [str(path) for path in paths],
    }
    where = f"files are in {visible(request.output, None)}"
    if not request.no_report:
        where += f"\nopen {visible(page, None)} in a browser"
    request.answer(answer, f"{programs}\n{where}", V)


def _choose_layer(request: Request) -> None:
    if request.layer is not None:
        if request.dataset is not None or request.path != Path(request.data):
            raise OptionError("DATA names its matrix already: leave --layer out")
        if request.path.suffix.lower() != ".h5ad":
            raise OptionError("--layer is for .h5ad files: leave it out")
        request.dataset = f"layers/{request.layer}"


def _try_folder(target: Path) -> None:
    """Refuse a folder that cannot be made, before the work."""
    if not target.exists():
        with writing(target):
            target.mkdir()
            target.rmdir()
