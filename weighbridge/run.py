"""The one loop: data in, checked and cut to chunks; evidence out, with progress."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from weighbridge.base import DataError, MethodError, PyTree, Status
from weighbridge.changes import Change, Changes
from weighbridge.data import RowChecker, join, num_rows, open_quarantine, rechunk
from weighbridge.data import RowPolicy as RowPolicy
from weighbridge.estimators import (
    SGAIS,
    Method,
    PublishedSGAIS,
    SequentialMethod,
    SequentialRun,
    SequentialSGMCMC,
    Tempering,
    resolve,
)
from weighbridge.estimators.anneal import Report
from weighbridge.model import Model
from weighbridge.model_rows import check_row_function, split_weight
from weighbridge.progress import Reporter, choose_reporter
from weighbridge.quarantine import Quarantine
from weighbridge.result import Evidence
from weighbridge.rounds import Limits, of_a_round, run_rounds
from weighbridge.row_order import in_random_order, order_matters
from weighbridge.sources import Source, open_source
from weighbridge.watched import WatchedRun, annealing_steps

QuarantineFile = str | os.PathLike[str] | Quarantine
OneRound = Callable[[int, Sequence[str]], dict[str, Evidence]]


@dataclass(frozen=True)
class Update:
    """What one update of a stream brought.

    Attributes:
        log_evidence: of all rows seen, in nats.
        std_error: its standard error; NaN when it cannot be stated.
        log_predictive: log evidence gained, log p(new rows | rows before); in an update after which
            a path that had lost mass was put right (``Status.PATH_LOST``) also that.
        num_observations: rows seen in all.
        annealing_steps: of these rows, averaged over islands and summed over chunks.
        ess: effective particles of an island, on average.
        rows_skipped: bad rows left out of this update.
        rows_quarantined: bad rows of this update that went to the quarantine file.
        flags: every reason for caution.
        elapsed: seconds that this update took.
        changes: changes of the stream that these rows showed, if they are looked for.
    """

    log_evidence: float
    std_error: float
    log_predictive: float
    num_observations: int
    annealing_steps: float
    ess: float
    rows_skipped: int
    rows_quarantined: int
    flags: tuple[Status, ...]
    elapsed: float
    changes: tuple[Change, ...] = ()

    @property
    def status(self) -> Status:
        """The gravest flag, or ``Status.OK``."""
        return self.flags[0] if self.flags else Status.OK


def require_model(model: Any) -> None:
    """Refuse what is no model."""
    if not isinstance(model, Model):
        raise MethodError(
            f"model must be a wb.Model, not {type(model).__name__}. For a NumPyro function use "
            "wb.from_numpyro."
        )


def nothing_to_weigh(rows_left_out: int) -> str:
    """What to say when no row is left."""
    reason = ", or every row was skipped." if rows_left_out else "."
    return f"There is no row to weigh: the data is empty{reason}"


class Admission:
    """The gate that every block of rows passes, for one model."""

    def __init__(
        self, model: Model, on_bad_row: RowPolicy, quarantine: QuarantineFile | None = None
    ) -> None:
        require_model(model)
        self.model = model
        self.checker = RowChecker(on_bad_row, self.check_rows, quarantine)
        self.weight_counts_rows: bool | None = None

    def admit(self, values: PyTree) -> PyTree:
        """Check a block of rows; the first also checks the model against its columns."""
        before = self.weight_counts_rows
        if num_rows(values) and before is None:
            self.weight_counts_rows = check_row_function(self.model, values)
        try:
            return self.checker(values)
        except DataError:
            self.weight_counts_rows = before
            raise

    def noticed(self) -> dict[str, Any]:
        """What a result should tell about its rows."""
        return {
            "rows_skipped": self.checker.rows_skipped,
            "rows_quarantined": self.checker.rows_quarantined,
            "weighted_rows": bool(self.weight_counts_rows),
        }

    def check_rows(self, values: PyTree) -> dict[str, np.ndarray]:
        """The rows that the model cannot have, and those with a negative weight."""
        flags = {} if self.model.check_rows is None else dict(self.model.check_rows(values))
        if self.weight_counts_rows and np.ndim(values["weight"]) == 1:
            flags["column 'weight' counts repeated rows and is negative"] = values["weight"] < 0
        return flags


class Session(Admission):
    """A model, a method and the rows so far: what ``evidence`` and ``Online`` both drive."""

    def __init__(
        self,
        model: Model,
        method: SequentialMethod,
        seed: int,
        on_bad_row: RowPolicy,
        first_island: int = 0,
        quarantine: QuarantineFile | None = None,
        changes: Changes | None = None,
    ) -> None:
        super().__init__(model, on_bad_row, quarantine)
        if changes is not None and not isinstance(changes, Changes):
            raise MethodError(f"changes must be a wb.Changes or None, not {changes!r}.")
        self.method = method
        self.run: SequentialRun
        if changes is None:
            self.run = method.start(model, seed=seed, first_island=first_island)
        else:
            self.run = WatchedRun(method, model, seed, first_island, changes)
        self.elapsed = 0.0

    @property
    def changes(self) -> list[Change]:
        """Changes that were found so far."""
        return self.run.changes if isinstance(self.run, WatchedRun) else []

    def chunk_after(self, rows_seen: int) -> int:
        """Rows of the next chunk, where all are at hand."""
        if not isinstance(self.run, WatchedRun):
            return self.method.chunk_after(rows_seen, in_memory=True)
        # The rate of false alarms is that of a chunk: its size must not grow.
        window = self.run.detector.changes.window
        return min(self.method.chunk_after(rows_seen, in_memory=False), window)

    def absorb(self, values: PyTree) -> None:
        """Bring in one chunk of admitted rows."""
        began = time.perf_counter()
        self.run.absorb(*split_weight(values, bool(self.weight_counts_rows)))
        self.elapsed += time.perf_counter() - began

    def result(self) -> Evidence:
        """The evidence so far."""
        if not self.run.path:
            raise DataError(nothing_to_weigh(self.checker.rows_left_out))
        return self.run.result(self.elapsed, self.noticed())


def update_session(session: Session, values: PyTree) -> Update:
    """Check all rows of an update, then absorb them chunk by chunk."""
    if num_rows(values) == 0:
        raise DataError("The update has no rows. Skip it, or wait until there is one.")
    began = time.perf_counter()
    run, skipped = session.run, session.checker.rows_skipped
    quarantined = session.checker.rows_quarantined
    checked, counted = session.checker.state(), session.weight_counts_rows
    rows = session.admit(values)
    before, steps_before = (run.path[-1][1] if run.path else 0.0), annealing_steps(run)
    absorbed, seen_before = 0, run.num_rows
    changes_before = len(session.changes)
    for chunk in rechunk([rows], lambda taken: session.chunk_after(seen_before + taken)):
        try:
            session.absorb(chunk)
        except Exception as error:
            if absorbed:
                error.add_note(f"The first {absorbed} rows of this update had been absorbed.")
            else:
                session.checker.restore(checked)
                session.weight_counts_rows = counted
            raise
        absorbed += num_rows(chunk)
    elapsed = time.perf_counter() - began
    if not run.path:
        raise DataError("Every row so far was skipped: there is nothing to weigh.")
    seen, log_evidence, std_error = run.path[-1][:3]
    return Update(
        log_evidence=log_evidence,
        std_error=std_error,
        log_predictive=log_evidence - before,
        num_observations=round(seen),
        annealing_steps=annealing_steps(run) - steps_before,
        ess=run.path[-1][4],
        rows_skipped=session.checker.rows_skipped - skipped,
        rows_quarantined=session.checker.rows_quarantined - quarantined,
        flags=run.flags(),
        elapsed=elapsed,
        changes=tuple(session.changes[changes_before:]),
    )


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
) -> Evidence:
    r"""The log evidence of a model on data, log Z = log \int p(data | theta) p(theta) d theta.

    Args:
        model: a ``wb.Model``.
        data: an array, a dict or other pytree of arrays with one leading axis, a data frame, the
            path of a CSV, Parquet or NPZ file, or an iterator of such chunks.
        method: a method object, or its name for the defaults.
        seed: the same seed gives the same numbers.
        tolerance: standard error (nats) to reach; islands are added until it is. Methods that
            temper all the data begin with half of theirs, which may be enough.
        time_limit: seconds after which no more islands are added.
        progress: True or False, or a reporter; by default a bar on a terminal.
        on_bad_row: what to do with rows that cannot be used: "raise", "skip" them and count them,
            or "quarantine": count them and append them to a file, with the reason.
        quarantine: that file.

    Returns:
        The log evidence with its error, the posterior, and the path.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(100, seed=1)
    >>> result = wb.evidence(wb.zoo.gaussian.model(), data, seed=0)
    >>> abs(result.log_evidence - wb.zoo.gaussian.log_evidence(data)) < 5 * result.std_error
    True
    """
    chosen = resolve(method)
    limits = Limits(tolerance, time_limit)
    limits.check(chosen)
    require_model(model)
    began = time.perf_counter()
    results = weigh_together(
        {"": Competitor(model, as_it_is)},
        open_common({"": model}, data, chosen),
        chosen,
        seed=seed,
        limits=limits,
        on_bad_row=on_bad_row,
        quarantine=quarantine,
        reporter=choose_reporter(progress),
    )
    return replace(results[""], elapsed=time.perf_counter() - began)


def open_common(models: Mapping[str, Model], data: Any, method: Method) -> Source:
    """Data that every one of the models can be weighed on; none for models that have their own."""
    for model in models.values():
        require_model(model)
        if isinstance(method, SequentialMethod):
            model.require_rows()
        if data is None and model.log_likelihood is not None:
            raise DataError(f"{method.name} weighs rows: give it data.")
    return Source(lambda: iter(())) if data is None else open_source(data)


class Held(Admission):
    """All observations of a model, checked and held in memory, for methods that need them so."""

    def __init__(
        self, model: Model, on_bad_row: RowPolicy, quarantine: QuarantineFile | None = None
    ) -> None:
        super().__init__(model, on_bad_row, quarantine)
        self.blocks: list[PyTree] = []

    def add(self, values: PyTree) -> None:
        """Take in one block; a likelihood that does not factorise has no rows to check."""
        if self.model.log_likelihood is not None:
            values = self.admit(values)
        if values is not None and num_rows(values):
            self.blocks.append(values)

    def contents(self) -> tuple[PyTree, np.ndarray | None]:
        """All rows and their weights; no weights for a likelihood that does not factorise."""
        values: PyTree = join(self.blocks) if self.blocks else None
        if self.model.log_likelihood is None:
            return values, None
        if values is None:
            raise DataError(nothing_to_weigh(self.checker.rows_left_out))
        return split_weight(values, bool(self.weight_counts_rows))

    def estimate(
        self, method: Tempering, seed: int, first_island: int = 0, report: Report | None = None
    ) -> Evidence:
        """The evidence of what is held, by islands from the first one on."""
        values, weight = self.contents()
        result = method.estimate(
            self.model, values, weight, seed=seed, first_island=first_island, report=report
        )
        return replace(result, diagnostics={**result.diagnostics, **self.noticed()})


def hold(
    model: Model,
    data: Any,
    caller: str,
    on_bad_row: RowPolicy = "raise",
    quarantine: QuarantineFile | None = None,
) -> tuple[PyTree, np.ndarray | None]:
    """All observations that a function was given for a model, checked, and their weights."""
    if data is None and model.log_likelihood is not None:
        raise DataError(f"{caller} needs rows for this model: give it data.")
    held = Held(model, on_bad_row, quarantine)
    if data is not None:
        for block in open_source(data).blocks():
            held.add(block)
    return held.contents()


@dataclass(frozen=True)
class Competitor:
    """A model, and how it sees a block of the common data."""

    model: Model
    view: Callable[[PyTree], PyTree]


def as_it_is(values: PyTree) -> PyTree:
    """The view of a model that takes the data as they are."""
    return values


class Policy(NamedTuple):
    """What becomes of bad rows, and the file that they go to."""

    on_bad_row: RowPolicy
    quarantine: Quarantine | None


def weigh_together(
    competitors: Mapping[str, Competitor],
    source: Source,
    method: Method,
    *,
    seed: int = 0,
    limits: Limits | None = None,
    on_bad_row: RowPolicy = "raise",
    quarantine: QuarantineFile | None = None,
    reporter: Reporter,
) -> dict[str, Evidence]:
    """The evidence of several models in one pass over data that may be read only once.

    With a tolerance, those whose error is still too large run more islands; for methods that take
    rows as they come that is another pass, if the data can be read again.
    """
    limits = limits or Limits()
    names = list(competitors)
    try:
        # One for all models and rounds, so that a row is written once.
        policy = Policy(on_bad_row, open_quarantine(on_bad_row, quarantine))
        if isinstance(method, Tempering):
            numbered = limits.tolerance is not None
            least = method.num_islands
            if numbered:
                dimension = max(c.model.dimension for c in competitors.values())
                method = of_a_round(method, dimension)
            one_round = _held_rounds(competitors, source, method, seed, policy, reporter, numbered)
            return run_rounds(one_round, names, method, limits, repeatable=True, least=least)
        rows = source.num_rows if source.in_memory else None
        if rows and isinstance(method, SGAIS | PublishedSGAIS | SequentialSGMCMC):
            # Rows that are in memory anyway can all be reached: no reservoir is needed.
            method = replace(method, reservoir=max(method.reservoir, rows))
        shuffled = _is_shuffled(method, source)
        one_round = _streamed_rounds(competitors, source, method, seed, policy, reporter, shuffled)
        return run_rounds(one_round, names, method, limits, repeatable=source.reopenable)
    finally:
        reporter.close()


def _held_rounds(
    competitors: Mapping[str, Competitor],
    source: Source,
    method: Tempering,
    seed: int,
    policy: Policy,
    reporter: Reporter,
    numbered: bool,
) -> OneRound:
    """Hold all the data, and give a function that runs one round of islands on them."""
    holders = {name: Held(c.model, *policy) for name, c in competitors.items()}
    for block in source.blocks():
        for name, held in holders.items():
            held.add(competitors[name].view(block))

    def one_round(first_island: int, names: Sequence[str]) -> dict[str, Evidence]:
        number = first_island // method.num_islands + 1 if numbered else 0
        results = {}
        for name in names:
            label = name if len(competitors) > 1 else ""
            report = partial(reporter.temper, label=label, island_round=number)
            results[name] = holders[name].estimate(method, seed, first_island, report)
        return results

    return one_round


def _is_shuffled(method: SequentialMethod, source: Source) -> bool:
    """Whether the rows are taken in random order: a decision for all models."""
    if not isinstance(method, SGAIS):
        return False
    if method.shuffle and not source.in_memory:
        raise MethodError(
            "shuffle=True needs all rows in memory, and these come from files or an iterator: "
            "read them into arrays first, or leave it out."
        )
    undecided = method.shuffle is None and method.half_life is None
    if undecided and source.in_memory and source.num_rows is not None:
        return order_matters(join(list(source.blocks())))
    return bool(method.shuffle)


def _streamed_rounds(
    competitors: Mapping[str, Competitor],
    source: Source,
    method: SequentialMethod,
    seed: int,
    policy: Policy,
    reporter: Reporter,
    shuffled: bool,
) -> OneRound:
    """A function that runs one round of islands in one pass over the data."""

    def one_round(first_island: int, names: Sequence[str]) -> dict[str, Evidence]:
        sessions = {
            name: Session(
                competitors[name].model,
                method,
                seed,
                policy.on_bad_row,
                first_island,
                policy.quarantine,
            )
            for name in names
        }
        reporter.start(source.num_rows)
        views = {name: competitors[name].view for name in names}
        sizes = partial(method.chunk_after, in_memory=source.in_memory)
        cut = partial(_admitted_chunks, sizes=sizes)
        if shuffled:
            cut = partial(
                _shuffled_chunks,
                order=partial(
                    in_random_order, seed=seed, first_island=first_island, size_after=sizes
                ),
            )
        for chunks in cut(sessions, views, source.blocks()):
            for name, session in sessions.items():
                if name in chunks and num_rows(chunks[name]):
                    session.absorb(chunks[name])
                    _report(reporter, session, name if len(competitors) > 1 else "")
        told = {"row_order": "random" if shuffled else "as given"}
        results = {name: session.result() for name, session in sessions.items()}
        return {n: replace(r, diagnostics=r.diagnostics | told) for n, r in results.items()}

    return one_round


def _admitted_chunks(
    sessions: Mapping[str, Session],
    views: Mapping[str, Callable[[PyTree], PyTree]],
    blocks: Iterable[PyTree],
    sizes: Callable[[int], int],
) -> Iterator[dict[str, PyTree]]:
    """Chunks as each model sees them; every model checks the rows before the first takes them."""
    if len(sessions) == 1:
        ((name, session),) = sessions.items()
        # Checked before they are cut, so that rows which are skipped leave no short chunks.
        admitted = (session.admit(views[name](block)) for block in blocks)
        for chunk in rechunk(admitted, sizes):
            yield {name: chunk}
        return
    for block in rechunk(blocks, sizes):
        yield {name: session.admit(views[name](block)) for name, session in sessions.items()}


def _shuffled_chunks(
    sessions: Mapping[str, Session],
    views: Mapping[str, Callable[[PyTree], PyTree]],
    blocks: Iterable[PyTree],
    order: Callable[[PyTree], Iterator[PyTree]],
) -> Iterator[dict[str, PyTree]]:
    """Chunks in random order; every row is checked, in the order as given, before any is taken."""
    held: dict[str, list[PyTree]] = {name: [] for name in sessions}
    for block in blocks:
        for name, session in sessions.items():
            held[name].append(session.admit(views[name](block)))
    streams = [order(join(rows)) for rows in held.values()]
    for chunks in zip_longest(*streams):
        yield {name: chunk for name, chunk in zip(held, chunks) if chunk is not None}


def _report(reporter: Reporter, session: Session, label: str = "") -> None:
    if session.run.path:
        _, log_evidence, _, annealing_steps, *_ = session.run.path[-1]
        reporter.update(session.run.num_rows, log_evidence, annealing_steps, label)
