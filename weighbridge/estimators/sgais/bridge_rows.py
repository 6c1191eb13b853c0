"""The rows of a bridge of SGAIS: all rows, or mini-batches that are checked against all rows.

The differences between mini-batches show their noise, unless a few rows cause most of it. If
features have heavy tails, it can happen that no batch holds the one row that matters. All batches
then have the same error.
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

# Up to this many rows times coordinates a bridge uses all rows, which takes a few seconds.
ALL_AT_ONCE = 1 << 20
# The noise of batches does not explain a common error of more than this many deviations.
UNEXPLAINED = 4.0


def every_row(model: Model, rows: Reservoir | Window) -> Span | None:
    """The exact term of all rows seen; None if they are too many, or not all kept."""
    count = rows.num_seen
    if not rows.is_complete or count * model.dimension > ALL_AT_ONCE:
        return None
    # A power of two, so that few programs are compiled.
    room = max(2 ** (count - 1).bit_length(), SPAN_BLOCK)
    return Span(Rows(*pad(*rows.gather(np.arange(count)), room)), 0, count)


def batch_error(
    model: Model, rows: Reservoir | Window, estimate: Estimate, probes: np.ndarray
) -> float:
    """Error of a log evidence due to mini-batches: their noise, and rows that no batch holds.

    Args:
        model: the model of the rows.
        rows: all rows seen, or a sample of them; with a sample only the noise is known.
        estimate: the term on mini-batches.
        probes: positions at which it is compared with the exact term.
    """
    # Noise of variance v in a log density raises the mean density by a factor of exp(v / 2).
    noise_bias = 0.5 * sum(estimate.noise)
    if not rows.is_complete:
        return noise_bias
    exact = np.zeros(len(probes))
    for values, weight in in_blocks(rows.gather, rows.num_seen):
        span = Span(Rows(*pad(values, weight, SUM_ROWS)), 0, len(weight))
        exact = exact + np.asarray(_span_values(model, span, probes))
    apart = values_at(model, estimate.groups, probes) - exact
    common = abs(float(np.mean(apart)))
    if common <= UNEXPLAINED * math.sqrt(sum(estimate.noise) / len(apart)):
        return noise_bias
    return math.hypot(common, 0.5 * float(np.mean(apart**2)))


@jit
def _span_values(model: Model, span: Span, probes: Array) -> Array:
    found: Array = jax.vmap(lambda u: span(model, u, model.transform(u)[0]))(probes)
    return found
