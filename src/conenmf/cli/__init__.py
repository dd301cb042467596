"""The command ``conenmf``; the only code that imports click and rich."""

from .commands import EXIT_CODES, app, main

__all__ = ["EXIT_CODES", "app", "main"]
