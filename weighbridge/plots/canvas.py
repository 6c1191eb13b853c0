"""An empty figure and its way to a file; colours, dashes, names and ticks.

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

# Okabe & Ito (2008): told apart with any kind of colour vision; their yellow is too light to draw.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (2, 1.5)))
# How a line at a true value looks.
TRUTH: dict[str, Any] = {"color": "black", "linewidth": 1.2, "linestyle": (0, (4, 2))}
# A logarithmic axis over more than this factor has labels at powers of ten alone.
MANY_DECADES = 300.0


def new_figure(width: float, height: float) -> Figure:
    """An empty figure that belongs to no window, so that it works on any machine."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError(
            'Plots need matplotlib: pip install "weighbridge[plot]".'
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


def check_figure_place(path: str | Path) -> None:
    """Refuse a file that no figure can be written to; ask before a long run, not after it."""
    path = Path(path)
    known = new_figure(1.0, 1.0).canvas.get_supported_filetypes()
    if path.suffix.lower().lstrip(".") not in known:
        raise CheckpointError(
            f"Could not write the figure {path}: its name must end in .png, .pdf, .svg or "
            "another format of matplotlib."
        )
    check_place(path)


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure to a file, in the format that its name ends in."""
    check_figure_place(path)
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise CheckpointError(
            f"Could not write the figure {path}: {error.strerror or error}. Choose another place."
        ) from error


def styles(count: int) -> list[dict[str, Any]]:
    """Colour and dash of each of several lines; they can be told apart without seeing colours.

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
    """Names shortened, unless some could then no longer be told apart."""
    short = [shorten(name, width) for name in names]
    return short if len(set(short)) == len(set(names)) else list(names)


def num_bins(num_draws: float) -> int:
    """Bins of a histogram of so many draws."""
    return int(np.clip(2 * num_draws ** (1 / 3), 8, 60))


def tidy(axes: Axes) -> None:
    """A light grid, and ticks whose labels say where they stand and keep apart.

    Ask for it when all is drawn and the limits are set. Axes that have labels of their own, such
    as names, keep them.
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
    """So many ticks at most, at round numbers and not at the very ends."""
    from matplotlib.ticker import MaxNLocator

    from weighbridge.plots.ticks import PlainNumbers

    axis.set_major_locator(MaxNLocator(most, prune="both", steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(PlainNumbers())


def whole_numbers(axis: Axis) -> None:
    """Ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))


def from_zero(axes: Axes) -> None:
    """Let the vertical axis begin at zero, with some room above what is drawn."""
    top = float(axes.dataLim.y1)
    axes.set_ylim(0.0, 1.07 * top if np.isfinite(top) and top > 0 else 1.0)


def draw_changes(panels: Iterable[Axes], changes: Sequence[float]) -> None:
    """A vertical line in every panel at each row where the world changed; one has a name."""
    for number, panel in enumerate(panels):
        for which, change in enumerate(changes):
            label = "change found" if number == which == 0 else None
            panel.axvline(change, color="0.6", linestyle="--", linewidth=1, zorder=0, label=label)


def write_out_numbers(axis: Axis) -> None:
    """Label a logarithmic axis 200, 500, 1,000, or by decades alone where it spans several."""
    from matplotlib.ticker import LogLocator, NullFormatter

    from weighbridge.plots.ticks import SeparateNumbers

    low, high = axis.get_view_interval()
    subs = (1.0,) if high > MANY_DECADES * max(low, 1e-300) else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(SeparateNumbers())
    axis.set_minor_formatter(NullFormatter())


def check_probability(probability: float) -> None:
    """Refuse what cannot be the mass inside an interval."""
    if not 0 < probability < 1:
        raise MethodError(f"probability must lie between 0 and 1, not {probability}.")


def percent(probability: float) -> str:
    """A probability as a percentage, with the digits that it has.

    >>> percent(0.94), percent(0.999)
    ('94 %', '99.9 %')
    """
    return f"{100 * probability:.6g} %"
