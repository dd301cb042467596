"""One page from the rows that the scripts kept: every table and figure, and a verdict per claim.

Writes ``page.md`` with its pictures beside the rows. With ``--committed`` it takes the rows in
``docs/reproduction/rows`` and writes the page of the documentation beside that folder: every
verdict there follows from these rows alone.
"""

from __future__ import annotations

import importlib
import json
import statistics
from pathlib import Path

from presentation import (
    NOT_MEASURED,
    Row,
    Section,
    Table,
    Text,
    Verdict,
    as_markdown,
    grouped,
)
from protocol import command_line, folder_of, kept, put
from starts import DETERMINISTIC

HEADING = "The paper, reproduced"
COMMITTED = Path(__file__).parents[2] / "docs" / "reproduction" / "rows"
SCRIPTS = {  # which makes a section, and whose rows it takes
    "figure1": "figure1",
    "figure2": "figure2",
    "figure2_right": "figure2_right",
    "table1": "table1",
    "figure3": "figure3",
    "violated": "violated",
    "ard": "ard",
    "table2": "table2",
    "table3": "table3",
    "table4": "races",
    "figure4": "races",
    "table5": "races",
    "supplement": "races",
    "figure6": "figure6",
    "example": "example",
    "table6": "table6",
    "table7": "table7",
    "beyond": "beyond",
    "open_noise": "open_noise",
    "open_sampling": "open_sampling",
    "open_online": "open_online",
}
RACES = ("dataset", "solver", "init")
REPEATED = {  # what is repeated: the columns that name a case, and the paper's number
    "figure2": (("alpha", "project"), "50 matrices of 20 runs"),
    "figure2_right": (("alpha", "N"), "10 matrices of 10 runs"),
    "table1": (("N",), "not said"),
    "figure3": (("delta", "N"), "1000"),
    "violated": (("beta", "delta", "N"), "no numbers"),
    "ard": (("delta",), "no numbers"),
    "table3": (("dataset", "init"), "20"),
    "table4": (RACES, "20"),
    "figure4": (RACES, "20"),
    "table5": (RACES, "20"),
    "supplement": (RACES, "not said; the first run is drawn here"),
    "figure6": (("init",), "pictures of one run"),
    "table6": (RACES, "10"),
    "table7": (RACES, "10"),
    "beyond": (RACES, "no such experiment"),
    "open_noise": (("delta",), "no such experiment"),
    "open_sampling": (("dataset", "init", "r"), "no such experiment"),
    "open_online": (("dataset", "order"), "no such experiment"),
}
OURS = ("beyond", "open_noise", "open_sampling", "open_online")  # no claims of the paper


def sections(folder: Path) -> dict[str, Section]:
    """What the rows in a folder show, by the title of each script; the last lists the rows."""
    made: dict[str, Section] = {}
    origins: dict[str, dict] = {}
    for script, name in SCRIPTS.items():
        rows = kept(folder / f"{name}.csv")
        module = importlib.import_module(script)
        if rows:
            facts = json.loads((folder / f"{name}.json").read_text())
            origins[name] = facts | {"rows": len(rows)}
            shown = module.show(rows).without(facts["missing"])
            body = [*shown.body, *_repetitions(script, rows)]
            made[module.TITLE] = Section(body, shown.verdicts)
        else:
            missing = "its datasets are not on this machine, or its script has not run"
            verdict = Verdict(module.TITLE, NOT_MEASURED, missing)
            made[module.TITLE] = Section([Text(f"Not measured: {missing}.")], [verdict])
    return made | {"The rows": _origin(origins)}


def _repetitions(script: str, rows: list[Row]) -> list[Text]:
    """How often the cases of a table were repeated, and in the paper."""
    if script not in REPEATED:
        return []  # nothing is drawn
    columns, theirs = REPEATED[script]
    drawn = [row for row in rows if row.get("init") not in DETERMINISTIC]
    counts = [len(group) for group in grouped(drawn, *columns).values()]
    fewest, most = min(counts), max(counts)
    often = f"{fewest} to {most}, {statistics.median_low(counts)} in the median"
    often = often if fewest < most else f"{most}"
    cases = ", ".join(columns)
    return [Text(f"Repetitions of each case ({cases}): {often}. In the paper: {theirs}.")]


def apart() -> list[str]:
    """The titles of the sections that judge no claim of the paper."""
    return [importlib.import_module(script).TITLE for script in OURS]


def write(made: dict[str, Section], folder: Path) -> Path:
    """Write the page and its pictures into a folder."""
    for section in made.values():
        for picture in section.pictures():
            put(folder / picture.name, picture.png)
    page = folder / "page.md"
    put(page, as_markdown(HEADING, made, apart()).encode())
    return page


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
    return Section([Table(["rows", "number", "scale", "seed"], lines), Text(f"{told}.")])


if __name__ == "__main__":
    parser = command_line(__doc__)
    parser.add_argument("--committed", action="store_true", help="from the committed rows alone")
    given = parser.parse_args()
    rows = COMMITTED if given.committed else folder_of(given)
    print(write(sections(rows), COMMITTED.parent if given.committed else rows))
