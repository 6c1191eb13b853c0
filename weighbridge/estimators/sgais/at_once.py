"""Rows in memory of a model of many parameters, weighed at once by a Gaussian at the mode."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import jax
import numpy as np

from weighbridge.core.compilation import in_double_precision
from weighbridge.core.islands import Combined, combine_islands
from weighbridge.core.memory import bytes_available, check_memory_needed
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.resampling import effective_sample_size
from weighbridge.core.status import Status
from weighbridge.core.thresholds import MAX_BRIDGE_PARETO_K
from weighbridge.core.types import PyTree
from weighbridge.diagnostics.pareto import pareto_khat
from weighbridge.estimators.bridging.bridge import EVEN
from weighbridge.estimators.path_points import WITH_TEMPERATURE, PathPoint, path_trace
from weighbridge.estimators.proposals.at_mode import gaussian_at_mode
from weighbridge.estimators.proposals.joint_density import JointDensity
from weighbridge.estimators.sequential import posterior
from weighbridge.models.model import Model
from weighbridge.models.targets.anchored import FIRST_ORDER_ABOVE
from weighbridge.results.evidence_result import Evidence

if TYPE_CHECKING:
    from weighbridge.estimators.sgais.sgais import SGAIS

# The numbers of parameters for which it is tried: with fewer the path is fast and its bridge good;
# with more a matrix of parameters x parameters is too much.
LEAST_PARAMETERS, MOST_PARAMETERS = FIRST_ORDER_ABOVE + 1, 1000
# At least this share of the draws must be effective. With more than ``EVEN`` of them the ratios
# hardly vary, and their tails do not matter.
MIN_SHARE = 0.1
# Copies of the rows in memory: as checked, padded, and in the arrays of the programs. Matrices of
# parameters x parameters, those of a block of rows included.
ROW_COPIES, MATRICES = 3, 16


def suits(method: SGAIS, model: Model) -> bool:
    """Whether a Gaussian at the mode is tried: many parameters, rows, and no choices of the user.

    >>> import weighbridge as wb
    >>> method = wb.SGAIS()
    >>> [suits(method, wb.zoo.linear.model(features)) for features in (100, 500, 5000)]
    [False, True, False]
    >>> suits(wb.SGAIS(chunk_size=100), wb.zoo.linear.model(500))
    False
    """
    chosen = (method.kernel, method.half_life, method.chunk_size, method.batch_size)
    return (
        LEAST_PARAMETERS <= model.dimension <= MOST_PARAMETERS
        and model.log_likelihood is not None
        and not model.exchangeable
        and all(choice is None for choice in chosen)
    )


def evidence_at_once(
    method: SGAIS, model: Model, values: PyTree, weight: np.ndarray, seed: int, first_island: int
) -> Evidence | None:
    r"""The evidence by importance sampling around the mode, with all rows.

    .. math:: \hat Z = \frac1N \sum_i \frac{f(\theta_i)}{q(\theta_i)}, \qquad \theta_i \sim q

    Every island has its own draws from q, the Gaussian of ``gaussian_at_mode``. The spread of the
    islands is the error, as for islands of particles.

    Args:
        method: its islands and particles are the draws.
        model: the model.
        values: all rows.
        weight: how often each row counts.
        seed: of the run.
        first_island: number of the first island.

    Returns:
        The evidence; None if there is no such Gaussian, if there is not enough memory, or if the
        ratios f / q have heavy tails or few effective draws: then a path is needed.

    >>> import numpyro.distributions as dist
    >>> import weighbridge as wb
    >>> model = wb.Model({"p": dist.Beta(1, 1)}, lambda p, y: dist.Bernoulli(p["p"]).log_prob(y))
    >>> heads = np.arange(100) < 50
    >>> found = evidence_at_once(wb.SGAIS(), model, heads.astype(float), np.ones(100), 0, 0)
    >>> abs(found.log_evidence + 71.398962) < 4 * found.std_error < 0.01
    True
    """
    began = time.perf_counter()
    needed = _bytes_needed(model.dimension, values)
    free = bytes_available()
    if free is not None and needed > free:
        return None
    what = f"{len(weight):,} rows at once with {model.dimension:,} parameters"
    check_memory_needed(needed, what, "Give chunk_size to SGAIS, which then takes chunks")
    num_islands, count = method.num_islands, method.num_particles
    with in_double_precision():
        density = JointDensity(model, values, weight)
        proposal = gaussian_at_mode(density.path, seed, first_island)
        if proposal is None:
            return None
        islands = range(first_island, first_island + num_islands)
        generators = (random_numbers(seed, Stream.MODE_DRAWS, k, 1) for k in islands)
        position = np.concatenate([proposal.draw(own, count) for own in generators])
        log_ratio = density(position) - proposal.log_density(position)
        khat = pareto_khat(log_ratio)
        effective = float(effective_sample_size(log_ratio)) / len(log_ratio)
        is_light = khat < MAX_BRIDGE_PARETO_K and effective >= MIN_SHARE
        if not (is_light or effective > EVEN):
            return None
        samples, log_weights = posterior(model, position, log_ratio)
    of_islands = log_ratio.reshape(num_islands, count)
    found = np.logaddexp.reduce(of_islands, axis=1) - math.log(count)
    combined = combine_islands(found)
    ess = float(np.mean(effective_sample_size(of_islands)))
    point = PathPoint(
        float(weight.sum()), combined.log_evidence, combined.std_error, annealing_steps=0.0, ess=ess
    )
    return Evidence(
        log_evidence=combined.log_evidence,
        std_error=combined.std_error,
        num_observations=density.num_observations,
        method=method.name,
        trace=path_trace([point], WITH_TEMPERATURE),
        samples=samples,
        log_weights=log_weights,
        diagnostics={
            "island_log_evidence": found,
            "answer": "mode",
            "mode_khat": khat,
            "mode_ess": effective * len(log_ratio),
            "rows_kept": len(weight),
        },
        flags=_flags(combined),
        elapsed=time.perf_counter() - began,
    )


def _flags(combined: Combined) -> tuple[Status, ...]:
    """Reasons for caution, the gravest first."""
    unknown = math.isnan(combined.std_error)
    found = {Status.ROUNDED: combined.is_rounded, Status.ERROR_UNKNOWN: unknown}
    return tuple(flag for flag, raised in found.items() if raised)


def _bytes_needed(dimension: int, values: PyTree) -> int:
    """The approximate memory for copies of the rows, and for matrices."""
    rows = sum(np.asarray(leaf).nbytes for leaf in jax.tree_util.tree_leaves(values))
    return ROW_COPIES * rows + 8 * MATRICES * dimension**2
