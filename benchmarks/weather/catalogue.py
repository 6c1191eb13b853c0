"""All kinds of attacks, by name."""

from __future__ import annotations

from benchmarks.weather import (
    crafted_files,
    events,
    folders,
    hostile_binary,
    hostile_text,
    logs,
    redis_streams,
    runs,
)
from benchmarks.weather.verdict import Kind

MODULES = (hostile_text, hostile_binary, folders, logs, redis_streams, runs, crafted_files, events)
CATALOGUE: dict[str, Kind] = {kind.key: kind for module in MODULES for kind in module.KINDS}
