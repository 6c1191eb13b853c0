"""Predictive factors by SG-MCMC: what it computes, how far it is off, and what it says of it."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.estimators.annealing.moves.kernels import REPEATED
from weighbridge.estimators.protocols import SequentialMethod

pytestmark = pytest.mark.long

GAUSSIAN = wb.zoo.gaussian.model()
DATA = wb.zoo.gaussian.simulate(600, seed=1)
LINEAR = wb.zoo.linear.model()
START = wb.SMC(num_islands=4, num_particles=32)
SMALL = wb.SequentialSGMCMC(
    num_islands=4, num_particles=16, max_chunk=100, batch_size=50, start_with=START, start_rows=50
)
STILL = dataclasses.replace(SMALL, kernel=wb.Metropolis(0.0), num_moves=1, start_with=None)


def normal(y, mu):
    return -0.5 * (y - mu) ** 2 - 0.5 * np.log(2 * np.pi)


# --- what it computes -----------------------------------------------------------------------------


def test_each_chunk_counts_by_its_average_over_the_particles():
    """With particles that do not move, the factors are averages over draws from the prior."""
    rows = DATA[:130]
    run = STILL.start(GAUSSIAN, seed=3)
    mu = np.asarray(run.ledger.cloud.position)[..., 0]
    run.absorb(rows, np.ones(130))
    expected = np.zeros(4)
    for start, stop in ((0, 20), (20, 60), (60, 120), (120, 130)):
        likelihood = np.exp(normal(rows[start:stop], mu[..., None]).sum(axis=-1))
        expected += np.log(likelihood.mean(axis=1))
    np.testing.assert_allclose(run.ledger.log_evidences, expected, rtol=1e-10)
    np.testing.assert_array_equal(np.asarray(run.ledger.cloud.position)[..., 0], mu)
    result = run.result(0.0, {})
    np.testing.assert_array_equal(result.trace.rows, [20, 60, 120, 130])
    # Never weighted: every particle is a draw from the posterior as well as any other.
    draws = np.exp(result.log_weights).reshape(4, 16)
    np.testing.assert_allclose(draws / draws[:, :1], 1.0)


def test_chunks_grow_up_to_a_limit():
    trace = wb.evidence(GAUSSIAN, DATA, STILL, seed=1).trace
    np.testing.assert_array_equal(trace.rows, [20, 60, 120, 200, 300, 400, 500, 600])
    hybrid = wb.evidence(GAUSSIAN, DATA[:400], SMALL, seed=1).trace
    np.testing.assert_array_equal(hybrid.rows, [50, 90, 150, 230, 330, 400])


def test_the_first_rows_are_those_of_the_start():
    result = wb.evidence(GAUSSIAN, DATA[:50], SMALL, seed=2)
    start = wb.evidence(GAUSSIAN, DATA[:50], START, seed=2)
    assert result.log_evidence == start.log_evidence
    # What rounding may have lost is added to each of them: 1e-14 of log Z, in quadrature.
    nearly = pytest.approx(start.std_error, abs=1e-14 * abs(start.log_evidence))
    assert result.std_error == nearly
    assert result.diagnostics["start_error"] == nearly
    assert result.diagnostics["spread_error"] == nearly
    assert result.flags == start.flags == ()
    draws = result.samples["mu"]
    assert set(draws.round(9)) <= set(start.samples["mu"].round(9))
    assert abs(draws.mean() - DATA[:50].sum() / 51) < 5 * 51**-0.5 / math.sqrt(16)


@pytest.mark.parametrize(
    "start",
    [
        wb.IBIS(num_islands=4, num_particles=32),
        wb.SGAIS(num_islands=4, num_particles=16, chunk_size=20),
        wb.NestedSampling(num_live=100),
        wb.OnlineNestedSampling(num_live=100),
    ],
    ids=["ibis", "sgais", "nested", "online_nested"],
)
def test_any_method_may_start(start):
    method = dataclasses.replace(SMALL, start_with=start)
    assert isinstance(method, SequentialMethod)
    result = wb.evidence(GAUSSIAN, DATA[:50], method, seed=1)
    alone = wb.evidence(GAUSSIAN, DATA[:50], start, seed=1)
    assert result.log_evidence == pytest.approx(alone.log_evidence, abs=1e-9)


def test_nested_sampling_starts_as_in_the_thesis():
    """000, section 4.1: nested sampling on the first 100 rows, then SG-MCMC."""
    data = wb.zoo.linear.simulate(1000, seed=3)
    method = wb.SequentialSGMCMC(start_with=wb.NestedSampling(num_live=400))
    exact = wb.zoo.linear.log_evidence(data)
    for seed in (1, 2):
        result = wb.evidence(LINEAR, data, method, seed=seed)
        assert abs(result.log_evidence - exact) < tolerance_of(result)
        first = {name: column[:100] for name, column in data.items()}
        error = result.trace.log_evidence[0] - wb.zoo.linear.log_evidence(first)
        assert result.trace.rows[0] == 100
        assert abs(error) < 4 * result.diagnostics["start_error"]
        # Batches of nested sampling, not points.
        assert 5 < result.trace.annealing_steps[0] < 100


def test_the_same_seed_gives_the_same_numbers():
    first, again, other = (wb.evidence(GAUSSIAN, DATA, SMALL, seed=seed) for seed in (1, 1, 2))
    assert first.log_evidence == again.log_evidence
    assert first.log_evidence != other.log_evidence
    np.testing.assert_array_equal(first.samples["mu"], again.samples["mu"])


def test_weights_count_repeated_rows():
    data = wb.zoo.linear.simulate(160, seed=6)
    data["weight"] = np.tile([0.0, 1.0, 3.0, 2.0], 40)
    result = wb.evidence(LINEAR, data, "sequential_sgmcmc", seed=1)
    assert result.num_observations == 240
    error = result.log_evidence - wb.zoo.linear.log_evidence(data)
    assert abs(error) < tolerance_of(result)


# --- how far it is off ----------------------------------------------------------------------------


def tolerance_of(result):
    """Five of what the spread says, and the biases that follow from what it does.

    A log of an average over M draws with ESS E is low by half its relative variance, 1/E - 1/M;
    heat and particles that lag count as much again as the measured heating.
    """
    ess = result.trace.ess
    low = 0.5 * np.sum(1 / ess - 1 / ess.max())
    return (
        5 * result.diagnostics["spread_error"] + low + 2 * abs(result.diagnostics["heating_bias"])
    )


def test_linear_regression_with_a_start():
    data = wb.zoo.linear.simulate(2000, seed=3)
    exact = wb.zoo.linear.log_evidence(data)
    for seed in (1, 2, 3):
        result = wb.evidence(LINEAR, data, "sequential_sgmcmc", seed=seed)
        error = result.log_evidence - exact
        assert abs(error) < tolerance_of(result)
        assert tolerance_of(result) < 0.005 * abs(exact)
        assert result.method == "sequential_sgmcmc"
        assert math.isnan(result.std_error)
        assert np.isnan(result.trace.std_error[1:]).all()
        assert {wb.Status.ERROR_UNKNOWN, wb.Status.UNADJUSTED} <= set(result.flags)
        assert "+- unknown" in str(result)


def test_from_the_prior_it_falls_short():
    """The log of an average is too low, most of all where 100 rows meet draws from the prior."""
    data = wb.zoo.linear.simulate(300, seed=3)
    exact = wb.zoo.linear.log_evidence(data)
    method = wb.SequentialSGMCMC(start_with=None, chunk_growth=100)
    result = wb.evidence(LINEAR, data, method, seed=1)
    error = result.diagnostics["island_log_evidence"] - exact
    assert error.mean() < -5 * error.std(ddof=1) / 4
    assert result.log_evidence < exact
    assert wb.Status.LOW_ESS in result.flags
    started = wb.evidence(LINEAR, data, "sequential_sgmcmc", seed=1)
    assert abs(started.diagnostics["island_log_evidence"].mean() - exact) < -0.1 * error.mean()


# --- streams and failures -------------------------------------------------------------------------


def state_of(online):
    arrays, plain = online._session.run.state()
    return {name: repr(value.tolist()) for name, value in arrays.items()}, repr(plain)


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    path = tmp_path / "run.ckpt"
    whole, resumed = (wb.Online(GAUSSIAN, SMALL, seed=4) for _ in range(2))
    for start, stop in ((0, 7), (7, 61), (61, 300)):
        whole.update(DATA[start:stop])
        resumed.update(DATA[start:stop])
        resumed.save(path)
        resumed = wb.Online.load(path, GAUSSIAN, SMALL)
        assert state_of(resumed) == state_of(whole)
    assert whole.result().diagnostics["start_error"] == resumed.result().diagnostics["start_error"]
    np.testing.assert_array_equal(whole.result().trace.rows, [7, 50, 61, 121, 201, 300])


def bounded(p, y):
    """y ~ U(0, mu)."""
    return jnp.where(y < p["mu"], -jnp.log(p["mu"]), -jnp.inf)


BOUNDED = wb.Model({"mu": dist.Uniform(0.0, 2.0)}, bounded)
STEPS = dataclasses.replace(STILL, chunk_growth=2)


def test_a_particle_that_the_rows_exclude_counts_no_more():
    rows = np.array([0.3, 0.1, 0.9, 0.2, 0.5])
    run = STEPS.start(BOUNDED, seed=1)
    mu = 2 / (1 + np.exp(-np.asarray(run.ledger.cloud.position)[..., 0]))
    run.absorb(rows, np.ones(5))
    expected, alive = np.zeros(4), np.ones_like(mu, bool)
    for chunk in (rows[:2], rows[2:]):
        likelihood = np.where(mu > chunk.max(), mu ** -float(len(chunk)), 0.0)
        expected += np.log((alive * likelihood).sum(axis=1) / alive.sum(axis=1))
        alive &= likelihood > 0
    np.testing.assert_allclose(run.ledger.log_evidences, expected, rtol=1e-10)
    assert 0 < alive.sum() < alive.size
    assert wb.Status.PARTICLES_DROPPED in run.flags()


def test_rows_that_nothing_explains_leave_no_trace():
    online = wb.Online(BOUNDED, STEPS, seed=1)
    online.update(np.array([0.3, 0.1]))
    before = state_of(online)
    with pytest.raises(wb.ModelError, match="-inf for every particle"):
        online.update(np.array([0.2, 0.3, 0.1, 0.6, 3.0, 0.1, 0.1]))
    assert state_of(online) == before
    assert online.num_observations == 2


def test_more_rows_are_not_traced_again():
    wb.evidence(GAUSSIAN, DATA[:120], SMALL, seed=1)
    before = REPEATED.num_traces()
    wb.evidence(GAUSSIAN, DATA, SMALL, seed=2)
    online = wb.Online(GAUSSIAN, SMALL, seed=1)
    for start in range(0, 60, 15):
        online.update(DATA[start : start + 15])
    assert REPEATED.num_traces() == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_particles": 1}, "at least 2"),
        ({"chunk_growth": 0}, "chunk_growth must be a whole number"),
        ({"max_chunk": 2.5}, "max_chunk must be a whole number"),
        ({"kernel": "sghmc"}, "kernel must be a kernel"),
        ({"start_with": "smc"}, "start_with must be a method such as wb.SMC"),
        ({"reservoir": 50}, "raise reservoir"),
    ],
)
def test_settings_are_checked(changes, message):
    with pytest.raises(wb.MethodError, match=message):
        wb.SequentialSGMCMC(**changes)


def test_a_tolerance_is_refused():
    with pytest.raises(wb.MethodError, match="states its error"):
        wb.evidence(GAUSSIAN, DATA, SMALL, tolerance=0.1)
