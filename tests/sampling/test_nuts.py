"""Trajectories that double: the stack against recursion, exact invariance, honest infos."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weighbridge as wb
from weighbridge.sampling.kernels.nuts_trees import _complete, grow, num_uniform
from weighbridge.sampling.kernels.parts.u_turn import ClassicUTurn, GeneralisedUTurn, Node, Virial

COVARIANCE = np.array([[1.0, 0.95], [0.95, 1.0]])
ROOT = np.linalg.cholesky(COVARIANCE)
PRECISION = np.linalg.inv(COVARIANCE)
NUM_CHAINS = 20_000
# Moments of 8 kernels, 5 each: at 4.5 errors a false alarm of the file is below 3e-4.
SIGMAS = 4.5

KERNELS = {
    "generalised": wb.NUTS(0.3),
    "long steps": wb.NUTS(0.55),
    "classic": wb.NUTS(0.3, criterion="classic"),
    "virial": wb.XHMC(0.35, threshold=0.3, max_depth=6),
    "diagonal": wb.NUTS(0.2, scale=np.array([0.7, 1.5])),
    "dense": wb.NUTS(0.9, scale=ROOT),
    "dense classic": wb.NUTS(0.9, scale=ROOT, criterion="classic"),
    "shallow": wb.NUTS(0.1, max_depth=3),
}


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


def normal(position):
    return -0.5 * position @ PRECISION @ position


def skewed(position):
    """A log-gamma in each coordinate, far from any Gaussian: e^u ~ Gamma(2, 1)."""
    return jnp.sum(2.0 * position - jnp.exp(position))


def after(kernel, density, start, seed, num_steps=3):
    """Where chains are some steps after exact draws, and the mean info."""

    @jax.jit
    def run(kernel, keys, start):
        def chain(key, position):
            def step(state, key):
                return kernel.step(key, state, density)

            state, info = jax.lax.scan(
                step, kernel.init(position, density), jax.random.split(key, num_steps)
            )
            return state.position, info

        return jax.vmap(chain)(keys, start)

    kernel = jax.tree_util.tree_map(jnp.asarray, kernel)
    return run(kernel, jax.random.split(jax.random.key(seed), len(start)), start)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_exact_draws_stay_exact(kernel):
    start = np.random.default_rng(1).normal(size=(NUM_CHAINS, 2)) @ ROOT.T
    position, info = after(kernel, normal, start, seed=3)
    white = np.asarray(position) @ np.linalg.inv(ROOT).T
    assert np.all(np.abs(white.mean(0)) * np.sqrt(NUM_CHAINS) < SIGMAS)
    products = np.array([white[:, 0] ** 2, white[:, 1] ** 2, white[:, 0] * white[:, 1]])
    errors = (products.mean(1) - [1, 1, 0]) / np.sqrt(np.array([2, 2, 1]) / NUM_CHAINS)
    assert np.all(np.abs(errors) < SIGMAS), errors
    # Nearly all have moved; the longest steps are beyond what is stable, and right all the same.
    assert np.mean(np.any(np.asarray(position) != start, axis=1)) > 0.7
    # Energy of a point and its momentum: the mean is dimension / 2 twice, the variance dimension.
    energy = np.asarray(info.energy)[:, -1]
    assert abs(energy.mean() - 2.0) < SIGMAS * np.sqrt(2.0 / NUM_CHAINS)


SKEWED = [wb.NUTS(0.5), wb.NUTS(0.5, criterion="classic"), wb.XHMC(0.5, max_depth=5)]


@pytest.mark.long
@pytest.mark.parametrize("kernel", SKEWED)
def test_exact_draws_of_a_skewed_density_stay_exact(kernel):
    generator = np.random.default_rng(2)
    start = np.log(generator.gamma(2.0, size=(NUM_CHAINS, 2)))
    values = np.exp(np.asarray(after(kernel, skewed, start, seed=4)[0]))
    errors = (values.mean(0) - 2.0) / np.sqrt(2.0 / NUM_CHAINS)
    assert np.all(np.abs(errors) < SIGMAS), errors
    # The median of Gamma(2, 1) is 1.67834699.
    below = (values < 1.67834699).mean(0)
    assert np.all(np.abs(below - 0.5) * 2 * np.sqrt(NUM_CHAINS) < SIGMAS), below


def recursive(criterion, leaves):
    """Record of a balanced tree, and whether any subtree of it says stop; as in the papers."""
    if len(leaves) == 1:
        return leaves[0], False
    middle = len(leaves) // 2
    first, one = recursive(criterion, leaves[:middle])
    second, other = recursive(criterion, leaves[middle:])
    record, stop = criterion.merge(first, second)
    return record, one or other or bool(stop)


@pytest.mark.parametrize("criterion", [GeneralisedUTurn(), ClassicUTurn(), Virial(0.3)])
@pytest.mark.parametrize("seed", range(3))
def test_the_stack_does_what_recursion_does(criterion, seed):
    # A slow turn, so that some subtrees stop and others do not.
    angle = np.linspace(0, 2.0 + seed, 16)
    rng = np.random.default_rng(seed)
    momentum = np.stack([np.cos(angle), np.sin(angle)], 1) + 0.2 * rng.normal(size=(16, 2))
    place = np.cumsum(momentum, axis=0)
    gradient = rng.normal(size=(16, 2))
    leaves = [
        criterion.leaf(Node(place[k], place[k], momentum[k], 0.0, gradient[k], -rng.random()))
        for k in range(16)
    ]
    leaves = [jax.tree_util.tree_map(jnp.asarray, leaf) for leaf in leaves]
    stack = jax.tree_util.tree_map(lambda leaf: jnp.zeros((5, *leaf.shape)), leaves[0])
    complete = jax.jit(lambda *args: _complete(*args, criterion))
    stops = []
    for index, leaf in enumerate(leaves):
        stack, record, stop = complete(stack, leaf, jnp.asarray(index))
        stops.append(bool(stop))
        size = (index + 1) & -(index + 1)  # of the largest subtree that ends here
        wanted, _ = recursive(criterion, leaves[index + 1 - size : index + 1])
        for found, expected in zip(record, wanted):
            np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert any(stops) == recursive(criterion, leaves)[1]


@pytest.mark.parametrize("criterion", [GeneralisedUTurn(), ClassicUTurn(), Virial(0.3)])
def test_time_can_be_reversed(criterion):
    rng = np.random.default_rng(0)
    nodes = [Node(*rng.normal(size=(3, 2)), 0.0, rng.normal(size=2), -1.0) for _ in range(2)]
    first, second = (criterion.leaf(node) for node in nodes)
    forwards, stop = criterion.merge(first, second)
    backwards, again = criterion.merge(criterion.reverse(second), criterion.reverse(first))
    assert bool(stop) == bool(again)
    for one, other in zip(criterion.reverse(backwards), forwards):
        np.testing.assert_allclose(one, other)


def test_a_full_turn_is_seen_across_the_middle():
    """Momenta that have come full circle add up to a way that both ends still follow."""
    criterion = GeneralisedUTurn()
    angle = np.deg2rad([-80.0, 10.0, 100.0, 190.0, 280.0, 370.0, 460.0, 550.0])
    momentum = np.stack([np.cos(angle), np.sin(angle)], 1)
    nodes = [Node(m, m, m, 0.0, m, 0.0) for m in momentum]
    assert recursive(criterion, [criterion.leaf(node) for node in nodes])[1]


def test_divergences_and_depths_are_counted():
    start = np.random.default_rng(1).normal(size=(500, 2)) @ ROOT.T
    _, info = after(wb.NUTS(5.0), normal, start, seed=1, num_steps=1)
    assert np.mean(info.divergent) > 0.5
    assert np.mean(info.acceptance) < 0.2
    _, info = after(wb.NUTS(1e-3, max_depth=4), normal, start, seed=1, num_steps=1)
    assert np.all(info.tree_depth == 4)
    assert np.all(info.num_leapfrog == 15)
    assert np.all(info.acceptance > 0.999)


def test_where_the_density_is_not_a_number_nothing_goes():
    def half(position):
        return jnp.where(position[0] > 0, -0.5 * jnp.sum(position**2), jnp.nan)

    start = np.abs(np.random.default_rng(1).normal(size=(2000, 1)))
    position, _ = after(wb.NUTS(0.5), half, start, seed=1, num_steps=5)
    position = np.asarray(position)[:, 0]
    assert np.all(position > 0)
    exact, deviation = np.sqrt(2 / np.pi), np.sqrt(1 - 2 / np.pi)
    assert abs(position.mean() - exact) < SIGMAS * deviation / np.sqrt(2000)


def test_one_uniform_number_chooses_among_all_points_alike():
    """With steps so small that all energies agree, every point of a full tree is as likely."""
    kernel, depth = wb.NUTS(1e-9, max_depth=5), 5
    generator = np.random.default_rng(5)
    uniform = generator.random((40_000, num_uniform(1, depth)))
    state = kernel.init(jnp.zeros(1), lambda u: 0.0 * u[0])

    @jax.jit
    @jax.vmap
    def displacement(uniform):
        # A momentum of its own length, so that displacements count points.
        found, _ = grow(
            uniform.at[0].set(0.9),
            state,
            lambda u: 0.0 * u[0],
            step_size=1e-9,
            scale=1.0,
            criterion=GeneralisedUTurn(),
            max_depth=depth,
        )
        return found.position[0] / 1e-9

    length = 1.2815515655446004  # the quantile 0.9
    points = np.rint(np.asarray(displacement(uniform)) / length).astype(int)
    # All energies are the same, so the last half is always taken, and in it all points alike.
    first, last = np.zeros(40_000), np.zeros(40_000)
    backwards = uniform[:, 1::3] < 0.5
    for doubling in range(depth - 1):
        first -= backwards[:, doubling] * 2**doubling
        last += ~backwards[:, doubling] * 2**doubling
    places = np.where(backwards[:, -1], first - points, points - last).astype(int)
    counts = np.bincount(places, minlength=17)
    assert counts[0] == 0
    expected = 40_000 / 16
    # Chi-square with 15 degrees: beyond 50 once in 80,000 times.
    assert len(counts) == 17
    assert np.sum((counts[1:] - expected) ** 2 / expected) < 50, counts


@pytest.mark.parametrize("bad", [0, 21, 2.5, True])
def test_depths_that_make_no_sense_are_refused(bad):
    with pytest.raises(wb.MethodError, match="max_depth"):
        wb.NUTS(max_depth=bad)


def test_an_unknown_criterion_is_refused():
    with pytest.raises(wb.MethodError, match=r"wb\.XHMC"):
        wb.NUTS(criterion="virial")
