"""The identity of a file, and whether it still begins as it did when it was read."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

# Number of bytes at the beginning and at the end of the read part that the digest covers.
PROBE_BYTES = 4096
# Opening a pipe under the name of a file must not block.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class FileMark(NamedTuple):
    """The state of a file when its first `size` bytes were known; as a list in JSON.

    Attributes:
        inode: its number on the disk; a file that is renamed keeps it.
        size: number of bytes that the digest covers.
        time: when it was last written, in nanoseconds.
        digest: digest of the first and last of these bytes.
    """

    inode: int
    size: int
    time: int
    digest: str

    def is_at(self, status: os.stat_result) -> bool:
        """Whether size, time and inode equal those of the mark: nothing was written since."""
        return (status.st_ino, status.st_size, status.st_mtime_ns) == self[:3]

    def holds_for(self, file: int) -> bool:
        """Whether the open file begins with the bytes of the mark.

        The inode may differ: a longer copy that replaced the file continues where the file ended. A
        change only in the middle of a large file is not detected.
        """
        return os.fstat(file).st_size >= self.size and _digest(file, self.size) == self.digest


def mark_of(file: int, size: int | None = None) -> FileMark:
    """The mark of an open file, or of its first `size` bytes.

    >>> with open(__file__, "rb") as opened:
    ...     mark = mark_of(opened.fileno(), 100)
    ...     mark.size, mark.holds_for(opened.fileno())
    (100, True)
    """
    status = os.fstat(file)
    known = status.st_size if size is None else size
    return FileMark(status.st_ino, known, status.st_mtime_ns, _digest(file, known))


def mark_from(plain: Any) -> FileMark | None:
    """The mark that a cursor holds as a list; None if it is not valid."""
    if not isinstance(plain, list | tuple) or len(plain) != len(FileMark._fields):
        return None
    mark = FileMark(*plain)
    if not all(isinstance(n, int) and not isinstance(n, bool) for n in mark[:3]):
        return None
    return mark if mark.size >= 0 and isinstance(mark.digest, str) else None


def open_regular(path: Path) -> int:
    """Open a file for reading, without waiting; OSError if it is a pipe, a folder or a device."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # opening a device may have side effects
        raise OSError(errno.EINVAL, "it is not a regular file")
    file = os.open(path, _FLAGS)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return file


def mark_file(path: Path) -> FileMark:
    """The mark of a whole file; OSError if it cannot be opened or is not a regular file."""
    file = open_regular(path)
    try:
        return mark_of(file)
    finally:
        os.close(file)


def mark_whole_lines(path: Path, mark: FileMark) -> FileMark | None:
    """The mark up to the last line end before its size; None if the mark is no longer valid."""
    try:
        file = open_regular(path)
    except OSError:
        return None
    try:
        start = max(0, mark.size - PROBE_BYTES)
        ends = os.pread(file, mark.size - start, start).rfind(b"\n") + 1
        whole = mark_of(file, start + ends)
        return whole._replace(time=mark.time) if mark.holds_for(file) else None
    finally:
        os.close(file)


def line_goes_on(file: int, size: int) -> bool:
    """Whether the first `size` bytes of a file end within a line."""
    around = os.pread(file, 2, size - 1) if size else b""
    return len(around) == 2 and not set(around) & set(b"\r\n")


def shown(name: str) -> str:
    """A name for messages, with unprintable characters escaped.

    >>> shown("day 1.csv"), shown("a\\nb.csv")
    ('day 1.csv', "'a\\\\nb.csv'")
    """
    return name if name.isprintable() else repr(name)


def reason_of(error: OSError) -> str:
    """The reason of a system error, without the path."""
    return error.strerror or type(error).__name__


def _digest(file: int, size: int) -> str:
    first = os.pread(file, min(size, PROBE_BYTES), 0)
    start = max(0, size - PROBE_BYTES)
    last = os.pread(file, size - start, start)
    return hashlib.sha256(first + last).hexdigest()[:16]
