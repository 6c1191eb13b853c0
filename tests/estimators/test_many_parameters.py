"""Models of very many parameters: memory is told beforehand, and moves that lag are flagged."""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.stats import multivariate_normal

import weighbridge as wb
from weighbridge.core import memory as machine
from weighbridge.core.errors import MethodError, WeighbridgeWarning
from weighbridge.core.islands import combine_islands
from weighbridge.core.status import Status
from weighbridge.estimators.annealing import memory_needed as memory
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.annealing.loop import Annealed
from weighbridge.estimators.annealing.moves.adaptive import AdaptiveInfo
from weighbridge.estimators.tempering.judgement import remembers_too_much
from weighbridge.weighing.rounds import merged_error

GIB = 1 << 30


def test_a_small_model_is_not_looked_at(monkeypatch):
    monkeypatch.setattr(machine, "bytes_available", lambda: 0)
    memory.check_memory(500, 16, 64, dense=True)


def test_a_large_model_warns_or_is_refused(monkeypatch):
    monkeypatch.setattr(machine, "bytes_available", lambda: 64 * GIB)
    with pytest.warns(WeighbridgeWarning, match=r"5,000 parameters .* about .* GiB"):
        memory.check_memory(5000, 16, 2000, dense=True)
    monkeypatch.setattr(machine, "bytes_available", lambda: GIB)
    with pytest.raises(MethodError, match=r"1\.0 GiB are free\. Use fewer .*dense=False"):
        memory.check_memory(5000, 16, 2000, dense=True)
    memory.check_memory(5000, 16, 64, dense=False)
    # So few particles have no full matrix, except for moves without gradients.
    assert not memory.needs_matrix(wb.AdaptiveHMC(), 5000, 16 * 64)
    assert memory.needs_matrix(wb.AdaptiveWalk(wb.Metropolis()), 5000, 16 * 64)
    assert memory.needs_matrix(wb.AdaptiveHMC(), 5000, 16 * 2000)


def test_the_machine_says_what_it_has_left():
    left = machine.bytes_available()
    assert left is None or left > 1 << 20


@pytest.mark.long
@pytest.mark.parametrize("method", [wb.SMC(num_particles=500), wb.IBIS(num_particles=500)])
def test_methods_ask_before_they_take_it(method, monkeypatch):
    monkeypatch.setattr(machine, "bytes_available", lambda: GIB)
    model = wb.Model(
        {"w": dist.Normal(0, 1).expand([5000]).to_event(1)}, lambda p, y: -((y - p["w"][0]) ** 2)
    )
    with pytest.raises(MethodError, match="5,000 parameters"):
        wb.evidence(model, np.zeros(2), method)


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"num_samples": 10**6}, "num_samples, thin"),
        ({"num_samples": 10, "warmup": wb.Warmup(metric="dense")}, "diagonal"),
    ],
)
def test_chains_ask_before_they_take_it(options, remedy, monkeypatch):
    monkeypatch.setattr(machine, "bytes_available", lambda: GIB)
    model = wb.Model(
        {"w": dist.Normal(0, 1).expand([5000]).to_event(1)}, lambda p, y: -((y - p["w"][0]) ** 2)
    )
    with pytest.raises(MethodError, match=rf"5,000 parameters .* GiB are free\. .*{remedy}"):
        wb.sample(model, np.zeros(2), **options)


def test_mini_batches_of_wide_rows_are_asked_for_before_they_are_made(monkeypatch):
    model = wb.Model(
        {"w": dist.Normal(0, 1).expand([5]).to_event(1)}, lambda p, y: -((y[0] - p["w"][0]) ** 2)
    )
    rows = np.zeros((2, 5000))
    monkeypatch.setattr(machine, "bytes_available", lambda: GIB)
    with pytest.raises(MethodError, match=r"8,192 rows .* GiB are free\. .*batch_size"):
        wb.evidence(model, rows, wb.SGAIS())
    monkeypatch.setattr(machine, "bytes_available", lambda: 64 * GIB)
    with pytest.warns(WeighbridgeWarning, match=r"8,192 rows .* takes about 19\.5 GiB"):
        memory.check_batch_memory(16, 8192, rows)
    memory.check_batch_memory(16, 8192, np.zeros((2, 50)))


class _Step:
    """What is read of a step."""

    def __init__(self, correlation: float) -> None:
        self.moves = AdaptiveInfo(0.8, 1.0, 3, correlation, 0.1, 0.0, np.zeros(2))


def _outcome(dimension: int, correlations: list[float]) -> Annealed:
    cloud = Cloud(np.zeros((2, 64, dimension)), np.zeros((2, 64)), np.zeros((2, 64), int))
    return Annealed(cloud, None, [_Step(c) for c in correlations], [0.0, 1.0], False)


