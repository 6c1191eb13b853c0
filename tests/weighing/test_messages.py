"""What a new user is told: models of other tools, the default method, small numbers."""

import sys
import types

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import weighbridge as wb
from weighbridge.core.errors import MethodError, ModelError
from weighbridge.models.scipy_names import counterpart
from weighbridge.results.evidence_result import Evidence
from weighbridge.results.trace import Trace

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
SMALL = wb.SMC(num_islands=4, num_particles=64)


def eight_schools(sigma, y=None, num_schools=8):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    with numpyro.plate("schools", num_schools):
        theta = numpyro.sample("theta", dist.Normal(mu, 10.0))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def sized_by_the_data(sigma, y=None):
    eight_schools(sigma, y, len(sigma))


@pytest.mark.parametrize("function", [eight_schools, sized_by_the_data])
def test_a_latent_value_for_each_row_is_called_that(function):
    with pytest.raises(ModelError, match=r"'theta'.*row.*total=True"):
        wb.from_numpyro(function, {"sigma": ERRORS, "y": EFFECTS})


def test_eight_schools_as_a_total_log_likelihood():
    model = wb.from_numpyro(eight_schools, {"sigma": ERRORS, "y": EFFECTS}, total=True)
    assert model.names == ("mu", "theta")
    # mu and theta integrated out by hand
    covariance = np.diag(ERRORS**2 + 100.0) + 25.0
    exact = stats.multivariate_normal(np.zeros(8), covariance).logpdf(EFFECTS)
    for seed in range(3):
        result = wb.evidence(model, method=SMALL, seed=seed)
        assert abs(result.log_evidence - exact) < 5 * result.std_error
    again = wb.evidence(model, {"sigma": ERRORS, "y": EFFECTS}, SMALL, seed=2)
    assert again.log_evidence == pytest.approx(result.log_evidence, abs=1e-9)


def test_a_total_log_likelihood_refuses_data_of_other_shapes():
    model = wb.from_numpyro(eight_schools, {"sigma": ERRORS, "y": EFFECTS}, total=True)
    with pytest.raises(ModelError, match="other shapes"):
        wb.evidence(model, {"sigma": ERRORS[:7], "y": EFFECTS[:7]}, SMALL)


def test_models_that_keep_other_data_are_not_the_same():
    first, second = (
        wb.from_numpyro(sized_by_the_data, {"sigma": ERRORS, "y": y}, total=True)
        for y in (EFFECTS, EFFECTS + 50.0)
    )
    near, far = (wb.evidence(model, method=SMALL).log_evidence for model in (first, second))
    assert near > far + 10
    assert first.fingerprint() != second.fingerprint()


# --- other tools -------------------------------------------------------------------------


def test_a_pymc_model_is_told_what_to_do(monkeypatch):
    module = types.ModuleType("pymc.model")
    monkeypatch.setitem(sys.modules, "pymc.model", module)
    foreign = type("Model", (), {"__module__": "pymc.model.core"})()
    with pytest.raises(MethodError, match=r"PyMC.*NumPyro distribution"):
        wb.evidence(foreign, np.zeros(3))
    with pytest.raises(MethodError, match="PyMC"):
        wb.sample(foreign, np.zeros(3))


def test_a_numpyro_function_is_told_what_to_do():
    with pytest.raises(MethodError, match=r"eight_schools.*from_numpyro"):
        wb.evidence(eight_schools, {"y": EFFECTS})


FROZEN = [
    stats.norm(1.0, 2.0),
    stats.uniform(-1.0, 3.0),
    stats.t(3, loc=1.0, scale=0.5),
    stats.cauchy(0.5, 2.0),
    stats.laplace(0.5, 2.0),
    stats.logistic(0.5, 2.0),
    stats.gumbel_r(0.5, 2.0),
    stats.expon(scale=4.0),
    stats.expon(1.0, 4.0),
    stats.gamma(2.0, scale=3.0),
    stats.invgamma(2.0, scale=3.0),
    stats.beta(2, 3),
    stats.beta(2.0, 3.0, loc=-1.0, scale=2.0),
    stats.halfnorm(scale=2.0),
    stats.halfcauchy(scale=2.0),
    stats.lognorm(0.5, scale=3.0),
    stats.chi2(3),
    stats.pareto(3.0, scale=2.0),
    stats.weibull_min(1.5, scale=2.0),
    stats.truncnorm(-1.0, 2.0, loc=1.0, scale=3.0),
    stats.loguniform(0.1, 10.0),
    stats.vonmises(2.0, loc=0.5),
]


