"""The annealing core: the schedule by hand, the evidence against exact values."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.resampling import RESAMPLING
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.loop import PathSeed, anneal
from weighbridge.estimators.annealing.moves.kernels import Repeat
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.powers import search_increment
from weighbridge.estimators.annealing.reweighting import Settings
from weighbridge.estimators.annealing.step import anneal_step, move_keys, patient_step
from weighbridge.models.model import draw_positions
from weighbridge.models.targets.rows import Rows

# A false alarm of any single comparison in this file has a probability below 1e-6.
SIGMAS = 5.0
NUM = 20


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


# --- the next power -----------------------------------------------------------------------------


def next_step(log_likelihood, log_weight=None, target_ess=0.5, remaining=1.0):
    """Of one island."""
    log_likelihood = np.asarray(log_likelihood, float)[None]
    log_weight = np.zeros(log_likelihood.shape) if log_weight is None else log_weight[None]
    step, ess, lowered, _ = search_increment(log_likelihood, log_weight, target_ess, remaining)
    assert ess.shape == (1,)
    return step, float(ess[0]), lowered


def conditional_ess(step, log_likelihood, log_weight):
    """M (sum W w)^2 / sum W w^2, by NumPy in the plain scale."""
    alive = np.isfinite(log_likelihood) & np.isfinite(log_weight)
    share = np.exp(log_weight - np.max(log_weight))
    share = share / share.sum()
    top = log_likelihood[alive].max()
    height = np.where(alive, log_likelihood, top) - top
    grown = np.where(alive, np.exp(step * height), 0.0)
    return len(share) * (share @ grown) ** 2 / (share @ grown**2)


LOG_LIKELIHOODS = {
    "plain": 30 * np.random.default_rng(0).normal(size=NUM),
    "skewed": -(np.random.default_rng(1).exponential(size=NUM) ** 4) * 1e4,
    "at -1e6": -1e6 + 300 * np.random.default_rng(2).normal(size=NUM),
    "spread 1e6": 1e6 * np.random.default_rng(3).normal(size=NUM),
    "some at -inf": np.append(np.full(4, -np.inf), 30 * np.random.default_rng(4).normal(size=16)),
    "one far below": np.append(np.random.default_rng(5).normal(size=19) * 20, -1e300),
    "spread 1e300": np.linspace(-1e300, 1e300, NUM),
}
CARRIED = {
    "even": np.zeros(NUM),
    "uneven": np.random.default_rng(6).normal(size=NUM) - 1e3,
    "some dropped": np.where(np.arange(NUM) % 5 == 2, -np.inf, np.linspace(0, 1, NUM)),
}


@pytest.mark.parametrize("carried", CARRIED)
@pytest.mark.parametrize("name", LOG_LIKELIHOODS)
@pytest.mark.parametrize("target_ess", [0.3, 0.6])
def test_the_step_meets_the_target(name, carried, target_ess):
    log_likelihood, log_weight = LOG_LIKELIHOODS[name], CARRIED[carried]
    step, ess, lowered = next_step(log_likelihood, log_weight, target_ess)
    assert 0 < step < 1
    assert not lowered
    assert ess == pytest.approx(target_ess * NUM, rel=0.01)
    assert conditional_ess(step, log_likelihood, log_weight) == pytest.approx(ess, rel=1e-6)


@pytest.mark.parametrize("target_ess", [0.5, 0.7, 0.98])
@pytest.mark.parametrize("dimension", [1, 4, 50])
def test_the_search_takes_few_tries(dimension, target_ess):
    """As log-likelihoods are where the posterior is a Gaussian; bisection took 42."""
    for seed in range(5):
        log_likelihood = -1e3 * np.random.default_rng(seed).chisquare(dimension, (8, 64))
        found = search_increment(log_likelihood, np.zeros((8, 64)), target_ess, 1.0)
        assert found.num_trials <= 14
        assert float(np.mean(found.ess)) == pytest.approx(64 * target_ess, rel=1e-9)


@pytest.mark.parametrize("carried", CARRIED)
@pytest.mark.parametrize("target_ess", [0.3, 0.6])
def test_islands_meet_the_target_on_average(carried, target_ess):
    """One step for all: easy islands have more than the target, hard ones less."""
    log_likelihood = np.stack([LOG_LIKELIHOODS["plain"] * scale for scale in (0.3, 1.0, 1.0, 4.0)])
    log_weight = np.stack([CARRIED[carried], CARRIED[carried] - 50, np.zeros(NUM), np.zeros(NUM)])
    step, ess, lowered, _ = search_increment(log_likelihood, log_weight, target_ess, 1.0)
    assert 0 < step < 1
    assert not lowered
    expected = [conditional_ess(float(step), *island) for island in zip(log_likelihood, log_weight)]
    np.testing.assert_allclose(ess, expected, rtol=1e-6)
    assert np.mean(ess) == pytest.approx(target_ess * NUM, rel=1e-6)
    assert ess[0] > 1.1 * target_ess * NUM
    assert ess[3] < 0.9 * target_ess * NUM


def test_an_island_without_finite_particles_lowers_what_can_be_reached():
    """Three of four islands have nothing: a quarter is left, and half of it is the target."""
    log_likelihood = np.full((4, NUM), -np.inf)
    log_likelihood[2] = LOG_LIKELIHOODS["plain"]
    step, ess, lowered, _ = search_increment(log_likelihood, np.zeros((4, NUM)), 0.5, 1.0)
    assert lowered
    assert float(step) == pytest.approx(next_step(log_likelihood[2])[0], rel=1e-9)
    np.testing.assert_allclose(ess, [0, 0, NUM / 2, 0], rtol=1e-6)


def test_a_higher_target_gives_a_smaller_step():
    log_likelihood = LOG_LIKELIHOODS["plain"]
    steps = [next_step(log_likelihood, target_ess=t)[0] for t in (0.2, 0.4, 0.6, 0.8, 0.95)]
    assert np.all(np.diff(steps) < 0)


def test_the_step_scales_with_the_log_likelihood_and_not_with_its_level():
    log_likelihood = LOG_LIKELIHOODS["plain"]
    step = next_step(log_likelihood)[0]
    assert next_step(log_likelihood * 10)[0] == pytest.approx(step / 10, rel=1e-8)
    assert next_step(log_likelihood - 1e6)[0] == pytest.approx(step, rel=1e-6)


def test_what_remains_bounds_the_step():
    log_likelihood = LOG_LIKELIHOODS["plain"]
    step, ess, _ = next_step(log_likelihood)
    bounded, more, _ = next_step(log_likelihood, remaining=step / 2)
    assert bounded == step / 2
    assert more > ess
    assert next_step(log_likelihood, remaining=0.9)[0] == pytest.approx(step, rel=1e-9)


@pytest.mark.parametrize("level", [0.0, -1e6, -1e300])
def test_equal_log_likelihoods_take_the_whole_step(level):
    step, ess, lowered = next_step(np.full(NUM, level), remaining=0.7)
    assert step == 0.7
    assert ess == pytest.approx(NUM)
    assert not lowered


def test_too_few_finite_particles_lower_the_target():
    log_likelihood = np.full(NUM, -np.inf)
    log_likelihood[:4] = [0.0, -50.0, -100.0, -150.0]
    step, ess, lowered = next_step(log_likelihood)
    assert lowered
    # Four are left; half of them is the target.
    assert ess == pytest.approx(2.0, rel=0.01)
    assert 1e-3 < step < 1


def test_one_finite_particle_takes_the_whole_step():
    log_likelihood = np.full(NUM, -np.inf)
    log_likelihood[7] = -1e6
    step, ess, lowered = next_step(log_likelihood)
    assert (step, lowered) == (1.0, True)
    assert ess == pytest.approx(1.0)


def test_no_finite_particle_ends_the_search():
    step, _, _ = next_step(np.full(NUM, -np.inf))
    assert step == 1.0


# --- from prior to posterior ----------------------------------------------------------------------

MODEL = wb.zoo.gaussian.model()
DATA = np.array([1.2, 2.5, 0.4, 1.9, 3.0, 1.1])
EXACT = wb.zoo.gaussian.log_evidence(DATA)
ISLANDS, PARTICLES = 1000, 8


def draw_cloud(model, num_islands, num_particles, seed):
    positions = draw_positions(model, jax.random.key(seed), num_islands * num_particles)
    positions = np.asarray(positions).reshape(num_islands, num_particles, -1)
    return as_cloud(positions)


def as_cloud(position, log_weight=None):
    shape = position.shape[:2]
    log_weight = np.zeros(shape) if log_weight is None else log_weight
    return Cloud(position, log_weight, np.broadcast_to(np.arange(shape[1]), shape))


def run_chunks(mover, chunks, *, settings, seed):
    """Absorb rows chunk by chunk, with the exact past."""
    cloud = draw_cloud(MODEL, ISLANDS, PARTICLES, seed)
    size = sum(map(len, chunks))
    seen = 0
    for stage, chunk in enumerate(chunks):
        # The past at full length, so that one program serves all stages.
        past = Rows(np.resize(DATA, size), (np.arange(size) < seen).astype(float))
        path = Path(MODEL, (past,), Rows(chunk, np.ones(len(chunk))))
        outcome = anneal(
            PathSeed(seed + 100, stage, np.arange(ISLANDS)),
            cloud,
            lambda step: path,  # noqa: B023
            mover,
            settings,
        )
        cloud, seen = outcome.cloud, seen + len(chunk)
    return outcome


def island_ratios(outcome):
    log_weight = np.asarray(outcome.cloud.log_weight)
    return np.exp(log_weight - EXACT).mean(axis=1)


def assert_unbiased(ratios):
    error = ratios.std(ddof=1) / math.sqrt(len(ratios))
    assert error < 0.03, "the test has power"
    assert abs(ratios.mean() - 1) < SIGMAS * error


@pytest.mark.parametrize(
    ("scheme", "resample_below"), [("systematic", 0.0), *((name, 1.1) for name in RESAMPLING)]
)
def test_a_fixed_schedule_is_unbiased(scheme, resample_below):
    """Two steps for each chunk of two rows: E[Z-hat] = Z exactly, whatever the moves do."""
    outcome = run_chunks(
        Repeat(wb.Metropolis(0.8), 4),
        np.split(DATA, 3),
        settings=Settings(0.5, resample_below, resampling=scheme, schedule=np.array([0.4, 1.0])),
        seed=1,
    )
    assert outcome.powers == [0.0, 0.4, 1.0]
    assert [float(step.increment) for step in outcome.steps] == pytest.approx([0.4, 0.6])
    assert not any(step.dropped for step in outcome.steps)
    assert not outcome.stalled
    for step in outcome.steps:
        assert bool(np.all(step.resampled)) == bool(np.any(step.resampled)) == (resample_below > 1)
    assert_unbiased(island_ratios(outcome))


@pytest.mark.parametrize("conditional", [0.0, 1.0])
@pytest.mark.parametrize("resample_below", [0.0, 0.7])
def test_an_adaptive_schedule_is_right(conditional, resample_below):
    outcome = run_chunks(
        Repeat(wb.Metropolis(0.8), 4),
        np.split(DATA, 3),
        settings=Settings(0.9, resample_below, conditional),
        seed=2,
    )
    assert not outcome.stalled
    assert len(outcome.steps) > 1
    assert outcome.powers[-1] == 1.0
    # The islands choose the steps together: what that biases is below 1 / (8,000 particles).
    assert_unbiased(island_ratios(outcome))
    weight = np.exp(np.asarray(outcome.cloud.log_weight) - EXACT)
    position = np.asarray(outcome.cloud.position)[..., 0]
    mean = (weight * position).sum(axis=1)
    total = weight.sum(axis=1)
    expected = DATA.sum() / (len(DATA) + 1)
    # A ratio of sums over islands, with its delta-method error.
    estimate = mean.sum() / total.sum()
    error = np.std(mean - estimate * total) / math.sqrt(ISLANDS) / total.mean()
    assert abs(estimate - expected) < SIGMAS * error
    assert error < 0.02


def test_hmc_moves_are_right_too():
    outcome = run_chunks(
        Repeat(wb.HMC(0.3, 4), 2, rows_past=1.0, rows_chunk=2.0),
        np.split(DATA, 3),
        settings=Settings(0.5, 1.1, schedule=np.array([1.0])),
        seed=3,
    )
    assert len(outcome.steps) == 1
    assert_unbiased(island_ratios(outcome))


def test_stepping_stones_add_up_to_the_evidence():
    """Increments are those of log Z; over their steps they integrate the mean log-likelihood."""
    outcome = run_chunks(
        Repeat(wb.Metropolis(0.8), 4), [DATA], settings=Settings(0.98, 0.7), seed=4
    )
    increments = np.stack([step.log_increment for step in outcome.steps])
    final = np.log(np.exp(np.asarray(outcome.cloud.log_weight)).mean(axis=1))
    np.testing.assert_allclose(increments.sum(axis=0), final, rtol=1e-9)
    np.testing.assert_allclose(outcome.steps[-1].log_evidence, final, rtol=1e-9)
    # d log Z / d lambda = E_lambda[l]; here in closed form, at every power of the schedule.
    power = np.array(outcome.powers[:-1])
    precision = 1 + power * len(DATA)
    centre = power * DATA.sum() / precision
    square = ((DATA - centre[:, None]) ** 2).sum(axis=1)
    expected = -0.5 * (square + len(DATA) / precision) - 0.5 * len(DATA) * math.log(2 * math.pi)
    curve = (DATA.sum() - len(DATA) * centre) ** 2 / precision + 0.5 * (len(DATA) / precision) ** 2
    found = np.stack([step.mean for step in outcome.steps])
    spread = np.stack([step.variance for step in outcome.steps])
    # An island's own weights bias it by a share of the deviation over its eight particles.
    error = np.sqrt(curve / (ISLANDS * PARTICLES))
    np.testing.assert_array_less(np.abs(found[0].mean() - expected[0]), SIGMAS * error[0])
    np.testing.assert_array_less(np.abs(found.mean(axis=1) - expected), 0.15 * np.sqrt(curve))
    # The sample variance of eight lies 1/8 below, and of fewer effective ones further.
    ratio = spread.mean(axis=1) / curve
    assert ratio[0] == pytest.approx(7 / 8, rel=0.1)
    assert ((ratio > 0.5) & (ratio < 1.1)).all()


# --- islands are their own -----------------------------------------------------------------------


def small_anneal(islands, *, data=DATA, kernel=None, model=MODEL, seed=7, **changes):
    """Four islands of eight from here on: one program for each model and kernel."""
    cloud = changes.pop("cloud", None) or as_cloud(
        draw_cloud(model, 8, PARTICLES, seed).position[islands]
    )
    stage, take_step = changes.pop("stage", 0), changes.pop("take_step", anneal_step)
    settings = Settings(0.6, 0.7)._replace(**changes)
    path = Path(model, (), Rows(data, np.ones(len(data))))
    mover = Repeat(wb.Metropolis(0.8) if kernel is None else kernel, 4)
    of_path = PathSeed(8, stage, np.asarray(islands))
    return anneal(of_path, cloud, lambda step: path, mover, settings, take_step=take_step)


def test_steps_hit_the_target_except_the_last():
    outcome = small_anneal([0, 1, 2, 3], target_ess=0.8)
    increments = [float(step.increment) for step in outcome.steps]
    assert outcome.powers[0] == 0.0
    assert outcome.powers[-1] == 1.0
    np.testing.assert_allclose(np.diff(outcome.powers), increments, rtol=1e-9)
    assert min(increments) > 0
    assert len(increments) > 3
    ess = np.stack([step.ess for step in outcome.steps])
    assert ess.shape == (len(increments), 4)
    np.testing.assert_allclose(ess[:-1].mean(axis=1), 0.8 * PARTICLES, rtol=1e-6)
    assert ess[-1].mean() >= 0.8 * PARTICLES * 0.999


@pytest.mark.parametrize("resampled", [False, True])
def test_patient_particles_move_only_if_some_were_resampled(resampled):
    islands, start = [0, 1, 2, 3], draw_cloud(MODEL, 8, PARTICLES, 7).position[:4]
    outcome = small_anneal(
        islands,
        schedule=np.array([0.02]),
        take_step=patient_step,
        resample_below=2.0 if resampled else 0.0,
    )
    assert outcome.steps[0].resampled.all() == resampled
    assert np.array_equal(outcome.cloud.position, start) != resampled
    assert (outcome.steps[0].moves != ()) == resampled


def test_patient_particles_have_no_chains():
    """What has not moved has no states to keep: the two cannot be asked for together."""
    with pytest.raises(TypeError, match="chain_length"):
        small_anneal([0, 1, 2, 3], take_step=partial(patient_step, chain_length=4))


@pytest.mark.parametrize("conditional", [0.0, 1.0])
def test_the_ess_counts_carried_weights_only_if_asked(conditional):
    start = draw_cloud(MODEL, 8, PARTICLES, 7).position[:4, :, 0]
    log_weight = np.random.default_rng(0).normal(size=(4, PARTICLES))
    log_weight[:, 3] = -np.inf  # dropped before
    cloud = as_cloud(start[..., None], log_weight)
    first = small_anneal([0, 1, 2, 3], cloud=cloud, conditional=conditional).steps[0]
    for island in range(4):
        residual = DATA - start[island][:, None]
        log_likelihood = np.sum(-0.5 * residual**2 - 0.5 * np.log(2 * np.pi), axis=1)
        level = log_weight[island] if conditional else np.zeros(PARTICLES)
        carried = np.where(np.arange(PARTICLES) == 3, -np.inf, level)
        expected = conditional_ess(first.increment, log_likelihood, carried)
        assert first.ess[island] == pytest.approx(expected, rel=1e-9)
        grown = np.exp(log_weight[island] + first.increment * log_likelihood)
        log_evidence = np.log(grown.mean())
        before = np.log(np.exp(log_weight[island]).mean())
        assert first.log_evidence[island] == pytest.approx(log_evidence, rel=1e-9)
        assert first.log_increment[island] == pytest.approx(log_evidence - before, rel=1e-9)
        assert first.carried_ess[island] == pytest.approx(grown.sum() ** 2 / (grown**2).sum())
        share = np.exp(log_weight[island]) / np.exp(log_weight[island]).sum()
        assert first.mean[island] == pytest.approx(share @ log_likelihood, rel=1e-9)
        variance = share @ (log_likelihood - share @ log_likelihood) ** 2
        assert first.variance[island] == pytest.approx(variance, rel=1e-9)
    assert first.ess.mean() == pytest.approx(0.6 * PARTICLES, rel=1e-6)


def test_steps_that_run_out_are_said_to():
    outcome = small_anneal([0, 1, 2, 3], target_ess=0.9, max_steps=2)
    assert outcome.stalled
    assert len(outcome.steps) == 2
    assert outcome.powers[-1] == 1.0
    assert np.isfinite(outcome.cloud.log_weight).all()
    assert not small_anneal([0, 1, 2, 3]).stalled


SCHEDULE = np.array([0.1, 0.3, 1.0])


def test_given_the_schedule_an_island_does_not_depend_on_its_neighbours():
    """Islands share the schedule and nothing else, wherever the others are."""
    first = small_anneal([0, 1, 2, 3], schedule=SCHEDULE)
    assert first.powers == [0.0, *SCHEDULE]
    assert any(step.resampled.any() for step in first.steps)
    other_cloud = as_cloud(
        np.concatenate([draw_cloud(MODEL, 8, PARTICLES, 7).position[:1], np.full((3, 8, 1), 9.0)])
    )
    other = small_anneal([0, 1, 2, 3], schedule=SCHEDULE, cloud=other_cloud)
    for before, after in zip(first.cloud, other.cloud):
        np.testing.assert_allclose(after[0], before[0], rtol=1e-12)
    assert not np.allclose(first.cloud.position[1:], other.cloud.position[1:])
    # Without a schedule the neighbours have their say.
    powers = [small_anneal([0, 1, 2, 3], **of).powers for of in ({}, {"cloud": other_cloud})]
    assert powers[0] != powers[1]


def test_islands_rounds_stages_and_seeds_have_their_own_numbers():
    """From the same particles islands go different ways, and so do rounds with other islands."""
    cloud = as_cloud(np.zeros((4, PARTICLES, 1)))

    def ends(islands=(0, 1, 2, 3), **changes):
        outcome = small_anneal(list(islands), cloud=cloud, schedule=SCHEDULE, **changes)
        return np.asarray(outcome.cloud.position).reshape(4, -1)

    first = ends()
    np.testing.assert_array_equal(first, ends())
    found = np.concatenate([first, ends((4, 5, 6, 7)), ends((1, 2, 3, 4)), ends(stage=1)])
    # Copies from resampling repeat within an island, refused proposals repeat the start.
    moved = [set(island) - {0.0} for island in found]
    assert min(map(len, moved)) >= 3
    assert sum(map(len, moved)) == len(set.union(*moved)), "no number is on two islands"


def test_keys_never_repeat():
    names = [
        (seed, stage, step, first)
        for seed in (0, 1, 2**63 - 1)
        for stage in (0, 1)
        for step in (0, 1, 2)
        for first in (0, 1, 4)
    ]

    def drawn(seed, stage, step, first):
        """The keys of a step's moves, as it draws them, and then a number for resampling."""
        numbers = PathSeed(seed, stage, np.array([first])).numbers(step)
        return move_keys(numbers, 4), numbers.random()

    found = [drawn(*name) for name in names]
    keys = [key for key, _ in found]
    assert keys[0].shape == (4, 2)
    assert keys[0].dtype == np.uint32
    assert len(np.unique(np.concatenate(keys), axis=0)) == len(names) * 4
    assert len({uniform for _, uniform in found}) == len(names)
    np.testing.assert_array_equal(keys[0], drawn(*names[0])[0])


