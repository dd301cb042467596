"""One page from the rows that the scripts kept: every table and figure, and a verdict per claim.

Writes ``page.md`` with its pictures, and ``page.html`` with everything inside, beside the rows.
"""

from __future__ import annotations

import csv
import importlib
import json
from pathlib import Path

import presentation
from protocol import folder_of, options

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


def read(folder: Path, name: str) -> list[presentation.Row]:
    """The rows that a script kept; none if it has not run."""
    path = folder / f"{name}.csv"
    if not path.exists():
        return []
    with open(path, newline="") as stream:
        return list(csv.DictReader(stream))


def write(folder: Path) -> Path:
    """Write the page of the rows in a folder."""
    sections, origins = {}, {}
    for script, name in SCRIPTS.items():
        rows = read(folder, name)
        if not rows:
            continue
        module = importlib.import_module(script)
        section = module.show(rows)
        for picture in section.pictures():
            (folder / picture.name).write_bytes(picture.png)
        sections[module.TITLE] = section
        origins[name] = json.loads((folder / f"{name}.json").read_text())
    title = "The paper, reproduced"
    origin = _origin(list(origins.values()))
    (folder / "page.md").write_text(presentation.as_markdown(title, sections, origin))
    page = folder / "page.html"
    page.write_text(presentation.as_html(title, sections, origin))
    return page


def _origin(facts: list[dict]) -> str:
    """Seeds, scale, machine and versions of all rows; more than one of each if they differ."""
    told = {
        "seed": {str(found["seed"]) for found in facts},
        "scale": {found["scale"] for found in facts},
        "cores": {str(found["machine"]["cores"]) for found in facts},
        "processor": {str(found["machine"]["processor"]) for found in facts},
        "versions": {
            ", ".join(f"{name} {number}" for name, number in found["versions"].items() if number)
            for found in facts
        },
    }
    return "; ".join(f"{name}: {' / '.join(sorted(values))}" for name, values in told.items()) + "."


if __name__ == "__main__":
    print(write(folder_of(options(__doc__))))
