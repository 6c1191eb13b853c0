"""Results in a notebook: a table, reasons for caution, and a small figure.

Everything is one piece of HTML that includes its picture. It loads nothing from elsewhere, uses no
element names that could clash with other outputs, and is still there when the notebook is opened
again.
"""

from __future__ import annotations

import base64
import io
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from weighbridge.core.errors import MissingDependencyError, WeighbridgeError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Largest number of table rows, and of scalar entries in a figure.
MOST_ROWS = 20
MOST_ENTRIES = 3
# Pixels per inch, drawn and shown: drawn finer than shown, so that it is sharp on fine screens.
DRAWN, SHOWN = 96, 56
CELL = "padding:2px 8px;white-space:pre-wrap;text-align"


class Page(NamedTuple):
    """The contents to show.

    Attributes:
        heading: one line.
        columns: headings of the table.
        rows: its cells as texts, by the name of the row.
        remarks: notes for the user, one paragraph each.
        caution: why the numbers should not be trusted, in a few words; shown before them.
    """

    heading: str = ""
    columns: Sequence[str] = ()
    rows: Mapping[str, Sequence[str]] = {}
    remarks: Sequence[str] = ()
    caution: str = ""


class Shown(ABC):
    """Base of classes with a notebook view; a subclass defines ``_page``."""

    @abstractmethod
    def _page(self) -> Page:
        """The contents of the view."""

    def _small_figure(self) -> Figure | None:
        """The figure below the table: by default the figure of ``plot``, if there is one."""
        plot = getattr(self, "plot", None)
        return None if plot is None else plot()

    def _repr_html_(self) -> str:
        return html_of(self._page()) + _picture(self)


def html_of(page: Page) -> str:
    """A page as HTML, without its figure.

    >>> html_of(Page("a < b", ("mean",), {"w": ("0.5",)}))
    '<p>a &lt; b</p><table...<td style="...:right">0.5</td></tr></tbody></table>'
    """
    parts = [f"<p>{escape(page.heading)}</p>"] if page.heading else []
    if page.caution:
        parts.append(f'<p style="font-weight:bold">{escape(page.caution)}</p>')
    if page.rows:
        parts.append(_table(page.columns, page.rows))
    if page.remarks:
        items = "".join(f"<li>{escape(text)}</li>" for text in page.remarks)
        parts.append(f'<ul style="max-width:50em">{items}</ul>')
    return "".join(parts)


def _table(columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    shown = list(rows.items())[:MOST_ROWS]
    is_text = [any(_is_text(cells[k]) for _, cells in shown) for k in range(len(columns))]
    sides = ["left" if text else "right" for text in is_text]
    heads = "".join(
        f'<th style="{CELL}:{side}">{escape(name)}</th>' for name, side in zip(columns, sides)
    )
    body = []
    for name, cells in shown:
        written = "".join(
            f'<td style="{CELL}:{side}">{escape(cell)}</td>' for cell, side in zip(cells, sides)
        )
        body.append(f'<tr><th style="{CELL}:left">{escape(name)}</th>{written}</tr>')
    more = len(rows) - len(shown)
    below = f"<p>and {more:,} more</p>" if more else ""
    return (
        '<table style="border-collapse:collapse">'
        f"<thead><tr><th></th>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table>{below}"
    )


def _is_text(cell: str) -> bool:
    """Whether a cell holds words, which are aligned to the left."""
    try:
        float(cell.strip().lstrip("<").replace(",", "") or "0")
    except ValueError:
        return cell.strip() != "unknown"
    return False


def _picture(thing: Shown) -> str:
    """The figure as an image inside the HTML; empty if there is no figure.

    A figure that cannot be drawn (for example because draws are not finite) must not hide the
    numbers: the reason is shown in its place.
    """
    buffer = io.BytesIO()
    try:
        figure: Any = thing._small_figure()
        if figure is None:
            return ""
        figure.savefig(buffer, format="png", dpi=DRAWN)
    except MissingDependencyError:  # matplotlib is optional, and no figure was requested
        return ""
    except Exception as error:  # drawing a user's numbers can raise anything
        reason = (str(error).splitlines() or [""])[0]
        kind = "" if isinstance(error, WeighbridgeError) else f"{type(error).__name__}: "
        return f"<p>The figure could not be drawn: {escape(kind + reason)}</p>"
    width = round(SHOWN * figure.get_size_inches()[0])
    image = base64.b64encode(buffer.getvalue()).decode()
    style = f"width:{width}px;max-width:100%;background:white"
    return f'<img alt="figure" style="{style}" src="data:image/png;base64,{image}"/>'
