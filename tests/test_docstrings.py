"""Docstrings describe what is there: each parameter and field once, in order, under its name.

The sources are parsed, not imported. A class or function without sections needs none; one that has
a section must have it whole. What docs/api.rst lists must have sections.
"""

import ast
import re
from pathlib import Path

import pytest

import conenmf

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "conenmf"
TITLE = re.compile(r"^([A-Z][A-Za-z ]*)\n-{3,}\n", re.MULTILINE)
TITLES = {"Parameters", "Attributes", "Returns", "Raises", "Warns", "Notes", "Examples"}
NAME = r"\*{0,2}[A-Za-z]\w*"
HEAD = re.compile(rf"({NAME}(?:, {NAME})*)(?: : \S.*)?")
FULL_LINE = 30  # characters: shorter lines may be alike, such as those of two formulas


def titled(docstring):
    """Return the sections of a docstring by their titles; the text above them has none."""
    parts = TITLE.split(docstring)
    return [("", parts[0]), *zip(parts[1::2], parts[2::2], strict=True)]


def entries(section):
    """Return the unindented lines of a section, each with the lines indented below it."""
    found = [("", [])]
    for line in section.splitlines():
        if line.startswith(" "):
            found[-1][1].append(line.strip())
        elif line:
            found.append((line, []))
    return found if found[0][1] else found[1:]


def names_of_heads(section):
    matches = [HEAD.fullmatch(head) for head, _ in entries(section)]
    return [name for match in matches if match for name in match[1].split(", ")]


def faults_of_form(docstring):
    """Yield what no docstring may have, whatever it describes."""
    sections = titled(docstring)
    if len(dict(sections)) < len(sections) or not {title for title, _ in sections} <= {"", *TITLES}:
        yield f"sections {[title for title, _ in sections[1:]]}"
    for title, section in sections:
        if title in ("", "Notes", "Examples"):
            continue
        if not entries(section):
            yield f"{title}: empty"
        for head, body in entries(section):
            if title in ("Parameters", "Attributes") and not HEAD.fullmatch(head):
                yield f"{title}: no head line {head!r}"
            if head.endswith(".") or not head:
                yield f"{title}: text without a head line {head or body[0]!r}"
            if body and not re.search(r"[.:!?)]$", body[-1]):
                yield f"{title}: {head!r} ends without a full stop"
    lines = [line.strip() for line in docstring.splitlines()]
    lines = [line for line in lines if not line.startswith((">>>", "..."))]
    for number, line in enumerate(lines):
        if len(line) >= FULL_LINE and any(
            other.startswith(line) for other in lines[:number] + lines[number + 1 :]
        ):
            yield f"twice: {line!r}"


def parameters(function):
    """Return the parameters of a signature in its order, without self."""
    given = function.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args)]
    names += [f"*{given.vararg.arg}"] if given.vararg else []
    names += [argument.arg for argument in given.kwonlyargs]
    names += [f"**{given.kwarg.arg}"] if given.kwarg else []
    return [name for name in names if name not in ("self", "cls") and not name.startswith("_")]


def method(node, name):
    return next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == name), None)


def is_help_in(line):
    """Return whether a field is an option of the command line with a help text."""
    return isinstance(line.value, ast.Call) and ast.unparse(line.value.func) == "option"


class Sources:
    """The classes and functions of some modules, given as {name of the module: its text}."""

    def __init__(self, texts):
        self.nodes = {}
        for module, text in texts.items():
            self._collect(module, ast.parse(text).body)
        self.classes = {n.name: n for n in self.nodes.values() if isinstance(n, ast.ClassDef)}

    def _collect(self, where, body):
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.nodes[f"{where}.{node.name}"] = node
            if isinstance(node, ast.ClassDef):
                self._collect(f"{where}.{node.name}", node.body)

    def family(self, node):
        """Return a class after its bases, as far as they are ours."""
        names = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
        bases = [self.classes[name] for name in names if name in self.classes and name != node.name]
        return [*(relative for base in bases for relative in self.family(base)), node]

    def methods(self, where):
        """Return the places of the methods of a class that are called by their own names."""
        node = self.nodes[where]
        for line in node.body if isinstance(node, ast.ClassDef) else []:
            is_public = isinstance(line, ast.FunctionDef) and not line.name.startswith("_")
            if is_public and not any("property" in ast.unparse(w) for w in line.decorator_list):
                yield f"{where}.{line.name}"

    def fields(self, node):
        """Return the names that are annotated in the body of a class.

        An option of the command line has its help in the same line instead.
        """
        found = {}
        for relative in self.family(node):
            for line in relative.body:
                if isinstance(line, ast.AnnAssign) and is_help_in(line):
                    continue
                if isinstance(line, ast.AnnAssign) and not line.target.id.startswith("_"):
                    found.pop(line.target.id, None)  # one that is annotated again
                    found[line.target.id] = None
        return list(found)

    def further(self, node):
        """Return the properties of a class, its constants, and what methods assign to self."""
        found = set()
        for relative in self.family(node):
            for line in relative.body:
                if isinstance(line, ast.Assign):
                    found |= {ast.unparse(target) for target in line.targets}
            for part in ast.walk(relative):
                if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                    found.add(part.attr)
                if isinstance(part, ast.FunctionDef):
                    wrappers = [ast.unparse(wrapper) for wrapper in part.decorator_list]
                    found |= {part.name} if any("property" in w for w in wrappers) else set()
        return found

    def faults(self, where, must_have_sections=False):
        """Yield what is wrong with the docstring of a class or function."""
        node = self.nodes[where]
        docstring = ast.get_docstring(node) or ""
        yield from faults_of_form(docstring)
        described = {title: names_of_heads(section) for title, section in titled(docstring)}
        if isinstance(node, ast.FunctionDef):
            expected = parameters(node)
            missing = [] if must_have_sections else expected
            if described.get("Parameters", missing) != expected:
                yield f"Parameters: {described.get('Parameters')}, expected {expected}"
        else:
            yield from self._faults_of_class(node, described, must_have_sections)

    def _faults_of_class(self, node, described, must_have_sections):
        begin = next((b for c in self.family(node)[::-1] if (b := method(c, "__init__"))), None)
        fields = self.fields(node)
        signature = parameters(begin) if begin else fields
        if described.get("Parameters", signature) != signature:
            yield f"Parameters: {described['Parameters']}, expected {signature}"
        if begin is None and "Parameters" in described:
            fields = []
        attributes = described.get("Attributes", [] if must_have_sections else fields)
        if [name for name in attributes if name in fields] != fields:
            yield f"Attributes: {attributes}, expected {fields}"
        if unknown := set(attributes) - set(fields) - self.further(node):
            yield f"Attributes: {sorted(unknown)} are not there"


