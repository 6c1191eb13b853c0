"""Runs of one method of weighbridge on some traps: ``python -m benchmarks.traps.worker``.

Writes one line of JSON for each run. The operating system ends the process when a run has used its
processor time; the driver then starts another one for the traps that are left.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import time

# The share of a run's limit after which the library adds no more islands: they take long, too.
SHARE = 0.5


class Clock:
    """How much faster the clock goes than this process: a busy machine must not end runs early."""

    def __init__(self) -> None:
        self._began, self._used = time.perf_counter(), time.process_time()

    def stretch(self) -> float:
        """Seconds of the clock for each of the processor, since the last call."""
        before, used = self._began, self._used
        self._began, self._used = time.perf_counter(), time.process_time()
        return max((self._began - before) / max(self._used - used, 1e-3), 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("method")
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--limit", type=float, default=60.0, help="processor seconds of a run")
    parser.add_argument("--tolerance", type=float, default=0.1, help="0 for a single round")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    options = parser.parse_args()
    os.sched_setaffinity(0, {options.core})  # before any library counts the processors
    channel = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    clock = Clock()
    import weighbridge as wb
    from benchmarks.traps.catalogue import trap

    for seed in options.seeds:
        problem = trap(seed)
        streams = problem.chunk > 0 and options.method in ("auto", "sgais", "ibis")
        model, data = problem.model(), problem.model_data(streams)
        # Rounds of islands read the data several times.
        rounds = options.tolerance > 0 and not streams
        limits = {
            "tolerance": options.tolerance,
            "time_limit": SHARE * options.limit * clock.stretch(),
        }
        os.write(channel, (json.dumps({"began": seed}) + "\n").encode())
        signal.setitimer(signal.ITIMER_PROF, options.limit)
        began, used = time.perf_counter(), time.process_time()
        record: dict[str, object] = {"seed": seed}
        try:
            result = wb.evidence(
                model, data, options.method, seed=seed, progress=False, **(limits if rounds else {})
            )
        except Exception as error:
            record["failure"] = f"{type(error).__name__}: {str(error)[:200]}"
        else:
            record["log_evidence"] = result.log_evidence
            # With a grave flag, too: a right answer that was flagged must count as one.
            claimed = result.claimed_error
            record["std_error"] = claimed if math.isfinite(claimed) else None
            record["flags"] = [flag.name for flag in result.flags]
        signal.setitimer(signal.ITIMER_PROF, 0)
        record["seconds"] = time.process_time() - used
        record["wall"] = time.perf_counter() - began
        os.write(channel, (json.dumps(record) + "\n").encode())


if __name__ == "__main__":
    main()
