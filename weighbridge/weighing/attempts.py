"""``method="auto"``: weigh by one method, listen to its flags, and go on with another one."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from weighbridge.core import interrupts
from weighbridge.core.progress.announcing import announce
from weighbridge.core.status import Status
from weighbridge.core.thresholds import MIN_METHOD_ERRORS, PATH_BOUND_PROBABILITY
from weighbridge.estimators.choosing import (
    Choice,
    choose_next,
    distrust,
    offer_of,
    suit_to_host,
)
from weighbridge.estimators.protocols import BatchMethod
from weighbridge.estimators.sgais.sgais import SGAIS
from weighbridge.models.held import Held
from weighbridge.results.evidence_result import Evidence
from weighbridge.weighing.agreement import all_agree, islands_lower_bound, most_exact
from weighbridge.weighing.one_round import OneRound, Policy, Weighing, hold_rows
from weighbridge.weighing.planning import plan_rounds
from weighbridge.weighing.rounds import Limits, run_rounds

# What the user sees of rows that were left out; only the first method counts and writes them.
ABOUT_ROWS = ("rows_skipped", "rows_quarantined", "columns_left_out", "largest_value")


class Attempt(NamedTuple):
    """What one method made of one model.

    Attributes:
        choice: the method, and why it was chosen.
        result: what it found; None if it gave nothing.
        seconds: how long it took.
        trouble: why its result is not to be trusted; empty if it is.
        error: what it raised, if it did.
    """

    choice: Choice
    result: Evidence | None
    seconds: float
    trouble: str
    error: Exception | None = None

    @property
    def flags(self) -> tuple[Status, ...]:
        """The flags of its result."""
        return () if self.result is None else self.result.flags

    def told(self) -> dict[str, Any]:
        """The attempt as plain values, for the diagnostics."""
        found = self.result
        return {
            "method": self.choice.method.name,
            "why": self.choice.why,
            "log_evidence": math.nan if found is None else found.log_evidence,
            "std_error": math.nan if found is None else found.claimed_error,
            "flags": [flag.name for flag in self.flags],
            "seconds": self.seconds,
            "trouble": self.trouble,
        }


class Trials:
    """Runs methods on the models of a weighing, whose rows are loaded once.

    Args:
        weighing: the models and the data.
        limits: tolerance, and seconds for all methods together.
    """

    def __init__(self, weighing: Weighing, limits: Limits) -> None:
        self.weighing, self.limits = weighing, limits
        self._began = time.perf_counter()
        self._holders: dict[str, Held] = {}

    def seconds_left(self) -> float | None:
        """Seconds until the time limit; None without one."""
        if self.limits.time_limit is None:
            return None
        return self.limits.time_limit - (time.perf_counter() - self._began)

    def held(self, *, again: bool = False) -> dict[str, Held]:
        """The rows of all models, in memory.

        Args:
            again: whether a method has read them before, and has counted those left out.
        """
        if not self._holders:
            weighing = self.weighing
            if again and weighing.policy.on_bad_row != "raise":
                weighing = weighing._replace(policy=Policy("skip", None))
            self._holders = hold_rows(weighing, list(weighing.competitors))
        return self._holders

    def attempt(
        self, name: str, choice: Choice, *, again: bool = True, shared_by: int = 1
    ) -> Attempt:
        """A method on one model, within the time that is left; its errors are kept as trouble.

        Args:
            name: of the model.
            choice: the method.
            again: whether a method has read the rows before.
            shared_by: methods that share the time that is left.
        """
        began = time.perf_counter()
        method, limits = choice.method, self.limits
        if method.num_islands < 4 or not method.states_error:
            limits = replace(limits, tolerance=None)
        left = self.seconds_left()
        limits = replace(limits, time_limit=None if left is None else max(left, 0.1) / shared_by)
        weighing = self.weighing._replace(method_shown=method.name)
        found: Evidence | None = None
        failure: Exception | None = None
        try:
            holders = {name: self.held(again=again)[name]}
            plan = plan_rounds(weighing, method, limits, holders=holders)
            plan = plan._replace(one_round=_first_in_time(plan.one_round, limits.time_limit))
            found = run_rounds(plan, [name], limits)[name]
            trouble = distrust(found)
        except interrupts.Interrupted:
            trouble = "interrupted"
        except Exception as error:
            # Earlier results must not be lost because a later method fails, whatever the reason.
            trouble, failure = f"{type(error).__name__}: {error}", error
        is_late = found is None or Status.INTERRUPTED in found.flags
        if is_late and limits.time_limit is not None and not interrupts.is_due():
            trouble = "stopped by the time limit"
        return Attempt(choice, found, time.perf_counter() - began, trouble, failure)


def _first_in_time(one_round: OneRound, seconds: float | None) -> OneRound:
    """Rounds of which the first is ended after some seconds; no other one begins after them."""

    def limited(first_island: int, names: Sequence[str]) -> dict[str, Evidence]:
        with interrupts.ended_after(None if first_island else seconds):
            return one_round(first_island, names)

    return limited


def weigh_by_choice(weighing: Weighing, first: Choice, limits: Limits) -> dict[str, Evidence]:
    """The evidence of all models by "auto": the same first method, and others where it fails.

    Args:
        weighing: the models and the data.
        first: the first method.
        limits: tolerance, and seconds for all models and methods together.
    """
    trials = Trials(weighing, limits)
    models = {name: competitor.model for name, competitor in weighing.competitors.items()}
    holders = trials.held() if isinstance(first.method, BatchMethod) else None
    if holders is not None:
        offers = [offer_of(model, holders[name].values()) for name, model in models.items()]
        first = suit_to_host(first, offers)
        can_go_on = all(choose_next(offer, [first.method.name], ()) for offer in offers)
    else:
        can_go_on = True
    limits = replace(limits, leaves_grave=can_go_on and weighing.source.reopenable)
    shown = weighing._replace(method_shown=first.method.name)
    plan = plan_rounds(shown, first.method, limits, holders=holders)
    answers = {}
    for name, result in run_rounds(plan, list(models), limits).items():
        tried = [Attempt(first, result, result.elapsed, distrust(result))]
        _go_on(trials, name, tried)
        answers[name] = _within_tolerance(answer(tried), limits)
    return answers


def _within_tolerance(result: Evidence, limits: Limits) -> Evidence:
    """The result, flagged if its error is too large; some methods do not add islands."""
    flag = Status.TOLERANCE_NOT_REACHED
    reached = limits.tolerance is None or result.claimed_error <= limits.tolerance
    if reached or flag in result.flags:
        return result
    return replace(result, flags=(*result.flags, flag))


def _go_on(trials: Trials, name: str, tried: list[Attempt]) -> None:
    """Try further methods until one is to be trusted, or no time or method is left."""
    source = trials.weighing.source
    if not tried[0].trouble or not source.reopenable or tried[0].result is None:
        return
    rows = source.num_rows or tried[0].result.num_observations
    model = trials.weighing.competitors[name].model
    in_memory = isinstance(tried[0].choice.method, BatchMethod)
    offer = offer_of(model, trials.held()[name].values() if in_memory else None)
    offer = offer._replace(num_rows=max(rows, offer.num_rows))
    while tried[-1].trouble and not interrupts.is_due():
        left = trials.seconds_left()
        names = [attempt.choice.method.name for attempt in tried]
        choice = choose_next(offer, names, tried[-1].flags)
        if choice is None or (left is not None and left <= 0):
            return
        going_on = f"{tried[-1].trouble}: going on with {choice.method.name}"
        announce(trials.weighing.reporter, going_on, at_once=True)
        tried.append(trials.attempt(name, choice))


def answer(tried: Sequence[Attempt]) -> Evidence:
    """The result of several attempts as one, with all of them in its diagnostics.

    The answer is the most exact result that is to be trusted. If such results do not agree, or if
    one of them lies below what a path has found, the answer is the largest, and flagged. If none is
    to be trusted, it is one without a grave flag, or else the largest of the lower bounds.
    """
    found = [a.result for a in tried if a.result is not None]
    whole = [r for r in found if Status.INTERRUPTED not in r.flags] or found
    good = [a.result for a in tried if a.result is not None and not a.trouble]
    chosen = _best(good, whole)
    raised: list[Status] = []
    if good and not (all_agree(good) and _within_bounds(chosen, whole)):
        bounds = [r for r in whole if r.is_lower_bound]
        chosen, raised = _largest([*good, *bounds]), [Status.METHODS_DISAGREE]
    if interrupts.is_due() and len(tried) > 1:
        raised = [Status.INTERRUPTED, *raised]
    first = tried[0].result
    assert first is not None
    told = {n: v for n, v in chosen.diagnostics.items() if n not in ABOUT_ROWS}
    told |= {n: v for n, v in first.diagnostics.items() if n in ABOUT_ROWS}
    told["attempts"] = [attempt.told() for attempt in tried]
    if len(tried) > 1 or not isinstance(tried[0].choice.method, SGAIS):
        told["chosen"] = _in_words(tried, chosen.method)
    return replace(
        chosen,
        diagnostics=told,
        flags=tuple(dict.fromkeys((*raised, *chosen.flags))),
        elapsed=sum(attempt.seconds for attempt in tried),
    )


def _best(good: Sequence[Evidence], whole: Sequence[Evidence]) -> Evidence:
    """The most exact of the good results; if there is none, the most useful of all."""
    trusted = [r for r in whole if r.is_trusted and not math.isnan(r.std_error)]
    if good or trusted:
        return most_exact(good or trusted)
    return _largest([r for r in whole if r.is_lower_bound] or whole)


def _largest(results: Sequence[Evidence]) -> Evidence:
    return max(results, key=lambda result: result.log_evidence)


def _within_bounds(chosen: Evidence, results: Sequence[Evidence]) -> bool:
    """Whether an answer is not below the bound of a path that was not to be trusted."""
    upper = chosen.log_evidence + MIN_METHOD_ERRORS * chosen.std_error
    bounds = [islands_lower_bound(r, PATH_BOUND_PROBABILITY) for r in results if r.is_lower_bound]
    return not any(bound > upper for bound in bounds)


def _in_words(tried: Sequence[Attempt], answers: str) -> str:
    """Which methods ran and why, in one sentence."""
    first = tried[0].choice
    if len(tried) == 1:
        return f'method="auto" is {first.method.name} here: {first.why}.'
    steps = [
        f"{a.choice.method.name} ({a.choice.why}; {a.trouble or 'no grave flag'})" for a in tried
    ]
    return f'method="auto" tried {", then ".join(steps)}. This is the answer of {answers}.'
