"""The result: how it prints, its posterior, and its way to files and to other libraries."""

import json
import math
import sys
from dataclasses import replace

import numpy as np
import pytest

from weighbridge import (
    SGAIS,
    CheckpointError,
    Evidence,
    MethodError,
    MissingDependencyError,
    Online,
    Status,
    evidence,
    zoo,
)
from weighbridge.core.tables.summaries import highest_density_interval
from weighbridge.results.trace import Trace

SMALL = SGAIS(num_islands=4, num_particles=8, chunk_size=50)


@pytest.fixture(scope="module")
def result():
    data = np.append(zoo.gaussian.simulate(119, seed=1), np.nan)
    return evidence(zoo.gaussian.model(), data, SMALL, on_bad_row="skip")


def made(log_evidence=-10.0, std_error=0.1, rows=100, **fields):
    given = {"samples": {}, "log_weights": np.zeros(1), "elapsed": 1.25, **fields}
    return Evidence(log_evidence, std_error, rows, "sgais", Trace(), **given)


@pytest.mark.parametrize(
    ("value", "error", "rows", "expected"),
    [
        (-1418494.61, 0.2, 10**6, "log evidence -1418494.61 +- 0.20 (sgais, 1,000,000 obs"),
        (-1418494.61, 9.87, 10**6, "log evidence -1418494.6 +- 9.9 (sgais"),
        (-1418494.61, 1234.5, 10**6, "log evidence -1418495, not to be trusted (sgais"),
        (-1.8051, 0.0449, 1, "log evidence -1.805 +- 0.045 (sgais, 1 observation, 1.2 s)"),
        (-10.0, math.nan, 2, "log evidence -10.00 +- unknown (sgais, 2 observations, 1.2 s)"),
        (-10.0, 0.0, 2, "log evidence -10.000000000 +- < 1e-9 (sgais"),
        (-10.0, 1e-12, 2, "log evidence -10.000000000 +- < 1e-9 (sgais"),
        (-10.0, math.inf, 2, "log evidence -10.00, not to be trusted (sgais"),
    ],
)
def test_text(value, error, rows, expected):
    assert str(made(value, error, rows)).startswith(expected)


def test_text_names_flags_and_skipped_rows():
    text = str(made(flags=(Status.DIVERGED, Status.LOW_ESS), diagnostics={"rows_skipped": 1234}))
    first, second, third = text.splitlines()
    assert "100 observations, 1,234 skipped, " in first
    assert (second, third) == (f"  {Status.DIVERGED}", f"  {Status.LOW_ESS}")
    assert "\n" not in repr(made(flags=(Status.DIVERGED,)))
    assert repr(made()).endswith("; ok>")


def test_one_island_says_that_its_error_is_unknown():
    data = zoo.gaussian.simulate(40, seed=1)
    one = evidence(zoo.gaussian.model(), data, replace(SMALL, num_islands=1))
    assert math.isnan(one.std_error)
    assert one.status is Status.ERROR_UNKNOWN
    assert "+- unknown" in str(one)
    assert "error unknown: " in str(one)
    assert json.loads(one.to_json())["std_error"] is None


def test_results_are_plain_numbers(result):
    for value in (result.log_evidence, result.std_error, result.elapsed):
        assert type(value) is float
    assert type(result.num_observations) is int
    arrays = [*result.samples.values(), *result.trace.values(), result.log_weights]
    assert all(type(array) is np.ndarray and array.dtype == np.float64 for array in arrays)
    assert np.exp(result.log_weights).sum() == pytest.approx(1)
    assert result.rows_skipped == 1
    assert result.num_observations == 119
    assert result != replace(result)  # identity: comparing arrays has no one answer


def test_trace():
    trace = Trace(rows=np.array([1, 2]), ess=np.array([3.0, 4.0]))
    assert (len(trace), dict(trace)["rows"] is trace.rows) == (2, True)
    assert repr(trace) == "Trace(rows, ess; 2 points)"
    with pytest.raises(AttributeError, match=r"rows.*ess.*'nope'"):
        _ = trace.nope


def test_resampling_is_unbiased():
    """Each draw appears num_samples times its weight: exactly so, up to one, for every seed."""
    weights = np.array([0.5, 0.0, 0.25, 0.2, 0.05])
    with np.errstate(divide="ignore"):
        weighted = made(samples={"k": np.arange(5.0)}, log_weights=np.log(weights) + 3.0)
    num_samples, seeds = 7, 400
    counts = np.array(
        [
            np.bincount(weighted.resample(num_samples, seed=seed)["k"].astype(int), minlength=5)
            for seed in range(seeds)
        ]
    )
    assert counts.sum(axis=1).tolist() == [num_samples] * seeds
    assert np.all(np.abs(counts - num_samples * weights) < 1)
    # A count is within one of its mean, so the mean of 400 has a deviation under 0.5 / 20: the
    # five comparisons at 5 deviations fail by chance less than once in 10^5.
    assert np.all(np.abs(counts.mean(axis=0) - num_samples * weights) < 5 * 0.5 / 20)


