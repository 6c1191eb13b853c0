"""The rows that a bridge of SGAIS is on: all of them, or mini-batches that are held against all.

What mini-batches differ by shows their noise, unless a few rows have most of it: where features
have heavy tails, no batch may hold the one row that matters, and all of them err alike.
"""

from __future__ import annotations

import math

import jax
import numpy as np

from weighbridge.core.compilation import jit
from weighbridge.core.types import Array
from weighbridge.data.cutting import pad
from weighbridge.data.reservoir import Reservoir, Window
from weighbridge.estimators.batch_noise import values_at
from weighbridge.estimators.sgais.anchored_terms import Estimate
from weighbridge.estimators.sgais.anchoring import SUM_ROWS, in_blocks
from weighbridge.models.model import Model
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.span import SPAN_BLOCK, Span

# Rows times coordinates up to which a bridge is on all rows: a few seconds.
ALL_AT_ONCE = 1 << 20
# Batches err by more than their noise explains beyond this many of its deviations.
UNEXPLAINED = 4.0


def every_row(model: Model, rows: Reservoir | Window) -> Span | None:
    """The exact term of all rows seen; None if they are too many, or not all at hand."""
    count = rows.num_seen
    if not rows.is_complete or count * model.dimension > ALL_AT_ONCE:
        return None
    # A power of two, so that few programs are compiled for it.
    room = max(2 ** (count - 1).bit_length(), SPAN_BLOCK)
    return Span(Rows(*pad(*rows.gather(np.arange(count)), room)), 0, count)


def batch_error(
    model: Model, rows: Reservoir | Window, estimate: Estimate, probes: np.ndarray
) -> float:
    """What mini-batches may add to a log evidence, by their noise and by rows that none holds.

    Args:
        model: whose rows they are.
        rows: all rows seen, or a sample of them, of which nothing more can be known.
        estimate: the term on mini-batches.
        probes: positions to hold it against the exact one at.
    """
    # A noisy density is higher on average, by half of its variance.
    heat = 0.5 * sum(estimate.noise)
    if not rows.is_complete:
        return heat
    exact = np.zeros(len(probes))
    for values, weight in in_blocks(rows.gather, rows.num_seen):
        span = Span(Rows(*pad(values, weight, SUM_ROWS)), 0, len(weight))
        exact = exact + np.asarray(_span_values(model, span, probes))
    apart = values_at(model, estimate.groups, probes) - exact
    common = abs(float(np.mean(apart)))
    if common <= UNEXPLAINED * math.sqrt(sum(estimate.noise) / len(apart)):
        return heat
    return math.hypot(common, 0.5 * float(np.mean(apart**2)))


@jit
def _span_values(model: Model, span: Span, probes: Array) -> Array:
    found: Array = jax.vmap(lambda u: span(model, u, model.transform(u)[0]))(probes)
    return found
