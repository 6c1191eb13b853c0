"""Posterior draws of any origin, as unconstrained vectors of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from weighbridge.core.compilation import double_precision, jit, own
from weighbridge.core.errors import DataError
from weighbridge.models.model import Model, unravel_positions
from weighbridge.results.evidence_result import Evidence
from weighbridge.results.posterior import Posterior

# With fewer draws nothing can be said about a posterior.
LEAST_DRAWS = 20
# Largest relative error of parameters after the transform and back: draws may be saved in single
# precision, but they must satisfy the constraints of the prior.
SAME = 1e-4


class PosteriorDraws(NamedTuple):
    """Draws of a posterior as unconstrained vectors.

    Attributes:
        positions: chains x draws x coordinates.
        log_weights: their log weights, chains x draws; the weights of all draws sum to 1.
        ordered: whether successive draws of a chain are correlated, as those of a Markov chain.
    """

    positions: np.ndarray
    log_weights: np.ndarray
    ordered: bool

    @property
    def is_weighted(self) -> bool:
        """Whether the draws have different weights."""
        return bool(np.ptp(self.log_weights) > 0)

    def flat(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions, draws x coordinates, and their log weights, chain by chain."""
        flat = self.positions.reshape(self.log_weights.size, self.positions.shape[-1])
        return flat, self.log_weights.reshape(-1)


@double_precision
def read_draws(model: Model, draws: Any) -> PosteriorDraws:
    """Posterior draws of a model, checked.

    Args:
        model: the model of which they are draws.
        draws: a ``wb.Posterior``; an ``wb.Evidence``, whose draws have weights; or a mapping from
            parameter names to arrays, chains x draws x shape, or draws x shape for one chain.

    Draws with other names or shapes, that are not numbers, outside the support of the prior, too
    few or all equal raise a ``wb.DataError``.

    >>> import numpyro.distributions as dist
    >>> model = Model({"s": dist.HalfNormal(1)}, lambda p, y: -y * p["s"])
    >>> read_draws(model, {"s": np.linspace(1, 2, 40).reshape(2, 20)}).positions.shape
    (2, 20, 1)
    """
    log_weights = None
    if isinstance(draws, Posterior):
        samples: Mapping[str, Any] = draws.samples
        _check_names(model, samples)
        positions = np.asarray(draws.positions, float)
        _check_positions(model, positions, samples)
    elif isinstance(draws, Evidence):
        if not draws.samples:
            raise DataError(
                f"This result of {draws.method} holds no posterior draws, so nothing can be made "
                "of it. Weigh the model again with a method that keeps them."
            )
        samples = {name: np.asarray(values)[None] for name, values in draws.samples.items()}
        _check_names(model, samples)
        positions = _positions(model, samples)
        log_weights = np.asarray(draws.log_weights, float)[None]
    elif isinstance(draws, Mapping):
        _check_names(model, draws)
        samples = _with_chains(model, draws)
        positions = _positions(model, samples)
    else:
        raise DataError(
            "Draws must be a wb.Posterior, a wb.Evidence, or a mapping from parameter names to "
            f"arrays, not {type(draws).__name__}. For ArviZ: wb.from_arviz(idata, model)."
        )
    if log_weights is None:
        log_weights = np.zeros(positions.shape[:2])
    log_weights = log_weights - np.logaddexp.reduce(log_weights, axis=None)
    _check_variety(model, positions, log_weights)
    return PosteriorDraws(positions, log_weights, not isinstance(draws, Evidence))


def _check_names(model: Model, samples: Mapping[str, Any]) -> None:
    missing = [name for name in model.names if name not in samples]
    if missing:
        raise DataError(
            f"The draws have no parameters {missing}; they have {list(samples)}. The model has "
            f"{list(model.names)}: are these draws of another model?"
        )


def _with_chains(model: Model, draws: Mapping[str, Any]) -> dict[str, np.ndarray]:
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


def _positions(model: Model, samples: Mapping[str, np.ndarray]) -> np.ndarray:
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

    Args:
        model: the model, with the coordinates and the supports.
        draws: draws x shape of every parameter.
    """
    found = np.array(_flatten(model, {name: own(draws[name]) for name in model.names}))
    again = unravel_positions(model, own(np.where(np.isfinite(found), found, 0.0)))
    infinite = ~np.isfinite(found).all(axis=1)
    outside = {}
    for name in model.names:
        before, after = np.asarray(draws[name]), np.asarray(again[name])
        apart = np.abs(after - before) > SAME * (np.abs(before) + np.abs(after)) + 1e-12
        outside[name] = infinite | apart.reshape(len(apart), -1).any(axis=1)
    return found, outside


def _check_positions(model: Model, positions: np.ndarray, samples: Mapping[str, Any]) -> None:
    """Refuse a posterior whose vectors or named draws do not fit the model."""
    shapes = {site.name: np.shape(samples[site.name])[2:] for site in model.sites}
    expected = {site.name: site.shape for site in model.sites}
    if shapes != expected or positions.ndim != 3 or positions.shape[-1] != model.dimension:
        raise DataError(
            f"The posterior has parameters of shapes {shapes} and {positions.shape[-1]} "
            f"coordinates; the model has {expected} and {model.dimension}. Is it the posterior of "
            "another model?"
        )
    if not np.isfinite(positions).all():
        raise DataError("Positions of the posterior are NaN or infinite.")
    # A prior of another support has other coordinates for the same parameters.
    few = positions.reshape(-1, model.dimension)[:: max(1, positions[..., 0].size // 50)]
    named = unravel_positions(model, own(few))
    for site in model.sites:
        drawn = np.asarray(samples[site.name], float).reshape(-1, *site.shape)
        drawn = drawn[:: max(1, positions[..., 0].size // 50)]
        if not np.allclose(drawn, np.asarray(named[site.name]), rtol=SAME, atol=1e-12):
            raise DataError(
                f"The draws of {site.name!r} do not fit the prior of the model, which has another "
                "support or form. Is it the posterior of another model?"
            )


def _check_variety(model: Model, positions: np.ndarray, log_weights: np.ndarray) -> None:
    """Refuse draws that are too few, or that do not vary."""
    used = positions[np.isfinite(log_weights)]
    if len(used) < LEAST_DRAWS:
        raise DataError(f"There are {len(used)} draws; at least {LEAST_DRAWS} are needed.")
    fixed = np.ptp(used, axis=0) == 0
    if fixed.any():
        first = int(np.argmax(fixed))
        name = next(site.name for site in model.sites if site.start <= first < site.stop)
        raise DataError(
            f"All {len(used):,} draws of {name!r} are equal: these are not draws of a posterior."
        )


_flatten = jit(lambda model, draws: jax.vmap(model.flatten)(draws))
