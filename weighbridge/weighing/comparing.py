"""``wb.compare``: compare results, or weigh models on data and compare them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple, cast

from weighbridge.core.errors import MethodError
from weighbridge.core.interrupts import interruptible
from weighbridge.core.progress.announcing import announce, announced
from weighbridge.core.progress.reporters import Reporter, choose_reporter
from weighbridge.core.status import Status
from weighbridge.data.fingerprint import Fingerprint
from weighbridge.data.row_checking import RowPolicy
from weighbridge.estimators.choosing import Choice, choose
from weighbridge.estimators.registry import Method
from weighbridge.models.model import Model
from weighbridge.models.response import check_responses
from weighbridge.models.row_gate import QuarantineFile, refuse_pymc
from weighbridge.results.evidence_ratio import EvidenceRatio
from weighbridge.results.evidence_result import Evidence
from weighbridge.weighing.comparison import Comparison
from weighbridge.weighing.competitor import Competitor, as_it_is
from weighbridge.weighing.cross_check import DISAGREE, CrossCheck
from weighbridge.weighing.cross_checking import check_results, require_readable_again
from weighbridge.weighing.model_probabilities import check_prior_odds, model_probabilities
from weighbridge.weighing.ratio_comparison import compare_ratio
from weighbridge.weighing.rounds import Limits
from weighbridge.weighing.weighing import READING, open_common, weigh_together

FOR_MODELS = (
    "data, method, tolerance, time_limit, on_bad_row, quarantine and cross_check are for models;"
)


class BadRows(NamedTuple):
    """What to do with rows that a model cannot use, and the file to write them to."""

    on_bad_row: RowPolicy
    quarantine: QuarantineFile | None


def compare(
    models: Mapping[str, Evidence] | Mapping[str, Model] | EvidenceRatio,
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
    cross_check: bool = False,
) -> Comparison:
    r"""Compare models by their evidence: from their results, or from the models and the data.

    .. math:: P(m | y) = Z_m \pi_m / \sum_k Z_k \pi_k

    Args:
        models: the evidence of each model, all on the same observations; or the models themselves,
            which are then weighed on the data, in one pass. Or a ratio of evidences, as of
            ``wb.savage_dickey``: then the log evidences themselves are not known.
        data: for models: the data, as in ``wb.evidence``.
        method: for models: a method object, or its name for the defaults. "auto" begins with the
            same method for all models, and goes on by the same rules for those that need it.
        prior_odds: prior weight of each model; equal by default.
        seed: the same seed gives the same numbers.
        tolerance: for models: standard error (nats) of each log evidence to reach.
        time_limit: for models: seconds for all models together; after them no islands are added.
        progress: for models: True or False, or a reporter; by default a bar on a terminal or in a
            notebook; elsewhere a few lines on standard error if the run takes more than 10 s.
        same_data: for results: True refuses results of different data. Data are different if the
            numbers of observations differ, or the rows (in any order) of columns that have the
            same name and shape. False compares them anyway, with a note in ``remarks``.
        on_bad_row: for models: what to do with rows that one of them cannot use: "raise" an error;
            "skip": leave them out for all models and count them; "quarantine": leave them out,
            count them and append them to a file, with the reason.
        quarantine: the file for "quarantine".
        cross_check: for models: also weigh each of them by up to two methods that fail for other
            reasons than the one that gave its result (``wb.cross_check``). They are in
            ``cross_checks``; a model whose methods disagree is flagged.

    Ctrl-C stops the run and returns the results so far, with ``Status.INTERRUPTED`` for a model
    that is not finished; a second Ctrl-C ends the run at once. The Bayes factors and probabilities
    of all models are then NaN if the models have seen different numbers of rows, if one of them
    has not reached power 1 of the likelihood, or if one has no result yet (``left_out``).

    Returns:
        The comparison; its ``results`` holds the evidence of each model.

    >>> import numpy as np
    >>> from weighbridge.results.trace import Trace
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
    given = (data, tolerance, time_limit, quarantine)
    has_settings = method != "auto" or on_bad_row != "raise" or any(g is not None for g in given)
    has_settings = has_settings or cross_check
    checks: dict[str, CrossCheck] = {}
    if isinstance(models, EvidenceRatio):
        if has_settings:
            raise MethodError(f"{FOR_MODELS} this is a ratio. Leave them out.")
        return compare_ratio(models, prior_odds, seed)
    if not isinstance(models, Mapping):
        raise MethodError(
            "compare needs a mapping from names to results or models, as in "
            f"compare({{'linear': ...}}), not {type(models).__name__}."
        )
    if len(models) < 2:
        raise MethodError("compare needs two models or more, or their results.")
    remarks: list[str] = []
    if any(isinstance(model, Model) for model in models.values()):
        choice, limits = choose(method, models.values()), Limits(tolerance, time_limit)
        limits.check(choice.method, decides=choice.decides)
        check_prior_odds(list(models), prior_odds)
        bad_rows = BadRows(on_bad_row, quarantine)
        results, checks = _weigh(
            models, data, choice, seed, limits, progress, bad_rows, cross_check
        )
    else:
        results = _check_results(models)
        remarks = _different_data(results)
        if remarks and same_data:
            raise MethodError(
                f"{remarks[0]} Evidences of different data cannot be compared: run the models on "
                "the same data. Where only features differ, give columns that differ names that "
                "differ, or pass same_data=False."
            )
        if has_settings:
            raise MethodError(
                f"{FOR_MODELS} these are results. Leave them out, or give the models instead."
            )
    missing = tuple(name for name in models if name not in results)
    if prior_odds is not None:
        prior_odds = {name: odds for name, odds in prior_odds.items() if name not in missing}
    compared = compare_results(results, prior_odds, seed, missing, remarks)
    return replace(compared, cross_checks=checks)


