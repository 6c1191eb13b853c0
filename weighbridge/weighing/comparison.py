"""The result of comparing models: Bayes factors and probabilities, with errors, as a table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weighbridge.core.errors import MethodError
from weighbridge.core.pickling import travels
from weighbridge.core.status import Status, gravest
from weighbridge.core.tables.frames import Frame, Tabular, frame_of_models
from weighbridge.core.tables.notebook import Page, Shown
from weighbridge.core.tables.table import Table
from weighbridge.plots.models import plot_comparison
from weighbridge.results.evidence_ratio import AT_LEAST, AT_MOST, EvidenceRatio
from weighbridge.results.evidence_result import Evidence
from weighbridge.results.trust import NOT_TRUSTED, is_decided, trust
from weighbridge.results.wording import (
    caution_of,
    counted,
    error_or_trust,
    left_out,
    with_bound,
)
from weighbridge.weighing.cross_check import CrossCheck

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

UNDECIDED = "undecided (error too large)"
GRAVE = "undecided (not to be trusted)"
# Jeffreys (1961), appendix B, in nats: half-decades of the Bayes factor.
JEFFREYS = (
    (0.5 * math.log(10), "barely worth mentioning"),
    (math.log(10), "substantial"),
    (1.5 * math.log(10), "strong"),
    (2 * math.log(10), "very strong"),
)


@travels()
@dataclass(frozen=True)
class Comparison(Tabular, Shown):
    """Models ranked by their evidence; print it, or read its mappings by model name.

    Attributes:
        log_evidences: log evidence of each model.
        std_errors: their standard errors; NaN where unknown, and with a grave flag.
        log_bayes_factors: log Bayes factor of each model against the one with the largest evidence.
        probabilities: posterior probability of each model.
        probability_errors: standard deviation of the probabilities, due to the errors of the log
            evidences; NaN if one of these errors is unknown.
        num_observations: rows that every model was weighed on.
        rows_skipped: bad rows that were left out.
        rows_quarantined: bad rows that were written to a file.
        flags: reasons for caution of each model; empty where there is none.
        results: the evidence of each model, with its posterior and its path.
        remarks: further notes for the user, such as that the data differ.
        left_out: models that had no result yet when the run was interrupted.
        ratio: the ratio of evidences that the comparison was made of. The log evidences are then
            unknown (NaN), and the factors may be bounds (``bound``).
        cross_checks: for each model, what other methods say of its evidence, if asked for.
        trust: what grave flags make of the log evidence of each model: "at least", a lower bound;
            "not to be trusted"; or empty. By default it follows from the flags.

    If an evidence with a grave flag makes the order uncertain, the comparison is undecided, and
    ``best`` is None. It is decided if only the leading model has such a flag, and its evidence is a
    lower bound: then the truth puts it even further ahead.

    After an interruption the models cannot be compared if one of them was left out, if they have
    seen different numbers of rows, or if one has not reached power 1 of the likelihood. Factors
    and probabilities are then NaN, and there is no best model.
    """

    log_evidences: dict[str, float]
    std_errors: dict[str, float]
    log_bayes_factors: dict[str, float]
    probabilities: dict[str, float]
    probability_errors: dict[str, float]
    num_observations: int
    rows_skipped: int = 0
    rows_quarantined: int = 0
    flags: dict[str, tuple[Status, ...]] = field(default_factory=dict)
    results: dict[str, Evidence] = field(default_factory=dict, repr=False)
    remarks: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    ratio: EvidenceRatio | None = field(default=None, repr=False)
    trust: dict[str, str] = field(default_factory=dict, repr=False)
    cross_checks: dict[str, CrossCheck] = field(default_factory=dict, repr=False)

    @property
    def is_complete(self) -> bool:
        """Whether the models can be compared; False after some interruptions."""
        factors = self.log_bayes_factors
        return not any(
            math.isnan(factors[name]) and math.isfinite(value)
            for name, value in self.log_evidences.items()
        )

    @property
    def best(self) -> str | None:
        """Name of the model with the largest evidence; None if the comparison is undecided."""
        return self.leader if self.is_decided else None

    @property
    def leader(self) -> str:
        """Name of the model with the largest log evidence, whatever its flags."""
        self.require_complete()
        if self.ratio is not None:
            return self.ratio.leader
        return max(self.log_evidences, key=self.log_evidences.__getitem__)

    @property
    def is_decided(self) -> bool:
        """Whether the leading model is the best, despite grave flags; errors are not looked at."""
        return is_decided(self.leader, self._trusts())

    def _trusts(self) -> dict[str, str]:
        """What to think of the evidence of each model."""
        return {n: self.trust.get(n, trust("", self.flags.get(n, ()))) for n in self.log_evidences}

    @property
    def ranking(self) -> list[str]:
        """Names of the models, the largest evidence first.

        Models that are not finished, or that a chain never visited, come last.
        """
        if self.ratio is not None:
            factors, unvisited = self.log_bayes_factors, self.ratio.unvisited
            return sorted(factors, key=lambda n: (n in unvisited, -factors[n], n != self.leader))
        powers = self._powers()

        def sort_key(name: str) -> tuple[bool, float]:
            return powers.get(name, 1.0) >= 1, self.log_evidences[name]

        return sorted(self.log_evidences, key=sort_key, reverse=True)

    def _powers(self) -> dict[str, float]:
        """The power of the likelihood that the path of each model has reached; 1 is its end."""
        return {n: r.diagnostics.get("power_reached", 1.0) for n, r in self.results.items()}

    @property
    def columns_left_out(self) -> list[str]:
        """Columns of the data that do not hold numbers and that no model read."""
        names = [name for result in self.results.values() for name in result.columns_left_out]
        return list(dict.fromkeys(names))

    def bayes_factor_error(self, name: str) -> float:
        """Standard error of a model's log Bayes factor against the leading one."""
        if not self.is_complete:
            return math.nan
        if self.ratio is not None:
            return self.ratio.error_between(name, self.leader)
        return (
            0.0
            if name == self.leader
            else math.hypot(self.std_errors[name], self.std_errors[self.leader])
        )

    def bound(self, name: str) -> str:
        """Whether a log Bayes factor is a bound: "at most", "at least", or empty.

        It is one if a chain over several models (``wb.product_space``) never visited this one, and
        if one of the two evidences is a lower bound.
        """
        if self.ratio is not None:
            return self.ratio.bound_between(name, self.leader)
        own, best = (self._trusts()[model] for model in (name, self.leader))
        if name == self.leader or (own and best):
            return ""
        return AT_MOST if best == AT_LEAST else AT_LEAST if own == AT_LEAST else ""

    def _factor(self, name: str) -> str:
        if not self.is_complete:
            return "unknown"
        return f"{self.bound(name)} {self.log_bayes_factors[name]:.2f}".strip()

    def _table(self) -> Table:
        columns = (
            *(("log evidence", "+-") if self.ratio is None else ()),
            "log Bayes factor",
            "+-",
            "probability",
            "+-",
            "against it",
        )
        flagged = any(self.flags.values())
        rows = {}
        for name in self.ranking:
            rows[name] = (
                *self._evidence_texts(name),
                self._factor(name),
                error_or_trust(self.bayes_factor_error(name), self._trust_beside(name)),
                _small(self.probabilities[name]),
                self._probability_error(name),
                self._against(name),
                *([_most_serious(self.flags.get(name, ()))] if flagged else []),
            )
        return Table((*columns, "caution") if flagged else columns, rows)

    def _evidence_texts(self, name: str) -> tuple[str, ...]:
        if self.ratio is not None:
            return ()
        word = self._trusts()[name]
        value = with_bound(f"{self.log_evidences[name]:.2f}", word)
        return value, error_or_trust(self.std_errors[name], word)

    def _trust_beside(self, name: str) -> str:
        """Why the factor of a model has no error, if its evidence or the best is no bound."""
        if not self.is_complete or name == self.leader or self.bound(name):
            return ""
        words = [self._trusts()[model] for model in (name, self.leader)]
        return NOT_TRUSTED if any(words) else ""

    def _probability_error(self, name: str) -> str:
        """The error of a probability, or what grave flags make of all of them."""
        if not self.is_complete or not any(self._trusts().values()):
            return _small(self.probability_errors[name])
        if not self.is_decided:
            return NOT_TRUSTED
        return "lower bound" if name == self.leader else "upper bound"

    @property
    def caution(self) -> str:
        """A short note that names the models whose evidences are flagged; empty if none is.

        Every probability depends on the evidences of all models.
        """
        flagged = [name for name in self.ranking if self.flags.get(name)]
        if not flagged:
            return ""
        names = ", ".join(flagged)
        if not self.is_complete or self.is_decided:
            return f"caution: factors and probabilities depend on flagged evidences: {names}"
        grave = [name for name in self.ranking if self._trusts()[name]]
        return (
            "undecided: no model is the best, and factors and probabilities are not to be trusted, "
            f"because of grave flags: {', '.join(grave)}"
        )

    def _about_rows(self) -> str:
        if not self.num_observations:  # a total log-likelihood has no rows to count
            return ""
        return counted(self.num_observations) + left_out(self.rows_skipped, self.rows_quarantined)

    def _cautions(self) -> list[str]:
        found = [self.caution] if self.caution else []
        if not self.is_complete:
            found.append("interrupted: these models cannot be compared yet")
        found += [
            f"{name}: this is the value at power {power:.3g}, not the log evidence"
            for name, power in self._powers().items()
            if power < 1
        ]
        if self.left_out:
            found.append(f"left out, because they had no result yet: {', '.join(self.left_out)}")
        for flag in dict.fromkeys(flag for flags in self.flags.values() for flag in flags):
            names = [name for name in self.ranking if flag in self.flags.get(name, ())]
            found.append(f"{', '.join(names)}: {flag}")
        found += [f"{name}: {check.heading}" for name, check in self.cross_checks.items()]
        of_results = (remark for result in self.results.values() for remark in result.remarks)
        return [*found, *dict.fromkeys([*self.remarks, *of_results])]

    def __str__(self) -> str:
        cautions = (f"  {text}" for text in self._cautions())
        lines = [str(self._table()), self._about_rows(), *cautions]
        return "\n".join(filter(None, lines))

    def _frame(self) -> Frame:
        names, trusts = self.ranking, self._trusts()
        evidences = {"log_evidence": self.log_evidences, "std_error": self.std_errors}
        columns: dict[str, Mapping[str, float | str]] = {
            **(evidences if self.ratio is None else {}),
            "log_bayes_factor": self.log_bayes_factors,
            "bayes_factor_error": {name: self.bayes_factor_error(name) for name in names},
            "probability": self.probabilities,
            "probability_error": self.probability_errors,
            "verdict": {name: self._against(name) for name in names},
            "trust": trusts,
            "status": {n: ", ".join(f.name for f in self.flags.get(n, ())) or "OK" for n in names},
        }
        return frame_of_models(columns, names)

    def _page(self) -> Page:
        table = self._table()
        remarks = [text for text in self._cautions() if text != self.caution]
        return Page(self._about_rows(), table.columns, table.texts(), remarks, self.caution)

    def verdict(self, name: str) -> str:
        """Strength of the evidence against a model, in Jeffreys' words if its error is small."""
        if not self.is_complete:
            return "unknown (interrupted)"
        factor, error = self.log_bayes_factors[name], self.bayes_factor_error(name)
        words = [self._trusts()[model] for model in (name, self.leader)]
        if self.bound(name) == AT_MOST:
            known = self.std_errors[name]  # NaN if it is the factor itself that is a bound
            highest = factor if math.isnan(known) else factor + 2 * known
            return f"{jeffreys(highest)} or more" if highest < 0 else UNDECIDED
        if any(words):
            return GRAVE
        if math.isnan(error):
            return f"{jeffreys(factor)} (error unknown)"
        is_small = jeffreys(abs(factor) + 2 * error) == jeffreys(0.0)
        return jeffreys(factor) if is_small or abs(factor) > 2 * error else UNDECIDED

    def _against(self, name: str) -> str:
        if not self.is_complete or name == self.best:
            return ""
        return GRAVE if name == self.leader else self.verdict(name)

    def require_complete(self) -> None:
        """Raise an error if the models cannot be compared because of an interruption."""
        if not self.is_complete:
            raise MethodError(
                "The run was interrupted before its models could be compared: there is no best "
                "model. Run it again, and let it finish."
            )

    def plot(self, *, axes: Surface | None = None) -> Figure:
        """Log Bayes factors and probabilities with their errors, the best model on top.

        For sequential methods a panel below shows the factors as a function of the rows.

        Args:
            axes: where to draw: an empty matplotlib figure or subfigure, or two axes (without
                the panel below).

        >>> import numpy as np
        >>> from weighbridge import Trace, compare
        >>> def fake(z): return Evidence(z, 0.1, 100, "smc", Trace(), {}, np.zeros(1))
        >>> figure = compare({"a": fake(-10.0), "b": fake(-13.0)}).plot()
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['a', 'b']
        """
        self.require_complete()
        return plot_comparison(
            {n: (self.log_bayes_factors[n], self.bayes_factor_error(n)) for n in self.ranking},
            {n: (self.probabilities[n], self.probability_errors[n]) for n in self.ranking},
            decisive=JEFFREYS[-1][0],
            traces={name: result.trace for name, result in self.results.items()},
            cautions={name: caution_of(flags) for name, flags in self.flags.items() if flags},
            bounds={
                name: self.bound(name) or self._trust_beside(name)
                for name in self.ranking
                if self.bound(name) or self._trust_beside(name)
            },
            undecided=not self.is_decided,
            axes=axes,
        )

    def to_json(self) -> str:
        """The comparison as one line of JSON; numbers that are not finite are null."""

        def clean(values: dict[str, float]) -> dict[str, float | None]:
            return {name: v if math.isfinite(v) else None for name, v in values.items()}

        return json.dumps(
            {
                "best": self.best if self.is_complete else None,
                "trust": self._trusts(),
                "left_out": list(self.left_out),
                "num_observations": self.num_observations,
                "log_evidences": clean(self.log_evidences),
                "std_errors": clean(self.std_errors),
                "log_bayes_factors": clean(self.log_bayes_factors),
                "probabilities": clean(self.probabilities),
                "probability_errors": clean(self.probability_errors),
                "rows_skipped": self.rows_skipped,
                "rows_quarantined": self.rows_quarantined,
                "remarks": list(self.remarks),
                "columns_left_out": self.columns_left_out,
                "status": {
                    name: [flag.name for flag in self.flags.get(name, ())] or [Status.OK.name]
                    for name in self.log_evidences
                },
            }
        )


def jeffreys(log_bayes_factor: float) -> str:
    """Jeffreys' word for the strength of a log Bayes factor.

    >>> jeffreys(1.0), jeffreys(100.0)
    ('barely worth mentioning', 'decisive')
    """
    for bound, word in JEFFREYS:
        if abs(log_bayes_factor) < bound:
            return word
    return "decisive"


def _most_serious(flags: Sequence[Status]) -> str:
    """The most serious flag, and the number of the others.

    >>> _most_serious([Status.HEATED, Status.LOW_ESS]), _most_serious([])
    ('heated, and 1 more', '')
    """
    if not flags:
        return ""
    return gravest(flags).label + (f", and {len(flags) - 1} more" if len(flags) > 1 else "")


def _small(value: float) -> str:
    """A probability or its error, with four decimals."""
    if math.isnan(value):
        return "unknown"
    return f"{value:.4f}" if value >= 5e-5 else "<0.0001"
