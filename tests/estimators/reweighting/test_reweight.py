"""Reweighted posteriors against exact conjugate answers."""

import math

import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.status import Status

SMALL = {"num_draws": 256, "num_islands": 8}


@pytest.fixture(scope="module")
def data():
    return wb.zoo.gaussian.simulate(40, seed=5)


@pytest.fixture(scope="module")
def result(data):
    return wb.evidence(wb.zoo.gaussian.model(), data, wb.Importance(**SMALL), progress=False)


def chain(data, correlation, seed, num_samples=1000):
    """Exact posterior draws of the Gaussian zoo model in four chains, with autocorrelation."""
    numbers = np.random.default_rng(seed)
    noise = numbers.standard_normal((4, num_samples))
    path = noise.copy()
    for step in range(1, num_samples):
        fresh = math.sqrt(1 - correlation**2) * noise[:, step]
        path[:, step] = correlation * path[:, step - 1] + fresh
    return {"mu": data.sum() / (len(data) + 1) + path / math.sqrt(len(data) + 1)}


def exact_ratio(data, **other):
    return wb.zoo.gaussian.log_evidence(data, **other) - wb.zoo.gaussian.log_evidence(data)


@pytest.mark.parametrize("correlation", [0.0, 0.95])
def test_the_ratio_of_evidences_from_chains(data, correlation):
    """Autocorrelated draws do not make the error too small."""
    model, other = wb.zoo.gaussian.model(), wb.zoo.gaussian.model(1.0, 0.8)
    exact = exact_ratio(data, prior_mean=1.0, prior_scale=0.8)
    z = []
    for seed in range(20):
        found = wb.reweight(chain(data, correlation, seed), model, data, to=other)
        z.append((found.log_ratio - exact) / found.ratio_error)
        assert not found.flags
        assert math.isnan(found.log_evidence)
    assert 0.5 < np.std(z) < 1.6
    assert abs(np.mean(z)) < 4 / math.sqrt(20)


def test_a_posterior_and_its_evidence_move_together(data, result):
    model, other = wb.zoo.gaussian.model(), wb.zoo.gaussian.model(1.0, 0.8)
    moved = wb.reweight(result, model, data, to=other)
    exact = wb.zoo.gaussian.log_evidence(data, prior_mean=1.0, prior_scale=0.8)
    assert abs(moved.log_evidence - exact) < 5 * moved.std_error
    assert moved.log_evidence == pytest.approx(result.log_evidence + moved.log_ratio)
    precision = 40 + 1 / 0.64
    mean = float(np.exp(moved.log_weights) @ moved.samples["mu"])
    assert abs(mean - (data.sum() + 1 / 0.64) / precision) < 5 / math.sqrt(precision * moved.ess)
    assert np.logaddexp.reduce(moved.log_weights) == pytest.approx(0.0, abs=1e-9)
    assert "log ratio of evidences" in str(moved)
    assert "log evidence" in repr(moved)
    assert moved.fingerprint == result.fingerprint
    # The two are compared as any two results.
    table = wb.compare({"before": result, "after": moved})
    assert table.log_bayes_factors["before"] - table.log_bayes_factors["after"] == pytest.approx(
        -moved.log_ratio
    )


def test_rows_may_be_taken_away(data, result):
    fewer = data[:-1]
    moved = wb.reweight(result, wb.zoo.gaussian.model(), data, to_data=fewer)
    exact = wb.zoo.gaussian.log_evidence(fewer)
    assert abs(moved.log_evidence - exact) < 5 * moved.std_error
    assert moved.num_observations == 39


