"""The loop that all annealed estimators share.

Each step chooses the next power, reweights, resamples if needed, and moves the particles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.types import Report
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.moves.mover import Mover
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.reweighting import Settings, StepInfo
from weighbridge.estimators.annealing.step import anneal_step
from weighbridge.models.targets.unbounded import UnboundedError

# Diagnostics of annealed runs that are counts over all steps.
COUNTS = (
    "annealing_steps",
    "dropped",
    "host_calls",
    "host_evaluations",
    "num_diverged",
    "num_infinite",
    "num_stages",
    "num_undefined",
    "stalled",
)


class Annealed(NamedTuple):
    """Particles at the end of a path, the tuned mover, and the info of each step."""

    cloud: Cloud
    mover: Any
    steps: list[StepInfo]
    powers: list[float]
    stalled: bool

    @property
    def is_whole(self) -> bool:
        """Whether the path has reached power 1, and was not interrupted before."""
        return self.powers[-1] >= 1.0


class PathSeed(NamedTuple):
    """What the random numbers of a path depend on; every step has numbers of its own.

    Attributes:
        seed: of the whole run.
        stage: number of this path within the run.
        islands: numbers of the islands; the first one counts.
    """

    seed: int
    stage: int
    islands: np.ndarray

    def numbers(self, step: int) -> np.random.Generator:
        """The random numbers of a step."""
        first_island = int(self.islands[0])
        return random_numbers(self.seed, Stream.STEPS, first_island, step, self.stage)


def anneal(
    seed: PathSeed,
    cloud: Cloud,
    path_at: Callable[[int], Path],
    mover: Mover | Sequence[Mover],
    settings: Settings,
    *,
    take_step: Callable[..., tuple[Cloud, float, Any, StepInfo]] = anneal_step,
    between: Callable[[Cloud, StepInfo], Cloud] | None = None,
    report: Report | None = None,
) -> Annealed:
    """Move the particles along a path, from power 0 to power 1 or along a given schedule.

    Islands share the schedule and the tuning of the moves, nothing else. Given these, their
    estimates are independent. A schedule chosen from all particles is better than one from each
    island.

    Args:
        seed: see ``PathSeed``.
        cloud: particles of all islands.
        path_at: the path for a step; it may have new mini-batches at each step.
        mover: moves the particles; or one mover for each power of the schedule.
        settings: see ``Settings``. If ``max_steps`` is reached, ``stalled`` is set.
        take_step: ``anneal_step``, or ``host_step`` for a likelihood in plain Python; both accept a
            ``chain_length``. Or ``patient_step``, in which particles move only if some were
            resampled.
        between: called after every step with the particles and the info of the step; it returns
            particles with the same density.
        report: called before the first step and after every step.
    """
    # Convert to arrays now: tuned movers hold arrays, and another type would cause a retrace.
    mover = jax.tree_util.tree_map(np.asarray, mover)
    schedule, powers = settings.schedule, [settings.start]
    steps: list[StepInfo] = []
    stalled = False
    if report is not None:
        report(settings.start, 0.0, 0)
    while powers[-1] < 1.0 if schedule is None else len(steps) < len(schedule):
        step = len(steps)
        if schedule is not None:
            following = float(schedule[step])
        else:
            stalled = step >= settings.max_steps - 1
            following = 1.0 if stalled else float("nan")
        before = cloud.position
        try:
            interrupts.check()
            cloud, power, tuned, info = take_step(
                seed.numbers(step),
                cloud,
                powers[-1],
                path_at(step),
                mover[step] if isinstance(mover, Sequence) else mover,
                settings._replace(next_power=following),
            )
        except interrupts.Interrupted:
            if not (settings.may_end_early and steps):
                raise
            break
        if np.any(info.num_unbounded) or np.any(getattr(info.moves, "unbounded", 0)):
            # Show the positions before the moves if the density was infinite there already.
            raise UnboundedError(before if np.any(info.num_unbounded) else cloud.position)
        mover = mover if isinstance(mover, Sequence) else tuned
        if between is not None:
            cloud = between(cloud, info)
        powers.append(power)
        steps.append(info)
        if settings.may_end_early:
            interrupts.keep()
        if report is not None:
            so_far = np.logaddexp.reduce(steps[-1].log_evidence) - np.log(len(seed.islands))
            report(powers[-1], float(so_far), len(steps))
    return Annealed(cloud, mover, steps, powers, stalled)
