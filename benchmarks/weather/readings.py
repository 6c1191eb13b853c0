"""A source read through rough weather without a model: seconds, where the week takes minutes.

A reading is ended at any place and goes on from the cursor that was saved last, as a watch that is
killed does. What it has read must be the ledger of the scene, row for row.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable

import numpy as np

from benchmarks.weather.scenes import BAD, Scene
from benchmarks.weather.week_worker import CHUNK
from weighbridge.data.feeds.base import Feed
from weighbridge.data.feeds.chunking import chunks
from weighbridge.data.feeds.continuity import Continuity

# Seconds without a row after which rows are taken to be lost.
PATIENCE = 30.0


class Reading:
    """Rows of a feed, chunk by chunk, with what a checkpoint would hold.

    Args:
        opened: gives the feed, as a process that starts opens it.
        luck: for which chunks are saved.

    Attributes:
        rows: all that were read; BAD for one that cannot be used.
    """

    def __init__(self, opened: Callable[[], Feed], luck: random.Random) -> None:
        self._opened, self._luck = opened, luck
        self._saved = json.dumps([[], None, None])
        self.begin()

    def begin(self) -> None:
        """Go on from what was saved; whatever was read since is gone."""
        rows, cursor, seen = json.loads(self._saved)
        self.rows: list[float | None] = rows
        continuity = Continuity()
        if seen is not None:
            continuity.restore(seen)
        self._chunks = chunks(self._opened(), CHUNK, cursor, continuity)

    def look(self) -> None:
        """Read a chunk, if one is there; most are saved."""
        chunk = next(self._chunks)
        if chunk is None:
            return
        values = np.asarray(chunk.values["y"], float).tolist()
        unread = {row for row, _ in chunk.unread}
        bad = [row in unread or not np.isfinite(value) for row, value in enumerate(values)]
        self.rows += [BAD if wrong else value for wrong, value in zip(bad, values)]
        if self._luck.random() < 0.7:
            self._saved = json.dumps([self.rows, chunk.cursor, self._chunks.continuity_state])

    def read_all(self, scene: Scene) -> None:
        """Read until all of the ledger's full chunks are read and saved."""
        scene.fill()
        while len(json.loads(self._saved)[0]) < len(scene.rows):
            end = time.monotonic() + PATIENCE
            before = len(self.rows)
            while len(self.rows) == before and before < len(scene.rows):
                self.look()
                if time.monotonic() > end:
                    raise RuntimeError(f"{before} of {len(scene.rows)} rows, and no more come")
            if len(self.rows) >= len(scene.rows) > len(json.loads(self._saved)[0]):
                self.begin()  # the last chunk was not saved


def rough_reading(
    scene: Scene, opened: Callable[[], Feed], luck: random.Random, steps: int
) -> list[float | None]:
    """The rows that were read in so many steps of weather; the ledger is the scene's."""
    scene.good(2 * CHUNK)
    reading = Reading(opened, luck)
    # A reading without a place begins at the log as it is then: what was rotated is not its.
    reading.read_all(scene)
    for _ in range(steps):
        step = scene.rarest((*scene.ANY, *scene.UNWATCHED, *scene.SAVED))
        if step not in scene.ANY:
            reading.read_all(scene)
        scene.come(step)
        if step in scene.UNWATCHED:
            reading.begin()
        elif step in scene.SAVED:
            reading.read_all(scene)
        if luck.random() < 0.3:
            reading.begin()
        for _ in range(luck.choice([0, 1, 3, 10, 40])):
            reading.look()
    reading.read_all(scene)
    return reading.rows
