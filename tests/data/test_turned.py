"""The transpose of a dense matrix shares its memory."""

from conenmf import from_columns


def test_turning_dense_data_copies_nothing(sample_matrix, holds):
    V = from_columns(sample_matrix, n_threads=3)
    T = V.turned()
    assert (T.n_threads, T.nonzero) == (3, 11)
    holds(T, sample_matrix.T)
    sample_matrix[2, 5] = 7.0
    assert T.columns([2])[5, 0] == V.columns([5])[2, 0] == 7.0
