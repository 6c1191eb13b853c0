"""Leave-one-out cross-validation and WAIC from posterior draws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from weighbridge.checking.pointwise import Draws, draws_of, rows_of
from weighbridge.core.compilation import double_precision
from weighbridge.core.errors import MethodError, ModelError
from weighbridge.core.pickling import travels
from weighbridge.core.tables.frames import Frame, Tabular
from weighbridge.core.tables.notebook import Page, Shown
from weighbridge.core.thresholds import MAX_LOO_PARETO_K, MAX_WAIC_VARIANCE
from weighbridge.data.values import num_rows
from weighbridge.diagnostics import ess
from weighbridge.models.model import Model
from weighbridge.models.row_values import row_blocks
from weighbridge.plots.elpd import plot_elpd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

# The Pareto distribution is fitted to at least five draws, and to a fifth of the draws if few.
MIN_DRAWS = 25


@travels()
@dataclass(frozen=True, eq=False, repr=False)
class Elpd(Tabular, Shown):
    """Expected log pointwise predictive density: how well the model predicts new rows.

    Attributes:
        elpd: the estimate, summed over the rows, in nats; larger is better.
        std_error: its standard error, from the variation over rows.
        effective_parameters: log density of the fitted rows minus the elpd (p_loo, p_waic).
        method: "loo" or "waic".
        pointwise: contribution of each row; of one copy if a row is repeated.
        weight: how often each row counts.
        pareto_k: Pareto k of the importance weights of each row, for "loo"; empty for "waic".
        warnings: reasons not to trust the estimate, with remedies.
    """

    elpd: float
    std_error: float
    effective_parameters: float
    method: str
    pointwise: np.ndarray
    weight: np.ndarray
    pareto_k: np.ndarray
    warnings: tuple[str, ...] = ()

    @property
    def num_observations(self) -> int:
        """Number of rows, with repeated rows counted as often as they occur."""
        return round(float(self.weight.sum()))

    def __str__(self) -> str:
        head = (
            f"elpd {self.elpd:.2f} +- {written_error(self.std_error)} ({self.method}, "
            f"{self.num_observations:,} observations, {self.effective_parameters:.3g} effective "
            "parameters)"
        )
        return "\n".join([head, *(f"  {text}" for text in self.warnings)])

    def __repr__(self) -> str:
        return f"<Elpd: {str(self).splitlines()[0]}; {len(self.warnings)} warnings>"

    def _frame(self) -> Frame:
        columns = {"elpd": self.pointwise, "weight": self.weight}
        return Frame(columns | ({"pareto_k": self.pareto_k} if len(self.pareto_k) else {}))

    def _page(self) -> Page:
        cells = [
            f"{self.elpd:.2f}",
            written_error(self.std_error),
            f"{self.effective_parameters:.3g}",
        ]
        columns = ["elpd", "+-", "effective parameters"]
        if len(self.pareto_k):
            counted = self.pareto_k[self.weight > 0]
            columns += ["largest Pareto k", f"rows above {MAX_LOO_PARETO_K}"]
            cells += [f"{np.max(counted):.2f}", f"{np.sum(counted > MAX_LOO_PARETO_K):,}"]
        return Page(str(self).splitlines()[0], columns, {self.method: cells}, self.warnings)

    def plot(self, *, axes: Surface | None = None) -> Figure:
        """The contribution of every row, and for "loo" the Pareto k of its weights.

        Rows with too large a k are crosses, and the worst of them have their row number. If there
        are none, the rows that are predicted worst have it. Rows of weight 0 are left out.

        Args:
            axes: where to draw: an empty matplotlib figure or subfigure, or two axes (for "waic"
                one).
        """
        rows = np.flatnonzero(self.weight > 0)
        return plot_elpd(
            rows,
            self.pointwise[rows],
            self.pareto_k[rows] if len(self.pareto_k) else self.pareto_k,
            title=str(self).splitlines()[0],
            largest_k=MAX_LOO_PARETO_K,
            axes=axes,
        )


@double_precision
def loo(posterior: Any, model: Model, data: Any) -> Elpd:
    r"""Leave-one-out predictive density, by Pareto-smoothed importance sampling.

    .. math:: \text{elpd} = \sum_i \log p(y_i | y_{-i}) \approx \sum_i \log
              \frac{\sum_s w_{is} \, p(y_i | \theta_s)}{\sum_s w_{is}},
              \qquad w_{is} \propto 1 / p(y_i | \theta_s)

    The largest weights of each row are smoothed by a generalised Pareto distribution. Its shape k
    shows whether the weights can be trusted. If a row is repeated (``weight``), one copy is left
    out.

    Args:
        posterior: a result with posterior draws, or draws by parameter name, chains x draws x
            shape; of all the rows.
        model: with a log-likelihood of rows.
        data: the rows.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(50, mean=0.0, seed=1)
    >>> mu = data.sum() / 51 + np.random.default_rng(0).normal(size=(4, 500)) / 51**0.5
    >>> print(loo({"mu": mu}, wb.zoo.gaussian.model(), data))
    elpd ... (loo, 50 observations, ... effective parameters)

    Reference: Vehtari, Gelman & Gabry (2017), Statistics and Computing 27:1413-1432; Vehtari,
    Simpson, Gelman, Yao & Gabry (2024), Journal of Machine Learning Research 25(72).
    """
    draws = draws_of(posterior, model)
    model.require_rows()
    if len(draws.log_weights) < MIN_DRAWS:
        raise MethodError(
            f"loo fits the tail of importance weights and needs {MIN_DRAWS} draws or more; there "
            f"are {len(draws.log_weights)}."
        )
    values, weight = rows_of(model, data)
    efficiency = _efficiency(draws)
    pointwise, fitted, shape = (np.empty(num_rows(values)) for _ in range(3))
    for rows, block in row_blocks(model, draws.samples, values):
        _check_values(block, rows)
        for row, log_likelihoods in zip(range(rows.start, rows.stop), block.T):
            smooth, shape[row] = _smoothed(draws.log_weights - log_likelihoods, efficiency)
            pointwise[row] = _log_sum(smooth + log_likelihoods)
            fitted[row] = _log_sum(draws.log_weights + log_likelihoods)
    bad = np.flatnonzero((shape > MAX_LOO_PARETO_K) & (weight > 0))
    warnings: tuple[str, ...] = ()
    if len(bad):
        worst = bad[np.argsort(-shape[bad])][:5]
        named = ", ".join(f"{row} ({shape[row]:.2f})" for row in worst)
        warnings = (
            f"Pareto k is above {MAX_LOO_PARETO_K} for {len(bad):,} of {len(shape):,} rows: {named}"
            f"{' and more' if len(bad) > len(worst) else ''}. These rows change the posterior so "
            "much that importance sampling cannot leave them out. Inspect them: for outliers use a "
            "likelihood with heavier tails, or run the model without these rows.",
        )
    return _elpd("loo", pointwise, fitted - pointwise, weight, shape, warnings)


@double_precision
def waic(posterior: Any, model: Model, data: Any) -> Elpd:
    r"""The widely applicable information criterion, as an expected log predictive density.

    .. math:: \text{elpd} = \sum_i \log \frac1S \sum_s p(y_i | \theta_s)
              - \sum_i \operatorname{Var}_s \log p(y_i | \theta_s)

    (Watanabe's WAIC is -2 times this, or its negative mean.) It agrees with ``loo`` where the
    posterior is regular. Prefer ``loo``, which has better diagnostics.

    Args:
        posterior: a result with posterior draws, or draws by parameter name, chains x draws x
            shape; of all the rows.
        model: with a log-likelihood of rows.
        data: the rows.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(50, mean=0.0, seed=1)
    >>> mu = data.sum() / 51 + np.random.default_rng(0).normal(size=(4, 500)) / 51**0.5
    >>> result = waic({"mu": mu}, wb.zoo.gaussian.model(), data)
    >>> abs(result.elpd - loo({"mu": mu}, wb.zoo.gaussian.model(), data).elpd) < 0.05
    True

    Reference: Watanabe (2010), Journal of Machine Learning Research 11:3571-3594.
    """
    draws = draws_of(posterior, model)
    model.require_rows()
    values, weight = rows_of(model, data)
    fitted, variance = np.empty(num_rows(values)), np.empty(num_rows(values))
    share = np.exp(draws.log_weights)
    if len(share) < 2:
        raise MethodError("waic needs two draws or more: it uses a variance over draws.")
    unbiased = 1 / (1 - np.sum(share**2))
    for rows, block in row_blocks(model, draws.samples, values):
        _check_values(block, rows)
        fitted[rows] = [_log_sum(draws.log_weights + column) for column in block.T]
        variance[rows] = unbiased * (share @ (block - share @ block) ** 2)
    num_bad = int(np.sum((variance > MAX_WAIC_VARIANCE) & (weight > 0)))
    warnings: tuple[str, ...] = ()
    if num_bad:
        warnings = (
            f"The log-likelihood of {num_bad:,} of {len(variance):,} rows varies by more than "
            f"{MAX_WAIC_VARIANCE} over the posterior: do not trust WAIC then. Use wb.loo.",
        )
    return _elpd("waic", fitted - variance, variance, weight, np.empty(0), warnings)


def _elpd(
    method: str,
    pointwise: np.ndarray,
    penalty: np.ndarray,
    weight: np.ndarray,
    pareto_k: np.ndarray,
    warnings: tuple[str, ...],
) -> Elpd:
    total, error = sum_over_rows(pointwise, weight)
    effective = sum_over_rows(penalty, weight)[0]
    return Elpd(total, error, effective, method, pointwise, weight, pareto_k, warnings)


def sum_over_rows(values: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """The weighted sum over rows, and its standard error."""
    counted = weight > 0
    values, weight = values[counted], weight[counted]
    count = float(weight.sum())
    total = float(weight @ values)
    variance = float(weight @ (values - total / count) ** 2) / count
    return total, math.sqrt(count * variance)


def _efficiency(draws: Draws) -> float:
    """Effective sample size / number of draws; weighted draws count as independent."""
    if not draws.num_chains:
        return 1.0
    found = [np.ravel(ess(draws.by_chain(array), "mean")) for array in draws.samples.values()]
    known = np.concatenate(found)[np.isfinite(np.concatenate(found))]
    return min(float(known.mean()) / len(draws.log_weights), 1.0) if len(known) else 1.0


def _smoothed(log_ratios: np.ndarray, efficiency: float) -> tuple[np.ndarray, float]:
    """Normalised log importance weights with a smoothed tail, and the shape k of the tail."""
    from arviz_stats.base import array_stats

    try:
        with np.errstate(all="ignore"):
            smooth, shape = array_stats.psislw(-log_ratios, r_eff=efficiency)
    except ValueError:  # the largest weights are all equal, so the weights are bounded
        return log_ratios - _log_sum(log_ratios), -math.inf
    return smooth, float(shape)


def written_error(error: float) -> str:
    """A standard error with two digits, or all before the point."""
    return f"{error:.2g}" if error < 100 else f"{error:.0f}"


def _log_sum(values: np.ndarray) -> float:
    highest = values.max()
    return float(highest + np.log(np.sum(np.exp(values - highest))))


def _check_values(block: np.ndarray, rows: slice) -> None:
    bad = np.argwhere(~np.isfinite(block.T))
    if len(bad):
        row, draw = bad[0]
        raise ModelError(
            f"The log-likelihood of row {rows.start + row} (counting from 0) is "
            f"{block[draw, row]} at a posterior draw, which cannot happen in a posterior of this "
            "model and these rows. Check that posterior, model and data belong together."
        )
