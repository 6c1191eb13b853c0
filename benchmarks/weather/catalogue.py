"""All kinds of attacks, by name."""

from __future__ import annotations

from benchmarks.weather import events, folders, hostile_binary, hostile_text, logs
from benchmarks.weather.verdict import Kind

CATALOGUE: dict[str, Kind] = {
    kind.key: kind for module in (hostile_text, hostile_binary, folders, logs, events) for kind in module.KINDS
}
