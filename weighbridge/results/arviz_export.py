"""Draws for ArviZ: a data tree, or InferenceData with an ArviZ before 1.0."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from weighbridge.core.compilation import double_precision
from weighbridge.core.errors import MethodError, MissingDependencyError
from weighbridge.data.values import column_names, take_columns
from weighbridge.models.row_values import row_blocks

if TYPE_CHECKING:
    from weighbridge.models.model import Model

# ArviZ's names for the statistics of a sampler.
ARVIZ_NAMES = {
    "divergent": "diverging",
    "acceptance": "acceptance_rate",
    "num_leapfrog": "n_steps",
}
# The dimension of rows, and the name of their log-likelihood (a variable may not have the name of
# its dimension).
ROW, ROWS = "row", "rows"


class Observed(NamedTuple):
    """The observed data, and their log-likelihood at the draws.

    Attributes:
        log_likelihood: log-likelihood of every row, chains x draws x rows; None for a total
            log-likelihood.
        columns: columns of the data, rows along the first axis.
    """

    log_likelihood: np.ndarray | None
    columns: dict[str, np.ndarray]


def to_arviz(
    samples: Mapping[str, np.ndarray],
    stats: Mapping[str, np.ndarray] | None = None,
    observed: Observed | None = None,
) -> Any:
    """Draws, their statistics and the observed data, for the installed ArviZ.

    Args:
        samples: draws by parameter name, chains x draws x shape.
        stats: statistics of each draw from the sampler, chains x draws.
        observed: log-likelihoods of rows and their columns.

    Returns:
        ``xarray.DataTree``, which ArviZ 1 reads, or ``arviz.InferenceData`` with ArviZ 0.x.
    """
    groups: dict[str, dict[str, np.ndarray]] = {"posterior": dict(samples)}
    dims: dict[str, list[str]] = {}
    if stats:
        groups["sample_stats"] = {ARVIZ_NAMES.get(n, n): values for n, values in stats.items()}
    if observed is not None:
        if observed.log_likelihood is not None:
            groups["log_likelihood"] = {ROWS: observed.log_likelihood}
            dims[ROWS] = [ROW]
        groups["observed_data"] = observed.columns
        for name, column in observed.columns.items():
            extra = [f"{name}_dim_{axis}" for axis in range(column.ndim - 1)]
            dims.setdefault(name, [ROW, *extra])
    if generation() == 0:
        return _inference_data(groups, dims)
    try:
        from arviz_base import from_dict
    except ImportError as error:
        raise MissingDependencyError(
            'to_arviz() needs ArviZ: pip install "weighbridge[arviz]", or arviz itself.'
        ) from error
    # A column may have the name of a parameter that has other dimensions.
    own = {name: d for name, d in dims.items() if name not in samples}
    return from_dict(groups, dims=own)


def generation() -> int | None:
    """The major version of ArviZ, if the whole package is installed.

    >>> generation() in (None, 0, 1)
    True
    """
    try:
        return int(importlib.metadata.version("arviz").split(".")[0])
    except importlib.metadata.PackageNotFoundError:
        return None


def _inference_data(groups: dict[str, dict[str, np.ndarray]], dims: dict[str, list[str]]) -> Any:
    """The format of ArviZ 0.x, with the variable names that its plots expect."""
    from arviz import from_dict

    own = {name: d for name, d in dims.items() if name not in groups["posterior"]}
    return from_dict(**groups, dims=own)


@double_precision
def observe(samples: Mapping[str, np.ndarray], model: Model | None, data: Any) -> Observed | None:
    """The log-likelihood of every row at every draw, if a model and data are given.

    Args:
        samples: draws by parameter name, chains x draws x shape.
        model: the model of the draws; without one only the data are kept.
        data: observations in memory, in any form that ``wb.evidence`` accepts.
    """
    if data is None:
        if model is not None:
            raise MethodError("to_arviz(model, data) needs both: a log-likelihood needs the data.")
        return None
    values, left_out = take_columns(data)
    names, leaves = column_names(values), jax.tree_util.tree_leaves(values)
    columns = {name: np.asarray(leaf) for name, leaf in zip(names, leaves)}
    if model is None or model.log_likelihood is None:
        return Observed(None, columns)
    missing = [name for name in model.names if name not in samples]
    if missing:
        raise MethodError(f"The draws have no {missing}: give the model that they come from.")
    chains, draws = next(iter(samples.values())).shape[:2]
    flat = {n: samples[n].reshape(chains * draws, *samples[n].shape[2:]) for n in model.names}
    found = np.empty((chains * draws, len(leaves[0])))
    try:
        for rows, block in row_blocks(model, flat, values):
            found[:, rows] = block
    except KeyError as error:
        if error.args and error.args[0] in left_out:
            raise left_out[error.args[0]] from None
        raise
    return Observed(found.reshape(chains, draws, -1), columns)
