"""Files that hold a matrix: their formats, limits for untrusted ones, and how rows are read.

The only code that reads with h5py, Zarr, pyarrow and Pillow. Nothing is unpickled.
"""
