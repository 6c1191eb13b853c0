"""Likelihood terms around an anchor, on mini-batches as large as their noise requires."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.core.compilation import EitherProgram
from weighbridge.core.pytrees import count_numbers
from weighbridge.core.thresholds import MAX_BATCH_NOISE
from weighbridge.core.types import Array, PyTree
from weighbridge.data.cutting import pad
from weighbridge.estimators.batch_noise import (
    GUIDE_NOISE,
    LEAST_BATCHES,
    NEARLY_ALL,
    NOISELESS,
    SMALLEST_BATCH,
    Noise,
    floor_of,
    measured,
    noises_at,
    wanted_rows,
)
from weighbridge.estimators.sgais.anchoring import Gather
from weighbridge.models.model import Model
from weighbridge.models.targets.anchored import Anchored, GuideRows, Sums, sums_at
from weighbridge.models.targets.rows import Rows
from weighbridge.models.targets.span import SPAN_BLOCK, Span

# Particles have left an anchor if the noise exceeds this multiple of the noise before and of the
# allowed noise.
LEFT = 2.0


class Estimate(NamedTuple):
    """A likelihood term on mini-batches, and its noise.

    Attributes:
        groups: the term on one batch for each group; there are enough groups to measure the noise.
        term: the term on the batches of the islands, which are the first groups.
        noise: noise due to the mini-batches, independent between islands.
        wanted: rows of a batch that would reduce the noise to the allowed variance.
        floor: noise that all islands share and that larger batches do not reduce; there is such
            noise if the batches are drawn from a sample of all rows.
    """

    groups: Anchored
    term: Anchored
    noise: Noise
    wanted: int
    floor: Noise = NOISELESS


@dataclass(frozen=True)
class Terms:
    """Makes the terms of one run: every island has its own mini-batches, all of the same size.

    Args:
        model: the model of the rows.
        num_islands: islands of the run.
        num_batches: batches of an island: 1, or one for each step of a kernel that changes them.
        largest: the most rows of a batch.
        exact_rows: up to this many rows a term can always hold all of them.
        noise: allowed variance of the log density over batches.
        guided: whether moves follow a guide.
        all_rows: up to this many rows all of them are used if even the largest batch is useless.
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
        """The most rows that a batch has room for."""
        return max(self.largest, self.exact_rows)

    @property
    def capacity(self) -> int:
        """Rows of all batches of an island, rounded up to whole blocks."""
        return -(-self.most_rows * self.num_batches // SPAN_BLOCK) * SPAN_BLOCK

    @property
    def num_groups(self) -> int:
        """Groups for which batches are drawn: the islands, and enough to measure the noise."""
        return max(self.num_islands, LEAST_BATCHES)

    def exact(self, values: PyTree, weight: np.ndarray) -> Anchored:
        """The exact term of some rows: every batch holds all of them."""
        zero = Sums.zero(self.model.dimension)
        shape = (self.num_islands, self.num_batches)
        none: Sums = jax.tree_util.tree_map(lambda leaf: np.zeros((*shape, *leaf.shape)), zero)
        again = np.tile(np.arange(len(weight)), self.num_batches)  # all rows in every batch
        repeated = jax.tree_util.tree_map(lambda leaf: leaf[again], values)
        rows = Rows(*pad(repeated, weight[again], self.capacity))
        everywhere: Rows = jax.tree_util.tree_map(
            lambda leaf: np.broadcast_to(leaf, (self.num_islands, *leaf.shape)), rows
        )
        guide_rows = GuideRows(none, len(weight), 1.0, 0.0) if self.guided else None
        origin = np.zeros_like(zero.gradient)
        return Anchored(origin, zero, everywhere, none, len(weight), 1.0, guide_rows=guide_rows)

    def whole(
        self,
        generators: list[np.random.Generator],
        anchor: np.ndarray,
        sums: Sums,
        source: tuple[Gather, int],
        probes: np.ndarray,
    ) -> Estimate:
        """The exact term of all rows, with a guide around an anchor."""
        gather, num_rows = source
        # If a row is impossible at the anchor, or has no derivatives there, the sums are useless.
        known = all(np.all(np.isfinite(leaf)) for leaf in jax.tree_util.tree_leaves(sums))
        if not (self.guided and known):
            return self.without_anchor(*gather(np.arange(num_rows)))
        drawn = self._drawn(generators, anchor, sums, gather, num_rows, num_rows, num_rows)
        return self._estimate(drawn, probes, NOISELESS, num_rows)

    def without_anchor(self, values: PyTree, weight: np.ndarray) -> Estimate:
        """The exact term of all rows, without a guide around an anchor."""
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
        """The term of many rows, on batches large enough for the allowed noise.

        Args:
            generators: random numbers that choose the rows, one generator for each group.
            anchor: the position at which the sums are taken.
            sums: L, G and H over all rows.
            source: a function that gathers rows, the number of rows that it can gather, and the
                number of rows of which these are a sample.
            probes: positions at which the noise is measured.
            size: rows of a batch to try first.
            absolute: whether the common part of the noise matters too, as it does in weights.
        """
        gather, num_kept, num_rows = source
        # At most half of a reservoir: from the noise of such batches that of all of it is derived.
        most = min(self.largest, num_kept if num_kept == num_rows else max(num_kept // 2, 1))
        while True:
            size = min(size, most)
            if num_kept == num_rows <= self.most_rows and size >= NEARLY_ALL * num_rows:
                whole = self.whole(generators, anchor, sums, (gather, num_rows), probes)
                return whole._replace(wanted=size)
            term = self._drawn(generators, anchor, sums, gather, num_kept, size, num_rows)
            noise = measured(self.model, term, probes)
            relevant = noise.that_matters(absolute)
            wanted = wanted_rows(size, relevant, num_kept, self.noise)
            useless = size == most and not relevant <= MAX_BATCH_NOISE
            if num_kept == num_rows <= self.all_rows and useless:
                larger, everything = self._with_room_for(num_rows), (gather, num_rows)
                whole = larger.whole(generators, anchor, sums, everything, probes)
                return whole._replace(wanted=size)
            if relevant <= self.noise or size == most:
                floor = floor_of(noise, size, num_kept, num_rows)
                return self._estimate(term, probes, noise, wanted, floor)
            size = max(wanted, size + SPAN_BLOCK)

    def _with_room_for(self, num_rows: int) -> Terms:
        """Terms with room for this many rows: a power of two, so that few programs are compiled."""
        return replace(self, largest=2 ** (num_rows - 1).bit_length())

    def watch(
        self, estimate: Estimate, probes: np.ndarray, *, absolute: bool
    ) -> tuple[Noise, bool]:
        """The noise of an estimate at the particles, and whether they have left its anchor."""
        groups, before = estimate.groups, estimate.noise
        has_guide = groups.guide_rows is not None and int(groups.guide_rows.size) < int(groups.size)
        left = False
        if has_guide:
            left = not measured(self.model, groups.guide(), probes).relative <= LEFT * GUIDE_NOISE
        if before is NOISELESS:
            return NOISELESS, left
        now = measured(self.model, groups, probes)
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
        """The estimate with a guide; its ``term`` has the batches of the islands only."""
        if self.guided:
            groups = self._guided(groups, probes)

        def few(leaves: Any) -> Any:
            return jax.tree_util.tree_map(lambda leaf: leaf[: self.num_islands], leaves)

        guide_rows = groups.guide_rows and groups.guide_rows._replace(
            sums=few(groups.guide_rows.sums)
        )
        rows, sums = few(groups.rows), few(groups.batch_sums)
        term = replace(groups, rows=rows, batch_sums=sums, guide_rows=guide_rows)
        return Estimate(groups, term, noise, wanted, floor)

    def _guided(self, term: Anchored, probes: np.ndarray) -> Anchored:
        """The term, guided by as many rows as its moves need."""
        batch, size = int(term.size), SMALLEST_BATCH
        num_rows = batch * float(term.scale)
        while size < NEARLY_ALL * batch:
            own = _sums_of_groups(self.model, term.anchor, term.rows, size, 1)
            guide_rows = GuideRows(own, size, num_rows / size, 0.0)
            noises, _ = noises_at(self.model, replace(term, guide_rows=guide_rows).guide(), probes)
            noise = float(np.mean(noises))
            if not math.isfinite(noise):
                break
            if noise <= GUIDE_NOISE:
                # A few particles far away have most of the noise; the median is the typical noise.
                return replace(term, guide_rows=guide_rows._replace(noise=float(np.median(noises))))
            wanted = wanted_rows(size, noise, batch, GUIDE_NOISE)
            size = max(wanted, size + SPAN_BLOCK)
        return replace(term, guide_rows=GuideRows(term.batch_sums, batch, term.scale, 0.0))

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
        """The term on new batches for every group; no row is twice in a batch."""
        chosen = np.zeros((self.num_groups, self.capacity), int)
        for row, generator in zip(chosen, generators):
            for batch in np.split(row[: size * self.num_batches], self.num_batches):
                batch[:] = generator.choice(num_kept, size, replace=False)
        rows = Rows(*gather(chosen))
        own = _sums_of_groups(self.model, anchor, rows, size, self.num_batches)
        return Anchored(anchor, sums, rows, own, size, num_rows / size)


def _sums_of_groups(
    model: Model, position: Array | np.ndarray, rows: Rows, size: int, num_batches: int
) -> Sums:
    """L, G and H of every batch of every group."""
    of_a_group = count_numbers(rows) // len(rows.weight)
    return BATCH_SUMS.for_numbers(of_a_group)(model, position, rows, size, num_batches)


def _batch_sums(model: Model, position: Array, rows: Rows, size: Array, num_batches: int) -> Sums:
    def of_group(rows: Rows) -> Sums:
        def of_batch(batch: Array) -> Sums:
            return sums_at(model, position, Span(rows, batch * size, (batch + 1) * size))

        found: Sums = jax.lax.map(of_batch, jnp.arange(num_batches))
        return found

    found: Sums = jax.vmap(of_group)(rows)
    return found


BATCH_SUMS = EitherProgram(_batch_sums, static_argnums=4)
