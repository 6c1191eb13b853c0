"""A second look at the end of a path: do the particles still drift, and did they miss a mode?

The estimate of a path is never far too high (by Markov's inequality). The spread over islands shows
when it is too low by chance, but not when all islands miss the same mass. Two checks test for this,
with the moves and the program of the path:

- Particles that have kept up with the path keep their distribution when they are moved further at
  its end. Particles that lagged behind drift. (A bridge that agrees with the path shows the same.)
- Particles are annealed further, to p(theta) p(data | theta)^lambda with lambda up to 64: they are
  quenched into the highest modes that they can reach. Quick climbs from elsewhere find more modes
  (see ``peaks``). Importance sampling from a Gaussian there gives the mass of such a mode, which is
  never far too high either. If it is above the mass of the path in the same region, the path has
  missed a mode that is too narrow or too far away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtr

from weighbridge.core.islands import Combined
from weighbridge.core.thresholds import DRIFT_FALSE_ALARM
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.labels import one_labelling
from weighbridge.estimators.annealing.loop import Annealed, PathSeed, anneal
from weighbridge.estimators.annealing.moves.adaptive import Adaptive
from weighbridge.estimators.annealing.moves.walks import needs_gradient
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.reweighting import Settings, final_moments
from weighbridge.estimators.second_look.joining import Combine, Joined, Mode, join
from weighbridge.estimators.second_look.mode_samples import (
    QUENCH,
    ModeSample,
    mode_samples,
    no_sample,
)
from weighbridge.estimators.second_look.peaks import find_peaks
from weighbridge.models.exchangeable import relabelled
from weighbridge.models.targets.host import HostLikelihood

# Stages of the random numbers: the path itself is stage 0.
DRIFT_STAGE, QUENCH_STAGE = 1, 2
# A mode with less than exp(-LITTLE) of the evidence may have been found by a single climb.
LITTLE = 4.6


class PathLoop(NamedTuple):
    """What a second look takes over from the loop of the path, so that nothing new is compiled.

    Attributes:
        seed: of the run.
        islands: numbers of the islands.
        resampling: name of the resampling scheme.
        take_step: one step of the loop.
    """

    seed: int
    islands: np.ndarray
    resampling: str
    take_step: Callable[..., Any]


class Audit(NamedTuple):
    """The findings of a second look.

    Attributes:
        drift: change of the mean log-likelihood under further moves in each island, in nats; None
            if no further moves were made.
        log_evidence: from importance sampling with the Gaussian of the quenched particles.
        std_error: its standard error.
        ess: its effective draws; 0 if no Gaussian could be fitted.
        mode: its draws.
        groups: importance samples of single modes: of groups of quenched particles, if there are
            several, and of the tops of climbs.
        found_by: how many climbs ended in the mode of the first sample; 0 if there were no climbs.
    """

    drift: np.ndarray | None
    log_evidence: float
    std_error: float
    ess: float
    mode: Mode
    groups: tuple[ModeSample, ...] = ()
    found_by: int = 0

    def is_drifting(self, path: Combined) -> bool:
        """Whether the particles drifted by more than the path's stated error."""
        return self.drift is not None and is_drifting(self.drift, path.std_error)

    def missed(self, cloud: Cloud, islands: np.ndarray, combine: Combine) -> Joined | None:
        """The evidence with a mode that the path has clearly missed, at least in part; else None.

        Args:
            cloud: particles at the end of the path.
            islands: log evidence of each island.
            combine: combines the log evidences of islands, with an error.
        """
        if not np.isfinite(islands).any():
            return None
        first = ModeSample(self.log_evidence, self.std_error, self.ess, self.mode, self.found_by)
        usable = [sample for sample in (first, *self.groups) if sample.is_usable]
        lost = [s for s in self.groups if s.found_by and not s.is_usable]
        apart: list[ModeSample] = []
        # A Gaussian over two modes is dropped where each has one of its own, which is sharper.
        for sample in sorted(usable, key=lambda sample: sample.std_error):
            centre = sample.mode.gaussian[0]
            if not any(o.holds(centre) or sample.holds(o.mode.gaussian[0]) for o in apart):
                apart.append(sample)
        found = [(join([sample.mode], cloud, islands, combine), sample) for sample in apart]
        # The path's shares of several modes may be too uncertain to be called wrong. Then all modes
        # that are known well are taken: to take only the uncertain ones would make the answer too
        # low, since a mode of which the islands have little by chance looks certain.
        unsure = len(apart) > 1 and any(j.is_uncertain and s.is_sharp for j, s in found)
        if not unsure and not any(j.is_clear for j, _ in found):
            return None
        chosen = [s for j, s in found if j.is_clear or (s.is_sharp and j.is_possible)]
        joined = join([sample.mode for sample in chosen], cloud, islands, combine)
        counted = [s for s in (*apart, *lost) if s.log_evidence > joined.log_evidence - LITTLE]
        known = all(s.is_usable and s.found_by > 1 for s in counted)
        sure = known and all(s.is_sharp for s in chosen)
        return joined._replace(num_modes=len(chosen), is_sure=sure)

    @property
    def diagnostics(self) -> dict[str, Any]:
        """The findings as diagnostics of a result."""
        return {
            **drift_diagnostics([] if self.drift is None else [self.drift]),
            "quenched_log_evidence": self.log_evidence,
            "quenched_error": self.std_error,
            "quenched_ess": self.ess,
        }


