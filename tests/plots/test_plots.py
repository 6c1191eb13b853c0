"""Figures: the right lines and labels, and no global state."""

import subprocess
import sys

import numpy as np
import pytest

import weighbridge as wb
from weighbridge import CheckpointError, MissingDependencyError
from weighbridge.plots.canvas import check_figure_place, save_figure
from weighbridge.plots.paths import plot_paths
from weighbridge.plots.posterior import plot_posterior
from weighbridge.results.trace import Trace


def trace(rows, scale=1.0):
    rows = np.asarray(rows, float)
    return Trace(rows=rows, log_evidence=-scale * rows, annealing_steps=np.full(len(rows), 3.0))


def test_several_models_and_changes():
    traces = {"a": trace([500, 1000, 1200]), "b": trace([500, 1000, 1200], 2.0)}
    figure = plot_paths(traces, changes=[1000])
    upper, lower = figure.axes
    for axes, heights in ((upper, (-1.0, -2.0)), (lower, (3.0, 3.0))):
        first, second, change = axes.get_lines()
        for line, height, name in zip((first, second), heights, "ab"):
            assert line.get_label() == name
            assert line.get_xdata().tolist() == [500, 1000, 1200]
            np.testing.assert_allclose(line.get_ydata(), height)
        assert list(change.get_xdata()) == [1000, 1000]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["a", "b", "change found"]
    assert first.get_linestyle() != second.get_linestyle()  # for readers who see no colours
    assert "log evidence\nper row" in upper.get_ylabel()
    assert "annealing steps" in lower.get_ylabel()
    assert lower.get_xlabel() == "rows seen"
    assert lower.get_xscale() == upper.get_xscale() == "log"
    figure.draw_without_rendering()
    labels = {label.get_text() for label in lower.get_xticklabels()}
    assert {"500", "1,000"} <= labels
    assert not any("$" in label for label in labels)


def test_a_single_chunk(tmp_path):
    figure = plot_paths({"a": trace([300])})
    assert figure.axes[1].get_xscale() == "linear"
    assert figure.axes[0].get_lines()[0].get_marker() == "."
    save_figure(figure, tmp_path / "one.svg")
    assert (tmp_path / "one.svg").read_text().startswith("<?xml")


def test_places_are_checked(tmp_path):
    for name in ("figure", "figure.foo"):
        with pytest.raises(CheckpointError, match=r"must end in \.png"):
            check_figure_place(tmp_path / name)
    with pytest.raises(CheckpointError, match="no folder"):
        check_figure_place(tmp_path / "nowhere" / "figure.png")
    check_figure_place(tmp_path / "figure.PNG")


def test_a_figure_that_cannot_be_written(tmp_path, monkeypatch):
    figure = plot_paths({"a": trace([300])})

    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(figure, "savefig", fail)
    with pytest.raises(CheckpointError, match=r"a\.png: No space left"):
        save_figure(figure, tmp_path / "a.png")


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependencyError, match=r"weighbridge\[plot\]"):
        plot_paths({"a": trace([300])})


