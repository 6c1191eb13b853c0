"""Figures of ``benchmarks.sgais.headline``, from what it measured."""

from __future__ import annotations

from pathlib import Path

from benchmarks.sgais.rows import METHODS, ROWS
from benchmarks.sgais.tables import Record, median, summarise
from weighbridge.plots.canvas import save_figure, styles, write_out_numbers
from weighbridge.plots.surface import panels

# The lower end of a logarithmic axis of errors.
SMALLEST_DRAWN = 1e-6


def draw(records: dict[str, Record], folder: Path) -> None:
    """Log Z per row, error, seconds and steps against the rows, a figure for each problem."""
    for problem in ("linear", "softmax"):
        curves = {}
        for method in METHODS:
            points = [
                records[name]
                for name, row in ROWS.items()
                if row.kind == "compare"
                and (row.problem, row.method_name) == (problem, method)
                and records.get(name, {}).get("runs")
            ]
            if points:
                curves[method] = points
        if curves:
            draw_curves(curves, folder / f"sgais-{problem}.png")


def draw_curves(curves: dict[str, list[Record]], path: Path) -> None:
    """One figure."""
    labels = {
        "per row": "log evidence\nper row (nats)",
        "error": f"rms error (nats),\nif above {SMALLEST_DRAWN:g}",
        "seconds": "seconds, with\ncompilation",
        "steps": "annealing steps",
    }
    count = len(labels)
    drawn = panels(None, (count, 1), (7.5, 1.2 + 2.2 * count), sharex=True)
    for (method, points), style in zip(curves.items(), styles(len(curves))):
        heights: dict[str, list[float]] = {label: [] for label in labels}
        for record in points:
            found, runs = summarise(record), record["runs"]
            heights["per row"].append(median(run["answer"] for run in runs) / record["rows"])
            heights["error"].append(max(found["answer"], SMALLEST_DRAWN))
            # Some have no second run, so the time is that of the first run, which compiles.
            heights["seconds"].append(found["first"])
            heights["steps"].append(median(run["steps"] for run in runs))
        rows = [record["rows"] for record in points]
        for axes, height in zip(drawn.flat, heights.values()):
            axes.plot(rows, height, marker="o", markersize=4, label=method, **style)
    for axes, label in zip(drawn.flat, labels.values()):
        axes.set_ylabel(label)
        axes.set_xscale("log")
    for axes in drawn.flat[1:]:
        axes.set_yscale("log")
    drawn.flat[-1].set_xlabel("rows")
    write_out_numbers(drawn.flat[-1].xaxis)
    write_out_numbers(drawn.flat[-1].yaxis)
    save_figure(drawn.finish(list(curves)), path)
