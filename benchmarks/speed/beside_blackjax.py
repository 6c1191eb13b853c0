"""Warm seconds of ``wb.SMC()`` beside BlackJAX's tempered SMC, as a ratio within one run.

``python -m benchmarks.speed.beside_blackjax`` writes results/beside_blackjax.md. It needs the
environment of the peers (``make .venv-peers/.installed``). Each tool has processes of its own on
one core, in turns; the first answer of a process compiles, and is left out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import problems, report
from benchmarks.peers.__main__ import columns
from benchmarks.peers.measure import Limits, events, warm_up

PROBLEMS = ("gaussian", "shells-2", "eggbox")
OURS, PEER = "ours", "blackjax"


class Warm(NamedTuple):
    """One warm answer: seconds by the clock and of the processor, and the error in nats."""

    clock: float
    processor: float
    error: float


def answers(tool: str, problem: str, data: Path, seeds: int, limits: Limits) -> list[Warm]:
    """The warm answers of one process, with seeds from 1 on."""
    exact = problems.CATALOGUE[problem].build().log_evidence
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(events(tool, problem, data, seeds + 1, Path(folder), limits)) as stream,
    ):
        found = [event for _, event in stream if "seed" in event]
    return [
        Warm(event["seconds"], event["cpu_seconds"], event["log_evidence"] - exact)
        for event in found[1:]
    ]


def line(problem: str, ours: list[Warm], peer: list[Warm]) -> list[str]:
    """The cells of a problem.

    >>> line("eggbox", [Warm(0.3, 0.2, 0.1)], [Warm(0.1, 0.1, -0.2)])[1:]
    ['0.300', '0.100', '3.0', '0.200', '0.100', '2.0', '0.10', '0.20']
    """
    cells = [problems.CATALOGUE[problem].title]
    for name in ("clock", "processor"):
        mine, its = (statistics.median(getattr(warm, name) for warm in w) for w in (ours, peer))
        cells += [f"{mine:.3f}", f"{its:.3f}", f"{mine / its:.1f}"]
    return cells + [f"{np.sqrt(np.mean([w.error**2 for w in warm])):.2f}" for warm in (ours, peer)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.speed.beside_blackjax", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=problems.CATALOGUE, default=list(PROBLEMS))
    parser.add_argument("--repeats", type=int, default=3, help="processes of each tool")
    parser.add_argument("--seeds", type=int, default=8, help="warm answers of a process")
    parser.add_argument("--limit", type=float, default=130.0, help="seconds for one answer")
    parser.add_argument("--output", type=Path, default=report.RESULTS, help="folder of the results")
    options = parser.parse_args()
    limits = Limits(options.limit, options.limit, max(os.sched_getaffinity(0)))
    for tool in (OURS, PEER):
        if reason := warm_up(tool, limits):
            parser.error(reason)
    before = os.getloadavg()[0]
    table = []
    with tempfile.TemporaryDirectory() as folder:
        for problem in options.only:
            data = Path(folder) / f"{problem}.npz"
            np.savez(data, **columns(problem))
            found: dict[str, list[Warm]] = {OURS: [], PEER: []}
            for _ in range(options.repeats):
                for tool, warm in found.items():
                    warm += answers(tool, problem, data, options.seeds, limits)
            table.append(line(problem, found[OURS], found[PEER]))
            print(" | ".join(table[-1]), flush=True)
    header = (
        "problem", "SMC s", "BlackJAX s", "ratio", "SMC CPU s", "BlackJAX CPU s", "ratio",
        "SMC error", "BlackJAX error",
    )  # fmt: skip
    body = report.table(header, table)
    body += (
        "\n\n`wb.SMC()` with `tolerance=0.1`, which states an error, and BlackJAX's adaptive "
        "tempered SMC with 2,000 particles, which states none. One core, without compilation; "
        f"medians of {options.repeats} processes with {options.seeds} answers each, in turns. "
        "Errors are root mean squares in nats. Load of the machine: "
        f"{before:.1f} before, {os.getloadavg()[0]:.1f} after (one process by itself makes 1)."
    )
    report.write("beside_blackjax", "SMC beside BlackJAX, warm", body, options.output)


if __name__ == "__main__":
    main()
