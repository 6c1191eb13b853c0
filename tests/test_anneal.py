"""The annealing core: the schedule by hand, the evidence against exact values."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.estimators.anneal import Cloud, Path, Settings, anneal, choose_increment
from weighbridge.model import draw_positions
from weighbridge.particles import RESAMPLING
from weighbridge.target import Rows

# A false alarm of any single comparison in this file has a probability below 1e-6.
SIGMAS = 5.0
NUM = 20


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


# --- the next power -----------------------------------------------------------------------------

choose = jax.jit(choose_increment)


def next_step(log_likelihood, log_weight=None, target_ess=0.5, remaining=1.0):
    log_weight = np.zeros(len(log_likelihood)) if log_weight is None else log_weight
    step, ess, lowered = choose(
        np.asarray(log_likelihood, float), np.asarray(log_weight, float), target_ess, remaining
    )
    return float(step), float(ess), bool(lowered)


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
    return Cloud(positions, np.zeros((num_islands, num_particles)))


def every_island(rows, num_islands):
    return jax.tree_util.tree_map(
        lambda leaf: np.broadcast_to(leaf, (num_islands, *leaf.shape)), rows
    )


def run_chunks(kernel, chunks, *, settings, seed, scheme="systematic", max_steps=2000):
    """Absorb rows chunk by chunk, with the exact past."""
    cloud = draw_cloud(MODEL, ISLANDS, PARTICLES, seed)
    size = sum(map(len, chunks))
    seen = 0
    for stage, chunk in enumerate(chunks):
        # The past at full length, so that one program serves all stages.
        past = Rows(np.resize(DATA, size), (np.arange(size) < seen).astype(float))
        path = Path(MODEL, (every_island(past, ISLANDS),), Rows(chunk, np.ones(len(chunk))))
        outcome = anneal(
            jax.random.key(seed + 100),
            stage,
            np.arange(ISLANDS),
            cloud,
            lambda step: path,  # noqa: B023
            kernel,
            settings,
            resampling=scheme,
            max_steps=max_steps,
        )
        cloud, seen = outcome.cloud, seen + len(chunk)
    return outcome


def island_ratios(outcome):
    log_weight = np.asarray(outcome.cloud.log_weight)
    return np.exp(log_weight - EXACT).mean(axis=1)


def assert_unbiased(ratios, bias=0.0):
    error = ratios.std(ddof=1) / math.sqrt(len(ratios))
    assert error < 0.03, "the test has power"
    assert abs(ratios.mean() - 1) < SIGMAS * error + bias


@pytest.mark.parametrize(
    ("scheme", "resample_below"), [("systematic", 0.0), *((name, 1.0) for name in RESAMPLING)]
)
def test_a_fixed_schedule_is_unbiased(scheme, resample_below):
    """One step for each chunk of two rows: E[Z-hat] = Z exactly, whatever the moves do."""
    outcome = run_chunks(
        wb.Metropolis(0.8),
        np.split(DATA, 3),
        settings=Settings(0.5, resample_below, 4),
        seed=1,
        scheme=scheme,
        max_steps=1,
    )
    assert len(outcome.steps) == 1
    assert outcome.stalled
    assert bool(np.all(outcome.steps[0].resampled)) == (resample_below == 1.0)
    assert_unbiased(island_ratios(outcome))


@pytest.mark.parametrize("conditional", [0.0, 1.0])
@pytest.mark.parametrize("resample_below", [0.0, 0.7])
def test_an_adaptive_schedule_is_right(conditional, resample_below):
    outcome = run_chunks(
        wb.Metropolis(0.8),
        np.split(DATA, 3),
        settings=Settings(0.6, resample_below, 4, conditional),
        seed=2,
    )
    assert not outcome.stalled
    assert outcome.powers.min() == 1.0
    # Choosing the step by the particles themselves biases by a few times 1 / (10 particles).
    assert_unbiased(island_ratios(outcome), bias=0.03)
    weight = np.exp(np.asarray(outcome.cloud.log_weight) - EXACT)
    position = np.asarray(outcome.cloud.position)[..., 0]
    mean = (weight * position).sum(axis=1)
    total = weight.sum(axis=1)
    expected = DATA.sum() / (len(DATA) + 1)
    # A ratio of sums over islands, with its delta-method error.
    estimate = mean.sum() / total.sum()
    error = np.std(mean - estimate * total) / math.sqrt(ISLANDS) / total.mean()
    assert abs(estimate - expected) < SIGMAS * error + 0.01


def test_hmc_moves_are_right_too():
    outcome = run_chunks(
        wb.HMC(0.3, 4),
        np.split(DATA, 3),
        settings=Settings(0.5, 1.0, 2, rows_past=1.0, rows_chunk=2.0),
        seed=3,
        max_steps=1,
    )
    assert_unbiased(island_ratios(outcome))


# --- islands are their own -----------------------------------------------------------------------


def small_anneal(islands, *, data=DATA, kernel=None, model=MODEL, stage=0, seed=7, **changes):
    """Four islands of eight from here on: one program for each model and kernel."""
    cloud = draw_cloud(model, 8, PARTICLES, seed)
    cloud = Cloud(cloud.position[islands], cloud.log_weight[islands])
    max_steps = changes.pop("max_steps", 2000)
    settings = Settings(0.6, 0.7, 4)._replace(**changes)
    path = Path(model, (), Rows(data, np.ones(len(data))))
    kernel = wb.Metropolis(0.8) if kernel is None else kernel
    return anneal(
        jax.random.key(8),
        stage,
        np.asarray(islands),
        cloud,
        lambda step: path,
        kernel,
        settings,
        max_steps=max_steps,
    )


def test_steps_hit_the_target_except_the_last():
    outcome = small_anneal([0, 1, 2, 3], target_ess=0.8)
    increments = np.stack([step.increment for step in outcome.steps])
    ess = np.stack([step.ess for step in outcome.steps])
    np.testing.assert_allclose(increments.sum(axis=0), 1.0, rtol=1e-12)
    num_steps = (increments > 0).sum(axis=0)
    assert num_steps.min() > 3
    for island in range(4):
        last = num_steps[island] - 1
        np.testing.assert_allclose(ess[:last, island], 0.8 * PARTICLES, rtol=0.01)
        assert ess[last, island] >= 0.8 * PARTICLES * 0.999


@pytest.mark.parametrize("conditional", [0.0, 1.0])
def test_the_ess_counts_carried_weights_only_if_asked(conditional):
    start = draw_cloud(MODEL, 8, PARTICLES, 7).position[:4, :, 0]
    log_weight = np.random.default_rng(0).normal(size=(4, PARTICLES))
    log_weight[:, 3] = -np.inf  # dropped before
    cloud = Cloud(start[..., None], log_weight)
    path = Path(MODEL, (), Rows(DATA, np.ones(len(DATA))))
    settings = Settings(0.6, 0.7, 4, conditional)
    key, kernel = jax.random.key(0), wb.Metropolis(0.8)
    outcome = anneal(key, 0, np.arange(4), cloud, lambda _: path, kernel, settings)
    first = outcome.steps[0]
    for island in range(4):
        residual = DATA - start[island][:, None]
        log_likelihood = np.sum(-0.5 * residual**2 - 0.5 * np.log(2 * np.pi), axis=1)
        level = log_weight[island] if conditional else np.zeros(PARTICLES)
        carried = np.where(np.arange(PARTICLES) == 3, -np.inf, level)
        expected = conditional_ess(first.increment[island], log_likelihood, carried)
        assert first.ess[island] == pytest.approx(expected, rel=1e-9)
        assert first.ess[island] == pytest.approx(0.6 * PARTICLES, rel=0.01)
        grown = np.exp(log_weight[island] + first.increment[island] * log_likelihood)
        assert first.log_evidence[island] == pytest.approx(np.log(grown.mean()), rel=1e-9)
        assert first.carried_ess[island] == pytest.approx(grown.sum() ** 2 / (grown**2).sum())


def test_steps_that_run_out_are_said_to():
    outcome = small_anneal([0, 1, 2, 3], target_ess=0.9, max_steps=2)
    assert outcome.stalled
    assert len(outcome.steps) == 2
    assert outcome.powers.min() == 1.0
    assert np.isfinite(outcome.cloud.log_weight).all()
    assert not small_anneal([0, 1, 2, 3]).stalled


def test_an_island_does_not_depend_on_its_neighbours():
    """Islands that arrive wait, frozen, for the others, whichever these are."""
    first = small_anneal([0, 1, 2, 3])
    lengths = (np.stack([step.increment for step in first.steps]) > 0).sum(axis=0)
    assert len(set(lengths)) > 1, "some islands wait for others"
    slowest = int(np.argmax(lengths))
    for islands in (
        [3, 2, 1, 0],
        [0, 5, 1, 6],
        [2, 7, 4, 3],
        [i for i in range(5) if i != slowest],
    ):
        other = small_anneal(islands)
        for place, island in enumerate(islands):
            if island < 4:
                for before, after in zip(first.cloud, other.cloud):
                    np.testing.assert_allclose(after[place], before[island], rtol=1e-12)
    assert len(np.unique(first.cloud.position)) > 3 * PARTICLES, "islands use their own keys"


def test_stages_and_islands_use_their_own_keys():
    """The same particles at another stage or on another island make another move."""
    path = Path(MODEL, (), Rows(np.zeros(6), np.ones(6)))
    cloud = Cloud(np.zeros((4, PARTICLES, 1)), np.zeros((4, PARTICLES)))

    def positions(stage, islands):
        key, kernel, settings = jax.random.key(0), wb.Metropolis(0.1), Settings(0.6, 0.0, 4)
        outcome = anneal(key, stage, np.array(islands), cloud, lambda _: path, kernel, settings)
        assert len(outcome.steps) == 1
        return np.asarray(outcome.cloud.position).ravel()

    moved = [positions(0, [0, 1, 2, 3]), positions(1, [0, 1, 2, 3]), positions(0, [4, 5, 6, 7])]
    together = np.concatenate(moved)
    # Repeats only where all four proposals of a particle were refused.
    assert np.mean(together == 0) < 0.2
    assert len(np.unique(together)) == np.sum(together != 0) + (0 in together)
    np.testing.assert_array_equal(moved[0], positions(0, [0, 1, 2, 3]))


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
def test_divergent_moves_are_undone_and_counted(resample_below):
    outcome = small_anneal(
        [0, 1, 2, 3],
        kernel=wb.SGHMC(1e200, 0.1),
        resample_below=resample_below,
    )
    assert sum(step.num_diverged.sum() for step in outcome.steps) > 0
    assert np.isfinite(outcome.cloud.position).all()
    assert np.isfinite(outcome.cloud.log_weight).all()


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
    assert any(step.dropped.any() for o in outcomes for step in o.steps)
    assert not any(np.isnan(o.cloud.log_weight).any() for o in outcomes)


@pytest.mark.parametrize("scale", [1e3, 1e150])
def test_weights_never_overflow(scale):
    """Rows so far out that the log-likelihoods are -1e6, or -1e300."""
    outcome = small_anneal([0, 1, 2, 3], data=DATA * scale, kernel=wb.Metropolis(0.3), max_steps=50)
    log_weight = np.asarray(outcome.cloud.log_weight)
    assert not np.isnan(log_weight).any()
    assert (log_weight < -1e5).all()
    assert np.isfinite(log_weight.max(axis=1)).all()
    assert np.isfinite(outcome.cloud.position).all()
