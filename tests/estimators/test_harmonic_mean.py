"""The harmonic mean fails as the documents say, and says so every time."""

import math

import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.status import Status

SMALL = wb.HarmonicMean(num_samples=200, num_warmup=300, num_chains=2)
DATA = wb.zoo.gaussian.simulate(100, seed=0)


def exact_draws(prior_scale, seed, count=1000):
    return wb.zoo.gaussian.posterior(DATA, prior_scale=prior_scale).draw(count, seed=seed)


def test_it_is_the_harmonic_mean_of_the_given_draws():
    draws = exact_draws(1.0, 0)
    result = wb.HarmonicMean().from_draws(wb.zoo.gaussian.model(), DATA, draws)
    each = dist.Normal(draws["mu"][:, None], 1.0).log_prob(DATA[None])
    log_likelihood = np.asarray(each, float).sum(axis=1)
    expected = math.log(1000) - np.logaddexp.reduce(-log_likelihood)
    assert result.log_evidence == pytest.approx(expected, abs=1e-3)  # the test's sum is in float32
    assert result.trace["num_draws"][-1] == 1000
    assert result.trace["log_evidence"][-1] == result.log_evidence
    assert 1 <= result.diagnostics["effective_draws"] < 1000
    assert result.num_observations == 100
    assert result.fingerprint is not None


def test_it_is_too_high_by_more_the_wider_the_prior_is_and_flagged_every_time():
    """With prior scale t the exact value falls as -log t; the harmonic mean does not notice.

    At t = 100 its excess is at least 3 nats in each of 20 sets of 1,000 exact draws. A sum of
    1,000 inverse likelihoods exp(chi-squared / 2) reaches 1,000 log 1,000 or so, not 1,000 t.
    """
    found = {}
    for scale in (1.0, 100.0):
        model = wb.zoo.gaussian.model(prior_scale=scale)
        exact = wb.zoo.gaussian.log_evidence(DATA, prior_scale=scale)
        results = [
            wb.HarmonicMean().from_draws(model, DATA, exact_draws(scale, seed))
            for seed in range(20)
        ]
        assert all(r.status is Status.INFINITE_VARIANCE for r in results)
        assert all(math.isnan(r.std_error) for r in results)
        found[scale] = np.array([r.log_evidence for r in results]) - exact
    assert found[1.0].mean() > 0
    assert found[100.0].min() > 3.0
    # The flag names the remedy, and the report shows it.
    assert "wb.bridge(posterior, model, data)" in str(results[0])


def test_it_samples_as_wb_sample_does_and_other_islands_differ():
    model = wb.zoo.gaussian.model()
    result = wb.evidence(model, DATA, SMALL, seed=3)
    drawn = wb.sample(model, DATA, num_samples=200, num_warmup=300, num_chains=2, seed=3)
    # Chain by chain, so that the draws can be read as chains again.
    assert np.array_equal(result.samples["mu"], drawn.samples["mu"].reshape(-1))
    again = wb.HarmonicMean().from_draws(model, DATA, drawn)
    assert again.log_evidence == pytest.approx(result.log_evidence, abs=1e-9)
    assert result.diagnostics["chain_log_evidence"].shape == (2,)
    other = SMALL.estimate(model, DATA, np.ones(100), seed=3, first_island=1)
    assert not np.array_equal(other.samples["mu"], result.samples["mu"])


def test_weighted_draws_count_by_their_weights():
    model = wb.zoo.gaussian.model()
    draws = exact_draws(1.0, 1, 400)["mu"]
    twice = {"mu": np.concatenate([draws, draws[:100]])}
    log_weights = np.log(2.0) * (np.arange(400) < 100)
    weighted = wb.Evidence(
        -1.0, 0.1, 100, "smc", wb.Trace(), {"mu": draws}, log_weights - np.log(500.0)
    )
    one = wb.HarmonicMean().from_draws(model, DATA, weighted)
    two = wb.HarmonicMean().from_draws(model, DATA, twice)
    assert one.log_evidence == pytest.approx(two.log_evidence, abs=1e-9)


def test_a_likelihood_on_the_host_is_sampled_by_slices():
    host = wb.Model(
        {"m": dist.Normal(0, 1)},
        total_log_likelihood=lambda p: -0.5 * np.asarray(p["m"]) ** 2,
        on_host=True,
    )
    method = wb.HarmonicMean(num_samples=100, num_warmup=50, num_chains=1)
    result = wb.evidence(host, None, method, seed=0)
    assert abs(result.log_evidence + 0.5 * math.log(2.0)) < 0.5
    assert Status.INFINITE_VARIANCE in result.flags


def test_bad_input_is_refused():
    model = wb.zoo.gaussian.model()
    with pytest.raises(wb.DataError, match="no parameters"):
        wb.HarmonicMean().from_draws(model, DATA, {"nu": np.arange(50.0)})
    with pytest.raises(wb.DataError, match="equal"):
        wb.HarmonicMean().from_draws(model, DATA, {"mu": np.ones(50)})
    uniform = wb.Model({"top": dist.HalfNormal(9.0)}, lambda p, y: dist.Uniform(0.0, p["top"])
                       .log_prob(y))  # fmt: skip
    with pytest.raises(wb.DataError, match="likelihood is zero"):
        wb.HarmonicMean().from_draws(uniform, np.array([2.0]), {"top": np.linspace(1, 3, 50)})
    with pytest.raises(wb.MethodError, match="num_samples"):
        wb.HarmonicMean(num_samples=0)
    with pytest.raises(wb.MethodError, match="needs all the data at once"):
        wb.Online(model, "harmonic_mean")
