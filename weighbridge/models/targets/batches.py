"""The log-likelihood estimated on mini-batches: drawn beforehand, or at each step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, PyTree
from weighbridge.models.model import Model
from weighbridge.models.priors import Parameters
from weighbridge.models.targets.rows import Rows, weighted_sum
from weighbridge.models.targets.term import OwnGuide


@partial(register_dataclass, data_fields=["batches", "scale", "batch"], meta_fields=[])
@dataclass(frozen=True)
class Batches(OwnGuide):
    r"""A log-likelihood estimated on mini-batches that were drawn beforehand.

    .. math:: \hat\ell(\theta) = \frac{n}{|B|} \sum_{k \in B} w_k \log p(y_k | \theta)

    Step t uses batch t modulo the number of batches.

    Args:
        batches: rows with two leading axes, batches and rows of a batch.
        scale: n / |B|, where n is the number of rows from which the batches were drawn.
        batch: the batch in use; ``subsample`` changes it.
    """

    batches: Rows
    scale: Array | np.ndarray | float
    batch: Array | np.ndarray | int = 0

    @property
    def axes(self) -> int:
        """Every island has mini-batches of its own."""
        return 0

    def __call__(self, model: Model, position: Array, parameters: Parameters) -> Array:
        """The scaled sum over the batch in use."""
        return jnp.asarray(self.scale) * weighted_sum(model, parameters, self._rows())

    def subsample(self, step: Array) -> Batches:
        """Use the batch of this step."""
        return replace(self, batch=step % self.batches.weight.shape[0])

    def gradient_variance(self, model: Model, position: Array) -> Array:
        """Estimate (n / |B|)^2 |B| Var_k[w_k grad log p(y_k | theta)] from the batch itself."""
        return _batch_gradient_variance(model, position, self._rows(), self.scale)

    def _rows(self) -> Rows:
        rows = jax.tree_util.tree_map(lambda leaf: jnp.asarray(leaf)[self.batch], self.batches)
        return cast(Rows, rows)


@partial(
    register_dataclass,
    data_fields=["rows", "key", "step"],
    meta_fields=["batch_size"],
)
@dataclass(frozen=True)
class Subsampled(OwnGuide):
    """A log-likelihood estimated on mini-batches that are drawn at each step, with replacement.

    The key and the step determine the batch. Particles that share the target share the batch.
    """

    rows: Rows
    key: Array
    batch_size: int
    step: Array | int = 0

    @property
    def axes(self) -> int:
        """Every island has mini-batches of its own."""
        return 0

    def __call__(self, model: Model, position: Array, parameters: Parameters) -> Array:
        """The scaled sum over the batch of this step."""
        return self._scale() * weighted_sum(model, parameters, self._batch())

    def subsample(self, step: Array) -> Subsampled:
        """Use the batch of this step."""
        return replace(self, step=step)

    def gradient_variance(self, model: Model, position: Array) -> Array:
        """Estimate the variance of the gradient over batches from the batch itself."""
        return _batch_gradient_variance(model, position, self._batch(), self._scale())

    def _scale(self) -> float:
        return self.rows.weight.shape[0] / self.batch_size

    def _batch(self) -> Rows:
        key = jax.random.fold_in(self.key, self.step)
        chosen = jax.random.randint(key, (self.batch_size,), 0, self.rows.weight.shape[0])
        rows = jax.tree_util.tree_map(lambda leaf: jnp.asarray(leaf)[chosen], self.rows)
        return cast(Rows, rows)


def _batch_gradient_variance(
    model: Model, position: Array, rows: Rows, scale: Array | np.ndarray | float
) -> Array:
    function = model.require_rows()

    def gradient(row: PyTree, weight: Array | np.ndarray) -> Array:
        slope: Array = jax.grad(lambda u: function(model.transform(u)[0], row))(position)
        return jnp.asarray(weight) * slope

    gradients = jax.vmap(gradient)(rows.values, rows.weight)
    return jnp.asarray(scale) ** 2 * gradients.shape[0] * jnp.var(gradients, axis=0, ddof=1)
