"""Programs in files: tables under the names that cNMF gives them, and an .h5ad with annotations.

All files of a run are written under temporary names and moved into place when all are complete.
Runs with other numbers of programs may share a folder, if they are of the same data and genes: that
is what the file ``NAME.run.k_20.dt_0_5.json`` of each is for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..atomic import files_written_whole, output_folder, writing
from ..data.matrix import DataMatrix
from ..errors import Option, OptionError, OutputError
from ..export import (
    Annotation,
    annotated_copy,
    annotated_counts,
    categories,
    json_values,
    no_formula,
)
from ..text import Facts, PathLike, visible
from .programs import Programs

_TABLES = {
    "genes": "{name}.overdispersed_genes.txt",
    "spectra": "{name}.spectra.{run}.consensus.txt",
    "usages": "{name}.usages.{run}.consensus.txt",
    "tpm": "{name}.gene_spectra_tpm.{run}.txt",
    "score": "{name}.gene_spectra_score.{run}.txt",
    "starcat": "{name}.starcat_spectra.{run}.txt",
    "facts": "{name}.run.{run}.json",
    "annotated": "{name}.{run}.h5ad",
}
_PICTURES = {"number": "{name}.k_selection.png", "clusters": "{name}.clustering.{run}.png"}
_STARCAT_SUM = 1e6


def file_names(
    name: str, K: int, density_threshold: float, patterns: Mapping[str, str] = _TABLES
) -> dict[str, str]:
    """Return the names of the files of a run, by what they hold; cNMF's for tables and pictures.

    >>> file_names("atlas", 20, 0.5)["usages"]
    'atlas.usages.k_20.dt_0_5.consensus.txt'
    """
    run = f"k_{K}.dt_{str(density_threshold).replace('.', '_')}"
    return {what: pattern.format(name=name, run=run) for what, pattern in patterns.items()}


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
    """Return a folder for the files of a run; refuse it if it has those of other data or genes.

    Parameters
    ----------
    folder : path
        It need not exist, but its parent must.
    name : str
        With which the names of files begin.
    source, genes : str, optional
        What was read, and how genes were chosen.
    force : bool
        Take the folder all the same; files of the same names are replaced.
    """
    if not name or "/" in name or not name.isprintable() or name.startswith("."):
        problem = ", expected the beginning of the names of files"
        raise OptionError(Option("name", name), problem)
    target = output_folder(folder)
    if force or not target.is_dir():
        return target
    known = list(target.glob(f"{name}.run.k_*.json"))
    for path in known:
        _refuse_other(target, path, {"source": source, "genes": genes})
    found = sorted(path.name for path in target.iterdir() if path.name.startswith(f"{name}."))
    found = [file for file in found if file != runs_folder(name)]
    if found and not known:
        problem = f"{target} holds another {found[0]}: name another folder, or other files with "
        raise OutputError(problem, Option("name"))
    return target


def _refuse_other(target: Path, path: Path, here: Mapping[str, str | None]) -> None:
    """Raise an error if a run in the folder is of other data or genes."""
    try:
        earlier = json.loads(path.read_bytes())
        different = [key for key in here if earlier[key] != here[key]]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise OutputError(
            f"{path} does not say which run it belongs to: name another folder"
        ) from problem
    for key in different:
        what = "file" if key == "source" else "choice of genes"
        both = f"({visible(earlier[key])}, now {visible(here[key])})"
        reason = f"{target} holds a run of another {what} {both}: name another folder, or "
        raise OutputError(reason, "other files with ", Option("name"))


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
        The counts, if they are to be written to a new .h5ad file.
    copy_of : path, optional
        The .h5ad file of which a copy is annotated instead. It is not changed.
        ``obsm["X_conenmf"]`` gets the usages, ``varm["conenmf"]`` the spectra in TPM,
        ``varm["conenmf_score"]`` the scores, ``obs["conenmf"]`` the labels as categories,
        ``var["conenmf"]`` whether a gene was factored, and ``uns["conenmf"]`` the facts as JSON.
    """
    target = Path(folder)
    names = file_names(name, programs.K, programs.settings["density_threshold"])
    if counts is None and copy_of is None:
        del names["annotated"]
    facts = json_values({**run_facts(programs), "source": source, "genes": genes})
    added = _annotations(programs, facts)
    with writing(target):
        target.mkdir(exist_ok=True)
    paths = {what: target / file for what, file in names.items()}
    with writing(target), files_written_whole(list(paths.values())) as opened:
        streams = dict(zip(paths, opened, strict=True))
        tables = _tables(programs)
        for what, table in tables.items():
            table.to_csv(streams[what], sep="\t")
        streams["genes"].write("\n".join(tables["spectra"].columns).encode())
        streams["facts"].write(json.dumps({"made_by": "conenmf", **facts}, indent=2).encode())
        if copy_of is not None:
            annotated_copy(copy_of, streams["annotated"], added)
        elif counts is not None:
            annotated_counts(counts, streams["annotated"], added)
    return list(paths.values())


