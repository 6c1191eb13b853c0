"""The rows of ``benchmarks.sgais.headline``: which problem, how many rows, and what is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import weighbridge as wb
from benchmarks.sgais import problems
from weighbridge.estimators.registry import Method

PROBLEMS: dict[str, Callable[[], problems.Problem]] = {
    "linear": problems.linear,
    "softmax": problems.softmax,
    "shrinkage": problems.shrinkage,
    "mixture": problems.mixture,
    "seven": problems.seven,
}
TITLES = {
    "linear": "linear regression, 6 parameters",
    "softmax": "softmax regression, 44 parameters",
    "shrinkage": "logistic regression, Student-t and horseshoe priors, 20 parameters",
    "mixture": "mixture of 5, 24 parameters",
    "seven": "mixture of 7 on 5 clusters, 34 parameters",
}
METHODS: dict[str, Method] = {
    "published": wb.SGAIS.published(),
    "sgais": wb.SGAIS(),
    "smc": wb.SMC(),
    "ais": wb.AIS(),
}
# A singular posterior is not quadratic around any anchor, so the mini-batches have all rows.
ALL_ROWS = wb.SGAIS(num_particles=32, batch_size=131_072)
STREAMED = wb.SGAIS(chunk_size=500, reservoir=20_000)
SIZES = {"1e3": 1_000, "1e4": 10_000, "1e5": 100_000, "1e6": 1_000_000}
# Seeds of the rows of table 2, which only give the points of curves.
SEEDS_OF_A_CURVE = 2
# A stated error is large enough if the rms of z is below COVERED, and not too large if it is above
# OVERSTATED.
COVERED, OVERSTATED = 2.0, 1 / 3
FEW_FLAGS = 0.05
# Memory is flat if it grows by less than this factor from a tenth of the rows on.
FLAT = 1.05


class Goal(NamedTuple):
    """The bounds of a measured number."""

    what: str
    most: float = float("inf")
    least: float = 0.0

    def __str__(self) -> str:
        low = f"{self.least:.2g} <= " if self.least else ""
        high = f" <= {self.most:.4g}" if self.most < float("inf") else ""
        return f"{low}{self.what}{high}"

    def is_met(self, measured: float) -> bool:
        """Whether a measured number is within the bounds."""
        return self.least <= measured <= self.most


HONEST = (Goal("flagged", FEW_FLAGS), Goal("stated / real", 3.0))


@dataclass(frozen=True)
class Row:
    """One row of a table, measured in a process of its own.

    Args:
        kind: the table that the row belongs to.
        problem: a key of ``PROBLEMS``.
        rows: number of data rows.
        goals: the goals of the row; answers and streams have those of ``HONEST`` among them.
        reference: how the reference log evidence is computed.
        method: the method that is measured.
        method_name: a key of ``METHODS``, in table 2.
        check_rows: rows at which the reference is compared with SMC; 0 for no such check.
        shuffled: whether the data come in another order.
    """

    kind: Literal["answer", "stream", "compare"]
    problem: str
    rows: int
    goals: tuple[Goal, ...] = ()
    reference: Literal["exact", "importance", "without scales", "SMC", "none"] = "importance"
    method: Method = METHODS["sgais"]
    method_name: str = "sgais"
    check_rows: int = 0
    shuffled: bool = False

    @property
    def title(self) -> str:
        """Its title in tables."""
        how = ", 32 particles, batches of all rows" if self.method is ALL_ROWS else ""
        return TITLES[self.problem] + how + (", shuffled" if self.shuffled else "")

    @property
    def has_mode(self) -> bool:
        """Whether a Gaussian at the mode is meaningful: not if there are too many components."""
        return self.problem != "seven"


def _answer(problem: str, rows: int, answer: float, *goals: Goal, **more: object) -> Row:
    return Row("answer", problem, rows, (Goal("answer", answer), *goals, *HONEST), **more)  # type: ignore[arg-type]


def _path(most: float) -> tuple[Goal, Goal]:
    return Goal("path", most), Goal("z", COVERED)


def _time(passes: float, seconds: float) -> tuple[Goal, Goal]:
    return Goal("passes", passes), Goal("fresh s", seconds)


def _stream(problem: str, answer: float, **more: object) -> Row:
    goals = (Goal("answer", answer), Goal("memory", FLAT), Goal("update", 1.2), *HONEST)
    return Row("stream", problem, SIZES["1e6"], goals, method=STREAMED, **more)  # type: ignore[arg-type]


CALIBRATED = (Goal("path", 0.5), Goal("z", COVERED, OVERSTATED))
STATED = Goal("stated", 3.0)

ROWS: dict[str, Row] = {
    "linear-1e6": _answer(
        "linear", SIZES["1e6"], 0.01, *CALIBRATED, *_time(300, 20), reference="exact"
    ),
    "softmax-1e6": _answer("softmax", SIZES["1e6"], 0.05, *_path(1.5), *_time(400, 60)),
    "softmax-200": _answer("softmax", 200, 0.1, reference="SMC"),
    "shrinkage-1e5": _answer(
        "shrinkage",
        SIZES["1e5"],
        0.2,
        Goal("|Laplace|", least=0.5),
        reference="without scales",
        check_rows=2_000,
    ),
    "mixture-1e4": _answer("mixture", SIZES["1e4"], 0.3, *_path(3.0), check_rows=SIZES["1e4"]),
    "mixture-1e5": _answer("mixture", SIZES["1e5"], 0.3, *_path(3.0)),
    "mixture-1e6": _answer("mixture", SIZES["1e6"], 0.3, *_path(3.0), *_time(800, 300)),
    "seven-1e4": Row(
        "answer",
        "seven",
        SIZES["1e4"],
        (Goal("answer z", COVERED), STATED, HONEST[0]),
        reference="SMC",
    ),
    "seven-1e5": Row(
        "answer", "seven", SIZES["1e5"], (STATED, HONEST[0]), reference="none", method=ALL_ROWS
    ),
    "seven-1e5-shuffled": Row(
        "answer",
        "seven",
        SIZES["1e5"],
        (Goal("orders apart / combined error", COVERED), STATED, HONEST[0]),
        reference="none",
        method=ALL_ROWS,
        shuffled=True,
    ),
    "stream-linear": _stream("linear", 0.1, reference="exact"),
    "stream-softmax": _stream("softmax", 0.3),
    "stream-mixture": _stream("mixture", 1.0),
}
ROWS |= {
    f"compare-{problem}-{name}-{size}": Row(
        "compare",
        problem,
        SIZES[size],
        reference="exact" if problem == "linear" else "importance",
        method=method,
        method_name=name,
    )
    for problem in ("linear", "softmax")
    for name, method in METHODS.items()
    for size in SIZES
}


def smaller_rows(name: str) -> list[str]:
    """The rows of the same curve with fewer rows.

    >>> smaller_rows("compare-linear-smc-1e5")
    ['compare-linear-smc-1e3', 'compare-linear-smc-1e4']
    """
    row = ROWS[name]
    if row.kind != "compare":
        return []
    curve = (row.problem, row.method_name)
    return [
        other
        for other, its in ROWS.items()
        if its.kind == "compare" and (its.problem, its.method_name) == curve and its.rows < row.rows
    ]


def choose(wanted: list[str]) -> list[str]:
    """The rows of these names, or whose names begin with them.

    >>> choose(["stream", "seven-1e5"])
    ['seven-1e5', 'stream-linear', 'stream-softmax', 'stream-mixture']
    """
    chosen = []
    for name in ROWS:
        for want in wanted:
            if name == want or (want not in ROWS and name.startswith(f"{want}-")):
                chosen.append(name)
                break
    unknown = [w for w in wanted if not any(n == w or n.startswith(f"{w}-") for n in ROWS)]
    if unknown:
        raise SystemExit(f"There is no row {', '.join(unknown)}; there are {', '.join(ROWS)}.")
    return chosen
