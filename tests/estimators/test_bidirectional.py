"""Bidirectional bounds: on the right sides, as far as they say, and the backward path a mirror."""

import dataclasses
import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import weighbridge as wb
from weighbridge.core.pytrees import register_dataclass
from weighbridge.core.types import Kernel
from weighbridge.estimators.annealing.moves.kernels import Repeat
from weighbridge.estimators.bidirectional import bidirectional as module
from weighbridge.estimators.bidirectional.bounds import island_logs

pytestmark = pytest.mark.long

INPUTS = np.random.default_rng(0).normal(size=(30, 1))


def simulate_gaussian(p, generator, size=20):
    return generator.normal(p["mu"], 1.0, size=size)


def simulate_linear(p, generator):
    mean = INPUTS @ p["w"] + p["b"]
    return {"x": INPUTS, "y": generator.normal(mean)}


def bernoulli(p, y):
    return jnp.where(y > 0, jnp.log(p["p"]), jnp.log1p(-p["p"]))


def beta_log_evidence(y):
    return special.betaln(1 + y.sum(), 1 + len(y) - y.sum())


CONJUGATE = {
    "gaussian": (wb.zoo.gaussian.model(), simulate_gaussian, wb.zoo.gaussian.log_evidence),
    "linear": (wb.zoo.linear.model(1), simulate_linear, wb.zoo.linear.log_evidence),
    "beta": (
        wb.Model({"p": dist.Beta(1.0, 1.0)}, bernoulli),
        lambda p, generator: generator.binomial(1, p["p"], size=30).astype(float),
        beta_log_evidence,
    ),
}
QUICK = wb.AIS(16, 8, path="sigmoidal", num_steps=6)


@pytest.mark.parametrize("name", CONJUGATE)
def test_over_100_runs_the_bounds_are_on_their_sides_and_the_interval_covers(name):
    model, simulate, log_evidence = CONJUGATE[name]
    runs = [wb.bidirectional(model, simulate, method=QUICK, seed=seed) for seed in range(100)]
    exact = np.array([log_evidence(run.data) for run in runs])
    lower = np.array([run.lower for run in runs]) - exact
    upper = np.array([run.upper for run in runs]) - exact
    assert lower.mean() <= 0 <= upper.mean()
    covered = [run.interval[0] <= e <= run.interval[1] for run, e in zip(runs, exact)]
    assert sum(covered) >= 95
    # No bound is far beyond its side, and no error is so wide that it would cover anything.
    lower_error = np.array([run.lower_error for run in runs])
    upper_error = np.array([run.upper_error for run in runs])
    assert max(np.max(lower / lower_error), np.max(-upper / upper_error)) < 4
    assert np.median(lower_error) < 1.5 * np.std(lower)
    assert np.median(upper_error) < 1.5 * np.std(upper)


def test_the_gap_shrinks_as_steps_grow():
    model, simulate, _ = CONJUGATE["linear"]
    gaps = []
    for num_steps in (3, 9, 27):
        method = dataclasses.replace(QUICK, num_steps=num_steps)
        runs = [wb.bidirectional(model, simulate, method=method, seed=seed) for seed in range(6)]
        gaps.append(np.mean([run.gap for run in runs]))
        assert all(len(run.schedule) == num_steps + 1 for run in runs)
    assert gaps[1] < 0.6 * gaps[0]
    assert gaps[2] < 0.6 * gaps[1]


class Drawn(NamedTuple):
    position: Any


