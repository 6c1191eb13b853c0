"""A stream's path is held against a bridge when rows double, and put right where it lost mass."""

from __future__ import annotations

from unittest import mock

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.random import random_numbers
from weighbridge.core.status import Status
from weighbridge.estimators.bridging import gaussians
from weighbridge.estimators.sgais import judgement
from weighbridge.estimators.sgais.preparation import EXACT_ROWS
from weighbridge.weighing.changes.segments import SegmentedRun

SMALL = wb.SGAIS(num_islands=6, num_particles=32)


def log_likelihood(p, row):
    return dist.Cauchy(p["m"], 0.5).log_prob(row["y"])


MODEL = wb.Model({"m": dist.Normal(0.0, 10.0)}, log_likelihood)


def rows_that_change_their_mind():
    """Rows around -4, then twenty times as many around 4: the mode at -4 stays for long."""
    rng = np.random.default_rng(0)
    return 0.5 * rng.normal(size=5000) + np.where(np.arange(5000) < 250, -4.0, 4.0)


def exact(rows):
    """By the trapezium rule around the mode at 4, which has all but e^-1000 of the mass."""
    grid = np.linspace(3.5, 4.5, 4001)
    squares = ((grid[:, None] - rows) / 0.5) ** 2
    height = -np.sum(np.log1p(squares), axis=1) - len(rows) * np.log(0.5 * np.pi)
    height = height - 0.5 * (grid / 10.0) ** 2 - 0.5 * np.log(200 * np.pi)
    density = np.exp(height - height.max())
    return height.max() + np.log(np.sum(density[1:] + density[:-1]) / 2 * (grid[1] - grid[0]))


@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "method"), [(0, wb.SGAIS()), *((seed, SMALL) for seed in (0, 1, 2, 4, 6))]
)
def test_a_path_that_stayed_behind_is_put_right(seed, method):
    rows = rows_that_change_their_mind()
    online = wb.Online(MODEL, method, seed=seed)
    for start in range(0, len(rows), 250):
        update = online.update({"y": rows[start : start + 250]})
        if update.num_observations == 2000:
            # All particles are in the new mode, and their path is still that of the old one.
            assert update.log_evidence < exact(rows[:2000]) - 1000
    assert Status.PATH_LOST in update.flags
    # It goes on from the bridge: what it added since has an error of its own.
    assert abs(update.log_evidence - exact(rows)) < 4 * update.std_error + 0.01
    assert update.std_error < 1.0
    result = online.result()
    assert abs(result.log_evidence - exact(rows)) < 4 * result.std_error + 0.01
    assert Status.PATH_LOST in result.flags
    assert result.diagnostics["path_repaired"] > 1000
    assert len(set(result.flags)) == len(result.flags)


@pytest.mark.long
def test_an_island_that_stayed_behind_is_told():
    """One island is still on its way to the new mode: the path is flagged, the result is right."""
    rows = rows_that_change_their_mind()
    online = wb.Online(MODEL, SMALL, seed=5)
    update = stream(online, {"y": rows}, 0, 2500, step=250)
    result = online.result()
    arrived = np.all(online._session.run.particles().position[..., 0] > 3.5, axis=1)
    assert arrived.sum() == 5
    # The path has not been put right. Importance sampling around the mode does not need it.
    assert Status.ISLANDS_DISAGREE in update.flags
    assert np.isnan(update.std_error)
    assert abs(result.log_evidence - exact(rows[:2500])) < 4 * result.std_error + 1e-3


@pytest.mark.long
def test_islands_that_are_elsewhere_are_replaced():
    data = wb.zoo.linear.simulate(4 * EXACT_ROWS, seed=1)
    online = wb.Online(wb.zoo.linear.model(), SMALL, seed=0)
    stream(online, data, 0, 4 * EXACT_ROWS - 256)
    run = online._session.run
    sound = np.array([True, False, True, True, False, True])
    ledger = run.ledger
    positions = np.asarray(ledger.cloud.position)
    with jax.enable_x64(True):
        ledger.go_on_from(-100.0, 0.01, sound)
    np.testing.assert_array_equal(ledger.log_evidences, -100.0)
    moved = np.asarray(ledger.cloud.position)
    np.testing.assert_array_equal(moved[sound], positions[sound])
    assert not any(np.array_equal(moved[k], positions[k]) for k in (1, 4))
    mean_weight = np.logaddexp.reduce(np.asarray(ledger.cloud.log_weight), axis=1) - np.log(32)
    np.testing.assert_allclose(mean_weight, -100.0, rtol=1e-12)


