"""Evidence-weighted prediction: exact mixtures of models, fair shares, and named mistakes."""

import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.results.trace import Trace
from weighbridge.weighing.averaging import _allocate


def made(log_evidence, **samples):
    samples = {name: np.atleast_1d(np.asarray(draws, float)) for name, draws in samples.items()}
    size = len(next(iter(samples.values()), [0]))
    log_weights = np.full(size, -np.log(size))
    return wb.Evidence(log_evidence, 0.1, 9, "smc", Trace(), samples, log_weights)


RESULTS = {"a": made(-10.0, mu=0.0), "b": made(-10.0 + np.log(3.0), mu=4.0)}


def noisy(p, x):
    return dist.Normal(p["mu"] * x, 1.0)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_average_is_the_mixture_of_the_predictives(seed):
    """Mean and variance of 1/4 N(0, 1) + 3/4 N(4, 1), by the law of total variance."""
    told = wb.average(RESULTS, noisy, [1.0, 1.0], num_draws=8000, seed=seed)
    assert told.draws.shape == (8000, 2)
    assert told.probabilities == pytest.approx({"a": 0.25, "b": 0.75})
    # Shares are fixed, so only the noise within models is left in the mean.
    assert np.all(np.abs(told.mean - 3.0) < 5 / np.sqrt(8000))
    assert np.all(np.abs(told.sd**2 - (1 + 16 * 0.25 * 0.75)) < 0.15)
    assert np.mean(told.draws[:, 0] > 2) == pytest.approx(0.75, abs=0.02)
    # A draw is of one model on all rows, and the order says nothing of the model.
    assert np.corrcoef(told.draws[:, 0], told.draws[:, 1])[0, 1] > 0.6
    assert 0.6 < np.mean(told.draws[:200, 0] > 2) < 0.9


def test_shares_are_fair():
    generator = np.random.default_rng(0)
    for num_draws in (1, 7, 1000):
        probabilities = dict(zip("abcd", [*generator.dirichlet([0.3, 0.3, 5]), 0.0]))
        expected = num_draws * np.array(list(probabilities.values()))
        points = (np.arange(2000) + 0.5) / 2000
        counts = np.array(
            [list(_allocate(probabilities, num_draws, point).values()) for point in points]
        )
        assert np.all(counts.sum(axis=1) == num_draws)
        assert np.all(np.abs(counts - expected) < 1 + 1e-9)
        np.testing.assert_allclose(counts.mean(axis=0), expected, atol=2e-3)
        assert not counts[:, 3].any()
    assert _allocate({"a": 1.0, "b": 0.0}, 5, 0.999) == {"a": 5, "b": 0}
    assert _allocate({"a": 0.0, "b": 1.0}, 5, 0.0) == {"a": 0, "b": 5}


def test_models_do_not_share_random_numbers():
    results = {"a": made(0.0, mu=1.0), "b": made(0.0, mu=1.0)}
    told = wb.average(results, noisy, [1.0, 1.0, 1.0], num_draws=400)
    assert len(np.unique(told.draws.round(9))) == told.draws.size
    again = wb.average(results, noisy, [1.0, 1.0, 1.0], num_draws=400)
    other = wb.average(results, noisy, [1.0, 1.0, 1.0], num_draws=400, seed=1)
    np.testing.assert_array_equal(told.draws, again.draws)
    assert not np.any(told.draws == other.draws)


def test_each_model_has_its_own_function_and_prior():
    functions = {"a": lambda p: p["mu"] + 1.0, "b": lambda p: p["mu"] + 2.0}
    told = wb.average(RESULTS, functions, prior_odds={"a": 3.0, "b": 1.0}, num_draws=100)
    assert told.num_rows is None
    assert sorted(told.draws.tolist()) == [1.0] * 50 + [6.0] * 50
    comparison = wb.compare(RESULTS, prior_odds={"a": 3.0, "b": 1.0})
    from_comparison = wb.average(comparison, functions, num_draws=100)
    np.testing.assert_array_equal(from_comparison.draws, told.draws)
    anew = wb.average(comparison, functions, prior_odds={"a": 1.0, "b": 1.0}, num_draws=100)
    assert anew.probabilities["b"] == pytest.approx(0.75)
    assert "averaged over a (0.5), b (0.5)" in str(told)


def test_a_model_that_has_no_share_is_not_asked():
    results = {"a": made(0.0, mu=1.0), "b": made(-1e6, mu=1.0)}
    told = wb.average(results, {"a": lambda p: 1.0, "b": lambda p: 1 / 0}, num_draws=10)
    assert told.draws.tolist() == [1.0] * 10


def test_mistakes_are_named():
    with pytest.raises(wb.MethodError, match=r"name each of \['a', 'b'\].*it names \['a'\]"):
        wb.average(RESULTS, {"a": noisy}, [1.0])
    with pytest.raises(wb.MethodError, match=r"different shapes.*'a': \(1,.*'b': \(1, 2"):
        wb.average(
            RESULTS,
            {"a": lambda p, x: x, "b": lambda p, x: np.array([1.0, 2.0])},
            [1.0],
            num_draws=100,
        )
    with pytest.raises(wb.MethodError, match="num_draws"):
        wb.average(RESULTS, noisy, [1.0], num_draws=0)
    with pytest.raises(wb.MethodError, match="seed"):
        wb.average(RESULTS, noisy, [1.0], seed=-1)
    with pytest.raises(wb.MethodError, match="prior_odds must name"):
        wb.average(RESULTS, noisy, [1.0], prior_odds={"a": 1.0})
    with pytest.raises(wb.MethodError, match="two models"):
        wb.average({"a": RESULTS["a"]}, noisy, [1.0])
    with pytest.raises(wb.MethodError, match="no posterior draws"):
        wb.average({"a": made(0.0), "b": made(0.0)}, noisy, [1.0])
    bare = wb.Comparison({"a": 0.0}, {"a": 0.1}, {"a": 0.0}, {"a": 1.0}, {"a": 0.0}, 9)
    with pytest.raises(wb.MethodError, match="does not hold the results"):
        wb.average(bare, noisy, [1.0])
