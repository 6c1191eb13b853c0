"""Where to draw: a new figure, or a user's figure, subfigure or axes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from weighbridge.core.errors import MethodError
from weighbridge.plots.canvas import new_figure, short_names, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from numpy.typing import NDArray

    # An empty figure or a part of one, in which panels are made; or the panels themselves.
    Surface: TypeAlias = Figure | SubFigure | Axes | Sequence[Any] | NDArray[Any]

# Characters per inch of a heading, a lower estimate.
LETTERS_AN_INCH = 14.0


@dataclass(frozen=True)
class Panels:
    """Panels to draw in, and the figure (or part of one) that contains only them.

    Attributes:
        grid: axes, rows x columns.
        parent: the figure in which the panels were made. None for a user's own axes; the heading,
            legend and layout of their figure belong to the user.
        is_new: whether the figure was made for these panels.
    """

    grid: np.ndarray
    parent: Figure | SubFigure | None
    is_new: bool = False

    @property
    def flat(self) -> list[Axes]:
        """The panels as a list."""
        return [axes for axes in self.grid.flat if axes is not None]

    @property
    def figure(self) -> Figure:
        """The whole figure that contains the panels."""
        found = self.flat[0].get_figure(root=True)
        assert found is not None
        return found

    def finish(self, names: Sequence[str]) -> Figure:
        """Format every panel, and show the names: one as a title, several in a legend."""
        for axes in self.flat:
            tidy(axes)
        if len(names) == 1:
            self.flat[0].set_title(names[0], loc="left", fontsize="medium")
        elif names:
            self.legend(self.flat[0].get_legend_handles_labels()[0], names)
        return self.figure

    def heading(self, lines: Sequence[str]) -> None:
        """Write text above all panels, if the figure contains only them."""
        if self.parent is None:
            return
        width = int(LETTERS_AN_INCH * self.parent.bbox.width / self.figure.dpi)
        held = [line.replace(" %", "\N{NO-BREAK SPACE}%") for line in lines]
        wrapped = [part for line in held for part in textwrap.wrap(line, max(width, 20))]
        text = "\n".join(wrapped).replace("\N{NO-BREAK SPACE}", " ")
        self.parent.suptitle(text, x=0.01, ha="left", fontsize="small")

    def legend(self, handles: Sequence[Any], names: Sequence[str]) -> None:
        """One legend for all panels: below them, or in the first of a user's axes."""
        labels = short_names(names, 60)
        if self.parent is None:
            self.flat[0].legend(handles, labels, fontsize="small")
            return
        columns = max(1, min(len(names), 90 // (max(map(len, labels)) + 8)))
        columns = -(-len(names) // -(-len(names) // columns))  # lines of about the same length
        self.parent.legend(
            handles, labels, loc="outside lower center", ncols=columns, frameon=False,
            fontsize="small",
        )  # fmt: skip
        if self.is_new:
            width, height = self.figure.get_size_inches()
            self.figure.set_size_inches(width, height + 0.22 * -(-len(names) // columns))


def panels(
    surface: Surface | None,
    shape: tuple[int, int],
    size: tuple[float, float],
    *,
    sharex: bool | Literal["col"] = False,
    ratios: Sequence[float] | None = None,
) -> Panels:
    """Rows x columns of panels: in a new figure, in a user's figure, or a user's axes.

    Args:
        surface: None for a new figure; an empty figure or subfigure; or this many axes, as returned
            by ``plt.subplots(rows, columns)``.
        shape: rows and columns.
        size: size of a new figure, in inches.
        sharex: which panels of a figure share the horizontal axis.
        ratios: heights of the rows, relative to each other.

    >>> panels(None, (2, 1), (5.0, 5.0)).grid.shape
    (2, 1)
    """
    figure = parent_of(surface, size)
    if figure is not None:
        grid = figure.subplots(*shape, sharex=sharex, squeeze=False, height_ratios=ratios)
        return Panels(grid, figure, surface is None)
    return Panels(own_axes(surface, shape), None)


def several_panels(
    surface: Surface | None, count: int, columns: int, size: tuple[float, float]
) -> Panels:
    """This many panels, line by line, in at most this many columns.

    Args:
        surface: None for a new figure; an empty figure or subfigure; or this many axes.
        count: number of panels.
        columns: largest number of columns.
        size: size of one panel, in inches.

    >>> several_panels(None, 3, 2, (3.0, 2.0)).grid.shape
    (3, 1)
    """
    columns = min(columns, count)
    rows = -(-count // columns)
    parent = parent_of(surface, (size[0] * columns + 0.6, size[1] * rows + 0.8))
    if parent is None:
        return Panels(own_axes(surface, (count, 1)), None)
    made = list(parent.subplots(rows, columns, squeeze=False).flat)
    for axes in made[count:]:
        axes.remove()
    return Panels(np.array(made[:count], object)[:, None], parent, surface is None)


def parent_of(surface: Any, size: tuple[float, float]) -> Figure | SubFigure | None:
    """The figure in which to make panels: a new one or a user's; None for a user's axes."""
    if surface is None:
        return new_figure(*size)
    from matplotlib.figure import Figure, SubFigure

    if not isinstance(surface, Figure | SubFigure):
        return None
    if surface.axes:
        raise MethodError(
            "The figure given as axes already has panels: give an empty figure, or a part of one "
            "(figure.subfigures), or the axes themselves."
        )
    whole = surface.get_figure(root=True)
    if whole.get_layout_engine() is None:  # otherwise labels overlap, also in subfigures
        whole.set_layout_engine("constrained")
    parent: Figure | SubFigure = surface
    return parent


def own_axes(surface: Any, shape: tuple[int, int]) -> np.ndarray:
    """A user's axes as rows x columns; an error if they are not axes, or not this many."""
    from matplotlib.axes import Axes

    given = np.asarray(surface, object)
    rows, columns = shape
    if not all(isinstance(axes, Axes) for axes in given.flat):
        raise MethodError(
            "axes must be matplotlib axes, or an empty figure or subfigure, not "
            f"{type(surface).__name__}."
        )
    if given.size != rows * columns:
        raise MethodError(
            f"This drawing has {rows} x {columns} panels, but {given.size} axes were given: make "
            f"them with plt.subplots({rows}, {columns}), or give an empty figure."
        )
    return given.reshape(shape)
