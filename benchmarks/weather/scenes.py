"""The three sources of the week, each with the ledger of the rows that should count.

Weather that destroys rows comes only when all rows so far are weighed and saved, or while nobody
watches: then it is known which rows were read, without asking the watch. A row that is bad keeps
its place within its chunk, and does not count; a file that cannot be read has no place.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.weather.redis_server import Server
from benchmarks.weather.week_worker import CHUNK

NAME = "y"
# Rows that are appended to an earlier file go to one of the last so many: a watch knows 64.
APPENDED_TO = 20
# What stands in the place of a bad row.
BAD = None


class Scene:
    """A source that weather comes over.

    Attributes:
        source: what the watch is told.
        rows: the ledger: every row that should be read, in order; BAD for one that cannot be used.
        weather: what has come over it, in words.
    """

    # Steps at any time; while nobody watches; when all is saved.
    ANY: tuple[str, ...] = ()
    UNWATCHED: tuple[str, ...] = ()
    SAVED: tuple[str, ...] = ()
    source: str

    def __init__(self, luck: random.Random) -> None:
        self.luck = luck
        self.rows: list[float | None] = []
        self.weather: list[str] = []

    def draw(self, number: int) -> list[float]:
        """New rows, which nobody has in the ledger yet."""
        return [self.luck.gauss(1.0, 1.0) for _ in range(number)]

    def good(self, number: int) -> None:
        """More good rows, in the usual way; in the ledger."""
        rows = self.draw(number)
        self.rows += rows
        self.write(rows)

    def some(self) -> None:
        """A few good rows."""
        self.good(self.luck.randint(5, 90))

    def fill(self) -> None:
        """Good rows until the last chunk is full."""
        missing = -len(self.rows) % CHUNK
        if missing:
            self.good(missing)

    def num_good(self) -> int:
        """Rows that count, of the chunks that are full."""
        full = len(self.rows) // CHUNK * CHUNK
        return sum(row is not BAD for row in self.rows[:full])

    def rarest(self, steps: Sequence[str]) -> str:
        """A step of these that has come least often: so all of them come."""
        times = Counter(self.weather)
        least = min(times[step] for step in steps)
        return self.luck.choice([step for step in steps if times[step] == least])

    def come(self, step: str) -> None:
        """Let a step of the weather come."""
        self.weather.append(step)
        getattr(self, step)()

    def write(self, rows: list[float]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is left running."""


