"""Checks of the prior: the transform to unconstrained space and back, and its density."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.checking.model_check.agreement import relative_error
from weighbridge.checking.model_check.report import Check
from weighbridge.core.compilation import jit
from weighbridge.models.model import Model, unravel_positions
from weighbridge.models.targets.host import as_numpy

# Allowed relative error of the transform and its inverse, which is less exact near the edge of a
# support.
ROUND_TRIP = 1e-6
# Shift of positions that must change the parameters; where it does not, a draw is at the edge.
NUDGE = 0.1
# Allowed share of draws at the edge of their support.
MANY_AT_EDGE = 0.05


def check_transform(model: Model, position: np.ndarray, samples: dict[str, np.ndarray]) -> Check:
    """Is the inverse of the transform exact, and do other positions give other parameters?"""
    again = np.asarray(_flatten(model, samples))
    returned = as_numpy(model, unravel_positions(model, jnp.asarray(again)))
    moved = as_numpy(model, unravel_positions(model, jnp.asarray(position + NUDGE)))
    edge = np.zeros(len(position), bool)
    for site in model.sites:
        same = (moved[site.name] == samples[site.name]).reshape(len(position), -1)
        # In a simplex some entries may stay the same; elsewhere every entry must change.
        edge |= same.any(1) if site.shape == site.unconstrained_shape else same.all(1)
    errors = {
        name: float(np.max(relative_error(returned[name], draws), initial=0.0))
        for name, draws in samples.items()
    }
    worst = max(errors, key=errors.__getitem__)
    passed = errors[worst] <= ROUND_TRIP and float(edge.mean()) <= MANY_AT_EDGE
    found = f"inverse exact to {errors[worst]:.1g}"
    if errors[worst] > ROUND_TRIP:
        found = f"the inverse changes {worst!r}, by {errors[worst]:.2g} of itself"
    elif edge.any():
        found = f"{edge.mean():.0%} of prior draws round to the edge of their support"
    return Check(
        "transform",
        passed,
        found,
        "Draws at the edge of their support are infinite in unconstrained space: use a prior with "
        "less mass there (a Beta or Gamma with shapes well above 0.01), or put the parameter on "
        "a logarithmic scale. A support of your own needs a bijector with an exact inverse.",
    )


_flatten = jit(lambda model, samples: jax.vmap(model.flatten)(samples))


def check_prior(values: np.ndarray) -> Check:
    """Is the log prior finite at draws from the prior?

    >>> check_prior(np.array([-1.0, -2.5])).found
    'log density -2.5 to -1'
    """
    bad = int(np.sum(~np.isfinite(values)))
    return Check(
        "prior",
        bad == 0,
        f"not finite at {bad} of {len(values)} draws from the prior"
        if bad
        else f"log density {values.min():.4g} to {values.max():.4g}",
        "The prior density must be finite at its own draws: look for scales that are zero or "
        "overflow in functions of other parameters, and for draws at the edge of their support.",
    )
