"""A feed of the files of a directory, to which files may be added."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from weighbridge.core.errors import DataError
from weighbridge.data.feeds.base import Cursor, Notice, Parcel, advanced, bad_cursor
from weighbridge.data.feeds.file_identity import (
    FileMark,
    line_goes_on,
    mark_file,
    mark_of,
    mark_whole_lines,
    open_regular,
    reason_of,
    shown,
)
from weighbridge.data.feeds.files import read_parcels, unreadable
from weighbridge.data.feeds.looking import HELD_UP, Looks, passed_over
from weighbridge.data.feeds.same_file import name_before, read_before
from weighbridge.data.feeds.shapes import Shapes
from weighbridge.data.feeds.taken import TakenFiles, place_within, restored
from weighbridge.data.sources.files import head_of
from weighbridge.data.sources.reading import NoRowsError
from weighbridge.data.sources.requested_columns import ALL_COLUMNS, Request, not_numbers
from weighbridge.data.values import LeftOut, num_rows

# File types to which lines can be appended.
APPENDABLE = (".csv", ".jsonl")


class DirectoryFeed:
    """The files of a directory in the order of their names; with `follow` also later ones.

    A file that is still being written is not read yet. It is taken when its size and time have not
    changed for `settle` seconds, or as soon as it has been renamed from a hidden or temporary name
    (``.x``, ``x.tmp``, ``x.part``) that was seen before. Files are taken in the order of their
    names: a later file that sorts before them is not read, with a notice. Name files so that they
    sort in the order of arrival.

    Lines that are appended to a .csv or .jsonl file after it was taken are read too, when the file
    has not changed for a while and before the next file is taken. So as long as only the newest
    file grows, the rows come in the order of file names and lines, whenever they were written: a
    run that was killed and resumed gets the same rows. Lines appended to an earlier file are read
    when they are found, with a notice that their order is that of arrival. This holds for the 64
    files read last, which the cursor remembers; changes of older files only give a notice. A file
    that no longer begins as it did when it was read (by size and a digest of its first and last
    4096 bytes) was replaced: it gives a notice and is not read again. The same holds for a changed
    .parquet or .npz file. If one of the files read last comes again under a later name, renamed or
    as a hard link, it does not count again, and there is a notice too.

    Files that cannot be read at all (a pipe, a loop of links, no permission) are skipped with a
    notice, and with `follow` a directory that was removed is waited for.

    Args:
        path: the directory.
        request: the columns to read; by default all numeric columns of the first file.
        follow: whether to wait for more files.
        settle: seconds without a change before a file is taken.
        patience: seconds between two scans.
    """

    seekable = True
    num_rows: int | None = None

    def __init__(
        self,
        path: str | os.PathLike[str],
        request: Request = ALL_COLUMNS,
        *,
        follow: bool = False,
        settle: float = 2.0,
        patience: float = 0.2,
    ) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise DataError(f"There is no folder {str(path)!r}. Make it, or check the path.")
        self.follow, self.settle, self.patience = follow, settle, patience
        self._request = request
        self.left_out: LeftOut = {}
        self._shapes = Shapes()

    def describe(self) -> str:
        """One line about the source of the rows."""
        return f"files in {self.path}{', as they come' if self.follow else ''}"

    def read(self, cursor: Cursor | None = None) -> Iterator[Parcel | None]:
        """Blocks of the files, from the cursor on."""
        looks = Looks(self.path, self.settle, self.patience, self.follow)
        taken, self._shapes = TakenFiles(self._request.columns), Shapes()
        self._shapes.restore(cursor)
        if cursor is not None:
            if not {"name", "taken", "columns", "offset"} <= set(cursor):
                raise bad_cursor(cursor, self.describe())
            taken, name = restored(cursor, self._request.columns, self.describe())
            looks.resume(taken)
            yield from self._resume(name, taken, looks)
        while True:
            found = looks.next(taken)
            if found.notices:
                yield Parcel(None, notices=found.notices)
            if found.name is not None:
                yield from self._take(found.name, taken, looks)
            elif self.follow:
                time.sleep(self.patience)
                yield None
            else:
                break
        if not taken.count:
            raise DataError(f"There is no file with rows in {str(self.path)!r}.")

    def _resume(self, name: str, taken: TakenFiles, looks: Looks) -> Iterator[Parcel | None]:
        """Continue in the file of the cursor, if an earlier process did not finish it."""
        path = self.path / name
        began = time.monotonic()
        while path.exists() and not looks.is_complete(name):
            if time.monotonic() - began > HELD_UP * self.settle:
                return  # read when it has not changed for a while
            time.sleep(self.patience)
            yield None
        if path.exists():
            yield from self._read_on(name, taken, looks)
            return
        later = self._renamed(name, taken, looks)
        if later is not None:  # its other rows come now, as under the old name
            taken.rename(name, later)
            yield Parcel(None, notices=(read_before(later, name, True),))
            yield from self._read_on(later, taken, looks)
            return
        taken.forget(name)  # files that were read may be removed
        text = f"{shown(name)} is gone: rows of it that had not been read yet are missing."
        yield Parcel(None, notices=(Notice("gap", name, text),))

    def _take(self, name: str, taken: TakenFiles, looks: Looks) -> Iterator[Parcel]:
        """Read the next file, or a file that has changed since it was read."""
        if name > taken.last:
            try:
                mark = mark_file(self.path / name)
            except FileNotFoundError:
                looks.lost(name)
                return
            except OSError as error:
                taken.begin(name)
                looks.leave(name)
                yield Parcel(None, notices=(passed_over(name, reason_of(error)),))
                return
            taken.begin(name)
            before = name_before(self.path / name, mark, taken)
            if before is None:
                yield from self._read_file(name, mark, None, taken, looks)
            else:
                yield from self._take_again(name, mark, before, taken, looks)
        else:
            yield from self._read_on(name, taken, looks)

    def _take_again(
        self, name: str, mark: FileMark, before: str, taken: TakenFiles, looks: Looks
    ) -> Iterator[Parcel]:
        """A file that was read has a new name: only the new name counts from now on."""
        old = taken.files[before].mark
        grown = old is None or mark.size > old.size
        taken.rename(before, name)
        if before != name:  # else it was told when reading went on in it
            looks.leave(before)
            yield Parcel(None, notices=(read_before(name, before, grown),))
        if grown:
            yield from self._read_on(name, taken, looks)
        else:
            looks.read(name, mark[:3])

    def _renamed(self, name: str, taken: TakenFiles, looks: Looks) -> str | None:
        """The later name of a file that was being read when an earlier process ended."""
        for later in looks.names_after(taken.last):
            try:
                mark = mark_file(self.path / later)
            except OSError:
                continue
            if name_before(self.path / later, mark, taken) == name:
                return later
        return None

    def _read_on(self, name: str, taken: TakenFiles, looks: Looks) -> Iterator[Parcel]:
        """Read the part of a file after the place where reading ended, if it is still that file."""
        before = taken.files[name]
        old = before.mark
        try:
            file = open_regular(self.path / name)
        except FileNotFoundError:
            looks.lost(name)
            return
        except OSError as error:
            taken.forget(name)
            looks.leave(name)
            yield Parcel(None, notices=(passed_over(name, reason_of(error)),))
            return
        try:
            mark = mark_of(file)
            same = old is None or old.holds_for(file)
            completed = old is not None and same and line_goes_on(file, old.size)
        finally:
            os.close(file)
        still = old is not None and mark[1:] == old[1:]
        appendable = Path(name).suffix.lower() in APPENDABLE
        if not same or not (appendable or still or old is None or mark.size == old.size):
            taken.forget(name)
            looks.leave(name)
            yield Parcel(None, notices=(_replaced(name),))
            return
        notices = []
        if completed:
            notices.append(_completed(name))
        if name < taken.last and old is not None and mark.size > old.size:
            notices.append(_out_of_order(name, taken.last))
        if notices:
            yield Parcel(None, notices=tuple(notices))
        yield from self._read_file(name, mark, before.place, taken, looks)

    def _read_file(
        self, name: str, mark: FileMark, at: Cursor | None, taken: TakenFiles, looks: Looks
    ) -> Iterator[Parcel]:
        """The parcels of a file from a place on.

        The last one is returned only if the file did not change meanwhile: a line may be
        incomplete.
        """
        path = self.path / name
        held = list[Parcel]()  # the last parcel with rows, and later notices
        problem: DataError | None = None
        try:
            if taken.columns is None:
                head = head_of(path, self._request._replace(columns=None))
                taken.columns = head.kept
                self.left_out |= {ignored: not_numbers(ignored) for ignored in head.ignored}
            place = taken.place(name, mark)
            request = self._request._replace(columns=taken.columns)
            for parcel in read_parcels(path, request, place, at, self._shapes):
                if parcel.cursor is not None:
                    yield from held
                    held = []
                held.append(parcel)
        except DataError as error:
            problem = error
        looks.read(name, mark[:3])
        if self.follow and not _is_as_before(path, mark):
            if held and held[0].cursor is not None:
                at = None if held[0].identifier is not None else place_within(held[0].cursor)
            yield from self._leave_torn(name, mark, at, taken, looks)
            return
        if held and held[0].cursor is not None:
            at = place_within(advanced(held[0].cursor, num_rows(held[0].values)))
        taken.end(name, mark, at)
        yield from held
        if isinstance(problem, NoRowsError):
            text = f"{problem} It is passed over."
            yield Parcel(None, notices=(Notice("gap", name, text),))
        elif problem is not None and self._request.lenient and taken.columns is None:
            yield Parcel(None, notices=(unreadable(name, problem),))
        elif problem is not None:
            raise problem

    def _leave_torn(
        self, name: str, mark: FileMark, at: Cursor | None, taken: TakenFiles, looks: Looks
    ) -> Iterator[Parcel]:
        """The file changed while it was read: the next scan finds this, and reads the rest."""
        whole = mark_whole_lines(self.path / name, mark)
        if whole is None:
            taken.forget(name)
            looks.leave(name)
            yield Parcel(None, notices=(_replaced(name),))
        else:
            taken.end(name, whole, at)


def _is_as_before(path: Path, mark: FileMark) -> bool:
    try:
        return mark.is_at(os.stat(path))
    except OSError:  # removed while it was read: everything was read
        return True


def _replaced(name: str) -> Notice:
    text = (
        f"{shown(name)} is not what it was when it was read: it was replaced or written anew. It "
    )
    text += "is not read again, and rows of it that had not been read are missing. Give new rows a "
    return Notice("gap", name, text + "new file, or append to it.")


def _completed(name: str) -> Notice:
    text = f"The last line of {shown(name)} had no end when it was read, and was written on since: "
    return Notice("changed", name, text + "it may count as it was then. Write whole lines.")


def _out_of_order(name: str, last: str) -> Notice:
    text = (
        f"{shown(name)} has grown after {shown(last)} was taken: its new rows are read now, in the "
    )
    return Notice("changed", name, text + "order in which they were found.")
