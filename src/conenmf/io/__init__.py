"""Files that hold a matrix: each format is read by the library of its field.

`open` has the functions that open a matrix, `formats` knows which file is read by which module,
`source` has the two ways in which rows are read block by block, and `limits` the few checks that
libraries leave to their callers. Nothing is unpickled.
"""
