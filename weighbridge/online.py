"""Evidence of an endless stream: update, look, save, resume."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from weighbridge import checkpoint
from weighbridge.base import CheckpointError
from weighbridge.data import as_values
from weighbridge.estimators import Method, resolve_sequential
from weighbridge.model import Model
from weighbridge.result import Evidence
from weighbridge.run import RowPolicy, Session, Update, update_session

SCHEMA = "weighbridge.online.1"


class Online:
    """The evidence of one model on a stream, updated as the rows arrive.

    Args:
        model: a ``wb.Model``.
        method: a method object, or its name.
        seed: the same seed and the same updates give the same numbers.
        on_bad_row: "raise", or "skip" to leave out and count rows that cannot be used.

    >>> import weighbridge as wb
    >>> data = wb.zoo.gaussian.simulate(60, seed=1)
    >>> small = wb.SGAIS(num_islands=4, num_particles=16)
    >>> online = Online(wb.zoo.gaussian.model(), small, seed=0)
    >>> first, second = online.update(data[:20]), online.update(data[20:])
    >>> second.num_observations, second.log_predictive < 0
    (60, True)
    """

    def __init__(
        self,
        model: Model,
        method: str | Method = "auto",
        seed: int = 0,
        *,
        on_bad_row: RowPolicy = "raise",
    ) -> None:
        self.seed, self.on_bad_row = seed, on_bad_row
        self._session = Session(model, resolve_sequential(method), seed, on_bad_row)

    @property
    def num_observations(self) -> int:
        """Rows seen so far, repeated rows counted."""
        return round(self._session.run.num_observations)

    def update(self, data: Any) -> Update:
        """Absorb rows, any number of them; nothing is held back for later.

        All rows are checked before the first is absorbed: on bad data the state is as before.
        """
        return update_session(self._session, as_values(data))

    def result(self) -> Evidence:
        """The evidence of everything seen, with the posterior and the path."""
        return self._session.result()

    def save(self, path: str | Path) -> None:
        """Write the run to one file, whole or not at all."""
        session = self._session
        arrays, plain = session.run.state()
        metadata = {
            "model": session.model.fingerprint(),
            "method": _describe(session.method),
            "seed": self.seed,
            "on_bad_row": self.on_bad_row,
            "elapsed": session.elapsed,
            "checker": session.checker.state(),
            "weight_counts_rows": session.weight_counts_rows,
            "run": plain,
        }
        checkpoint.write(path, SCHEMA, arrays, metadata)

    @classmethod
    def load(cls, path: str | Path, model: Model, method: str | Method = "auto") -> Online:
        """Continue a saved run, bit for bit as if it had never stopped.

        Args:
            path: what ``save`` wrote.
            model: the model of that run.
            method: the method of that run.
        """
        arrays, metadata = checkpoint.read(path, SCHEMA)
        chosen = resolve_sequential(method)
        if metadata.get("model") != model.fingerprint():
            raise CheckpointError(
                f"{path} was saved with another model (another prior or log-likelihood). Load it "
                "with the model it was saved with, or start a new run."
            )
        if metadata.get("method") != _describe(chosen):
            raise CheckpointError(
                f"{path} was saved with another method or other settings. Give load the method "
                "it was saved with: Online.load(path, model, method)."
            )
        try:
            online = cls(model, method, metadata["seed"], on_bad_row=metadata["on_bad_row"])
            session = online._session
            session.run.restore(arrays, metadata["run"])
            session.checker.restore(metadata["checker"])
            session.weight_counts_rows = metadata["weight_counts_rows"]
            session.elapsed = float(metadata["elapsed"])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise CheckpointError(f"{path} is not a complete run: {error!r}.") from error
        return online


def _describe(method: Any) -> str:
    """A hash of a method's settings; numbers enter by value, whatever array holds them."""
    fields = {field.name: getattr(method, field.name) for field in dataclasses.fields(method)}
    leaves, structure = jax.tree_util.tree_flatten(fields)
    numbers = [np.asarray(leaf).tolist() for leaf in leaves]
    return hashlib.sha256(repr((structure, numbers)).encode()).hexdigest()[:16]