def test_origins_name_the_ancestors():
    """Without moves a particle is its ancestor."""
    start = draw_cloud(MODEL, 8, PARTICLES, 7).position[:4]
    path = Path(MODEL, (), Rows(DATA, np.ones(len(DATA))))
    still = Repeat(wb.Metropolis(0.0), 1)
    outcome = anneal(
        PathSeed(0, 0, np.arange(4)), as_cloud(start), lambda _: path, still, Settings(0.6, 0.7)
    )
    origin = np.asarray(outcome.cloud.origin)
    np.testing.assert_array_equal(
        outcome.cloud.position, np.take_along_axis(start, origin[..., None], axis=1)
    )
    resampled = np.any([step.resampled for step in outcome.steps], axis=0)
    assert resampled.any()
    for island in range(4):
        assert (len(set(origin[island])) < PARTICLES) == resampled[island]


# --- what goes wrong is counted, and never a NaN ------------------------------------------------


def bounded(p, y):
    """y ~ U(0, mu); a negative row is not a number where mu < 1/2, and -1 elsewhere."""
    value = jnp.where(y < p["mu"], -jnp.log(p["mu"]), -jnp.inf)
    return jnp.where(y >= 0, value, jnp.where(p["mu"] < 0.5, jnp.nan, -1.0))


