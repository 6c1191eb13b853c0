"""Slice sampling above a contour, with one useful evaluation in every step."""

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

# Every failed attempt shrinks the bracket; after this many it is far below rounding.
MAX_ATTEMPTS = 100


class SliceWalk(NamedTuple):
    r"""Draw a height under the prior, then a point on a line that is above height and contour.

    .. math:: y \sim U(0, p(u)), \qquad
              u' \sim U\{u + t d : p(u + t d) > y, \; L(u + t d) > L^*\}

    A bracket of the length of d is placed around the current point at random. Points are drawn in
    it until one is in the slice, and each one that is not becomes an end of the bracket. The
    bracket does not grow, so every evaluation may be the last of its move. Lengths are random, and
    d does not depend on the walker. Neal (2003), Annals of Statistics 31:705-767, section 4.

    Attributes:
        place: where the walkers are.
        contour: the contour above which they stay.
        left, right: ends of the brackets, in units of d.
        at: the point of the line that is asked for.
        attempts: failed attempts of the current move.
        num_done, num_accepted: moves so far.
    """

    place: Place
    contour: Contour
    left: Arrays
    right: Arrays
    at: Arrays
    attempts: Arrays
    num_done: Arrays
    num_accepted: Arrays

    @classmethod
    def begin(cls, place: Place, contour: Contour, script: Script) -> SliceWalk:
        """The first move of every walker."""
        uniform = script.uniform[0]
        none = zeros(len(place.tie), place.tie)
        offset = uniform[:, 1]
        at = uniform[:, 2] - offset
        return cls(place, contour, -offset, 1.0 - offset, at, none, none, none)

    def ask(self, script: Script) -> Arrays:
        """A point within the bracket."""
        direction, _ = of_move(script, self.num_done)
        return self.place.position + self.at[:, None] * direction

    def tell(self, script: Script, told: Told, uniform: Arrays) -> SliceWalk:
        """Go to the point if it is in the slice; if not, shrink the bracket."""
        numpy = uniform.__array_namespace__()
        _, drawn = of_move(script, self.num_done)
        walks = self.num_done < script.num_moves
        level = self.place.log_prior + numpy.log(drawn[:, 0])
        inside = (told.log_prior > level) & self.contour.below(told.log_likelihood, self.place.tie)
        found = walks & inside
        left = numpy.where(self.at < 0, self.at, self.left)
        right = numpy.where(self.at < 0, self.right, self.at)
        attempts = self.attempts + 1
        ends = found | (walks & (attempts >= MAX_ATTEMPTS))
        place = Place(
            pick(found, self.ask(script), self.place.position),
            numpy.where(found, told.log_prior, self.place.log_prior),
            numpy.where(found, told.log_likelihood, self.place.log_likelihood),
            self.place.tie,
        )
        place = place._replace(
            tie=numpy.where(ends, fresh_tie(place, self.contour, drawn[:, 3]), place.tie)
        )
        num_done = self.num_done + ends
        _, following = of_move(script, num_done)
        offset = following[:, 1]
        return SliceWalk(
            place,
            self.contour,
            numpy.where(ends, -offset, left),
            numpy.where(ends, 1.0 - offset, right),
            numpy.where(ends, following[:, 2] - offset, left + uniform * (right - left)),
            numpy.where(ends, 0, attempts),
            num_done,
            self.num_accepted + found,
        )
