"""Writing down what was measured, where and when."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from collections.abc import Sequence
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def environment() -> str:
    """One line on date, machine and versions."""
    processor = platform.processor() or platform.machine()
    for line in (
        Path("/proc/cpuinfo").read_text().splitlines() if os.path.exists("/proc/cpuinfo") else []
    ):
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("jax", "numpy", "numpyro")
    )
    today = datetime.date.today().isoformat()
    cores = len(os.sched_getaffinity(0))
    return (
        f"{today}, {cores} core(s) of {processor}, Python {platform.python_version()}, {versions}"
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def write(name: str, title: str, body: str) -> None:
    """Write one result file, and show it."""
    RESULTS.mkdir(exist_ok=True)
    text = f"# {title}\n\n{environment()}\n\n{body}\n"
    (RESULTS / f"{name}.md").write_text(text)
    print(text)
