"""Named draws of a model's parameters, checked, and as unconstrained vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from weighbridge.core.compilation import jit, own
from weighbridge.core.errors import DataError
from weighbridge.models.model import Model, unravel_positions

# Largest relative error of parameters after the transform and back: draws may be saved in single
# precision, but they must satisfy the constraints of the prior.
SAME = 1e-4


def check_names(model: Model, samples: Mapping[str, Any]) -> None:
    """Refuse draws without a parameter of the model."""
    missing = [name for name in model.names if name not in samples]
    if missing:
        raise DataError(
            f"The draws have no parameters {missing}; they have {list(samples)}. The model has "
            f"{list(model.names)}: are these draws of another model?"
        )


def with_chains(model: Model, draws: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The draws of each parameter of the model, chains x draws x shape."""
    found: dict[str, np.ndarray] = {}
    for site in model.sites:
        try:
            values = np.asarray(draws[site.name], float)
        except (TypeError, ValueError) as error:
            raise DataError(f"The draws of {site.name!r} are not an array of numbers.") from error
        ahead = values.ndim - len(site.shape)
        if ahead not in (1, 2) or values.shape[ahead:] != site.shape:
            raise DataError(
                f"The draws of {site.name!r} have shape {values.shape}; its prior has shape "
                f"{site.shape}, so chains x draws x {site.shape} or draws x {site.shape} is needed."
            )
        found[site.name] = values if ahead == 2 else values[None]
    shapes = {name: values.shape[:2] for name, values in found.items()}
    if len(set(shapes.values())) > 1:
        raise DataError(f"Parameters have different numbers of chains or draws: {shapes}.")
    return found


def positions_of(model: Model, samples: Mapping[str, np.ndarray]) -> np.ndarray:
    """The draws as unconstrained vectors, chains x draws x coordinates."""
    flat, shape = {}, (0, 0)
    for site in model.sites:
        values = np.asarray(samples[site.name], float)
        if values.shape[2:] != site.shape:
            raise DataError(
                f"The draws of {site.name!r} have shape {values.shape[2:]} each; its prior has "
                f"shape {site.shape}. Are these draws of another model?"
            )
        if not np.isfinite(values).all():
            raise DataError(f"Draws of {site.name!r} are NaN or infinite.")
        shape = values.shape[:2]
        if not values.size:
            raise DataError(f"There are no draws: those of {site.name!r} have shape {shape}.")
        flat[site.name] = own(values.reshape(-1, *site.shape))
    found, outside = locate(model, flat)
    for name, wrong in outside.items():
        if wrong.any():
            raise DataError(
                f"{int(wrong.sum()):,} of {len(wrong):,} draws lie outside the support of the "
                f"prior, or on its edge; {name!r} of the first is "
                f"{flat[name][np.argmax(wrong)].tolist()}. Are these draws of another model?"
            )
    return found.reshape(*shape, model.dimension)


def locate(
    model: Model, draws: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Named draws as unconstrained vectors, and which draws of a parameter are not in its support.

    Parameters whose prior depends on one that is outside may be called outside, too; they come
    after it.

    Args:
        model: the model, with the coordinates and the supports.
        draws: draws x shape of every parameter.
    """
    found = np.array(_flatten(model, {name: own(draws[name]) for name in model.names}))
    again = unravel_positions(model, own(np.where(np.isfinite(found), found, 0.0)))
    outside = {}
    for site in model.sites:
        before, after = np.asarray(draws[site.name]), np.asarray(again[site.name])
        apart = np.abs(after - before) > SAME * (np.abs(before) + np.abs(after)) + 1e-12
        infinite = ~np.isfinite(found[:, site.start : site.stop]).all(axis=1)
        outside[site.name] = infinite | apart.reshape(len(apart), -1).any(axis=1)
    return found, outside


_flatten = jit(lambda model, draws: jax.vmap(model.flatten)(draws))
