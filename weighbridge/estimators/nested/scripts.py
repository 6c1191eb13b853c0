"""The script of a walk: directions and random numbers of all its moves, drawn on the host."""

from __future__ import annotations

import math

import numpy as np

from weighbridge.estimators.clusters import Cluster
from weighbridge.estimators.nested.directions import draw_directions, draw_steps
from weighbridge.estimators.nested.guides import Guide
from weighbridge.estimators.nested.moves.walk import Script

# Most numbers of a script; a longer walk is made in pieces.
LARGEST_SCRIPT = 4_000_000


def draw_script(
    name: str,
    generator: np.random.Generator,
    guides: list[Guide],
    step_size: float,
    num_moves: int,
    length: int,
) -> Script:
    """A script for walkers.

    Args:
        name: of the move.
        generator: random numbers.
        guides: the walkers, with the points that shape their moves.
        step_size: scale of the steps, in standard deviations of a cluster.
        num_moves: number of moves.
        length: moves for which the arrays have room.
    """
    count, dimension = sum(len(guide.walkers) for guide in guides), guides[0].points.shape[1]
    direction = np.empty((num_moves, count, dimension))
    scale = cluster = None
    if name == "slice":
        for guide in guides:
            direction[:, guide.walkers] = draw_directions(generator, guide, num_moves)
    elif name == "sghmc":
        direction = generator.standard_normal(direction.shape)
    else:
        chosen, before = np.empty((num_moves, count), int), 0
        for guide in guides:
            steps, of_guide = draw_steps(generator, guide, num_moves)
            direction[:, guide.walkers] = step_size * steps
            chosen[:, guide.walkers] = before + of_guide
            before += len(guide.clusters)
        if name == "galilean":
            clusters = [each for guide in guides for each in guide.clusters]
            scale, cluster = _stacked(clusters), _padded(chosen, length)
    return Script(
        _padded(direction, length),
        # Adding half a step avoids the log of 0.
        _padded(generator.random((num_moves, count, 4)) + 2.0**-54, length),
        np.int64(num_moves),
        scale,
        cluster,
    )


def script_length(num_moves: int, num_walkers: int, dimension: int) -> int:
    """Moves of a script: a power of two, so that another number of moves compiles nothing new."""
    largest = max(8, LARGEST_SCRIPT // (num_walkers * (dimension + 4)))
    return int(2 ** min(math.ceil(math.log2(max(num_moves, 32))), math.floor(math.log2(largest))))


def _stacked(clusters: list[Cluster]) -> np.ndarray:
    """Their scales, with room for a power of two of them: other numbers compile nothing new."""
    scales = np.stack([cluster.scale for cluster in clusters])
    return _padded(scales, 2 ** math.ceil(math.log2(len(scales))))


def _padded(array: np.ndarray, length: int) -> np.ndarray:
    if len(array) == length:
        return array
    return np.concatenate([array, np.zeros((length - len(array), *array.shape[1:]), array.dtype)])
