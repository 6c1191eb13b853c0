"""Ten million rows of Parquet through ``weighbridge watch``: memory, and rows a second.

    python -m benchmarks.online.long_watch [--rows 10000000]

The command runs in a process of its own, on one core. Its resident memory is read every second,
rows and times are those of its events. Rates are those of tenths of the run, by the clock and by
the time that the process had the core, which does not count what else the machine did.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

import numpy as np

from benchmarks.report import RESULTS, table, write

NUM_FILES = 10
CHUNK_SIZE = 2_000
RESERVOIR = 20_000
FIRST = 1_000_000


def write_rows(folder: Path, num_rows: int) -> None:
    """Linear regression of one column on three, in several files."""
    import pyarrow
    import pyarrow.parquet

    each = num_rows // NUM_FILES
    for number in range(NUM_FILES):
        generator = np.random.default_rng(number)
        features = generator.normal(size=(each, 3))
        target = features @ [0.5, -1.0, 0.2] + 0.3 + generator.normal(size=each)
        columns = {name: features[:, k] for k, name in enumerate("abc")} | {"y": target}
        path = folder / f"part-{number:03d}.parquet"
        pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=100_000)


def resident(process: int) -> float:
    """Resident memory of a process, MiB; NaN when it is gone."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return float("nan")
    found = [line for line in lines if line.startswith("VmRSS")]
    return int(found[0].split()[1]) / 1024 if found else float("nan")


def processor_seconds(process: int) -> float:
    """Seconds that a process has had a core for; NaN when it is gone."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watch(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows and seconds of all updates; time, MiB and processor's seconds of all looks."""
    run = folder / "run"
    command = [sys.executable, "-c", "from weighbridge.cli import main; main()", "watch"]
    command += ["linear", "linear:1.5", str(folder / "rows"), "--checkpoint", str(run)]
    command += ["--target", "y", "--chunk-size", str(CHUNK_SIZE), "--reservoir", str(RESERVOIR)]
    command += ["--islands", "8", "--particles", "32", "--changes", "off", "--quiet"]
    looks = []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
        while process.poll() is None:
            pid = process.pid
            looks.append((time.time(), resident(pid), processor_seconds(pid)))
            time.sleep(1.0)
    if process.returncode:
        raise RuntimeError(f"the watch ended with {process.returncode}")
    updates = []
    with open(run / "events.jsonl") as lines:
        for line in lines:
            event = json.loads(line)
            if event["event"] == "update":
                moment = datetime.fromisoformat(event["time"]).timestamp()
                updates.append((event["rows"], moment, event["elapsed"]))
    return np.array(updates), np.array(looks[:-1])


def figure(rows: np.ndarray, memory: np.ndarray, rates: np.ndarray) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    drawn, (top, below) = pyplot.subplots(2, 1, sharex=True, figsize=(7, 5), layout="constrained")
    top.plot(rows / 1e6, memory, color="#1f5f8b")
    top.set_ylim(0, 1.2 * np.nanmax(memory))
    top.set_ylabel("resident memory, MiB")
    below.step(rates[:, 0] / 1e6, rates[:, 1] / 1e3, where="mid", color="#b3541e")
    below.set_ylim(0, 1.2 * rates[:, 1].max() / 1e3)
    below.set_ylabel("thousand rows a second")
    below.set_xlabel("million rows seen")
    for axes in (top, below):
        axes.grid(alpha=0.3)
    drawn.savefig(RESULTS / "long_watch.png", dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    num_rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "rows").mkdir()
        write_rows(folder / "rows", num_rows)
        updates, looks = watch(folder)
    rows_at_looks = np.interp(looks[:, 0], updates[:, 1], updates[:, 0])
    settled = rows_at_looks >= min(FIRST, num_rows / 10)
    memory = looks[settled, 1]
    edges = np.linspace(updates[0, 0], updates[-1, 0], 11)
    moments = np.interp(edges, updates[:, 0], updates[:, 1])
    worked = np.diff(np.interp(moments, looks[:, 0], looks[:, 2]))
    quiet = np.diff(edges)[1:] / worked[1:]  # rows a second of the processor
    rates = np.column_stack([0.5 * (edges[1:] + edges[:-1]), np.diff(edges) / np.diff(moments)])
    later = rates[1:, 1]  # the first tenth compiles, and has few rows
    figure(rows_at_looks, looks[:, 1], rates)
    rise = np.polyfit(rows_at_looks[settled] / 1e6, memory, 1)[0]
    counts = {
        "rows": f"{int(updates[-1, 0]):,}",
        "seconds in all": f"{updates[-1, 1] - updates[0, 1]:.0f}",
        f"resident memory at {FIRST:,} rows, MiB": f"{memory[0]:.0f}",
        "largest after it, MiB": f"{memory.max():.0f}",
        "at the end, MiB": f"{memory[-1]:.0f}",
        "slope after it, MiB a million rows": f"{rise:.2f}",
        "rows a second, median of tenths 2 to 10": f"{np.median(later):,.0f}",
        "slowest and quickest of them, relative to it": (
            f"{later.min() / np.median(later):.2f}, {later.max() / np.median(later):.2f}"
        ),
        "rows a second of the processor's time, median of tenths 2 to 10": (
            f"{np.median(quiet):,.0f}"
        ),
        "slowest and quickest of these, relative to it": (
            f"{quiet.min() / np.median(quiet):.2f}, {quiet.max() / np.median(quiet):.2f}"
        ),
    }
    body = (
        "Two linear regressions (known noise 1 and 1.5) on three features, ten Parquet files, "
        f"chunks of {CHUNK_SIZE:,}, a reservoir of {RESERVOIR:,} rows, 8 islands of 32 particles, "
        "a checkpoint a minute, on one core.\n\n"
        f"{table(('', 'measured'), list(counts.items()))}\n\n![memory and rate](long_watch.png)"
    )
    write("long_watch", "Ten million rows through a watch", body)


if __name__ == "__main__":
    main()
