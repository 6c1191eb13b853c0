"""Posterior draws from ArviZ: a data tree, or InferenceData of ArviZ before 1.0."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from weighbridge.core.compilation import double_precision
from weighbridge.core.errors import DataError
from weighbridge.models.model import Model
from weighbridge.models.named_draws import check_names, positions_of, with_chains
from weighbridge.models.row_gate import require_model
from weighbridge.results.arviz_export import ARVIZ_NAMES
from weighbridge.results.posterior import Posterior

# The axes that every variable of a posterior has, in this order.
AXES = ("chain", "draw")
OUR_NAMES = {theirs: ours for ours, theirs in ARVIZ_NAMES.items()}


@double_precision
def from_arviz(idata: Any, model: Model) -> Posterior:
    """The posterior draws of an ArviZ data tree, as draws of a model.

    Args:
        idata: ``xarray.DataTree`` (ArviZ 1), ``arviz.InferenceData`` (ArviZ 0.x), or what has a
            group ``posterior`` of variables chains x draws x shape in the same way.
        model: the model of which they are draws. Its parameters must have the names and the shapes
            of variables of the posterior; other variables (transformed or deterministic ones) are
            left out, which a remark says.

    Returns:
        The draws, with the statistics of the sampler (``sample_stats``) that are numbers, for
        ``wb.bridge(posterior, model, data)`` and the like.

    >>> import numpyro.distributions as dist
    >>> draws = np.random.default_rng(0).normal(size=(2, 50))
    >>> model = Model({"a": dist.Normal(0, 1)}, lambda p, y: dist.Normal(p["a"], 1).log_prob(y))
    >>> tree = Posterior({"a": draws}, draws[..., None], {}).to_arviz()
    >>> from_arviz(tree, model)
    <Posterior: 2 x 50 draws...>
    """
    require_model(model)
    group = _group(idata, "posterior")
    if group is None:
        raise DataError(
            f"There is no group 'posterior' in this {type(idata).__name__}, which must be an "
            "xarray.DataTree or an arviz.InferenceData with posterior draws. Give the whole tree, "
            "not one of its groups. A mapping from names to arrays needs no from_arviz: give it "
            "to wb.bridge itself."
        )
    found = {str(name): group[name] for name in _variables(group)}
    check_names(model, found)
    samples = with_chains(model, {name: _in_order(name, found[name]) for name in model.names})
    others = [name for name in found if name not in model.names]
    remarks = (f"Variables that are not parameters of the model: {', '.join(others)}.",)
    return Posterior(
        samples=samples,
        positions=positions_of(model, samples),
        stats=_statistics(idata, next(iter(samples.values())).shape[:2]),
        remarks=remarks if others else (),
    )


def _group(idata: Any, name: str) -> Any:
    """A group of a data tree, of InferenceData or of a mapping; None if there is none."""
    try:
        return idata[name]
    except (KeyError, TypeError, AttributeError, IndexError, ValueError):
        return None


def _variables(group: Any) -> Iterable[Any]:
    """Names of the variables of a group; coordinates are not among them."""
    return list(getattr(group, "data_vars", group))


def _in_order(name: str, variable: Any) -> np.ndarray:
    """A variable as an array, chains x draws x shape, however its axes are arranged."""
    dims = tuple(getattr(variable, "dims", AXES))
    if not set(AXES) <= set(dims):
        raise DataError(
            f"The variable {name!r} of the posterior has the dimensions {dims}; 'chain' and 'draw' "
            "must be among them."
        )
    if dims[:2] != AXES:
        variable = variable.transpose(*AXES, ...)
    return np.asarray(variable)


def _statistics(idata: Any, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Statistics of each draw that are numbers, chains x draws, with our names."""
    group = _group(idata, "sample_stats")
    if group is None:
        return {}
    found = {}
    for name in _variables(group):
        dims = tuple(getattr(group[name], "dims", AXES))
        if set(dims) != set(AXES):
            continue
        values = _in_order(str(name), group[name])
        if values.dtype.kind in "biuf" and values.shape == shape:
            found[OUR_NAMES.get(str(name), str(name))] = values
    if "divergent" in found:
        found["divergent"] = found["divergent"].astype(bool)
    return found
