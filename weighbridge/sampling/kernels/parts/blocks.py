"""Blocks of parameters: targets restricted to a block, and draws from a user's conditionals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import jax.numpy as jnp
import numpy as np

from weighbridge.core.errors import MethodError
from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array, Kernel, LogDensity, PyTree
from weighbridge.models.model import EDGE, Model
from weighbridge.models.priors import Parameters
from weighbridge.models.targets.density import Target
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.total import Total, on_data

Names = tuple[str, ...]
Conditional = Callable[..., Any]

# Fields of a kernel's state that depend on the target, which the other blocks have changed.
CACHED = ("position", "log_density", "gradient")
# Relative differences below SAME are rounding errors. A value that differs by more than INSIDE
# after the transform to unconstrained coordinates and back was outside the support of its prior.
SAME = 1e-9
INSIDE = 1e-6


@partial(register_dataclass, data_fields=["target", "position"], meta_fields=["at"])
@dataclass(frozen=True)
class Restricted:
    """A target as a function of some coordinates, with the others fixed.

    >>> part = Restricted(lambda u: jnp.sum(u), jnp.array([1.0, 2.0, 3.0]), (1,))
    >>> float(part(jnp.array([10.0])))
    14.0
    """

    target: LogDensity
    position: Array
    at: tuple[int, ...]

    def __call__(self, position: Array) -> Array:
        """Log density at these coordinates."""
        return self.target(self.whole(position))

    def whole(self, part: Array) -> Array:
        """All coordinates, with this block replaced."""
        return self.position.at[np.array(self.at)].set(part)

    def part(self) -> Array:
        """The current coordinates of the block."""
        return self.position[np.array(self.at)]

    def subsample(self, step: Array) -> Restricted:
        """The same on the mini-batch of this step."""
        return replace(self, target=self.target.subsample(step))

    def gradient_variance(self, position: Array) -> Array:
        """Variance of the gradient over mini-batches, for these coordinates."""
        return self.target.gradient_variance(self.whole(position))[np.array(self.at)]


def refreshed(kernel: Kernel, state: Any, restricted: Restricted) -> Any:
    """A kernel's state after the other blocks have moved; what it has learned is kept."""
    fresh = kernel.init(restricted.part(), restricted)
    kept = {name: getattr(state, name) for name in state._fields if name not in CACHED}
    return fresh._replace(**kept)


def model_of(target: LogDensity) -> Model:
    """The model of a target, which has the names of the parameters."""
    model = getattr(target, "model", None)
    if not isinstance(model, Model):
        raise MethodError(
            "Gibbs works on named parameters, but this target has no model with names. Use Gibbs "
            "on a model directly, not inside another kernel."
        )
    return model


def coordinates(model: Model, names: Names) -> tuple[int, ...]:
    """The indices of named parameters in the unconstrained vector."""
    ranges = {site.name: range(site.start, site.stop) for site in model.sites}
    return tuple(index for name in names for index in ranges[name])


def draw_conditional(
    conditional: Conditional, names: Names, key: Array, position: Array, target: Target
) -> tuple[Array, Array]:
    """The position after a draw from a conditional, and whether the draw was valid.

    A draw that is NaN, or outside the support of its prior, does not change the position.
    """
    model = target.model
    parameters, _ = model.transform(position)
    given = partial(conditional, key)
    drawn = on_data(given, _data_of(target))(dict(parameters))
    values = _named(drawn, names, model)
    flat = model.flatten(parameters | values)
    # A draw may underflow to the edge of the support: treated as for draws from the prior.
    flat = jnp.where(jnp.isinf(flat), jnp.clip(flat, -EDGE, EDGE), flat)
    inside = np.zeros(model.dimension, bool)
    inside[list(coordinates(model, names))] = True
    moved = jnp.where(inside, flat, position)
    again, _ = model.transform(moved)
    for site in model.sites:
        if site.name in names:
            continue
        # The other parameters keep their values. They also keep their coordinates (which may be far
        # out where values saturate), unless their support has changed.
        kept = jnp.all(_near(again[site.name], parameters[site.name], SAME, 0.0))
        stay = slice(site.start, site.stop)
        moved = moved.at[stay].set(jnp.where(kept, position[stay], flat[stay]))
    # A value may depend on a parameter whose coordinates were set only in the loop above.
    again, _ = model.transform(moved)
    defined = jnp.all(jnp.isfinite(moved))
    for name in names:
        defined &= jnp.all(_near(again[name], values[name], INSIDE, INSIDE))
    return jnp.where(defined, moved, position), defined


def _near(value: Array, other: Array, relative: float, absolute: float) -> Array:
    """Whether numbers are close to each other; false if one is not finite."""
    near = jnp.abs(value - other) <= relative * jnp.abs(other) + absolute
    return near & jnp.isfinite(other)


def _data_of(target: Target) -> PyTree:
    """The data argument of a conditional: the data of the whole posterior."""
    if not target.terms:
        return None
    term = target.terms[0]
    if len(target.terms) == 1 and isinstance(term, Rows | Total):
        if isinstance(term, Total):
            return term.data
        # A column of weights that counts rows was removed from the observations; add it again.
        named = isinstance(term.values, Mapping)
        return {"weight": term.weight, **term.values} if named else term.values
    raise MethodError(
        "A conditional belongs to the exact posterior of all the data; it cannot be used on "
        "mini-batches or at other temperatures. Use a kernel for this block, such as wb.HMC()."
    )


def _named(drawn: Any, names: Names, model: Model) -> Parameters:
    """Values by name, with the shapes of the prior."""
    label = names[0] if len(names) == 1 else names
    if not isinstance(drawn, Mapping):
        values = (drawn,) if len(names) == 1 else drawn
        if not isinstance(values, tuple) or len(values) != len(names):
            raise MethodError(
                f"The conditional of {label!r} must return a value for each of its "
                f"{len(names)} parameters, as a mapping from their names or a tuple."
            )
        drawn = dict(zip(names, values))
    if set(drawn) != set(names):
        raise MethodError(
            f"The conditional of {label!r} returned values for {sorted(drawn)}; it must return "
            f"those of {sorted(names)}."
        )
    found = {name: jnp.asarray(cast(Any, drawn[name]), float) for name in names}
    for site in model.sites:
        if site.name in found and found[site.name].shape != site.shape:
            raise MethodError(
                f"The conditional of {label!r} returned shape {found[site.name].shape} for "
                f"{site.name!r}, but the prior has {site.shape}."
            )
    return found
