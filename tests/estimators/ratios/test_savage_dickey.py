"""Savage-Dickey ratios: points, densities at the edge, bad input; what needs no chains."""

import math

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import weighbridge as wb
from tests.helpers import conjugate
from weighbridge.core.compilation import in_double_precision
from weighbridge.estimators.ratios.pinned import Pinned, log_prior_at
from weighbridge.estimators.ratios.points import describe_point, read_point

MODEL = wb.zoo.gaussian.model()
DATA = wb.zoo.gaussian.simulate(20, mean=0.0, seed=1)
TINY = {"num_samples": 20, "progress": False}


def _line(p, y):
    return dist.Normal(p["mu"], 1.0).log_prob(y)


def _exact_draws(data, seed):
    scale = 1 / math.sqrt(len(data) + 1)
    numbers = np.random.default_rng(seed)
    return {"mu": data.sum() * scale**2 + scale * numbers.normal(size=(4, 500))}


@pytest.mark.parametrize("deviations", [0.0, 2.0, 6.0])
def test_all_parameters_fixed_at_the_exact_value(deviations):
    for seed in range(5):
        mean = deviations / math.sqrt(20)
        data = wb.zoo.gaussian.simulate(20, mean=mean, seed=seed)
        ratio = wb.savage_dickey(MODEL, data, {"mu": 0.0}, posterior=_exact_draws(data, seed))
        exact = stats.norm.logpdf(data).sum() - wb.zoo.gaussian.log_evidence(data)
        assert abs(ratio.log_bayes_factor - exact) < 4 * ratio.std_error < 0.1
        assert ratio.flags == ()


@pytest.mark.parametrize("deviations", [0.0, 2.0])
def test_one_entry_from_draws_of_the_full_model_alone(deviations):
    for seed in range(4):
        data = conjugate.regression(deviations, seed)
        draws = conjugate.exact_draws(data, seed)
        ratio = wb.savage_dickey(
            conjugate.model(), data, {"w[2]": 0.0}, posterior=draws, method="iwmde"
        )
        exact = conjugate.log_ratio(data, [2])
        assert abs(ratio.log_bayes_factor - exact) < 4 * ratio.std_error < 0.1


def test_the_result_says_which_prior_the_smaller_model_has():
    ratio = wb.savage_dickey(MODEL, DATA, {"mu": 0.0}, posterior=_exact_draws(DATA, 0))
    assert "nothing is left" in ratio.remarks[0]
    assert ratio.names == ("full model", "mu = 0")
    assert ratio.num_observations == 20


def test_the_same_seed_gives_the_same_numbers():
    draws = _exact_draws(DATA, 0)
    first, second = (wb.savage_dickey(MODEL, DATA, {"mu": 0}, posterior=draws) for _ in range(2))
    assert first.log_bayes_factor == second.log_bayes_factor
    assert first.std_error == second.std_error


def test_entries_can_be_named_in_two_ways():
    model = conjugate.model()
    one, two = read_point(model, {"w[2]": 1.0, "b": 2}), read_point(model, {"w": {2: 1.0}, "b": 2})
    assert describe_point(one) == describe_point(two) == "w[2] = 1, b = 2"
    everything = read_point(model, {"w": 0.0})
    assert everything["w"][0].all()


@pytest.mark.parametrize(
    ("prior", "point", "density"),
    [
        (dist.HalfNormal(2.0), 0.0, stats.halfnorm.logpdf(0.0, scale=2.0)),
        (dist.HalfCauchy(1.0), 0.0, math.log(2 / math.pi)),
        (dist.Exponential(3.0), 0.0, math.log(3.0)),
        (dist.Beta(1.0, 2.0), 0.0, math.log(2.0)),
        (dist.Beta(2.0, 1.0), 1.0, math.log(2.0)),
        (dist.Uniform(1.0, 3.0), 1.0, -math.log(2.0)),
        (dist.Normal(1.0, 2.0), 4.0, stats.norm.logpdf(4.0, 1.0, 2.0)),
    ],
)
def test_prior_density_of_a_point_on_the_edge_or_inside(prior, point, density):
    model = wb.Model({"s": prior}, lambda p, y: p["s"] * y)
    with in_double_precision():
        found, error = log_prior_at(Pinned.of(model, read_point(model, {"s": point})), 0)
    assert found == pytest.approx(density, abs=1e-5)
    assert error == 0.0


