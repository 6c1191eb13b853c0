"""Leave-one-out, WAIC, predictive checks and prior sensitivity, against conjugate answers."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import weighbridge as wb
from weighbridge.checking import cross_validation, predictive, sensitivity
from weighbridge.checking.pointwise import draws_of, pointwise_log_likelihood
from weighbridge.models import row_values
from weighbridge.results.trace import Trace

NUM_ROWS = 30
DATA = wb.zoo.gaussian.simulate(NUM_ROWS, mean=0.5, seed=1)
MODEL = wb.zoo.gaussian.model()
SEEDS = range(8)
# The mean of eight estimates against their spread: Student t with 7 degrees, beyond 6 in one of
# 2,000 cases.
BOUND = 6.0


def moments(data, power=1.0, prior_scale=1.0, likelihood_power=1.0):
    """Mean and variance of mu given data, with powers of the prior and the likelihood."""
    variance = 1 / (power / prior_scale**2 + likelihood_power * len(data))
    return variance * likelihood_power * np.sum(data), variance


def exact_posterior(seed, num_draws=1000, data=DATA, prior_scale=1.0):
    mean, variance = moments(data, prior_scale=prior_scale)
    normal = np.random.default_rng(seed).normal(size=(4, num_draws))
    return {"mu": mean + np.sqrt(variance) * normal}


def weighted_posterior(seed, num_draws=4000):
    """The same posterior as weighted draws of a wider one; some have no weight at all."""
    mean, variance = moments(DATA)
    scale = 1.5 * np.sqrt(variance)
    mu = mean + scale * np.random.default_rng(seed).normal(size=num_draws)
    log_weights = stats.norm.logpdf(mu, mean, variance**0.5) - stats.norm.logpdf(mu, mean, scale)
    log_weights[:5] = -np.inf
    log_weights -= np.log(np.sum(np.exp(log_weights)))
    return wb.Evidence(-1.0, 0.1, NUM_ROWS, "smc", Trace(), {"mu": mu}, log_weights)


def exact_leave_one_out(data=DATA):
    """log p(y_i | y_-i), row by row."""
    found = []
    for index, value in enumerate(data):
        mean, variance = moments(np.delete(data, index))
        found.append(stats.norm.logpdf(value, mean, np.sqrt(1 + variance)))
    return np.array(found)


def z_score(estimates, exact):
    estimates = np.asarray(estimates)
    return (estimates.mean() - exact) / (estimates.std(ddof=1) / np.sqrt(len(estimates)))


# --- log-likelihoods of rows ---------------------------------------------------------------------


def test_log_likelihoods_of_rows(monkeypatch):
    posterior = exact_posterior(0, 50)
    expected = stats.norm.logpdf(DATA, posterior["mu"][..., None])
    whole = pointwise_log_likelihood(MODEL, posterior, DATA)
    np.testing.assert_allclose(whole, expected, rtol=1e-12)
    assert whole.dtype == np.float64
    monkeypatch.setattr(row_values, "HELD_VALUES", 200 * 7)
    monkeypatch.setattr(row_values, "BLOCK_VALUES", 60 * 7)
    np.testing.assert_array_equal(pointwise_log_likelihood(MODEL, posterior, DATA), whole)
    blocks = list(row_values.row_blocks(MODEL, draws_of(posterior, MODEL).samples, DATA))
    assert [block.shape for _, block in blocks] == [(200, 7)] * 4 + [(200, 2)]


def test_posteriors_in_three_forms():
    posterior = exact_posterior(0, 50)
    with_samples = types.SimpleNamespace(samples=posterior)
    given, same = (pointwise_log_likelihood(MODEL, p, DATA) for p in (posterior, with_samples))
    np.testing.assert_array_equal(given, same)
    weighted = weighted_posterior(0, 50)
    found = pointwise_log_likelihood(MODEL, weighted, DATA)
    used = weighted.samples["mu"][5:]
    np.testing.assert_allclose(found, stats.norm.logpdf(DATA, used[:, None]), rtol=1e-12)
    assert draws_of(weighted, MODEL).num_chains == 0
    assert draws_of(posterior | {"other": 3}, MODEL).num_chains == 4


def test_a_posterior_that_does_not_fit():
    for bad, message in [
        ({"mu": np.zeros(100)}, "chains x draws"),
        ({"mu": np.zeros((4, 0))}, "at least one"),
        ({"mu": np.zeros((4, 9, 2))}, "chains x draws"),
        ({"mu": np.full((4, 9), np.nan)}, "not all finite"),
        ({"nu": np.zeros((4, 9))}, r"no draws of \['mu'\]"),
        ({}, "without draws"),
        (3.0, "not float"),
    ]:
        with pytest.raises(wb.MethodError, match=message):
            wb.loo(bad, MODEL, DATA)
    with pytest.raises(wb.MethodError, match=r"wb\.Model"):
        wb.loo(exact_posterior(0), "model", DATA)
    with pytest.raises(wb.DataError, match="give it data"):
        wb.loo(exact_posterior(0), MODEL, None)
    with pytest.raises(wb.DataError, match="no row"):
        wb.loo(exact_posterior(0), MODEL, [])
    total = wb.Model({"mu": dist.Normal(0, 1)}, total_log_likelihood=lambda p: -(p["mu"] ** 2))
    with pytest.raises(wb.ModelError, match="row by row"):
        wb.loo(exact_posterior(0), total, DATA)
    with pytest.raises(wb.MethodError, match="25 draws"):
        wb.loo({"mu": np.zeros((2, 12))}, MODEL, DATA)
    with pytest.raises(wb.MethodError, match="two draws"):
        wb.waic({"mu": np.zeros((1, 1))}, MODEL, DATA)
    bounded = wb.Model({"mu": dist.Normal(0, 1)}, lambda p, y: jnp.log(1.0 * (y < p["mu"])))
    with pytest.raises(wb.ModelError, match=r"row 0 .* is -inf at a posterior draw"):
        wb.loo({"mu": np.full((4, 50), -9.0)}, bounded, DATA)


# --- leave-one-out -------------------------------------------------------------------------------


@pytest.mark.parametrize("posterior", [exact_posterior, weighted_posterior])
def test_leave_one_out_is_exact(posterior):
    exact = exact_leave_one_out()
    results = [wb.loo(posterior(seed), MODEL, DATA) for seed in SEEDS]
    totals = [result.elpd for result in results]
    assert abs(z_score(totals, exact.sum())) < BOUND
    assert np.std(totals, ddof=1) < 0.05
    for row in range(0, NUM_ROWS, 5):
        assert abs(z_score([r.pointwise[row] for r in results], exact[row])) < BOUND
    mean, variance = moments(DATA)
    fit = stats.norm.logpdf(DATA, mean, np.sqrt(1 + variance)).sum()
    excess = [result.effective_parameters for result in results]
    assert abs(z_score(excess, fit - exact.sum())) < BOUND
    assert results[0].std_error == pytest.approx(np.sqrt(NUM_ROWS) * exact.std(), rel=0.01)
    assert results[0].warnings == ()
    assert results[0].pareto_k.max() < 0.5
    assert results[0].num_observations == NUM_ROWS


def test_it_is_arvizs():
    from arviz_stats.base import array_stats

    posterior = exact_posterior(0)
    values = pointwise_log_likelihood(MODEL, posterior, DATA)
    efficiency = min(wb.ess(posterior["mu"], "mean") / posterior["mu"].size, 1.0)
    elpd, shape, effective = array_stats.loo(values, chain_axis=0, draw_axis=1, r_eff=efficiency)
    found = wb.loo(posterior, MODEL, DATA)
    np.testing.assert_allclose(found.pointwise, elpd, rtol=1e-10)
    np.testing.assert_allclose(found.pareto_k, shape, rtol=1e-8)
    assert found.effective_parameters == pytest.approx(effective.sum(), rel=1e-8)


def test_waic_agrees_on_a_regular_model():
    """Exactly, the variance of log p(y | mu) for normal mu is v^2 / 2 + v (y - m)^2."""
    mean, variance = moments(DATA)
    fit = stats.norm.logpdf(DATA, mean, np.sqrt(1 + variance))
    exact = fit - variance**2 / 2 - variance * (DATA - mean) ** 2
    for posterior in (exact_posterior, weighted_posterior):
        results = [wb.waic(posterior(seed), MODEL, DATA) for seed in SEEDS]
        assert abs(z_score([result.elpd for result in results], exact.sum())) < BOUND
        assert results[0].elpd == pytest.approx(wb.loo(posterior(0), MODEL, DATA).elpd, abs=0.05)
        assert results[0].warnings == ()


def test_repeated_rows_count_as_often():
    def log_likelihood(p, row):
        return dist.Normal(p["mu"], 1.0).log_prob(row["y"])

    model = wb.Model({"mu": dist.Normal(0, 1)}, log_likelihood)
    weight = np.array([3.0, 1.0, 0.0] * (NUM_ROWS // 3))
    repeated = np.repeat(DATA, weight.astype(int))
    posterior = exact_posterior(0, data=repeated)
    for function in (wb.loo, wb.waic):
        short = function(posterior, model, {"y": DATA, "weight": weight})
        long = function(posterior, model, {"y": repeated})
        assert short.elpd == pytest.approx(long.elpd, rel=1e-10)
        assert short.std_error == pytest.approx(long.std_error, rel=1e-10)
        assert short.effective_parameters == pytest.approx(long.effective_parameters, rel=1e-9)
        assert short.num_observations == long.num_observations == len(repeated)


def test_an_outlier_is_named():
    data = np.append(DATA, 40.0)
    result = wb.loo(exact_posterior(0, data=data), MODEL, data)
    assert "for 1 of 31 rows: 30 (" in result.warnings[0]
    assert "heavier tails" in str(result)
    assert "Use wb.loo" in wb.waic(exact_posterior(0, data=data), MODEL, data).warnings[0]
    assert "1 warnings" in repr(result)


def test_a_row_that_tells_nothing():
    """Equal weights cannot be smoothed: the row is predicted as it is fitted."""
    model = wb.Model(
        {"mu": dist.Normal(0, 1)},
        lambda p, row: jnp.where(row["y"] > 0, dist.Normal(p["mu"], 1.0).log_prob(row["y"]), -1.0),
    )
    result = wb.loo(exact_posterior(0), model, {"y": np.array([-1.0, 0.3])})
    assert result.pointwise[0] == pytest.approx(-1.0, abs=1e-12)
    assert result.pareto_k[0] == -np.inf
    assert np.isfinite(result.pointwise[1])


def test_the_same_shapes_compile_once(compiled):
    wb.loo(exact_posterior(0), MODEL, DATA)
    before = len(compiled)
    wb.loo(exact_posterior(1), wb.zoo.gaussian.model(prior_scale=2.0), DATA[::-1].copy())
    wb.waic(exact_posterior(1), MODEL, DATA)
    assert compiled[before:] == []
    assert jnp.ones(1).dtype == np.float32


def test_models_are_compared_row_by_row():
    results = {}
    for name, noise in (("wide", 3.0), ("right", 1.0), ("nearly", 1.05)):
        variance = 1 / (1 + NUM_ROWS / noise**2)
        normal = np.random.default_rng(0).normal(size=(4, 1000))
        mu = variance * DATA.sum() / noise**2 + np.sqrt(variance) * normal
        results[name] = wb.loo({"mu": mu}, wb.zoo.gaussian.model(noise=noise), DATA)
    table = wb.compare_loo(results)
    assert list(table.elpds)[-1] == "wide"
    difference = results["wide"].pointwise - results[table.best].pointwise
    assert table.differences["wide"] == pytest.approx(difference.sum())
    assert table.difference_errors["wide"] == pytest.approx(np.sqrt(NUM_ROWS) * difference.std())
    assert table.difference_errors[table.best] == 0
    assert table.verdict("wide") == "worse"
    other = next(name for name in ("right", "nearly") if name != table.best)
    assert table.verdict(other) == "no relevant difference"
    assert str(table).splitlines()[1].startswith(table.best)
    uncertain = dataclasses.replace(
        table, difference_errors={**table.difference_errors, "wide": 99}
    )
    assert uncertain.verdict("wide") == "undecided (error too large)"


def test_what_cannot_be_compared():
    one = wb.loo(exact_posterior(0), MODEL, DATA)
    with pytest.raises(wb.MethodError, match="two names"):
        wb.compare_loo({"one": one})
    with pytest.raises(wb.MethodError, match="not float"):
        wb.compare_loo({"one": one, "two": 3.0})
    with pytest.raises(wb.MethodError, match="same rows"):
        wb.compare_loo({"one": one, "two": wb.loo(exact_posterior(0), MODEL, DATA[1:])})
    with pytest.raises(wb.MethodError, match="one method"):
        wb.compare_loo({"one": one, "two": wb.waic(exact_posterior(0), MODEL, DATA)})


# --- predictive checks ---------------------------------------------------------------------------


def simulate(p, row):
    return dist.Normal(p["mu"], 1.0)


@pytest.mark.parametrize("posterior", [exact_posterior, weighted_posterior])
def test_predictive_probabilities_are_exact(posterior):
    """The mean of n new rows is normal with variance v + 1 / n around the posterior mean."""
    mean, variance = moments(DATA)
    exact = stats.norm.sf(DATA.mean(), mean, np.sqrt(variance + 1 / NUM_ROWS))
    found = [
        wb.predictive_check(posterior(seed), MODEL, simulate, DATA, seed=seed) for seed in SEEDS
    ]
    assert abs(z_score([check.probabilities["mean"] for check in found], exact)) < BOUND
    assert found[0].observed == {
        "mean": DATA.mean(), "sd": DATA.std(), "min": DATA.min(), "max": DATA.max()
    }  # fmt: skip
    assert found[0].simulated["sd"].shape == (1000,)
    assert found[0].extreme == ()


def test_a_model_that_does_not_produce_the_data():
    check = wb.predictive_check(
        exact_posterior(0), MODEL, lambda p, row: dist.Normal(p["mu"], 0.4), DATA, num_draws=500
    )
    assert check.extreme == ("sd", "min", "max")
    assert check.probabilities["sd"] == 0
    assert check.probabilities["max"] < 0.025
    assert check.probabilities["min"] > 0.975
    lines = str(check).splitlines()
    assert "does not produce this" in lines[2]
    assert "does not" not in lines[1]
    figure = check.plot()
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert [title.split(":")[0] for title in titles] == ["mean", "sd", "min", "max"]
    line = figure.axes[0].lines[0].get_xdata()
    assert line[0] == DATA.mean()


def test_blocks_of_simulations_differ(monkeypatch):
    whole = wb.predictive_check(exact_posterior(0), MODEL, simulate, DATA, num_draws=40)
    again = wb.predictive_check(exact_posterior(0), MODEL, simulate, DATA, num_draws=40)
    np.testing.assert_array_equal(whole.simulated["mean"], again.simulated["mean"])
    monkeypatch.setattr(predictive, "HELD_VALUES", 10 * NUM_ROWS)
    same = {"mu": np.zeros((1, 40))}
    parts = wb.predictive_check(same, MODEL, simulate, DATA, num_draws=40)
    assert len(np.unique(parts.simulated["mean"])) == 40
    other = wb.predictive_check(same, MODEL, simulate, DATA, num_draws=40, seed=1)
    assert len(np.unique([*parts.simulated["mean"], *other.simulated["mean"]])) == 80


def test_ties_count_half_and_statistics_are_the_users():
    def counts(p, row):
        return dist.Poisson(jnp.exp(p["mu"]))

    model = wb.Model({"mu": dist.Normal(0, 1)}, lambda p, y: counts(p, y).log_prob(y))
    data = np.zeros(5, int)
    check = wb.predictive_check(
        {"mu": np.full((1, 9), -50.0)}, model, counts, data, {"zeros": lambda y: np.sum(y == 0)}
    )
    assert check.probabilities == {"zeros": 0.5}
    named = wb.predictive_check({"mu": np.full((1, 9), -50.0)}, model, counts, data, np.median)
    assert list(named.observed) == ["median"]


def test_columns_and_repeated_rows():
    data = {
        "x": np.arange(4.0),
        "y": np.array([0.0, 1.0, 2.0, 3.0]),
        "weight": np.array([1, 3, 0, 1]),
    }
    model = wb.Model(
        {"a": dist.Normal(0, 1)}, lambda p, r: dist.Normal(p["a"] * r["x"], 1.0).log_prob(r["y"])
    )
    draws = {"a": np.ones((2, 50))}
    sums = {"sum": np.sum}
    line = lambda p, r: p["a"] * r["x"]  # noqa: E731
    check = wb.predictive_check(draws, model, line, data, sums, num_draws=5)
    assert check.observed["sum"] == 6
    np.testing.assert_array_equal(check.simulated["sum"], np.full(5, 6.0))
    renamed = {"x": data["x"], "z": data["y"]}
    model = wb.Model(
        {"a": dist.Normal(0, 1)}, lambda p, r: dist.Normal(p["a"] * r["x"], 1.0).log_prob(r["z"])
    )
    check = wb.predictive_check(draws, model, line, renamed, sums, observed="z", num_draws=5)
    assert check.observed["sum"] == 6
    with pytest.raises(wb.DataError, match="no observed column 'y': the data has"):
        wb.predictive_check(draws, model, line, renamed, sums)
    with pytest.raises(wb.MethodError, match="must be the same"):
        wb.predictive_check(
            draws, model, lambda p, r: jnp.ones(3), renamed, sums, observed="z", num_draws=5
        )
    with pytest.raises(wb.MethodError, match="one number"):
        wb.predictive_check(draws, model, line, renamed, lambda y: y, observed="z", num_draws=5)
    with pytest.raises(wb.MethodError, match="not a function"):
        wb.predictive_check(draws, model, line, renamed, {"sum": 3}, observed="z")
    with pytest.raises(wb.MethodError, match="num_draws"):
        wb.predictive_check(draws, model, line, renamed, observed="z", num_draws=0)


# --- sensitivity ---------------------------------------------------------------------------------


def distance(values, first, second):
    """Cumulative Jensen-Shannon distance between two normals, over the range of some draws."""
    found = []
    for sign in (1, -1):
        x = np.linspace((sign * values).min(), (sign * values).max(), 20_001)
        p, q = (stats.norm.cdf(x, sign * m, np.sqrt(v)) for m, v in (first, second))
        middle = np.log2(0.5 * (p + q))
        widths = np.diff(x).mean()
        total_p, total_q = p.sum() * widths, q.sum() * widths
        one = np.sum(p * (np.log2(p) - middle)) * widths + (total_q - total_p) / np.log(4)
        two = np.sum(q * (np.log2(q) - middle)) * widths + (total_p - total_q) / np.log(4)
        found.append(np.sqrt((one + two) / (total_p + total_q)))
    return max(found)


def exact_sensitivity(values, which):
    now = moments(DATA, prior_scale=0.3)
    grown = [moments(DATA, prior_scale=0.3, **{which: power}) for power in sensitivity.POWERS]
    lower, upper = (distance(values, now, then) for then in grown)
    low, high = np.log2(sensitivity.POWERS)
    return 0.5 * (-lower / low + upper / high)


def test_sensitivity_of_the_posterior_is_exact():
    """Power-scaled, a conjugate posterior is another normal."""
    model = wb.zoo.gaussian.model(prior_scale=0.3)
    for which, field in (("power", "prior"), ("likelihood_power", "likelihood")):
        ratios = []
        for seed in SEEDS:
            posterior = exact_posterior(seed, 2000, prior_scale=0.3)
            found = wb.prior_sensitivity(posterior, model, DATA)
            exact = exact_sensitivity(posterior["mu"], which)
            ratios.append(getattr(found, field)["mu"] / exact)
        assert abs(z_score(ratios, 1.0)) < BOUND, ratios
        assert np.mean(ratios) == pytest.approx(1.0, abs=0.02)


def exact_slope(prior_scale):
    """A normal prior to the power a, normalised, has the scale s / sqrt(a)."""

    def log_evidence(log_power):
        scale = prior_scale * np.exp(-0.5 * log_power)
        return wb.zoo.gaussian.log_evidence(DATA, prior_scale=scale)

    return (log_evidence(1e-4) - log_evidence(-1e-4)) / 2e-4


@pytest.mark.parametrize("prior_scale", [0.3, 1.0, 3.0])
def test_slope_of_the_log_evidence_is_exact(prior_scale):
    model = wb.zoo.gaussian.model(prior_scale=prior_scale)

    exact = exact_slope(prior_scale)
    mean, variance = moments(DATA, prior_scale=prior_scale)
    likelihood = np.sum(stats.norm.logpdf(DATA, mean)) - 0.5 * NUM_ROWS * variance
    scores = []
    for seed in SEEDS:
        posterior = exact_posterior(seed, prior_scale=prior_scale)
        found = wb.prior_sensitivity(posterior, model, DATA, seed=seed)
        scores.append((found.evidence_prior_slope - exact) / found.evidence_prior_error)
        error = found.evidence_likelihood_slope - likelihood
        assert abs(error) < 5 * found.evidence_likelihood_error
    # z-scores of a right error bar: standard normal, so that eight of them have a mean square
    # below 3.3 but once in 1,000.
    assert max(np.abs(scores)) < 4.5
    assert 0.1 < np.mean(np.square(scores)) < 3.3


def test_slope_from_an_evidence():
    model = wb.zoo.gaussian.model(prior_scale=0.5)
    result = wb.evidence(model, DATA, wb.PriorSampling(num_particles=512), seed=1)
    found = wb.prior_sensitivity(result, model, DATA)
    error = found.evidence_prior_slope - exact_slope(0.5)
    assert abs(error) < 5 * found.evidence_prior_error < 0.2
    again = wb.prior_sensitivity(weighted_posterior(0), MODEL, DATA)
    error = again.evidence_prior_slope - exact_slope(1.0)
    assert abs(error) < 5 * again.evidence_prior_error
    chains = wb.prior_sensitivity(exact_posterior(0), MODEL, DATA)
    assert again.prior["mu"] == pytest.approx(chains.prior["mu"], rel=0.15)
    slope, width = found.bayes_factor_slope(again)
    assert slope == found.evidence_prior_slope - again.evidence_prior_slope
    assert width == pytest.approx(np.hypot(found.evidence_prior_error, again.evidence_prior_error))


def test_verdicts():
    conflict = wb.zoo.gaussian.model(prior_mean=-3.0, prior_scale=0.3)
    precision = 1 / 0.09 + NUM_ROWS
    normal = np.random.default_rng(0).normal(size=(4, 1000))
    mu = {"mu": (-3 / 0.09 + DATA.sum()) / precision + normal / np.sqrt(precision)}
    found = wb.prior_sensitivity(mu, conflict, DATA)
    assert found.verdict("mu") == "prior and data may be in conflict"
    assert "conflict" in str(found)
    wide = wb.prior_sensitivity(
        exact_posterior(0, prior_scale=30.0), wb.zoo.gaussian.model(prior_scale=30.0), DATA
    )
    assert wide.verdict("mu") == "prior matters little"
    strong = wb.prior_sensitivity(
        exact_posterior(0, data=DATA[:1], prior_scale=0.1),
        wb.zoo.gaussian.model(prior_scale=0.1),
        DATA[:1],
    )
    assert strong.verdict("mu") == "strong prior or weak likelihood"


def test_a_uniform_prior_has_no_power():
    model = wb.Model(
        {"mu": dist.Uniform(-5, 5)}, lambda p, y: dist.Normal(p["mu"], 1.0).log_prob(y)
    )
    found = wb.prior_sensitivity(exact_posterior(0, prior_scale=1e3), model, DATA)
    assert found.prior == {"mu": 0.0}
    assert found.evidence_prior_slope == pytest.approx(0, abs=1e-12)


def test_priors_can_be_chosen():
    model = wb.Model(
        {"s": dist.Gamma(2.0, 1.0), "mu": lambda p: dist.Normal(0.0, p["s"])},
        lambda p, y: dist.Normal(p["mu"], 1.0).log_prob(y),
    )
    draws = {"s": 1.0 + 0.1 * np.abs(exact_posterior(1)["mu"]), **exact_posterior(0)}
    top = wb.prior_sensitivity(draws, model, DATA, names=["s"])
    both = wb.prior_sensitivity(draws, model, DATA)
    gamma = stats.gamma(2.0)
    level = np.mean(gamma.logpdf(draws["s"])) + gamma.entropy()
    assert top.evidence_prior_slope == pytest.approx(level, abs=5 * top.evidence_prior_error)
    assert top.prior["mu"] < 0.1 * both.prior["mu"]
    with pytest.raises(wb.MethodError, match="names must be some"):
        wb.prior_sensitivity(draws, model, DATA, names=["t"])
    with pytest.raises(wb.ModelError, match="log prior is not finite"):
        wb.prior_sensitivity({**draws, "s": -draws["s"]}, model, DATA)


def test_likelihoods_of_all_the_data():
    """Compiled or on the host, a total log-likelihood gives what the rows give."""
    prior = {"mu": dist.Normal(0.0, 1.0)}

    def compiled_total(p, data):
        return jnp.sum(dist.Normal(p["mu"], 1.0).log_prob(data))

    def host_total(p, data):
        return np.sum(stats.norm.logpdf(data, np.asarray(p["mu"])[..., None]), axis=-1)

    expected = wb.prior_sensitivity(exact_posterior(0), MODEL, DATA)
    for function in (compiled_total, host_total):
        model = wb.Model(prior, total_log_likelihood=function)
        found = wb.prior_sensitivity(exact_posterior(0), model, DATA)
        assert found.likelihood["mu"] == pytest.approx(expected.likelihood["mu"], rel=1e-6)
        slopes = found.evidence_likelihood_slope, expected.evidence_likelihood_slope
        assert slopes[0] == pytest.approx(slopes[1], rel=1e-10)


def test_names_at_the_front():
    assert wb.loo is cross_validation.loo
    assert wb.diagnostics.rhat is wb.rhat
    assert jax.numpy.ones(1).dtype == np.float32
