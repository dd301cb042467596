"""The attack: random cases that try to break what docs/limitations.md guarantees.

Run it from the root of the repository: ``python -m attack`` or ``make attack``. Every case is drawn
from its kind, a seed and its number, so one line repeats it::

    python -m attack fits --seed 7 --first 1234 --cases 1

`cases` says what a case is and runs it, `__main__` lists what is attacked.
"""