BOUNDED = wb.Model({"mu": dist.Uniform(0.0, 2.0)}, bounded)


def test_undefined_likelihoods_become_drops():
    outcome = small_anneal([0, 1, 2, 3], model=BOUNDED, data=np.array([-1.0, 0.1]))
    start = draw_cloud(BOUNDED, 8, PARTICLES, 7).position[:4, :, 0]
    undefined = (start < np.log(0.25 / 0.75)).sum(axis=1)  # mu = 2 / (1 + exp(-u))
    assert undefined.sum() > 0
    np.testing.assert_array_equal(outcome.steps[0].num_undefined, undefined)
    np.testing.assert_array_equal(outcome.steps[0].num_infinite, undefined)
    assert np.isfinite(outcome.cloud.position).all()
    assert np.isfinite(outcome.cloud.log_weight.max(axis=1)).all()
    assert not np.isnan(outcome.cloud.log_weight).any()


@pytest.mark.parametrize("resample_below", [0.0, 0.7])
@pytest.mark.parametrize("step_size", [2.0, 1e200])
def test_divergent_moves_are_undone_and_counted(resample_below, step_size):
    outcome = small_anneal(
        [0, 1, 2, 3], kernel=wb.SGHMC(step_size, 0.1), resample_below=resample_below
    )
    diverged = sum(step.num_diverged.sum() for step in outcome.steps)
    all_moves = 4 * PARTICLES * len(outcome.steps)
    assert diverged == all_moves if step_size > 1e3 else 0 < diverged < all_moves
    assert np.isfinite(outcome.cloud.position).all()
    assert np.isfinite(outcome.cloud.log_weight).all()
    # What was undone is no heat; who stayed has fallen by less than a thousand nats.
    assert max(step.moves.temperature.max() for step in outcome.steps) < 1e4