@pytest.mark.parametrize("frozen", FROZEN, ids=lambda frozen: frozen.dist.name)
def test_the_counterpart_of_a_scipy_distribution_has_its_density(frozen):
    found = eval(counterpart(frozen), {"dist": dist, "jnp": jnp})
    points = frozen.ppf([0.1, 0.4, 0.8])
    np.testing.assert_allclose(found.log_prob(jnp.asarray(points)), frozen.logpdf(points), 2e-4)


def test_a_scipy_prior_is_told_its_counterpart():
    with pytest.raises(ModelError, match=r"'mu'.*SciPy.*dist\.Normal\(0, 2\)"):
        wb.Model({"mu": stats.norm(0, 2)}, lambda p, y: -((y - p["mu"]) ** 2))


# --- the default method, and numbers in words ------------------------------------------


def test_the_default_takes_a_total_log_likelihood_and_says_so():
    model = wb.Model({"m": dist.Normal(0, 1)}, total_log_likelihood=lambda p: -0.5 * p["m"] ** 2)
    result = wb.evidence(model)
    assert result.method == "smc"
    assert "auto" in str(result)
    assert "observation" not in str(result)
    table = wb.compare({"a": model, "b": model})
    assert table.results["b"].method == "smc"
    assert "observation" not in str(table)


@pytest.mark.parametrize(
    ("error", "text"),
    [(0.0, "+- < 1e-9"), (8e-10, "+- < 1e-9"), (3e-7, "+- 3.0e-07"), (0.012, "+- 0.012")],
)
def test_small_errors_are_not_called_zero(error, text):
    assert text in str(Evidence(-1.5, error, 9, "smc", Trace(), {}, np.zeros(1)))


def test_samples_of_a_total_log_likelihood_before_anything_else():
    """Whether JAX can trace it was tried in single precision, and remembered."""
    data = {"sigma": ERRORS + 0.0, "y": EFFECTS + 0.0}
    model = wb.from_numpyro(sized_by_the_data, data, total=True)
    posterior = wb.sample(model, num_samples=20, num_warmup=20, num_chains=2)
    assert posterior.samples["theta"].shape == (2, 20, 8)


@pytest.mark.parametrize("models", ["results", "models"])
def test_pymc_models_in_a_comparison_are_told_what_to_do(models):
    foreign = type("Model", (), {"__module__": "pymc.model.core"})()
    other = wb.zoo.gaussian.model() if models == "models" else foreign
    with pytest.raises(MethodError, match="PyMC"):
        wb.compare({"a": foreign, "b": other}, np.zeros(3) if models == "models" else None)


def test_rows_that_one_model_cannot_use_are_left_out_of_a_total_log_likelihood_too():
    rows = np.array([0.5, -3.0, 1.0])
    by_row = wb.Model(
        {"m": dist.Normal(0, 1)},
        lambda p, y: dist.Normal(p["m"], 1.0).log_prob(y),
        check_rows=lambda y: {"below zero": y < 0},
    )
    whole = wb.Model(
        {"m": dist.Normal(0, 1)},
        total_log_likelihood=lambda p, y: dist.Normal(p["m"], 1.0).log_prob(y).sum(),
    )
    table = wb.compare({"rows": by_row, "whole": whole}, rows, SMALL, on_bad_row="skip")
    assert table.num_observations == 2
    assert abs(table.log_bayes_factors["whole"]) < 0.2


def test_equal_models_are_not_called_undecided():
    one = Evidence(-1.5, 0.002, 9, "smc", Trace(), {}, np.zeros(1))
    assert wb.compare({"a": one, "b": one}).verdict("b") == "barely worth mentioning"


def test_a_batched_function_that_jax_happens_to_trace_is_told_of_on_host():
    """Summed over the last axis two vectors are two numbers, where a set should be one."""
    batched = wb.Model(
        {"x": dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2)},
        total_log_likelihood=lambda p: -0.5 * (p["x"] ** 2).sum(axis=-1),
    )
    with pytest.raises(ModelError, match=r"shape \(2,\).*leading axis.*on_host=True"):
        wb.evidence(batched, None, SMALL, progress=False)
