"""``python -m conenmf`` and the command ``conenmf``."""

from __future__ import annotations

import sys

from .signals import ExitSignals, Terminated

__all__ = ["run"]


def run() -> None:
    """Run the command line, or say what is missing for it."""
    signals = ExitSignals()
    signals.install()  # first: importing the rest takes a second
    try:
        from .cli import main
    except ModuleNotFoundError as problem:
        if problem.name not in ("click", "rich"):
            raise
        print(
            f"conenmf: the command line needs the package {problem.name}: run "
            'pip install ".[cli]" in the folder of conenmf',
            file=sys.stderr,
        )
        sys.exit(1)
    try:
        signals.begin()
        code = main()
        signals.end()
    except KeyboardInterrupt:  # just before or after the command, which handles its own
        code = 130
    except Terminated:
        code = 143
    signals.end()
    sys.exit(code)


if __name__ == "__main__":
    run()
