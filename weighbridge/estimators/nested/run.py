"""The loop of nested sampling: delete the lowest points, and replace them by walkers.

Several independent runs (islands) go side by side. They share the tuning of the moves and the
directions, nothing else, so each is a valid run of its own.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.random import Stream, random_numbers
from weighbridge.core.rollback import restored_on_error
from weighbridge.core.types import Report
from weighbridge.estimators.nested.allocation import (
    BLOCKS,
    FIRST_SHARE,
    AddedBlock,
    alive_at,
    plan_block,
)
from weighbridge.estimators.nested.points import NO_POINTS, PRIOR_CONTOUR, Points, joined
from weighbridge.estimators.nested.replacement import FIRST_WALKS, Counts, Replacement
from weighbridge.estimators.nested.running_sum import NOTHING_YET, RunningSum
from weighbridge.estimators.nested.starting import at_prior, check_start, draw_prior, lowest_first
from weighbridge.estimators.nested.stopping import THIN_SPAN, Stop, has_arrived, spans
from weighbridge.estimators.nested.walkers import Density

# The stages of a run: all live points climb; past the stop a few of them go on, and if they find a
# higher peak, all climb again; then points are added where they help most.
CLIMBING, THIN, ADDED, DONE = STAGES = ("climbing", "thin", "added", "done")
# Added points start at a contour where at least this share of the live points lives.
LEAST_ALIVE = 0.25
# How often a few points go on past the stop, and the gain (nats) above which the others follow.
THIN_RUNS, LEAST_GAIN = 2, 0.1
# The walk before the first batch has a number that no batch reaches.
REFRESHING = 2**40
# Rejection from the prior ends at this volume, where a new point costs 10,000 draws. It is a
# function of the numbers of deaths alone, so the end does not depend on what was drawn.
LEAST_PRIOR_VOLUME = -math.log(1e4)
Save = Callable[[bool], None]


@dataclass
class NestedRun:
    """Independent runs of nested sampling, side by side.

    Attributes:
        replacement: draws new points.
        seed, islands: name the random numbers.
        num_live: live points of an island when it begins.
        delete: share of the live points that a batch replaces.
        goal: what added points shall help; none are added if empty.
        live: islands x live points.
        stage: one of ``STAGES``.
        resting: live points that do not move in this stage; none if ``None``.
        dead: points that are no longer live, in the order of their deaths.
        sums: the evidence so far.
        at_stop: the same where the few points began to go on alone.
        log_evidence_at_stop: log evidence there.
        num_thin: how often they did.
        num_blocks: how often points were added.
        num_planned: walkers of the whole run, if points are added.
        until: log-likelihood up to which the points that are being added go.
        ended: why the run ended before its end; empty if it did not.
        thin_gain: evidence (nats) that the few points found.
        left: least evidence that was left in the live points so far (nats).
        elapsed: seconds.
    """

    replacement: Replacement
    seed: int
    islands: np.ndarray
    num_live: int
    delete: float
    goal: str = ""
    live: Points = NO_POINTS
    stage: str = CLIMBING
    resting: Points | None = None
    dead: list[Points] = field(default_factory=list)
    sums: RunningSum = NOTHING_YET
    at_stop: RunningSum = NOTHING_YET
    log_evidence_at_stop: float = -math.inf
    num_thin: int = 0
    num_blocks: int = 0
    num_planned: int = 0
    until: float = math.inf
    ended: str = ""
    thin_gain: float = 0.0
    left: float = math.inf
    elapsed: float = 0.0

    # --- the algorithm ----------------------------------------------------------------------

    def begin(self, position: np.ndarray) -> None:
        """Begin with draws from the prior; the lowest die until ``num_live`` are left.

        Args:
            position: draws from the prior, islands x draws x coordinates.
        """
        generator = self._generator(2**32, Stream.NESTED_RANKS)
        drawn = at_prior(self.density, position, self.islands, generator)
        check_start(drawn.log_likelihood)
        num_drawn = position.shape[1]
        lowest, self.live = lowest_first(drawn, num_drawn - self.num_live)
        if num_drawn > self.num_live:
            self.sums = self.sums.after(lowest, num_drawn)
        self.dead.append(lowest.flat())

    def complete(self, stop: Stop, report: Report | None = None, save: Save | None = None) -> None:
        """Run until little evidence is left, look further with a few of the points, add points.

        Args:
            stop: when to stop.
            report: called with the evidence left in the live points (nats), the log evidence so
                far, the number of evaluations and the share of them that gave a new point.
            save: called after each batch, and with True when the run ends, also by an error: a
                batch or a change of the stage that fails leaves the run as it was.
        """
        began, before = time.perf_counter(), self.elapsed
        self.ended = ""
        if report is not None:
            report(math.inf, self.sums.log_evidence(self.live), 0, math.nan)
        try:
            while self.stage != DONE:
                self.elapsed = before + time.perf_counter() - began
                with self._whole_or_not():
                    if self._stage_is_over(stop):
                        self._next_stage(stop)
                        continue
                    self.ended = self._reason(stop, self.elapsed - before)
                    if self.ended:
                        break
                    self.batch()
                interrupts.keep()
                self._tell(report)
                if save is not None:
                    save(False)
        except interrupts.Interrupted:
            self.ended = "interrupted"
        except Exception:
            if save is not None:
                save(True)
            raise
        if save is not None:
            save(True)
        if report is not None and not self.ended:
            report(0.0, self.log_evidence(), self.density.num_calls, self.efficiency())

    def _stage_is_over(self, stop: Stop) -> bool:
        if self.stage == CLIMBING:
            return stop.is_spent(self.sums, self.live)
        if self.stage == THIN:
            return bool(spans(self.live).max() < THIN_SPAN)
        return has_arrived(self.live, self.until)

    def _next_stage(self, stop: Stop) -> None:
        num_live = self.live.tie.shape[1]
        few = max(2, round(stop.thin * num_live))
        goes_on = stop.thin > 0 and self.num_thin < THIN_RUNS and few < num_live
        if self.stage == CLIMBING and goes_on:
            self._go_on_with(few)
            return
        higher = False
        if self.stage == THIN:
            self.thin_gain = self.log_evidence() - self.log_evidence_at_stop
            higher = self.thin_gain >= max(LEAST_GAIN, 5 * stop.remainder)
        if self.resting is not None:
            self.dead.append(self.live.flat())
            self.live, self.resting = self.resting, None
        if higher:
            # The points that rested go on from the volume at which they stopped.
            self.stage, self.sums = CLIMBING, self.at_stop
        else:
            self._add_points()

    def _go_on_with(self, few: int) -> None:
        """A few of the live points go on alone."""
        num_live = self.live.tie.shape[1]
        self.at_stop, self.log_evidence_at_stop = self.sums, self.log_evidence()
        chosen = self._generator(self.num_thin, Stream.NESTED_RANKS).permutation(num_live)
        self.resting = self.live.along(np.tile(chosen[few:], (len(self.islands), 1)))
        self.live = self.live.along(np.tile(chosen[:few], (len(self.islands), 1)))
        self.stage, self.num_thin = THIN, self.num_thin + 1

    def _add_points(self) -> None:
        """Begin to add points between two contours, or end the run."""
        if self.goal and not self.num_planned:
            self.num_planned = round(self.counts.walkers / FIRST_SHARE)
        budget = (self.num_planned - self.counts.walkers) / len(self.islands)
        self.stage = DONE
        if budget <= 0 or self.num_blocks >= BLOCKS:
            return
        least = 2 * self._num_new()
        left = BLOCKS - self.num_blocks
        block = plan_block(self.points(), self.goal, budget, left, least)
        if block is None:
            return
        self.num_blocks += 1
        points = self.points()
        alive = [
            alive_at(points.take(points.island == island), block.contour) for island in self.islands
        ]
        # An island that never came so high has no points there to start from.
        reached = min(len(own.tie) for own in alive) >= LEAST_ALIVE * self.num_live
        from_prior = block.contour == PRIOR_CONTOUR or not reached
        added = self._from_prior(block) if from_prior else self._at(block, alive)
        self.resting, self.live, self.until, self.stage = self.live, added, block.until, ADDED

    def _from_prior(self, block: AddedBlock) -> Points:
        """Further draws from the prior; the lowest die until as many are left as shall live."""
        drawn = draw_prior(
            self.density.model, self.seed, self.islands, block.num_live, self.num_blocks
        )
        generator = self._generator(self.num_blocks, Stream.NESTED_RANKS, 1)
        points = at_prior(self.density, drawn, self.islands, generator)
        level = np.where(np.isnan(points.log_likelihood), -np.inf, points.log_likelihood)
        points = points._replace(log_likelihood=level)
        lowest, live = lowest_first(points, level.shape[1] - block.num_live)
        self.dead.append(lowest.flat())
        return live

    def _at(self, block: AddedBlock, alive: list[Points]) -> Points:
        """Points above a contour, by walkers from the points of the same island that live there."""
        contour = np.tile(block.contour, (len(self.islands), 1))
        return self._draw(alive, contour, block.num_live, FIRST_WALKS)

    def refresh(self, position: np.ndarray, own: np.ndarray) -> None:
        """Move all live points with the prior as the target, before the first of them dies.

        Args:
            position: the different points from which the live points were copied.
            own: for each live point, the index of the one that it is a copy of.
        """
        generator = self._generator(REFRESHING, Stream.NESTED_WALKS)
        self.live = self.replacement.refresh(self.live, position, own, generator)

    def batch(self) -> None:
        """Delete the lowest points of every island, and replace them."""
        num_live, num_new = self.live.tie.shape[1], self._num_new()
        lowest, survivors = lowest_first(self.live, num_new)
        contour = np.stack([lowest.log_likelihood[:, -1], lowest.tie[:, -1]], axis=1)
        alive = [survivors.take(island) for island in range(len(self.islands))]
        new = self._draw(alive, contour, num_new)
        self.dead.append(lowest.flat())
        if self.stage != ADDED:
            self.sums = self.sums.after(lowest, num_live)
        self.live = joined([survivors, new], axis=1)

    def _draw(
        self, alive: list[Points], contour: np.ndarray, num_new: int, num_walks: int = 1
    ) -> Points:
        """New points of every island, from those that are alive above the contours."""
        generator = self._generator(self.counts.batches, Stream.NESTED_WALKS)
        at_once = self._num_new()
        return self.replacement.draw(alive, contour, num_new, generator, at_once, num_walks)

    def _num_new(self) -> int:
        """How many points of an island are replaced at once; added points share a program."""
        adds = self.stage in (ADDED, DONE)
        num_live = self.num_live if adds else int(self.live.tie.shape[1])
        return max(1, min(round(self.delete * num_live), num_live - 1))

    # --- where the run is ---------------------------------------------------------------------

    @property
    def counts(self) -> Counts:
        """What the walkers did so far."""
        return self.replacement.counts

    @property
    def density(self) -> Density:
        """Prior and likelihood."""
        return self.replacement.density

    def _reason(self, stop: Stop, seconds: float) -> str:
        """Why the run ends here; empty if it goes on."""
        if interrupts.is_due():
            return "interrupted"
        if self.replacement.move.walk is None and self.sums.log_volume < LEAST_PRIOR_VOLUME:
            return "prior_too_wide"
        dimension = self.density.model.dimension
        return stop.reason(self.density.num_calls, seconds, self.sums.log_volume, dimension)

    @contextlib.contextmanager
    def _whole_or_not(self) -> Iterator[None]:
        """A block that leaves the run as it was if it ends in an error or by Ctrl-C."""
        with contextlib.ExitStack() as stack:
            parts = (self, self.replacement, self.counts, self.density, self.replacement.labelling)
            for part in parts:
                if part is not None:
                    stack.enter_context(restored_on_error(part))
            yield

    def _tell(self, report: Report | None) -> None:
        if report is not None:
            # A higher peak may raise it again; a bar should not go back.
            self.left = min(self.left, self.remainder())
            report(self.left, self.log_evidence(), self.density.num_calls, self.efficiency())

    def _counted(self) -> Points:
        """The live points that count for the evidence so far."""
        if self.stage == ADDED and self.resting is not None:
            return self.resting
        return self.live

    def log_evidence(self) -> float:
        """Log evidence so far, live points included; a quick sum for reports and the stop."""
        return self.sums.log_evidence(self._counted())

    def remainder(self) -> float:
        """How much the live points add to the log evidence of the dead ones (nats)."""
        return self.sums.remainder(self._counted())

    def efficiency(self) -> float:
        """Share of the evaluations by walkers that gave a new point."""
        return self.counts.points / max(self.counts.steps, 1)

    def points(self) -> Points:
        """All points, dead and live."""
        resting = [] if self.resting is None else [self.resting.flat()]
        return joined([*self.dead, self.live.flat(), *resting])

    def _generator(self, batch: int, stream: Stream, part: int = 0) -> np.random.Generator:
        return random_numbers(self.seed, stream, int(self.islands[0]), batch, part)
