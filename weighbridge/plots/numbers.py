"""Numbers as text: exact tick labels, and means with their standard deviations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

# Numbers below this, with at most this many decimals, are written without an exponent.
LARGEST, MOST_DECIMALS = 1e8, 4
# Largest length of a label with an exponent, unless the plain label is longer than LONG.
EASY, LONG = 7, 18
# Largest error of a label, as a fraction of the distance between ticks.
SLACK = 1e-3
# Number of significant digits of a double.
DIGITS = 16


def write_numbers(values: Sequence[float]) -> list[str]:
    """Labels of the ticks of one axis; each label equals the position of its tick.

    The number of decimals is the smallest that gives the position of every tick. Large and small
    numbers have exponents if that is shorter.

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
    # A number with many digits is easier to read with commas than with an exponent.
    easy = shortest <= EASY or longest > LONG
    return powers if easy and shortest < longest else plain


def write_number(value: float) -> str:
    """A single number, as on a logarithmic axis.

    >>> write_number(20000.0), write_number(0.05), write_number(1e-7), write_number(1e12)
    ('20,000', '0.05', '1e-7', '1e12')
    """
    return write_numbers([value])[0]


def _is_enough(values: np.ndarray, decimals: int, slack: float) -> bool:
    return bool(np.all(np.abs(np.round(values, decimals) - values) <= slack))


def _plain(value: float, decimals: int, slack: float) -> str:
    if abs(value) <= slack:
        value = 0.0  # not -0.0, and not a rounding error around zero
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
    """Mean and standard deviation, with two significant digits of the latter.

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
    """A number as in matplotlib, with a minus sign in place of the hyphen."""
    return text.replace("-", "\N{MINUS SIGN}")
