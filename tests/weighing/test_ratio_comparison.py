"""``wb.compare`` of ratios of evidences, and how they show."""

import json
import math

import numpy as np
import pytest

import weighbridge as wb

ERRORS = np.array([[0.0, 0.01, 0.04], [0.01, 0.0, 0.02], [0.04, 0.02, 0.0]])


def made(unvisited=(), values=(0.0, 2.0, -5.0)):
    names = ("a", "b", "c")
    known = np.array([name not in unvisited for name in names])
    errors = np.where(known[:, None] & known[None, :], ERRORS, np.nan)
    return wb.EvidenceRatio(
        names, np.array(values), errors, "product_space", 100, unvisited, remarks=("Look.",)
    )


def test_log_bayes_factors_with_their_errors():
    table = wb.compare(made())
    assert table.best == "b"
    assert table.ranking == ["b", "a", "c"]
    assert table.log_bayes_factors == {"a": -2.0, "b": 0.0, "c": -7.0}
    assert table.bayes_factor_error("a") == pytest.approx(0.1)
    assert table.bayes_factor_error("c") == pytest.approx(math.sqrt(0.02))
    assert all(math.isnan(value) for value in table.log_evidences.values())
    text = str(table)
    assert "log evidence" not in text
    assert "0.1 " in text
    assert "Look." in text
    assert json.loads(table.to_json())["log_evidences"] == {"a": None, "b": None, "c": None}


def test_probabilities_have_errors_from_the_covariance():
    table = wb.compare(made(values=(0.0, 0.2, -1.0)), prior_odds={"a": 2.0, "b": 1.0, "c": 1.0})
    weights = np.array([2.0, math.exp(0.2), math.exp(-1.0)])
    assert table.probabilities["a"] == pytest.approx(weights[0] / weights.sum())
    # To first order: dp_a = -p_a (p_b e_b + p_c e_c), with the covariance of e.
    share = weights / weights.sum()
    covariance = made().covariance
    assert covariance[1, 2] == pytest.approx((0.01 + 0.04 - 0.02) / 2)
    slope = -share[0] * np.array([0.0, share[1], share[2]])
    assert table.probability_errors["a"] == pytest.approx(
        math.sqrt(slope @ covariance @ slope), rel=0.1
    )


def test_a_model_that_was_never_visited_has_a_bound():
    ratio = made(("c",))
    assert ratio.std_errors["b"] == pytest.approx(0.1)
    assert math.isnan(ratio.std_errors["c"])
    table = wb.compare(ratio)
    assert table.bound("c") == "at most"
    assert "at most -7.00" in str(table)
    assert table.verdict("c") == "decisive or more"
    assert math.isnan(table.probability_errors["a"])
    first = made(("a",))
    assert first.bound_between("b") == "at least"
    assert first.best == "b"
    assert first.between("b") == 2.0
    assert math.isnan(made(("a", "b")).between("b"))


def test_the_reference_prints_without_an_error():
    first = next(line for line in str(made()).splitlines() if line.startswith("a "))
    assert first.split() == ["a", "0", "0.1191"]
    assert made().log_bayes_factors["a"] == 0.0


def test_ratios_and_settings_for_models_exclude_each_other():
    with pytest.raises(wb.MethodError, match="this is a ratio"):
        wb.compare(made(), np.zeros(3))
    with pytest.raises(wb.MethodError, match=r"wb.compare\(ratio\)"):
        wb.compare({"a": made(), "b": made()})
    with pytest.raises(wb.MethodError, match="does not hold the results"):
        wb.average(wb.compare(made()), lambda p: p["mu"])
    with pytest.raises(wb.MethodError, match="more than one Bayes factor"):
        made().log_bayes_factor  # noqa: B018
    with pytest.raises(wb.MethodError, match="no model 'd'"):
        made().between("d")


def test_a_comparison_of_ratios_draws_itself():
    figure = wb.compare(made(("c",))).plot()
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["b", "a", "c (at most)"]
