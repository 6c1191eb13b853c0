"""Stan's plan of a warm-up: step size, metric in windows that double, step size."""

from __future__ import annotations

from typing import NamedTuple

# Iterations before the metric is learned, in the first window, and after the last window.
BEFORE, FIRST, AFTER = 75, 25, 50


class WarmupWindow(NamedTuple):
    """A part of the warm-up.

    Attributes:
        length: number of iterations.
        learns_metric: whether the draws are used for the metric, which is updated at the end.
    """

    length: int
    learns_metric: bool


def plan_windows(num_warmup: int) -> list[WarmupWindow]:
    """Split a warm-up into windows; the middle ones learn the metric from more and more draws.

    Stan Reference Manual, section "Automatic parameter tuning". A warm-up of fewer than 20
    iterations tunes only the step size; one of fewer than 150 is split in 15, 75 and 10 %.

    >>> [(window.length, window.learns_metric) for window in plan_windows(1000)]
    [(75, False), (25, True), (50, True), (100, True), (200, True), (500, True), (50, False)]
    """
    if num_warmup < 20:
        return [WarmupWindow(num_warmup, False)] if num_warmup else []
    before, first, after = BEFORE, FIRST, AFTER
    if before + first + after > num_warmup:
        before, after = int(0.15 * num_warmup), int(0.1 * num_warmup)
        first = num_warmup - before - after
    windows = [WarmupWindow(before, False)]
    left, length = num_warmup - before - after, first
    while left:
        # If the rest is too short for a next window of twice this length, this window takes all of
        # it.
        taken = left if left < 3 * length else length
        windows.append(WarmupWindow(taken, True))
        left, length = left - taken, 2 * length
    return [*windows, WarmupWindow(after, False)]
