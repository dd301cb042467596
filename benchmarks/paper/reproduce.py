"""The paper's tables and figures: compute rows that are missing, and write the page made of them.

    python benchmarks/paper/reproduce.py table1 --full --minutes 30    rows of a part, its section
    python benchmarks/paper/reproduce.py                               everything, then page.md
    python benchmarks/paper/reproduce.py --committed                   docs/reproduction/page.md

``--full`` has the repetitions of the paper, ``--rows`` keeps rows in another folder than
results/quick or results/full, and no row begins after so many ``--minutes``. ``--committed`` takes
the rows in ``docs/reproduction/rows`` alone and writes the page of the documentation,
docs/reproduction.md, beside that folder: every verdict there follows from these rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import cited_inits
import clustering
import cones
import counting
import numpy as np
import open_problems
import races
from experiment import Experiment, Part, facts, kept, put
from measure import command
from page import NOT_MEASURED, Picture, Row, Section, Verdict, table

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
    "cited_inits": cited_inits.CITED_INITS,
    "figure6": clustering.FIGURE_6,
    "example": cones.EXAMPLE,
    "table6": clustering.TABLE_6,
    "table7": clustering.TABLE_7,
    "open_noise": open_problems.NOISE,
}


def sections(folder: Path) -> dict[str, Section]:
    """What the rows in a folder show, by part."""
    made = {}
    for name, part in PARTS.items():
        source = part.rows or name
        rows = kept(folder, source)
        if not rows:
            why = "its datasets are not on this machine, or its script has not run"
            verdict = Verdict(part.title, NOT_MEASURED, why)
            made[name] = Section([f"Not measured: {why}."], [verdict])
            continue
        made[name] = part.show(rows)
        missing = ", ".join(facts(folder, source)["missing"])
        if missing:
            note = f"Not on the machine where this was measured: {missing}."
            made[name] = Section([*made[name].body, note], made[name].verdicts)
    return made


def origin(folder: Path) -> Iterator[str]:
    """How many rows there are, their seeds and scales, and the versions that computed them."""
    sources = {name: facts(folder, name) for name in PARTS if (folder / f"{name}.json").exists()}
    sources |= {"races": facts(folder, "races")} if (folder / "races.json").exists() else {}
    lines = [
        [f"`{name}.csv`", len(kept(folder, name)), told["scale"], told["seed"]]
        for name, told in sources.items()
    ]
    yield table(["rows", "number", "scale", "seed"], lines)
    runs = [run for told in sources.values() for run in told["runs"]]
    used = {" ".join(map(str, run["machine"].values())) for run in runs}
    used |= {", ".join(map(" ".join, run["versions"].items())) for run in runs}
    yield f"Cores, processor and versions: {'; '.join(sorted(used))}."


def verdict_table(*shown: Section) -> str:
    verdicts = [verdict for section in shown for verdict in section.verdicts]
    return table(["claim", "verdict", "evidence"], verdicts)


def pages(rows: Path) -> tuple[dict[str, str], list[Picture]]:
    """The page of the paper and that of the open problem, by file, and their pictures."""
    made = sections(rows)
    pictures = [one for shown in made.values() for one in shown.body if isinstance(one, Picture)]
    noise = made.pop("open_noise")
    parts = ["# The paper, reproduced", "## Claims of the paper", verdict_table(*made.values())]
    for name, section in made.items():
        parts += [f"## {PARTS[name].title}", *map(str, section.body)]
    texts = {
        "page.md": [*parts, "## The rows", *origin(rows)],
        "open_noise.md": [*map(str, noise.body), verdict_table(noise)],
    }
    return {name: "\n\n".join(text) + "\n" for name, text in texts.items()}, pictures


def write(rows: Path, folder: Path) -> Path:
    """Write the pages of some rows, and their pictures, into a folder."""
    texts, pictures = pages(rows)
    for picture in pictures:
        put(folder / picture.name, picture.png)
    for name, text in texts.items():
        put(folder / name, text)
    return folder / "page.md"


def compute(name: str, scale: str, seed: int, folder: Path, minutes: float = np.inf) -> list[Row]:
    """The rows of a part, all that can be had within the time."""
    experiment = Experiment(PARTS[name].rows or name, PARTS[name], scale, seed, folder)
    experiment.run(minutes)
    return experiment.rows


def main(
    *parts: str,
    full: bool = False,
    seed: int = 0,
    rows: str = "",
    minutes: float = np.inf,
    committed: bool = False,
) -> None:
    unknown = [name for name in parts if name not in PARTS]
    if unknown:
        raise SystemExit(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if committed:
        print(write(COMMITTED, COMMITTED.parent))
        return
    scale = "full" if full else "quick"
    folder = Path(rows or Path(__file__).parent / "results" / scale)
    for name in parts or PARTS:
        found = compute(name, scale, seed, folder, minutes)
        if found and parts:
            section = PARTS[name].show(found)
            print("", *section.body, verdict_table(section), sep="\n\n")
    if not parts:
        print(write(folder, folder))


if __name__ == "__main__":
    command(__doc__, main)
