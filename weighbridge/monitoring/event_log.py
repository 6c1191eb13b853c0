"""The events of a watch, appended to a file of JSON lines when they happen."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from weighbridge.core.errors import WeighbridgeError
from weighbridge.core.status import Status

EVENTS = "events.jsonl"


class EventLog:
    """A file of JSON lines, each with its kind, its time and the rows seen until then.

    Each line is written at once, in one piece. If a crash left a partial line, it is ended before
    the next event. An event that cannot be written is lost, with a warning: a full disk does not
    stop a watch.

    Args:
        path: the file; lines are appended to it.
        warn: called with a message if an event cannot be written.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "events.jsonl"
    >>> EventLog(place).write("stop", 12, {"reason": "end", "score": float("nan")})
    >>> line = json.loads(place.read_text())
    >>> line["event"], line["rows"], line["reason"], line["score"]
    ('stop', 12, 'end', None)
    """

    def __init__(self, path: str | Path, warn: Callable[[str], None] = print) -> None:
        self.path = Path(path)
        self._warn = warn
        self._failing = False

    def write(self, event: str, rows: int, fields: Mapping[str, Any] | None = None) -> None:
        """Append one event."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = {"event": event, "time": now, "rows": int(rows), **plain(fields or {})}
        text = json.dumps(line, allow_nan=False) + "\n"
        try:
            with open(self.path, "a+b", buffering=0) as file:
                file.write((self._closing(file) + text).encode())
        except OSError as error:
            if not self._failing:  # warn once, until writing works again
                self._warn(f"{self.path} cannot be written ({error.strerror}); the watch goes on.")
            self._failing = True
        else:
            self._failing = False

    @staticmethod
    def _closing(file: Any) -> str:
        """A newline if the last line of the file has none, else nothing."""
        if file.seek(0, 2) == 0:
            return ""
        file.seek(-1, 2)
        return "" if file.read(1) == b"\n" else "\n"


def describe_error(error: BaseException | None) -> str:
    """An error as one text; the type of the error is left out for errors of weighbridge.

    >>> describe_error(WeighbridgeError("No row. Give one.")), describe_error(KeyError("a"))
    ('No row. Give one.', "KeyError: 'a'")
    """
    if error is None:
        return ""
    named = isinstance(error, WeighbridgeError)
    texts = [str(error) if named else f"{type(error).__name__}: {error}"]
    return " ".join([*texts, *getattr(error, "__notes__", ())])


def plain(value: Any) -> Any:
    """A value for JSON: numbers that are not finite become null, a status becomes its name.

    >>> plain({"a": np.float64(1.5), "b": (float("inf"), Status.LOW_ESS)})
    {'a': 1.5, 'b': [None, 'LOW_ESS']}
    """
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, Status):
        return value.name
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
