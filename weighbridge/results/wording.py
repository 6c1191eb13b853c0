"""Words that results have in common: cautions, counts of rows, numbers with their errors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weighbridge.core.status import Status
from weighbridge.results.trust import AT_LEAST

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


def with_bound(value: str, trust: str) -> str:
    """A number, as a lower bound if it is one; for tables.

    >>> with_bound("-1.0", "at least"), with_bound("-1.0", "")
    ('at least -1.0', '-1.0')
    """
    return f"{trust} {value}" if trust == AT_LEAST else value


def error_or_trust(error: float, trust: str) -> str:
    """An error with two digits, or why there is none; for tables.

    >>> error_or_trust(0.123, ""), error_or_trust(math.nan, "not to be trusted")
    ('0.12', 'not to be trusted')
    """
    if trust:
        return "lower bound" if trust == AT_LEAST else trust
    if math.isnan(error):
        return "unknown"
    if 0 < error < SMALL_ERROR:
        return "< 1e-9"
    return f"{error:.2g}" if error < 100 else f"{error:.0f}"


def with_trust(value: str, error: str, trust: str) -> str:
    """A number and its error, or what to think of a number that must not be trusted.

    Args:
        value: the number.
        error: its error.
        trust: "at least", "not to be trusted", or empty.

    >>> with_trust("-1.0", "0.1", ""), with_trust("-1.0", "unknown", "at least")
    ('-1.0 +- 0.1', 'at least -1.0, a lower bound')
    >>> with_trust("-1.0", "unknown", "not to be trusted")
    '-1.0, not to be trusted'
    """
    if not trust:
        return f"{value} +- {error}"
    return f"{AT_LEAST} {value}, a lower bound" if trust == AT_LEAST else f"{value}, {trust}"


def digits(value: float, error: float | None = None) -> str:
    """A number with the digits that its error allows (for an error itself, two digits)."""
    scale = abs(value) if error is None else error
    if not math.isfinite(scale):
        return f"{value:.2f}"
    places = 1 - math.floor(math.log10(max(scale, SMALL_ERROR)))
    return f"{value:.{min(max(places, 0), 9)}f}"