def test_resampling_keeps_parameters_together_and_shuffles():
    draws = np.arange(50.0)
    weighted = made(samples={"a": draws, "b": 2 * draws}, log_weights=np.full(50, -1.0))
    chosen = weighted.resample(50, seed=1)
    np.testing.assert_array_equal(chosen["b"], 2 * chosen["a"])
    assert sorted(chosen["a"]) == draws.tolist()
    assert list(chosen["a"]) != draws.tolist()
    for size in (0, -3):
        with pytest.raises(MethodError, match=f"at least 1, not {size}"):
            weighted.resample(size)


def test_summary_is_that_of_the_weighted_draws():
    generator = np.random.default_rng(0)
    draws = generator.normal(size=(400, 2))
    repeats = generator.integers(0, 4, size=400)
    with np.errstate(divide="ignore"):
        weighted = made(samples={"w": draws, "b": draws[:, 0]}, log_weights=np.log(repeats) - 700.0)
    table = weighted.summary(0.8)
    assert list(table.rows) == ["w[0]", "w[1]", "b"]
    names = ("mean", "sd", "10%", "50%", "90%", "80% HDI low", "80% HDI high")
    assert table.columns == names
    for k in (0, 1):
        plain = np.repeat(draws[:, k], repeats)
        expected = [
            plain.mean(),
            plain.std(),
            *np.quantile(plain, [0.1, 0.5, 0.9], method="inverted_cdf"),
            *shortest(plain, 0.8),
        ]
        np.testing.assert_allclose(table.rows[f"w[{k}]"], expected)
    assert table["b", "50%"] == table["w[0]", "50%"]
    assert " ".join(str(table).splitlines()[0].split()) == " ".join(names)
    for bad in (0.0, 1.0, -1.0, 90):
        with pytest.raises(MethodError, match="between 0 and 1"):
            weighted.summary(bad)


def shortest(plain, probability):
    """The shortest interval of equally weighted draws, by trying all of one size."""
    ordered = np.sort(plain)
    size = int(np.ceil(probability * len(ordered) - 1e-9))
    widths = ordered[size - 1 :] - ordered[: len(ordered) - size + 1]
    first = int(np.argmin(widths))
    return ordered[first], ordered[first + size - 1]


def test_a_far_draw_of_no_weight_does_not_move_the_summary():
    samples = {"a": np.array([-1e6, 1.0, 2.0, 3.0, 4.0])}
    weighted = made(samples=samples, log_weights=np.log([1e-300, 0.25, 0.25, 0.25, 0.25]))
    table = weighted.summary(0.9)
    assert table["a", "5%"] == 1.0
    assert (table["a", "90% HDI low"], table["a", "90% HDI high"]) == (1.0, 4.0)


@pytest.mark.parametrize("probability", [0.02, 0.5, 0.9, 0.999])
def test_highest_density_intervals(probability):
    """They hold the probability, and no shorter interval between two draws does."""
    generator = np.random.default_rng(3)
    values = generator.exponential(size=60).round(2)  # with ties
    weights = generator.dirichlet(np.full(60, 0.5))
    low, high = highest_density_interval(values, weights, probability)
    held = weights[(values >= low) & (values <= high)].sum()
    assert held >= probability * (1 - 1e-8)
    for a in values:
        for b in values[(values >= a) & (values - a < high - low - 1e-12)]:
            assert weights[(values >= a) & (values <= b)].sum() < probability
    with_nothing = np.append(values, 1e9), np.append(weights, 0.0)
    assert highest_density_interval(*with_nothing, probability) == (low, high)


def test_the_highest_density_interval_of_an_exponential():
    """It begins at 0, where the density is highest, and ends at the quantile."""
    points = (np.arange(4000) + 0.5) / 4000
    values = -np.log1p(-points)
    low, high = highest_density_interval(values, np.full(4000, 1 / 4000), 0.9)
    assert (low, high) == pytest.approx((0.0, np.log(10)), abs=2e-3)


def test_a_summary_is_narrow_enough_to_read(result):
    assert max(map(len, str(result.summary()).splitlines())) <= 80


def test_save_and_load_exactly(result, tmp_path):
    result.save(tmp_path / "result")
    again = Evidence.load(tmp_path / "result")
    for name in ("log_evidence", "std_error", "num_observations", "method", "flags", "elapsed"):
        assert getattr(again, name) == getattr(result, name)
    assert str(again) == str(result)
    assert again.to_json() == result.to_json()
    for old, new in ((result.trace, again.trace), (result.samples, again.samples)):
        assert list(old) == list(new)
        assert all(old[name].tobytes() == new[name].tobytes() for name in old)
    assert again.log_weights.tobytes() == result.log_weights.tobytes()
    assert set(again.diagnostics) == set(result.diagnostics)
    for name, value in result.diagnostics.items():
        np.testing.assert_array_equal(again.diagnostics[name], value)


