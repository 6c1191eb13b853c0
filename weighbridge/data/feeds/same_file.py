"""Whether a file of a folder was read before, under another name."""

from __future__ import annotations

from pathlib import Path

from weighbridge.data.feeds.base import Notice
from weighbridge.data.feeds.file_identity import FileMark, open_regular, shown
from weighbridge.data.feeds.taken import Taken


def name_before(path: Path, mark: FileMark, taken: Taken) -> str | None:
    """The name under which a file was read already: it was renamed since, or linked.

    Its inode is the same, and it begins with the bytes that were read. One that has not grown also
    has the same time of writing: otherwise the inode of a file that is gone was used anew.

    Args:
        path: the file.
        mark: as it is now.
        taken: what was read.
    """
    for name, known in taken.files.items():
        old = known.mark
        if old is None or old.inode != mark.inode or old.size > mark.size:
            continue
        if (old == mark) if old.size == mark.size else _begins_with(path, old):
            return name
    return None


def _begins_with(path: Path, mark: FileMark) -> bool:
    try:
        with open(open_regular(path), "rb") as file:
            return mark.holds_for(file.fileno())
    except OSError:  # gone again
        return False


def read_before(name: str, before: str, grown: bool) -> Notice:
    """What to tell of such a file."""
    text = f"{shown(name)} is the file that was read as {shown(before)}, renamed or linked: "
    text += "only what had not been read is read." if grown else "it does not count again."
    return Notice("duplicate", name, text)
