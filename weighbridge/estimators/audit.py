"""A second look at the end of a path: do the particles still drift, and is there mass they missed?

An estimate along a path is never far too high (by Markov's inequality), and the spread over islands
shows when it is too low because of chance. It does not show what all islands miss alike. Two checks
look for that, with the moves and the program that are there already:

- Particles that have kept up with the path stay in place, as a population, when they move on at its
  end. Those that lagged behind drift. (A bridge that holds at the end says the same, and more.)
- Annealed beyond the end, p(theta) p(data | theta)^lambda with lambda up to 64, they fall into the
  highest modes they can reach. A Gaussian there gives an estimate of the evidence by importance
  sampling. That, too, is never far too high: where it is above the path's, the path has missed a
  mode that is too narrow to be found on the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import chdtri, stdtr

from weighbridge.estimators.adaptive import Adaptive
from weighbridge.estimators.anneal import Annealed
from weighbridge.estimators.cloud import Cloud
from weighbridge.estimators.crossing import Gaussian, log_densities, log_normal
from weighbridge.estimators.labels import Cell, one_labelling
from weighbridge.estimators.path import Path
from weighbridge.estimators.reweighting import Settings
from weighbridge.estimators.walks import needs_gradient
from weighbridge.particles import Combined
from weighbridge.relabel import relabelled
from weighbridge.streams import Stream, random_numbers

# Stages of the random numbers: the path itself is stage 0.
DRIFT_STAGE, QUENCH_STAGE = 1, 2
QUENCH = np.array([2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
# Particles that do not drift are said to with this probability, if by more than the error.
FALSE_ALARM = 1e-3
# Particles within this many nats of the best have ended in modes of one height.
SAME_HEIGHT = 3.0
NUM_FITS = 3
# An importance sample counts from this many effective draws on.
ENOUGH_DRAWS = 30.0
# By how many errors, and nats, it must be above the path.
CLEARLY = 5.0
AT_LEAST = 0.5
# What of a Gaussian lies outside the ellipsoid that counts as its own.
OUTSIDE = 1e-6


Combine = Callable[[np.ndarray], Combined]


class Joined(NamedTuple):
    """The mode that was missed, and what the path found elsewhere.

    Attributes:
        log_evidence: of both together.
        std_error: its standard error.
        position: draws of the one and particles of the other.
        log_weight: their log weights, not normalised.
    """

    log_evidence: float
    std_error: float
    position: np.ndarray
    log_weight: np.ndarray


class Audit(NamedTuple):
    """What a second look found.

    Attributes:
        drift: change of the mean log-likelihood under further moves in each island, in nats; None
            where they were not made.
        log_evidence: by importance sampling from the Gaussian where the particles fell.
        std_error: its standard error.
        ess: its effective draws; 0 if there was no Gaussian to be had.
        position: its draws.
        log_weight: their log weights, not normalised.
        gaussian: which it is.
        cell: of the one labelling that it is of, where components may be permuted.
    """

    drift: np.ndarray | None
    log_evidence: float
    std_error: float
    ess: float
    position: np.ndarray
    log_weight: np.ndarray
    gaussian: Gaussian
    cell: Cell | None = None

    def is_drifting(self, path: Combined) -> bool:
        """Whether the particles went on drifting, by more than the path's stated error."""
        return self.drift is not None and is_drifting(self.drift, path.std_error)

    def exceeds(self, path: Combined) -> bool:
        """Whether the importance sample shows mass that the path has missed."""
        if self.ess < ENOUGH_DRAWS or not math.isfinite(path.log_evidence):
            return False
        error = math.hypot(self.std_error, 0.0 if math.isnan(path.std_error) else path.std_error)
        return self.log_evidence - path.log_evidence > max(CLEARLY * error, AT_LEAST)

    def joined(self, cloud: Cloud, islands: np.ndarray, combine: Combine) -> Joined:
        r"""What the importance sample found within an ellipsoid, and the path outside of it.

        .. math:: Z = \int_E f + \int_{\bar E} f, \qquad
                  E = \{\theta : |S^{-1} (\theta - m)|^2 \le \chi^2_D(10^{-6})\}

        Neither counts what the other one does.

        Args:
            cloud: particles at the end of the path.
            islands: log evidence of each island.
            combine: makes one log evidence of those of islands, with its error.
        """
        mean, root = self.gaussian
        radius = chdtri(len(mean), OUTSIDE)

        def is_inside(position: np.ndarray) -> np.ndarray:
            standard = solve_triangular(root, (position - mean).T, lower=True)
            return np.asarray(np.sum(standard**2, axis=0) <= radius)

        draws = np.where(is_inside(self.position), self.log_weight, -np.inf)
        position = np.asarray(cloud.position).reshape(-1, len(mean))
        if self.cell is not None:
            position = relabelled(self.cell.model, position, self.cell.reference)
        log_weight = np.asarray(cloud.log_weight)
        log_total = np.logaddexp.reduce(log_weight, axis=1, keepdims=True)
        # An island that has no weight left has no share.
        share = log_weight - np.where(np.isfinite(log_total), log_total, 0.0) + islands[:, None]
        outside = np.where(is_inside(position), -np.inf, share.reshape(-1)).reshape(share.shape)
        elsewhere = np.logaddexp.reduce(outside, axis=1)
        path = _combined(elsewhere, combine)
        unknown = not np.isfinite(islands).all() or len(islands) < 4
        weight = np.exp(draws - draws.max())
        within = float(draws.max() + np.log(weight.mean()))
        relative = float(np.std(weight, ddof=1) / weight.mean() / math.sqrt(len(weight)))
        log_evidence = float(np.logaddexp(within, path.log_evidence))
        errors = (
            relative * math.exp(within - log_evidence),
            path.std_error * math.exp(path.log_evidence - log_evidence),
        )
        return Joined(
            log_evidence,
            math.nan if unknown else math.hypot(*errors),
            np.concatenate([self.position, position]),
            np.concatenate(
                [draws - math.log(len(draws)), outside.reshape(-1) - math.log(len(islands))]
            ),
        )


