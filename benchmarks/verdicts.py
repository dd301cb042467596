"""The verdict of `diagnose` beside the truth, over families of drawn data; and on real sets.

`verdict` and `named` are parts of certainty.py. Where a checkout has no verdict yet, a component
that it calls unique counts as one to interpret, and there is no grade of the structure.
"""

from __future__ import annotations

import json
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from families import Family, families, recovered
from measure import heading, output_of, row, timed, use_one_thread
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from zoo_matrices import load_real

from conenmf import ConeNMF

GRADES = "interpret", "with care", "do not", "open"
STRUCTURES = "good", "fair", "poor", "open"
SHORTEST_FIT = 0.3  # CPU seconds: below that a ratio to it says little
PLANTS = ["planted", "two too many", "one too few", "beside"]
MAIN = [*PLANTS, "one component", "noise", "repeated noise"]


def said(model: ConeNMF, X: Any, labels: Any) -> tuple[list[str], str]:
    """The grades of the components and of the structure."""
    if not hasattr(model, "diagnose"):
        verdicts = model.result_.uniqueness(max_iter=0).verdicts
        return ["interpret" if one == "unique" else "open" for one in verdicts], ""
    found = model.diagnose(X, groups=labels)
    (structure,) = (grade for name, grade, *_ in found.rows if name == "Structure")
    return list(found.components), structure


def judged(family: Family, seed: int) -> dict[str, Any]:
    """Draw a set, fit it, ask for the verdict, and compare it with the truth."""
    drawn = family.drawn(seed)
    model = ConeNMF(drawn.K, loss=drawn.loss, n_threads=1)
    fit_seconds, _ = timed(partial(model.fit, drawn.X))
    seconds, (grades, structure) = timed(partial(said, model, drawn.X, drawn.labels))
    is_true, is_surplus = recovered(model.components_, drawn.truth)
    return {
        "family": family.name,
        "kind": family.kind,
        "may_choose": family.may_choose(seed),
        "n_true": 0 if drawn.truth is None else len(drawn.truth),
        "n_recovered": int(is_true.sum()),
        "structure": structure,
        "fit_seconds": fit_seconds,
        "price": seconds / fit_seconds,
        "grade": grades,  # from here on one for each component
        "recovered": is_true.tolist(),
        "surplus": is_surplus.tolist(),
    }


def every(draws: int) -> Iterator[dict[str, Any]]:
    """All sets of all families, so many seeds of each; for a set that fails, what was raised."""
    use_one_thread()
    warnings.simplefilter("ignore")
    small = np.random.default_rng(0).poisson(5.0, (60, 20)).astype(float)
    for loss in ("frobenius", "poisson"):  # compiles
        said(ConeNMF(2, loss=loss, n_threads=1).fit(small), small, None)
    for family in families():
        for seed in range(draws):
            try:
                yield judged(family, seed)
            except Exception:  # reported at the end: one set must not hide the others
                yield {"failed": f"{family.name}, seed {seed}: {traceback.format_exc()[-400:]}"}


def print_all(draws: int) -> None:
    """Print every set as a line of JSON, for another process."""
    for one in every(draws):
        print(json.dumps(one))


def of_checkout(checkout: Path, draws: int) -> Iterator[dict[str, Any]]:
    """The same sets, judged by another checkout."""
    with tempfile.TemporaryDirectory() as cache:
        source = str(checkout.resolve() / "src")
        program = f"import verdicts; verdicts.print_all({draws})"
        printed = output_of(program, PYTHONPATH=source, NUMBA_CACHE_DIR=cache)
    return map(json.loads, printed.splitlines())


# --- tables: `sets` has a row for each set, `each` one for each component -----------------------

Frame = pd.DataFrame


def components_of(sets: Frame) -> Frame:
    each = sets.explode(["grade", "recovered", "surplus"])
    return each.astype({"recovered": bool, "surplus": bool})


def share(holds: pd.Series) -> str:
    return f"{holds.mean():.1%} of {len(holds)}" if len(holds) else "-"


def right(each: Frame, grade: str = "interpret") -> pd.Series:
    """Whether each component with this grade is recovered."""
    return each.recovered[each.grade == grade]


def covered(each: Frame) -> pd.Series:
    """Whether each recovered component is called interpret."""
    return each.grade[each.recovered] == "interpret"


def worst(each: Frame, measure: Callable[[Frame], pd.Series], least: int = 1) -> str:
    """The family with the smallest share, of those with so many cases."""
    found = {name: measure(own) for name, own in each.groupby("family")}
    enough = {name: holds for name, holds in found.items() if len(holds) >= least}
    if not enough:
        return "-"
    name = min(enough, key=lambda name: enough[name].mean())
    return f"{share(enough[name])} ({name})"


