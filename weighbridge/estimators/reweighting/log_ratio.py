"""Posterior draws of one model under another model of the same parameters."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.compilation import double_precision, jit, own
from weighbridge.core.errors import DataError, ModelError
from weighbridge.core.random import random_key
from weighbridge.core.types import Array
from weighbridge.diagnostics import ess
from weighbridge.diagnostics.pareto import pareto_khat
from weighbridge.estimators.nested.result import NestedEvidence
from weighbridge.estimators.posterior_draws import PosteriorDraws
from weighbridge.estimators.proposals.joint_density import JointDensity
from weighbridge.estimators.reweighting.heavy_tails import inflation
from weighbridge.models.model import Model, draw_positions, unravel_positions
from weighbridge.models.named_draws import locate
from weighbridge.results.evidence_result import Evidence

# Draws from a prior that show whether another prior has the same support.
SUPPORT_DRAWS = 1000
# Fewest groups of draws whose spread is an error.
LEAST_BLOCKS = 4


class MeanRatio(NamedTuple):
    """The mean of importance ratios over weighted draws.

    Attributes:
        log_mean: its logarithm.
        std_error: standard error of the logarithm; NaN if it cannot be stated.
        pareto_k: Pareto k-hat of the ratios; where it is large, the error is too.
        ess: effective number of draws under the new weights, correlated draws not counted off.
        log_weights: normalised log weights of the draws under the other density, flat.
    """

    log_mean: float
    std_error: float
    pareto_k: float
    ess: float
    log_weights: np.ndarray


def require_same_parameters(before: Model, after: Model) -> None:
    """Refuse two models whose parameters have different names or shapes."""
    shapes = [{site.name: site.shape for site in model.sites} for model in (before, after)]
    if shapes[0] != shapes[1]:
        raise ModelError(
            f"The models have different parameters: {shapes[0]} and {shapes[1]}. Draws of one can "
            "be reweighted to the other only if names and shapes are the same; for other models "
            "compare their evidences (wb.compare)."
        )


@double_precision
def require_support(before: Model, after: Model) -> None:
    """Refuse a prior with mass where the first model's prior has none: no draw is there."""
    drawn = unravel_positions(after, draw_positions(after, random_key(0), SUPPORT_DRAWS))
    named = {name: np.asarray(drawn[name]) for name in after.names}
    # Draws on the edge of their own support say nothing.
    edge = np.any(list(locate(after, named)[1].values()), axis=0)
    for name, wrong in locate(before, named)[1].items():
        wrong = wrong & ~edge
        if wrong.any():
            raise ModelError(
                f"The other model's prior of {name!r} has mass outside the support of the first "
                f"one's ({np.mean(wrong):.1%} of its draws, for example "
                f"{named[name][np.argmax(wrong)].tolist()}). Posterior draws of the first model "
                "are never there, so reweighting cannot know this part. Run the other model itself."
            )


@double_precision
def log_ratios(before: JointDensity, after: JointDensity, draws: PosteriorDraws) -> np.ndarray:
    r"""Log ratios of two models' densities of parameters and data at posterior draws of the first.

    .. math:: r(\theta) = \log \frac{p_2(\theta) \, p_2(y_2 | \theta)}
                                    {p_1(\theta) \, p_1(y_1 | \theta)}

    The densities are those of the parameters themselves, so the priors may have other coordinates.
    The mean of exp(r) over the posterior of the first model is the ratio of the evidences.

    Args:
        before: density of the model whose posterior the draws come from.
        after: density of the other model, which has the same parameters.
        draws: posterior draws of the first model.

    Returns:
        Chains x draws; -inf for draws outside the support of the other model.

    >>> import numpyro.distributions as dist
    >>> from weighbridge.core.compilation import in_double_precision
    >>> likelihood = lambda p, y: dist.Normal(p["s"], 1).log_prob(y)
    >>> narrow, wide = (Model({"s": dist.HalfNormal(s)}, likelihood) for s in (1.0, 2.0))
    >>> drawn = PosteriorDraws(np.zeros((1, 30, 1)), np.zeros((1, 30)), True)
    >>> with in_double_precision():
    ...     both = [JointDensity(model, np.ones(3), np.ones(3)) for model in (narrow, wide)]
    ...     log_ratios(*both, drawn)[0, :2].round(6).tolist()
    [-0.318147, -0.318147]
    """
    require_same_parameters(before.model, after.model)
    positions, log_weights = draws.flat()
    used = np.isfinite(log_weights)
    heights = before(positions)
    if not np.isfinite(heights[used]).all():
        raise DataError(
            f"{int((~np.isfinite(heights[used])).sum()):,} of {int(used.sum()):,} draws have "
            "density zero under the model whose posterior they should be. Check that the draws, "
            "the model and the data belong together."
        )
    named = unravel_positions(before.model, own(positions))
    moved, outside = locate(after.model, {n: np.asarray(named[n]) for n in before.model.names})
    inside = used & ~np.any(list(outside.values()), axis=0)
    if not inside.any():
        raise DataError(
            "All draws lie outside the support of the other model's prior: it cannot be reached "
            "by reweighting."
        )
    moved = np.where(inside[:, None], moved, 0.0)
    found = after(moved) - heights
    if before.model.names != after.model.names or not np.allclose(moved[inside], positions[inside]):
        found += log_slopes(before.model, positions) - log_slopes(after.model, moved)
    found = np.where(inside & ~np.isnan(found), found, -np.inf)
    return np.asarray(found.reshape(draws.log_weights.shape))