def audit(
    loop: PathLoop,
    outcome: Annealed,
    path: Path,
    *,
    roam: bool,
    quench: bool,
    first_stage: int = 0,
    density: Path | None = None,
    hot: Sequence[np.ndarray] = (),
) -> Audit | None:
    """Check particles at the end of a path; None if their moves cannot be used for this.

    Args:
        loop: see ``PathLoop``.
        outcome: of the path.
        path: from the prior to the posterior.
        roam: whether to test for a drift; a bridge that agrees with the path is a better test.
        quench: whether to search for higher modes.
        density: the end of the path in other terms, for which there is a program; optional.
        first_stage: offset of the stage numbers, for a run with many stages.
        hot: particles of low powers, from which some climbs start.
    """
    mover = outcome.mover
    if not isinstance(mover, Adaptive) or not (roam or quench):
        return None

    def on(stage: int, cloud: Cloud, mover: Adaptive, below: float, powers: np.ndarray) -> Annealed:
        return anneal(
            PathSeed(loop.seed, first_stage + stage, loop.islands),
            cloud,
            lambda _: path,
            mover,
            Settings(0.5, below, resampling=loop.resampling, schedule=powers, start=1.0),
            take_step=loop.take_step,
        )

    cloud, before = outcome.cloud, None
    if roam:
        roamed = on(DRIFT_STAGE, cloud, mover.roaming(path.model.dimension), 0.0, np.ones(1))
        cloud, before = roamed.cloud, np.asarray(roamed.steps[0].mean)
    if not quench:
        drift = None if before is None else final_moments(path, cloud)[0] - before
        return Audit(drift, *no_sample(path.model.dimension)[:4])
    # The first step of the quench gives the mean log-likelihood after the further moves.
    fallen = on(QUENCH_STAGE, cloud, mover.falling(), 2.0, QUENCH)
    drift = None if before is None else np.asarray(fallen.steps[0].mean) - before
    # In one labelling, because one Gaussian cannot fit all labellings.
    cloud, cell = one_labelling(path.model, fallen.cloud, agreed=False)
    differentiable, end = needs_gradient(mover), density or path
    peaks = []
    if differentiable and not isinstance(end.chunk, HostLikelihood):
        before_end = np.concatenate(hot) if hot else np.empty((0, path.model.dimension))
        ended = outcome.cloud
        if cell is not None:
            flat = np.asarray(ended.position).reshape(-1, path.model.dimension)
            labelled = relabelled(path.model, flat, cell.reference)
            ended = ended._replace(position=labelled.reshape(ended.position.shape))
        islands = outcome.steps[-1].log_evidence if outcome.steps else np.zeros(len(loop.islands))
        peaks = find_peaks(loop.seed, end, ended, np.asarray(islands), cell, before_end)
    whole, groups = mode_samples(loop.seed, end, cloud, cell, differentiable, peaks)
    return Audit(drift, *whole[:4], groups, whole.found_by)


def is_drifting(drift: np.ndarray, std_error: float) -> bool:
    """Whether a t-test over islands finds a change, and the change exceeds the stated error.

    >>> is_drifting(np.array([1.0, 1.1, 0.9, 1.0, 1.2, 0.8]), 0.1)
    True
    """
    change = drift[np.isfinite(drift)]
    if len(change) < 4 or not np.ptp(change) > 0:
        return False
    mean = float(change.mean())
    score = abs(mean) / (np.std(change, ddof=1) / math.sqrt(len(change)))
    unlikely = 2 * stdtr(len(change) - 1, -score) < DRIFT_FALSE_ALARM
    return bool(unlikely and abs(mean) > std_error)


def drift_diagnostics(drifts: Sequence[np.ndarray]) -> dict[str, Any]:
    """The drifts of rounds of islands as diagnostics; empty if there was no test for a drift.

    >>> drift_diagnostics([np.array([0.5, np.nan]), np.array([1.5])])["drift"]
    1.0
    """
    if not drifts:
        return {}
    every = np.concatenate(drifts)
    known = every[np.isfinite(every)]
    mean = float(known.mean()) if len(known) else math.nan
    return {"drift": mean, "island_drift": every}
