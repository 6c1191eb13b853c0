"""The parts of a second look by themselves: a mode's region, what is joined, what is answered."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import weighbridge as wb
from weighbridge.core.islands import combine_islands
from weighbridge.core.status import Status
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.bridging.bridge import Decision
from weighbridge.estimators.second_look.audit import Audit, drift_diagnostics
from weighbridge.estimators.second_look.joining import Joined, Mode, combined_parts
from weighbridge.estimators.second_look.streams import amended, look_again
from weighbridge.results.evidence_result import Evidence
from weighbridge.results.trace import Trace

MODEL = wb.zoo.gaussian.model()
NUM_ISLANDS, NUM_PARTICLES = 8, 64


def standard(num_draws=4000, centre=0.0, log_mass=0.0, seed=0):
    """An exact importance sample of a Gaussian mode of this mass: all weights are the same."""
    draws = centre + np.random.default_rng(seed).normal(size=(num_draws, 1))
    return Mode(draws, np.full(num_draws, log_mass), (np.array([centre]), np.eye(1)))


def cloud_at(centre=0.0, seed=1):
    position = centre + np.random.default_rng(seed).normal(size=(NUM_ISLANDS, NUM_PARTICLES, 1))
    return Cloud(
        jnp.asarray(position),
        jnp.zeros((NUM_ISLANDS, NUM_PARTICLES)),
        jnp.zeros((NUM_ISLANDS, NUM_PARTICLES), int),
    )


def look(mode, ess=1000.0):
    return Audit(None, 0.0, 0.01, ess, mode)


def decided(answer="path", log_evidence=0.0, std_error=0.01):
    return Decision(log_evidence, std_error, (Status.LOW_ESS,), {"answer": answer})


def joined(log_evidence, std_error=0.01, gain=1.0, gain_error=0.01):
    nothing = np.empty((0, 1)), np.empty(0)
    return Joined(log_evidence, std_error, *nothing, gain, gain_error)


def test_a_region_goes_halfway_to_the_nearest_particle_outside():
    mode = standard()
    least = mode.radius(np.empty(0))
    # Beyond it a standard normal has a millionth of its mass.
    assert math.erfc(least / math.sqrt(2)) == pytest.approx(1e-6, rel=1e-3)
    assert mode.radius(np.array([0.5, 1.0])) == least
    assert mode.radius(np.array([0.5, least + 4.0, least + 9.0])) == least + 2.0
    assert mode.distance(np.array([[3.0], [-2.0]])).tolist() == [3.0, 2.0]


def test_parts_of_islands_of_which_some_found_nothing():
    parts = np.log(np.array([1.0, 2.0, 3.0, 2.0]))
    assert combined_parts(parts, combine_islands) == combine_islands(parts)
    with_nothing = np.append(parts, [-np.inf] * 4)
    assert combined_parts(with_nothing, combine_islands).log_evidence == pytest.approx(0.0)
    assert combined_parts(with_nothing, combine_islands).std_error > 0.3


def test_a_path_is_overruled_and_a_bridge_only_from_below():
    found = joined(2.0)
    assert found.is_missed
    assert found.overrules(decided("path", log_evidence=5.0))
    assert found.overrules(decided("bridge", log_evidence=1.0))
    assert not found.overrules(decided("bridge", log_evidence=1.95))
    assert not found.overrules(decided("bridge", log_evidence=5.0))


def test_what_is_lacking_clearly_is_in_the_error():
    little = joined(0.08, 0.001, gain=0.08, gain_error=0.001)
    assert little.is_clear
    assert not little.is_missed
    assert little.widened(decided()).std_error == pytest.approx(math.hypot(0.01, 0.08))
    # Not by chance, and not where the answer has it already.
    assert little.widened(decided(std_error=0.1)) == decided(std_error=0.1)
    assert little.widened(decided(log_evidence=1.0)) == decided(log_evidence=1.0)


def test_too_few_draws_say_nothing():
    islands = np.zeros(NUM_ISLANDS)
    assert look(standard(centre=50.0)).missed(cloud_at(), islands, combine_islands) is not None
    assert look(standard(centre=50.0), 10).missed(cloud_at(), islands, combine_islands) is None
    dead = np.full(NUM_ISLANDS, -np.inf)
    assert look(standard(centre=50.0)).missed(cloud_at(), dead, combine_islands) is None


def amend(mode, decision):
    found = Evidence(
        *(0.0, 0.01, 9, "smc", Trace(), {"mu": np.zeros(2)}, np.log([0.5, 0.5])),
        flags=(Status.LOW_ESS,),
    )
    run = MODEL, cloud_at(), np.zeros(NUM_ISLANDS)
    second = None if mode is None else look(mode)
    return amended(found, decision, second, run, combine_islands)


def test_a_stream_is_answered_with_the_mode_that_it_missed():
    result = amend(standard(centre=50.0), decided())
    assert result.log_evidence == pytest.approx(math.log(2.0), abs=1e-3)
    assert result.flags == (Status.MASS_MISSED, Status.LOW_ESS)
    assert result.diagnostics["answer"] == "neither"
    # Half of the posterior is where no particle was.
    weight = np.exp(result.log_weights)
    assert weight[result.samples["mu"] > 25.0].sum() == pytest.approx(0.5, abs=1e-3)


def test_without_a_mode_a_stream_is_answered_as_was_decided():
    decision = decided("bridge", log_evidence=-1.0, std_error=0.2)
    for mode in (None, standard()):
        result = amend(mode, decision)
        assert (result.log_evidence, result.std_error) == (-1.0, 0.2)
        assert result.flags == (Status.LOW_ESS,)
        assert len(result.samples["mu"]) == 2
    assert "quenched_log_evidence" not in amend(None, decision).diagnostics


def test_further_rounds_of_islands_do_not_look_again():
    """They would fall into the same modes; nothing is asked of what they would move by."""
    islands = np.arange(NUM_ISLANDS, 2 * NUM_ISLANDS)
    assert look_again(0, islands, cloud_at(), None, None) is None


def test_drifts_of_rounds_are_told_together():
    assert drift_diagnostics([]) == {}
    told = drift_diagnostics([np.array([1.0, np.nan]), np.array([3.0])])
    assert told["drift"] == 2.0
    assert len(told["island_drift"]) == 3
    assert math.isnan(drift_diagnostics([np.array([np.nan])])["drift"])
