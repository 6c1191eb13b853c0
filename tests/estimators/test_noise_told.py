"""What the flag about noisy mini-batches says is in the error is there."""

import math

import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.compilation import double_precision
from weighbridge.core.status import Status
from weighbridge.core.thresholds import MAX_BATCH_NOISE, MAX_NOISE_BIAS
from weighbridge.estimators.sgais import bridge_rows, crossing, judgement

OF_THE_PATH = "the error of the path includes it"
OF_THE_BRIDGE = "The error of a bridge includes the noise of its own batches"


def squares(p, row):
    """Two modes, at +-1: an anchor between them is of little use."""
    return -0.5 * (row["y"] - row["x"] * p["theta"] ** 2) ** 2


def a_run(num_rows=2500, size=500):
    """A run on small mini-batches, whose noise is of many nats."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=num_rows)
    y = x + rng.normal(size=num_rows)
    model = wb.Model({"theta": dist.Normal(0.0, 1.0)}, squares)
    run = wb.SGAIS(num_particles=16, batch_size=64).start(model, seed=0)
    absorb = double_precision(run.absorb)
    for start in range(0, num_rows, size):
        piece = {"x": x[start : start + size], "y": y[start : start + size]}
        absorb(piece, np.ones(size))
    return run


@pytest.fixture(scope="module")
def noisy():
    return a_run()


def test_the_flag_says_where_the_noise_is():
    assert OF_THE_PATH in Status.NOISY.meaning
    assert OF_THE_BRIDGE in Status.NOISY.meaning


def test_of_an_answer_by_the_path_the_noise_that_was_measured_is_in_the_error(noisy, monkeypatch):
    monkeypatch.setattr(judgement, "cross", lambda *_: None)
    result = noisy.result(0.0, {})
    assert Status.NOISY in result.flags
    assert result.diagnostics["answer"] == "path"
    bias = result.diagnostics["noise_bias"]
    chance = noisy.ledger.stated()[1]
    # It is flagged where it is more than the rest, so the error is mostly that.
    assert bias > max(MAX_NOISE_BIAS, chance)
    assert result.claimed_error >= math.hypot(bias, chance) * (1 - 1e-12)


def test_of_an_answer_by_the_bridge_the_noise_of_its_batches_is_in_the_error(noisy, monkeypatch):
    """A bridge on mini-batches, of which another noise is told each time."""
    monkeypatch.setattr(bridge_rows, "ALL_AT_ONCE", 100)
    # Batches of this many rows are good enough for a bridge, though not for nothing.
    monkeypatch.setattr(crossing, "MAX_BATCH_NOISE", 1e9)
    measured = []

    def batch_error(*arguments):
        measured.append(bridge_rows.batch_error(*arguments))
        return measured[-1]

    monkeypatch.setattr(crossing, "batch_error", batch_error)
    found = crossing.cross(noisy)
    assert measured[0] > 0.5
    assert found.std_error >= measured[0]
    for told in (0.0, 3.0):
        monkeypatch.setattr(crossing, "batch_error", lambda *_, told=told: told)
        assert crossing.cross(noisy).std_error ** 2 == pytest.approx(
            found.std_error**2 - measured[0] ** 2 + told**2, rel=1e-6
        )


def test_the_flag_stays_on_an_answer_by_a_bridge_from_batches_of_no_use(noisy):
    """Its own rows are exact here, but modes may be lost; and the noise was above the limit."""
    result = noisy.result(0.0, {})
    assert result.diagnostics["largest_noise"] > MAX_BATCH_NOISE
    assert Status.NOISY in result.flags
