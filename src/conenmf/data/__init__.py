"""The data: opening and validating a matrix, and the one way to read it, wherever it is kept.

`doors` opens, `validate` checks, `matrix` is the protocol that all algorithms use; `memory`,
`disk` and `cluster` are its storages, `views` are matrices made from others, `files`
reads file formats.
"""
