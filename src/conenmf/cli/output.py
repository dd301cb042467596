"""Output of commands: folders of results, and printed text.

Target folders are checked before the work starts, and results appear only when complete.

A folder of results contains a ``summary.json``, which lists the files of the result. The next
result replaces or removes these files; all other files in the folder stay. A new result is written
to the subfolder ``unfinished-result`` while the folder is locked, and its files are moved when all
are complete. Before the move ``summary.json`` says that the result is not complete, and its final
version is moved last. If a command is killed in between, `check_complete` rejects the folder, and
the next command can replace the result.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..atomic import (
    flush_folder,
    in_use,
    output_file,
    output_folder,
    remove_temporaries,
    writing,
    written_whole,
)
from ..data.blocks import dense
from ..data.matrix import DataMatrix
from ..data.resample import evenly_spaced
from ..errors import OptionError, OutputError
from ..export import (
    ANNOTATED_FILE,
    REPORT_FILE,
    RESULT_FILE,
    TABLE_NAMES,
    TABLES,
)
from ..fields.measurements import (
    BOOTSTRAP_FILE,
    DISPLACEMENT_FILE,
    Q_FILE,
    RESIDUALS_FILE,
    TOTAL_FILE,
    Q_of_starts,
)
from ..fields.mutations import LIMITS_FILE, RUNS_FILE, STABILITY_FILE
from ..judge.details import NO_GUARANTEE, ConeDiagnosis
from ..result import Factorization
from ..solve.losses import get_loss
from ..solve.run import StopReason
from ..text import counted, visible
from ..types import Facts
from .request import Request

_SUMMARY_FILE = "summary.json"
RECOMMENDATIONS_FILE = "recommendations.csv"
RUNS_FOLDER = "runs"  # folder in which the fits of stability are saved as they end
_NEW_FOLDER = "unfinished-result"
_RESULT_FILES = {
    *(f"{name}.{kind}" for name in TABLE_NAMES for kind in TABLES),
    RESULT_FILE,
    ANNOTATED_FILE,
    REPORT_FILE,
    STABILITY_FILE,
    LIMITS_FILE,
    RUNS_FILE,
    RECOMMENDATIONS_FILE,
    RESIDUALS_FILE,
    Q_FILE,
    DISPLACEMENT_FILE,
    BOOTSTRAP_FILE,
    TOTAL_FILE,
    _SUMMARY_FILE,
}
_PICTURE_SUFFIXES = (".png", ".pdf", ".svg")
_DOTS_PER_INCH = 150


def check_folder(target: Path, force: bool) -> None:
    """Reject a folder that cannot be written to, or that contains other files.

    Other files stay, so even with `force` none of them may have the name of a result's file.
    """
    if not output_folder(target).is_dir():
        return
    earlier = earlier_files(target)
    names = {path.name for path in target.iterdir() if not path.name.startswith(".")}
    others = names - {RUNS_FOLDER, _NEW_FOLDER}
    if others and not (earlier or force):
        raise OutputError(f"{target} holds other files: name another folder, or add --force")
    for name in sorted(others & _RESULT_FILES - earlier):
        raise OutputError(f"{target} holds another {name}: move it, or name another folder")


@contextmanager
def new_result(target: Path) -> Iterator[Path]:
    """Lock a folder, yield a folder for the files of a new result, then move these into place.

    If the result itself was saved before an error, the error says where it is.
    """
    new = target / _NEW_FOLDER
    with locked_folder(target):
        with writing(target):
            shutil.rmtree(new, ignore_errors=True)  # left by a command that was killed
            remove_temporaries(target, _SUMMARY_FILE)
            new.mkdir()
        try:
            yield new
            with writing(target):
                _replace_files(new, target)
        except BaseException as error:
            if isinstance(error, Exception) and (new / RESULT_FILE).is_file():
                error.add_note(f"the new result is kept in {new}")
            else:
                shutil.rmtree(new, ignore_errors=True)
            raise


@contextmanager
def locked_folder(target: Path) -> Iterator[None]:
    """Create a folder; raise an error if another command writes to it."""
    try:
        with writing(target):
            target.mkdir(exist_ok=True)
        with in_use(target):
            yield
    finally:
        with suppress(OSError):
            target.rmdir()  # only if it is empty


def _replace_files(new: Path, target: Path) -> None:
    names = {*os.listdir(new)}
    earlier = earlier_files(target)
    write_summary(target, {"complete": False}, names | earlier)
    for name in earlier - names:
        (target / name).unlink(missing_ok=True)
    for name in sorted(names, key=lambda name: (name in (RESULT_FILE, _SUMMARY_FILE), name)):
        os.replace(new / name, target / name)
    new.rmdir()
    flush_folder(target)


def _summary(folder: Path) -> Facts:
    """Return the summary of the result in a folder; empty if there is no result."""
    try:
        summary = json.loads((folder / _SUMMARY_FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    is_ours = isinstance(summary, dict) and summary.get("made_by") == "conenmf"
    return summary if is_ours else {}


def earlier_files(folder: Path) -> set[str]:
    """Return the files of the result in a folder; none if there is no result."""
    return {*_summary(folder).get("files", ())} & _RESULT_FILES


def check_complete(folder: Path) -> None:
    """Reject a folder whose result was being replaced when a command was killed."""
    if not _summary(folder).get("complete", True):
        raise OutputError(
            f"{folder} holds a result that is not complete, since the command that wrote it was "
            "killed: run that again"
        )


def write_summary(folder: Path, facts: Facts, files: Iterable[str]) -> list[str]:
    """Write the facts about a result and the list of its files as JSON; return that list."""
    names = sorted({*files, _SUMMARY_FILE})
    content = {"made_by": "conenmf", **facts, "files": names}
    with written_whole(folder / _SUMMARY_FILE) as stream:
        stream.write(json.dumps(content, indent=2, allow_nan=False).encode())
    return names


def list_in_summary(folder: Path, name: str) -> None:
    """List a file as part of the result in a folder, so that the next result replaces it."""
    if summary := _summary(folder):
        write_summary(folder, summary, [*summary["files"], name])


def check_picture(path: str | None) -> None:
    """Reject a picture of an unknown kind, or in a folder that does not exist."""
    if path is not None:
        if Path(path).suffix.lower() not in _PICTURE_SUFFIXES:
            raise OptionError(f"{path}: a picture ends in .png, .pdf or .svg")
        output_file(path)


def save_picture(figure: Any, path: str) -> None:
    """Save a figure of matplotlib in the format of the file's ending."""
    target = Path(path)
    with written_whole(target) as stream:
        figure.savefig(stream, format=target.suffix.lower().removeprefix("."), dpi=_DOTS_PER_INCH)


