"""A week in minutes: three watches through all the weather, and three clean runs.

    python -m benchmarks.weather.week [--minutes 15] [--kills 20]

A folder, a log and a Redis stream are each watched by a process that is started again whenever it
ends. Files are appended to, rotated, replaced, truncated and malformed, the server is restarted,
the disk is full for a while, processes are killed at any time and within the writing of
checkpoints. In the end each watch must be, to the bit, the run on the rows that should count, which
are known from a ledger of what was written, not from what the watches say.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.report import RESULTS, table, write
from benchmarks.weather.clean import differences
from benchmarks.weather.disk import SmallDisk
from benchmarks.weather.scenes import BAD, FolderScene, LogScene, RedisScene, Scene
from benchmarks.weather.supervised import Supervised
from benchmarks.weather.week_worker import CHUNK


@dataclass
class Watch:
    """A source, and the process that watches it."""

    name: str
    scene: Scene
    process: Supervised
    faults: list[str] = field(default_factory=list)


class Week:
    """Three watches, and the weather that comes over them.

    Args:
        folder: where all of it is.
        seed: of the weather.
        kills: how many there are to be, at least.
    """

    def __init__(self, folder: Path, seed: int, kills: int) -> None:
        self.luck, self.kills = random.Random(seed), kills
        self.disk = SmallDisk(folder / "runs")
        self.full_for = 0
        self.times_full = 0
        scenes: dict[str, Scene] = {
            "folder": FolderScene(folder / "files", random.Random(seed + 1)),
            "log": LogScene(folder / "log", random.Random(seed + 2)),
            "Redis": RedisScene(folder / "redis", random.Random(seed + 3)),
        }
        self.watches = [
            Watch(
                name,
                scene,
                Supervised(scene.source, self.disk.path / name, folder / f"{name}.err", self.luck),
            )
            for name, scene in scenes.items()
        ]

    def run(self, seconds: float) -> None:
        """Weather until the time is over and all kills were made, then fair weather to the end."""
        for watch in self.watches:
            watch.scene.good(2 * CHUNK)
            watch.process.tend()
        # A watch without a checkpoint begins at the log as it is then: what was rotated is not its.
        for watch in self.watches:
            self._save_all(watch)
        end = time.monotonic() + seconds
        pause = seconds / max(1, self.kills)
        next_kill = time.monotonic() + pause
        while time.monotonic() < end or self.num_kills() < self.kills:
            watch = self.luck.choice(self.watches)
            self._step(watch)
            if time.monotonic() >= next_kill:
                self._kill(self.luck.choice(self.watches))
                next_kill = time.monotonic() + self.luck.uniform(0.5, 1.0) * pause
            self._disk()
            for one in self.watches:
                one.process.tend()
            time.sleep(self.luck.uniform(0.0, 0.5))
        self._fair_weather()

    def num_kills(self) -> int:
        """SIGKILLs so far, within checkpoints too."""
        return sum(watch.process.counts["killed"] for watch in self.watches)

    def _step(self, watch: Watch) -> None:
        scene = watch.scene
        # The others wait until all is saved, which ends a full disk.
        others = () if self.full_for else (*scene.UNWATCHED, *scene.SAVED)
        step = scene.rarest((*scene.ANY, *others))
        if step not in others:
            scene.come(step)
            return
        self._save_all(watch)
        if step in scene.UNWATCHED:
            # What is saved is read; what comes now, nobody has seen.
            watch.process.kill_quietly()
            scene.come(step)
        else:
            scene.come(step)
            scene.fill()
            self._save_all(watch)

    def _save_all(self, watch: Watch) -> None:
        """Wait until every row of the ledger is weighed and saved."""
        self._clear_disk()
        watch.scene.fill()
        watch.process.wait_until_saved(watch.scene.num_good(), self._tend_others)

    def _tend_others(self) -> None:
        for watch in self.watches:
            watch.process.tend()

    def _kill(self, watch: Watch) -> None:
        if self.luck.random() < 0.5:
            watch.process.kill()
        else:
            watch.process.kill_within_checkpoint()
            watch.scene.good(2 * CHUNK)  # so that there are checkpoints to be killed in

    def _disk(self) -> None:
        """The disk is full for some steps, now and then."""
        if self.full_for:
            self.full_for -= 1
            if not self.full_for:
                self._clear_disk()
        elif self.disk.is_small and self.luck.random() < 0.05:
            self.disk.fill()
            self.full_for, self.times_full = self.luck.randint(3, 8), self.times_full + 1

    def _clear_disk(self) -> None:
        self.disk.clear()
        self.full_for = 0

    def _fair_weather(self) -> None:
        for watch in self.watches:
            # A place in a log that was rotated since is known only to a watch that follows it.
            watch.scene.good(CHUNK)
            self._save_all(watch)
            watch.scene.good(CHUNK // 2)  # a last chunk that is not full
        for watch in self.watches:
            watch.process.stop()
            watch.process.finish()
            watch.faults += [name for name in watch.process.counts if name.startswith("FAULT")]
            watch.faults += differences(watch.process.directory, watch.scene.rows)

    def close(self) -> None:
        """End what is still running."""
        for watch in self.watches:
            watch.process.kill_quietly()
            watch.scene.close()
        self.disk.close()


def body(week: Week, seconds: float) -> str:
    """What came of it, as tables."""
    rows = []
    for watch in week.watches:
        counts, ledger = watch.process.counts, watch.scene.rows
        rows.append(
            (
                watch.name,
                f"{len(ledger):,}",
                f"{sum(row is BAD for row in ledger):,}",
                str(len(watch.scene.weather)),
                str(counts["started"]),
                str(counts["killed"]),
                str(counts["ended by a typed error"]),
                "; ".join(watch.faults) or "the same to the bit",
            )
        )
    header = ("watch", "rows read", "of them bad", "steps of weather", "started", "killed")
    header += ("ended by a typed error", "against the clean run")
    weather = []
    for watch in week.watches:
        scene, times = watch.scene, Counter(watch.scene.weather)
        kinds = dict.fromkeys((*scene.ANY, *scene.UNWATCHED, *scene.SAVED))
        named = ", ".join(f"{step.replace('_', ' ')} {times[step]}" for step in kinds)
        weather.append(f"- {watch.name}: {named}")
    disk = f"full {week.times_full} times" if week.disk.is_small else "never full (not root)"
    return (
        f"{seconds:.0f} seconds, {week.num_kills()} kills, the disk {disk}; chunks of {CHUNK} "
        "rows. Compared are log evidences, standard errors, samples and weights, the last numbers "
        f"of the event log, and the rows in quarantine.\n\n{table(header, rows)}\n\n"
        "How often each kind of weather came:\n\n" + "\n".join(weather)
    )


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    asked = parser().parse_args(arguments)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        week = Week(Path(place), asked.seed, asked.kills)
        try:
            week.run(60.0 * asked.minutes)
        finally:
            week.close()
    text = body(week, time.perf_counter() - began)
    write("week", "A week of rough weather", text, asked.output)
    return int(any(watch.faults for watch in week.watches))


if __name__ == "__main__":
    sys.exit(main())
