"""Hostile inputs and faults, made on purpose, and what came of each.

    python -m benchmarks.weather.attacks [--scale 1.0] [--only "CSV"]

Every attack has a seed and is made in a process that is killed if it hangs. What should come of one
is known from the rows that were written: they count once, or it is told that they do not. An error
must be one of the library's own.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import RESULTS, table, write
from benchmarks.weather.catalogue import CATALOGUE
from benchmarks.weather.runner import Record, run_all
from benchmarks.weather.verdict import Came

# Faults that are shown with what they said, of each kind.
SHOWN = 3


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of attacks")
    parser.add_argument("--only", default="", help="kinds whose name begins so")
    parser.add_argument("--workers", type=int, default=3, help="kinds that are tried at a time")
    parser.add_argument("--output", type=Path, default=RESULTS)
    return parser


def tables(records: Sequence[Record]) -> str:
    """What was tried and what came of it, and what the faults said."""
    fine = (Came.RIGHT, Came.NOTICE, Came.REFUSED)
    rows = []
    for key in dict.fromkeys(record.kind for record in records):
        own = [record for record in records if record.kind == key]
        counts = Counter(record.came for record in own)
        faults = [f"{came.value[7:]} {n}" for came, n in counts.items() if came.is_fault]
        rows.append(
            (
                key,
                str(len(own)),
                *(str(counts[came] or "") for came in fine),
                ", ".join(faults),
                f"{max(record.seconds for record in own):.1f}",
                f"{max(record.mebibytes for record in own):.0f}",
            )
        )
    faults = [record for record in records if record.came.is_fault]
    last = ("all", str(len(records)), "", "", "", str(len(faults)), "", "")
    header = ("attack", "tried", *(came.value for came in fine), "faults", "longest, s", "MiB")
    text = table(header, [*rows, last])
    told = []
    for key in dict.fromkeys(record.kind for record in faults):
        own = [record for record in faults if record.kind == key][:SHOWN]
        told += [f"- {key} (seed {r.seed}): {r.came.value[7:]}: {shown(r.detail)}" for r in own]
    return text + ("\n\nFaults, up to three of each kind:\n\n" + "\n".join(told) if told else "")


def shown(text: str) -> str:
    """Words of an error in one line of Markdown."""
    line = " ".join(text.split())
    return f"`{line[:200].replace('`', '')}`" if line else ""


def main(arguments: Sequence[str] | None = None) -> int:
    asked = parser().parse_args(arguments)
    kinds = [kind for key, kind in CATALOGUE.items() if key.startswith(asked.only)]
    began = time.perf_counter()
    records = []
    for record in run_all(kinds, asked.scale, asked.workers):
        records.append(record)
        if record.came.is_fault:
            print(f"{record.kind} (seed {record.seed}): {record.came.value}", file=sys.stderr)
    num_faults = sum(record.came.is_fault for record in records)
    seconds = time.perf_counter() - began
    how = (
        f"{len(records):,} attacks of {len(kinds)} kinds in {seconds:.0f} seconds, "
        f"{num_faults:,} faults. A fault is an error that is none of the library's own, a process "
        "that dies, hangs or takes too much memory, rows that are lost without a word or count "
        "twice, numbers other than those of a clean run on the rows that should count, and what "
        "should have been set aside and stopped the run instead. MiB is the largest rise of an "
        "attack's memory."
    )
    write("attacks", "Attacks, and what came of them", f"{how}\n\n{tables(records)}", asked.output)
    return 1 if num_faults else 0


if __name__ == "__main__":
    sys.exit(main())
