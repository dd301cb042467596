"""What the reference adds to the docstrings of main functions: related ones, notes, publications.

Publications are written once here, so that they are the same wherever they are cited. A section
that a docstring has itself is left as it is.
"""

from __future__ import annotations

from typing import Any

PUBLICATIONS = {
    "paper": 'Z. Liu, V. Y. F. Tan, "Rank-One NMF-Based Initialization for NMF and Relative Error '
    'Bounds under a Geometric Assumption", IEEE Transactions on Signal Processing 65, 2017, '
    "arXiv:1612.08549",
    "nmf": 'D. D. Lee, H. S. Seung, "Learning the parts of objects by non-negative matrix '
    'factorization", Nature 401, 1999',
    "sweeps": 'N. Gillis, F. Glineur, "Accelerated multiplicative updates and hierarchical ALS '
    'algorithms for nonnegative matrix factorization", Neural Computation 24, 2012',
    "extrapolation": 'A. M. S. Ang, N. Gillis, "Accelerating nonnegative matrix factorization '
    'algorithms using extrapolation", Neural Computation 31, 2019',
    "pivoting": 'J. Kim, H. Park, "Fast nonnegative matrix factorization: an active-set-like '
    'method and comparisons", SIAM Journal on Scientific Computing 33, 2011',
    "eckart": 'C. Eckart, G. Young, "The approximation of one matrix by another of lower rank", '
    "Psychometrika 1, 1936",
    "parallel": 'J. L. Horn, "A rationale and test for the number of factors in factor analysis", '
    "Psychometrika 30, 1965",
    "farthest": 'T. F. Gonzalez, "Clustering to minimize the maximum intercluster distance", '
    "Theoretical Computer Science 38, 1985",
}

# Of each: related functions with a description, notes, publications.
RELATED: dict[str, tuple[dict[str, str], str, tuple[str, ...]]] = {
    "ConeNMF": (
        {
            "factorize": "The same in the paper's letters.",
            "select_k": "The number of components, and how sure it is.",
            "estimator.sklearn_init": "The init alone, for scikit-learn's NMF.",
        },
        "An iteration reads X once. The last step computes exact coefficients, so that "
        "``fit_transform(X)`` equals ``fit(X).transform(X)``. The problem is not convex: a fit is "
        "a local minimum, and `certify` tells how far its error can be from the smallest one.",
        ("paper", "nmf", "sweeps", "extrapolation"),
    ),
    "factorize": (
        {
            "ConeNMF": "The same for users of scikit-learn.",
            "compare": "Several inits and solvers side by side.",
            "cr1_nmf": "The factors of the cones, without a solver.",
        },
        "",
        ("paper", "sweeps", "extrapolation", "pivoting"),
    ),
    "Factorization": (
        {"factorize": "Computes one.", "write_report": "Writes its report."},
        "",
        (),
    ),
    "certify": (
        {
            "judge.certificate.lower_bound": "The bound alone.",
            "diagnose": "Whether the components may be interpreted.",
        },
        "It judges the error, not the components: others may have the same error (`uniqueness`).",
        ("eckart",),
    ),
    "diagnose": (
        {
            "certify": "The error and its lower bound.",
            "uniqueness": "How far other factors move each component.",
        },
        "",
        ("paper",),
    ),
    "cluster_cones": (
        {
            "cr1_nmf": "One component for each cone.",
            "cones.geometry.cone_geometry": "Whether the assumption of the theorems holds.",
        },
        "",
        ("paper", "farthest"),
    ),
    "cr1_nmf": (
        {
            "cluster_cones": "The cones.",
            "cones.bounds.deterministic_bound": "A bound for the error.",
            "factorize": "Improves these factors with a solver.",
        },
        "",
        ("paper",),
    ),
    "cones.counting.estimate_rank": (
        {"select_k": "This and other evidence."},
        "",
        ("paper",),
    ),
    "select_k": (
        {
            "components_for": "The number that an error needs, without assumptions.",
            "cones.counting.estimate_rank": "The paper's estimate.",
            "ConeNMF": 'With ``n_components="auto"``.',
        },
        "",
        ("paper", "parallel"),
    ),
    "components_for": (
        {"certify": "A lower bound for one number.", "select_k": "An estimate of the number."},
        "",
        ("eckart",),
    ),
    "compare": ({"factorize": "One init and one solver.", "select_k": "Several K."}, "", ()),
    "make_cones": (
        {"cones.simulate.make_cone_data": "The same, samples in rows, with labels."},
        "",
        ("paper",),
    ),
    "from_rows": (
        {"from_columns": "Samples in columns.", "open_data": "A file."},
        "",
        (),
    ),
    "from_columns": ({"from_rows": "Samples in rows.", "open_data": "A file."}, "", ()),
    "open_data": ({"from_rows": "An array, a data frame, a sparse matrix."}, "", ()),
    "tl.nmf": ({"ConeNMF": "The estimator.", "export.annotate": "From a result."}, "", ()),
}


# Descriptions of parameters that mean the same in many functions, for docstrings without one.
PARAMETERS = {
    "V": "The data, opened with `from_rows`, `from_columns` or `open_data`; samples are columns.",
    "W": "Components, one per column.",
    "H": "Coefficients, one column per sample.",
    "K": "The number of components.",
    "X": "Samples in rows; dense or sparse.",
    "n_components": "The number of components.",
    "labels": "The cone of each sample.",
    "result": "The result of `factorize`, or ``model.result_``.",
    "rng": "The source of random numbers.",
    "random_state": "The seed of random numbers.",
    "texts": "One string per text.",
    "n": "Their number.",
    "top": "How many features to show of each component, if features have names.",
    "image_shape": "Rows and columns, if features are the pixels of images.",
    "ax": "Where to draw; by default a new figure.",
    "against": "What is on the horizontal axis.",
    "key_added": "The key under which results are stored.",
    "max_iter": "The largest number of iterations.",
    "stopping": "When to stop.",
}


def described(lines: list[str]) -> list[str]:
    """The lines of a docstring, with a description of known parameters that have none."""
    found: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        found.append(line)
        name, colon, _ = line.partition(" : ")
        if colon and name in PARAMETERS and not following.startswith(" "):
            found.append(f"    {PARAMETERS[name]}")
    return found


def added(name: str, lines: list[str]) -> list[str]:
    """The sections to add to the docstring of a name of the reference."""
    functions, notes, publications = RELATED.get(name.removeprefix("conenmf."), ({}, "", ()))
    sections = {
        "See Also": [f"conenmf.{other} : {words}" for other, words in functions.items()],
        "Notes": [notes] if notes else [],
        "References": [f"- {PUBLICATIONS[key]}." for key in publications],
    }
    return [
        line
        for title, body in sections.items()
        if body and title not in (line.strip() for line in lines)
        for line in ("", title, "-" * len(title), *body, "")
    ]


def _extend(app: Any, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    lines[:] = described(lines) + added(name, lines)


def setup(app: Any) -> dict[str, bool]:
    """Before numpydoc reads the sections."""
    app.connect("autodoc-process-docstring", _extend, priority=390)
    return {"parallel_read_safe": True}