def _combined(log_evidences: np.ndarray, combine: Combine) -> Combined:
    """One log evidence from those of islands, of which some may have found nothing.

    >>> from weighbridge.particles import combine_islands
    >>> _combined(np.array([0.0, -np.inf, 0.0, -np.inf]), combine_islands).log_evidence
    -0.69...
    >>> _combined(np.full(4, -np.inf), combine_islands)
    Combined(log_evidence=-inf, std_error=0.0, spread=0.0)
    """
    if np.isfinite(log_evidences).all():
        return combine(log_evidences)
    top = float(log_evidences.max())
    if not math.isfinite(top):
        return Combined(top, 0.0, 0.0)
    part, count = np.exp(log_evidences - top), len(log_evidences)
    tails = (count - 1) / max(count - 3, 1)
    spread = float(np.std(part, ddof=1) / part.mean())
    return Combined(top + math.log(part.mean()), spread * math.sqrt(tails / count), spread)


def audit(
    seed: int,
    go: Callable[..., Annealed],
    outcome: Annealed,
    path: Path,
    *,
    roam: bool,
    quench: bool,
) -> Audit | None:
    """Look again at particles that have reached the end; None if their moves cannot tell.

    Args:
        seed: of the run.
        go: ``anneal`` as it took the path, so that nothing is compiled anew.
        outcome: of the path.
        path: from the prior to the posterior.
        roam: whether to see if they drift. A bridge that holds says that they are where the
            density is, better than a drift could.
        quench: whether to look for higher modes.
    """
    mover = outcome.mover
    if not isinstance(mover, Adaptive) or not (roam or quench):
        return None

    def on(stage: int, cloud: Cloud, mover: Adaptive, below: float, powers: np.ndarray) -> Annealed:
        return go(
            stage,
            cloud=cloud,
            path_at=lambda _: path,
            mover=mover,
            settings=Settings(0.5, below),
            schedule=powers,
            start=1.0,
        )

    cloud, before = outcome.cloud, None
    if roam:
        roamed = on(DRIFT_STAGE, cloud, mover.roaming(path.model.dimension), 0.0, np.ones(1))
        cloud, before = roamed.cloud, np.asarray(roamed.steps[0].mean)
    # Where they have roamed to is seen at the first step of the fall.
    fallen = on(QUENCH_STAGE, cloud, mover.falling(), 2.0, QUENCH if quench else QUENCH[:1])
    drift = None if before is None else np.asarray(fallen.steps[0].mean) - before
    if not quench:
        return Audit(drift, *_nothing(path.model.dimension))
    # In one labelling, for no Gaussian is near all of them.
    cloud, cell = one_labelling(path.model, fallen.cloud, agreed=False)
    return Audit(drift, *_importance(seed, path, cloud, cell, needs_gradient(mover)), cell)


