"""The anchor of a stream: a position, and the sums over all rows seen, taken there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.linalg import hadamard

from weighbridge.core.compilation import EitherProgram
from weighbridge.core.pytrees import count_numbers
from weighbridge.core.types import Array, PyTree
from weighbridge.data.cutting import pad, split
from weighbridge.data.reservoir import Reservoir, Window
from weighbridge.estimators.annealing.cloud import Cloud, shares
from weighbridge.estimators.batch_noise import LEAST_BATCHES
from weighbridge.models.model import Model
from weighbridge.models.targets.anchored import Sums, sums_at
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.span import Span

# Rows that are summed by one call of the program, and by one block within it.
SUM_ROWS = 4096
SUM_BLOCK = 512
# Polynomials that represent the error of an anchor's sums; a power of 2.
NUM_REPLICATES = 16

# A block of rows, and how often each counts.
RowBlock = tuple[PyTree, np.ndarray]
# A function that returns rows by their indices, an array of any shape.
Gather = Callable[[np.ndarray], RowBlock]


class Anchor(NamedTuple):
    """A point near the posterior's centre, and the sums over all rows seen, taken there.

    Attributes:
        position: unconstrained.
        sums: L, G and H.
        num_rows: rows seen when the anchor was set.
        errors: the error of the sums, as ``NUM_REPLICATES`` polynomials whose mean square is its
            variance; None if the sums are exact, and not moved here with the rows of a reservoir.
    """

    position: np.ndarray
    sums: Sums
    num_rows: int
    errors: Sums | None = None

    def std_error(self, positions: np.ndarray, share: np.ndarray) -> float:
        r"""Standard error of a log integral over particles, due to the error of the sums.

        The shares W of the particles add up to 1. The standard error is the root mean square, over
        the error polynomials E, of

        .. math:: \log \sum_i W_i e^{E(\theta_i)}
        """
        if self.errors is None:
            return 0.0
        used = share > 0
        offsets, log_share = positions[used] - self.position, np.log(share[used])
        value, gradient, curvature = self.errors
        error = np.asarray(value)[:, None] + np.asarray(gradient) @ offsets.T
        if curvature is not None:
            error += 0.5 * np.sum(offsets @ np.asarray(curvature) * offsets, axis=-1)
        added = np.logaddexp.reduce(error + log_share, axis=1)
        return math.sqrt(np.mean(np.square(added)))


def anchor_error(anchor: Anchor | None, cloud: Cloud) -> float:
    """What errors of an anchor's sums may add to the log evidence at the particles."""
    if anchor is None:
        return 0.0
    share = shares(cloud)
    return anchor.std_error(np.asarray(cloud.position).reshape(len(share), -1), share)


def sums_of(model: Model, position: np.ndarray, blocks: Iterator[RowBlock]) -> list[Sums]:
    """L, G and H of each block of at most ``SUM_ROWS`` rows."""
    found = []
    for values, weight in blocks:
        span = Span(Rows(*pad(values, weight, SUM_ROWS)), 0, len(weight))
        found.append(BLOCK_SUMS.for_numbers(count_numbers(span.rows))(model, position, span))
    return [jax.tree_util.tree_map(np.asarray, sums) for sums in found]


def sums_of_rows(model: Model, position: np.ndarray, values: PyTree, weight: np.ndarray) -> Sums:
    """L, G and H of any number of rows."""
    blocks = split((values, weight), SUM_ROWS)
    return total(model.dimension, sums_of(model, position, blocks))


def total(dimension: int, sums: list[Sums]) -> Sums:
    """Add up sums."""
    result = Sums.zero(dimension)
    for part in sums:
        result = result.plus(part)
    return result


def in_blocks(gather: Gather, num_rows: int) -> Iterator[RowBlock]:
    """All rows, in several blocks, about ``LEAST_BATCHES`` or more to estimate a variance."""
    size = min(SUM_ROWS, -(-num_rows // LEAST_BATCHES))
    for start in range(0, num_rows, max(size, 1)):
        yield gather(np.arange(start, min(start + size, num_rows)))


def set_anchor(
    model: Model, position: np.ndarray, rows: Reservoir | Window, before: Anchor | None
) -> Anchor:
    r"""Move the anchor, with the sums of all rows seen.

    The new sums are exact if all rows are kept. Otherwise the old sums are moved as polynomials
    (Taylor terms), and the remainder r_k is estimated from the R rows of the reservoir:

    .. math:: L' = L + G \cdot d + \tfrac12 d^\top H d + \frac{n}{R} \sum_{k \in R} r_k

    and likewise for the derivatives.
    """
    there = sums_of(model, position, in_blocks(rows.gather, rows.num_kept))
    if rows.is_complete:
        return Anchor(position, total(model.dimension, there), rows.num_seen)
    assert before is not None, "the first anchor is set while all rows are kept"
    offset: Any = position - before.position
    here = sums_of(model, before.position, in_blocks(rows.gather, rows.num_kept))
    rest = [new.plus(old.moved(offset), -1.0) for new, old in zip(there, here)]
    scale = rows.num_seen / rows.num_kept
    sums = before.sums.moved(offset).plus(total(model.dimension, rest), scale)
    errors = _replicates(rest, scale * math.sqrt(1 - rows.num_kept / rows.num_seen))
    if before.errors is not None:
        errors = jax.vmap(lambda error: error.moved(offset))(before.errors).plus(errors)
    return Anchor(position, sums, rows.num_seen, jax.tree_util.tree_map(np.asarray, errors))


def _replicates(parts: list[Sums], scale: float) -> Sums:
    """Replicates of the error of a sum of parts: the parts' deviations, with balanced signs.

    The parts are sums over blocks of a reservoir. At the next move of the anchor the same rows are
    in the same blocks, so that their errors add up. Balanced replication: McCarthy (1969), Review
    of the ISI 37:239-264.
    """
    # The last block may be shorter. It is treated like the others, which overstates the error.
    signs = hadamard(NUM_REPLICATES)[:, np.arange(len(parts)) % NUM_REPLICATES]
    factor = scale * math.sqrt(len(parts) / max(len(parts) - 1, 1))

    def spread(*blocks: Array) -> np.ndarray:
        values = np.stack(blocks)
        return factor * np.tensordot(signs, values - values.mean(axis=0), 1)

    replicates: Sums = jax.tree_util.tree_map(spread, *parts)
    return replicates


def _block_sums(model: Model, position: Array, span: Span) -> Sums:
    return sums_at(model, position, span, SUM_BLOCK)


# Rows of a few columns are summed so quickly that a fast program is not worth its compilation.
BLOCK_SUMS = EitherProgram(_block_sums)
