"""Write measurements to files, with the date and the machine."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def processor() -> str:
    """The name of the processor."""
    for line in (
        Path("/proc/cpuinfo").read_text().splitlines() if os.path.exists("/proc/cpuinfo") else []
    ):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def environment() -> str:
    """One line with date, machine and versions."""
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("jax", "numpy", "numpyro")
    )
    today = datetime.date.today().isoformat()
    cores = len(os.sched_getaffinity(0))
    return (
        f"{today}, {cores} core(s) of {processor()}, Python {platform.python_version()}, {versions}"
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def write(name: str, title: str, body: str, folder: Path = RESULTS) -> None:
    """Write one result file, and print it."""
    folder.mkdir(parents=True, exist_ok=True)
    text = f"# {title}\n\n{environment()}\n\n{body}\n"
    (folder / f"{name}.md").write_text(text)
    print(text)


def load(name: str, folder: Path = RESULTS) -> dict[str, Any]:
    """The measurements of an earlier run, by key; empty if there is none."""
    path = folder / f"{name}.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def save(name: str, records: dict[str, Any], folder: Path = RESULTS) -> None:
    """Save measurements, to which a later run may add."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(records, indent=1, sort_keys=True) + "\n")
