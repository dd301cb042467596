"""Data larger than memory: blocks of files, Dask, checkpoints."""
