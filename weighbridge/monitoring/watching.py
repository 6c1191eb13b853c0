"""``wb.watch``: compare models on a feed for as long as it lasts, with events and checkpoints."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from pathlib import Path
from typing import Any

import weighbridge
from weighbridge.core import checkpoint_file
from weighbridge.core.errors import CheckpointError, MethodError
from weighbridge.core.interrupts import Interrupted, stopped_by
from weighbridge.core.progress.announcing import announce
from weighbridge.core.types import PyTree
from weighbridge.data.feeds.base import Cursor, Feed, Notice
from weighbridge.data.feeds.chunking import Chunk, Chunks, chunks
from weighbridge.data.feeds.continuity import Continuity
from weighbridge.data.feeds.cursors import check_not_behind
from weighbridge.data.feeds.opening import open_feed
from weighbridge.data.quarantine import Unread
from weighbridge.data.values import num_rows
from weighbridge.monitoring.checkpoint_store import CheckpointStore
from weighbridge.monitoring.event_log import EVENTS, EventLog, describe_error
from weighbridge.monitoring.run_lock import locked
from weighbridge.monitoring.terminal import Display, Quiet, State
from weighbridge.monitoring.watch_plan import Keeping, Plan, Reason, RowPreparation, Watched
from weighbridge.weighing.online_comparison.online_comparison import OnlineComparison
from weighbridge.weighing.online_comparison.update import ComparisonUpdate

CHECKPOINTS = "checkpoints"
# Posterior summaries take at most this share of the time.
SUMMARY_SHARE = 0.05
# A stopped watch writes a last summary only if the one before took less than this (seconds).
QUICK = 2.0
# After a stop, the current chunk has this many seconds to end; then it is abandoned between steps.
GRACE = 2.0
# Most programs are compiled during the first chunks; a stop does not wait for them.
COMPILING_CHUNKS = 10


def watch(
    plan: Plan,
    source: Any,
    directory: str | Path,
    *,
    prepare: RowPreparation | None = None,
    keeping: Keeping | None = None,
    display: Display | None = None,
    stop: threading.Event | None = None,
) -> Watched:
    """Compare models on a stream until it ends or is stopped; a new start continues the run.

    In the run directory it appends to ``events.jsonl`` and writes checkpoints. Each of them has the
    position in the source too. A run that was killed continues from the last checkpoint. If the
    source can seek, its numbers are those of an uninterrupted run, bit for bit. A run directory is
    for one watch: a second watch in the same directory is refused with a ``wb.InUseError``.

    Args:
        plan: the models and their settings.
        source: a feed, or what ``wb.open_feed`` takes.
        directory: the run directory; it is created if it does not exist.
        prepare: makes the rows for the models from the rows of the source.
        keeping: when to write checkpoints, and how many to keep.
        display: shows every update.
        stop: set it, from a signal or another thread, to stop after the current chunk. If the chunk
            needs more than two seconds and the source can seek, the chunk is abandoned, and read
            again when the watch is resumed. With other sources the watch waits for the chunk.

    >>> import tempfile
    >>> import weighbridge as wb
    >>> near, far = wb.zoo.gaussian.model(prior_mean=2.0), wb.zoo.gaussian.model(prior_mean=-2.0)
    >>> small = wb.SGAIS(num_islands=4, num_particles=16)
    >>> plan = Plan({"near": near, "far": far}, small, chunk_size=50)
    >>> rows = wb.zoo.gaussian.simulate(120, mean=2.0, seed=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = watch(plan, rows[:100], folder)
    ...     second = watch(plan, rows, folder)  # continues with the last twenty rows
    >>> first.rows, second.rows, second.comparison.best
    (100, 120, 'near')
    """
    display = Quiet() if display is None else display
    with locked(Path(directory), display.say):
        feed = source if isinstance(source, Feed) else open_feed(source, on_bad_row=plan.on_bad_row)
        return Watch(plan, feed, Path(directory), prepare, keeping, display, stop).run()


def saved_cursor(directory: Path) -> Cursor | None:
    """The position in the source from which a run would continue; None without a checkpoint."""
    if not (directory / CHECKPOINTS).is_dir():
        return None
    latest = CheckpointStore(directory / CHECKPOINTS).latest()
    extra = None if latest is None else checkpoint_file.verify(latest.path).get("extra")
    cursor = extra.get("cursor") if isinstance(extra, dict) else None
    return cursor if isinstance(cursor, dict) else None


def _shifted(chunk: Chunk, values: PyTree) -> dict[int, Unread]:
    """The unread rows of a chunk, renumbered after a series has lost its first rows."""
    gone = num_rows(chunk.values) - num_rows(values)
    return {row - gone: why for row, why in chunk.unread if row >= gone}


class Watch:
    """A running watch; its caller has locked the run directory. The arguments are of ``watch``."""

    def __init__(
        self,
        plan: Plan,
        feed: Feed,
        directory: Path,
        prepare: RowPreparation | None,
        keeping: Keeping | None,
        display: Display,
        stop: threading.Event | None,
    ) -> None:
        keeping = keeping or Keeping()
        self.plan, self.feed, self.directory = plan, feed, directory
        self.prepare, self.display = prepare, display
        self.stop = threading.Event() if stop is None else stop
        self.store = CheckpointStore(
            directory / CHECKPOINTS, keeping.keep, keeping.every_rows, keeping.every_seconds
        )
        self.log = EventLog(directory / EVENTS, self.display.say)
        self.continuity = Continuity()
        self.cursor: dict[str, Any] | None = None
        # What a checkpoint saves beside the comparison; it belongs to the last absorbed chunk.
        self.place: dict[str, Any] | None = None
        self.saved_rows, self.problem = 0, ""
        self.comparison = self._resumed() or self._fresh()
        self.comparison.progress = False  # the display shows the progress
        self.began = time.monotonic()
        self.summary_seconds = 0.0
        self.last_change = ""
        self.num_weighed = 0
        self.bad_rows = 0

    # --- beginning -------------------------------------------------------------------------------

    def _quarantine(self) -> Path | None:
        wanted = self.plan.on_bad_row == "quarantine"
        return self.directory / "quarantine.jsonl" if wanted else None

    def _fresh(self) -> OnlineComparison:
        plan = self.plan
        return OnlineComparison(
            plan.models,
            plan.method,
            plan.seed,
            prior_odds=plan.prior_odds,
            on_bad_row=plan.on_bad_row,
            quarantine=self._quarantine(),
            changes=plan.changes,
        )

    def _resumed(self) -> OnlineComparison | None:
        """The run of the last checkpoint, at its position in the source; None without one."""
        latest = self.store.latest()
        if latest is None:
            return None
        for notice in latest.notices:
            self.display.say(notice)
        comparison = OnlineComparison.load(
            latest.path,
            self.plan.models,
            self.plan.method,
            on_bad_row=self.plan.on_bad_row,
            quarantine=self._quarantine(),
        )
        extra = comparison.extra
        try:
            saved, cursor = dict(extra["settings"]), extra["cursor"]
            self.continuity.restore(extra["continuity"])
            if self.prepare is not None:
                self.prepare.restore(extra["prepared"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{latest.path} is no checkpoint of a watch: {error!r}. Choose another directory."
            ) from error
        for name, value in self.plan.settings().items():
            if saved.get(name) != value:
                raise MethodError(
                    f"The run in {self.directory} has {name}={saved.get(name)!r}, and now it is "
                    f"{value!r}. Start it with the same, or in another directory."
                )
        self.saved_rows = comparison.num_observations
        self.display.say(f"resumed at row {comparison.num_observations:,} from {latest.path.name}")
        if self.feed.seekable:
            check_not_behind(cursor, comparison.rows_read, self.feed.describe())
            self.cursor = cursor
        else:
            self.display.say(
                f"the source is {self.feed.describe()}: rows between the checkpoint and now are "
                "missing"
            )
        return comparison

    # --- the loop --------------------------------------------------------------------------------

    def run(self) -> Watched:
        """Run until the rows end or the watch is stopped."""
        rows = self.comparison.num_observations
        self.log.write(
            "start",
            rows,
            {
                "models": self.comparison.names,
                "source": self.feed.describe(),
                "seekable": self.feed.seekable,
                "version": weighbridge.__version__,
            },
        )
        cut = chunks(self.feed, self.plan.chunk_size, self.cursor, self.continuity)
        reason: Reason = "error"
        try:
            reason = self._absorb_all(cut)
        finally:
            self._end(reason)
        seen = self.comparison.num_observations
        quickly = reason == "end" or 0 < self.summary_seconds < QUICK
        found = self.comparison.result() if seen and quickly else None
        return Watched(reason, seen, found, self.saved_rows, self.problem)

    def _absorb_all(self, cut: Chunks) -> Reason:
        announce(self.display, f"reading {self.feed.describe()}")
        for chunk in cut:
            if chunk is None:
                self._tell(cut.take_notices())
                announce(self.display, "waiting for rows")
                self._save_if_due()
            else:
                if self.stop.is_set() and self.feed.seekable:  # this chunk is read again on resume
                    return "signal"
                try:
                    self._absorb(chunk)
                except Interrupted:
                    self.display.say("the chunk under way is left; it does not count")
                    return "signal"
            if self.stop.is_set():
                rest = None if self.feed.seekable else cut.pending()
                if rest is not None:  # these rows cannot be read again
                    self._absorb(rest)
                return "signal"
        self._tell(cut.take_notices())
        return "end"

    def _absorb(self, chunk: Chunk) -> None:
        self._tell(chunk.notices)
        values = chunk.values if self.prepare is None else self.prepare(chunk.values)
        if num_rows(values):  # the first rows of a series may only serve as past values
            compiling = "" if self.num_weighed else "compiling, then "
            announce(self.display, f"{compiling}weighing {num_rows(values):,} rows")
            self.num_weighed += 1
            with self._may_leave_chunk():
                update = self.comparison.update(values, unread=_shifted(chunk, values))
            self._record(update)
        self.place = {
            "settings": self.plan.settings(),
            "cursor": chunk.cursor,
            "continuity": self.continuity.state(),
            "prepared": None if self.prepare is None else self.prepare.state(),
        }
        self._save_if_due()

    def _may_leave_chunk(self) -> contextlib.AbstractContextManager[None]:
        """A block that a stop can end between two steps, if its rows can be read again."""
        if self.feed.seekable:
            return stopped_by(self.stop, GRACE, leaves=self.num_weighed <= COMPILING_CHUNKS)
        return contextlib.nullcontext()

    def _record(self, update: ComparisonUpdate) -> None:
        rows = update.num_observations
        self.log.write(
            "update",
            rows,
            {
                "log_evidences": update.log_evidences,
                "std_errors": update.std_errors,
                "log_predictives": update.log_predictives,
                "annealing_steps": update.annealing_steps,
                "probabilities": update.probabilities,
                "probability_errors": update.probability_errors,
                "rows_skipped": update.rows_skipped,
                "rows_quarantined": update.rows_quarantined,
                "flags": update.flags,
                "trust": update.trust,
                "elapsed": update.elapsed,
            },
        )
        for change in update.changes:
            self.last_change = str(change)
            self.log.write(
                "change",
                rows,
                {
                    "row": change.row,
                    "score": change.score,
                    "p_value": change.p_value,
                    "model": change.model,
                },
            )
        self.bad_rows += update.rows_skipped + update.rows_quarantined
        cautious = [name for name, flags in update.flags.items() if flags]
        self.display.show(
            State(
                rows,
                update.log_evidences,
                update.std_errors,
                update.probabilities,
                self.last_change,
                f"{self.bad_rows:,} bad rows left out" if self.bad_rows else "",
                f"ask for caution: {', '.join(cautious)}" if cautious else "",
                update.probability_errors,
                update.trust,
            )
        )

    def _tell(self, notices: tuple[Notice, ...]) -> None:
        for notice in notices:
            self.log.write(
                "notice",
                self.comparison.num_observations,
                {"kind": notice.kind, "text": notice.text},
            )
            if notice.kind == "unreadable" and isinstance(notice.identifier, str):
                self.comparison.set_file_aside(notice.identifier, notice.text)
            self.display.say(notice.text)

    # --- checkpoints -----------------------------------------------------------------------------

    def _save_if_due(self) -> None:
        if self.place is None or not self.store.due(self.comparison.num_observations):
            return
        self._save()
        if self.summary_seconds <= SUMMARY_SHARE * (time.monotonic() - self.began):
            self._summarise()
            self.began = time.monotonic()

    def _save(self) -> None:
        rows = self.comparison.num_observations
        saved = self.store.save(self.comparison, rows, self.place, on_failure="report")
        failed_before, self.problem = bool(self.problem), saved.problem
        if saved.path is not None:
            self.saved_rows = rows
            self.log.write("checkpoint", rows, {"file": saved.path.name})
            if failed_before:
                self.display.say(f"a checkpoint could be written again, at row {rows:,}")
        else:
            self.log.write("checkpoint_failed", rows, {"reason": saved.problem})
            self.display.say(f"{saved.problem} The checkpoints before it are kept.")

    def _summarise(self) -> None:
        """Write a summary of the posteriors to the event log."""
        began = time.monotonic()
        found = self.comparison.result()
        summary = {}
        for name, result in found.results.items():
            table = result.summary()
            low, high = table.columns[-2:]
            wanted = {"mean": "mean", "sd": "sd", "hdi_low": low, "hdi_high": high}
            summary[name] = {
                entry: {key: table[entry, column] for key, column in wanted.items()}
                for entry in table.rows
            }
        answer = {
            "log_evidences": found.log_evidences,
            "std_errors": found.std_errors,
            "probabilities": found.probabilities,
            "probability_errors": found.probability_errors,
            "trust": found.trust,
        }
        rows = self.comparison.num_observations
        self.log.write("posterior", rows, {"summary": summary, "answer": answer})
        self.summary_seconds = time.monotonic() - began

    def _end(self, reason: Reason) -> None:
        rows = self.comparison.num_observations
        try:
            if rows and self.place is not None:  # otherwise no chunk has come since the start
                self._save()
                if reason == "end" or 0 < self.summary_seconds < QUICK:
                    self._summarise()
        finally:
            told = {"error": describe_error(sys.exception())} if reason == "error" else {}
            self.log.write("stop", rows, {"reason": reason, **told})
            self.display.close()
