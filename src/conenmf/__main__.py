"""``python -m conenmf`` and the command ``conenmf``."""

from __future__ import annotations

import sys

__all__ = ["run"]


def run() -> None:
    """Run the command line, or say what is missing for it."""
    try:
        from .cli import main
    except KeyboardInterrupt:
        sys.exit(130)
    except ModuleNotFoundError as problem:
        if problem.name not in ("click", "rich"):
            raise
        print(
            f"conenmf: the command line needs the package {problem.name}: "
            "pip install 'conenmf[cli]'",
            file=sys.stderr,
        )
        sys.exit(1)
    sys.exit(main())


if __name__ == "__main__":
    run()