def test_a_likelihood_with_bounded_support_loses_the_right_share():
    """Particles below the largest row have density zero: three quarters of the prior."""
    outcomes = [
        small_anneal([0, 1, 2, 3], model=BOUNDED, data=np.array([1.5, 0.2]), seed=seed)
        for seed in range(40)
    ]
    # Z = 1/2 int_1.5^2 mu^-2 dmu = (1/1.5 - 1/2) / 2.
    exact = (1 / 1.5 - 1 / 2) / 2
    ratios = np.concatenate(
        [np.exp(np.asarray(o.cloud.log_weight)).mean(axis=1) / exact for o in outcomes]
    )
    error = ratios.std(ddof=1) / math.sqrt(len(ratios))
    assert abs(ratios.mean() - 1) < SIGMAS * error
    assert error < 0.08
    assert any(step.dropped for o in outcomes for step in o.steps)
    assert not any(np.isnan(o.cloud.log_weight).any() for o in outcomes)


def test_an_island_without_weight_stays_without():
    log_weight = np.zeros((4, PARTICLES))
    log_weight[1] = -np.inf
    cloud = as_cloud(draw_cloud(MODEL, 8, PARTICLES, 7).position[:4], log_weight)
    outcome = small_anneal([0, 1, 2, 3], cloud=cloud)
    for step in outcome.steps:
        assert step.log_increment[1] == step.log_evidence[1] == -np.inf
        assert step.ess[1] == step.carried_ess[1] == 0
        for value in jax.tree_util.tree_leaves(step):
            assert not np.isnan(value).any()
    assert np.isfinite(outcome.cloud.position).all()
    assert np.isfinite(np.delete(outcome.cloud.log_weight, 1, axis=0)).all()
    assert (np.asarray(outcome.cloud.log_weight)[1] == -np.inf).all()


@pytest.mark.parametrize("scale", [1e3, 1e150])
def test_weights_never_overflow(scale):
    """Rows so far out that the log-likelihoods are -1e6, or -1e300."""
    outcome = small_anneal([0, 1, 2, 3], data=DATA * scale, kernel=wb.Metropolis(0.3), max_steps=50)
    log_weight = np.asarray(outcome.cloud.log_weight)
    assert not np.isnan(log_weight).any()
    assert (log_weight < -1e5).all()
    assert np.isfinite(log_weight.max(axis=1)).all()
    assert np.isfinite(outcome.cloud.position).all()
