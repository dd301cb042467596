"""Measurements with uncertainties: categories of species, Q of starts, bootstrap, and tables.

`measurements` opens concentrations and uncertainties. As in EPA PMF, a species may be weak, which
triples its uncertainties; bad, which leaves it out; or the total, such as PM2.5, which is weak too,
and in whose units contributions are reported. `bootstrap` says in how many fits of resampled data
each component is found again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.random import default_rng
from numpy.typing import ArrayLike

from ..arguments import generator, instance, integer, number, optional
from ..data.blocks import over
from ..data.known import choose_features, observed_only
from ..data.matrix import DataMatrix
from ..data.views import take_samples
from ..errors import NotAvailableError, Option, OptionError
from ..export import write_csv
from ..io.open import from_rows
from ..judge.displacement import displacement
from ..result import Factorization
from ..solve.alternate import alternate
from ..types import Array, Rng

RESIDUALS_FILE = "residuals.csv"
Q_FILE = "q.csv"
DISPLACEMENT_FILE = "displacement.csv"
BOOTSTRAP_FILE = "bootstrap.csv"
TOTAL_FILE = "total.csv"
RATIO = "Q / expected Q"
_MOST_RUNS = 10_000  # of a bootstrap, whose profiles are held in memory
_OF_WEAK = 3.0  # times the uncertainties of a weak species, as in EPA PMF
_LIMITS = (0.05, 0.95)  # quantiles of shares in a bootstrap


@dataclass(frozen=True)
class Species:
    """Names or positions of weak and bad species, and of the total species.

    Attributes
    ----------
    weak, bad : iterable of str or int
    total : str or int, optional
    """

    weak: Iterable[str | int] = ()
    bad: Iterable[str | int] = ()
    total: str | int | None = None

    def apply(self, V: DataMatrix) -> DataMatrix:
        """Return V without bad species, with three times the uncertainties of weak ones.

        Parameters
        ----------
        V : DataMatrix (F, N)
            With uncertainties, if a species is weak or the total.
        """
        F = V.n_features
        weak = V.names.positions("weak", self.weak, F)
        bad = V.names.positions("bad", self.bad, F)
        total = [] if self.total is None else V.names.positions("total", [self.total], F)
        if not (weak or bad or total):
            return V
        if (weak or total) and (V.observed is None or not V.observed.of_sigma):
            raise OptionError(
                "weak and total species change uncertainties, and there are none: give ",
                Option("sigma"),
            )
        for both in sorted({*bad} & {*weak, *total}):
            raise OptionError(f"{V.names.feature(both)} is bad, and weak or the total: choose one")
        kept = np.setdiff1d(np.arange(F), bad)
        if not kept.size:
            raise OptionError("all species are bad: keep at least one")
        factors = np.where(np.isin(kept, weak + total), _OF_WEAK, 1.0)
        chosen = choose_features(V, kept, factors)
        remarks = []
        for kind, places in (("weak", weak), ("left out", bad), ("total", total)):
            if places:
                remarks.append(f"{kind}: {', '.join(map(V.names.feature, places))}")
        chosen.remarks = (*V.remarks, "; ".join(remarks))
        return chosen


ALL_STRONG = Species()


def measurements(
    X: object,
    sigma: object = None,
    *,
    weak: Iterable[str | int] = (),
    bad: Iterable[str | int] = (),
    total: str | int | None = None,
    **options: object,
) -> DataMatrix:
    """Open measurements with their uncertainties, and say which species are less certain.

    Parameters
    ----------
    X : anything that `from_rows` reads, samples in rows, or a matrix that is open
    sigma : array like X, optional
        The uncertainties; not needed if X is open and has them.
    weak : iterable of names or positions
        Species with three times the uncertainty.
    bad : iterable of names or positions
        Species that are left out.
    total : name or position, optional
        The species that is the sum of the others, such as PM2.5. It is weak, so that it hardly
        changes the fit.
    **options
        Options of `from_rows`, such as ``missing=-999``.

    Examples
    --------
    >>> from conenmf.names import Names
    >>> X = np.array([[2.0, 1.0, 3.0, 9.0], [1.0, 3.0, 4.0, 2.0], [4.0, 1.0, 5.0, 7.0]])
    >>> names = Names.of(feature_names=["Fe", "Zn", "mass", "Cd"])
    >>> V = measurements(X, 0.1 * X, bad=["Cd"], total="mass", names=names)
    >>> V.shape, V.remarks[-1]
    ((3, 3), 'left out: Cd; total: mass')
    """
    V = X if isinstance(X, DataMatrix) else from_rows(X, sigma=sigma, **options)  # type: ignore[arg-type]
    if V is X and sigma is not None:
        V = observed_only(V, sigma=sigma)
    return Species(weak, bad, total).apply(V)


def Q_of_starts(result: Factorization) -> Array:
    """Return Q of each start of a fit with uncertainties: the first init, then random starts.

    The starts are those of ``result.race.entrants``; with `n_init`, each ran to its end.

    Parameters
    ----------
    result : Factorization
    """
    result = instance("result", result, Factorization)
    if "Q" not in result.settings or result.race is None:
        raise NotAvailableError(
            "Q of starts needs a fit with uncertainties and several starts: fit with ",
            Option("n_init", 20),
        )
    errors = np.array([one.relative_error for one in result.race.entrants])
    return result.settings["Q"] * (errors / result.relative_error) ** 2


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """In how many fits of resampled data each component was found, and limits of its entries.

    Attributes
    ----------
    found : array (K,), integers
    n_runs : int
    W : array (F, K)
        The components, each with a sum of one.
    lower, upper : arrays (F, K)
        The 5 and 95 % quantiles of the entries in the runs that found the component; NaN if none
        did.
    """

    found: Array
    n_runs: int
    W: Array
    lower: Array
    upper: Array

    def __str__(self) -> str:
        counts = ", ".join(map(str, self.found.tolist()))
        return f"bootstrap of {self.n_runs} runs: components were found in {counts}"


def bootstrap(
    result: Factorization, n_runs: int = 100, *, min_correlation: float = 0.6, rng: Rng = None
) -> Bootstrap:
    """Fit resampled samples many times, and count in how many runs each component is found.

    As in EPA PMF, each run draws samples with replacement and begins with the given components. A
    component of the run belongs to the component of the result with whose contributions it
    correlates most, and only if the correlation is above `min_correlation`.

    Parameters
    ----------
    result : Factorization
        A fit by least squares, with its data.
    n_runs : int
    min_correlation : float
    rng : numpy.random.Generator, optional

    Examples
    --------
    >>> from conenmf import factorize
    >>> X = np.kron(np.eye(2), np.ones((9, 4))) * default_rng(0).random((18, 8))
    >>> bootstrap(factorize(measurements(X, 0.1 + 0 * X), 2), 10).found
    array([10, 10])
    """
    result = instance("result", result, Factorization)
    integer("n_runs", n_runs, at_least=2, at_most=_MOST_RUNS)
    number("min_correlation", min_correlation, at_least=0, at_most=1)
    optional(generator, "rng", rng)
    result.problem.require_no_effects("bootstrap")
    draws = default_rng(0) if rng is None else rng
    V = result.data
    if V is None or "sigma" not in result.problem.loss.constraints:
        raise NotAvailableError("a bootstrap needs the data of the fit, by least squares")
    H = np.asarray(result.H if V.unweighed is None else V.unweighed.weighed(result.H))
    solver = result.problem.loss.solver("auto")
    found = np.zeros(result.K, int)
    shares = np.full((n_runs, *result.W.shape), np.nan)
    for run in range(n_runs):
        drawn = np.sort(draws.integers(V.n_samples, size=V.n_samples))
        part = take_samples(V, drawn)
        objective = result.problem.bind(part, solver).objective(part)
        fit = alternate(part, result.W, H[:, drawn], solver, objective=objective)
        of_run = _centred(np.asarray(fit.H))
        correlations = _centred(H[:, drawn]) @ of_run.T  # (K of the result, K of the run)
        owners = correlations.argmax(axis=0)
        is_like = correlations.max(axis=0) > min_correlation
        for k in np.unique(owners[is_like]):
            own = np.where(is_like & (owners == k), correlations[k], -1.0).argmax()
            found[k] += 1
            shares[run, :, k] = over(fit.W[:, own], fit.W[:, own].sum())
    limits = np.full((2, *result.W.shape), np.nan)
    is_found = found > 0
    limits[:, :, is_found] = np.nanquantile(shares[:, :, is_found], _LIMITS, axis=0)
    return Bootstrap(found, n_runs, over(result.W, result.W.sum(axis=0)), *limits)


def _centred(H: Array) -> Array:
    """Return rows of mean zero and length one; zeros for constant rows."""
    rows = H - H.mean(axis=1, keepdims=True)
    return over(rows, np.linalg.norm(rows, axis=1, keepdims=True))


def write_bootstrap(folder: Path, result: Factorization, found: Bootstrap) -> None:
    """Write in how many runs each component was found, and the limits of its entries."""
    rows = _entries(result, found.W, found.lower, found.upper, found.found.tolist())
    header = ("component", "feature", "value", "lower", "upper", f"found in, of {found.n_runs}")
    write_csv(folder / BOOTSTRAP_FILE, header, rows)


def _entries(result: Factorization, W: Array, *given: ArrayLike) -> list[tuple[object, ...]]:
    """Return a row for each entry of each component: it, and what is given of it."""
    columns = [np.broadcast_to(one, W.shape) for one in given]
    rows = []
    for k, f in np.ndindex(W.T.shape):
        rows.append((k, result.names.feature(f), W[f, k], *(one[f, k] for one in columns)))
    return rows


def write_total(folder: Path, result: Factorization, total: str | int) -> Array:
    """Write how much of the total species each component contributes; return the mean shares."""
    (place,) = result.names.positions("total", [total], result.n_features)
    amounts = np.asarray(result.H).T * result.W[place]
    rows = [(result.names.sample(n), *row) for n, row in enumerate(amounts.tolist())]
    write_csv(folder / TOTAL_FILE, ("sample", *result.component_names), rows)
    means = amounts.mean(axis=0)
    return over(means, means.sum())


def write_residuals(folder: Path, result: Factorization, species: Species = ALL_STRONG) -> None:
    """Write the residuals in units of sigma, and Q of each sample and of each feature.

    The table of features has the category of each; bad ones come last, without Q.
    """
    left = result.residuals()
    names = result.names
    features = [names.feature(f) for f in range(result.n_features)]
    rows = []
    for n, ratio in enumerate(left.by_sample.tolist()):
        scaled = left.scaled[n].tolist()
        rows.append((names.sample(n), ratio, *scaled))
    write_csv(folder / RESIDUALS_FILE, ("sample", RATIO, *features), rows)
    of_features: list[tuple[str, object, str]] = []
    for feature, ratio in zip(features, left.by_feature.tolist(), strict=True):
        kind = "weak" if feature in species.weak else "strong"
        of_features.append((feature, ratio, "total" if feature == species.total else kind))
    of_features += [(str(feature), "", "bad") for feature in species.bad]
    write_csv(folder / Q_FILE, ("feature", RATIO, "category"), of_features)


def write_displacement(folder: Path, result: Factorization, rises: Sequence[float]) -> None:
    """Write how far each entry of each component can move, for each rise of Q."""
    assert result.data is not None
    found = displacement(result.data, result.W, result.H, rises, problem=result.problem)
    rows = []
    for given in zip(found.rises, found.lower, found.upper, strict=True):
        rows += _entries(result, found.W, *given)
    header = ("component", "feature", "value", "rise of Q", "lower", "upper")
    write_csv(folder / DISPLACEMENT_FILE, header, rows)
