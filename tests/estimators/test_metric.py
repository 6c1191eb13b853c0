"""A metric of a diagonal and a few directions, from fewer particles than dimensions."""

from __future__ import annotations

import numpy as np
import pytest

from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.moves.kernels import AdaptiveHMC
from weighbridge.estimators.annealing.moves.metric import (
    NUM_DIRECTIONS,
    low_rank_scale,
    others_low_rank,
)
from weighbridge.sampling.kernels.parts.scale import LowRank, pull, push


def _matrix(scale: LowRank) -> np.ndarray:
    """The scale as a full matrix."""
    across = scale.directions * (scale.stretch - 1) @ scale.directions.T
    return np.diag(scale.diagonal) @ (np.eye(len(across)) + across)


def _spiked(numbers: np.random.Generator, dimension: int, variances: list[float]) -> np.ndarray:
    """The covariance I + U (b - 1) U^T, with random directions U."""
    directions = np.linalg.qr(numbers.standard_normal((dimension, len(variances))))[0]
    return np.eye(dimension) + directions * (np.array(variances) - 1) @ directions.T


def test_push_and_pull_are_products_with_the_matrix():
    numbers = np.random.default_rng(1)
    directions = np.linalg.qr(numbers.standard_normal((20, 3)))[0]
    scale = LowRank(numbers.uniform(0.5, 2.0, 20), directions, np.array([5.0, 0.5, 1.0]))
    vector = numbers.standard_normal(20)
    np.testing.assert_allclose(push(scale, vector), _matrix(scale) @ vector, rtol=1e-5)
    np.testing.assert_allclose(pull(scale, vector), _matrix(scale).T @ vector, rtol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_it_finds_the_wide_directions_with_fewer_particles_than_dimensions(seed):
    numbers = np.random.default_rng(seed)
    dimension, num_particles = 400, 200
    covariance = _spiked(numbers, dimension, [400.0, 100.0])
    root = np.linalg.cholesky(covariance)
    position = 3.0 + numbers.standard_normal((num_particles, dimension)) @ root.T
    share = np.full(num_particles, 1 / num_particles)
    inverse = np.linalg.inv(_matrix(low_rank_scale(position, share)))
    left = np.linalg.eigvalsh(inverse @ covariance @ inverse.T)
    diagonal = np.sqrt(np.var(position, axis=0))
    by_diagonal = np.linalg.eigvalsh(covariance / np.outer(diagonal, diagonal))
    # Without the directions the widest one is 100 times as wide, in variance.
    assert by_diagonal[-1] > 60
    assert left[-1] < 12


@pytest.mark.parametrize("seed", range(3))
def test_independent_coordinates_have_no_direction(seed):
    position = np.random.default_rng(seed).standard_normal((512, 1000))
    scale = low_rank_scale(position, np.full(512, 1 / 512))
    assert np.all(scale.stretch == 1)
    assert scale.directions.shape == (1000, NUM_DIRECTIONS)


def test_moves_have_a_diagonal_where_there_is_no_direction():
    position = np.random.default_rng(1).standard_normal((4, 64, 500))
    cloud = Cloud(position, np.zeros((4, 64)), np.zeros((4, 64), int))
    scale = AdaptiveHMC().setting(cloud, cloud).scale
    np.testing.assert_array_equal(scale, others_low_rank(cloud).diagonal)
    common = 3.0 * np.random.default_rng(2).standard_normal((4, 64, 1))
    together = cloud._replace(position=position + common)
    assert isinstance(AdaptiveHMC().setting(together, together).scale, LowRank)


def test_copies_count_once():
    position = np.random.default_rng(4).standard_normal((32, 100))
    position = np.repeat(position, 8, axis=0)
    scale = low_rank_scale(position, np.full(256, 1 / 256))
    assert np.all(scale.stretch == 1)


def test_one_particle_has_a_diagonal_of_ones():
    scale = low_rank_scale(np.ones((3, 5)), np.array([1.0, 0.0, 0.0]))
    np.testing.assert_array_equal(scale.diagonal, np.ones(5))
    np.testing.assert_array_equal(scale.stretch, np.ones(5))
