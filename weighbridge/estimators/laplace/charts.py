"""The coordinates in which a posterior is compared with a Gaussian."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.compilation import Program, jit
from weighbridge.core.errors import MethodError
from weighbridge.core.types import Array
from weighbridge.models.model import Model

NAMES = ("unconstrained", "own")
# What a user may give: a name, a function of all parameters, or functions of some of them.
Coordinates = str | Callable[..., Any] | Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class Chart:
    r"""Coordinates v = phi(u) of a posterior: the volume that they give to unconstrained vectors.

    The density of v is that of u divided by the volume. At its mode, where the gradient is zero,

    .. math:: \det(-H_v) = \det(-H_u) \, |\det \partial\phi / \partial u|^{-2}, \qquad
              H_u = \nabla_u^2 \bigl[ \log f(u) - \log |\det \partial\phi / \partial u| \bigr]

    so Laplace's method in v needs derivatives by u only, and no inverse of phi.

    Args:
        name: "unconstrained", "own" (the model's parameters themselves), or "functions".
        whole: a function of all named parameters that returns D numbers; None if there is none.
        each: pairs of a parameter's name and a function of it; other parameters keep their
            unconstrained coordinates.
    """

    name: str = "unconstrained"
    whole: Callable[..., Any] | None = None
    each: tuple[tuple[str, Callable[..., Any]], ...] = ()

    @staticmethod
    def of(coordinates: Coordinates) -> Chart:
        """The chart of what a user gave.

        >>> Chart.of("own").name, Chart.of({"s": jnp.log}).each[0][0]
        ('own', 's')
        """
        if isinstance(coordinates, str):
            if coordinates not in NAMES:
                raise MethodError(
                    f"coordinates is one of {list(NAMES)}, a function of the parameters, or a "
                    f"mapping from names to functions, not {coordinates!r}."
                )
            return Chart(coordinates)
        if isinstance(coordinates, Mapping):
            wrong = [name for name, function in coordinates.items() if not callable(function)]
            if wrong or not coordinates:
                raise MethodError(
                    "coordinates must map names of parameters to functions, such as "
                    f'{{"sigma": jnp.log}}; there is none for {wrong or "any parameter"}.'
                )
            return Chart("functions", None, tuple(coordinates.items()))
        if not callable(coordinates):
            raise MethodError(
                f"coordinates is one of {list(NAMES)}, a function of the parameters, or a mapping "
                f"from names to functions, not {type(coordinates).__name__}."
            )
        return Chart("functions", coordinates)

    def check(self, model: Model, draws: np.ndarray) -> None:
        """Refuse coordinates that are not D numbers, or that have no volume at prior draws."""
        if self.name == "unconstrained":
            return
        if self.name == "own":
            for site in model.sites:
                if int(np.prod(site.shape, dtype=int)) != site.stop - site.start:
                    raise MethodError(
                        f"{site.name!r} has {int(np.prod(site.shape, dtype=int))} entries but only "
                        f"{site.stop - site.start} degrees of freedom (a simplex, for example), so "
                        'it has no density of its own. Use coordinates="unconstrained", or a '
                        "function of the parameters that returns as many numbers as there are "
                        "degrees of freedom."
                    )
            return
        unknown = [name for name, _ in self.each if name not in model.names]
        if unknown:
            raise MethodError(f"coordinates names {unknown}; the model has {list(model.names)}.")
        place: Any = jax.ShapeDtypeStruct((model.dimension,), np.float64)
        try:
            found = jax.eval_shape(lambda u: self._values(model, u), place)
        except Exception as error:
            error.add_note(
                "weighbridge called a function of coordinates= with traced arrays: it must use "
                "jax.numpy, and take named parameters (or the value of one, in a mapping)."
            )
            raise
        if found.shape != (model.dimension,):
            raise MethodError(
                f"The coordinates are {found.shape[0]} numbers; the model has {model.dimension} "
                "degrees of freedom, so as many are needed."
            )
        if not np.isfinite(np.asarray(_log_volumes(self, model, draws))).any():
            raise MethodError(
                "The coordinates are not invertible: their Jacobian is zero, or not a number, at "
                "every prior draw that was tried. They must be a one-to-one function of the "
                "parameters within their support."
            )

    def log_volume(self, model: Model, position: Array) -> Array:
        """log |det d phi / d u| at an unconstrained position."""
        if self.name == "unconstrained":
            return jnp.zeros(())
        if self.name == "own":
            parameters, log_density = model.transform(position)
            return log_density - sum(model.log_priors(parameters).values(), jnp.zeros(()))
        slope = jax.jacfwd(lambda u: self._values(model, u))(position)
        log_volume: Array = jnp.linalg.slogdet(slope)[1]
        return log_volume

    def _values(self, model: Model, position: Array) -> Array:
        parameters = model.transform(position)[0]
        if self.whole is not None:
            ordered = {name: parameters[name] for name in model.names}
            leaves = jax.tree_util.tree_leaves(self.whole(ordered))
        else:
            of = dict(self.each)
            leaves = [
                of[site.name](parameters[site.name])
                if site.name in of
                else position[site.start : site.stop]
                for site in model.sites
            ]
        return jnp.concatenate([jnp.reshape(jnp.asarray(leaf), -1) for leaf in leaves])


_log_volumes: Program[Array] = jit(
    lambda chart, model, draws: jax.vmap(lambda u: chart.log_volume(model, u))(draws),
    static_argnums=0,
)
