"""What every figure must have: ticks that tell the truth, labels, and the user's wishes."""

import itertools
import sys

import matplotlib as mpl
import numpy as np
import pytest

import weighbridge as wb
from tests.helpers import result_examples
from weighbridge import MethodError
from weighbridge.checking.calibration import Calibration
from weighbridge.checking.cross_validation import Elpd
from weighbridge.checking.predictive import PredictiveCheck
from weighbridge.checking.sensitivity import Sensitivity
from weighbridge.plots.bounds import plot_bounds
from weighbridge.plots.curves import compact_numbers, nice_ticks
from weighbridge.plots.energy import plot_energy
from weighbridge.plots.labelling import Labelling
from weighbridge.plots.numbers import write_numbers
from weighbridge.results.evidence_result import Evidence
from weighbridge.results.posterior import Posterior
from weighbridge.results.trace import Trace
from weighbridge.weighing.online_comparison.history import History


def generator(seed=0):
    return np.random.default_rng(seed)


def number(label):
    return float(label.replace("\N{MINUS SIGN}", "-").replace(",", ""))


def evidence(samples=None, trace=None, log_evidence=-104.72, std_error=0.012, **diagnostics):
    samples = samples or {}
    count = len(next(iter(samples.values()), [0]))
    return Evidence(log_evidence, std_error, 100, "smc", trace or Trace(), samples,
                    np.zeros(count), diagnostics=diagnostics)  # fmt: skip


def tempered(end=-105.3, count=9):
    power = np.geomspace(1e-4, 1, count)
    return Trace(power=power, log_evidence=end * power, ess=np.full(count, 30.0),
                 rows=np.full(count, 100.0), annealing_steps=np.arange(1.0, count + 1))  # fmt: skip


def over_rows(scale=1.4, count=6):
    rows = np.geomspace(500, 1e6, count)
    return Trace(rows=rows, log_evidence=-scale * rows, annealing_steps=np.full(count, 3.0))


def chains(num_chains=4, num_draws=60):
    draws = generator().normal(size=(num_chains, num_draws, 2))
    divergent = np.zeros((num_chains, num_draws), bool)
    divergent[0, 5] = True
    stats = {"divergent": divergent, "energy": draws[..., 0] ** 2}
    return Posterior({"w": 10.5 + draws, "b": 1e-7 * draws[..., 0]}, draws, stats)


def elpd(num_rows=30, method="loo", shift=0.0):
    pointwise = -1.0 - shift - generator().exponential(size=num_rows)
    shape = np.linspace(-0.1, 0.9, num_rows)
    shape[0] = -np.inf
    return Elpd(float(pointwise.sum()), 2.0, 1.1, method, pointwise, np.ones(num_rows),
                shape if method == "loo" else np.empty(0))  # fmt: skip


def compared():
    runs = {name: evidence(trace=over_rows(scale), log_evidence=-scale * 1e6)
            for name, scale in (("a", 1.4), ("b", 1.41), ("c", 1.4000005))}  # fmt: skip
    return wb.compare(runs)


def history():
    table = History()
    for rows in (10, 20, 1000):
        common = {"std_error": 0.1, "probability_error": 0.1, "annealing_steps": 2.0}
        table.add({"rows": rows}, {
            "a": {"log_evidence": -rows, "probability": 1.0, **common},
            "b": {"log_evidence": -2.0 * rows, "probability": 0.0, **common},
        })  # fmt: skip
    return table


def optimum(optima=(-9.0, -9.0, -10.5, -np.inf), notes=("3 of 4 starts ended here",), entries=2):
    values, errors = 10.5 + np.arange(entries), np.full(entries, 0.1)
    return wb.Optimum({"w": values, "s": np.array(1e6 + 0.1)}, -9.0,
                      {"w": errors, "s": np.array(0.5)}, "posterior", "constrained",
                      np.array(optima), np.zeros((len(optima), entries + 1)), notes)  # fmt: skip


def integral():
    path = tuple((2**k, 10.5 + 2.0**-k, 2.0 ** -(k / 2)) for k in range(3, 12))
    return wb.Integral(path[-1][1], path[-1][2], path[-1][0], path[-1][0], 0.2, path)


