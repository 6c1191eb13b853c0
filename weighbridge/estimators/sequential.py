"""Sequential runs: the protocol that they implement, and functions that they share."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from weighbridge.core.compilation import jit
from weighbridge.core.errors import ModelError
from weighbridge.core.status import Status
from weighbridge.core.types import Array, PyTree
from weighbridge.estimators.annealing.cloud import Cloud
from weighbridge.estimators.path_points import PathPoint
from weighbridge.models.model import Model, unravel_positions
from weighbridge.models.targets.rows import Rows
from weighbridge.results.evidence_result import Evidence

# Events that are counted over all annealing steps.
COUNTED = ("num_diverged", "num_undefined", "num_infinite", "dropped")


class Kept(NamedTuple):
    """Rows that a run has kept, and whether these are all rows seen."""

    values: PyTree
    weight: np.ndarray
    is_complete: bool


class SequentialRun(Protocol):
    """A sequential run: it takes rows, gives the evidence so far, and can be saved."""

    @property
    def path(self) -> list[PathPoint]:
        """The estimate after each piece of the rows."""
        ...

    @property
    def num_observations(self) -> float:
        """Sum of the weights of the rows seen."""
        ...

    @property
    def num_rows(self) -> int:
        """Number of rows seen, whatever their weights."""
        ...

    def particles(self) -> Cloud:
        """The particles, weighted by all rows so far."""
        ...

    def absorb(self, values: PyTree, weight: np.ndarray) -> None:
        """Process at most ``chunk_after`` rows; after an error the run is unchanged."""
        ...

    def undoable(self) -> AbstractContextManager[None]:
        """A block that restores the run if it ends in an error."""
        ...

    def kept(self) -> Kept | None:
        """All rows seen or a uniform sample of them; None if neither is kept."""
        ...

    def flags(self) -> tuple[Status, ...]:
        """Reasons for caution, the gravest first."""
        ...

    def result(self, elapsed: float, extra: dict[str, Any]) -> Evidence:
        """The evidence so far."""
        ...

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values from which ``restore`` continues bit for bit."""
        ...

    def restore(self, arrays: dict[str, np.ndarray], plain: dict[str, Any]) -> None:
        """Continue from a saved ``state``."""
        ...


def annealing_steps(run: SequentialRun) -> float:
    """Number of annealing steps of a run. Joined points of its path have the sum of their steps."""
    return float(sum(point.annealing_steps for point in run.path))


def unexplained(
    model: Model, position: np.ndarray, rows: Rows, first_row: int, *, undefined: bool, draw: str
) -> ModelError:
    """The error for rows that no particle can explain.

    Args:
        model: the model whose log-likelihood failed.
        position: the particles that were tried.
        rows: the rows for which it failed.
        first_row: number of the first of these rows.
        undefined: True if the log-likelihood was NaN; False if it was -inf for every particle.
        draw: the word for a particle in the message.
    """
    if not undefined:
        return ModelError(
            f"The log-likelihood of this chunk is -inf for every {draw}: no parameter value that "
            "was tried can have produced these rows. Check the support of the likelihood and the "
            "scale of the data, or use more particles."
        )
    values = np.asarray(_row_values(model, position, rows.values)).reshape(-1, len(rows.weight))
    bad = np.isnan(values) & (np.asarray(rows.weight) > 0)
    row = int(np.argmax(bad.any(axis=0))) + first_row
    return ModelError(
        f"The log-likelihood is not a number (NaN) at row {row} (counting from 0) for "
        f"{int(bad.any(axis=1).sum())} of {len(bad)} parameter draws. Check it for log(0), 0/0 or "
        "overflow; it must return -inf where the density is zero."
    )


@jit
def _row_values(model: Model, positions: Array, values: PyTree) -> Array:
    return row_log_likelihoods(model, positions, values)


def row_log_likelihoods(model: Model, positions: Array, values: PyTree) -> Array:
    """Log-likelihood of every row at every particle: islands x particles x rows."""

    def evaluate(position: Array) -> Array:
        return model.row_log_likelihoods(model.transform(position)[0], values)

    return jax.vmap(jax.vmap(evaluate))(positions)


def posterior(
    model: Model, position: Array | np.ndarray, log_weight: Array | np.ndarray
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Weighted positions as named draws, and their normalised log weights."""
    draws = unravel_positions(model, position.reshape(-1, model.dimension))
    log_weights = np.asarray(log_weight).reshape(-1)
    log_weights = log_weights - log_weights.max()
    log_weights = log_weights - np.log(np.sum(np.exp(log_weights)))
    return {name: np.asarray(draws[name]) for name in model.names}, log_weights


def cloud_state(cloud: Cloud) -> dict[str, np.ndarray]:
    """The particles as arrays to be saved."""
    return {name: np.asarray(leaf) for name, leaf in cloud._asdict().items()}


def restored_cloud(arrays: Mapping[str, np.ndarray], like: Cloud) -> Cloud:
    """The saved particles; they must have the shapes of ``like``."""
    if any(arrays[name].shape != leaf.shape for name, leaf in like._asdict().items()):
        raise ValueError("the particles have another shape")
    return Cloud(*(arrays[name] for name in Cloud._fields))
