"""The file in which ``wb.evidence(..., resume=PATH)`` keeps its run, and from which it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from weighbridge.core import checkpoint_file
from weighbridge.core.checks import check_seed
from weighbridge.core.errors import CheckpointError, MethodError
from weighbridge.core.saved_content import anything, record, text, whole
from weighbridge.data.fingerprint import exact_digest
from weighbridge.estimators.protocols import BatchMethod, ResumableMethod
from weighbridge.estimators.registry import Method
from weighbridge.models.held import Held
from weighbridge.results.evidence_result import Evidence
from weighbridge.weighing.run_state import check_identity, identity

SCHEMA = "weighbridge.evidence_run.1"
# Seconds between two writings of the file; they take at most this share of the time.
BETWEEN = 10.0
MOST_TIME = 0.05
CONTENT = record(
    {
        "seed": whole(most=2**63 - 1),
        "data": text,
        "runs": record({}, others=record({}, others=anything)),
    },
    others=anything,
)

Kept = tuple[dict[str, np.ndarray], dict[str, Any]]


def check_resumable(method: Method, path: Any) -> None:
    """Refuse a path or a method with which a run cannot be kept; before the data are read."""
    if not isinstance(path, str | Path):
        raise MethodError(f"resume must be the path of a file, not {path!r}.")
    if not isinstance(method, ResumableMethod):
        raise MethodError(
            f"{method.name!r} cannot go on from a file: resume is for wb.NestedSampling. Leave it "
            "out. For rows that come in chunks, wb.Online has save and load."
        )
    checkpoint_file.check_place(path)


def estimate_in(
    path: str | Path | None, held: Held, method: BatchMethod, seed: int
) -> Callable[..., Evidence]:
    """The ``estimate`` of a method; it keeps its run in a file, if there is one."""
    if path is None or not isinstance(method, ResumableMethod):
        return method.estimate
    return partial(method.estimate, checkpoint=RunFile(path, held, method, seed))


class RunFile:
    """Runs of one call, in one file: with a tolerance, one for each round of islands.

    Args:
        path: the file; a run that is in it already goes on.
        held: the model and its data.
        method: the method; a run goes on with other limits too.
        seed: of the runs.
    """

    def __init__(self, path: str | Path, held: Held, method: ResumableMethod, seed: int) -> None:
        check_seed(seed)
        self._path = Path(path)
        self._about = {
            **identity(held.model, method.without_limits()),
            "seed": int(seed),
            "data": exact_digest(*held.contents()),
        }
        self._runs: dict[str, Kept] = {}
        self._written, self._pause = time.monotonic(), BETWEEN
        if self._path.exists():
            self._read(held, method)

    def _read(self, held: Held, method: ResumableMethod) -> None:
        arrays, metadata = checkpoint_file.read(self._path, SCHEMA)
        check_identity(self._path, metadata, held.model, method.without_limits())
        with self.refusing():
            CONTENT(metadata, "metadata")
            for name, what in (("data", "other data"), ("seed", f"the seed {metadata['seed']}")):
                if metadata[name] != self._about[name]:
                    raise CheckpointError(
                        f"{self._path} was written for {what}. Use the same again, or another file."
                    )
            self._runs = {name: ({}, plain) for name, plain in metadata["runs"].items()}
            for full_name, array in arrays.items():
                run, _, name = full_name.partition("/")
                self._runs[run][0][name] = array

    def find(self, first_island: int) -> Kept | None:
        """The run that begins with this island; None if the file has none."""
        return self._runs.get(str(first_island))

    def is_due(self) -> bool:
        """Whether the file is older than a few seconds."""
        return time.monotonic() - self._written >= self._pause

    def keep(self, first_island: int, arrays: dict[str, np.ndarray], plain: dict[str, Any]) -> None:
        """Write the file with this run in it."""
        began = time.monotonic()
        self._runs[str(first_island)] = arrays, plain
        together = {
            f"{run}/{name}": array
            for run, (kept, _) in self._runs.items()
            for name, array in kept.items()
        }
        runs = {run: plain for run, (_, plain) in self._runs.items()}
        checkpoint_file.write(self._path, SCHEMA, together, self._about | {"runs": runs})
        self._written = time.monotonic()
        self._pause = max(BETWEEN, (self._written - began) / MOST_TIME)

    def refusing(self) -> AbstractContextManager[None]:
        """A block in which every error about the contents is a ``CheckpointError``."""
        return checkpoint_file.refusing(self._path)
