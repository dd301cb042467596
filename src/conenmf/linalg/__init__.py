"""Linear algebra on a `DataMatrix`: nonnegative least squares and singular values."""
