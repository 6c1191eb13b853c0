"""A watch that is killed a hundred times ends as one that never was.

    python -m benchmarks.weather.kills [--kills 100]

Processes are killed by SIGKILL: half of them by themselves, before a system call within the write
of a checkpoint that is drawn at random, half of them from outside at a random time after the run
has moved on. After each kill every checkpoint must be readable. A run that comes to its end must
have the last checkpoint of the run that was left alone, bit for bit, but for its clocks.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import table, write
from benchmarks.weather.kills_worker import CHUNK_SIZE, EVERY_ROWS, METHOD, MODELS
from weighbridge import zoo
from weighbridge.core import checkpoint_file
from weighbridge.core.errors import CheckpointError
from weighbridge.weighing.online_comparison.checkpoint import SCHEMA
from weighbridge.weighing.online_comparison.history import COMMON

NUM_ROWS = 4000
SEED = 3
# System calls of one checkpoint, about: to draw one of them.
CALLS = 12


def start(data: Path, directory: Path, call: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.weather.kills_worker", data, directory, SEED, call]
    return subprocess.Popen(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rows_in(directory: Path) -> int:
    """The rows of the last update that was written down."""
    try:
        lines = (directory / "events.jsonl").read_bytes().splitlines()
    except OSError:
        return 0
    for line in reversed(lines):
        try:
            event = json.loads(line)
        except ValueError:
            continue  # the line that was being written
        if event["event"] == "update":
            return int(event["rows"])
    return 0


def wait_and_kill(process: subprocess.Popen[str], directory: Path, luck: random.Random) -> bool:
    """Kill the process some time after it has moved on; tells whether it was still there."""
    before = rows_in(directory)
    while process.poll() is None and rows_in(directory) == before:
        time.sleep(0.02)
    time.sleep(luck.uniform(0.0, 1.0))
    alive = process.poll() is None
    process.kill()
    process.wait()
    return alive and process.returncode == -signal.SIGKILL


def newest(directory: Path) -> Path:
    return max((directory / "checkpoints").glob("checkpoint-*.safetensors"))


def contents(path: Path) -> tuple[dict[str, bytes], str]:
    """What a checkpoint holds, without clocks."""
    arrays, metadata = checkpoint_file.read(path, SCHEMA)
    clock = COMMON.index("elapsed")
    arrays["history"] = np.delete(arrays["history"], clock, axis=0)
    text = json.dumps(_without_clocks(metadata), sort_keys=True)
    return {name: array.tobytes() for name, array in arrays.items()}, text


def _without_clocks(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_clocks(v) for k, v in value.items() if k != "elapsed"}
    if isinstance(value, list):
        return [_without_clocks(entry) for entry in value]
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    num_kills = parser.parse_args().kills
    luck = random.Random(0)
    began = time.perf_counter()
    kills = {"in a write": 0, "at any time": 0}
    unreadable = finished = identical = checkpoints = 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        data = folder / "rows.csv"
        rows = zoo.linear.simulate(NUM_ROWS, num_features=3, seed=1)
        columns = np.column_stack([rows["x"], rows["y"]])
        np.savetxt(data, columns, delimiter=",", header="a,b,c,y", comments="", fmt="%.17g")
        alone = folder / "alone"
        process = start(data, alone)
        _, trouble = process.communicate()
        if process.returncode:
            raise RuntimeError(trouble)
        expected = contents(newest(alone))
        run = 0
        while sum(kills.values()) < num_kills or not finished:
            directory = folder / f"run{run}"
            in_write = luck.random() < 0.5
            enough = sum(kills.values()) >= num_kills
            call = luck.randint(1, 3 * CALLS) if in_write and not enough else 0
            process = start(data, directory, call)
            if call:
                process.communicate()
                killed = process.returncode == -signal.SIGKILL
                kills["in a write"] += killed
            elif not enough:
                killed = wait_and_kill(process, directory, luck)
                kills["at any time"] += killed
            else:
                process.communicate()
                killed = False
            for path in (directory / "checkpoints").glob("checkpoint-*"):
                checkpoints += 1
                try:
                    checkpoint_file.verify(path)
                except CheckpointError:
                    unreadable += 1
            if not killed:
                if process.returncode:
                    raise RuntimeError(f"a resumed run failed with {process.returncode}")
                finished += 1
                identical += contents(newest(directory)) == expected
                run += 1
            print(f"{sum(kills.values())} kills, {finished} runs at their end", file=sys.stderr)
    counts = {
        "kills within the write of a checkpoint": kills["in a write"],
        "kills at a random time after the run had moved on": kills["at any time"],
        "checkpoints looked at after kills": checkpoints,
        "of them unreadable": unreadable,
        "runs that came to their end": finished,
        "of them identical to the run that was left alone, bit for bit": identical,
        "seconds": round(time.perf_counter() - began),
    }
    how = (
        f"{', '.join(MODELS)} on {NUM_ROWS:,} rows of a CSV file, chunks of {CHUNK_SIZE}, a "
        f"checkpoint every {EVERY_ROWS} rows, a reservoir of {METHOD.reservoir:,} rows."
    )
    rows_of_table = [(name, f"{count:,}") for name, count in counts.items()]
    body = f"{how}\n\n{table(('', 'number'), rows_of_table)}"
    write("kills", "A watch that is killed ends as one that was not", body)


if __name__ == "__main__":
    main()
