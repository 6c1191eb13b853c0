"""The answer of a run together with its path, and why the two differ."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

# A lower bound.
AT_LEAST = "at least"
# Relative differences below this are rounding errors.
ROUNDING = 1e-9


class Answer(NamedTuple):
    """The log evidence that a run returns.

    Attributes:
        log_evidence: in nats.
        std_error: its standard error; NaN when it cannot be stated.
        origin: the source of the answer, in a word or two.
        note: why it differs from the end of the path; empty if it does not.
        caution: why not to trust it, in a few words; empty if there is no flag.
        trust: "at least", "not to be trusted", or empty.
    """

    log_evidence: float
    std_error: float
    origin: str = "path"
    note: str = ""
    caution: str = ""
    trust: str = ""

    @property
    def written(self) -> str:
        """The number with its error, if known, or with what to think of it."""
        number = write_estimate(self.log_evidence, self.std_error)
        if self.trust:
            number = (
                f"{self.trust} {number}" if self.trust == AT_LEAST else f"{number}, {self.trust}"
            )
        return f"{number}, by the {self.origin}"


def explain_answer(
    log_evidence: float,
    std_error: float,
    trace: Mapping[str, np.ndarray],
    diagnostics: Mapping[str, Any],
) -> Answer:
    """The answer, and why it differs from the end of the drawn path, if it does.

    Args:
        log_evidence: the answer.
        std_error: its error.
        trace: the path; the last entry of its column ``log_evidence`` is the end of the path.
        diagnostics: ``answer`` is "path", "bridge", "mode" or "neither"; ``num_rounds`` is the
            number of rounds of islands.

    >>> trace = {"log_evidence": np.array([-3.0, -9.5])}
    >>> print(explain_answer(-9.0, 0.01, trace, {"answer": "bridge"}).note)
    The path ends at -9.50, 0.50 below the answer: the answer is by the bridge, ...
    """
    by = str(diagnostics.get("answer", "path"))
    origins = {
        "bridge": "bridge",
        "mode": "Gaussian at the mode",
        "neither": "path and what it missed",
    }
    origin = origins.get(by, "path")
    if "log_evidence" not in trace or not len(trace["log_evidence"]):
        return Answer(log_evidence, std_error, origin)
    end = float(trace["log_evidence"][-1])
    apart = log_evidence - end
    if not math.isfinite(apart) or abs(apart) <= ROUNDING * max(abs(log_evidence), 1.0):
        return Answer(log_evidence, std_error, origin)
    rounds = int(diagnostics.get("num_rounds", 1))
    reasons = []
    if by == "bridge":
        reasons.append(
            "the answer is by the bridge, a direct estimate between the posterior and a fitted "
            "density, which does not accumulate errors along the path"
        )
    elif by == "neither":
        reasons.append("the path missed mass of the posterior that a second search found and added")
    if rounds > 1:
        reasons.append(f"the path is that of the first of {rounds} rounds of islands, and the "
                       "answer is of all")  # fmt: skip
    if not reasons:
        reasons.append("the method combines its islands in another way")
    side = "below" if apart > 0 else "above"
    where = write_estimate(end, abs(apart), alone=True)
    note = f"The path ends at {where}, {_digits(abs(apart))} {side} the answer: "
    return Answer(log_evidence, std_error, origin, note + "; ".join(reasons) + ".")


def write_estimate(value: float, error: float, *, alone: bool = False) -> str:
    """A number to the digits of its error, followed by the error unless ``alone``.

    >>> write_estimate(-104.7231, 0.0123), write_estimate(-104.7231, float("nan"))
    ('-104.723 ± 0.012', '-104.72')
    >>> write_estimate(-104.7231, 2e-9)
    '-104.723100 ± 2.0e-09'
    """
    if not math.isfinite(error) or error <= 0:
        return f"{value:,.2f}"
    places = min(max(1 - math.floor(math.log10(error)), 0), 6)
    text = f"{round(value, places) + 0.0:,.{places}f}"  # adding zero turns -0.0 into 0.0
    small = error < 0.5 * 10.0**-places  # it would be written as zero
    return text if alone else f"{text} ± {f'{error:.1e}' if small else f'{error:,.{places}f}'}"


def _digits(difference: float) -> str:
    """A difference with two significant digits."""
    return f"{difference:,.{min(max(1 - math.floor(math.log10(difference)), 0), 9)}f}"