def two_modes(count=2000):
    draws = generator().normal(size=count)
    return draws + 5 * np.sign(draws)


FIGURES = {
    "path": lambda **k: evidence(trace=tempered(), answer="bridge").plot(**k),
    "rows": lambda **k: evidence(trace=over_rows(), log_evidence=-1.4e6, std_error=0.1).plot(**k),
    "nested run": lambda **k: result_examples.nested().plot_run(**k),
    "corner": lambda **k: evidence({"w": 10.5 + generator().normal(size=(99, 2))}).plot_posterior(
        **k
    ),
    "one": lambda **k: evidence({"m": 1e6 + 0.1 * generator().normal(size=99)}).plot_posterior(**k),
    "two modes": lambda **k: evidence({"m": two_modes(), "s": generator(1).normal(size=2000)})
    .plot_posterior(probability=0.9, **k),
    "chains": lambda **k: chains().plot(["w[0]", "b"], **k),
    "pairs of chains": lambda **k: chains().plot_posterior(["w[0]", "b"], **k),
    "autocorrelation": lambda **k: chains().plot_autocorrelation(**k),
    "energy": lambda **k: chains().plot_energy(**k),
    "comparison": lambda **k: compared().plot(**k),
    "history": lambda **k: history().plot(**k),
    "loo": lambda **k: elpd().plot(**k),
    "waic": lambda **k: elpd(method="waic").plot(**k),
    "compare_loo": lambda **k: wb.compare_loo({"a": elpd(), "b": elpd(shift=0.2)}).plot(**k),
    "sensitivity": lambda **k: Sensitivity(
        {"a": 0.1, "b": np.nan}, {"a": 0.2, "b": np.nan}, -0.5, 0.1, -9.0, 0.1
    ).plot(**k),
    "calibration": lambda **k: Calibration({"a": np.arange(40), "b": np.arange(40)}, 39).plot(**k),
    "check": lambda **k: PredictiveCheck(
        {"mean": 10.5}, {"mean": 10.5 + generator().normal(size=99)}, {"mean": 0.5}
    ).plot(**k),
    "prediction": lambda **k: wb.Prediction(generator().normal(size=(50, 9)), 9).plot(**k),
    "draws": lambda **k: wb.Prediction(generator().normal(size=(50, 2))).plot(**k),
    "bounds": lambda **k: plot_bounds(
        generator(1).normal(size=9), generator(2).normal(size=9), lower=(0.0, 0.1),
        upper=(1.0, np.nan), **k,
    ),
    "cross-check": lambda **k: wb.CrossCheck({
        "smc": evidence(log_evidence=1e6 + 0.1, std_error=0.1, island_log_evidence=np.full(4, 1e6)),
        "nested": evidence(log_evidence=1e6 + 10.5, std_error=np.nan),
    }).plot(**k),
    "optimum": lambda **k: optimum().plot(**k),
    "integral": lambda **k: integral().plot(**k),
}  # fmt: skip
# How many panels each has, to be given as axes.
PANELS = {"two modes": (2, 2),
          "path": (3, 1), "rows": (2, 1), "corner": (2, 2), "one": (1, 1), "chains": (2, 3),
          "pairs of chains": (2, 2), "autocorrelation": (3, 1), "energy": (1, 2),
          "comparison": (1, 2), "history": (3, 1), "loo": (2, 1), "waic": (1, 1),
          "compare_loo": (1, 2), "sensitivity": (1, 1), "calibration": (1, 2), "check": (1, 1),
          "prediction": (1, 1), "draws": (2, 1), "bounds": (1, 1), "cross-check": (1, 1),
          "optimum": (1, 2), "integral": (1, 1), "nested run": (4, 1)}  # fmt: skip


# --- ticks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [(9.0, 12.6), (8.6, 12.4), (9.2, 12.1)])
def test_ten_and_a_half_reads_so(ends):
    """It read "10", for the decimals came from the width of the axis and not from the ticks."""
    assert write_numbers([9.0, 10.5, 12.0]) == ["9.0", "10.5", "12.0"]
    figure = evidence({"m": np.linspace(*ends, 300)}).plot_posterior()
    figure.draw_without_rendering()
    _check_ticks(figure.axes[0].xaxis)


