"""Rotated logs: find the file that was read, and the file that follows it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from weighbridge.data.feeds.file_identity import FileMark, open_regular

# Number of neighbouring files to examine.
MOST = 1000


class Located(NamedTuple):
    """The file of a mark, opened, or a copy of it."""

    file: int
    path: Path
    is_copy: bool


class Successor(NamedTuple):
    """The file to read after another one, and the files that may be between the two."""

    path: Path
    between: list[Path]


def locate(path: Path, mark: FileMark) -> Located | None:
    """Find the file of a mark: at its path, renamed in the same folder, or copied there.

    Args:
        path: its original path.
        mark: the mark of the file.
    """
    copies = list[Located]()
    for candidate in [path, *_beside(path)]:
        try:
            file = open_regular(candidate)
        except OSError:
            continue
        holds = mark.holds_for(file)
        if holds and os.fstat(file).st_ino == mark.inode:
            for copy in copies:
                os.close(copy.file)
            return Located(file, candidate, False)
        if holds and not copies:
            copies.append(Located(file, candidate, candidate != path))
        else:
            os.close(file)
    return copies[0] if copies else None


def successor(path: Path, finished: os.stat_result) -> Successor:
    """The file that was started when one was rotated: ``log.2``, then ``log.1``, then ``log``.

    Args:
        path: the path to which the log is written now.
        finished: the status of the file that was read to its end.
    """
    beside = _beside(path)
    stats = {}
    for other in beside:
        try:
            stats[other] = os.stat(other)
        except OSError:
            continue
    names = [p for p, s in stats.items() if os.path.samestat(s, finished)]
    number = next((n for p in names if (n := _number(path, p)) is not None), None)
    if number is not None:
        numbered = {n: p for p in stats if (n := _number(path, p)) is not None}
        later = [n for n in numbered if n < number]
        following = numbered[max(later)] if later else path
        missing = [numbered[n] for n in later] if later and max(later) != number - 1 else []
        return Successor(following, missing)
    now = finished.st_mtime_ns
    between = [p for p, s in stats.items() if s.st_mtime_ns > now and p not in names]
    return Successor(path, between)


def _beside(path: Path) -> list[Path]:
    """Files in the same folder whose names begin like that of the log."""
    try:
        names = sorted(os.listdir(path.parent))
    except OSError:
        return []
    found = [name for name in names if name.startswith(path.stem) and name != path.name]
    return [path.parent / name for name in found[:MOST]]


def _number(path: Path, rotated: Path) -> int | None:
    """The number of a rotated log: ``log.jsonl.3`` or ``log.3.jsonl``."""
    stem, ending = re.escape(path.stem), re.escape(path.suffix)
    found = re.fullmatch(rf"{stem}(?:{ending}\.(\d+)|\.(\d+){ending})", rotated.name)
    return int(found[1] or found[2]) if found else None
