"""Prepare the stage of a chunk: the anchor, and the mini-batches of the past and the chunk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weighbridge.core.random import Stream, random_numbers
from weighbridge.data.cutting import split
from weighbridge.data.reservoir import Reservoir, Window
from weighbridge.estimators.annealing.cloud import Cloud, centre, shares
from weighbridge.estimators.annealing.labels import Labels
from weighbridge.estimators.annealing.path import Path
from weighbridge.estimators.annealing.reweighting import StepInfo
from weighbridge.estimators.batch_noise import NUM_PROBES
from weighbridge.estimators.sgais.anchored_terms import Estimate, Terms
from weighbridge.estimators.sgais.anchoring import Anchor, set_anchor, sums_of_rows
from weighbridge.estimators.sgais.chunk_stage import ChunkRows, Stage
from weighbridge.models.model import Model
from weighbridge.models.targets.anchored import Anchored, Sums

# Up to this many rows all of them are used, without mini-batches.
EXACT_ROWS = 1024
# The anchor is set again when the number of rows has grown by this factor.
ANCHOR_GROWTH = 2.0
# Purposes of random numbers: batches of the past, the chunk and the bridge, and probes.
PAST, CHUNK, BRIDGE, PROBES, BRIDGE_PROBES = PURPOSES = range(5)
# The batches and probes of one chunk are drawn in turns: first; then around a new anchor, if the
# first batches were too noisy; and again whenever the particles have moved.
FIRST_TURN, SECOND_TURN, LATER_TURNS = range(3)
# Numbers of groups that are not islands begin here.
BEYOND_ISLANDS = 1 << 32


@dataclass(frozen=True)
class Preparation:
    """The state of a run before a chunk, from which the stage of the chunk is made.

    Attributes:
        model: the model of the rows.
        seed: of the run.
        first_island: number of the run's first island.
        num_chunks: chunks before this one.
        terms: makes the likelihood terms of the past and the chunk.
        rows: the rows before, or those of them that are kept.
        anchor: the latest anchor; None while all rows are used.
        batch_rows: rows of a batch to try first, by purpose.
        labelled: whether the particles have one labelling of exchangeable components.
    """

    model: Model
    seed: int
    first_island: int
    num_chunks: int
    terms: Terms
    rows: Reservoir | Window
    anchor: Anchor | None
    batch_rows: Mapping[int, int]
    labelled: bool

    def stage(self, cloud: Cloud, chunk_rows: ChunkRows) -> Stage:
        """The stage of a chunk, with batches that are large enough."""
        new, past = len(chunk_rows.weight), self.rows.num_represented
        exact = not past or (past + new <= EXACT_ROWS and self.anchor is None)
        labels = Labels(self.model, standing=self.labelled)
        # An anchor is valid for one labelling only.
        cloud = labels.follow(cloud, must=not exact)
        if exact:
            chunk = self.terms.without_anchor(*chunk_rows)
            path = Path(self.model, (self._before(chunk_rows),), chunk.term)
            return Stage(path, cloud, None, None, None, chunk, labels)
        probes = self.probes(cloud, PROBES, FIRST_TURN)
        anchor, before = self._estimated_past(cloud, probes)
        return self._around(anchor, before, cloud, labels, chunk_rows, probes, FIRST_TURN)

    def followed(self, stage: Stage, cloud: Cloud, chunk_rows: ChunkRows, step: StepInfo) -> Stage:
        """The stage after a step; its anchor is set again if the particles have left it.

        A chunk that contradicts the rows before moves the particles far away. There mini-batches
        around the old anchor are too noisy.
        """
        anchor, past = stage.anchor, stage.past
        if anchor is None or past is None:
            return stage
        turn = LATER_TURNS + stage.num_followed
        stage = stage._replace(num_followed=stage.num_followed + 1)
        probes = self.probes(cloud, PROBES, turn)
        now, past_left = self.terms.watch(past, probes, absolute=False)
        chunk_now, chunk_left = self.terms.watch(stage.chunk, probes, absolute=True)
        stage = stage.after(step, now.relative + past.floor.relative, sum(chunk_now))
        if float(step.power) == 1.0 or not (past_left or chunk_left):
            return stage
        anchor = set_anchor(self.model, centre(cloud), self.rows, self.anchor or anchor)
        past = self._past_at(anchor, probes, turn, all_rows=self.terms.all_rows)
        found = self._around(anchor, past, stage.cloud, stage.labels, chunk_rows, probes, turn)
        noise = (max(stage.noise[0], found.noise[0]), max(stage.noise[1], found.noise[1]))
        return found.faded(stage.fade)._replace(
            noise=noise, heat=stage.heat, num_followed=stage.num_followed
        )

    def of_all_rows(self, anchor: Anchor, cloud: Cloud, noise: float, turn: int) -> Estimate:
        """The term of all rows seen, around an anchor, with this noise or less if possible."""
        strict = replace(self.terms, noise=noise, all_rows=0)
        source = (self.rows.gather, self.rows.num_kept, self.rows.num_seen)
        return strict.estimated(
            self.generators(BRIDGE, turn),
            anchor.position,
            anchor.sums,
            source,
            self.probes(cloud, BRIDGE_PROBES, turn),
            self.batch_rows[PAST],
            absolute=True,
        )

    def probes(self, cloud: Cloud, purpose: int, turn: int) -> np.ndarray:
        """Positions of some particles, drawn by their weights."""
        share = shares(cloud)
        numbers = self.generators(purpose, turn)[0]
        chosen = numbers.choice(len(share), NUM_PROBES, p=share)
        return np.asarray(cloud.position).reshape(len(share), -1)[chosen]

    def generators(self, purpose: int, turn: int) -> list[np.random.Generator]:
        """Random numbers that choose the rows of batches, one generator for each group.

        A generator is named by seed, chunk, island, purpose and turn. If a batch was too noisy, or
        too far from the particles, the next one must have other rows. Groups beyond the islands,
        which only measure the noise, must not have the rows of islands of another round.
        """
        first, count = self.first_island, self.terms.num_groups
        beyond = range(self.terms.num_islands, count)
        groups = [*range(first, first + self.terms.num_islands)]
        groups += [BEYOND_ISLANDS + count * first + group for group in beyond]
        name = purpose + len(PURPOSES) * turn
        return [
            random_numbers(self.seed, Stream.BATCHES, group, name, self.num_chunks)
            for group in groups
        ]

    def _around(
        self,
        anchor: Anchor,
        past: Estimate,
        cloud: Cloud,
        labels: Labels,
        chunk_rows: ChunkRows,
        probes: np.ndarray,
        turn: int,
    ) -> Stage:
        """The stage from the past, estimated around an anchor, and the chunk around the same."""
        sums = sums_of_rows(self.model, anchor.position, *chunk_rows)
        new = len(chunk_rows.weight)
        if new <= EXACT_ROWS:
            source, generators = (chunk_rows.gather, new), self.generators(CHUNK, turn)
            chunk = self.terms.whole(generators, anchor.position, sums, source, probes)
        else:
            whole = (chunk_rows.gather, new, new)
            chunk = self._estimate(CHUNK, turn, (anchor.position, sums), whole, probes)
        path = Path(self.model, (past.term,), chunk.term)
        noise = (past.noise.relative + past.floor.relative, sum(chunk.noise))
        return Stage(path, cloud, anchor, sums, past, chunk, labels, noise=noise)

    def _estimated_past(self, cloud: Cloud, probes: np.ndarray) -> tuple[Anchor, Estimate]:
        """The anchor, moved to the particles' centre if needed, and the term of the past around it.

        It is moved when the number of rows has doubled, or when batches are too noisy otherwise.
        """
        anchor, rows, turn = self.anchor, self.rows, FIRST_TURN
        while True:
            fresh = anchor is None or rows.num_seen >= ANCHOR_GROWTH * anchor.num_rows
            if anchor is None or fresh:
                anchor = set_anchor(self.model, centre(cloud), rows, anchor)
            newest = fresh or anchor.num_rows == rows.num_seen
            # All rows are used only where no anchor helps: a new anchor is tried first.
            all_rows = self.terms.all_rows if newest else 0
            before = self._past_at(anchor, probes, turn, all_rows=all_rows)
            if newest or before.noise.relative <= self.terms.noise:
                return anchor, before
            anchor, turn = set_anchor(self.model, centre(cloud), rows, anchor), SECOND_TURN

    def _past_at(self, anchor: Anchor, probes: np.ndarray, turn: int, *, all_rows: int) -> Estimate:
        """The term of the past around an anchor; on up to ``all_rows`` rows if batches fail."""
        source = (self.rows.gather, self.rows.num_kept, self.rows.num_represented)
        terms = replace(self.terms, all_rows=all_rows)
        return self._estimate(PAST, turn, (anchor.position, anchor.sums), source, probes, terms)

    def _before(self, chunk_rows: ChunkRows) -> Anchored:
        """The exact term of all rows before; an empty term before the first chunk."""
        if self.rows.num_seen:
            return self.terms.exact(*self.rows.gather(np.arange(self.rows.num_kept)))
        return self.terms.exact(*next(split(tuple(chunk_rows), 1))).emptied()

    def _estimate(
        self,
        purpose: int,
        turn: int,
        around: tuple[np.ndarray, Sums],
        source: Any,
        probes: np.ndarray,
        terms: Terms | None = None,
    ) -> Estimate:
        return (terms or self.terms).estimated(
            self.generators(purpose, turn),
            *around,
            source,
            probes,
            self.batch_rows[purpose],
            absolute=purpose != PAST,
        )
