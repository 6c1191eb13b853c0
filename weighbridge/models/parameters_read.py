"""Whether a likelihood of rows depends on any parameter: found in its trace."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.extend.core import Var

from weighbridge.core.compilation import double_precision
from weighbridge.core.types import PyTree
from weighbridge.models.model import Model

_abstract_array: Any = jax.ShapeDtypeStruct  # JAX has no types for its constructor
# The diagnostic of a likelihood that depends on no parameter.
CONSTANT = "constant_likelihood"


@double_precision
def reads_parameters(model: Model, row: PyTree) -> bool:
    """Whether the likelihood of a row may depend on the parameters; nothing is computed.

    A model without free parameters, such as a null hypothesis, needs a prior all the same. Its
    likelihood depends on no parameter, so its evidence is exact. The steps of the trace are
    followed from the parameters on: if they never lead to the result, it is constant. A likelihood
    that cannot be traced counts as one that depends on parameters.

    Args:
        model: the model.
        row: the shapes of a row; see ``row_shapes``.

    >>> import numpyro.distributions as dist
    >>> prior, row = {"unused": dist.Normal(0, 1)}, row_shapes(np.zeros(3))
    >>> null = Model(prior, lambda p, y: dist.Normal(0.0, 1.0).log_prob(y))
    >>> free = Model(prior, lambda p, y: dist.Normal(p["unused"], 1.0).log_prob(y))
    >>> reads_parameters(null, row), reads_parameters(free, row)
    (False, True)
    """
    function = model.log_likelihood
    if function is None:
        return True
    position = _abstract_array((model.dimension,), np.float64)
    parameters = jax.eval_shape(lambda u: model.transform(u)[0], position)
    try:
        traced = jax.make_jaxpr(function)(parameters, row).jaxpr
    except Exception:  # a user's function can raise anything; it is checked elsewhere
        return True
    reached = set(traced.invars[: len(jax.tree_util.tree_leaves(parameters))])
    for step in traced.eqns:
        if any(isinstance(variable, Var) and variable in reached for variable in step.invars):
            reached.update(step.outvars)
    return any(isinstance(result, Var) and result in reached for result in traced.outvars)


def row_shapes(values: PyTree) -> PyTree:
    """Shapes and types of one of these rows."""
    return jax.tree_util.tree_map(lambda leaf: _abstract_array(leaf.shape[1:], leaf.dtype), values)
