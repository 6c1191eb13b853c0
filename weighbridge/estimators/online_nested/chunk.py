"""The evidence of one chunk by nested sampling, and the particles after it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.resampling import systematic_indices
from weighbridge.core.weighted_reservoir import sample_weighted
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.nested.merging import weigh_points
from weighbridge.estimators.nested.moves.by_name import find_move
from weighbridge.estimators.nested.nested_sampling import NestedSampling
from weighbridge.estimators.nested.points import Points, num_live
from weighbridge.estimators.nested.replacement import Replacement
from weighbridge.estimators.nested.run import NestedRun
from weighbridge.estimators.nested.stopping import Stop
from weighbridge.estimators.nested.tuning import AIM, Tuning
from weighbridge.estimators.nested.volumes import linear_error, log_shrinkage, log_sums
from weighbridge.estimators.nested.walkers import Density

SHRINKAGE = "exponential"
# Names of a chunk's sampler and of its reservoir among the random numbers of a chunk.
OF_THE_SAMPLER, OF_THE_STARTS, OF_THE_RESERVOIR = range(3)


class ChunkPlace(NamedTuple):
    """What names the random numbers of a chunk.

    Attributes:
        seed: of the run.
        chunk: number of the chunk.
        islands: numbers of the islands.
    """

    seed: int
    chunk: int
    islands: np.ndarray

    def generator(self, purpose: int) -> np.random.Generator:
        """Random numbers for a purpose within the chunk."""
        first = int(self.islands[0])
        return random_numbers(self.seed, Stream.NESTED_CHUNKS, first, self.chunk, purpose)


class WeighedChunk(NamedTuple):
    """One chunk, weighed.

    Attributes:
        log_evidence: log p(chunk | rows before).
        variance: its variance, from simulated volumes.
        island_log_evidences, island_variances: the same for each island alone.
        cloud: the particles; the mean weight of an island is 1.
        tuning: of the next chunk's moves.
        p_value: of the insertion test, over all points and in its worst window.
        remainder: evidence that was left when the chunk was cut short (nats), else 0.
        is_flat: whether all points have the same likelihood.
        run: the finished run, with its counts.
    """

    log_evidence: float
    variance: float
    island_log_evidences: np.ndarray
    island_variances: np.ndarray
    cloud: Cloud
    tuning: Tuning
    p_value: float
    remainder: float
    is_flat: bool
    run: NestedRun


def weigh_chunk(
    settings: NestedSampling,
    density: Density,
    before: Cloud,
    place: ChunkPlace,
    tuning: Tuning | None,
) -> WeighedChunk:
    """Nested sampling with the posterior of earlier rows as the prior.

    Args:
        settings: of nested sampling.
        density: the posterior of the rows before, and the likelihood of the chunk.
        before: weighted draws from the posterior of the rows before. At the first chunk, more
            draws from the prior than live points, with equal weights.
        place: names the random numbers.
        tuning: of the moves, after the chunk before; None for the first chunk.
    """
    size = settings.num_live // settings.num_islands
    started = place.generator(OF_THE_SAMPLER)
    first = tuning is None
    position, own = (before.position, None) if first else _starts(before, size, place)
    move = find_move(settings.moves, settings.num_moves)
    run = NestedRun(
        # Not with jumps: the prior of a chunk costs as much as the likelihood.
        Replacement.first(density, place.islands, move, jumps=False),
        int(started.integers(0, 2**63)),
        place.islands,
        size,
        settings.delete,
    )
    run.begin(position)
    if tuning is not None and own is not None:
        run.replacement.tuning = tuning
        run.refresh(before.position[np.isfinite(before.log_weight)], own)
    run.complete(Stop(remainder=settings.remainder, thin=settings.thin))
    if run.ended == "interrupted":
        raise interrupts.Interrupted
    return _weigh(run, size, place)


def _tuning_after(run: NestedRun) -> Tuning:
    """The tuning for the next chunk: the median number of moves.

    The last walks of a run are few, so their correlations are noise, and noise makes the number
    of moves grow: without end, if every chunk began where the one before ended.
    """
    length = (
        float(np.median(run.counts.num_moves))
        if run.counts.num_moves
        else run.replacement.tuning.length
    )
    return run.replacement.tuning._replace(length=length, remembered=AIM)


def _starts(cloud: Cloud, size: int, place: ChunkPlace) -> tuple[np.ndarray, np.ndarray]:
    """Positions at which walkers start, and which of the particles of weight each one is."""
    point = place.generator(OF_THE_STARTS).random(len(place.islands))
    chosen = np.stack(
        [systematic_indices(at, weight, size) for at, weight in zip(point, cloud.log_weight)]
    )
    island = np.arange(len(chosen))[:, None]
    number = np.cumsum(np.isfinite(cloud.log_weight)).reshape(cloud.log_weight.shape) - 1
    return cloud.position[island, chosen], number[island, chosen].reshape(-1)


def _weigh(run: NestedRun, size: int, place: ChunkPlace) -> WeighedChunk:
    """The evidence by the points of all islands, and each island's own sample of its points."""
    points = run.points()
    merged = weigh_points(points, SHRINKAGE, run.seed, run.counts.memory())
    generator = place.generator(OF_THE_RESERVOIR)
    separate, variances, position, weight = [], [], [], []
    for island in place.islands:
        own = points.take(points.island == island).sorted()
        sums = log_sums(own.log_likelihood, log_shrinkage(num_live(own), SHRINKAGE))
        separate.append(sums.trapezium)
        variances.append(linear_error(sums, own.log_likelihood, num_live(own)) ** 2)
        drawn = _sample(own, sums.log_weights, size, generator)
        position.append(drawn[0])
        weight.append(drawn[1])
    level = points.log_likelihood
    origin = np.broadcast_to(np.arange(size), (len(place.islands), size)).copy()
    found = merged.diagnostics
    p_values = found["insertion_p_value"], found["rolling_p_value"]
    return WeighedChunk(
        log_evidence=merged.log_evidence,
        variance=merged.std_error**2,
        island_log_evidences=np.array(separate),
        island_variances=np.array(variances),
        cloud=Cloud(np.stack(position), np.stack(weight), origin),
        tuning=_tuning_after(run),
        p_value=float(min(np.nan_to_num(p_values, nan=1.0))),
        remainder=run.remainder() if run.ended else 0.0,
        is_flat=bool(np.all(level == level[0])),
        run=run,
    )


def _sample(
    points: Points, log_weights: np.ndarray, size: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A weighted reservoir of the points of an island; log weights of a mean of 1.

    If fewer points have any weight, the first one fills the rest of the places, with weight 0.
    """
    weights = np.exp(log_weights - np.max(log_weights))
    chosen, stand_for = sample_weighted(generator, weights, size)
    missing = size - len(chosen)
    chosen = np.concatenate([chosen, np.repeat(chosen[:1], missing)])
    log_weight = np.log(stand_for * size / stand_for.sum())
    return points.position[chosen], np.concatenate([log_weight, np.full(missing, -np.inf)])
