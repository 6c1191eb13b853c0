"""Whether a file of a folder was already read under another name."""

from __future__ import annotations

from pathlib import Path

from weighbridge.data.feeds.base import Notice
from weighbridge.data.feeds.file_identity import FileMark, open_regular, shown
from weighbridge.data.feeds.taken import TakenFiles


def name_before(path: Path, mark: FileMark, taken: TakenFiles) -> str | None:
    """The name under which a file was already read, if it was renamed or linked since.

    Its inode is the same, and it begins with the bytes that were read. If it has not grown, its
    time of writing is the same too; otherwise the inode of a removed file was reused.

    Args:
        path: the file.
        mark: its present mark.
        taken: the files that were read.
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
    except OSError:  # removed
        return False


def read_before(name: str, before: str, grown: bool) -> Notice:
    """The notice for such a file."""
    text = f"{shown(name)} is the file that was read as {shown(before)}, renamed or linked: "
    text += "only what had not been read is read." if grown else "it does not count again."
    return Notice("duplicate", name, text)
