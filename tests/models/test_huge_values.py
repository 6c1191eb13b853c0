"""Values so large that double precision loses what they tell: refused, or in the error."""

from __future__ import annotations

import json

import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge.core.islands import combine_islands, combine_logs, rounding_error
from weighbridge.core.status import Status
from weighbridge.models.resolution import largest_value, unresolved
from weighbridge.models.row_gate import Admission

GAUSSIAN = wb.zoo.gaussian.model()
LINEAR = wb.zoo.linear.model(2)


def _rows(size: int = 20) -> np.ndarray:
    return wb.zoo.gaussian.simulate(size, seed=1)


def _with(value: float, row: int = 17) -> np.ndarray:
    rows = np.array(_rows())
    rows[row] = value
    return rows


# --- the row policy ------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1e18, -1e12, 1e9])
def test_a_row_far_out_is_a_bad_row_with_its_place(value):
    rows = _with(value)
    with pytest.raises(wb.DataError, match=r"Bad row 17 .*column 'data' is about 1e"):
        Admission(GAUSSIAN, "raise").admit(rows)
    gate = Admission(GAUSSIAN, "skip")
    assert len(gate.admit(rows)) == 19
    assert gate.noticed()["rows_skipped"] == 1
    assert "largest_value" not in gate.noticed()


def test_a_quarantine_file_has_the_reason(tmp_path):
    path = tmp_path / "bad.jsonl"
    gate = Admission(GAUSSIAN, "quarantine", path)
    assert len(gate.admit(_with(1e18))) == 19
    (kept,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert "double precision" in json.dumps(kept)


def test_timestamps_in_nanoseconds_are_refused_by_the_name_of_their_column():
    data = wb.zoo.linear.simulate(10, num_features=2, seed=1)
    data["x"] = data["x"].copy()
    data["x"][:, 1] = 1.7e18 + 1e9 * np.arange(10)
    (reason,) = unresolved(LINEAR, data, False)
    assert reason.startswith("column 'x[1]' is about 2e+18")
    assert "rescale the column" in reason


def test_ordinary_and_large_columns_are_left_alone():
    data = wb.zoo.linear.simulate(10, num_features=2, seed=1)
    for scale in (1.0, 1e6, 1e10, 1e13):  # incomes, populations: the coefficient is small
        scaled = {"x": data["x"] * np.array([1.0, scale]), "y": data["y"]}
        assert unresolved(LINEAR, scaled, False) == {}
    # Masses in kilograms, with a prior that knows it.
    masses = wb.Model(
        {"m": dist.LogNormal(np.log(2e30), 1.0)},
        lambda p, y: dist.Normal(p["m"], 1e29).log_prob(y),
    )
    assert unresolved(masses, np.array([2e30, 2.2e30]), False) == {}


def test_numbers_that_nearly_cancel_are_found():
    # The log-likelihood is small at the right place, and yet of no use: 1e18 is known to 128.
    near = wb.Model(
        {"d": dist.Normal(0.0, 1.0)}, lambda p, r: -0.5 * (r["y"] - r["x"] - p["d"]) ** 2
    )
    rows = {"x": np.full(3, 1e18), "y": np.full(3, 1e18)}
    assert any(mask.all() for mask in unresolved(near, rows, False).values())


def test_values_that_are_not_large_cost_nothing():
    def never(parameters, row):
        raise AssertionError("evaluated")

    assert unresolved(wb.Model({"a": dist.Normal(0, 1)}, never), np.full(5, 1e6), False) == {}


def test_a_weight_column_is_no_value():
    rows = {"y": np.zeros(2), "weight": np.array([1e18, -1.0])}
    assert unresolved(GAUSSIAN, rows, True) == {}


def test_the_largest_value_has_a_name():
    rows = {"x": np.array([[1.0, 2.0], [3.0, -4e9]])}
    assert largest_value(rows, rows) == (1, "x[1]", 4e9)
    assert largest_value({"x": np.ones(3)}, {"x": np.ones(3)}) is None


# --- what is left in the error ------------------------------------------------------------------


def test_rounding_is_in_the_error_of_islands_that_agree():
    alike = np.full(8, -5e35)
    for combine in (combine_islands, combine_logs):
        found = combine(alike)
        assert found.std_error > np.spacing(5e35)
        assert found.is_rounded
    plain = np.array([-1e6, -1e6 + 0.1, -1e6 - 0.1, -1e6 + 0.05])
    chance = combine_logs(plain - plain.mean()).std_error
    assert combine_logs(plain).std_error == pytest.approx(chance, rel=1e-6)
    assert not combine_logs(plain).is_rounded


@pytest.mark.parametrize("num_rows", [10_000, 1_000_000])
def test_it_is_no_less_than_what_sums_lose_and_nothing_on_ordinary_data(num_rows):
    terms = np.random.default_rng(0).normal(-1.4, 1.0, num_rows)
    exact = float(np.sum(terms.astype(np.longdouble)))
    total = 0.0
    for block in np.split(terms, num_rows // 100):
        total += float(np.sum(block))
    assert abs(total - exact) < rounding_error(exact) < 1e-6


def test_chunks_that_a_sum_does_not_notice_add_up():
    total, lost = -1e18, 0.0
    for _ in range(1000):  # each is less than half of the last digit
        before, total = total, total - 60.0
        lost += 60.0 - (before - total)
    assert lost == 60_000.0
    assert rounding_error(total, 1000) > lost > rounding_error(total)


@pytest.mark.parametrize(
    "method",
    [
        wb.PriorSampling(num_islands=4, num_particles=8),
        pytest.param(wb.SMC(num_islands=4, num_particles=8), marks=pytest.mark.long),
        pytest.param(wb.Thermodynamic(num_islands=4, num_particles=8), marks=pytest.mark.long),
        pytest.param(wb.AIS(num_islands=4, num_particles=8), marks=pytest.mark.long),
    ],
)
def test_a_total_likelihood_of_huge_size_is_flagged(method):
    model = wb.Model(
        {"mu": dist.Normal(0.0, 1.0)}, total_log_likelihood=lambda p: -1e30 - p["mu"] ** 2
    )
    found = wb.evidence(model, None, method, seed=0)
    assert Status.ROUNDED in found.flags
    assert found.claimed_error > np.spacing(1e30)


@pytest.mark.long
@pytest.mark.parametrize(
    "method",
    [
        wb.SGAIS(num_islands=4, num_particles=8),
        wb.IBIS(num_islands=4, num_particles=8),
        wb.SequentialSGMCMC(num_islands=4, num_particles=8, start_with=None),
    ],
)
def test_streams_are_flagged_and_name_the_largest_value_for_ever_after(method, tmp_path):
    # A density that passes the gate at some draws, and adds up to more than can be told.
    model = wb.Model(
        {"mu": dist.Normal(0.0, 1.0)}, lambda p, y: -1e-3 * y * (1 + p["mu"] ** 2 * 1e-14)
    )
    online = wb.Online(model, method, seed=0)
    online.update(np.array([1.0, 1e18, 2.0]))
    assert Status.ROUNDED in online.update(np.ones(3)).flags
    online.save(tmp_path / "run")
    loaded = wb.Online.load(tmp_path / "run", model, method)
    for found in (online.result(), loaded.result()):
        assert Status.ROUNDED in found.flags
        assert not found.std_error < np.spacing(1e15)
        assert "row 1 of 'data' is 1e+18" in str(found)
