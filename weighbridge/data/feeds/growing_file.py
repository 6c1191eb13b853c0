"""A file that is read while it grows, until another file replaces it."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from weighbridge.data.feeds.file_identity import FileMark, mark_of

# Number of reads without new data from a renamed file before the next one is started: its writer
# may not have noticed the rotation yet.
QUIET_LOOKS = 5


class RewrittenError(Exception):
    """The file no longer begins with the bytes that were read."""


class GrowingFile:
    """A file of lines at a path where its writer may put another file.

    Args:
        file: a file opened for reading; `close` closes it.
        path: its original path, where its successor appears.
        mark: the mark of the known part of the file, or None at the beginning.
        patience: seconds to wait at the end before None is returned.
    """

    def __init__(self, file: int, path: Path, mark: FileMark | None, patience: float) -> None:
        self.file = file
        self.path = path
        self.patience = patience
        self.mark = mark or mark_of(file, 0)
        self._byte = 0
        self._quiet = 0

    def seek(self, offset: int) -> int:
        """Go to a byte."""
        self._byte = offset
        return offset

    def read(self, size: int) -> bytes | None:
        """New bytes; None if there are none now, and empty at the end of a renamed file."""
        piece = os.pread(self.file, size, self._byte)
        # Checked after reading: the bytes are valid if the file is still the same.
        if not self.mark.holds_for(self.file):
            raise RewrittenError
        if piece:
            self._byte += len(piece)
            self._quiet = 0
            self.mark = mark_of(self.file, max(self._byte, self.mark.size))
            return piece
        self._quiet = self._quiet + 1 if self._has_successor() else 0
        if self._quiet > QUIET_LOOKS:
            return b""
        time.sleep(self.patience)
        return None

    def mark_to(self, byte: int) -> FileMark:
        """The mark of the file up to a byte that was read."""
        return mark_of(self.file, byte)

    def has_grown(self) -> bool:
        """Whether there is more than was read."""
        return os.fstat(self.file).st_size > self.mark.size

    def close(self) -> None:
        """Close the file."""
        os.close(self.file)

    def _has_successor(self) -> bool:
        """Whether another file is at the path, and has been written to."""
        try:
            there = os.stat(self.path)
        except OSError:  # does not exist yet
            return False
        here = os.fstat(self.file)
        other = (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)
        return other and stat.S_ISREG(there.st_mode) and there.st_size > 0
