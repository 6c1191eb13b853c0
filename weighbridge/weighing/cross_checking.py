"""``wb.cross_check``: weigh a model by unlike methods, and see whether they agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from weighbridge.core import interrupts
from weighbridge.core.errors import DataError, MethodError
from weighbridge.core.interrupts import interruptible
from weighbridge.core.progress.announcing import announce, announced
from weighbridge.core.progress.reporters import Reporter, choose_reporter
from weighbridge.data.row_checking import RowPolicy
from weighbridge.data.sources.source import Source
from weighbridge.estimators.choosing import Choice, choose_unlike, offer_of
from weighbridge.estimators.registry import Method, resolve
from weighbridge.models.model import Model
from weighbridge.results.evidence_result import Evidence
from weighbridge.weighing.attempts import Attempt, Trials
from weighbridge.weighing.competitor import Competitor, as_it_is
from weighbridge.weighing.cross_check import CrossCheck
from weighbridge.weighing.one_round import Policy, Weighing
from weighbridge.weighing.rounds import Limits
from weighbridge.weighing.weighing import READING, open_common


def cross_check(
    model: Model,
    data: Any = None,
    methods: Sequence[str | Method] | None = None,
    *,
    seed: int = 0,
    time_limit: float | None = None,
    progress: bool | Reporter | None = None,
) -> CrossCheck:
    """The log evidence by two or three methods that fail for different reasons.

    A path of powers fails where the posterior changes suddenly with the power, nested sampling
    where walkers stay near their starts, a bridge where chains miss a mode, and importance sampling
    where its proposal does. What they agree on is wrong only if all of them fail alike: none of
    them sees a mode that is too narrow to be hit at all.

    Args:
        model: a ``wb.Model``.
        data: as for ``wb.evidence``; all rows are held in memory.
        methods: two or more names or method objects. By default a path of powers; nested sampling
            up to 30 parameters and 20,000 rows; a bridge from chains if there is a gradient; and
            importance sampling at the modes where one of these is missing.
        seed: the same seed gives the same numbers.
        time_limit: seconds for all methods together; a method that does not end in its share of
            them gives no answer.
        progress: as for ``wb.evidence``.

    After Ctrl-C the methods that are finished are returned.

    >>> import weighbridge as wb
    >>> model, data = wb.zoo.gaussian.model(), wb.zoo.gaussian.simulate(50, seed=1)
    >>> check = wb.cross_check(model, data, ["smc", wb.NestedSampling(num_live=200)])
    >>> check.verdict, list(check.results)
    ('agree', ['smc', 'nested'])
    """
    chosen = None if methods is None else _given(methods)
    limits = Limits(None, time_limit)
    first = Choice(resolve("smc") if chosen is None else next(iter(chosen.values())).method)
    limits.check(first.method, decides=True)
    reporter = choose_reporter(progress)
    try:
        with interruptible(partial(announce, reporter, at_once=True)):
            with announced(reporter, READING):
                source = open_common({"": model}, data, first.method)
                require_readable_again(source)
                weighing = Weighing(
                    {"": Competitor(model, as_it_is)}, source, seed, Policy("raise", None), reporter
                )
                trials = Trials(weighing, limits)
                values = trials.held()[""].values()
            if chosen is None:
                unlike = choose_unlike(offer_of(model, values))
                chosen = {choice.method.name: choice for choice in unlike}
            return check_one(trials, "", chosen)
    finally:
        reporter.close()


def check_one(
    trials: Trials, name: str, chosen: Mapping[str, Choice], known: Evidence | None = None
) -> CrossCheck:
    """One model by several methods, within the time that is left.

    Args:
        trials: runs the methods.
        name: of the model.
        chosen: the methods, by the names that their results get.
        known: a result that is there already.
    """
    attempts: dict[str, Attempt] = {}
    for label, choice in chosen.items():
        if attempts and interrupts.is_due():
            break
        left = len(chosen) - len(attempts)
        attempts[label] = trials.attempt(name, choice, again=known is not None, shared_by=left)
    results = {} if known is None else {known.method: known}
    results |= {label: a.result for label, a in attempts.items() if a.result is not None}
    if not results:
        failed = next(iter(attempts.values()))
        raise failed.error or interrupts.Interrupted("Interrupted before there was an answer.")
    failures = {label: a.trouble for label, a in attempts.items() if a.result is None}
    return CrossCheck(results, failures)


def require_readable_again(source: Source) -> None:
    """An error for a source that can be read only once: every method needs all rows."""
    if not source.reopenable:
        raise DataError(
            "A cross-check reads the data once for each method, and this source can be read only "
            "once. Give arrays or files, or collect the chunks into arrays first."
        )


def check_results(
    results: Mapping[str, Evidence],
    competitors: Mapping[str, Competitor],
    source: Source,
    *,
    seed: int,
    on_bad_row: RowPolicy,
    time_limit: float | None,
    reporter: Reporter,
) -> dict[str, CrossCheck]:
    """Hold the result of each of several models against methods unlike the one that gave it."""
    policy = Policy("raise" if on_bad_row == "raise" else "skip", None)
    weighing = Weighing(competitors, source, seed, policy, reporter)
    trials = Trials(weighing, Limits(None, time_limit))
    checks = {}
    for name, result in results.items():
        if interrupts.is_due():
            break
        offer = offer_of(competitors[name].model, trials.held(again=True)[name].values())
        unlike = {c.method.name: c for c in choose_unlike(offer, [result.method])}
        checks[name] = check_one(trials, name, unlike, result)
    return checks


def _given(methods: Sequence[str | Method]) -> dict[str, Choice]:
    """The methods that the user gives, by name; numbered if two have the same name."""
    if isinstance(methods, str) or not isinstance(methods, Sequence):
        raise MethodError(
            'methods must be a list of names or method objects, as in ["smc", "nested"], not '
            f"{methods!r}."
        )
    if len(methods) < 2:
        raise MethodError("A cross-check needs two methods or more; leave methods out for three.")
    chosen: dict[str, Choice] = {}
    for method in methods:
        found = resolve(method)
        name = found.name
        count = sum(choice.method.name == name for choice in chosen.values())
        chosen[f"{name} ({count + 1})" if count else name] = Choice(found)
    return chosen