def mean_ratio(log_ratio: np.ndarray, draws: PosteriorDraws, num_blocks: int = 1) -> MeanRatio:
    r"""The mean of importance ratios over posterior draws, with its error.

    .. math:: \log \bar r = \log \sum_i W_i e^{r_i}, \qquad
              \mathrm{se} = \frac{\operatorname{sd}(e^r)}{\bar r \sqrt{\mathrm{ESS}}}

    ESS is that of the series of ratios, so that autocorrelated chains do not make the error too
    small. Weighted draws in independent blocks (islands) give their error by the spread of the
    blocks' contributions; other weighted draws count as independent. The error grows with Pareto
    k-hat beyond 0.5 (see ``inflation``).

    Args:
        log_ratio: log ratios, chains x draws.
        draws: the draws, with their weights.
        num_blocks: number of equal and independent blocks of successive draws; see ``num_blocks``.

    >>> noise = np.random.default_rng(0).normal(size=(4, 1000))
    >>> drawn = PosteriorDraws(noise[..., None], np.full((4, 1000), -np.log(4000)), True)
    >>> found = mean_ratio(0.5 * noise, drawn)  # its mean is exp(1/8)
    >>> abs(found.log_mean - 0.125) < 4 * found.std_error < 0.05
    True
    """
    terms = draws.log_weights + log_ratio
    log_mean = float(np.logaddexp.reduce(terms, axis=None))
    flat = (terms - log_mean).reshape(-1)
    if not math.isfinite(log_mean):
        return MeanRatio(log_mean, math.nan, math.inf, 0.0, flat)
    relative = np.exp(log_ratio - log_mean)
    shape = pareto_khat(flat)
    if draws.ordered:
        size = float(ess(relative, "mean")) if np.ptp(relative) > 0 else math.inf
        error = float(np.std(relative, ddof=1)) / math.sqrt(size)
    else:
        parts = np.exp(draws.log_weights) * (relative - 1.0)
        error = block_error(parts.reshape(-1), num_blocks)
    error *= inflation(shape, flat.size)
    return MeanRatio(log_mean, error, shape, float(1 / np.sum(np.exp(2 * flat))), flat)


def num_blocks(draws: Any) -> int:
    """Number of independent blocks of successive draws (islands); 1 for independent draws.

    The points of nested sampling are in the order of their likelihood, not of its runs. Chains are
    not blocks: their draws are autocorrelated.
    """
    if not isinstance(draws, Evidence) or isinstance(draws, NestedEvidence):
        return 1
    if "num_chains" in draws.diagnostics:
        return 1
    islands = np.size(draws.diagnostics.get("island_log_evidence", ()))
    fits = islands >= LEAST_BLOCKS and len(draws.log_weights) % islands == 0
    return int(islands) if fits else 1


def log_slopes(model: Model, positions: np.ndarray) -> np.ndarray:
    """Log of |det dT/du|: from densities of parameters to densities of unconstrained vectors."""
    return np.asarray(_log_slopes(model, own(positions)))


def block_error(parts: np.ndarray, blocks: int) -> float:
    """Standard error of a sum of terms of mean zero: from blocks, or from independent terms."""
    if blocks < LEAST_BLOCKS:
        return float(np.sqrt(np.sum(parts**2)))
    sums = parts.reshape(blocks, -1).sum(axis=1)
    # A spread over J blocks has J - 1 degrees of freedom; see combine_islands.
    return float(np.sqrt(np.sum(sums**2) * blocks / (blocks - 3)))


@jit
def _log_slopes(model: Model, positions: Array) -> Array:
    def at(position: Array) -> Array:
        parameters, log_density = model.transform(position)
        return log_density - sum(model.log_priors(parameters).values(), jnp.zeros(()))

    found: Array = jax.vmap(at)(positions)
    return found
