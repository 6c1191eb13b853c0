"""Folders that change while they are read: a random history of each, with and without kills.

A history is told step by step to a folder and to a ledger. The reader is either never interrupted,
or thrown away between steps and begun anew where its last chunk ended, as after a kill.
"""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable
from pathlib import Path

from benchmarks.weather.rows import Reader, Reading, Row, csv_lines, csv_text, draw, judge
from benchmarks.weather.verdict import Came, Kind, Place, Verdict
from weighbridge import WeighbridgeError
from weighbridge.data.feeds.chunking import Chunks

SIZE = 7
# None so many times in a row: nothing more comes. Files settle after a hundredth of a second.
QUIET = 12


class Folder:
    """A folder of CSV files and the ledger of all rows that were ever written to it."""

    def __init__(self, path: Path, luck: random.Random) -> None:
        self.path, self.luck = path, luck
        path.mkdir()
        self.rows: list[Row] = []
        self.names: list[str] = []

    def draw(self) -> list[Row]:
        rows = draw(self.luck, self.luck.randint(1, 30))
        self.rows += rows
        return rows

    def new_file(self) -> None:
        """A file of new rows, under its name at once."""
        name = f"part-{len(self.names):03d}.csv"
        hidden = self.path / f".{name}.tmp"
        hidden.write_text(csv_text(self.draw()))
        os.replace(hidden, self.path / name)
        self.names.append(name)

    def append(self) -> None:
        """More rows at the end of the newest file."""
        with open(self.path / self.names[-1], "a") as file:
            file.write(csv_lines(self.draw()))

    def append_earlier(self) -> None:
        """More rows at the end of any file."""
        with open(self.path / self.luck.choice(self.names), "a") as file:
            file.write(csv_lines(self.draw()))

    def replace(self) -> None:
        """Another file under the name of one that was there."""
        other = self.path / ".other"
        other.write_text(csv_text(self.draw()))
        os.replace(other, self.path / self.luck.choice(self.names))

    def rewrite(self) -> None:
        """A longer copy in the place of a file, as an editor saves it."""
        path = self.path / self.luck.choice(self.names)
        other = self.path / ".other"
        other.write_text(path.read_text() + csv_lines(self.draw()))
        os.replace(other, path)

    def truncate(self) -> None:
        """A file ends earlier, at a byte as it falls."""
        path = self.path / self.luck.choice(self.names)
        os.truncate(path, self.luck.randrange(path.stat().st_size))

    def loop(self) -> None:
        """A symbolic link to itself, and two to each other."""
        name = f"part-{len(self.names):03d}.csv"
        if self.luck.random() < 0.5:
            os.symlink(name, self.path / name)
        else:
            os.symlink(f"zz{name}", self.path / name)
            os.symlink(name, self.path / f"zz{name}")
        self.names.append(name)
        self.new_file()

    def fifo(self) -> None:
        """A pipe under the name of a file: nobody will ever write to it."""
        name = f"part-{len(self.names):03d}.csv"
        os.mkfifo(self.path / name)
        self.names.append(name)
        self.new_file()

    def control_characters(self) -> None:
        """A file whose name would clear a terminal, or is no text."""
        number = len(self.names)
        odd = self.luck.choice([b"\x1b[2J", b"\n\r", b"\x07", b"\xff\xfe", b"\x7f"])
        name = os.fsdecode(f"part-{number:03d}".encode() + odd + b".csv")
        (self.path / name).write_text(csv_text(self.draw()))
        self.names.append(name)
        self.new_file()

    def folder_of_that_name(self) -> None:
        """A folder that is called like a file."""
        name = f"part-{len(self.names):03d}.csv"
        (self.path / name).mkdir()
        self.names.append(name)
        self.new_file()

    def gone_for_a_moment(self, look: Callable[[], None]) -> None:
        """The folder itself is away while it is looked at, and comes back."""
        away = self.path.with_name(f"{self.path.name}-away")
        os.rename(self.path, away)
        look()
        os.rename(away, self.path)
        self.new_file()


