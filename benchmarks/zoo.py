"""The zoo: our default against a careful user of scikit-learn on 406 matrices; docs/speed.md.

``zoo.py --reference`` computes what scikit-learn reaches from nndsvda, nndsvd and three random
inits with max_iter=1000 and tol=1e-6, and from its default call, into ``zoo_reference.csv``; rows
that are there are kept. ``zoo.py`` then fits every matrix with ``ConeNMF(K)``, in turn with the
fastest of those runs that ends within 1.02 of the best, and prints the table. Errors below 1e-6
count as 1e-6: both are exact then. Seconds are CPU seconds with one thread for both, which depend
least on what else runs.

Constants of the library were chosen on the matrices of even number; the others are marked
"held out". Names choose the matrices that begin with one of them; ``--rounds 0`` measures errors
alone.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from measure import command, in_turn, relative_error, timed, use_one_thread, versions
from sklearn.decomposition import NMF
from zoo_matrices import Member, zoo

from conenmf import ConeNMF

REFERENCE = Path(__file__).with_name("zoo_reference.csv")
SMALLEST_ERROR = 1e-6
NEAR = 1.02  # of the best, where a run of scikit-learn counts for speed
SLACK_SECONDS = 0.05
LONG_SECONDS = 5.0  # a run of scikit-learn this long is timed once
CAREFUL = {"max_iter": 1000, "tol": 1e-6}
RUNS: dict[str, dict[str, Any]] = {
    "default": {"random_state": 0},
    "nndsvda": {"init": "nndsvda", "random_state": 0, **CAREFUL},
    "nndsvd": {"init": "nndsvd", "random_state": 0, **CAREFUL},
    "random0": {"init": "random", "random_state": 0, **CAREFUL},
    "random1": {"init": "random", "random_state": 1, **CAREFUL},
    "random2": {"init": "random", "random_state": 2, **CAREFUL},
}


def norm(X: Any) -> float:
    return float(np.linalg.norm(X.data if sp.issparse(X) else X))


def measured(member: Member) -> dict[str, object]:
    """The row of one matrix in the reference."""
    X, K = member.load()
    row: dict[str, object] = {"name": member.name, "samples": X.shape[0], "features": X.shape[1]}
    row |= {"K": K, "norm": f"{norm(X):.12g}"}
    for run, options in RUNS.items():
        model = NMF(K, **options)
        seconds, A = timed(partial(model.fit_transform, X))
        error = max(relative_error(X, A, model.components_), SMALLEST_ERROR)
        row |= {f"error_{run}": f"{error:.9g}", f"seconds_{run}": f"{seconds:.4g}"}
    return row


def read_reference() -> pd.DataFrame:
    """What scikit-learn reached, by the name of the matrix."""
    return pd.read_csv(REFERENCE, comment="#", index_col="name")


def write_reference(members: list[Member]) -> None:
    """Add the rows that are missing, each when it is computed."""
    if not REFERENCE.exists():
        packages = ", ".join(map(" ".join, versions().items()))
        columns = [f"{column}_{run}" for run in RUNS for column in ("error", "seconds")]
        titles = ",".join(["name", "samples", "features", "K", "norm", *columns])
        seeds = "seeds: see RUNS in zoo.py and draw in zoo_matrices.py"
        REFERENCE.write_text(f"# {packages}; {seeds}\n{titles}\n")
    known = read_reference().index
    for member in members:
        if member.name not in known:
            row = pd.DataFrame([measured(member)])
            row.to_csv(REFERENCE, mode="a", header=False, index=False)
            print(member.name, flush=True)


def best_of(row: pd.Series) -> float:
    return min(row[f"error_{run}"] for run in RUNS)


def fastest_near_best(row: pd.Series) -> str:
    """The run of scikit-learn that counts for speed."""
    near = [run for run in RUNS if row[f"error_{run}"] <= NEAR * best_of(row)]
    return min(near, key=lambda run: row[f"seconds_{run}"])


def compare(member: Member, row: pd.Series, rounds: int) -> dict[str, Any]:
    """Our default on one matrix beside the reference; in turn with scikit-learn, if rounds > 0."""
    X, K = member.load()
    if not np.isclose(norm(X), row["norm"], rtol=1e-9):
        raise SystemExit(f"{member.name} is not the matrix of the reference: NumPy draws otherwise")
    model, rival = ConeNMF(K, n_threads=1), fastest_near_best(row)
    contenders = {"ours": partial(model.fit_transform, X)}
    if rounds:
        contenders["theirs"] = partial(NMF(K, **RUNS[rival]).fit_transform, X)
    is_long = row[f"seconds_{rival}"] > LONG_SECONDS
    found = in_turn(contenders, 1 if is_long else max(rounds, 1))
    seconds, A = found["ours"]
    their_seconds = found["theirs"][0] if rounds else float("nan")
    error = max(relative_error(X, A, model.components_), SMALLEST_ERROR)
    return {
        "kind": member.kind,
        "half": "chosen on" if member.is_chosen_on else "held out",
        "ratio": error / best_of(row),
        "error": error,
        "seconds": seconds,
        "rival": rival,
        "their_seconds": their_seconds,
        "is_slower": bool(seconds > their_seconds + SLACK_SECONDS),
        "race": len(model.result_.race.entrants) if model.result_.race else 0,
    }


def print_table(rows: pd.DataFrame) -> None:
    """For each kind, each half and all: the ratios, and how often we are slower."""
    print("\nerror / best            n    median   <= 1.005   <= 1.02    worst  slower")
    groups = [*rows.groupby("kind", sort=False), *rows.groupby("half"), ("all", rows)]
    for title, group in groups:
        ratios = group["ratio"]
        within = [100 * (ratios <= limit).mean() for limit in (1.005, 1.02)]
        print(
            f"{title:20}{len(group):5}{ratios.median():10.5f}{within[0]:9.1f} %{within[1]:8.1f} %"
            f"{ratios.max():9.4f}{group['is_slower'].sum():8}"
        )


def main(*names: str, reference: bool = False, rounds: int = 3) -> None:
    use_one_thread()
    members = [one for one in zoo() if one.name.startswith(names or "")]
    if reference:
        write_reference(members)
        return
    known, rows = read_reference(), []
    for X in (np.eye(40), sp.csr_array(np.eye(40))):  # compiles
        ConeNMF(3, max_iter=3).fit(X)
    for member in members:
        if member.name not in known.index:
            print(f"{member.name}: not in the reference, left out")
            continue
        row = compare(member, known.loc[member.name], rounds)
        rows.append(row)
        marks = "" if member.is_chosen_on else "  held out"
        marks += "  ERROR" if row["ratio"] > 1.005 else ""
        marks += "  SLOWER" if row["is_slower"] else ""
        marks += f"  RACE of {row['race']}" if row["race"] else ""
        print(
            f"{member.name:44}{row['error']:12.6g}{row['ratio']:10.5f}{row['seconds']:9.3f}"
            f"{row['their_seconds']:9.3f} {row['rival']}{marks}",
            flush=True,
        )
    print_table(pd.DataFrame(rows))
    print(f"\nraces of inits: {sum(row['race'] > 0 for row in rows)}")


if __name__ == "__main__":
    command(__doc__, main)
