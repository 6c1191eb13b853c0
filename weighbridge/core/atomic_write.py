"""Write a file completely or not at all, and have it on the disk when the call returns."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import threading
from pathlib import Path

# Bytes per write: a full disk is noticed early, and a signal is handled between two writes.
PIECE = 1 << 20
# Error numbers of file systems that cannot sync a directory, or do not allow opening one.
CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM, errno.EISDIR)
TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<process>\d+)-(?P<number>\d+)\.tmp")

_numbers = itertools.count()
_in_use: set[str] = set()
_lock = threading.Lock()


class NotDurableError(OSError):
    """The file is complete and in its place, but may be lost after a power cut."""


def write_whole(path: Path, payload: bytes) -> None:
    """Replace the contents of a file; after a crash, the old or the new contents are there.

    The bytes are written to a temporary file in the same folder. This file is synced and renamed,
    and then the folder is synced: without this, the renaming may be lost after a power cut. Raises
    an ``OSError`` if something fails; a failure before the renaming leaves the old file unchanged.
    """
    remove_leftovers(path.parent, re.escape(path.name))
    with _lock:
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{next(_numbers)}.tmp")
        _in_use.add(temporary.name)
    try:
        _write_synced(temporary, payload)
        os.replace(temporary, path)
    except BaseException:  # an interrupt too
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        _in_use.discard(temporary.name)
    _sync_folder(path.parent)


def _write_synced(path: Path, payload: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0), 0o666)
    try:
        view = memoryview(payload)
        while view:
            written = os.write(descriptor, view[:PIECE])
            view = view[written:]
        os.fsync(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):  # report the first error
            os.close(descriptor)
        raise
    os.close(descriptor)  # some file systems report a full disk only here


def _sync_folder(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in CANNOT_SYNC:
            raise NotDurableError(error.errno, error.strerror) from error


def remove_leftovers(folder: Path, name_pattern: str) -> list[str]:
    """Remove temporary files of processes that died while writing, and return their names.

    Args:
        folder: the folder with the temporary files.
        name_pattern: regular expression for the names of the files that should have been written.
    """
    removed = []
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder):
            found = TEMPORARY.fullmatch(entry)
            if found is None or not re.fullmatch(name_pattern, found["name"]):
                continue
            if entry in _in_use or _is_alive(int(found["process"])):
                continue
            with contextlib.suppress(OSError):
                os.unlink(folder / entry)
                removed.append(entry)
    return removed


def _is_alive(process: int) -> bool:
    """Whether another process may still be writing; files of this process are in ``_in_use``."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it belongs to another user
        return True
    return True