def test_moves_that_forget_too_little_are_flagged_only_in_many_dimensions():
    assert remembers_too_much(_outcome(500, [0.3, 0.5, 0.6, 0.7, 0.55, 0.6]))
    # So much is left in usual runs; the stated error covers what it costs.
    assert not remembers_too_much(_outcome(500, [0.3, 0.4, 0.35, 0.3]))
    assert not remembers_too_much(_outcome(20, [0.9] * 10))  # modes, which are remembered
    assert not remembers_too_much(_outcome(500, [0.9] * 5 + [0.1] * 5))
    assert Status.TOO_FEW_MOVES.remedy.startswith("Use more moves")


def _gaussian(dimension: int) -> tuple[wb.Model, float]:
    """A Gaussian likelihood with an exact log evidence."""
    precision = np.geomspace(0.1, 100.0, dimension)
    centre = np.random.default_rng(1).standard_normal(dimension)
    model = wb.Model(
        {"x": dist.Normal(0.0, 1.0).expand([dimension]).to_event(1)},
        total_log_likelihood=lambda p: -0.5 * jnp.sum(precision * (p["x"] - centre) ** 2),
    )
    exact = -0.5 * np.sum(np.log1p(precision) + precision * centre**2 / (1 + precision))
    return model, float(exact)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_the_error_covers_where_no_bridge_can_answer(seed):
    model, exact = _gaussian(500)
    result = wb.evidence(model, None, wb.SMC(), seed=seed, progress=False)
    assert result.diagnostics["answer"] == "path"
    assert result.diagnostics["dimension_bias"] > 0
    assert abs(result.log_evidence - exact) < 4 * result.std_error
    assert result.std_error < 3.0
    assert Status.TOO_FEW_MOVES not in result.flags


def _regression(dimension: int, rows: int) -> tuple[wb.Model, dict[str, np.ndarray], float]:
    """A linear regression with an exact log evidence."""
    numbers = np.random.default_rng(1)
    x = numbers.standard_normal((rows, dimension)) / np.sqrt(dimension)
    y = x @ numbers.standard_normal(dimension) + numbers.standard_normal(rows)
    model = wb.Model(
        {"w": dist.Normal(0.0, 1.0).expand([dimension]).to_event(1)},
        lambda p, row: dist.Normal(row["x"] @ p["w"], 1.0).log_prob(row["y"]),
    )
    covariance = np.eye(rows) + x @ x.T
    exact = multivariate_normal(np.zeros(rows), covariance).logpdf(y)
    return model, {"x": x, "y": y}, float(exact)


@pytest.mark.long
@pytest.mark.parametrize(
    # With chunks of its own SGAIS would weigh these rows at once.
    "method",
    [wb.SMC, wb.AIS, partial(wb.SGAIS, chunk_size=256), wb.IBIS],
)
def test_few_particles_for_many_parameters_are_covered_or_flagged(method):
    """In runs of 64 particles the path falls short; the error says by how much it may."""
    model, data, exact = _regression(500, 400)
    for seed in range(2):
        few = method(num_islands=4, num_particles=16)
        result = wb.evidence(model, data, few, seed=seed, progress=False)
        # A doubtful answer may be replaced by that of a Gaussian at the mode.
        by_mode = result.diagnostics.get("answer") == "mode"
        assert by_mode or result.diagnostics["dimension_bias"] > 0
        assert abs(result.log_evidence - exact) < 4 * result.std_error or result.flags


def test_the_error_of_ibis_includes_what_all_islands_may_share():
    model, data, _ = _regression(120, 8)
    run = wb.IBIS(num_islands=4, num_particles=16).start(model, seed=0)
    run.absorb(data, np.ones(8))
    combined, bias = combine_islands(run.log_evidences), run.dimension_bias()
    assert bias == pytest.approx(0.8 * combined.spread)
    assert run.path[-1].std_error == pytest.approx(np.hypot(combined.std_error, bias))


@pytest.mark.long
def test_rounds_do_not_average_the_bias_away():
    """The error of two rounds stays above what all islands may share."""
    model, _ = _gaussian(120)
    few = wb.SMC(num_islands=4, num_particles=8)
    one = wb.evidence(model, None, few, seed=0, progress=False)
    again = few.estimate(model, None, None, seed=0, first_island=4)
    bias = one.diagnostics["dimension_bias"], again.diagnostics["dimension_bias"]
    assert min(bias) > 0
    assert merged_error([one, again], few)[0] >= np.mean(bias)
