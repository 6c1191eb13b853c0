"""A watch of the week, in a process of its own.

    python -m benchmarks.weather.week_worker SOURCE DIRECTORY CALL [still]

CALL is the number of the system call within the writing of checkpoints before which the process
kills itself; 0 is never. With "still" it does not wait for more rows, and comes to its end.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from benchmarks.weather.kills_worker import Counted
from weighbridge import SGAIS, WeighbridgeError
from weighbridge.cli.commands import watch_table
from weighbridge.cli.tables import InputTable
from weighbridge.core import atomic_write
from weighbridge.monitoring.terminal import Lines
from weighbridge.monitoring.watch_plan import Keeping, Plan

MODELS = ("gaussian", "gaussian:2")
METHOD = SGAIS(num_islands=2, num_particles=8, reservoir=500)
CHUNK = 50
SEED = 11
# Exit code of an error of the library's own; other errors have a traceback.
TYPED = 3


def main() -> int:
    source, directory, call, *still = sys.argv[1:]
    if int(call):
        atomic_write.os = Counted(int(call))  # type: ignore[attr-defined]
        atomic_write.PIECE = 1 << 12
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    plan = Plan({}, METHOD, SEED, CHUNK, on_bad_row="quarantine")
    keeping = Keeping(3, 1, None)  # after every chunk, however many of its rows are bad
    try:
        table = InputTable(source, features="y", follow=not still)
        watch_table(MODELS, table, plan, Path(directory), keeping, Lines(), stop)
    except WeighbridgeError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return TYPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
