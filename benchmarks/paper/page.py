"""One page from the rows that the scripts kept: every table and figure, and a verdict per claim.

Writes ``page.html`` with everything inside, and ``page.md`` with its pictures, beside the rows.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path

from presentation import NOT_MEASURED, Section, Text, Verdict, as_html, as_markdown
from protocol import command_line, folder_of, kept, put

HEADING = "The paper, reproduced"
SCRIPTS = {  # which makes a section, and whose rows it takes
    "figure1": "figure1",
    "figure2": "figure2",
    "table1": "table1",
    "figure3": "figure3",
    "table2": "table2",
    "table3": "races",
    "table4": "races",
    "figure4": "races",
    "table5": "races",
    "supplement": "races",
    "figure6": "figure6",
    "table6": "table6",
    "table7": "table7",
    "beyond": "beyond",
    "open_noise": "open_noise",
    "open_sampling": "open_sampling",
    "open_online": "open_online",
}


def write(folder: Path, published: Path | None = None) -> Path:
    """Write the page of the rows in a folder, and one without photographs elsewhere."""
    sections: dict[str, Section] = {}
    origins: dict[str, dict] = {}
    for script, name in SCRIPTS.items():
        rows = kept(folder / f"{name}.csv")
        module = importlib.import_module(script)
        if rows:
            facts = origins[name] = json.loads((folder / f"{name}.json").read_text())
            sections[module.TITLE] = module.show(rows).without(facts["missing"])
        else:
            missing = "its datasets are not on this machine, or its script has not run"
            verdict = Verdict(module.TITLE, NOT_MEASURED, missing)
            sections[module.TITLE] = Section([Text(f"Not measured: {missing}.")], [verdict])
    page, origin = folder / "page.html", _origin(list(origins.values()))
    put(page, as_html(HEADING, sections, origin).encode())
    _write_markdown(folder, sections, origin)
    if published is not None:
        open_ones = {name: section.without_photographs() for name, section in sections.items()}
        _write_markdown(published, open_ones, origin)
    return page


def _write_markdown(folder: Path, sections: dict[str, Section], origin: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for section in sections.values():
        for picture in section.pictures():
            put(folder / picture.name, picture.png)
    put(folder / "page.md", as_markdown(HEADING, sections, origin).encode())


def _origin(facts: list[dict]) -> str:
    """Seeds, scale, machine and versions of all rows; more than one of each if they differ."""
    runs = [run for found in facts for run in found["runs"]]
    text = {
        "seed": {str(found["seed"]) for found in facts},
        "scale": {found["scale"] for found in facts},
        "cores": {str(run["machine"]["cores"]) for run in runs},
        "processor": {str(run["machine"]["processor"]) for run in runs},
        "versions": {
            ", ".join(f"{name} {number}" for name, number in run["versions"].items() if number)
            for run in runs
        },
    }
    return "; ".join(f"{name}: {' / '.join(sorted(values))}" for name, values in text.items()) + "."


if __name__ == "__main__":
    parser = command_line(__doc__)
    parser.add_argument("--publish", type=Path, help="write it here too, without photographs")
    given = parser.parse_args()
    print(write(folder_of(given), given.publish))
