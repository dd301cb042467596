"""Errors on the command line name flags, not the options of Python."""

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import conenmf
from conenmf.cli import app, error_line
from conenmf.cli.request import flags_of
from conenmf.errors import FileFormatError, Message, Option


def test_options_become_flags_and_nothing_else_changes():
    message = Message("dataset=1.csv: add ", Option("negative", "clip"), ", not negative='clip'")
    problem = FileFormatError(message)
    assert str(problem) == "dataset=1.csv: add negative='clip', not negative='clip'"
    line = error_line(problem, flags_of(app.get_command(None, "fit")))
    assert line == "dataset=1.csv: add --negative clip, not negative='clip'"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_and_a_folder_that_is_gone(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n" + "1,2\n2,5\n" * 6)
    command = [sys.executable, "-m", "conenmf"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*command, "rank", "x.csv"],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.stderr.endswith("conenmf: the output cannot be written: No space left on device\n")
    assert done.returncode == 5
    with open("/dev/full", "w") as full:  # where the message cannot be written either
        done = subprocess.run([*command, "rank", "gone.csv"], cwd=tmp_path, stderr=full)
    assert done.returncode == 3
    here = f"cd {tmp_path} && mkdir gone && cd gone && rmdir ../gone && exec "
    line = here + shlex.join([*command, "fit", str(tmp_path / "x.csv"), "-k", "1"])
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
    assert "No such file or directory" in done.stderr.splitlines()[-1]
    assert done.returncode == 3


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("K", "--components"),
        ("n_threads", "--threads"),
        ("max_memory", "--max-memory"),
        ("samples_in", "--samples-in"),
        ("image_shape", "--image-shape"),
        ("dataset", "--dataset"),
        ("negative", "--negative"),
        ("view", "--view"),
        ("init", "--init"),
        ("solver", "--solver"),
        ("max_iter", "--max-iter"),
        ("tol", "--tol"),
        ("max_time", "--max-time"),
        ("checkpoint", "--checkpoint"),
        ("tables", "--tables"),
        ("missing", "--missing"),
        ("alpha_W", "--alpha-w"),
    ],
)
def test_flags_are_found_by_the_names_of_python(name, flag):
    assert flags_of(app.get_command(None, "fit"))[name] == flag


def test_no_error_that_a_command_can_meet_spells_an_option_by_itself():
    root = Path(conenmf.__file__).parent
    python_only = {"cli", "datasets", "estimator.py", "tl.py"}
    names = set().union(
        *(flags_of(app.get_command(None, name)) for name in app.list_commands(None))
    )
    several_words = "|".join(name for name in names if "_" in name)
    spelled = re.compile(rf"(?<![\w.])(({'|'.join(names)})=|({several_words})\b)")
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] in python_only:
            continue
        for statement in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(statement, ast.Raise):
                for part in ast.walk(statement):
                    text = part.value if isinstance(part, ast.Constant) else None
                    if isinstance(text, str) and text not in names:
                        assert not spelled.search(text), f"{path}:{part.lineno}: use Option"