@pytest.mark.parametrize("centre", [0.0, 10.5, -0.3, 1e-7, 1e6 + 0.1, 1.7e9, -3e12])
def test_tick_labels_read_back_as_their_places(centre):
    from matplotlib.ticker import MaxNLocator

    from weighbridge.plots.ticks import PlainNumbers

    random = generator(int(abs(centre)) % 1000)
    for _ in range(300):
        width = 10 ** random.uniform(-10, 13)
        low = centre + width * random.uniform(-1, 0)
        if width < 1e-10 * abs(centre):
            continue  # hardly more than the rounding errors of the numbers themselves
        ticks = MaxNLocator(int(random.integers(2, 10))).tick_values(low, low + width)
        labels = PlainNumbers().format_ticks(ticks)
        step = np.min(np.diff(ticks))
        np.testing.assert_allclose([number(text) for text in labels], ticks, atol=2e-3 * step)
        assert len(set(labels)) == len(labels)
        assert not {"-0", "\N{MINUS SIGN}0", "\N{MINUS SIGN}0.0"} & set(labels)


def test_labels_have_no_more_decimals_than_they_need():
    assert write_numbers([0.0, 0.2, 0.4, 0.6000000000000001]) == ["0.0", "0.2", "0.4", "0.6"]
    assert write_numbers([9.0, 10.0]) == ["9", "10"]
    assert write_numbers([]) == []
    assert write_numbers([0.0]) == ["0"]


def test_the_ticks_of_a_report_read_back_too():
    letters = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
    random = generator(5)
    for _ in range(300):
        width = 10 ** random.uniform(-6, 9)
        low = random.choice([0.0, -1.41842, 12_345_678.0]) + width * random.uniform(-1, 0)
        ticks = nice_ticks(low, low + width, 5)
        if width < 1e-9 * abs(low):
            continue
        for tick, text in zip(ticks, compact_numbers(ticks), strict=True):
            factor = letters.get(text[-1], 1.0)
            assert number(text.rstrip("kMGT")) * factor == pytest.approx(tick, abs=2e-3 * width)
        assert len(set(compact_numbers(ticks))) == len(ticks)


# --- every figure --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure(name):
    """Axes have labels, numbers at ticks are where they say; nothing global is touched."""
    before = {k: v for k, v in mpl.rcParams.items() if k != "backend"}
    figure = FIGURES[name]()
    figure.draw_without_rendering()
    labelled = {"x": set(), "y": set()}
    for axes in figure.axes:
        place = axes.get_subplotspec()
        if axes.get_xlabel():
            labelled["x"].add(place.colspan.start)
        if axes.get_ylabel():
            labelled["y"].add(place.rowspan.start)
    for axes in figure.axes:
        place = axes.get_subplotspec()
        assert place.colspan.start in labelled["x"]
        assert place.rowspan.start in labelled["y"]
        for axis in (axes.xaxis, axes.yaxis):
            _check_ticks(axis)
            _check_apart(axis)
    assert {k: v for k, v in mpl.rcParams.items() if k != "backend"} == before
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()


def _check_ticks(axis):
    places = axis.get_majorticklocs()
    step = np.min(np.diff(places)) if len(places) > 1 else 1.0
    for tick in axis.get_major_ticks():
        place, text = tick.get_loc(), tick.label1.get_text() if tick.label1.get_visible() else ""
        assert "$" not in text
        if text and text[-1].isdigit() and text[0] in "0123456789\N{MINUS SIGN}":
            assert number(text) == pytest.approx(place, abs=max(2e-3 * step, 1e-6 * abs(place)))


