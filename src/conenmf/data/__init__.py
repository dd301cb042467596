"""The data: the matrix, and the one way to read it, wherever it is kept.

`matrix` is the protocol that all algorithms use, `memory` holds it in this process, `views` are
matrices made from others, `known` says which entries are known and what they weigh. `validate`
checks entries, `resources` says how much memory and how many threads there are.
"""
