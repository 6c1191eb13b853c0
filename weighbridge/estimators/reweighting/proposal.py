"""Proposals of importance sampling: what they must offer, and those that a user may give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from weighbridge.core.compilation import jit, own
from weighbridge.core.errors import MethodError, ModelError
from weighbridge.core.random import random_key
from weighbridge.core.types import Array
from weighbridge.estimators.proposals.mixture import Mixture
from weighbridge.estimators.reweighting.log_ratio import log_slopes
from weighbridge.models.model import Model, draw_positions, unravel_positions
from weighbridge.models.named_draws import locate


@runtime_checkable
class ProposalDensity(Protocol):
    """A normalised density on unconstrained vectors from which one can draw."""

    def draw(self, numbers: np.random.Generator, count: int) -> np.ndarray:
        """Independent draws x coordinates; NaN for a draw outside the support of the model."""
        ...

    def log_density(self, points: np.ndarray) -> np.ndarray:
        """Log density at points x coordinates."""
        ...


class PriorProposal:
    """The prior of a model, in its unconstrained coordinates.

    >>> from weighbridge.core.compilation import in_double_precision
    >>> model = Model({"m": dist.Normal(0, 1)}, lambda p, y: y * p["m"])
    >>> with in_double_precision():
    ...     PriorProposal(model).log_density(np.zeros((1, 1))).round(6).tolist()
    [-0.918939]
    """

    def __init__(self, model: Model) -> None:
        self.model = model

    def draw(self, numbers: np.random.Generator, count: int) -> np.ndarray:
        """Draws from the prior."""
        key = random_key(int(numbers.integers(2**63)))
        return np.asarray(draw_positions(self.model, key, count))

    def log_density(self, points: np.ndarray) -> np.ndarray:
        """Log prior density with the Jacobian of the coordinates."""
        return np.asarray(_log_prior(self.model, own(points)))


class NamedProposal:
    r"""Distributions of the parameters themselves, as a density of unconstrained vectors.

    .. math:: q(u) = q(T(u)) \, |\det \partial T / \partial u|

    Args:
        model: the model whose evidence is wanted.
        given: for every parameter a NumPyro distribution, or a function of the parameters before
            it, as in a prior.
    """

    def __init__(self, model: Model, given: Mapping[str, Any]) -> None:
        try:
            self.own = Model(given, total_log_likelihood=_nothing)
        except ModelError as error:
            raise MethodError(f"The proposal cannot be used. {error}") from error
        shapes = [{site.name: site.shape for site in m.sites} for m in (self.own, model)]
        if shapes[0] != shapes[1]:
            raise MethodError(
                f"The proposal has parameters of the shapes {shapes[0]}; the model has {shapes[1]}."
            )
        self.model, self.prior = model, PriorProposal(self.own)

    def draw(self, numbers: np.random.Generator, count: int) -> np.ndarray:
        """Draws of the parameters, as vectors; NaN outside the support of the model's prior."""
        named = unravel_positions(self.own, own(self.prior.draw(numbers, count)))
        found, outside = locate(self.model, {n: np.asarray(named[n]) for n in self.own.names})
        found[np.any(list(outside.values()), axis=0)] = np.nan
        # Where rounding takes a draw out of its own support, too.
        back = np.where(np.isfinite(found), found, 0.0)
        found[~np.isfinite(self.log_density(back))] = np.nan
        return found

    def log_density(self, points: np.ndarray) -> np.ndarray:
        """Log density at points; -inf outside the support of the proposal."""
        named = unravel_positions(self.model, own(points))
        where, outside = locate(self.own, {n: np.asarray(named[n]) for n in self.model.names})
        beyond = np.any(list(outside.values()), axis=0)
        where = np.where(beyond[:, None], 0.0, where)
        found = self.prior.log_density(where) - log_slopes(self.own, where)
        return np.where(beyond, -np.inf, found + log_slopes(self.model, points))


class VectorProposal:
    """A NumPyro distribution of unconstrained vectors, such as ``MultivariateNormal``."""

    def __init__(self, model: Model, given: Any) -> None:
        if tuple(given.batch_shape) + tuple(given.event_shape) != (model.dimension,):
            raise MethodError(
                f"The proposal has the shape {given.batch_shape + given.event_shape}; as a "
                f"distribution of unconstrained vectors it needs ({model.dimension},). For "
                "distributions of the parameters give a mapping from their names."
            )
        self.given = given if given.event_shape else given.to_event(1)

    def draw(self, numbers: np.random.Generator, count: int) -> np.ndarray:
        """Draws of the distribution."""
        key = random_key(int(numbers.integers(2**63)))
        return np.asarray(self.given.sample(key, (count,)), float)

    def log_density(self, points: np.ndarray) -> np.ndarray:
        """Its log density."""
        return np.asarray(self.given.log_prob(jnp.asarray(points)), float)


def given_proposal(model: Model, given: Any) -> ProposalDensity:
    """A user's proposal for this model, or an error that lists what is possible.

    >>> from weighbridge.core.compilation import in_double_precision
    >>> model = Model({"s": dist.HalfNormal(1)}, lambda p, y: y * p["s"])
    >>> with in_double_precision():
    ...     proposal = given_proposal(model, {"s": dist.Exponential(1.0)})
    ...     proposal.draw(np.random.default_rng(0), 3).shape
    (3, 1)
    """
    if isinstance(given, Mixture):
        if given.dimension != model.dimension:
            raise MethodError(
                f"The proposal has {given.dimension} coordinates; the model has {model.dimension} "
                "unconstrained ones."
            )
        return given
    if isinstance(given, Mapping):
        return NamedProposal(model, given)
    if isinstance(given, dist.Distribution):
        return VectorProposal(model, given)
    if isinstance(given, ProposalDensity) and not isinstance(given, type):
        return given
    raise MethodError(
        'proposal must be "laplace" or "prior"; posterior draws (a wb.Posterior, a wb.Evidence or '
        "a mapping from parameter names to arrays); a mapping from parameter names to NumPyro "
        "distributions; a NumPyro distribution of unconstrained vectors; or an object with "
        f"draw(numbers, count) and log_density(points); not {given!r}."
    )


def checked_draws(
    proposal: ProposalDensity, numbers: np.random.Generator, count: int, dimension: int
) -> np.ndarray:
    """Draws of a proposal, with a check of their shape."""
    found = np.array(proposal.draw(numbers, count), float)
    if found.shape != (count, dimension):
        raise MethodError(
            f"draw(numbers, {count}) of the proposal returned the shape {found.shape}; it must "
            f"return {(count, dimension)}: a row of unconstrained coordinates for each draw."
        )
    return found


def _nothing(parameters: dict[str, Array]) -> Array:
    return jnp.zeros(())


@jit
def _log_prior(model: Model, positions: Array) -> Array:
    found: Array = jax.vmap(lambda u: model.transform(u)[1])(positions)
    return found
