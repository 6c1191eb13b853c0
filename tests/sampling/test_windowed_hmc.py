"""Windowed HMC, the leapfrog step it shares, and jitter, against exact laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weighbridge as wb
from tests.helpers.chains import (
    NUM_CHAINS,
    SIGMAS,
    TARGETS,
    assert_exact,
    exact_draws,
    example,
    run_chains,
    scores,
    skewed,
)
from weighbridge.sampling.kernels.hmc import HMCState
from weighbridge.sampling.kernels.parts.leapfrog import leapfrog

SCALE = np.array([[1.0, 0.0], [0.7, 0.5]])


@pytest.mark.long
@pytest.mark.parametrize("window", [1, 3, 5, 7])
def test_exact_draws_stay_exact(window):
    """With steps so long that energies differ: windows of one state, apart, meeting, of all."""
    for seed, name in enumerate(TARGETS):
        kernel = wb.WindowedHMC(0.75, 6, window, SCALE, jitter=0.3)
        start = exact_draws(name, NUM_CHAINS, seed)
        state, info = run_chains(kernel, example(name), start, 8, 10 * window + seed)
        assert_exact(scores(name, state.position))
        assert 0.3 < info.acceptance.mean() < 0.93, "the choice matters"
        assert 0.3 < info.accepted.mean() < 0.99
    # From one point to all of the target; the same program again.
    state, _ = run_chains(kernel, example("skewed"), np.full((NUM_CHAINS, 2), 1.5), 40, window)
    assert_exact(scores("skewed", state.position))


def reference(kernel, position, momentum, place):
    """The states of a trajectory and their chances, written out."""
    size, length = kernel.window, kernel.num_leapfrog
    gradient = jax.jit(jax.grad(skewed))
    start = int(place * size)

    def walk(sign, count):
        q, r, path = position, momentum, []
        for _ in range(count):
            r = r + 0.5 * sign * kernel.step_size * SCALE.T @ gradient(q)
            q = q + sign * kernel.step_size * SCALE @ r
            r = r + 0.5 * sign * kernel.step_size * SCALE.T @ gradient(q)
            path.append((q, r))
        return path

    path = [*reversed(walk(-1, start)), (position, momentum), *walk(1, length - start)]
    energy = np.array([0.5 * np.sum(r**2) - float(skewed(q)) for q, r in path])
    weight = np.exp(energy[start] - energy)
    first, last = weight[:size], weight[length + 1 - size :]
    chance = min(1.0, last.sum() / first.sum())
    chances = np.zeros(length + 1)
    chances[:size] += (1 - chance) * first / first.sum()
    chances[length + 1 - size :] += chance * last / last.sum()
    others = np.delete(weight, start)
    return np.array([np.asarray(q) for q, _ in path]), chances, energy, np.minimum(others, 1).mean()


def test_states_are_chosen_with_the_chances_of_the_windows():
    """One momentum and one offset, many choices: how often each state is taken."""
    num = 20_000
    with jax.enable_x64(True):
        choose = choices(num)
        for window in (1, 2, 4, 5):
            kernel = wb.WindowedHMC(0.9, 4, window, SCALE)
            rng = np.random.default_rng(window)
            momentum, place, position = rng.normal(size=2), rng.uniform(), np.array([0.5, -0.4])
            taken_positions, info = choose(kernel, position, momentum, place)
            states, chances, energy, acceptance = reference(kernel, position, momentum, place)
            distance = np.linalg.norm(taken_positions[:, None] - states, axis=-1)
            assert distance.min(1).max() < 1e-8, "every draw is a state of the trajectory"
            taken = distance.argmin(1)
            counts = np.bincount(taken, minlength=len(states))
            error = np.sqrt(num * chances * (1 - chances)) + 1e-9
            assert np.all(np.abs(counts - num * chances) < SIGMAS * error), (counts, chances)
            assert chances.max() < 0.97, "there is a choice"
            np.testing.assert_allclose(info.energy, energy[taken], rtol=1e-9)
            np.testing.assert_allclose(info.acceptance, acceptance, rtol=1e-9)
            np.testing.assert_array_equal(info.accepted, taken != int(place * window))


def choices(num):
    """Steps with one momentum and one offset, which are put in place of the numbers drawn."""
    uniform = jax.random.uniform

    def run(kernel, position, momentum, place):
        drawn = jax.scipy.special.ndtr(momentum)

        def fixed(key, shape=()):
            numbers = uniform(key, shape)
            return numbers.at[:2].set(drawn).at[2].set(place) if shape else numbers

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jax.random, "uniform", fixed)
            step = jax.vmap(lambda key: kernel.step(key, kernel.init(position, skewed), skewed))
            state, info = step(jax.random.split(jax.random.key(7), num))
        return state.position, info

    program = jax.jit(run)

    def call(*arguments):
        return jax.tree_util.tree_map(np.asarray, program(*arguments))

    return call


def test_a_trajectory_that_leaves_the_support_is_divergent_and_never_chosen():
    def cut(u):
        beyond = jnp.where(u[0] > 0, -jnp.inf, jnp.nan)
        return jnp.where(jnp.abs(u[0]) < 1, -0.5 * jnp.sum(u**2), beyond)

    rng = np.random.default_rng(0)
    start = np.stack([rng.normal(size=40_000), rng.normal(size=40_000)], 1)
    start = start[np.abs(start[:, 0]) < 1][:NUM_CHAINS]
    kernel = wb.WindowedHMC(0.5, 5, window=4)
    state, info = run_chains(kernel, jax.tree_util.Partial(cut), start, 12, 1)
    assert np.all(np.abs(state.position[:, 0]) < 1)
    assert info.divergent.mean() > 0.1
    variance = 0.29112  # of a standard normal cut to [-1, 1]
    values = state.position[:, 0]
    assert abs(values.var() - variance) < SIGMAS * 0.27 / np.sqrt(len(start))
    assert abs(values.mean()) < SIGMAS * np.sqrt(variance / len(start))


def test_the_window_must_fit_the_trajectory():
    for window in (0, 12):
        with pytest.raises(wb.MethodError, match="window must be from 1 to num_leapfrog"):
            wb.WindowedHMC(0.1, 10, window)


# --- the leapfrog step and the jitter of HMC -----------------------------------------------------


def test_a_leapfrog_step_of_the_other_sign_undoes_it():
    def evaluate(position):
        value, gradient = jax.value_and_grad(skewed)(position)
        return HMCState(position, value, gradient)

    with jax.enable_x64(True):
        start, momentum = evaluate(jnp.array([0.3, -0.7])), jnp.array([1.0, -0.5])
        there, final = leapfrog(evaluate, start, momentum, 0.4, SCALE)
        back, first = leapfrog(evaluate, there, final, -0.4, SCALE)
    assert np.linalg.norm(there.position - start.position) > 0.1
    np.testing.assert_allclose(back.position, start.position, rtol=1e-12)
    np.testing.assert_allclose(first, momentum, rtol=1e-12)


def test_jitter_of_hmc_stretches_the_steps_and_none_changes_nothing():
    """On a flat target a trajectory is a straight line of step size times momentum."""
    flat = jax.tree_util.Partial(lambda u: 0.0 * u[0])
    num, length = 20_000, 3
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), num)
        start = HMCState(jnp.zeros(1), jnp.zeros(()), jnp.zeros(1))

        def ends(kernel):
            return jax.vmap(lambda key: kernel.step(key, start, flat)[0].position[0])(keys)

        run = jax.jit(ends)
        plain = np.asarray(run(wb.HMC(0.2, length)))
        factor = np.asarray(run(wb.HMC(0.2, length, jitter=0.3))) / plain
        given = jax.jit(
            lambda key: wb.HMC(0.2, length).step_with(jax.random.uniform(key, (2,)), start, flat)
        )
        alone = [float(given(key)[0].position[0]) for key in keys[:50]]
    np.testing.assert_array_equal(alone, plain[:50])
    assert factor.min() >= 0.7 - 1e-12
    assert factor.max() <= 1.3 + 1e-12
    uniform = (factor - 0.7) / 0.6
    assert abs(uniform.mean() - 0.5) < SIGMAS * np.sqrt(1 / 12 / num)
    assert abs(uniform.var() - 1 / 12) < SIGMAS * np.sqrt(1 / 180 / num)
    assert abs(np.corrcoef(uniform, plain)[0, 1]) < SIGMAS / np.sqrt(num)


def test_jitter_frees_a_trajectory_of_the_length_of_a_period():
    """Six leapfrog steps of length one go once around on a standard normal: it goes nowhere."""
    target = jax.tree_util.Partial(lambda u: -0.5 * jnp.sum(u**2))
    start = np.random.default_rng(0).normal(size=(NUM_CHAINS, 2))
    stuck, _ = run_chains(wb.HMC(1.0, 6), target, start, 8, 0)
    freed, info = run_chains(wb.HMC(1.0, 6, jitter=0.5), target, start, 8, 0)
    np.testing.assert_allclose(stuck.position, start, atol=1e-9)
    assert_exact(freed.position)
    assert 0.3 < info.acceptance.mean() < 0.99
    assert abs(np.corrcoef(freed.position[:, 0], start[:, 0])[0, 1]) < 0.1
