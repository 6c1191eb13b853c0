"""Ratios from NUTS against exact values, in units of the stated error."""

import math

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

import weighbridge as wb
from tests.helpers import conjugate

pytestmark = pytest.mark.long
QUIET = {"progress": False}


def _scores(found):
    """Errors in units of the stated ones: none beyond 4, and their mean within 3 of its own."""
    scores = np.array(
        [(ratio.log_bayes_factor - exact) / ratio.std_error for ratio, exact in found]
    )
    assert np.abs(scores).max() < 4
    assert abs(scores.mean()) < 3 / math.sqrt(len(scores))
    return scores


@pytest.mark.parametrize("deviations", [0.0, 2.0, 6.0])
def test_one_entry_at_any_distance(deviations):
    found = []
    for seed in range(5):
        data = conjugate.regression(deviations, seed)
        ratio = wb.savage_dickey(conjugate.model(), data, {"w[2]": 0.0}, seed=seed, **QUIET)
        found.append((ratio, conjugate.log_ratio(data, [2])))
        assert ratio.std_error < 0.02
        assert ratio.flags == ()
    _scores(found)


def test_several_parameters_at_once():
    found = []
    for seed in range(4):
        data = conjugate.regression(1.0, seed)
        ratio = wb.savage_dickey(conjugate.model(), data, {"w": 0.0}, seed=seed, **QUIET)
        found.append((ratio, conjugate.log_ratio(data, [0, 1, 2])))
    _scores(found)


def _with_scale(p, row):
    return dist.Normal(p["mu"] + p["tau"] * row["x"], 1.0).log_prob(row["y"])


def test_a_scale_at_the_edge_of_its_support():
    """The unconstrained image of the point is at infinity."""
    model = wb.Model({"mu": dist.Normal(0, 1), "tau": dist.HalfNormal(1.0)}, _with_scale)
    found = []
    for seed in range(4):
        generator = np.random.default_rng(seed)
        x = generator.normal(size=30)
        data = {"x": x, "y": 0.2 + 0.1 * x + generator.normal(size=30)}

        def log_marginal(tau, x=x, y=data["y"]):
            return stats.multivariate_normal.logpdf(y, tau * x, np.eye(30) + 1.0)

        top = log_marginal(0.1)
        area = integrate.quad(
            lambda t, f=log_marginal, top=top: math.exp(f(t) - top) * stats.halfnorm.pdf(t), 0, 3
        )[0]
        ratio = wb.savage_dickey(model, data, {"tau": 0.0}, seed=seed, **QUIET)
        found.append((ratio, log_marginal(0.0) - top - math.log(area)))
        assert ratio.std_error < 0.05
    _scores(found)


def _intercept(p, row):
    return dist.Normal(p["b"], 1.0).log_prob(row["y"])


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_a_nested_model_with_the_same_prior_and_with_another(scale):
    nested = wb.Model({"b": dist.Normal(0, scale)}, _intercept)
    found = []
    for seed in range(3):
        data = conjugate.regression(1.0, seed)
        ratio = wb.savage_dickey(
            conjugate.model(), data, {"w": 0.0}, nested=nested, seed=seed, **QUIET
        )
        exact = conjugate.log_evidence(data, [3], [scale])
        found.append((ratio, exact - conjugate.log_evidence(data, [0, 1, 2, 3])))
        says = "as it should be" if scale == 1.0 else "its own prior"
        assert says in ratio.remarks[0]
    _scores(found)


def _three_models():
    one = wb.Model(
        {"b": dist.Normal(0, 1), "slope": dist.Normal(0, 2)},
        lambda p, row: dist.Normal(p["b"] + p["slope"] * row["x"][0], 1.0).log_prob(row["y"]),
    )
    constant = wb.Model({"b": dist.Normal(0, 1)}, _intercept)
    return {"full": conjugate.model(), "constant": constant, "one": one}


def test_product_space_of_three_models():
    models = _three_models()
    for seed in range(2):
        data = conjugate.regression(1.0, seed)
        exact = [
            conjugate.log_evidence(data, columns, scales)
            for columns, scales in (([0, 1, 2, 3], None), ([3], None), ([0, 3], [2.0, 1.0]))
        ]
        ratio = wb.product_space(models, data, seed=seed, **QUIET)
        assert ratio.flags == ()
        for number, name in enumerate(models):
            for other, against in enumerate(models):
                error = ratio.error_between(name, against)
                apart = ratio.between(name, against) - (exact[number] - exact[other])
                assert abs(apart) <= 4 * error < 0.1


def test_product_space_bounds_a_model_that_is_never_visited():
    near, far = (wb.zoo.gaussian.model(prior_mean=mean, prior_scale=0.1) for mean in (2.0, -2.0))
    data = wb.zoo.gaussian.simulate(50, mean=2.0, seed=1)
    models = {"near": near, "far": far}
    exact = [
        wb.zoo.gaussian.log_evidence(data, prior_mean=mean, prior_scale=0.1) for mean in (2.0, -2.0)
    ]
    ratio = wb.product_space(models, data, odds={"near": 1.0, "far": 1.0}, **QUIET)
    assert ratio.bound == "at most"
    assert math.isnan(ratio.std_error)
    assert exact[1] - exact[0] < ratio.log_bayes_factor < -4
    assert wb.Status.RARELY_VISITED in ratio.flags
    assert "at most" in str(ratio)
    assert "at most" in str(wb.compare(ratio))
    turned = wb.product_space(
        dict(reversed(models.items())), data, odds={"near": 1.0, "far": 1.0}, **QUIET
    )
    assert turned.bound == "at least"
    assert turned.best == "near"
    tuned = wb.product_space(models, data, **QUIET)
    assert abs(tuned.log_bayes_factor - (exact[1] - exact[0])) < 4 * tuned.std_error < 0.1


def test_importance_ratio_of_correlated_draws():
    def model(noise):
        return wb.zoo.gaussian.model(noise=noise)

    found = []
    for seed in range(6):
        data = wb.zoo.gaussian.simulate(50, mean=0.5, seed=seed)
        # A random walk is autocorrelated, unlike NUTS here.
        posterior = wb.sample(
            model(1.0), data, wb.Metropolis(0.1), num_samples=2000, seed=seed, progress=False
        )
        ratio = wb.importance_ratio(posterior, model(1.1), data, model=model(1.0))
        exact = [wb.zoo.gaussian.log_evidence(data, noise=noise) for noise in (1.1, 1.0)]
        found.append((ratio, exact[0] - exact[1]))
    _scores(found)
