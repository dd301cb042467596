"""``python -m conenmf`` and the command ``conenmf``."""

from __future__ import annotations

import sys

from .signals import Terminated, handle_signals, raise_received, release_signals


def run() -> None:
    """Run the command line, or say which packages are missing."""
    handle_signals()  # first, because importing the rest takes a second
    try:
        code = _main()
    except ModuleNotFoundError as problem:
        if problem.name not in ("click", "rich"):
            raise
        advice = 'run pip install ".[cli]" in the folder of conenmf'
        print(
            f"conenmf: the command line needs the package {problem.name}: {advice}",
            file=sys.stderr,
        )
        code = 1
    except KeyboardInterrupt:  # raised just before or after the command, which handles its own
        code = 130
    except Terminated:
        code = 143
    release_signals()
    sys.exit(code)


def _main() -> int:
    """Import and run the command line; an error that follows a signal counts as the signal."""
    try:
        from .cli import main

        return main()
    except Exception:
        raise_received()
        raise


if __name__ == "__main__":
    run()
