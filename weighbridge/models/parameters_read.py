"""Whether a likelihood of rows reads any parameter: found by calling it with a recording dict."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from weighbridge.core.compilation import double_precision
from weighbridge.core.types import PyTree
from weighbridge.models.model import Model

_abstract_array: Any = jax.ShapeDtypeStruct  # JAX has no types for its constructor
# The diagnostic of a likelihood that reads no parameter.
CONSTANT = "constant_likelihood"


class _RecordingParameters(dict[str, Any]):
    """Parameters that record whether anything was read; they are no pytree."""

    read = False

    def __getitem__(self, name: str) -> Any:
        self.read = True
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read = True
        return super().get(name, default)

    def __iter__(self) -> Any:
        self.read = True
        return super().__iter__()

    def keys(self) -> Any:
        self.read = True
        return super().keys()

    def values(self) -> Any:
        self.read = True
        return super().values()

    def items(self) -> Any:
        self.read = True
        return super().items()


@double_precision
def reads_parameters(model: Model, row: PyTree) -> bool:
    """Whether the likelihood of a row may depend on the parameters; nothing is computed.

    A model without free parameters, such as a null hypothesis, needs a prior all the same. Its
    likelihood reads no parameter, so its evidence is exact. A likelihood that cannot be called in
    this way counts as one that reads parameters.

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
    recorded: list[_RecordingParameters] = []

    def call(position: Any, row: Any) -> Any:
        recorded.append(_RecordingParameters(model.transform(position)[0]))
        return function(recorded[-1], row)

    try:
        jax.eval_shape(call, position, row)
    except Exception:  # a user's function can raise anything; it is checked elsewhere
        return True
    return any(parameters.read for parameters in recorded)


def row_shapes(values: PyTree) -> PyTree:
    """Shapes and types of one of these rows."""
    return jax.tree_util.tree_map(lambda leaf: _abstract_array(leaf.shape[1:], leaf.dtype), values)