def _check_apart(axis):
    """No label is written over the next one; slanted ones have boxes that say nothing."""
    low, high = sorted(axis.get_view_interval())
    labels = [
        tick.label1
        for tick in axis.get_major_ticks()
        if low <= tick.get_loc() <= high and tick.label1.get_visible() and tick.label1.get_text()
    ]
    boxes = [label.get_window_extent() for label in labels if not label.get_rotation()]
    for one, other in itertools.pairwise(boxes):
        assert not one.overlaps(other)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_drawn_where_it_is_asked_for(name):
    from matplotlib.figure import Figure

    own = Figure(figsize=(9, 9))
    own.suptitle("mine")
    axes = own.subplots(*PANELS[name])
    assert FIGURES[name](axes=axes) is own
    assert own.get_suptitle() == "mine"
    assert not own.legends
    assert all(panel.has_data() or not panel.axison for panel in np.ravel(axes))
    empty = Figure(figsize=(9, 9))
    left, right = empty.subfigures(1, 2)
    assert FIGURES[name](axes=left) is empty
    assert left.axes
    assert not right.axes
    with pytest.raises(MethodError, match="already has panels"):
        FIGURES[name](axes=left)
    with pytest.raises(MethodError, match="7 axes were given"):
        FIGURES[name](axes=Figure().subplots(7, 1))
    with pytest.raises(MethodError, match="axes must be matplotlib axes"):
        FIGURES[name](axes="here")


# --- truths, labels, units -----------------------------------------------------------------------


def test_truths_are_lines_at_their_values():
    result = evidence({"w": generator().normal(size=(400, 2)), "b": generator(1).normal(size=400)})
    figure = result.plot_posterior(
        truths={"w": [0.5, np.nan], "b": 5.0}, labels={"w": "slope", "b": "offset"},
        units={"w[1]": "m/s"},
    )  # fmt: skip
    first, below, second, *_, last = figure.axes
    assert set(first.lines[0].get_xdata()) == {0.5}
    assert not second.lines
    assert set(last.lines[0].get_xdata()) == {5.0}  # beyond the draws: the axis goes there
    assert last.get_xlim()[1] > 5.0
    assert set(below.lines[-1].get_xdata()) == {0.5}
    assert [axes.get_xlabel() for axes in figure.axes[3:]] == [
        "slope[0]",
        "slope[1] (m/s)",
        "offset",
    ]
    assert "dashed: truth" in figure.get_suptitle()


def test_a_truth_far_off_is_pointed_at():
    figure = evidence({"b": generator().normal(size=400)}).plot_posterior(truths={"b": -1e4})
    (axes,) = figure.axes
    assert not axes.lines
    assert axes.get_xlim()[0] > -10
    assert axes.texts[0].get_text() == "\N{LEFTWARDS ARROW} truth \N{MINUS SIGN}10,000"


def test_truths_in_the_chains():
    figure = chains().plot(["w[1]"], truths={"w": [1.0, 10.0]}, units={"w": "m"})
    marginal, trace, _ = figure.axes
    assert set(marginal.lines[0].get_xdata()) == {10.0}
    assert set(trace.lines[-1].get_ydata()) == {10.0}
    assert (marginal.get_xlabel(), trace.get_ylabel()) == ("w[1] (m)", "w[1] (m)")


@pytest.mark.parametrize("draw", [chains().plot, chains().plot_posterior])
def test_bad_wishes_are_refused(draw):
    for wish in ({"truths": {"v": 1.0}}, {"labels": {"w[7]": "x"}}, {"units": {"W": "m"}}):
        wrong = f"There is no parameter .* which is in {next(iter(wish))};"
        with pytest.raises(MethodError, match=wrong):
            draw(**wish)
    with pytest.raises(MethodError, match=r"shape \(3,\), but 'w' the shape \(2,\)"):
        draw(truths={"w": [1.0, 2.0, 3.0]})
    with pytest.raises(MethodError, match=r"truths\['b'\] must be numbers"):
        draw(truths={"b": "one"})
    with pytest.raises(MethodError, match="truths must be a mapping"):
        draw(truths=[1.0])
    with pytest.raises(MethodError, match="labels must be texts"):
        draw(labels={"b": 3})


def test_an_entry_goes_before_its_parameter():
    known = Labelling({"w[0]": 9.0, "w": [1.0, 2.0]}, {"w": "v", "w[1]": "slope"}).of(
        {"w": np.zeros((5, 2))}
    )
    assert known.truths == {"w[0]": 9.0, "w[1]": 2.0}
    assert known.names == {"w[0]": "v[0]", "w[1]": "slope"}


