"""Figures: the right lines and labels, and no global state."""

import subprocess
import sys

import numpy as np
import pytest

import weighbridge as wb
from weighbridge import CheckpointError, MissingDependencyError, plots
from weighbridge.result import Trace


def trace(rows, scale=1.0):
    rows = np.asarray(rows, float)
    return Trace(rows=rows, log_evidence=-scale * rows, annealing_steps=np.full(len(rows), 3.0))


def test_several_models_and_changes():
    traces = {"a": trace([500, 1000, 1200]), "b": trace([500, 1000, 1200], 2.0)}
    figure = plots.plot_paths(traces, changes=[1000])
    upper, lower = figure.axes
    for axes, heights in ((upper, (-1.0, -2.0)), (lower, (3.0, 3.0))):
        first, second, change = axes.get_lines()
        for line, height, name in zip((first, second), heights, "ab"):
            assert line.get_label() == name
            assert line.get_xdata().tolist() == [500, 1000, 1200]
            np.testing.assert_allclose(line.get_ydata(), height)
        assert list(change.get_xdata()) == [1000, 1000]
    assert [text.get_text() for text in upper.get_legend().get_texts()] == ["a", "b"]
    assert "log evidence per row" in upper.get_ylabel()
    assert "annealing steps" in lower.get_ylabel()
    assert lower.get_xlabel() == "rows seen"
    assert lower.get_xscale() == upper.get_xscale() == "log"
    figure.draw_without_rendering()
    labels = {label.get_text() for label in lower.get_xticklabels()}
    assert {"500", "1,000"} <= labels
    assert not any("$" in label for label in labels)


def test_a_single_chunk(tmp_path):
    figure = plots.plot_paths({"a": trace([300])})
    assert figure.axes[1].get_xscale() == "linear"
    assert figure.axes[0].get_lines()[0].get_marker() == "."
    plots.save_figure(figure, tmp_path / "one.svg")
    assert (tmp_path / "one.svg").read_text().startswith("<?xml")


def test_places_are_checked(tmp_path):
    for name in ("figure", "figure.foo"):
        with pytest.raises(CheckpointError, match=r"must end in \.png"):
            plots.check_figure_place(tmp_path / name)
    with pytest.raises(CheckpointError, match="no folder"):
        plots.check_figure_place(tmp_path / "nowhere" / "figure.png")
    plots.check_figure_place(tmp_path / "figure.PNG")


def test_a_figure_that_cannot_be_written(tmp_path, monkeypatch):
    figure = plots.plot_paths({"a": trace([300])})

    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(figure, "savefig", fail)
    with pytest.raises(CheckpointError, match=r"a\.png: No space left"):
        plots.save_figure(figure, tmp_path / "a.png")


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependencyError, match=r"weighbridge\[plot\]"):
        plots.plot_paths({"a": trace([300])})


def test_no_global_state():
    code = (
        "import sys, numpy as np; from weighbridge import plots\n"
        "assert 'matplotlib' not in sys.modules\n"
        "one = np.ones(2)\n"
        "plots.plot_paths({'a': {'rows': one, 'log_evidence': one, 'annealing_steps': one}})\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_tempered_path_is_drawn_along_its_powers():
    data = wb.zoo.gaussian.simulate(100, seed=1)
    result = wb.evidence(wb.zoo.gaussian.model(), data, wb.SMC(num_islands=4), seed=0)
    upper, lower = result.plot().axes
    np.testing.assert_array_equal(upper.lines[0].get_xdata(), result.trace.power)
    np.testing.assert_array_equal(lower.lines[0].get_ydata(), result.trace.ess)
    assert lower.get_xlabel() == "power of the likelihood"
