"""A watch in a process of its own that kills itself within the write of a checkpoint, if told so.

    python -m benchmarks.weather.kills_worker DATA DIRECTORY SEED CALL

CALL is the number of the system call, counted over all checkpoints of this process, before which
it is gone: open, write, fsync and rename each are one. 0 is never.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from weighbridge import SGAIS
from weighbridge.cli.commands import watch_table
from weighbridge.cli.tables import InputTable
from weighbridge.core import atomic_write
from weighbridge.monitoring.terminal import Quiet
from weighbridge.monitoring.watch_plan import Keeping, Plan

MODELS = ("linear", "linear:2")
# Small, and with a reservoir that overflows half way: what is saved is then not all rows.
METHOD = SGAIS(num_islands=4, num_particles=16, reservoir=1500)
CHUNK_SIZE = 100
EVERY_ROWS = 200


class Counted:
    """The ``os`` that checkpoints are written with, whose calls are counted."""

    def __init__(self, last: int) -> None:
        self.last, self.count = last, 0

    def __getattr__(self, name: str) -> Any:
        function = getattr(os, name)
        if name not in ("open", "write", "fsync", "replace"):
            return function

        def call(*args: Any) -> Any:
            self.count += 1
            if self.count == self.last:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args)

        return call


def main() -> None:
    data, directory, seed, call = sys.argv[1:]
    if int(call):
        atomic_write.os = Counted(int(call))  # type: ignore[attr-defined]
        atomic_write.PIECE = 1 << 14  # so that a file takes many writes
    watched = watch_table(
        MODELS,
        InputTable(data, target="y"),
        Plan({}, METHOD, int(seed), CHUNK_SIZE),
        Path(directory),
        Keeping(3, EVERY_ROWS, None),
        Quiet(),
        threading.Event(),
    )
    print(watched.reason, watched.rows, flush=True)


if __name__ == "__main__":
    main()
