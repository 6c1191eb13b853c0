"""Bridge sampling against normalising constants that are known."""

import math

import numpy as np
import pytest
from scipy import stats

from weighbridge.diagnostics.pareto import pareto_khat
from weighbridge.estimators.bridging.bridge import Bridged, bridge

GROUPS, DRAWS = 16, 64
BOUND = 5.0  # a Student t of 15 degrees is beyond it once in 6,000


def normal_ratio(x, log_evidence, mean, scale):
    """log f / q for f = Z N(x; mean, scale) and q = N(x; 0, 1), in several dimensions."""
    target = stats.norm(mean, scale).logpdf(x).sum(-1)
    return log_evidence + target - stats.norm(0, 1).logpdf(x).sum(-1)


def samples(seed, mean, scale, dimension):
    generator = np.random.default_rng(seed)
    noise = generator.normal(size=(2, GROUPS, DRAWS, dimension))
    return mean + scale * noise[0], noise[1]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("mean", "scale", "dimension"), [(0.3, 1.2, 2), (1.0, 0.7, 3)])
def test_a_known_constant_is_found_within_its_error(seed, mean, scale, dimension):
    posterior, proposal = samples(seed, mean, scale, dimension)
    ratio = lambda x: normal_ratio(x, -1e6, mean, scale)  # noqa: E731
    found = bridge(ratio(posterior), ratio(proposal), np.zeros((GROUPS, DRAWS)))
    assert abs(found.log_evidence + 1e6) < BOUND * found.std_error
    assert found.std_error < 0.2


def test_the_error_is_true():
    errors, stated = [], []
    for seed in range(200):
        posterior, proposal = samples(seed, 0.5, 1.3, 2)
        ratio = lambda x: normal_ratio(x, 0.0, 0.5, 1.3)  # noqa: E731
        found = bridge(ratio(posterior), ratio(proposal), np.zeros((GROUPS, DRAWS)))
        errors.append(found.log_evidence)
        stated.append(found.std_error)
    z = np.array(errors) / np.array(stated)
    assert abs(z.mean()) < 4 / math.sqrt(200)
    assert 0.8 < z.std() < 1.2


def test_weights_of_the_draws_count():
    posterior, proposal = samples(0, 0.0, 1.0, 1)
    ratio = lambda x: normal_ratio(x, 2.0, 0.5, 1.0)  # noqa: E731
    # Draws of the wrong distribution, weighted to the right one.
    log_weight = normal_ratio(posterior, 0.0, 0.5, 1.0)
    found = bridge(ratio(posterior), ratio(proposal), log_weight)
    assert abs(found.log_evidence - 2.0) < BOUND * found.std_error
    wrong = bridge(ratio(posterior), ratio(proposal), np.zeros((GROUPS, DRAWS)))
    assert abs(wrong.log_evidence - 2.0) > BOUND * wrong.std_error
    dead = log_weight.copy()
    dead[:, ::2] = -np.inf
    half = bridge(ratio(posterior), ratio(proposal), dead)
    assert abs(half.log_evidence - 2.0) < BOUND * half.std_error


def test_a_mode_that_the_proposal_misses_is_in_the_estimate_and_seen():
    """f = 2 N(0, 1) + 1 N(50, 1), of which the proposal N(0, 1) knows only the first."""
    generator = np.random.default_rng(3)
    posterior, proposal = generator.normal(size=(2, GROUPS, DRAWS))
    posterior = posterior + 50.0 * (generator.random((GROUPS, DRAWS)) < 1 / 3)

    def ratio(x):
        first, second = stats.norm(0, 1).logpdf(x), stats.norm(50, 1).logpdf(x)
        return np.logaddexp(np.log(2) + first, second) - first

    found = bridge(ratio(posterior), ratio(proposal), np.zeros((GROUPS, DRAWS)))
    assert abs(found.log_evidence - math.log(3)) < BOUND * found.std_error
    assert found.overlap < 0.8
    both = bridge(ratio(proposal), ratio(proposal), np.zeros((GROUPS, DRAWS)))
    assert both.overlap > 0.99


def test_heavy_ratios_are_told():
    posterior, proposal = samples(1, 0.0, 3.0, 5)
    ratio = lambda x: normal_ratio(x, 0.0, 0.0, 3.0)  # noqa: E731
    found = bridge(ratio(posterior), ratio(proposal), np.zeros((GROUPS, DRAWS)))
    assert found.khat_proposal > 0.7
    assert pareto_khat(np.full(10, 0.0)) == math.inf
    # A tail of equal ratios, of a length at which one slope of the grid is exactly nothing.
    step = np.where(np.arange(1296) < 1296 - 108, 0.0, 1e-9)
    assert math.isfinite(pareto_khat(step))


def test_few_groups_state_no_error():
    posterior, proposal = samples(2, 0.0, 1.0, 1)
    ratio = lambda x: normal_ratio(x, 0.0, 0.1, 1.0)  # noqa: E731
    found = bridge(ratio(posterior)[:3], ratio(proposal)[:3], np.zeros((3, DRAWS)))
    assert math.isnan(found.std_error)


def test_no_overlap_at_all_is_no_evidence():
    nothing = np.full((4, 8), -np.inf)
    assert bridge(np.zeros((4, 8)), nothing, np.zeros((4, 8))).log_evidence == -math.inf


@pytest.mark.parametrize("size", [30, 200, 5000])
@pytest.mark.parametrize("scale", [0.2, 1.0, 3.0])
def test_khat_is_that_of_arviz(size, scale):
    from arviz_stats.base import array_stats

    log_ratio = scale * np.random.default_rng(size).normal(size=size)
    expected = float(array_stats.psislw(-log_ratio)[1])  # it takes the log of inverse ratios
    # It drops the unlikely part of the grid of slopes, which moves the fit a little.
    assert pareto_khat(log_ratio) == pytest.approx(expected, abs=0.01)


def test_a_bridge_of_unknown_error_is_neither_the_answer_nor_short():
    unknown = Bridged(-100.0, float("nan"), 0.1, 0.1, 1.0, True)
    assert unknown.judge(-5000.0, 1.0) == (False, None)
    assert unknown.judge(-10.0, 1.0) == (False, None)


def test_groups_that_are_elsewhere_are_told():
    rng = np.random.default_rng(0)
    here = rng.normal(size=(5, 200))
    posterior = 0.01 * here
    posterior[3] += 300.0  # where the proposal does not reach: f / q is huge
    found = bridge(posterior, 0.01 * rng.normal(size=(5, 200)), np.full((5, 200), -3.0))
    np.testing.assert_allclose(found.reached[[0, 1, 2, 4]], 1.0, atol=0.3)
    assert found.reached[3] < 1e-6