# --- what commands print without --json -------------------------------------------------------

_SHOWN_FEATURES = 8
_SHOWN_COMPONENTS = 20
_MAX_WORD_CHARS = 30
_LOOKED_AT = 50  # samples that are examined to see whether they are counts
_WIDE_RATIO = 10  # features per sample, or genes per sample, that suggest a transposed matrix
_MIN_SIDE = 8  # pixels of images that features may be, at least


def advice(V: DataMatrix, request: Request) -> str:
    """Suggest in one line what else the data may be, and the option for it; "" if nothing."""
    F, N = V.shape
    names = V.names
    block = dense(V.columns(evenly_spaced(N, _LOOKED_AT)))
    changes = (V.preparation, V.observed, V.vocabulary, names.image_shape)
    is_plain = all(one is None for one in changes)
    are_whole = bool((block == np.rint(block)).all() and block.max() > 1)
    are_counts = are_whole and "scene" not in request.given
    side = math.isqrt(F)
    hints = []
    if names.pixels_shape is not None and not ({"scene", "init"} & request.given):
        hints.append("to unmix a scene into endmembers and abundances, use --scene")
    if any("10x" in remark for remark in V.remarks):
        hints.append("to find gene programs in raw counts, use conenmf cells")
    elif are_counts and is_plain and get_loss(request.loss).noise is None:
        hints.append("whole numbers: if they are counts, try --loss poisson")
    are_genes = are_counts and N >= _WIDE_RATIO * F and names.sample_names is not None
    is_turned = F >= _WIDE_RATIO * N or are_genes
    if is_turned and request.samples_in == "rows" and is_plain:
        hints.append("if samples are the columns, use --samples-in columns")
    if side >= _MIN_SIDE and side**2 == F and not (names.image_shape or names.feature_names):
        hints.append(f"if features are pixels, use --image-shape {side}x{side}")
    return "; ".join(hints)


