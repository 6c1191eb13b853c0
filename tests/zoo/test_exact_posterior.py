"""Exact posteriors: Bayes' theorem at points, and the draws of NUTS."""

import numpy as np
import pytest

import weighbridge as wb
from weighbridge.core.compilation import in_double_precision

SERIES = wb.lagged(wb.zoo.autoregressive.simulate(80, seed=2), 2)
LINE = {**wb.zoo.linear.simulate(60, num_features=3, seed=1), "weight": np.arange(60) % 3}
NUMBERS = wb.zoo.gaussian.simulate(50, seed=1)
ROWS = {
    "gaussian": (
        wb.zoo.gaussian.model(0.5, 2.0, 1.5),
        NUMBERS,
        wb.zoo.gaussian.posterior(NUMBERS, prior_mean=0.5, prior_scale=2.0, noise=1.5),
        wb.zoo.gaussian.log_evidence(NUMBERS, prior_mean=0.5, prior_scale=2.0, noise=1.5),
    ),
    "linear": (
        wb.zoo.linear.model(3, noise=0.7),
        LINE,
        wb.zoo.linear.posterior(LINE, noise=0.7),
        wb.zoo.linear.log_evidence(LINE, noise=0.7),
    ),
    "autoregressive": (
        wb.zoo.autoregressive.model(2, 1.5, 2.0, 3.0),
        SERIES,
        wb.zoo.autoregressive.posterior(
            SERIES, order=2, prior_scale=1.5, concentration=2.0, rate=3.0
        ),
        wb.zoo.autoregressive.log_evidence(
            SERIES, order=2, prior_scale=1.5, concentration=2.0, rate=3.0
        ),
    ),
}
every_model = pytest.mark.parametrize("name", ROWS)


@every_model
def test_it_is_prior_times_likelihood_over_evidence_everywhere(name):
    """At each draw: log posterior = log prior + log likelihood - log evidence."""
    model, data, exact, log_evidence = ROWS[name]
    draws = exact.draw(5, seed=3)
    for k in range(5):
        point = {n: draws[n][k] for n in model.names}
        rows = data if isinstance(data, dict) else {"": data}
        weight = np.asarray(rows.get("weight", np.ones(len(next(iter(rows.values()))))))
        values = {n: v for n, v in rows.items() if n != "weight"} if "" not in rows else data
        with in_double_precision():
            each = np.asarray(model.row_log_likelihoods(point, values))
        total = model.log_prior(point) + float(each @ weight) - log_evidence
        assert exact.log_density(point) == pytest.approx(total, abs=1e-9)


@every_model
def test_its_draws_have_its_moments(name):
    _, _, exact, _ = ROWS[name]
    count = 40_000
    draws = exact.draw(count, seed=0)
    for parameter, values in draws.items():
        mean, std = exact.mean[parameter], exact.std[parameter]
        assert values.shape == (count, *mean.shape)
        assert np.all(np.abs(values.mean(axis=0) - mean) < 5 * std / count**0.5)
        assert np.allclose(values.std(axis=0), std, rtol=0.05)
    flat = np.column_stack([draws[n].reshape(count, -1) for n in exact.location])
    spread = np.sqrt(np.diag(exact.covariance))
    found = np.cov(flat.T).reshape(exact.covariance.shape) / np.outer(spread, spread)
    assert np.abs(found - exact.covariance / np.outer(spread, spread)).max() < 0.05
    assert str(exact).splitlines()[0].split() == ["mean", "sd"]


@every_model
def test_nuts_draws_from_it(name):
    """Means within 5 Monte Carlo errors, and the standard deviations within a tenth."""
    model, data, exact, _ = ROWS[name]
    table = wb.sample(model, data, num_samples=500, num_warmup=400, seed=1).summary()
    for label in table.rows:
        parameter, _, rest = label.partition("[")
        index = tuple(int(number) for number in rest[:-1].split(",")) if rest else ()
        assert abs(table[label, "mean"] - exact.mean[parameter][index]) < 5 * table[label, "MCSE"]
        assert table[label, "sd"] == pytest.approx(float(exact.std[parameter][index]), rel=0.1)


def test_few_rows_and_bad_input():
    empty = wb.zoo.gaussian.posterior([], prior_mean=3.0)
    assert (float(empty.mean["mu"]), float(empty.std["mu"])) == (3.0, 1.0)
    one = wb.zoo.autoregressive.posterior(wb.lagged(np.arange(3.0), 2), order=2)
    assert one.concentration == 1.5
    assert np.isnan(float(one.std["s2"]))
    with pytest.raises(wb.DataError, match="no rows"):
        wb.zoo.linear.posterior({"x": np.zeros((0, 2)), "y": np.zeros(0)})
    with pytest.raises(wb.DataError, match="missing"):
        empty.log_density({})
    with pytest.raises(wb.DataError, match="finite"):
        wb.zoo.gaussian.posterior([np.nan])