def test_the_interval_is_as_asked():
    result = evidence({"b": generator().normal(size=400)})
    assert "50 % and 94 %" in result.plot_posterior().get_suptitle().replace("\n", " ")
    assert "50 % and 80 %" in result.plot_posterior(probability=0.8).get_suptitle()
    assert "30 % and 50 %" in result.plot_posterior(probability=0.3).get_suptitle()
    for bad in (0.0, 1.0, 94.0):
        with pytest.raises(MethodError, match="between 0 and 1"):
            result.plot_posterior(probability=bad)
        with pytest.raises(MethodError, match="between 0 and 1"):
            wb.Prediction(np.zeros((9, 3)), 3).plot(probability=bad)


# --- what single figures say ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("diagnostics", "said"),
    [
        ({"answer": "bridge"}, "the answer is by the bridge"),
        ({"answer": "neither"}, "the path missed mass"),
        ({"answer": "path", "num_rounds": 3}, "first of 3 rounds"),
        ({}, "combines its islands in another way"),
    ],
)
def test_the_path_says_why_it_ends_elsewhere(diagnostics, said):
    figure = evidence(trace=tempered(), **diagnostics).plot()
    title = figure.axes[0].get_title(loc="left").replace("\n", " ")
    assert "The path ends at \N{MINUS SIGN}105.30, 0.58 below the answer" in title
    assert said in title
    _, answer = figure.axes[0].lines
    assert set(answer.get_ydata()) == {-104.72}
    low, high = figure.axes[0].patches[0].get_extents().transformed(
        figure.axes[0].transData.inverted()).intervaly  # fmt: skip
    assert (low, high) == pytest.approx((-104.72 - 0.024, -104.72 + 0.024), abs=1e-6)
    legend = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert legend[0] == "path"
    assert legend[1].startswith("answer: \N{MINUS SIGN}104.720 ± 0.012, by the ")


def test_a_path_that_ends_at_the_answer_says_no_more():
    for error in (0.1, np.nan):
        figure = evidence(trace=tempered(), log_evidence=-105.3, std_error=error).plot()
        assert "The path ends" not in figure.axes[0].get_title(loc="left")


def test_the_answer_of_a_path_over_rows_stands_at_its_end():
    run = evidence(trace=over_rows(), log_evidence=-1.4e6 + 40, std_error=3.0, answer="bridge")
    axes = run.plot().axes[0]
    assert "40 below the answer" in axes.get_title(loc="left")
    x, y = axes.lines[1].get_data()
    assert (x[0], y[0]) == pytest.approx((1e6, -1.39996))


def test_probability_axes_end_at_one():
    assert compared().plot().axes[1].get_xlim() == (0.0, 1.0)
    axes = history().plot().axes[1]
    assert axes.get_ylim() == (0.0, 1.0)
    assert not any(line.get_clip_on() for line in axes.lines)
    runs = {"a": evidence(log_evidence=0.0), "b": evidence(log_evidence=-20.0),
            "c": evidence(log_evidence=-9e4)}  # fmt: skip
    texts = [text.get_text() for text in wb.compare(runs).plot().axes[1].texts]
    assert texts == ["> 0.999", "< 0.001", "< 0.001"]


@pytest.mark.parametrize("count", [1, 8, 30])
def test_chains_have_a_legend(count):
    figure = chains(count).plot(["b"])
    assert figure.get_suptitle().startswith("1 chain of" if count == 1 else f"{count} chains of")
    names = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert names == ([] if count == 1 else [f"chain {k}" for k in range(8)])
    traces = figure.axes[1]
    assert [axes.get_xlabel() for axes in figure.axes] == ["b", "draw", "rank"]
    assert [axes.get_ylabel() for axes in figure.axes] == ["density", "b", "frequency"]
    colours = [line.get_color() for line in traces.lines if line.get_marker() != "x"]
    assert len(set(colours)) == len(colours) == min(count, 8)


def test_autocorrelations():
    posterior = chains()
    figure = posterior.plot_autocorrelation(["w[0]"], labels={"w": "slope"})
    (axes,) = figure.axes
    found = wb.diagnostics.autocorrelation(posterior.samples["w"][..., 0])
    for line, values in zip(axes.lines[1:], found, strict=True):
        np.testing.assert_allclose(line.get_ydata(), values[: len(line.get_ydata())])
    assert axes.get_ylim()[1] == 1.0
    assert axes.get_title(loc="left").startswith("slope[0]: length ")
    still = Posterior({"a": np.ones((2, 30))}, np.ones((2, 30, 1)), {})
    assert "do not vary" in still.plot_autocorrelation().axes[0].get_title(loc="left")


