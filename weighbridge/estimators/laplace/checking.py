"""Importance sampling around the modes: how far Laplace's method is off, and posterior draws."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from weighbridge.diagnostics.pareto import pareto_khat
from weighbridge.estimators.laplace.modes import Modes
from weighbridge.estimators.proposals.joint_density import JointDensity
from weighbridge.estimators.proposals.mixture import Mixture

# Student-t distributions that join the Gaussians, one after the other: the share of draws, and the
# degrees of freedom. One degree reaches a broad density under a peak, many times as wide.
TAILS = ((0.5, 5.0), (0.2, 1.0))
# A proposal with fewer effective draws than this share, or heavier tails of the weights, is fitted
# again to its own draws, up to so many times.
GOOD_SHARE, GOOD_TAIL, NUM_FITS = 0.3, 0.5, 3
# Effective draws for each coordinate that a fit needs.
ENOUGH_FOR_EACH = 2.0


class ModesCheck(NamedTuple):
    """An importance sample from a mixture around the modes.

    Attributes:
        log_evidence: its estimate.
        std_error: standard error of that.
        ess: effective draws.
        khat: Pareto shape of the weights; above 0.7 nothing is known.
        position: draws x coordinates.
        log_weight: f / q at each, not normalised.
    """

    log_evidence: float
    std_error: float
    ess: float
    khat: float
    position: np.ndarray
    log_weight: np.ndarray


def check_modes(
    density: JointDensity, modes: Modes, numbers: np.random.Generator, num_draws: int
) -> ModesCheck:
    r"""An estimate of the evidence that needs no Gaussian posterior.

    With the sum g of the Gaussians at the modes, whose integral G is known, and draws from q,

    .. math:: \hat Z = \frac1N \sum_i \frac{f(u_i)}{q(u_i)}
              - \beta \Bigl( \frac1N \sum_i \frac{g(u_i)}{q(u_i)} - G \Bigr)

    g is a control variate: beta is the regression coefficient of f / q on g / q. Where f = g the
    estimate is exact, whatever the draws. q is a mixture of Gaussians and Student-t at the modes,
    so that no tail of f is missed by much. Where it fits badly it is moved and stretched to the
    weighted draws, and drawn from again (population Monte Carlo: Cappe, Guillin, Marin & Robert
    2004, J. Computational and Graphical Statistics 13:907-929); only the last draws count.

    If components may be permuted, f is K! times the density within the cell of one labelling.

    Args:
        density: the unnormalised log posterior.
        modes: its modes.
        numbers: random numbers.
        num_draws: number of draws of each proposal.
    """
    gaussians = modes.mixture()
    base, best = gaussians, None
    for _ in range(NUM_FITS):
        found = _sample(density, modes, gaussians, base, numbers, num_draws)
        if best is None or found.khat < best.khat or found.ess > 2.0 * best.ess:
            best = found
        if found.ess > GOOD_SHARE * num_draws and found.khat < GOOD_TAIL:
            break
        refitted = _refit(base, found)
        if refitted is None:
            break
        base = refitted
    assert best is not None  # at least one proposal is tried
    return best


def _sample(
    density: JointDensity,
    modes: Modes,
    gaussians: Mixture,
    base: Mixture,
    numbers: np.random.Generator,
    num_draws: int,
) -> ModesCheck:
    proposal = base
    for share, freedom in TAILS:
        proposal = proposal.joined(base.with_freedom(freedom), share)
    draws = proposal.draw(numbers, num_draws)
    log_proposal = proposal.log_density(draws)
    log_weight = density(draws) - log_proposal
    if modes.cell is not None:
        log_weight = log_weight + modes.cell(draws[None])[0]
    log_mass = modes.log_mass
    total = float(np.logaddexp.reduce(log_mass))
    known = np.logaddexp.reduce(log_mass[:, None] + gaussians.log_components(draws), axis=0)
    log_ratio, error = _with_control(log_weight - total, known - log_proposal - total)
    top = float(np.max(log_weight))
    weight = np.exp(log_weight - top) if math.isfinite(top) else np.zeros(len(draws))
    ess = float(weight.sum() ** 2 / np.sum(weight**2)) if weight.any() else 0.0
    khat = pareto_khat(log_weight)
    return ModesCheck(total + log_ratio, error, ess, khat, draws, log_weight)


def _with_control(log_weight: np.ndarray, log_control: np.ndarray) -> tuple[float, float]:
    """log of the mean weight and its error, with a control variate whose mean is 1.

    >>> same = np.log([0.5, 1.0, 2.0, 0.7])
    >>> [round(number, 12) for number in _with_control(same + 0.25, same)]
    [0.25, 0.0]
    """
    top = float(np.max(log_weight))
    if not math.isfinite(top):
        return -math.inf, math.nan
    weight, control = np.exp(log_weight - top), np.exp(log_control)
    away, off = weight - weight.mean(), control - control.mean()
    square = float(off @ off)
    slope = float(off @ away) / square if square > 0 else 0.0
    mean = float(weight.mean() - slope * (control.mean() - 1.0))
    if not mean > 0:  # the control is of no use
        slope, mean = 0.0, float(weight.mean())
    count = len(weight)
    deviation = float(np.sqrt(np.sum((away - slope * off) ** 2) / max(count - 2, 1)))
    return top + math.log(mean), deviation / mean / math.sqrt(count)


def _refit(base: Mixture, found: ModesCheck) -> Mixture | None:
    """The mixture moved and stretched to its weighted draws; None if they are too few."""
    weight = np.exp(found.log_weight - np.max(found.log_weight))
    with np.errstate(divide="ignore"):
        terms = np.log(base.share)[:, None] + base.log_components(found.position)
    belongs = weight * np.exp(terms - np.logaddexp.reduce(terms, axis=0))
    share, mean, root = base.share.copy(), base.mean.copy(), base.root.copy()
    changed = False
    for component, own in enumerate(belongs):
        total = float(own.sum())
        if not total > 0:
            continue
        share[component] = max(total / float(weight.sum()), 0.5 * base.share[component])
        own = own / total
        if not 1.0 / float(own @ own) > ENOUGH_FOR_EACH * base.dimension + 20.0:
            continue
        mean[component] = own @ found.position
        away = (found.position - mean[component]) * np.sqrt(own)[:, None]
        try:
            root[component] = np.linalg.cholesky(away.T @ away)
        except np.linalg.LinAlgError:
            return None
        changed = True
    return Mixture(share / share.sum(), mean, root, base.freedom) if changed else None
