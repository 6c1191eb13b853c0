"""The anchor of a stream: where it is set, and the sums of all rows seen there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.linalg import hadamard

from weighbridge.core.compilation import jit_for_speed
from weighbridge.core.types import Array, PyTree
from weighbridge.data.cutting import pad, split
from weighbridge.data.reservoir import Reservoir, Window
from weighbridge.estimators.annealing.cloud import Cloud, shares
from weighbridge.estimators.batch_noise import LEAST_BATCHES
from weighbridge.models.model import Model
from weighbridge.models.targets.anchored import Sums, sums_at
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.span import Span

# Rows whose sums are made by one call, and within it by one block.
SUM_ROWS = 4096
SUM_BLOCK = 512
# Polynomials that tell how far the sums of an anchor may be off; a power of 2.
NUM_REPLICATES = 16

# A block of rows, and how often each counts.
RowBlock = tuple[PyTree, np.ndarray]
# Rows by their numbers, an array of any shape.
Gather = Callable[[np.ndarray], RowBlock]


class Anchor(NamedTuple):
    """A point near the posterior's centre, and the sums of all rows seen there.

    Attributes:
        position: unconstrained.
        sums: L, G and H.
        num_rows: rows seen when the anchor was set.
        errors: what the sums may be off by, where they are not exact but were carried over with the
            help of a reservoir: ``NUM_REPLICATES`` polynomials, whose mean square is the variance.
    """

    position: np.ndarray
    sums: Sums
    num_rows: int
    errors: Sums | None = None

    def std_error(self, positions: np.ndarray, share: np.ndarray) -> float:
        r"""Of the log of an integral over particles whose shares W add up to 1.

        The root of the mean square, over the errors E, of

        .. math:: \log \sum_i W_i e^{E(\theta_i)}
        """
        if self.errors is None:
            return 0.0
        used = share > 0
        offsets, log_share = positions[used] - self.position, np.log(share[used])
        value, gradient, curvature = self.errors
        height = np.asarray(value)[:, None] + np.asarray(gradient) @ offsets.T
        if curvature is not None:
            height += 0.5 * np.sum(offsets @ np.asarray(curvature) * offsets, axis=-1)
        added = np.logaddexp.reduce(height + log_share, axis=1)
        return math.sqrt(np.mean(np.square(added)))


def anchor_error(anchor: Anchor | None, cloud: Cloud) -> float:
    """What errors of an anchor's sums may add to the log evidence at the particles."""
    if anchor is None:
        return 0.0
    share = shares(cloud)
    return anchor.std_error(np.asarray(cloud.position).reshape(len(share), -1), share)


def sums_of(model: Model, position: np.ndarray, blocks: Iterator[RowBlock]) -> list[Sums]:
    """L, G and H of blocks of at most ``SUM_ROWS`` rows, one for each."""
    found = []
    for values, weight in blocks:
        rows = Rows(*pad(values, weight, SUM_ROWS))
        found.append(_block_sums(model, position, Span(rows, 0, len(weight))))
    return [jax.tree_util.tree_map(np.asarray, sums) for sums in found]


def sums_of_rows(model: Model, position: np.ndarray, values: PyTree, weight: np.ndarray) -> Sums:
    """L, G and H of any number of rows."""
    blocks = split((values, weight), SUM_ROWS)
    return total(model.dimension, sums_of(model, position, blocks))


def total(dimension: int, sums: list[Sums]) -> Sums:
    """All of them together."""
    result = Sums.zero(dimension)
    for part in sums:
        result = result.plus(part)
    return result


def in_blocks(gather: Gather, num_rows: int) -> Iterator[RowBlock]:
    """All rows, in at least as many blocks as a variance needs."""
    size = min(SUM_ROWS, -(-num_rows // LEAST_BATCHES))
    for start in range(0, num_rows, max(size, 1)):
        yield gather(np.arange(start, min(start + size, num_rows)))


def set_anchor(
    model: Model, position: np.ndarray, rows: Reservoir | Window, before: Anchor | None
) -> Anchor:
    r"""Move the anchor, with the sums of all rows seen.

    Exact where all rows are kept. Otherwise by Taylor terms and what the reservoir's R rows say of
    the rest, r_k:

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
    """Errors as large as the sum of the parts may have, by signs that differ.

    The parts are blocks of a reservoir. The next time the same rows are in the same blocks, and
    their errors add up. Balanced replication: McCarthy (1969), Review of the ISI 37:239-264.
    """
    # The last block may be short: it counts as one of the others, which errs on the safe side.
    signs = hadamard(NUM_REPLICATES)[:, np.arange(len(parts)) % NUM_REPLICATES]
    factor = scale * math.sqrt(len(parts) / max(len(parts) - 1, 1))

    def spread(*blocks: Array) -> np.ndarray:
        values = np.stack(blocks)
        return factor * np.tensordot(signs, values - values.mean(axis=0), 1)

    replicates: Sums = jax.tree_util.tree_map(spread, *parts)
    return replicates


@jit_for_speed
def _block_sums(model: Model, position: Array, span: Span) -> Sums:
    return sums_at(model, position, span, SUM_BLOCK)
