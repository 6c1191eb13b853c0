"""Posterior predictive checks: does the model produce data like the observed data?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jax import tree_util

from weighbridge.checking.pointwise import draws_of, rows_of
from weighbridge.core.checks import check_count, check_seed
from weighbridge.core.constants import PROBABILITY
from weighbridge.core.errors import DataError, MethodError
from weighbridge.core.pickling import travels
from weighbridge.core.tables.frames import Frame, Tabular
from weighbridge.core.tables.notebook import Page, Shown
from weighbridge.core.tables.summaries import highest_density_intervals
from weighbridge.core.tables.table import Table
from weighbridge.core.thresholds import MIN_TAIL_PROBABILITY
from weighbridge.core.types import PyTree
from weighbridge.data.values import num_rows, take_columns
from weighbridge.models.model import Model
from weighbridge.plots.checks import plot_checks
from weighbridge.results.prediction import Function, predict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

Statistic = Callable[[np.ndarray], Any]

STATISTICS: dict[str, Statistic] = {"mean": np.mean, "sd": np.std, "min": np.min, "max": np.max}
# Largest number of simulated values in memory.
HELD_VALUES = 2_000_000


@travels()
@dataclass(frozen=True, eq=False, repr=False)
class PredictiveCheck(Tabular, Shown):
    """Statistics of the data, compared with those of data simulated from the posterior.

    Attributes:
        observed: value of each statistic for the data.
        simulated: its values for the simulated data sets.
        probabilities: posterior predictive p-values: how often the simulated value exceeds the
            observed one (ties count half). Near 0 or 1 the model does not produce such data.
    """

    observed: dict[str, float]
    simulated: dict[str, np.ndarray]
    probabilities: dict[str, float]

    @property
    def extreme(self) -> tuple[str, ...]:
        """Statistics of the data that lie in the outer 2.5 % on either side."""
        tails = {name: min(p, 1 - p) for name, p in self.probabilities.items()}
        return tuple(name for name, tail in tails.items() if tail < MIN_TAIL_PROBABILITY)

    def plot(self, *, axes: Surface | None = None) -> Figure:
        """Histograms of the simulated statistics, with a line at the value of the data.

        Args:
            axes: where to draw: an empty matplotlib figure or subfigure, or one axes for each
                statistic.

        >>> check = PredictiveCheck({"mean": 0.0}, {"mean": np.arange(9.0)}, {"mean": 0.9})
        >>> check.plot().axes[0].get_title("left")
        'mean: p = 0.900'
        """
        return plot_checks(self.simulated, self.observed, self.probabilities, axes=axes)

    def summary(self, probability: float = PROBABILITY) -> Table:
        """Value of the data; median and highest-density interval (HDI) of simulations; p-value.

        Args:
            probability: mass inside the interval.

        >>> check = PredictiveCheck({"mean": 0.0}, {"mean": np.arange(9.0)}, {"mean": 0.9})
        >>> check.summary(0.5).columns
        ('data', '50%', '50% HDI low', '50% HDI high', 'p')
        """
        if not 0 < probability < 1:
            raise MethodError(f"probability must lie between 0 and 1, not {probability}.")
        rows = {}
        for name, values in self.simulated.items():
            low, high = highest_density_intervals(values, probability)
            middle, p = float(np.quantile(values, 0.5)), self.probabilities[name]
            rows[name] = (self.observed[name], middle, float(low), float(high), p)
        shortest = f"{100 * probability:g}% HDI"
        return Table(("data", "50%", f"{shortest} low", f"{shortest} high", "p"), rows)

    def _table(self) -> Table:
        """The summary with a remark for each extreme statistic."""
        table, rows = self.summary(), {}
        for name, (*numbers, _) in table.rows.items():
            said = "the model does not produce this" if name in self.extreme else ""
            rows[name] = (*numbers, f"{self.probabilities[name]:.3f}", said)
        return Table((*table.columns, ""), rows)

    def __str__(self) -> str:
        return str(self._table())

    def _frame(self) -> Frame:
        return self.summary()._frame()._replace(called="statistic")

    def _page(self) -> Page:
        table = self._table()
        return Page("data against data simulated from the posterior", table.columns, table.texts())

    def __repr__(self) -> str:
        text = ", ".join(f"{name} {p:.3f}" for name, p in self.probabilities.items())
        return f"<PredictiveCheck: p-values {text}>"


def predictive_check(
    posterior: Any,
    model: Model,
    simulate: Function,
    data: Any,
    statistic: Statistic | Mapping[str, Statistic] | None = None,
    *,
    observed: str | None = None,
    num_draws: int = 1000,
    seed: int = 0,
) -> PredictiveCheck:
    r"""Compare the data with data simulated from the posterior.

    .. math:: p_T = P(T(y^\text{rep}) \ge T(y) \mid y)

    Under a true model such p-values are not uniform but closer to 0.5, because the data were used
    twice. An extreme p-value is a clear sign of misfit; a central one does not prove a good fit.

    Args:
        posterior: a result with posterior draws, or draws by parameter name, chains x draws x
            shape.
        model: the model of the posterior.
        simulate: ``simulate(parameters, row)``, as in ``Evidence.predict``: a NumPyro distribution
            of the observed column, from which one value is drawn, or plain numbers.
        data: the rows. Repeated rows (``weight``) are simulated one by one.
        statistic: a function of the observed column, or several by name; by default mean, standard
            deviation, minimum and maximum.
        observed: name of the column that is simulated. By default the data themselves if they are
            one array, else the column "y".
        num_draws: number of simulated data sets.
        seed: the same seed gives the same numbers.

    >>> import numpyro.distributions as dist
    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(40, mean=0.0, seed=1)
    >>> mu = data.sum() / 41 + np.random.default_rng(0).normal(size=(4, 250)) / 41**0.5
    >>> model = wb.zoo.gaussian.model()
    >>> check = predictive_check({"mu": mu}, model, lambda p, row: dist.Normal(p["mu"], 1.0), data)
    >>> check.extreme
    ()
    >>> narrow = predictive_check({"mu": mu}, model, lambda p, row: dist.Normal(p["mu"], 0.5), data)
    >>> narrow.extreme
    ('sd', 'min', 'max')

    Reference: Gelman, Meng & Stern (1996), Statistica Sinica 6:733-760.
    """
    check_seed(seed)
    check_count("num_draws", num_draws)
    statistics = _check_statistics(statistic)
    draws = draws_of(posterior, model)
    values = _all_rows(model, data)
    column = _observed_column(values, observed)
    answer = {name: np.empty(num_draws) for name in statistics}
    chosen = draws.choose(num_draws, seed)
    at_once = max(1, min(num_draws, HELD_VALUES // max(column.size, 1)))
    for start in range(0, num_draws, at_once):
        block = chosen[start : start + at_once]
        some = {name: array[block] for name, array in draws.samples.items()}
        # Every block has its own stream of random numbers, which no other seed uses.
        stream = int(np.random.SeedSequence([seed, start]).generate_state(1, np.uint64)[0] >> 1)
        simulated = predict(simulate, some, values, seed=stream)
        if simulated.shape[1:] != column.shape:
            raise MethodError(
                f"simulate gives values of the shape {simulated.shape[2:]} for a row, and the "
                f"observed column has {column.shape[1:]}: they must be the same. Name the column "
                'that is simulated with observed="...".'
            )
        for name, function in statistics.items():
            for index, one in enumerate(simulated, start=start):
                answer[name][index] = _value(name, function, one)
    found = {name: _value(name, function, column) for name, function in statistics.items()}
    shares = {
        name: float(
            np.mean(answer[name] > found[name]) + 0.5 * np.mean(answer[name] == found[name])
        )
        for name in statistics
    }
    return PredictiveCheck(found, answer, shares)


def _check_statistics(
    statistic: Statistic | Mapping[str, Statistic] | None,
) -> dict[str, Statistic]:
    if statistic is None:
        return STATISTICS
    if callable(statistic):
        return {getattr(statistic, "__name__", "statistic"): statistic}
    if not isinstance(statistic, Mapping) or not statistic:
        raise MethodError(
            "statistic must be a function of the observed column, or a mapping from names to such "
            f"functions, not {statistic!r}."
        )
    for name, function in statistic.items():
        if not callable(function):
            raise MethodError(f"The statistic {name!r} is not a function: {function!r}.")
    return dict(statistic)


def _value(name: str, function: Statistic, column: np.ndarray) -> float:
    value = np.asarray(function(column))
    if value.size != 1:
        raise MethodError(
            f"The statistic {name!r} must give one number for a column of the shape "
            f"{column.shape}; it gives the shape {value.shape}."
        )
    return float(value.reshape(()))


def _all_rows(model: Model, data: Any) -> PyTree:
    """All observations; a row with weight k appears k times."""
    if model.log_likelihood is None:
        return take_columns(data).values
    values, weight = rows_of(model, data)
    counts = np.round(weight).astype(int)
    if not np.allclose(counts, weight):
        raise DataError(
            "The column 'weight' has values that are not integers: such rows cannot be simulated. "
            "Give the rows themselves."
        )
    return tree_util.tree_map(lambda leaf: np.repeat(leaf, counts, axis=0), values)


def _observed_column(values: PyTree, observed: str | None) -> np.ndarray:
    if isinstance(values, np.ndarray) and observed is None:
        return values.astype(np.float64)
    if isinstance(values, dict) and (observed or "y") in values:
        column = values[observed or "y"]
        if isinstance(column, np.ndarray) and num_rows(values):
            return column.astype(np.float64)
    known = sorted(values) if isinstance(values, dict) else "no named columns"
    raise DataError(
        f"There is no observed column {observed or 'y'!r}: the data has {known}. Name the one that "
        'is simulated, observed="...".'
    )
