"""Directions of moves: bases in the metric of a cluster."""

import numpy as np

from weighbridge.estimators.clusters import find_clusters
from weighbridge.estimators.nested import directions
from weighbridge.estimators.nested.directions import draw_directions
from weighbridge.estimators.nested.guides import Guide


def test_every_block_of_moves_is_a_basis_in_the_metric_of_the_points(monkeypatch):
    monkeypatch.setattr(directions, "PAIRS", 0.0)
    generator = np.random.default_rng(0)
    position = generator.standard_normal((300, 3)) * np.array([1.0, 10.0, 0.1])
    clusters = find_clusters(position)
    assert len(clusters) == 1
    found = draw_directions(generator, Guide(np.arange(20), position, clusters), 7)
    assert found.shape == (7, 20, 3)
    white = np.linalg.solve(clusters[0].scale, found.reshape(-1, 3).T).T.reshape(7, 20, 3)
    length = np.linalg.norm(white, axis=2)
    assert length.min() >= directions.SHORTEST
    assert length.max() <= directions.LONGEST
    unit = np.moveaxis(white / length[:, :, None], 1, 0)
    for block in (unit[:, :3], unit[:, 3:6]):
        assert np.allclose(block @ np.swapaxes(block, 1, 2), np.eye(3))


def test_directions_are_uniform():
    """Of unit vectors in three dimensions, every coordinate has the variance 1/3."""
    generator = np.random.default_rng(1)
    position = generator.standard_normal((2000, 3))
    clusters = find_clusters(position)
    found = draw_directions(generator, Guide(np.arange(1000), position, clusters), 9)
    white = np.linalg.solve(clusters[0].scale, found.reshape(-1, 3).T).T
    unit = white / np.linalg.norm(white, axis=1, keepdims=True)
    # 3,000 independent bases: the sum of squares of a column has a variance of 4/45 each at most.
    assert np.all(np.abs(np.mean(unit**2, axis=0) - 1 / 3) < 4 * np.sqrt(4 / 45 / 3000))
