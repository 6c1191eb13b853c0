"""New figures and their files; colours, dashes, names and ticks.

Matplotlib is imported only when a figure is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from weighbridge.core.checkpoint_file import check_place
from weighbridge.core.errors import CheckpointError, MethodError, MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Okabe & Ito (2008): distinct for any kind of colour vision, without yellow, which is too light.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (2, 1.5)))
# Style of a line at a true value.
TRUTH: dict[str, Any] = {"color": "black", "linewidth": 1.2, "linestyle": (0, (4, 2))}
# A logarithmic axis over more than this factor has labels only at powers of ten.
MANY_DECADES = 300.0


def new_figure(width: float, height: float) -> Figure:
    """An empty figure that is not attached to a window, so that it works on any machine."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError(
            'Plots need matplotlib: pip install "weighbridge[plot]".'
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


def check_figure_place(path: str | Path) -> None:
    """Refuse a file to which no figure can be written; called before a long run, not after it."""
    path = Path(path)
    known = new_figure(1.0, 1.0).canvas.get_supported_filetypes()
    if path.suffix.lower().lstrip(".") not in known:
        raise CheckpointError(
            f"Could not write the figure {path}: its name must end in .png, .pdf, .svg or "
            "another format of matplotlib."
        )
    check_place(path)


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure to a file, in the format of its suffix."""
    check_figure_place(path)
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise CheckpointError(
            f"Could not write the figure {path}: {error.strerror or error}. Choose another folder."
        ) from error


def styles(count: int) -> list[dict[str, Any]]:
    """Colour and dash of each of several lines; the dashes differ too, for use without colour.

    >>> styles(2)
    [{'color': '#0072B2', 'linestyle': '-'}, {'color': '#D55E00', 'linestyle': '--'}]
    """
    return [
        {"color": COLOURS[k % len(COLOURS)], "linestyle": DASHES[k % len(DASHES)]}
        for k in range(count)
    ]


def shorten(name: str, width: int) -> str:
    """A long name without its middle.

    >>> shorten("a name that is rather long", 12)
    'a name...r long'
    """
    if len(name) <= width + 3:
        return name
    return f"{name[: width // 2].rstrip()}...{name[len(name) - (width - width // 2) :].lstrip()}"


def short_names(names: Sequence[str], width: int) -> list[str]:
    """Shortened names, unless two of them would become equal."""
    short = [shorten(name, width) for name in names]
    return short if len(set(short)) == len(set(names)) else list(names)


def num_bins(num_draws: float) -> int:
    """Number of bins for a histogram of this many draws."""
    return int(np.clip(2 * num_draws ** (1 / 3), 8, 60))


def tidy(axes: Axes) -> None:
    """Add a light grid, and tick labels that give the exact positions and do not overlap.

    Call it when everything is drawn and the limits are set. Axes with labels of their own, such as
    names, keep them.
    """
    from matplotlib.ticker import AutoLocator, ScalarFormatter

    from weighbridge.plots.ticks import ApartTicks, PlainNumbers

    if isinstance(axes.xaxis.get_major_locator(), AutoLocator):
        axes.xaxis.set_major_locator(ApartTicks())
    for axis, scale in ((axes.xaxis, axes.get_xscale()), (axes.yaxis, axes.get_yscale())):
        if scale == "log":
            write_out_numbers(axis)
        elif isinstance(axis.get_major_formatter(), ScalarFormatter):
            axis.set_major_formatter(PlainNumbers())
    axes.grid(alpha=0.3)


def few_ticks(axis: Axis, most: int) -> None:
    """At most this many ticks, at round numbers and not at the very ends."""
    from matplotlib.ticker import MaxNLocator

    from weighbridge.plots.ticks import PlainNumbers

    axis.set_major_locator(MaxNLocator(most, prune="both", steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(PlainNumbers())


def whole_numbers(axis: Axis) -> None:
    """Ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))


def from_zero(axes: Axes) -> None:
    """Let the vertical axis begin at zero, with some space above the data."""
    top = float(axes.dataLim.y1)
    axes.set_ylim(0.0, 1.07 * top if np.isfinite(top) and top > 0 else 1.0)


def draw_changes(panels: Iterable[Axes], changes: Sequence[float]) -> None:
    """A vertical line in every panel at each change point; the first one has a label."""
    for number, panel in enumerate(panels):
        for which, change in enumerate(changes):
            label = "change found" if number == which == 0 else None
            panel.axvline(change, color="0.6", linestyle="--", linewidth=1, zorder=0, label=label)


def write_out_numbers(axis: Axis) -> None:
    """Label a logarithmic axis 200, 500, 1,000, or only by decades if it spans several."""
    from matplotlib.ticker import LogLocator, NullFormatter

    from weighbridge.plots.ticks import SeparateNumbers

    low, high = axis.get_view_interval()
    subs = (1.0,) if high > MANY_DECADES * max(low, 1e-300) else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(SeparateNumbers())
    axis.set_minor_formatter(NullFormatter())


def check_probability(probability: float) -> None:
    """Refuse a value that cannot be the probability of an interval."""
    if not 0 < probability < 1:
        raise MethodError(f"probability must lie between 0 and 1, not {probability}.")


def percent(probability: float) -> str:
    """A probability as a percentage, with all its digits.

    >>> percent(0.94), percent(0.999)
    ('94 %', '99.9 %')
    """
    return f"{100 * probability:.6g} %"
