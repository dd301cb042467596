"""The verdict of `diagnose` beside the truth, over families of drawn data; and on real sets.

`verdict` and `named` are parts of certainty.py. Where a checkout has no verdict yet, a component
that it calls unique counts as one to interpret, and the rows and the agreement are not there.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from families import Family, families, recovered
from measure import heading, output_of, row, timed, use_one_thread
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from zoo_matrices import load_real

from conenmf import ConeNMF

GRADES = "interpret", "with care", "do not", "open"
DRAWS = {"noise": 10, "correlated": 10}  # at least, of each family: what the goals count
SHORTEST_FIT = 0.3  # CPU seconds: below that a ratio to it says little
DIAGNOSED = hasattr(ConeNMF, "diagnose")


class Judged(NamedTuple):
    """A drawn set, what was said of its components, and what is true."""

    family: str
    kind: str
    seed: int
    may_choose: bool
    n_true: int
    grades: list[str]
    recovered: list[bool]
    surplus: list[bool]
    structure: str  # a grade, or "-"
    fit_seconds: float
    seconds: float  # of the verdict


def judged(family: Family, seed: int) -> Judged:
    """Draw a set, fit it, and ask for the verdict."""
    drawn = family.drawn(seed)
    model = ConeNMF(drawn.K, loss=drawn.loss, n_threads=1)
    fit_seconds, _ = timed(partial(model.fit, drawn.X))
    seconds, (grades, structure) = timed(partial(said, model, drawn.X, drawn.labels))
    is_true, is_surplus = recovered(model.components_, drawn.truth)
    n_true = 0 if drawn.truth is None else len(drawn.truth)
    about = (family.name, family.kind, seed, family.may_choose(seed), n_true)
    truth = is_true.tolist(), is_surplus.tolist()
    return Judged(*about, grades, *truth, structure, fit_seconds, seconds)


def said(model: ConeNMF, X: Any, labels: Any) -> tuple[list[str], str]:
    """The grades of the components and of the structure."""
    if not DIAGNOSED:
        verdicts = model.result_.uniqueness(max_iter=0).verdicts
        return ["interpret" if one == "unique" else "open" for one in verdicts], "-"
    verdict = model.diagnose(X, groups=labels)
    return list(verdict.components), {one[0]: one[1] for one in verdict.rows}["Structure"]


def compiled() -> None:
    """Make small fits of both losses and ask for their verdicts, so that no time has compiling."""
    for loss in ("frobenius", "poisson"):
        X = np.random.default_rng(0).poisson(5.0, (60, 20)).astype(float)
        said(ConeNMF(2, loss=loss, n_threads=1).fit(X), X, None)


def every(draws: int) -> Iterator[Judged | str]:
    """All sets of all families, so many seeds of each; for a set that fails, what was raised."""
    use_one_thread()
    warnings.simplefilter("ignore")
    compiled()
    for family in families():
        for seed in range(draws):
            try:
                yield judged(family, seed)
            except Exception:  # reported at the end: one set must not hide the others
                yield f"{family.name}, seed {seed}: {traceback.format_exc().strip()[-400:]}"


def print_all(draws: int) -> None:
    """Print every set as a line of JSON, for another process."""
    for one in every(draws):
        print(json.dumps(one))


def of_checkout(checkout: Path, draws: int) -> Iterator[Judged | str]:
    """The same sets, judged by another checkout."""
    with tempfile.TemporaryDirectory() as cache:
        source = str(checkout.resolve() / "src")
        program = f"import verdicts; verdicts.print_all({draws})"
        lines = output_of(program, PYTHONPATH=source, NUMBA_CACHE_DIR=cache).splitlines()
    for line in lines:
        one = json.loads(line)
        yield one if isinstance(one, str) else Judged(*one)


# --- what the goals ask -------------------------------------------------------------------------

Sets = list[Judged]


def of_kinds(sets: Sets, *kinds: str) -> Sets:
    return [one for one in sets if one.kind in kinds]


def share(part: int, whole: int) -> str:
    return f"{part / whole:.1%} of {whole}" if whole else "-"


def right(sets: Sets, grade: str = "interpret") -> tuple[int, int]:
    """Of components with this grade: recovered ones, all."""
    pairs = [pair for one in sets for pair in zip(one.grades, one.recovered, strict=True)]
    called = [is_true for said_of_it, is_true in pairs if said_of_it == grade]
    return sum(called), len(called)


def cover(sets: Sets) -> tuple[int, int]:
    """Of recovered components: those called interpret, all."""
    return right(sets)[0], sum(sum(one.recovered) for one in sets)


def worst(sets: Sets, measure: Callable[[Sets], tuple[int, int]], least: int) -> str:
    """The family with the smallest share, of those with so many cases."""
    found = []
    for name in dict.fromkeys(one.family for one in sets):
        part, whole = measure([one for one in sets if one.family == name])
        if whole >= max(least, 1):
            found.append((part / whole, f"{share(part, whole)} ({name})"))
    return min(found)[1] if found else "-"


def with_interpret(sets: Sets) -> str:
    return share(sum("interpret" in one.grades for one in sets), len(sets))


def structured(sets: Sets, *grades: str) -> str:
    return share(sum(one.structure in grades for one in sets), len(sets))


def well_recovered(sets: Sets) -> Sets:
    """Planted sets of which half of the true components are recovered."""
    return [one for one in sets if one.n_true and 2 * sum(one.recovered) >= one.n_true]


def surplus_called(sets: Sets) -> str:
    pairs = [pair for one in sets for pair in zip(one.grades, one.surplus, strict=True)]
    called = [grade == "interpret" for grade, is_surplus in pairs if is_surplus]
    return share(sum(called), len(called))


def price(sets: Sets) -> str:
    """Of sets whose fit takes long enough: the median and the largest price, in fits."""
    prices = [one.seconds / one.fit_seconds for one in sets if one.fit_seconds > SHORTEST_FIT]
    if not prices:
        return "-"
    return f"{statistics.median(prices):.2f}; {max(prices):.2f} of {len(prices)}"


PLANTS = "planted", "two too many", "one too few", "beside"
MAIN = *PLANTS, "one component", "noise", "repeated noise"


def goals(sets: Sets) -> Iterator[tuple[str, str, str]]:
    """What is measured, its goal, and what was found."""
    main, planted, noise, correlated, many = (
        of_kinds(sets, *kinds)
        for kinds in (MAIN, PLANTS, ("noise",), ("correlated",), ("two too many",))
    )
    known, unknown = (
        [one for one in sets if one.family == f"groups, labels {name}"]
        for name in ("known", "unknown")
    )
    yield "interpret: recovered, planted and noise", "95%", share(*right(main))
    yield "interpret: recovered, all families", "printed", share(*right(sets))
    yield "the same, worst planted family of 30 calls", "85%", worst(planted, right, 30)
    yield "recovered: called interpret", "80%", share(*cover(main))
    yield "the same, worst planted family", "35%", worst(planted, cover, 1)
    yield "groups, labels known: right", "80%", share(*right(known))
    yield "groups, labels known: covered", "40%", share(*cover(known))
    yield "groups, labels unknown: right", "printed", share(*right(unknown))
    yield "groups, labels unknown: covered", "printed", share(*cover(unknown))
    yield "with care: recovered", "about 40%", share(*right(main, "with care"))
    yield "do not: recovered", "at most 5%", share(*right(main, "do not"))
    yield "noise of five kinds: with an interpret", "at most 2%", with_interpret(noise)
    yield "noise of five kinds: structure poor", "90%", structured(noise, "poor")
    yield "correlated noise: with an interpret", "at most 10%", with_interpret(correlated)
    yield "correlated noise: structure good", "0%", structured(correlated, "good")
    halves = well_recovered(planted)
    yield "half recovered: structure poor or open", "0%", structured(halves, "poor", "open")
    yield "surplus of K two too large: interpret", "at most 5%", surplus_called(many)
    yield "price in fits above 0.3 s: median; worst", "3; 5", price(sets)


def family_rows(sets: Sets, title: str) -> None:
    """A line for each family: what was said of its components, and what is true."""
    heading(title, "sets", "components", "recovered", *(f"{one}: right" for one in GRADES),
            "covered", "with an interpret", "structure good", "fair", "poor", "open")  # fmt: skip
    names = dict.fromkeys(one.family for one in sets)
    for name in [*names, "in all"]:
        own = [one for one in sets if name in (one.family, "in all")]
        each = [share(*right(own, grade)) for grade in GRADES]
        structures = [one.structure for one in own]
        count = [structures.count(grade) for grade in ("good", "fair", "poor", "open")]
        components, found = sum(len(one.grades) for one in own), sum(sum(r.recovered) for r in own)
        row(name, len(own), components, found, *each, share(*cover(own)), with_interpret(own),
            *count)  # fmt: skip
    print()


def verdict(draws: int = 10, other: Path = Path()) -> None:
    """What the verdict says of components whose truth is known, by family, beside the goals."""
    sources = {"this": every(draws)}
    if other != Path():
        sources["other"] = of_checkout(other, draws)
    parts: dict[str, Sets] = {}
    failures: list[str] = []
    for checkout, source in sources.items():
        found = list(source)
        failures += [f"{checkout}: {one}" for one in found if isinstance(one, str)]
        sets = [one for one in found if isinstance(one, Judged)]
        parts[f"{checkout}, held out"] = [one for one in sets if not one.may_choose]
        parts[f"{checkout}, may choose"] = [one for one in sets if one.may_choose]
    for title, sets in parts.items():
        family_rows(sets, title)
    heading("what", "goal", *parts)
    for lines in zip(*map(goals, parts.values()), strict=True):
        row(*lines[0][:2], *(found for _, _, found in lines))
    print("\n".join([f"\n{len(failures)} sets failed", *failures]))


# --- real sets ----------------------------------------------------------------------------------

NAMED = "wine", "wine with its classes", "breast cancer", "stlouis"


def real_sets(data: Path) -> Iterator[tuple[str, Any, int, str]]:
    """Name, samples in rows, components and loss."""
    wine = load_wine(as_frame=True)
    yield "wine", wine.data, 3, "frobenius"
    yield "wine with its classes", wine.frame, 3, "frobenius"
    yield "breast cancer", load_breast_cancer(as_frame=True).data, 3, "frobenius"
    yield "iris", load_iris(as_frame=True).data, 2, "frobenius"
    yield "raw diabetes", load_diabetes(as_frame=True, scaled=False).data, 3, "frobenius"
    yield "digits", *load_real("digits"), "frobenius"
    if (data / "stlouis").exists():
        yield "stlouis", pd.read_csv(data / "stlouis" / "con.csv").iloc[:, 1:], 5, "frobenius"
    if (data / "samson").exists():
        yield "samson", np.load(data / "samson" / "V.npz")["V"], 3, "frobenius"
    others = {"orl_32x32": "frobenius", "pbmc_facs": "poisson", "re0": "poisson"}
    others["signatures/SBS_set1/catalog_Realistic.csv"] = "poisson"
    for name, loss in others.items():
        if (data / name).exists():
            yield name, *load_real(name, data), loss


def named(data: Path = Path("data")) -> None:
    """What the verdict says of the data of real sets, of which four need a warning."""
    heading("set", "expected", "data", "finding", "advice", "headline")
    for name, X, K, loss in real_sets(data):
        found = ConeNMF(K, loss=loss).fit(X).diagnose(X)
        _, grade, finding, advice = found.rows[0]
        row(name, "named" if name in NAMED else "silent", grade, finding, advice, found.headline)
