"""What the programs on a page print is shown below them, in a block of text.

`python docs/_ext/outputs.py docs/text.md` runs the programs of a page, one after the other, and
writes what they print. The tests run them too and compare: words must be the same, numbers may
differ by a hundredth, because another processor rounds in another way. `...` is anything.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

PROGRAM = re.compile(
    r"^```python\n(?P<program>.*?)^```\n(?P<below>\n```text\n(?P<shown>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")
RELATIVE, ABSOLUTE = 1e-2, 1e-6


def printed(text: str, name: str, known: dict[str, object] | None = None) -> Iterator[str]:
    """Run the programs of a page in one namespace; yield what each prints."""
    names = {} if known is None else known
    for match in PROGRAM.finditer(text):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(match["program"], name, "exec"), names)
        yield "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def shown(text: str) -> list[str]:
    """What the page shows below each of its programs; nothing is an empty string."""
    return [(match["shown"] or "").rstrip() for match in PROGRAM.finditer(text)]


def alike(shown: str, printed: str) -> bool:
    """Whether two outputs have the same words, and numbers that are the same up to rounding."""
    if "..." in shown:
        parts = [re.escape(" ".join(part.split())) for part in shown.split("...")]
        return re.fullmatch(".*".join(parts), " ".join(printed.split())) is not None
    if NUMBER.sub("#", shown).split() != NUMBER.sub("#", printed).split():
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True)
    return all(
        abs(a - b) <= max(RELATIVE * abs(a), ABSOLUTE)
        for a, b in ((float(a), float(b)) for a, b in pairs)
    )


def with_outputs(text: str, outputs: list[str]) -> str:
    """The page with these outputs, except where what it shows is alike."""
    remaining = iter(outputs)

    def renewed(match: re.Match[str]) -> str:
        out = next(remaining)
        if alike((match["shown"] or "").rstrip(), out):
            return match[0]
        program = f"```python\n{match['program']}```\n"
        return program + (f"\n```text\n{out}\n```\n" if out else "")

    return PROGRAM.sub(renewed, text)


def main() -> None:
    """Write what the programs of the pages print."""
    warnings.simplefilter("ignore")
    os.environ.setdefault("MPLBACKEND", "Agg")
    for page in [Path(name).resolve() for name in sys.argv[1:]]:
        text = page.read_text("utf-8")
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            outputs = list(printed(text, page.name))
        page.write_text(with_outputs(text, outputs), "utf-8")
        print(page.name, "written")


if __name__ == "__main__":
    main()
