"""Reweight an existing posterior to another likelihood, prior or data set."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from weighbridge.core.compilation import double_precision
from weighbridge.core.errors import MethodError
from weighbridge.core.islands import combine_islands
from weighbridge.core.pickling import travels
from weighbridge.core.status import Status
from weighbridge.core.thresholds import MIN_PROPOSAL_DRAWS
from weighbridge.diagnostics.pareto import pareto_smooth
from weighbridge.estimators.bridging.mixing import find_mixing
from weighbridge.estimators.draws_origin import require_origin
from weighbridge.estimators.posterior_draws import PosteriorDraws, read_draws
from weighbridge.estimators.proposals.joint_density import JointDensity
from weighbridge.estimators.reweighting.heavy_tails import heavy_flags, inflation
from weighbridge.estimators.reweighting.log_ratio import (
    MeanRatio,
    log_ratios,
    mean_ratio,
    num_blocks,
    require_same_parameters,
    require_support,
)
from weighbridge.estimators.sequential import posterior
from weighbridge.models.held import hold, take
from weighbridge.models.model import Model
from weighbridge.models.row_gate import require_model
from weighbridge.results.evidence_result import Evidence
from weighbridge.results.saved_content import REWEIGHTING
from weighbridge.results.trace import Trace
from weighbridge.results.wording import digits, digits_of_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

# Islands that give the log evidence of the result up to this (nats) are its source.
SAME_SOURCE = 0.05


@travels()
@dataclass(frozen=True, eq=False, repr=False)
class Reweighted(Evidence):
    """Posterior draws with weights for another model or other data, and the ratio of evidences.

    ``samples`` are the draws, ``log_weights`` their new weights, with a smoothed tail.
    ``log_evidence`` is that of the other model if the draws came with an evidence, else NaN. It
    draws itself, converts and is saved as every ``Evidence``.
    """

    @property
    def log_ratio(self) -> float:
        """Log of the evidence of the other model over that of the first: a log Bayes factor."""
        return float(self.diagnostics["log_ratio"])

    @property
    def ratio_error(self) -> float:
        """Standard error of the log ratio; NaN if it cannot be stated."""
        error = self.diagnostics["ratio_error"]
        return math.nan if error is None else float(error)

    @property
    def pareto_k(self) -> float:
        """Pareto k-hat of the weights: above 0.7 do not believe them."""
        return float(self.diagnostics["pareto_k"])

    @property
    def ess(self) -> float:
        """Effective number of draws, by their weights."""
        return float(self.diagnostics["ess"])

    def __str__(self) -> str:
        ratio = digits(self.log_ratio, self.ratio_error)
        text = (
            f"reweighted: log ratio of evidences {ratio} +- {digits_of_error(self.ratio_error)} "
            f"(k-hat {self.pareto_k:.2f}, {self.ess:,.0f} effective of {len(self.log_weights):,} "
            "draws)"
        )
        if math.isfinite(self.log_evidence):
            value = digits(self.log_evidence, self.std_error)
            text += f"; log evidence {value} +- {digits_of_error(self.std_error)}"
        return "\n".join([text, *(f"  {remark}" for remark in [*self.flags, *self.remarks])])

    def __repr__(self) -> str:
        return f"<Reweighted: {str(self).splitlines()[0]}; {self.status.label}>"

    def plot(self, *, axes: Surface | None = None) -> Figure:
        """The posterior under the new weights; there is no path.

        Args:
            axes: where to draw: an empty matplotlib figure or subfigure.
        """
        return self.plot_posterior(axes=axes)


@double_precision
def reweight(
    draws: Any, model: Model, data: Any = None, *, to: Model | None = None, to_data: Any = None
) -> Reweighted:
    r"""Turn draws of one posterior into weighted draws of another one, without a new run.

    .. math:: w_i \propto \frac{p_2(\theta_i) \, p_2(y_2 | \theta_i)}
                               {p_1(\theta_i) \, p_1(y_1 | \theta_i)}, \qquad
              \frac{Z_2}{Z_1} = \mathrm{E}_{p_1(\theta | y_1)}[w]

    The other model may have another likelihood or another prior, or the same model may get other
    data, for example without some rows. The parameters must be the same, and the posteriors close
    to each other: k-hat tells whether they are. A prior with mass where the first one has none is
    refused, because no draw is there. The other posterior must not have modes that the draws lack;
    this cannot be seen.

    Args:
        draws: a ``wb.Posterior``, a ``wb.Evidence``, or a mapping from parameter names to arrays,
            chains x draws x shape or draws x shape.
        model: the model whose posterior they are.
        data: its data.
        to: the other model; by default the same.
        to_data: its data; by default the same.

    Returns:
        Weighted draws with the log ratio of the evidences and, if the draws are an ``Evidence``,
        the log evidence of the other model. The error of the ratio takes account of correlated
        draws.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(50, seed=1)
    >>> model, other = wb.zoo.gaussian.model(), wb.zoo.gaussian.model(prior_mean=1.0)
    >>> result = wb.evidence(model, data, wb.Importance(), seed=0)
    >>> moved = wb.reweight(result, model, data, to=other)
    >>> exact = wb.zoo.gaussian.log_evidence(data, prior_mean=1.0)
    >>> abs(moved.log_evidence - exact) < 4 * moved.std_error
    True

    Reference: Vehtari, Simpson, Gelman, Yao & Gabry (2024), Journal of Machine Learning Research
    25(72).
    """
    began = time.perf_counter()
    require_model(model)
    if to is None and to_data is None:
        raise MethodError("reweight needs another model (to=) or other data (to_data=).")
    other = model if to is None else to
    require_model(other)
    require_same_parameters(model, other)
    parsed = read_draws(model, draws)
    if to is not None:
        require_support(model, other)
    held = take(model, data, "wb.reweight")
    require_origin(draws, model, held)
    before = JointDensity(model, *held.contents())
    other_data = data if to_data is None else to_data
    after = JointDensity(other, *hold(other, other_data, "wb.reweight"))
    ratios = log_ratios(before, after, parsed)
    blocks = num_blocks(draws)
    found, mixing = mean_ratio(ratios, parsed, blocks), find_mixing(parsed)
    smooth, _ = pareto_smooth(found.log_weights)
    samples, log_weights = posterior(model, parsed.flat()[0], smooth)
    log_evidence, std_error = _evidence(draws, parsed, ratios, found, blocks)
    raised = {
        Status.CHAINS_DISAGREE: mixing.disagree,
        Status.LOW_ESS: found.ess < MIN_PROPOSAL_DRAWS,
        Status.ERROR_UNKNOWN: math.isnan(found.std_error),
    }
    flags = dict.fromkeys(heavy_flags(found.pareto_k, len(smooth)))
    flags |= dict.fromkeys(flag for flag, is_so in raised.items() if is_so)
    if isinstance(draws, Evidence):
        flags |= dict.fromkeys(draws.flags)
    same_data = isinstance(draws, Evidence) and to_data is None
    return Reweighted(
        log_evidence=log_evidence,
        std_error=std_error,
        num_observations=after.num_observations,
        method=REWEIGHTING,
        trace=Trace(),
        samples=samples,
        log_weights=log_weights,
        diagnostics={
            "log_ratio": found.log_mean,
            "ratio_error": None if math.isnan(found.std_error) else found.std_error,
            "pareto_k": found.pareto_k,
            "ess": found.ess,
            **({"rhat": mixing.rhat} if parsed.ordered else {}),
        },
        flags=tuple(flags),
        elapsed=time.perf_counter() - began,
        fingerprint=draws.fingerprint if same_data else None,
    )


def _evidence(
    draws: Any, parsed: PosteriorDraws, ratios: np.ndarray, found: MeanRatio, blocks: int
) -> tuple[float, float]:
    """The evidence of the other model and its error; NaN if the draws have no evidence."""
    if not isinstance(draws, Evidence):
        return math.nan, math.nan
    log_evidence = draws.log_evidence + found.log_mean
    apart = math.hypot(draws.claimed_error, found.std_error)
    if blocks == 1:
        return log_evidence, apart
    # If the islands are the source of the evidence, the two errors are correlated; then the new
    # evidence of every island gives the error.
    shares = parsed.log_weights.reshape(blocks, -1)
    scale = draws.log_evidence + math.log(blocks)
    islands = np.asarray(draws.diagnostics["island_log_evidence"])
    if not np.allclose(np.logaddexp.reduce(shares, axis=1) + scale, islands, atol=SAME_SOURCE):
        return log_evidence, apart
    terms = shares + ratios.reshape(blocks, -1)
    combined = combine_islands(np.logaddexp.reduce(terms, axis=1) + scale)
    return log_evidence, combined.std_error * inflation(found.pareto_k, terms.size)
