"""Moves without gradients, waste-free resampling and unadjusted moves, against exact evidence."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from benchmarks import problems
from weighbridge.estimators.annealing.cloud import draw_cloud
from weighbridge.estimators.annealing.loop import PathSeed, anneal
from weighbridge.estimators.annealing.moves.walks import evaluate
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.reweighting import Settings
from weighbridge.estimators.annealing.step import anneal_step
from weighbridge.models.targets.batches import Batches
from weighbridge.models.targets.rows import Rows

pytestmark = pytest.mark.long

# |z| of a calibrated estimate is Student-t with 15 degrees: beyond 5 in one of 6,000 cases.
BOUND = 5.0
SEEDS = (1, 2, 3)
SMALL = {"num_islands": 16, "num_particles": 32}
MOVES = ("random_walk", "slice", "stretch")
GAUSSIAN = problems.gaussian()
PROBLEMS = {
    "gaussian": GAUSSIAN,
    "beta": problems.beta_bernoulli(),
    "shells": problems.shells(2),
}


def z_scores(problem, method, seeds=SEEDS):
    """Of several runs, which must not be flagged."""
    results = [wb.evidence(problem.model, problem.data, method, seed=seed) for seed in seeds]
    assert all(result.status is wb.Status.OK for result in results)
    return np.array([(r.log_evidence - problem.log_evidence) / r.std_error for r in results])


def path_scores(problem, method, seeds):
    """Of the paths alone."""
    results = [wb.evidence(problem.model, problem.data, method, seed=seed) for seed in seeds]
    found = [(r.diagnostics["path_log_evidence"], r.diagnostics["path_error"]) for r in results]
    return np.array([(value - problem.log_evidence) / error for value, error in found])


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("moves", MOVES)
def test_every_move_is_right_within_its_error(moves, problem):
    z = z_scores(PROBLEMS[problem], wb.SMC(**SMALL, moves=moves))
    assert np.all(np.abs(z) < BOUND)
    # An average of three t-distributed values; a wrong constant of 0.3 nats would be seen.
    assert abs(z.mean()) < 3.5


@pytest.mark.parametrize("method", [wb.AIS(**SMALL, moves="slice"), wb.Thermodynamic(**SMALL)])
def test_other_methods_take_them_too(method):
    z = z_scores(GAUSSIAN, dataclasses.replace(method, moves="slice"))
    assert np.all(np.abs(z) < BOUND)


# --- tuning ---------------------------------------------------------------------------------

NUM_ROWS = 40
LINEAR = wb.zoo.linear.model(3)


def correlated_data(seed=0):
    """Features that nearly repeat each other, on different scales: a long thin posterior."""
    rng = np.random.default_rng(seed)
    mix = np.array([[1.0, 0.95, 0.0], [0.0, 0.3, 0.0], [0.0, 0.0, 4.0]])
    features = rng.normal(size=(NUM_ROWS, 3)) @ mix + np.array([0.0, 0.0, 2.0])
    target = features @ np.array([0.8, -0.4, 0.3]) + 0.5 + rng.normal(size=NUM_ROWS)
    return {"x": features, "y": target}


DATA = correlated_data()


@pytest.fixture(scope="module")
def tuned():
    method = wb.SMC(num_islands=16, num_particles=64)
    return {
        moves: wb.evidence(LINEAR, DATA, dataclasses.replace(method, moves=moves), seed=1)
        for moves in MOVES
    }


@pytest.mark.parametrize("moves", MOVES)
def test_a_long_thin_posterior_is_found(tuned, moves):
    result = tuned[moves]
    assert result.status is wb.Status.OK
    assert abs(result.log_evidence - wb.zoo.linear.log_evidence(DATA)) < BOUND * result.std_error
    design = np.column_stack([DATA["x"], np.ones(NUM_ROWS)])
    covariance = np.linalg.inv(np.eye(4) + design.T @ design)
    mean = covariance @ design.T @ DATA["y"]
    draws = np.column_stack([result.samples["w"], result.samples["b"]]) - mean
    standard = np.linalg.solve(np.linalg.cholesky(covariance), draws.T).T
    share = np.exp(result.log_weights)
    # Copies from resampling that moves have not quite parted: count a third of all as independent.
    error = np.sqrt(3 * np.sum(share**2))
    assert error < 0.08
    assert np.all(np.abs(share @ standard) < 5 * error)
    found = (standard * share[:, None]).T @ standard
    assert np.all(np.abs(found - np.eye(4)) < 5 * error * np.sqrt(1 + np.eye(4)))


@pytest.mark.parametrize("moves", MOVES)
def test_steps_and_their_number_are_tuned(tuned, moves):
    diagnostics = tuned[moves].diagnostics
    acceptance, count = diagnostics["acceptance"], diagnostics["num_moves"]
    # A random walk in four dimensions is best at 0.234 + 0.206 / 4; a slice has nothing to refuse.
    best = 1.0 if moves == "slice" else 0.2855
    np.testing.assert_allclose(acceptance[len(acceptance) // 2 :], best, atol=0.06)
    # Each number follows from what was remembered at the power before.
    rate = np.log(np.clip(diagnostics["lingering"], 0.01, 0.99)) / count
    least = np.where(diagnostics["correlation"] > 0.3, 2, 1)
    expected = np.clip(np.ceil(np.log(0.3) / rate), least, 45)
    np.testing.assert_array_equal(count[1:], expected[:-1])
    assert count[0] == {"slice": 12}.get(moves, 16)
    assert np.median(diagnostics["correlation"][1:]) < 0.45


def test_a_mover_of_ones_own():
    mover = wb.AdaptiveWalk(wb.Metropolis(20.0), num_moves=30, max_moves=3, dense=False)
    result = wb.evidence(GAUSSIAN.model, GAUSSIAN.data, wb.SMC(**SMALL, moves=mover), seed=1)
    assert result.diagnostics["num_moves"].tolist()[:2] == [30, 3]
    # Steps that were far too long have found their size within the first thirty moves.
    assert result.diagnostics["acceptance"][-1] == pytest.approx(0.44, abs=0.1)


def test_an_island_moves_by_its_own_numbers_and_others_metric():
    """The density at the end is that of the position, and past and common terms are in it."""
    with jax.enable_x64(True):
        cloud = draw_cloud(LINEAR, jax.random.key(0), np.arange(4), 16)
        weight = np.ones(NUM_ROWS)
        chunk, common = Rows(DATA, weight), Rows(DATA, 0.5 * weight)
        stacked = jax.tree_util.tree_map(
            lambda leaf: np.stack([[leaf * k] for k in range(4)]), chunk
        )
        batches = Batches(stacked, np.ones(4), np.zeros(4, int))
        path = Path(LINEAR, (batches, common), chunk)
        point = evaluate(path, jnp.asarray(0.3), cloud.position)
        for island in range(4):
            own = jax.tree_util.tree_map(lambda leaf: leaf[island], batches)  # noqa: B023
            target = Path(LINEAR, (own, common), chunk).target(jnp.asarray(0.3))
            expected = jax.vmap(target)(cloud.position[island])
            np.testing.assert_allclose(point.log_density[island], expected, rtol=1e-10)
        np.testing.assert_allclose(
            point.note, jax.vmap(jax.vmap(path.chunk_log_likelihood))(cloud.position), rtol=1e-10
        )


def test_given_the_tuning_stretch_moves_islands_apart():
    """An island moves by its own particles alone: others may be anywhere."""
    mover = wb.AdaptiveWalk(wb.Stretch(), num_moves=2)
    path = Path(GAUSSIAN.model, (), Rows(GAUSSIAN.data, np.ones(100)))
    with jax.enable_x64(True):
        cloud = draw_cloud(GAUSSIAN.model, jax.random.key(0), np.arange(4), 16)

        @jax.jit
        def ask(position, setting):
            tally = mover.begin(mover.start(position, path, jnp.asarray(0.1)))
            walk = mover.propose(jax.random.key(1), 0, tally, setting)
            return mover.lift(lambda walk: walk.ask())(walk)

        setting = mover.setting(cloud, cloud)
        first = np.asarray(ask(cloud.position, setting))
        elsewhere = cloud.position + np.array([0.0, 5.0, 5.0, 5.0])[:, None, None]
        other = np.asarray(ask(elsewhere, setting))
    np.testing.assert_array_equal(first[0], other[0])
    assert np.all(first[1:] != other[1:])


# --- one program, the same numbers ---------------------------------------------------------


@pytest.mark.parametrize("moves", MOVES)
def test_a_second_run_traces_nothing_and_a_seed_gives_its_numbers(moves):
    traces = []

    def log_likelihood(p, y):
        traces.append(1)
        return dist.Normal(p["mu"], 1.0).log_prob(y)

    model = wb.Model({"mu": dist.Normal(0.0, 1.0)}, log_likelihood)
    method = wb.SMC(num_islands=4, num_particles=8, moves=moves)
    first = wb.evidence(model, np.zeros(97), method, seed=1)
    before = len(traces)
    again = wb.evidence(model, np.zeros(97), method, seed=1)
    other = wb.evidence(model, np.ones(100), dataclasses.replace(method, target_ess=0.7), seed=2)
    # The check of the row function traces it twice for each; the compiled programs do not.
    assert len(traces) - before <= 4
    assert first.log_evidence == again.log_evidence != other.log_evidence
    np.testing.assert_array_equal(first.samples["mu"], again.samples["mu"])


# --- waste-free ------------------------------------------------------------------------------


@pytest.mark.parametrize("moves", ["hmc", "random_walk"])
def test_waste_free_is_calibrated(moves):
    """32 chains of 8 states: |mean z| of 24 runs is beyond 1 once in 500,000, if all is right."""
    method = wb.SMC(num_particles=256, waste_free=True, moves=moves)
    assert np.all(np.abs(z_scores(GAUSSIAN, method)) < BOUND)
    # The bridge is exact on a Gaussian: it is the path that waste-free resampling makes.
    z = path_scores(GAUSSIAN, method, seeds=range(24))
    assert np.all(np.abs(z) < BOUND)
    assert abs(z.mean()) < 1.0
    assert 0.6 < z.std() < 1.5


def test_waste_free_keeps_every_state_of_few_chains():
    method = wb.SMC(num_particles=40, waste_free=5, moves="slice")
    result = wb.evidence(GAUSSIAN.model, GAUSSIAN.data, method, seed=1)
    draws = result.samples["mu"].reshape(16, 8, 5)
    assert np.ptp(result.log_weights.reshape(16, 40), axis=1).max() < 1e-9
    # A slice refuses nothing: the five states of a chain are five.
    assert all(len(np.unique(chain)) == 5 for chain in draws.reshape(-1, 5))
    assert np.all(result.diagnostics["num_moves"] == 4)
    # Its states are draws of the posterior all alike.
    mean, deviation = GAUSSIAN.data.sum() / 101, 1 / np.sqrt(101)
    for state in range(5):
        assert abs(draws[..., state].mean() - mean) < 5 * deviation / np.sqrt(128 / 3)
        assert draws[..., state].std() == pytest.approx(deviation, rel=0.4)


def test_chains_of_resampled_particles_carry_their_origins():
    """Without moves to speak of, all states of a chain are the ancestor that its origin names."""
    still = wb.AdaptiveWalk(wb.Metropolis(1e-4), num_moves=1)
    with jax.enable_x64(True):
        cloud = draw_cloud(GAUSSIAN.model, jax.random.key(0), np.arange(4), 12)
        path = Path(GAUSSIAN.model, (), Rows(GAUSSIAN.data, np.ones(100)))
        outcome = anneal(
            PathSeed(0, 0, np.arange(4)), cloud, lambda _: path, still,
            Settings(0.5, 2.0, schedule=np.array([0.02])),
            take_step=partial(anneal_step, chain_length=4),
        )  # fmt: skip
    origin = np.asarray(outcome.cloud.origin)
    assert outcome.cloud.position.shape == cloud.position.shape
    assert np.all(origin.reshape(4, 3, 4) == origin.reshape(4, 3, 4)[..., :1])
    ancestors = np.take_along_axis(np.asarray(cloud.position)[..., 0], origin, axis=1)
    np.testing.assert_allclose(outcome.cloud.position[..., 0], ancestors, atol=0.02)
    assert np.all(outcome.steps[0].resampled)


def test_waste_free_resampling_is_unbiased():
    """Three of twelve are drawn, each in proportion to its weight, over many islands."""
    still = wb.AdaptiveWalk(wb.Metropolis(1e-4), num_moves=1)
    with jax.enable_x64(True):
        cloud = draw_cloud(GAUSSIAN.model, jax.random.key(0), np.arange(1), 12)
        islands = 4000
        cloud = jax.tree_util.tree_map(lambda leaf: np.repeat(leaf, islands, axis=0), cloud)
        path = Path(GAUSSIAN.model, (), Rows(GAUSSIAN.data, np.ones(100)))
        log_likelihood = np.asarray(jax.vmap(path.chunk_log_likelihood)(cloud.position[0]))
        for resampling in ("systematic", "residual", "multinomial"):
            outcome = anneal(
                PathSeed(0, 0, np.arange(islands)), cloud, lambda _: path, still,
                Settings(0.5, 2.0, resampling=resampling, schedule=np.array([0.02])),
                take_step=partial(anneal_step, chain_length=4),
            )  # fmt: skip
            weight = np.exp(0.02 * (log_likelihood - log_likelihood.max()))
            expected = weight / weight.sum()
            drawn = np.bincount(np.asarray(outcome.cloud.origin)[:, ::4].ravel(), minlength=12)
            share = drawn / (3 * islands)
            assert np.all(np.abs(share - expected) < 5 * np.sqrt(expected / (3 * islands)) + 1e-9)


# --- a kernel as it is ---------------------------------------------------------------------


def test_ais_with_sghmc_on_all_rows_says_that_it_is_not_adjusted():
    """As published, but for the noise of mini-batches: near the truth, and never without a flag."""
    method = wb.AIS(**SMALL, moves=wb.SGHMC(step_size=0.1, friction=0.2))
    results = [wb.evidence(GAUSSIAN.model, GAUSSIAN.data, method, seed=seed) for seed in SEEDS]
    for result in results:
        assert wb.Status.UNADJUSTED in result.flags
        assert "step size" in wb.Status.UNADJUSTED.remedy
        assert abs(result.log_evidence - GAUSSIAN.log_evidence) < 0.6
    # A fixed number of moves, and steps that follow the rows: without it these would run away.
    assert all(result.diagnostics["num_diverged"] == 0 for result in results)
    wild = dataclasses.replace(method, moves=wb.Repeat(wb.SGHMC(0.1, 0.2), 20))
    flags = wb.evidence(GAUSSIAN.model, GAUSSIAN.data, wild, seed=1).flags
    assert {wb.Status.DIVERGED, wb.Status.UNADJUSTED} <= set(flags)


@pytest.mark.parametrize("kernel", [wb.HMC(0.3, 5), wb.Metropolis(2.0)])
def test_an_adjusted_kernel_is_repeated_and_needs_no_flag(kernel):
    z = z_scores(GAUSSIAN, wb.AIS(**SMALL, moves=kernel))
    assert np.all(np.abs(z) < BOUND)


# --- likelihoods without a gradient ----------------------------------------------------------


def called_back(p, dtype=np.float32):
    """A density that JAX can trace and map over, and not differentiate."""

    def inner(x):
        return np.sum(-0.5 * np.asarray(x) ** 2, axis=-1, dtype=dtype) - dtype(2.7568156)

    shape = jax.ShapeDtypeStruct((), dtype)
    return jax.pure_callback(inner, shape, p["x"], vmap_method="expand_dims")


def called_back_in_double(p):
    return called_back(p, np.float64)


BOX = dist.Uniform(-10.0, 10.0).expand([3]).to_event(1)


def test_a_callback_within_jax_works_without_gradients_and_its_lack_is_named():
    model = wb.Model({"x": BOX}, total_log_likelihood=called_back)
    result = wb.evidence(model, None, wb.SMC(**SMALL, moves="random_walk"), seed=1)
    assert abs(result.log_evidence + 3 * np.log(20)) < BOUND * result.std_error
    assert "host_calls" not in result.diagnostics
    for moves in ("hmc", wb.HMC(), wb.SMC().moves):
        with pytest.raises(wb.MethodError, match=r'no gradient.*"random_walk"'):
            wb.evidence(model, None, wb.SMC(**SMALL, moves=moves))
    model = wb.Model({"x": BOX}, total_log_likelihood=called_back_in_double)
    with pytest.raises(wb.ModelError, match="Declare its result as float32"):
        wb.evidence(model, None, wb.SMC(**SMALL, moves="random_walk"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: wb.SMC(moves="magic"), "random_walk"),
        (lambda: wb.SMC(moves=3), "a kernel such as"),
        (lambda: wb.SMC(moves=wb.Stretch()), 'moves="stretch"'),
        (lambda: wb.Slice(along="curves"), "coordinates"),
        (lambda: wb.SMC(num_particles=61, waste_free=True), "multiple of 8"),
        (lambda: wb.SMC(num_particles=64, waste_free=7), "divides num_particles=64"),
        (lambda: wb.SMC(waste_free="yes"), "waste_free"),
        (lambda: wb.SMC(waste_free=True, moves=wb.HMC()), "tune themselves"),
        (
            lambda: wb.evidence(LINEAR, DATA, wb.SMC(num_particles=8, moves="stretch")),
            "10 particles",
        ),
        (
            lambda: wb.evidence(LINEAR, DATA, wb.SMC(moves="stretch", waste_free=True)),
            "8 move at a time",
        ),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(wb.MethodError, match=message):
        make()
