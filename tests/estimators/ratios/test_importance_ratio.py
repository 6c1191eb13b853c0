"""Importance ratios of two models with the same parameters."""

import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb

A, B = wb.zoo.gaussian.model(), wb.zoo.gaussian.model(noise=1.1)


def _case(seed, shape=(4, 500)):
    data = wb.zoo.gaussian.simulate(30, mean=0.5, seed=seed)
    scale = 1 / np.sqrt(31)
    return data, {"mu": data.sum() / 31 + scale * np.random.default_rng(seed).normal(size=shape)}


def test_exact_values_in_units_of_the_error():
    for seed in range(6):
        data, draws = _case(seed)
        ratio = wb.importance_ratio(draws, B, data, model=A)
        exact = wb.zoo.gaussian.log_evidence(data, noise=1.1) - wb.zoo.gaussian.log_evidence(data)
        assert abs(ratio.log_bayes_factor - exact) < 4 * ratio.std_error < 0.1
        assert ratio.flags == ()


def test_draws_that_do_not_reach_the_other_posterior_are_flagged():
    data, draws = _case(0)
    ratio = wb.importance_ratio(draws, wb.zoo.gaussian.model(noise=0.05), data, model=A)
    wide = wb.importance_ratio(draws, wb.zoo.gaussian.model(noise=5.0), data, model=A)
    assert wb.Status.HEAVY_WEIGHTS in ratio.flags + wide.flags
    assert wb.Status.HEAVY_WEIGHTS in wide.flags


def test_bad_input_is_refused():
    data, draws = _case(0)
    with pytest.raises(wb.MethodError, match="model of the draws"):
        wb.importance_ratio(draws, B, data)
    with pytest.raises(wb.DataError, match="give it data"):
        wb.importance_ratio(draws, B, model=A)
    other = wb.Model({"nu": dist.Normal(0, 1)}, lambda p, y: p["nu"] * y)
    with pytest.raises(wb.ModelError, match="different parameters"):
        wb.importance_ratio(draws, other, data, model=A)
    with pytest.raises(wb.DataError, match="have no parameters"):
        wb.importance_ratio({"nu": draws["mu"]}, B, data, model=A)
    fingerprint = wb.Fingerprint().add(data + 1.0, np.ones(30))
    flat = draws["mu"].reshape(-1)
    weighed = wb.Evidence(
        *(-1.0, 0.1, 30, "smc", wb.Trace(), {"mu": flat}, np.zeros(len(flat))),
        fingerprint=fingerprint,
    )
    with pytest.raises(wb.DataError, match="other data"):
        wb.importance_ratio(weighed, B, data, model=A)
    half = wb.Model({"mu": dist.HalfNormal(1.0)}, A.log_likelihood)
    positive = {"mu": np.abs(draws["mu"])}
    with pytest.raises(wb.ModelError, match="mass outside the support"):
        wb.importance_ratio(positive, A, data, model=half)


def test_product_space_refuses_bad_input():
    data, _ = _case(0)
    with pytest.raises(wb.MethodError, match="two or more models"):
        wb.product_space({"a": A}, data)
    with pytest.raises(wb.MethodError, match="exchangeable"):
        wb.product_space({"a": A, "b": wb.zoo.mixture.model()}, data)
    with pytest.raises(wb.MethodError, match="odds must name"):
        wb.product_space({"a": A, "b": B}, data, odds={"a": 1.0})
    with pytest.raises(wb.MethodError, match="odds must be positive"):
        wb.product_space({"a": A, "b": B}, data, odds={"a": 1.0, "b": 0.0})
    with pytest.raises(wb.MethodError, match="num_sweeps"):
        wb.product_space({"a": A, "b": B}, data, num_sweeps=3)
    with pytest.raises(wb.DataError, match="give it data"):
        wb.product_space({"a": A, "b": B})
