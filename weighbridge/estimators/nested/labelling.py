"""Exchangeable components in nested sampling: one labelling for moves, all of them for points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weighbridge.models.exchangeable import (
    Reference,
    Walls,
    features,
    find_reference,
    relabelled,
    shuffled,
)
from weighbridge.models.model import Model


@dataclass
class MoveLabelling:
    """Clusters and directions are those of one labelling, as soon as labels can be distinguished.

    Walkers start in its cell and stay there, because directions that know the labels leave the
    prior above a contour unchanged only within it (``Walls``). New points get a random order of
    their components: they are draws from all labellings again. While labels cannot be
    distinguished, the starts of walkers get a random order.

    Attributes:
        model: with exchangeable components.
        reference: the labelling; None before there is one.
    """

    model: Model
    reference: Reference | None = None

    def walls(self) -> Walls:
        """The walls of the cell; they are down without a labelling."""
        if self.reference is None:
            return Walls.down(self.model)
        return Walls(*self.reference, standing=1.0)

    def follow(self, position: np.ndarray, log_likelihood: np.ndarray) -> np.ndarray:
        """The surviving points in one labelling, or as they are if there is none yet.

        Args:
            position: points x coordinates.
            log_likelihood: of the points; the labels of the best one are the first guess.
        """
        model, best = self.model, None
        if self.reference is None:
            best = int(np.argmax(log_likelihood))
            arranged = position
        else:
            # Some points were given a random order since.
            arranged = relabelled(model, position, self.reference)
        reference = find_reference(model, arranged, best)
        arranged = relabelled(model, arranged, reference)
        if self.reference is None and not reference.is_distinct(features(model, arranged)):
            return position
        self.reference = reference
        return arranged

    def begin(self, position: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Where walkers start: in a random order while there is no labelling."""
        return position if self.reference else shuffled(self.model, position, generator)

    def end(self, position: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """New points in a random order, if walkers stayed in the cell of a labelling."""
        return shuffled(self.model, position, generator) if self.reference else position
