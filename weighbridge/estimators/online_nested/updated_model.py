"""A model whose prior is the posterior of earlier rows, up to a constant."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from weighbridge.core.types import Array
from weighbridge.models.model import Model
from weighbridge.models.priors import Parameters
from weighbridge.models.targets.term import Term


@jax.tree_util.register_pytree_node_class
class UpdatedModel(Model):
    r"""A model whose prior is the posterior of earlier rows, up to a constant.

    .. math:: \log p(\theta) + \log p(y_{<n} | \theta)

    Moves within a contour need no more than this. The likelihood is that of the model.

    Args:
        model: the model, with its own prior.
        past: the log-likelihood of the earlier rows.

    >>> import numpyro.distributions as dist
    >>> from weighbridge.models.targets.total import Total
    >>> plain = Model({"m": dist.Normal(0, 1)}, total_log_likelihood=lambda p: -p["m"] ** 2)
    >>> updated = UpdatedModel(plain, Total(None))
    >>> round(float(updated.transform(jnp.ones(1))[1] - plain.transform(jnp.ones(1))[1]), 3)
    -1.0
    """

    def __init__(self, model: Model, past: Term) -> None:
        vars(self).update(vars(model))
        self.past = past

    def transform(self, position: Array) -> tuple[Parameters, Array]:
        """Parameters at a position, and the log density there given the earlier rows."""
        parameters, log_density = super().transform(position)
        updated = log_density + self.past(self, position, parameters)
        return parameters, jnp.where(jnp.isnan(updated), -jnp.inf, updated)

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """As for a model; the earlier rows are numbers too."""
        children, static = super().tree_flatten()
        return (children, self.past), static

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], children: tuple[Any, ...]) -> UpdatedModel:
        """Rebuild a model from its parts."""
        return cls(Model.tree_unflatten(static, children[0]), children[1])
