"""The command ``conenmf cells``: from raw counts to programs, in files under cNMF's names."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ..atomic import writing
from ..cells.programs import find_programs
from ..cells.tables import check_run, write_programs
from ..data.resources import memory_budget
from ..errors import OptionError
from ..export import check_packages
from ..io.text import read_names
from ..text import visible
from .options import COMPONENTS_OPTION, CommonOptions, reads_data, with_options

__all__ = ["cells"]

_ANNDATA = ".h5ad"


@click.command()
@reads_data
@with_options(
    COMPONENTS_OPTION,
    click.option("--runs", type=click.IntRange(2), default=20, show_default=True, help="Fits."),
    click.option(
        "-o", "--output", type=click.Path(), default="programs", show_default=True, help="A folder."
    ),
    click.option("--name", help="How the names of files begin; by default as that of DATA."),
    click.option("--layer", help="The layer of counts of an .h5ad file; by default X."),
    click.option(
        "--genes",
        type=click.IntRange(1),
        default=2000,
        show_default=True,
        help="How many genes are factored: those that vary most for their mean.",
    ),
    click.option(
        "--genes-file", type=click.Path(), help="Factor the genes in this text, one on each line."
    ),
    click.option(
        "--log1p", is_flag=True, help="Factor log(1 + x) of counts scaled to 10000 in each cell."
    ),
    click.option(
        "--refine",
        type=click.IntRange(0),
        default=5,
        show_default=True,
        help="Iterations of the Poisson loss from the consensus on; 0 leaves it as it is.",
    ),
    click.option(
        "--resample",
        type=click.Choice(["start", "samples"]),
        default="start",
        show_default=True,
        help="What fits differ by: their random init alone, or cells drawn with replacement too.",
    ),
    click.option(
        "--density-threshold",
        type=click.FloatRange(0, min_open=True),
        default=0.5,
        show_default=True,
        help="Components of fits that are farther than this from their neighbours are left out.",
    ),
    click.option(
        "--max-iter", type=click.IntRange(1), default=200, show_default=True, help="Of each fit."
    ),
    click.option(
        "--tol",
        type=click.FloatRange(0),
        default=1e-3,
        show_default=True,
        help="A fit ends when its error falls by less than this share in 5 iterations.",
    ),
    click.option(
        "--anndata/--no-anndata",
        default=True,
        help="Whether to write an .h5ad file with the programs: a copy of DATA, or its counts.",
    ),
    click.option("--force", is_flag=True, help="Replace the files of another run."),
)
def cells(
    common: CommonOptions,
    K: int | str,
    runs: int,
    output: str,
    name: str | None,
    layer: str | None,
    genes: int,
    genes_file: str | None,
    anndata: bool,
    force: bool,
    **fitting: Any,
) -> None:
    """Find the gene programs of cells from raw counts DATA; write them as cNMF does.

    DATA is an .h5ad file, or a folder or .h5 file of 10x Genomics, with raw counts. It stays on
    disk and is not changed.

    \b
    conenmf cells atlas.h5ad -k 20
    conenmf cells atlas.h5ad --layer counts -k 20 --runs 50 -o programs
    conenmf cells filtered_feature_bc_matrix/ -k 12 --genes 3000
    """
    common, log1p = _of_counts(common, layer), common.log1p
    name = name or common.path.name.partition(".")[0] or "cells"
    chosen = None if genes_file is None else read_names(genes_file, memory_budget(None))
    how = f"{genes} most overdispersed" if chosen is None else f"listed, {_digest(chosen)}"
    identity: dict[str, Any] = {"source": _place(common), "genes": how, "force": force}
    _try_folder(check_run(output, name, **identity))
    if anndata:
        check_packages("none", anndata=True)
    display = common.display
    V = common.open(display)
    with display.working("measuring genes"):
        programs = find_programs(
            V,
            K,
            runs,
            n_genes=genes,
            genes=chosen,
            log1p=log1p,
            rng=common.rng,
            callback=lambda what, share: display.update("", share, what),
            **fitting,
        )
    with display.working("writing"):
        is_copied = common.path.suffix.lower() == _ANNDATA
        paths = write_programs(
            programs,
            output,
            name,
            copy_of=common.path if anndata and is_copied else None,
            counts=V if anndata and not is_copied else None,
            **identity,
        )
    answer = {
        **programs.settings,
        "verdict": programs.stability.verdict,
        "problem": programs.stability.problem,
        "found_in": programs.stability.found_in,
        "markers": programs.markers(),
        "files": [str(path) for path in paths],
    }
    folder = visible(output, None)
    common.answer(answer, lambda out: out.print(f"{programs}\nfiles are in {folder}"), V)


def _of_counts(common: CommonOptions, layer: str | None) -> CommonOptions:
    """Read the layer, and take no logarithms on the way: they are taken of chosen genes."""
    if layer is None:
        return replace(common, log1p=False)
    if common.dataset is not None or common.path != Path(common.data):
        raise OptionError("DATA names its matrix already: leave --layer out")
    if common.path.suffix.lower() != _ANNDATA:
        raise OptionError(f"--layer is for {_ANNDATA} files: leave it out")
    return replace(common, log1p=False, dataset=f"layers/{layer}")


def _try_folder(target: Path) -> None:
    """Refuse a folder that cannot be made, before the work."""
    if not target.exists():
        with writing(target):
            target.mkdir()
            target.rmdir()


def _place(common: CommonOptions) -> str:
    """Which matrix of which file is read."""
    return str(Path(common.data).absolute()) + (f":{common.dataset}" if common.dataset else "")


def _digest(names: list[str]) -> str:
    return f"{len(names)} genes, {zlib.crc32(chr(10).join(names).encode()):08x}"
