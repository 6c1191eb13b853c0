"""Models weighed against each other: probabilities, their errors, the words and the table."""

import json
import math

import numpy as np
import pytest

from weighbridge import Evidence, MethodError, Status, compare
from weighbridge.comparison import jeffreys
from weighbridge.result import Trace


def made(log_evidence, std_error=0.1, rows=100, flags=(), skipped=0):
    diagnostics = {"rows_skipped": skipped}
    return Evidence(
        log_evidence, std_error, rows, "sgais", Trace(), {}, np.zeros(1), diagnostics, flags
    )


def test_probabilities_are_normalised_evidences():
    values = {"a": -1000.0, "b": -1001.5, "c": -1000.5}
    table = compare({name: made(value) for name, value in values.items()})
    weights = np.exp(np.array(list(values.values())) + 1000)
    assert list(table.probabilities) == list(values)
    np.testing.assert_allclose(list(table.probabilities.values()), weights / weights.sum())
    assert table.best == "a"
    assert table.log_bayes_factors == {"a": 0.0, "b": -1.5, "c": -0.5}
    assert table.num_observations == 100


def test_evidences_far_apart_do_not_overflow():
    table = compare({"a": made(-1e6), "b": made(-2e6)})
    assert table.probabilities == {"a": 1.0, "b": 0.0}


def test_prior_odds():
    results = {"a": made(-10.0), "b": made(-10.0)}
    table = compare(results, prior_odds={"b": 6, "a": 2})
    assert table.probabilities == pytest.approx({"a": 0.25, "b": 0.75})
    assert table.log_bayes_factors == {"a": 0.0, "b": 0.0}  # these do not know the prior
    for odds in ({"a": 1}, {"a": 1, "b": 1, "c": 1}):
        with pytest.raises(MethodError, match="must name each"):
            compare(results, prior_odds=odds)
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(MethodError, match="must be positive"):
            compare(results, prior_odds={"a": 1.0, "b": bad})


def test_errors_propagate_to_factors_and_probabilities():
    table = compare({"a": made(-10.0, 0.3), "b": made(-11.0, 0.4)})
    assert table.bayes_factor_error("b") == pytest.approx(0.5)
    assert table.bayes_factor_error("a") == 0.0
    # Delta method: sd of p = logistic(x) is p (1 - p) sd(x); 4,000 draws and curvature: 10 %.
    p = table.probabilities["a"]
    for name in "ab":
        assert table.probability_errors[name] == pytest.approx(p * (1 - p) * 0.5, rel=0.1)
    exact = compare({"a": made(-10.0, 0.0), "b": made(-11.0, 0.0)})
    assert exact.probability_errors == pytest.approx({"a": 0.0, "b": 0.0}, abs=1e-12)


def test_an_unknown_error_stays_unknown():
    table = compare({"a": made(-10.0, math.nan), "b": made(-11.0, 0.1)})
    assert all(math.isnan(error) for error in table.probability_errors.values())
    assert math.isnan(table.bayes_factor_error("b"))
    assert table.probabilities["a"] == pytest.approx(1 / (1 + math.exp(-1)))
    assert table.verdict("b") == "barely worth mentioning (error unknown)"
    assert "unknown" in str(table)
    assert json.loads(table.to_json())["std_errors"] == {"a": None, "b": 0.1}


def test_what_cannot_be_compared():
    with pytest.raises(MethodError, match=r"different numbers .*'a': 100, 'b': 99"):
        compare({"a": made(-1.0), "b": made(-1.0, rows=99)})
    with pytest.raises(MethodError, match="two models or more"):
        compare({"a": made(-1.0)})
    with pytest.raises(MethodError, match="'b' must be an Evidence"):
        compare({"a": made(-1.0), "b": -1.0})


@pytest.mark.parametrize(
    ("factor", "below", "above"),
    [
        (10**0.5, "barely worth mentioning", "substantial"),
        (10.0, "substantial", "strong"),
        (10**1.5, "strong", "very strong"),
        (100.0, "very strong", "decisive"),
    ],
)
def test_jeffreys_words_at_the_boundaries(factor, below, above):
    bound = math.log(factor)
    for sign in (1, -1):
        assert jeffreys(sign * (bound - 1e-9)) == below
        assert jeffreys(sign * (bound + 1e-9)) == above
    assert jeffreys(0.0) == "barely worth mentioning"
    assert jeffreys(-1e9) == "decisive"


def test_no_word_is_stronger_than_the_error_allows():
    table = compare({"a": made(-10.0, 400.0), "b": made(-700.0, 0.1), "c": made(-900.0, 0.1)})
    assert table.verdict("b") == "undecided (error too large)"
    assert table.verdict("c") == "decisive"
    assert str(table).splitlines()[2].split()[:5] == ["b", "-700.00", "0.1", "-690.00", "400"]


def test_the_table():
    flags = (Status.HEATED, Status.LOW_ESS)
    results = {
        "worse": made(-1013.25, 0.25, rows=1200, flags=(Status.HEATED,), skipped=7),
        "better": made(-1010.5, 0.125, rows=1200, flags=flags, skipped=7),
    }
    table = compare(results)
    spread = f"{table.probability_errors['better']:.4f}"
    lines = str(table).splitlines()
    titles = "log evidence +- log Bayes factor +- probability +- against it"
    assert " ".join(lines[0].split()) == titles
    assert lines[1].split()[:7] == ["better", "-1010.50", "0.12", "0.00", "0", "0.9399", spread]
    assert lines[2].split()[:5] == ["worse", "-1013.25", "0.25", "-2.75", "0.28"]
    assert lines[2].endswith("strong")
    assert lines[3] == "1,200 observations, 7 skipped"
    assert lines[4:] == [
        f"  better, worse: {Status.HEATED}",
        f"  better: {Status.LOW_ESS}",
    ]


def test_a_tiny_probability_is_not_printed_as_zero():
    lines = str(compare({"a": made(-10.0, rows=1), "b": made(-500.0, rows=1)})).splitlines()
    assert lines[2].split()[5:7] == ["<0.0001", "<0.0001"]
    assert lines[3:] == ["1 observation"]


def test_json():
    table = compare({"a": made(-10.0), "b": made(-12.0, flags=(Status.DIVERGED,), skipped=2)})
    text = table.to_json()
    assert "\n" not in text
    content = json.loads(text)
    assert content["best"] == "a"
    assert content["probabilities"] == table.probabilities
    assert content["log_bayes_factors"]["b"] == -2.0
    assert content["status"] == {"a": ["OK"], "b": ["DIVERGED"]}
    assert content["rows_skipped"] == 2
