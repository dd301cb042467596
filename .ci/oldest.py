"""Print the oldest versions that pyproject.toml allows, as constraints for pip (`make oldest`).

They are those of the library and of what its users combine it with; tools that only check the code
(pytest, mypy, ruff) are left at their newest.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = ("fast", "disk", "files", "dask", "plot", "cli")
BESIDES = ("anndata", "pandas", "polars", "scikit-image")  # of the extra `test`


def oldest():
    """Yield `name==version` for every requirement `name>=version`."""
    extras = PROJECT["optional-dependencies"]
    besides = (line for line in extras["test"] if line.startswith(BESIDES))
    optional = (line for extra in EXTRAS for line in extras[extra])
    for line in (*PROJECT["dependencies"], *optional, *besides):
        found = re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", line)
        if found:
            yield f"{found[1]}=={found[2]}"
        elif not line.startswith("conenmf["):
            sys.exit(f"{line}: expected name>=version")


print(*oldest(), sep="\n")
