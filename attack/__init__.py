"""The attack: damaged files, random numbers, wrong calls and faults, for minutes or for hours.

Run it from the root of the repository: ``python -m attack`` or ``make attack``. Every case is
drawn from its kind, a seed and its number, so that one line repeats it::

    python -m attack one csv --seed 7 --case 1234

`cases` says what a case is and what counts as a failure, `workers` runs cases in processes that
may crash or hang, `campaign` deals out the cases and keeps the `ledger`. What is attacked is in
`numbers`, `squares`, `pairs`, `options`, `calls`, `identity`, `kills`, `interrupts` and `forks`.
"""
