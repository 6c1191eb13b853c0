"""What ``benchmarks.sgais.headline`` compares with: the mode, Laplace, importance sampling, SMC.

All of them use the likelihood of all rows, in blocks, and nothing of SGAIS. The mode and its
curvature are those of ``wb.Laplace``.
Importance sampling draws from the Gaussian at the mode; with many rows its weights are nearly
equal. For K exchangeable components it samples one labelling and multiplies by K!, which is right
if the components are well separated.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import weighbridge as wb
from benchmarks.references import estimate, student, student_log_density
from benchmarks.sgais import problems
from weighbridge.core.compilation import double_precision
from weighbridge.core.types import Array
from weighbridge.data.cutting import pad
from weighbridge.data.values import num_rows
from weighbridge.diagnostics.pareto import pareto_khat
from weighbridge.estimators.bridging.gaussians import log_normal
from weighbridge.estimators.laplace.charts import Chart
from weighbridge.estimators.laplace.hills import hill_of
from weighbridge.estimators.laplace.summit import Summit, SummitKind, ascend
from weighbridge.estimators.proposals.joint_density import JointDensity
from weighbridge.models.exchangeable import log_num_labellings
from weighbridge.models.model import Model
from weighbridge.models.targets.rows import BLOCK_ROWS, Rows

# The number of rows times draws of importance sampling, and the most draws.
BUDGET, MOST_DRAWS = 256_000_000, 16_384
# The first seed of SMC; these seeds differ from those of the SGAIS runs.
FIRST_SEED = 1000


class Reference(NamedTuple):
    """A log evidence to compare with, its standard error, and how it was computed."""

    value: float
    error: float
    how: str


class Posterior:
    """The exact log density of all rows, its mode, and the time of a pass over the rows."""

    @double_precision
    def __init__(self, model: Model, data: Any) -> None:
        self.model, self.data = model, data
        self.density = JointDensity(model, data, np.ones(num_rows(data)))

    @double_precision
    def __call__(self, position: np.ndarray) -> np.ndarray:
        """Log densities at some points, points x coordinates."""
        return self.density(position)

    @double_precision
    def mode(self, start: dict[str, np.ndarray] | None) -> Summit:
        """The mode, by the library's Newton method; not a climb from several starts."""
        position = np.zeros(self.model.dimension) if start is None else self.model.ravel(start)
        scale = np.ones(self.model.dimension)
        hill = hill_of(self.density, Chart(), scale)
        return ascend(hill, position, scale, self.model.bounded)

    @double_precision
    def gradient_pass(self) -> float:
        """Seconds of one pass over all rows: log-likelihood and gradient at a point."""
        count = num_rows(self.data)
        size = -(-count // BLOCK_ROWS) * BLOCK_ROWS
        padded = Rows(*pad(self.data, np.ones(count), size))
        blocks: Rows = jax.tree_util.tree_map(
            lambda leaf: jnp.asarray(leaf).reshape(-1, BLOCK_ROWS, *leaf.shape[1:]), padded
        )
        position = np.zeros(self.model.dimension)
        seconds = []
        for _ in range(6):
            began = time.perf_counter()
            jax.block_until_ready(_value_and_gradient(self.model, blocks, position))
            seconds.append(time.perf_counter() - began)
        return float(np.median(seconds[1:]))


def laplace(mode: Summit) -> float:
    """log f + D/2 log 2 pi - 1/2 log |-H|; NaN if it is not a mode with a usable curvature."""
    return mode.log_mass if mode.kind is SummitKind.MODE else math.nan


@jax.jit
def _value_and_gradient(model: Model, blocks: Rows, position: Array) -> tuple[Array, Array]:
    def add(so_far: Any, rows: Rows) -> tuple[Any, None]:
        term = lambda u: rows(model, u, model.transform(u)[0])  # noqa: E731
        return jax.tree_util.tree_map(jnp.add, so_far, jax.value_and_grad(term)(position)), None

    zero = (jnp.zeros(()), jnp.zeros_like(position))
    found: tuple[Array, Array] = jax.lax.scan(add, zero, blocks)[0]
    return found


def draws_for(data: Any) -> int:
    """The number of draws: rows times draws stay within the budget."""
    return min(-(-BUDGET // num_rows(data)), MOST_DRAWS)


def importance(posterior: Posterior, mode: Summit) -> Reference:
    """Importance sampling from the Gaussian at the mode, times K! for exchangeable components."""
    num_draws = draws_for(posterior.data)
    root = mode.root
    noise = np.random.default_rng(0).standard_normal((num_draws, len(root)))
    position = mode.position + noise @ root.T
    log_proposal = log_normal(noise, root)
    height = posterior(position)
    height = np.where(np.isnan(height), -np.inf, height)  # far away, where a scale underflows
    value, error, ess = estimate(lambda _: height, position, log_proposal)
    labellings = log_num_labellings(posterior.model)
    times = f", times {math.exp(labellings):.0f} labellings" if labellings else ""
    how = (
        f"importance sampling at the mode on all rows{times}, {num_draws:,} draws, "
        f"ESS {ess:,.0f}, k-hat {pareto_khat(height - log_proposal):.2f}"
    )
    return Reference(float(value + labellings), float(error), how)


def without_scales(data: Any) -> Reference:
    """The logistic regression with its scales integrated out: 12 dimensions are left.

    Importance sampling on all rows, from a Student t at the mode of the same regression with plain
    priors. Without the scales there is no funnel or ridge that a sampler could miss.
    """
    model, num_draws = problems.slopes_model(), draws_for(data)
    posterior = Posterior(model, data)
    mode = posterior.mode(None)
    root = mode.root
    position = student(np.random.default_rng(0), num_draws, mode.position, root)
    plain = double_precision(lambda: np.asarray(_log_priors(model, position)))()
    height = posterior(position) - plain + problems.log_prior_of_slopes(position)
    log_proposal = student_log_density(position, mode.position, root)
    value, error, ess = estimate(lambda _: height, position, log_proposal)
    how = (
        f"importance sampling on all rows with the scales integrated out, {num_draws:,} draws, "
        f"ESS {ess:,.0f}, k-hat {pareto_khat(height - log_proposal):.2f}"
    )
    return Reference(float(value), float(error), how)


@jax.jit
def _log_priors(model: Model, position: Array) -> Array:
    found: Array = jax.vmap(lambda u: model.transform(u)[1])(position)
    return found


def smc(model: Model, data: Any, num_seeds: int, seconds: float) -> Iterator[Reference]:
    """SMC on exact targets, averaged over the seeds so far; no seed starts that would be late."""
    answers: list[float] = []
    stated: list[float] = []
    flagged = 0
    began = time.perf_counter()
    for seed in range(FIRST_SEED, FIRST_SEED + num_seeds):
        spent = time.perf_counter() - began
        if spent + spent / max(len(answers), 1) > seconds:
            break
        result = wb.evidence(model, data, wb.SMC(), seed=seed, progress=False)
        answers.append(result.log_evidence)
        stated.append(result.std_error)
        flagged += bool(result.flags)
        count = len(answers)
        # The spread of few seeds is unreliable: the stated errors are used if they are larger.
        own = math.sqrt(float(np.mean(np.square(stated))))
        error = max(own, float(np.std(answers, ddof=1)) if count > 1 else 0.0) / math.sqrt(count)
        how = f"SMC on all rows, {count} seeds, {flagged} of them flagged"
        yield Reference(float(np.mean(answers)), error, how)
