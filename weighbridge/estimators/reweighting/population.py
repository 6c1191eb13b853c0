"""Population Monte Carlo: a mixture that adapts to its own weighted draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from weighbridge.core.compilation import jit
from weighbridge.core.errors import MethodError
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.types import Array
from weighbridge.estimators.proposals.mixture import Mixture
from weighbridge.estimators.reweighting.proposal import Proposal
from weighbridge.sampling.kernels.parts.mixture import (
    DEFENSIVE_DEGREES,
    Statistics,
    fitted,
    spread_over,
    statistics_of,
)
from weighbridge.sampling.kernels.parts.mixture import Mixture as Fitted

# A fit whose weights are as even as this needs no further population.
EVEN = 0.97
# A population must raise the log of the perplexity by this much, or the next one is the last.
WORTHWHILE = 0.01
# Displaced components lie this many deviations away in each coordinate, and are wider by up to
# this factor.
DISPLACED, STRETCHED = 1.5, 3.0

# The unnormalised log density at positions, in the cell of one labelling if there are several.
LogDensity = Callable[[np.ndarray], np.ndarray]


class Settings(NamedTuple):
    """How the mixture adapts.

    Attributes:
        num_components: components that are fitted.
        degrees: their degrees of freedom.
        defensive: share of the fixed wide component.
        num_populations: most populations.
    """

    num_components: int
    degrees: int
    defensive: float
    num_populations: int

    def size(self, dimension: int) -> int:
        """Draws of a population: twenty for each coordinate of each component."""
        return max(1024, 20 * self.num_components * dimension)


class Population(NamedTuple):
    """Draws of one proposal.

    Attributes:
        proposal: where they come from; it knows the populations before only.
        position: draws x coordinates.
        log_density: unnormalised, at the draws.
        log_weight: log density less that of the proposal.
    """

    proposal: Proposal
    position: np.ndarray
    log_density: np.ndarray
    log_weight: np.ndarray


def evaluate_at(proposal: Proposal, position: np.ndarray, log_density: LogDensity) -> Population:
    """Draws of a proposal with their weights; a draw outside the support (NaN) has none."""
    inside = np.isfinite(position).all(axis=1)
    position = np.where(inside[:, None], position, 0.0)
    height = np.full(len(position), -np.inf)
    if inside.any():
        height[inside] = log_density(position[inside])
    below = np.asarray(proposal.log_density(position), float)
    if below.shape != height.shape or not np.isfinite(below[inside]).all():
        raise MethodError(
            "log_density of the proposal must be one finite number at each of its own draws; at "
            f"{len(position):,} draws it has the shape {below.shape} and "
            f"{int((~np.isfinite(below)).sum()):,} values that are not finite."
        )
    log_weight = np.where(np.isfinite(height), height - np.where(inside, below, 0.0), -np.inf)
    return Population(proposal, position, height, log_weight)


def adapt(
    first: Population,
    log_density: LogDensity,
    settings: Settings,
    seed: int,
    first_island: int,
    tell: Callable[[Population], None],
) -> list[Population]:
    r"""Populations of mixtures, each fitted to the ones before it.

    The first mixture has the components of the first proposal and others, displaced and stretched
    at random. Each population then moves the mixture towards the posterior:

    .. math:: \rho_d = \alpha_d q_d / q, \quad \alpha_d \leftarrow \sum_i \bar w_i \rho_d(u_i),
              \quad \mu_d \leftarrow \sum_i \bar w_i \rho_d(u_i) u_i / \alpha_d

    and the covariances likewise, where every draw counts for each component with its probability
    (Cappe, Douc, Guillin, Marin & Robert 2008, Statistics and Computing 18:447-459). The sums are
    averaged over populations.

    Args:
        first: draws of the first proposal.
        log_density: of the posterior, unnormalised.
        settings: how the mixture adapts.
        seed: of the random numbers.
        first_island: another one gives other random numbers.
        tell: is told of every population.
    """
    populations = [first]
    count, dimension = first.position.shape
    numbers = random_numbers(seed, Stream.POPULATIONS, first_island)
    mixture = _widely(first, settings, numbers)
    statistics = _nothing(settings.num_components, dimension)
    best = -math.inf
    for step in range(settings.num_populations - 1):
        proposal = _proposal(mixture, settings.degrees)
        drawn = evaluate_at(proposal, proposal.draw(numbers, count), log_density)
        populations.append(drawn)
        tell(drawn)
        if not np.isfinite(drawn.log_weight).any():
            break
        found = fits(populations)
        before, best = best, max(found)
        if step and (best > math.log(EVEN) or best < before + WORTHWHILE):
            break
        gain = (1.0 + 0.1 * step) ** -0.6
        mixture, statistics = _host(
            _learn(
                drawn.position,
                drawn.log_weight,
                mixture,
                statistics,
                np.float64(gain),
                np.float64(settings.defensive),
                settings.degrees,
            )
        )
    return populations


def fits(populations: list[Population]) -> list[float]:
    r"""How well the proposal of each population fits: log perplexity, at most 0 up to a constant.

    .. math:: -\mathrm{KL}(p \,\|\, q_k) = \sum_i \bar W_i \log \frac{q_k(u_i)}{f(u_i)} + \log Z

    The draws are those of this population and the later ones, which were not used to fit q_k, as
    draws of the mixture of their proposals. So a mode that a later proposal finds counts against
    the proposals that miss it, however even their own weights are.
    """
    position = np.concatenate([p.position for p in populations])
    height = np.concatenate([p.log_density for p in populations])
    owner = np.repeat(np.arange(len(populations)), [len(p.position) for p in populations])
    usable = np.isfinite(height)
    position, height, owner = position[usable], height[usable], owner[usable]
    if not len(height):
        return [-math.inf] * len(populations)
    below = np.stack([p.proposal.log_density(position) for p in populations])
    divergences, log_evidence = [], -math.inf
    for number in range(len(populations)):
        own = owner >= number
        if not own.any():
            divergences.append(math.inf)
            continue
        together = np.logaddexp.reduce(below[number:, own], axis=0)
        log_weight = height[own] - together + math.log(len(populations) - number)
        total = float(np.logaddexp.reduce(log_weight))
        if number == 0:
            size = sum(len(p.position) for p in populations)
            log_evidence = total - math.log(size)
        share = np.exp(log_weight - total)
        # A draw without weight does not count, even where the proposal is zero.
        terms = np.where(share > 0, height[own] - below[number, own], 0.0)
        divergences.append(float(np.sum(share * terms)))
    return [log_evidence - divergence for divergence in divergences]


def _widely(first: Population, settings: Settings, numbers: np.random.Generator) -> Fitted:
    """The first mixture: the components of a proposal with displaced and stretched copies.

    A proposal that is not a mixture gives components on draws that are far from each other.
    """
    if not isinstance(first.proposal, Mixture):
        used = first.position[np.isfinite(first.log_density)]
        return _host(_spread(used, settings.num_components, np.float64(settings.defensive)))
    own = first.proposal
    # The wide component is the last one; a user's mixture may have none, so it gets one.
    known, wide = own, widened(own)
    if len(own.share) > 1 and own.freedom[-1] == DEFENSIVE_DEGREES:
        known = Mixture(*(leaf[:-1] for leaf in own))
        wide = Mixture(*(leaf[-1:] for leaf in own))
    order = np.argsort(-known.share, kind="stable")[: settings.num_components]
    share, mean, root = known.share[order], known.mean[order], known.root[order]
    more = settings.num_components - len(share)
    if more:
        chosen = np.resize(np.arange(len(share)), more)
        away = DISPLACED * numbers.standard_normal((more, own.dimension))
        factor = STRETCHED ** numbers.random(more)
        moved = mean[chosen] + np.einsum("kij,kj->ki", root[chosen], away)
        share = np.concatenate([0.5 * share / share.sum(), np.full(more, 0.5 / more)])
        mean = np.concatenate([mean, moved])
        root = np.concatenate([root, root[chosen] * factor[:, None, None]])
    share = (1 - settings.defensive) * share / share.sum()
    with np.errstate(divide="ignore"):
        log_share = np.log(np.append(share, settings.defensive))
    return Fitted(
        log_share,  # type: ignore[arg-type]
        np.concatenate([mean, wide.mean]),  # type: ignore[arg-type]
        np.concatenate([root, wide.root]),  # type: ignore[arg-type]
    )


def widened(mixture: Mixture, factor: float = 2.0) -> Mixture:
    """One Student-t with the mean and the covariance of a mixture's scales, and wider.

    >>> two = Mixture.of(np.zeros(1), np.eye(1)).joined(Mixture.of(np.ones(1), np.eye(1)), 0.5)
    >>> widened(two).mean.tolist(), widened(two).root.round(3).tolist()
    ([[0.5]], [[[2.236]]])
    """
    share = mixture.share / mixture.share.sum()
    centre = share @ mixture.mean
    away = mixture.mean - centre
    spread = np.einsum("k,kij,klj->il", share, mixture.root, mixture.root)
    spread = spread + np.einsum("k,ki,kj->ij", share, away, away)
    return Mixture.of(centre, factor * np.linalg.cholesky(spread), float(DEFENSIVE_DEGREES))


def _proposal(mixture: Fitted, degrees: int) -> Mixture:
    share = np.exp(np.asarray(mixture.log_weight))
    freedom = np.full(len(share), float(degrees))
    freedom[-1] = DEFENSIVE_DEGREES
    return Mixture(share / share.sum(), np.asarray(mixture.mean), np.asarray(mixture.root), freedom)


def _nothing(num_components: int, dimension: int) -> Statistics:
    """Sums over no draws; the first gain is 1, so they do not count."""
    shapes = (), (), (dimension,), (dimension, dimension)
    return Statistics(*(np.zeros((num_components, *shape)) for shape in shapes))  # type: ignore[arg-type]


def _host(tree: tuple) -> tuple:  # type: ignore[type-arg]
    found: tuple = jax.tree_util.tree_map(np.asarray, tree)  # type: ignore[type-arg]
    return found


def _fit(
    position: Array,
    log_weight: Array,
    mixture: Fitted,
    statistics: Statistics,
    gain: Array,
    defensive: Array,
    degrees: int,
) -> tuple[Fitted, Statistics]:
    found = statistics_of(position, log_weight, mixture, degrees)
    mean = jax.tree_util.tree_map(lambda old, new: old + gain * (new - old), statistics, found)
    return fitted(mean, position.shape[0] / gain, mixture, defensive), mean


_learn = jit(_fit, static_argnums=6)
_spread = jit(spread_over, static_argnums=1)
