"""Datasets as they are stored: numbers in folders, texts of CLUTO, archives."""

import io
import tarfile

import numpy as np
import scipy.sparse as sp


def place(folder, name, X, labels=None):
    """Write a dataset into a folder."""
    (folder / name).mkdir(parents=True)
    if sp.issparse(X):
        sp.save_npz(folder / name / "V.npz", X)
    else:
        np.savez_compressed(folder / name / "V.npz", V=X)
    if labels is not None:
        np.save(folder / name / "labels.npy", np.asarray(labels, np.int16))


def counts(rng, N=6, F=9):
    """Counts of terms, and classes."""
    return sp.csr_array(rng.poisson(0.7, (N, F)).astype(np.uint16)), np.arange(N) % 3


def cluto(X, classes):
    """The two texts of CLUTO."""
    lines = [f"{X.shape[0]} {X.shape[1]} {X.nnz}"]
    for row in X:
        row = sp.coo_array(row)
        pairs = zip(row.coords[-1], row.data, strict=True)
        lines.append(" ".join(f"{f + 1} {v:d}" for f, v in pairs))
    return "\n".join(lines) + "\n", "".join(f"{name}\n" for name in classes)


def tar(members):
    """An archive of members."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def cluto_archive(X, labels, name="tr11"):
    """CLUTO's archive, with members of no use."""
    matrix, classes = cluto(X, labels)
    return tar(
        {
            f"datasets/{name}.mat": matrix.encode(),
            f"datasets/{name}.mat.rclass": classes.encode(),
            "datasets/other.mat": b"of no use",
        }
    )
