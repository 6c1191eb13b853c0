"""A walk of several moves above a likelihood contour, for a batch of walkers.

A walk is a state machine. In every step, every walker asks for the densities at one point
(``ask``) and receives them (``tell``). A walker that ends a move begins the next one at once, so no
walker waits for another within a walk. All walkers make the same number of moves, which is fixed
beforehand: the state after a number of evaluations, or the first walkers to finish, would be
biased. The same code runs in a compiled program (JAX arrays) and on the host (NumPy arrays).
What begins a walk is a ``Beginning``, or a frozen dataclass of settings with the same attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

Arrays = Any  # NumPy or JAX arrays, in the same expressions


class Contour(NamedTuple):
    """The contour above which walkers stay: a log-likelihood, and a tie-breaking number.

    Every point has a tie number in (0, 1). Points are ordered by (log-likelihood, tie), so that
    points with the same log-likelihood have an order too, and a plateau is just a region of the
    prior with one more coordinate.
    """

    log_likelihood: Arrays
    tie: Arrays

    def below(self, log_likelihood: Arrays, tie: Arrays) -> Arrays:
        """Whether points are above the contour; false if their log-likelihood is NaN."""
        level = self.log_likelihood
        return (log_likelihood > level) | ((log_likelihood == level) & (tie > self.tie))


class Place(NamedTuple):
    """Where walkers are: positions, densities and tie numbers."""

    position: Arrays
    log_prior: Arrays
    log_likelihood: Arrays
    tie: Arrays


class Told(NamedTuple):
    """The densities at the points that were asked for, and their gradients if the move uses them.

    A move with ``uses_gradient`` receives gradients.
    """

    log_prior: Arrays
    log_likelihood: Arrays
    prior_gradient: Arrays = None
    likelihood_gradient: Arrays = None


class Script(NamedTuple):
    """Random numbers and directions of all moves, drawn on the host: moves x walkers x ...

    Attributes:
        direction: moves x walkers x coordinates; its length is what the move needs.
        uniform: moves x walkers x 4.
        num_moves: number of moves; the arrays may be longer.
        scale: Cholesky factors of the covariances of clusters, for moves that reflect in their
            metric: clusters x coordinates x coordinates.
        cluster: which of them a move uses, moves x walkers.
        first: the first move of each walker, where walkers have different numbers of them.
    """

    direction: Arrays
    uniform: Arrays
    num_moves: Arrays
    scale: Arrays = None
    cluster: Arrays = None
    first: Arrays = None


class ContourWalk(Protocol):
    """A walk in progress; ``place`` and the counts have one entry for each walker."""

    @property
    def place(self) -> Place:
        """Where the walkers are."""
        ...

    @property
    def num_done(self) -> Arrays:
        """Number of finished moves of each walker."""
        ...

    @property
    def num_accepted(self) -> Arrays:
        """Number of moves that changed the position."""
        ...

    def ask(self, script: Script) -> Arrays:
        """The positions at which the densities are needed next."""
        ...

    def tell(self, script: Script, told: Told, uniform: Arrays) -> Self:
        """Continue; ``uniform`` has one random number for each walker."""
        ...


class Beginning(NamedTuple):
    """How a walk without settings begins.

    Attributes:
        begin: makes the walk at its places, with its contours and its script.
        uses_gradient: whether the walk is told gradients.
    """

    begin: Callable[[Place, Contour, Script], ContourWalk]
    uses_gradient: bool = False


def pick(which: Arrays, one: Arrays, other: Arrays) -> Arrays:
    """``one`` for the walkers for which ``which`` is true, else ``other``."""
    numpy = which.__array_namespace__()
    return numpy.where(which.reshape(which.shape + (1,) * (one.ndim - which.ndim)), one, other)


def of_move(script: Script, num_done: Arrays) -> tuple[Arrays, Arrays]:
    """Direction and uniform numbers of the current move of each walker."""
    numpy = num_done.__array_namespace__()
    last = script.direction.shape[0] - 1
    move, walker = numpy.minimum(num_done, last), numpy.arange(num_done.shape[0])
    return script.direction[move, walker], script.uniform[move, walker]


def fresh_tie(place: Place, contour: Contour, uniform: Arrays) -> Arrays:
    """A new tie number, given the position: uniform above the contour's if they are level."""
    numpy = uniform.__array_namespace__()
    on_contour = place.log_likelihood == contour.log_likelihood
    low = numpy.where(on_contour, contour.tie, 0.0)
    return low + uniform * (1.0 - low)


def zeros(count: int, like: Arrays) -> Arrays:
    """Counts of zero for all walkers."""
    return like.__array_namespace__().zeros(count, np.int64)
