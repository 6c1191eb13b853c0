"""Posterior draws of any origin, as unconstrained vectors of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from weighbridge.core.compilation import double_precision, own
from weighbridge.core.errors import DataError
from weighbridge.models.model import Model, unravel_positions
from weighbridge.models.named_draws import SAME, check_names, positions_of, with_chains
from weighbridge.results.evidence_result import Evidence
from weighbridge.results.posterior import Posterior

# With fewer draws nothing can be said about a posterior.
LEAST_DRAWS = 20


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
        draws: a ``wb.Posterior``; an ``wb.Evidence``, whose draws have weights (and are of chains
            if its diagnostics have ``num_chains``); or a mapping from parameter names to arrays,
            chains x draws x shape, or draws x shape for one chain.

    Draws with other names or shapes, that are not numbers, outside the support of the prior, too
    few or all equal raise a ``wb.DataError``.

    >>> import numpyro.distributions as dist
    >>> model = Model({"s": dist.HalfNormal(1)}, lambda p, y: -y * p["s"])
    >>> read_draws(model, {"s": np.linspace(1, 2, 40).reshape(2, 20)}).positions.shape
    (2, 20, 1)
    """
    log_weights, ordered = None, True
    if isinstance(draws, Posterior):
        samples: Mapping[str, Any] = draws.samples
        check_names(model, samples)
        positions = np.asarray(draws.positions, float)
        _check_positions(model, positions, samples)
    elif isinstance(draws, Evidence):
        if not draws.samples:
            raise DataError(
                f"This result of {draws.method} holds no posterior draws, so nothing can be made "
                "of it. Weigh the model again with a method that keeps them."
            )
        # Draws of chains are autocorrelated: taken for independent ones they would make errors
        # too small.
        num_chains = int(draws.diagnostics.get("num_chains", 1))
        samples = {n: _as_chains(np.asarray(v), num_chains) for n, v in draws.samples.items()}
        check_names(model, samples)
        positions = positions_of(model, samples)
        log_weights = _as_chains(np.asarray(draws.log_weights, float), num_chains)
        ordered = "num_chains" in draws.diagnostics
    elif isinstance(draws, Mapping):
        check_names(model, draws)
        samples = with_chains(model, draws)
        positions = positions_of(model, samples)
    else:
        raise DataError(
            "Draws must be a wb.Posterior, a wb.Evidence, or a mapping from parameter names to "
            f"arrays, not {type(draws).__name__}. For ArviZ: wb.from_arviz(idata, model)."
        )
    if log_weights is None:
        log_weights = np.zeros(positions.shape[:2])
    log_weights = log_weights - np.logaddexp.reduce(log_weights, axis=None)
    _check_variety(model, positions, log_weights)
    return PosteriorDraws(positions, log_weights, ordered)


def _as_chains(values: np.ndarray, num_chains: int) -> np.ndarray:
    """Draws of chains, one after the other, as chains x draws."""
    return values.reshape(num_chains, -1, *values.shape[1:])


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