def fit_text(result: Factorization, request: Request, target: Path, replaces: bool) -> list[str]:
    """Return the summary of a fit, the location of its files, and the next steps."""
    lines = [*result.opening()]
    if result.diagnosis is not None:
        lines += ["", *result.diagnosis.lines(), ""]
    if result.stop_reason is StopReason.MAX_ITER and result.settings["max_iter"] > 0:
        lines.append("the error was still falling at --max-iter: raise it for a better fit")
    lines += _components(result)
    if "Q" in result.settings and request.n_init != "auto" and result.race is not None:
        lines.append(_starts(result))
    lines += request.findings
    is_interrupted = result.stop_reason is StopReason.INTERRUPTED
    parts = [counted(result.n_iter, "iteration")]
    if request.display.continued_at:
        parts.append(f"continued at {request.display.continued_at}")
    if is_interrupted:
        parts.append("interrupted")
    lines.append(", ".join([*parts, f"{result.total_seconds:.3g} s"]))
    where = f"results are in {target}"
    lines.append(f"{where}, replacing an earlier result" if replaces else where)
    if is_interrupted and request.checkpoint is None:
        lines.append("a run with --checkpoint FOLDER could be continued by the same command")
    elif is_interrupted:
        lines.append(f"run the same command to continue at iteration {result.n_iter}")
    if result.diagnosis is not None:
        lines.append(f"open {target / REPORT_FILE} in a browser")
    elif not (result.problem.symmetric or result.problem.has_effects):
        words = shlex.join(["conenmf", "report", str(target)])
        lines.append(f"No report written. To create it: {words}")
    if request.quick:
        words = shlex.join(["conenmf", "report", str(target), "--data", request.data])
        lines.append(f"Components were not checked. To check them: {words}")
    return lines


def _starts(result: Factorization) -> str:
    """Return the spread of Q over starts, and the seed of the best."""
    Qs = Q_of_starts(result)
    race = result.race
    assert race is not None
    seed = race.winner.seed
    how = "the first init" if seed is None else f"seed {seed}"
    return (
        f"{counted(len(Qs), 'start')}: Q {Qs.min():.6g} to {Qs.max():.6g}, median "
        f"{np.median(Qs):.6g}; {race.n_agreeing} within 0.1 % of the best ({how})"
    )


def _components(result: Factorization) -> list[str]:
    """Return the largest features of each component, if they have names and are not too many."""
    names = result.names
    has_words = names.feature_names is not None and names.feature_positions is None
    if not has_words or names.image_shape is not None:
        return []
    lines = []
    for k, features in enumerate(result.top_features(_SHOWN_FEATURES)[:_SHOWN_COMPONENTS]):
        words = ", ".join(visible(name, _MAX_WORD_CHARS) for name in features)
        name = visible(result.component_names[k], _MAX_WORD_CHARS)
        lines.append(f"  {name}: {words or 'zero'}")
    if result.K > _SHOWN_COMPONENTS:
        lines.append(f"  and {result.K - _SHOWN_COMPONENTS} more, in the report and the tables")
    return lines


def diagnosis_text(result: Factorization) -> list[str]:
    """Return the verdict, then each component's grade, the certificate, and cones."""
    diagnosis = result.diagnose()
    lines = [*diagnosis.lines(), ""]
    for k, name in enumerate(result.component_names):
        verdict = f"{name}: {diagnosis.components[k]}; {diagnosis.reasons[k]}"
        lines.append(verdict)
    lines += ["", "certificate (it judges the error, not the components)"]
    for name, value in vars(result.certify()).items():
        title = name.replace("_", " ")
        lines.append(f"  {title:24}{value:.6g}")
    details = diagnosis.details
    if details.cones is not None:
        lines += _cones(details.cones)
    return lines


def _cones(cones: ConeDiagnosis) -> list[str]:
    geometry = cones.geometry
    lines = ["", "cone  samples  size angle"]
    for k, angle in enumerate(geometry.angles):
        lines.append(f"{k:>4}{cones.sizes[k]:>9}{angle:>8.3f} rad")
    lines.append(f"error of cr1-nmf alone: {cones.error:.6g}, proven to be <= {cones.bound:.6g}")
    if len(cones.sizes) > 1:
        line = f"the geometric assumption {geometry.verdict}, margin {geometry.margin:.3f} rad"
        lines.append(line if geometry.holds else f"{line}: {NO_GUARANTEE}")
    return lines
