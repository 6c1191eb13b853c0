"""Sensitivity of the posterior and of the evidence to the prior, by power-scaling."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.checking.pointwise import Draws, draws_of, rows_of, total_log_likelihoods
from weighbridge.core.checks import check_seed
from weighbridge.core.compilation import double_precision, jit, own
from weighbridge.core.errors import MethodError, ModelError
from weighbridge.core.pickling import travels
from weighbridge.core.tables.frames import Frame, Tabular
from weighbridge.core.tables.notebook import Page, Shown
from weighbridge.core.tables.summaries import scalar_entries
from weighbridge.core.tables.table import Table
from weighbridge.core.thresholds import MIN_SENSITIVITY
from weighbridge.core.types import Array
from weighbridge.diagnostics import mcse
from weighbridge.models.model import Model
from weighbridge.plots.sensitivity import plot_sensitivity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

# The sensitivity is a difference quotient between these powers: Kallioinen et al. (2024).
POWERS = (0.99, 1.01)
# Number of prior draws that estimate the mean of the log prior under the prior.
NUM_PRIOR_DRAWS = 16_384


@travels()
@dataclass(frozen=True)
class Sensitivity(Tabular, Shown):
    """How posterior and evidence change with the power of the prior or of the likelihood.

    Attributes:
        prior: for each scalar entry, how far its marginal moves when the prior is raised to a
            power: the cumulative Jensen-Shannon distance for each doubling of the power.
        likelihood: the same for a power of the likelihood.
        evidence_prior_slope: change of the log evidence for a change of the log of the prior's
            power, in nats; a normalised prior, raised to the power c and normalised again, changes
            the log evidence by about log(c) times this.
        evidence_prior_error: its Monte Carlo standard error.
        evidence_likelihood_slope: the same for the power of the likelihood (not normalised again).
        evidence_likelihood_error: its Monte Carlo standard error.
    """

    prior: dict[str, float]
    likelihood: dict[str, float]
    evidence_prior_slope: float
    evidence_prior_error: float
    evidence_likelihood_slope: float
    evidence_likelihood_error: float

    def verdict(self, entry: str) -> str:
        """The conclusion from the two sensitivities of an entry."""
        if self.prior[entry] < MIN_SENSITIVITY:
            return "prior matters little"
        if self.likelihood[entry] < MIN_SENSITIVITY:
            return "strong prior or weak likelihood"
        return "prior and data may be in conflict"

    def bayes_factor_slope(self, other: Sensitivity) -> tuple[float, float]:
        """Slope of the log Bayes factor against another model, with the same power for both priors.

        Returns:
            The change of log(Z / Z of the other) for a change of the log of both priors' power,
            and its standard error. If only one prior is scaled, the slope is that of its model.

        >>> one = Sensitivity({}, {}, -0.5, 0.03, -9.0, 0.1)
        >>> one.bayes_factor_slope(Sensitivity({}, {}, 0.25, 0.04, -8.0, 0.1))
        (-0.75, 0.05)
        """
        error = math.hypot(self.evidence_prior_error, other.evidence_prior_error)
        return self.evidence_prior_slope - other.evidence_prior_slope, error

    def _table(self) -> Table:
        rows = {
            entry: (f"{self.prior[entry]:.3f}", f"{self.likelihood[entry]:.3f}", text)
            for entry in self.prior
            for text in [self.verdict(entry)]
        }
        return Table(("prior", "likelihood", ""), rows)

    def _slopes(self) -> str:
        return (
            f"log evidence: {self.evidence_prior_slope:+.3f} +- {self.evidence_prior_error:.2g} "
            "nats for each unit of the log of the prior's power, "
            f"{self.evidence_likelihood_slope:+.3f} +- {self.evidence_likelihood_error:.2g} of the "
            "likelihood's"
        )

    def __str__(self) -> str:
        return f"{self._table()}\n{self._slopes()}"

    def _frame(self) -> Frame:
        names = list(self.prior)
        columns = {
            "prior": list(self.prior.values()),
            "likelihood": [self.likelihood[name] for name in names],
            "verdict": [self.verdict(name) for name in names],
        }
        return Frame(columns, names, "entry")

    def _page(self) -> Page:
        table = self._table()
        heading = "sensitivity to powers of the prior and of the likelihood"
        return Page(heading, table.columns, table.texts(), [self._slopes()])

    def plot(self, *, axes: Surface | None = None) -> Figure:
        """How sensitive every scalar entry is to the prior and to the likelihood.

        Args:
            axes: where to draw: an empty matplotlib figure or subfigure, or one axes.

        >>> Sensitivity({"a": 0.1}, {"a": 0.2}, 0.0, 0.1, 0.0, 0.1).plot().axes[0].get_ylabel()
        'entry'
        """
        note = (
            f"log evidence: {self.evidence_prior_slope:+.3f} ± {self.evidence_prior_error:.2g} "
            "nats for each unit of the log of the prior's power"
        )
        note = note.replace("-", "\N{MINUS SIGN}")
        return plot_sensitivity(
            self.prior, self.likelihood, sensitive=MIN_SENSITIVITY, note=note, axes=axes
        )


@double_precision
def prior_sensitivity(
    posterior: Any,
    model: Model,
    data: Any = None,
    *,
    names: Sequence[str] | None = None,
    seed: int = 0,
) -> Sensitivity:
    r"""How much the posterior and the evidence depend on the prior, by power-scaling.

    The prior (or the likelihood) is raised to a power near 1. Importance weights give the new
    posterior. The distance by which a marginal moves is reported per doubling of the power; above
    0.05 the marginal is sensitive. For the evidence, with a prior that is normalised at every
    power,

    .. math:: \frac{d \log Z}{d \log \alpha} \Big|_{\alpha = 1}
              = E_{\theta | y} \log p(\theta) - E_{p(\theta)} \log p(\theta)

    and without normalisation :math:`E_{\theta | y} \log p(y | \theta)` for the likelihood.

    Args:
        posterior: a result with posterior draws, or draws by parameter name, chains x draws x
            shape.
        model: the model of the posterior.
        data: the data, in any form that ``wb.evidence`` takes.
        names: parameters whose priors are scaled; by default all. In a hierarchical model, give
            the top-level parameters: priors that depend on them are part of the likelihood here.
        seed: of the draws from the prior, and of the resampling of weighted draws.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(20, mean=2.0, seed=1)
    >>> result = wb.evidence(wb.zoo.gaussian.model(prior_scale=0.5), data, seed=0)
    >>> report = prior_sensitivity(result, wb.zoo.gaussian.model(prior_scale=0.5), data)
    >>> report.verdict("mu"), report.evidence_prior_slope < -1
    ('prior and data may be in conflict', True)

    Reference: Kallioinen, Paananen, Bürkner & Vehtari (2024), Statistics and Computing 34:57.
    """
    check_seed(seed)
    draws = draws_of(posterior, model)
    chosen = _check_names(model, names)
    values, weight = rows_of(model, data)
    log_prior = _log_priors(model, draws.samples, chosen)
    log_likelihood = total_log_likelihoods(model, draws.samples, values, weight)
    for what, numbers in (("log prior", log_prior), ("log-likelihood", log_likelihood)):
        if not np.isfinite(numbers).all():
            raise ModelError(
                f"The {what} is not finite at {np.sum(~np.isfinite(numbers)):,} of "
                f"{len(numbers):,} posterior draws. Check that posterior, model and data belong "
                "together."
            )
    from_prior = model.sample_prior(NUM_PRIOR_DRAWS, seed=seed)
    under_prior = _log_priors(model, from_prior, chosen)
    level, level_error = _mean(log_prior, draws)
    spread = float(under_prior.std(ddof=1)) / math.sqrt(NUM_PRIOR_DRAWS)
    slope, slope_error = _mean(log_likelihood, draws)
    equal = draws.choose(len(log_prior), seed)
    entries = scalar_entries({name: array[equal] for name, array in draws.samples.items()})
    return Sensitivity(
        prior=_distances(entries, log_prior[equal]),
        likelihood=_distances(entries, log_likelihood[equal]),
        evidence_prior_slope=level - float(under_prior.mean()),
        evidence_prior_error=math.hypot(level_error, spread),
        evidence_likelihood_slope=slope,
        evidence_likelihood_error=slope_error,
    )


def _check_names(model: Model, names: Sequence[str] | None) -> tuple[str, ...]:
    chosen = model.names if names is None else (names,) if isinstance(names, str) else tuple(names)
    unknown = [name for name in chosen if name not in model.names]
    if unknown or not chosen:
        raise MethodError(
            f"names must be some of the parameters {list(model.names)}, not {list(chosen)}."
        )
    return chosen


def _log_priors(
    model: Model, samples: Mapping[str, np.ndarray], chosen: tuple[str, ...]
) -> np.ndarray:
    """Log prior density of the chosen parameters, in constrained space, at every draw."""
    names = {name: name in chosen for name in model.names}
    return np.asarray(_log_prior_values(model, {n: own(v) for n, v in samples.items()}, names))


@jit
def _log_prior_values(model: Model, samples: Mapping[str, Any], chosen: Mapping[str, Any]) -> Array:
    def one(parameters: Mapping[str, Array]) -> Array:
        found = model.log_priors(parameters)
        return sum(
            (jnp.where(chosen[name], value, 0.0) for name, value in found.items()), jnp.zeros(())
        )

    result: Array = jax.vmap(one)(samples)
    return result


def _mean(values: np.ndarray, draws: Draws) -> tuple[float, float]:
    """Posterior mean of a quantity and its standard error; weighted draws count as independent."""
    weights = np.exp(draws.log_weights)
    mean = float(weights @ values)
    if draws.num_chains:
        error = float(mcse(draws.by_chain(values)))
        return mean, 0.0 if np.ptp(values) == 0 else error
    return mean, float(np.sqrt(weights**2 @ (values - mean) ** 2))


def _distances(entries: Mapping[str, np.ndarray], log_density: np.ndarray) -> dict[str, float]:
    """The sensitivity of every entry to a power of a density."""
    from arviz_stats.base import array_stats

    if np.ptp(log_density) == 0:  # a power of a constant density changes nothing
        return dict.fromkeys(entries, 0.0)
    with np.errstate(all="ignore"):
        low, high = (
            np.exp(array_stats.power_scale_lw(log_density, alpha=power)) for power in POWERS
        )
    found = {}
    for label, values in entries.items():
        found[label] = math.nan
        if np.ptp(values) > 0:
            moved = array_stats.power_scale_sense(
                values[None], low[None], high[None], lower_alpha=POWERS[0], upper_alpha=POWERS[1]
            )
            found[label] = float(moved)
    return found
