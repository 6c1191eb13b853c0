"""Predictive draws: the posterior distribution of observations that were not seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.checks import check_seed
from weighbridge.core.compilation import double_precision
from weighbridge.core.constants import PROBABILITY
from weighbridge.core.errors import DataError, MethodError, ModelError
from weighbridge.core.pickling import travels
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.tables.frames import Frame, Tabular
from weighbridge.core.tables.notebook import MOST_ROWS, Page, Shown
from weighbridge.core.tables.summaries import highest_density_intervals
from weighbridge.core.tables.table import Table
from weighbridge.core.types import Array, PyTree
from weighbridge.data.values import num_rows, take_columns
from weighbridge.plots.predictions import plot_bands, plot_draws

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

Function = Callable[..., Any]
IntervalKind = Literal["highest density", "equal-tailed"]

# Draws used at once, and values computed at once: only the answer itself needs much memory.
BLOCK_DRAWS = 1024
BLOCK_VALUES = 65_536
# Number of values printed, and largest number of draws for which a notebook shows the figure.
SHOWN = 10
DRAWN_AT_SIGHT = 2_000_000


@travels()
@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Tabular, Shown):
    """Draws from a predictive distribution, with their summaries.

    Attributes:
        draws: draws x rows x shape of a value; without rows, draws x shape of a value.
        num_rows: number of predicted rows; None if the function took none.
        probabilities: probabilities of the averaged models, by name; None for a single model.

    >>> prediction = Prediction(np.array([[0.0, 5.0], [2.0, 7.0]]), num_rows=2)
    >>> prediction.mean.tolist(), prediction.quantile(0.5).tolist()
    ([1.0, 6.0], [1.0, 6.0])
    >>> print(prediction)
    2 draws of 2 rows
           mean  sd  50%  94% HDI low  94% HDI high
    row 0     1   1    1            0             2
    row 1     6   1    6            5             7
    """

    draws: np.ndarray
    num_rows: int | None = None
    probabilities: dict[str, float] | None = None

    @property
    def num_draws(self) -> int:
        """Number of draws of each row."""
        return len(self.draws)

    @property
    def mean(self) -> Any:
        """Predictive mean of every row."""
        return self.draws.mean(axis=0)

    @property
    def sd(self) -> Any:
        """Predictive standard deviation of every row."""
        return self.draws.std(axis=0)

    def quantile(self, q: float | Sequence[float]) -> Any:
        """Quantiles of every row; several quantiles are along the first axis.

        Args:
            q: probability below the quantile, one or several.

        >>> Prediction(np.arange(5.0)).quantile([0.25, 0.5])
        array([1., 2.])
        """
        levels = np.asarray(q, float)
        if not np.all((levels >= 0) & (levels <= 1)):
            raise MethodError(f"A quantile must lie between 0 and 1, not {q!r}.")
        return np.quantile(self.draws, levels, axis=0)

    def interval(
        self, probability: float = PROBABILITY, kind: IntervalKind = "highest density"
    ) -> tuple[Any, Any]:
        """Lower and upper end of the interval of every row.

        Args:
            probability: mass inside the interval.
            kind: "highest density", the shortest interval that holds the probability, or
                "equal-tailed", between two quantiles.

        >>> prediction = Prediction(np.array([0.0, 1.0, 2.0, 9.0, 16.0]))
        >>> [float(end) for end in prediction.interval(0.6)]
        [0.0, 2.0]
        >>> [float(end) for end in prediction.interval(0.5, "equal-tailed")]
        [1.0, 9.0]
        """
        if not 0 < probability < 1:
            raise MethodError(f"probability must lie between 0 and 1, not {probability}.")
        if kind == "equal-tailed":
            tail = 0.5 * (1 - probability)
            lower, upper = self.quantile((tail, 1 - tail))
            return lower, upper
        if kind != "highest density":
            raise MethodError(f'kind must be "highest density" or "equal-tailed", not {kind!r}.')
        return highest_density_intervals(self.draws, probability)

    def summary(self, probability: float = PROBABILITY) -> Table:
        """Mean, standard deviation, median and highest-density interval (HDI) of every value.

        Args:
            probability: mass inside the interval.

        >>> Prediction(np.array([[0.0, 5.0], [2.0, 7.0]]), num_rows=2).summary(0.5).columns
        ('mean', 'sd', '50%', '50% HDI low', '50% HDI high')
        """
        return self._summary(probability, None)

    def _summary(self, probability: float, most: int | None) -> Table:
        """The summary of the first ``most`` values."""
        indices = islice(np.ndindex(self.draws.shape[1:]), most)
        labels = [_label(index, self.num_rows is not None) for index in indices]
        values = Prediction(self.draws.reshape(self.num_draws, -1)[:, :most])
        ends = values.interval(probability)
        numbers = np.vstack([values.mean, values.sd, values.quantile(0.5), *ends])
        shortest = f"{100 * probability:g}% HDI"
        columns = ("mean", "sd", "50%", f"{shortest} low", f"{shortest} high")
        return Table(columns, {n: column.tolist() for n, column in zip(labels, numbers.T)})

    def plot(
        self,
        x: Any = None,
        *,
        axes: Surface | None = None,
        probability: float = PROBABILITY,
    ) -> Figure:
        """Mean and intervals of every row, or the histogram of a value without rows.

        Args:
            x: position of each row on the horizontal axis; by default its number.
            axes: where to draw: an empty matplotlib figure or subfigure, or one axes per component
                of a value.
            probability: mass of the highest-density intervals; inner ones hold half.

        >>> figure = Prediction(np.zeros((9, 3)), num_rows=3).plot(x=[0.0, 0.5, 2.0])
        >>> figure.axes[0].get_xlabel()
        'x'
        """
        if self.num_rows is None:
            if x is not None:
                raise MethodError("x is for rows, but this prediction has none: leave x out.")
            flat = self.draws.reshape(self.num_draws, -1)
            return plot_draws(flat, axes=axes, probability=probability)
        places = None if x is None else np.asarray(x, float)
        if places is not None and places.shape != (self.num_rows,):
            raise MethodError(
                f"x must be one number for each of the {self.num_rows} rows; its shape is "
                f"{places.shape}."
            )
        by_row = self.draws.reshape(self.num_draws, self.num_rows, -1)
        return plot_bands(by_row, places, axes=axes, probability=probability)

    def _header(self) -> str:
        plural = "" if self.num_rows == 1 else "s"
        of_rows = "" if self.num_rows is None else f" of {self.num_rows:,} row{plural}"
        header = f"{self.num_draws:,} draws{of_rows}"
        if self.probabilities is not None:
            shares = (f"{name} ({value:.4g})" for name, value in self.probabilities.items())
            header += f", averaged over {', '.join(shares)}"
        return header

    def _more(self, shown: int) -> list[str]:
        more = math.prod(self.draws.shape[1:]) - shown
        return [f"and {more:,} more values: see draws, mean, interval()"] if more > 0 else []

    def __str__(self) -> str:
        table = self._summary(PROBABILITY, SHOWN)
        return "\n".join([self._header(), str(table), *self._more(SHOWN)])

    def _frame(self) -> Frame:
        return self.summary()._frame()._replace(called="value")

    def _page(self) -> Page:
        table = self._summary(PROBABILITY, MOST_ROWS)
        return Page(self._header(), table.columns, table.texts(), self._more(MOST_ROWS))

    def _small_figure(self) -> Figure | None:
        return self.plot() if self.draws.size <= DRAWN_AT_SIGHT else None

    def __repr__(self) -> str:
        return f"<Prediction: {str(self).splitlines()[0]}>"


def _label(index: tuple[int, ...], has_rows: bool) -> str:
    row = f"row {index[0]}" if has_rows else "value"
    rest = index[1:] if has_rows else index
    return f"{row} [{','.join(map(str, rest))}]" if rest else row


@double_precision
def predict(
    function: Function, samples: Mapping[str, np.ndarray], inputs: Any = None, *, seed: int = 0
) -> np.ndarray:
    r"""One predictive draw for every parameter draw and every row.

    .. math:: y_{ik} \sim p(y | \theta_i, x_k)

    Args:
        function: ``function(parameters, row)``, or ``function(parameters)`` without inputs. It
            returns a NumPyro distribution, from which one value is drawn, or plain numbers. It is
            compiled once for each function object and shape, as with ``jax.jit``.
        samples: equally weighted draws by parameter name, the draw along the first axis.
        inputs: the rows, in any form that ``wb.evidence`` accepts.
        seed: the same seed gives the same numbers.

    Returns:
        Draws x rows x value, or draws x value without inputs.

    >>> predict(lambda p, x: p["w"] * x, {"w": np.array([1.0, 2.0])}, [1.0, 10.0])
    array([[ 1., 10.],
           [ 2., 20.]])
    """
    check_seed(seed)
    if not callable(function):
        raise MethodError(
            f"function must be callable as function(parameters, row), not {function!r}."
        )
    from weighbridge.models.own_arrays import (
        with_own_arrays,  # imports NumPyro, which is slow
    )

    function = with_own_arrays(function)
    rows, left_out = (None, {}) if inputs is None else take_columns(inputs)
    count = 1 if rows is None else num_rows(rows)
    if not count:
        raise DataError("inputs has no rows: there is nothing to predict.")
    num_draws = len(next(iter(samples.values())))
    numbers = random_numbers(seed, Stream.PREDICTIONS)
    draws_at_once = min(num_draws, BLOCK_DRAWS)
    rows_at_once = min(count, max(BLOCK_VALUES // draws_at_once, 1))
    answer: np.ndarray | None = None
    for draws, some in _blocks(samples, num_draws, draws_at_once):
        for rows_here, few in _blocks(rows, count, rows_at_once):
            # Made on the host, so that no program for splitting keys is compiled.
            shape = (draws_at_once, rows_at_once, 2)
            key_data = numbers.integers(0, 2**32, shape, np.uint32)
            try:
                block = _evaluate(_Static(function), some, few, key_data)
            except ModelError as error:
                if isinstance(asked := error.__cause__, KeyError) and asked.args[0] in left_out:
                    raise left_out[asked.args[0]] from None
                raise
            values = np.asarray(block, np.float64)
            if answer is None:
                answer = np.empty((num_draws, count, *values.shape[2:]))
            kept = values[: draws.stop - draws.start, : rows_here.stop - rows_here.start]
            answer[draws, rows_here] = kept
    assert answer is not None
    return answer[:, 0] if rows is None else answer


def _blocks(tree: PyTree, count: int, size: int) -> Iterator[tuple[slice, PyTree]]:
    """Pieces of one size along the first axis; the last is padded with the last entry."""
    for start in range(0, count, size):
        chosen = np.minimum(np.arange(start, start + size), count - 1)
        piece = jax.tree_util.tree_map(lambda leaf: leaf[chosen], tree)  # noqa: B023
        yield slice(start, min(start + size, count)), piece


class _Static:
    """A function that the compiler identifies by its address, whether hashable or not."""

    def __init__(self, function: Function) -> None:
        self.function = function

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Static) and self.function is other.function

    def __hash__(self) -> int:
        return id(self.function)


@partial(jax.jit, static_argnums=0)
def _evaluate(
    static: _Static, parameters: dict[str, Array], rows: PyTree, key_data: Array
) -> Array:
    keys = jax.random.wrap_key_data(key_data, impl="threefry2x32")
    value = partial(_value, static.function)
    over_rows = jax.vmap(value, in_axes=(None, 0, 0))
    return jax.vmap(over_rows, in_axes=(0, None, 0))(parameters, rows, keys)


def _value(function: Function, parameters: dict[str, Array], row: PyTree, key: Array) -> Array:
    """The function's value for one draw and one row, as numbers."""
    import numpyro.distributions as dist

    arguments = (parameters,) if row is None else (parameters, row)
    try:
        found = function(*arguments)
        if isinstance(found, dist.Distribution):
            found = found.sample(key)
    except Exception as error:
        raise ModelError(
            f"The function fails on one draw {_describe(parameters)}"
            f"{'' if row is None else f' and one row {_describe(row)}'}: {type(error).__name__}: "
            f"{(str(error).splitlines() or [''])[0]} It is called as "
            f"function(parameters{'' if row is None else ', row'}), and must use jax.numpy."
        ) from error
    if not isinstance(found, int | float | np.ndarray | np.generic | jax.Array):
        raise ModelError(
            "The function must return a NumPyro distribution or plain numbers (one array), not "
            f"{type(found).__name__}."
        )
    numbers = jnp.asarray(found)
    if jnp.iscomplexobj(numbers):
        raise ModelError("The function must return real numbers: its values are complex.")
    return numbers


def _describe(tree: PyTree) -> str:
    """Names and shapes of the arguments of a function."""
    return str(jax.tree_util.tree_map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", tree))
