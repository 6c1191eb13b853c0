"""Models weighed against each other: Bayes factors and probabilities, with their errors."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from weighbridge import plots
from weighbridge.base import MethodError, Status
from weighbridge.competitor import Competitor, as_it_is
from weighbridge.estimators import Method, resolve
from weighbridge.export import Table
from weighbridge.model import Model
from weighbridge.progress import Reporter, choose_reporter
from weighbridge.result import Evidence, left_out
from weighbridge.rounds import Limits
from weighbridge.weighing import open_common, weigh_together

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.plots.surface import Surface

NUM_DRAWS = 4000
# Jeffreys (1961), appendix B, in nats: half-decades of the Bayes factor.
JEFFREYS = (
    (0.5 * math.log(10), "barely worth mentioning"),
    (math.log(10), "substantial"),
    (1.5 * math.log(10), "strong"),
    (2 * math.log(10), "very strong"),
)


@dataclass(frozen=True)
class Comparison:
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

    @property
    def best(self) -> str:
        """Name of the model with the largest evidence."""
        return max(self.log_evidences, key=self.log_evidences.__getitem__)

    @property
    def ranking(self) -> list[str]:
        """Names of the models, the largest evidence first."""
        return sorted(self.log_evidences, key=self.log_evidences.__getitem__, reverse=True)

    def bayes_factor_error(self, name: str) -> float:
        """Standard error of a model's log Bayes factor against the best."""
        return (
            0.0
            if name == self.best
            else math.hypot(self.std_errors[name], self.std_errors[self.best])
        )

    def __str__(self) -> str:
        columns = (
            "log evidence",
            "+-",
            "log Bayes factor",
            "+-",
            "probability",
            "+-",
            "against it",
        )
        ranked = self.ranking
        rows = {}
        for name in ranked:
            rows[name] = (
                f"{self.log_evidences[name]:.2f}",
                _error(self.std_errors[name]),
                f"{self.log_bayes_factors[name]:.2f}",
                _error(self.bayes_factor_error(name)),
                _small(self.probabilities[name]),
                _small(self.probability_errors[name]),
                "" if name == self.best else self.verdict(name),
            )
        plural = "" if self.num_observations == 1 else "s"
        skipped = left_out(self.rows_skipped, self.rows_quarantined)
        lines = [
            str(Table(columns, rows)),
            f"{self.num_observations:,} observation{plural}{skipped}",
        ]
        for flag in dict.fromkeys(flag for flags in self.flags.values() for flag in flags):
            names = [name for name in ranked if flag in self.flags.get(name, ())]
            lines.append(f"  {', '.join(names)}: {flag}")
        return "\n".join(lines)

    def verdict(self, name: str) -> str:
        """What the evidence says against a model, in Jeffreys' words where its error allows."""
        factor, error = self.log_bayes_factors[name], self.bayes_factor_error(name)
        if math.isnan(error):
            return f"{jeffreys(factor)} (error unknown)"
        return jeffreys(factor) if abs(factor) > 2 * error else "undecided (error too large)"

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
                "best": self.best,
                "num_observations": self.num_observations,
                "log_evidences": clean(self.log_evidences),
                "std_errors": clean(self.std_errors),
                "log_bayes_factors": clean(self.log_bayes_factors),
                "probabilities": clean(self.probabilities),
                "probability_errors": clean(self.probability_errors),
                "rows_skipped": self.rows_skipped,
                "rows_quarantined": self.rows_quarantined,
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
        progress: for models: True or False, or a reporter; by default a bar on a terminal.

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
    if any(isinstance(model, Model) for model in models.values()):
        chosen, limits = resolve(method), Limits(tolerance, time_limit)
        limits.check(chosen)
        results = _weigh(models, data, chosen, seed, limits, progress)
    else:
        results = _check_results(models)
        if data is not None or method != "auto" or tolerance is not None or time_limit is not None:
            raise MethodError(
                "data, method, tolerance and time_limit are for models; these are results. Leave "
                "them out, or give the models instead."
            )
    return compare_results(results, prior_odds, seed)


def _weigh(
    models: Mapping[str, Any],
    data: Any,
    method: Method,
    seed: int,
    limits: Limits,
    progress: bool | Reporter | None,
) -> dict[str, Evidence]:
    for name, model in models.items():
        if not isinstance(model, Model):
            raise MethodError(
                f"{name!r} must be a wb.Model like the others, not {type(model).__name__}: give "
                "only models, or only results."
            )
    return weigh_together(
        {name: Competitor(model, as_it_is) for name, model in models.items()},
        open_common(models, data, method),
        method,
        seed=seed,
        limits=limits,
        reporter=choose_reporter(progress),
    )


def _check_results(results: Mapping[str, Any]) -> dict[str, Evidence]:
    for name, result in results.items():
        if not isinstance(result, Evidence):
            raise MethodError(
                f"The result of {name!r} must be an Evidence, not {result!r}. To weigh models, "
                "give wb.Models and data."
            )
    return cast(dict[str, Evidence], dict(results))


def compare_results(
    results: dict[str, Evidence], prior_odds: Mapping[str, float] | None = None, seed: int = 0
) -> Comparison:
    """Compare the evidence of models on the same observations."""
    sizes = {name: result.num_observations for name, result in results.items()}
    if len(set(sizes.values())) > 1:
        raise MethodError(
            f"The models were weighed on different numbers of observations ({sizes}): their "
            "evidences cannot be compared. Run them on the same data."
        )
    log_evidences = {name: float(result.log_evidence) for name, result in results.items()}
    std_errors = {name: float(result.std_error) for name, result in results.items()}
    probabilities, errors = model_probabilities(log_evidences, std_errors, prior_odds, seed)
    best = max(log_evidences.values())
    return Comparison(
        log_evidences=log_evidences,
        std_errors=std_errors,
        log_bayes_factors={name: value - best for name, value in log_evidences.items()},
        probabilities=probabilities,
        probability_errors=errors,
        num_observations=next(iter(sizes.values())),
        rows_skipped=max(result.rows_skipped for result in results.values()),
        rows_quarantined=max(result.rows_quarantined for result in results.values()),
        flags={name: result.flags for name, result in results.items()},
        results=results,
    )


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
    return f"{value:.2g}" if value < 100 else f"{value:.0f}"


def _small(value: float) -> str:
    """A probability or its error, to four places."""
    if math.isnan(value):
        return "unknown"
    return f"{value:.4f}" if value >= 5e-5 else "<0.0001"
