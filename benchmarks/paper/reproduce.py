"""The paper's tables and figures: compute rows that are missing, and write the page made of them.

    python benchmarks/paper/reproduce.py table1 --full --minutes 30    rows of a part, its section
    python benchmarks/paper/reproduce.py                               everything, then page.md
    python benchmarks/paper/reproduce.py --committed                   docs/reproduction/page.md

``--committed`` takes the rows in ``docs/reproduction/rows`` alone and writes the page of the
documentation, docs/reproduction.md, beside that folder: every verdict there follows from these
rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import beyond
import clustering
import cones
import counting
import races
from presentation import (
    NOT_MEASURED,
    Picture,
    Row,
    Section,
    Table,
    Verdict,
    as_markdown,
    grouped,
    verdict_table,
)
from protocol import SCALES, Experiment, Part, TimeIsUp, kept, put
from starts import DETERMINISTIC

HEADING = "The paper, reproduced"
COMMITTED = Path(__file__).parents[2] / "docs" / "reproduction" / "rows"
PARTS: dict[str, Part] = {
    "figure1": cones.FIGURE_1,
    "figure2": cones.FIGURE_2,
    "figure2_right": cones.FIGURE_2_RIGHT,
    "table1": cones.TABLE_1,
    "figure3": counting.FIGURE_3,
    "violated": counting.VIOLATED_ASSUMPTION,
    "ard": counting.ARD,
    "table2": races.TABLE_2,
    "table3": races.TABLE_3,
    "table4": races.TABLE_4,
    "figure4": races.FIGURE_4,
    "table5": races.TABLE_5,
    "supplement": races.SUPPLEMENT,
    "figure6": clustering.FIGURE_6,
    "example": cones.EXAMPLE,
    "table6": clustering.TABLE_6,
    "table7": clustering.TABLE_7,
    "beyond": beyond.INITS_AND_SOLVERS,
    "open_noise": beyond.OPEN_NOISE,
    "open_sampling": beyond.OPEN_SAMPLING,
    "open_online": beyond.OPEN_ONLINE,
}
APART = [part.title for part in PARTS.values() if part.is_ours]


def sections(folder: Path) -> dict[str, Section]:
    """What the rows in a folder show, by the title of each part; the last lists the rows."""
    made: dict[str, Section] = {}
    origins: dict[str, dict] = {}
    for name, part in PARTS.items():
        source = part.rows or name
        rows = kept(folder / f"{source}.csv")
        if rows:
            facts = json.loads((folder / f"{source}.json").read_text())
            origins[source] = facts | {"rows": len(rows)}
            shown = part.show(rows)
            missing = ", ".join(facts["missing"])
            notes = [f"Not on the machine where this was measured: {missing}."] if missing else []
            body = [*shown.body, *notes, *_repetitions(part, rows)]
            made[part.title] = Section(body, shown.verdicts)
        else:
            missing = "its datasets are not on this machine, or its script has not run"
            verdict = Verdict(part.title, NOT_MEASURED, missing)
            made[part.title] = Section([f"Not measured: {missing}."], [verdict])
    return made | {"The rows": _origin(origins)}


def _repetitions(part: Part, rows: list[Row]) -> list[str]:
    """How often the cases of a table were repeated, and in the paper."""
    if part.repeated is None:
        return []  # nothing is drawn
    columns, theirs = part.repeated
    drawn = [row for row in rows if row.get("init") not in DETERMINISTIC]
    counts = [len(group) for group in grouped(drawn, *columns).values()]
    fewest, most = min(counts), max(counts)
    often = f"{fewest} to {most}, {statistics.median_low(counts)} in the median"
    often = often if fewest < most else f"{most}"
    return [f"Repetitions of each case ({', '.join(columns)}): {often}. In the paper: {theirs}."]


def _origin(origins: dict[str, dict]) -> Section:
    """How many rows there are, their seeds, scales, machines and versions."""
    lines = [
        [f"`{name}.csv`", facts["rows"], facts["scale"], facts["seed"]]
        for name, facts in origins.items()
    ]
    runs = [run for facts in origins.values() for run in facts["runs"]]
    text = {
        "cores": {str(run["machine"]["cores"]) for run in runs},
        "processor": {str(run["machine"]["processor"]) for run in runs},
        "versions": {
            ", ".join(f"{name} {number}" for name, number in run["versions"].items() if number)
            for run in runs
        },
    }
    told = "; ".join(f"{name}: {' / '.join(sorted(values))}" for name, values in text.items())
    return Section([Table(["rows", "number", "scale", "seed"], lines), f"{told}."])


def write(made: dict[str, Section], folder: Path) -> Path:
    """Write the page and its pictures into a folder."""
    for section in made.values():
        for picture in section.body:
            if isinstance(picture, Picture):
                put(folder / picture.name, picture.png)
    page = folder / "page.md"
    put(page, as_markdown(HEADING, made, APART).encode())
    return page


def compute(name: str, scale: str, seed: int, folder: Path, **limits: object) -> list[Row]:
    """The rows of a part, all that can be had within the limits."""
    source = PARTS[name].rows or name
    experiment = Experiment(source, PARTS[name], scale, seed, folder, **limits)
    try:
        experiment.run()
    except TimeIsUp:
        print("The time is up; the rows so far are kept.")
    return experiment.rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(PARTS)}")
    for scale in SCALES:
        parser.add_argument(f"--{scale}", dest="scale", action="store_const", const=scale)
    parser.set_defaults(scale="quick")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--rows", type=Path, help="keep rows in this folder, for every scale")
    parser.add_argument("--minutes", type=float, help="begin no row of a part after so many")
    parser.add_argument("--only", help="for now, this one of several datasets or sizes")
    parser.add_argument("--committed", action="store_true", help="from the committed rows alone")
    given = parser.parse_args()
    unknown = [name for name in given.parts if name not in PARTS]
    if unknown:
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if given.committed:
        print(write(sections(COMMITTED), COMMITTED.parent))
        return
    folder = given.rows or given.results / given.scale
    limits = {"minutes": given.minutes, "only": given.only}
    for name in given.parts or PARTS:
        rows = compute(name, given.scale, given.seed, folder, **limits)
        section = PARTS[name].show(rows) if rows and given.parts else Section([])
        for part in (*section.body, verdict_table(section.verdicts)) if section.body else ():
            print(f"\n{part}")
    if not given.parts:
        print(write(sections(folder), folder))


if __name__ == "__main__":
    main()
