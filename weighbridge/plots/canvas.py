"""An empty figure and its way to a file; colours, dashes, names and numbers on axes.

Matplotlib is imported only when a figure is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from weighbridge.base import CheckpointError, MissingDependencyError
from weighbridge.checkpoint import check_place

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Okabe & Ito (2008): told apart with any kind of colour vision; their yellow is too light to draw.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3)))
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


def stacked_panels(count: int) -> list[Axes]:
    """Panels one below the other, with a common horizontal axis."""
    figure = new_figure(7.5, 1.2 + 2.2 * count)
    panels: list[Axes] = list(figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0])
    return panels


def finish(panels: Sequence[Axes], names: Sequence[str]) -> Figure:
    """A grid in every panel, and the names: one as the title, several below the figure."""
    figure = panels[0].get_figure(root=True)
    assert figure is not None
    for axes in panels:
        axes.grid(alpha=0.3)
    if len(names) == 1:
        panels[0].set_title(names[0], loc="left", fontsize="medium")
    elif names:
        handles, _ = panels[0].get_legend_handles_labels()
        labels = short_names(names, 60)
        columns = max(1, min(len(names), 90 // (max(map(len, labels)) + 8)))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + 0.22 * -(-len(names) // columns))
    return figure


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


def minus(text: str) -> str:
    """A number as matplotlib writes it, with a minus sign and not a hyphen."""
    return text.replace("-", "\N{MINUS SIGN}")


def num_bins(num_draws: float) -> int:
    """Bins of a histogram of so many draws."""
    return int(np.clip(2 * num_draws ** (1 / 3), 8, 60))


def write_out_numbers(axis: Axis) -> None:
    """Label a logarithmic axis 200, 500, 1,000, or by decades alone where it spans several."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    subs = (1.0,) if high > MANY_DECADES * max(low, 1e-300) else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(_write_out))
    axis.set_minor_formatter(NullFormatter())


def _write_out(value: float, _: int | None = None) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
