"""One labelling for the particles of a model whose components may be permuted."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from weighbridge.estimators.anneal import Cloud
from weighbridge.model import Model
from weighbridge.relabel import Reference, find_reference, in_cell, log_num_labellings, relabelled


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