def test_save_and_load_what_is_unknown_or_odd(tmp_path):
    odd = made(
        std_error=math.nan,
        samples={"a/b": np.ones((3, 2, 2)), "ü": np.arange(3)},
        log_weights=np.zeros(3),
        flags=(Status.ERROR_UNKNOWN,),
        diagnostics={"scalar": np.array(2.0), "count": np.int64(3), "text": "x", "none": None},
    )
    odd.save(tmp_path / "odd")
    again = Evidence.load(tmp_path / "odd")
    assert math.isnan(again.std_error)
    assert list(again.samples) == ["a/b", "ü"]
    assert again.flags == odd.flags
    assert again.diagnostics["scalar"].shape == ()
    assert again.diagnostics["count"] == 3
    assert again.diagnostics["none"] is None


def test_files_that_are_no_result(result, tmp_path):
    path = tmp_path / "file"
    online = Online(zoo.gaussian.model(), SMALL)
    online.update(zoo.gaussian.simulate(20))
    online.save(path)
    with pytest.raises(CheckpointError, match=r"online\.\d+, but weighbridge\.evidence"):
        Evidence.load(path)
    result.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-8])
    with pytest.raises(CheckpointError, match="damaged"):
        Evidence.load(path)
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CheckpointError, match="damaged"):
        Evidence.load(path)
    path.write_bytes(b"log evidence: -3")
    with pytest.raises(CheckpointError, match="damaged or not a weighbridge file"):
        Evidence.load(path)
    with pytest.raises(CheckpointError, match="no file"):
        Evidence.load(tmp_path / "nothing")


@pytest.mark.parametrize(
    "change",
    [{"flags": ["NO_SUCH"]}, {"order": [3]}, {"diagnostics": []}, {"elapsed": None}, {"order": 1}],
)
def test_a_result_with_a_strange_field_is_refused(result, tmp_path, monkeypatch, change):
    from weighbridge.core import checkpoint_file

    write = checkpoint_file.write
    monkeypatch.setattr(
        checkpoint_file,
        "write",
        lambda path, schema, a, metadata: write(path, schema, a, {**metadata, **change}),
    )
    result.save(tmp_path / "strange")
    with pytest.raises(CheckpointError, match="not a complete result"):
        Evidence.load(tmp_path / "strange")


def test_json(result):
    text = result.to_json()
    assert "\n" not in text
    content = json.loads(text)
    assert content["log_evidence"] == result.log_evidence
    assert content["num_observations"] == 119
    assert content["rows_skipped"] == 1
    assert content["status"] == [flag.name for flag in result.flags] or ["OK"]
    odd = json.loads(made(-math.inf, math.inf).to_json(), parse_constant=pytest.fail)
    assert (odd["log_evidence"], odd["std_error"]) == (None, None)


def test_to_arviz(result):
    pytest.importorskip("arviz_base")
    tree = result.to_arviz(num_samples=200, seed=3)
    mu = tree["posterior"]["mu"]
    assert mu.dims == ("chain", "draw")
    assert mu.shape == (1, 200)
    np.testing.assert_array_equal(mu.values[0], result.resample(200, seed=3)["mu"])


def test_to_arviz_without_it(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz_base", None)
    with pytest.raises(MissingDependencyError, match=r"weighbridge\[arviz\]"):
        result.to_arviz()


def test_plot(result):
    figure = result.plot()
    assert figure.axes[0].get_lines()[0].get_xdata().tolist() == [49.0 + 1, 100.0, 119.0]
    title = figure.axes[0].get_title(loc="left").splitlines()
    assert title[0] == str(result).splitlines()[0]
    assert len(result.plot_posterior().axes) == 1
    assert len(result.plot_posterior(["mu"]).axes) == 1


def test_a_flagged_result_says_so_wherever_it_is_shown():
    power = np.array([0.1, 1.0])
    trace = Trace(power=power, log_evidence=-9 * power, ess=np.array([32.0, 40.0]))
    draws = {"mu": np.arange(30.0)}
    sound = Evidence(-9.0, 0.1, 9, "smc", trace, draws, np.zeros(30))
    flagged = replace(sound, flags=(Status.ISLANDS_DISAGREE,))
    caution = "caution: islands disagree"
    assert flagged.caution == caution
    assert str(flagged.summary()).splitlines()[-1] == caution
    assert caution in flagged.summary()._repr_html_()
    assert caution in flagged.plot().axes[0].get_title(loc="left").splitlines()
    assert caution in flagged.plot_posterior().get_suptitle().splitlines()
    page = flagged._repr_html_()
    assert page.index(caution) < page.index("<table")
    assert sound.summary().notes == ()
    for shown in (sound.plot().axes[0].get_title(loc="left"), sound._repr_html_()):
        assert "caution" not in shown
