"""Movers: HMC that tunes itself, against a posterior in closed form."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.estimators.annealing.cloud import Cloud, draw_cloud
from weighbridge.estimators.annealing.loop import PathSeed, anneal
from weighbridge.estimators.annealing.moves.forgetting import memory, remembered
from weighbridge.estimators.annealing.moves.kernels import AdaptiveHMC, Repeat, average
from weighbridge.estimators.annealing.moves.scales import others_scale, particle_scale
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.reweighting import Settings
from weighbridge.models.targets.rows import Rows

# A false alarm of any single comparison in this file has a probability below 1e-6.
SIGMAS = 5.0
SEEDS = (0, 1, 2)
ISLANDS, PARTICLES = 16, 64
NUM_ROWS = 40
MODEL = wb.zoo.linear.model(3)


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


def correlated_data(seed=0):
    """Features that nearly repeat each other, on different scales: a long thin posterior."""
    rng = np.random.default_rng(seed)
    mix = np.array([[1.0, 0.95, 0.0], [0.0, 0.3, 0.0], [0.0, 0.0, 4.0]])
    features = rng.normal(size=(NUM_ROWS, 3)) @ mix + np.array([0.0, 0.0, 2.0])
    target = features @ np.array([0.8, -0.4, 0.3]) + 0.5 + rng.normal(size=NUM_ROWS)
    return {"x": features, "y": target}


DATA = correlated_data()
SETTINGS = Settings(0.5, 0.5)


def posterior():
    """Mean and covariance of (w, b): the prior is standard, the noise is 1."""
    design = np.column_stack([DATA["x"], np.ones(NUM_ROWS)])
    covariance = np.linalg.inv(np.eye(4) + design.T @ design)
    return covariance @ design.T @ DATA["y"], covariance


def run(seed, mover=None, *, data=DATA, model=MODEL, settings=SETTINGS):
    cloud = draw_cloud(model, jax.random.key(seed), np.arange(ISLANDS), PARTICLES)
    path = Path(model, (), Rows(data, np.ones(NUM_ROWS)))
    mover = AdaptiveHMC() if mover is None else mover
    return anneal(PathSeed(seed, 0, np.arange(ISLANDS)), cloud, lambda _: path, mover, settings)


@pytest.fixture(scope="module")
def outcomes():
    with jax.enable_x64(True):
        return [run(seed) for seed in SEEDS]


# --- adaptive HMC against exact values ------------------------------------------------------


def test_the_posterior_is_long_and_thin():
    scales = np.linalg.eigvalsh(posterior()[1])
    correlation = posterior()[1][0, 1] / np.sqrt(posterior()[1][0, 0] * posterior()[1][1, 1])
    assert scales[-1] > 100 * scales[0]
    assert abs(correlation) > 0.9


def test_the_evidence_is_right(outcomes):
    """E[Z-hat] = Z up to what the tuning costs, which is of order 1 / (1,024 particles)."""
    exact = wb.zoo.linear.log_evidence(DATA)
    ratios = np.exp([np.asarray(o.steps[-1].log_evidence) - exact for o in outcomes])
    assert ratios.shape == (len(SEEDS), ISLANDS)
    for island_ratios in (*ratios, ratios.ravel()):
        error = island_ratios.std(ddof=1) / math.sqrt(len(island_ratios))
        # Sixteen islands: a Student-t with 15 degrees has its 1e-6 at 7.6 deviations.
        sigmas = 7.6 if len(island_ratios) == ISLANDS else 5.6
        assert abs(island_ratios.mean() - 1) < sigmas * error
        assert error < 0.15, "the test has power"
    for outcome in outcomes:
        np.testing.assert_allclose(
            np.log(np.exp(np.asarray(outcome.cloud.log_weight) - exact).mean(axis=1)),
            outcome.steps[-1].log_evidence - exact,
            atol=1e-9,
        )


def test_the_posterior_is_right(outcomes):
    """Mean and covariance, in coordinates in which the posterior is standard."""
    mean, covariance = posterior()
    root = np.linalg.cholesky(covariance)
    draws, share = [], []
    for outcome in outcomes:
        position = np.asarray(outcome.cloud.position) - mean
        draws.append(np.linalg.solve(root, position.reshape(-1, 4).T).T)
        log_weight = np.asarray(outcome.cloud.log_weight)
        weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
        share.append((weight / weight.sum(axis=1, keepdims=True)).ravel())
    draws, share = np.concatenate(draws), np.concatenate(share)
    share = share / share.sum()
    # Copies have parted by less than all when moves stop, at a correlation of 0.1: neither they
    # nor the ratio of sums within an island (of order 1 / 64, a sixth of a deviation) matter.
    effective = 1 / np.sum(share**2)
    assert effective > 1000
    np.testing.assert_array_less(np.abs(share @ draws), SIGMAS / math.sqrt(effective))
    found = (draws * share[:, None]).T @ draws
    # Variances of products of standard normals: 2 on the diagonal, 1 beside it.
    error = np.sqrt((1 + np.eye(4)) / effective)
    np.testing.assert_array_less(np.abs(found - np.eye(4)), SIGMAS * error)


def test_the_step_size_settles_where_the_acceptance_is_on_target(outcomes):
    for outcome in outcomes:
        assert len(outcome.steps) > 4
        info = [step.moves for step in outcome.steps]
        late = info[len(info) // 2 :]
        assert all(0.6 < float(move.acceptance) < 0.95 for move in late)
        sizes = np.array([float(move.step_size) for move in late])
        assert sizes.max() < 2 * sizes.min()
        assert float(outcome.mover.step_size) == float(info[-1].step_size)
        assert all(move.divergent == 0 for move in info)


@pytest.mark.parametrize("step_size", [0.01, 2.0])
def test_a_poor_first_step_size_does_not_matter(outcomes, step_size):
    outcome = run(0, AdaptiveHMC(step_size=step_size))
    assert float(outcome.steps[-1].moves.acceptance) == pytest.approx(0.8, abs=0.15)
    usual = float(outcomes[0].mover.step_size)
    assert float(outcome.mover.step_size) == pytest.approx(usual, rel=0.4)


def test_a_higher_target_takes_smaller_steps():
    sizes, accepted = [], []
    for target in (0.65, 0.8, 0.95):
        outcome = run(0, AdaptiveHMC(target_acceptance=target))
        sizes.append(np.mean([float(s.moves.step_size) for s in outcome.steps[2:]]))
        accepted.append(np.mean([float(s.moves.acceptance) for s in outcome.steps[2:]]))
    assert np.all(np.diff(sizes) < 0)
    assert np.all(np.diff(accepted) > 0)


def test_the_next_moves_are_as_many_as_would_have_been_enough(outcomes):
    """Decided before they are made, from how much was forgotten at the power before."""
    for outcome in outcomes:
        following = []
        for step in outcome.steps:
            moves = step.moves
            # A chain that forgets a fixed share on each move would have come this far.
            rate = math.log(np.clip(moves.lingering, 0.01, 0.99)) / moves.num_moves
            least = 2 if moves.correlation > 0.1 else 1
            following.append(np.clip(math.ceil(math.log(0.1) / rate), least, 10))
        assert [int(step.moves.num_moves) for step in outcome.steps] == [4, *following[:-1]]
        assert int(outcome.mover.num_moves) == following[-1]
        assert len(set(following)) > 1
    correlations = [step.moves.correlation for outcome in outcomes for step in outcome.steps]
    assert np.mean(correlations) < 0.2
    bounded = run(0, AdaptiveHMC(num_moves=2, max_moves=2, decorrelated=1e-9))
    assert {int(step.moves.num_moves) for step in bounded.steps} == {2}


def test_a_run_is_deterministic_and_islands_differ(outcomes):
    again = run(0)
    for first, second in zip(outcomes[0].cloud, again.cloud):
        np.testing.assert_array_equal(first, second)
    assert outcomes[0].powers == again.powers
    for outcome in outcomes:
        position = np.asarray(outcome.cloud.position)
        assert len(np.unique(position[..., 0])) > 0.95 * position[..., 0].size
    assert len(np.unique(outcomes[0].steps[-1].log_evidence)) == ISLANDS


TRACES = []


def bounded(p, y):
    """y ~ U(0, mu)."""
    TRACES.append(1)
    return jnp.where(y < p["mu"], -jnp.log(p["mu"]), -jnp.inf)


BOUNDED = wb.Model({"mu": dist.Uniform(0.0, 2.0)}, bounded)
BELOW = np.full(NUM_ROWS, 1.2)


@pytest.fixture(scope="module")
def among_impossible(compiled):
    with jax.enable_x64(True):
        return run(0, model=BOUNDED, data=BELOW)


def test_particles_without_weight_do_not_count(among_impossible):
    """Impossible particles neither steer the metric nor turn anything into NaN."""
    exact = math.log((1.2 ** (1 - NUM_ROWS) - 2.0 ** (1 - NUM_ROWS)) / (2 * (NUM_ROWS - 1)))
    outcome = among_impossible
    assert outcome.steps[0].num_infinite.sum() > 0.5 * ISLANDS * PARTICLES
    assert np.isfinite(outcome.cloud.position).all()
    assert not np.isnan(outcome.cloud.log_weight).any()
    assert math.isfinite(outcome.mover.step_size)
    ratios = np.exp(outcome.steps[-1].log_evidence - exact)
    assert abs(ratios.mean() - 1) < 7.6 * ratios.std(ddof=1) / math.sqrt(ISLANDS)
    assert ratios.std(ddof=1) < 1


# --- one program ------------------------------------------------------------------------------


def test_changing_numbers_compiles_nothing(compiled, among_impossible):
    """One program for the first step, for those with a tuned mover, and for other numbers."""
    before = len(compiled)
    first = run(0, dataclasses.replace(AdaptiveHMC(), dense=False), model=BOUNDED, data=BELOW)
    assert len(first.steps) > 1
    assert sorted(set(compiled[before:])) == ["jit(_moves)"]
    num_traces, num_compiled = len(TRACES), len(compiled)
    assert num_traces > 0
    run(1, first.mover, model=BOUNDED, data=BELOW / 2)
    other = AdaptiveHMC(0.3, 2, 1.2, 0.7, 5, 0.2, dense=False)
    run(2, other, model=BOUNDED, data=BELOW, settings=Settings(0.5, 0.5, schedule=[0.1, 1.0]))
    run(3, other, model=BOUNDED, data=BELOW, settings=Settings(0.9, 0.0, 0.0, max_steps=3))
    assert len(TRACES) == num_traces
    assert compiled[num_compiled:] == []


# --- the metric -----------------------------------------------------------------------------------


def weighted_cloud(dimension=3, num_islands=4, num_particles=12, seed=0):
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(dimension, dimension))
    position = rng.normal(size=(num_islands, num_particles, dimension)) @ mix + 5.0
    # Islands of very different evidence, and some particles without weight, far out.
    log_weight = (
        rng.normal(size=(num_islands, num_particles)) - 100 * np.arange(num_islands)[:, None]
    )
    log_weight[:, ::5] = -np.inf
    position[:, ::5] = 1e9
    origin = np.broadcast_to(np.arange(num_particles), log_weight.shape)
    return Cloud(position, log_weight, origin)


def direct_moments(cloud):
    """Islands alike, particles by their weight: variances, covariance and effective number."""
    values, shares = [], []
    for position, log_weight in zip(np.asarray(cloud.position), np.asarray(cloud.log_weight)):
        alive = np.isfinite(log_weight)
        if alive.any():
            weight = np.exp(log_weight[alive] - log_weight[alive].max())
            values.append(position[alive])
            shares.append(weight / weight.sum())
    values, shares = np.concatenate(values), np.concatenate(shares) / len(shares)
    covariance = np.cov(values.T, aweights=shares, ddof=0).reshape(values.shape[1], -1)
    return covariance, 1 / np.sum(shares**2)


def trust_in(effective, dimension):
    """Weight of the full matrix: all of it from four effective particles a dimension on."""
    return 1.0 if effective >= 4 * dimension else effective / (effective + dimension)


@pytest.mark.parametrize("dimension", [1, 3, 8, 30])
def test_the_metric_is_the_covariance_shrunk_where_particles_are_few(dimension):
    cloud = weighted_cloud(dimension)
    covariance, effective = direct_moments(cloud)
    variance = np.diag(covariance)
    diagonal = np.asarray(particle_scale(cloud, dense=False))
    np.testing.assert_allclose(diagonal, np.sqrt(variance), rtol=1e-9)
    root = np.asarray(particle_scale(cloud, dense=True))
    assert root.shape == (dimension, dimension)
    np.testing.assert_array_equal(root, np.tril(root))
    trust = trust_in(effective, dimension)
    assert trust == 1.0 if dimension <= 3 else 0.1 < trust < 0.8
    expected = trust * covariance + (1 - trust) * np.diag(variance)
    size = np.sqrt(np.outer(variance, variance))
    np.testing.assert_allclose(root @ root.T / size, expected / size, atol=1e-9)


def test_the_metric_at_its_limits():
    cloud = weighted_cloud()
    # An island without weight counts for nothing.
    dead = np.asarray(cloud.log_weight).copy()
    dead[1] = -np.inf
    cloud = cloud._replace(log_weight=dead)
    covariance, effective = direct_moments(cloud)
    trust = trust_in(effective, 3)
    root = np.asarray(particle_scale(cloud, dense=True))
    expected = trust * covariance + (1 - trust) * np.diag(np.diag(covariance))
    np.testing.assert_allclose(root @ root.T, expected, rtol=1e-8)
    # Coordinates on which all particles agree, or which repeat another, leave it regular.
    position = np.asarray(cloud.position).copy()
    position[..., 1] = 7.0
    position[..., 2] = -3.0 * position[..., 0]
    cloud = cloud._replace(position=position)
    root = np.asarray(particle_scale(cloud, dense=True))
    assert np.isfinite(root).all()
    assert (np.diag(root) > 0).all()
    assert np.asarray(particle_scale(cloud, dense=False))[1] == pytest.approx(1.0)


@pytest.mark.parametrize("num_islands", [2, 4, 5])
@pytest.mark.parametrize("dense", [True, False])
def test_an_island_does_not_steer_its_own_metric(num_islands, dense):
    cloud = weighted_cloud(num_islands=num_islands)
    scale = np.asarray(others_scale(cloud, dense=dense))
    assert len(scale) == num_islands
    for island in range(num_islands):
        others = [other for other in range(num_islands) if (other - island) % 2]
        rest = Cloud(*(leaf[np.array(others)] for leaf in cloud))
        np.testing.assert_allclose(scale[island], particle_scale(rest, dense=dense), rtol=1e-9)
    alone = Cloud(*(leaf[:1] for leaf in cloud))
    expected = particle_scale(alone, dense=dense)
    np.testing.assert_array_equal(others_scale(alone, dense=dense), expected[None])


# --- memory --------------------------------------------------------------------------------


def mean_memory(start, end, alive):
    return float(np.mean(remembered(alive, start, end)))


def test_what_is_remembered():
    rng = np.random.default_rng(0)
    start, other = rng.normal(size=(2, 8, 500, 3)) * np.array([1.0, 1e3, 1e-3]) + 1e3
    alive = np.ones((8, 500), bool)
    assert mean_memory(start, start, alive) == pytest.approx(1.0, rel=1e-9)
    # A turned sign is as much of a memory, and so is any other scale or place.
    assert mean_memory(start, 5.0 - 2.0 * start, alive) == pytest.approx(1.0, rel=1e-9)
    # |correlation| of independent values: mean sqrt(2 / (pi n)), deviation below 1 / sqrt(n).
    num = alive.size
    bound = math.sqrt(2 / (math.pi * num)) + SIGMAS / math.sqrt(3 * num)
    assert mean_memory(start, other, alive) < bound
    half = 0.6 * (start - 1e3) + 0.8 * (other - 1e3)
    assert mean_memory(start, half, alive) == pytest.approx(0.6, abs=SIGMAS * 0.64 / num**0.5)
    # One coordinate of three that stays.
    stuck = np.concatenate([start[..., :1], other[..., 1:]], axis=-1)
    assert mean_memory(start, stuck, alive) == pytest.approx(1 / 3, abs=bound)
    # Those without weight do not count, wherever they are.
    alive[:, ::2] = False
    other[:, ::2] = start[:, ::2] = 1e6
    assert mean_memory(start, other, alive) < 2 * bound
    # Where nothing varies nothing can be forgotten.
    assert mean_memory(np.ones_like(start), other, alive) == 1.0


@pytest.mark.parametrize("stays", [0.0, 0.7, 0.97], ids="{:.0%} stays".format)
@pytest.mark.parametrize("num_moves", [2, 3, 5, 10])
def test_what_fades_is_told_from_what_stays(num_moves, stays):
    """Within modes a coordinate forgets by a factor 0.6 on each move; the modes are for ever."""
    rng = np.random.default_rng(0)
    shape = (8, 4000, 2)
    mode = math.sqrt(stays) * rng.choice([-1.0, 1.0], shape)
    within = rng.normal(size=shape)
    states = [within]
    for _ in range(num_moves):
        states.append(0.6 * states[-1] + 0.8 * rng.normal(size=shape))
    states = [mode + math.sqrt(1 - stays) * state for state in states]
    alive = np.ones(shape[:2], bool)
    found = memory(states[0], states[num_moves // 2], states[-1], alive, num_moves)
    correlation, lingering = (float(np.mean(values)) for values in found)
    # Errors of correlations over 32,000 particles; the rate comes from differences of two of them.
    assert correlation == pytest.approx(stays + (1 - stays) * 0.6**num_moves, abs=0.02)
    assert lingering ** (1 / num_moves) == pytest.approx(0.6, abs=0.1)
    assert lingering <= correlation


def test_where_nothing_moves_nothing_fades():
    start = np.random.default_rng(0).normal(size=(4, 100, 2))
    alive = np.ones((4, 100), bool)
    for num_moves in (1, 2, 5):
        _, lingering = memory(start, start, start, alive, num_moves)
        assert np.all(lingering > 0.99)


def test_particles_in_separate_modes_do_not_move_for_ever():
    """Two narrow modes far apart: each is mixed well, and no move goes from one to the other."""

    def two(p):
        apart = jnp.array([-1.0, 1.0])
        return jax.nn.logsumexp(-0.5 * ((p["x"] - apart) / 0.01) ** 2)

    model = wb.Model({"x": dist.Normal(0.0, 1.0)}, total_log_likelihood=two)
    method = wb.SMC(moves=AdaptiveHMC(max_moves=40))
    found = [wb.evidence(model, None, method, seed=seed).diagnostics for seed in SEEDS]
    assert all(f["correlation"][-1] > 0.99 for f in found)
    # By the correlation alone it would be 40, from the first step that has separate modes on.
    assert np.median(np.concatenate([f["num_moves"][3:] for f in found])) < 20


# --- repeated moves ------------------------------------------------------------------------


def test_averages_count_only_what_counts():
    values = np.array([[1.0, 3.0, np.nan], [np.inf, 5.0, 7.0], [1.0, 2.0, 3.0]])
    counted = np.array([[True, True, False], [False, True, True], [False, False, False]])
    np.testing.assert_allclose(average({"of": values}, counted)["of"], [2.0, 6.0, 0.0])


def test_repeated_moves_are_scaled_to_the_rows():
    """At power lambda the step size is that of one row over sqrt(past + lambda chunk)."""
    cloud = draw_cloud(MODEL, jax.random.key(0), np.arange(4), 8)
    path = Path(MODEL, (), Rows(DATA, np.ones(NUM_ROWS)))
    key_data = np.arange(8, dtype=np.uint32).reshape(4, 2)
    plain = Repeat(wb.Metropolis(0.05), 3)
    scaled = Repeat(wb.Metropolis(0.05 * 4.0), 3, rows_past=1.0, rows_chunk=30.0)
    first, info, same, stable = plain.move(key_data, cloud, path, 0.5)
    second, *_ = scaled.move(key_data, cloud, path, 0.5)
    np.testing.assert_allclose(first, second, rtol=1e-9)
    assert not np.array_equal(first, cloud.position)
    assert same == plain
    assert info.acceptance.shape == (4,)
    assert stable.all()
