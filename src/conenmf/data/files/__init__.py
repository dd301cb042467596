"""Files that hold a matrix: what kind they are, what they may ask for, how their rows are read.

The only code that reads with h5py, Zarr, pyarrow and Pillow. Nothing is unpickled.
"""