def is_drifting(drift: np.ndarray, std_error: float) -> bool:
    """Whether a t-test over islands finds a change, and one above the stated error.

    >>> is_drifting(np.array([1.0, 1.1, 0.9, 1.0, 1.2, 0.8]), 0.1)
    True
    """
    change = drift[np.isfinite(drift)]
    if len(change) < 4 or not np.ptp(change) > 0:
        return False
    mean = float(change.mean())
    score = abs(mean) / (np.std(change, ddof=1) / math.sqrt(len(change)))
    unlikely = 2 * stdtr(len(change) - 1, -score) < FALSE_ALARM
    return bool(unlikely and abs(mean) > std_error)


def drift_diagnostics(drifts: Sequence[np.ndarray]) -> dict[str, Any]:
    """What rounds of islands found, as results have it; nothing where none was looked for.

    >>> drift_diagnostics([np.array([0.5, np.nan]), np.array([1.5])])["drift"]
    1.0
    """
    if not drifts:
        return {}
    every = np.concatenate(drifts)
    known = every[np.isfinite(every)]
    mean = float(known.mean()) if len(known) else math.nan
    return {"drift": mean, "island_drift": every}


Importance = tuple[float, float, float, np.ndarray, np.ndarray, Gaussian]


def _nothing(dimension: int) -> Importance:
    """No importance sample."""
    standard = np.zeros(dimension), np.eye(dimension)
    return -math.inf, math.nan, 0.0, np.empty((0, dimension)), np.empty(0), standard


def _importance(
    seed: int, path: Path, cloud: Cloud, cell: Cell | None, differentiable: bool
) -> Importance:
    """Importance sampling from the Gaussian of particles at the highest power.

    While it fits badly it is fitted again, to its own weighted draws; what counts are fresh draws
    from the last one.
    """
    position = np.asarray(cloud.position)
    dimension = position.shape[-1]
    height = log_densities(path, position, differentiable=differentiable)[0]
    # What the data say nothing about is as wide as the prior, half a nat for each dimension.
    highest = position[height >= height.max() - SAME_HEIGHT - 0.5 * dimension]
    nothing = _nothing(dimension)
    if len(np.unique(highest, axis=0)) < 2 * dimension + 2:
        return nothing
    mean, covariance = highest.mean(0), QUENCH[-1] * np.atleast_2d(np.cov(highest.T))
    numbers = random_numbers(seed, Stream.QUENCHING)
    for _ in range(NUM_FITS):
        try:
            root = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            return nothing
        noise = numbers.standard_normal(position.shape)
        gaussian, draws = (mean, root), mean + noise @ root.T
        height = log_densities(path, draws, differentiable=differentiable)[0]
        log_weight = height - log_normal(noise, root)
        if cell is not None:
            log_weight = log_weight + cell(draws)
        log_weight = np.where(np.isnan(log_weight), -np.inf, log_weight).reshape(-1)
        draws = draws.reshape(-1, dimension)
        if not math.isfinite(log_weight.max()):
            return nothing
        weight = np.exp(log_weight - log_weight.max())
        ess = float(weight.sum() ** 2 / np.sum(weight**2))
        if ess > 0.5 * len(weight) or ess < dimension + 2:
            break
        mean = weight @ draws / weight.sum()
        covariance = np.atleast_2d(np.cov(draws.T, aweights=weight))
    error = float(np.std(weight, ddof=1) / weight.mean() / math.sqrt(len(weight)))
    log_evidence = float(log_weight.max() + np.log(weight.mean()))
    return log_evidence, error, ess, draws, log_weight, gaussian
