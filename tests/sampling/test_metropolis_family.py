"""MALA, Metropolis-Hastings, independence, rejection and adaptive Metropolis against exact laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import weighbridge as wb
from tests.helpers.chains import (
    COVARIANCE,
    NUM_CHAINS,
    SIGMAS,
    TARGETS,
    assert_exact,
    deviations,
    exact_draws,
    example,
    normal,
    run_chains,
    scores,
    skewed,
)

ROOT = np.linalg.cholesky(COVARIANCE)
# A lower triangular scale that fits no target: used upside down it is found out.
SCALE = np.array([[1.0, 0.0], [0.7, 0.5]])


def contract(key, position):
    """An asymmetric proposal: towards a place, and with more noise far from it."""
    spread = 0.5 + 0.3 * jnp.abs(position[0])
    return 0.3 + 0.7 * (position - 0.3) + spread * jax.random.normal(key, position.shape)


def log_contract(to, given):
    spread = 0.5 + 0.3 * jnp.abs(given[0])
    away = to - 0.3 - 0.7 * (given - 0.3)
    return -0.5 * jnp.sum(away**2) / spread**2 - 2 * jnp.log(spread)


def wander(key, position):
    return position + 0.8 * jax.random.normal(key, position.shape)


def frozen_at(state, root):
    return state._replace(root=jnp.asarray(root), num_steps=jnp.asarray(10**15))


def frozen(state):
    """Adaptive Metropolis that knows a covariance for good: an ordinary Markov chain."""
    return frozen_at(state, np.array([[1.0, 0.0], [0.5, 1.1]]))


KERNELS = {
    "mala": wb.MALA(0.9, scale=SCALE),
    "metropolis-hastings": wb.MetropolisHastings(contract, log_contract),
    "metropolis-hastings-symmetric": wb.MetropolisHastings(wander),
    "independence": wb.Independence(np.array([0.2, 0.5]), 1.4 * SCALE, degrees=3),
    "independence-normal": wb.Independence(0.3, np.array([1.5, 2.0]), degrees=None),
    "adaptive": wb.AdaptiveMetropolis(0.5, SCALE, 0.3),
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_exact_draws_stay_exact(kernel):
    prepare = {"prepare": frozen} if kernel == "adaptive" else {}
    for seed, name in enumerate(TARGETS):
        start = exact_draws(name, NUM_CHAINS, seed)
        state, info = run_chains(KERNELS[kernel], example(name), start, 12, seed, **prepare)
        assert_exact(scores(name, start))
        assert_exact(scores(name, state.position))
        assert 0.05 < info.accepted.mean() < 0.95
        assert abs(info.acceptance.mean() - info.accepted.mean()) < 0.01
        moved = np.corrcoef(state.position[:, 0], start[:, 0])[0, 1]
        assert moved < 0.9, "the chains have gone somewhere"


@pytest.mark.parametrize("kernel", ["mala", "metropolis-hastings", "independence"])
def test_chains_reach_the_target_from_one_point(kernel):
    """Same programs, more steps: what is invariant is also reached."""
    start = np.tile([1.5, -0.5], (NUM_CHAINS, 1))
    state, _ = run_chains(KERNELS[kernel], example("skewed"), start, 120, 3)
    assert_exact(scores("skewed", state.position))


# --- the asymmetry of the proposal ---------------------------------------------------------


def drift(position):
    return position + 0.5 * 0.9**2 * SCALE @ (SCALE.T @ jax.grad(skewed)(position))


def langevin(key, position):
    return drift(position) + 0.9 * SCALE @ jax.random.normal(key, position.shape)


def log_langevin(to, given):
    return -0.5 * jnp.sum((jnp.linalg.solve(SCALE, to - drift(given)) / 0.9) ** 2)


def test_without_its_asymmetry_the_accept_test_is_wrong_and_seen_to_be():
    start = exact_draws("skewed", NUM_CHAINS, 5)
    for propose, log_proposal in ((contract, log_contract), (langevin, log_langevin)):
        worst = []
        for density in (log_proposal, None):
            kernel = wb.MetropolisHastings(propose, density)
            state, _ = run_chains(kernel, example("skewed"), start, 12, 5)
            worst.append(deviations(scores("skewed", state.position)).max())
        assert worst[0] < SIGMAS
        assert worst[1] > 5 * SIGMAS


def test_mala_accepts_by_the_ratio_of_hastings():
    kernel, target, away = wb.MALA(0.9, scale=SCALE), jax.jit(skewed), jax.jit(drift)
    with jax.enable_x64(True):
        step = jax.jit(lambda key, state: kernel.step(key, state, skewed))
        start = kernel.init(jnp.array([0.4, -0.3]), skewed)
        found = []
        for index in range(10):
            key = jax.random.key(index)
            noise = scipy.stats.norm.ppf(np.asarray(jax.random.uniform(key, (3,)))[:2])
            there = away(start.position) + 0.9 * SCALE @ noise
            q = scipy.stats.multivariate_normal
            covariance = 0.81 * SCALE @ SCALE.T
            log_ratio = target(there) - start.log_density
            log_ratio += q.logpdf(start.position, np.asarray(away(there)), covariance)
            log_ratio -= q.logpdf(there, np.asarray(away(start.position)), covariance)
            state, info = step(key, start)
            assert float(info.acceptance) == pytest.approx(min(1.0, np.exp(log_ratio)), rel=1e-8)
            expected = there if info.accepted else start.position
            np.testing.assert_allclose(state.position, expected, rtol=1e-8)
            found.append(float(info.acceptance))
    assert min(found) < 0.9
    assert max(found) > 0.3


@pytest.mark.parametrize("bad", [jnp.nan, -jnp.inf])
def test_a_proposal_without_a_density_is_rejected(bad):
    """Not a number anywhere, or no density where it was just drawn."""
    kernel = wb.MetropolisHastings(wander, lambda to, given: jnp.where(to[0] > given[0], bad, 0.0))
    with jax.enable_x64(True):
        state = kernel.init(jnp.zeros(2), normal)
        step = jax.jit(lambda key: kernel.step(key, state, normal))
        for index in range(20):
            after, info = step(jax.random.key(index))
            assert float(info.acceptance) == 0.0
            np.testing.assert_array_equal(after.position, state.position)


def test_bad_proposals_are_named():
    target, key = normal, jax.random.key(0)
    for kernel, message in (
        (wb.MetropolisHastings(lambda key, u: u[:1]), r"propose must return a position"),
        (wb.MetropolisHastings(wander, lambda to, given: to), r"log_proposal must return one"),
    ):
        with pytest.raises(wb.MethodError, match=message):
            kernel.step(key, kernel.init(jnp.zeros(2), target), target)
    for arguments in ((1.0,), (wander, 2.0)):
        with pytest.raises(wb.MethodError, match="must be a function"):
            wb.MetropolisHastings(*arguments)


# --- independence and rejection --------------------------------------------------------------


def test_an_independence_kernel_is_fitted_to_draws():
    draws = exact_draws("normal", 4000, 0) * np.array([1.0, 1e-3]) + np.array([5.0, -2.0])
    kernel = wb.Independence.fitted(draws.reshape(4, 1000, 2), degrees=None)
    np.testing.assert_allclose(kernel.mean, draws.mean(0), rtol=1e-12)
    covariance = kernel.scale @ kernel.scale.T
    np.testing.assert_allclose(covariance, np.cov(draws.T), rtol=2e-3)
    assert wb.Independence.fitted(draws[:2]).degrees == 5, "even two draws give a proposal"
    for bad, message in (
        (draws[0], "shape"),
        (draws[:1], "two draws"),
        (draws * np.nan, "finite"),
        (draws * np.array([1.0, 0.0]), r"Coordinates \[1\] never move"),
    ):
        with pytest.raises(wb.MethodError, match=message):
            wb.Independence.fitted(bad)
    for degrees in (0, 2.5, True):
        with pytest.raises(wb.MethodError, match="whole number"):
            wb.Independence(degrees=degrees)


def test_a_fitted_proposal_on_its_own_target_is_nearly_always_accepted():
    """The proposal is the target itself: its density must cancel, correlation included."""
    kernel = wb.Independence(np.zeros(2), ROOT, degrees=None)
    start = exact_draws("normal", 2000, 1)
    state, info = run_chains(kernel, example("normal"), start, 12, 1)
    assert info.acceptance.min() > 1 - 1e-9
    assert abs(np.corrcoef(state.position[:, 0], start[:, 0])[0, 1]) < SIGMAS / np.sqrt(2000)


# log of the largest f / q for the proposals below, with a little on top; by a grid.
PROPOSALS = {
    "normal": (np.zeros(2), 1.2 * ROOT, None),
    "skewed": (np.array([0.3, 0.4]), np.array([1.3, 1.8]), 2),
    "bounded": (np.array([0.4, -1.0]), np.array([1.1, 1.2]), 2),
}


def largest_ratio(name):
    mean, scale, degrees = PROPOSALS[name]
    matrix = scale if scale.ndim == 2 else np.diag(scale)
    shape = matrix @ matrix.T
    q = scipy.stats.multivariate_normal(mean, shape)
    if degrees:
        q = scipy.stats.multivariate_t(mean, shape, degrees)
    grid = np.stack(np.meshgrid(np.linspace(-9, 5, 281), np.linspace(-8, 10, 361)), -1)
    grid = grid.reshape(-1, 2)
    with jax.enable_x64(True):
        densities = np.asarray(jax.vmap(example(name))(grid))
    return float(np.max(densities - q.logpdf(grid))), densities, (14 / 280) * (18 / 360)


@pytest.mark.parametrize("name", TARGETS)
def test_rejection_draws_are_exact_from_anywhere(name):
    mean, scale, degrees = PROPOSALS[name]
    largest, densities, cell = largest_ratio(name)
    log_bound = largest + 0.05
    kernel = wb.Rejection(mean, scale, log_bound, degrees=degrees)
    start = np.full((NUM_CHAINS, 2), 3.0)
    state, info = run_chains(kernel, example(name), start, 1, 3)
    assert_exact(scores(name, state.position))
    assert info.accepted.all()
    assert not info.exceeded.any()
    # Tries are geometric, with the rate that the volumes give.
    rate = np.exp(densities).sum() * cell / np.exp(log_bound)
    error = np.sqrt(1 - rate) / rate / np.sqrt(NUM_CHAINS)
    assert abs(info.tries.mean() - 1 / rate) < SIGMAS * error
    # With a bound far too low it says so; with too few tries it stays, and says so.
    low = wb.Rejection(mean, scale, log_bound - 3.0, degrees=degrees)
    assert run_chains(low, example(name), start, 1, 3)[1].exceeded.mean() > 0.3
    few = wb.Rejection(mean, scale, log_bound + 2.0, 2, degrees)
    start = exact_draws(name, NUM_CHAINS, 4)
    state, info = run_chains(few, example(name), start, 1, 4)
    stays = np.all(state.position == start, 1)
    np.testing.assert_array_equal(stays, info.accepted == 0)
    assert 0.2 < stays.mean() < 0.95
    assert info.tries.max() == 2
    assert_exact(scores(name, state.position))
    assert abs(info.acceptance.mean() - rate * np.exp(-2.0)) < 0.01


def test_settings_of_rejection_are_checked():
    with pytest.raises(wb.MethodError, match="max_tries must be at least 1"):
        wb.Rejection(max_tries=0)
    with pytest.raises(wb.MethodError, match="degrees must be"):
        wb.Rejection(degrees=1.5)


# --- adaptive Metropolis ------------------------------------------------------------------------


def test_adaptive_metropolis_learns_the_covariance_and_keeps_the_moments():
    num_chains, num_steps, stretch = 48, 6000, np.array([1.0, 100.0])
    kernel, key = wb.AdaptiveMetropolis(), jax.random.key(0)

    def target(position):
        return normal(position / stretch)

    def chain(key):
        def body(state, index):
            state, info = kernel.step(jax.random.fold_in(key, index), state, target)
            return state, (state.position, info.acceptance)

        start = kernel.init(jnp.array([1.0, 100.0]), target)
        return jax.lax.scan(body, start, jnp.arange(num_steps))

    with jax.enable_x64(True):
        state, (draws, acceptance) = jax.jit(jax.vmap(chain))(jax.random.split(key, num_chains))
    state = jax.tree_util.tree_map(np.asarray, state)
    draws = np.asarray(draws)
    # It has learned when it had grown by half, from what it saw in the meantime, and goes on.
    before, last = 0, 4
    while last + max(4, np.ceil(last / 2)) <= num_steps:
        before, last = last, last + int(max(4, np.ceil(last / 2)))
    assert 100 < before < last < num_steps
    assert np.all(state.num_seen == num_steps - last)
    covariances = state.root @ state.root.swapaxes(1, 2)
    for number, path in enumerate(draws):
        learned = np.cov(path[before:last].T, bias=True) + 1e-6 * np.eye(2)
        np.testing.assert_allclose(covariances[number], learned, rtol=1e-7)
        np.testing.assert_allclose(state.mean[number], path[last:].mean(0), rtol=1e-7, atol=1e-9)
        under_way = np.cov(path[last:].T, bias=True)
        np.testing.assert_allclose(state.covariance[number], under_way, rtol=1e-7)
    expected = COVARIANCE * np.outer(stretch, stretch)
    np.testing.assert_allclose(covariances.mean(0), expected, rtol=0.15)
    assert 0.25 < np.asarray(acceptance)[:, -2000:].mean() < 0.45, "2.4 / sqrt(2) of the covariance"
    # Chains are independent: their means give the error.
    values = draws[:, num_steps // 3 :] / stretch
    moments = np.concatenate([values, values**2, values[..., :1] * values[..., 1:]], -1).mean(1)
    error = moments.std(0, ddof=1) / np.sqrt(num_chains)
    assert np.all(error < 0.05)
    deviation = (moments.mean(0) - np.array([0, 0, 1, 1, 0.95])) / error
    assert np.all(np.abs(deviation) < SIGMAS), deviation


def test_adaptive_metropolis_begins_with_its_fixed_proposal_and_keeps_a_share_of_it():
    kernel = wb.AdaptiveMetropolis(0.1, 2.0, share=0.25)
    with jax.enable_x64(True):
        flat = jax.tree_util.Partial(lambda u: 0.0 * u[0])
        start = kernel.init(jnp.zeros(3), flat)
        later = frozen_at(start, 10.0 * np.eye(3))
        move = jax.jit(
            jax.vmap(lambda key, state: kernel.step(key, state, flat)[0].position, (0, None))
        )
        lengths = []
        for state in (start, later):
            moved = move(jax.random.split(jax.random.key(1), 4000), state)
            lengths.append(np.linalg.norm(np.asarray(moved), axis=1))
    # From N(0, (0.1 * 2)^2 / 3 I), and N(0, 2.4^2 / 3 * 100 I) three times out of four.
    assert abs(np.mean(lengths[0] ** 2) / 0.04 - 1) < SIGMAS * np.sqrt(2 / 3 / 4000)
    short = lengths[1] < 1.0
    assert abs(short.mean() - 0.25) < SIGMAS * np.sqrt(0.25 * 0.75 / 4000)
    assert abs(np.mean(lengths[1][~short] ** 2) / 576 - 1) < SIGMAS * np.sqrt(2 / 3 / 3000)
