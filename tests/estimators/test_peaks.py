"""Quick climbs: their ends, the peaks at these, and what is joined of several modes."""

import math

import numpy as np
import pytest

from weighbridge.core.islands import combine_islands
from weighbridge.core.status import Status
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.bridging.bridge import Decision
from weighbridge.estimators.second_look.audit import Audit
from weighbridge.estimators.second_look.climbs import climb_together
from weighbridge.estimators.second_look.joining import Mode, join
from weighbridge.estimators.second_look.mode_samples import ModeSample, no_sample
from weighbridge.estimators.second_look.peaks import Peak, _known

PLACES = np.array([0.0, 20.0, 40.0])


def sample(centre, log_mass=0.0, found_by=5):
    """An importance sample of a normal mode, drawn from itself."""
    draws = centre + np.random.default_rng(int(centre)).normal(size=(1000, 1))
    mode = Mode(draws, np.full(1000, log_mass), (np.array([centre]), np.eye(1)))
    return ModeSample(log_mass, 0.01, 1000.0, mode, found_by)


def cloud_in(shares, num_islands=16, seed=0):
    """Particles of which a share is in each of the places, in every island alike."""
    numbers = np.random.default_rng(seed)
    places = np.repeat(PLACES[: len(shares)], np.round(np.multiply(shares, 100)).astype(int))
    position = places + numbers.normal(size=(num_islands, len(places)))
    return Cloud(position[..., None], np.zeros(position.shape), None), np.zeros(num_islands)


def looked(*groups):
    return Audit(None, *no_sample(1)[:4], groups)


def missed(groups, shares):
    return looked(*groups).missed(*cloud_in(shares), combine_islands)


def test_climbs_end_at_the_tops_in_few_evaluations():
    root = np.array([[1.0, 0.0], [30.0, 0.1]])
    precision = np.linalg.inv(root @ root.T)
    calls = []

    def measure(u):
        calls.append(len(u))
        away = u - np.array([1.0, -2.0])
        return -0.5 * np.einsum("ni,ij,nj->n", away, precision, away), -away @ precision

    starts = np.random.default_rng(0).normal(size=(200, 2)) * 5
    _, heights = climb_together(measure, starts, np.ones(2))
    reached = np.isfinite(heights)
    assert reached.mean() > 0.85
    # Half a nat is one standard deviation, here of a Gaussian 10,000 times longer than wide.
    assert heights[reached].min() > -0.5
    assert len(calls) <= 41


def test_a_climb_that_starts_where_nothing_is_defined_has_no_end():
    def measure(u):
        height = np.where(u[:, 0] > 0, -((u[:, 0] - 1.0) ** 2), np.nan)
        return height, -2.0 * (u - 1.0)

    ends, heights = climb_together(measure, np.array([[-3.0], [2.0]]), np.ones(1))
    assert heights[0] == -math.inf
    assert ends[1, 0] == pytest.approx(1.0, abs=1e-2)


def test_all_modes_that_a_path_missed_are_joined():
    joined = missed([sample(20.0), sample(40.0), sample(0.0)], [1.0])
    assert joined.num_modes >= 2
    assert joined.log_evidence == pytest.approx(math.log(3.0), abs=0.02)
    assert joined.is_missed
    assert joined.is_sure


def test_nothing_counts_twice_where_regions_meet():
    """Samples of one mode by two Gaussians: the second counts only outside of the first."""
    one = sample(20.0).mode
    other = one._replace(gaussian=(np.array([20.5]), np.eye(1)))
    cloud, islands = cloud_in([1.0])
    both = join([one, other], cloud, islands, combine_islands)
    assert both.log_evidence == pytest.approx(math.log(2.0), abs=0.02)


def test_an_empty_sample_holds_nothing():
    assert not no_sample(2).holds(np.zeros(2))
    assert sample(0.0).holds(np.array([1.0]))
    assert not sample(0.0).holds(np.array([9.0]))


def test_what_a_path_carries_is_left_alone():
    assert missed([sample(0.0, math.log(0.5)), sample(20.0, math.log(0.5))], [0.5, 0.5]) is None


def test_a_mode_that_a_single_climb_found_is_flagged():
    decision = Decision(0.0, 0.01, (), {"answer": "path", "path_log_evidence": 0.0})
    for found_by, flags in ((1, (Status.MASS_MISSED,)), (2, ())):
        joined = missed([sample(0.0), sample(20.0, found_by=found_by)], [1.0])
        settled, included = joined.settle(decision, ())
        assert included
        assert settled.flags == flags
        assert settled.diagnostics["answer"] == "neither"
        assert ("notes" in settled.diagnostics) == (not flags)
        assert settled.std_error < 0.05


def peaks(*masses):
    return [Peak(np.array([p]), np.eye(1), m, 5) for p, m in zip(PLACES, masses)]


def test_peaks_are_known_if_the_particles_carry_all_of_them():
    def known(masses, cloud_and_islands):
        return {peak.is_known for peak in _known(peaks(*masses), *cloud_and_islands)}

    half = [math.log(0.5)] * 2
    assert known(half, cloud_in([0.5, 0.5])) == {True}
    assert known(half, cloud_in([1.0, 0.0])) == {False}
    # Islands that do not agree about the shares.
    left, right = cloud_in([1.0])[0], cloud_in([0.0, 1.0])[0]
    mixed = left._replace(position=np.concatenate([left.position[:8], right.position[8:]]))
    assert known(half, (mixed, np.zeros(16))) == {False}
    # A peak of a thousandth is no reason to look.
    assert known([0.0, -7.0], cloud_in([1.0])) == {True}