def structured(sets: Frame, *grades: str) -> str:
    """How many sets have one of these grades for their structure, if it was graded."""
    return share(sets.structure[sets.structure != ""].isin(grades))


def with_interpret(sets: Frame) -> str:
    return share(sets.grade.map(lambda grades: "interpret" in grades))


def price(sets: Frame) -> str:
    """The median and the largest price in fits, of sets whose fit takes long enough."""
    prices = sets.price[sets.fit_seconds > SHORTEST_FIT]
    return f"{prices.median():.2f}; {prices.max():.2f} of {len(prices)}" if len(prices) else "-"


def goals(sets: Frame) -> Iterator[tuple[str, str, str]]:
    """What is measured, its goal, and what was found."""
    each = components_of(sets)
    main, plants, many = (each[each.kind.isin(kinds)] for kinds in (MAIN, PLANTS, ["two too many"]))
    known, unknown = (each[each.family == f"groups, labels {one}"] for one in ("known", "unknown"))
    noise, correlated = (sets[sets.kind == kind] for kind in ("noise", "correlated"))
    well = sets[sets.kind.isin(PLANTS) & (2 * sets.n_recovered >= sets.n_true)]
    yield "interpret, planted and noise: recovered", "95 %", share(right(main))
    yield "the same, worst planted family of 30 calls", "85 %", worst(plants, right, 30)
    yield "interpret, all families: recovered", "", share(right(each))
    yield "recovered, planted and noise: interpret", "80 %", share(covered(main))
    yield "the same, worst planted family", "35 %", worst(plants, covered)
    yield "groups, labels known: right", "80 %", share(right(known))
    yield "groups, labels known: covered", "40 %", share(covered(known))
    yield "groups, labels unknown: right", "", share(right(unknown))
    yield "groups, labels unknown: covered", "", share(covered(unknown))
    yield "with care: recovered", "about 40 %", share(right(main, "with care"))
    yield "do not: recovered", "at most 5 %", share(right(main, "do not"))
    yield "noise of five kinds: with an interpret", "at most 1 of 50", with_interpret(noise)
    yield "noise of five kinds: structure poor", "45 of 50", structured(noise, "poor")
    yield "correlated noise: with an interpret", "at most 2 of 20", with_interpret(correlated)
    yield "correlated noise: structure good", "0", structured(correlated, "good")
    yield (
        "half recovered: structure poor or open",
        "0",
        share(well.structure.isin(["poor", "open"])),
    )
    yield (
        "surplus of K two too large: interpret",
        "5 %",
        share(many.grade[many.surplus] == "interpret"),
    )
    yield "price in fits above 0.3 s: median; worst", "3; 5", price(sets)


def print_families(sets: Frame, title: str) -> None:
    """A line for each family: what was said of its components and structure, and what is true."""
    heading(title, "sets", "components", "recovered", *(f"{one}: recovered" for one in GRADES),
            "recovered: interpret", "sets with an interpret", "/".join(STRUCTURES))  # fmt: skip
    each = components_of(sets)
    for name in [*sets.family.unique(), "in all"]:
        own, parts = (one[(one.family == name) | (name == "in all")] for one in (sets, each))
        calls = [share(right(parts, grade)) for grade in GRADES]
        structures = "/".join(str((own.structure == grade).sum()) for grade in STRUCTURES)
        numbers = len(own), len(parts), parts.recovered.sum()
        row(name, *numbers, *calls, share(covered(parts)), with_interpret(own), structures)
    print()


def verdict(draws: int = 10, other: Path = Path()) -> None:
    """What the verdict says of components whose truth is known, by family, beside the goals."""
    found = {"this": list(every(draws))}
    if other != Path():
        found["other"] = list(of_checkout(other, draws))
    parts: dict[str, Frame] = {}
    for checkout, each in found.items():
        sets = Frame([one for one in each if "failed" not in one])
        parts[f"{checkout}, held out"] = sets[~sets.may_choose]
        parts[f"{checkout}, may choose"] = sets[sets.may_choose]
    for title, sets in parts.items():
        print_families(sets, title)
    heading("what", "goal", *parts)
    for (what, goal, first), *rest in zip(*map(goals, parts.values()), strict=True):
        row(what, goal, first, *(cell for _, _, cell in rest))
    for checkout, each in found.items():
        failed = [one["failed"] for one in each if "failed" in one]
        print(f"\n{len(failed)} sets failed with {checkout}", *failed, sep="\n")


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
        (facts,) = (one for one in found.rows if one[0] == "Data")
        row(name, "named" if name in NAMED else "silent", *facts[1:], found.headline)
