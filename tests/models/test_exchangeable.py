"""One labelling for all particles: the posterior unchanged, one of K! copies, none lost."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.resampling import systematic_indices
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.labels import Labels, one_labelling
from weighbridge.estimators.annealing.moves.kernels import AdaptiveHMC
from weighbridge.estimators.annealing.path import Path
from weighbridge.models.exchangeable import (
    Reference,
    Walls,
    features,
    find_reference,
    in_cell,
    log_num_labellings,
    relabelled,
)
from weighbridge.models.model import unravel_positions
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.span import Span

NUM = 60
MIXTURE = wb.zoo.mixture.model(3, 2)
DATA = wb.zoo.mixture.simulate(40, num_components=3, num_features=2, seed=1)
ORDERS = list(itertools.permutations(range(3)))


def sideways(p, row):
    """A mixture whose components lie along the second axis of its means."""
    heights = jnp.log(p["share"]) - 0.5 * jnp.sum((row[:, None] - p["mean"]) ** 2, axis=0)
    return jax.nn.logsumexp(heights) + p["other"]


# Components along axis 1 of one parameter and axis 0 of another; a third one has none.
SIDEWAYS = wb.Model(
    {
        "other": dist.Normal(0.0, 1.0),
        "mean": dist.Normal(0.0, 3.0).expand([2, 3]).to_event(2),
        "share": dist.Dirichlet(np.ones(3)),
    },
    sideways,
    exchangeable={"mean": 1, "share": 0},
)
MODELS = {"mixture": MIXTURE, "sideways": SIDEWAYS}
every_model = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


def densities(model, position):
    """Log prior in the space of the parameters, log-likelihood, and log density of positions."""
    return tuple(map(np.asarray, _densities(model, position)))


@jax.jit
def _densities(model, position):

    def one(u):
        parameters, log_prior = model.transform(u)
        log_likelihood = jnp.sum(model.row_log_likelihoods(parameters, jnp.asarray(DATA)))
        constrained = sum(jnp.sum(prior.log_prob(parameters[site.name]))
                          for site, prior in model._priors(dict(parameters)))  # fmt: skip
        return constrained, log_likelihood, log_prior + log_likelihood

    return jax.vmap(one)(position)


def anywhere(model, seed=0):
    return np.random.default_rng(seed).normal(0.0, 1.5, (NUM, model.dimension))


_flatten = jax.jit(lambda model, parameters: jax.vmap(model.flatten)(parameters))


def flattened(model, parameters):
    return np.array(_flatten(model, dict(parameters)))


def permuted(model, position, orders):
    """Components of each particle in another order, parameter by parameter."""
    parameters = {k: np.array(v) for k, v in unravel_positions(model, position).items()}
    for name, axis in model.exchangeable:
        for number, order in enumerate(orders):
            parameters[name][number] = np.take(parameters[name][number], order, axis=axis)
    return flattened(model, parameters)


def clear_particles(model, seed=1, num=NUM):
    """Particles around one mode with three clear components."""
    generator = np.random.default_rng(seed)
    centres = np.array([[-4.0, 0.0, 4.0], [1.0, -2.0, 1.0]])
    noise = generator.normal(0.0, 0.3, (num, 2, 3))
    share = generator.dirichlet([20.0, 30.0, 50.0], num)
    if model is SIDEWAYS:
        parameters = {"mean": centres + noise, "share": share, "other": generator.normal(size=num)}
    else:
        means = np.moveaxis(centres + noise, 1, 2)
        scales = np.exp(generator.normal(0.0, 0.2, means.shape))
        parameters = {"weights": share, "mu": means, "s2": scales}
    return flattened(model, parameters)


def random_orders(num, seed=2):
    generator = np.random.default_rng(seed)
    return np.array([generator.permutation(3) for _ in range(num)])


# --- relabelling leaves the posterior as it is ------------------------------------------------


@every_model
def test_relabelled_particles_have_the_density_they_had(name):
    model = MODELS[name]
    position = anywhere(model)
    moved = relabelled(model, position, find_reference(model, position, 0))
    changed = ~np.isclose(moved, position).all(axis=1)
    assert 0.5 * NUM < changed.sum() < NUM, "some are in order, most are not"
    before, after = densities(model, position), densities(model, moved)
    np.testing.assert_allclose(after[0], before[0], rtol=1e-8)
    np.testing.assert_allclose(after[1], before[1], rtol=1e-8)


@every_model
def test_components_are_permuted_whole(name):
    """Each particle has the components that it had, and all else as it was."""
    model = MODELS[name]
    position = anywhere(model)
    moved = relabelled(model, position, find_reference(model, position, 0))
    for old, new in zip(features(model, position), features(model, moved)):
        order = [int(np.argmin(np.abs(old - component).sum(axis=1))) for component in new]
        assert sorted(order) == [0, 1, 2]
        np.testing.assert_allclose(new, old[order], rtol=1e-9)
    if model is SIDEWAYS:
        np.testing.assert_array_equal(moved[:, 0], position[:, 0])


@every_model
def test_relabelling_preserves_the_posterior_measure(name):
    """f(u) du = f(u') du', also where shares of components are coordinates of a stick-breaking."""
    model = MODELS[name]
    position = anywhere(model, seed=4)
    reference = find_reference(model, position, 0)
    moved = relabelled(model, position, reference)
    changed = np.flatnonzero(~np.isclose(moved, position).all(axis=1))[:3]
    before, after = densities(model, position)[2], densities(model, moved)[2]
    step = 1e-5 * np.eye(model.dimension)
    for number in changed:
        around = np.concatenate([position[number] + step, position[number] - step])
        ahead, behind = np.split(relabelled(model, around, reference), 2)
        log_volume = np.linalg.slogdet((ahead - behind) / 2e-5)[1]
        assert after[number] + log_volume == pytest.approx(before[number], abs=1e-5)
    assert len(changed) == 3


@every_model
@pytest.mark.parametrize("agree", [False, True], ids=["none agree", "most agree"])
def test_permuted_particles_are_brought_back(name, agree):
    model = MODELS[name]
    position = clear_particles(model)
    orders = random_orders(NUM)
    if agree:  # nine in ten are labelled alike: no example is needed
        orders[np.arange(NUM) % 10 > 0] = [2, 0, 1]
    mixed = permuted(model, position, orders)
    reference = find_reference(model, mixed, None if agree else 7)
    found = relabelled(model, mixed, reference)
    common = orders[1] if agree else orders[7]
    np.testing.assert_allclose(found, permuted(model, position, [common] * NUM), atol=1e-8)
    assert in_cell(model, found, reference).all()
    assert not in_cell(model, mixed, reference).all()
    np.testing.assert_array_equal(relabelled(model, found, reference), found)


def test_the_reference_is_middle_and_spread_of_components():
    position = clear_particles(SIDEWAYS, num=400)
    reference = find_reference(SIDEWAYS, position)
    # Features of a component: its two means, then its share.
    np.testing.assert_allclose(reference.middle[:, :2], [[-4, 1], [0, -2], [4, 1]], atol=0.1)
    np.testing.assert_allclose(reference.middle[:, 2], [0.2, 0.3, 0.5], atol=0.02)
    np.testing.assert_allclose(reference.spread[:, :2], 0.3, rtol=0.25)


def test_the_assignment_has_the_least_cost():
    generator = np.random.default_rng(5)
    reference = Reference(generator.normal(size=(3, 2)), generator.uniform(0.5, 2.0, (3, 2)))
    components = generator.normal(size=(50, 3, 2))
    found = reference.assign(components)
    for mine, order in zip(components, found):
        costs = [
            np.sum(((mine[list(other)] - reference.middle) / reference.spread) ** 2)
            for other in ORDERS
        ]
        assert tuple(order) == ORDERS[int(np.argmin(costs))]


def test_particles_at_the_edge_of_the_prior_stay_where_they_are():
    """A variance that overflows has no unconstrained value to be moved to."""
    position = clear_particles(MIXTURE)
    mixed = permuted(MIXTURE, position, random_orders(NUM))
    site = next(site for site in MIXTURE.sites if site.name == "s2")
    mixed[5:20, site.start] = 800.0
    reference = find_reference(MIXTURE, mixed, 0)
    found = relabelled(MIXTURE, mixed, reference)
    np.testing.assert_array_equal(found[5:20], mixed[5:20])
    assert not in_cell(MIXTURE, found[5:20], reference).all()
    others = np.delete(found, range(5, 20), axis=0)
    assert in_cell(MIXTURE, others, reference).all()


@pytest.mark.parametrize("coordinate", [-34.0, -50.0])
def test_particles_with_an_empty_component_keep_their_density(coordinate):
    """As over-fitted mixtures with sparse weights have them: shares of 1e-15 or 1e-22."""
    mixed = permuted(SIDEWAYS, clear_particles(SIDEWAYS), random_orders(NUM))
    site = next(site for site in SIDEWAYS.sites if site.name == "share")
    mixed[5:20, site.start] = coordinate
    moved = relabelled(SIDEWAYS, mixed, find_reference(SIDEWAYS, mixed, 0))
    before, after = densities(SIDEWAYS, mixed)[2], densities(SIDEWAYS, moved)[2]
    np.testing.assert_allclose(after, before, atol=1e-3)


# --- one of K! cells -------------------------------------------------------------------------


@every_model
def test_each_particle_is_in_the_cell_under_one_labelling(name):
    model = MODELS[name]
    position = anywhere(model, seed=3)
    reference = find_reference(model, position, 0)
    copies = [permuted(model, position, [order] * NUM) for order in ORDERS]
    inside = np.array([in_cell(model, copy, reference) for copy in copies])
    np.testing.assert_array_equal(inside.sum(axis=0), 1)
    the_one = np.array(copies)[inside.argmax(axis=0), np.arange(NUM)]
    np.testing.assert_allclose(relabelled(model, position, reference), the_one, atol=1e-7)


def test_the_cell_counts_all_labellings_and_nothing_outside():
    position = clear_particles(SIDEWAYS)
    mixed = permuted(SIDEWAYS, position, random_orders(NUM)).reshape(4, -1, SIDEWAYS.dimension)
    log_weight = np.random.default_rng(6).normal(size=mixed.shape[:2])
    cloud = Cloud(jnp.asarray(mixed), jnp.asarray(log_weight), jnp.zeros(mixed.shape[:2], int))
    found, cell = one_labelling(SIDEWAYS, cloud, agreed=False)
    np.testing.assert_array_equal(found.log_weight, log_weight)
    # All are labelled as the heaviest of them, which stays as it is.
    heaviest = np.unravel_index(np.argmax(log_weight), log_weight.shape)
    np.testing.assert_allclose(found.position[heaviest], mixed[heaviest], atol=1e-8)
    np.testing.assert_allclose(cell(np.asarray(found.position)), math.log(6))
    alike = np.isclose(mixed, found.position).all(axis=-1)
    assert 0 < alike.sum() < alike.size
    np.testing.assert_array_equal(np.isfinite(cell(mixed)), alike)
    assert (cell(mixed)[~alike] == -np.inf).all()
    linear = wb.zoo.linear.model(2)
    assert one_labelling(linear, cloud) == (cloud, None)


def test_number_of_labellings():
    assert log_num_labellings(wb.zoo.linear.model(2)) == 0.0
    for model in MODELS.values():
        assert log_num_labellings(model) == pytest.approx(math.log(6))
    assert log_num_labellings(wb.zoo.mixture.model(5)) == pytest.approx(math.log(120))
    assert log_num_labellings(wb.zoo.mixture.model(1)) == 0.0


def uneven(p, y):
    return jax.nn.logsumexp(jnp.log(p["share"]) - 0.5 * (y - p["mu"]) ** 2)


UNEVEN = wb.Model(
    {
        "mu": dist.Normal(0.0, 1.5).expand([2]).to_event(1),
        "share": dist.Dirichlet(np.array([1.5, 1.5])),
    },
    uneven,
    exchangeable={"mu": 0, "share": 0},
)


def test_one_cell_times_the_labellings_is_the_whole_integral():
    """By a grid over the unconstrained coordinates of two components, Jacobian included."""
    model = UNEVEN
    data = jnp.array([-0.7, 0.2, 1.5, 1.1])
    axes = [np.linspace(-6, 6, 41)] * 2 + [np.linspace(-8, 8, 40)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)

    @jax.jit
    def density(u):
        parameters, log_prior = model.transform(u)
        return jnp.exp(log_prior + jnp.sum(model.row_log_likelihoods(parameters, data)))

    heights = np.asarray(jax.vmap(density)(grid))
    generator = np.random.default_rng(0)
    for _ in range(2):
        # Whatever the reference is: its cell is one of two halves, of whatever shape.
        reference = Reference(generator.normal(size=(2, 2)), generator.uniform(0.5, 2.0, (2, 2)))
        inside = in_cell(model, grid, reference)
        assert 0.3 < inside.mean() < 0.7
        log_cell = np.log(np.sum(heights[inside])) + log_num_labellings(model)
        assert log_cell == pytest.approx(np.log(np.sum(heights)), abs=1e-10)


# --- moves within the cell -------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("num_components", [1, 2, 5, 7])
def test_walls_are_where_the_best_labelling_changes(num_components):
    model = wb.zoo.mixture.model(num_components, 2)
    generator = np.random.default_rng(num_components)
    position = generator.normal(size=(400, model.dimension))
    reference = find_reference(model, position, 0)
    position[::2] = relabelled(model, position, reference)[::2]
    walls = Walls(*reference, standing=1.0)
    found = np.asarray(jax.vmap(lambda u: walls.allow(model, u))(position))
    np.testing.assert_array_equal(found, in_cell(model, position, reference))
    assert found[::2].all()
    assert num_components == 1 or not found.all()
    down = Walls(*reference, standing=0.0)
    assert np.asarray(jax.vmap(lambda u: down.allow(model, u))(position)).all()


def posterior_draws(rows, num_islands, num_particles):
    """Of the uneven model, by importance resampling of many draws from its prior."""
    keys = jax.random.split(jax.random.key(1), 400_000)
    draws = jax.vmap(UNEVEN.draw)(keys)
    heights = jax.vmap(lambda u: rows(UNEVEN, u, UNEVEN.transform(u)[0]))(draws)
    heights = np.random.default_rng(0).permutation(np.stack([np.arange(len(draws)), heights]).T)
    count = num_islands * num_particles
    chosen = systematic_indices(0.5, np.asarray(heights[:, 1]), count)
    chosen = heights[chosen, 0].astype(int)
    return np.asarray(draws)[np.random.default_rng(1).permutation(chosen)].reshape(
        num_islands, num_particles, -1
    )


def gaps(position):
    """Something that does not depend on the labels, of all particles."""
    mu = np.asarray(unravel_positions(UNEVEN, position.reshape(-1, 3))["mu"])
    return np.abs(mu[:, 0] - mu[:, 1])


@pytest.mark.long
def test_moves_that_know_the_labels_leave_the_posterior_as_it_is():
    """Labels overlap here: moves that leave the cell and are relabelled would be biased."""
    data = np.resize([-0.7, 0.2, 1.5, 1.1], 64)
    rows = Span(Rows(data, (np.arange(64) < 4).astype(float)), 0, 64)
    draws = posterior_draws(rows, 16, 1024)
    empty = np.zeros(draws.shape[:2])
    labels = Labels(UNEVEN)
    cloud = Cloud(draws, empty, empty.astype(int))
    assert labels.follow(cloud) is cloud  # labels cannot be told apart
    cloud = labels.follow(cloud, must=True)
    before = gaps(cloud.position)
    np.testing.assert_allclose(before, gaps(draws))
    path = labels.within(Path(UNEVEN, (), rows))
    key_data = np.random.default_rng(2).integers(0, 2**32, (16, 2), np.uint32)
    mover = AdaptiveHMC(step_size=0.4, num_moves=12, trajectory=1.6)
    moved, info, *_ = mover.move(key_data, cloud, path, 1.0)
    after = gaps(moved)
    assert info.correlation < 0.5
    assert np.asarray(path.permits(cloud.position, moved)).all()
    error = math.hypot(np.std(before), np.std(after)) / math.sqrt(len(after))
    assert abs(after.mean() - before.mean()) < 4 * error


def test_labels_that_can_be_told_apart_are():
    position = clear_particles(SIDEWAYS)
    reference = find_reference(SIDEWAYS, position, 0)
    assert reference.is_distinct(features(SIDEWAYS, relabelled(SIDEWAYS, position, reference)))
    wide = anywhere(SIDEWAYS, seed=3)
    reference = find_reference(SIDEWAYS, wide, 0)
    assert not reference.is_distinct(features(SIDEWAYS, relabelled(SIDEWAYS, wide, reference)))
    mixed = permuted(SIDEWAYS, position, random_orders(NUM)).reshape(4, -1, SIDEWAYS.dimension)
    empty = jnp.zeros(mixed.shape[:2])
    labels = Labels(SIDEWAYS)
    cloud = Cloud(jnp.asarray(mixed), empty, empty.astype(int))
    assert Labels(SIDEWAYS, possible=False).follow(cloud) is cloud
    found = labels.follow(cloud).position
    assert labels.standing
    inside = jax.vmap(lambda u: labels.walls.allow(SIDEWAYS, u))
    assert np.asarray(inside(found.reshape(-1, SIDEWAYS.dimension))).all()
