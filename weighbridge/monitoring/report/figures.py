"""The figures of a report: evidence, probability and annealing steps along the rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weighbridge.monitoring.report.page import figure, paragraph
from weighbridge.monitoring.report.records import Chronicle
from weighbridge.monitoring.report.words import known
from weighbridge.plots.curves import Axis, Curve, draw_curves, legend
from weighbridge.weighing.comparison import JEFFREYS

DECISIVE = JEFFREYS[-1][0]
# With more annealing steps than this, their axis is logarithmic.
MANY_STEPS = 20.0
BANDS = "bands are two standard errors either way"

Columns = list[list[float]]


def figures(chronicle: Chronicle, best: str) -> str:
    """All figures, one below the other, with one legend.

    Args:
        chronicle: summary of the events of the run.
        best: the model with which the others are compared.
    """
    parts = [legend(chronicle.models)]
    if chronicle.change_rows:
        parts.append(paragraph("Dashed vertical lines are change points.", "soft"))
    if len(chronicle.models) > 1:
        parts += [_factors(chronicle, best), _probabilities(chronicle)]
    parts += [_evidence_per_row(chronicle), _annealing_steps(chronicle)]
    return "\n".join(parts)


def _factors(chronicle: Chronicle, best: str) -> str:
    place = chronicle.models.index(best)
    evidences, errors = _columns(chronicle, "log_evidences"), _columns(chronicle, "std_errors")
    factors = [[a - b for a, b in zip(column, evidences[place])] for column in evidences]
    reaches = [[2 * math.hypot(a, b) for a, b in zip(column, errors[place])] for column in errors]
    reaches[place] = [0.0] * len(chronicle.points)
    bent = _largest(factors) > 20 * DECISIVE
    axis = Axis(
        "log Bayes factor",
        "symlog" if bent else "linear",
        threshold=2 * DECISIVE,
        bounds=(-DECISIVE, DECISIVE),
    )
    logarithmic = ", beyond which the axis is logarithmic" if bent else ""
    explanation = f"In nats; {BANDS}. Dotted: where the evidence becomes decisive{logarithmic}."
    title = f"Log Bayes factor against {best}"
    return _draw(chronicle, title, explanation, axis, factors, reaches)


def _probabilities(chronicle: Chronicle) -> str:
    values = _columns(chronicle, "probabilities")
    reaches = [[2 * e for e in column] for column in _columns(chronicle, "probability_errors")]
    axis = Axis("probability", low=0.0, high=1.0)
    explanation = f"{BANDS.capitalize()}."
    return _draw(chronicle, "Probability", explanation, axis, values, reaches)


def _evidence_per_row(chronicle: Chronicle) -> str:
    rows = [max(point.rows, 1) for point in chronicle.points]
    evidences, errors = _columns(chronicle, "log_evidences"), _columns(chronicle, "std_errors")
    values = [[value / n for value, n in zip(column, rows)] for column in evidences]
    reaches = [[2 * error / n for error, n in zip(column, rows)] for column in errors]
    explanation = f"In nats, of all rows so far; {BANDS}."
    axis = Axis("log evidence per row")
    return _draw(chronicle, "Log evidence per row", explanation, axis, values, reaches)


def _annealing_steps(chronicle: Chronicle) -> str:
    values = _columns(chronicle, "annealing_steps")
    axis = Axis("annealing steps", low=0.0)
    if _largest(values) > MANY_STEPS:
        axis = Axis("annealing steps", "log", low=1.0)
    explanation = "Of each update: how hard its rows were to take in"
    if chronicle.num_updates > len(chronicle.points):
        explanation += f" (the hardest of each of {len(chronicle.points):,} stretches)"
    reaches = [[0.0] * len(chronicle.points)] * len(values)
    return _draw(chronicle, "Annealing steps", f"{explanation}.", axis, values, reaches)


def _draw(
    chronicle: Chronicle,
    title: str,
    explanation: str,
    axis: Axis,
    values: Columns,
    reaches: Columns,
) -> str:
    rows = [point.rows for point in chronicle.points]
    curves = [
        Curve(name, rows, heights, reach)
        for name, heights, reach in zip(chronicle.models, values, reaches)
    ]
    marks = chronicle.change_rows
    numbered = len(marks) == chronicle.num_changes  # else the numbers would not match the table
    return figure(title, explanation, draw_curves(curves, axis, marks, numbered=numbered))


def _columns(chronicle: Chronicle, quantity: str) -> Columns:
    """One column of numbers for each model, NaN where a number is unknown."""
    return [
        [known(getattr(point, quantity), name) for point in chronicle.points]
        for name in chronicle.models
    ]


def _largest(columns: Sequence[Sequence[float]]) -> float:
    sizes = (abs(value) for column in columns for value in column if math.isfinite(value))
    return max(sizes, default=0.0)
