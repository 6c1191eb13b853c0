"""How results show themselves in a notebook: a table, reasons for caution, a small figure.

All of it is one piece of HTML with its picture inside: it needs nothing from elsewhere, has no
names that another output could have too, and is still there when the notebook is opened again.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from weighbridge.core.errors import MissingDependencyError, WeighbridgeError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Rows of a table that are shown, and scalar entries that a figure has.
MOST_ROWS = 20
MOST_ENTRIES = 3
# Pixels of an inch, as it is drawn and as it is shown: sharp on a fine screen, and small.
DRAWN, SHOWN = 96, 56
CELL = "padding:2px 8px;white-space:pre-wrap;text-align"


class Page(NamedTuple):
    """What is to be shown.

    Attributes:
        heading: one line.
        columns: headings of the table.
        rows: its cells as texts, by the name of the row.
        remarks: what a user should know, a paragraph each.
        caution: why not to trust the numbers, in a few words; it stands before them.
    """

    heading: str = ""
    columns: Sequence[str] = ()
    rows: Mapping[str, Sequence[str]] = {}
    remarks: Sequence[str] = ()
    caution: str = ""


class Shown:
    """What shows itself in a notebook; a class of this kind tells its ``_page``."""

    def _page(self) -> Page:
        raise NotImplementedError

    def _small_figure(self) -> Figure | None:
        """What is drawn below the table: by default what ``plot`` draws, where there is one."""
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
    """Whether a cell is words, which stand on the left."""
    try:
        float(cell.strip().lstrip("<").replace(",", "") or "0")
    except ValueError:
        return cell.strip() != "unknown"
    return False


def _picture(thing: Shown) -> str:
    """The figure as an image within the text; nothing where there is none to be had.

    One that cannot be drawn (draws that are not finite, ...) must not hide the numbers: in its
    place stands why.
    """
    buffer = io.BytesIO()
    try:
        figure: Any = thing._small_figure()
        if figure is None:
            return ""
        figure.savefig(buffer, format="png", dpi=DRAWN)
    except MissingDependencyError:  # figures are an extra, which nobody asked for here
        return ""
    except Exception as error:  # whatever the drawing of a user's numbers raises
        reason = (str(error).splitlines() or [""])[0]
        kind = "" if isinstance(error, WeighbridgeError) else f"{type(error).__name__}: "
        return f"<p>The figure could not be drawn: {escape(kind + reason)}</p>"
    width = round(SHOWN * figure.get_size_inches()[0])
    image = base64.b64encode(buffer.getvalue()).decode()
    style = f"width:{width}px;max-width:100%;background:white"
    return f'<img alt="figure" style="{style}" src="data:image/png;base64,{image}"/>'
