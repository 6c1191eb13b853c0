"""A redis-server of our own, that can be stopped, restarted and given a password."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks.weather.rows import NAMES, Row


class Server:
    """A server on a free port, whose streams survive its restarts."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.password = folder, ""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def url(self, stream: str = "rows") -> str:
        """Where the stream is, with the password if there is one."""
        user = f":{self.password}@" if self.password else ""
        return f"redis://{user}127.0.0.1:{self.port}/0?stream={stream}"

    @property
    def client(self) -> Any:
        """A connection of now."""
        import redis

        return redis.Redis(port=self.port, password=self.password or None)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        import redis

        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        options += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        if self.password:
            options += ["--requirepass", self.password]
        self._process = subprocess.Popen(
            ["redis-server", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + 60.0
        while True:
            try:
                self.client.ping()
                return
            except redis.ConnectionError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)

    def stop(self) -> None:
        """Stop it; what was written is on the disk."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def add(self, rows: list[Row], first: int | None = None) -> None:
        """More entries, with numbers of our own if a first one is given."""
        with self.client as client:
            for place, row in enumerate(rows):
                name = "*" if first is None else f"{first + place}-0"
                client.xadd("rows", dict(zip(NAMES, map(repr, row))), id=name)
