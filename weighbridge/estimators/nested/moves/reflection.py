"""Straight steps that are reflected at a contour by the gradient at a point outside it."""

from __future__ import annotations

from typing import NamedTuple

from weighbridge.estimators.nested.moves.walk import Arrays, pick, zeros


class Flight(NamedTuple):
    r"""A step u + v; from a point outside, one more step with the reflected velocity.

    .. math:: v' = v - 2 \Sigma g \, \frac{g \cdot v}{g \cdot \Sigma g}, \qquad
              u' = \begin{cases} u + v & \text{if inside} \\ u + v + v' & \text{if that is} \\
              u, \text{ with } -v & \text{otherwise} \end{cases}

    The gradient g is that at u + v. With the sign of the velocity turned at its end, the step is
    its own inverse: from u' with -v' it goes through the same point outside, is reflected by the
    same gradient, and comes back to u. It preserves the volume, and a Gaussian density of v with
    covariance Sigma. So it leaves the uniform density inside, times this Gaussian, unchanged.
    Skilling (2012), AIP Conference Proceedings 1443:145-156.

    Attributes:
        origin: where the step begins: the place of the walker, or the point outside.
        velocity: of the step.
        entering: the velocity before a reflection.
        bounced: whether the step is the second one, after a reflection.
    """

    origin: Arrays
    velocity: Arrays
    entering: Arrays
    bounced: Arrays

    @classmethod
    def begin(cls, position: Arrays, velocity: Arrays) -> Flight:
        """The first step of every walker."""
        none = zeros(len(position), position) > 0
        return cls(position, velocity, velocity, none)

    def ask(self) -> Arrays:
        """The point at the end of the step."""
        return self.origin + self.velocity

    def tell(
        self, inside: Arrays, gradient: Arrays, conjugate: Arrays, position: Arrays
    ) -> tuple[Flight, Arrays]:
        """Go on, be reflected or turn round.

        Args:
            inside: whether the point that was asked for is inside.
            gradient: the gradient there.
            conjugate: the covariance of velocities times the gradient.
            position: the place of the walker.

        Returns:
            The next step, and whether a reflected one follows before the walker may stop.
        """
        numpy = inside.__array_namespace__()
        along = numpy.sum(gradient * self.velocity, axis=-1)
        square = numpy.sum(gradient * conjugate, axis=-1)
        usable = numpy.isfinite(along) & numpy.isfinite(square) & (square > 0)
        factor = numpy.where(usable, 2.0 * along / numpy.where(usable, square, 1.0), 0.0)
        # NaN gradients are not usable, and must not get into the velocities by 0 x NaN.
        normal = pick(usable, conjugate, numpy.zeros_like(conjugate))
        reflected = self.velocity - factor[:, None] * normal
        bounces = ~inside & ~self.bounced & usable
        here = pick(inside, self.ask(), position)
        onward = pick(inside, self.velocity, -self.entering)
        velocity = pick(bounces, reflected, onward)
        found = Flight(
            pick(bounces, self.ask(), here),
            velocity,
            pick(bounces, self.velocity, velocity),
            bounces,
        )
        return found, bounces
