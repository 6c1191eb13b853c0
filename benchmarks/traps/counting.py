"""What a run on a trap is worth: right, wrong without a flag, or flagged though right."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import report

# Right is within so many stated errors, with a stated error of at most so many nats.
RIGHT, USEFUL = 3.0, 0.5
# Wrong is beyond FAR stated errors, or beyond RIGHT and APART nats, or a claim of LARGE nats.
FAR, APART, LARGE = 4.0, 0.5, 1.0
HEADER = (
    "class",
    "method",
    "runs",
    "right",
    "wrong, no flag",
    "flagged though right",
    "flagged, not right",
    "no answer",
    "median s",
    "longest s",
)


class Verdict(NamedTuple):
    """One run.

    Attributes:
        answered: whether there is an answer: not stopped at the limit, no error.
        right: within 3 stated errors, and stated at most 0.5 nats.
        flagged: the method says that the answer may be wrong.
        wrong: far from the exact value in stated errors, or sure of nothing, without saying so.
    """

    answered: bool
    right: bool
    flagged: bool
    wrong: bool


def judge(run: Mapping[str, Any], exact: float) -> Verdict:
    """The verdict on a run.

    A tool that never states an error is right within 0.5 nats. A flagged answer whose error is not
    a number is flagged; the same without a flag is wrong.
    """
    value = run.get("log_evidence")
    if value is None:
        return Verdict(False, False, False, False)
    stated, error = run.get("std_error"), abs(value - exact)
    flagged = bool(run.get("flags"))
    if run.get("states_none"):
        stated = USEFUL / RIGHT
    if stated is None or not math.isfinite(stated) or not math.isfinite(error):
        return Verdict(True, False, flagged, not flagged)
    right = error <= RIGHT * stated and stated <= USEFUL
    beyond = error > FAR * stated or (error > RIGHT * stated and error > APART)
    return Verdict(True, right, flagged, not flagged and (beyond or stated > LARGE))


def row(kind: str, method: str, runs: Sequence[Mapping[str, Any]], exact: Sequence[float]) -> list:
    """One row of the table."""
    verdicts = [judge(run, value) for run, value in zip(runs, exact)]
    right = sum(v.right for v in verdicts)
    flagged_right = sum(v.right and v.flagged for v in verdicts)
    seconds = sorted(run["seconds"] for run in runs if "seconds" in run)
    return [
        kind,
        method,
        str(len(runs)),
        f"{right} ({100 * right / len(runs):.0f} %)",
        str(sum(v.wrong for v in verdicts)),
        f"{flagged_right} of {right}",
        str(sum(v.answered and v.flagged and not v.right for v in verdicts)),
        str(sum(not v.answered for v in verdicts)),
        f"{seconds[len(seconds) // 2]:.1f}" if seconds else "",
        f"{seconds[-1]:.1f}" if seconds else "",
    ]


def body(records: Mapping[str, Any], settings: str) -> str:
    """The tables: all findable traps, each class, the blind ones, and every silent error.

    Args:
        records: ``traps`` by seed, and ``runs`` by ``method/seed``.
        settings: how it was measured.
    """
    traps, runs = records["traps"], records["runs"]
    methods = list(dict.fromkeys(run["method"] for run in runs.values()))
    goals = {seed for seed, known in traps.items() if not known["blind"]}
    kinds = list(dict.fromkeys(traps[seed]["kind"] for seed in sorted(goals, key=int)))
    groups = {"all": goals}
    groups |= {kind: {s for s in goals if traps[s]["kind"] == kind} for kind in kinds}
    groups |= {"blind": set(traps) - goals}
    rows = []
    for kind, seeds in groups.items():
        for method in methods:
            own = [run for run in runs.values() if run["method"] == method]
            own = [run for run in own if str(run["seed"]) in seeds]
            if own:
                exact = [traps[str(run["seed"])]["log_evidence"] for run in own]
                rows.append(row(kind, method, own, exact))
    return "\n\n".join([settings, report.table(HEADER, rows), NOTES, silent(traps, runs, goals)])


def silent(traps: Mapping[str, Any], runs: Mapping[str, Any], goals: set[str]) -> str:
    """A list of the runs that are wrong without a flag."""
    lines = []
    for run in runs.values():
        known = traps[str(run["seed"])]
        if str(run["seed"]) in goals and judge(run, known["log_evidence"]).wrong:
            stated = run["std_error"]
            lines.append(
                f"- {run['method']}, seed {run['seed']}, {known['kind']} ({known['title']}): "
                f"{run['log_evidence'] - known['log_evidence']:+.3f} nats, stated "
                + ("nothing" if stated is None else f"{stated:.3f}")
            )
    return "\n".join(["Wrong without a flag:", "", *(lines or ["- none"])])


NOTES = (
    f"Right: within {RIGHT:g} stated errors, and stated at most {USEFUL:g} nats. Wrong without a "
    f"flag: beyond {FAR:g} stated errors, or beyond {RIGHT:g} of them and {APART:g} nats, or "
    f"stating over {LARGE:g} nat, with status ok. No answer: stopped at the limit, or an error. "
    "Seconds are of the processor, for runs that were not stopped. A tool that never states an "
    f"error is right within {USEFUL:g} nats, and wrong beyond. Blind traps have a mode that not "
    "even ten million evaluations would find; they are outside the goals."
)
