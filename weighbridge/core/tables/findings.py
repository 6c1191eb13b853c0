"""Warnings as texts that can also be a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weighbridge.core.pickling import travels
from weighbridge.core.tables.frames import Frame, Tabular
from weighbridge.core.tables.notebook import Page, Shown


@travels()
class Findings(Tabular, Shown, tuple[str, ...]):
    """A tuple of texts, one for each finding, that can become a data frame.

    >>> found = Findings(["Chains disagree.", "Few effective draws."])
    >>> found
    ('Chains disagree.', 'Few effective draws.')
    >>> found.to_pandas()["finding"].tolist()
    ['Chains disagree.', 'Few effective draws.']
    """

    def __new__(cls, texts: Iterable[str] = ()) -> Findings:
        """Keep the texts as they are."""
        return super().__new__(cls, texts)

    def _asdict(self) -> dict[str, Any]:
        """The fields for copies and pickles, as for a named tuple."""
        return {"texts": tuple(self)}

    def _frame(self) -> Frame:
        return Frame({"finding": list(self)})

    def _page(self) -> Page:
        if not self:
            return Page("nothing was found")
        return Page("", ("finding",), {str(n): (text,) for n, text in enumerate(self, 1)})
