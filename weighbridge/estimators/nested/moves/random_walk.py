"""Random-walk Metropolis above a contour."""

from __future__ import annotations

from typing import NamedTuple

from weighbridge.estimators.nested.moves.walk import (
    Arrays,
    Contour,
    Place,
    Script,
    Told,
    fresh_tie,
    of_move,
    pick,
    zeros,
)


class RandomWalk(NamedTuple):
    r"""A Gaussian step, accepted with min(1, p(u') / p(u)) if it is above the contour.

    Every evaluation is one move. Skilling (2006), Bayesian Analysis 1:833-859.

    Attributes:
        place: where the walkers are.
        contour: the contour above which they stay.
        num_done, num_accepted: moves so far.
    """

    place: Place
    contour: Contour
    num_done: Arrays
    num_accepted: Arrays

    @classmethod
    def begin(cls, place: Place, contour: Contour, script: Script) -> RandomWalk:
        """The first move of every walker."""
        none = zeros(len(place.tie), place.tie)
        return cls(place, contour, none, none)

    def ask(self, script: Script) -> Arrays:
        """The proposal."""
        direction, _ = of_move(script, self.num_done)
        return self.place.position + direction

    def tell(self, script: Script, told: Told, uniform: Arrays) -> RandomWalk:
        """Accept or reject."""
        numpy = uniform.__array_namespace__()
        _, drawn = of_move(script, self.num_done)
        walks = self.num_done < script.num_moves
        likely = numpy.log(drawn[:, 0]) < told.log_prior - self.place.log_prior
        accepted = walks & likely & self.contour.below(told.log_likelihood, self.place.tie)
        place = Place(
            pick(accepted, self.ask(script), self.place.position),
            numpy.where(accepted, told.log_prior, self.place.log_prior),
            numpy.where(accepted, told.log_likelihood, self.place.log_likelihood),
            self.place.tie,
        )
        tie = numpy.where(walks, fresh_tie(place, self.contour, drawn[:, 3]), place.tie)
        return RandomWalk(
            place._replace(tie=tie),
            self.contour,
            self.num_done + walks,
            self.num_accepted + accepted,
        )