class Follower:
    """A reader of a source that is followed."""

    def __init__(self, source: Path | str, policy: str = "raise") -> None:
        self.source, self.reader = source, Reader(policy)
        self.stream: Chunks | None = None

    def look(self) -> None:
        """Take what is there, until nothing comes for a while."""
        if self.stream is None:
            self.stream = self.reader.open(self.source, SIZE, follow=True)
        quiet = 0
        while quiet < QUIET:
            chunk = next(self.stream)
            quiet = quiet + 1 if chunk is None else 0
            if chunk is not None:
                self.reader.take(chunk, self.stream)
        self.reader.told += [notice.text for notice in self.stream.take_notices()]

    @property
    def is_there(self) -> bool:
        """Whether it has begun, and was not killed since."""
        return self.stream is not None

    def kill(self) -> None:
        """What was read and not handed out is forgotten."""
        self.stream = None

    def end(self) -> Reading:
        """The rest of the rows."""
        self.look()
        assert self.stream is not None
        rest = self.stream.pending()
        if rest is not None:
            self.reader.take(rest, self.stream)
        return self.reader.found()


def history(path: Path, step: str, seed: int, *, kills: bool) -> tuple[Reading, list[Row]]:
    """One history of a folder, always the same for a seed, read with or without kills."""
    when = random.Random(seed + 1)
    folder = Folder(path, random.Random(seed))
    # Half a row, which a truncated file ends with, is a matter of the row policy.
    follower = Follower(folder.path, "skip" if step == "truncate" else "raise")
    steps = ["new_file", "new_file", step, "new_file", step, "new_file"]
    for number, told in enumerate(steps):
        if told == "gone_for_a_moment":
            # To begin without the folder is refused, and whoever did it begins again later.
            folder.gone_for_a_moment(follower.look if follower.is_there else lambda: None)
        else:
            getattr(folder, told)()
        if number:  # else no row may be there yet
            follower.look()
        if kills and when.random() < 0.6:
            follower.kill()
    return follower.end(), folder.rows


def attack_folder(step: str, place: Place) -> Verdict:
    """The history read without a kill, and again with some: both right, and both the same."""
    seed = place.luck.getrandbits(32)
    try:
        alone, written = history(place.folder / "alone", step, seed, kills=False)
        killed, _ = history(place.folder / "killed", step, seed, kills=True)
    except WeighbridgeError as error:
        return Verdict(Came.STOPPED, str(error))
    if step in ARRIVAL:
        alone, killed = _in_order(alone, written), _in_order(killed, written)
    told = alone.told and (killed.told or step == "gone_for_a_moment")  # it may miss the moment
    if step in TOLD and not told:
        return Verdict(Came.SILENT, "what cannot be read is passed over without a word")
    for found in (alone, killed):
        verdict = judge(found, written, 2 if step == "truncate" else 0)
        if verdict.came.is_fault:
            return verdict
    # Rows that are destroyed before a kill was made good are gone: that must be told.
    excused = step in DESTROYS and killed.told
    if alone.rows != killed.rows and not excused:
        return Verdict(
            Came.DIFFERENT,
            f"{len(alone.rows)} rows uninterrupted, {len(killed.rows)} resumed, of {len(written)}",
        )
    if odd := [text for text in alone.told + killed.told if not text.isprintable()]:
        return Verdict(Came.DIFFERENT, f"a message that does not print: {odd[0]!r}")
    return verdict


def _in_order(found: Reading, written: list[Row]) -> Reading:
    """The same rows in the order in which they were written."""
    places = {row: place for place, row in enumerate(written)}
    return found._replace(rows=sorted(found.rows, key=lambda row: places.get(row, -1)))


# Rows of earlier files are read as they are found: a kill may change the order, and no row.
ARRIVAL = ("append_earlier", "rewrite")
# What a user must be told, though no row is lost.
TOLD = ("loop", "fifo", "replace", "truncate", "gone_for_a_moment")
# What takes rows away that were there.
DESTROYS = ("replace", "truncate")
NAMES = {
    "append": "rows appended to the newest file",
    "append_earlier": "rows appended to any file",
    "replace": "a file replaced by another",
    "rewrite": "a file replaced by a longer copy",
    "truncate": "a file truncated",
    "loop": "loops of symbolic links",
    "fifo": "a FIFO under the name of a file",
    "control_characters": "names with control characters",
    "folder_of_that_name": "a folder under the name of a file",
    "gone_for_a_moment": "the folder gone for a moment",
}
KINDS = tuple(
    Kind("folder", name, functools.partial(attack_folder, step), 12) for step, name in NAMES.items()
)
