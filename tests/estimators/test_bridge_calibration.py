"""Bridges over many seeds: chains of NUTS, slow chains, and many parameters."""

import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import weighbridge as wb
from weighbridge.core.status import Status

pytestmark = pytest.mark.long


def rates_problem(size, num_rows):
    """Rates of exponential observations: skewed in unconstrained coordinates, and exact."""
    y = np.random.default_rng(1).exponential(1.0, size=(num_rows, size))
    model = wb.Model(
        {"rate": dist.Gamma(jnp.ones(size), 1.0).to_event(1)},
        lambda p, row: jnp.sum(dist.Exponential(p["rate"]).log_prob(row["y"])),
    )
    shape, total = 1.0 + num_rows, 1.0 + y.sum(axis=0)
    return model, {"y": y}, float(np.sum(special.gammaln(shape) - shape * np.log(total)))


def check(z, flagged):
    """Mean and standard deviation of z, each to four of their standard errors."""
    count = len(z)
    assert abs(np.mean(z)) < 4 / math.sqrt(count)
    assert abs(np.std(z) - 1) < 4 / math.sqrt(2 * count)
    assert flagged <= 0.1 * count


def test_chains_of_nuts():
    model, data, exact = rates_problem(4, 1)
    z, flagged = [], 0
    for seed in range(25):
        method = wb.Bridge(num_samples=400, num_warmup=300)
        result = wb.evidence(model, data, method, seed=seed)
        z.append((result.log_evidence - exact) / result.std_error)
        flagged += bool(result.flags)
    check(z, flagged)


@pytest.mark.parametrize("proposal", ["normal", "warp3"])
def test_slow_chains(proposal):
    model, data, exact = rates_problem(3, 1)
    total = 1.0 + data["y"].sum(axis=0)
    z, flagged = [], 0
    for seed in range(40):
        numbers = np.random.default_rng([seed, 5])
        scores = numbers.normal(size=(4, 1000, 3))
        for step in range(1, 1000):
            fresh = math.sqrt(1 - 0.93**2) * scores[:, step]
            scores[:, step] = 0.93 * scores[:, step - 1] + fresh
        draws = {"rate": stats.gamma(2.0).ppf(stats.norm.cdf(scores)) / total}
        result = wb.bridge(draws, model, data, proposal=proposal, seed=seed)
        z.append((result.log_evidence - exact) / result.std_error)
        flagged += bool(result.flags)
    check(z, flagged)


def test_two_hundred_parameters():
    model, data, exact = rates_problem(200, 4)
    total = 1.0 + data["y"].sum(axis=0)
    for seed in range(3):
        numbers = np.random.default_rng([seed, 6])
        draws = {"rate": numbers.gamma(5.0, size=(4, 1000, 200)) / total}
        result = wb.bridge(draws, model, data, seed=seed)
        assert abs(result.log_evidence - exact) < 4 * result.std_error
        assert result.std_error < 0.5
        assert Status.DRAWS_DO_NOT_FIT not in result.flags


def test_a_mixture_whose_chains_chose_their_labels():
    data = wb.zoo.mixture.simulate(100, num_components=2, num_features=1, seed=1)
    model = wb.zoo.mixture.model(2, 1)
    posterior = wb.sample(model, data, num_samples=500, num_warmup=500, seed=2)
    result = wb.bridge(posterior, model, data)
    other = wb.evidence(model, data, wb.SMC(num_islands=16, num_particles=128), seed=1)
    apart = abs(result.log_evidence - other.log_evidence)
    assert apart < 5 * math.hypot(result.std_error, other.std_error)
    assert Status.CHAINS_DISAGREE not in result.flags
