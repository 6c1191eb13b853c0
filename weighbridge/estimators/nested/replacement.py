"""New points in place of deleted ones, by walkers that start at the survivors."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from weighbridge.estimators.nested.guides import Guide, find_guides
from weighbridge.estimators.nested.insertion import sequential_ranks
from weighbridge.estimators.nested.jumps import MOST_COORDINATES, MOST_TRIES, draw_jumps
from weighbridge.estimators.nested.labelling import MoveLabelling
from weighbridge.estimators.nested.moves.by_name import Move
from weighbridge.estimators.nested.moves.galilean import STEPS, tuned
from weighbridge.estimators.nested.moves.jump import JUMP
from weighbridge.estimators.nested.moves.walk import Contour, Place
from weighbridge.estimators.nested.points import PRIOR_CONTOUR, Points, joined
from weighbridge.estimators.nested.prior_draws import draw_above
from weighbridge.estimators.nested.scripts import draw_script, script_length
from weighbridge.estimators.nested.tuning import LEAST_FOUND, Tuning, memory
from weighbridge.estimators.nested.walkers import Density, Walked

# Points that start at a contour walk this many times.
FIRST_WALKS = 2


@dataclass
class Counts:
    """What walkers did, summed over batches.

    Points that start at a contour take several walks each.
    """

    batches: int = 0
    points: int = 0
    moves: int = 0
    accepted: int = 0
    stuck: int = 0
    walkers: int = 0
    steps: int = 0
    waited: int = 0
    undefined: int = 0
    jumped: int = 0
    num_moves: list[int] = field(default_factory=list)
    remembered: list[float] = field(default_factory=list)

    def memory(self) -> float:
        """Mean correlation that walks left."""
        return float(np.mean(self.remembered)) if self.remembered else 0.0


@dataclass
class Replacement:
    """Walkers that draw new points above a contour, with their tuning.

    Attributes:
        density: prior and likelihood.
        islands: numbers of the islands, which are moved together.
        move: how new points are made.
        tuning: settings of the next walk.
        counts: what the walkers did so far.
        labelling: of exchangeable components, if there are any.
        jumps: whether walkers try to jump before they walk.
    """

    density: Density
    islands: np.ndarray
    move: Move
    tuning: Tuning
    counts: Counts = field(default_factory=Counts)
    labelling: MoveLabelling | None = None
    jumps: bool = False

    @classmethod
    def first(
        cls, density: Density, islands: np.ndarray, move: Move, jumps: bool = True
    ) -> Replacement:
        """Before the first walk.

        Args:
            density: prior and likelihood.
            islands: numbers of the islands.
            move: how new points are made.
            jumps: whether slice walkers may jump before they walk. They do not if there are many
                coordinates, or if the number of moves is given.
        """
        tuning = Tuning.first(density.model.dimension, move.name == "random_walk")
        if move.name == "galilean":
            tuning = tuning.with_floor(2.0 * STEPS)
        if move.num_moves is not None:
            tuning = tuning._replace(length=float(move.num_moves))
        labelling = MoveLabelling(density.model) if density.model.exchangeable else None
        few = density.model.dimension <= MOST_COORDINATES
        jumps = jumps and few and move.name == "slice" and move.num_moves is None
        return cls(density, islands, move, tuning, labelling=labelling, jumps=jumps)

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
        if self.move.walk is None:
            new = self._reject(contour, num_new, generator)
        else:
            new = self._walks(alive, contour, num_new, generator, at_once or num_new, num_walks)
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
        self.counts.points += new.tie.size
        return new._replace(insertion=insertion, among=among)

    def refresh(
        self, live: Points, position: np.ndarray, own: np.ndarray, generator: np.random.Generator
    ) -> Points:
        """Live points that are moved with the prior alone as the target, islands x points.

        Points that are draws from the prior, but not independent of each other, become so.

        Args:
            live: copies of some points.
            position: these points, points x coordinates.
            own: for each live point, the index of the one that it is a copy of.
            generator: random numbers.
        """
        everywhere = Contour(np.full(len(own), PRIOR_CONTOUR[0]), np.zeros(len(own)))
        place = self._walk(live.flat(), everywhere, position, own, generator)
        moved = {n: leaf.reshape(getattr(live, n).shape) for n, leaf in place._asdict().items()}
        return live._replace(**moved)

    def _walks(
        self,
        alive: list[Points],
        contour: np.ndarray,
        num_new: int,
        generator: np.random.Generator,
        at_once: int,
        num_walks: int,
    ) -> Points:
        """New points by walkers that start at the points that are alive."""
        sizes = [len(points.tie) for points in alive]
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
        everyone, before = joined(alive), np.cumsum([0, *sizes])
        position = self._arranged(everyone)
        pieces = []
        for piece in range(num_pieces):
            chosen = [index[piece * at_once : (piece + 1) * at_once] for index in own]
            index = np.concatenate([i + first for i, first in zip(chosen, before)])
            walkers = self._begun(everyone.take(index), position[index], generator)
            for _ in range(num_walks):
                place = self._walk(walkers, above, position, index, generator)
                walkers = walkers._replace(**place._asdict())
            walkers = self._ended(walkers, generator)
            walkers = walkers._replace(birth=above.log_likelihood, birth_tie=above.tie)
            pieces.append(walkers.islands(len(self.islands)))
        return joined(pieces, axis=1).take((slice(None), slice(num_new)))

    def _reject(self, contour: np.ndarray, num_new: int, generator: np.random.Generator) -> Points:
        """New points by rejection from the prior."""
        drawn = draw_above(self.density, Contour(*contour.T), self.islands, num_new, generator)
        counts, shape = self.counts, (len(self.islands), num_new)
        count = len(self.islands) * num_new
        counts.moves, counts.accepted = counts.moves + count, counts.accepted + count
        counts.walkers += count
        counts.steps += drawn.num_evaluations
        counts.undefined += drawn.num_undefined
        counts.num_moves.append(1)
        counts.remembered.append(0.0)
        birth, birth_tie = (np.repeat(leaf[:, None], num_new, axis=1) for leaf in contour.T)
        none = np.zeros(shape, int)
        island = np.repeat(self.islands[:, None], num_new, axis=1)
        return Points(
            **drawn.place._asdict(),
            birth=birth,
            birth_tie=birth_tie,
            insertion=none,
            among=none,
            island=island,
        )

    # --- exchangeable components: walkers move in one labelling -------------------------------

    def _arranged(self, points: Points) -> np.ndarray:
        """The positions, in one labelling if components are exchangeable."""
        if self.labelling is None:
            return points.position
        position = self.labelling.follow(points.position, points.log_likelihood)
        self.density.walls = self.labelling.walls()
        return position

    def _begun(
        self, walkers: Points, position: np.ndarray, generator: np.random.Generator
    ) -> Points:
        """The walkers where their walks begin."""
        if self.labelling is None:
            return walkers
        begun = self.labelling.begin(position, generator)
        return walkers._replace(position=begun, log_prior=self.density.log_prior(begun))

    def _ended(self, walkers: Points, generator: np.random.Generator) -> Points:
        """The walkers as new points, in a random order of exchangeable components."""
        if self.labelling is None:
            return walkers
        ended = self.labelling.end(walkers.position, generator)
        return walkers._replace(position=ended, log_prior=self.density.log_prior(ended))

    # --- one walk -------------------------------------------------------------------------------

    def _walk(
        self,
        starts: Points,
        contour: Contour,
        position: np.ndarray,
        own: np.ndarray,
        generator: np.random.Generator,
    ) -> Place:
        """New points above the contour, by walkers from the starts."""
        tuning, count, counts = self.tuning, len(own), self.counts
        guides = find_guides(generator, position, own)
        place = Place(starts.position, starts.log_prior, starts.log_likelihood, starts.tie)
        if self.jumps:
            place = self._jump(place, contour, guides, generator)
        num_moves = left = tuning.num_moves(self.jumps)
        longest = script_length(left, *place.position.shape)
        accepted, before = np.zeros(count, int), counts.steps
        while left:
            piece = min(left, longest)
            script = draw_script(
                self.move.name, generator, guides, tuning.step_size, piece, longest
            )
            walked = self.density.walk(self.move.walk, place, contour, script, generator)
            place, left = walked.place, left - piece
            accepted += walked.num_accepted
            self._count(walked, count)
        remembered = memory(starts, place, len(self.islands))
        self._learn(remembered, accepted, num_moves, counts.steps - before)
        return place

    def _jump(
        self, place: Place, contour: Contour, guides: list[Guide], generator: np.random.Generator
    ) -> Place:
        """Walkers after their jumps; those that do not jump stay where they are."""
        tuning = self.tuning
        most_tries = MOST_TRIES if tuning.found >= LEAST_FOUND else 1
        script, within = draw_jumps(
            self.density, generator, guides, place, tuning.reach, most_tries
        )
        walked = self.density.walk(JUMP, place, contour, script, generator)
        self._count(walked, len(within))
        jumped = int(walked.num_accepted.sum())
        self.counts.jumped += jumped
        found = jumped / walked.num_evaluations if walked.num_evaluations else None
        self.tuning = tuning.after_jumps(jumped / len(within), float(within.mean()), found)
        return walked.place

    def _count(self, walked: Walked, count: int) -> None:
        counts = self.counts
        counts.steps += walked.num_evaluations
        counts.waited += walked.num_steps * count - walked.num_evaluations
        counts.undefined += walked.num_undefined

    def _learn(
        self, remembered: float, accepted: np.ndarray, num_moves: int, num_evaluations: int
    ) -> None:
        """Count what the walkers did, and tune the next walk."""
        counts, step_size = self.counts, self.tuning.step_size
        counts.moves += num_moves * len(accepted)
        counts.accepted += int(accepted.sum())
        counts.stuck += int((accepted == 0).sum())
        counts.walkers += len(accepted)
        counts.num_moves.append(num_moves)
        counts.remembered.append(remembered)
        acceptance = float(accepted.mean()) / num_moves
        self.tuning = self.tuning.after(
            remembered, acceptance, self.density.model.dimension, self.move.num_moves
        )
        if self.move.name == "galilean":
            # A reflected step has two evaluations.
            reflected = num_evaluations / (num_moves * len(accepted)) - 1.0
            self.tuning = self.tuning._replace(step_size=tuned(step_size, reflected))
