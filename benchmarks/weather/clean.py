"""The clean run of the week: the rows of a ledger, and whether a watch ended as it did."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import weighbridge as wb
from benchmarks.weather.week_worker import CHUNK, METHOD, MODELS, SEED
from weighbridge import OnlineComparison
from weighbridge.monitoring.checkpoint_store import CheckpointStore
from weighbridge.weighing.comparison import Comparison
from weighbridge.zoo.registry import parse


def models() -> dict[str, wb.Model]:
    """What the watches weigh."""
    found = {}
    for spec in MODELS:
        entry, option = parse(spec)
        found[spec] = entry.build(1, option)
    return found


def clean_run(ledger: Sequence[float | None]) -> OnlineComparison:
    """The rows that count, in the chunks in which they came."""
    online = OnlineComparison(models(), METHOD, SEED, changes=None)
    for start in range(0, len(ledger), CHUNK):
        good = [row for row in ledger[start : start + CHUNK] if row is not None]
        if good:
            online.update(np.array(good))
    return online


def differences(directory: Path, ledger: Sequence[float | None]) -> list[str]:
    """In what the end of a watch differs from the clean run; nothing if they are the same."""
    expected = clean_run(ledger)
    latest = CheckpointStore(directory / "checkpoints").latest()
    if latest is None:
        return ["there is no checkpoint"]
    quarantine = directory / "quarantine.jsonl"
    found = OnlineComparison.load(latest.path, models(), METHOD, quarantine=quarantine)
    told = []
    if found.num_observations != expected.num_observations:
        told.append(f"{found.num_observations} rows count, not {expected.num_observations}")
    if found.log_evidences != expected.log_evidences:
        told.append(f"log evidences {found.log_evidences}, not {expected.log_evidences}")
    if repr(found.std_errors) != repr(expected.std_errors):  # NaN is NaN
        told.append("standard errors")
    if _samples(found.result()) != _samples(expected.result()):
        told.append("samples or weights")
    last = _last_update(directory)
    if last["log_evidences"] != expected.log_evidences:
        told.append("the last numbers of the event log")
    bad, lines = sum(row is None for row in ledger), 0
    if quarantine.exists():
        # Whole files that were set aside have no row.
        rows = [json.loads(line)["row"] for line in quarantine.read_bytes().splitlines()]
        lines = sum(row is not None for row in rows)
    if lines != bad:
        told.append(f"{lines} rows in quarantine, not {bad}")
    return told


def _samples(comparison: Comparison) -> dict[str, bytes]:
    """All draws and weights, to the bit."""
    found = {}
    for name, result in comparison.results.items():
        found[f"{name} weights"] = np.asarray(result.log_weights).tobytes()
        for parameter, draws in result.samples.items():
            found[f"{name} {parameter}"] = np.asarray(draws).tobytes()
    return found


def _last_update(directory: Path) -> dict[str, dict[str, float]]:
    updates = []
    for line in (directory / "events.jsonl").read_bytes().splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue  # half a line, of a process that was killed
        if event["event"] == "update":
            updates.append(event)
    return dict(updates[-1])
