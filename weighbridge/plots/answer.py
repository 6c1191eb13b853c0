"""The answer of a run beside its path, and why the two differ."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

# Nats, in units of the size of the numbers, that are rounding and no difference.
ROUNDING = 1e-9


class Answer(NamedTuple):
    """The log evidence that a run answers with.

    Attributes:
        log_evidence: in nats.
        std_error: its standard error; NaN when it cannot be stated.
        origin: what it comes from, in a word or two.
        note: why it is not where the path ends; empty where it is.
        caution: why not to trust it, in a few words; empty where nothing was seen.
    """

    log_evidence: float
    std_error: float
    origin: str = "path"
    note: str = ""
    caution: str = ""

    @property
    def written(self) -> str:
        """The number with its error, as far as it is known."""
        return f"{write_estimate(self.log_evidence, self.std_error)}, by the {self.origin}"


def explain_answer(
    log_evidence: float,
    std_error: float,
    trace: Mapping[str, np.ndarray],
    diagnostics: Mapping[str, Any],
) -> Answer:
    """The answer, and why the path that is drawn ends elsewhere, if it does.

    Args:
        log_evidence: the answer.
        std_error: its error.
        trace: the path; its column ``log_evidence`` ends where the path does.
        diagnostics: ``answer`` says whether the path or a bridge gave it, or neither;
            ``num_rounds`` of how many rounds of islands it is.

    >>> trace = {"log_evidence": np.array([-3.0, -9.5])}
    >>> print(explain_answer(-9.0, 0.01, trace, {"answer": "bridge"}).note)
    The path ends at -9.50, 0.50 below the answer: that is by the bridge, ...
    """
    by = str(diagnostics.get("answer", "path"))
    origin = {"bridge": "bridge", "neither": "path and what it missed"}.get(by, "path")
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
            "that is by the bridge, a direct estimate between the posterior and a fitted density, "
            "which gathers no errors along the path"
        )
    elif by == "neither":
        reasons.append(
            "the path missed mass of the posterior that a second search found, and that is added"
        )
    if rounds > 1:
        reasons.append(f"the path is that of the first of {rounds} rounds of islands, and the "
                       "answer is of all")  # fmt: skip
    if not reasons:
        reasons.append("islands are put together otherwise, by the rule of the method")
    side = "below" if apart > 0 else "above"
    where = write_estimate(end, abs(apart), alone=True)
    note = f"The path ends at {where}, {_digits(abs(apart))} {side} the answer: "
    return Answer(log_evidence, std_error, origin, note + "; ".join(reasons) + ".")


def write_estimate(value: float, error: float, *, alone: bool = False) -> str:
    """A number to the digits of its error, and the error unless it is to stand alone.

    >>> write_estimate(-104.7231, 0.0123), write_estimate(-104.7231, float("nan"))
    ('-104.723 ± 0.012', '-104.72')
    >>> write_estimate(-104.7231, 2e-9)
    '-104.723100 ± 2.0e-09'
    """
    if not math.isfinite(error) or error <= 0:
        return f"{value:,.2f}"
    places = min(max(1 - math.floor(math.log10(error)), 0), 6)
    text = f"{round(value, places) + 0.0:,.{places}f}"  # adding zero makes 0 of -0
    small = error < 0.5 * 10.0**-places  # it would be written as zero
    return text if alone else f"{text} ± {f'{error:.1e}' if small else f'{error:,.{places}f}'}"


def _digits(difference: float) -> str:
    """A difference to two digits."""
    return f"{difference:,.{min(max(1 - math.floor(math.log10(difference)), 0), 9)}f}"
