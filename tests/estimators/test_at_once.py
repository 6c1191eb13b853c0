"""Rows in memory of many parameters are weighed at once where a Gaussian fits, and only there."""

from __future__ import annotations

import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import digamma, logsumexp
from scipy.stats import multivariate_normal

import weighbridge as wb
from weighbridge.core import memory as machine
from weighbridge.core.compilation import in_double_precision
from weighbridge.core.status import Status
from weighbridge.estimators.proposals import at_mode
from weighbridge.estimators.proposals.at_mode import gaussian_at_mode
from weighbridge.estimators.proposals.joint_density import JointDensity
from weighbridge.estimators.sgais import at_once
from weighbridge.weighing.rounds import merge

NORMAL = {"w": dist.Normal(0.0, 1.0).expand([2]).to_event(1)}


def _log_bernoulli(p, row):
    score = row["x"] @ p["w"]
    return row["y"] * score - jnp.logaddexp(0.0, score)


def _log_of_square(p, row):
    return dist.Normal((row["x"] @ p["w"]) ** 2, 0.3).log_prob(row["y"])


@jax.custom_vjp
def _twice(value):
    return 2.0 * value


@jax.custom_vjp
def _square(value):
    return -(value**2)


_twice.defvjp(lambda value: (2.0 * value, None), lambda _, slope: (2.0 * slope,))
_square.defvjp(lambda value: (-(value**2), value), lambda value, slope: (-_twice(value) * slope,))

LOGISTIC = wb.Model(NORMAL, _log_bernoulli)
TWO_MODES = wb.Model(NORMAL, _log_of_square)


def _rows(count: int = 60) -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(3)
    x = numbers.standard_normal((count, 2))
    return {"x": x, "y": (x @ [1.5, -0.7] + numbers.logistic(size=count) > 0).astype(float)}


def _exact(rows: dict[str, np.ndarray]) -> float:
    """The log evidence of the logistic regression by quadrature on a grid."""
    line = np.linspace(-4.0, 4.0, 321)
    w = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    height = -0.5 * np.sum(w**2, axis=1) - math.log(2 * math.pi)
    for x, y in zip(rows["x"], rows["y"]):
        score = w @ x
        height = height + y * score - np.logaddexp(0.0, score)
    return float(logsumexp(height)) + 2 * math.log(line[1] - line[0])


def _at_once(model, rows, seed=0, first_island=0, method=None):
    count = len(rows["y"])
    return at_once.evidence_at_once(
        method or wb.SGAIS(), model, rows, np.ones(count), seed, first_island
    )


@pytest.fixture
def for_few_parameters(monkeypatch):
    monkeypatch.setattr(at_once, "LEAST_PARAMETERS", 1)


@pytest.mark.long
def test_the_error_covers_on_a_skewed_posterior():
    rows = _rows()
    exact = _exact(rows)
    # With so few parameters the fit has much chance, and it does not always do.
    tried = [_at_once(LOGISTIC, rows, seed) for seed in range(12)]
    found = [result for result in tried if result is not None]
    assert len(found) >= 8
    z = np.array([(result.log_evidence - exact) / result.std_error for result in found])
    # A Student-t with 15 degrees of freedom: 12 of them exceed 4.5 with a probability of 0.005.
    assert np.max(np.abs(z)) < 4.5
    assert 0.4 < math.sqrt(np.mean(z**2)) < 1.8
    assert max(result.std_error for result in found) < 0.02
    assert all(not result.flags for result in found)


def test_the_draws_are_of_the_posterior():
    rows = _rows()
    result = _at_once(LOGISTIC, rows)
    share = np.exp(result.log_weights)
    line = np.linspace(-4.0, 4.0, 321)
    w = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    score = rows["x"] @ w.T
    height = rows["y"] @ score - np.logaddexp(0.0, score).sum(axis=0) - 0.5 * np.sum(w**2, axis=1)
    exact = np.exp(height - logsumexp(height)) @ w
    # About 950 effective draws of a standard deviation below 0.46.
    np.testing.assert_allclose(share @ result.samples["w"], exact, atol=4 * 0.46 / 30)


def test_same_seed_same_numbers_and_other_islands_others():
    rows = _rows()
    one, again, other = (_at_once(LOGISTIC, rows, 5, island) for island in (0, 0, 16))
    assert one.log_evidence == again.log_evidence != other.log_evidence
    np.testing.assert_array_equal(one.samples["w"], again.samples["w"])


