"""Protocols of methods: those that need all the data at once, and those that take rows in chunks.

A new method inherits from ``BatchMethod`` or ``SequentialMethod`` and overrides the defaults that
do not fit. Callers use these attributes; they never test for a concrete class.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol, Self, cast, runtime_checkable

import numpy as np

from weighbridge.core.islands import Combined, combine_islands
from weighbridge.core.thresholds import MAX_TEMPERED_SPREAD
from weighbridge.core.types import PyTree, Report
from weighbridge.estimators.sequential import SequentialRun
from weighbridge.models.model import Model
from weighbridge.results.evidence_result import Evidence


@runtime_checkable
class Method(Protocol):
    """The attributes of every method.

    Its islands are independent runs. ``Evidence.diagnostics["island_log_evidence"]`` has the log
    evidence of each island; rounds of islands are merged with these numbers.
    """

    @property
    def name(self) -> str:
        """Name of the method in results."""
        ...

    @property
    def num_islands(self) -> int:
        """Number of independent populations; with fewer than 4 a tolerance is refused."""
        return 1

    @property
    def states_error(self) -> bool:
        """Whether the spread over islands is a valid error."""
        return True

    @property
    def disagreement(self) -> float:
        """Islands are flagged as disagreeing if log Z has a larger spread over them (nats)."""
        return MAX_TEMPERED_SPREAD

    @property
    def evens_islands(self) -> bool:
        """Whether islands are equalised during the run, so that the end hides their spread."""
        return False

    @property
    def counts(self) -> tuple[str, ...]:
        """Names of diagnostics that are counts; they are summed over rounds of islands."""
        return ()

    def merged(self, rounds: Sequence[Evidence]) -> Evidence | None:
        """Rounds as one result, if the method merges them in a way of its own; else None."""
        return None

    def combine(self, islands: np.ndarray) -> Combined:
        """Combine the log evidences of the islands."""
        return combine_islands(islands)


@runtime_checkable
class BatchMethod(Method, Protocol):
    """A method that needs all the data at once."""

    def of_a_round(self, dimension: int) -> Self:
        """The method for one round of a run with a tolerance; by default unchanged.

        Args:
            dimension: dimension of the largest model.
        """
        return self

    def estimate(
        self,
        model: Model,
        values: PyTree | None,
        weight: np.ndarray | None,
        *,
        seed: int = 0,
        first_island: int = 0,
        report: Report | None = None,
    ) -> Evidence:
        """The evidence of a model on data that are in memory.

        Args:
            model: with a log-likelihood of rows or of all data.
            values: the observations; None for a model that contains its data.
            weight: how often each row counts; None for a likelihood that does not factorise.
            seed: the same seed gives the same numbers.
            first_island: number of the first island; other islands draw other random numbers.
            report: called with the progress.
        """
        ...


@runtime_checkable
class SequentialMethod(Method, Protocol):
    """A method that takes rows in chunks; ``start`` begins a run."""

    @property
    def reservoir(self) -> int | None:
        """Most rows that a run keeps; None if it keeps all rows, or none."""
        return None

    @property
    def half_life(self) -> float | None:
        """Observations after which a row counts half; None if rows always count fully."""
        return None

    @property
    def shuffles(self) -> bool | None:
        """Whether rows in memory are shuffled; None: only if their order matters."""
        return False

    def chunk_after(self, rows_seen: int, *, in_memory: bool) -> int:
        """Size of the next chunk after so many rows; it may be larger if all are in memory."""
        ...

    def with_reservoir_for(self, rows: int) -> Self:
        """The method with a reservoir of at least this many rows, which are in memory anyway."""
        if self.reservoir is None:
            return self
        larger = dataclasses.replace(cast(Any, self), reservoir=max(self.reservoir, rows))
        return cast(Self, larger)

    def start(self, model: Model, *, seed: int = 0, first_island: int = 0) -> SequentialRun:
        """Begin a run; other islands draw other random numbers."""
        ...
