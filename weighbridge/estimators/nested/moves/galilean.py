"""Galilean Monte Carlo: straight steps, reflected at the contour."""

from __future__ import annotations

import math
from typing import NamedTuple

from weighbridge.estimators.nested.moves.reflection import Flight
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

# Steps with one velocity. A ball is crossed in some four steps of the tuned size.
STEPS = 8
# Share of the steps that should leave the contour and be reflected.
REFLECTED = 0.4


class GalileanWalk(NamedTuple):
    r"""Steps in a straight line; reflected at the contour by the gradient of the log-likelihood.

    .. math:: y \sim U(0, p(u)), \quad v \sim N(0, s^2 \Sigma), \quad
              u' = u + v \text{ or } u + v + v', \text{ accepted if } p(u') > y, \; L(u') > L^*

    The accept test for the prior's density is that of the height y, which stays the same for eight
    steps, as v does. Where the prior is too low but not the likelihood, the gradient of the log
    prior reflects. Given y, the target is uniform on the region above height and contour. The step
    is an involution up to the sign of v (``Flight``), preserves volumes and the density of v, and
    is undone if it ends outside; so by detailed balance the target stays the same, with any
    gradient that is a function of the point outside. Sigma is the covariance of a random cluster
    and v does not depend on the walker. Every step is one move, with one evaluation, or two if it
    is reflected.

    Skilling (2012), AIP Conference Proceedings 1443:145-156; Skilling (2019), MaxEnt, Proceedings
    33:19; Feroz & Skilling (2013), AIP Conference Proceedings 1553:106-113.

    Attributes:
        place: where the walkers are.
        contour: the contour above which they stay.
        flight: the current step.
        height: log of y.
        num_done, num_accepted: moves so far.
    """

    place: Place
    contour: Contour
    flight: Flight
    height: Arrays
    num_done: Arrays
    num_accepted: Arrays

    @classmethod
    def begin(cls, place: Place, contour: Contour, script: Script) -> GalileanWalk:
        """The first step of every walker."""
        numpy = place.tie.__array_namespace__()
        none = zeros(len(place.tie), place.tie)
        height = place.log_prior + numpy.log(script.uniform[0, :, 0])
        flight = Flight.begin(place.position, script.direction[0])
        return cls(place, contour, flight, height, none, none)

    def ask(self, script: Script) -> Arrays:
        """The end of the step."""
        return self.flight.ask()

    def tell(self, script: Script, told: Told, uniform: Arrays) -> GalileanWalk:
        """Go there, be reflected or turn round; after some steps, take another velocity."""
        numpy = uniform.__array_namespace__()
        _, drawn = of_move(script, self.num_done)
        walks = self.num_done < script.num_moves
        above = self.contour.below(told.log_likelihood, self.place.tie)
        inside = above & (told.log_prior > self.height)
        gradient = pick(above, told.prior_gradient, told.likelihood_gradient)
        conjugate = self._conjugate(script, gradient)
        flight, bounces = self.flight.tell(inside, gradient, conjugate, self.place.position)
        found, ends = walks & inside, walks & ~bounces
        place = Place(
            pick(found, self.flight.ask(), self.place.position),
            numpy.where(found, told.log_prior, self.place.log_prior),
            numpy.where(found, told.log_likelihood, self.place.log_likelihood),
            self.place.tie,
        )
        tie = numpy.where(ends, fresh_tie(place, self.contour, drawn[:, 3]), place.tie)
        num_done = self.num_done + ends
        renews = ends & (num_done % STEPS == 0)
        direction, following = of_move(script, num_done)
        renewed = Flight.begin(place.position, direction)
        return GalileanWalk(
            place._replace(tie=tie),
            self.contour,
            Flight(*(pick(renews, new, old) for new, old in zip(renewed, flight))),
            numpy.where(renews, place.log_prior + numpy.log(following[:, 0]), self.height),
            num_done,
            self.num_accepted + found,
        )

    def _conjugate(self, script: Script, gradient: Arrays) -> Arrays:
        """The gradient times the covariance of the cluster from which the velocity is."""
        numpy = gradient.__array_namespace__()
        first = numpy.minimum(self.num_done // STEPS * STEPS, len(script.cluster) - 1)
        scale = script.scale[script.cluster[first, numpy.arange(len(first))]]
        white = numpy.einsum("wij,wi->wj", scale, gradient)
        return numpy.einsum("wij,wj->wi", scale, white)


def tuned(step_size: float, reflected: float) -> float:
    """The step size after a batch in which this share of the steps was reflected.

    >>> tuned(1.0, REFLECTED), tuned(1.0, 0.9) < 1 < tuned(1.0, 0.1)
    (1.0, True)
    """
    return min(max(step_size * math.exp(REFLECTED - reflected), 1e-3), 10.0)
