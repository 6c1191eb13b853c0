"""Event logs that no watch wrote: the report of them is a page, or an error of ours."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

from benchmarks.weather.hostile_text import cut_off, flipped
from benchmarks.weather.verdict import Came, Kind, Place, Verdict
from weighbridge.monitoring.event_log import EVENTS
from weighbridge.monitoring.report.writing import write_report

ODD: list[Any] = [
    *(None, True, "", [], {}, -1, 0, 10**400, -(10**400), 1e308, -1e-308, 2**63, 0.1, "NaN"),
    *("\ud800", "\udfff<script>", "a\x00b", "\x1b[2J", "<b>", "x" * 10_000, [[[]]], {"": None}),
    *("9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00-23:59", "2026-13-45", "now", 1e30, [1, 2]),
    *({"a": 1}, {"a": None}, {"a": "x"}, {"a": [1]}, {"b": float("inf")}, ["a", "a"], ["a", None]),
]


def good_log(luck: random.Random) -> list[dict[str, Any]]:
    """What a watch of two models writes."""
    time = "2026-01-05T08:00:{:02d}.000+00:00"
    events: list[dict[str, Any]] = [
        {"event": "start", "time": time.format(0), "rows": 0, "models": ["a", "b"]}
        | {"source": "rows.csv", "seekable": True, "version": "0.1.0"}
    ]
    for number in range(1, luck.randint(2, 20)):
        rows, both = 50 * number, lambda first, second: {"a": first, "b": second}
        events.append(
            {"event": "update", "time": time.format(number), "rows": rows, "elapsed": 0.5}
            | {"log_evidences": both(-1.5 * rows, -1.4 * rows), "std_errors": both(0.2, 0.3)}
            | {"log_predictives": both(-1.0, -1.1), "annealing_steps": both(2.0, 3.0)}
            | {"probabilities": both(0.2, 0.8), "probability_errors": both(0.01, 0.01)}
            | {"rows_skipped": 1, "rows_quarantined": 0, "flags": both([], ["LOW_ESS"])}
        )
    rows = events[-1]["rows"]
    summary = {"a": {"mu": {"mean": 1.0, "sd": 0.1, "hdi_low": 0.8, "hdi_high": 1.2}}}
    events += [
        {"event": "change", "time": time.format(30), "rows": rows, "row": 70, "score": 9.0}
        | {"p_value": 0.001, "model": "a"},
        {"event": "notice", "time": time.format(31), "rows": rows, "kind": "gap", "text": "lost"},
        {"event": "posterior", "time": time.format(32), "rows": rows, "summary": summary},
        {"event": "checkpoint", "time": time.format(33), "rows": rows, "file": "c.safetensors"},
        {"event": "checkpoint_failed", "time": time.format(34), "rows": rows, "reason": "full"},
        {"event": "stop", "time": time.format(35), "rows": rows, "reason": "end"},
    ]
    return events


def odd_values(luck: random.Random, events: list[dict[str, Any]]) -> bytes:
    """Some values are of another kind, at any depth."""
    for _ in range(luck.randint(1, 6)):
        inside: Any = luck.choice(events)
        while True:
            key = luck.choice(list(inside))
            deeper = inside[key]
            if not isinstance(deeper, dict) or not deeper or luck.random() < 0.4:
                inside[key] = luck.choice(ODD)
                break
            inside = deeper
    return _lines(events)


def left_out(luck: random.Random, events: list[dict[str, Any]]) -> bytes:
    """Some entries, or whole events, are missing, twice there, or in another order."""
    for event in luck.sample(events, luck.randint(1, len(events) // 2 + 1)):
        for key in luck.sample(list(event), luck.randint(1, len(event))):
            del event[key]
    if luck.random() < 0.5:
        events = luck.choices(events, k=luck.randint(1, 30))
    return _lines(events)


def no_json(luck: random.Random, events: list[dict[str, Any]]) -> bytes:
    """Lines that are no events."""
    odd = [b"[" * 100_000, b"\xff" * 50, b"\x00" * 1000, b"NaN", b"[]", b"1e999", b'"x"', b""]
    lines = _lines(events).split(b"\n")
    for _ in range(luck.randint(1, 5)):
        lines.insert(luck.randrange(len(lines)), luck.choice(odd))
    return b"\n".join(lines)


def _lines(events: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(event) + "\n" for event in events).encode()


def _spoilt(spoil: Callable[[random.Random, bytes], bytes]) -> Callable[..., bytes]:
    return lambda luck, events: spoil(luck, _lines(events))


class Tags(HTMLParser):
    """Which elements a page has."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.add(tag)


def attack_report(
    spoil: Callable[[random.Random, list[dict[str, Any]]], bytes], place: Place
) -> Verdict:
    """The report of a spoilt log is a page on which nothing runs."""
    (place.folder / EVENTS).write_bytes(spoil(place.luck, good_log(place.luck)))
    page = write_report(place.folder).read_text()
    if "script" in Tags(page).found:
        return Verdict(Came.DIFFERENT, "a script on the page")
    return Verdict(Came.RIGHT)


def _kind(name: str, spoil: Callable[..., bytes], times: int) -> Kind:
    return Kind("event log", name, lambda place: attack_report(spoil, place), times)


KINDS = (
    _kind("values of another kind", odd_values, 200),
    _kind("entries and events missing", left_out, 100),
    _kind("lines that are no events", no_json, 50),
    _kind("cut off at a random byte", _spoilt(cut_off), 30),
    _kind("random bytes flipped", _spoilt(flipped), 100),
)
