"""The log-likelihood of a model that does not factorise over rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp

from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, PyTree
from weighbridge.models.model import Model
from weighbridge.models.priors import Parameters
from weighbridge.models.targets.term import ExactTerm


@partial(register_dataclass, data_fields=["data"], meta_fields=[])
@dataclass(frozen=True)
class Total(ExactTerm):
    """The log-likelihood of a model that does not factorise over rows."""

    data: PyTree = None

    def __call__(self, model: Model, position: Array, parameters: Parameters) -> Array:
        """Call ``f(parameters)`` or ``f(parameters, data)``, whichever the model has."""
        function = model.total_log_likelihood
        assert function is not None
        value = on_data(function, self.data)(parameters)
        return jnp.asarray(value, jnp.result_type(value, float))


def on_data(function: Callable[..., Any], data: PyTree) -> Callable[[Any], Any]:
    """A function of the parameters, from a function of parameters or of parameters and data.

    >>> on_data(lambda p, y: p + y, 2)(1), on_data(lambda p, power=3: p**power, None)(2)
    (3, 8)
    """
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = [p for p in inspect.signature(function).parameters.values() if p.kind in kinds]
    # An argument with a default may be a setting of the function, unless there are data to pass.
    takes_data = len(found) > 1 and (
        data is not None or found[1].default is inspect.Parameter.empty
    )
    return (lambda parameters: function(parameters, data)) if takes_data else function
