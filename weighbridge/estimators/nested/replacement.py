"""New points in place of deleted ones, by walkers that start at the survivors."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weighbridge.estimators.nested.clusters import find_clusters
from weighbridge.estimators.nested.directions import draw_directions, draw_steps
from weighbridge.estimators.nested.insertion import sequential_ranks
from weighbridge.estimators.nested.moves.random_walk import RandomWalk
from weighbridge.estimators.nested.moves.slice import SliceWalk
from weighbridge.estimators.nested.moves.walk import Contour, Place, Script
from weighbridge.estimators.nested.points import Points, joined
from weighbridge.estimators.nested.tuning import Memory, Tuning, memory
from weighbridge.estimators.nested.walkers import Density

MOVES: dict[str, Any] = {"slice": SliceWalk, "random_walk": RandomWalk}
# Most numbers of a script; a longer walk is made in pieces.
LARGEST_SCRIPT = 4_000_000
# Points that start at a contour walk this many times.
FIRST_WALKS = 2


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
class Replacement:
    """Walkers that draw new points above a contour, with their tuning.

    Attributes:
        density: prior and likelihood.
        num_islands: islands that are moved together.
        moves: name of the move.
        fixed_moves: number of moves of a walk, if the user gives it.
        tuning: settings of the next walk.
        counts: what the walkers did so far.
    """

    density: Density
    num_islands: int
    moves: str
    fixed_moves: int | None
    tuning: Tuning
    counts: Counts = field(default_factory=Counts)

    @classmethod
    def first(
        cls, density: Density, num_islands: int, moves: str, fixed_moves: int | None
    ) -> Replacement:
        """Before the first walk."""
        tuning = Tuning.first(density.model.dimension, moves == "random_walk")
        if fixed_moves is not None:
            tuning = tuning._replace(length=float(fixed_moves))
        return cls(density, num_islands, moves, fixed_moves, tuning)

    def draw(
        self,
        alive: list[Points],
        contour: np.ndarray,
        num_new: int,
        generator: np.random.Generator,
        at_once: int | None = None,
        num_walks: int = 1,
    ) -> Points:
        """New points above the contours, islands x points, by walkers from the points alive there.

        Args:
            alive: the points at which walkers may start, for each island.
            contour: log-likelihood and tie number, islands x 2.
            num_new: new points of an island.
            generator: random numbers.
            at_once: walkers of an island that move together; None: all of them.
            num_walks: how many walks each of them makes.
        """
        sizes = [len(points.tie) for points in alive]
        at_once = at_once or num_new
        num_pieces = -(-num_new // at_once)
        # Every point is the start of equally many walkers, up to one: modes do not drift apart by
        # the luck of the starts.
        own = [
            np.concatenate(
                [generator.permutation(size) for _ in range(-(-num_pieces * at_once // size))]
            )
            for size in sizes
        ]
        above = Contour(*np.repeat(contour, at_once, axis=0).T)
        position, before = joined(alive).position, np.cumsum([0, *sizes])
        pieces = []
        for piece in range(num_pieces):
            chosen = [index[piece * at_once : (piece + 1) * at_once] for index in own]
            starts = joined([points.take(index) for points, index in zip(alive, chosen)])
            index = np.concatenate([i + first for i, first in zip(chosen, before)])
            for _ in range(num_walks):
                place = self._walk(starts, above, position, index, generator)
                starts = starts._replace(**place._asdict())
            starts = starts._replace(birth=above.log_likelihood, birth_tie=above.tie)
            pieces.append(starts.islands(self.num_islands))
        new = joined(pieces, axis=1).take((slice(None), slice(num_new)))
        # All at once: ranks among survivors that are shared would not be independent.
        ranks = [
            sequential_ranks(
                (points.log_likelihood[None], points.tie[None]),
                (new.log_likelihood[[island]], new.tie[[island]]),
            )
            for island, points in enumerate(alive)
        ]
        insertion, among = (np.concatenate(each) for each in zip(*ranks))
        self.counts.batches += 1
        return new._replace(insertion=insertion, among=among)

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
        accepted = np.zeros(count, int)
        while left:
            num_moves = min(left, longest)
            if self.moves == "slice":
                direction = draw_directions(generator, position, clusters, own, num_moves)
            else:
                steps = draw_steps(generator, clusters, count, num_moves)
                direction = tuning.step_size * steps
            script = Script(
                _padded(direction, longest),
                # Adding half a step avoids the log of 0.
                _padded(generator.random((num_moves, count, 4)) + 2.0**-54, longest),
                np.int64(num_moves),
            )
            walked = self.density.walk(MOVES[self.moves], place, contour, script, generator)
            place, left = walked.place, left - num_moves
            accepted += walked.num_accepted
            self.counts.steps += walked.num_evaluations
            self.counts.waited += walked.num_steps * count - walked.num_evaluations
            self.counts.undefined += walked.num_undefined
        found = memory(starts, place, clusters, own, self.num_islands)
        self._learn(found, accepted)
        return place

    def _learn(self, found: Memory, accepted: np.ndarray) -> None:
        """Count what the walkers did, and tune the next walk."""
        counts, num_moves = self.counts, self.tuning.num_moves
        counts.moves += num_moves * len(accepted)
        counts.accepted += int(accepted.sum())
        counts.stuck += int((accepted == 0).sum())
        counts.walkers += len(accepted)
        counts.num_moves.append(num_moves)
        counts.remembered.append(found.level)
        acceptance = float(accepted.mean()) / num_moves
        self.tuning = self.tuning.after(
            max(found), acceptance, self.density.model.dimension, self.fixed_moves
        )


def script_length(num_moves: int, num_walkers: int, dimension: int) -> int:
    """Moves of a script: a power of two, so that another number of moves compiles nothing new."""
    largest = max(8, LARGEST_SCRIPT // (num_walkers * (dimension + 4)))
    return int(2 ** min(math.ceil(math.log2(max(num_moves, 32))), math.floor(math.log2(largest))))


def _padded(array: np.ndarray, length: int) -> np.ndarray:
    if len(array) == length:
        return array
    return np.concatenate([array, np.zeros((length - len(array), *array.shape[1:]))])
