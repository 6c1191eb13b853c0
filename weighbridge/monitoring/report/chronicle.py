"""The events of a watch, read backwards into a summary of bounded size."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

from weighbridge.core.errors import DataError
from weighbridge.monitoring.event_log import EVENTS
from weighbridge.monitoring.report.lines import (
    MOST,
    as_items,
    as_mapping,
    as_number,
    as_numbers,
    as_text,
    as_whole,
    lines_backwards,
    parse_event,
)
from weighbridge.monitoring.report.records import (
    BINS,
    KEPT,
    Chronicle,
    Numbers,
    ReportedChange,
    ReportedNotice,
    ReportedPoint,
)
from weighbridge.results.trust import AT_LEAST, NOT_TRUSTED

# What grave flags can make of an evidence.
WORDS = (AT_LEAST, NOT_TRUSTED)
# At most this many kinds of flags or notices are counted.
MOST_KINDS = 10_000


def read_chronicle(directory: str | Path) -> Chronicle:
    """Read the events of a run, finished or not; the memory does not grow with their number.

    The events are read from the last to the first. A resumed run repeats some rows: events of an
    earlier start about rows after the point of the resume are left out. The last line is left out
    if it is incomplete.

    Args:
        directory: the run directory of ``weighbridge watch``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     lines = ['{"event": "update", "rows": 10, "log_evidences": {"a": -9.5}}', '{"even']
    ...     _ = Path(directory, "events.jsonl").write_text("\\n".join(lines))
    ...     chronicle = read_chronicle(directory)
    >>> chronicle.rows, chronicle.points[-1].log_evidences, chronicle.unreadable
    (10, {'a': -9.5}, 0)
    """
    path = Path(directory) / EVENTS
    if not path.is_file():
        what = "is no folder" if not Path(directory).is_dir() else f"has no {EVENTS}"
        raise DataError(
            f"{str(directory)!r} {what}. Give the run directory of `weighbridge watch` (its "
            "--checkpoint)."
        )
    reader = _Reader()
    try:
        with open(path, "rb") as file:
            for line in lines_backwards(file, str(path)):
                if not reader.read(line):
                    break
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not reader.num_events:
        if reader.chronicle.unreadable:
            raise DataError(
                f"{path} is damaged: no line of it is an event. Is it from `weighbridge watch`?"
            )
        raise DataError(f"{path} is empty: the watch has not written an event yet.")
    return reader.finish()


class _Reader:
    """Collects events from the last to the first."""

    def __init__(self) -> None:
        self.chronicle = Chronicle()
        self.num_events = 0
        self._before = math.inf  # updates with more rows than this were repeated after a resume
        self._bin = -1
        self._width = 1.0
        self._seen_changes: set[tuple[int, str]] = set()
        self._change_bins: dict[int, int] = {}
        self._ended = False

    def read(self, line: bytes) -> bool:
        """Read one line; False if the lines before it are not needed."""
        if not line.strip():
            return True
        event = parse_event(line)
        if event is None:
            self.chronicle.unreadable += 1
            return True
        self.num_events += 1
        if self.num_events == 1:
            self.chronicle.last_seen = as_text(event.get("time"))
        rows = as_whole(event.get("rows"))
        kind = event["event"]
        if kind == "update":
            if rows <= self._before:  # equal: an update in which all rows were skipped
                self._before = rows
                self._update(event, rows)
        elif kind == "start":
            self._start(event)
            if "rows" in event:
                self._before = min(self._before, rows)
                return rows > 0
        elif rows <= self._before:
            handler = getattr(self, f"_{kind}", None) if kind in _KINDS else None
            if handler is not None:
                handler(event, rows)
        return True

    def finish(self) -> Chronicle:
        """The summary, in the order of the rows."""
        found = self.chronicle
        found.points.reverse()
        found.changes.sort()
        found.notices.reverse()
        found.change_rows = sorted(self._change_bins.values())
        found.resumed = max(found.resumed, 0)
        told = list(found.points[-1].log_evidences) if found.points else []
        if told:  # else no evidence was written, and only the names are known
            found.models = [name for name in found.models if name in told] + [
                name for name in told if name not in found.models
            ]
        found.models = found.models[:MOST]
        return found

    def _start(self, event: dict[str, Any]) -> None:
        found = self.chronicle
        if found.resumed < 0:  # the latest start
            found.models = _different(event.get("models"))
            found.source, found.version = (
                as_text(event.get("source")),
                as_text(event.get("version")),
            )
            found.seekable = bool(event["seekable"]) if "seekable" in event else None
        found.resumed += 1
        found.started = as_text(event.get("time"))
        self._ended = True

    def _stop(self, event: dict[str, Any], rows: int) -> None:
        if not self._ended:
            self.chronicle.stopped = as_text(event.get("reason")) or "end"
            self.chronicle.error = as_text(event.get("error"))
            self._ended = True

    def _update(self, event: dict[str, Any], rows: int) -> None:
        found = self.chronicle
        self._ended = True
        steps = as_numbers(event.get("annealing_steps"))
        flags = {
            name: _different(raised) for name, raised in as_mapping(event.get("flags")).items()
        }
        if not found.points:
            self._width = max(rows / BINS, 1.0)
            found.flags = flags
        place = math.ceil(rows / self._width)
        if place == self._bin:
            most = found.points[-1].annealing_steps
            for name, value in steps.items():
                if not most.get(name, -math.inf) >= value:
                    most[name] = value
        else:
            self._bin = place
            found.points.append(_point(event, rows, steps))
        found.num_updates += 1
        found.rows_skipped += as_whole(event.get("rows_skipped"))
        found.rows_quarantined += as_whole(event.get("rows_quarantined"))
        elapsed = as_number(event.get("elapsed"))
        found.elapsed += elapsed if math.isfinite(elapsed) else 0.0
        for name, raised in flags.items():
            _count(found.flag_counts, *((flag, name) for flag in raised))

    def _change(self, event: dict[str, Any], rows: int) -> None:
        found = self.chronicle
        change = ReportedChange(
            as_whole(event.get("row")),
            as_number(event.get("score")),
            as_number(event.get("p_value")),
            as_text(event.get("model")),
        )
        key = (change.row, change.model)
        if key in self._seen_changes:
            return
        found.num_changes += 1
        if len(found.changes) < KEPT:
            found.changes.append(change)
            self._seen_changes.add(key)
        # The width of a bin is unknown before the first update.
        if len(self._change_bins) < 2 * BINS:
            self._change_bins.setdefault(int(change.row / self._width), change.row)

    def _notice(self, event: dict[str, Any], rows: int) -> None:
        notice = ReportedNotice(rows, as_text(event.get("kind")), as_text(event.get("text")))
        _count(self.chronicle.notice_counts, notice.kind)
        if len(self.chronicle.notices) < KEPT:
            self.chronicle.notices.append(notice)

    def _posterior(self, event: dict[str, Any], rows: int) -> None:
        if not self.chronicle.posterior:
            self.chronicle.posterior_rows = rows
            self.chronicle.posterior = {
                model: {name: as_numbers(numbers) for name, numbers in as_mapping(summary).items()}
                for model, summary in as_mapping(event.get("summary")).items()
            }
            if answer := as_mapping(event.get("answer")):
                self.chronicle.answer = _point(answer, rows, {})

    def _checkpoint(self, event: dict[str, Any], rows: int) -> None:
        if not self.chronicle.checkpoints_failed and not self.chronicle.checkpoints:
            self.chronicle.is_saved = True
        self.chronicle.checkpoints += 1
        if self.chronicle.last_checkpoint is None:
            self.chronicle.last_checkpoint = rows

    def _checkpoint_failed(self, event: dict[str, Any], rows: int) -> None:
        self.chronicle.checkpoints_failed += 1
        self.chronicle.last_failure = self.chronicle.last_failure or as_text(event.get("reason"))


def _point(event: dict[str, Any], rows: int, steps: Numbers) -> ReportedPoint:
    return ReportedPoint(
        rows,
        as_numbers(event.get("log_evidences")),
        as_numbers(event.get("std_errors")),
        as_numbers(event.get("probabilities")),
        as_numbers(event.get("probability_errors")),
        steps,
        {n: as_text(word) for n, word in as_mapping(event.get("trust")).items() if word in WORDS},
    )


def _different(value: Any) -> list[str]:
    """The texts without repetitions."""
    return list(dict.fromkeys(map(as_text, as_items(value))))


def _count(counts: Counter[Any], *things: Any) -> None:
    """Count things; after ``MOST_KINDS`` kinds, only known kinds are counted."""
    for thing in things:
        if thing in counts or len(counts) < MOST_KINDS:
            counts[thing] += 1


_KINDS = frozenset({"stop", "change", "notice", "posterior", "checkpoint", "checkpoint_failed"})
