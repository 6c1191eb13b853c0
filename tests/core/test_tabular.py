"""Tables of results as data frames, and one interval for all of them."""

import inspect
import sys
import types

import numpy as np
import pytest

import weighbridge as wb
from tests.helpers.result_examples import EXAMPLES, comparison, evidence, posterior
from weighbridge.core.constants import PROBABILITY
from weighbridge.core.tables.frames import Tabular

TABLES = {name: thing for name, thing in EXAMPLES.items() if isinstance(thing, Tabular)}
# What the rows are called, and columns of texts: all others are numbers.
NAMED = {
    "Calibration": "entry",
    "Comparison": "model",
    "ComparisonUpdate": "model",
    "CrossCheck": "method",
    "ElpdComparison": "model",
    "EvidenceRatio": "model",
    "Information": "entry",
    "ModelReport": "check",
    "Optimum": "entry",
    "Prediction": "value",
    "PredictiveCheck": "statistic",
    "Sensitivity": "entry",
    "Summary": "name",
    "Table": "name",
}
COUNTED = {"Elpd", "Findings", "History", "NestedEvidence", "Trace"}
TEXTS = {"bound", "verdict", "trust", "status", "outcome", "found", "remedy", "finding"}


def test_every_table_is_looked_at():
    assert set(TABLES) == set(NAMED) | COUNTED


@pytest.mark.parametrize("name", TABLES)
def test_pandas_frames_have_numbers_and_names(name):
    frame = TABLES[name].to_pandas()
    assert len(frame) > 0
    for column in frame.columns:
        kind = frame[column].dtype.kind
        assert (kind in "iuf") == (column not in TEXTS), column
    assert frame.index.name == NAMED.get(name)
    if name in NAMED:
        assert all(isinstance(label, str) for label in frame.index)


def test_frames_hold_what_the_results_do():
    frame = comparison().to_pandas()
    assert list(frame.index) == ["a", "b"]
    assert frame.loc["b", "log_bayes_factor"] == -2.0
    assert frame.loc["a", "status"] == "LOW_ESS"
    assert evidence().trace.to_pandas()["power"].tolist() == [0.5, 1.0]
    table = evidence().summary()
    assert table.to_pandas().loc["mu", "sd"] == table["mu", "sd"]
    assert posterior().summary().to_pandas().loc["mu", "R-hat"] > 0.9
    wide = wb.Trace(rows=np.arange(2), means=np.arange(4.0).reshape(2, 2)).to_pandas()
    assert list(wide.columns) == ["rows", "means[0]", "means[1]"]


@pytest.mark.parametrize("name", TABLES)
def test_polars_frames_begin_with_the_names(name, monkeypatch):
    """With polars itself where it is there, or with what it would be given."""
    try:
        import polars
    except ImportError:
        polars = types.SimpleNamespace(DataFrame=dict)
        monkeypatch.setitem(sys.modules, "polars", polars)
    frame = TABLES[name].to_polars()
    columns = list(frame) if isinstance(frame, dict) else frame.columns
    expected = TABLES[name].to_pandas()
    if name in NAMED:
        assert columns[0] == NAMED[name]
        assert list(frame[NAMED[name]]) == list(expected.index)
        columns = columns[1:]
    assert columns == list(expected.columns)
    for column in columns:
        assert list(frame[column]) == pytest.approx(expected[column].tolist(), nan_ok=True)


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_package_that_is_not_there_is_named(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(wb.MissingDependencyError, match=rf"needs {package}.*pip install {package}"):
        getattr(comparison(), f"to_{package}")()


# --- sameness -------------------------------------------------------------------------------------


def test_one_interval_everywhere():
    """Every `probability` of a public name is the same by default, and of highest density."""
    assert PROBABILITY == 0.94
    found = {}
    for name in wb.__all__:
        public = getattr(wb, name)
        members = vars(public).items() if isinstance(public, type) else [("", public)]
        for member, function in members:
            if inspect.isfunction(function):
                arguments = inspect.signature(function).parameters
                if "probability" in arguments:
                    found[f"{name}.{member}"] = arguments["probability"].default
    assert {
        *("Evidence.summary", "Posterior.summary", "Prediction.summary", "Prediction.interval"),
        "PredictiveCheck.summary",
    } <= set(found)
    defaults = {n: v for n, v in found.items() if v is not inspect.Parameter.empty}
    assert set(defaults.values()) - {None} == {PROBABILITY}
    assert inspect.signature(wb.diagnostics.summarise).parameters["probability"].default == 0.94


def test_summaries_and_predictions_agree_on_the_interval():
    draws = np.random.default_rng(0).exponential(size=(4, 500))
    weighted = wb.Evidence(
        -1.0, 0.1, 9, "smc", wb.Trace(), {"a": draws.ravel()}, np.full(2000, -np.log(2000))
    )
    chains = wb.Posterior({"a": draws}, draws[..., None], {})
    prediction = wb.Prediction(draws.ravel())
    check = wb.PredictiveCheck({"a": 1.0}, {"a": draws.ravel()}, {"a": 0.5})
    for probability in (PROBABILITY, 0.5, 0.123, 0.999):
        label = f"{100 * probability:g}% HDI"
        ends = [
            [table[row, f"{label} {end}"] for end in ("low", "high")]
            for table, row in (
                (weighted.summary(probability), "a"),
                (chains.summary(probability), "a"),
                (prediction.summary(probability), "value"),
                (check.summary(probability), "a"),
            )
        ]
        ends.append([float(end) for end in prediction.interval(probability)])
        assert ends == [ends[0]] * 5
        assert ends[0][0] < 0.1  # an exponential is densest at 0


@pytest.mark.parametrize("probability", [0.0, 1.0, 94.0, float("nan")])
def test_a_probability_is_between_0_and_1(probability):
    draws = np.zeros((2, 9))
    for call in (
        wb.Prediction(draws).interval,
        wb.Prediction(draws).summary,
        wb.PredictiveCheck({"a": 1.0}, {"a": draws[0]}, {"a": 0.5}).summary,
        wb.Posterior({"a": draws}, draws[..., None], {}).summary,
        evidence().summary,
    ):
        with pytest.raises(wb.MethodError, match="between 0 and 1"):
            call(probability)
    with pytest.raises(wb.MethodError, match='"highest density" or "equal-tailed"'):
        wb.Prediction(draws).interval(0.5, "both")


def test_dir_shows_public_names_alone():
    names = dir(wb)
    assert [n for n in names if not n.startswith("__")] == sorted(wb.__all__)
    assert len(set(names)) == len(names)
    assert {"__version__", "__all__", "__doc__"} <= set(names)


def test_warnings_are_a_tuple_of_texts_and_a_table():
    found = posterior().warnings
    assert isinstance(found, tuple)
    assert found == tuple(found)
    assert found[0] == "A remark."
    assert found.to_pandas()["finding"].tolist() == list(found)
    assert (*found, "more")[-1] == "more"