class FolderScene(Scene):
    """A folder of CSV files."""

    ANY = ("some", "append", "bad_rows", "gzip_file", "odd_names")
    UNWATCHED = ("removed_unread",)
    SAVED = ("replace", "truncate", "append_earlier", "too_late", "cleared")

    def __init__(self, folder: Path, luck: random.Random) -> None:
        super().__init__(luck)
        self.folder, self.source = folder, str(folder)
        folder.mkdir()
        self.number = 0
        self.files: list[Path] = []  # that hold rows of the ledger

    def _next(self) -> Path:
        self.number += 1
        return self.folder / f"part-{self.number:05d}.csv"

    def _new(self, content: str | bytes) -> Path:
        path = self._next()
        hidden = self.folder / f".{path.name}.tmp"
        hidden.write_bytes(content if isinstance(content, bytes) else content.encode())
        os.replace(hidden, path)
        return path

    def write(self, rows: list[float]) -> None:
        self.files.append(self._new(f"{NAME}\n" + _lines(rows)))

    def append(self) -> None:
        """Rows at the end of the newest file."""
        rows = self.draw(self.luck.randint(1, 30))
        if not self.files or self.files[-1] != max(self.files):
            self.write(rows)
        else:
            with open(self.files[-1], "a") as file:
                file.write(_lines(rows))
        self.rows += rows

    def bad_rows(self) -> None:
        """A file with cells that are no numbers, and rows that are too long."""
        rows = self.draw(20)
        lines = _lines(rows).splitlines()
        ledger: list[float | None] = list(rows)
        for at in self.luck.sample(range(1, 20), 3):
            lines[at] = self.luck.choice(["bob", "1,2,3", "nan", "inf"])
            ledger[at] = BAD
        self.files.append(self._new("\n".join([NAME, *lines]) + "\n"))
        self.rows += ledger

    def gzip_file(self) -> None:
        """A file that is no CSV at all: none of its rows count."""
        self._new(gzip.compress(_lines(self.draw(30)).encode()))
        self.some()

    def odd_names(self) -> None:
        """A pipe and a loop of links under the names of files."""
        os.mkfifo(self._next())
        link = self._next()
        os.symlink(link.name, link)
        self.some()

    def removed_unread(self) -> None:
        """A file that was there only while nobody looked."""
        os.unlink(self._new(f"{NAME}\n" + _lines(self.draw(20))))

    def replace(self) -> None:
        """Another file under the name of one that was read: it is not read again."""
        other = self.folder / ".other"
        other.write_text(f"{NAME}\n" + _lines(self.draw(25)))
        os.replace(other, self._forget())

    def truncate(self) -> None:
        """A file that was read ends earlier now."""
        path = self._forget()
        os.truncate(path, path.stat().st_size // 2)

    def append_earlier(self) -> None:
        """Rows at the end of a file that is not the newest: read when they are found."""
        rows = self.draw(CHUNK)
        recent = self.files[-2 * APPENDED_TO :]
        with open(recent[len(recent) // 2], "a") as file:
            file.write(_lines(rows))
        self.rows += rows

    def too_late(self) -> None:
        """A file that sorts before those that were read: it is not read."""
        (self.folder / f"a-{self.number:05d}.csv").write_text(f"{NAME}\n" + _lines(self.draw(20)))

    def cleared(self) -> None:
        """The oldest file is cleared away."""
        os.unlink(self._forget(0))

    def _forget(self, number: int | None = None) -> Path:
        """A file, or the one of this number, that is not read any more; never the newest."""
        if len(self.files) < 2:
            self.good(CHUNK)
        last = len(self.files) - 1
        return self.files.pop(self.luck.randrange(last) if number is None else number)


class LogScene(Scene):
    """A log of JSON lines."""

    ANY = ("some", "in_pieces", "bad_rows", "rename", "rename")
    UNWATCHED = ("cut_back", "rename_twice")
    SAVED = ("copy_truncate", "removed")

    def __init__(self, folder: Path, luck: random.Random) -> None:
        super().__init__(luck)
        folder.mkdir()
        self.path = folder / "rows.jsonl"
        self.source = str(self.path)
        self.path.write_text("")
        self.good(CHUNK)  # the first line tells the columns

    def write(self, rows: list[float]) -> None:
        self._append("".join(json.dumps({NAME: row}) + "\n" for row in rows))

    def _append(self, text: str) -> None:
        with open(self.path, "a") as file:
            file.write(text)

    def in_pieces(self) -> None:
        """A line that comes in two pieces."""
        (row,) = self.draw(1)
        text = json.dumps({NAME: row}) + "\n"
        self._append(text[:6])
        self._append(text[6:])
        self.rows.append(row)

    def bad_rows(self) -> None:
        """Lines that are no rows."""
        for line in self.luck.sample(["{", "[1]", '{"y": "x"}', '{"z": 1}', "\x00", "null"], 3):
            self.good(self.luck.randint(1, 5))
            self._append(line + "\n")
            self.rows.append(BAD)

    def rename(self) -> None:
        """The log is renamed, and a new one begun; the old one stays beside it."""
        self._shift()
        os.replace(self.path, self.path.with_name("rows.jsonl.1"))
        self.path.write_text("")
        self.good(self.luck.randint(1, 20))

    def rename_twice(self) -> None:
        """Two rotations while nobody watches."""
        self.rename()
        self.rename()

    def cut_back(self) -> None:
        """Lines that nobody has read are cut off again: they never count."""
        size = self.path.stat().st_size
        self._append("".join(json.dumps({NAME: row}) + "\n" for row in self.draw(10)))
        os.truncate(self.path, size)

    def copy_truncate(self) -> None:
        """The log is copied and emptied in its place."""
        self._shift()
        shutil.copy(self.path, self.path.with_name("rows.jsonl.1"))
        os.truncate(self.path, 0)

    def removed(self) -> None:
        """The log is removed, and begun anew.

        With rows, which are then saved: a watch that knows only a log that is gone cannot tell
        which of the files beside it came later. It tells a gap if the new one is rotated too.
        """
        os.unlink(self.path)
        self.path.write_text("")
        self.good(CHUNK)

    def _shift(self) -> None:
        for number in range(8, 0, -1):
            old = self.path.with_name(f"rows.jsonl.{number}")
            if old.exists():
                os.replace(old, self.path.with_name(f"rows.jsonl.{number + 1}"))


class RedisScene(Scene):
    """A Redis stream."""

    ANY = ("some", "bad_rows", "restart")
    UNWATCHED = ("trimmed_unread",)
    SAVED = ("trimmed", "made_anew")

    def __init__(self, folder: Path, luck: random.Random) -> None:
        super().__init__(luck)
        folder.mkdir()
        self.server = Server(folder)
        self.source = self.server.url()
        self.next_id = 1_000_000
        self.good(CHUNK)

    def _add(self, fields: dict[str, Any]) -> None:
        with self.server.client as client:
            client.xadd("rows", fields, id=f"{self.next_id}-0")
        self.next_id += 1

    def write(self, rows: list[float]) -> None:
        for row in rows:
            self._add({NAME: repr(row)})

    def bad_rows(self) -> None:
        """Entries that are no rows."""
        for fields in ({NAME: "text"}, {"z": "1"}, {"row": "{half"}, {NAME: "nan"}):
            self.good(self.luck.randint(1, 5))
            self._add(fields)
            self.rows.append(BAD)

    def restart(self) -> None:
        """The server is away for a moment."""
        self.server.stop()
        self.server.start()
        self.some()

    def trimmed_unread(self) -> None:
        """Entries that are gone before anybody reads them."""
        first = self.next_id
        for row in self.draw(10):
            self._add({NAME: repr(row)})
        with self.server.client as client:
            client.xdel("rows", *(f"{number}-0" for number in range(first, self.next_id)))

    def trimmed(self) -> None:
        """What was read is dropped."""
        with self.server.client as client:
            client.xtrim("rows", maxlen=0, approximate=False)

    def made_anew(self) -> None:
        """The stream is removed, and its numbers begin again from below."""
        with self.server.client as client:
            client.delete("rows")
        self.next_id = self.luck.randint(1, 900_000)

    def close(self) -> None:
        self.server.stop()


def _lines(rows: list[float]) -> str:
    return "".join(f"{row!r}\n" for row in rows)
