"""SGHMC with reflection at the contour: the move of the thesis and the paper on SGAIS."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

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


class ReflectedWalk(NamedTuple):
    """A walk of ``ReflectedSGHMC``.

    Attributes:
        place: where the walkers are.
        contour: the contour above which they stay.
        flight: the current step.
        prior_gradient: the gradient of the log prior where the walkers are.
        num_done, num_accepted: steps so far; -1 before the gradient at the start is known.
        step_size, friction: eta and alpha.
    """

    place: Place
    contour: Contour
    flight: Flight
    prior_gradient: Arrays
    num_done: Arrays
    num_accepted: Arrays
    step_size: Arrays
    friction: Arrays

    def ask(self, script: Script) -> Arrays:
        """The end of the step; first the start itself, for its gradient."""
        return self.flight.ask()

    def tell(self, script: Script, told: Told, uniform: Arrays) -> ReflectedWalk:
        """Go there, be reflected or turn round; then the prior and friction change the velocity."""
        numpy = uniform.__array_namespace__()
        starts, walks = self.num_done < 0, self.num_done < script.num_moves
        _, drawn = of_move(script, numpy.maximum(self.num_done, 0))
        above = self.contour.below(told.log_likelihood, self.place.tie)
        inside = starts | (above & (told.log_prior > -math.inf))
        gradient = told.likelihood_gradient
        flight, bounces = self.flight.tell(inside, gradient, gradient, self.place.position)
        found, ends = walks & inside, walks & ~bounces
        place = Place(
            pick(found, self.flight.ask(), self.place.position),
            numpy.where(found, told.log_prior, self.place.log_prior),
            numpy.where(found, told.log_likelihood, self.place.log_likelihood),
            self.place.tie,
        )
        tie = numpy.where(ends, fresh_tie(place, self.contour, drawn[:, 3]), place.tie)
        prior_gradient = pick(found, told.prior_gradient, self.prior_gradient)
        num_done = self.num_done + ends
        normal, _ = of_move(script, num_done)
        # The first velocity is N(0, eta); later ones keep this variance exactly.
        keep = numpy.where(num_done == 0, 0.0, 1.0 - self.friction)
        spread = numpy.sqrt((1.0 - keep**2) * self.step_size)
        pushed = keep[:, None] * flight.velocity + self.step_size * prior_gradient
        following = Flight.begin(place.position, pushed + spread[:, None] * normal)
        return ReflectedWalk(
            place._replace(tie=tie),
            self.contour,
            Flight(*(pick(ends, new, old) for new, old in zip(following, flight))),
            prior_gradient,
            num_done,
            self.num_accepted + (found & ~starts),
            self.step_size,
            self.friction,
        )


@dataclass(frozen=True)
class ReflectedSGHMC:
    r"""Langevin dynamics with momentum under the prior, reflected at the contour.

    .. math:: v \leftarrow (1 - \alpha) v + \eta \nabla \log p(u) + \xi, \qquad
              \xi \sim N\bigl(0, \alpha (2 - \alpha) \eta\bigr), \qquad v_0 \sim N(0, \eta)

    then u moves by v, with the reflection of ``Flight``. It is only approximately invariant: there
    is no accept test for the prior's density, so its error is that of steps of size sqrt(eta), also
    where the prior changes fast near the contour. Steps are not scaled to the live points, so a
    walk of 20 steps may end near its start. It is there to repeat published experiments: "slice"
    and "galilean" are exact.

    The noise of Chen et al., 2 alpha eta, differs by alpha^2 eta; with it the velocities are too
    hot by 1 / (1 - alpha / 2), which is 5 % here. Cameron (2019), thesis, section 3.2; Cameron,
    Eggers & Kroon (2019), Entropy 21:1109, section 5; Chen, Fox & Guestrin (2014), ICML.

    Args:
        step_size: the learning rate eta.
        friction: the momentum decay alpha.
    """

    step_size: float = 1e-3
    friction: float = 0.1

    uses_gradient: ClassVar[bool] = True

    def begin(self, place: Place, contour: Contour, script: Script) -> ReflectedWalk:
        """Ask for the gradient at the start."""
        numpy = place.tie.__array_namespace__()
        none, nowhere = zeros(len(place.tie), place.tie), numpy.zeros_like(place.position)
        flight = Flight.begin(place.position, nowhere)
        eta, alpha = (numpy.asarray(number) for number in (self.step_size, self.friction))
        return ReflectedWalk(place, contour, flight, nowhere, none - 1, none, eta, alpha)
