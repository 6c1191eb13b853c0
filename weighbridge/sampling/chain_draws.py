"""Combine the draws of several chains: names, walkers as chains, averaged tuning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from weighbridge.models.model import Model
from weighbridge.sampling.chain_steps import has_metric

# Number of draws converted to named parameters at once.
BLOCK_DRAWS = 1024


def tuned_kernel(kernels: list[Any]) -> Any:
    """One kernel with the averaged tuning of several chains.

    >>> from weighbridge.sampling.kernels.hmc import HMC
    >>> round(float(tuned_kernel([HMC(step_size=0.1), HMC(step_size=0.4)]).step_size), 6)
    0.2
    """
    first = jax.tree_util.tree_map(np.asarray, kernels[0])
    tuned = []
    for parts in zip(first.tunable(), *(kernel.tunable() for kernel in kernels)):
        logs = [np.log(np.asarray(part.step_size)) for part in parts[1:]]
        tuned.append(replace(parts[0], step_size=np.exp(np.mean(logs, axis=0))))
    first = first.with_tunable(tuple(tuned))
    if has_metric(first):
        scales = [np.asarray(kernel.scale) for kernel in kernels]
        if scales[0].ndim == 2:
            covariance = np.mean([scale @ scale.T for scale in scales], axis=0)
            return replace(first, scale=np.linalg.cholesky(covariance))
        first = replace(first, scale=np.sqrt(np.mean(np.square(scales), axis=0)))
    return first


def named_draws(model: Model, positions: np.ndarray) -> dict[str, np.ndarray]:
    """Named parameters of all draws, in blocks of one size, so that more draws compile nothing.

    >>> import numpyro.distributions as dist
    >>> model = Model({"mu": dist.Normal(0, 1)}, lambda p, y: -0.5 * (y - p["mu"]) ** 2)
    >>> named_draws(model, np.zeros((2, 5, 1)))["mu"].shape
    (2, 5)
    """
    shape, flat = positions.shape[:-1], positions.reshape(-1, positions.shape[-1])
    blocks = []
    for start in range(0, len(flat), BLOCK_DRAWS):
        chosen = np.minimum(np.arange(start, start + BLOCK_DRAWS), len(flat) - 1)
        blocks.append(model.unravel(flat[chosen]))
    joined = {name: np.concatenate([b[name] for b in blocks])[: len(flat)] for name in model.names}
    return {name: values.reshape(*shape, *values.shape[1:]) for name, values in joined.items()}


def first_draws(blocks: Any, kept: int) -> np.ndarray:
    """The first draws of a chain, from its blocks.

    >>> first_draws([np.array([1.0, 2.0]), np.array([3.0, 4.0])], 3)
    array([1., 2., 3.])
    """
    return np.concatenate(blocks)[:kept]


def walkers_as_chains(values: np.ndarray) -> np.ndarray:
    """Chains x draws x walkers x ... as (chains walkers) x draws x ...

    >>> walkers_as_chains(np.zeros((2, 100, 8, 3))).shape
    (16, 100, 3)
    """
    moved = np.moveaxis(values, 2, 1)
    return moved.reshape(-1, *moved.shape[2:])


def spread_out(values: np.ndarray, num_walkers: int) -> np.ndarray:
    """A statistic for each walker; one of the whole ensemble is repeated for all its walkers.

    >>> spread_out(np.zeros((2, 100)), 8).shape, spread_out(np.zeros((2, 100, 8)), 8).shape
    ((16, 100), (16, 100))
    """
    if values.ndim > 2 and values.shape[2] == num_walkers:
        return walkers_as_chains(values)
    return np.repeat(values, num_walkers, axis=0)
