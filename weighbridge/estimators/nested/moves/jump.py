"""Jumps of a walker to a draw that does not depend on where it is."""

from __future__ import annotations

import math
from typing import NamedTuple

from weighbridge.estimators.nested.moves.walk import (
    Arrays,
    Beginning,
    Contour,
    Place,
    Script,
    Told,
    of_move,
    pick,
    zeros,
)


class JumpWalk(NamedTuple):
    """A walker goes to the first of its draws that is above the contour, and stays there.

    The draws are in ``Script.direction``; they are independent of each other and of the walkers
    (``jumps``). A walker with fewer draws than the script has room for begins at a later one.

    Attributes:
        place: where the walkers are.
        contour: the contour above which they stay.
        num_done: draws that were tried or left out; all of them once a walker has jumped.
        num_accepted: 1 for walkers that jumped.
    """

    place: Place
    contour: Contour
    num_done: Arrays
    num_accepted: Arrays

    @classmethod
    def begin(cls, place: Place, contour: Contour, script: Script) -> JumpWalk:
        """Before the first draw of every walker."""
        none = zeros(len(place.tie), place.tie)
        return cls(place, contour, none + script.first, none)

    def ask(self, script: Script) -> Arrays:
        """The next draw."""
        return of_move(script, self.num_done)[0]

    def tell(self, script: Script, told: Told, uniform: Arrays) -> JumpWalk:
        """Go there if it is above the contour."""
        numpy = uniform.__array_namespace__()
        drawn, numbers = of_move(script, self.num_done)
        walks, tie = self.num_done < script.num_moves, numbers[:, 3]
        above = self.contour.below(told.log_likelihood, tie) & (told.log_prior > -math.inf)
        found = walks & above
        place = Place(
            pick(found, drawn, self.place.position),
            numpy.where(found, told.log_prior, self.place.log_prior),
            numpy.where(found, told.log_likelihood, self.place.log_likelihood),
            numpy.where(found, tie, self.place.tie),
        )
        num_done = numpy.where(found, script.num_moves, self.num_done + walks)
        return JumpWalk(place, self.contour, num_done, self.num_accepted + found)


JUMP = Beginning(JumpWalk.begin)
