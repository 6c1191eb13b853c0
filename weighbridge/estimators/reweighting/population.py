"""Population Monte Carlo: a mixture that adapts to its own weighted draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.compilation import jit
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.types import Array
from weighbridge.estimators.proposals.mixture import Mixture
from weighbridge.estimators.reweighting.history import (
    LogDensity,
    ProposalDraws,
    ProposalHistory,
    evaluate_at,
)
from weighbridge.estimators.reweighting.proposal import ProposalDensity
from weighbridge.sampling.kernels.parts.mixture import (
    DEFENSIVE_DEGREES,
    RIDGE,
    FittedMixture,
    Statistics,
    fitted,
    spread_over,
    statistics_of,
)

# If this share of the draws is effective, another population is not worth its evaluations.
EVEN = 0.5
# The adaptation ends when so many populations together have not raised the log of the effective
# share by this much.
PATIENCE, WORTHWHILE = 2, 0.1
# Components are as many as the user says, or as the modes and some more: a multiple of this.
GRAIN = 4
# Displaced components lie this many deviations away in each coordinate, and are wider by up to
# this factor.
DISPLACED, STRETCHED = 1.5, 3.0
# The wide component is wider than all others together by this factor.
WIDER = 2.0

# Steps of the mixture for each population.
STEPS = 3
# The largest population, in sizes of the first one.
LARGEST = 4


class AdaptationSettings(NamedTuple):
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


def adapt(
    first: ProposalDraws,
    log_density: LogDensity,
    settings: AdaptationSettings,
    seed: int,
    first_island: int,
    tell: Callable[[ProposalDraws], None],
) -> ProposalDensity:
    r"""The best of several mixtures, each fitted to draws of the one before it.

    The first mixture has the components of the first proposal and others, displaced and stretched
    at random. Each population then moves the mixture towards the posterior:

    .. math:: \rho_d = \alpha_d q_d / q, \quad \alpha_d \leftarrow \sum_i \bar w_i \rho_d(u_i),
              \quad \mu_d \leftarrow \sum_i \bar w_i \rho_d(u_i) u_i / \alpha_d

    and the covariances likewise, where every draw counts for each component with its probability
    (Cappe, Douc, Guillin, Marin & Robert 2008, Statistics and Computing 18:447-459). The sums are
    averaged over populations. Where the best mixture still leaves uneven weights, the populations
    become larger.

    Args:
        first: draws of the first proposal.
        log_density: of the posterior, unnormalised.
        settings: how the mixture adapts.
        seed: of the random numbers.
        first_island: another one gives other random numbers.
        tell: is told of every population.
    """
    history = ProposalHistory(first)
    count, dimension = first.position.shape
    numbers = random_numbers(seed, Stream.POPULATIONS, first_island)
    mixture = _widely(first, settings, numbers)
    statistics = _nothing(len(mixture.mean) - 1, dimension)
    best: list[float] = []
    for _ in range(settings.num_populations - 1):
        # Draws of very different scales can have a singular covariance: the best so far remains.
        if not all(np.isfinite(leaf).all() for leaf in mixture):
            break
        proposal = _proposal(mixture, settings.degrees)
        history.add(evaluate_at(proposal, proposal.draw(numbers, count), log_density))
        drawn = history.populations[-1]
        tell(drawn)
        if not np.isfinite(drawn.log_weight).any():
            break
        best.append(max(history.fits()))
        if len(best) > 1 and best[-1] > math.log(EVEN):
            break
        if len(best) > PATIENCE and best[-1] < best[-1 - PATIENCE] + WORTHWHILE:
            if count >= LARGEST * len(first.position) or not history.best().is_poor:
                break
            # Tails that few draws do not show need more of them.
            count, best = 2 * count, []
        base, gain = statistics, np.float64((1.0 + 0.1 * max(len(best) - 1, 0)) ** -0.6)
        defensive = np.float64(settings.defensive)
        for _ in range(STEPS):
            mixture, statistics = _host(
                _learn(*drawn[1:4:2], mixture, base, gain, defensive, settings.degrees)
            )
    return history.best().proposal


def _widely(
    first: ProposalDraws, settings: AdaptationSettings, numbers: np.random.Generator
) -> FittedMixture:
    """The first mixture: the components of a proposal with displaced and stretched copies.

    A proposal that is not a mixture gives components on draws that are far from each other.
    """
    if not isinstance(first.proposal, Mixture):
        used = first.position[np.isfinite(first.log_density)]
        used = np.resize(used, first.position.shape)  # one shape: nothing new to compile
        kept = np.float64(settings.defensive)
        return FittedMixture(*_host(_spread(used, settings.num_components, kept)))
    own = first.proposal
    # The wide component is the last one; a user's mixture may have none, so it gets one.
    known, wide = own, widened(own)
    if own.freedom[-1] == DEFENSIVE_DEGREES != own.freedom[0]:
        known = Mixture(*(leaf[:-1] for leaf in own))
        wide = Mixture(*(leaf[-1:] for leaf in own))
    share, mean, root = known.share, known.mean, known.root
    more = settings.num_components - len(share)
    if more < 1:
        more = -len(share) % GRAIN
    if more:
        chosen = np.resize(np.arange(len(share)), more)
        away = DISPLACED * numbers.standard_normal((more, own.dimension))
        factor = STRETCHED ** numbers.random(more)
        moved = mean[chosen] + np.einsum("kij,kj->ki", root[chosen], away)
        # Half of the draws for the copies, if they are many.
        part = min(0.5, more / (more + len(share)))
        share = np.concatenate([(1 - part) * share / share.sum(), np.full(more, part / more)])
        mean = np.concatenate([mean, moved])
        root = np.concatenate([root, root[chosen] * factor[:, None, None]])
    share = (1 - settings.defensive) * share / share.sum()
    with np.errstate(divide="ignore"):
        log_share = np.log(np.append(share, settings.defensive))
    leaves: list[Any] = [log_share]
    leaves += [np.concatenate([mean, wide.mean]), np.concatenate([root, wide.root])]
    return FittedMixture(*leaves)


def widened(mixture: Mixture) -> Mixture:
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
    spread = spread + RIDGE * np.diag(np.diag(spread))
    return Mixture.of(centre, WIDER * np.linalg.cholesky(spread), float(DEFENSIVE_DEGREES))


def _proposal(mixture: FittedMixture, degrees: int) -> Mixture:
    share = np.exp(np.asarray(mixture.log_weight))
    freedom = np.full(len(share), float(degrees))
    freedom[-1] = DEFENSIVE_DEGREES
    return Mixture(share / share.sum(), np.asarray(mixture.mean), np.asarray(mixture.root), freedom)


def _nothing(num_components: int, dimension: int) -> Statistics:
    """Sums over no draws; the first gain is 1, so they do not count."""
    shapes = (), (), (dimension,), (dimension, dimension)
    sums: list[Any] = [np.zeros((num_components, *shape)) for shape in shapes]
    return Statistics(*sums)


def _host(tree: Any) -> Any:
    return jax.tree_util.tree_map(np.asarray, tree)


def _fit(
    position: Array,
    log_weight: Array,
    mixture: FittedMixture,
    statistics: Statistics,
    gain: Array,
    defensive: Array,
    degrees: int,
) -> tuple[FittedMixture, Statistics]:
    found = statistics_of(position, log_weight, mixture, degrees)
    mean = jax.tree_util.tree_map(lambda old, new: old + gain * (new - old), statistics, found)
    learnt = fitted(mean, position.shape[0] / gain, mixture, defensive)
    # The wide component, whose centre the sums refer to, is as wide as the others together.
    share = jnp.exp(learnt.log_weight[:-1])
    share = share / jnp.sum(share)
    away = learnt.mean[:-1] - learnt.mean[-1]
    spread = jnp.einsum("k,kij,klj->il", share, learnt.root[:-1], learnt.root[:-1])
    spread = spread + jnp.einsum("k,ki,kj->ij", share, away, away)
    spread = spread + RIDGE * jnp.diag(jnp.diag(spread))
    wide = WIDER * jnp.linalg.cholesky(spread)
    return learnt._replace(root=learnt.root.at[-1].set(wide)), mean


_learn = jit(_fit, static_argnums=6)
_spread = jit(spread_over, static_argnums=1)
