"""Simulated tempering: exact when watched at power 1, and across modes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weighbridge as wb
from tests.helpers.two_modes import (
    BOUND,
    LEFT,
    LOG_EVIDENCE,
    PRIOR,
    SIGMAS,
    VARIANCE,
    run,
    two_modes,
    z_score,
)
from weighbridge.models.targets.density import Target
from weighbridge.models.targets.total import Total


def far_away(p):
    """The same with a constant: the integral is no longer near one."""
    return two_modes(p) - 1e5


@pytest.mark.long
@pytest.mark.parametrize(
    ("likelihood", "constant", "seed"), [(two_modes, 0, 0), (two_modes, 0, 1), (far_away, -1e5, 0)]
)
def test_it_gives_separated_modes_their_mass(likelihood, constant, seed):
    kernel = wb.SimulatedTempering(wb.HMC(0.5, 5), num_adapt=300)
    model = wb.Model(PRIOR, total_log_likelihood=likelihood)
    start = np.tile(LEFT, (16, 1))
    positions, info, state = run(kernel, Target(model, (Total(),)), start, 700, 300, seed)
    assert abs(z_score(np.mean(positions[..., 0] > 0, axis=1), 0.7)) < BOUND
    assert abs(z_score(np.mean(positions[..., 1] ** 2, axis=1), VARIANCE)) < BOUND
    assert np.all(info.returned)
    assert info.hottest.max(1).min() == 7, "every chain has been at the prior"
    # All powers are visited about equally often: one of eight moves ends at power 1.
    assert 4 < info.num_moves.mean() < 16
    found = np.asarray(state.learnt.log_normaliser)
    gained = found[:, 0] - found[:, -1] - constant
    assert np.all(np.abs(gained - LOG_EVIDENCE) < 1.5)
    assert abs(gained.mean() - LOG_EVIDENCE) < 0.5


def normal(u):
    return -0.5 * jnp.sum(u**2)


POWERS = (1.0, 0.4, 0.1)


@pytest.mark.parametrize("max_moves", [2, 1000])
@pytest.mark.parametrize("wrong", [0.0, 2.0])
def test_power_one_keeps_its_distribution(max_moves, wrong):
    """From exact draws, with right and wrong normalisers, and with most excursions undone."""
    normalisers = -np.log(POWERS) + wrong * np.array([0.0, -1.0, 1.0])
    kernel = wb.SimulatedTempering(
        wb.Metropolis(1.5), POWERS, 0, max_moves, log_normalisers=normalisers
    )
    num_chains = 8000
    start = np.random.default_rng(0).normal(size=(num_chains, 2))
    positions, info, _ = run(kernel, jax.tree_util.Partial(normal), start, 6, 0, 1)
    ends = positions[:, -1]
    assert np.mean(np.any(ends != start, axis=1)) > 0.3
    assert np.all(np.abs(ends.mean(0)) < SIGMAS / np.sqrt(num_chains))
    assert np.all(np.abs(ends.var(0) - 1) < SIGMAS * np.sqrt(2 / num_chains))
    assert np.all(info.returned) == (max_moves == 1000)


def test_excursions_are_as_long_as_theory_says():
    """Kac: the mean length between visits is one over the share of the visited."""
    kernel = wb.SimulatedTempering(
        wb.HMC(0.9, 3), POWERS, num_adapt=0, log_normalisers=-np.log(POWERS)
    )
    start = np.random.default_rng(0).normal(size=(16, 2))
    _, info, _ = run(kernel, jax.tree_util.Partial(normal), start, 1000, 0, 0)
    assert abs(z_score(info.num_moves.mean(1), 3.0)) < BOUND


@pytest.mark.long
def test_normalisers_and_step_sizes_are_learnt_and_then_fixed():
    kernel = wb.SimulatedTempering(wb.HMC(5.0, 3), POWERS, num_adapt=400)
    target = jax.tree_util.Partial(normal)
    start = np.zeros((16, 2))
    _, info, state = run(kernel, target, start, 400, 400, 0)
    learnt = jax.tree_util.tree_map(np.asarray, state.learnt)
    ratios = learnt.log_normaliser - learnt.log_normaliser[:, :1]
    np.testing.assert_allclose(ratios.mean(0), -np.log(POWERS), atol=0.15)
    assert abs(info.acceptance.mean() - 0.8) < 0.08
    *_, before = run(kernel, target, start, 0, 400, 0)
    np.testing.assert_array_equal(before.learnt.log_normaliser, learnt.log_normaliser)
    np.testing.assert_array_equal(before.learnt.log_scale, learnt.log_scale)