def test_no_global_state():
    code = (
        "import sys, numpy as np; from weighbridge.plots.paths import plot_paths\n"
        "assert 'matplotlib' not in sys.modules\n"
        "one = np.ones(2)\n"
        "plot_paths({'a': {'rows': one, 'log_evidence': one, 'annealing_steps': one}})\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_path_over_rows_shows_the_ess_where_it_is_known():
    known = Trace(**trace([500, 1000]), ess=np.array([4.0, 5.0]))
    figure = plot_paths({"a": known})
    np.testing.assert_array_equal(figure.axes[2].lines[0].get_ydata(), [4.0, 5.0])
    assert not figure.legends
    assert figure.axes[0].get_title(loc="left") == "a"


def test_chunks_without_an_annealing_step_are_shown():
    idle = Trace(**{**trace([500, 1000]), "annealing_steps": np.array([2.0, 0.0])})
    axes = plot_paths({"a": idle}).axes[1]
    assert axes.get_yscale() == "linear"
    assert axes.get_ylim()[0] <= 0


def test_a_tempered_path_shows_evidence_powers_and_ess():
    data = wb.zoo.gaussian.simulate(100, seed=1)
    result = wb.evidence(
        wb.zoo.gaussian.model(), data, wb.SMC(num_islands=4, num_particles=16), seed=0
    )
    figure, trace = result.plot(), result.trace
    heat = trace.power**2 * trace.log_likelihood_variance
    shown = (trace.log_evidence, trace.power, trace.ess, heat)
    for axes, column in zip(figure.axes, shown, strict=True):
        steps, heights = axes.lines[0].get_data()
        np.testing.assert_array_equal(steps, trace.annealing_steps)
        np.testing.assert_array_equal(heights, column)
    assert figure.axes[1].get_yscale() == "log"
    assert figure.axes[3].get_xlabel() == "annealing step"
    # A path without these moments, of a saved result of before, has three panels.
    older = Trace(**{name: trace[name] for name in ("power", "log_evidence", "ess")})
    assert len(plot_paths({"a": older}).axes) == 3


# --- the posterior ---------------------------------------------------------------------------


def draws(num=400, seed=0):
    generator = np.random.default_rng(seed)
    return {"w": generator.normal(size=(num, 2)), "b": 5 + generator.normal(size=num)}


def equal(num):
    return np.full(num, 1 / num)


def test_marginals_and_pairs():
    figure = plot_posterior(draws(), equal(400), title="smc")
    assert len(figure.axes) == 6  # nothing above the diagonal
    assert [axes.get_xlabel() for axes in figure.axes[3:]] == ["w[0]", "w[1]", "b"]
    assert [axes.get_ylabel() for axes in figure.axes] == ["density", "w[1]", "", "b", "", ""]
    assert figure.get_suptitle().splitlines()[0] == "smc"
    assert "400 draws;" in figure.get_suptitle()
    assert "coordinates" not in figure.get_suptitle()
    mean, deviation = draws()["b"].mean(), draws()["b"].std()
    assert figure.axes[5].get_title() == f"{mean:.2f} ± {deviation:.2f}"
    figure.draw_without_rendering()


def test_weights_shape_marginals_and_pairs():
    """Half of the draws have no weight: the figure is that of the other half."""
    two = draws(800)
    weights = np.where(np.arange(800) < 400, 1 / 400, 0.0)
    one = {name: values[:400] for name, values in two.items()}
    pairs = zip(plot_posterior(two, weights).axes, plot_posterior(one, equal(400)).axes)
    for a, b in pairs:
        assert a.get_title() == b.get_title()
        np.testing.assert_allclose(a.get_xlim(), b.get_xlim())
        for first, second in zip(a.patches, b.patches, strict=True):
            np.testing.assert_allclose(first.get_data().values, second.get_data().values)


def test_contours_hold_their_share_of_the_draws():
    from weighbridge.plots import density as smooth
    from weighbridge.plots import posterior

    generator = np.random.default_rng(2)
    x, y = generator.normal(size=(2, 4000))
    edges = [np.linspace(-4, 4, posterior.NUM_CELLS + 1)] * 2
    density = smooth.smooth_density(x, y, equal(4000), 4000.0, edges)
    assert density.sum() == pytest.approx(1.0, abs=1e-3)
    (level,) = smooth.levels_of(density, [0.5])
    inside = density[tuple(np.searchsorted(edges[0], v) - 1 for v in (x, y))] > level
    assert inside.mean() == pytest.approx(0.5, abs=0.05)


def test_the_bandwidth_follows_the_posterior():
    """A narrow ring stays a ring: its empty middle is not filled by smoothing."""
    from weighbridge.plots import density as smooth
    from weighbridge.plots import posterior

    generator = np.random.default_rng(3)
    angle = generator.uniform(0, 2 * np.pi, 1000)
    radius = 2 + 0.1 * generator.normal(size=1000)
    x, y = radius * np.cos(angle), radius * np.sin(angle)
    edges = [np.linspace(-2.5, 2.5, posterior.NUM_CELLS + 1)] * 2
    density = smooth.smooth_density(x, y, equal(1000), 1000.0, edges)
    centre = posterior.NUM_CELLS // 2
    assert density[centre, centre] < 1e-3 * density.max()


def test_the_coordinates_drawn(monkeypatch):
    many = {"w": np.zeros((5, 20)), "b": np.zeros(5), "s": np.zeros((5, 2, 2))}
    chosen, count = posterior_choice(many, None)
    assert chosen == ["w[0]", "w[1]", "w[2]", "w[3]", "b", "s[0,0]", "s[0,1]", "s[1,0]"]
    assert count == 25
    assert posterior_choice(many, ["s[1,0]", "b"]) == (["s[1,0]", "b"], 2)
    assert posterior_choice(many, "b") == (["b"], 1)
    assert posterior_choice(many, ["w[3]", "w[3]"]) == (["w[3]"], 1)
    for bad in (["wb"], ["w[20]"], [3]):
        with pytest.raises(wb.MethodError, match="There is no parameter"):
            posterior_choice(many, bad)
    with pytest.raises(wb.MethodError, match="Did you mean 's"):
        posterior_choice(many, ["s[0]"])
    for samples, names in ((many, []), ({}, None)):
        with pytest.raises(wb.MethodError, match="nothing to draw"):
            posterior_choice(samples, names)
    monkeypatch.setattr("weighbridge.plots.coordinates.MAX_COORDINATES", 2)
    figure = plot_posterior(draws(), equal(400))
    assert "2 of 3 coordinates; choose others with names=[...]" in figure.get_suptitle()
    assert [axes.get_xlabel() for axes in figure.axes[1:]] == ["w[0]", "b"]


def posterior_choice(samples, names):
    from weighbridge.plots.coordinates import choose_coordinates

    chosen, count = choose_coordinates(samples, names)
    return list(chosen), count


def test_odd_posteriors(tmp_path):
    generator = np.random.default_rng(0)
    odd = {
        "constant": np.full(200, 3.0),
        "zero": np.zeros(200),
        "far": 1e6 + 1e-2 * generator.normal(size=200),
        "huge": 1e12 * generator.normal(size=200),
        "tiny": 1e-9 * generator.exponential(size=200),
    }
    save_figure(plot_posterior(odd, equal(200)), tmp_path / "odd.png")
    few = {"a": np.array([1.0, 2.0]), "b": np.array([1.0, 1.0])}
    save_figure(plot_posterior(few, np.array([1.0, 0.0])), tmp_path / "few.png")


# --- predictions -----------------------------------------------------------------------------


def test_predictions_over_rows():
    told = wb.Prediction(np.random.default_rng(0).normal(size=(500, 5)), num_rows=5)
    (axes,) = told.plot().axes
    np.testing.assert_allclose(axes.lines[0].get_ydata(), told.mean)
    assert axes.get_xlabel() == "row"
    x = np.array([3.0, 1.0, 2.0, 5.0, 4.0])
    (axes,) = told.plot(x).axes
    np.testing.assert_allclose(axes.lines[0].get_data(), [np.sort(x), told.mean[np.argsort(x)]])
    assert len(axes.collections) == 2  # two bands


def test_predictions_of_several_components(tmp_path):
    told = wb.Prediction(np.random.default_rng(0).normal(size=(50, 70, 8)), num_rows=70)
    figure = told.plot()
    assert len(figure.axes) == 6
    assert "first 6 of 8 components" in figure.get_suptitle()
    assert figure.axes[1].get_ylabel() == "prediction [1]"
    save_figure(figure, tmp_path / "bands.png")


def test_predictions_without_rows():
    told = wb.Prediction(np.random.default_rng(0).normal(size=(500, 2)))
    first, second = told.plot().axes
    *bars, interval = first.patches
    assert sum(bar.get_height() * bar.get_width() for bar in bars) == pytest.approx(1.0)
    inside = (told.draws[:, 0] >= interval.get_x()) & (
        told.draws[:, 0] <= interval.get_x() + interval.get_width()
    )
    assert inside.mean() == pytest.approx(0.94, abs=1e-9)
    np.testing.assert_allclose(second.lines[0].get_xdata()[0], told.mean[1])
