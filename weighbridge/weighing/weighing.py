"""The evidence of a model, or of several on the same data, with progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from weighbridge.core.errors import DataError
from weighbridge.core.interrupts import interruptible
from weighbridge.core.progress.announcing import announce, announced
from weighbridge.core.progress.reporters import Reporter, choose_reporter, is_watched
from weighbridge.data.row_checking import RowPolicy, open_quarantine
from weighbridge.data.sources.opening import open_source
from weighbridge.data.sources.source import Source
from weighbridge.data.values import num_rows
from weighbridge.estimators.choosing import Choice, choose
from weighbridge.estimators.protocols import SequentialMethod
from weighbridge.estimators.registry import Method
from weighbridge.models.column_scales import scale_remark
from weighbridge.models.model import Model
from weighbridge.models.row_gate import QuarantineFile, require_model
from weighbridge.results.evidence_result import Evidence
from weighbridge.weighing.attempts import weigh_by_choice
from weighbridge.weighing.competitor import Competitor, as_it_is
from weighbridge.weighing.one_round import Policy, Weighing
from weighbridge.weighing.planning import plan_rounds
from weighbridge.weighing.resuming import check_resumable
from weighbridge.weighing.rounds import Limits, run_rounds

READING = "reading the data"


def evidence(
    model: Model,
    data: Any = None,
    method: str | Method = "auto",
    *,
    seed: int = 0,
    tolerance: float | None = None,
    time_limit: float | None = None,
    progress: bool | Reporter | None = None,
    on_bad_row: RowPolicy = "raise",
    quarantine: QuarantineFile | None = None,
    resume: str | Path | None = None,
) -> Evidence:
    r"""The log evidence of a model on data, log Z = log \int p(data | theta) p(theta) d theta.

    Args:
        model: a ``wb.Model``.
        data: an array, a dict or other pytree of arrays with one leading axis, a data frame
            (pandas, polars, Arrow), the path of a CSV, Parquet or NPZ file, or an iterator of such
            chunks. Columns that do not hold numbers are left out, and the result lists them; if
            the model reads such a column, that is an error.
        method: a method object, or its name for the defaults. "auto" chooses by what the model and
            the data offer, and goes on with a method that fails for other reasons if the first one
            is not to be trusted; ``diagnostics["attempts"]`` has all of them.
        seed: the same seed gives the same numbers.
        tolerance: standard error (nats) to reach; islands are added until it is reached. Methods
            that temper all the data begin with half of their islands, which may be enough.
        time_limit: seconds after which no more islands are added, and no other method is tried by
            "auto". With any other method it needs a tolerance.
        progress: True or False, or a reporter; by default a bar on a terminal or in a
            notebook, and elsewhere a few lines on standard error if a run takes more than 10 s.
        on_bad_row: what to do with rows that cannot be used: "raise", "skip" them and count them,
            or "quarantine": count them and append them to a file, with the reason.
        quarantine: that file.
        resume: a file in which the run is kept: every ten seconds, at its end, and after Ctrl-C or
            an error. If it exists, the run goes on from there, bit for bit as if it had never
            stopped, if the model, the data, the method and the seed are the same; limits of time
            and of calls may change, and a tolerance too. For nested sampling.

    After Ctrl-C the result so far is returned, with ``Status.INTERRUPTED``: of the rows so far, of
    the path so far (``diagnostics["power_reached"]``; below 1 it is not the evidence, and the error
    is NaN), or of the finished rounds of islands. A second Ctrl-C ends the call at once.

    Returns:
        The log evidence with its error, the posterior, and the path.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(100, seed=1)
    >>> result = wb.evidence(wb.zoo.gaussian.model(), data, seed=0)
    >>> abs(result.log_evidence - wb.zoo.gaussian.log_evidence(data)) < 5 * result.std_error
    True
    """
    choice = choose(method, [model])
    limits = Limits(tolerance, time_limit)
    limits.check(choice.method, decides=choice.decides)
    if resume is not None:
        check_resumable(choice.method, resume)
    require_model(model)
    began = time.perf_counter()
    reporter = choose_reporter(progress)
    with interruptible(partial(announce, reporter, at_once=True)):
        with announced(reporter, READING):
            source = open_common({"": model}, data, choice.method, on_bad_row)
        results = weigh_together(
            {"": Competitor(model, as_it_is)},
            source,
            choice,
            seed=seed,
            limits=limits,
            on_bad_row=on_bad_row,
            quarantine=quarantine,
            reporter=reporter,
            resume=resume,
        )
    return replace(results[""], elapsed=time.perf_counter() - began)


def open_common(
    models: Mapping[str, Model], data: Any, method: Method, on_bad_row: RowPolicy = "raise"
) -> Source:
    """Open the data for all models; an empty source for models that contain their own data."""
    for model in models.values():
        require_model(model)
        if isinstance(method, SequentialMethod):
            model.require_rows()
        if data is None and model.log_likelihood is not None:
            raise DataError(f"{method.name} weighs rows: give it data.")
    if data is None:
        return Source(lambda: iter(()))
    return open_source(data, on_bad_row=on_bad_row)


def weigh_together(
    competitors: Mapping[str, Competitor],
    source: Source,
    choice: Choice,
    *,
    seed: int = 0,
    limits: Limits | None = None,
    on_bad_row: RowPolicy = "raise",
    quarantine: QuarantineFile | None = None,
    reporter: Reporter,
    resume: str | Path | None = None,
) -> dict[str, Evidence]:
    """The evidence of several models in one pass over data that may be read only once.

    If "auto" decides, and the data can be read again, other methods may follow the first one.

    With a tolerance, models whose error is still too large run more islands. Sequential methods
    then need another pass, which is possible only if the data can be read again.
    """
    limits = limits or Limits()
    try:
        announce(reporter, READING)
        # One quarantine file for all models and rounds, so that a row is written once.
        policy = Policy(on_bad_row, open_quarantine(on_bad_row, quarantine))
        weighing = Weighing(competitors, source, seed, policy, reporter)
        if is_watched(reporter):
            _tell_scales(competitors, source)
        if choice.decides:
            results = weigh_by_choice(weighing, choice, limits)
        else:
            plan = plan_rounds(weighing, choice.method, limits, resume=resume)
            results = run_rounds(plan, list(competitors), limits)
        return _told_of_files(results, source, policy)
    finally:
        reporter.close()


def _told_of_files(
    results: dict[str, Evidence], source: Source, policy: Policy
) -> dict[str, Evidence]:
    """Add the files that could not be read to the results and to the quarantine file."""
    if not source.set_aside:
        return results
    if policy.quarantine is not None:
        for file, reason in source.set_aside.items():
            policy.quarantine.set_aside(file, reason)
    told = {"files_left_out": list(source.set_aside.values())}
    return {n: replace(r, diagnostics=r.diagnostics | told) for n, r in results.items()}


def _tell_scales(competitors: Mapping[str, Competitor], source: Source) -> None:
    """Print remarks on column scales that make a run slow, if the data can be read twice."""
    first = next(source.blocks(), None) if source.reopenable else None
    if first is None or not num_rows(first):
        return
    models = [c for c in competitors.values() if c.model.log_likelihood is not None]
    remarks = dict.fromkeys(scale_remark(c.model, c.view(first)) for c in models)
    for remark in filter(None, remarks):
        print(f"weighbridge: {remark}", file=sys.stderr)
