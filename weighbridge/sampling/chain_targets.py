"""The targets of chains: all the data, or mini-batches that differ between chains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.compilation import double_precision
from weighbridge.core.errors import ModelError
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.types import PyTree
from weighbridge.data.fingerprint import exact_digest
from weighbridge.models.model import Model
from weighbridge.models.targets.batches import Subsampled
from weighbridge.models.targets.density import Target
from weighbridge.models.targets.host import PROBES, OnHost, host_likelihood
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.term import Term
from weighbridge.models.targets.total import Total


@dataclass(frozen=True)
class ChainTargets:
    """A kernel, and the target of each chain."""

    model: Model
    kernel: Any
    target: Callable[[int, int], Target]
    digest: str
    num_walkers: int | None


@double_precision
def prepare(
    model: Model, rows: tuple[PyTree, np.ndarray | None], kernel: Any, batch_size: int
) -> ChainTargets:
    """Prepare a kernel and its targets for the posterior of some rows.

    Args:
        model: the model of the posterior.
        rows: rows and weights from ``hold``; no weights if the likelihood is of all the data.
        kernel: the kernel of the chains.
        batch_size: rows of a mini-batch, for kernels that use them.

    >>> import numpyro.distributions as dist
    >>> from weighbridge.sampling.kernels.ensemble import Stretch
    >>> model = Model({"mu": dist.Normal(0, 1)}, lambda p, y: -0.5 * (y - p["mu"]) ** 2)
    >>> prepared = prepare(model, (np.array([1.0, 3.0]), np.ones(2)), Stretch(), 256)
    >>> prepared.num_walkers, round(float(prepared.target(0, 0)(jnp.zeros(1))), 3)
    (16, -5.919)
    """
    values, weight = rows
    if kernel.ensemble:
        count = getattr(kernel, "num_walkers", _usual_walkers)
        num_walkers = int(count(model.dimension))
    else:
        num_walkers = None
    digest = exact_digest(values, weight)
    if weight is None:
        if kernel.uses_batches:
            model.require_rows()
        exact = Target(model, (_whole_likelihood(model, values, kernel),))
        return ChainTargets(model, kernel, lambda seed, chain: exact, digest, num_walkers)
    observed = Rows(jax.tree_util.tree_map(np.asarray, values), weight)
    if not kernel.uses_batches:
        exact = Target(model, (observed,))
        return ChainTargets(model, kernel, lambda seed, chain: exact, digest, num_walkers)
    kernel = kernel.rescale(1.0 / (1.0 + float(weight.sum())))
    size = min(batch_size, len(weight))

    def on_batches(seed: int, chain: int) -> Target:
        numbers = random_numbers(seed, Stream.CHAIN_BATCHES, chain).integers(0, 2**32, 2, np.uint32)
        key = jax.random.wrap_key_data(jnp.asarray(numbers), impl="threefry2x32")
        terms: tuple[Term, ...] = (Subsampled(observed, key, size),)
        return Target(model, terms)

    return ChainTargets(model, kernel, on_batches, digest, num_walkers)


def _usual_walkers(dimension: int) -> int:
    """Number of walkers of an ensemble kernel that does not specify it."""
    return max(2 * dimension + 2, 16)


def _whole_likelihood(model: Model, data: PyTree, kernel: Any) -> Term:
    """A likelihood that does not factorise: compiled, or called on the host if it cannot be."""
    somewhere = np.random.default_rng(0).normal(size=(1, PROBES, model.dimension))
    likelihood = host_likelihood(model, data, jnp.asarray(somewhere))
    if likelihood is None:
        return Total(data)
    if kernel.uses_gradient:
        raise ModelError(
            f"{type(kernel).__name__} needs gradients, but the total_log_likelihood of this model "
            "runs on the host, without gradients. Write it with jax.numpy, or use a kernel "
            "without gradients: wb.Slice(), wb.Stretch(), wb.AdaptiveMetropolis()."
        )
    return OnHost(likelihood)
