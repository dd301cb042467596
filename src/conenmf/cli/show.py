"""What commands print without ``--json``."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from pathlib import Path

import numpy as np

from ..data.blocks import dense
from ..data.matrix import DataMatrix
from ..data.resample import evenly_spaced
from ..export import REPORT_FILE
from ..judge.diagnosis import NO_GUARANTEE, ConeDiagnosis
from ..report.sections import Context, verdict
from ..result import Factorization
from ..solve.losses import get_loss
from ..solve.run import StopReason
from ..text import counted, visible
from .options import Request

_SHOWN_FEATURES = 8
_SHOWN_COMPONENTS = 20
_MAX_WORD_CHARS = 30
_LOOKED_AT = 50  # samples that are looked at to see whether they are counts
_WIDE_RATIO = 10  # features per sample from which on they may have been exchanged
_LONG = 200  # rows of three or four numbers, from which on they may be ratings
_MIN_SIDE = 8  # pixels of images that features may be


def advice(V: DataMatrix, request: Request) -> str:
    """Say in a line what else the data may be, and the option for it; empty if nothing."""
    F, N = V.shape
    names = V.names
    block = dense(V.columns(evenly_spaced(N, _LOOKED_AT)))
    changes = (V.preparation, V.observed, V.vocabulary, names.image_shape)
    is_plain = all(one is None for one in changes)
    are_counts = bool((block == np.rint(block)).all() and block.max() > 1)
    side = math.isqrt(F)
    hints = []
    if names.pixels_shape is not None and not ({"scene", "init"} & request.given):
        hints.append("to unmix a scene into endmembers and abundances, use --scene")
    if any("10x" in remark for remark in V.remarks):
        hints.append("to find gene programs in raw counts, use conenmf cells")
    elif are_counts and is_plain and "divergence" not in get_loss(request.loss).lower_bounds:
        hints.append("whole numbers: if they are counts, try --loss poisson")
    if F >= _WIDE_RATIO * N and request.samples_in == "rows" and is_plain:
        hints.append("if samples are the columns, use --samples-in columns")
    if side >= _MIN_SIDE and side**2 == F and not (names.image_shape or names.feature_names):
        hints.append(f"if features are pixels, use --image-shape {side}x{side}")
    if F in (3, 4) and is_plain and N > _LONG:
        hints.append("if each row is a user, an item and a rating, use --triples 0,1,2")
    repeated = [name for name, n in Counter(names.feature_names or ()).items() if n > 1]
    if repeated:
        name = visible(repeated[0], _MAX_WORD_CHARS)
        hints.append(f"several features are called {name!r}: give each its own name")
    if isinstance(request.K, int) and request.K >= F:
        hints.append(f"{request.K} components for {F} features fit any data: use fewer")
    return "; ".join(hints)


def fit_text(result: Factorization, request: Request, target: Path, replaces: bool) -> str:
    """The summary of a fit, where its files are, and what can be done next."""
    lines = [*result.summary()]
    if result.stop_reason is StopReason.MAX_ITER and result.settings["max_iter"] > 0:
        lines.append("the error was still falling at --max-iter: raise it for a better fit")
    lines += _components(result)
    is_interrupted = result.stop_reason is StopReason.INTERRUPTED
    began = request.display.continued_at
    middle = f", continued at {began}" * bool(began) + ", interrupted" * is_interrupted
    iterations = counted(result.n_iter, "iteration")
    lines.append(f"{iterations}{middle}, {result.total_seconds:.3g} s")
    replacing = ", in place of an earlier result" * replaces
    lines.append(f"results are in {visible(target, None)}{replacing}")
    if is_interrupted and request.checkpoint is None:
        lines.append("a run with --checkpoint FOLDER could be continued by the same command")
    elif is_interrupted:
        lines.append(f"run the same command to continue at iteration {result.n_iter}")
    if result.diagnosis is not None:
        lines.append(f"open {visible(target / REPORT_FILE, None)} in a browser")
    else:
        words = shlex.join(["conenmf", "report", str(target)])
        lines.append(f"No report written. To create it: {visible(words, None)}")
    return "\n".join(lines)


def _components(result: Factorization) -> list[str]:
    """The largest features of each component, if they have names; not of too many."""
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


def diagnosis_text(result: Factorization) -> str:
    """The verdict as in the report, the certificate, the components, the cones and the advice."""
    diagnosis = result.diagnose()
    lines = [
        f"{one.name} ({one.level}): {one.text}. {one.advice}".rstrip()
        for one in verdict(Context(result))
    ]
    lines += ["", "certificate (it judges the error, not the truth of the components)"]
    known = vars(result.certify())
    lines += [f"  {name.replace('_', ' '):24}{value:.6g}" for name, value in known.items()]
    lines += ["", *(visible(line, None) for line in result.uniqueness().lines())]
    if diagnosis.cones is not None:
        lines += _cones(diagnosis.cones)
    lines += ["", "advised init: {}, because {}".format(*diagnosis.advice)]
    if result.race is not None:
        lines += ["", f"race of inits, won by {result.race.winner.init}"]
        lines += [
            f"  {visible(one.init):12}{one.relative_error:.6g} after {one.iterations} iterations"
            for one in result.race.entrants
        ]
    return "\n".join(lines)


def _cones(cones: ConeDiagnosis) -> list[str]:
    geometry = cones.geometry
    K = cones.geometry.angles.size
    lines = ["", "cone  samples  size angle"]
    sizes = enumerate(zip(cones.sizes, geometry.angles, strict=True))
    lines += [f"{k:>4}{size:>9}{angle:>8.3f} rad" for k, (size, angle) in sizes]
    lines.append(f"error of cr1-nmf alone: {cones.error:.6g}, proven to be <= {cones.bound:.6g}")
    calm = "" if geometry.holds else f": {NO_GUARANTEE}"
    if K > 1:
        margin = f"margin {geometry.margin:.3f} rad"
        lines.append(f"the geometric assumption {geometry.verdict}, {margin}{calm}")
        least = "" if geometry.pairwise.is_exact else "at least "
        lines.append(f"pairwise separation of samples: {least}{geometry.pairwise.value:.3f} rad")
        lines.append(f"samples between cones: {geometry.ambiguous.size}")
    return lines
