"""SGAIS with a half-life, against exact predictive densities of conjugate models."""

import itertools

import numpy as np
import pytest

import weighbridge as wb
from weighbridge.data.reservoir import NEGLIGIBLE, Window

SEEDS = (0, 1, 2)


def weighted_log_evidence(features, target, weight, noise=1.0):
    """log of the integral of prod N(y_k | x_k w, noise^2)^weight_k N(w | 0, I), in closed form."""
    precision = np.eye(features.shape[1]) + (features * weight[:, None]).T @ features / noise**2
    moment = (features * weight[:, None]).T @ target / noise**2
    constant = -0.5 * weight.sum() * np.log(2 * np.pi * noise**2)
    squares = -0.5 * np.sum(weight * target**2) / noise**2
    log_det = np.linalg.slogdet(precision)[1]
    return constant + squares + 0.5 * moment @ np.linalg.solve(precision, moment) - 0.5 * log_det


def faded_log_evidence(features, target, cuts, half_life):
    """Sum over chunks of log p(chunk | past, faded)."""
    total, weight = 0.0, np.zeros(0)
    for start, stop in itertools.pairwise(cuts):
        weight = weight * 0.5 ** ((stop - start) / half_life)
        before = weighted_log_evidence(features[:start], target[:start], weight)
        weight = np.concatenate([weight, np.ones(stop - start)])
        total += weighted_log_evidence(features[:stop], target[:stop], weight) - before
    return total


def gaussian_stream(num_rows, seed):
    """A mean that wanders: what a model without memory of the past is for."""
    generator = np.random.default_rng(seed)
    drift = np.cumsum(generator.normal(0, 0.05, num_rows))
    return drift + generator.standard_normal(num_rows)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("half_life", [50.0, 400.0])
def test_log_evidence_is_the_sum_of_faded_predictives(seed, half_life):
    data = gaussian_stream(600, seed)
    method = wb.SGAIS(num_islands=8, num_particles=64, chunk_size=40, half_life=half_life)
    online = wb.Online(wb.zoo.gaussian.model(), method, seed=seed)
    cuts = list(range(0, 601, 40))
    for start, stop in itertools.pairwise(cuts):
        update = online.update(data[start:stop])
    exact = faded_log_evidence(np.ones((600, 1)), data, cuts, half_life)
    # With 8 islands an error of a normal estimate is a Student's t of 7 degrees.
    assert abs(update.log_evidence - exact) < 6 * update.std_error
    assert update.std_error < 1.0
    assert abs(exact - wb.zoo.gaussian.log_evidence(data)) > 3.0, "the test can tell them apart"


def linear_model():
    import numpyro.distributions as dist

    return wb.Model(
        prior={"w": dist.Normal(0, 1).expand([3]).to_event(1)},
        log_likelihood=_linear,
    )


def _linear(parameters, row):
    import numpyro.distributions as dist

    return dist.Normal(row["x"] @ parameters["w"], 1.0).log_prob(row["y"])


@pytest.mark.long
def test_long_streams_see_the_past_through_an_anchor():
    generator = np.random.default_rng(3)
    features = generator.normal(size=(6000, 3))
    coefficients = np.cumsum(generator.normal(0, 0.02, (6000, 3)), axis=0)
    target = np.sum(features * coefficients, axis=1) + generator.standard_normal(6000)
    method = wb.SGAIS(num_islands=8, num_particles=64, chunk_size=200, half_life=1000.0)
    online = wb.Online(linear_model(), method, seed=0)
    cuts = list(range(0, 6001, 200))
    for start, stop in itertools.pairwise(cuts):
        update = online.update({"x": features[start:stop], "y": target[start:stop]})
    result = online.result()
    exact = faded_log_evidence(features, target, cuts, 1000.0)
    assert result.diagnostics["anchor_order"] == 2
    assert abs(update.log_evidence - exact) < 6 * update.std_error
    assert update.std_error < 1.5
    # A stationary memory: the geometric series of chunks.
    fade = 0.5**0.2
    expected = 200 * (1 - fade**30) / (1 - fade)
    assert result.diagnostics["rows_remembered"] == pytest.approx(expected, rel=1e-6)
    weight = 0.5 ** (0.2 * np.repeat(np.arange(30)[::-1], 200))
    precision = np.eye(3) + (features * weight[:, None]).T @ features
    mean = np.linalg.solve(precision, (features * weight[:, None]).T @ target)
    found = np.average(result.samples["w"], axis=0, weights=np.exp(result.log_weights))
    deviation = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert np.all(np.abs(found - mean) < 0.5 * deviation)


@pytest.mark.long
def test_a_half_life_beyond_all_rows_forgets_nothing():
    data = wb.zoo.gaussian.simulate(300, seed=1)
    settings = {"num_islands": 4, "num_particles": 32, "chunk_size": 100}
    never = wb.Online(wb.zoo.gaussian.model(), wb.SGAIS(**settings), seed=0)
    late = wb.Online(wb.zoo.gaussian.model(), wb.SGAIS(**settings, half_life=1e15), seed=0)
    for start in (0, 100, 200):
        first = never.update(data[start : start + 100])
        second = late.update(data[start : start + 100])
    assert second.log_evidence == pytest.approx(first.log_evidence, abs=1e-6)


def test_resumed_run_forgets_as_if_it_had_not_stopped(tmp_path):
    data = gaussian_stream(400, 5)
    method = wb.SGAIS(num_islands=4, num_particles=32, chunk_size=100, half_life=150.0)
    model = wb.zoo.gaussian.model()
    whole, first = wb.Online(model, method, seed=2), wb.Online(model, method, seed=2)
    for start in (0, 100):
        whole.update(data[start : start + 100])
        first.update(data[start : start + 100])
    first.save(tmp_path / "run.ckpt")
    second = wb.Online.load(tmp_path / "run.ckpt", model, method)
    for start in (200, 300):
        expected = whole.update(data[start : start + 100])
        found = second.update(data[start : start + 100])
    assert found.log_evidence == expected.log_evidence
    assert found.std_error == expected.std_error


def test_memory_is_that_of_twenty_half_lives():
    window = Window()
    for _ in range(200):
        window.fade(0.5)
        window.append(np.zeros(10), np.ones(10))
    assert window.num_seen == 2000
    assert window.num_kept <= 10 * (1 - np.log2(NEGLIGIBLE)) + 10


def test_chunks_in_memory_are_short_beside_the_half_life():
    assert wb.SGAIS(half_life=400.0).chunk_after(10_000, in_memory=True) == 100
    assert wb.SGAIS(half_life=2.0).chunk_after(0, in_memory=False) == 1


@pytest.mark.parametrize("half_life", [0.0, -1.0, float("inf"), float("nan"), "long"])
def test_half_life_must_be_a_positive_number(half_life):
    with pytest.raises(wb.MethodError, match="half_life"):
        wb.SGAIS(half_life=half_life)


def test_half_life_needs_the_default_moves():
    with pytest.raises(wb.MethodError, match="kernel"):
        wb.SGAIS(half_life=10.0, kernel=wb.SGHMC())
