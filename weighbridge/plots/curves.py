"""Curves on a web page: lines and bands in SVG of any width, labels in HTML.

The text does not shrink with the figure, and the colours are those of the page: light, dark or
paper.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from weighbridge.plots.numbers import minus, write_numbers

DASHES = ("none", "7 4", "9 3 2 3", "2 3", "12 3 2 3 2 3", "4 2")
NUM_COLOURS = 7
# Up to this many change marks are numbered.
NUMBERED = 12

Scale = Literal["linear", "log", "symlog"]

STYLE = """
.plot{position:relative;height:15rem;margin:.4rem .9rem 2.9rem 4.1rem}
.plot svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}
.plot span{position:absolute;font-size:.75rem;color:var(--soft);white-space:nowrap;
font-variant-numeric:tabular-nums}
.plot .y{right:calc(100% + .5rem);transform:translateY(-50%)}
.plot .x{top:calc(100% + .4rem);transform:translateX(-50%)}
.plot .axis{top:calc(100% + 1.5rem);left:0;right:0;text-align:center}
.plot .mark{bottom:100%;transform:translateX(-50%);color:var(--mark);font-weight:600}
.grid,.edge,.line,.changes,.bound{fill:none;vector-effect:non-scaling-stroke}
.grid{stroke:var(--rule);stroke-width:1}.edge{stroke:var(--soft);stroke-width:1}
.line{stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.band{stroke:none;opacity:.17}
.changes{stroke:var(--mark);stroke-width:1.5;stroke-dasharray:5 4}
.bound{stroke:var(--soft);stroke-width:1;stroke-dasharray:1 4}
.legend{display:flex;flex-wrap:wrap;gap:.15rem 1.2rem;margin:.3rem 0 1rem;padding:0;
list-style:none;font-size:.85rem}
.legend svg{width:2.2rem;height:.8rem;vertical-align:middle;margin-right:.4rem}
"""


class Curve(NamedTuple):
    """One curve: its points, and the half-width of its band at each point (NaN: unknown)."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    reach: Sequence[float] | None = None


class Axis(NamedTuple):
    """A vertical axis: its label, its scale, and its ends if they are given."""

    label: str
    scale: Scale = "linear"
    low: float | None = None
    high: float | None = None
    threshold: float = 1.0
    bounds: tuple[float, ...] = ()


def legend(names: Sequence[str]) -> str:
    """Names of the curves with their colours and dashes."""
    items = "".join(
        f'<li><svg viewBox="0 0 35 12" aria-hidden="true"><path class="line" '
        f'{_stroke(k)} d="M1 6H34"/></svg>{html.escape(name)}</li>'
        for k, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'


def draw_curves(
    curves: Sequence[Curve], axis: Axis, marks: Sequence[float] = (), *, numbered: bool = True
) -> str:
    """Curves along the rows, as HTML.

    Args:
        curves: in the order of the legend, which determines their colours.
        axis: the vertical axis.
        marks: rows at which vertical lines are drawn.
        numbered: whether the marks are numbered, if they are few.

    >>> figure = draw_curves([Curve("a", [1, 2], [0.5, 0.75])], Axis("probability", high=1.0))
    >>> figure.count('class="line"'), "probability" in figure
    (1, True)
    """
    end = max((curve.x[-1] for curve in curves if curve.x), default=1.0)
    bend = _bend(axis)
    low, high = _ends(curves, axis)
    bottom, top = bend(low), bend(high)
    across = 1000.0 / max(end, 1.0)

    def place(y: float) -> float:
        return 1000.0 * (top - bend(min(max(y, low), high))) / (top - bottom)

    parts, labels = [], []
    heights = _ticks(axis, low, high)
    for tick, text in zip(heights, compact_numbers(heights, separate=axis.scale != "linear")):
        parts.append(f'<path class="grid" d="M0 {place(tick):.1f}H1000"/>')
        labels.append(f'<span class="y" style="top:{place(tick) / 10:.2f}%">{text}</span>')
    for bound in axis.bounds:
        if low < bound < high:
            parts.append(f'<path class="bound" d="M0 {place(bound):.1f}H1000"/>')
    ticks = [tick for tick in nice_ticks(0.0, max(end, 1.0), 5) if tick == int(tick)]
    for tick, text in zip(ticks, compact_numbers(ticks)):
        left = f'style="left:{tick * across / 10:.2f}%"'
        labels.append(f'<span class="x" {left}>{text}</span>')
    labels.append('<span class="axis">rows</span>')
    for number, mark in enumerate(marks, 1):
        if 0 <= mark <= end:
            at = mark * across
            parts.append(
                f'<path class="changes" d="M{at:.1f} 0V1000"><title>change at row {mark:,.0f}'
                "</title></path>"
            )
            if numbered and len(marks) <= NUMBERED:
                labels.append(f'<span class="mark" style="left:{at / 10:.2f}%">{number}</span>')
    for k, curve in enumerate(curves):
        points = [(x * across, y, r) for x, y, r in zip(curve.x, curve.y, _reaches(curve))]
        for run in _runs(points):
            parts += _draw_run(run, place, k, curve.name)
    drawing = "".join(parts)
    return (
        f'<div class="plot"><svg viewBox="0 0 1000 1000" preserveAspectRatio="none" role="img" '
        f'aria-label="{html.escape(axis.label)} along the rows">{drawing}'
        f'<path class="edge" d="M0 0V1000H1000"/></svg>{"".join(labels)}</div>'
    )


def _draw_run(
    run: list[tuple[float, float, float]], place: Callable[[float], float], k: int, name: str
) -> list[str]:
    """A part of a curve without gaps, with its band where it is known."""
    parts = []
    if any(reach > 0 for _, _, reach in run):
        upper = [f"{x:.1f} {place(y + r):.1f}" for x, y, r in run if not math.isnan(r)]
        lower = [f"{x:.1f} {place(y - r):.1f}" for x, y, r in run if not math.isnan(r)]
        outline = "L".join([*upper, *reversed(lower)])
        parts.append(f'<path class="band" fill="var(--c{k % NUM_COLOURS})" d="M{outline}Z"/>')
    way = "L".join(f"{x:.1f} {place(y):.1f}" for x, y, _ in run)
    if len(run) == 1:
        way += f"h{2 if run[0][0] < 500 else -2}"
    title = f"<title>{html.escape(name)}</title>"
    parts.append(f'<path class="line" {_stroke(k)} d="M{way}">{title}</path>')
    return parts


def _stroke(k: int) -> str:
    dash = DASHES[k % len(DASHES)]
    return f'stroke="var(--c{k % NUM_COLOURS})" stroke-dasharray="{dash}"'


def _reaches(curve: Curve) -> Sequence[float]:
    return [0.0] * len(curve.y) if curve.reach is None else curve.reach


def _runs(points: list[tuple[float, float, float]]) -> list[list[tuple[float, float, float]]]:
    """Runs of consecutive points with finite heights."""
    runs: list[list[tuple[float, float, float]]] = [[]]
    for point in points:
        if math.isfinite(point[1]):
            runs[-1].append(point)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _ends(curves: Sequence[Curve], axis: Axis) -> tuple[float, float]:
    heights = [
        value
        for curve in curves
        for y, r in zip(curve.y, _reaches(curve))
        for value in ((y - r, y + r) if math.isfinite(r) else (y,))
        if math.isfinite(value)
    ]
    low = axis.low if axis.low is not None else min(heights, default=0.0)
    high = axis.high if axis.high is not None else max(heights, default=1.0)
    if not high - low > 1e-9 * max(abs(low), abs(high), 1e-3):
        low, high = low - 0.5, low + 0.5
    margin = 0.04 * (high - low) if axis.scale == "linear" else 0.0
    low = low if axis.low is not None else low - margin
    return low, high if axis.high is not None else high + margin


def _bend(axis: Axis) -> Callable[[float], float]:
    """The transform of the axis scale."""
    if axis.scale == "log":
        return lambda value: math.log(max(value, 1e-300))
    if axis.scale == "symlog":
        return lambda value: math.asinh(value / axis.threshold)
    return lambda value: value


def _ticks(axis: Axis, low: float, high: float) -> list[float]:
    if axis.scale == "linear":
        return nice_ticks(low, high, 5)
    largest = max(abs(low), abs(high), 10.0)
    decades = range(math.floor(math.log10(largest)) + 1)
    tens = [10.0**k for k in decades]
    if axis.scale == "log":
        fine = [m * ten for ten in tens for m in (1, 2, 5)] if len(tens) < 3 else tens
        return [tick for tick in fine[:: 1 + len(fine) // 8] if low <= tick <= high]
    tens = [ten for ten in tens if ten > axis.threshold]
    tens = tens[:: 1 + len(tens) // 4]
    ticks = [*(-ten for ten in reversed(tens)), 0.0, *tens]
    return [tick for tick in ticks if low <= tick <= high]


def nice_ticks(low: float, high: float, count: int) -> list[float]:
    """About this many round numbers between two ends.

    >>> nice_ticks(0.0, 1.0, 4)
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    rough = (high - low) / count
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(m * unit for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * unit >= 0.999 * rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def compact_numbers(values: Sequence[float], *, separate: bool = False) -> list[str]:
    """Labels of ticks, short enough for an axis; each label equals the position of its tick.

    Args:
        values: the ticks.
        separate: whether each label is formatted by itself, as on a logarithmic axis.

    >>> compact_numbers([0.0, 5000.0, 10000.0]), compact_numbers([0.25, 0.5, 1.0])
    (['0', '5k', '10k'], ['0.25', '0.50', '1.00'])
    >>> compact_numbers([12_345_000.0, 12_346_000.0])
    ['12.345M', '12.346M']
    >>> compact_numbers([1.0, 1000.0, 1e6], separate=True)
    ['1', '1,000', '1M']
    """
    if separate:
        return [text for value in values for text in compact_numbers([value])]
    largest = max(map(abs, values), default=0.0)
    units = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
    unit, letter = next((u for u in units if largest >= max(u[0], 10_000)), (1.0, ""))
    texts = write_numbers([value / unit for value in values])
    whole = [text + letter if value else "0" for value, text in zip(values, texts)]
    return [minus(text) for text in (whole if letter else texts)]
