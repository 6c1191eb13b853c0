"""The log-likelihood of rows at posterior draws, for every form of posterior."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.compilation import double_precision, jit, own
from weighbridge.core.errors import MethodError
from weighbridge.core.random import random_key
from weighbridge.core.resampling import systematic_indices
from weighbridge.core.types import Array, PyTree
from weighbridge.data.values import num_rows
from weighbridge.models.held import hold
from weighbridge.models.model import Model, draw_positions
from weighbridge.models.row_gate import require_model
from weighbridge.models.row_values import row_blocks
from weighbridge.models.targets.host import host_likelihood
from weighbridge.models.targets.total import Total
from weighbridge.results.evidence_result import Evidence


@dataclass(frozen=True, eq=False)
class Draws:
    """Posterior draws of a model, in one common form.

    Attributes:
        samples: draws by parameter name, with the chains concatenated.
        log_weights: their normalised log weights.
        num_chains: number of chains, of equal length; 0 for weighted draws, which have no order.
    """

    samples: dict[str, np.ndarray]
    log_weights: np.ndarray
    num_chains: int

    def by_chain(self, values: np.ndarray) -> np.ndarray:
        """Values of every draw (the first axis) as chains x draws."""
        return values.reshape(max(self.num_chains, 1), -1, *values.shape[1:])

    def choose(self, count: int, seed: int) -> np.ndarray:
        """Indices of equally weighted draws: evenly spaced, or resampled by their weights.

        >>> Draws({}, np.log([0.5, 0.25, 0.25]), 0).choose(4, seed=0)
        array([0, 0, 1, 2])
        >>> Draws({}, np.log(np.full(4, 0.25)), 1).choose(2, seed=0)
        array([1, 3])
        """
        if self.num_chains:
            return (np.arange(count) * 2 + 1) * len(self.log_weights) // (2 * count)
        return systematic_indices(np.random.default_rng(seed).random(), self.log_weights, count)


def draws_of(posterior: Any, model: Model) -> Draws:
    """The draws of a posterior, checked against the model.

    Args:
        posterior: an ``Evidence``, an object with draws by name in ``samples``, or a mapping from
            names to draws. Arrays are chains x draws x shape; for an ``Evidence``, whose draws are
            weighted, draws x shape.
        model: the model of the draws; draws of other names are left out.
    """
    require_model(model)
    samples = getattr(posterior, "samples", posterior)
    if not isinstance(samples, Mapping) or not samples:
        raise MethodError(
            "A posterior is a result with draws in its samples, or a mapping from parameter names "
            f"to draws, not {type(posterior).__name__}{'' if samples else ' without draws'}."
        )
    missing = [name for name in model.names if name not in samples]
    if missing:
        raise MethodError(
            f"The posterior has no draws of {missing}; it has {list(samples)}. Give the posterior "
            "of this model."
        )
    weighted = isinstance(posterior, Evidence)
    arrays = {name: own(np.asarray(samples[name], np.float64)) for name in model.names}
    leading = 1 if weighted else 2
    counts = arrays[model.names[0]].shape[:leading]
    for site in model.sites:
        fits = len(counts) == leading and arrays[site.name].shape == (*counts, *site.shape)
        if not fits or not math.prod(counts):
            axes = "draws" if weighted else "chains x draws"
            raise MethodError(
                f"Draws of {site.name!r} have the shape {arrays[site.name].shape}: they must be "
                f"{axes} x {site.shape}, at least one and as many as of the other parameters."
            )
        if not np.isfinite(arrays[site.name]).all():
            raise MethodError(f"Draws of {site.name!r} are not all finite.")
    if isinstance(posterior, Evidence):
        weights = np.exp(posterior.log_weights - np.max(posterior.log_weights))
        used = weights > 0  # draws without weight may have no likelihood either
        chosen = {name: array[used] for name, array in arrays.items()}
        return Draws(chosen, np.log(weights[used] / weights[used].sum()), 0)
    joined = {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}
    count = math.prod(counts)
    return Draws(joined, np.full(count, -math.log(count)), counts[0])


def rows_of(model: Model, data: Any) -> tuple[PyTree, np.ndarray]:
    """All observations in memory, checked as in ``wb.evidence``, and how often each row counts."""
    values, weight = hold(model, data, "This function")
    if weight is None:
        weight = np.ones(0 if values is None else num_rows(values))
    return values, weight


def total_log_likelihoods(
    model: Model, samples: Mapping[str, np.ndarray], values: PyTree, weight: np.ndarray
) -> np.ndarray:
    """Log-likelihood of all the data at every draw; in plain Python if JAX cannot trace it."""
    count = num_rows(samples)
    if model.log_likelihood is not None:
        total = np.zeros(count)
        for rows, block in row_blocks(model, samples, values):
            counted = weight[rows] > 0
            total += block[:, counted] @ weight[rows][counted]
        return total
    probes = draw_positions(model, random_key(0), 4)[None]
    host = host_likelihood(model, values, probes)
    if host is not None:
        return host.at({name: samples[name] for name in model.names}, np.ones(count, bool))
    return np.asarray(_total_values(model, {**samples}, values))


@jit
def _total_values(model: Model, samples: Mapping[str, Any], data: PyTree) -> Array:
    nowhere = jnp.zeros(model.dimension)  # a dummy position: the term reads only the parameters
    result: Array = jax.lax.map(
        lambda parameters: Total(data)(model, nowhere, parameters), samples, batch_size=64
    )
    return result


@double_precision
def pointwise_log_likelihood(model: Model, samples: Any, data: Any) -> np.ndarray:
    r"""Log-likelihood of every row at every draw, :math:`\log p(y_i | \theta_s)`.

    It is computed in blocks, so that only the result needs much memory. A column ``weight`` that
    counts repeated rows is not applied.

    Args:
        model: with a log-likelihood of rows.
        samples: a posterior, or draws by parameter name, chains x draws x shape.
        data: in any form that ``wb.evidence`` takes.

    Returns:
        Chains x draws x rows; for an ``Evidence`` draws x rows, without the draws of weight zero.

    >>> import weighbridge as wb
    >>> draws = {"mu": np.zeros((2, 3))}
    >>> pointwise_log_likelihood(wb.zoo.gaussian.model(), draws, [0.0, 1.0])[0, 0].round(4)
    array([-0.9189, -1.4189])
    """
    draws = draws_of(samples, model)
    model.require_rows()
    values, _ = rows_of(model, data)
    answer = np.empty((len(draws.log_weights), num_rows(values)))
    for rows, block in row_blocks(model, draws.samples, values):
        answer[:, rows] = block
    return draws.by_chain(answer) if draws.num_chains else answer
