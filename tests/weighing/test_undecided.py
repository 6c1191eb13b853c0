"""Comparisons of evidences with grave flags: undecided, unless a lower bound leads."""

import datetime
import json
import math

import numpy as np
import pytest

import weighbridge as wb
from weighbridge import Status
from weighbridge.monitoring.report.chronicle import read_chronicle
from weighbridge.monitoring.report.records import Chronicle, ReportedPoint
from weighbridge.monitoring.report.writing import render
from weighbridge.monitoring.terminal import State, _table

LOST, STUCK = (Status.ISLANDS_DISAGREE,), (Status.WALKERS_STUCK,)


def made(height, flags=(), method="smc", error=0.1):
    draws = {"a": np.arange(3.0)}
    return wb.Evidence(
        height, error, 50, method, wb.Trace(), draws, np.log(np.ones(3) / 3), {}, tuple(flags)
    )


def test_a_flagged_model_behind_may_be_ahead():
    """The wrong one of three planet models stood first with 0.99."""
    table = wb.compare({"one": made(-133.0, LOST), "two": made(-127.0)})
    assert (table.best, table.leader, table.is_decided) == (None, "two", False)
    assert table.bound("one") == "at least"
    assert table.verdict("one") == "undecided (not to be trusted)"
    text = str(table)
    assert "undecided: no model is the best" in text
    assert text.count("not to be trusted") >= 4  # both verdicts, beside both probabilities
    assert "at least -133.00" in text
    assert json.loads(table.to_json())["best"] is None
    frame = table.to_pandas()
    assert frame.loc["one", "trust"] == "at least"
    assert math.isnan(frame.loc["two", "probability_error"])


def test_a_lower_bound_that_leads_is_the_best():
    table = wb.compare({"one": made(-133.0), "two": made(-127.0, LOST)})
    assert table.best == "two"
    assert table.bound("one") == "at most"
    assert table.verdict("one") == "decisive or more"
    first, second = str(table).splitlines()[1:3]
    assert "at least -127.00" in first
    assert first.count("lower bound") == 2
    assert "at most -6.00" in second
    assert "upper bound" in second
    assert table.caution.startswith("caution:")
    # Not if it leads by less than the error of the other.
    near = wb.compare({"one": made(-127.5, error=1.0), "two": made(-127.0, LOST)})
    assert near.verdict("one") == "undecided (error too large)"


@pytest.mark.parametrize("behind", [True, False])
def test_what_may_be_wrong_in_both_directions_decides_nothing(behind):
    heights = (-133.0, -127.0) if behind else (-127.0, -133.0)
    table = wb.compare({"x": made(heights[0], STUCK, "nested"), "y": made(heights[1])})
    assert table.best is None
    assert table.bound("x") == table.bound("y") == ""
    other = "x" if behind else "y"
    assert table.verdict(other) == "undecided (not to be trusted)"
    assert table.plot().axes[1].get_xlabel() != "posterior probability"


def test_two_lower_bounds_decide_nothing():
    table = wb.compare({"x": made(-133.0, LOST), "y": made(-127.0, LOST)})
    assert table.best is None
    assert table.bound("x") == ""


def test_flags_that_are_not_grave_decide():
    table = wb.compare({"x": made(-133.0, [Status.LOW_ESS]), "y": made(-127.0)})
    assert table.best == "y"
    assert "not to be trusted" not in str(table)
    assert table.probability_errors["y"] >= 0.0


def test_an_average_over_undecided_models_warns():
    with pytest.warns(wb.WeighbridgeWarning, match="undecided"):
        wb.average({"x": made(-3.0, LOST), "y": made(-1.0)}, lambda p: p["a"])
    wb.average({"x": made(-3.0), "y": made(-1.0, LOST)}, lambda p: p["a"])


def test_the_display_of_a_watch_marks_them():
    names = {"x": -133.0, "y": -127.0}
    state = State(
        50, names, {"x": math.nan, "y": 0.1}, {"x": 0.002, "y": 0.998}, trust={"x": "at least"}
    )
    assert state.evidence("x") == "at least -133.00, a lower bound"
    assert state.evidence("y") == "-127.00 +- 0.1"
    assert state.probability("y") == "0.9980, not to be trusted"
    cells = [str(cell) for column in _table(state, 1.0).columns for cell in column._cells]
    assert "at least -133.00" in cells


def test_the_report_of_a_watch_says_it():
    def page(trust):
        numbers = {"a": -9.5, "b": -12.0}, {"a": 0.1, "b": math.nan}, {"a": 0.9, "b": 0.1}
        point = ReportedPoint(10, *numbers, {"a": math.nan, "b": math.nan}, {"a": 2.0}, trust)
        found = Chronicle(points=[point], models=["a", "b"])
        return render(found, datetime.datetime.now(datetime.UTC))

    lost = page({"b": "at least"})
    assert "it is undecided which model is the best: the evidence of b is not to be trusted" in lost
    assert "the best<" not in lost
    assert "lower bound" in lost
    assert "a is the most probable model" in page({})
    assert "a is the most probable model" in page({"a": "at least"})


def test_events_of_a_watch_carry_it(tmp_path):
    line = {"event": "update", "rows": 10, "log_evidences": {"a": -9.5}, "trust": {"a": "at least"}}
    (tmp_path / "events.jsonl").write_text(json.dumps(line) + "\n")
    assert read_chronicle(tmp_path).points[-1].trust == {"a": "at least"}
    line["trust"] = {"a": "<b>", "b": 3}
    (tmp_path / "events.jsonl").write_text(json.dumps(line) + "\n")
    assert read_chronicle(tmp_path).points[-1].trust == {}
