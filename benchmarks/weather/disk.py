"""A small disk that can be filled up: a file system in memory, which only root may mount."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


class SmallDisk:
    """A folder with little room.

    Without the right to mount it is a folder like any other, and `is_small` says so.

    Args:
        path: where it is; made if need be.
        mebibytes: of room.
    """

    def __init__(self, path: Path, mebibytes: int = 16) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        options = ["-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(path)]
        done = subprocess.run(["mount", *options], capture_output=True, check=False)
        self.is_small = done.returncode == 0

    def fill(self) -> None:
        """Leave no room."""
        if not self.is_small:
            return
        with open(self.path / "ballast", "wb", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                while True:
                    try:
                        file.write(b"\0" * size)
                    except OSError:
                        break

    def clear(self) -> None:
        """Make room again."""
        (self.path / "ballast").unlink(missing_ok=True)

    def close(self) -> None:
        """Take it away."""
        if self.is_small:
            subprocess.run(["umount", "-l", str(self.path)], check=True)
            os.rmdir(self.path)