def test_energies():
    slow = np.cumsum(generator().normal(size=(2, 400)), axis=1)
    energy = np.vstack([slow[0], generator(1).normal(size=400)])
    figure = plot_energy(energy)
    good, low = figure.axes[1].lines
    fractions = wb.diagnostics.energy_fraction(energy)
    np.testing.assert_allclose(good.get_data(), [[fractions[1]], [1]])
    np.testing.assert_allclose(low.get_data(), [[fractions[0]], [0]])
    assert "too low in 1 chain" in figure.get_suptitle()
    without = Posterior({"a": np.ones((2, 30))}, np.ones((2, 30, 1)), {})
    with pytest.raises(MethodError, match="no energies"):
        without.plot_energy()


@pytest.mark.parametrize(("reverse", "side"), [(False, "left"), (True, "right")])
def test_the_name_of_the_line_keeps_away_from_the_rows_above_it(reverse, side):
    found = elpd()
    shape = found.pareto_k[::-1] if reverse else found.pareto_k
    lower = Elpd(*(found.elpd, 2.0, 1.1, "loo"), found.pointwise, np.ones(30), shape).plot().axes[1]
    (told,) = [text for text in lower.texts if "unreliable above" in text.get_text()]
    assert told.get_horizontalalignment() == side


def test_rows_with_bad_shapes_are_marked_and_numbered():
    result = elpd()
    upper, lower = result.plot().axes
    bad = np.flatnonzero(result.pareto_k > 0.7)
    for axes, heights in ((upper, result.pointwise), (lower, result.pareto_k)):
        np.testing.assert_array_equal(axes.lines[1].get_xdata(), bad)
        np.testing.assert_allclose(axes.lines[1].get_ydata(), heights[bad])
    numbers = [text.get_text() for text in upper.texts]
    assert numbers == [str(row) for row in bad[::-1][:5]]


def test_models_by_their_predictions():
    table = wb.compare_loo({"a": elpd(shift=0.5), "b": elpd()})
    left, right = table.plot().axes
    assert [text.get_text() for text in left.get_yticklabels()] == ["b", "a"]
    places = [line.get_xdata()[0] for line in right.lines if line.get_marker() == "o"]
    assert places == pytest.approx([0.0, table.differences["a"]])


def test_many_sensitivities_show_the_largest():
    prior = {f"w[{k}]": 0.01 * k for k in range(40)}
    figure = Sensitivity(prior, dict(prior), -0.5, 0.1, -9.0, 0.1).plot()
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert labels == [f"w[{k}]" for k in range(10, 40)]
    assert "30 of 40 entries" in figure.get_suptitle()


def test_the_starts_of_an_optimum_and_its_notes_are_drawn():
    left, right = optimum().plot().axes
    heights = np.concatenate([line.get_ydata() for line in left.lines])
    np.testing.assert_allclose(np.sort(heights), [0.0, 0.0, 1.5])
    assert left.get_title(loc="left") == "1 start failed"
    assert [label.get_text() for label in right.get_yticklabels()] == ["w[0]", "w[1]", "s"]
    figure = optimum(entries=30).plot()
    assert "note: 3 of 4 starts ended here" in figure.get_suptitle()
    assert "the first 20 of 31 entries" in figure.get_suptitle()
    assert len(figure.axes[1].get_yticks()) == 20


def test_an_integral_tells_in_its_figure_that_it_cannot_be_trusted():
    heavy = wb.Integral(1.0, 0.1, 1000, 12.0, 0.9)
    assert "do not trust the error" in heavy.plot().get_suptitle().replace("\n", " ")


def test_subfigures_do_not_overlap():
    """Without a layout the labels of one part lay over those of its neighbour."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5))
    left, right = figure.subfigures(1, 2)
    compared().plot(axes=left)
    chains().plot(["w[0]", "b"], axes=right)
    figure.draw_without_rendering()
    boxes = [part.get_tightbbox() for part in (left, right)]
    assert boxes[0].x1 <= boxes[1].x0
    assert boxes[0].x0 >= 0
