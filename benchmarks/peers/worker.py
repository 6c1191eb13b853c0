"""One tool on one problem in a process of its own: ``python -m benchmarks.peers.worker``.

Writes one line of JSON for each event: when the tool was imported, and for each seed the answer and
its time. Earlier results are thus kept if a later run takes too long. The time of the first seed
includes set-up and compilation; that of the others does not.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import sys
import time


def say(channel: int, **event: object) -> None:
    """Write one line for the driver."""
    os.write(channel, (json.dumps(event) + "\n").encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tool")
    parser.add_argument("problem")
    parser.add_argument("data", help="an NPZ file of columns")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    options = parser.parse_args()
    os.sched_setaffinity(0, {options.core})  # before any library counts the processors
    # Some tools print to standard output, so the driver's lines have a channel of their own.
    channel = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    adapter = importlib.import_module(f"benchmarks.peers.{options.tool}")
    say(channel, imported=True)
    import numpy as np

    began, used = time.perf_counter(), time.process_time()
    with np.load(options.data) as file:
        data = {name: file[name] for name in file}
    run = adapter.prepare(options.problem, data)
    for seed in range(options.seeds):
        answer = run(seed)
        seconds = time.perf_counter() - began
        say(
            channel,
            seed=seed,
            seconds=seconds,
            processor=time.process_time() - used,
            log_evidence=answer.log_evidence,
            std_error=None if math.isnan(answer.std_error) else answer.std_error,
            flags=answer.flags,
        )
        began, used = time.perf_counter(), time.process_time()


if __name__ == "__main__":
    main()