@partial(register_dataclass, data_fields=["stays"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Perfect(Kernel):
    """Draws from the tempered posterior of the Gaussian mean itself, or stays."""

    stays: bool = False

    def init(self, position, target):
        return Drawn(position)

    def step(self, key, state, target):
        tempered = target.terms[-1]
        rows, power = tempered.term.rows, tempered.power
        precision = 1 + power * jnp.sum(rows.weight)
        mean = power * jnp.sum(rows.weight * rows.values) / precision
        position = mean + jax.random.normal(key, (1,)) / jnp.sqrt(precision)
        return Drawn(jnp.where(self.stays, state.position, position)), Drawn(jnp.ones(()))

    def rescale(self, variance):
        return self


def perfect(*, stays=False):
    return wb.AIS(16, 64, path="linear", num_steps=4, moves=Repeat(Perfect(stays), 1))


def test_chains_with_perfect_moves_have_the_expected_weights_in_both_directions():
    """One power off, or a wrong sign, would be seen at once: the two sums are far apart."""
    model, simulate, log_evidence = CONJUGATE["gaussian"]
    bounds = wb.bidirectional(model, simulate, method=perfect(), seed=3)
    y = bounds.data
    num_rows = len(y)
    np.testing.assert_allclose(bounds.schedule, np.linspace(0, 1, 5))
    variance = 1 / (1 + bounds.schedule * num_rows)
    offset = bounds.schedule * y.sum() * variance - y.mean()
    square = np.sum((y - y.mean()) ** 2)
    mean = -0.5 * (num_rows * np.log(2 * np.pi) + square + num_rows * (offset**2 + variance))
    spread = 0.25 * num_rows**2 * (2 * variance**2 + 4 * variance * offset**2)
    width = np.diff(bounds.schedule)
    # A forward chain is weighed where it came from, a backward one before it goes there.
    expected = {"forward": np.sum(width * mean[:-1]), "backward": -np.sum(width * mean[1:])}
    variances = {
        "forward": np.sum(width**2 * spread[:-1]),
        "backward": np.sum(width**2 * spread[1:]),
    }
    for name in expected:
        weights = getattr(bounds, f"{name}_log_weights").reshape(-1)
        error = math.sqrt(variances[name] / weights.size)
        assert abs(weights.mean() - expected[name]) < 5 * error
        assert 0.7 < weights.var() / variances[name] < 1.4
        assert expected["forward"] + expected["backward"] < -20 * error
    assert bounds.interval[0] < log_evidence(y) < bounds.interval[1]


def test_backward_chains_take_the_forward_schedule_and_moves_in_reverse(monkeypatch):
    calls, anneal = [], module.anneal

    def spy(seed, cloud, path_at, mover, settings, **rest):
        outcome = anneal(seed, cloud, path_at, mover, settings, **rest)
        calls.append((seed.stage, np.asarray(cloud.position), mover, outcome.powers))
        if seed.stage == module.FORWARD:
            # Other wishes for the tuning change nothing: there is none.
            greedy = [
                dataclasses.replace(m, mover=dataclasses.replace(m.mover, target_acceptance=0.1))
                for m in mover
            ]
            same = anneal(seed, cloud, path_at, greedy, settings, **rest)
            np.testing.assert_array_equal(same.cloud.position, outcome.cloud.position)
        return outcome

    monkeypatch.setattr(module, "anneal", spy)
    model, simulate, _ = CONJUGATE["linear"]
    bounds = wb.bidirectional(model, simulate, method=wb.AIS(16, 8), seed=1)
    pilot, forward, backward, rehearsal = calls
    assert forward[3] == pilot[3] == bounds.schedule.tolist()
    refreshing = [1.0] * module.REFRESHING
    assert backward[3] == rehearsal[3] == [1.0, *refreshing, *forward[3][::-1]]
    # The moves at a power are those of the forward chains, in reverse order, and do not tune.
    there = dict(zip(forward[3][1:], forward[2]))
    for power, mover in zip(backward[3][1:-1], backward[2]):
        assert mover.backward
        assert not there[power].backward
        expected = dataclasses.replace(there[power], backward=True)
        for ours, theirs in zip(*map(jax.tree_util.tree_leaves, (mover, expected))):
            np.testing.assert_array_equal(ours, theirs)
    # All start from the exact posterior draw, and the rehearsal elsewhere with the same numbers.
    truth = model.ravel(bounds.parameters)
    np.testing.assert_allclose(backward[1], np.broadcast_to(truth, backward[1].shape), rtol=1e-12)
    assert len(np.unique(rehearsal[1][..., 0])) > 1
    assert backward[0] == rehearsal[0] != forward[0] != pilot[0]


def folded(p, y):
    return dist.Normal(jnp.abs(p["x"]), jnp.where(p["x"] > 0, 1.0, 1.25)).log_prob(y)


def test_the_error_of_the_upper_bound_knows_that_all_chains_come_from_one_draw():
    """Two modes, the noise tells which; no chain crosses over, so a draw decides the bound."""
    model = wb.Model({"x": dist.Normal(-0.5, 3.0)}, folded)
    grid = np.linspace(-15, 15, 20_001)

    def simulate(p, generator):
        return generator.normal(abs(p["x"]), 1.0 if p["x"] > 0 else 1.25, size=30)

    def log_evidence(y):
        scale = np.where(grid > 0, 1.0, 1.25)
        heights = stats.norm.logpdf(y[:, None], np.abs(grid), scale).sum(axis=0)
        return special.logsumexp(heights + stats.norm.logpdf(grid, -0.5, 3.0)) + np.log(30 / 20_000)

    covered = blind = 0
    for seed in range(40):
        bounds = wb.bidirectional(model, simulate, method=wb.AIS(16, 16), seed=seed)
        exact = log_evidence(bounds.data)
        covered += bounds.interval[0] < exact < bounds.interval[1]
        spread = np.std(island_logs(bounds.backward_log_weights), ddof=1)
        blind += bounds.upper + 2 * spread / math.sqrt(16) < exact
    assert covered >= 38
    assert blind >= 2  # what the spread of chains from one draw alone would have missed


@pytest.mark.parametrize(
    "method", [wb.SMC(16, 8, target_ess=0.8), wb.SMC(16, 8, target_ess=0.8, moves="random_walk")]
)
def test_smc_and_moves_without_gradients_give_bounds_too(method):
    model, simulate, log_evidence = CONJUGATE["gaussian"]
    outside = []
    for seed in range(8):
        bounds = wb.bidirectional(model, simulate, method=method, seed=seed)
        exact = log_evidence(bounds.data)
        outside.append((bounds.lower - exact) / bounds.lower_error)
        outside.append((exact - bounds.upper) / bounds.upper_error)
        assert bounds.gap < 1.5
    # Student-t with 15 degrees, and each bound errs to its own side.
    assert max(outside) < 4
    # The last of them without resampling would have been another one.
    plain = wb.AIS(16, 8, target_ess=0.8, moves=method.moves)
    other = wb.bidirectional(model, simulate, method=plain, seed=seed)
    np.testing.assert_array_equal(other.schedule, bounds.schedule)
    assert not np.array_equal(other.backward_log_weights, bounds.backward_log_weights)


def test_the_same_seed_gives_the_same_numbers_and_another_compiles_nothing():
    """Here with a likelihood of all data at once, and islands too few to state an error."""
    traces = []

    def total(p, y):
        traces.append(1)
        return jnp.sum(dist.Normal(p["mu"], 1.0).log_prob(y))

    model = wb.Model({"mu": dist.Normal(0.0, 1.0)}, total_log_likelihood=total)
    run = partial(wb.bidirectional, model, simulate_gaussian, method=wb.AIS(3, 32))
    first = run(seed=1)
    before = len(traces)
    other = run(seed=2)
    assert len(traces) - before <= 1  # the check whether JAX can trace it
    again = run(seed=1)
    assert (first.lower, first.upper) == (again.lower, again.upper) != (other.lower, other.upper)
    np.testing.assert_array_equal(first.data, again.data)
    np.testing.assert_array_equal(first.backward_log_weights, again.backward_log_weights)
    assert first.parameters == again.parameters != other.parameters
    assert type(first.lower) is type(first.upper_error) is float
    assert first.data.dtype == first.forward_log_weights.dtype == np.float64
    assert first.status is wb.Status.ERROR_UNKNOWN
    assert not first.crossed
    for bounds in (first, other):
        assert abs(bounds.lower - wb.zoo.gaussian.log_evidence(bounds.data)) < 0.5
        assert abs(bounds.upper - wb.zoo.gaussian.log_evidence(bounds.data)) < 0.5


def test_the_true_parameters_are_no_particle_of_an_estimator_with_the_same_seed():
    model, simulate, _ = CONJUGATE["gaussian"]
    bounds = wb.bidirectional(model, simulate, method=QUICK, seed=5)
    draws = wb.evidence(model, bounds.data, wb.PriorSampling(64, 8), seed=5).samples["mu"]
    assert np.abs(draws - bounds.parameters["mu"]).min() > 0


def test_checking_another_estimator():
    model, simulate, log_evidence = CONJUGATE["gaussian"]
    method = dataclasses.replace(QUICK, num_steps=40)
    bounds = wb.bidirectional(model, simulate, method=method, seed=0)
    result = wb.evidence(model, bounds.data, wb.SMC(16, 8), seed=1)
    verdict = bounds.check(result)
    assert verdict.inside
    assert bool(verdict)
    for shift, word in ((2.0, "above"), (-2.0, "below")):
        biased = dataclasses.replace(result, log_evidence=log_evidence(bounds.data) + shift)
        verdict = bounds.check(biased)
        assert not verdict
        assert word in str(verdict)
        assert math.copysign(1.0, verdict.excess) == math.copysign(1.0, shift)
        assert verdict.num_errors > 3
        assert bounds.check(biased, num_errors=1e6)
        unknown = dataclasses.replace(biased, std_error=math.nan)
        assert not bounds.check(unknown)
    with pytest.raises(wb.DataError, match=r"bounds\.data"):
        bounds.check(dataclasses.replace(result, num_observations=7))


def test_what_it_prints_and_draws():
    model, simulate, _ = CONJUGATE["gaussian"]
    bounds = wb.bidirectional(model, simulate, method=QUICK, seed=0)
    assert f"from {bounds.lower:.2f}" in str(bounds)
    assert "6 steps, 20 simulated observations" in str(bounds)
    assert bounds.status is wb.Status.OK
    assert "Bounds" in repr(bounds)
    axes = bounds.plot().axes[0]
    lines = [line.get_xdata()[0] for line in axes.lines]
    assert lines == [bounds.lower, bounds.upper]


def test_bounds_that_cross_say_that_the_simulator_is_wrong():
    """Chains that do not move keep the parameters they were given, and these are not typical."""
    model, simulate, _ = CONJUGATE["gaussian"]

    def shifted(p, generator):
        return simulate(p, generator) + 3.0

    bounds = wb.bidirectional(model, shifted, method=perfect(stays=True))
    assert bounds.crossed
    assert "check that simulate draws" in str(bounds)


GAUSSIAN = wb.zoo.gaussian.model()


def on_host(p, y):
    return -np.sum((np.asarray(p["x"])[..., None] - y) ** 2, axis=-1)


@pytest.mark.parametrize(
    ("model", "simulate", "method", "message"),
    [
        (GAUSSIAN, simulate_gaussian, "thermodynamic", "AIS or SMC"),
        (GAUSSIAN, simulate_gaussian, "sgais", "AIS or SMC"),
        (GAUSSIAN, simulate_gaussian, wb.SMC(waste_free=True), "waste-free"),
        (GAUSSIAN, simulate_gaussian, wb.AIS(moves=wb.SGHMC(1e-3, 0.1)), "exactly invariant"),
        (GAUSSIAN, simulate_gaussian, wb.AIS(moves="stretch"), "single particles"),
        ("gaussian", simulate_gaussian, None, "wb.Model"),
        (GAUSSIAN, np.zeros(3), None, "simulate must be a function"),
        (GAUSSIAN, lambda p, g: None, None, "simulate returned"),
        (GAUSSIAN, lambda p, g: dist.Normal(p["mu"], 1), None, "a distribution"),
        (GAUSSIAN, lambda p, g: np.zeros(0), None, "no row"),
        (GAUSSIAN, lambda p, g: np.array([np.nan]), None, "row 0"),
        (GAUSSIAN, lambda p, g: np.zeros((3, 2)), None, "scalar"),
        (
            wb.zoo.linear.model(1),
            lambda p, g: simulate_linear(p, g) | {"weight": np.ones(30)},
            None,
            "repeated rows",
        ),
        (
            wb.Model({"x": dist.Normal(0, 1)}, total_log_likelihood=lambda p: -(p["x"] ** 2)),
            simulate_gaussian,
            None,
            "takes no data",
        ),
        (
            wb.Model({"x": dist.Normal(0, 1)}, total_log_likelihood=on_host),
            lambda p, g: g.normal(size=3),
            None,
            "jax.numpy",
        ),
    ],
)
def test_mistakes_are_named(model, simulate, method, message):
    with pytest.raises(wb.WeighbridgeError, match=message):
        wb.bidirectional(model, simulate, method=method)
