"""Words that results have in common: cautions, counts of rows, numbers with their errors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weighbridge.core.status import Status

# Smaller standard errors are lost in rounding.
SMALL_ERROR = 1e-9


def caution_of(flags: Sequence[Status]) -> str:
    """Flags in a few words; the result itself has their meanings and remedies.

    >>> caution_of([Status.ISLANDS_DISAGREE]), caution_of([])
    ('caution: islands disagree', '')
    """
    return f"caution: {', '.join(flag.label for flag in flags)}" if flags else ""


def counted(observations: int) -> str:
    """The number of observations, in words.

    >>> counted(1), counted(2000)
    ('1 observation', '2,000 observations')
    """
    return f"{observations:,} observation{'' if observations == 1 else 's'}"


def digits_of_error(error: float) -> str:
    """A standard error with two digits; below the rounding limit it is given as "< 1e-9".

    >>> [digits_of_error(error) for error in (0.0123, 250.0, 3e-7, 1e-12, math.nan)]
    ['0.012', '250', '3.0e-07', '< 1e-9', 'unknown']
    """
    if math.isnan(error):
        return "unknown"
    if error < SMALL_ERROR:
        return "< 1e-9"
    return f"{error:.1e}" if error < 1e-5 else digits(error)


def left_out(skipped: int, quarantined: int) -> str:
    """The rest of a text about observations: how many were skipped and quarantined.

    >>> left_out(2, 0), left_out(0, 1000), left_out(0, 0)
    (', 2 skipped', ', 1,000 quarantined', '')
    """
    counts = {"skipped": skipped, "quarantined": quarantined}
    return "".join(f", {count:,} {what}" for what, count in counts.items() if count)


def digits(value: float, error: float | None = None) -> str:
    """A number with the digits that its error allows (for an error itself, two digits)."""
    scale = abs(value) if error is None else error
    if not math.isfinite(scale):
        return f"{value:.2f}"
    places = 1 - math.floor(math.log10(max(scale, SMALL_ERROR)))
    return f"{value:.{min(max(places, 0), 9)}f}"
