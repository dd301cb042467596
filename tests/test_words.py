"""The words people read: those that the glossary rules out are in no page, docstring or message."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs").glob("*.rst")),
    *sorted((ROOT / "docs" / "reproduction").glob("*.md")),
    *sorted((ROOT / "src").rglob("*.html")),
    *sorted((ROOT / "examples").rglob("*.rst")),
]
PROGRAMS = sorted(
    path
    for folder in ("src", "examples", "benchmarks", "attack")
    for path in (ROOT / folder).rglob("*.py")
)
GLOSSARY = ROOT / "docs" / "glossary.md"


def ruled_out():
    _, _, table = GLOSSARY.read_text("utf-8").partition("## Words that are not used")
    rows = re.findall(r"^\| (`.+`) \| .+ \|$", table, re.MULTILINE)
    return [word for row in rows for word in re.findall(r"`([^`]+)`", row)]


PATTERN = re.compile(
    rf"(?<!new )\b({'|'.join(word.replace(' ', chr(92) + 's+') for word in ruled_out())})\b",
    re.IGNORECASE,
)


def hits(text, name, first_line=1):
    return [
        f"{name}:{first_line + text.count(chr(10), 0, match.start())}: {match.group()}"
        for match in PATTERN.finditer(text)
    ]


def strings(path):
    """Every string of a program with its line: docstrings, messages, help; and its comments."""
    text = path.read_text("utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    for number, line in enumerate(text.splitlines(), 1):
        comment = re.search(r"(?:^|\s)# (.+)$", line)
        if comment:
            yield number, comment.group(1)


def test_the_scan_finds_what_it_looks_for():
    assert len(ruled_out()) > 20
    assert hits("It is\nTold anew; to be\n had.", "page") == [
        "page:2: Told",
        "page:2: anew",
        "page:2: to be\n had",
    ]
    assert not hits("foretold, startling, the dearth", "page")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_use_the_words_of_the_glossary(path):
    text = path.read_text("utf-8")
    if path == GLOSSARY:
        text = text.partition("## Words that are not used")[0]
    assert hits(text, path.name) == []


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_programs_use_the_words_of_the_glossary(path):
    name = path.relative_to(ROOT).as_posix()
    problems = {problem for line, text in strings(path) for problem in hits(text, name, line)}
    assert sorted(problems) == []
