"""Rotated logs: where the file that was read is now, and which one comes after it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from weighbridge.data.feeds.file_identity import FileMark, open_regular

# Files beside a log that are looked at.
MOST = 1000


class Located(NamedTuple):
    """The file that a mark was made of, opened, or a copy of it."""

    file: int
    path: Path
    is_copy: bool


class Successor(NamedTuple):
    """The file to read after another one, and those that may have come between the two."""

    path: Path
    between: list[Path]


def locate(path: Path, mark: FileMark) -> Located | None:
    """Find the file that a mark was made of: at its path, renamed beside it, or as a copy there.

    Args:
        path: where it stood.
        mark: what is known of it.
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
    """The file that was begun when one was rotated away: ``log.2``, then ``log.1``, then ``log``.

    Args:
        path: where the log is written now.
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
    """Files beside a log whose names begin as its own does."""
    try:
        names = sorted(os.listdir(path.parent))
    except OSError:
        return []
    found = [name for name in names if name.startswith(path.stem) and name != path.name]
    return [path.parent / name for name in found[:MOST]]


def _number(path: Path, rotated: Path) -> int | None:
    """The number that rotation gave to a log: ``log.jsonl.3`` or ``log.3.jsonl``."""
    stem, ending = re.escape(path.stem), re.escape(path.suffix)
    found = re.fullmatch(rf"{stem}(?:{ending}\.(\d+)|\.(\d+){ending})", rotated.name)
    return int(found[1] or found[2]) if found else None
