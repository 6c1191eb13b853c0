"""The results of the checks as a table, with a remedy for each failed check."""

from __future__ import annotations

from dataclasses import dataclass

from weighbridge.core.pickling import travels
from weighbridge.core.tables.frames import Frame, Tabular
from weighbridge.core.tables.notebook import Page, Shown
from weighbridge.core.tables.table import Table

WORDS = {True: "pass", False: "FAIL", None: "-"}


@travels()
@dataclass(frozen=True)
class Check:
    """One check of a model.

    Attributes:
        name: name of the check.
        passed: whether it passed; None if it could not be done, with the reason in ``found``.
        found: the finding.
        remedy: what to do if it failed.
    """

    name: str
    passed: bool | None
    found: str
    remedy: str = ""


@travels()
@dataclass(frozen=True)
class ModelReport(Tabular, Shown):
    """The checks of a model; it prints as a table, and ``passed`` tells whether none failed.

    >>> report = ModelReport((Check("prior", True, "finite"), Check("rows", False, "no", "Sum.")))
    >>> report.passed, report["rows"].passed
    (False, False)
    >>> print(report)
           outcome  found
    prior     pass  finite
    rows      FAIL  no
      rows: Sum.
    """

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.passed is not False for check in self.checks)

    def __getitem__(self, name: str) -> Check:
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(f"There is no check {name!r}; there are {[c.name for c in self.checks]}.")

    def __str__(self) -> str:
        width = max((len(check.found) for check in self.checks), default=0)  # align texts left
        rows = {c.name: (WORDS[c.passed], c.found.ljust(width)) for c in self.checks}
        remedies = (f"  {text}" for text in self._remedies())
        return "\n".join([str(Table(("outcome", "found".ljust(width)), rows)), *remedies])

    def _remedies(self) -> list[str]:
        return [f"{check.name}: {check.remedy}" for check in self.checks if check.passed is False]

    def _frame(self) -> Frame:
        columns = {
            "outcome": [WORDS[check.passed] for check in self.checks],
            "found": [check.found for check in self.checks],
            "remedy": [check.remedy for check in self.checks],
        }
        return Frame(columns, [check.name for check in self.checks], "check")

    def _page(self) -> Page:
        rows = {check.name: (WORDS[check.passed], check.found) for check in self.checks}
        heading = "all checks passed" if self.passed else "some checks failed"
        return Page(heading, ("outcome", "found"), rows, self._remedies())
