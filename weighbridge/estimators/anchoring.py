"""Anchored likelihood terms of a stream: their sums, their mini-batches, and their noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import hadamard

from weighbridge.anchor import Anchored, Guide, Sums, sums_at
from weighbridge.base import Array, PyTree
from weighbridge.data import pad
from weighbridge.model import Model
from weighbridge.numerics import jit, jit_for_speed
from weighbridge.reservoir import Reservoir, Window
from weighbridge.target import SPAN_BLOCK, Rows, Span

# Rows whose sums are made by one call, and within it by one block.
SUM_ROWS = 4096
SUM_BLOCK = 512
# Batches from whose differences the noise is measured, at least, and positions it is measured at.
LEAST_BATCHES = 8
NUM_PROBES = 32
# Polynomials that tell how far the sums of an anchor may be off; a power of 2.
NUM_REPLICATES = 16
# The first guess of a batch's size, and the smallest one.
FIRST_BATCH, SMALLEST_BATCH = 256, 64
# A batch is this much larger than the noise asks for: what follows is a little different.
MARGIN = 1.3
# A batch of so many of all rows is all of them.
NEARLY_ALL = 0.6
# Variance that a term of the log density may have by the rows that lead the moves. It enters
# nothing but the share of moves that are accepted, of which that of two terms takes a quarter.
GUIDE_NOISE = 0.1
# Variance beyond which mini-batches are of no use at all.
TOO_NOISY = 1.0
# Particles have left an anchor when noise is this many times what it was, or what is allowed.
LEFT = 2.0

# A block of rows, and how often each counts.
Block = tuple[PyTree, np.ndarray]
# Rows by their numbers, an array of any shape.
Gather = Callable[[np.ndarray], Block]


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


class Noise(NamedTuple):
    """Variance over mini-batches of an estimated log-likelihood, in squared nats.

    Attributes:
        relative: of the difference from the particles' centre, averaged over particles: what heats.
        common: of the centre itself: what shifts all particles alike.
    """

    relative: float
    common: float

    def that_matters(self, absolute: bool) -> float:
        """Of moves the relative part alone; of weights both."""
        return self.relative + (self.common if absolute else 0.0)

    def scaled(self, factor: float) -> Noise:
        """Both parts times a factor."""
        return Noise(self.relative * factor, self.common * factor)


NOISELESS = Noise(0.0, 0.0)


class Estimate(NamedTuple):
    """A term whose rest is estimated.

    Attributes:
        groups: what it is, on as many batches as it takes to measure their noise.
        term: what it is for the islands.
        noise: that it has by its mini-batches, each island by its own.
        wanted: rows of a batch that would bring that to what is allowed.
        floor: noise that no batch can undo and all islands share, where the rows to draw from are
            themselves a sample.
    """

    groups: Anchored
    term: Anchored
    noise: Noise
    wanted: int
    floor: Noise = NOISELESS


def sums_of(model: Model, position: np.ndarray, blocks: Iterator[Block]) -> list[Sums]:
    """L, G and H of blocks of at most ``SUM_ROWS`` rows, one for each."""
    found = []
    for values, weight in blocks:
        rows = Rows(*pad(values, weight, SUM_ROWS))
        found.append(_block_sums(model, position, Span(rows, 0, len(weight))))
    return [jax.tree_util.tree_map(np.asarray, sums) for sums in found]


def total(dimension: int, sums: list[Sums]) -> Sums:
    """All of them together."""
    result = Sums.zero(dimension)
    for part in sums:
        result = result.plus(part)
    return result


def in_blocks(gather: Gather, num_rows: int) -> Iterator[Block]:
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


@dataclass(frozen=True)
class Terms:
    """Makes the terms of one run: every island has its own mini-batches, of common size.

    Args:
        model: whose rows they are of.
        num_islands: islands that a term is for.
        num_batches: batches of a term: 1, or one for each step of a kernel that changes them.
        largest: the most rows of a batch.
        exact_rows: rows of which a term can always have all.
        noise: variance that a batch must not exceed.
        guided: whether moves follow a guide.
        all_rows: rows up to which all of them are taken where the largest batch is of no use.
    """

    model: Model
    num_islands: int
    num_batches: int
    largest: int
    exact_rows: int
    noise: float
    guided: bool = True
    all_rows: int = 0

    @property
    def most_rows(self) -> int:
        """Rows that a term can have room for."""
        return max(self.largest, self.exact_rows)

    @property
    def capacity(self) -> int:
        """Rows of all batches of an island, to whole blocks."""
        return -(-self.most_rows * self.num_batches // SPAN_BLOCK) * SPAN_BLOCK

    @property
    def num_groups(self) -> int:
        """Batches that are drawn: for the islands, and enough to measure their noise."""
        return max(self.num_islands, LEAST_BATCHES)

    def exact(self, values: PyTree, weight: np.ndarray) -> Anchored:
        """The term of some rows, all of which are in the batch."""
        zero = Sums.zero(self.model.dimension)
        shape = (self.num_islands, self.num_batches)
        none: Sums = jax.tree_util.tree_map(lambda leaf: np.zeros((*shape, *leaf.shape)), zero)
        again = np.tile(np.arange(len(weight)), self.num_batches)  # every batch is all of them
        repeated = jax.tree_util.tree_map(lambda leaf: leaf[again], values)
        rows = Rows(*pad(repeated, weight[again], self.capacity))
        everywhere: Rows = jax.tree_util.tree_map(
            lambda leaf: np.broadcast_to(leaf, (self.num_islands, *leaf.shape)), rows
        )
        leader = Guide(none, len(weight), 1.0, 0.0) if self.guided else None
        origin = np.zeros_like(zero.gradient)
        return Anchored(origin, zero, everywhere, none, len(weight), 1.0, leader=leader)

    def whole(
        self,
        generators: list[np.random.Generator],
        anchor: np.ndarray,
        sums: Sums,
        source: tuple[Gather, int],
        probes: np.ndarray,
    ) -> Estimate:
        """All of some rows, with a guide at an anchor."""
        gather, num_rows = source
        # Where a row is impossible at the anchor, or has no curvature there, no polynomial helps.
        known = all(np.all(np.isfinite(leaf)) for leaf in jax.tree_util.tree_leaves(sums))
        if not (self.guided and known):
            return self.without_anchor(*gather(np.arange(num_rows)))
        drawn = self._drawn(generators, anchor, sums, gather, num_rows, num_rows, num_rows)
        return self._estimate(drawn, probes, NOISELESS, num_rows)

    def without_anchor(self, values: PyTree, weight: np.ndarray) -> Estimate:
        """All of some rows."""
        term = self.exact(values, weight)
        return Estimate(term, term, NOISELESS, len(weight))

    def estimated(
        self,
        generators: list[np.random.Generator],
        anchor: np.ndarray,
        sums: Sums,
        source: tuple[Gather, int, int],
        probes: np.ndarray,
        size: int,
        *,
        absolute: bool,
    ) -> Estimate:
        """The term of many rows, on batches large enough for the noise allowed.

        Args:
            generators: of the rows' numbers, one for each group.
            anchor: the point that the sums are of.
            sums: over all rows.
            source: where rows are had from, how many there are, and of how many they are a sample.
            probes: positions to measure the noise at.
            size: rows of a batch to try first.
            absolute: whether the common part of the noise matters too, as it does in weights.
        """
        gather, num_kept, num_rows = source
        # Of a reservoir at most a half: what batches differ by tells what the whole of it would.
        most = min(self.largest, num_kept if num_kept == num_rows else max(num_kept // 2, 1))
        while True:
            size = min(size, most)
            if num_kept == num_rows <= self.most_rows and size >= NEARLY_ALL * num_rows:
                whole = self.whole(generators, anchor, sums, (gather, num_rows), probes)
                return whole._replace(wanted=size)
            term = self._drawn(generators, anchor, sums, gather, num_kept, size, num_rows)
            noise = self._measure(term, probes)
            matters = noise.that_matters(absolute)
            wanted = wanted_rows(size, matters, num_kept, self.noise)
            if num_kept == num_rows <= self.all_rows and size == most and not matters <= TOO_NOISY:
                roomy, everything = self._roomy(num_rows), (gather, num_rows)
                whole = roomy.whole(generators, anchor, sums, everything, probes)
                return whole._replace(wanted=size)
            if matters <= self.noise or size == most:
                floor = _floor(noise, size, num_kept, num_rows)
                return self._estimate(term, probes, noise, wanted, floor)
            size = max(wanted, size + SPAN_BLOCK)

    def _roomy(self, num_rows: int) -> Terms:
        """With room for so many rows; a power of two, so that few programs are compiled for it."""
        return replace(self, largest=2 ** (num_rows - 1).bit_length())

    def watch(
        self, estimate: Estimate, probes: np.ndarray, *, absolute: bool
    ) -> tuple[Noise, bool]:
        """The noise of an estimate where particles are now, and whether it serves them no more."""
        groups, before = estimate.groups, estimate.noise
        led = groups.leader is not None and int(groups.leader.size) < int(groups.size)
        left = led and not self._measure(groups.guide(), probes).relative <= LEFT * GUIDE_NOISE
        if before is NOISELESS:
            return NOISELESS, left
        now = self._measure(groups, probes)
        allowed = LEFT * max(self.noise, before.that_matters(absolute))
        return now, left or not now.that_matters(absolute) <= allowed

    def _estimate(
        self,
        groups: Anchored,
        probes: np.ndarray,
        noise: Noise,
        wanted: int,
        floor: Noise = NOISELESS,
    ) -> Estimate:
        """With a guide, and for the islands that there are."""
        if self.guided:
            groups = self._guided(groups, probes)

        def few(leaves: Any) -> Any:
            return jax.tree_util.tree_map(lambda leaf: leaf[: self.num_islands], leaves)

        leader = groups.leader and groups.leader._replace(sums=few(groups.leader.sums))
        rows, sums = few(groups.rows), few(groups.batch_sums)
        term = replace(groups, rows=rows, batch_sums=sums, leader=leader)
        return Estimate(groups, term, noise, wanted, floor)

    def _guided(self, term: Anchored, probes: np.ndarray) -> Anchored:
        """The term, with as many rows in the lead as its moves need."""
        batch, size = int(term.size), SMALLEST_BATCH
        num_rows = batch * float(term.scale)
        while size < NEARLY_ALL * batch:
            own = _batch_sums(self.model, term.anchor, term.rows, size, 1)
            leader = Guide(own, size, num_rows / size, 0.0)
            noises, _ = self._noises(replace(term, leader=leader).guide(), probes)
            noise = float(np.mean(noises))
            if not math.isfinite(noise):
                break
            if noise <= GUIDE_NOISE:
                # A few particles far away have most of the noise; what is typical is accepted.
                return replace(term, leader=leader._replace(noise=float(np.median(noises))))
            wanted = wanted_rows(size, noise, batch, GUIDE_NOISE)
            size = max(wanted, size + SPAN_BLOCK)
        return replace(term, leader=Guide(term.batch_sums, batch, term.scale, 0.0))

    def _drawn(
        self,
        generators: list[np.random.Generator],
        anchor: np.ndarray,
        sums: Sums,
        gather: Gather,
        num_kept: int,
        size: int,
        num_rows: int,
    ) -> Anchored:
        """The term on fresh batches, with one for each group; no row is twice in a batch."""
        chosen = np.zeros((self.num_groups, self.capacity), int)
        for row, generator in zip(chosen, generators):
            for batch in np.split(row[: size * self.num_batches], self.num_batches):
                batch[:] = generator.choice(num_kept, size, replace=False)
        rows = Rows(*gather(chosen))
        own = _batch_sums(self.model, anchor, rows, size, self.num_batches)
        return Anchored(anchor, sums, rows, own, size, num_rows / size)

    def _measure(self, term: Anchored, probes: np.ndarray) -> Noise:
        relative, common = self._noises(term, probes)
        return Noise(float(np.mean(relative)), common)

    def _noises(self, term: Anchored, probes: np.ndarray) -> tuple[np.ndarray, float]:
        """Relative noise at every probe, and the common one."""
        values = np.asarray(_values(self.model, replace(term, leader=None), probes))
        freedom = len(values) - 1
        with np.errstate(invalid="ignore"):  # where rows are impossible, noise is not a number
            apart = values - values.mean(axis=0)
            centre = apart.mean(axis=1, keepdims=True)
            relative = np.sum((apart - centre) ** 2, axis=0) / freedom
        return relative, float(np.sum(centre**2)) / freedom


def wanted_rows(size: int, variance: float, num_kept: int, allowed: float) -> int:
    """Rows of a batch that would have the variance allowed: it goes as 1/B - 1/N."""
    if size >= num_kept or not variance > 0:
        return SMALLEST_BATCH
    for_one = variance / (1 / size - 1 / num_kept)
    rows = MARGIN / (allowed / min(for_one, 1e300) + 1 / num_kept)
    return max(math.ceil(rows / SPAN_BLOCK) * SPAN_BLOCK, SMALLEST_BATCH)


def _floor(noise: Noise, size: int, num_kept: int, num_rows: int) -> Noise:
    """The noise of all rows that are kept, from that of a batch: it goes as 1/B - 1/N."""
    if num_kept == num_rows:
        return NOISELESS
    if size == num_kept:  # one row alone: nothing is known of the others
        return Noise(math.inf, math.inf)
    return noise.scaled((1 / num_kept - 1 / num_rows) / (1 / size - 1 / num_kept))


@jit_for_speed
def _block_sums(model: Model, position: Array, span: Span) -> Sums:
    return sums_at(model, position, span, SUM_BLOCK)


@partial(jit_for_speed, static_argnums=4)
def _batch_sums(model: Model, position: Array, rows: Rows, size: Array, num_batches: int) -> Sums:
    def of_group(rows: Rows) -> Sums:
        def of_batch(batch: Array) -> Sums:
            return sums_at(model, position, Span(rows, batch * size, (batch + 1) * size))

        found: Sums = jax.lax.map(of_batch, jnp.arange(num_batches))
        return found

    found: Sums = jax.vmap(of_group)(rows)
    return found


@jit
def _values(model: Model, term: Anchored, probes: Array) -> Array:
    def of_group(term: Anchored) -> Array:
        return jax.vmap(lambda u: term(model, u, model.transform(u)[0]))(probes)

    found: Array = jax.vmap(of_group, in_axes=(term.axes,))(term)
    return found
