"""The result of a cross-check: methods that fail for different reasons, held against each other."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from weighbridge.core import checkpoint_file
from weighbridge.core.errors import MethodError
from weighbridge.core.pickling import travels
from weighbridge.core.saved_content import items, record, text
from weighbridge.core.tables.frames import Frame, Tabular
from weighbridge.core.tables.notebook import Page, Shown
from weighbridge.core.tables.table import Table
from weighbridge.estimators.choosing import distrust
from weighbridge.plots.cross_check import plot_cross_check
from weighbridge.results.evidence_result import Evidence
from weighbridge.results.saved_content import ABOUT, EVIDENCE
from weighbridge.results.wording import digits, digits_of_error
from weighbridge.weighing.agreement import (
    all_agree,
    check_probability,
    distance,
    most_exact,
    path_lower_bound,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

SCHEMA = "weighbridge.cross_check.1"
AGREE, DISAGREE, UNDECIDED = "agree", "disagree", "undecided"
# The probability with which the lower bound holds that is printed and drawn.
CERTAINTY = 0.95
SAVED = record(
    {
        "methods": items(text, different=True),
        "results": record({}, others=EVIDENCE),
        "failures": record({}, others=text),
    },
    ABOUT,
)


@travels()
@dataclass(frozen=True, eq=False, repr=False)
class CrossCheck(Tabular, Shown):
    """The log evidence of one model by several methods, and whether they agree.

    Attributes:
        results: what each method found, by its name.
        failures: why other methods gave no result, by their names.

    >>> from weighbridge.results.trace import Trace
    >>> def found(z, error, method):
    ...     return Evidence(z, error, 9, method, Trace(), {}, np.zeros(1))
    >>> check = CrossCheck({"smc": found(-9.0, 0.1, "smc"), "nested": found(-8.9, 0.2, "nested")})
    >>> check.verdict, check.answer.method
    ('agree', 'smc')
    >>> CrossCheck({"smc": found(-9.0, 0.1, "smc"), "nested": found(-8.0, 0.1, "nested")}).verdict
    'disagree'
    """

    results: dict[str, Evidence]
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def trusted(self) -> dict[str, Evidence]:
        """The results without a grave flag, with an error of at most a nat."""
        return {name: result for name, result in self.results.items() if not distrust(result)}

    @property
    def verdict(self) -> str:
        """Either "agree", "disagree", or "undecided" if fewer than two results are to be trusted.

        Results disagree if two of them differ by more than four of their errors together, or by
        more than three and half a nat.
        """
        trusted = list(self.trusted.values())
        if not all_agree(trusted):
            return DISAGREE
        return AGREE if len(trusted) > 1 else UNDECIDED

    @property
    def answer(self) -> Evidence:
        """The most exact of the results, if the methods agree; else an error."""
        if self.verdict != AGREE:
            raise MethodError(
                f"There is no answer: {self.heading}. Look at results, and see the remedies of "
                "their flags."
            )
        return most_exact(list(self.trusted.values()))

    @property
    def differences(self) -> dict[tuple[str, str], float]:
        """The difference of each pair of results, in units of their errors; NaN if unknown."""
        pairs = combinations(self.results, 2)
        return {(a, b): distance(self.results[a], self.results[b]) for a, b in pairs}

    def lower_bound(self, certainty: float = CERTAINTY) -> float:
        r"""A lower bound on the log evidence that holds with at least this probability.

        .. math:: \Pr[\log Z \ge \log \hat Z - b] \ge 1 - e^{-b}

        This is Markov's inequality (Cameron 2020, MSc thesis, eq. 3.10) for a path's mean of Z over
        islands, here for the largest such mean. It holds for real data, and does not need the
        stated error to be right. There is no such bound from above. NaN if no method is a path.

        Args:
            certainty: 1 - exp(-b); several paths share the rest.
        """
        check_probability(certainty)
        paths = [r for r in self.results.values() if not math.isnan(path_lower_bound(r, 0.5))]
        each = 1.0 - (1.0 - certainty) / max(len(paths), 1)
        return max((path_lower_bound(path, each) for path in paths), default=math.nan)

    @property
    def heading(self) -> str:
        """The verdict in one line."""
        names = ", ".join(self.trusted) or "none"
        if self.verdict == UNDECIDED:
            return (
                f"cross-check: undecided, since fewer than two results are to be trusted ({names})"
            )
        largest = max(
            abs(value) for pair, value in self.differences.items() if set(pair) <= set(self.trusted)
        )
        return f"cross-check: {names} {self.verdict} (up to {largest:.1f} errors apart)"

    def _table(self) -> Table:
        rows = {}
        centre = most_exact(list(self.trusted.values())) if self.trusted else None
        for name, result in self.results.items():
            apart = math.nan if centre is None else distance(result, centre)
            rows[name] = (
                digits(result.log_evidence, result.std_error),
                digits_of_error(result.std_error),
                "" if result is centre else "unknown" if math.isnan(apart) else f"{apart:+.1f}",
                f"{result.elapsed:.1f}",
                distrust(result),
            )
        columns = ("log evidence", "+-", "errors apart", "seconds", "not trusted")
        if not any(row[-1] for row in rows.values()):
            return Table(columns[:-1], {name: row[:-1] for name, row in rows.items()})
        return Table(columns, rows)

    def _remarks(self) -> list[str]:
        found = [f"{name} gave no result: {reason}" for name, reason in self.failures.items()]
        bound = self.lower_bound()
        if not math.isnan(bound):
            found.append(
                f"with a probability of at least {CERTAINTY} the log evidence is above "
                f"{bound:.2f}, whatever the errors are (Markov's inequality for the path's mean "
                "of Z)"
            )
        flags = dict.fromkeys(flag for result in self.results.values() for flag in result.flags)
        for flag in flags:
            names = [name for name, result in self.results.items() if flag in result.flags]
            found.append(f"{', '.join(names)}: {flag}")
        return found

    def __str__(self) -> str:
        remarks = (f"  {remark}" for remark in self._remarks())
        return "\n".join([self.heading, str(self._table()), *remarks])

    def __repr__(self) -> str:
        return f"<CrossCheck: {self.heading}>"

    def _page(self) -> Page:
        table = self._table()
        return Page(self.heading, table.columns, table.texts(), self._remarks())

    def _frame(self) -> Frame:
        centre = most_exact(list(self.trusted.values())) if self.trusted else None
        results = self.results.values()
        return Frame(
            {
                "log_evidence": [r.log_evidence for r in results],
                "std_error": [r.std_error for r in results],
                "errors_apart": [math.nan if not centre else distance(r, centre) for r in results],
                "seconds": [r.elapsed for r in results],
                "status": [", ".join(f.name for f in r.flags) or "OK" for r in results],
            },
            list(self.results),
            "method",
        )

    def plot(self, *, axes: Surface | None = None) -> Figure:
        """The log evidence of each method with two standard errors, and the lower bound of a path.

        Args:
            axes: where to draw: an empty matplotlib figure or subfigure, or one axes.
        """
        return plot_cross_check(
            {name: (r.log_evidence, r.std_error) for name, r in self.results.items()},
            cautions={name: distrust(result) for name, result in self.results.items()},
            lower_bound=self.lower_bound(),
            axes=axes,
        )

    def to_json(self) -> str:
        """The verdict and the results without draws, as one line of JSON."""
        bound = self.lower_bound()
        return json.dumps(
            {
                "verdict": self.verdict,
                "lower_bound": None if math.isnan(bound) else bound,
                "results": {name: json.loads(r.to_json()) for name, r in self.results.items()},
                "failures": self.failures,
            }
        )

    def save(self, path: str | Path) -> None:
        """Write all results to one safetensors file; ``load`` reads them back exactly."""
        arrays: dict[str, np.ndarray] = {}
        told = {}
        for name, result in self.results.items():
            own, told[name] = result.to_file_content()
            arrays |= {f"{name}/{key}": array for key, array in own.items()}
        metadata = {"methods": list(told), "results": told, "failures": self.failures}
        checkpoint_file.write(path, SCHEMA, arrays, metadata)

    @classmethod
    def load(cls, path: str | Path) -> CrossCheck:
        """Read a cross-check that ``save`` wrote; a damaged file raises a ``CheckpointError``."""
        arrays, metadata = checkpoint_file.read(path, SCHEMA)
        with checkpoint_file.refusing(path, "cross-check"):
            SAVED(metadata, "metadata")
            results: dict[str, Evidence] = {}
            for name in metadata["methods"]:
                begin = f"{name}/"
                own = {key[len(begin) :]: a for key, a in arrays.items() if key.startswith(begin)}
                results[name] = Evidence.from_file_content(own, metadata["results"][name])
            return cls(results, metadata["failures"])
