"""Numbers and times as readable text."""

from __future__ import annotations

import datetime
import math

from weighbridge.monitoring.report.records import Numbers
from weighbridge.plots.numbers import minus


def known(numbers: Numbers, name: str, otherwise: float = math.nan) -> float:
    """The number with this name, or ``otherwise`` if it is unknown."""
    return number_or(numbers.get(name, math.nan), otherwise)


def number_or(value: float, otherwise: float) -> float:
    """The value, or ``otherwise`` if it is NaN."""
    return otherwise if math.isnan(value) else value


def fixed(value: float) -> str:
    """A log evidence, to a hundredth of a nat."""
    return minus(f"{value:,.2f}") if math.isfinite(value) else "unknown"


def short(value: float) -> str:
    """A number to four digits."""
    return minus(f"{value:.4g}") if math.isfinite(value) else "unknown"


def to_error(value: float, error: float) -> str:
    """A number with the digits that its error allows.

    >>> to_error(1234.5678, 0.2), to_error(0.5, 0.0)
    ('1,234.57', '0.5')
    """
    if not (math.isfinite(value) and math.isfinite(error) and error > 0):
        return short(value)
    digits = 1 - math.floor(math.log10(error))
    return minus(f"{value:,.{min(max(digits, 0), 9)}f}")


def error_text(value: float) -> str:
    """A standard error, to two digits."""
    if not math.isfinite(value):
        return "unknown"
    return f"{value:.2g}" if value < 100 else f"{value:,.0f}"


def plus_minus(value: float, error: float) -> str:
    """A log evidence with its error."""
    return f"{fixed(value)} \N{PLUS-MINUS SIGN} {error_text(error)}"


def probability_text(value: float) -> str:
    """A probability or its error, to four places."""
    if math.isnan(value):
        return "unknown"
    if value < 5e-5:
        return "0" if value == 0 else "< 0.0001"
    return "> 0.9999" if value > 0.99995 else f"{value:.4f}"


def _parse_time(text: str) -> datetime.datetime | None:
    try:
        time = datetime.datetime.fromisoformat(text)
        aware = time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
        return aware.astimezone(datetime.UTC)
    except (ValueError, OverflowError):  # the first hour of year 1 has no time in UTC
        return None


def when(text: str) -> str:
    """An ISO 8601 time to the second, in UTC; other texts are returned unchanged."""
    time = _parse_time(text)
    return text if time is None else f"{time:%Y-%m-%d %H:%M:%S} UTC"


def seconds_since(text: str, now: datetime.datetime) -> float:
    """Seconds from a time to ``now``; NaN if the text is not a time."""
    time = _parse_time(text)
    return math.nan if time is None else max((now - time).total_seconds(), 0.0)


def duration(seconds: float) -> str:
    """A time in its largest unit.

    >>> duration(7.0), duration(600.0), duration(200_000.0)
    ('7 s', '10 min', '2 d')
    """
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def sentence(text: str) -> str:
    """The text with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."
