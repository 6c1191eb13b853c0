"""The loop of nested sampling: delete the lowest points, and replace them by walkers.

Several independent runs (islands) go side by side. They share the tuning of the moves and the
directions, nothing else, so each is a valid run of its own.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.errors import ModelError
from weighbridge.core.random import Stream, random_key, random_numbers
from weighbridge.core.types import Report
from weighbridge.estimators.annealing.cloud import draw_cloud
from weighbridge.estimators.nested.clusters import find_clusters
from weighbridge.estimators.nested.insertion import sequential_ranks
from weighbridge.estimators.nested.labelling import Labelling
from weighbridge.estimators.nested.moves.by_name import Move
from weighbridge.estimators.nested.moves.galilean import tuned
from weighbridge.estimators.nested.moves.walk import Contour, Place
from weighbridge.estimators.nested.points import PRIOR_CONTOUR, Points, joined
from weighbridge.estimators.nested.prior_draws import draw_above
from weighbridge.estimators.nested.scripts import draw_script, script_length
from weighbridge.estimators.nested.tuning import Tuning, memory
from weighbridge.estimators.nested.volumes import log_shrinkage
from weighbridge.estimators.nested.walkers import Density

# Draws from the prior for each live point. The lowest die without being replaced: a draw costs one
# evaluation, a walker many. Rejection down to the volume 1/8 in three halvings has 1 + 1 + 2 + 4
# evaluations for each live point, the same number, and fewer live points on the way.
PRIOR_DRAWS = 8
# The walk before the first batch has a number that no batch reaches.
REFRESHING = 2**40
# Rejection from the prior ends at this volume, where a new point costs 10,000 draws. It is a
# function of the numbers of deaths alone, so the end does not depend on what was drawn.
LEAST_PRIOR_VOLUME = -math.log(1e4)
# A run whose log volume is below this has a likelihood that grows without end.
LEAST_LOG_VOLUME, LEAST_FOR_EACH = -1000.0, -100.0


class Stop(NamedTuple):
    """When a run stops.

    Attributes:
        remainder: evidence (nats) that may be left in the live points.
        max_calls: number of likelihood evaluations.
        time_limit: seconds.
        thin: share of the live points that goes on after the stop, to look for a higher peak.
        thin_span: their log-likelihoods differ by less than this (nats) when they end.
    """

    remainder: float
    max_calls: float
    time_limit: float
    thin: float
    thin_span: float


@dataclass
class Counts:
    """What walkers did, summed over batches."""

    batches: int = 0
    moves: int = 0
    accepted: int = 0
    stuck: int = 0
    walkers: int = 0
    steps: int = 0
    waited: int = 0
    undefined: int = 0
    num_moves: list[int] = field(default_factory=list)
    remembered: list[float] = field(default_factory=list)


@dataclass
class NestedRun:
    """Independent runs of nested sampling, side by side.

    Attributes:
        density: prior and likelihood.
        seed, islands: name the random numbers.
        move: how new points are made.
        delete: share of the live points that a batch replaces.
        live: islands x live points.
        dead: points that are no longer live, in the order of their deaths.
        ended: why the run ended before its end; empty if it did not.
        left: least evidence that was left in the live points so far (nats).
        labelling: of exchangeable components, if there are any.
    """

    density: Density
    seed: int
    islands: np.ndarray
    move: Move
    delete: float
    live: Points
    tuning: Tuning
    dead: list[Points] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    log_volume: float = 0.0
    log_dead: float = -math.inf
    ended: str = ""
    thin_gain: float = 0.0
    left: float = math.inf
    labelling: Labelling | None = None

    # --- the algorithm ----------------------------------------------------------------------

    def complete(self, stop: Stop, report: Report | None) -> None:
        """Run until little evidence is left, then look further with a few of the points.

        If those find evidence that was missing, the others go on from where they stopped.
        """
        began = time.perf_counter()
        if report is not None:
            report(math.inf, self.log_evidence(), 0)
        self._climb(stop, began, report, lambda: self.remainder() < stop.remainder)
        for _ in range(2):
            if self.ended or stop.thin <= 0:
                break
            before, volume, log_dead = self.log_evidence(), self.log_volume, self.log_dead
            num_live = self.live.tie.shape[1]
            few = max(2, round(stop.thin * num_live))
            if few >= num_live:
                break
            chosen = self._generator(0, Stream.NESTED_RANKS).permutation(num_live)
            resting = self.live.along(np.tile(chosen[few:], (len(self.islands), 1)))
            self.live = self.live.along(np.tile(chosen[:few], (len(self.islands), 1)))
            self._climb(stop, began, report, lambda: self.span() < stop.thin_span)
            self.thin_gain = self.log_evidence() - before
            self.dead.append(self.live.flat())
            self.live = resting
            if self.thin_gain < max(0.1, 5 * stop.remainder):
                break
            # A higher peak: the points that rested go on from the volume at which they stopped.
            self.log_volume, self.log_dead = volume, log_dead
            self._climb(stop, began, report, lambda: self.remainder() < stop.remainder)
        if report is not None and not self.ended:
            report(0.0, self.log_evidence(), self.density.num_calls)

    def _climb(self, stop: Stop, began: float, report: Report | None, is_over: Any) -> None:
        least = LEAST_LOG_VOLUME + LEAST_FOR_EACH * self.density.model.dimension
        while not is_over():
            if interrupts.is_due():
                self.ended = "interrupted"
            elif self.density.num_calls >= stop.max_calls:
                self.ended = "max_calls"
            elif time.perf_counter() - began >= stop.time_limit:
                self.ended = "time_limit"
            elif self.log_volume < least:
                self.ended = "endless"
            elif self.move.name == "prior" and self.log_volume < LEAST_PRIOR_VOLUME:
                self.ended = "prior_too_wide"
            if self.ended:
                break
            self.batch()
            interrupts.keep()
            if report is not None:
                # A higher peak may raise it again; a bar should not go back.
                self.left = min(self.left, self.remainder())
                report(self.left, self.log_evidence(), self.density.num_calls)

    def refresh(self, position: np.ndarray, own: np.ndarray) -> None:
        """Move all live points with the prior alone as the target, before the first of them dies.

        Points that are draws from the prior, but not independent of each other, become so.

        Args:
            position: the different points from which the live points were copied.
            own: for each live point, the index of the one that it is a copy of.
        """
        starts = self.live.flat()
        everywhere = Contour(np.full(len(own), PRIOR_CONTOUR[0]), np.zeros(len(own)))
        generator = self._generator(REFRESHING, Stream.NESTED_WALKS)
        place = self._walk(starts, everywhere, position, own, generator)
        moved = {n: v.reshape(getattr(self.live, n).shape) for n, v in place._asdict().items()}
        self.live = self.live._replace(**moved)

    def batch(self) -> None:
        """Delete the lowest points of every island, and replace them."""
        num_live = self.live.tie.shape[1]
        num_new = max(1, min(round(self.delete * num_live), num_live - 1))
        order = np.lexsort((self.live.tie, self.live.log_likelihood), axis=1)
        lowest, survivors = (self.live.along(o) for o in np.split(order, [num_new], axis=1))
        self._bury(lowest, num_live)
        generator = self._generator(self.counts.batches, Stream.NESTED_WALKS)
        # Every survivor is the start of equally many walkers, up to one: modes do not drift apart
        # by the luck of the starts.
        left = num_live - num_new
        own = np.stack(
            [
                np.concatenate([generator.permutation(left) for _ in range(-(-num_new // left))])
                for _ in self.islands
            ]
        )[:, :num_new]
        starts = survivors.along(own)
        contour = Contour(
            *(np.repeat(leaf[:, -1], num_new) for leaf in (lowest.log_likelihood, lowest.tie))
        )
        index = (own + left * np.arange(len(self.islands))[:, None]).reshape(-1)
        if self.move.name == "prior":
            place = self._draw(lowest, generator)
        else:
            place = self._walk_labelled(survivors.flat(), contour, index, generator)
        shape = (len(self.islands), num_new)
        insertion, among = sequential_ranks(
            (survivors.log_likelihood, survivors.tie),
            (place.log_likelihood.reshape(shape), place.tie.reshape(shape)),
        )
        new = Points(
            position=place.position.reshape(*shape, -1),
            log_prior=place.log_prior.reshape(shape),
            log_likelihood=place.log_likelihood.reshape(shape),
            tie=place.tie.reshape(shape),
            birth=contour.log_likelihood.reshape(shape),
            birth_tie=contour.tie.reshape(shape),
            insertion=insertion,
            among=among,
            island=starts.island,
        )
        self.live = joined([survivors, new], axis=1)
        self.counts.batches += 1

    def _walk_labelled(
        self, survivors: Points, contour: Contour, own: np.ndarray, generator: np.random.Generator
    ) -> Place:
        """New points by walkers; with exchangeable components, in one labelling."""
        labelling, density = self.labelling, self.density
        if labelling is None:
            return self._walk(survivors.take(own), contour, survivors.position, own, generator)
        position = labelling.follow(survivors.position, survivors.log_likelihood)
        density.walls = labelling.walls()
        begun = labelling.begin(position[own], generator)
        starts = survivors.take(own)._replace(position=begun, log_prior=density.log_prior(begun))
        place = self._walk(starts, contour, position, own, generator)
        ended = labelling.end(place.position, generator)
        return place._replace(position=ended, log_prior=density.log_prior(ended))

    def _walk(
        self,
        starts: Points,
        contour: Contour,
        position: np.ndarray,
        own: np.ndarray,
        generator: np.random.Generator,
    ) -> Place:
        """New points above the contour, by walkers from the starts."""
        tuning, count = self.tuning, len(own)
        clusters = find_clusters(position)
        place = Place(starts.position, starts.log_prior, starts.log_likelihood, starts.tie)
        left, longest = tuning.num_moves, script_length(tuning.num_moves, *place.position.shape)
        accepted, steps = np.zeros(count, int), self.counts.steps
        while left:
            num_moves = min(left, longest)
            script = draw_script(
                self.move.name,
                generator,
                position,
                clusters,
                own,
                tuning.step_size,
                num_moves,
                longest,
            )
            walked = self.density.walk(self.move.walk, place, contour, script, generator)
            place, left = walked.place, left - num_moves
            accepted += walked.num_accepted
            self.counts.steps += walked.num_evaluations
            self.counts.waited += walked.num_steps * count - walked.num_evaluations
            self.counts.undefined += walked.num_undefined
        self._learn(memory(starts, place, len(self.islands)), accepted, self.counts.steps - steps)
        return place

    def _draw(self, lowest: Points, generator: np.random.Generator) -> Place:
        """New points above the contours, by rejection from the prior."""
        contour = Contour(lowest.log_likelihood[:, -1], lowest.tie[:, -1])
        num_new = lowest.tie.shape[1]
        drawn = draw_above(self.density, contour, self.islands, num_new, generator)
        count = num_new * len(self.islands)
        counts = self.counts
        counts.moves, counts.accepted = counts.moves + count, counts.accepted + count
        counts.walkers += count
        counts.steps += drawn.num_evaluations
        counts.undefined += drawn.num_undefined
        counts.num_moves.append(1)
        return Place(*(leaf.reshape(count, *leaf.shape[2:]) for leaf in drawn.place))

    def _learn(self, remembered: float, accepted: np.ndarray, num_evaluations: int) -> None:
        """Count what the walkers did, and tune the next walk."""
        counts, num_moves = self.counts, self.tuning.num_moves
        counts.moves += num_moves * len(accepted)
        counts.accepted += int(accepted.sum())
        counts.stuck += int((accepted == 0).sum())
        counts.walkers += len(accepted)
        counts.num_moves.append(num_moves)
        counts.remembered.append(remembered)
        acceptance = float(accepted.mean()) / num_moves
        step_size = self.tuning.step_size
        self.tuning = self.tuning.after(
            remembered, acceptance, self.density.model.dimension, self.move.num_moves
        )
        if self.move.name == "galilean":
            # A reflected step has two evaluations.
            reflected = num_evaluations / (num_moves * len(accepted)) - 1.0
            self.tuning = self.tuning._replace(step_size=tuned(step_size, reflected))

    # --- the evidence so far ------------------------------------------------------------------

    def _bury(self, lowest: Points, num_live: int) -> None:
        """Add the lowest points to the dead, and their shells to the evidence so far."""
        nlive = num_live - np.arange(lowest.tie.shape[1])
        shrink = log_shrinkage(nlive)
        volumes = self.log_volume + np.cumsum(shrink)
        shells = volumes - shrink + np.log(-np.expm1(shrink))
        mean = _log_mean(lowest.log_likelihood, axis=0)
        self.log_dead = float(np.logaddexp(self.log_dead, np.logaddexp.reduce(mean + shells)))
        self.log_volume = float(volumes[-1])
        self.dead.append(lowest.flat())

    def log_live(self) -> float:
        """Log of the evidence in the live points."""
        return self.log_volume + float(_log_mean(self.live.log_likelihood.reshape(-1), axis=0))

    def log_evidence(self) -> float:
        """Log evidence so far, live points included; a quick sum for reports and the stop."""
        return float(np.logaddexp(self.log_dead, self.log_live()))

    def remainder(self) -> float:
        """How much the live points add to the log evidence of the dead ones (nats)."""
        if self.log_dead == -math.inf:
            return math.inf
        return self.log_evidence() - self.log_dead

    def span(self) -> float:
        """Largest range of the log-likelihoods of the live points of an island."""
        level = self.live.log_likelihood
        lowest, highest = level.min(axis=1), level.max(axis=1)
        finite = lowest > -np.inf
        if not finite.all():
            return math.inf
        return float(np.max(highest - lowest))

    def points(self) -> Points:
        """All points, dead and live."""
        return joined([*self.dead, self.live.flat()])

    def _generator(self, batch: int, stream: Stream) -> np.random.Generator:
        return random_numbers(self.seed, stream, int(self.islands[0]), batch)


def start_run(
    density: Density,
    num_live: int,
    *,
    seed: int,
    islands: np.ndarray,
    move: Move,
    delete: float,
    position: np.ndarray,
) -> NestedRun:
    """Begin with draws from the prior; the lowest die until ``num_live`` are left.

    Args:
        density: prior and likelihood.
        num_live: live points of an island.
        seed: of the run.
        islands: numbers of the islands.
        move: how new points are made.
        delete: share of the live points that a batch replaces.
        position: draws from the prior, islands x draws x coordinates.
    """
    shape = position.shape[:2]
    told = density.at(position.reshape(-1, position.shape[2]))
    _check_start(told.log_likelihood)
    generator = random_numbers(seed, Stream.NESTED_RANKS, int(islands[0]), 2**32)
    drawn = Points(
        position=position,
        log_prior=told.log_prior.reshape(shape),
        log_likelihood=told.log_likelihood.reshape(shape),
        tie=generator.random(shape),
        birth=np.full(shape, PRIOR_CONTOUR[0]),
        birth_tie=np.full(shape, PRIOR_CONTOUR[1]),
        insertion=np.full(shape, -1),
        among=np.zeros(shape, int),
        island=np.broadcast_to(islands[:, None], shape).copy(),
    )
    tuning = Tuning.first(position.shape[2], move.name == "random_walk")
    if move.num_moves is not None:
        tuning = tuning._replace(length=float(move.num_moves))
    run = NestedRun(density, seed, islands, move, delete, drawn, tuning)
    if density.model.exchangeable:
        run.labelling = Labelling(density.model)
    order = np.lexsort((drawn.tie, drawn.log_likelihood), axis=1)
    spare = shape[1] - num_live
    if spare:
        run._bury(drawn.along(order[:, :spare]), shape[1])
        run.live = drawn.along(order[:, spare:])
    return run


def draw_prior(model: Any, seed: int, islands: np.ndarray, num_live: int) -> np.ndarray:
    """Draws from the prior: islands x draws x coordinates."""
    return draw_cloud(model, random_key(seed), islands, PRIOR_DRAWS * num_live).position


def _log_mean(values: np.ndarray, axis: int) -> np.ndarray:
    return np.asarray(np.logaddexp.reduce(values, axis=axis) - math.log(values.shape[axis]))


def _check_start(log_likelihood: np.ndarray) -> None:
    """Refuse NaN at draws from the prior, and -inf at all of them."""
    undefined = int(np.isnan(log_likelihood).sum())
    if undefined:
        raise ModelError(
            f"The log-likelihood is not a number (NaN) for {undefined} prior draws. Check it for "
            "log(0), 0/0 or overflow; it must return -inf where the density is zero."
        )
    if not np.isfinite(log_likelihood).any():
        raise ModelError(
            "The log-likelihood of these data is -inf for every prior draw: no parameter value "
            "that was tried can have produced them. Check the support of the likelihood and the "
            "scale of the data, or use more live points."
        )
