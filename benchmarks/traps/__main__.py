"""``python -m benchmarks.traps``: who is wrong without saying so?

Development traps have the seeds 0, 1, 2, ...; the committed figure is that of held-back ones
(``--held-back``), which two states of the library may see. Results are kept in
results/traps.json, and the command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.traps import held_back
from benchmarks.traps.catalogue import HELD_BACK
from benchmarks.traps.counting import body, judge
from benchmarks.traps.driver import PEERS, Settings, applies, cores, known_trap, run

METHODS = ("auto", "smc", "nested")


def parse_seeds(texts: list[str]) -> list[int]:
    """Seeds such as 3 and 10-19, below those that are held back."""
    seeds: list[int] = []
    for text in texts:
        first, _, last = text.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    if seeds and max(seeds) >= HELD_BACK:
        raise SystemExit(f"Seeds from {HELD_BACK} on are held back: use --held-back.")
    return seeds


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = argparse.ArgumentParser(prog="benchmarks.traps", description=__doc__)
    made.add_argument("--seeds", nargs="+", default=["0-39"], metavar="N or A-B")
    made.add_argument("--methods", nargs="+", default=list(METHODS), metavar="METHOD")
    made.add_argument("--held-back", action="store_true", help="the committed figure")
    made.add_argument("--count", type=int, default=300, help="held-back traps within the goals")
    made.add_argument("--limit", type=float, default=60.0, help="processor seconds of a run")
    made.add_argument("--tolerance", type=float, default=0.1, help="stated error to reach")
    made.add_argument("--core", type=int, default=cores()[0])
    made.add_argument("--third", nargs="*", default=list(PEERS), help="methods for every third")
    made.add_argument("--again", action="store_true", help="forget earlier runs of the methods")
    made.add_argument("--report", action="store_true", help="only write the table anew")
    made.add_argument("--output", type=Path, default=report.RESULTS, help="folder of the results")
    return made


def main(arguments: list[str] | None = None) -> None:
    """Run what is missing, and write the tables."""
    options = parser().parse_args(arguments)
    name = "traps"
    if options.held_back:
        known = len(held_back.logged())
        number = known if options.report else held_back.admit(held_back.library())
        name = "traps_held_back" if number == 1 else f"traps_held_back_{number}"
    records: dict[str, Any] = report.load(name, options.output)
    traps, runs = records.setdefault("traps", {}), records.setdefault("runs", {})
    if options.again:
        kept = {k: r for k, r in runs.items() if r["method"] not in options.methods}
        runs.clear()
        runs.update(kept)
    settings = Settings(options.limit, options.tolerance, options.core)

    def save() -> None:
        report.save(name, records, options.output)

    if options.held_back and not options.report:
        seeds = findable(traps, options.count, save)
    else:
        seeds = [] if options.report else parse_seeds(options.seeds)
        learn(traps, seeds, save)
    for method in [] if options.report else options.methods:
        chosen = seeds[::3] if method in options.third else seeds
        missing = [
            seed
            for seed in chosen
            if f"{method}/{seed}" not in runs and applies(method, traps[str(seed)])
        ]
        for record in run(method, missing, settings):
            seed = record["seed"]
            runs[f"{method}/{seed}"] = record
            save()
            say(record, traps[str(seed)])
    title = "Traps: wrong without a flag?"
    report.write(name, title, body(records, describe(options)), options.output)


def learn(traps: dict[str, Any], seeds: Iterable[int], save: Callable[[], None]) -> None:
    """Compute the exact values that are missing."""
    for seed in seeds:
        if str(seed) not in traps:
            traps[str(seed)] = known_trap(seed)
            save()


def findable(traps: dict[str, Any], count: int, save: Callable[[], None]) -> list[int]:
    """The first held-back seeds whose traps are within the goals."""
    found: list[int] = []
    for seed in itertools.count(HELD_BACK):
        if len(found) == count:
            break
        learn(traps, [seed], save)
        if not traps[str(seed)]["blind"]:
            found.append(seed)
    return found


def say(record: dict[str, Any], known: dict[str, Any]) -> None:
    """One line for a run."""
    verdict = judge(record, known["log_evidence"])
    words = [word for word, holds in verdict._asdict().items() if holds and word != "answered"]
    answer = record.get("failure") or (
        f"{record['log_evidence'] - known['log_evidence']:+.3f}, stated {record['std_error']}, "
        f"{record['seconds']:.1f} s {' '.join(words)} {' '.join(record['flags'])}"
    )
    print(f"{record['method']}/{record['seed']} {known['kind']}: {answer}", flush=True)


def describe(options: argparse.Namespace) -> str:
    """How it was measured."""
    which = "Held-back traps" if options.held_back else "Traps for development"
    return (
        f"{which}, one run each, one core, at most {options.limit:g} s of processor time a run, "
        f"`wb.evidence(model, data, method, tolerance={options.tolerance:g}, "
        f"time_limit={options.limit / 2:g})`; streams are read once, without a tolerance."
    )


if __name__ == "__main__":
    main()
