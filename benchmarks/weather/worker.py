"""Makes attacks one after the other, in a process that can be killed.

    python -m benchmarks.weather.worker

Reads lines of JSON, {"kind": ..., "seed": ...}, and answers each with what came of it, how long it
took, and the memory that it needed at its height.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.weather import memory
from benchmarks.weather.catalogue import CATALOGUE
from benchmarks.weather.verdict import Came, Kind, Place, Verdict
from weighbridge import WeighbridgeError


def judged(kind: Kind, place: Place) -> Verdict:
    """What came of one attack, errors included."""
    try:
        return kind.attack(place)
    except WeighbridgeError as error:
        return Verdict(Came.REFUSED, f"{type(error).__name__}: {error}")
    except BaseException as error:  # whatever it is, it is written down
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        return Verdict(Came.UNTYPED, f"{type(error).__name__} in {where}: {error}")


def answer(kind: Kind, seed: int) -> dict[str, Any]:
    """Make one attack in a folder of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Place(Path(folder), random.Random(f"{kind.key} {seed}"))
        memory.restart()
        began = time.perf_counter()
        came, detail = judged(kind, place)
        seconds, taken = time.perf_counter() - began, memory.rise()
    if taken > kind.mebibytes and not came.is_fault:
        came, detail = Came.MEMORY, f"{taken:.0f} MiB, and {kind.mebibytes:.0f} are allowed"
    return {"came": came.name, "detail": detail[:600], "seconds": seconds, "mebibytes": taken}


def main() -> None:
    # Attacks may print: answers have a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    print("ready", file=answers)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(answer(CATALOGUE[asked["kind"]], asked["seed"])), file=answers)


if __name__ == "__main__":
    main()
