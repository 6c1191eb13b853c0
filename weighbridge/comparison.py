"""Models weighed against each other: Bayes factors and probabilities, with their errors."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from weighbridge import plots
from weighbridge.admission import QuarantineFile, refuse_pymc
from weighbridge.announcing import announce
from weighbridge.base import MethodError, Status
from weighbridge.competitor import Competitor, as_it_is
from weighbridge.data import RowPolicy
from weighbridge.estimators import Method, choose
from weighbridge.export import Table
from weighbridge.interrupts import interruptible
from weighbridge.model import Model
from weighbridge.notebook import Page, Shown
from weighbridge.progress import Reporter, choose_reporter
from weighbridge.result import SMALL_ERROR, Evidence, counted, left_out
from weighbridge.rounds import Limits
from weighbridge.tabular import Frame, Tabular, frame_of_models
from weighbridge.travel import travels
from weighbridge.weighing import open_common, weigh_together

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

NUM_DRAWS = 4000
UNDECIDED = "undecided (error too large)"
# Jeffreys (1961), appendix B, in nats: half-decades of the Bayes factor.
JEFFREYS = (
    (0.5 * math.log(10), "barely worth mentioning"),
    (math.log(10), "substantial"),
    (1.5 * math.log(10), "strong"),
    (2 * math.log(10), "very strong"),
)


class BadRows(NamedTuple):
    """What becomes of rows that a model cannot use, and the file that they go to."""

    on_bad_row: RowPolicy
    quarantine: QuarantineFile | None


@travels()
@dataclass(frozen=True)
class Comparison(Tabular, Shown):
    """Models ranked by their evidence; print it, or read its mappings by model name.

    Attributes:
        log_evidences: log evidence of each model.
        std_errors: their standard errors; NaN where unknown.
        log_bayes_factors: log Bayes factor of each model against the best.
        probabilities: posterior probability of each model.
        probability_errors: standard deviation of that probability under the errors of the log
            evidences; NaN where one of them is unknown.
        num_observations: rows that every model was weighed on.
        rows_skipped: bad rows that were left out.
        rows_quarantined: bad rows that went to a file.
        flags: reasons for caution of each model; empty where there is none.
        results: the evidence of each model, with its posterior and its path.
        remarks: what else a user should know, such as that the data differ.
        left_out: models of which an interrupted run had nothing yet.

    Where an interrupted run left models out, or has their evidences at different rows or powers,
    these cannot be held against each other: factors and probabilities are NaN, and no model is
    the best.
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

    @property
    def is_complete(self) -> bool:
        """Whether all models can be held against each other; not after some interruptions."""
        factors = self.log_bayes_factors
        return not any(
            math.isnan(factors[name]) and math.isfinite(value)
            for name, value in self.log_evidences.items()
        )

    @property
    def best(self) -> str:
        """Name of the model with the largest evidence."""
        self.require_complete()
        return max(self.log_evidences, key=self.log_evidences.__getitem__)

    @property
    def ranking(self) -> list[str]:
        """Names of the models, the largest evidence first; last those that have none yet."""
        powers = self._powers()

        def height(name: str) -> tuple[bool, float]:
            return powers.get(name, 1.0) >= 1, self.log_evidences[name]

        return sorted(self.log_evidences, key=height, reverse=True)

    def _powers(self) -> dict[str, float]:
        """How far the path of each model has come; 1 is its end."""
        return {n: r.diagnostics.get("power_reached", 1.0) for n, r in self.results.items()}

    @property
    def columns_left_out(self) -> list[str]:
        """Columns of the data that do not hold numbers, which no model read."""
        names = [name for result in self.results.values() for name in result.columns_left_out]
        return list(dict.fromkeys(names))

    def bayes_factor_error(self, name: str) -> float:
        """Standard error of a model's log Bayes factor against the best."""
        if not self.is_complete:
            return math.nan
        return (
            0.0
            if name == self.best
            else math.hypot(self.std_errors[name], self.std_errors[self.best])
        )

    def _table(self) -> Table:
        columns = (
            "log evidence",
            "+-",
            "log Bayes factor",
            "+-",
            "probability",
            "+-",
            "against it",
        )
        rows = {}
        for name in self.ranking:
            rows[name] = (
                f"{self.log_evidences[name]:.2f}",
                _error(self.std_errors[name]),
                f"{self.log_bayes_factors[name]:.2f}" if self.is_complete else "unknown",
                _error(self.bayes_factor_error(name)),
                _small(self.probabilities[name]),
                _small(self.probability_errors[name]),
                self._against(name),
            )
        return Table(columns, rows)

    def _about_rows(self) -> str:
        if not self.num_observations:  # a total log-likelihood has none that could be counted
            return ""
        return counted(self.num_observations) + left_out(self.rows_skipped, self.rows_quarantined)

    def _cautions(self) -> list[str]:
        found = []
        if not self.is_complete:
            found.append("interrupted: these models cannot be held against each other yet")
        found += [
            f"{name}: the number is that at power {power:.3g}, not the log evidence"
            for name, power in self._powers().items()
            if power < 1
        ]
        if self.left_out:
            found.append(f"left out, as there was nothing of them: {', '.join(self.left_out)}")
        for flag in dict.fromkeys(flag for flags in self.flags.values() for flag in flags):
            names = [name for name in self.ranking if flag in self.flags.get(name, ())]
            found.append(f"{', '.join(names)}: {flag}")
        of_results = (remark for result in self.results.values() for remark in result.remarks)
        return [*found, *dict.fromkeys([*self.remarks, *of_results])]

    def __str__(self) -> str:
        cautions = (f"  {text}" for text in self._cautions())
        lines = [str(self._table()), self._about_rows(), *cautions]
        return "\n".join(filter(None, lines))

    def _frame(self) -> Frame:
        names = self.ranking
        columns: dict[str, Mapping[str, float | str]] = {
            "log_evidence": self.log_evidences,
            "std_error": self.std_errors,
            "log_bayes_factor": self.log_bayes_factors,
            "bayes_factor_error": {name: self.bayes_factor_error(name) for name in names},
            "probability": self.probabilities,
            "probability_error": self.probability_errors,
            "verdict": {name: self._against(name) for name in names},
            "status": {n: ", ".join(f.name for f in self.flags.get(n, ())) or "OK" for n in names},
        }
        return frame_of_models(columns, names)

    def _page(self) -> Page:
        table = self._table()
        return Page(self._about_rows(), table.columns, table.texts(), self._cautions())

    def verdict(self, name: str) -> str:
        """What the evidence says against a model, in Jeffreys' words where its error allows."""
        if not self.is_complete:
            return "unknown (interrupted)"
        factor, error = self.log_bayes_factors[name], self.bayes_factor_error(name)
        if math.isnan(error):
            return f"{jeffreys(factor)} (error unknown)"
        is_small = jeffreys(abs(factor) + 2 * error) == jeffreys(0.0)
        return jeffreys(factor) if is_small or abs(factor) > 2 * error else UNDECIDED

    def _against(self, name: str) -> str:
        return "" if not self.is_complete or name == self.best else self.verdict(name)

    def require_complete(self) -> None:
        """Refuse a comparison of models that an interruption left at unlike places."""
        if not self.is_complete:
            raise MethodError(
                "The run was interrupted before its models could be held against each other: none "
                "is the best. Run it again, and let it end."
            )

    def plot(self, *, axes: Surface | None = None) -> Figure:
        """Log Bayes factors and probabilities with their errors, the best model on top.

        Where the models took the rows as they came, a panel below shows how the factors grew.

        Args:
            axes: where to draw: an empty matplotlib figure or subfigure, or two axes, then
                without the panel below.

        >>> from weighbridge.result import Trace
        >>> def fake(z): return Evidence(z, 0.1, 100, "smc", Trace(), {}, np.zeros(1))
        >>> figure = compare({"a": fake(-10.0), "b": fake(-13.0)}).plot()
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['a', 'b']
        """
        self.require_complete()
        return plots.plot_comparison(
            {n: (self.log_bayes_factors[n], self.bayes_factor_error(n)) for n in self.ranking},
            {n: (self.probabilities[n], self.probability_errors[n]) for n in self.ranking},
            decisive=JEFFREYS[-1][0],
            traces={name: result.trace for name, result in self.results.items()},
            axes=axes,
        )

    def to_json(self) -> str:
        """All of it as one line of JSON; unknown errors are null."""

        def clean(values: dict[str, float]) -> dict[str, float | None]:
            return {name: v if math.isfinite(v) else None for name, v in values.items()}

        return json.dumps(
            {
                "best": self.best if self.is_complete else None,
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


def compare(
    models: Mapping[str, Evidence] | Mapping[str, Model],
    data: Any = None,
    method: str | Method = "auto",
    *,
    prior_odds: Mapping[str, float] | None = None,
    seed: int = 0,
    tolerance: float | None = None,
    time_limit: float | None = None,
    progress: bool | Reporter | None = None,
    same_data: bool = True,
    on_bad_row: RowPolicy = "raise",
    quarantine: QuarantineFile | None = None,
) -> Comparison:
    r"""Weigh models against each other, from their results or from the data.

    .. math:: P(m | y) = Z_m \pi_m / \sum_k Z_k \pi_k

    Args:
        models: the evidence of each model, all on the same observations; or the models themselves,
            which are then weighed on the data, in one pass.
        data: for models: as ``wb.evidence`` takes it.
        method: for models: a method object, or its name for the defaults.
        prior_odds: prior weight of each model; equal by default.
        seed: the same seed gives the same numbers.
        tolerance: for models: standard error (nats) of each log evidence to reach.
        time_limit: for models: seconds after which no more islands are added, all models together.
        progress: for models: True or False, or a reporter; by default a bar on a terminal or in a
            notebook.
        same_data: for results: those that were made on different data are refused, which have
            other numbers of observations, or other rows in columns of the same name and shape (in
            whatever order). False compares them all the same, and says so in ``remarks``.
        on_bad_row: for models: what to do with rows that one of them cannot use: "raise", "skip"
            them for all models and count them, or "quarantine": count them and append them to a
            file, with the reason.
        quarantine: that file.

    Ctrl-C gives back what there is of every model, with ``Status.INTERRUPTED`` where that is not
    all; a second one ends it at once. Models that are at different rows or powers by then, or of
    which there is nothing (``left_out``), get no factors and no probabilities.

    Returns:
        The comparison; its ``results`` holds the evidence of each model.

    >>> import numpy as np
    >>> from weighbridge.result import Trace
    >>> def fake(z, se): return Evidence(z, se, 100, "sgais", Trace(), {}, np.zeros(1))
    >>> table = compare({"a": fake(-10.0, 0.1), "b": fake(-13.0, 0.1)})
    >>> round(table.probabilities["a"], 4), round(table.log_bayes_factors["b"], 2)
    (0.9526, -3.0)

    From models and data:

    >>> import weighbridge as wb
    >>> near, far = wb.zoo.gaussian.model(prior_mean=2.0), wb.zoo.gaussian.model(prior_mean=-2.0)
    >>> data = wb.zoo.gaussian.simulate(50, mean=2.0, seed=1)
    >>> table = compare({"near": near, "far": far}, data, "smc", tolerance=0.2)
    >>> table.best, table.results["far"].std_error <= 0.2
    ('near', True)
    """
    if not isinstance(models, Mapping):
        raise MethodError(
            "compare needs a mapping from names to results or models, as in "
            f"compare({{'linear': ...}}), not {type(models).__name__}."
        )
    if len(models) < 2:
        raise MethodError("compare needs two models or more, or their results.")
    remarks: list[str] = []
    if any(isinstance(model, Model) for model in models.values()):
        (chosen, told), limits = choose(method, models.values()), Limits(tolerance, time_limit)
        limits.check(chosen)
        check_prior_odds(list(models), prior_odds)
        bad_rows = BadRows(on_bad_row, quarantine)
        weighed = _weigh(models, data, chosen, seed, limits, progress, bad_rows)
        results = {n: replace(r, diagnostics=r.diagnostics | told) for n, r in weighed.items()}
    else:
        results = _check_results(models)
        remarks = _different_data(results)
        if remarks and same_data:
            raise MethodError(
                f"{remarks[0]} Their evidences cannot be compared: run them on the same data. If "
                "that is what you want all the same, pass same_data=False."
            )
        given = (data, tolerance, time_limit, quarantine)
        if method != "auto" or on_bad_row != "raise" or any(item is not None for item in given):
            raise MethodError(
                "data, method, tolerance, time_limit, on_bad_row and quarantine are for models; "
                "these are results. Leave them out, or give the models instead."
            )
    missing = tuple(name for name in models if name not in results)
    if prior_odds is not None:
        prior_odds = {name: odds for name, odds in prior_odds.items() if name not in missing}
    return compare_results(results, prior_odds, seed, missing, remarks)


def _weigh(
    models: Mapping[str, Any],
    data: Any,
    method: Method,
    seed: int,
    limits: Limits,
    progress: bool | Reporter | None,
    bad_rows: BadRows,
) -> dict[str, Evidence]:
    for name, model in models.items():
        refuse_pymc(model)
        if not isinstance(model, Model):
            raise MethodError(
                f"{name!r} must be a wb.Model like the others, not {type(model).__name__}: give "
                "only models, or only results."
            )
    reporter = choose_reporter(progress)
    with interruptible(partial(announce, reporter, at_once=True)):
        return weigh_together(
            {name: Competitor(model, as_it_is) for name, model in models.items()},
            open_common(models, data, method, bad_rows.on_bad_row),
            method,
            seed=seed,
            limits=limits,
            on_bad_row=bad_rows.on_bad_row,
            quarantine=bad_rows.quarantine,
            reporter=reporter,
        )


def _check_results(results: Mapping[str, Any]) -> dict[str, Evidence]:
    for name, result in results.items():
        refuse_pymc(result)
        if not isinstance(result, Evidence):
            raise MethodError(
                f"The result of {name!r} must be an Evidence, not {result!r}. To weigh models, "
                "give wb.Models and data."
            )
    return cast(dict[str, Evidence], dict(results))


def compare_results(
    results: dict[str, Evidence],
    prior_odds: Mapping[str, float] | None = None,
    seed: int = 0,
    missing: tuple[str, ...] = (),
    remarks: Sequence[str] = (),
) -> Comparison:
    """Compare the evidence of models on the same observations.

    Args:
        results: of each model.
        prior_odds: prior weight of each model; equal by default.
        seed: of the draws behind the errors of probabilities.
        missing: models that an interrupted run has nothing of.
        remarks: what else a user should know.
    """
    sizes = {result.num_observations for result in results.values()}
    is_interrupted = any(Status.INTERRUPTED in result.flags for result in results.values())
    if len(sizes) > 1 and not is_interrupted and not remarks:
        raise MethodError(_different_data(results)[0] + " Run them on the same data.")
    log_evidences = {name: float(result.log_evidence) for name, result in results.items()}
    std_errors = {name: float(result.std_error) for name, result in results.items()}
    probabilities, errors = model_probabilities(log_evidences, std_errors, prior_odds, seed)
    best = max(log_evidences.values())
    powers = [result.diagnostics.get("power_reached", 1.0) for result in results.values()]
    if missing or (is_interrupted and len(sizes) > 1) or min(powers) < 1:
        best = math.nan
        probabilities = errors = dict.fromkeys(results, math.nan)
    return Comparison(
        log_evidences=log_evidences,
        std_errors=std_errors,
        log_bayes_factors={name: value - best for name, value in log_evidences.items()},
        probabilities=probabilities,
        probability_errors=errors,
        num_observations=min(sizes),
        rows_skipped=max(result.rows_skipped for result in results.values()),
        rows_quarantined=max(result.rows_quarantined for result in results.values()),
        flags={name: result.flags for name, result in results.items()},
        results=results,
        remarks=tuple(remarks),
        left_out=missing,
    )


def _different_data(results: Mapping[str, Evidence]) -> list[str]:
    """What speaks against the results being of the same data."""
    if any(Status.INTERRUPTED in result.flags for result in results.values()):
        return []  # those that are at other rows get no factors
    sizes = {name: result.num_observations for name, result in results.items()}
    if len(set(sizes.values())) > 1:
        return [f"The models were weighed on different numbers of observations ({sizes})."]
    known = {name: r.fingerprint for name, r in results.items() if r.fingerprint is not None}
    found = []
    for one, other in combinations(known, 2):
        if told := known[one].differences(known[other]):
            found.append(
                f"{one!r} and {other!r} were weighed on different data: "
                f"{' and '.join(told[:3])} {'differs' if len(told) == 1 else 'differ'}."
            )
    return found


def model_probabilities(
    log_evidences: Mapping[str, float],
    std_errors: Mapping[str, float],
    prior_odds: Mapping[str, float] | None = None,
    seed: int = 0,
) -> tuple[dict[str, float], dict[str, float]]:
    """Posterior probabilities of models, and their standard deviations.

    Those are over normal errors of the log evidences; NaN where one of these is unknown.

    >>> model_probabilities({"a": 0.0, "b": 0.0}, {"a": 0.0, "b": 0.0}, {"a": 1.0, "b": 3.0})
    ({'a': 0.25, 'b': 0.75}, {'a': 0.0, 'b': 0.0})
    """
    names = list(log_evidences)
    heights = np.array([log_evidences[name] for name in names])
    heights = heights + np.log(check_prior_odds(names, prior_odds))
    errors = np.array([std_errors[name] for name in names])
    noise = np.random.default_rng(seed).normal(size=(NUM_DRAWS, len(names)))
    spread = np.std(_normalise(heights + errors * noise), axis=0)
    probabilities = _normalise(heights).tolist()
    return dict(zip(names, probabilities)), dict(zip(names, spread.tolist()))


def jeffreys(log_bayes_factor: float) -> str:
    """Jeffreys' words for a log Bayes factor.

    >>> jeffreys(1.0), jeffreys(100.0)
    ('barely worth mentioning', 'decisive')
    """
    for bound, word in JEFFREYS:
        if abs(log_bayes_factor) < bound:
            return word
    return "decisive"


def check_prior_odds(names: Sequence[str], prior_odds: Mapping[str, float] | None) -> np.ndarray:
    """The prior weight of each model, equal by default; an error for what cannot be one."""
    if prior_odds is None:
        return np.ones(len(names))
    if set(prior_odds) != set(names):
        raise MethodError(f"prior_odds must name each of {list(names)}, and no other model.")
    odds = np.array([float(prior_odds[name]) for name in names])
    if not np.all(np.isfinite(odds)) or np.any(odds <= 0):
        raise MethodError(f"prior_odds must be positive, not {dict(prior_odds)}.")
    return odds


def _normalise(log_weights: np.ndarray) -> np.ndarray:
    shifted = np.exp(log_weights - log_weights.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def _error(value: float) -> str:
    if math.isnan(value):
        return "unknown"
    if 0 < value < SMALL_ERROR:
        return "< 1e-9"
    return f"{value:.2g}" if value < 100 else f"{value:.0f}"


def _small(value: float) -> str:
    """A probability or its error, to four places."""
    if math.isnan(value):
        return "unknown"
    return f"{value:.4f}" if value >= 5e-5 else "<0.0001"