def test_prior_density_that_depends_on_other_parameters():
    prior = {"s": dist.Gamma(3.0, 3.0), "w": lambda p: dist.Normal(0, 1 / p["s"] ** 0.5)}
    model = wb.Model(prior, lambda p, y: p["w"] * y)
    with in_double_precision():
        found, error = log_prior_at(Pinned.of(model, read_point(model, {"w": 2.0})), 0)
    exact = stats.t.logpdf(2.0, 6)  # a normal with a gamma precision
    assert abs(found - exact) < 4 * error < 0.1


@pytest.mark.long
def test_entries_of_a_correlated_prior():
    covariance = np.array([[1.0, 0.8, 0.2], [0.8, 2.0, 0.1], [0.2, 0.1, 1.0]])
    model = wb.Model(
        {"w": dist.MultivariateNormal(np.zeros(3), covariance)}, lambda p, y: p["w"][0] * y
    )
    point = read_point(model, {"w": {0: 0.5, 2: 1.0}})
    with in_double_precision():
        found, _ = log_prior_at(Pinned.of(model, point), 0)
    kept = covariance[np.ix_([0, 2], [0, 2])]
    assert found == pytest.approx(stats.multivariate_normal.logpdf([0.5, 1.0], np.zeros(2), kept))


@pytest.mark.parametrize(
    ("prior", "point", "reason"),
    [
        (dist.HalfNormal(1.0), -1.0, "outside the support"),
        (dist.Uniform(0.0, 1.0), 1.5, "outside the support"),
        (dist.Gamma(2.0, 1.0), 0.0, "density is\\s+zero"),
        (dist.LogNormal(0.0, 1.0), 0.0, "density is\\s+zero"),
        (dist.Gamma(0.5, 1.0), 0.0, "infinite"),
        (dist.Beta(0.5, 0.5), 1.0, "infinite"),
    ],
)
def test_a_point_without_a_positive_finite_prior_density_is_refused(prior, point, reason):
    model = wb.Model({"s": prior}, lambda p, y: p["s"] * y)
    with pytest.raises(wb.MethodError, match=reason):
        wb.savage_dickey(model, DATA, {"s": point}, **TINY)


@pytest.mark.parametrize(
    ("point", "reason"),
    [
        ({}, "at least one"),
        ([("mu", 0.0)], "must be a mapping"),
        ({"beta": 0.0}, "names 'beta'"),
        ({"mu": [1.0, 2.0]}, "with shape"),
        ({"mu[0]": 1.0}, "no entry"),
        ({"mu": math.nan}, "finite"),
        ({"mu": "zero"}, "not a number"),
        ({"mu": {}}, "no entry"),
    ],
)
def test_a_point_that_does_not_fit_the_model_is_refused(point, reason):
    with pytest.raises(wb.MethodError, match=reason):
        wb.savage_dickey(MODEL, DATA, point, **TINY)


def test_entries_are_refused_twice_and_where_they_are_tied():
    model = conjugate.model()
    with pytest.raises(wb.MethodError, match="twice"):
        read_point(model, {"w[2]": 0.0, "w": 0.0})
    with pytest.raises(wb.MethodError, match="no entry"):
        read_point(model, {"w[3]": 0.0})
    simplex = wb.Model({"p": dist.Dirichlet(np.ones(3))}, lambda p, y: p["p"][0] * y)
    with pytest.raises(wb.ModelError, match="Hold the whole parameter"):
        wb.savage_dickey(simplex, DATA, {"p[0]": 0.2}, **TINY)


def test_other_bad_input_is_refused():
    with pytest.raises(wb.MethodError, match="method must be one of"):
        wb.savage_dickey(MODEL, DATA, {"mu": 0.0}, method="kernel", **TINY)
    with pytest.raises(wb.DataError, match="give it data"):
        wb.savage_dickey(MODEL, None, {"mu": 0.0}, **TINY)
    with pytest.raises(wb.DataError, match="have no parameters"):
        wb.savage_dickey(MODEL, DATA, {"mu": 0.0}, posterior={"nu": np.zeros(100)})
    fingerprint = wb.Fingerprint().add(np.zeros(20), np.ones(20))
    other = wb.Evidence(
        *(-1.0, 0.1, 20, "smc", wb.Trace(), {"mu": np.arange(50.0)}, np.zeros(50)),
        fingerprint=fingerprint,
    )
    with pytest.raises(wb.DataError, match="other data"):
        wb.savage_dickey(MODEL, DATA, {"mu": 0.0}, posterior=other)
    mixture = wb.zoo.mixture.model()
    name = mixture.exchangeable[0][0]
    with pytest.raises(wb.MethodError, match="exchangeable"):
        wb.savage_dickey(mixture, DATA, {name: 1.0}, **TINY)


