"""Models weighed against each other: probabilities, their errors, the words and the table."""

import itertools
import json
import math

import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb
from weighbridge import Evidence, MethodError, Status, compare
from weighbridge.results.trace import Trace
from weighbridge.weighing.comparison import jeffreys


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
    table = compare({"a": made(-10.0, 8.0), "b": made(-20.0, 0.1), "c": made(-90.0, 0.1)})
    assert table.verdict("b") == "undecided (error too large)"
    assert table.verdict("c") == "decisive"
    assert str(table).splitlines()[2].split()[:5] == ["b", "-20.00", "0.1", "-10.00", "8"]


def test_the_table():
    flags = (Status.HEATED, Status.LOW_ESS)
    results = {
        "worse": made(-1013.25, 0.25, rows=1200, flags=(Status.HEATED,), skipped=7),
        "better": made(-1010.5, 0.125, rows=1200, flags=flags, skipped=7),
    }
    table = compare(results)
    spread = f"{table.probability_errors['better']:.4f}"
    lines = str(table).splitlines()
    titles = "log evidence +- log Bayes factor +- probability +- against it caution"
    assert " ".join(lines[0].split()) == titles
    assert lines[1].split()[:7] == ["better", "-1010.50", "0.12", "0.00", "0", "0.9399", spread]
    assert lines[2].split()[:5] == ["worse", "-1013.25", "0.25", "-2.75", "0.28"]
    assert lines[1].endswith("heated, and 1 more")
    assert lines[2].split()[-2:] == ["strong", "heated"]
    assert lines[3] == "1,200 observations, 7 skipped"
    assert lines[4:] == [
        f"  {table.caution}",
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


# --- from models and data --------------------------------------------------------------------

# The numbers of a prior are leaves: one compilation serves both.
GAUSSIANS = {"near": wb.zoo.gaussian.model(2.0), "far": wb.zoo.gaussian.model(-2.0)}
DATA = wb.zoo.gaussian.simulate(120, seed=1)
SGAIS = wb.SGAIS(num_islands=4, num_particles=16, chunk_size=50)
SMC = wb.SMC(num_islands=4, num_particles=16)


@pytest.mark.long
@pytest.mark.parametrize("method", [SGAIS, SMC])
def test_models_are_weighed_as_each_would_be_alone(method):
    table = compare(GAUSSIANS, DATA, method, seed=3, prior_odds={"near": 1, "far": 2})
    for name, model in GAUSSIANS.items():
        alone = wb.evidence(model, DATA, method, seed=3)
        assert table.log_evidences[name] == alone.log_evidence
        assert table.results[name].samples["mu"].tolist() == alone.samples["mu"].tolist()
    again = compare(table.results, prior_odds={"near": 1, "far": 2}, seed=3)
    assert again.probabilities == table.probabilities
    assert again.probability_errors == table.probability_errors
    assert again.results == table.results


@pytest.mark.parametrize("method", [SGAIS, SMC])
def test_an_iterator_is_read_once_for_all_models(method):
    read = []

    def chunks():
        for start in range(0, 120, 30):
            read.append(start)
            yield DATA[start : start + 30]

    table = compare(GAUSSIANS, chunks(), method)
    assert read == [0, 30, 60, 90]
    assert table.num_observations == 120
    assert table.log_evidences == compare(GAUSSIANS, DATA, method).log_evidences
    flagged = compare(GAUSSIANS, chunks(), method, tolerance=1e-12, time_limit=1e-6)
    assert all(Status.TOLERANCE_NOT_REACHED in flags for flags in flagged.flags.values())


@pytest.mark.parametrize("method", [SGAIS, SMC])
def test_a_tolerance_is_met_by_every_model(method):
    once = compare(GAUSSIANS, DATA, method)
    tolerance = 0.8 * max(once.std_errors.values())
    table = compare(GAUSSIANS, DATA, method, tolerance=tolerance, time_limit=60.0)
    assert all(error <= tolerance for error in table.std_errors.values())
    islands = {n: len(r.diagnostics["island_log_evidence"]) for n, r in table.results.items()}
    assert max(islands.values()) > 4


def test_models_without_rows():
    def total(p):
        return -(p["mu"] ** 2)

    models = {
        name: wb.Model({"mu": dist.Normal(0.0, scale)}, total_log_likelihood=total)
        for name, scale in (("a", 1.0), ("b", 0.5))
    }
    table = compare(models, method=SMC)
    exact = {"a": -0.5 * math.log(1 + 2), "b": -0.5 * math.log(1 + 2 * 0.25)}
    for name, value in exact.items():
        assert abs(table.log_evidences[name] - value) < 6 * table.std_errors[name]
    assert table.best == "b"
    with pytest.raises(wb.ModelError, match="row by row"):
        compare(models, method=SGAIS)


def test_progress_names_the_models():
    class Recorder:
        def __init__(self):
            self.labels = []

        def start(self, total):
            self.labels.append(total)

        def update(self, rows, log_evidence, annealing_steps, label=""):
            self.labels.append(label)

        def temper(self, power, log_evidence, steps, label="", island_round=0):
            self.labels.append((label, island_round))

        def close(self):
            self.labels.append("close")

    recorder = Recorder()
    compare(GAUSSIANS, DATA, SGAIS, progress=recorder)
    assert recorder.labels == [120, *["near", "far"] * 3, "close"]
    recorder = Recorder()
    compare(GAUSSIANS, DATA, SMC, progress=recorder)
    assert set(recorder.labels) == {("near", 0), ("far", 0), "close"}


@pytest.mark.parametrize(
    ("models", "data", "options", "error", "says"),
    [
        ({"a": made(-1.0), "b": made(-2.0)}, DATA, {}, MethodError, "these are results"),
        ({"a": made(-1.0), "b": made(-2.0)}, None, {"tolerance": 1.0}, MethodError, "results"),
        ({"a": made(-1.0), "b": made(-2.0)}, None, {"method": "smc"}, MethodError, "results"),
        ({**GAUSSIANS, "c": made(-1.0)}, DATA, {}, MethodError, "'c' must be a wb.Model"),
        ({"a": GAUSSIANS["far"]}, DATA, {}, MethodError, "two models or more"),
        (list(GAUSSIANS.values()), DATA, {}, MethodError, "a mapping from names"),
        (GAUSSIANS, None, {"method": SMC}, wb.DataError, "give it data"),
        (GAUSSIANS, np.zeros(0), {"method": SMC}, wb.DataError, "no row to weigh"),
        (GAUSSIANS, np.array([np.nan]), {"method": SMC}, wb.DataError, "row 0"),
        (GAUSSIANS, DATA, {"method": "smcc"}, MethodError, "Did you mean 'smc'"),
        (GAUSSIANS, DATA, {"tolerance": -1.0}, MethodError, "tolerance must be positive"),
        (GAUSSIANS, DATA, {"method": SMC, "prior_odds": {"a": 1}}, MethodError, "prior_odds"),
    ],
)
def test_mistakes_with_models_are_named(models, data, options, error, says):
    with pytest.raises(error, match=says):
        compare(models, data, **options)


# --- the figure ------------------------------------------------------------------------------


def test_the_figure_of_a_comparison():
    table = compare({"b": made(-13.0, 0.2), "a": made(-10.0, 0.1), "c": made(-12.0, math.nan)})
    left, right = table.plot().axes
    assert [label.get_text() for label in left.get_yticklabels()] == [
        "a",
        "c (error unknown)",
        "b",
    ]
    marks = [container.lines[0].get_xdata()[0] for container in left.containers]
    np.testing.assert_allclose(marks, [0.0, -2.0, -3.0])
    left_end, right_end = (cap.get_xdata()[0] for cap in left.containers[2].lines[1])
    error = math.hypot(0.1, 0.2)
    assert (left_end, right_end) == pytest.approx((-3 - 2 * error, -3 + 2 * error))
    widths = [bar.get_width() for bar in right.patches]
    np.testing.assert_allclose(widths, [table.probabilities[name] for name in "acb"])
    assert right.texts[0].get_text() == f"{table.probabilities['a']:.3f}"
    assert left.get_ylim()[0] > left.get_ylim()[1]  # the best on top


@pytest.mark.parametrize("count", [2, 10])
def test_the_figure_is_readable_with_many_models_and_long_names(count):
    results = {
        f"a model with a long name that differs in its middle {k} and then goes on and on": made(
            -10.0 - 7.0**k
        )
        for k in range(count)
    }
    figure = compare(results).plot()
    figure.draw_without_rendering()
    left = figure.axes[0]
    labels = left.get_yticklabels()
    assert len({label.get_text() for label in labels}) == count
    boxes = [label.get_window_extent() for label in labels]
    assert all(not a.overlaps(b) for a, b in itertools.pairwise(boxes))
    across = [label.get_window_extent() for label in left.get_xticklabels() if label.get_text()]
    across = sorted(across, key=lambda box: box.x0)
    assert all(a.x1 <= b.x0 for a, b in itertools.pairwise(across))
    assert left.get_xscale() == ("symlog" if count == 10 else "linear")


def test_the_figure_shows_how_the_factors_came_about():
    table = compare(GAUSSIANS, DATA, SGAIS)
    _, _, below = table.plot().axes
    rows, heights = below.get_lines()[1].get_data()
    traces = {name: result.trace for name, result in table.results.items()}
    np.testing.assert_array_equal(rows, traces["far"].rows)
    difference = traces["far"].log_evidence - traces["near"].log_evidence
    np.testing.assert_allclose(heights, difference)
    path = {n: r.diagnostics["path_log_evidence"] for n, r in table.results.items()}
    assert heights[-1] == pytest.approx(path["far"] - path["near"])
    # Powers of different likelihoods are no common path; other chunks may share no rows.
    assert len(compare(GAUSSIANS, DATA, SMC).plot().axes) == 2
    other = wb.evidence(GAUSSIANS["far"], DATA, wb.SGAIS(4, 16, chunk_size=33))
    mixed = compare({"near": table.results["near"], "far": other})
    assert len(mixed.plot().axes) == 2


FLAGS = (Status.ISLANDS_DISAGREE, Status.LOW_ESS)


def test_flagged_models_are_marked_in_the_table():
    """The wrong one of three planet models stood first with 0.99, and its flag only below."""
    table = compare({"one": made(-133.0), "two": made(-127.0, flags=FLAGS)})
    head, first, second, *below = str(table).splitlines()
    assert head.endswith("caution")
    assert first.startswith("two")
    assert first.endswith("islands disagree, and 1 more")
    assert "islands" not in second
    assert below[1].strip() == table.caution
    assert table.caution.endswith("depend on flagged evidences: two")
    sound = compare({"one": made(-133.0), "two": made(-127.0)})
    assert "caution" not in str(sound)
    assert sound.caution == ""


def test_flagged_models_are_marked_in_the_figure_and_on_the_page():
    table = compare({"one": made(-133.0), "two": made(-127.0, flags=FLAGS)})
    for flagged, plain in (table.plot().axes[0].get_yticklabels(),):
        assert flagged.get_text().replace("\n", " ") == (
            "two caution: islands disagree, few effective particles"
        )
        assert plain.get_text() == "one (at most)"
        assert flagged.get_color() != plain.get_color()
    page = table._repr_html_()
    assert page.index(table.caution) < page.index("<table")
    assert page.count(table.caution) == 1
