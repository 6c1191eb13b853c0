"""Ratios of evidences: log Bayes factors of models whose evidences themselves are not known."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weighbridge.core.errors import MethodError
from weighbridge.core.pickling import travels
from weighbridge.core.status import Status, gravest, is_grave
from weighbridge.core.tables.frames import Frame, Tabular, frame_of_models
from weighbridge.core.tables.notebook import Page, Shown
from weighbridge.core.tables.table import Table
from weighbridge.data.fingerprint import Fingerprint
from weighbridge.results.trust import NOT_TRUSTED
from weighbridge.results.wording import caution_of, counted, digits, digits_of_error

AT_MOST, AT_LEAST = "at most", "at least"
# What ratios from posterior draws say, since nothing can show a mode in which no draw is.
OF_DRAWS = "Only modes that are among the posterior draws are part of this ratio."
# The diagnostic with the variances that a method claims, but that must not be used.
UNTRUSTED = "untrusted_variances"


@travels()
@dataclass(frozen=True, eq=False, repr=False)
class EvidenceRatio(Tabular, Shown):
    r"""Log ratios of the evidences of two or more models, with the errors of all their pairs.

    .. math:: \log B_k = \log Z_k - \log Z_1

    The first model is the reference. ``wb.compare(ratio)`` makes a comparison of it, with prior
    odds if they are given.

    Attributes:
        names: names of the models; the first one is the reference.
        log_ratios: log evidence of each model minus that of the reference, in nats.
        variances: squared standard error of the log ratio of every pair of models, models x models;
            NaN with a grave flag. Then those that the method claims are in
            ``diagnostics["untrusted_variances"]``.
        method: the function that made it.
        num_observations: number of rows, repeated rows counted; 0 if there are none to count.
        unvisited: models that the chain never visited. Their log ratio to a model that was visited
            is an upper bound, and has no standard error.
        diagnostics: measurements about the run.
        flags: every reason for caution; empty if there is none.
        remarks: what else to know about the ratio, such as the prior that it is for.
        elapsed: seconds of wall-clock time.
        fingerprint: of the rows; None where there are none.

    >>> errors = np.array([[0.0, 0.01], [0.01, 0.0]])
    >>> ratio = EvidenceRatio(("full", "nested"), np.array([0.0, 2.0]), errors, "savage_dickey")
    >>> print(ratio)
    log Bayes factor of nested against full: 2.00 +- 0.10 (savage_dickey, 0.0 s)
    >>> ratio.log_bayes_factor, ratio.std_error, round(ratio.probabilities["nested"], 3)
    (2.0, 0.1, 0.881)
    """

    names: tuple[str, ...]
    log_ratios: np.ndarray
    variances: np.ndarray
    method: str
    num_observations: int = 0
    unvisited: tuple[str, ...] = ()
    diagnostics: dict[str, Any] = field(default_factory=dict)
    flags: tuple[Status, ...] = ()
    remarks: tuple[str, ...] = ()
    elapsed: float = 0.0
    fingerprint: Fingerprint | None = None

    def __post_init__(self) -> None:
        if not self.is_trusted and np.isfinite(self.variances).all():
            withheld = {UNTRUSTED: self.variances}
            unknown = np.where(np.eye(len(self.names), dtype=bool), 0.0, np.nan)
            object.__setattr__(self, "diagnostics", self.diagnostics | withheld)
            object.__setattr__(self, "variances", unknown)

    @property
    def is_trusted(self) -> bool:
        """Whether no flag is grave: whether numbers and errors may be used as an answer."""
        return not any(map(is_grave, self.flags))

    # --- two models --------------------------------------------------------------------------

    @property
    def log_bayes_factor(self) -> float:
        """Log Bayes factor of the second of two models against the first; perhaps a bound."""
        return self.between(self._other())

    @property
    def std_error(self) -> float:
        """Its standard error; NaN if it is a bound."""
        return self.error_between(self._other())

    @property
    def bound(self) -> str:
        """Whether it is a bound: "at most", "at least", or empty if it is an estimate."""
        return self.bound_between(self._other())

    def _other(self) -> str:
        if len(self.names) != 2:
            raise MethodError(
                f"There are {len(self.names)} models, so there is more than one Bayes factor: see "
                "log_bayes_factors and std_errors, or between(name, against)."
            )
        return self.names[1]

    # --- any number of models ----------------------------------------------------------------

    @property
    def log_bayes_factors(self) -> dict[str, float]:
        """Log Bayes factor of each model against the first; perhaps a bound."""
        return {name: self.between(name) for name in self.names}

    @property
    def std_errors(self) -> dict[str, float]:
        """Standard error of each log Bayes factor against the first; NaN for a bound."""
        return {name: self.error_between(name) for name in self.names}

    @property
    def covariance(self) -> np.ndarray:
        """Covariance of the errors of all log ratios to the first model, models x models."""
        first = self.variances[0]
        return np.asarray(0.5 * (first[:, None] + first[None, :] - self.variances))

    def between(self, name: str, against: str | None = None) -> float:
        """Log Bayes factor of a model against another, by default against the first."""
        one, other = self._places(name, against)
        if name != self.names[other] and {name, self.names[other]} <= set(self.unvisited):
            return math.nan
        return float(self.log_ratios[one] - self.log_ratios[other])

    def error_between(self, name: str, against: str | None = None) -> float:
        """Standard error of that; NaN for a bound."""
        one, other = self._places(name, against)
        return math.sqrt(float(self.variances[one, other])) if one != other else 0.0

    def bound_between(self, name: str, against: str | None = None) -> str:
        """Whether that is a bound: "at most", "at least", or empty."""
        one, other = self._places(name, against)
        is_low, is_high = (self.names[k] in self.unvisited for k in (one, other))
        return "" if is_low == is_high else AT_MOST if is_low else AT_LEAST

    def _places(self, name: str, against: str | None) -> tuple[int, int]:
        unknown = [n for n in (name, against) if n is not None and n not in self.names]
        if unknown:
            raise MethodError(f"There is no model {unknown[0]!r}; there are {list(self.names)}.")
        return self.names.index(name), 0 if against is None else self.names.index(against)

    @property
    def probabilities(self) -> dict[str, float]:
        """Posterior probability of each model, at equal prior odds.

        For other odds, and for the errors: ``wb.compare(ratio, prior_odds=...)``.
        """
        share = np.exp(self.log_ratios - np.logaddexp.reduce(self.log_ratios))
        return dict(zip(self.names, share.tolist()))

    @property
    def best(self) -> str | None:
        """Name of the model with the largest evidence; None with a grave flag."""
        return self.leader if self.is_trusted else None

    @property
    def leader(self) -> str:
        """Name of the model with the largest evidence, of those that were visited."""
        seen = [name for name in self.names if name not in self.unvisited]
        return max(seen, key=lambda name: float(self.log_ratios[self.names.index(name)]))

    @property
    def status(self) -> Status:
        """The most serious flag: the first grave one, or the first; or ``Status.OK``."""
        return gravest(self.flags)

    @property
    def caution(self) -> str:
        """The reasons for caution in a few words; empty if there are none."""
        return caution_of(self.flags)

    # --- shown -------------------------------------------------------------------------------

    def _value(self, name: str) -> tuple[str, str]:
        """The log Bayes factor against the first and its error, as texts."""
        if name == self.names[0]:
            return "0", ""
        value, error = self.between(name), self.error_between(name)
        bound = self.bound_between(name)
        if bound:
            return f"{bound} {value:.2f}", "unknown"
        return digits(value, error), digits_of_error(error) if self.is_trusted else NOT_TRUSTED

    def _about(self) -> str:
        about = [self.method]
        if self.num_observations:
            about.append(counted(self.num_observations))
        return ", ".join([*about, f"{self.elapsed:.1f} s"])

    def _heading(self) -> str:
        if len(self.names) != 2:
            return f"log Bayes factors against {self.names[0]} ({self._about()})"
        value, error = self._value(self.names[1])
        text = f"log Bayes factor of {self.names[1]} against {self.names[0]}: {value}"
        beside = "" if self.bound else f" +- {error}" if self.is_trusted else f", {error}"
        return f"{text}{beside} ({self._about()})"

    def _table(self) -> Table:
        share = self.probabilities
        rows = {n: (*self._value(n), f"{share[n]:.4f}") for n in self.names}
        return Table(("log Bayes factor", "+-", "probability"), rows)

    def __str__(self) -> str:
        lines = [self._heading()]
        if len(self.names) != 2:
            lines.append(str(self._table()))
        return "\n".join([*lines, *(f"  {text}" for text in (*self.flags, *self.remarks))])

    def __repr__(self) -> str:
        return f"<EvidenceRatio: {self._heading()}; {self.status.label}>"

    def _page(self) -> Page:
        table, below = self._table(), [*map(str, self.flags), *self.remarks]
        return Page(self._heading(), table.columns, table.texts(), below, self.caution)

    def _frame(self) -> Frame:
        columns: dict[str, dict[str, Any]] = {
            "log_bayes_factor": self.log_bayes_factors,
            "std_error": self.std_errors,
            "bound": {name: self.bound_between(name) for name in self.names},
            "probability": self.probabilities,
        }
        return frame_of_models(columns, self.names)

    def to_json(self) -> str:
        """The numbers as one line of JSON; unknown numbers are null."""

        def clean(values: dict[str, float]) -> dict[str, float | None]:
            return {name: v if math.isfinite(v) else None for name, v in values.items()}

        return json.dumps(
            {
                "reference": self.names[0],
                "log_bayes_factors": clean(self.log_bayes_factors),
                "std_errors": clean(self.std_errors),
                "unvisited": list(self.unvisited),
                "probabilities": clean(self.probabilities),
                "num_observations": self.num_observations,
                "method": self.method,
                "trusted": self.is_trusted,
                "status": [flag.name for flag in self.flags] or [Status.OK.name],
                "remarks": list(self.remarks),
                "elapsed": self.elapsed,
            }
        )