def test_an_error_on_the_way_to_the_bridge_leaves_the_run_as_it_was(monkeypatch):
    data = wb.zoo.linear.simulate(4 * EXACT_ROWS, seed=1)
    runs = [wb.Online(wb.zoo.linear.model(), SMALL, seed=0) for _ in range(2)]
    for online in runs:
        stream(online, data, 0, 2 * EXACT_ROWS - 256)

    def fail(*_):
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(judgement, "cross", fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            stream(runs[0], data, 2 * EXACT_ROWS - 256, 2 * EXACT_ROWS)
    assert runs[0].num_observations == 2 * EXACT_ROWS - 256
    last = [stream(online, data, 2 * EXACT_ROWS - 256, 3 * EXACT_ROWS) for online in runs]
    assert last[0].log_evidence == last[1].log_evidence
    assert last[0].num_observations == last[1].num_observations == 3 * EXACT_ROWS


def test_the_result_crosses_another_bridge_than_the_look_on_the_way():
    """Held against the same draws a path that was put right by them would agree too well."""
    data = wb.zoo.linear.simulate(2 * EXACT_ROWS, seed=1)
    online = wb.Online(wb.zoo.linear.model(), SMALL, seed=0)
    with mock.patch.object(gaussians, "random_numbers", wraps=random_numbers) as drawn:
        stream(online, data, 0, 2 * EXACT_ROWS)
        on_the_way = {call.args for call in drawn.call_args_list}
        online.result()
        every = [call.args for call in drawn.call_args_list]
    assert on_the_way
    assert len(set(every)) == len(every) > len(on_the_way)


def test_a_segment_that_ends_has_what_its_bridge_found():
    data = wb.zoo.linear.simulate(2 * EXACT_ROWS, seed=1)
    run = SegmentedRun(SMALL, wb.zoo.linear.model(), 0)
    for start in range(0, 1024, 256):
        run.absorb({n: c[start : start + 256] for n, c in data.items()}, np.ones(256))
    lower(run.run, 30.0)
    run.restart({n: c[1024:1280] for n, c in data.items()}, np.ones(256), 128)
    first = {name: column[:1152] for name, column in data.items()}
    assert abs(run.closed.path_log_evidence - wb.zoo.linear.log_evidence(first)) < 1e-3
    assert Status.PATH_LOST in run.flags()


def stream(online, data, start, stop, step=256):
    for first in range(start, stop, step):
        rows = slice(first, min(first + step, stop))
        update = online.update({name: column[rows] for name, column in data.items()})
    return update


def lower(run, by):
    """As if all islands had lost mass alike."""
    ledger = run.ledger
    ledger.log_evidences = ledger.log_evidences - by
    with jax.enable_x64(True):
        ledger.cloud = ledger.cloud._replace(log_weight=ledger.cloud.log_weight - by)


@pytest.mark.parametrize("seed", range(3))
def test_its_error_begins_anew(seed):
    data = wb.zoo.linear.simulate(4 * EXACT_ROWS, seed=1)
    online = wb.Online(wb.zoo.linear.model(), SMALL, seed=seed)
    stream(online, data, 0, 3 * EXACT_ROWS)
    lower(online._session.run, 30.0)
    before = stream(online, data, 3 * EXACT_ROWS, 4 * EXACT_ROWS - 256)
    truth = wb.zoo.linear.log_evidence
    seen = {name: column[: before.num_observations] for name, column in data.items()}
    assert before.log_evidence < truth(seen) - 25  # it is not yet time to look
    after = stream(online, data, 4 * EXACT_ROWS - 256, 4 * EXACT_ROWS)
    assert after.flags == (Status.PATH_LOST,)
    # Put right by a bridge that is exact here, and the spread of before is forgotten with it.
    assert abs(after.log_evidence - truth(data)) < 1e-4
    assert after.std_error < 1e-3 < before.std_error
    assert abs(online.result().diagnostics["path_repaired"] - 30) < 5 * before.std_error


def test_a_path_that_holds_is_left_alone(tmp_path):
    data = wb.zoo.linear.simulate(4 * EXACT_ROWS, seed=1)
    online = wb.Online(wb.zoo.linear.model(), SMALL, seed=0)
    total = 0.0
    for start in range(0, 4 * EXACT_ROWS, 512):
        total += stream(online, data, start, start + 512, step=512).log_predictive
    result = online.result()
    assert result.diagnostics["path_repaired"] == 0.0
    assert not result.flags
    assert total == pytest.approx(result.diagnostics["path_log_evidence"], rel=1e-12)


def test_a_run_that_was_put_right_is_resumed_bit_for_bit(tmp_path):
    data = wb.zoo.linear.simulate(5 * EXACT_ROWS, seed=1)
    model = wb.zoo.linear.model()
    online = wb.Online(model, SMALL, seed=0)
    stream(online, data, 0, 3 * EXACT_ROWS)
    lower(online._session.run, 30.0)
    online.save(tmp_path / "before.ckpt")
    resumed = wb.Online.load(tmp_path / "before.ckpt", model, SMALL)
    for run in (online, resumed):
        stream(run, data, 3 * EXACT_ROWS, 4 * EXACT_ROWS)
    online.save(tmp_path / "after.ckpt")
    again = wb.Online.load(tmp_path / "after.ckpt", model, SMALL)
    last = [stream(run, data, 4 * EXACT_ROWS, 5 * EXACT_ROWS) for run in (online, resumed, again)]
    assert len({(update.log_evidence, update.std_error) for update in last}) == 1
    assert len({update.flags for update in last}) == 1
    assert last[0].flags == (Status.PATH_LOST,)
