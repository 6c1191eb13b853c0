"""One labelling for the particles of a model whose components may be permuted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np

from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.moves.adaptive import AdaptiveInfo
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.reweighting import StepInfo
from weighbridge.models.exchangeable import (
    Reference,
    Walls,
    features,
    find_reference,
    in_cell,
    log_num_labellings,
    relabelled,
)
from weighbridge.models.model import Model

# A correlation with where the moves of a step began, beyond which they lead nowhere.
STUCK = 0.6


@dataclass(frozen=True)
class Cell:
    """The labelling of a reference: log K! within, for all the others, and nothing outside."""

    model: Model
    reference: Reference

    def __call__(self, position: np.ndarray) -> np.ndarray:
        """What to add to the log density, islands x particles."""
        inside = in_cell(self.model, position.reshape(-1, position.shape[-1]), self.reference)
        offset = np.where(inside, log_num_labellings(self.model), -np.inf)
        return np.asarray(offset.reshape(position.shape[:-1]))


def one_labelling(model: Model, cloud: Cloud, *, agreed: bool = True) -> tuple[Cloud, Cell | None]:
    """The particles with one labelling, and its cell; as they are if nothing is exchangeable.

    Args:
        model: whose ``exchangeable`` parameters they are.
        cloud: particles of all islands.
        agreed: whether most are labelled alike already; otherwise the heaviest one is followed.
    """
    if not model.exchangeable:
        return cloud, None
    position = np.asarray(cloud.position).reshape(-1, model.dimension)
    heaviest = None if agreed else int(np.argmax(np.asarray(cloud.log_weight)))
    reference = find_reference(model, position, heaviest)
    position = relabelled(model, position, reference).reshape(cloud.position.shape)
    return cloud._replace(position=jnp.asarray(position)), Cell(model, reference)


class Labels:
    """The labelling of particles along a path, and the walls that keep them in its cell.

    While rows are few and powers small, labels cannot be told apart: then there is none, and the
    particles move as they like. From when they can there is one; or from when one is needed, for an
    anchor, or because moves whose metric is that of all labellings at once lead nowhere.

    Args:
        model: whose ``exchangeable`` parameters they are; without any there is nothing to label.
        standing: whether the particles have one labelling already.
        possible: whether moves can be held back; without, there is never a labelling.
    """

    def __init__(self, model: Model, *, standing: bool = False, possible: bool = True) -> None:
        self.model, self.standing = model, standing
        self.walls = Walls.down(model) if model.exchangeable and possible else None

    def follow(self, cloud: Cloud, step: StepInfo | None = None, *, must: bool = False) -> Cloud:
        """The particles relabelled, and walls around where they are now; or all as it was.

        Args:
            cloud: particles of all islands.
            step: that has brought them here.
            must: have a labelling, also if labels can hardly be told apart.
        """
        if self.walls is None:
            return cloud
        found, cell = one_labelling(self.model, cloud, agreed=self.standing)
        assert cell is not None  # there is something to label
        if step is not None and isinstance(step.moves, AdaptiveInfo):
            must = must or float(np.mean(step.moves.correlation)) > STUCK
        if not (self.standing or must):
            position = np.asarray(found.position).reshape(-1, self.model.dimension)
            if not cell.reference.is_distinct(features(self.model, position)):
                return cloud
        self.standing = True
        self.walls = Walls(*cell.reference, standing=1.0)
        return found

    def within(self, path: Path) -> Path:
        """The path in the cell of the labelling, if there is one."""
        return replace(path, walls=self.walls)