@pytest.mark.long
def test_a_gaussian_posterior_is_met_exactly():
    """With the mode and the Hessian the ratios are constant, and the stretch must be one."""
    numbers = np.random.default_rng(1)
    features, count = 310, 500
    x = numbers.standard_normal((count, features)) / math.sqrt(features)
    y = x @ numbers.standard_normal(features) + numbers.standard_normal(count)
    model = wb.Model(
        {"w": dist.Normal(0.0, 1.0).expand([features]).to_event(1)},
        lambda p, row: dist.Normal(row["x"] @ p["w"], 1.0).log_prob(row["y"]),
    )
    exact = multivariate_normal(np.zeros(count), np.eye(count) + x @ x.T).logpdf(y)
    result = wb.evidence(model, {"x": x, "y": y}, seed=0, progress=False)
    assert result.diagnostics["answer"] == "mode"
    assert result.diagnostics["row_order"] == "at once"
    assert result.num_observations == count
    # The climbs end within a hundredth of a nat of the top, so that the fit is not quite exact.
    assert result.std_error < 1e-3
    assert abs(result.log_evidence - exact) < 4.5 * result.std_error


def test_other_modes_are_seen(for_few_parameters):
    rows = _rows()
    assert _at_once(TWO_MODES, rows) is None
    result = wb.evidence(TWO_MODES, rows, seed=0, progress=False)
    assert result.diagnostics["answer"] != "mode"
    assert result.method == "sgais"


def _log_of_bumps(p, row):
    """A low bump at -1, and at 5 a high one, which one prior draw of 22 climbs."""
    low, high = (-0.5 * ((p["w"][0] - centre) / 0.3) ** 2 for centre in (-1.0, 5.0))
    return jnp.logaddexp(low, 20.0 + high) + row["y"]


def test_a_mode_is_seen_though_few_prior_draws_climb_it(monkeypatch):
    model, rows = wb.Model(NORMAL, _log_of_bumps), {"y": np.zeros(1)}
    assert all(_at_once(model, rows, seed) is None for seed in range(4))
    # 32 climbs would miss it in one run of four, and the answer would be 9 nats too low.
    monkeypatch.setattr(at_mode, "NUM_FURTHER", 1)
    assert any(_at_once(model, rows, seed) is not None for seed in range(16))


def test_what_is_not_weighed_at_once_is_weighed_as_ever(monkeypatch):
    rows = _rows()
    plain = wb.evidence(TWO_MODES, rows, seed=1, progress=False)
    monkeypatch.setattr(at_once, "LEAST_PARAMETERS", 1)
    tried = wb.evidence(TWO_MODES, rows, seed=1, progress=False)
    assert tried.log_evidence == plain.log_evidence
    assert tried.fingerprint == plain.fingerprint
    np.testing.assert_array_equal(tried.samples["w"], plain.samples["w"])


def test_models_of_both_kinds_on_the_same_rows(for_few_parameters, tmp_path):
    """A bad row is left out for both models, and written once."""
    rows = _rows()
    rows["y"][7] = np.nan
    file = tmp_path / "bad.jsonl"
    found = wb.compare(
        {"logistic": LOGISTIC, "square": TWO_MODES},
        rows,
        progress=False,
        on_bad_row="quarantine",
        quarantine=file,
    )
    answers = [found.results[n].diagnostics["answer"] == "mode" for n in ("logistic", "square")]
    assert answers == [True, False]
    assert {e.num_observations for e in found.results.values()} == {59}
    assert {e.diagnostics["rows_quarantined"] for e in found.results.values()} == {1}
    assert len(file.read_text().splitlines()) == 1


def test_rounds_are_added_for_a_tolerance(for_few_parameters):
    rows = _rows()
    one = wb.evidence(LOGISTIC, rows, seed=0, progress=False)
    result = wb.evidence(LOGISTIC, rows, seed=0, tolerance=0.7 * one.std_error, progress=False)
    assert result.diagnostics["num_rounds"] > 1
    assert result.diagnostics["answer"] == "mode"
    assert result.std_error <= 0.7 * one.std_error
    assert abs(result.log_evidence - _exact(rows)) < 4.5 * result.std_error


