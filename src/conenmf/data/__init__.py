"""The data: the matrix, and the one way to read it, wherever it is kept.

`matrix` is the protocol that all algorithms use, `memory` holds it in this process, `views` are
matrices made from others, `known` holds which entries are known and their weights. `validate`
checks entries, `resources` says how much memory and how many threads there are.
"""
