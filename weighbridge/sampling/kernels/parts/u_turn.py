"""Stopping criteria of trajectories: the record of a trajectory, and the merging of two.

A criterion keeps a record of a trajectory. The records of two adjacent trajectories, where the
first ends at the start of the second, are merged into one, which decides whether to stop. Time may
be reversed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Array


class Node(NamedTuple):
    """A point of a trajectory, in the coordinates of the metric.

    Attributes:
        position: the unconstrained vector.
        displacement: S^-1 (position - start of the trajectory); empty if the criterion does not use
            positions.
        momentum: r = S^T p, standard normal at the start.
        log_density: the log density there.
        gradient: gradient of the log density with respect to the position.
        log_weight: minus the energy.
    """

    position: Array
    displacement: Array
    momentum: Array
    log_density: Array
    gradient: Array
    log_weight: Array


class Criterion(Protocol):
    """Decides when a trajectory stops; a pytree."""

    by_places: ClassVar[bool]
    """Whether it needs displacements."""

    def leaf(self, node: Node) -> Any:
        """The record of a single point."""
        ...

    def merge(self, first: Any, second: Any) -> tuple[Any, Array]:
        """The record of two adjacent trajectories, and whether to stop."""
        ...

    def reverse(self, record: Any) -> Any:
        """The record of the same trajectory, backwards in time."""
        ...


def _turned(first: Array, last: Array, way: Array) -> Array:
    return (jnp.dot(first, way) <= 0) | (jnp.dot(last, way) <= 0)


@partial(register_dataclass, data_fields=[], meta_fields=[])
@dataclass(frozen=True)
class GeneralisedUTurn:
    r"""Stop when an end no longer moves along the summed momentum rho of the trajectory.

    .. math:: p^\sharp_- \cdot \rho \le 0 \quad \text{or} \quad p^\sharp_+ \cdot \rho \le 0

    tested for the whole, and, as in current Stan, for each half together with the nearest point of
    the other half: without this, a trajectory of a full turn would not be detected. A record is one
    array, which is faster than three: the momenta at both ends, and the sum over all points.
    Betancourt (2013), arXiv:1304.1920; Betancourt (2017), arXiv:1701.02434.
    """

    by_places: ClassVar[bool] = False

    def leaf(self, node: Node) -> Array:
        """Both ends are the point."""
        return jnp.stack([node.momentum] * 3)

    def merge(self, first: Array, second: Array) -> tuple[Array, Array]:
        """Add up, and test the whole and across the middle."""
        total = first[2] + second[2]
        near, far = first[2] + second[0], first[1] + second[2]
        ends = jnp.stack([first[0], second[1], first[0], second[0], first[1], second[1]])
        ways = jnp.stack([total, total, near, near, far, far])
        # Computed together, which is faster than six products.
        stop = jnp.any(jnp.sum(ends * ways, axis=1) <= 0)
        return jnp.stack([first[0], second[1], total]), stop

    def reverse(self, record: Array) -> Array:
        """Swap the ends, and reverse the momenta."""
        return -jnp.stack([record[1], record[0], record[2]])


class TrajectoryEnds(NamedTuple):
    """Momenta and displacements at both ends of a trajectory."""

    first: Array
    last: Array
    first_place: Array
    last_place: Array


@partial(register_dataclass, data_fields=[], meta_fields=[])
@dataclass(frozen=True)
class ClassicUTurn:
    r"""Stop when the two ends begin to approach each other.

    .. math:: (q_+ - q_-) \cdot p_- \le 0 \quad \text{or} \quad (q_+ - q_-) \cdot p_+ \le 0

    Hoffman & Gelman (2014), J. Mach. Learn. Res. 15:1593-1623.
    """

    by_places: ClassVar[bool] = True

    def leaf(self, node: Node) -> TrajectoryEnds:
        """Both ends are the point."""
        return TrajectoryEnds(node.momentum, node.momentum, node.displacement, node.displacement)

    def merge(self, first: TrajectoryEnds, second: TrajectoryEnds) -> tuple[TrajectoryEnds, Array]:
        """From the beginning of the first to the end of the second."""
        way = second.last_place - first.first_place
        merged = TrajectoryEnds(first.first, second.last, first.first_place, second.last_place)
        return merged, _turned(merged.first, merged.last, way)

    def reverse(self, record: TrajectoryEnds) -> TrajectoryEnds:
        """Swap the ends, and reverse the momenta."""
        return TrajectoryEnds(-record.last, -record.first, record.last_place, record.first_place)


class Average(NamedTuple):
    """The log of the summed weights of a trajectory, and the weighted mean of the virial."""

    log_weight: Array
    virial: Array


@partial(register_dataclass, data_fields=["threshold"], meta_fields=[])
@dataclass(frozen=True)
class Virial:
    r"""Stop when the mean of the virial, whose time average vanishes, is small.

    .. math:: \Big| \sum_{z} \frac{e^{-H(z)}}{\sum_{z'} e^{-H(z')}} \frac{dG}{dt}(z) \Big| < \delta,
              \qquad \frac{dG}{dt} = p^\top M^{-1} p + q \cdot \nabla \log f(q)

    Betancourt (2016), arXiv:1601.00225.
    """

    threshold: Array | float
    by_places: ClassVar[bool] = False

    def leaf(self, node: Node) -> Average:
        """The virial at the point."""
        virial = jnp.sum(node.momentum**2) + jnp.dot(node.position, node.gradient)
        return Average(node.log_weight, virial)

    def merge(self, first: Average, second: Average) -> tuple[Average, Array]:
        """The mean over both, with weights that cannot overflow."""
        share = jax.nn.sigmoid(second.log_weight - first.log_weight)
        virial = first.virial + share * (second.virial - first.virial)
        log_weight = jnp.logaddexp(first.log_weight, second.log_weight)
        return Average(log_weight, virial), jnp.abs(virial) < self.threshold

    def reverse(self, record: Average) -> Average:
        """Unchanged: the virial is the same backwards in time."""
        return record