@pytest.mark.parametrize(
    ("nested", "error", "reason"),
    [
        (wb.Model({"nu": dist.Normal(0, 1)}, _line), wb.ModelError, "same names"),
        (
            wb.Model({"mu": dist.HalfNormal(1)}, lambda p, y: dist.Normal(p["mu"], 2).log_prob(y)),
            wb.ModelError,
            "likelihood of nested",
        ),
        (wb.Model({"mu": dist.Normal(0, 1)}, _line), wb.ModelError, "mass outside the support"),
    ],
)
def test_a_nested_model_that_is_not_nested_is_refused(nested, error, reason):
    full = wb.Model(
        {"mu": dist.HalfNormal(1), "tau": dist.Normal(0, 1)},
        lambda p, y: dist.Normal(p["mu"] + p["tau"], 1.0).log_prob(y),
    )
    with pytest.raises(error, match=reason):
        wb.savage_dickey(full, DATA, {"tau": 0.0}, nested=nested, **TINY)


@pytest.mark.long
def test_a_nested_model_at_an_edge_of_the_full_one():
    full = wb.Model(
        {"s": dist.HalfNormal(1.0), "mu": dist.Normal(0, 1)},
        lambda p, y: dist.Normal(p["mu"], jnp.sqrt(1.0 + p["s"] ** 2)).log_prob(y),
    )
    plain = wb.savage_dickey(full, DATA, {"s": 0.0}, **TINY)
    own = wb.savage_dickey(full, DATA, {"s": 0.0}, nested=MODEL, **TINY)
    assert own.log_bayes_factor == plain.log_bayes_factor
    assert "p(rest | s = 0)" in plain.remarks[0]
    assert "as it should be" in own.remarks[0]


def test_a_point_where_the_likelihood_is_zero_is_refused():
    with pytest.raises(wb.ModelError, match="choose a point where it is positive"):
        wb.savage_dickey(
            wb.Model(
                {"sd": dist.HalfNormal(1.0), "mu": dist.Normal(0, 1)},
                lambda p, y: dist.Normal(p["mu"], p["sd"]).log_prob(y),
            ),
            DATA,
            {"sd": 0.0},
            **TINY,
        )


def test_nested_needs_whole_parameters_and_something_left():
    with pytest.raises(wb.MethodError, match="whole parameters"):
        wb.savage_dickey(conjugate.model(), DATA, {"w[0]": 0.0}, nested=MODEL, **TINY)
    with pytest.raises(wb.MethodError, match="nothing left"):
        wb.savage_dickey(MODEL, DATA, {"mu": 0.0}, nested=MODEL, **TINY)


def test_draws_of_other_data_are_flagged():
    for seed in range(4):
        draws = _exact_draws(DATA, seed)
        shifted = {"mu": draws["mu"] + 0.5 / math.sqrt(21)}
        right, wrong = (
            wb.savage_dickey(MODEL, DATA, {"mu": 0.0}, posterior=p) for p in (draws, shifted)
        )
        assert right.flags == ()
        assert wrong.flags == (wb.Status.DRAWS_DO_NOT_FIT,)


def test_a_posterior_of_another_model_or_of_other_data_is_refused():
    posterior = wb.sample(MODEL, DATA, num_samples=50, num_warmup=100, progress=False)
    wb.savage_dickey(wb.zoo.gaussian.model(), DATA, {"mu": 0.0}, posterior=posterior)
    other = wb.zoo.gaussian.model(noise=2.0)
    calls = [
        lambda model, data: wb.savage_dickey(model, data, {"mu": 0.0}, posterior=posterior),
        lambda model, data: wb.importance_ratio(posterior, other, data, model=model),
        lambda model, data: wb.reweight(posterior, model, data, to=other),
        lambda model, data: wb.HarmonicMean().from_draws(model, data, posterior),
    ]
    for call in calls:
        with pytest.raises(wb.DataError, match="from another model"):
            call(wb.zoo.gaussian.model(noise=1.3), DATA)
        with pytest.raises(wb.DataError, match="other data"):
            call(MODEL, DATA[:-1])