def module_name(path):
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


@pytest.fixture(scope="module")
def sources():
    return Sources({module_name(path): path.read_text("utf-8") for path in SOURCE.rglob("*.py")})


def listed():
    """Return the places of what docs/api.rst lists, without the errors."""
    text = (ROOT / "docs" / "api.rst").read_text("utf-8").partition("py:module")[0]
    names = re.findall(r"^   ([\w.]+)$", text, re.MULTILINE)
    homes = conenmf._HOMES
    return [
        f"conenmf.{homes[name]}.{name}" if name in homes else f"conenmf.{name}" for name in names
    ]


def test_sections_are_whole_and_in_the_order_of_the_signature(sources):
    found = {where: list(sources.faults(where)) for where in sources.nodes}
    assert len(found) > 1500
    assert {where: faults for where, faults in found.items() if faults} == {}


def test_what_the_reference_lists_has_sections(sources):
    places = [where for where in listed() if where != "conenmf.ConeNMFError"]
    assert len(places) > 50
    methods = [method for where in places for method in sources.methods(where)]
    assert len(methods) > 80
    places += methods
    found = {where: list(sources.faults(where, must_have_sections=True)) for where in places}
    assert {where: faults for where, faults in found.items() if faults} == {}


FUNCTION = '''
def fit(V, K, *rest, tol=1e-5, **options):
    """Fit V.

    Parameters
    ----------
    V : array (F, N)
        The data, whose entries must be nonnegative and finite.
    K : int
    *rest, tol
        As in `factorize`.
    **options
        Passed on.

    Returns
    -------
    W : array (F, K)
        The components.
    """
'''
RECORD = '''
class Result(Base):
    """A result.

    Attributes
    ----------
    error : float
        The error.
    W, H : array
        The factors.
    size : int
        The number of components.
    """

    error: float
    W: Array
    H: Array

    @property
    def size(self):
        return self.W.shape[1]
'''


@pytest.mark.parametrize(
    ("original", "damaged", "complaint"),
    [
        ("", "", None),
        ("    K : int\n", "", "Parameters: ['V', '*rest', 'tol', '**options'], expected ['V', 'K'"),
        ("K : int\n    *rest, tol", "*rest, tol", "expected ['V', 'K'"),
        ("    *rest, tol\n        As in `factorize`.", "    As in `factorize`.", "no head line"),
        ("    V : array (F, N)\n", "", "text without a head line"),
        ("    W : array (F, K)\n        The", "    The", "text without a head line"),
        ("V : array (F, N)", "W : array (F, N)", "Parameters: ['W', 'K'"),
        ("finite.\n", "finite.\n        which were checked before\n", "without a full stop"),
        ("tive and", "tive\n        The data, whose entries must be nonnegative and", "twice"),
        ("Returns\n    -------", "Parameters\n    ----------", "sections"),
        ("Returns\n    -------", "Result\n    ------", "sections"),
        ("    error : float\n        The error.\n", "", "Attributes: ['W', 'H', 'size'], expected"),
        (
            "        The error.\n    W, H",
            "        The error.\n        W, H",
            "Attributes: ['error', 'size']",
        ),
        ("W, H : array", "H, W : array", "Attributes: ['error', 'H', 'W', 'size'], expected"),
        ("size : int", "length : int", "['length'] are not there"),
    ],
)
def test_damage_is_found(original, damaged, complaint):
    texts = [text.replace(original, damaged, 1) for text in (FUNCTION, RECORD)]
    sources = Sources({"module": "".join(texts)})
    found = [*sources.faults("module.fit"), *sources.faults("module.Result")]
    assert any(complaint in fault for fault in found) if complaint else found == []


def test_required_sections_are_checked():
    program = "def fit(V):\n    'Fit V.'\nclass Result:\n    'A result.'\n    W: int"
    sources = Sources({"module": program})
    assert list(sources.faults("module.fit")) == list(sources.faults("module.Result")) == []
    assert list(sources.faults("module.fit", must_have_sections=True))
    assert list(sources.faults("module.Result", must_have_sections=True))
