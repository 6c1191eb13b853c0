"""Only one watch in a run directory: a lock that the system releases when its process ends."""

from __future__ import annotations

import contextlib
import datetime
import errno
import importlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from weighbridge.core.errors import CheckpointError, InUseError

LOCK = "watch.lock"
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
TAKEN = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
# Bytes to read; a lock file of ours is shorter.
LONGEST = 4096


class Holder(NamedTuple):
    """The holder of a run directory: process, host, and the time when it took the lock."""

    process: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}, since {self.since}"


@contextlib.contextmanager
def locked(directory: Path, warn: Callable[[str], None]) -> Iterator[None]:
    """A block with exclusive use of a run directory, which is created if it does not exist.

    The lock is a lock of the system (``flock``) on the file ``watch.lock``. It ends with the block
    or with the process, however the process ends. The file stays, and names the holder of the
    lock. On a file system without locks the text of the file is used, as far as it can be checked.

    Args:
        directory: the run directory.
        warn: called with a message if the file system has no locks.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with locked(folder, print):
    ...     with locked(folder, print):
    ...         pass
    Traceback (most recent call last):
    weighbridge.core.errors.InUseError: The run directory ... is in use by another watch: ...
    """
    descriptor = _open(directory)
    try:
        _take(descriptor, directory, warn)
        try:
            _write(descriptor, _ourselves())
            yield
        finally:
            _write(descriptor, None)
    finally:
        os.close(descriptor)


def _take(descriptor: int, directory: Path, warn: Callable[[str], None]) -> None:
    """Take the lock, or raise an ``InUseError``."""
    try:
        if not _lock(descriptor):
            raise _in_use(directory, _read(descriptor))
    except OSError as error:
        other = _read(descriptor)
        if other is not None and _may_run(other):
            refusal = _in_use(directory, other)
            refusal.add_note(f"If there is no such process any more, remove {directory / LOCK}.")
            raise refusal from error
        warn(
            f"{directory} is on a file system without locks ({error.strerror or error}): see to it "
            "that no other watch uses the same run directory."
        )


def _open(directory: Path) -> int:
    """The lock file, opened for reading and writing."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
        return os.open(directory / LOCK, flags, 0o644)
    except OSError as error:
        if error.errno in READ_ONLY:
            raise CheckpointError(
                f"The run directory {directory} is read-only for this user "
                f"({error.strerror or error}), and a watch writes there. Choose another one, or "
                "make it writable."
            ) from error
        raise CheckpointError(
            f"Could not open {directory / LOCK}: {error.strerror or error}. Choose another run "
            "directory."
        ) from error


def _lock(descriptor: int) -> bool:
    """Try to take the lock; False if another process has it, ``OSError`` without locks."""
    try:
        fcntl: Any = importlib.import_module("fcntl")
    except ImportError as error:
        raise OSError(errno.ENOSYS, "this system has no flock") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in TAKEN:
            return False
        raise
    return True


def _read(descriptor: int) -> Holder | None:
    """The holder that the file names; None if it names none, or cannot be parsed."""
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        said = json.loads(os.read(descriptor, LONGEST))
        process, host, since = int(said["pid"]), said["host"], said["since"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    printable = all(isinstance(text, str) and text.isprintable() for text in (host, since))
    return Holder(process, host, since) if printable and process > 0 else None


def _write(descriptor: int, holder: Holder | None) -> None:
    """Write the holder to the file; failures are ignored, because the lock is not the text."""
    text = b""
    if holder is not None:
        said = {"pid": holder.process, "host": holder.host, "since": holder.since}
        text = json.dumps(said).encode() + b"\n"
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text, 0)


def _ourselves() -> Holder:
    now = datetime.datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    return Holder(os.getpid(), socket.gethostname(), now)


def _may_run(holder: Holder) -> bool:
    """Whether that process may still run, as far as this host can check."""
    if holder.host != socket.gethostname():
        return True
    try:
        os.kill(holder.process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # a process of another user
        return True
    return True


def _in_use(directory: Path, holder: Holder | None) -> InUseError:
    who = "a process that does not tell its name" if holder is None else str(holder)
    how = ""
    if holder is not None and holder.process == os.getpid():
        who = f"this process itself ({who})"
    elif holder is not None:
        where = "" if holder.host == socket.gethostname() else f" on {holder.host}"
        how = f" (kill {holder.process}{where})"
    return InUseError(
        f"The run directory {directory} is in use by another watch: {who}. Rows would count "
        f"twice. Wait for its end, or stop it{how}, or choose another directory. `weighbridge "
        "report` can be used while it runs."
    )