@pytest.mark.long
def test_a_prior_in_other_coordinates(data):
    """Half-normal against a truncated normal: one parameter with two sets of coordinates."""

    def likelihood(p, y):
        return dist.Normal(0.0, p["s"]).log_prob(y)

    rows = data - data.mean()
    models = [
        wb.Model({"s": dist.HalfNormal(2.0)}, likelihood),
        wb.Model({"s": dist.TruncatedNormal(1.0, 1.0, low=0.0, high=30.0)}, likelihood),
    ]
    grid = np.linspace(1e-3, 6, 60_001)
    logs = [np.asarray(m._entries["s"].log_prob(grid)) for m in models]
    height = [
        log - 40 * np.log(grid) - np.sum(rows**2) / (2 * grid**2) - 20 * math.log(2 * math.pi)
        for log in logs
    ]
    exact = np.diff([np.logaddexp.reduce(h) for h in height])[0]
    first = wb.evidence(models[0], rows, wb.Importance(**SMALL), progress=False)
    moved = wb.reweight(first, models[0], rows, to=models[1])
    assert abs(moved.log_ratio - exact) < 5 * moved.ratio_error + 1e-6
    assert not moved.flags


def test_a_far_posterior_is_flagged(data):
    moved = wb.reweight(chain(data, 0.0, 0), wb.zoo.gaussian.model(), data, to_data=data + 2.0)
    assert Status.HEAVY_WEIGHTS in moved.flags
    assert Status.LOW_ESS in moved.flags


def test_chains_in_different_places_are_flagged(data):
    draws = chain(data, 0.0, 0)
    apart = {"mu": draws["mu"] + 0.3 * np.arange(4)[:, None]}
    moved = wb.reweight(apart, wb.zoo.gaussian.model(), data, to=wb.zoo.gaussian.model(0.1))
    assert Status.CHAINS_DISAGREE in moved.flags
    assert moved.diagnostics["rhat"] > 1.1


def test_draws_without_an_evidence_are_saved_and_read(data, tmp_path):
    other = wb.zoo.gaussian.model(0.1)
    moved = wb.reweight(chain(data, 0.0, 0), wb.zoo.gaussian.model(), data, to=other)
    moved.save(tmp_path / "moved.safetensors")
    again = wb.Reweighted.load(tmp_path / "moved.safetensors")
    assert math.isnan(again.log_evidence)
    assert str(again) == str(moved)
    with pytest.raises(wb.WeighbridgeError, match="no log evidence to compare"):
        wb.compare({"moved": again, "again": moved})


def test_flags_of_the_first_result_stay(data, result):
    import dataclasses

    flagged = dataclasses.replace(result, flags=(Status.ISLANDS_DISAGREE,))
    moved = wb.reweight(flagged, wb.zoo.gaussian.model(), data, to=wb.zoo.gaussian.model(0.1))
    assert moved.flags == (Status.ISLANDS_DISAGREE,)


def test_a_wider_support_is_refused():
    def likelihood(p, y):
        return dist.Normal(p["s"], 1.0).log_prob(y)

    narrow, wide = (wb.Model({"s": dist.Uniform(0.0, w)}, likelihood) for w in (1.0, 2.0))
    rows = np.array([0.4, 0.6])
    first = wb.evidence(narrow, rows, wb.Importance("prior", **SMALL), progress=False)
    with pytest.raises(wb.ModelError, match="outside the support"):
        wb.reweight(first, narrow, rows, to=wide)
    # The other way round draws outside have no weight.
    second = wb.evidence(wide, rows, wb.Importance("prior", **SMALL), progress=False)
    back = wb.reweight(second, wide, rows, to=narrow)
    assert abs(back.log_evidence - first.log_evidence) < 5 * math.hypot(
        back.std_error, first.std_error
    )


def test_bad_input_is_refused(data, result):
    model = wb.zoo.gaussian.model()
    other = wb.Model({"nu": dist.Normal(0, 1)}, lambda p, y: dist.Normal(p["nu"], 1).log_prob(y))
    with pytest.raises(wb.MethodError, match="another model"):
        wb.reweight(result, model, data)
    with pytest.raises(wb.ModelError, match="different parameters"):
        wb.reweight(result, model, data, to=other)
    with pytest.raises(wb.DataError, match="no parameters"):
        wb.reweight({"nu": np.ones(50)}, model, data, to=model)
    with pytest.raises(wb.WeighbridgeError, match="Model"):
        wb.reweight(result, model, data, to="other")
    with pytest.raises(wb.DataError, match="give it data"):
        wb.reweight(result, model, None, to=wb.zoo.gaussian.model(1.0))