def _weigh(
    models: Mapping[str, Any],
    data: Any,
    choice: Choice,
    seed: int,
    limits: Limits,
    progress: bool | Reporter | None,
    bad_rows: BadRows,
    cross_check: bool,
) -> tuple[dict[str, Evidence], dict[str, CrossCheck]]:
    """The evidence of each model, and if asked for what other methods say."""
    for name, model in models.items():
        refuse_pymc(model)
        if not isinstance(model, Model):
            raise MethodError(
                f"{name!r} must be a wb.Model like the others, not {type(model).__name__}: give "
                "only models, or only results."
            )
    check_responses(models)
    began = time.perf_counter()
    reporter = choose_reporter(progress)
    with interruptible(partial(announce, reporter, at_once=True)):
        with announced(reporter, READING):
            source = open_common(models, data, choice.method, bad_rows.on_bad_row)
            if cross_check:
                require_readable_again(source)
        competitors = {name: Competitor(model, as_it_is) for name, model in models.items()}
        results = weigh_together(
            competitors,
            source,
            choice,
            seed=seed,
            limits=limits,
            on_bad_row=bad_rows.on_bad_row,
            quarantine=bad_rows.quarantine,
            reporter=reporter,
        )
        if not cross_check:
            return results, {}
        checks = check_results(
            results,
            competitors,
            source,
            seed=seed,
            on_bad_row=bad_rows.on_bad_row,
            time_limit=_seconds_left(limits, began),
            reporter=reporter,
        )
    return {name: _judged(result, checks.get(name)) for name, result in results.items()}, checks


def _seconds_left(limits: Limits, began: float) -> float | None:
    if limits.time_limit is None:
        return None
    return max(limits.time_limit - (time.perf_counter() - began), 0.0)


def _judged(result: Evidence, check: CrossCheck | None) -> Evidence:
    """A result, flagged if other methods disagree with it."""
    if check is None or check.verdict != DISAGREE:
        return result
    flags = dict.fromkeys((Status.METHODS_DISAGREE, *result.flags))
    return replace(result, flags=tuple(flags))


def _hint(one: Fingerprint, other: Fingerprint) -> str:
    """A hint for the error: the columns may be other features of the same rows."""
    alike = one.same_beside_features(other)
    if not alike or alike == sorted(one.columns.keys() & other.columns.keys()):
        return ""
    same = ", ".join(alike)
    return f" The same in both: {same}. The others may be other features of the same rows."


def _check_results(results: Mapping[str, Any]) -> dict[str, Evidence]:
    for name, result in results.items():
        refuse_pymc(result)
        if isinstance(result, EvidenceRatio):
            raise MethodError(
                f"The result of {name!r} is a ratio of evidences, which has all its models: give "
                "it alone, as in wb.compare(ratio)."
            )
        if not isinstance(result, Evidence):
            raise MethodError(
                f"The result of {name!r} must be an Evidence, not {result!r}. To weigh models, "
                "give wb.Models and data."
            )
        if math.isnan(result.log_evidence):
            raise MethodError(
                f"The result of {name!r} has no log evidence to compare. If it is made of "
                "reweighted draws, its log_ratio is the log Bayes factor against the model of the "
                "draws; reweight an Evidence to get a log evidence."
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
        results: the evidence of each model.
        prior_odds: prior weight of each model; equal by default.
        seed: of the draws for the errors of the probabilities.
        missing: models without a result, in an interrupted run.
        remarks: further notes for the user.
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
        trust={name: result.trust for name, result in results.items()},
        results=results,
        remarks=tuple(remarks),
        left_out=missing,
    )


def _different_data(results: Mapping[str, Evidence]) -> list[str]:
    """Reasons why the results cannot be of the same data; empty if none was found."""
    if any(Status.INTERRUPTED in result.flags for result in results.values()):
        return []  # compare_results gives NaN if their rows differ
    sizes = {name: result.num_observations for name, result in results.items()}
    if len(set(sizes.values())) > 1:
        return [f"The models were weighed on different numbers of observations ({sizes})."]
    known = {name: r.fingerprint for name, r in results.items() if r.fingerprint is not None}
    found = []
    for one, other in combinations(known, 2):
        if unequal := known[one].differences(known[other]):
            found.append(
                f"{one!r} and {other!r} were weighed on different data: "
                f"{' and '.join(unequal[:3])} {'differs' if len(unequal) == 1 else 'differ'}."
                + _hint(known[one], known[other])
            )
    return found