def pictures(programs: Programs, name: str) -> Facts:
    """Return the figures of a run under the names of their files, which are cNMF's.

    Its fits clustered; and, if it was chosen, the evidence for the number of programs, or the
    stability and the error for each number of a range.
    """
    threshold = programs.settings["density_threshold"]
    names = file_names(name, programs.K, threshold, _PICTURES)
    drawn = {names["clusters"]: programs.stability.clustergram(threshold)[0].figure}
    if programs.tried is not None:
        drawn[names["number"]] = programs.tried.plot()[0].figure
    return drawn


def run_facts(programs: Programs) -> Facts:
    """Describe programs, and how they were found."""
    found = programs.stability
    return {
        **programs.settings,
        "n_cells": len(programs.usages),
        "n_all_genes": len(programs.spectra_tpm),
        "verdict": found.verdict,
        "problem": found.problem,
        "found_in": found.found_in,
        "silhouettes": found.silhouettes,
        "relative_error": found.relative_error,
        "best_relative_error": found.best_relative_error,
        "n_left_out": found.n_left_out,
        "markers": programs.markers(),
    }


def _annotations(programs: Programs, facts: Facts) -> list[Annotation]:
    chosen = np.zeros(len(programs.spectra_tpm), bool)
    chosen[programs.genes] = True
    return [
        ("obsm", "X_conenmf", programs.usages),
        ("varm", "conenmf", programs.spectra_tpm),
        ("varm", "conenmf_score", programs.spectra_score),
        ("obs", "conenmf", categories(programs.labels, first=1)),
        ("var", "conenmf", chosen),
        ("uns", "conenmf", json.dumps(facts)),
    ]


def _tables(programs: Programs) -> Facts:
    """The tables as data frames: programs in rows, but for usages, where cells are.

    Names that a spreadsheet would take for formulas get an apostrophe.
    """
    import pandas as pd

    names = programs.names
    tpm = programs.spectra_tpm
    all_genes = [no_formula(names.feature(f)) for f in range(len(tpm))]
    chosen = [all_genes[f] for f in programs.genes.tolist()]
    numbers = range(1, programs.K + 1)
    cells = [no_formula(names.sample(n)) for n in range(len(programs.usages))]
    deviation = np.sqrt(programs.statistics.tpm_variance)[programs.genes]
    starcat = _STARCAT_SUM * (tpm / np.maximum(tpm.sum(axis=0), 1e-300))[programs.genes]
    starcat /= np.where(deviation > 0, deviation, 1.0)[:, None]
    return {
        "spectra": pd.DataFrame(programs.spectra.T, numbers, chosen),
        "usages": pd.DataFrame(programs.usages, cells, numbers),
        "tpm": pd.DataFrame(tpm.T, numbers, all_genes),
        "score": pd.DataFrame(programs.spectra_score.T, numbers, all_genes),
        "starcat": pd.DataFrame(starcat.T, [f"GEP{number}" for number in numbers], chosen),
    }
