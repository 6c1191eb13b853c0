"""The checks of a model as a table, with a remedy for each that failed."""

from __future__ import annotations

from dataclasses import dataclass

from weighbridge.export import Table


@dataclass(frozen=True)
class Check:
    """One check of a model.

    Attributes:
        name: what was checked.
        passed: None if it could not be checked; why is in ``found``.
        found: what was seen.
        remedy: what to do if it failed.
    """

    name: str
    passed: bool | None
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class ModelReport:
    """The checks of a model; print it, or ask whether all ``passed``.

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
        words = {True: "pass", False: "FAIL", None: "-"}
        width = max((len(check.found) for check in self.checks), default=0)  # texts stand left
        rows = {c.name: (words[c.passed], c.found.ljust(width)) for c in self.checks}
        failed = [check for check in self.checks if check.passed is False]
        remedies = (f"  {check.name}: {check.remedy}" for check in failed)
        return "\n".join([str(Table(("outcome", "found".ljust(width)), rows)), *remedies])
