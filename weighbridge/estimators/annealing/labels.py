"""One labelling for the particles of a model whose components may be permuted."""

from __future__ import annotations

from dataclasses import dataclass, replace

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

# Moves whose start and end correlate more than this are useless.
STUCK = 0.6


@dataclass(frozen=True)
class Cell:
    """The cell of a labelling: its density is K! times f inside, for all labellings, 0 outside."""

    model: Model
    reference: Reference

    def __call__(self, position: np.ndarray) -> np.ndarray:
        """The offset of the log density, islands x particles: log K! or -inf."""
        inside = in_cell(self.model, position.reshape(-1, position.shape[-1]), self.reference)
        offset = np.where(inside, log_num_labellings(self.model), -np.inf)
        return np.asarray(offset.reshape(position.shape[:-1]))


def one_labelling(model: Model, cloud: Cloud, *, agreed: bool = True) -> tuple[Cloud, Cell | None]:
    """The particles with one labelling, and its cell; unchanged if nothing is exchangeable.

    Args:
        model: the model with the ``exchangeable`` parameters.
        cloud: particles of all islands.
        agreed: whether most particles have the same labelling already; otherwise the labelling of
            the particle with the largest weight is used.
    """
    if not model.exchangeable:
        return cloud, None
    position = np.asarray(cloud.position).reshape(-1, model.dimension)
    heaviest = None if agreed else int(np.argmax(np.asarray(cloud.log_weight)))
    reference = find_reference(model, position, heaviest)
    relabelled_position = relabelled(model, position, reference).reshape(cloud.position.shape)
    return cloud._replace(position=relabelled_position), Cell(model, reference)


class Labels:
    """The labelling of particles along a path, and the walls that keep them in its cell.

    With few rows and small powers, labels cannot be distinguished. Then there is no labelling, and
    moves are not restricted. A labelling starts as soon as labels can be distinguished. It starts
    earlier if an anchor needs one, or if moves are of no use because their metric mixes all
    labellings.

    Args:
        model: the model; without ``exchangeable`` parameters there is nothing to label.
        standing: whether the particles have one labelling already.
        possible: whether moves can be restricted; if not, there is never a labelling.
    """

    def __init__(self, model: Model, *, standing: bool = False, possible: bool = True) -> None:
        self.model, self.standing = model, standing
        self.walls = Walls.down(model) if model.exchangeable and possible else None

    def follow(self, cloud: Cloud, step: StepInfo | None = None, *, must: bool = False) -> Cloud:
        """Relabel the particles and set the walls of their cell; do nothing without a labelling.

        Args:
            cloud: particles of all islands.
            step: info of the last step.
            must: start a labelling even if labels can hardly be distinguished.
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
