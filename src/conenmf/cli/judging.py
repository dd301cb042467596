"""The commands that judge data and methods, and write no result: rank, diagnose and compare."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from .. import comparison
from ..atomic import output_file
from ..comparison import INITS_COMPARED, SOLVERS_COMPARED
from ..data.aligned import remove_kept_file
from ..data.matrix import DataMatrix
from ..errors import OptionError
from ..export import facts
from ..judge.choose_k import METHODS, choose_k, select_k
from ..pipeline import factorize
from ..solve.inits import INITS
from ..solve.run import Iteration
from ..solve.solvers import SOLVERS
from .answers import show_comparison, show_diagnosis, show_rank
from .known_parts import ENTRY_OPTIONS
from .labels import read_labels
from .losses import LOSS_OPTION
from .options import (
    COMPONENTS_OPTION,
    EFFORT_OPTION,
    STOPPING_OPTIONS,
    CommonOptions,
    choosing,
    reads_data,
    with_options,
)
from .output import check_picture, save_picture, write_csv
from .preparing import PREPARING_OPTIONS
from .text_options import NameList

__all__ = ["compare", "diagnose", "rank"]

_DEFAULT_MAX_K = 20


@click.command()
@reads_data
@with_options(
    *PREPARING_OPTIONS,
    *ENTRY_OPTIONS[:2],
    click.option("--min", "min_k", type=click.IntRange(1), help="Smallest number to try."),
    click.option("--max", "max_k", type=click.IntRange(1), help="Largest number to try."),
    click.option(
        "--methods",
        type=NameList(list(METHODS)),
        help=f"Estimators to use, some of {', '.join(METHODS)}; by default all that suit the data "
        "(thinning is for counts).",
    ),
    click.option("--plot", type=click.Path(), help="Draw the scores to this .png, .pdf or .svg."),
)
def rank(
    common: CommonOptions,
    min_k: int | None,
    max_k: int | None,
    methods: tuple[str, ...] | None,
    plot: str | None,
) -> None:
    """Estimate how many components DATA has: a table of estimators, and a recommendation.

    The recommendation is the number that `conenmf fit -k auto` takes, unless that is not among the
    numbers to try or its estimator not among --methods; then the reason says so. Entries that are
    missing are the means of their features here; of sparse DATA, zeros.

    \b
    conenmf rank counts.csv
    conenmf rank counts.csv --max 40 --methods ratio,parallel --plot rank.png
    """
    check_picture(plot)
    display = common.display
    V = common.open(display)
    candidates = _candidates(V, min_k, max_k)

    def show(name: str, place: int) -> None:
        display.update("", (place + 0.5) / len(methods or METHODS), f"estimating by {name}")

    with display.working("estimating the number of components"):
        selection = select_k(V, candidates, methods=methods, rng=common.rng, callback=show)
    if plot is not None:
        save_picture(selection.plot()[0].figure, plot)
    answer = {
        "n_components": selection.K,
        "decided_by": selection.decided_by,
        "reason": selection.reason,
        "candidates": selection.ks.tolist(),
        "estimators": {
            name: {"n_components": vote.K, "reason": vote.reason, "scores": vote.scores}
            for name, vote in selection.votes.items()
        },
        "plot": plot,
    }
    common.answer(answer, lambda out: show_rank(out, selection, plot), V)


def _candidates(V: DataMatrix, min_k: int | None, max_k: int | None) -> range | None:
    if min_k is None and max_k is None:
        return None
    last = min(max_k or _DEFAULT_MAX_K, min(V.shape))
    first = min_k or min(2, last)
    if first > last:
        raise OptionError(f"--min {first} is above --max {last}: lower --min or raise --max")
    return range(first, last + 1)


@click.command()
@reads_data
@with_options(
    COMPONENTS_OPTION,
    *PREPARING_OPTIONS,
    *ENTRY_OPTIONS,
    LOSS_OPTION,
    *STOPPING_OPTIONS,
    EFFORT_OPTION,
)
def diagnose(
    common: CommonOptions, K: int | str, loss: str, effort: int | None, **limits: Any
) -> None:
    """Report whether DATA lie in cones, how good a fit is, and which init suits them.

    Shows the cones and what is known of the geometric assumption, the bounds, the certificate of a
    fit, and which init is advised and why. Nothing is written.

    \b
    conenmf diagnose counts.csv
    conenmf diagnose spectra.npy -k 12 --json
    conenmf diagnose words.npz -k 20 --loss poisson
    """
    display = common.display
    V = common.open(display)
    with display.working(choosing(K)):
        result = factorize(
            V,
            K,
            init="auto",
            loss=loss,
            rng=common.rng,
            callback=display.iterations(**limits, what="solving"),
            **limits,
        )
    remove_kept_file(result.H)
    with display.working("judging the result"):
        result.diagnose(effort=effort)
    with display.working("looking for other components that are as good"):
        result.uniqueness()
    common.answer(facts(result), lambda out: show_diagnosis(out, result), V)


@click.command()
@reads_data
@with_options(
    COMPONENTS_OPTION,
    *PREPARING_OPTIONS,
    *ENTRY_OPTIONS,
    click.option(
        "--inits",
        type=NameList(["auto", *INITS]),
        default=",".join(INITS_COMPARED),
        show_default=True,
        help="Initialisations to compare.",
    ),
    click.option(
        "--solvers",
        type=NameList(list(SOLVERS)),
        default=",".join(SOLVERS_COMPARED),
        show_default=True,
        help="Solvers to compare.",
    ),
    click.option(
        "--labels",
        type=click.Path(),
        help="True classes: a text file with one class per sample, or a .csv of name and class.",
    ),
    *STOPPING_OPTIONS,
    click.option("-o", "--output", type=click.Path(), help="Also write the table to this .csv."),
    click.option(
        "--plot", type=click.Path(), help="Draw error against time to this .png, .pdf or .svg."
    ),
)
def compare(
    common: CommonOptions,
    K: int | str,
    inits: tuple[str, ...],
    solvers: tuple[str, ...],
    labels: str | None,
    output: str | None,
    plot: str | None,
    **limits: Any,
) -> None:
    """Compare inits and solvers on DATA: error, time, and clustering scores.

    \b
    conenmf compare counts.csv -k 9
    conenmf compare faces/ -k 40 --inits cr1,nndsvd --solvers hals --plot faces.png
    conenmf compare digits.csv -k 10 --labels digit.txt -o table.csv
    """
    check_picture(plot)
    if output is not None:
        output_file(output)
    display = common.display
    V = common.open(display)
    classes = None if labels is None else read_labels(labels, V)
    runs = [(init, solver) for init in inits for solver in solvers]

    def watch(init: str, solver: str) -> Callable[[Iteration], None]:
        share = runs.index((init, solver)) / len(runs)

        def show(now: Iteration) -> None:
            note = f"iteration {now.iteration}, error {now.relative_error:.5g}"
            display.update(note, share, f"{init} + {solver}")

        return show

    with display.working(choosing(K)):
        n_components = choose_k(V).K if isinstance(K, str) else K
        compared = comparison.compare(
            V,
            n_components,
            inits=inits,
            solvers=solvers,
            labels=classes,
            seed=common.seed or 0,
            watch=watch,
            **limits,
        )
    if plot is not None:
        save_picture(compared.plot().figure, plot)
    rows = compared.rows()
    if output is not None:
        write_csv(Path(output), rows[0], (row.values() for row in rows))
    answer = {"n_components": n_components, "contenders": rows, "plot": plot, "table": output}
    common.answer(answer, lambda out: show_comparison(out, compared, (output, plot)), V)
