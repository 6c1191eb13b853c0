"""Kernels against what theory gives for them on Gaussian targets."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.models.targets.batches import Subsampled
from weighbridge.models.targets.density import Target
from weighbridge.models.targets.rows import Rows
from weighbridge.sampling.kernels.parts.dialogue import Point
from weighbridge.sampling.kernels.parts.noise import injected_variance

pytestmark = pytest.mark.long

# A false alarm of any single comparison in this file has a probability below 1e-6 (5 sigma).
SIGMAS = 5.0
NUM_CHAINS = 20_000
PRECISION = np.array([1.0, 4.0])
SEEDS = (0, 1)


def gaussian_target():
    """A Gaussian with known variances 1 / PRECISION, as a model without data."""
    model = wb.Model(
        {"u": dist.Normal(0.0, 1 / np.sqrt(PRECISION)).to_event(1)}, lambda p, row: 0.0 * row
    )
    return Target(model, ())


def correlated_target(covariance):
    """A Gaussian with a known covariance."""
    precision = np.linalg.inv(covariance)
    return jax.tree_util.Partial(lambda precision, u: -0.5 * u @ (precision @ u), precision)


def run_chains(kernel, target, start, num_steps, seed):
    @jax.jit
    def run(kernel, target, start, key):
        def chain(key, position):
            def body(index, state):
                return kernel.step(jax.random.fold_in(key, index), state, target)[0]

            return jax.lax.fori_loop(0, num_steps, body, kernel.init(position, target)).position

        return jax.vmap(chain)(jax.random.split(key, start.shape[0]), start)

    return np.asarray(run(kernel, target, start, jax.random.key(seed)))


def assert_variance(draws, expected):
    """Each coordinate has mean zero and the expected variance, within SIGMAS."""
    num = len(draws)
    np.testing.assert_array_less(np.abs(draws.mean(0)), SIGMAS * np.sqrt(expected / num))
    np.testing.assert_array_less(np.abs(draws.var(0) / expected - 1), SIGMAS * np.sqrt(2 / num))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "kernel",
    [
        wb.Metropolis(step_size=jnp.array([1.5, 0.8])),
        wb.HMC(step_size=0.35, num_leapfrog=5),
        wb.HMC(step_size=0.8, num_leapfrog=3, scale=np.array([1.0, 0.5])),
        wb.Metropolis(1.2, scale=np.array([[1.0, 0.0], [0.4, 0.6]])),
        wb.Slice(2.0),
        wb.Slice(1.5, scale=np.array([1.0, 0.5]), along="coordinates"),
        # Far too narrow, so that the limit cuts most slices short, and far too wide.
        wb.Slice(0.4, scale=np.array([[1.0, 0.0], [0.4, 0.6]]), max_expansions=3),
        wb.Slice(50.0, max_expansions=0),
    ],
    ids=[
        "metropolis",
        "hmc",
        "hmc-metric",
        "metropolis-matrix",
        "slice",
        "slice-coordinates",
        "slice-limited",
        "slice-wide",
    ],
)
def test_adjusted_kernels_leave_the_target_invariant_and_reach_it(kernel, seed):
    with jax.enable_x64(True):
        target = gaussian_target()
        stationary = np.random.default_rng(seed).normal(size=(NUM_CHAINS, 2)) / np.sqrt(PRECISION)
        assert_variance(run_chains(kernel, target, stationary, 10, seed), 1 / PRECISION)
        far = np.full((NUM_CHAINS, 2), 3.0)
        assert_variance(run_chains(kernel, target, far, 150, seed), 1 / PRECISION)


COVARIANCE = np.array([[1.0, 0.45], [0.45, 0.25]])  # correlation 0.9


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("matched", [True, False])
def test_hmc_with_a_matrix_leaves_a_correlated_target_invariant_and_reaches_it(matched, seed):
    """S S^T may be the covariance or not: a triangular S that is used upside down is found out."""
    root = np.linalg.cholesky(COVARIANCE)
    kernel = wb.HMC(step_size=0.8, num_leapfrog=3, scale=root)
    if not matched:
        kernel = wb.HMC(0.25, 5, scale=np.array([[1.0, 0.0], [0.7, 1.2]]))
    with jax.enable_x64(True):
        target = correlated_target(COVARIANCE)
        stationary = np.random.default_rng(seed).normal(size=(NUM_CHAINS, 2)) @ root.T
        far = np.full((NUM_CHAINS, 2), 3.0)
        for start, num_steps in ((stationary, 10), (far, 150)):
            # In coordinates in which the target is standard, also the product has a variance.
            draws = np.linalg.solve(root, run_chains(kernel, target, start, num_steps, seed).T).T
            assert_variance(draws, np.ones(2))
            product = draws[:, 0] * draws[:, 1]
            assert abs(product.mean()) < SIGMAS / np.sqrt(NUM_CHAINS)


def test_a_matrix_scale_is_hmc_in_other_coordinates():
    """HMC on u = S v makes the move of plain HMC on v."""
    root = np.linalg.cholesky(COVARIANCE)
    with jax.enable_x64(True):
        target, key = correlated_target(COVARIANCE), jax.random.key(3)
        dense = wb.HMC(0.7, 4, scale=root)
        plain = wb.HMC(0.7, 4)
        start = np.array([0.4, -1.1])

        def standard(v):
            return target(jnp.asarray(root) @ v)

        state, info = dense.step(key, dense.init(root @ start, target), target)
        other, same = plain.step(key, plain.init(jnp.asarray(start), standard), standard)
        # One number, one for each coordinate, or a diagonal matrix: all the same.
        scales = [2.0, np.full(2, 2.0), 2.0 * np.eye(2)]
        kernels = [wb.HMC(0.1, 4, scale=scale) for scale in scales]
        alike = [k.step(key, k.init(start, target), target)[0].position for k in kernels]
    np.testing.assert_allclose(state.position, root @ np.asarray(other.position), rtol=1e-10)
    assert float(info.energy_error) == pytest.approx(float(same.energy_error), rel=1e-9)
    assert not np.allclose(alike[0], start), "the move was taken"
    np.testing.assert_allclose(alike[1], alike[0], rtol=1e-12)
    np.testing.assert_allclose(alike[2], alike[0], rtol=1e-12)


@pytest.mark.parametrize(
    "make",
    [wb.Metropolis, wb.Slice, lambda *args, **named: wb.Slice(*args, **named, along="coordinates")],
    ids=["metropolis", "slice", "slice-coordinates"],
)
def test_a_matrix_scale_is_the_move_in_other_coordinates(make):
    """A kernel on u = S v makes the move of the plain kernel on v."""
    root = np.linalg.cholesky(COVARIANCE)
    with jax.enable_x64(True):
        target = correlated_target(COVARIANCE)

        def standard(v):
            return target(jnp.asarray(root) @ v)

        dense, plain = make(0.7, scale=root), make(0.7)
        start, ends = np.array([0.4, -1.1]), []
        for index in range(8):
            key = jax.random.key(index)
            state, _ = dense.step(key, dense.init(root @ start, target), target)
            other, _ = plain.step(key, plain.init(jnp.asarray(start), standard), standard)
            ends.append(np.asarray(other.position))
            np.testing.assert_allclose(state.position, root @ ends[-1], rtol=1e-10)
        assert not np.allclose(ends, start), "moves were taken"
        # One number, one for each coordinate, or a diagonal matrix: all the same.
        scales = [2.0, np.full(2, 2.0), 2.0 * np.eye(2)]
        kernels = [make(0.1, scale=scale) for scale in scales]
        key = jax.random.key(1)
        alike = [k.step(key, k.init(start, target), target)[0].position for k in kernels]
    np.testing.assert_allclose(alike[1], alike[0], rtol=1e-12)
    np.testing.assert_allclose(alike[2], alike[0], rtol=1e-12)


def neal_slice(log_density, start, direction, max_expansions, uniform):
    """Figures 3 and 5 of Neal (2003), with the numbers of a move; also how often it asks."""
    height, offset, share, *attempts = uniform
    asked = 0

    def inside(place):
        nonlocal asked
        asked += 1
        return log_density(start + place * direction) > level

    level = log_density(start) + np.log(height)
    left, right = -offset, 1 - offset
    left_steps = int(np.floor((max_expansions + 1) * share))
    right_steps = max_expansions - left_steps
    while left_steps > 0 and inside(left):
        left, left_steps = left - 1, left_steps - 1
    while right_steps > 0 and inside(right):
        right, right_steps = right + 1, right_steps - 1
    for attempt in attempts:
        place = left + attempt * (right - left)
        if inside(place):
            return start + place * direction, asked
        left, right = (place, right) if place < 0 else (left, place)
    return start, asked


@pytest.mark.parametrize("width", [0.2, 1.5, 1e30])
@pytest.mark.parametrize("max_expansions", [0, 1, 5])
def test_slices_are_those_of_neal(width, max_expansions):
    """The same numbers give the same point, through the same questions, on two separate humps."""
    kernel = wb.Slice(width, max_expansions=max_expansions, along="coordinates")

    def log_density(u):
        return np.logaddexp(-0.5 * u[0] ** 2, -0.5 * (u[0] - 4.0) ** 2 / 0.3**2)

    def ask_and_tell(uniform, start):
        walk, asked = begin(kernel, uniform, Point(start, log_density(start))), 0
        while walk.wanted:
            position = np.asarray(walk.ask())
            walk, asked = tell(walk, Point(position, log_density(position))), asked + 1
        return np.asarray(walk.finish()[0].position), asked

    begin = jax.jit(lambda kernel, uniform, point: kernel.begin(uniform, point))
    tell = jax.jit(lambda walk, point: walk.tell(point))
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        for _ in range(12):
            start, uniform = rng.normal(size=1), rng.uniform(size=kernel.num_uniform((1,)))
            expected, count = neal_slice(
                log_density, start, np.array([width]), max_expansions, uniform[1:]
            )
            position, asked = ask_and_tell(uniform, start)
            np.testing.assert_allclose(position, expected, rtol=1e-9)
            assert asked == count
            assert np.any(position != start) == (width < 1e9), "a bracket too wide leaves the start"


@pytest.mark.parametrize("kernel", [wb.Metropolis(1.0), wb.Slice(0.5), wb.Slice(9.0)])
def test_moves_without_gradients_stay_in_the_support_and_find_it(kernel):
    """Density zero, or not a number, beyond 1 and -1; from there a move goes anywhere but back."""

    def cut(u):
        beyond = jnp.where(u[0] > 0, -jnp.inf, jnp.nan)
        return jnp.where(jnp.abs(u[0]) < 1, -0.5 * u[0] ** 2, beyond)

    target = jax.tree_util.Partial(cut)
    with jax.enable_x64(True):
        start = np.random.default_rng(0).uniform(-0.9, 0.9, size=(4000, 1))
        draws = run_chains(kernel, target, start, 40, 0)
        outside = run_chains(kernel, target, np.full((100, 1), 1.2), 60, 1)
    assert np.all(np.abs(draws) < 1)
    # The variance of a standard normal cut to [-1, 1] is 0.29112.
    assert abs(draws.var() - 0.29112) < SIGMAS * 0.3 / np.sqrt(4000)
    assert abs(draws.mean()) < SIGMAS * np.sqrt(0.29112 / 4000)
    assert np.all((np.abs(outside) < 1) | (outside == 1.2))
    assert np.mean(np.abs(outside) < 1) > 0.9


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("walkers", [5, 12])
@pytest.mark.parametrize("step_size", [0.5, 2.0])
def test_stretch_leaves_a_correlated_target_invariant_and_reaches_it(walkers, step_size, seed):
    """A product of walkers stays one; with another power of z than D - 1 it does not."""
    covariance = np.array([[1.0, 0.45, 0.0], [0.45, 0.25, 0.1], [0.0, 0.1, 4.0]])
    root = np.linalg.cholesky(covariance)
    kernel = wb.Stretch(step_size)
    rng = np.random.default_rng(seed)
    with jax.enable_x64(True):
        target = correlated_target(covariance)
        stationary = rng.normal(size=(NUM_CHAINS // walkers, walkers, 3)) @ root.T
        starts = [(stationary, 20)]
        if (walkers, step_size) == (12, 2.0):  # few walkers, or small steps, take their time
            starts.append((3.0 + 0.1 * rng.normal(size=stationary.shape), 250))
        for start, num_steps in starts:
            ends = run_chains(kernel, target, start, num_steps, seed).reshape(-1, 3)
            draws = np.linalg.solve(root, ends.T).T
            assert_variance(draws, np.ones(3))
            products = np.array([draws[:, i] * draws[:, j] for i, j in ((0, 1), (0, 2), (1, 2))])
            assert np.all(np.abs(products.mean(1)) < SIGMAS / np.sqrt(len(draws)))


def test_stretch_is_affine_invariant():
    """On A x + b with the target carried along, the move is carried along."""
    matrix, shift = np.array([[2.0, 0.0], [-30.0, 1e-3]]), np.array([5.0, -7.0])
    with jax.enable_x64(True):
        target, kernel, key = correlated_target(COVARIANCE), wb.Stretch(), jax.random.key(3)
        start = np.random.default_rng(0).normal(size=(10, 2))

        def carried(u):
            return target(jnp.linalg.solve(jnp.asarray(matrix), u - shift))

        plain, info = kernel.step(key, kernel.init(jnp.asarray(start), target), target)
        state = kernel.init(jnp.asarray(start @ matrix.T + shift), carried)
        other, same = kernel.step(key, state, carried)
    moved = np.any(np.asarray(plain.position) != start, axis=1)
    assert moved.sum() > 2
    np.testing.assert_array_equal(info.accepted, moved)
    np.testing.assert_array_equal(same.accepted, moved)
    expected = np.asarray(plain.position) @ matrix.T + shift
    np.testing.assert_allclose(other.position, expected, rtol=1e-8)


def test_half_of_the_ensemble_moves_by_the_other_half():
    """Every walker that moved is on a line with one that was not moving."""
    kernel = wb.Stretch(3.0)
    flat = jax.tree_util.Partial(lambda u: 0.0 * u[0])
    for walkers in (6, 7):
        start = np.random.default_rng(walkers).normal(size=(walkers, 4))
        with jax.enable_x64(True):
            walk = kernel.begin(
                jnp.asarray(
                    np.random.default_rng(0).uniform(size=kernel.num_uniform((walkers, 4)))
                ),
                kernel.init(jnp.asarray(start), flat),
            )
            current, half = start, -(-walkers // 2)
            for level, first in enumerate((0, walkers - half), start=1):
                assert walk.wanted.shape == (half,)
                assert walk.wanted.all()
                asked = np.asarray(walk.ask())
                moving = np.arange(first, first + half)
                others = np.delete(np.arange(walkers), moving)
                for proposal, walker in zip(asked, current[moving]):
                    # x' - x_j = z (x - x_j) for one j of the others, and z within its bounds.
                    ratio = (proposal - current[others]) / (walker - current[others])
                    matched = np.ptp(ratio, axis=1) < 1e-9
                    assert matched.sum() == 1
                    assert 0.25 <= ratio[matched][0, 0] <= 4.0
                # So much higher than before that no proposal is refused.
                walk = walk.tell(Point(jnp.asarray(asked), jnp.full(half, 100.0 * level)))
                current = np.asarray(walk.point.position)
                np.testing.assert_array_equal(current[moving], asked)
            assert not walk.wanted.any()
            again = walk.tell(Point(jnp.asarray(asked + 1), jnp.full(half, 300.0)))
            np.testing.assert_array_equal(again.finish()[0].position, current)


@pytest.mark.parametrize("seed", SEEDS)
def test_sgld_has_the_variance_of_its_step_size(seed):
    eta = 0.1
    with jax.enable_x64(True):
        draws = run_chains(wb.SGLD(eta), gaussian_target(), np.zeros((NUM_CHAINS, 2)), 400, seed)
    assert_variance(draws, 1 / (PRECISION * (1 - eta * PRECISION / 2)))


def sghmc_variance(precision, eta, friction, gradient_noise=0.0):
    """Stationary variance of v' = (1-a) v - eta k x + xi, x' = x + v' (see the moments below).

    With kappa = eta k and s the noise variance, E v^2 = s / (2a - a^2 - a kappa / 2) and
    kappa E x^2 = (1 - a/2) E v^2.
    """
    kappa = eta * precision
    noise = 2 * friction * eta + eta**2 * gradient_noise
    velocity = noise / (2 * friction - friction**2 - friction * kappa / 2)
    return (1 - friction / 2) * velocity / kappa


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("friction", [0.2, 0.7])
def test_sghmc_has_the_variance_of_its_step_size(seed, friction):
    eta = 0.05
    with jax.enable_x64(True):
        draws = run_chains(
            wb.SGHMC(eta, friction), gaussian_target(), np.zeros((NUM_CHAINS, 2)), 500, seed
        )
    assert_variance(draws, sghmc_variance(PRECISION, eta, friction))


def minibatch_problem(num_rows=200, batch_size=10):
    """A Gaussian mean on mini-batches: the gradient noise is (n^2 / B) Var[y] everywhere."""
    rows = np.random.default_rng(3).normal(size=num_rows)
    rows = rows - rows.mean()
    model = wb.Model(
        {"u": dist.Normal(0.0, 1.0).expand([1]).to_event(1)},
        lambda p, y: -0.5 * (y - p["u"][0]) ** 2,
    )
    noise = num_rows**2 / batch_size * rows.var()
    return model, Rows(rows, np.ones(num_rows)), 1.0 + num_rows, noise, batch_size


def run_minibatch(kernel, num_steps, seed):
    """Each chain draws batches of its own, by a key of its own."""
    model, rows, precision, noise, batch_size = minibatch_problem()

    @jax.jit
    def run(kernel, key):
        def chain(key):
            key_batch, key_move = jax.random.split(key)
            target = Target(model, (Subsampled(rows, key_batch, batch_size),))

            def body(index, state):
                return kernel.step(jax.random.fold_in(key_move, index), state, target)[0]

            start = kernel.init(jnp.zeros(1), target)
            return jax.lax.fori_loop(0, num_steps, body, start).position

        return jax.vmap(chain)(jax.random.split(key, NUM_CHAINS))

    return np.asarray(run(kernel, jax.random.key(seed))), precision, noise


@pytest.mark.parametrize("seed", SEEDS)
def test_sghmc_on_minibatches_is_hot_by_the_gradient_noise(seed):
    eta, friction = 1e-3, 0.2
    with jax.enable_x64(True):
        draws, precision, noise = run_minibatch(wb.SGHMC(eta, friction), 150, seed)
    expected = sghmc_variance(precision, eta, friction, noise)
    assert expected > 3 * sghmc_variance(precision, eta, friction)
    assert_variance(draws, np.array([expected]))


@pytest.mark.parametrize("seed", SEEDS)
def test_gradient_noise_taken_off_gives_the_cold_variance(seed):
    """With beta-hat right, the half in the noise variance matters: without it this fails."""
    eta, friction = 5e-5, 0.2
    _, _, precision, noise, _ = minibatch_problem()
    with jax.enable_x64(True):
        fixed, *_ = run_minibatch(wb.SGHMC(eta, friction, gradient_noise=noise), 200, seed)
        langevin, *_ = run_minibatch(wb.SGLD(4 * eta, gradient_noise=noise), 200, seed)
    heated = sghmc_variance(precision, eta, friction, noise)
    expected = sghmc_variance(precision, eta, friction)
    assert heated > 1.3 * expected
    assert_variance(fixed, np.array([expected]))
    assert_variance(langevin, np.array([1 / (precision * (1 - 2 * eta * precision))]))


def test_estimated_gradient_noise_is_unbiased():
    with jax.enable_x64(True):
        model, rows, _, noise, batch_size = minibatch_problem()

        def estimate(key):
            target = Target(model, (Subsampled(rows, key, batch_size),))
            return target.gradient_variance(jnp.zeros(1))[0]

        values = np.asarray(jax.vmap(estimate)(jax.random.split(jax.random.key(0), 4000)))
    error = values.std() / np.sqrt(len(values))
    # Batches are drawn with replacement, so the sample variance is unbiased for the population's.
    assert abs(values.mean() - noise) < SIGMAS * error
    assert error < 0.02 * noise


def test_estimated_noise_cools_the_chain():
    eta, friction = 2.5e-5, 0.2
    with jax.enable_x64(True):
        hot, precision, noise = run_minibatch(wb.SGHMC(eta, friction), 300, 0)
        kernel = wb.SGHMC(eta, friction, estimate_noise=True)
        cool, *_ = run_minibatch(kernel, 300, 0)
    expected = sghmc_variance(precision, eta, friction)
    assert_variance(hot, np.array([sghmc_variance(precision, eta, friction, noise)]))
    assert_variance(cool, np.array([expected]))


def test_noise_is_clipped_at_zero_and_says_so():
    variance, clipped = injected_variance(0.2, 1e6, jnp.asarray(1e-3))
    assert float(variance) == 0.0
    assert bool(clipped)
    with jax.enable_x64(True):
        target = gaussian_target()
        kernel = wb.SGHMC(0.1, 0.2, gradient_noise=100.0)
        state = kernel.init(np.zeros(2), target)
        _, info = kernel.step(jax.random.key(0), state, target)
    assert bool(info.noise_clipped)


def test_kinetic_temperature_reports_the_heat():
    """The mean kinetic temperature equals the ratio of the chain's variance to the target's."""
    eta, friction = 1e-3, 0.2
    model, rows, precision, noise, batch_size = minibatch_problem()
    kernel = wb.SGHMC(eta, friction)

    def chain(key):
        key_batch, key_move = jax.random.split(key)
        target = Target(model, (Subsampled(rows, key_batch, batch_size),))

        def body(state, index):
            state, info = kernel.step(jax.random.fold_in(key_move, index), state, target)
            return state, info.temperature

        _, temperature = jax.lax.scan(body, kernel.init(jnp.zeros(1), target), jnp.arange(200))
        return temperature[-1]

    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(1), NUM_CHAINS)
        measured = np.asarray(jax.jit(jax.vmap(chain))(keys))
    expected = precision * sghmc_variance(precision, eta, friction, noise)
    assert abs(measured.mean() / expected - 1) < SIGMAS * np.sqrt(2 / NUM_CHAINS)


def test_momentum_resampling_draws_a_new_velocity():
    with jax.enable_x64(True):
        target = gaussian_target()
        always = wb.SGHMC(0.05, 0.2, resample_every=1)
        once = wb.SGHMC(0.05, 0.2)
        start = np.zeros((NUM_CHAINS, 2))
        kept = run_chains(once, target, start, 3, 0)
        renewed = run_chains(always, target, start, 3, 0)
        # From rest, three steps with fresh velocities each move by about v; carried ones add up.
        assert kept.var() > 1.5 * renewed.var()
        assert_variance(
            run_chains(wb.SGHMC(0.05, 0.2), target, start, 400, 1),
            sghmc_variance(PRECISION, 0.05, 0.2),
        )


def test_robbins_monro_schedule_decays_and_is_used():
    schedule = wb.RobbinsMonro(scale=0.1, offset=2.0, decay=0.6)
    assert float(schedule(0)) == pytest.approx(0.1 * 2.0**-0.6)
    assert float(schedule(8)) == pytest.approx(0.1 * 10.0**-0.6)
    assert float((schedule * 0.5)(8)) == pytest.approx(0.05 * 10.0**-0.6)
    with jax.enable_x64(True):
        target = gaussian_target()
        draws = run_chains(wb.SGLD(schedule), target, np.zeros((NUM_CHAINS, 2)), 2000, 0)
    eta = float(schedule(2000))
    # The schedule's last step size is small: what is left of the bias is below the bound.
    np.testing.assert_array_less(
        np.abs(draws.var(0) * PRECISION - 1),
        SIGMAS * np.sqrt(2 / NUM_CHAINS) + eta * PRECISION,
    )


def test_hmc_rejects_a_trajectory_that_leaves_the_support():
    model = wb.Model(
        {"u": dist.Normal(0.0, 1.0)},
        total_log_likelihood=lambda p: jnp.where(jnp.abs(p["u"]) < 1, 0.0, -jnp.inf),
    )
    from weighbridge.models.targets.total import Total

    with jax.enable_x64(True):
        target = Target(model, (Total(),))
        start = np.random.default_rng(0).uniform(-0.9, 0.9, size=(2000, 1))
        draws = run_chains(wb.HMC(0.3, 5), target, start, 50, 0)
    assert np.all(np.abs(draws) < 1)
    # The variance of a standard normal cut to [-1, 1] is 0.29112.
    assert abs(draws.var() - 0.29112) < SIGMAS * 0.3 / np.sqrt(2000)
