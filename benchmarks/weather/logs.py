"""Logs that are rotated while they are followed: renamed, copied and truncated, twice at once."""

from __future__ import annotations

import functools
import os
import random
import shutil
from pathlib import Path

from benchmarks.weather.folders import SIZE, Follower
from benchmarks.weather.rows import Reading, Row, draw, json_lines, judge
from benchmarks.weather.verdict import Came, Kind, Place, Verdict
from weighbridge import WeighbridgeError


class Log:
    """A log of JSON lines and the ledger of all rows that were ever written to it."""

    def __init__(self, path: Path, luck: random.Random) -> None:
        self.path, self.luck = path, luck
        self.rows: list[Row] = []
        path.write_text("")

    def write(self, least: int = 1, *, half: bool = False) -> None:
        """More lines at the end, the last of them in two pieces if it is asked for."""
        rows = draw(self.luck, self.luck.randint(least, 30))
        text = json_lines(rows)
        self.rows += rows
        cut = len(text) - 5 if half else len(text)
        for piece in filter(None, (text[:cut], text[cut:])):
            with open(self.path, "a") as file:
                file.write(piece)

    def rename(self) -> None:
        """As logrotate does by default: the old file has another name, a new one is begun."""
        for number in (2, 1):
            old = self.path.with_name(f"{self.path.name}.{number}")
            if old.exists():
                os.replace(old, self.path.with_name(f"{self.path.name}.{number + 1}"))
        os.replace(self.path, self.path.with_name(f"{self.path.name}.1"))
        self.path.write_text("")

    def copy_truncate(self) -> None:
        """As logrotate's copytruncate does: the same file, empty."""
        shutil.copy(self.path, self.path.with_name(f"{self.path.name}.1"))
        os.truncate(self.path, 0)

    def rename_twice(self) -> None:
        """Two rotations between two looks."""
        self.rename()
        self.write()
        self.rename()

    def gone(self) -> None:
        """Removed, and begun anew."""
        os.unlink(self.path)
        self.path.write_text("")


def history(path: Path, step: str, seed: int, *, kills: bool) -> tuple[Reading, list[Row]]:
    """One history of a log, always the same for a seed, read with or without kills.

    What is destroyed was read before; what is renamed need not be.
    """
    path.mkdir()
    luck, when = random.Random(seed), random.Random(seed + 1)
    log = Log(path / "rows.jsonl", luck)
    follower = Follower(log.path)
    log.write(SIZE)  # who is killed before the first chunk begins anew, at what is there then
    for number in range(4):
        log.write(half=luck.random() < 0.5)
        # Who has never looked does not know of the file before.
        if number == 0 or step in ("copy_truncate", "gone") or luck.random() < 0.5:
            follower.look()
        if kills and when.random() < 0.5:
            follower.kill()
        getattr(log, step)()
        log.write()
        follower.look()
        if kills and when.random() < 0.5:
            follower.kill()
    return follower.end(), log.rows


def attack_log(step: str, place: Place) -> Verdict:
    """The history read without a kill, and again with some."""
    seed = place.luck.getrandbits(32)
    try:
        alone, written = history(place.folder / "alone", step, seed, kills=False)
        killed, _ = history(place.folder / "killed", step, seed, kills=True)
    except WeighbridgeError as error:
        return Verdict(Came.STOPPED, str(error))
    if step == "rename" and alone.rows != written:
        missing = len(set(written) - set(alone.rows))
        return Verdict(Came.LOST, f"{missing} rows of a file that was renamed while it was read")
    for found in (alone, killed):
        verdict = judge(found, written)
        if verdict.came.is_fault:
            return verdict
    if alone.rows != killed.rows and not killed.told:
        return Verdict(
            Came.DIFFERENT, f"{len(alone.rows)} rows uninterrupted, {len(killed.rows)} resumed"
        )
    return verdict


NAMES = {
    "rename": "renamed, and a new one begun",
    "copy_truncate": "copied and truncated",
    "rename_twice": "renamed twice between two looks",
    "gone": "removed, and a new one begun",
}
KINDS = tuple(
    Kind("log", name, functools.partial(attack_log, step), 12) for step, name in NAMES.items()
)
