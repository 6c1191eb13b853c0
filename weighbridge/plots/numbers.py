"""Numbers as text: ticks that say where they stand, and means with their deviations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

# Written out as they are: numbers below this, with no more decimals than these.
LARGEST, MOST_DECIMALS = 1e8, 4
# Letters that a number with an exponent may have, unless without one it has more than so many.
EASY, LONG = 7, 18
# Part of the distance between ticks that a label may be off.
SLACK = 1e-3
# Digits that a double has.
DIGITS = 16


def write_numbers(values: Sequence[float]) -> list[str]:
    """Labels of the ticks of one axis, which read back as the places of the ticks.

    The decimals come from the ticks: as few as tell where each of them stands. Large and small
    numbers have exponents where that is shorter.

    >>> write_numbers([10.0, 10.5, 11.0])
    ['10.0', '10.5', '11.0']
    >>> write_numbers([0.0, 5e-8, 1e-7]), write_numbers([-2000.0, 0.0])
    (['0', '5e-8', '1e-7'], ['-2,000', '0'])
    >>> write_numbers([1e6 + 0.1, 1e6 + 0.2]), write_numbers([1699990000.0, 1.7e9])
    (['1,000,000.1', '1,000,000.2'], ['1,699,990,000', '1,700,000,000'])
    """
    numbers = np.asarray(values, float)
    finite = numbers[np.isfinite(numbers)]
    largest = float(np.max(np.abs(finite), initial=0.0))
    step = float(np.min(np.diff(np.unique(finite)), initial=largest))
    slack = max(SLACK * step, 2.0**-50 * largest)
    decimals = next((d for d in range(20) if _is_enough(finite, d, slack)), 20)
    plain = [_plain(value, decimals, slack) for value in numbers]
    if largest < LARGEST and decimals <= MOST_DECIMALS:
        return plain
    powers = [_with_exponent(value, slack) for value in numbers]
    longest, shortest = max(map(len, plain), default=0), max(map(len, powers), default=0)
    # A number of many digits is easier to read with commas than with an exponent.
    easy = shortest <= EASY or longest > LONG
    return powers if easy and shortest < longest else plain


def write_number(value: float) -> str:
    """One number by itself, as on a logarithmic axis.

    >>> write_number(20000.0), write_number(0.05), write_number(1e-7), write_number(1e12)
    ('20,000', '0.05', '1e-7', '1e12')
    """
    return write_numbers([value])[0]


def _is_enough(values: np.ndarray, decimals: int, slack: float) -> bool:
    return bool(np.all(np.abs(np.round(values, decimals) - values) <= slack))


def _plain(value: float, decimals: int, slack: float) -> str:
    if abs(value) <= slack:
        value = 0.0  # never a tick at -0.0, or at a rounding error of zero
    return f"{value:,.{decimals}f}"


def _with_exponent(value: float, slack: float) -> str:
    if abs(value) <= slack:
        return "0"
    for digits in range(DIGITS):
        text = f"{value:.{digits}e}"
        if abs(float(text) - value) <= slack:
            break
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}"


def write_mean(mean: float, deviation: float) -> str:
    """Mean and standard deviation, to two digits of the latter.

    >>> write_mean(10.5, 0.0123), write_mean(1e6, 0.1), write_mean(3.0, 0.0)
    ('10.500 ± 0.012', '1,000,000.00 ± 0.10', '3')
    >>> write_mean(2.5e-7, 1e-8), write_mean(-0.31, 1200.0)
    ('2.50e-7 ± 1.0e-8', '0 ± 1,200')
    """
    if not deviation > 0 or not math.isfinite(deviation):
        return f"{mean:.6g}"
    place = 1 - math.floor(math.log10(deviation))
    size = max(abs(mean), deviation)
    if -4 <= place <= 5 and size < 1e10:
        decimals = max(place, 0)
        mean, deviation = (round(value, place) + 0.0 for value in (mean, deviation))
        return f"{mean:,.{decimals}f} ± {deviation:,.{decimals}f}"
    digits = max(1, 1 + math.floor(math.log10(size / deviation))) if mean else 1
    texts = [_exponent(f"{mean:.{digits}e}"), _exponent(f"{deviation:.1e}")]
    return " ± ".join(texts)


def _exponent(text: str) -> str:
    mantissa, _, exponent = text.partition("e")
    return mantissa if int(exponent) == 0 else f"{mantissa}e{int(exponent)}"


def minus(text: str) -> str:
    """A number as matplotlib writes it, with a minus sign and not a hyphen."""
    return text.replace("-", "\N{MINUS SIGN}")
