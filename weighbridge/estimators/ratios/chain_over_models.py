"""A Markov chain over several models and their parameters, with pseudo-priors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.compilation import jit
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.types import Array
from weighbridge.estimators.proposals.joint_density import JointDensity
from weighbridge.estimators.proposals.mixture import Mixture, fit_clusters
from weighbridge.models.targets.density import Target

# The pseudo-prior has this share of a wider one with heavy tails, so that no draw of a posterior is
# far more likely under the posterior than under its pseudo-prior: the chain would stay there.
WIDE_SHARE, WIDTH, FREEDOM = 0.1, 1.5, 5.0
# Fraction of the sweeps that are left out at the beginning.
BURN_IN = 0.1


class Member(NamedTuple):
    """One of the models of a chain.

    Attributes:
        density: its density of parameters and data.
        target: the same for a kernel.
        kernel: moves its parameters; tuned by a pilot.
        pseudo_prior: fitted to the draws of the pilot.
        starts: draws of the pilot, draws x coordinates.
        log_odds: log of its prior weight in the chain.
    """

    density: JointDensity
    target: Target
    kernel: Any
    pseudo_prior: Mixture
    starts: np.ndarray
    log_odds: float


class Visits(NamedTuple):
    """What a chain over models recorded after its burn-in.

    Attributes:
        indicator: the model of each chain after each sweep, chains x sweeps.
        probability: probability with which each model was drawn, chains x sweeps x models.
    """

    indicator: np.ndarray
    probability: np.ndarray

    def entries(self, model: int) -> int:
        """How often the chains came to a model from another one."""
        here = self.indicator == model
        return int(np.sum(here[:, 1:] & ~here[:, :-1]))


def fit_pseudo_prior(draws: np.ndarray) -> Mixture:
    """A mixture near the posterior, from its draws, with a share of a wider one.

    >>> fitted = fit_pseudo_prior(np.random.default_rng(0).normal(size=(500, 2)))
    >>> fitted.share.round(2).tolist()
    [0.9, 0.1]
    """
    narrow = fit_clusters(draws)
    return narrow.joined(narrow.stretched(WIDTH).with_freedom(FREEDOM), WIDE_SHARE)


def rough_log_evidence(member: Member, numbers: np.random.Generator, count: int) -> float:
    """Log evidence by importance sampling from the pseudo-prior, to tune the odds."""
    draws = member.pseudo_prior.draw(numbers, count)
    log_ratio = member.density(draws) - member.pseudo_prior.log_density(draws)
    return float(np.logaddexp.reduce(log_ratio) - math.log(count))


def run_chain(
    members: Sequence[Member],
    num_chains: int,
    num_sweeps: int,
    seed: int,
    report: Callable[[int], None],
) -> Visits:
    r"""Run independent chains on the product of all parameter spaces and the indicator k.

    .. math:: \pi(k, u_1, \dots, u_K) \propto w_k \, f_k(u_k) \prod_{j \ne k} q_j(u_j)

    with the densities f_k of parameters and data, the pseudo-priors q_k and the odds w_k. A sweep
    has three moves, each of which leaves this distribution invariant:

    1. the parameters of the present model move by a kernel with target f_k;
    2. the parameters of all others are drawn from their pseudo-priors, which is their conditional
       distribution;
    3. the indicator is drawn from its conditional distribution,

    .. math:: P(k \mid u) \propto w_k f_k(u_k) / q_k(u_k)

    Its probabilities are recorded: their mean is the share of the model with less noise than the
    count of visits. Carlin & Chib (1995), J. R. Stat. Soc. B 57:473-484.

    Args:
        members: the models; odds, kernels and pseudo-priors are fixed during the run.
        num_chains: number of independent chains; they start in all models in turn.
        num_sweeps: number of sweeps, burn-in included.
        seed: the same seed gives the same numbers.
        report: called with the number of sweeps done.
    """
    numbers = random_numbers(seed, Stream.PRODUCT_SPACE, 1)
    # What does not depend on the chain is drawn and evaluated beforehand, all at once.
    fresh, log_fresh = zip(*(_fresh(one, numbers, num_chains, num_sweeps) for one in members))
    log_uniform = np.log(-np.log(numbers.random((num_sweeps, num_chains, len(members)))))
    key_data = numbers.integers(0, 2**32, 2, np.uint32)
    places = np.arange(num_chains)
    now = places % len(members)
    positions = [one.starts[numbers.integers(len(one.starts), size=num_chains)] for one in members]
    first = round(BURN_IN * num_sweeps)
    indicator = np.empty((num_chains, num_sweeps), int)
    probability = np.empty((num_chains, num_sweeps, len(members)))
    for sweep in range(num_sweeps):
        interrupts.check()
        log_weight = np.empty((num_chains, len(members)))
        for number, one in enumerate(members):
            here = now == number
            positions[number] = np.where(here[:, None], positions[number], fresh[number][sweep])
            log_weight[:, number] = log_fresh[number][sweep]
            if here.any():
                ends = _move(key_data, sweep, number, one.kernel, one.target, positions[number])
                moved, height = (np.asarray(leaf) for leaf in ends)
                log_ratio = height - one.pseudo_prior.log_density(moved)
                positions[number] = np.where(here[:, None], moved, positions[number])
                log_weight[here, number] = log_ratio[here]
            log_weight[:, number] += one.log_odds
        log_weight = np.where(np.isnan(log_weight), -np.inf, log_weight)
        log_weight -= np.logaddexp.reduce(log_weight, axis=1)[:, None]
        now = np.argmax(log_weight - log_uniform[sweep], axis=1)  # Gumbel's way to draw
        indicator[:, sweep], probability[:, sweep] = now, np.exp(log_weight)
        report(sweep + 1)
    return Visits(indicator[:, first:], probability[:, first:])


def _fresh(
    one: Member, numbers: np.random.Generator, num_chains: int, num_sweeps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draws from the pseudo-prior for every sweep, and their log ratios to it."""
    draws = one.pseudo_prior.draw(numbers, num_sweeps * num_chains)
    log_ratio = one.density(draws) - one.pseudo_prior.log_density(draws)
    shape = (num_sweeps, num_chains)
    return draws.reshape(*shape, -1), log_ratio.reshape(shape)


@jit
def _move(
    key_data: Array, sweep: int, model: int, kernel: Any, target: Target, positions: Array
) -> tuple[Array, Array]:
    """One step of each chain, and the log density where it ends."""
    key = jax.random.wrap_key_data(key_data, impl="threefry2x32")
    keys = jax.random.split(
        jax.random.fold_in(jax.random.fold_in(key, sweep), model), len(positions)
    )

    def step(key: Array, position: Array) -> tuple[Array, Array]:
        moved = kernel.step(key, kernel.init(position, target), target)[0].position
        return moved, target(moved)

    found: tuple[Array, Array] = jax.vmap(step)(keys, positions)
    return found
