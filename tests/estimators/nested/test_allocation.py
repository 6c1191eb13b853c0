"""Points that are added where they help: unbiased, and more of what they are for."""

import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.status import Status
from weighbridge.estimators.nested.allocation import alive_at, importance, plan_block
from weighbridge.estimators.nested.points import PRIOR_CONTOUR, Points, num_live

EXACT = -3 * math.log(20.0)


def normal(p):
    return jnp.sum(dist.Normal(0.0, 1.0).log_prob(p["x"]))


def plateau(p):
    return jnp.where(p["x"][0] < 0, 0.0, jnp.where(p["x"][1] < 0, 2.0, 5.0))


MODEL = wb.Model({"x": dist.Uniform(-10, 10).expand([3]).to_event(1)}, total_log_likelihood=normal)


def effective(result):
    return 1.0 / np.sum(np.exp(2.0 * result.log_weights))


@pytest.mark.parametrize("goal", ["evidence", "posterior"])
def test_answers_with_a_goal_are_exact_in_units_of_the_error(goal):
    method = wb.NestedSampling(num_live=200, num_moves=15, goal=goal)
    # Four comparisons: a bound of 4 errors has a false-alarm rate below 1 in 1,000.
    for seed in (0, 1):
        result = wb.evidence(MODEL, None, method, seed=seed)
        assert abs(result.log_evidence - EXACT) < 4.0 * result.std_error
        assert 0.05 < result.std_error < 0.5
        # The number of live points rises where points were added.
        assert np.max(np.diff(result.trace.nlive.astype(int))) > 1
        assert len(result.log_weights) == len(set(zip(result.trace.logL, result.trace.tie)))


def test_added_points_on_plateaus():
    box = {"x": dist.Uniform(-1, 1).expand([2]).to_event(1)}
    model = wb.Model(box, total_log_likelihood=plateau)
    exact = math.log(0.5 + 0.25 * math.exp(2) + 0.25 * math.exp(5))
    for goal in ("evidence", "posterior"):
        result = wb.evidence(model, None, wb.NestedSampling(num_live=200, goal=goal), seed=1)
        assert abs(result.log_evidence - exact) < 4.0 * result.std_error


def spike_and_hill(p):
    """The hill has 1 part in 2 of the mass; the spike is found by few islands or none."""
    hill = -0.5 * jnp.sum((p["x"] + 2) ** 2)
    return jnp.logaddexp(hill, math.log(400.0) - 0.5 * jnp.sum(((p["x"] - 3) / 0.05) ** 2))


@pytest.mark.parametrize("goal", ["evidence", "posterior"])
def test_islands_that_miss_a_spike_neither_end_nor_hold_up_the_run(goal):
    box = {"x": dist.Uniform(-5, 5).expand([2]).to_event(1)}
    model = wb.Model(box, total_log_likelihood=spike_and_hill)
    for seed in (0, 1, 4, 5, 6):
        result = wb.evidence(model, None, wb.NestedSampling(num_live=100, goal=goal), seed=seed)
        assert math.isfinite(result.log_evidence)
        assert result.diagnostics["num_evaluations"] < 1_000_000
        # Without the spike log Z is that of the hill; with it, of both.
        hill = math.log(2 * math.pi / 100)
        assert hill - 4 * result.std_error < result.log_evidence
        assert result.log_evidence < hill + math.log(2.0) + 4 * result.std_error


def test_a_limit_of_calls_shortens_the_allocation_without_a_flag():
    method = wb.NestedSampling(num_live=200, num_moves=15, goal="posterior")
    whole = wb.evidence(MODEL, None, method, seed=2)
    calls = int(0.8 * whole.diagnostics["num_evaluations"])
    short = wb.NestedSampling(num_live=200, num_moves=15, goal="posterior", max_calls=calls)
    result = wb.evidence(MODEL, None, short, seed=2)
    assert result.diagnostics["ended"] == "max_calls"
    assert Status.STOPPED_EARLY not in result.flags
    assert len(result.log_weights) < len(whole.log_weights)
    assert abs(result.log_evidence - EXACT) < 4.0 * result.std_error


@pytest.mark.long
def test_a_goal_is_reached_at_equal_cost_and_without_a_bias():
    results = {
        goal: [
            wb.evidence(
                MODEL, None, wb.NestedSampling(num_live=400, num_moves=25, goal=goal), seed=seed
            )
            for seed in range(20)
        ]
        for goal in (None, "evidence", "posterior")
    }
    calls = {
        g: np.mean([r.diagnostics["num_evaluations"] for r in found])
        for g, found in results.items()
    }
    assert max(calls.values()) < 1.05 * min(calls.values())
    stated = {g: np.mean([r.std_error for r in found]) for g, found in results.items()}
    # 12 % less and 15 % more were measured over 40 seeds; both vary by 2 % over 20.
    assert stated["evidence"] < 0.93 * stated[None]
    draws = {g: np.mean([effective(r) for r in found]) for g, found in results.items()}
    assert draws["posterior"] > 1.08 * draws[None]
    for found in results.values():
        z = np.array([(r.log_evidence - EXACT) / r.std_error for r in found])
        assert abs(z.mean()) < 3.0 / math.sqrt(len(z))
        assert 0.5 < z.std() < 1.5


def line(ends, births):
    """Points on a line, with distinct likelihoods."""
    none, half = np.zeros(len(ends)), np.full(len(ends), 0.5)
    born = np.where(births == -np.inf, -1.0, 0.5)
    whole = np.zeros(len(ends), int)
    return Points(none, none, ends, half, births, born, whole, whole, whole)


def test_importance_of_the_evidence_falls_with_what_is_above():
    log_weights = np.log(np.full(4, 0.25))
    found = importance(log_weights, np.full(4, 2), "evidence")
    np.testing.assert_allclose(found, [1.0, 0.75, 0.5, 0.25])
    np.testing.assert_allclose(importance(log_weights, np.full(4, 2), "posterior"), 1.0)


def test_a_block_begins_where_points_help_and_costs_what_is_left():
    # The posterior weight is highest at point 144 of 400.
    levels = 1.2 * np.sqrt(np.arange(400.0))
    points = line(levels, np.concatenate([np.full(20, -np.inf), levels[:-20]]))
    assert num_live(points)[0] == 20
    block = plan_block(points, "evidence", 1000.0, 1, 4)
    assert block.contour == PRIOR_CONTOUR
    block = plan_block(points, "posterior", 1000.0, 1, 4)
    assert 0 < block.contour[0] < block.until
    assert block.num_live > 4
    assert plan_block(points, "posterior", 1.0, 1, 4) is None
    # As many live at a contour as were counted for the next point above it.
    index = 100
    alive = alive_at(points, (points.log_likelihood[index - 1], 0.5))
    assert len(alive.tie) == num_live(points)[index]