def test_a_round_by_the_path_among_others_says_so():
    """The answer is then of the islands of all rounds."""
    rows = _rows()
    first = _at_once(LOGISTIC, rows)
    second = wb.evidence(LOGISTIC, rows, wb.SGAIS(chunk_size=60), seed=0, progress=False)
    assert merge([first, second], wb.SGAIS()).diagnostics["answer"] == "path"


@pytest.mark.parametrize(
    ("prior", "log_likelihood"),
    [
        # Nothing is learnt.
        (NORMAL, lambda p, row: 0.0 * jnp.sum(p["w"])),
        # Climbs do not end, since the density has no top.
        (
            {"s": dist.HalfNormal(1.0), "w": lambda p: dist.Normal(0.0, p["s"])},
            lambda p, row: dist.Normal(p["w"], 1.0).log_prob(row["y"] - row["y"]),
        ),
        # Heavy tails: the ratios to a Gaussian have no variance.
        ({"w": dist.StudentT(2.0, 0.0, 1.0)}, lambda p, row: -1e-3 * (row["y"] - p["w"]) ** 2),
        # Undefined for half of the prior.
        (NORMAL, lambda p, row: jnp.log(p["w"][0]) - p["w"][1] ** 2),
        # Infinite on the way up.
        (NORMAL, lambda p, row: jnp.where(p["w"][0] > 4.0, jnp.inf, p["w"][0])),
        # It can be differentiated once only.
        (NORMAL, lambda p, row: _square(p["w"][0])),
    ],
    ids=["flat", "no top", "heavy tails", "undefined", "infinite", "no second derivative"],
)
def test_where_a_gaussian_does_not_fit_there_is_no_answer(prior, log_likelihood):
    assert _at_once(wb.Model(prior, log_likelihood), {"y": np.zeros(8)}) is None


def test_few_islands_state_no_error():
    result = _at_once(LOGISTIC, _rows(), method=wb.SGAIS(num_islands=3))
    assert math.isnan(result.std_error)
    assert result.flags == (Status.ERROR_UNKNOWN,)


def test_what_the_user_chose_is_kept(for_few_parameters):
    chosen = [
        wb.SGAIS(chunk_size=50),
        wb.SGAIS(batch_size=50),
        wb.SGAIS(half_life=100.0),
        wb.SGAIS(kernel=wb.SGHMC()),
    ]
    assert wb.SGAIS().at_once(LOGISTIC) is not None
    assert all(method.at_once(LOGISTIC) is None for method in chosen)
    components = wb.Model({"w": dist.Normal(0, 1).expand([2])}, _log_bernoulli,
                          exchangeable={"w": 0})  # fmt: skip
    assert wb.SGAIS().at_once(components) is None
    assert wb.IBIS().at_once(LOGISTIC) is None


def test_a_stream_is_taken_in_chunks(for_few_parameters):
    rows = _rows()
    result = wb.evidence(LOGISTIC, iter([rows]), seed=0, progress=False)
    assert result.diagnostics["answer"] != "mode"


def test_memory_is_told_before_it_is_taken(monkeypatch):
    rows = _rows()
    monkeypatch.setattr(machine, "WARN_ABOVE", 100)
    with pytest.warns(wb.WeighbridgeWarning, match=r"60 rows at once with 2 parameters .*chunk_"):
        assert _at_once(LOGISTIC, rows) is not None
    monkeypatch.setattr(at_once, "bytes_available", lambda: 100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _at_once(LOGISTIC, rows) is None


@pytest.mark.long
def test_the_centre_is_the_mean_and_not_the_mode():
    """Six successes of seven: the posterior of the logit is skewed."""
    model = wb.Model({"p": dist.Beta(1.0, 1.0)}, lambda p, y: dist.Bernoulli(p["p"]).log_prob(y))
    heads = np.concatenate([np.ones(6), np.zeros(1)])
    with in_double_precision():
        density = JointDensity(model, heads, np.ones(7))
        fits = [gaussian_at_mode(density.path, seed, 0) for seed in range(4)]
    mode = math.log(7 / 2)
    centre = float(np.mean([found.mean[0, 0] for found in fits]))  # each is near by a share of sd
    mean = float(digamma(7.0) - digamma(2.0))
    assert abs(centre - mean) < 0.3 * abs(mode - mean)
