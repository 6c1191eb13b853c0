"""Redis streams that are followed: restarts, passwords, streams trimmed or made anew."""

from __future__ import annotations

import functools
import random
import shutil
from pathlib import Path

from benchmarks.weather.folders import Follower
from benchmarks.weather.redis_server import Server
from benchmarks.weather.rows import Reading, Row, draw, judge
from benchmarks.weather.verdict import Came, Kind, Place, Verdict
from weighbridge import WeighbridgeError

SECRET = "correct-horse-battery"


class Stream:
    """A stream on a server of its own, its reader, and the ledger of all rows written to it."""

    def __init__(self, folder: Path, luck: random.Random) -> None:
        self.luck, self.server = luck, Server(folder)
        self.rows: list[Row] = []
        self.follower = Follower(self.server.url())
        self.next_id = 1000

    def write(self) -> None:
        rows = draw(self.luck, self.luck.randint(1, 30))
        self.server.add(rows, self.next_id)
        self.next_id += len(rows)
        self.rows += rows

    def restart(self) -> None:
        """The server is away while the stream is read."""
        self.server.stop()
        self._look()
        self.server.start()

    def password(self) -> None:
        """The password is another from now on, and the right one again later."""
        self.server.password = "" if self.server.password else SECRET
        self._restart_quietly()
        self._look()
        self.server.password = "" if self.server.password else SECRET
        self._restart_quietly()

    def made_anew(self) -> None:
        """The stream is removed, and its numbers begin again from below."""
        self.server.client.delete("rows")
        self.next_id = self.luck.randint(1, 900)

    def trimmed(self) -> None:
        """Entries are dropped that nobody has read."""
        self.write()
        self.server.client.xtrim("rows", maxlen=self.luck.randint(0, 5), approximate=False)

    def _restart_quietly(self) -> None:
        self.server.stop()
        self.server.start()

    def _look(self) -> None:
        if self.follower.stream is not None:
            self.follower.look()


def history(folder: Path, step: str, seed: int, *, kills: bool) -> tuple[Reading, list[Row]]:
    """One history of a stream, always the same for a seed, read with or without kills."""
    folder.mkdir()
    luck, when = random.Random(seed), random.Random(seed + 1)
    stream = Stream(folder, luck)
    try:
        for _ in range(2):
            stream.write()
            stream.follower.look()
            if kills and when.random() < 0.5:
                stream.follower.kill()
            getattr(stream, step)()
            stream.write()
            stream.follower.look()
            if kills and when.random() < 0.5:
                stream.follower.kill()
        return stream.follower.end(), stream.rows
    finally:
        stream.server.stop()


def attack_stream(step: str, place: Place) -> Verdict:
    """The history read without a kill, and again with some; the password is never told."""
    seed = place.luck.getrandbits(32)
    try:
        alone, written = history(place.folder / "alone", step, seed, kills=False)
        killed, _ = history(place.folder / "killed", step, seed, kills=True)
    except WeighbridgeError as error:
        return Verdict(Came.DIFFERENT if SECRET in str(error) else Came.STOPPED, str(error))
    if any(SECRET in text for text in alone.told + killed.told):
        return Verdict(Came.DIFFERENT, "a message tells the password")
    if not alone.told:
        return Verdict(Came.SILENT, "nothing was told")
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
    "restart": "the server restarted",
    "password": "the password changed, and changed back",
    "made_anew": "the stream made anew with lower numbers",
    "trimmed": "trimmed before it was read",
}
# Without a server there is nothing to attack.
KINDS = tuple(
    Kind("Redis", name, functools.partial(attack_stream, step), 3, seconds=180)
    for step, name in NAMES.items()
    if shutil.which("redis-server")
)
