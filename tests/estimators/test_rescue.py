"""Doubtful answers of SGAIS are held against importance sampling around the mode."""

from dataclasses import replace

import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.compilation import in_double_precision
from weighbridge.core.status import Status
from weighbridge.estimators.sgais.rescue import is_doubtful, rescued

FEW = wb.SGAIS(num_islands=4, num_particles=64)


def finished_run(model, data, method=FEW):
    online = wb.Online(model, method, seed=1)
    online.update(data)
    return online._session.run, online.result()


@pytest.fixture(scope="module")
def linear():
    data = wb.zoo.linear.simulate(300, seed=3)
    exact = wb.zoo.linear.log_evidence(data)
    return *finished_run(wb.zoo.linear.model(), data), exact


def doubtful(found, *, path, bridge, flags=()):
    """The result with another path, the answer, and another bridge."""
    seen = {
        "path_log_evidence": path,
        "path_error": 0.1,
        "answer": "path",
        "bridge_log_evidence": bridge,
        "bridge_error": 0.01,
    }
    diagnostics = found.diagnostics | seen
    return replace(found, log_evidence=path, std_error=0.1, flags=flags, diagnostics=diagnostics)


def rescue(run, found):
    with in_double_precision():
        return rescued(run, found)


def test_an_answer_without_doubts_stays(linear):
    run, found, _exact = linear
    assert not is_doubtful(found)
    assert rescue(run, found) is found


def test_a_path_that_lost_mass_is_replaced(linear):
    run, found, exact = linear
    lost = doubtful(found, path=exact - 3, bridge=exact - 2, flags=(Status.PATH_LOST,))
    result = rescue(run, lost)
    assert result.diagnostics["answer"] == "mode"
    assert result.flags == (Status.PATH_LOST,)
    assert abs(result.log_evidence - exact) < 5 * result.std_error < 0.1
    assert abs(np.sum(np.exp(result.log_weights)) - 1) < 1e-9


def test_a_path_that_is_too_high_is_replaced_where_the_bridge_agrees_with_the_mode(linear):
    run, found, exact = linear
    result = rescue(run, doubtful(found, path=exact + 2, bridge=exact))
    assert result.diagnostics["answer"] == "mode"
    assert abs(result.log_evidence - exact) < 5 * result.std_error < 0.1


def test_a_path_that_is_higher_than_bridge_and_mode_stands_with_a_flag(linear):
    """Another mode may hold the rest of its mass."""
    run, found, exact = linear
    result = rescue(run, doubtful(found, path=exact + 2, bridge=exact + 1))
    assert result.log_evidence == exact + 2
    assert Status.BRIDGE_SHORT in result.flags
    assert abs(result.diagnostics["mode_log_evidence"] - exact) < 0.1


def test_a_noisy_answer_that_states_no_error_is_replaced(linear):
    run, found, exact = linear
    noisy = doubtful(found, path=exact, bridge=exact, flags=(Status.NOISY,))
    result = rescue(run, replace(noisy, std_error=np.nan))
    assert result.flags == ()
    assert result.std_error < 0.1


def test_a_run_that_forgets_has_no_mode_of_all_rows():
    data = wb.zoo.linear.simulate(300, seed=3)
    method = replace(FEW, half_life=100.0)
    run, found = finished_run(wb.zoo.linear.model(), data, method)
    noisy = doubtful(found, path=0.0, bridge=0.0, flags=(Status.NOISY,))
    assert rescue(run, noisy) is noisy


@pytest.mark.long
@pytest.mark.parametrize("chunk", [15_000, 1_000])
def test_rows_with_a_few_outliers_are_right_or_flagged(chunk):
    """No mini-batch holds the rows that matter: paths were wrong by 2 and 3 nats without a flag."""
    numbers = np.random.default_rng(0)
    x = numbers.normal(size=(15_000, 12))
    x[numbers.random(15_000) < 0.002] *= 100
    weights = numbers.normal(size=12)
    chance = 1 / (1 + np.exp(-np.clip(x @ weights, -700, 700)))
    y = (numbers.random(15_000) < chance).astype(int)
    model = wb.Model(
        {"w": dist.Normal(0, 1).expand([12]).to_event(1)},
        lambda p, row: dist.Bernoulli(logits=row["x"] @ p["w"]).log_prob(row["y"]),
    )
    reference = wb.evidence(model, {"x": x, "y": y}, wb.Importance(), seed=1)
    for seed in range(2):
        if chunk == 15_000:
            result = wb.evidence(model, {"x": x, "y": y}, seed=seed, method="sgais")
        else:
            online = wb.Online(model, seed=seed)
            for first in range(0, 15_000, chunk):
                online.update({"x": x[first : first + chunk], "y": y[first : first + chunk]})
            result = online.result()
        error = np.hypot(result.std_error, reference.std_error)
        assert result.flags or abs(result.log_evidence - reference.log_evidence) < 4 * error
