"""Likelihoods that are flat where the draws are: an error of nothing must not go unsaid."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.islands import combine_islands
from weighbridge.core.status import Status
from weighbridge.estimators.bridging.bridge import Bridged, decide
from weighbridge.estimators.tempering.thermodynamic import Thermodynamic
from weighbridge.weighing.rounds import merge

# Volume of a ball of radius 1 in five dimensions.
UNIT_BALL = math.pi**2.5 / math.gamma(3.5)
METHODS = ("smc", "ais", "thermodynamic", "prior_sampling", "ibis", "sgais")


def log_likelihood(p, row):
    """A ball of a share of the prior's mass, and a height above everything else."""
    radius = (row["mass"] / UNIT_BALL) ** 0.2
    inside = jnp.sum((p["x"] - 0.5) ** 2) < radius**2
    return jnp.where(inside, row["height"], 0.0)


MODEL = wb.Model({"x": dist.Uniform(0.0, 1.0).expand([5]).to_event(1)}, log_likelihood)


def ball(mass, height):
    return {"mass": np.array([mass]), "height": np.array([height])}


def weigh(method, data, seed):
    return wb.evidence(MODEL, data, method, seed=seed, progress=False)


@pytest.mark.parametrize("method", METHODS)
def test_a_likelihood_that_is_flat_at_every_draw_is_flagged(method):
    """A ball that no draw hits, and one of no height: a likelihood that is truly constant."""
    for data in (ball(1e-9, 30.0), ball(0.1, 0.0)):
        result = weigh(method, data, 0)
        assert Status.FLAT in result.flags
        # Exact, or any amount too low: there is no error, least of all one of exactly 0.
        assert result.status is Status.FLAT
        assert math.isnan(result.std_error)
        assert result.is_lower_bound
        assert abs(result.log_evidence) < 4 * result.claimed_error + 1e-9
    # A ball that many draws hit, and little higher.
    result = weigh(method, ball(0.1, 0.5), 0)
    assert Status.FLAT not in result.flags
    assert abs(result.log_evidence - math.log1p(0.1 * math.expm1(0.5))) < 5 * result.std_error


@pytest.mark.parametrize("method", ["smc", "sgais"])
def test_what_is_flat_is_answered_exactly_by_the_path(method):
    """The flag says that the answer is exact: a bridge that agrees is no better."""
    for seed in range(3):
        result = weigh(method, ball(0.1, 0.0), seed)
        assert "bridge_log_evidence" in result.diagnostics
        assert result.diagnostics["answer"] == "path"
        assert abs(result.log_evidence) < 1e-12


def test_a_bridge_that_hits_what_the_path_did_not_is_still_the_answer():
    found = Bridged(2.0, 0.01, 0.1, 0.1, 1.0, True)
    decision = decide(found, 0.0, 0.0, (Status.FLAT,))
    assert decision.log_evidence == 2.0
    assert Status.PATH_LOST in decision.flags


def test_what_comes_later_ends_the_flatness_of_a_stream():
    for method in (wb.IBIS(), wb.SGAIS()):
        online = wb.Online(MODEL, method, seed=0)
        online.update(ball(0.1, 0.0))
        assert Status.FLAT in online.result().flags
        online.update(ball(0.1, 0.5))
        assert Status.FLAT not in online.result().flags


def test_rounds_are_flat_only_together():
    flat, hit = weigh("ais", ball(1e-9, 30.0), 0), weigh("ais", ball(0.1, 0.5), 0)
    assert Status.FLAT in merge([flat, flat], wb.AIS()).flags
    assert Status.FLAT not in merge([flat, hit], wb.AIS()).flags


def test_a_round_that_hit_nothing_is_not_left_out():
    """One round by its path, flat, and one by its bridge: all islands count."""
    flat, hit = weigh("smc", ball(1e-9, 30.0), 0), weigh("smc", ball(0.1, 0.5), 0)
    hit = dataclasses.replace(hit, diagnostics=hit.diagnostics | {"answer": "bridge"})
    both = merge([flat, hit], wb.SMC())
    islands = [r.diagnostics["island_log_evidence"] for r in (flat, hit)]
    assert both.log_evidence == combine_islands(np.concatenate(islands)).log_evidence
    assert both.diagnostics["answer"] == "path"


@pytest.mark.parametrize("height", [4.0, 8.0, 12.0, 20.0])
def test_the_error_covers_a_few_hits(height):
    """Means over 16 islands of 64 draws, of which 0.1, 0.4 or 2 are expected to hit the ball."""
    rng = np.random.default_rng(int(height))
    for mass in (1e-4, 4e-4, 2e-3):
        hits = rng.binomial(64, mass, (4000, 16))
        hits = hits[hits.sum(axis=1) > 0]  # the others are flat, and flagged
        exact = math.log1p(mass * math.expm1(height))
        islands = np.log1p(hits / 64 * math.expm1(height))
        combined = [combine_islands(row) for row in islands]
        scores = np.array([(c.log_evidence - exact) / c.std_error for c in combined])
        # That there was a hit at all is a bias: of a rate of 0.1 one hit is ten times too many.
        assert np.mean(np.abs(scores) > 3) < 0.01


def test_thermodynamic_integration_is_as_sure_as_its_islands_are_alike():
    rng = np.random.default_rng(0)
    alike = rng.normal(0.0, 0.05, 16)
    few = np.where(np.arange(16) < 2, 8.0, 0.0)
    combine = Thermodynamic().combine
    assert combine(alike).std_error < 1.1 * np.std(alike, ddof=1) / 4 * math.sqrt(15 / 13)
    # Two of 16 islands have found 8 nats: the mean of the logs is 1, the log of the mean 5.9.
    assert combine(few).std_error > 4


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("mass", "height"), [(4e-4, 10.0), (4e-4, 20.0), (1e-6, 12.0)])
def test_a_small_ball_is_answered_or_flagged(method, mass, height):
    exact = math.log1p(mass * math.expm1(height))
    for seed in range(12):
        result = weigh(method, ball(mass, height), seed)
        assert result.flags or abs(result.log_evidence - exact) < 4 * result.std_error
